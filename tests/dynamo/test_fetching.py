"""The inputs of a graph that come from what the guards remember: as many as a model has, and never
one that the model no longer has."""

import random

import pytest

import rushlight as rl
from rushlight import dynamo, nn

from .both import graphs


class Layer(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)
        self.register_buffer("shift", rl.ones(n))

    def forward(self, x):
        return self.b(self.a(x).relu()) + self.shift


class Stack(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(depth)])
        self.scale = nn.Parameter(rl.ones(1))

    def forward(self, x, factor=2):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale * factor


def fetched(compiled, *args):
    """What the guards of the first entry give for these arguments."""
    served = compiled.__dict__["_forward"]
    return served.entries[0][0].fetch(*args)


def test_all_inputs_come_at_once():
    dynamo.reset()
    model, x = Stack(), rl.ones(2, 3)
    compiled = rl.compile(model, backend="eager", fullgraph=True)
    compiled(x)
    compiled(x)
    assert len(graphs()) == 1
    given = fetched(compiled, model, x, 2, x)
    assert type(given) is tuple and len(given) == 17
    assert {id(p) for p in model.parameters()} < {id(v) for v in given}
    model.layers[1].a.weight = nn.Parameter(rl.zeros(3, 3))
    assert fetched(compiled, model, x, 2, x) is None
    assert compiled(x).tolist() == model(x).tolist()
    assert any(v is model.layers[1].a.weight for v in fetched(compiled, model, x, 2, x))
    assert fetched(compiled, Stack(), x, 2, x) is None
    assert fetched(compiled, model, x) is None  # not what was bound


class Holder:
    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize("way", ["closure", "global", "attribute", "argument"])
def test_whatever_a_model_is_reached_through(way):
    """What a plain object has is not passed: there the inputs are read one by one."""
    dynamo.reset()
    model, x = Stack(), rl.ones(2, 3)
    given = {"attribute": (Holder(model),), "argument": (model,)}.get(way, ())
    space = {"model": model}
    exec("def step(x): return model(x)", space)
    step = {
        "closure": lambda x: model(x),
        "global": space["step"],
        "attribute": lambda holder, x: holder.model(x),
        "argument": lambda model, x: model(x),
    }[way]
    compiled = rl.compile(step, backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(*given, x).tolist() == model(x).tolist()
    guards, target = compiled.entries[0]
    assert guards.fetch in target.__code__.co_consts
    anchors = (model,) if way in ("closure", "global") else ()
    assert (guards.fetch(*given, x, *anchors, x) is None) == (way == "attribute")
    if anchors:
        assert guards.fetch(x, Stack(), x) is None
    model.layers[1].a.weight = nn.Parameter(rl.zeros(3, 3))
    assert compiled(*given, x).tolist() == model(x).tolist()
    if anchors:
        model = space["model"] = Stack()
        assert compiled(x).tolist() == model(x).tolist()


def changes(model, other, r):
    """One random change of a model, of any kind."""
    layer = r.choice(list(model.layers))
    linear = r.choice([layer.a, layer.b])
    fresh = nn.Parameter(rl.rand(3, 3))
    kind = r.randrange(12)
    if kind == 0:
        linear.weight = fresh
    elif kind == 1:
        linear._parameters["weight"] = fresh
    elif kind == 2:
        layer.a, layer.b = layer.b, layer.a
    elif kind == 3:
        layer.shift = rl.rand(3)
    elif kind == 4:
        layer._buffers["shift"] = rl.rand(3)
    elif kind == 5:
        model.layers[r.randrange(3)] = Layer()
    elif kind == 6:
        with rl.no_grad():
            linear.weight.mul_(0.5)
    elif kind == 7:
        linear.weight.data = rl.rand(3, 3)
    elif kind == 8:
        model.load_state_dict(other.state_dict())
    elif kind == 9:
        model.layers = nn.ModuleList(reversed(list(model.layers)))
    elif kind == 10:
        linear.weight = other.layers[0].a.weight
    else:
        model.scale.requires_grad_(not model.scale.requires_grad)


@pytest.mark.parametrize("seed", range(6))
def test_models_that_change_in_turn(seed):
    dynamo.reset()
    r = random.Random(seed)
    rl.manual_seed(seed)
    models = [Stack() for _ in range(2)]
    compiled = rl.compile(lambda m, x: m(x), backend="eager")
    for step in range(60):
        model = models[r.random() < 0.4]
        if r.random() < 0.4:
            changes(model, models[0], r)
        x = rl.ones(r.choice((2, 2, 2, 4)), 3)
        assert compiled(model, x).tolist() == model(x).tolist(), step


def test_gradients_reach_the_model_of_the_call():
    dynamo.reset()
    models = [Stack(), Stack()]
    compiled = rl.compile(lambda m, x: m(x), backend="eager")
    for model in models * 3:
        compiled(model, rl.ones(2, 3)).sum().backward()
    for model in models:
        found = [p.grad for p in model.parameters()]
        model.zero_grad()
        for _ in range(3):
            model(rl.ones(2, 3)).sum().backward()
        for p, g in zip(model.parameters(), found):
            assert rl.allclose(p.grad, g)
