"""Random programs of pointwise operators, views, reductions and row bodies: compiled equals eager,
to the bit; with symbolic sizes, on other sizes, and their gradients too.

RANDOM_GRAPHS=n runs n programs (5 by default), from seed RANDOM_SEED on.
"""

import os
import random

import pytest

import rushlight as rl
from rushlight import fx
from rushlight.aot_autograd import differentiate
from rushlight.decomposition import decompose
from rushlight.errors import UserError
from rushlight.inductor.pipeline import compile_graph
from rushlight.ops.layouts import dense
from rushlight.sym import ShapeEnv

from ..graphs import same

COUNT, SEED = int(os.environ.get("RANDOM_GRAPHS", 5)), int(os.environ.get("RANDOM_SEED", 0))
UNARY = ("exp", "tanh", "sigmoid", "abs", "relu", "gelu", "neg", "silu")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


def program(seed):
    """(function, inputs): the function draws the same calls whatever it is called on."""
    shape = random.Random(seed).choice(
        [(6, 20), (33, 5), (4, 5, 6), (3, 1, 40), (70, 33), (2, 3, 4, 5), (17,)]
    )
    rng = random.Random(seed)
    others = [tuple(n if rng.random() < 0.6 else 1 for n in shape[d:]) for d in range(len(shape))]
    inputs = [rl.randn(*shape), rl.randn(*shape[::-1]), *(rl.randn(*s) for s in others)]

    def function(*given):
        draw = random.Random(seed + 1)
        live = list(given)
        for _ in range(draw.randrange(4, 14)):
            live.append(step(draw, live))
        return tuple(live[-draw.randrange(1, 4) :])

    return function, inputs


def step(draw, live):
    kind = draw.random()
    a = draw.choice(live[-5:])
    dim = draw.randrange(a.ndim) if a.ndim else None
    if kind < 0.3:
        return getattr(rl, draw.choice(UNARY))(a * 0.5)
    if kind < 0.6:
        fitting = [b for b in live if fits(a.shape, b.shape)]
        return getattr(rl, draw.choice(BINARY))(a, draw.choice(fitting or [0.5]))
    if dim is None:
        return a * 2 + 1
    if kind < 0.72:
        how = draw.choice(("sum", "mean", "amax"))
        dims = (dim,) if a.ndim < 3 or draw.random() < 0.5 else tuple(draw.sample(range(a.ndim), 2))
        out = getattr(rl, how)(a, dims, True)
        return a - out if draw.random() < 0.6 else out
    if kind < 0.8:
        out = a.sum(dim)
        return (a / (1 + out.unsqueeze(dim) * out.unsqueeze(dim))) if draw.random() < 0.6 else out
    if kind < 0.88:
        return rl.softmax(a, dim) if draw.random() < 0.6 else rl.log_softmax(a, dim)
    view = draw.choice(("permute", "slice", "flat", "unsqueeze", "expand", "select"))
    if view == "permute":
        order = list(range(a.ndim))
        draw.shuffle(order)
        return a.permute(tuple(order))
    if view == "slice" and a.shape[0] > 2:
        return a[1:] if draw.random() < 0.5 else a[::2]
    if view == "select" and a.ndim > 1:
        return a.select(dim, a.shape[dim] - 1)
    if view == "expand" and a.shape[0] == 1:
        return a.expand((3, *a.shape[1:]))
    if view == "flat":
        return a.reshape((-1,))
    return a.unsqueeze(0) if a.ndim < 4 else a + 1


def fits(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_compiled_equals_eager(seed):
    function, inputs = program(seed)
    graph = fx.trace(function, *inputs)
    want = function(*inputs)
    same(graph(*inputs), want)
    lowered = decompose(graph)
    assert fx.parse(lowered.print()) == lowered.verify()
    compiled = compile_graph(lowered)
    same(compiled(*inputs), want)


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_symbolic_sizes(seed):
    """Sizes above 1 are symbols; the code then runs on larger ones, where its guards allow."""
    function, inputs = program(seed)
    env, names = ShapeEnv(), {}

    def symbol(n):
        if n > 1 and n not in names:
            names[n] = env.size(f"s{n}", n)
        return names.get(n, n)

    layouts = [dense(tuple(map(symbol, x.shape)), "float32") for x in inputs]
    graph = fx.trace(function, *layouts)
    assert fx.parse(graph.print()) == graph
    compiled = compile_graph(decompose(graph))
    same(compiled(*inputs), function(*inputs))
    larger = [rl.randn(*(n + 3 if n > 1 else n for n in x.shape)) for x in inputs]
    try:
        got = compiled(*larger)
    except UserError as error:
        assert "was compiled where" in str(error)
        return
    same(got, function(*larger))


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_gradients(seed):
    function, inputs = program(seed)

    def loss(*given):
        return sum((out * out).sum() for out in function(*given))

    leaves = [x.detach().requires_grad_() for x in inputs]
    total = loss(*leaves)
    total.backward()
    pair = differentiate(fx.trace(loss, *inputs))
    results = compile_graph(decompose(pair.forward))(*inputs)
    same(results[0], total.detach())
    grads = compile_graph(decompose(pair.backward))(*results[1:], rl.ones(()))
    for g, x in zip(grads, leaves, strict=True):
        want = x.grad
        if g is None or want is None:
            assert g is None and (want is None or not want.numpy().any())
        else:
            bound = 1e-4 * (1 + abs(want.numpy()).max())
            assert abs(g.numpy() - want.numpy()).max() <= bound
