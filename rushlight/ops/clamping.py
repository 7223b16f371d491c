"""Choices between numbers by their size: scalar bodies. NaN wins everywhere but in fmax and fmin."""
from rushlight import dtypes

from . import promotion
from .declare import NUMBERS, composition, scalar
from .pointwise import (
    BINARY,
    MIXED,
    eq,
    fill,
    ge,
    gt,
    is_number,
    le,
    lifted,
    lt,
    maximum,
    minimum,
    ne,
    where,
)
from .samples import call, t

BOUNDS = (call(t(2, 3), -0.5, 0.5), call(t(2, 3), min=0.25), call(t(2, 3), max=0.25), call(t(4, 3, order=(1, 0)), 0, 1),
          call(t(3, 40, dtype="float16"), -1, 1), call(t(4, dtype="int64"), 0, 1), call(t(4, dtype="int64"), -0.5, 0.5),
          call(t(2, 3), t(3), t(2, 1)), call(t(2, 3), t(3)), call(t(2, 3), None, t(3)), call(t(4, dtype="uint8"), 1), call(t(0, 3), 0))


@scalar("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", domain=NUMBERS,
        promote=promotion.numbers, patterns=("TNN", "TN0", "T0N"), cost=2, samples=BOUNDS)
def clamp(x, low, high):
    """x, but at least `min` and at most `max`, where these are given; numbers or tensors."""
    if low is None and high is None:
        raise RuntimeError("[clamp] takes min or max, got neither")
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


@clamp.derivative                   # at a bound the whole slope is x's
def _(g, x, low, high):
    inside = clamped_slope(g, x, low, high)
    dlow = None if low is None else where(lt(x, low), g if high is None else where(lt(lifted(low, x), high), g, 0.0), 0.0)
    dhigh = None if high is None else where(gt(x, high), g, 0.0) if low is None else \
        where(gt(maximum(x, low), high), g, 0.0)
    return inside, dlow, dhigh


@scalar("clamp_backward(Tensor grad, Tensor self, Tensor? min, Tensor? max) -> Tensor", name="clamped_slope",
        patterns=("TTNN", "TTN0", "TT0N"), method=False, function=False, cost=2,
        samples=(call(t(2, 3), t(2, 3), -0.5, 0.5), call(t(2, 3), t(2, 3), None, 0.5)))
def clamped_slope(g, x, low, high):
    g = g if low is None else where(ge(x, low), g, 0.0)
    return g if high is None else where(le(x, high), g, 0.0)


@clamped_slope.derivative
def _(g, x, low, high):
    return clamped_slope(g, x, low, high), None, None, None


@composition("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", samples=(call(t(2, 3), 0.5), call(t(2, 3), t(3))))
def clamp_min(x, low):
    return maximum(x, low) if both_bool(x, low) else clamp(x, low, None)


@composition("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", samples=(call(t(2, 3), 0.5), call(t(2, 3), t(3))))
def clamp_max(x, high):
    return minimum(x, high) if both_bool(x, high) else clamp(x, None, high)


def both_bool(x, bound):
    """Bool tensors, which PyTorch takes with one bound only."""
    return not is_number(bound) and x.dtype == bound.dtype == "bool"


@scalar("fmax(Tensor self, Tensor other) -> Tensor", domain=("int64", "float32", "float64"),
        samples=BINARY[:1] + BINARY[2:] + MIXED[5:6])
def fmax(x, y):
    """The larger number; NaN only where both are."""
    return where(ne(y, y), x, where(ge(x, y), x, y)) if dtypes.is_floating(x.dtype) else maximum(x, y)


@fmax.derivative
def _(g, x, y):
    first = ge(x, y)
    return where(first, g, where(ne(y, y), g, 0.0)), where(first, 0.0, where(ne(y, y), 0.0, g))


@scalar("fmin(Tensor self, Tensor other) -> Tensor", domain=("int64", "float32", "float64"),
        samples=BINARY[:1] + BINARY[2:] + MIXED[5:6])
def fmin(x, y):
    """The smaller number; NaN only where both are."""
    return where(ne(y, y), x, where(le(x, y), x, y)) if dtypes.is_floating(x.dtype) else minimum(x, y)


@fmin.derivative
def _(g, x, y):
    first = le(x, y)
    return where(first, g, where(ne(y, y), g, 0.0)), where(first, 0.0, where(ne(y, y), 0.0, g))


@composition("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
             structural=("nan", "posinf", "neginf"), samples=(call(t(2, 3)), call(t(2, 3), 1.0, 2.0, 3.0), call(t(3, dtype="int64"))))
def nan_to_num(x, nan, posinf, neginf):
    """NaN becomes `nan` (0), infinities the given numbers (the largest and the least of the dtype)."""
    if not dtypes.is_floating(x.dtype):
        return fill(x, 0) + x if x.dtype != "bool" else ne(x, 0)
    top = LARGEST[x.dtype]
    x = where(ne(x, x), 0.0 if nan is None else nan, x)
    x = where(eq(x, float("inf")), top if posinf is None else posinf, x)
    return where(eq(x, float("-inf")), -top if neginf is None else neginf, x)


LARGEST = {"float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127"), "float32": float.fromhex("0x1.fffffep127"),
           "float64": float.fromhex("0x1.fffffffffffffp1023")}
