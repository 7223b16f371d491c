"""Images at other sizes, and patches of images as columns. Each routine's derivative is its transpose, which has it in turn."""
import struct

from .declare import library
from .layouts import ShapeError, dense, shaped
from .pooling import SINGLES, like, tuple_of
from .samples import call, t

MODES = {"nearest": 0, "nearest-exact": 1, "linear": 2, "cubic": 3}     # csrc/rt/resampling.cpp


def told(nd, mode, aligned, scales):
    bits = [0 if s is None else struct.unpack("<q", struct.pack("<d", s))[0] for s in scales or (None,) * nd]
    return (nd, MODES[mode], int(aligned), *bits)


@library("_resample(Tensor self, SymInt[] size, str mode, bool align_corners=False, Any scales=None) -> Tensor", name="resample",
         layout=shaped(lambda x, size, mode, aligned, scales: like(x, (*x.shape[:2], *size))), routine="resample", domain=SINGLES,
         strided=True, method=False, function=False, structural=("size",), cost=8,
         samples=(call(t(2, 3, 5), (8,), "nearest"), call(t(2, 3, 4, 5), (7, 3), "linear"), call(t(2, 3, 4, 5), (7, 9), "cubic", True),
                  call(t(2, 3, 4, 5, order=(0, 2, 3, 1)), (7, 3), "linear", True), call(t(1, 2, 3, 4, 2), (5, 2, 3), "linear"),
                  call(t(2, 3, 4, 5), (6, 7), "nearest-exact", False, (1.5, 1.5))))
def resample(x, size, mode, aligned, scales):
    """x [n, c, ...] at spatial sizes `size`. `scales`: what a user asked for, which decides places where sizes were rounded."""
    return told(x.rank - 2, mode, aligned, scales)


@resample.derivative
def _(g, x, mode, aligned, scales):
    return resample_backward(g, x.shape[2:], mode, aligned, scales)


@library("_resample_backward(Tensor grad_output, SymInt[] size, str mode, bool align_corners=False, Any scales=None) -> Tensor",
         name="resample_backward", layout=shaped(lambda g, size, mode, aligned, scales: like(g, (*g.shape[:2], *size))),
         routine="resample_backward", domain=SINGLES, strided=True, method=False, function=False, structural=("size",), cost=8,
         samples=(call(t(2, 3, 7, 3), (4, 5), "linear"), call(t(2, 3, 7, 3, order=(0, 2, 3, 1)), (4, 5), "cubic")))
def resample_backward(dy, size, mode, aligned, scales):
    """The transpose: each element added to those that it was made of."""
    return told(dy.rank - 2, mode, aligned, scales)


@resample_backward.derivative
def _(g, dy, mode, aligned, scales):
    return resample(g, dy.shape[2:], mode, aligned, scales)


# ---- patches

def patches(op, size, kernel, dilation, padding, stride):
    """(the routine's ints, how many patches there are)."""
    kernel, dilation = tuple_of(kernel, 2, "kernel_size", op), tuple_of(dilation, 2, "dilation", op)
    padding, stride = tuple_of(padding, 2, "padding", op), tuple_of(stride, 2, "stride", op)
    for name, values, least in (("kernel_size", kernel, 1), ("dilation", dilation, 1), ("stride", stride, 1), ("padding", padding, 0)):
        if any(v < least for v in values):
            raise RuntimeError(f"[{op}] {name} should be {'greater than zero' if least else 'non-negative'}, but got {list(values)}")
    places = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)]
    if any(isinstance(n, int) and n < 1 for n in places):
        raise ShapeError(
            f"[{op}] no block fits: {places} of them for size {list(size)}, kernel_size={list(kernel)}, "
            f"dilation={list(dilation)}, padding={list(padding)}, stride={list(stride)}"
        )
    return (*kernel, *dilation, *padding, *stride, *places), places[0] * places[1]


def columns(x, kernel, dilation, padding, stride):
    if x.rank not in (3, 4) or any(isinstance(n, int) and n == 0 for n in x.shape[-3:]):
        raise RuntimeError(f"[im2col] takes (C, H, W) or (N, C, H, W), none but the batch empty, got {list(x.shape)}")
    _, count = patches("im2col", x.shape[-2:], kernel, dilation, padding, stride)
    k = tuple_of(kernel, 2, "kernel_size", "im2col")
    return dense((*x.shape[:-3], x.shape[-3] * k[0] * k[1], count), x.dtype, None, x.device)


@library("im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor", layout=shaped(columns),
         routine="im2col", domain=SINGLES, strided=True, method=False, function=False, cost=2,
         samples=(call(t(2, 3, 5, 6), (2, 3), (1, 2), (1, 0), (2, 1)), call(t(3, 4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
                  call(t(2, 3, 5, 6, order=(0, 2, 3, 1)), (3, 3), (1, 1), (1, 1), (1, 1))))
def im2col(x, kernel, dilation, padding, stride):
    """The patches of [n, c, h, w] as columns: [n, c * kernel elements, patches]."""
    return patches("im2col", x.shape[-2:], kernel, dilation, padding, stride)[0]


@im2col.derivative
def _(g, x, kernel, dilation, padding, stride):
    return col2im(g, x.shape[-2:], kernel, dilation, padding, stride)


def image(x, size, kernel, dilation, padding, stride):
    k, size = tuple_of(kernel, 2, "kernel_size", "col2im"), tuple_of(size, 2, "output_size", "col2im")
    if x.rank not in (2, 3):
        raise RuntimeError(f"[col2im] takes 2 dims, or 3 in a batch, none but the batch empty, got {list(x.shape)}")
    if x.shape[-2] % (k[0] * k[1]):
        raise RuntimeError(f"[col2im] {x.shape[-2]} rows are not divisible by the {k} places of a block")
    _, count = patches("col2im", size, kernel, dilation, padding, stride)
    if x.shape[-1] != count:
        raise RuntimeError(f"[col2im] Given output_size={size}, kernel_size={k}, expected input's size of dimension 2 to be {count}, "
                           f"but got {x.shape[-1]}: {list(x.shape)}")
    return dense((*x.shape[:-2], x.shape[-2] // (k[0] * k[1]), *size), x.dtype, None, x.device)


@library("col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
         layout=shaped(image), routine="col2im", domain=SINGLES, method=False, function=False, structural=("output_size",), cost=2,
         samples=(call(t(2, 18, 6), (5, 6), (2, 3), (1, 2), (1, 0), (2, 1)), call(t(12, 9), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1))))
def col2im(x, size, kernel, dilation, padding, stride):
    """Columns [n, c * kernel elements, patches] added up where their patches lie: [n, c, *output_size]."""
    return patches("col2im", tuple_of(size, 2, "output_size", "col2im"), kernel, dilation, padding, stride)[0]


@col2im.derivative
def _(g, kernel, dilation, padding, stride):
    return im2col(g, kernel, dilation, padding, stride)
