"""Truth, bits and kinds of numbers: scalar bodies whose results are bools or patterns of bits. Nothing here has a slope."""
from rushlight import dtypes

from . import promotion
from .complexes import part
from .declare import ALL, FLOATS, composition, none, scalar
from .pointwise import (
    UNARY,
    abs,
    add,
    bitwise_and,
    bitwise_or,
    eq,
    gt,
    le,
    logical_not,
    lt,
    mul,
    ne,
    sub,
    where,
)
from .samples import call, t
from .values import word

WHOLE = ALL[:6]                     # bools and integers
TRUTH = ("bool", "int64", "float32")                    # other dtypes run as their parts
BITS = (call(t(2, 3, dtype="bool"), t(3, dtype="bool")), call(t(4, dtype="int32"), t(4, dtype="int32")),
        call(t(4, dtype="uint8", low=0, high=200), 3), call(t(2, 3, dtype="int64"), t(3, dtype="int8")))
SHIFTS = (call(t(4, dtype="int32", low=-99, high=99), t(4, dtype="int32", low=0, high=9)),
          call(t(4, dtype="uint8", low=0, high=200), 3), call(3, t(4, dtype="int64", low=0, high=9)),
          call(t(4, dtype="int64", low=-99, high=99), 2))
LOGICAL = (call(t(2, 3, dtype="bool"), t(3, dtype="bool")), call(t(2, 3), t(3, dtype="int64")), call(t(2, 3), t(3)),
           call(t(4, dtype="float16"), t(4, dtype="float16")))


def logical(body):
    return scalar(f"{body.__name__}(Tensor self, Tensor other) -> Tensor", promote=promotion.comparing, derivative=none,
                  domain=TRUTH, samples=LOGICAL)(body)


@logical
def logical_and(x, y):
    return bitwise_and(ne(x, 0), ne(y, 0))


@logical
def logical_or(x, y):
    return bitwise_or(ne(x, 0), ne(y, 0))


@logical
def logical_xor(x, y):
    return ne(ne(x, 0), ne(y, 0))


@scalar("bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor", domain=WHOLE, patterns=("TT", "TN"), derivative=none,
        samples=BITS)
def bitwise_xor(x, y):
    return word.bitwise_xor(x, y)


@scalar("bitwise_not(Tensor self) -> Tensor", domain=WHOLE, derivative=none,
        samples=(call(t(2, 3, dtype="bool")), call(t(4, dtype="int32")), call(t(4, dtype="uint8", low=0, high=200))))
def bitwise_not(x):
    return logical_not(x) if x.dtype == "bool" else word.bitwise_not(x)


@scalar("bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor", domain=WHOLE[1:], patterns=("TT", "TN", "NT"),
        derivative=none, samples=SHIFTS)
def bitwise_left_shift(x, y):
    """Bits moved up; by the width or more, or by less than 0, none is left."""
    return word.bitwise_left_shift(x, y)


@scalar("bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor", domain=WHOLE[1:], patterns=("TT", "TN", "NT"),
        derivative=none, samples=SHIFTS)
def bitwise_right_shift(x, y):
    """Bits moved down; the sign fills the upper ones."""
    return word.bitwise_right_shift(x, y)


# ---- kinds of numbers

def telling(body):
    return scalar(f"{body.__name__}(Tensor self) -> Tensor", promote=promotion.comparing, derivative=none, domain=FLOATS[2:],
                  samples=UNARY[:4] + (call(t(3, dtype="float16")), call(t(3, dtype="int64")), call(t(3, dtype="bool"))))(body)


@telling
def isnan(x):
    return ne(x, x)


@telling
def isfinite(x):
    return lt(abs(x), float("inf")) if dtypes.is_floating(x.dtype) else eq(x, x)


@telling
def isposinf(x):
    return eq(x, float("inf")) if dtypes.is_floating(x.dtype) else ne(x, x)


@telling
def isneginf(x):
    return eq(x, float("-inf")) if dtypes.is_floating(x.dtype) else ne(x, x)


@telling
def signbit(x):
    return word.signbit(x) if dtypes.is_floating(x.dtype) else ne(x, x) if x.dtype in ("bool", "uint8") else lt(x, 0)


@composition("isreal(Tensor self) -> Tensor", derivative=none, samples=UNARY[:1] + (call(t(3, dtype="int64")),))
def isreal(x):
    return eq(part(1)(x), 0) if dtypes.is_complex(x.dtype) else bitwise_or(eq(x, x), ne(x, x))


@composition("isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
             derivative=none, samples=(call(t(2, 3), t(3)), call(t(2, 3), t(2, 3), 0.5, 0.5), call(t(2, 3), t(3), equal_nan=True),
                                       call(t(4, dtype="int64"), t(4, dtype="int64"), 0.3)))
def isclose(x, y, rtol, atol, equal_nan):
    """Whether |x - y| <= atol + rtol |y|, or they are equal."""
    if x.dtype != y.dtype:
        raise RuntimeError(f"[isclose] {x.dtype} did not match {y.dtype}")
    close = eq(x, y)
    if equal_nan and dtypes.is_differentiable(x.dtype):
        close = bitwise_or(close, bitwise_and(ne(x, x), ne(y, y)))
    if not dtypes.is_differentiable(x.dtype):           # differences of integers may wrap around
        x, y = x.to(dtypes.DEFAULT), y.to(dtypes.DEFAULT)
    gap, allowed = abs(sub(x, y)), add(mul(abs(y), rtol), atol)
    return bitwise_or(close, bitwise_and(lt(gap, float("inf")), le(gap, allowed)))


@scalar("heaviside(Tensor self, Tensor values) -> Tensor", promote=promotion.Promotion(alike=True), domain=("int64", "float32", "float64"), derivative=none,
        samples=(call(t(2, 3), t(3)), call(t(4, dtype="int64"), t(4, dtype="int64"))))
def heaviside(x, values):
    """0 below 0, 1 above, `values` at 0."""
    return where(eq(x, 0), values, where(gt(x, 0), 1, 0))



