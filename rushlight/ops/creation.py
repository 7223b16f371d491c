"""Tensors from sizes and numbers. Random numbers are Philox, indexed by logical element: (seed, offset) gives the bits."""
from . import promotion
from .declare import ALL, NUMBERS, none, scalar
from .layouts import sized
from .samples import call, t
from .values import leaf, word


@scalar("full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor", layout=sized(), domain=ALL,
        promote=promotion.creating("fill_value"), derivative=none, method=False, bottom=True,
        samples=(call((2, 3), 1.5), call((4,), 7), call((), 0.5, dtype="float64"), call((0, 2), 1, dtype="bool")))
def full(size, fill_value, dtype):
    return fill_value


@scalar("arange.sized(SymInt[] size, Scalar start, Scalar step, *, ScalarType? dtype=None) -> Tensor", layout=sized(),
        name="steps", domain=NUMBERS, promote=promotion.creating("start"), derivative=none, method=False, function=False,
        bottom=True)
def steps(size, start, step, dtype):
    return leaf.element(start).to(start.dtype) * step + start


@scalar("linspace.sized(SymInt[] size, Scalar start, Scalar end, Scalar step, SymInt steps, *, ScalarType? dtype=None) -> Tensor",
        layout=sized(), name="spaced", domain=("float32", "float64"), promote=promotion.creating("start"), derivative=none, method=False,
        function=False, bottom=True, samples=(call((5,), 0.0, 1.0, 0.25, 5), call((4,), 1.0, -2.0, -1.0, 4, dtype="float64")))
def spaced(size, start, end, step, steps, dtype):
    """From the nearer end on, so that both ends are exact."""
    i = leaf.element(start)
    back = steps - 1 - i
    return word.where(word.lt(i + i, steps), start + i.to(start.dtype) * step, end - back.to(start.dtype) * step)


@scalar("element(Tensor self) -> Tensor", promote=promotion.counting, derivative=none, method=False, function=False,
        bottom=True, domain=())
def element(x):
    return leaf.element(x)


@scalar("uniform.like(Tensor self, SymInt seed, SymInt offset) -> Tensor", promote=promotion.floating, derivative=none,
        method=False, function=False, bottom=True, cost=12, samples=(call(t(2, 3), 7, 100),))
def uniform(x, seed, offset):
    return leaf.uniform(x, seed, offset)


@scalar("normal.like(Tensor self, SymInt seed, SymInt offset) -> Tensor", promote=promotion.floating, derivative=none,
        method=False, function=False, bottom=True, cost=40, samples=(call(t(2, 3), 7, 100),))
def normal(x, seed, offset):
    return leaf.normal(x, seed, offset)


@scalar("dropout.counter(Tensor self, float p, SymInt seed, SymInt offset) -> Tensor", name="counted_dropout",
        promote=promotion.floats, method=False, function=False, cost=12,
        samples=(call(t(4, 8), 0.5, 7, 100), call(t(4, 8, order=(1, 0)), 0.25, 7, 0)))
def counted_dropout(x, p, seed, offset):
    kept = word.ge(uniform(x, seed, offset), p)
    return word.where(kept, x / (1.0 - p), 0 * x)


@counted_dropout.derivative         # the same counter gives the same mask: nothing is saved
def _(g, p, seed, offset):
    return counted_dropout(g, p, seed, offset)
