"""A product and what follows it, as one library call: what the compiler makes of a matrix product with pointwise steps behind
it, and a weight in the order in which its library reads it. Nobody calls these by hand."""
from rushlight import dtypes

from .convolution import FORWARD, convolved, told
from .declare import library, none
from .layouts import ShapeError, shaped
from .promotion import numeric
from .samples import call, t

STEPS = ("relu", "gelu_tanh", "silu", "sigmoid", "tanh", "add", "mul")       # csrc/rt/epilogue.h
MOST, OPERANDS = 8, 4               # steps, and operands of them
SINGLES = ("float32", "float64", "bfloat16", "float16")


def numbers(steps):
    return tuple(STEPS.index(s) for s in steps.split(",") if s)


@library("product(Tensor self, Tensor weight, Tensor? packed, Tensor? bias, Tensor[] others, bool turned, str steps) -> Tensor",
         layout=shaped(lambda x, w, packed, bias, others, turned, steps: (x.shape[0], w.shape[0 if turned else 1])),
         routine="product", promote=numeric.of("self", "weight", "bias", "others"), others={"packed": "uint8"}, domain=SINGLES,
         derivative=none, method=False, function=False,
         samples=(call(t(3, 4), t(4, 5), None, t(5), [], False, "relu"), call(t(3, 4), t(5, 4), None, None, [t(3, 5)], True, "gelu_tanh,add"),
                  call(t(2, 3), t(4, 3), None, t(4), [t(4), t(2, 4)], True, "mul,add,silu"), call(t(0, 3), t(3, 4), None, None, [], False, "tanh")))
def product(x, w, packed, bias, others, turned, steps):
    """x[m, k] @ weight[k, n] (turned: weight[n, k]) + bias[n], then `steps` in order; add and mul take the next of `others`: [m, n],
    or [n], the same for all rows. packed: the weight as `pack_weight` gives it."""
    if not x.shape[1] == w.shape[1 if turned else 0]:
        raise ShapeError(f"[product] {x.layout} and {w.layout} (turned={turned}) cannot be multiplied")
    return turned, packed is not None, bias is not None, *numbers(steps)


@library("pack_weight(Tensor self, bool turned, int bytes) -> Tensor", layout=shaped(lambda w, turned, bytes: (bytes,), dtypes=("uint8",)),
         routine="pack_weight", domain=("float32", "bfloat16", "float16"), derivative=none, method=False, function=False, bottom=True)
def pack_weight(w, turned, bytes):
    """A product's right operand (turned: its transpose) in its library's order; bytes: what `_core.packed_bytes` says."""
    return (turned,)


def up(n, step):
    return (n + step - 1) // step * step


@library("fused_convolution(Tensor input, Tensor weight, Tensor? packed, Tensor? bias, Tensor[] others, SymInt[] stride, SymInt[] padding,"
         " SymInt[] dilation, int groups, int hint, str steps) -> Tensor",
         layout=shaped(lambda x, w, packed, bias, others, stride, padding, dilation, groups, hint, steps:
                       convolved(x, w, bias, stride, padding, dilation, False, (0,) * (x.rank - 2), groups)),
         routine="fused_convolution", strided=True, promote=numeric.of("input", "weight", "bias", "others"), others={"packed": "uint8"},
         domain=SINGLES, structural=("stride", "padding", "dilation"), derivative=none, method=False, function=False, cost=64,
         samples=(call(t(2, 3, 6, 7, order=(0, 2, 3, 1)), t(4, 3, 3, 3), None, t(4), [t(4), t(2, 4, 6, 7, order=(0, 2, 3, 1))],
                       (1, 1), (1, 1), (1, 1), 1, 2, "mul,add,relu"),
                  call(t(2, 3, 6, 7), t(4, 3, 3, 3), None, None, [t(4)], (2, 1), (1, 0), (1, 1), 1, 2, "add,tanh"),
                  call(t(0, 3, 6, 7), t(4, 3, 3, 3), None, t(4), [], (1, 1), (0, 0), (1, 1), 1, 1, "relu")))
def fused_convolution(x, w, packed, bias, others, stride, padding, dilation, groups, hint, steps):
    """`convolution`, then `steps` in order; add and mul take the next of `others`: of the result's layout, or one number a channel.
    packed: the weight as `pack_convolution` gives it for a batch of `hint`."""
    kinds = numbers(steps)
    return (packed is not None, bias is not None, hint, len(kinds), *kinds,
            *told(FORWARD, x.rank - 2, groups, stride, padding, dilation))


def packed_size(w, x, stride, padding, dilation, groups, hint):
    taps = 1
    for n in w.shape[2:]:
        taps *= n
    return (up(w.shape[0], 64) * up(w.shape[1], 16) * taps * dtypes.TABLE[w.dtype].itemsize,)


@library("pack_convolution(Tensor weight, Tensor input, SymInt[] stride, SymInt[] padding, SymInt[] dilation, int groups, int hint) -> Tensor",
         layout=shaped(packed_size, dtypes=("uint8",)), routine="pack_convolution", strided=True, domain=("float32", "bfloat16", "float16"),
         structural=("stride", "padding", "dilation"), derivative=none, method=False, function=False, bottom=True)
def pack_convolution(w, x, stride, padding, dilation, groups, hint):
    """A convolution's weight in its library's order, for images like `input` in a batch of `hint`."""
    return hint, *told(FORWARD, x.rank - 2, groups, stride, padding, dilation)
