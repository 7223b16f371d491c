"""Activation functions: scalar bodies; their derivatives, derived from the bodies, are one kernel each.

A branch that is not taken must not overflow: its derivative would be 0 times infinity. Hence the choices inside arguments.
"""
from . import promotion
from .declare import FLOATS, RUN, composition, derived, scalar
from .elementary import expm1
from .layouts import contiguous
from .pointwise import (
    HALF,
    UNARY,
    abs,
    exp,
    ge,
    gt,
    le,
    log1p,
    lt,
    minimum,
    mul,
    sigmoid,
    tanh,
    where,
)
from .samples import call, t
from .views import reshape, slice

WIDE = FLOATS[2:]
BROAD = UNARY + HALF + (call(t(3, 5, low=-9, high=9)),)


def activation(schema, cost=4, samples=BROAD, domain=WIDE, promote=promotion.floats, method=False, **given):
    return scalar(schema, promote=promote, derivative=derived, method=method, domain=domain, cost=cost,
                  samples=samples, **given)


@activation("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", function=False, domain=FLOATS,
            variants=({}, {"negative_slope": RUN}), samples=BROAD + (call(t(2, 3), 0.2),))
def leaky_relu(x, negative_slope):
    return where(gt(x, 0), x, x * negative_slope)


@activation("elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor", function=False, cost=10,
            variants=({}, {"alpha": RUN}, {"alpha": RUN, "scale": RUN}, {"alpha": RUN, "input_scale": RUN}),
            samples=BROAD + (call(t(2, 3), 0.7), call(t(2, 3), 0.7, 1.5, 2.0)))
def elu(x, alpha, scale, input_scale):
    below = where(gt(x, 0), 0.0, x)
    return where(gt(x, 0), x * scale, expm1(below * input_scale) * alpha * scale)


@composition("selu(Tensor self) -> Tensor", method=False, samples=BROAD)
def selu(x):
    return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)


@composition("celu(Tensor self, Scalar alpha=1.0) -> Tensor", method=False, structural=("alpha",), samples=BROAD + (call(t(2, 3), 0.7),))
def celu(x, alpha):
    if alpha == 0:
        raise RuntimeError("[celu] ZeroDivisionError: alpha cannot be 0 for CELU")
    return elu(x, alpha, 1, 1.0 / alpha)


@scalar("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", derivative=derived, method=False, function=False,
        promote=promotion.Promotion(no_bools="Bool inputs not supported for hardtanh"), domain=WIDE, cost=2, variants=({}, {"min_val": RUN, "max_val": RUN}), samples=BROAD + (call(t(2, 3), -0.5, 0.25),))
def hardtanh(x, low, high):
    return where(le(x, low), low, where(ge(x, high), high, x))


@composition("relu6(Tensor self) -> Tensor", method=False, function=False, samples=BROAD)
def relu6(x):
    return hardtanh(x, 0, 6)


@activation("hardsigmoid(Tensor self) -> Tensor", function=False, cost=2)
def hardsigmoid(x):
    return where(le(x, -3), 0.0, where(ge(x, 3), 1.0, (x + 3) / 6))


@activation("hardswish(Tensor self) -> Tensor", function=False, cost=2)
def hardswish(x):
    return where(le(x, -3), 0.0, where(ge(x, 3), x, x * (x + 3) / 6))


@activation("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", function=False, cost=16,
            variants=({}, {"beta": RUN}, {"beta": RUN, "threshold": RUN}), samples=BROAD + (call(t(2, 3), 2.0, 1.5),))
def softplus(x, beta, threshold):
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold."""
    z = x * beta
    return where(gt(z, threshold), x, log1p(exp(where(gt(z, threshold), 0.0, z))) / beta)


@activation("softsign(Tensor self) -> Tensor", function=False, promote=promotion.Promotion("float", accepts=1))
def softsign(x):
    return x / (1 + abs(x))


@activation("mish(Tensor self) -> Tensor", function=False, cost=24)
def mish(x):
    return x * tanh(softplus(x, 1, 20))


@activation("log_sigmoid(Tensor self) -> Tensor", function=False, cost=16, layout=contiguous())
def log_sigmoid(x):
    return minimum(x, 0.0) - log1p(exp(-abs(x)))


@log_sigmoid.derivative
def _(g, x):
    return g * sigmoid(-x)


@scalar("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", derivative=derived, method=False, promote=promotion.numbers,
        domain=("int64", "float32", "float64"), samples=(call(t(2, 3), 0.5, -1.5), call(t(3, dtype="int64"), 0, 7), call(t(3, 40, dtype="float16"), 0.1, 20)))
def threshold(x, threshold, value):
    """x above the threshold, else `value`."""
    return where(le(x, threshold), value, x)


@activation("tanhshrink(Tensor self) -> Tensor", function=False, cost=12,
            promote=promotion.Promotion("float", no_bools="Bool inputs not supported for tanhshrink"))
def tanhshrink(x):
    return x - tanh(x)


@activation("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", function=False, variants=({}, {"lambd": RUN}),
            samples=BROAD + (call(t(2, 3), 1.0),))
def softshrink(x, lambd):
    return where(gt(x, lambd), x - lambd, where(lt(x, -lambd), x + lambd, x * 0))


@activation("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", method=True, variants=({}, {"lambd": RUN}),
            samples=BROAD + (call(t(2, 3), 1.0),))
def hardshrink(x, lambd):
    return where(ge(x, -lambd), where(le(x, lambd), 0.0, x), x)


@composition("glu(Tensor self, int dim=-1) -> Tensor", method=False, function=False, samples=(call(t(2, 6)), call(t(4, 3), 0), call(t(2, 4, 3), 1)))
def glu(x, dim):
    """The first half along `dim`, each element times the sigmoid of its partner in the second half."""
    if not x.rank or x.shape[dim] % 2:
        raise RuntimeError(f"[glu] dim {dim} of {list(x.shape)} has an odd size, which has no two halves")
    promotion.accept("glu", x.dtype, 2)
    half = x.shape[dim] // 2
    return mul(slice(x, dim, 0, half, 1), sigmoid(slice(x, dim, half, 2 * half, 1)))


@activation("_prelu_kernel(Tensor self, Tensor weight) -> Tensor", name="prelu_kernel", function=False, promote=promotion.floats_alike,
            samples=(call(t(2, 3), t(1, 3)), call(t(2, 3), t(2, 3)), call(t(0, 3), t(1, 3))))
def prelu_kernel(x, weight):
    return where(gt(x, 0), x, x * weight)


@composition("prelu(Tensor self, Tensor weight) -> Tensor", autocast="lower", samples=(call(t(2, 3), t(1)), call(t(2, 3, 4), t(3)), call(t(3), t())))
def prelu(x, weight):
    """A slope below 0 that is a parameter: one for all, or one a channel (dim 1)."""
    n, channels = weight.numel(), x.shape[1] if x.rank > 1 else 1
    if weight.rank > 1:
        raise RuntimeError(f"[prelu] weight is one number or a vector, got {weight.rank} dims")
    if n != 1:
        if n != channels:
            raise RuntimeError(f"[prelu] {n} weights for {channels} channels")
        weight = reshape(weight, (1, n, *(1,) * (x.rank - 2)))
    elif weight.rank:
        weight = reshape(weight, ())
    return prelu_kernel(x, weight)
