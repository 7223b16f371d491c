"""Random programs that write in place, through views, draw random numbers and mix dtypes: compiled
equals eager mode in results, in what is left in the inputs, and in gradients.

RANDOM_GRAPHS=n runs n programs (30 by default), from seed RANDOM_SEED on.
"""

import os
import random

import numpy as np
import pytest

import rushlight as rl
from rushlight import config
from rushlight.nn import functional as F
from rushlight.pipeline import compile_fx

from ..graphs import bits, strides

COUNT, SEED = int(os.environ.get("RANDOM_GRAPHS", 30)), int(os.environ.get("RANDOM_SEED", 0))
UNARY = ("tanh", "sigmoid", "abs", "relu", "neg", "exp")
BINARY = ("add", "sub", "mul", "maximum")


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield


def program(seed):
    """(function, inputs): the function draws the same calls whatever it is called on."""
    rng = random.Random(seed)
    shape = rng.choice([(6, 8), (3, 5), (4, 3, 6), (2, 1, 7), (9,), (4, 4)])
    rl.manual_seed(seed)
    inputs = [rl.randn(*shape), rl.randn(*shape), rl.randn(*shape[-1:])]
    inputs.append(rl.from_numpy(np.arange(int(np.prod(shape))).reshape(shape) % 7))
    if rng.random() < 0.3:
        inputs[1] = inputs[1].to(rl.float64)
    if rng.random() < 0.3 and len(shape) == 2:
        inputs[0] = rl.randn(*shape[::-1]).t()

    def function(*given):
        draw = random.Random(seed + 1)
        live, fresh = list(given), []
        for _ in range(draw.randrange(3, 12)):
            one = step(draw, live, fresh, given)
            if one is not None:
                live.append(one)
        return tuple(live[-draw.randrange(1, 5) :])

    return function, inputs


def step(draw, live, fresh, given):
    kind, a = draw.random(), draw.choice(live[-6:])
    floating = dtype(a) in ("float32", "float64")
    fitting = [b for b in live if fits(a.shape, b.shape)]
    if kind < 0.2:
        if not floating:
            return a * 2 + 1
        out = getattr(rl, draw.choice(UNARY))(a * 0.25)
        fresh.append(out)
        return out
    if kind < 0.4:
        out = getattr(rl, draw.choice(BINARY))(a, draw.choice(fitting or [1]))
        return out
    if kind < 0.6:
        view = viewed(draw, a)
        return view
    if kind < 0.8:
        write(draw, a, fitting, floating)
        return None
    if kind < 0.85:
        return a.clone() if draw.random() < 0.5 else a.detach()
    if kind < 0.9:
        return F.dropout(a, 0.4) if floating else a > 2
    if kind < 0.95 and a.ndim:
        dim = draw.randrange(a.ndim)
        return a.sum(dim, draw.random() < 0.5)
    return a.to(draw.choice((rl.float32, rl.float64, rl.int64))) if floating else a + 1


def viewed(draw, a):
    if not a.ndim:
        return a.unsqueeze(0)
    dim, how = draw.randrange(a.ndim), draw.randrange(7)
    n = a.shape[dim]
    if how == 0:
        order = list(range(a.ndim))
        draw.shuffle(order)
        return a.permute(tuple(order))
    if how == 1 and n > 2:
        return a.narrow(dim, 1, n - 1) if draw.random() < 0.5 else a[:: draw.choice((1, 2))]
    if how == 2 and a.ndim > 1:
        return a.select(dim, draw.randrange(-n, n))
    if how == 3:
        return a.reshape((-1,))
    if how == 4:
        return a.unsqueeze(dim)
    if how == 5:
        return a.detach()
    return a.transpose(dim, draw.randrange(a.ndim))


def write(draw, a, fitting, floating):
    lower = [b for b in fitting if category(b) <= category(a) and smaller(b.shape, a.shape)]
    other = draw.choice(lower) if lower and draw.random() < 0.8 else 2
    how = draw.randrange(6)
    if how == 0:
        a.fill_(other) if isinstance(other, int) else a.copy_(other)
    elif how == 1:
        a.mul_(other)
    elif how == 2 and a.ndim and a.shape[0] > 1:
        a[1:] = 0.5 if floating else 3
    elif how == 3 and floating:
        with rl.no_grad():
            a.add_(other)
    elif how == 4 and a.ndim:
        a[0] += 1
    else:
        a.sub_(other)


def dtype(a):
    return getattr(a.dtype, "name", a.dtype)


def category(a):
    name = dtype(a)
    return 0 if name == "bool" else 1 if name.startswith(("int", "uint")) else 2


def fits(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


def smaller(a, b):
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(a[::-1], b[::-1]))


def run(function, inputs):
    """(results or the error's kind, inputs afterwards)."""
    rl.manual_seed(11)
    try:
        return function(*inputs)
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return error


def copied(x):
    """A copy with the same strides."""
    order = sorted(range(x.dim()), key=lambda d: -x.stride()[d])
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.detach().permute(tuple(order)).contiguous().clone().permute(tuple(back))


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_compiled_equals_eager(seed):
    function, inputs = program(seed)
    mine, theirs = [copied(x) for x in inputs], [copied(x) for x in inputs]
    want = run(function, theirs)
    if isinstance(want, Exception):
        with pytest.raises(Exception):  # noqa: B017
            rl.manual_seed(11)
            compile_fx(function, mine)(*mine)
        return
    compiled = compile_fx(function, mine)
    got = run(compiled, mine)
    assert not isinstance(got, Exception), got
    for i, (g, w) in enumerate(zip([*got, *mine], [*want, *theirs], strict=True)):
        assert bits(g) == bits(w) and strides(g) == strides(w), (i, g, w)
    again, expected = run(compiled, mine), run(function, theirs)
    for i, (g, w) in enumerate(zip([*again, *mine], [*expected, *theirs], strict=True)):
        assert bits(g) == bits(w), (i, g, w)


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_gradients(seed):
    function, inputs = program(seed)
    results = []
    leaves = [[copied(x) for x in inputs] for _ in range(2)]
    for given in leaves:
        for x in given:
            if x.dtype.is_floating_point:
                x.requires_grad_()

    def inside(*given):  # leaves are not written to
        return function(*(x * 1 for x in given))

    compiled = compile_fx(inside, leaves[0])
    for f, given in ((inside, leaves[1]), (compiled, leaves[0])):
        outs = run(f, given)
        if isinstance(outs, Exception):
            results.append(outs)
            continue
        total = None
        for i, o in enumerate(outs):
            if o.requires_grad:
                part = (o * o * (i + 1)).sum().to(rl.float64)
                total = part if total is None else total + part
        if total is not None:
            try:
                total.backward()
            except RuntimeError as error:
                results.append(error)
                continue
        results.append(outs)
    want, got = results
    if isinstance(want, Exception):
        return
    assert not isinstance(got, Exception), got
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.requires_grad == w.requires_grad, i
        assert bits(g.detach()) == bits(w.detach()), (i, g, w)
    for i, (x, y) in enumerate(zip(*leaves)):
        assert (x.grad is None) == (y.grad is None), i
        if x.grad is not None:
            a, b = x.grad.numpy(), y.grad.numpy()
            scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
            assert np.allclose(a / scale, b / scale, rtol=1e-4, atol=1e-5, equal_nan=True), (
                i,
                a,
                b,
            )
