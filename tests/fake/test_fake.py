"""Fakes, and every declaration's layout rule on ints and on symbols: equal to each other and to
eager mode."""

import pytest

import rushlight as rl
from rushlight.errors import Unsupported
from rushlight.fake import FakeTensor, fake, guards, symbolic
from rushlight.ops.values import Fake
from rushlight.sym import ShapeEnv, Sym

from ..graphs import OPERATORS, expected, fill, flat, name, samples
from ..ops.materialize import many

CREATES = ("full", "steps")


def outputs_of(op, change):
    """Layouts of every sample's results, with the tensors changed."""
    found = samples(op)
    tensors = [change(x) for x in found.inputs]
    out = []
    for call in found.calls:
        bound = op.bind([fill(v, tensors) for v in call])
        out += [Fake(x) for x in op.infer(bound)]
    return out


def visible(shape, strides):
    return [(int(n), int(s)) for n, s in zip(shape, strides) if int(n) != 1]


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_layout_rule_equals_eager(op):
    for got, want in zip(outputs_of(op, fake), many(expected(op)), strict=True):
        assert got.shape == tuple(want.shape) and got.dtype == want.dtype.name
        if want.numel():
            assert visible(got.shape, got.layout.strides) == visible(want.shape, want.stride())


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_symbolic_rule_equals_the_rule_on_ints(op):
    env = ShapeEnv()

    def change(x):
        try:
            return symbolic(x, env)
        except Unsupported:
            return fake(x)

    ints, symbols = outputs_of(op, fake), outputs_of(op, change)
    for want, got in zip(ints, symbols, strict=True):
        assert tuple(map(int, got.shape)) == want.shape and got.dtype == want.dtype
        if want.numel():
            assert visible(got.shape, got.layout.strides) == visible(
                want.shape, want.layout.strides
            )


def test_symbols_flow_through():
    env = ShapeEnv()
    x = symbolic(rl.ones(5, 4), env, dims=(0,))
    y = rl.gelu(x @ fake((4, 3)) + 1)
    assert isinstance(y, FakeTensor) and str(y.layout) == "f32[s0, 3]"
    assert str(y.reshape((-1,)).layout) == "f32[3*s0]"
    total = rl.cat([x, x], 0)
    assert str(total.layout) == "f32[2*s0, 4]" and isinstance(total.shape[0], Sym)


def test_guards_are_text():
    env = ShapeEnv()
    x = symbolic(rl.ones(5, 4), env, dims=(0,))
    x + fake((5, 4))
    assert "s0 == 5" in guards(env)
    x.select(0, 3)
    assert all(isinstance(g, str) for g in guards(env))


def test_strides_follow_the_symbols():
    env = ShapeEnv()
    x = symbolic(rl.ones(6, 5, 4).permute(1, 0, 2), env, names=("b", "t", "c"))
    assert str(list(x.layout.strides)) == "[c, b*c, 1]"
    y = symbolic(rl.ones(6, 8)[:, ::2], ShapeEnv(), dims=(0,))
    assert str(list(y.layout.strides)) == "[8, 2]"
    with pytest.raises(Unsupported, match="leave gaps"):
        symbolic(rl.ones(6, 8)[:, :4], ShapeEnv())


@pytest.mark.parametrize(
    "given, error, says",
    [
        ("three", TypeError, "expected a tensor"),
        ((2, -1), ValueError, "at least 0"),
        ((2, 3.0), TypeError, "sizes"),
    ],
)
def test_bad_sizes(given, error, says):
    with pytest.raises(error, match=says):
        fake(given)
    with pytest.raises(TypeError, match="no dtype"):
        fake((2,), dtype="float7")


def test_no_sample_is_left_out():
    assert all(flat(samples(op).calls) or op.name in CREATES for op in OPERATORS)


def test_strides_of_broadcast_operands_in_other_orders():
    """Dims that no operand tells apart are ordered by the steps of PyTorch's sort."""
    import itertools

    shapes = [(6, 1, 5), (6, 4, 5), (1, 4, 5), (4, 1), (5,)]
    orders = [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)]
    for left, right in itertools.product(shapes, shapes):
        for order in orders:
            a = (
                rl.ones(*(left[d] for d in order[: len(left)]))
                if len(left) == 3
                else rl.ones(*left)
            )
            a = a.permute(tuple(sorted(range(3), key=lambda d: order[d]))) if len(left) == 3 else a
            b = rl.ones(*right)
            want, got = rl.maximum(a, b), rl.maximum(fake(a), fake(b))
            assert visible(got.shape, got.layout.strides) == visible(want.shape, want.stride())
