"""Scalar bodies: what one element of the result is. Loops, dtypes, broadcasting and strides are not their business."""
import math

from rushlight import dtypes

from . import promotion
from .declare import ALL, NUMBERS, RUN, composition, derived, none, scalar
from .layouts import formatted
from .samples import call, t
from .values import TABLE, Value, word

UNARY = (call(t(2, 3)), call(t(4, 3, order=(1, 0))), call(t(5, step=2)), call(t()), call(t(0, 3)), call(t(1)))
HALF = (call(t(3, 40, dtype="float16")), call(t(3, 5, dtype="bfloat16")))
BINARY = (call(t(2, 3), t(3)), call(t(2, 3), 2.5), call(t(3, 2, order=(1, 0)), t(3, 1)), call(t(2, 3), t()),
          call(t(4, 1, 3), t(5, 1)), call(t(0, 3), t(3)))
MIXED = (call(t(2, 3, dtype="float16"), t(3)), call(t(2, 3, dtype="float16"), 0.1), call(t(2, 3), t(dtype="float64")),
         call(t(4, dtype="int64"), 0.5), call(t(2, dtype="int32"), t(dtype="int64")), call(t(3, dtype="int8"), t(3, dtype="uint8")),
         call(t(3, dtype="bfloat16"), t(3, dtype="float16")), call(t(3, dtype="bool"), 2))
POSITIVE = (call(t(2, 3, low=0.5)), call(t(4, 3, order=(1, 0), low=0.1)), call(t(3, 20, dtype="float16", low=0.5)))
ARITHMETIC = ("TT", "TN", "NT")


def is_number(v):
    """Whether a Python number, or one that is known only at run time, stands where the schema says Tensor."""
    return not isinstance(v, Value) or getattr(v, "tier", None) == 0


def lifted(v, like):
    """A number as a tensor of the shape of `like`; tensors as they are."""
    return like.filled(v) if is_number(v) else v


@scalar("add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", domain=ALL, patterns=ARITHMETIC,
        promote=promotion.adding, variants=({}, {"alpha": RUN}),
        samples=BINARY + MIXED + (call(t(2, 3), t(3), alpha=2), call(t(2, 3), t(3), alpha=0.5)))
def add(x, y, alpha):
    return word.add(x, y * alpha)


@add.derivative
def _(g, alpha):
    return g, g * alpha


@scalar("sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", domain=NUMBERS, patterns=ARITHMETIC,
        promote=promotion.subtracting, variants=({}, {"alpha": RUN}),
        samples=BINARY + MIXED[:-1] + (call(t(2, 3), t(3), alpha=2),))
def sub(x, y, alpha):
    return word.sub(x, y * alpha)


@sub.derivative
def _(g, alpha):
    return g, -g * alpha


@scalar("mul.Tensor(Tensor self, Tensor other) -> Tensor", domain=ALL, patterns=ARITHMETIC, samples=BINARY + MIXED)
def mul(x, y):
    return word.mul(x, y)


@mul.derivative
def _(g, x, y):
    return g * y, g * x


@scalar("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode=None) -> Tensor", promote=promotion.dividing,
        patterns=ARITHMETIC, samples=(
            call(t(2, 3), t(3, low=0.5)), call(t(2, 3), 2), call(t(4, dtype="int64"), 2), call(t(4, dtype="bool"), 2.0),
            call(t(2, 3, low=-9, high=9), t(3, low=0.5), rounding_mode="floor"), call(t(2, 3, low=-9, high=9), 0.7, rounding_mode="trunc"),
            call(t(4, dtype="int64", low=-9, high=9), 4, rounding_mode="trunc"), call(t(4, dtype="int32", low=-9, high=9), 4, rounding_mode="floor")))
def div(x, y, rounding_mode):
    if rounding_mode is None:
        return word.div(x, y)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"[div] rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}")
    from .rounding import floor_divide, trunc_divide
    return trunc_divide(x, y) if rounding_mode == "trunc" else floor_divide(x, y)


@div.derivative                     # by the operands: the result may be written afterwards
def _(g, x, y, rounding_mode):
    if rounding_mode is not None:
        return g.filled(0), g.filled(0)
    return g / y, -g * (x / y) / y


@scalar("neg(Tensor self) -> Tensor", domain=NUMBERS, promote=promotion.negating,
        samples=UNARY + HALF + (call(t(3, dtype="int32")),))
def neg(x):
    return word.neg(x)


@neg.derivative
def _(g):
    return -g


@scalar("abs(Tensor self) -> Tensor", domain=NUMBERS, samples=UNARY + (call(t(3, dtype="int64")),))
def abs(x):
    return word.abs(x)


@abs.derivative
def _(g, x):
    return g * sign(x)


@scalar("sign(Tensor self) -> Tensor", domain=NUMBERS, samples=UNARY + (call(t(3, dtype="bool")), call(t(3, dtype="int64"))))
def sign(x):
    return x if x.dtype == "bool" else word.sign(x)


@sign.derivative
def _(g):
    return g.filled(0)


@scalar("exp(Tensor self) -> Tensor", promote=promotion.floating, cost=8, samples=UNARY + HALF)
def exp(x):
    return word.exp(x)


@exp.derivative
def _(g, out):
    return g * out


@scalar("log(Tensor self) -> Tensor", promote=promotion.floating, cost=8, samples=POSITIVE)
def log(x):
    return word.log(x)


@log.derivative
def _(g, x):
    return g / x


@scalar("log1p(Tensor self) -> Tensor", promote=promotion.floating, cost=8, samples=POSITIVE)
def log1p(x):
    return word.log1p(x)


@log1p.derivative
def _(g, x):
    return g / (1 + x)


@scalar("sqrt(Tensor self) -> Tensor", promote=promotion.floating, cost=4, samples=POSITIVE)
def sqrt(x):
    return word.sqrt(x)


@sqrt.derivative
def _(g, out):
    return 0.5 * g / out


@scalar("rsqrt(Tensor self) -> Tensor", promote=promotion.floating, cost=6, samples=POSITIVE)
def rsqrt(x):
    return word.rsqrt(x)


@rsqrt.derivative
def _(g, out):
    return -0.5 * g * out * out * out


@scalar("reciprocal(Tensor self) -> Tensor", promote=promotion.floating, cost=4, samples=POSITIVE)
def reciprocal(x):
    return word.div(1.0, x)


@reciprocal.derivative
def _(g, out):
    return -g * out * out


@scalar("erf(Tensor self) -> Tensor", promote=promotion.floating, cost=10, samples=UNARY + HALF)
def erf(x):
    return word.erf(x)


@erf.derivative
def _(g, x):
    return g * (2 / math.sqrt(math.pi) * exp(-(x * x)))


@scalar("tanh(Tensor self) -> Tensor", promote=promotion.floating, cost=10, samples=UNARY + HALF)
def tanh(x):
    return word.tanh(x)


@tanh.derivative
def _(g, out):
    return g * (1 - out * out)


@scalar("sigmoid(Tensor self) -> Tensor", promote=promotion.floating, cost=10, samples=UNARY + HALF)
def sigmoid(x):
    return word.sigmoid(x)


@sigmoid.derivative
def _(g, out):
    return g * (1 - out) * out


@scalar("sin(Tensor self) -> Tensor", promote=promotion.floating, cost=12, samples=UNARY)
def sin(x):
    return word.sin(x)


@sin.derivative
def _(g, x):
    return g * cos(x)


@scalar("cos(Tensor self) -> Tensor", promote=promotion.floating, cost=12, samples=UNARY)
def cos(x):
    return word.cos(x)


@cos.derivative
def _(g, x):
    return -g * sin(x)


@scalar("maximum(Tensor self, Tensor other) -> Tensor", domain=ALL, patterns=ARITHMETIC, samples=(call(t(2, 3), t(3)),))
def maximum(x, y):
    return word.maximum(x, y)


@maximum.derivative
def _(g, x, y):
    tie = where(eq(x, y), 0.5 * g, g)
    return where(lt(x, y), 0.0, tie), where(gt(x, y), 0.0, tie)


@scalar("minimum(Tensor self, Tensor other) -> Tensor", domain=ALL, patterns=ARITHMETIC, samples=(call(t(2, 3), t(3)),))
def minimum(x, y):
    return word.minimum(x, y)


@minimum.derivative
def _(g, x, y):
    tie = where(eq(x, y), 0.5 * g, g)
    return where(gt(x, y), 0.0, tie), where(lt(x, y), 0.0, tie)


@scalar("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", name="power", promote=promotion.floating, cost=20,
        patterns=ARITHMETIC, method=False, function=False, samples=(call(t(2, 3, low=0.5), t(3)), call(t(2, 3, low=0.5), 1.7)))
def power(x, y):
    return word.power(x, y)


@power.derivative
def _(g, out, x, y):
    slope = g * y * power(x, y - 1)
    if is_number(y):
        return slope, None
    x = lifted(x, y)
    rise = g * out * log(x)
    return where(eq(y, 0), 0.0, slope), where(eq(x, 0), where(ge(y, 0), 0.0, rise), rise)


@scalar("integer_power(Tensor self, Tensor exponent) -> Tensor", domain=dtypes.INTEGERS, patterns=ARITHMETIC, cost=12,
        derivative=none, method=False, function=False, samples=(
            call(t(4, dtype="int64", low=-9, high=9), t(4, dtype="int64", low=0, high=9)), call(2, t(4, dtype="int32", low=0, high=9)),
            call(t(4, dtype="uint8"), 3)))
def integer_power(x, n):
    """By squaring, wrapping around. To a negative power only 1 and -1 are not 0."""
    return word.integer_power(x, n)


@composition("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", name="pow", structural=("exponent",),
             samples=(call(t(2, 3), 2), call(t(2, 3), 3), call(t(2, 3, low=0.5), 0.5), call(t(2, 3, low=0.5), -1.5),
                      call(t(4, dtype="int64"), 2), call(t(2, 3), 0), call(t(2, 3, low=0.5), t(3)), call(2, t(2, 3)),
                      call(t(4, dtype="int64", low=-9, high=9), t(4, dtype="int32", low=0, high=9)), call(3, t(4, dtype="int64", low=0, high=9)),
                      call(t(4, dtype="int64", low=1, high=9), 2.5)))
def pow(x, exponent):
    if is_number(x) or not is_number(exponent):
        whole = all(dtypes.category(promotion.rank_of(v)[1]) < 2 for v in (x, exponent))
        return (integer_power if whole else power)(x, exponent)
    whole = not isinstance(exponent, (float, complex))
    if dtypes.category(x.dtype) < 2 and not whole:
        x = to(x, dtypes.DEFAULT)
    elif x.dtype == "bool" and not isinstance(exponent, bool):
        x = to(x, "int64")
    if dtypes.category(x.dtype) < 2:
        if exponent < 0:
            raise RuntimeError("[pow] integers have no negative integer powers")
        if x.dtype == "bool":
            return clone(x) if exponent else logical_not(fill(x, False))
        return x * x if exponent == 2 else integer_power(x, exponent)
    if exponent == 0:
        return fill(x, 1)
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == 1:
        return clone(x)
    if exponent == 0.5:
        return sqrt(x)
    if exponent == -0.5:
        return rsqrt(x)
    if exponent == -1:
        return reciprocal(x)
    return power(x, exponent)


@composition("square(Tensor self) -> Tensor", samples=UNARY[:3] + (call(t(4, dtype="int64")), call(t(3, dtype="bool")), call(t(3, dtype="uint8"))))
def square(x):
    return pow(x, 2)


@composition("positive(Tensor(a) self) -> Tensor(a)", samples=UNARY[:1])
def positive(x):
    if x.dtype == "bool":
        raise RuntimeError("[positive] takes no bool tensor")
    return TABLE["alias"](x)


@composition("rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", method=False,
             samples=(call(t(2, 3), t(3)), call(t(2, 3), 2.5), call(t(2, 3), t(3), alpha=2)))
def rsub(x, other, alpha):
    """other - alpha * x."""
    return sub(other, x, alpha=alpha)


# ---- comparisons

def comparison(symbol):
    def declare(body):
        name = body.__name__
        return scalar(f"{name}.Tensor(Tensor self, Tensor other) -> Tensor", promote=promotion.comparing, derivative=none,
                      domain=ALL, patterns=("TT", "TN"), samples=BINARY + MIXED)(body)
    return declare


@comparison("==")
def eq(x, y):
    return word.eq(x, y)


@comparison("!=")
def ne(x, y):
    return word.ne(x, y)


@comparison("<")
def lt(x, y):
    return word.lt(x, y)


@comparison("<=")
def le(x, y):
    return word.le(x, y)


@comparison(">")
def gt(x, y):
    return word.gt(x, y)


@comparison(">=")
def ge(x, y):
    return word.ge(x, y)


@scalar("logical_not(Tensor self) -> Tensor", promote=promotion.comparing, domain=ALL, derivative=none,
        samples=(call(t(2, 3, dtype="bool")), call(t(3))))
def logical_not(x):
    return word.eq(x, 0)


@scalar("bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor", domain=ALL[:6], patterns=("TT", "TN"), derivative=none,
        samples=(call(t(2, 3, dtype="bool"), t(3, dtype="bool")), call(t(4, dtype="int32"), t(4, dtype="int32")), call(t(4, dtype="int32"), 3)))
def bitwise_and(x, y):
    return word.bitwise_and(x, y)


@scalar("bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor", domain=ALL[:6], patterns=("TT", "TN"), derivative=none,
        samples=(call(t(2, 3, dtype="bool"), t(3, dtype="bool")), call(t(4, dtype="int32"), t(4, dtype="int32")), call(t(4, dtype="int32"), 3)))
def bitwise_or(x, y):
    return word.bitwise_or(x, y)


@scalar("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", promote=promotion.numeric.of("self", "other"),
        domain=ALL, patterns=("TTT", "TTN", "TNT", "TNN"), others={"condition": ("bool", "uint8")}, method=False,
        samples=(call(t(2, 3, dtype="bool"), t(2, 3), t(3)), call(t(3, dtype="bool"), t(2, 3), 0.0),
                 call(t(2, 1, dtype="bool"), 1.5, t(3)), call(t(3, dtype="bool"), 1.5, 0.25), call(t(3, dtype="bool"), True, 2)))
def where(condition, x, y):
    return word.where(condition, x, y)


@where.derivative
def _(g, condition):
    return None, where(condition, g, 0.0), where(condition, 0.0, g)


@scalar("isinf(Tensor self) -> Tensor", promote=promotion.comparing, derivative=none, domain=("float32", "float64"),
        samples=UNARY[:4] + (call(t(3, dtype="float16")), call(t(3, dtype="int64")), call(t(3, dtype="bool"))))
def isinf(x):
    return eq(abs(x), float("inf")) if dtypes.is_floating(x.dtype) else ne(x, x)


@scalar("masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", promote=promotion.numeric.of("self"),
        domain=ALL, others={"mask": "bool"}, samples=(call(t(2, 3), t(3, dtype="bool"), -1.5),))
def masked_fill(x, mask, value):
    return where(mask, value, x)


@masked_fill.derivative
def _(g, mask):
    return masked_fill(g, mask, 0), None


# ---- sums of products

@scalar("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", cost=2, promote=promotion.numbers,
        domain=("int64", "float32", "float64"), variants=({}, {"value": RUN}),
        samples=(call(t(2, 3), t(3), t(2, 1)), call(t(2, 3), t(2, 3), t(3), value=0.5),
                 call(t(4, dtype="int64"), t(4, dtype="int64"), t(4, dtype="int64"), value=2), call(t(3, dtype="float16"), t(3, dtype="float16"), t(3, dtype="float16")),
                 call(t(4, dtype="int32"), t(4, dtype="int32"), t(4, dtype="int32"), value=2)))
def addcmul(x, a, b, value):
    """x + value * a * b."""
    return x + a * value * b


@addcmul.derivative
def _(g, a, b, value):
    return g, g * value * b, g * value * a


@scalar("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", cost=4,
        domain=("float32", "float64"), variants=({}, {"value": RUN}),
        samples=(call(t(2, 3), t(3), t(2, 1, low=0.5)), call(t(2, 3), t(2, 3), t(3, low=0.5), value=0.5)))
def addcdiv(x, a, b, value):
    """x + value * a / b."""
    if not dtypes.is_differentiable(a.dtype) and not dtypes.is_differentiable(b.dtype):
        raise RuntimeError("[addcdiv] integers cannot be divided: give floating operands")
    return x + a * value / b


@addcdiv.derivative
def _(g, a, b, value):
    return g, g * value / b, -g * value * a / (b * b)


@scalar("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", cost=3, domain=("float32", "float64"),
        promote=promotion.floats_alike, patterns=("TTT", "TTN"), samples=(call(t(2, 3), t(2, 3), t(3)), call(t(2, 3), t(3), 0.3), call(t(2, 3), t(2, 3), 0.7),
                                          call(t(3, dtype="float16"), t(3, dtype="float16"), 0.25)))
def lerp(x, end, weight):
    """From x (weight 0) to end (weight 1); exact at both."""
    gap, weight = end - x, lifted(weight, x)
    return where(lt(abs(weight), 0.5), x + weight * gap, end - gap * (1 - weight))


@lerp.derivative
def _(g, x, end, weight):
    return g * (1 - weight), g * weight, g * (end - x)


# ---- activations

@scalar("relu(Tensor self) -> Tensor", domain=NUMBERS, promote=promotion.rectifying,
        samples=UNARY + HALF)
def relu(x):
    return where(lt(x, 0), 0, x)        # -0 stays, NaN stays


@relu.derivative                    # not derived: at 0 the slope is 0 by convention
def _(g, out):
    return where(le(out, 0), 0.0, g)


@scalar("gelu(Tensor self, *, str approximate='none') -> Tensor", promote=promotion.floats, derivative=derived, cost=12,
        variants=({}, {"approximate": "tanh"}), samples=UNARY + HALF + (call(t(2, 3), approximate="tanh"),))
def gelu(x, approximate):
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"[gelu] approximate is 'none' or 'tanh', got {approximate!r}")
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


@scalar("silu(Tensor self) -> Tensor", promote=promotion.floats, derivative=derived, cost=10, samples=UNARY + HALF)
def silu(x):
    return x * sigmoid(x)


# ---- copies and conversions

@scalar("_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor", name="to", promote=promotion.converting, domain=ALL,
        variants=tuple({"dtype": d} for d in ALL), method=False, function=False,
        samples=(call(t(2, 3), dtype="float64"), call(t(2, 3), dtype="float16"), call(t(4), dtype="int64"),
                 call(t(2, 3, order=(1, 0)), dtype="bool"), call(t(5, dtype="float64"), dtype="bfloat16")))
def to(x, dtype):
    return word.to(x, dtype)


@to.derivative
def _(g, x):
    return g.to(x.dtype)


@scalar("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", layout=formatted(), domain=ALL, samples=UNARY)
def clone(x, memory_format):
    return word.clone(x, memory_format)


@clone.derivative
def _(g):
    return g


@scalar("copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", promote=promotion.copying, domain=ALL,
        function=False, samples=(call(t(2, 3), t(3)), call(t(2, 3), t(2, 3, dtype="float64"))))
def copy(x, src, non_blocking):
    return src


@copy.derivative
def _(g):
    return g.filled(0), g


@scalar("with_data(Tensor self, Tensor src) -> Tensor", promote=promotion.copying, domain=(), method=False, function=False,
        samples=(call(t(2, 3), t(2, 3)),))
def with_data(x, src):
    return src


@with_data.derivative               # written without gradients: x keeps its history and shows src's numbers
def _(g):
    return g, None


@scalar("fill.Scalar(Tensor self, Scalar value) -> Tensor", promote=promotion.numeric.of("self"), domain=ALL,
        function=False, bottom=True, samples=(call(t(2, 3), 1.5), call(t(3, dtype="int64"), 7)))
def fill(x, value):
    return value


@fill.derivative
def _(g):
    return g.filled(0)
