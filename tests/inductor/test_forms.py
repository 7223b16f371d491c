"""Forms of generated code: blocks turned over where operands lie across, a long row's phases."""

import pytest

import rushlight as rl
from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph
from rushlight.nn import functional as F
from rushlight.ops import TABLE

from ..graphs import same


def x(*shape):
    return rl.randn(*shape)


def check(fn, *inputs):
    c = compile_graph(decompose(fx.trace(fn, *inputs)))
    same(c(*inputs), fn(*inputs))
    return c.source


@pytest.mark.parametrize(
    "fn, shapes",
    [
        (lambda a, b: a.t() * 2 + b, [(130, 77), (77, 130)]),
        (lambda a, b: rl.tanh(rl.exp(a.t()) * 2) + b, [(130, 77), (77, 130)]),
        (lambda a, b: a.permute(2, 1, 0) * 2 + b, [(70, 5, 77), (77, 5, 70)]),
        (lambda a, b: a.permute(0, 2, 1) * 2 + b, [(4, 70, 77), (4, 77, 70)]),
        (lambda a, b: (a.t() * 2 + b) * a.t(), [(16, 17), (17, 16)]),
    ],
)
def test_operands_that_lie_across_are_turned_over(fn, shapes):
    inputs = [x(*s) for s in shapes]
    assert "rl_turn(" in check(fn, *inputs)
    for dtype in (rl.float64, rl.int64, rl.bool, rl.float16):
        given = [(a * 4).to(dtype) for a in inputs]
        c = compile_graph(decompose(fx.trace(lambda a, b: fn(a.to(rl.float32), b), *given)))
        want = fn(given[0].to(rl.float32), given[1])
        same(c(*given), want)


def test_short_sides_are_walked_as_they_lie():
    assert "rl_turn(" not in check(lambda a, b: a.t() * 2 + b, x(12, 77), x(77, 12))
    assert "rl_turn(" not in check(lambda a, b: a * 2 + b, x(130, 77), x(130, 77))


@pytest.mark.parametrize(
    "fn, shapes",
    [
        (lambda a, b: (a * b).sum(), [(100001,)] * 2),
        (lambda a, b: ((a - b) * (a - b)).mean(), [(301, 377)] * 2),
        (lambda a: rl.softmax(a * 0.5, -1) * 2, [(1, 100001)]),
        (lambda a: (rl.log_softmax(a * 2, 0), (a * 2).sum(0), a.amax()), [(70000,)]),
        (lambda a, b: rl.gelu(F.layer_norm(a * 2, (70001,))) + b, [(1, 70001), (70001,)]),
    ],
)
def test_a_long_row_is_shared_by_threads(fn, shapes):
    assert "_part(" in check(fn, *(x(*s) for s in shapes))


def test_short_rows_and_many_rows_are_not():
    assert "_part(" not in check(lambda a: (a * 2).sum(), x(1000))
    assert "_part(" not in check(lambda a: (a * 2).sum(1), x(2, 50000))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 33])
@pytest.mark.parametrize("length", [5, 16, 40, 48])
def test_rows_are_folded_together(rows, length):
    source = check(lambda a, w: rl.softmax(a * 0.5, -1) * w, x(rows, length), x(length))
    assert ("_at[" in source) == (rows > 1)
    check(lambda a, w: rl.gelu(F.layer_norm(a + 1, (length,), w)), x(rows, length), x(length))
    check(lambda a: a - (a * 2).sum((1, 2), True), x(rows, 3, length))
    check(lambda a: (rl.sigmoid(a) * 2).amax(1, True) + a, x(rows, length).to(rl.float64))


def test_layers_of_other_sizes_share_the_kernels_of_their_norms():
    """Neither n / (n - 1) nor how far apart a channel's pixels lie makes a kernel of its own."""

    def f(x, y):
        outs = []
        for v in (x, y):
            out, mean, var, _ = TABLE["batch_norm_rows"].native(v, None, None, 1e-5)
            n = v.numel() // v.shape[1]
            moved = TABLE["running_step"].native(mean, var, mean, var, 0.1, n / (n - 1))
            outs += [out.relu(), *moved]
        return tuple(outs)

    def images(n, channels, side):
        return rl.randn(n, side, side, channels).permute(0, 3, 1, 2)

    inputs = images(2, 24, 8), images(2, 48, 4)
    c = compile_graph(decompose(fx.trace(f, *inputs)))
    assert len(c.kernels) == 2 and c.source.count('extern "C"') == 1
    same(c(*inputs), f(*inputs))
