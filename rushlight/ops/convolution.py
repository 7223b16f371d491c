"""Convolution: one library call, the two products that its derivatives are, and the compositions in front of it.

Convolution is bilinear, and its three products differentiate into each other:

    convolution          x, w -> y     (transposed: convolution_data, with a bias)
    convolution_data     y, w -> x
    convolution_weights  x, y -> w

`padding` here may name both ends: one number a spatial dim, or all at the beginning and then all at the end.
"""
import itertools
from dataclasses import dataclass

from rushlight import dtypes

from .assembly import constant_pad_nd
from .declare import composition, library
from .layouts import ShapeError, channels_last, dense, is_channels_last, shaped
from .matrix import matmul
from .promotion import Promotion, accept, common
from .rearranging import flip
from .reductions import sum
from .samples import call, t
from .views import reshape, slice, squeeze, transpose, unsqueeze

NAMES = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long long",
         "int32": "int", "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short"}
FORWARD, DATA, WEIGHTS = range(3)               # csrc/rt/convolution.h


@dataclass(frozen=True)
class Matching(Promotion):
    """Operands of one floating dtype, which is the result's; for integers see `whole`."""
    def __call__(self, a):
        first, *others = [(n, x) for n, x in a.operands()]
        for name, x in others:
            if x.dtype != first[1].dtype:
                raise RuntimeError(f"[{a.op_name}] Input type ({NAMES[first[1].dtype]}) and {name} type ({NAMES[x.dtype]}) "
                                   f"should be the same: {first[1].layout} and {x.layout}")
        accept(a.op_name, first[1].dtype, 2)
        return (common(a),) * 2


matching = Matching()


# ---- geometry

def reach(kernel, dilation):
    """How far apart the first and last input that one output reads lie, plus one."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]


def ends(padding, nd):
    """(before, after) of each spatial dim."""
    return (padding[:nd], padding[nd:]) if len(padding) == 2 * nd else (padding, padding)


def forward_sizes(sizes, kernel, stride, padding, dilation):
    before, after = ends(padding, len(sizes))
    return [(n + a + b - r) // s + 1 for n, a, b, r, s in zip(sizes, before, after, reach(kernel, dilation), stride)]


def transposed_sizes(sizes, kernel, stride, padding, dilation, output_padding):
    before, after = ends(padding, len(sizes))
    return [(n - 1) * s - a - b + r + o
            for n, s, a, b, r, o in zip(sizes, stride, before, after, reach(kernel, dilation), output_padding)]


def exact(padding, x_sizes, y_sizes, kernel, stride, dilation):
    """The padding with ends such that x's sizes give exactly y's."""
    before, _ = ends(padding, len(x_sizes))
    return (*before, *((m - 1) * s + r - n - b
                       for n, m, b, r, s in zip(x_sizes, y_sizes, before, reach(kernel, dilation), stride)))


def each(value, nd, name, op):
    """A number for each spatial dim."""
    value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(value) == 1:
        return value * nd
    if len(value) != nd:
        raise RuntimeError(f"[{op}] {name} is one number or {nd} of them, got {list(value)}")
    return value


def out_layout(shape, dtype, device, *operands):
    """Channels last where an operand is, else C order."""
    if len(shape) == 4 and any(is_channels_last(x.layout) for x in operands):
        return channels_last(shape, dtype, device)
    return dense(shape, dtype, None, device)


def check(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    """What PyTorch refuses."""
    op = "convolution"
    say = lambda text: ShapeError(f"[{op}] {text}")
    nd = w.rank - 2
    if w.rank < 3:
        raise say(f"a weight has at least 3 dims, got {w.layout}")
    if x.rank != w.rank:
        raise say(f"a weight of {list(w.shape)} goes with {w.rank} dims, got {list(x.shape)}")
    if any(isinstance(p, int) and p < 0 for p in padding):
        raise say("padding is not negative")
    if any(isinstance(p, int) and p < 0 for p in output_padding):
        raise say("output_padding is not negative")
    if any(isinstance(s, int) and s <= 0 for s in stride):
        raise say("stride is positive")
    if any(isinstance(d, int) and d <= 0 for d in dilation):
        raise say("dilation is positive")
    if groups <= 0:
        raise say(f"groups is positive, got {groups}")
    shape = list(w.shape)
    if w.shape[0] < groups:
        raise say(f"groups={groups} needs that many filters, the weight has shape {shape}")
    if w.shape[0] % groups:
        raise say(f"the filters of a weight of shape {shape} are not divisible by groups={groups}")
    wanted = w.shape[0] if transposed else w.shape[1] * groups
    given = f"transposed={int(transposed)}" if transposed else f"groups={groups}"
    if x.shape[1] != wanted:
        raise say(
            f"{given} and a weight of {shape} take {wanted} channels, the input {list(x.shape)} has "
            f"{x.shape[1]}"
        )
    made = w.shape[1] * groups if transposed else w.shape[0]
    if bias is not None and (bias.rank != 1 or bias.shape[0] != made):
        raise say(
            f"{given} and a weight of {shape} take a bias of {made} numbers, got {list(bias.shape)}"
        )
    if transposed:
        for o, s, d in zip(output_padding, stride, dilation):
            if o >= s and o >= d:
                raise say(
                    f"output_padding={list(output_padding)} is neither below stride={list(stride)} nor "
                    f"below dilation={list(dilation)}"
                )
        sizes = transposed_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
        if any(n <= 0 for n in sizes):
            raise say(f"an input of ({by(x.shape[2:])}) gives an empty output: ({by(sizes)})")
        return
    before, after = ends(padding, nd)
    padded = [n + a + b for n, a, b in zip(x.shape[2:], before, after)]
    if any(n < r for n, r in zip(padded, reach(w.shape[2:], dilation))):
        raise say(
            f"the kernel reaches over ({by(reach(w.shape[2:], dilation))}), more than the padded input "
            f"({by(padded)})"
        )


def by(sizes):
    return " x ".join(map(str, sizes))


def convolved(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    """The output's layout."""
    check(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
    if transposed:
        space = transposed_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
        shape = (x.shape[0], w.shape[1] * groups, *space)
    else:
        shape = (x.shape[0], w.shape[0], *forward_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation))
    return out_layout(shape, x.dtype, x.device, x, w)


def told(product, nd, groups, stride, padding, dilation):
    """The routine's ints."""
    return (product, nd, groups, *stride, *ends(padding, nd)[0], *dilation)


# ---- the three products

CONVOLUTIONS = (
    call(t(2, 3, 6, 7), t(4, 3, 3, 3), t(4), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    call(t(2, 4, 6, 7), t(6, 2, 3, 2), None, (2, 1), (0, 1), (1, 2), False, (0, 0), 2),
    call(t(2, 4, 9), t(4, 1, 3), t(4), (2,), (1,), (1,), False, (0,), 4),
    call(t(2, 3, 6, 7, order=(0, 2, 3, 1)), t(4, 3, 3, 3), t(4), (2, 2), (1, 1), (1, 1), False, (0, 0), 1),
    call(t(1, 2, 4, 5, 4), t(3, 2, 2, 3, 2), t(3), (1, 2, 1), (0, 1, 1), (1, 1, 1), False, (0, 0, 0), 1),
    call(t(2, 3, 4, 5), t(3, 4, 3, 2), t(4), (2, 3), (1, 0), (1, 2), True, (1, 0), 1),
    call(t(2, 4, 5), t(4, 3, 3), None, (2,), (1,), (1,), True, (1,), 2),
    call(t(0, 3, 6, 7), t(4, 3, 3, 3), t(4), (1, 1), (1, 1), (1, 1), False, (0, 0), 1),
    call(t(2, 3, 5, 5, dtype="bfloat16"), t(4, 3, 3, 3, dtype="bfloat16"), t(4, dtype="bfloat16"), (1, 1), (0, 0), (1, 1), False, (0, 0), 1))


@library("convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation,"
         " bool transposed, SymInt[] output_padding, int groups) -> Tensor", layout=shaped(convolved), routine="convolution",
         strided=True, promote=matching, method=False, cost=64, structural=("stride", "padding", "dilation", "output_padding"),
         samples=CONVOLUTIONS)
def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    """input[n, ci, ...] with weight[co, ci / groups, ...] (transposed: [ci, co / groups, ...]) -> [n, co, ...]."""
    return told(DATA if transposed else FORWARD, w.rank - 2, groups, stride, padding, dilation)


@convolution.derivative
def _(g, x, w, bias, stride, padding, dilation, transposed, groups):
    nd, kernel = w.rank - 2, w.shape[2:]
    db = None if bias is None else sum(g, (0, *range(2, nd + 2)))
    if transposed:
        around = exact(padding, g.shape[2:], x.shape[2:], kernel, stride, dilation)
        return (forward(g, w, stride, around, dilation, groups),
                convolution_weights(g, x, kernel, stride, around, dilation, groups), db)
    return (convolution_data(g, w, x.shape[2:], stride, padding, dilation, groups),
            convolution_weights(x, g, kernel, stride, padding, dilation, groups), db)


def forward(x, w, stride, padding, dilation, groups):
    """`convolution` as a derivative calls it: ends of the padding may be negative."""
    return convolution_forward(x, w, stride, padding, dilation, groups)


@library("convolution_forward(Tensor input, Tensor weight, SymInt[] stride, SymInt[] padding, SymInt[] dilation, int groups)"
         " -> Tensor",
         layout=shaped(lambda x, w, stride, padding, dilation, groups: out_layout(
             (x.shape[0], w.shape[0], *forward_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)),
             x.dtype, x.device, x, w)),
         routine="convolution", strided=True, promote=matching, method=False, function=False, cost=64,
         samples=(call(t(2, 4, 6, 7), t(6, 2, 3, 2), (2, 1), (0, 1, -1, 1), (1, 2), 2),))
def convolution_forward(x, w, stride, padding, dilation, groups):
    """Convolution without its checks and its bias."""
    return told(FORWARD, w.rank - 2, groups, stride, padding, dilation)


@convolution_forward.derivative
def _(g, x, w, stride, padding, dilation, groups):
    return (convolution_data(g, w, x.shape[2:], stride, padding, dilation, groups),
            convolution_weights(x, g, w.shape[2:], stride, padding, dilation, groups))


@library("convolution_data(Tensor grad_output, Tensor weight, SymInt[] size, SymInt[] stride, SymInt[] padding,"
         " SymInt[] dilation, int groups) -> Tensor",
         layout=shaped(lambda y, w, size, stride, padding, dilation, groups: out_layout(
             (y.shape[0], w.shape[1] * groups, *size), y.dtype, y.device, y, w)),
         routine="convolution", strided=True, promote=matching, method=False, function=False, cost=64,
         samples=(call(t(2, 4, 6, 5), t(4, 3, 3, 3), (6, 5), (1, 1), (1, 1), (1, 1), 1),
                  call(t(2, 6, 3, 6, order=(0, 2, 3, 1)), t(6, 2, 3, 2), (8, 6), (2, 1), (0, 1), (1, 2), 2)))
def convolution_data(y, w, size, stride, padding, dilation, groups):
    """The cotangent of convolution's input, of spatial sizes `size`."""
    return told(DATA, w.rank - 2, groups, stride, padding, dilation)


@convolution_data.derivative
def _(g, y, w, stride, padding, dilation, groups):
    around = exact(padding, g.shape[2:], y.shape[2:], w.shape[2:], stride, dilation)
    return (forward(g, w, stride, around, dilation, groups),
            convolution_weights(g, y, w.shape[2:], stride, around, dilation, groups))


@library("convolution_weights(Tensor input, Tensor grad_output, SymInt[] size, SymInt[] stride, SymInt[] padding,"
         " SymInt[] dilation, int groups) -> Tensor",
         layout=shaped(lambda x, y, size, stride, padding, dilation, groups: out_layout(
             (y.shape[1], x.shape[1] // groups, *size), x.dtype, x.device, x, y)),
         routine="convolution", strided=True, promote=matching, method=False, function=False, cost=64,
         samples=(call(t(2, 3, 6, 5), t(2, 4, 6, 5), (3, 3), (1, 1), (1, 1), (1, 1), 1),
                  call(t(2, 4, 8, 6), t(2, 6, 3, 6, order=(0, 2, 3, 1)), (3, 2), (2, 1), (0, 1), (1, 2), 2)))
def convolution_weights(x, y, size, stride, padding, dilation, groups):
    """The cotangent of convolution's weight, of spatial sizes `size`."""
    return told(WEIGHTS, x.rank - 2, groups, stride, padding, dilation)


@convolution_weights.derivative
def _(g, x, y, size, stride, padding, dilation, groups):
    around = exact(padding, x.shape[2:], y.shape[2:], size, stride, dilation)
    return (convolution_data(y, g, x.shape[2:], stride, around, dilation, groups),
            forward(x, g, stride, around, dilation, groups))


# ---- integers: no library has them

def whole(x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    """`convolution` of integers, which wrap around: a product for each place in the kernel. Transposed: x spread out, w turned."""
    check(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
    nd, kernel = w.rank - 2, tuple(w.shape[2:])
    before, after = ends(padding, nd)
    if transposed:
        for d, s in enumerate(stride):
            n = x.shape[d + 2]
            wide = constant_pad_nd(unsqueeze(x, d + 3), (*(0, 0) * (nd - 1 - d), 0, s - 1), 0)
            wide = reshape(wide, (*x.shape[:d + 2], n * s, *x.shape[d + 3:]))
            x = slice(wide, d + 2, 0, (n - 1) * s + 1, 1)
        far = reach(kernel, dilation)
        before = [r - 1 - b for r, b in zip(far, before)]
        after = [r - 1 - a + o for r, a, o in zip(far, after, output_padding)]
        w = flip(reshape(w, (groups, w.shape[0] // groups, *w.shape[1:])), tuple(range(3, nd + 3)))
        w = transpose(w, 1, 2)
        stride = (1,) * nd
    else:
        w = reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    x = constant_pad_nd(x, tuple(n for pair in zip(before[::-1], after[::-1]) for n in pair), 0)
    sizes = forward_sizes(x.shape[2:], kernel, stride, (0,) * nd, dilation)
    w, out = reshape(w, (*w.shape[:3], -1)), None
    for i, place in enumerate(itertools.product(*map(range, kernel))):
        part = x
        for d, (p, m) in enumerate(zip(place, sizes)):
            first = p * dilation[d]
            part = slice(part, d + 2, first, first + (m - 1) * stride[d] + 1, stride[d])
        part = matmul(squeeze(slice(w, 3, i, i + 1, 1), 3), reshape(part, (x.shape[0], groups, x.shape[1] // groups, -1)))
        out = part if out is None else out + part
    out = reshape(out, (x.shape[0], w.shape[0] * w.shape[1], *sizes))
    return out if bias is None else out + reshape(bias, (-1, *(1,) * nd))


# ---- what people call

def run(op, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    nd = int(op[-2])
    if x.rank not in (nd + 1, nd + 2):
        raise RuntimeError(f"[{op}] takes {nd + 1} dims, or {nd + 2} in a batch, got {list(x.shape)}")
    if w.rank != nd + 2:
        raise RuntimeError(f"[{op}] expected weight of {nd + 2} dimensions, got {w.layout}")
    stride, dilation = each(stride, nd, "stride", op), each(dilation, nd, "dilation", op)
    if isinstance(padding, str):
        padding = named_padding(op, padding, w.shape[2:], stride, dilation)
    else:
        padding = each(padding, nd, "padding", op)
    output_padding = each(output_padding, nd, "output_padding", op)
    batched = x if x.rank == nd + 2 else unsqueeze(x, 0)
    same = x.dtype == w.dtype and (bias is None or bias.dtype == x.dtype)
    if same and (x.dtype == "int64" or dtypes.category(x.dtype) == 1 and not transposed and all(d == 1 for d in dilation)):
        out = whole(batched, w, bias, stride, padding, dilation, transposed, output_padding, groups)
        return out if x.rank == nd + 2 else squeeze(out, 0)
    out = convolution(batched, w, bias, stride, padding, dilation, transposed, output_padding, groups)
    return out if x.rank == nd + 2 else squeeze(out, 0)


def named_padding(op, padding, kernel, stride, dilation):
    if padding == "valid":
        return (0,) * len(kernel)
    if padding != "same":
        raise RuntimeError(f"[{op}] Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise RuntimeError(f"[{op}] padding='same' needs a stride of 1")
    total = [r - 1 for r in reach(kernel, dilation)]
    before = [n // 2 for n in total]
    return (*before, *(n - b for n, b in zip(total, before)))


def declare_convolution(nd, samples):
    @composition(f"conv{nd}d(Tensor input, Tensor weight, Tensor? bias=None, Any stride=1, Any padding=0, Any dilation=1,"
                 " int groups=1) -> Tensor", name=f"conv{nd}d", method=False, autocast="lower", samples=samples)
    def conv(x, w, bias, stride, padding, dilation, groups):
        return run(f"conv{nd}d", x, w, bias, stride, padding, dilation, False, 0, groups)
    return conv


def declare_transposed(nd, samples):
    @composition(f"conv_transpose{nd}d(Tensor input, Tensor weight, Tensor? bias=None, Any stride=1, Any padding=0,"
                 " Any output_padding=0, int groups=1, Any dilation=1) -> Tensor", name=f"conv_transpose{nd}d", method=False,
                 autocast="lower", samples=samples)
    def conv(x, w, bias, stride, padding, output_padding, groups, dilation):
        return run(f"conv_transpose{nd}d", x, w, bias, stride, padding, dilation, True, output_padding, groups)
    return conv


conv1d = declare_convolution(1, (call(t(2, 3, 9), t(4, 3, 3), t(4), (2,), (1,)), call(t(3, 9), t(4, 3, 3)),
                                 call(t(2, 4, 9), t(4, 2, 4), t(4), (1,), "same", (1,), 2)))
conv2d = declare_convolution(2, (call(t(2, 3, 6, 7), t(4, 3, 3, 3), t(4), (1,), (1, 1)), call(t(3, 6, 7), t(4, 3, 2, 3)),
                                 call(t(2, 4, 6, 7), t(4, 1, 3, 3), None, (2, 1), (1, 0), (1, 2), 4),
                                 call(t(2, 3, 6, 7), t(4, 3, 2, 3), t(4), (1, 1), "same", (2, 1)),
                                 call(t(2, 3, 6, 7), t(4, 3, 2, 3), t(4), (2, 2), "valid")))
conv3d = declare_convolution(3, (call(t(1, 2, 4, 5, 4), t(3, 2, 2, 3, 2), t(3), (1, 1, 1), (1, 1, 1)),))
conv_transpose1d = declare_transposed(1, (call(t(2, 3, 4), t(3, 2, 3), t(2), (2,), (1,), (1,)),))
conv_transpose2d = declare_transposed(2, (call(t(2, 4, 4, 3), t(4, 2, 3, 3), t(4), (2, 2), (1, 1), (1, 1), 2),
                                          call(t(3, 4, 3), t(3, 2, 2, 3))))
conv_transpose3d = declare_transposed(3, (call(t(1, 2, 2, 3, 2), t(2, 2, 2, 2, 2), None, (2, 2, 2)),))
