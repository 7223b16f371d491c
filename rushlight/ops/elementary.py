"""Elementary functions of one number, and of two: exponentials, logarithms, circular and hyperbolic functions. Scalar bodies."""
import math

from rushlight import dtypes

from . import promotion
from .declare import composition, none, scalar
from .pointwise import (
    BINARY,
    POSITIVE,
    UNARY,
    abs,
    cos,
    eq,
    exp,
    ge,
    isinf,
    le,
    lifted,
    log,
    log1p,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    power,
    sin,
    sqrt,
    to,
    where,
)
from .samples import call, t
from .values import word

WIDE = ("float32", "float64")       # half types are computed by way of float32
UNIT = (call(t(2, 3, low=-0.9, high=0.9)), call(t(4, 3, order=(1, 0), low=-0.9, high=0.9)), call(t(low=-0.9, high=0.9)),
        call(t(0, 3)))
ABOVE = (call(t(2, 3, low=1.1, high=4.0)), call(t(5, step=2, low=1.1, high=4.0)))
BOTH = ("TT", "TN", "NT")
LN2, LN10 = math.log(2), math.log(10)


def elementary(schema, cost=10, samples=UNARY, promote=promotion.floating, **given):
    return scalar(schema, promote=promote, domain=WIDE, cost=cost, samples=samples, **given)


@elementary("exp2(Tensor self) -> Tensor", cost=8)
def exp2(x):
    return word.exp2(x)


@exp2.derivative
def _(g, out):
    return g * out * LN2


@elementary("expm1(Tensor self) -> Tensor", cost=8)
def expm1(x):
    return word.expm1(x)


@expm1.derivative
def _(g, out):
    return g * (out + 1)


@elementary("log2(Tensor self) -> Tensor", samples=POSITIVE[:2])
def log2(x):
    return word.log2(x)


@log2.derivative
def _(g, x):
    return g / (x * LN2)


@elementary("log10(Tensor self) -> Tensor", samples=POSITIVE[:2])
def log10(x):
    return word.log10(x)


@log10.derivative
def _(g, x):
    return g / (x * LN10)


@elementary("tan(Tensor self) -> Tensor", cost=14, samples=UNIT)
def tan(x):
    return word.tan(x)


@tan.derivative
def _(g, out):
    return g * (1 + out * out)


@elementary("asin(Tensor self) -> Tensor", samples=UNIT)
def asin(x):
    return word.asin(x)


@asin.derivative
def _(g, x):
    return g / sqrt(1 - x * x)


@elementary("acos(Tensor self) -> Tensor", samples=UNIT)
def acos(x):
    return word.acos(x)


@acos.derivative
def _(g, x):
    return -g / sqrt(1 - x * x)


@elementary("atan(Tensor self) -> Tensor")
def atan(x):
    return word.atan(x)


@atan.derivative
def _(g, x):
    return g / (1 + x * x)


@elementary("sinh(Tensor self) -> Tensor")
def sinh(x):
    return word.sinh(x)


@sinh.derivative
def _(g, x):
    return g * cosh(x)


@elementary("cosh(Tensor self) -> Tensor")
def cosh(x):
    return word.cosh(x)


@cosh.derivative
def _(g, x):
    return g * sinh(x)


@elementary("asinh(Tensor self) -> Tensor")
def asinh(x):
    return word.asinh(x)


@asinh.derivative
def _(g, x):
    return g / sqrt(x * x + 1)


@elementary("acosh(Tensor self) -> Tensor", samples=ABOVE)
def acosh(x):
    return word.acosh(x)


@acosh.derivative
def _(g, x):
    return g / sqrt(x * x - 1)


@elementary("atanh(Tensor self) -> Tensor", samples=UNIT)
def atanh(x):
    return word.atanh(x)


@atanh.derivative
def _(g, x):
    return g / (1 - x * x)


@elementary("erfc(Tensor self) -> Tensor", cost=12)
def erfc(x):
    return word.erfc(x)


@erfc.derivative
def _(g, x):
    return g * (-2 / math.sqrt(math.pi) * exp(-(x * x)))


@elementary("sinc(Tensor self) -> Tensor", cost=16, samples=UNARY[:4])
def sinc(x):
    """sin(pi x) / (pi x), and 1 at 0."""
    y = x * math.pi
    return where(eq(x, 0), 1.0, sin(y) / y)


@sinc.derivative                    # the quotient has no meaning at 0, where the slope is 0
def _(g, x):
    y = where(eq(x, 0), 1.0, x * math.pi)
    return where(eq(x, 0), 0.0, g * ((y * cos(y) - sin(y)) / (y * x)))


@composition("logit(Tensor self, float? eps=None) -> Tensor", structural=("eps",), samples=(
    call(t(2, 3, low=0.1, high=0.9)), call(t(2, 3, low=0.1, high=0.9), 0.01), call(t(3, low=-0.5, high=1.5), 0.2)))
def logit(x, eps):
    """log(x / (1 - x)); with eps, of x clamped to [eps, 1 - eps]."""
    if dtypes.category(x.dtype) < 2:
        x = to(x, dtypes.DEFAULT)
    z = x if eps is None else minimum(maximum(x, eps), 1 - eps)
    return log(z / (1 - z))


@logit.derivative
def _(g, x, eps):
    slope = g / (x * (1 - x))
    return slope if eps is None else where(ge(x, eps), where(le(x, 1 - eps), slope, 0.0), 0.0)


# ---- of two numbers

@elementary("atan2(Tensor self, Tensor other) -> Tensor", cost=14, patterns=("TT",), samples=BINARY[:1] + BINARY[2:])
def atan2(y, x):
    return word.atan2(y, x)


@atan2.derivative
def _(g, y, x):
    square = y * y + x * x
    return g * x / square, -g * y / square


@elementary("hypot(Tensor self, Tensor other) -> Tensor", cost=8, promote=promotion.floats, patterns=("TT",), samples=BINARY[:1] + BINARY[2:])
def hypot(x, y):
    """The square root of x^2 + y^2, without overflow on the way."""
    high, low = maximum(abs(x), abs(y)), minimum(abs(x), abs(y))
    ratio = low / high
    found = where(eq(high, 0), high, high * sqrt(1 + ratio * ratio))
    return where(isinf(x), abs(x), where(isinf(y), abs(y), found))


@hypot.derivative
def _(g, out, x, y):
    return g * (x / out), g * (y / out)


@elementary("copysign.Tensor(Tensor self, Tensor other) -> Tensor", cost=2, patterns=("TT", "TN"), samples=BINARY)
def copysign(x, y):
    """The magnitude of x with the sign of y."""
    return word.copysign(x, y)


@copysign.derivative
def _(g, out, x):
    return where(eq(x, 0), 0.0, g * (out / x)), 0 * g


@elementary("next_float(Tensor self, Tensor other) -> Tensor", cost=2, samples=BINARY[:1] + BINARY[4:], derivative=none,
            promote=promotion.floats, method=False, function=False)
def next_float(x, y):
    return word.next_float(x, y)


# Of the half types: significant bits, the least number, the least normal one, the largest.
HALF_NUMBERS = {"float16": (11, 2.0 ** -24, 2.0 ** -14, 65504.0), "bfloat16": (8, 2.0 ** -133, 2.0 ** -126, float.fromhex("0x1.fep127"))}


@composition("nextafter(Tensor self, Tensor other) -> Tensor", samples=BINARY[:1] + BINARY[4:], derivative=none)
def nextafter(x, y):
    """The next number of the dtype after x, towards y."""
    if x.dtype != y.dtype or x.dtype not in dtypes.HALVES:
        return next_float(x, y)
    dtype, (bits, least, normal, largest) = x.dtype, HALF_NUMBERS[x.dtype]
    x, y = x.to("float32"), y.to("float32")
    step = where(lt(abs(x), 2 * normal), least, abs(x) * (1.25 * 2.0 ** -bits))        # rounds to the neighbour on either side
    found = where(lt(x, y), x + step, x - step)
    found = where(eq(x, float("inf")), largest, where(eq(x, float("-inf")), -largest, found))
    found = where(eq(found, 0), copysign(found, x), found)
    return where(eq(x, y), y, where(ne(x, x), x, where(ne(y, y), y, found))).to(dtype)


@elementary("logaddexp(Tensor self, Tensor other) -> Tensor", cost=16, promote=promotion.floats, samples=BINARY[:1] + BINARY[2:])
def logaddexp(x, y):
    """log(exp(x) + exp(y)), without overflow on the way."""
    gap = where(eq(x, y), 0.0, abs(x - y))              # of equal infinities too
    return maximum(x, y) + log1p(exp(-gap))


@logaddexp.derivative
def _(g, x, y, out):
    return g * exp(x - out), g * exp(y - out)


@elementary("logaddexp2(Tensor self, Tensor other) -> Tensor", cost=16, promote=promotion.floats, samples=BINARY[:1] + BINARY[2:])
def logaddexp2(x, y):
    gap = where(eq(x, y), 0.0, abs(x - y))
    return maximum(x, y) + log1p(exp2(-gap)) * (1 / LN2)


@logaddexp2.derivative
def _(g, x, y, out):
    return g * exp2(x - out), g * exp2(y - out)


@elementary("xlogy.Tensor(Tensor self, Tensor other) -> Tensor", patterns=BOTH, samples=(
    call(t(2, 3), t(3, low=0.1)), call(t(2, 3), 2.5), call(2.5, t(3, low=0.1)), call(t(4, dtype="int64"), t(4, low=0.5))))
def xlogy(x, y):
    """x log(y), and 0 where x is 0 (NaN where y is)."""
    x, y = lifted(x, y), lifted(y, x)
    return where(ne(y, y), y, where(eq(x, 0), 0.0, x * log(y)))


@xlogy.derivative
def _(g, x, y):
    x, y = lifted(x, g), lifted(y, g)
    return where(eq(x, 0), where(le(y, 0), 0.0, g * log(y)), g * log(y)), g * x / y


@elementary("special_xlog1py(Tensor self, Tensor other) -> Tensor", patterns=BOTH, method=False, name="special_xlog1py",
            function=False, samples=(call(t(2, 3), t(3, low=-0.5)), call(t(2, 3), 2.5)))
def special_xlog1py(x, y):
    x, y = lifted(x, y), lifted(y, x)
    return where(ne(y, y), y, where(eq(x, 0), 0.0, x * log1p(y)))


@special_xlog1py.derivative
def _(g, x, y):
    x, y = lifted(x, g), lifted(y, g)
    return where(eq(x, 0), where(le(y, -1), 0.0, g * log1p(y)), g * log1p(y)), g * x / (y + 1)


@composition("ldexp.Tensor(Tensor self, Tensor other) -> Tensor", samples=(call(t(2, 3), t(3, dtype="int64")),))
def ldexp(x, other):
    """x times 2 to the power of other."""
    return mul(x, power(2.0, other))


@composition("float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
             samples=(call(t(2, 3, low=0.5), t(3)), call(t(2, 3, low=0.5), 2), call(2, t(3)), call(t(4, dtype="int64", low=1), 3)))
def float_power(x, exponent):
    """x to the power of exponent, computed in float64."""
    wide = lambda v: v.to("complex128" if dtypes.is_complex(v.dtype) else "float64") if hasattr(v, "layout") else v
    return power(wide(x), wide(exponent))


@composition("deg2rad(Tensor self) -> Tensor", samples=UNARY[:2])
def deg2rad(x):
    return x * (math.pi / 180)


@composition("rad2deg(Tensor self) -> Tensor", samples=UNARY[:2])
def rad2deg(x):
    return x * (180 / math.pi)

