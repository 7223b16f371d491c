"""Rounding, and division with a whole quotient: scalar bodies. Integers are whole already, and wrap around."""
from rushlight import dtypes

from . import promotion
from .declare import FLOATS, NUMBERS, composition, none, scalar
from .pointwise import ARITHMETIC, HALF, UNARY, div, is_number, mul
from .samples import call, t
from .values import word

WHOLE = tuple(d for d in NUMBERS if d not in dtypes.HALVES)
INTEGERS = (call(t(4, dtype="int64", low=-9, high=9), t(4, dtype="int64", low=1, high=4)),
            call(t(4, dtype="int32", low=-9, high=9), t(4, dtype="int32", low=1, high=4)),
            call(t(4, dtype="uint8", low=0, high=90), 7), call(t(4, dtype="int8", low=-90, high=90), 7))
DIVIDED = (call(t(2, 3, low=-9, high=9), t(3, low=0.5)), call(t(2, 3, low=-9, high=9), 2.5), call(7.5, t(3, low=0.5)),
           call(t(3, 4, low=-9, high=9, dtype="float16"), t(4, low=0.5, dtype="float16"))) + INTEGERS


def is_whole(x):
    return not dtypes.is_floating(x.dtype)


def rounding(body):
    """An operator that gives whole numbers: integers stay as they are, and the slope is 0."""
    op = scalar(f"{body.__name__}(Tensor self) -> Tensor", cost=1, promote=promotion.numbers,
                samples=UNARY + HALF + (call(t(3, dtype="int64")), call(t(2, 3, low=-9, high=9))))(body)
    op.derivative(lambda g: g.filled(0))
    return op


@rounding
def floor(x):
    return x if is_whole(x) else word.floor(x)


@rounding
def ceil(x):
    return x if is_whole(x) else word.ceil(x)


@rounding
def trunc(x):
    return x if is_whole(x) else word.trunc(x)


@scalar("rint(Tensor self) -> Tensor", cost=1, promote=promotion.numbers, method=False, function=False, samples=UNARY[:1] + HALF)
def rint(x):
    """To the nearest whole number; halves to the even one."""
    return x if is_whole(x) else word.rint(x)


rint.derivative(lambda g: g.filled(0))


@composition("round.decimals(Tensor self, *, int decimals=0) -> Tensor",
             samples=UNARY + HALF + (call(t(2, 3, low=-9, high=9), decimals=1), call(t(2, 3, low=-900, high=900), decimals=-2),
                                     call(t(3, dtype="int64"))))
def round(x, decimals):
    """To the nearest number of so many decimals; halves to the even one."""
    promotion.accept("round", x.dtype, 2 if decimals else 1)
    if decimals == 0:
        return rint(x)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    return div(rint(mul(x, scale)), scale) if decimals > 0 else mul(rint(div(x, scale)), scale)


round.derivative(lambda g: g.filled(0))


@scalar("frac(Tensor self) -> Tensor", domain=FLOATS[2:], promote=promotion.floats, cost=2, samples=UNARY + HALF)
def frac(x):
    return x - trunc(x)


frac.derivative(lambda g: g)


@scalar("floor_divide(Tensor self, Tensor other) -> Tensor", domain=WHOLE, patterns=ARITHMETIC, cost=12, derivative=none,
        samples=DIVIDED)
def floor_divide(x, y):
    """The quotient rounded down."""
    return word.floor_divide(x, y)


@scalar("trunc_divide(Tensor self, Tensor other) -> Tensor", domain=WHOLE, patterns=ARITHMETIC, cost=6, derivative=none,
        method=False, function=False, samples=DIVIDED)
def trunc_divide(x, y):
    """The quotient rounded towards 0."""
    return word.trunc_divide(x, y) if is_whole(y if is_number(x) else x) else trunc(div(x, y))


@scalar("fmod.Tensor(Tensor self, Tensor other) -> Tensor", domain=WHOLE, patterns=("TT", "TN"), cost=6,
        samples=tuple(s for s in DIVIDED if s.args[0] != 7.5))
def fmod(x, y):
    """What is left of x after whole times y; the sign is that of x."""
    return word.fmod(x, y)


@fmod.derivative
def _(g, x, y):
    return g, -g * trunc_divide(x, y)


@scalar("remainder.Tensor(Tensor self, Tensor other) -> Tensor", domain=WHOLE, patterns=ARITHMETIC, cost=8, samples=DIVIDED)
def remainder(x, y):
    """What is left of x after whole times y; the sign is that of y."""
    return word.remainder(x, y)


@remainder.derivative
def _(g, x, y):
    return g, -g * floor_divide(x, y)
