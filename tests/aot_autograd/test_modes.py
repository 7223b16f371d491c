"""What surrounds a graph: autocast, the grad mode that it leaves, floats that vary, and layers that
stay outside of it."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import config, dynamo, nn
from rushlight.nn import functional as F
from rushlight.pipeline import compile_fx
from rushlight.trace import collect

from ..graphs import same


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    rl.manual_seed(0)


def flat(v):
    return [x for y in v for x in flat(y)] if isinstance(v, (tuple, list)) else [v]


def near(a, b, tolerance):
    for p, q in zip(flat(a), flat(b), strict=True):
        assert (p is None) == (q is None)
        if p is not None:
            assert p.dtype is q.dtype and p.shape == q.shape
            p, q = (v.detach().to(rl.float64).numpy() for v in (p, q))
            assert np.abs(p - q).max() <= tolerance * max(1, np.abs(q).max())


# ---- autocast


def products(x, w):
    y = x @ w + 1
    return y, F.softmax(y, 1), rl.cat([y, x]), F.mse_loss(y, rl.ones(4, 8, dtype=y.dtype)), w @ w


def region(x, w):
    with rl.autocast("cpu", dtype=rl.float16):
        y = rl.mm(x, w)
        with rl.autocast("cpu", enabled=False):
            z = x @ w
        return y, z, F.l1_loss(y, x), x @ w


@pytest.mark.parametrize("wrap", [rl.compile, None], ids=["captured", "traced"])
@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=str)
def test_autocast_acts_in_graphs(wrap, dtype):
    x, w = rl.randn(4, 8), rl.randn(8, 8).requires_grad_()
    compiled = wrap(products, fullgraph=True) if wrap else compile_fx(products, [x, w])
    with collect() as records:
        for on in (True, False, True):
            with rl.autocast("cpu", dtype=dtype, enabled=on):
                got, want = compiled(x, w), products(x, w)
            near(got, want, 1e-2 if on else 1e-6)
            losses = [o[1].float().sum() + o[3].float() for o in (got, want)]
            near(*[rl.autograd.grad(v, w) for v in losses], 2e-2 if on else 1e-5)
    assert not any(r.name in ("fallback.graph", "capture.graph_failed") for r in records)


def test_regions_of_autocast():
    x, w = rl.randn(4, 8), rl.randn(8, 8).requires_grad_()
    got, want = rl.compile(region, fullgraph=True)(x, w), region(x, w)
    near(got, want, 1e-2)
    assert [o.dtype for o in got] == [rl.float16, rl.float32, rl.float32, rl.float16]
    near(*[rl.autograd.grad(o[2] + o[1].sum(), w) for o in (got, want)], 1e-2)


def test_training_under_autocast():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    compiled, x = rl.compile(layer), rl.randn(2, 5, 16)
    found = []
    with collect() as records:
        for f in (compiled, layer):
            rl.manual_seed(1)  # dropout is the same, forward and backward
            with rl.autocast("cpu"):
                out = f(x)
            found.append((out, rl.autograd.grad(out.float().sum(), list(layer.parameters()))))
    near(*found, 6e-2)
    assert not any(r.name in ("fallback.graph", "capture.graph_failed") for r in records)


# ---- what a graph leaves behind


def test_a_graph_that_breaks_off_leaves_its_grad_mode():
    def fn(x, w):
        before = rl.is_grad_enabled()
        rl.set_grad_enabled(False)
        try:
            y = rl.exp(x * w) + 1
            y.sum().item()  # the graph breaks here, and the rest must run without gradients
            z = y * w
        finally:
            rl.set_grad_enabled(before)
        return y, z, z * w

    x, w = rl.randn(4), rl.randn(4).requires_grad_()
    compiled = rl.compile(fn)
    for _ in range(3):
        got, want = compiled(x, w), fn(x, w)
        same([v.detach() for v in got], [v.detach() for v in want])
        assert [v.requires_grad for v in got] == [False, False, True]
        assert rl.is_grad_enabled()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_optimisers_compiled(kind):
    def train(wrap):
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimiser = getattr(rl.optim, kind)(model.parameters(), 0.05)
        x, t, losses = rl.randn(5, 4), rl.arange(5) % 3, []

        def step():
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x), t)
            loss.backward()
            optimiser.step()
            return loss

        step = wrap(step)
        for _ in range(6):
            losses.append(step().detach())
        return [*losses, *model.parameters()]

    near(train(rl.compile), train(lambda f: f), 1e-5)


STEPS = {
    "sgd": lambda p: rl.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: rl.optim.Adam(p, 0.05, weight_decay=0.01),
    "adamw": lambda p: rl.optim.AdamW(p, 0.05),
    "amsgrad": lambda p: rl.optim.AdamW(p, 0.05, amsgrad=True),
}


@pytest.mark.parametrize("kind", STEPS)
def test_an_optimisers_step_is_one_graph(kind):
    """Of all parameters, while the step count and the learning rate vary: eager mode's bits."""

    def train(compiles):
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimiser = STEPS[kind](model.parameters())
        schedule = rl.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
        step = rl.compile(optimiser.step) if compiles else optimiser.step
        x, t = rl.randn(5, 4), rl.arange(5) % 3
        for _ in range(8):
            optimiser.zero_grad()
            F.cross_entropy(model(x), t).backward()
            step()
            schedule.step()
        return list(model.parameters())

    want = train(False)
    with collect() as records:
        got = train(True)
    same([p.detach() for p in got], [p.detach() for p in want])
    assert sum(r.stage == "wrapper" for r in records) <= 4
    assert not any(r.name in ("fallback.graph", "capture.graph_failed") for r in records)


# ---- floats that vary


def test_a_float_that_varies_is_a_number_of_the_run():
    def fn(x, s):
        return (x * s).sin() + s / 3, rl.add(x, x, alpha=s) / (s + 1), x.to(rl.int64) * s

    x = rl.rand(7)
    compiled = rl.compile(fn)
    with collect() as records:
        for i in range(8):
            same(compiled(x, 0.3 + i * 0.37), fn(x, 0.3 + i * 0.37))
    assert sum(r.stage == "wrapper" for r in records) == 2


def test_gradients_with_a_float_that_varies():
    def fn(x, s):
        return (rl.tanh(x * s) * 2**s + s).sum()

    a, b = rl.rand(7).requires_grad_(), rl.rand(7)
    b.copy_(a.detach())
    b.requires_grad_()
    compiled = compile_fx(fn, [a, 0.5])
    for s in (0.5, 0.75, 1.5, -2.0):
        for f, x in ((compiled, a), (fn, b)):
            x.grad = None
            f(x, s).backward()
        near(a.grad, b.grad, 1e-6)
    assert len(compiled.forms) == 1


def test_a_float_that_decides_what_is_computed():
    """p of a norm picks another formula: each value has a graph of its own."""

    def fn(x, p):
        return rl.linalg.vector_norm(x, p)

    x = rl.randn(7)
    compiled = compile_fx(fn, [x, 1.0])
    with collect("fallback") as records:
        for p in (1.0, 2.0, 3.0, float("inf"), 2.0):
            same(compiled(x, p), fn(x, p))
    assert [r.name for r in records].count("fallback.number") == 1


# ---- recurrent layers


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 8), nn.LayerNorm(8)
        self.lstm, self.out = nn.LSTM(8, 8, 2, dropout=0.3), nn.Linear(8, 20)

    def forward(self, x):
        h, state = self.lstm(rl.tanh(self.norm(self.embed(x))) * 2)
        with rl.no_grad():
            mean = (h * 2).exp().mean()
        kept = F.gelu(h) + 1
        kept.mul_(1.5)
        return F.log_softmax(self.out(kept[1:]), -1), state, mean, kept[1:]


def test_a_graph_is_compiled_around_recurrent_layers():
    model = Tagger()
    compiled, x = rl.compile(model, fullgraph=True), rl.randint(0, 20, (5, 3))
    with collect() as records:
        for _ in range(2):
            found = []
            for f in (compiled, model):
                rl.manual_seed(3)
                outs = f(x)
                grads = rl.autograd.grad(outs[0].sum() + outs[3].sum(), list(model.parameters()))
                found.append((outs, grads))
            near(*found, 1e-5)
            with rl.no_grad():
                near(*[(rl.manual_seed(4), f(x))[1] for f in (compiled, model)], 1e-6)
    names = [r.name for r in records]
    assert "fallback.recurrent" in names and "fallback.graph" not in names
    assert sum(r.stage == "wrapper" for r in records) >= 4  # in front of the layers and behind
