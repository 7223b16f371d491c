"""What a capture does once and knows afterwards: calls of modules without a frame of their own,
attributes of classes, layouts of operators' results. Guards and graph are those of doing it each
time."""

import pytest

import rushlight as torch

nn = torch.nn
pytest.importorskip("rushlight._core", exc_type=ImportError)
from rushlight.dynamo import calls  # noqa: E402
from rushlight.dynamo.convert import COMPILED  # noqa: E402
from rushlight.dynamo.operators import Operators  # noqa: E402
from rushlight.dynamo.wrapping import Wrapping  # noqa: E402


class Scaled(nn.Module):
    kind = "plain"
    factor = 2.0

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, *, twice=False):
        y = self.linear(x) * self.factor
        return self.linear(y) if twice and self.kind == "plain" else y


class Other(Scaled):
    kind = "other"

    def __call__(self, x):
        return super().__call__(x, twice=True) + 1


class Net(nn.Module):
    def __init__(self, hooked=False):
        super().__init__()
        self.layers = nn.ModuleList([Scaled(4), Other(4), Scaled(4)])
        if hooked:
            self.layers[2].register_forward_hook(lambda m, args, out: out * 3)
            self.layers[0].register_forward_pre_hook(lambda m, args: (args[0] - 1,))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x, twice=i == 2) if i == 2 else layer(x)
        return x


def told(model, x):
    """What a capture says of itself: guards in their order, graph, result."""
    graphs = []
    backend = lambda gm, examples: graphs.append(gm) or gm.forward
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    out = compiled(x)
    (entry,) = [e for r in COMPILED.values() for e in r.entries if e.module is graphs[0]]
    return [repr(g) for g in entry.guards], graphs[0].code, out


@pytest.mark.parametrize("hooked", [False, True])
def test_guards_and_graph_are_those_of_a_capture_that_knows_nothing(hooked, monkeypatch):
    model, x = Net(hooked), torch.randn(3, 4)
    want = model(x)
    guards, code, out = told(model, x)
    assert out.tolist() == want.tolist() and len(guards) > 20

    class Forgets(dict):
        def __setitem__(self, key, value):
            pass

    real = Wrapping.wrap

    def wrap(self, value, source):
        if type(self.of_classes) is dict:
            self.of_classes, self.inferred = Forgets(), Forgets()
        return real(self, value, source)

    monkeypatch.setattr(Wrapping, "wrap", wrap)
    assert told(model, x)[:2] == (guards, code)
    monkeypatch.setattr(calls, "CALL_OF_MODULES", None)  # each call takes its frame
    plain, text, again = told(model, x)
    assert text == code and again.tolist() == want.tolist()
    assert sorted(plain) == sorted(guards)


def test_a_call_of_a_module_that_gets_a_hook_is_captured_again():
    model, x = Net(), torch.randn(3, 4)
    compiled = torch.compile(model)
    assert torch.allclose(compiled(x), model(x))
    handle = model.layers[1].register_forward_hook(lambda m, args, out: out * 2)
    assert torch.allclose(compiled(x), model(x))
    handle.remove()
    assert torch.allclose(compiled(x), model(x))
    model.layers[0].forward = lambda x: x + 5
    assert torch.allclose(compiled(x), model(x))
    Other.factor = 3.0
    try:
        assert torch.allclose(compiled(x), model(x))
    finally:
        del Other.factor


def test_equal_arguments_of_other_types_have_their_own_layouts():
    def fn(x):
        a = x + 1, x + True, x + 1.0, x * 0.0, x * -0.0
        b = x.sum(0), x.sum((0,)), x.sum([0, 1]), x.sum(0, True), x.sum(1, False)
        with torch.autocast("cpu", torch.bfloat16):
            y = x.float()
            c = y @ y
        return (*a, *b, c, y @ y, y @ y)

    x = torch.arange(9).view(3, 3)
    outs = torch.compile(fn, backend="eager", fullgraph=True)(x)
    for got, want in zip(outs, fn(x)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tolist() == want.tolist()


def test_a_layout_rule_is_asked_once_for_each_kind_of_call(monkeypatch):
    asked = []
    real = Operators.infer_anew

    def infer(self, native, *rest):
        asked.append(native.name)
        return real(self, native, *rest)

    monkeypatch.setattr(Operators, "infer_anew", infer)

    def fn(x):
        for _ in range(5):
            x = torch.relu(x) @ x
        return x

    x = torch.randn(4, 4)
    assert torch.allclose(torch.compile(fn)(x), fn(x))
    assert sorted(asked) == ["matmul", "relu"]
    asked.clear()
    torch.compile(fn, dynamic=True)(x)  # sizes that vary leave guards each time
    assert len(asked) == 10
