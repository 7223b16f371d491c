"""Pooling over the last one, two or three dims: the largest element of a window, or the mean.

Windows slide (kernel, stride, padding, dilation) or adapt to the output's size; the routines see the same windows. The
derivative of a maximum goes through the indices that the forward gave, so it differentiates again: scatter and gather are
each other's derivatives, and so are the mean and its own.
"""
from rushlight import dtypes

from .declare import composition, library
from .layouts import ShapeError, channels_last, dense, is_channels_last, shaped
from .promotion import accept, numeric
from .reductions import mean
from .samples import call, t

SINGLES = ("float32", "float64")                # half types go through float32
WHOLE = ("int64", *SINGLES)                     # of the forward alone


def tuple_of(value, nd, name, op):
    """One number a spatial dim."""
    value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(value) == 1:
        return value * nd
    if len(value) != nd:
        raise RuntimeError(f"[{op}] {name} is one int or {nd} of them, got {list(value)}")
    return value


def like(x, shape, dtype=None):
    """Channels last where x is, else C order."""
    make = channels_last if len(shape) == 4 and is_channels_last(x.layout) else dense
    return make(tuple(shape), dtype or x.dtype, device=x.device)


def by(sizes):
    return "x".join(map(str, sizes))


def geometry(op, nd, x, kernel, stride, padding, dilation, ceil_mode):
    """((kernel, stride, padding, dilation), spatial sizes of the output); raises what PyTorch raises."""
    if x.rank not in (nd + 1, nd + 2):
        raise RuntimeError(f"[{op}] Expected {nd + 1}D or {nd + 2}D (batch mode) tensor for input, but got: {list(x.shape)}")
    if any(isinstance(n, int) and n == 0 for n in x.shape[x.rank - nd - 1:]):
        raise RuntimeError(
            f"[{op}] takes {nd + 1} dims, or {nd + 2} in a batch, none but the batch empty, got {list(x.shape)}"
        )
    kernel = tuple_of(kernel, nd, "kernel_size", op)
    stride = kernel if stride is None or stride == () or stride == [] else tuple_of(stride, nd, "stride", op)
    padding, dilation = tuple_of(padding, nd, "padding", op), tuple_of(dilation, nd, "dilation", op)
    sizes = []
    for n, k, s, p, d in zip(x.shape[-nd:], kernel, stride, padding, dilation):
        if k <= 0:
            raise RuntimeError(f"[{op}] kernel_size is greater than 0, got {list(kernel)}")
        if s <= 0:
            raise RuntimeError(f"[{op}] stride should not be zero, but got stride {list(stride)}" if s == 0 else
                               f"[{op}] stride is greater than 0, got {list(stride)}")
        if d <= 0:
            raise RuntimeError(f"[{op}] dilation is greater than 0, got {list(dilation)}")
        if p < 0:
            raise RuntimeError(f"[{op}] padding is non-negative, got {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                f"[{op}] padding={p} is more than half of what the kernel reaches over, kernel_size={k} and "
                f"dilation={d}"
            )
        room = n + 2 * p - d * (k - 1) - 1
        m = (room + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (m - 1) * s >= n + p:          # the last window must begin inside, or in the padding before
            m = m - 1
        sizes.append(m)
    if any(isinstance(m, int) and m < 1 for m in sizes):
        c = x.shape[-nd - 1]
        raise ShapeError(f"[{op}] Given input size: ({by((c, *x.shape[-nd:]))}). Calculated output size: ({by((c, *sizes))}). "
                         "Output size is too small")
    return (*kernel, *stride, *padding, *dilation), sizes


# ---- by indices

@library("pool_scatter(Tensor self, Tensor indices, SymInt[] size, int nd, bool adds) -> Tensor", routine="pool_scatter",
         layout=shaped(lambda x, indices, size, nd, adds: like(indices, size, x.dtype)), promote=numeric.of("self"),
         others={"indices": ("int64",)}, domain=SINGLES, strided=True, method=False, function=False, structural=("size",),
         samples=(call(t(2, 3, 2, 2), t(2, 3, 2, 2, dtype="int64", low=0, high=19), (2, 3, 4, 5), 2, True),
                  call(t(2, 3, 2, 2), t(2, 3, 2, 2, dtype="int64", low=0, high=19, order=(0, 2, 3, 1)), (2, 3, 4, 5), 2, True)))
def pool_scatter(x, indices, size, nd, adds):
    """Zeros of `size` with x at flat `indices` into the last nd dims; what falls on one place adds up, or the last stays."""
    return nd, int(adds)


@pool_scatter.derivative
def _(g, indices, nd):
    return pool_gather(g, indices, nd), None


@library("pool_gather(Tensor self, Tensor indices, int nd) -> Tensor", routine="pool_gather",
         layout=shaped(lambda x, indices, nd: like(indices, indices.shape, x.dtype)), promote=numeric.of("self"),
         others={"indices": ("int64",)}, domain=SINGLES, strided=True, method=False, function=False,
         samples=(call(t(2, 3, 4, 5), t(2, 3, 2, 2, dtype="int64", low=0, high=19), 2),))
def pool_gather(x, indices, nd):
    """x at flat `indices` into its last nd dims."""
    return (nd,)


@pool_gather.derivative
def _(g, x, indices, nd):
    return pool_scatter(g, indices, x.shape, nd, True), None


# ---- the two routines, given all numbers: kernel, stride, padding and dilation of each dim (none where windows adapt)

@library("pool_max(Tensor self, SymInt[] size, int nd, bool adaptive, int[] numbers) -> (Tensor, Tensor)",
         layout=shaped(lambda x, size, nd, adaptive, numbers: [like(x, size), like(x, size, "int64")],
                       dtypes=("result", "int64")),
         routine="max_pool", domain=WHOLE, strided=True, method=False, function=False, structural=("size",), cost=4,
         samples=(call(t(2, 3, 6, 7), (2, 3, 3, 3), 2, False, (2, 2, 2, 2, 0, 0, 1, 1)),
                  call(t(2, 3, 6, 7, order=(0, 2, 3, 1)), (2, 3, 4, 3), 2, True, ())))
def pool_max(x, size, nd, adaptive, numbers):
    """The largest element of each window, and its place among the last nd dims. Of equal ones the first; NaN is larger than all."""
    return (nd, int(adaptive), *numbers)


@pool_max.derivative
def _(g, x, outs, nd):
    return pool_scatter(g, outs[1], x.shape, nd, True)


@library("pool_mean(Tensor self, SymInt[] size, int nd, bool adaptive, int[] numbers) -> Tensor",
         layout=shaped(lambda x, size, nd, adaptive, numbers: like(x, size)), routine="avg_pool", domain=WHOLE, strided=True,
         method=False, function=False, structural=("size",), cost=2,
         samples=(call(t(2, 3, 6, 7), (2, 3, 3, 3), 2, False, (2, 2, 2, 2, 0, 0, 1, 1, 1, 0)),
                  call(t(2, 3, 6, 7, order=(0, 2, 3, 1)), (2, 3, 4, 3), 2, True, (0,) * 10)))
def pool_mean(x, size, nd, adaptive, numbers):
    """The mean of each window; after the dims' numbers, count_include_pad and the divisor (0: the window's size)."""
    return (nd, int(adaptive), *numbers)


@pool_mean.derivative
def _(g, x, nd, adaptive, numbers):
    return pool_mean_backward(g, x.shape, nd, adaptive, numbers)


@library("pool_mean_backward(Tensor grad_output, SymInt[] size, int nd, bool adaptive, int[] numbers) -> Tensor",
         layout=shaped(lambda dy, size, nd, adaptive, numbers: like(dy, size)), routine="avg_pool_backward", domain=SINGLES,
         strided=True, method=False, function=False, structural=("size",), cost=2,
         samples=(call(t(2, 3, 3, 3), (2, 3, 6, 7), 2, False, (2, 2, 2, 2, 0, 0, 1, 1, 1, 0)),
                  call(t(2, 3, 3, 3, order=(0, 2, 3, 1)), (2, 3, 6, 7), 2, True, (0,) * 10)))
def pool_mean_backward(dy, size, nd, adaptive, numbers):
    """The cotangent of what pool_mean took."""
    return (nd, int(adaptive), *numbers)


@pool_mean_backward.derivative
def _(g, dy, nd, adaptive, numbers):
    return pool_mean(g, dy.shape, nd, adaptive, numbers)


# ---- windows that slide

def max_pool(nd, samples):
    """max_pool{nd}d_with_indices and max_pool{nd}d."""
    name = f"max_pool{nd}d"
    schema = (f"(Tensor self, int[{nd}] kernel_size, int[{nd}]? stride=None, int[{nd}] padding=0, int[{nd}] dilation=1,"
              " bool ceil_mode=False) -> ")

    def both(x, kernel, stride, padding, dilation, ceil_mode):
        numbers, sizes = geometry(name, nd, x, kernel, stride, padding, dilation, ceil_mode)
        accept(name, x.dtype, 1)
        small = dtypes.category(x.dtype) == 1 and x.dtype != "int64"
        found, places = pool_max(x.to("int64") if small else x, (*x.shape[:-nd], *sizes), nd, False, numbers)
        return found.to(x.dtype) if small else found, places

    @composition(f"{name}_with_indices{schema}(Tensor, Tensor)", name=f"{name}_with_indices", method=False, function=False,
                 samples=samples)
    def with_indices(x, kernel, stride, padding, dilation, ceil_mode):
        return both(x, kernel, stride, padding, dilation, ceil_mode)

    @composition(f"{name}{schema}Tensor", name=name, method=False, samples=samples, autocast="float32" if nd == 3 else None)
    def values(x, kernel, stride, padding, dilation, ceil_mode):
        if nd == 1:                                     # with its indices it is max_pool2d, which takes integers
            accept(name, x.dtype, 2)
        return both(x, kernel, stride, padding, dilation, ceil_mode)[0]
    return with_indices, values


max_pool1d_with_indices, max_pool1d = max_pool(1, (call(t(2, 3, 9), (2,)), call(t(3, 9), (3,), (2,), (1,), (1,), True)))
max_pool2d_with_indices, max_pool2d = max_pool(2, (
    call(t(2, 3, 6, 7), (2, 2)), call(t(2, 3, 7, 8), (3, 3), (2, 2), (1, 1)),
    call(t(3, 7, 8), (3, 2), (2, 1), (1, 0), (1, 2), True), call(t(2, 3, 7, 8, order=(0, 2, 3, 1)), (3, 3), (2, 2), (1, 1)),
    call(t(0, 3, 6, 6), (2, 2)), call(t(2, 3, 6, 7, dtype="float16"), (2, 2))))
max_pool3d_with_indices, max_pool3d = max_pool(3, (call(t(1, 2, 4, 5, 4), (2, 2, 2), (2, 1, 2)),))


def averaged(nd, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor=None):
    name = f"avg_pool{nd}d"
    if divisor is not None and divisor == 0:
        raise RuntimeError(f"[{name}] divisor must be not zero")
    numbers, sizes = geometry(name, nd, x, kernel, stride, padding, 1, ceil_mode)
    accept(name, x.dtype, 1 if x.dtype == "int64" else 2)
    return pool_mean(x, (*x.shape[:-nd], *sizes), nd, False, (*numbers, int(count_include_pad), divisor or 0))


@composition("avg_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool ceil_mode=False,"
             " bool count_include_pad=True) -> Tensor", method=False,
             samples=(call(t(2, 3, 9), (2,)), call(t(3, 9), (3,), (2,), (1,), True, False)))
def avg_pool1d(x, kernel, stride, padding, ceil_mode, count_include_pad):
    return averaged(1, x, kernel, stride, padding, ceil_mode, count_include_pad)


@composition("avg_pool2d(Tensor self, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, bool ceil_mode=False,"
             " bool count_include_pad=True, int? divisor_override=None) -> Tensor", method=False, function=False,
             samples=(call(t(2, 3, 6, 7), (2, 2)), call(t(2, 3, 7, 8), (3, 3), (2, 2), (1, 1)),
                      call(t(2, 3, 7, 8), (3, 2), (2, 2), (1, 1), True, False), call(t(3, 7, 8), (3, 3), (2, 2), (1, 1), True, True, 5),
                      call(t(2, 3, 7, 8, order=(0, 2, 3, 1)), (3, 3), (2, 2), (1, 1)), call(t(2, 3, 6, 7, dtype="bfloat16"), (2, 2))))
def avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    return averaged(2, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


@composition("avg_pool3d(Tensor self, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, bool ceil_mode=False,"
             " bool count_include_pad=True, int? divisor_override=None) -> Tensor", method=False, function=False,
             autocast="float32", samples=(call(t(1, 2, 4, 5, 4), (2, 2, 2), (2, 1, 2)),))
def avg_pool3d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    return averaged(3, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


# ---- windows that adapt

def adapted(op, nd, x, size):
    """The output's shape; None keeps a size."""
    if x.rank not in (nd + 1, nd + 2):
        raise RuntimeError(f"[{op}] Expected {nd + 1}D or {nd + 2}D tensor, but got {list(x.shape)}")
    if any(isinstance(n, int) and n == 0 for n in x.shape[x.rank - nd - 1:]):
        raise RuntimeError(f"[{op}] only the batch may be empty, got {list(x.shape)}")
    size = tuple_of(size, nd, "output_size", op)
    if any(n < 0 for n in size):
        raise RuntimeError(f"[{op}] output_size is not negative, got {list(size)}")
    return (*x.shape[:-nd], *size)


def adaptive_max_pool(nd, samples):
    @composition(f"adaptive_max_pool{nd}d(Tensor self, int[{nd}] output_size) -> (Tensor, Tensor)",
                 name=f"adaptive_max_pool{nd}d", method=False, function=nd == 1, samples=samples,
                 autocast="float32" if nd == 3 else None)
    def pool(x, size):
        shape = adapted(f"adaptive_max_pool{nd}d", nd, x, size)
        accept(f"adaptive_max_pool{nd}d", x.dtype, 2)
        return pool_max(x, shape, nd, True, ())
    return pool


adaptive_max_pool1d = adaptive_max_pool(1, (call(t(2, 3, 7), (3,)),))
adaptive_max_pool2d = adaptive_max_pool(2, (call(t(2, 3, 7, 5), (3, 2)), call(t(3, 4, 5), (5, 1)),
                                            call(t(2, 3, 7, 5, order=(0, 2, 3, 1)), (3, 2))))
adaptive_max_pool3d = adaptive_max_pool(3, (call(t(1, 2, 4, 5, 3), (2, 2, 3)),))


def adaptive_avg_pool(nd, samples):
    @composition(f"adaptive_avg_pool{nd}d(Tensor self, int[{nd}] output_size) -> Tensor", name=f"adaptive_avg_pool{nd}d",
                 method=False, function=nd == 1, autocast="float32" if nd == 3 else None, samples=samples)
    def pool(x, size):
        shape = adapted(f"adaptive_avg_pool{nd}d", nd, x, size)
        accept(f"adaptive_avg_pool{nd}d", x.dtype, 2)
        if all(n == 1 for n in shape[-nd:]):            # folds over 16 lanes: faster, and more exact
            return mean(x, tuple(range(-nd, 0)), True)
        return pool_mean(x, shape, nd, True, (0,) * (4 * nd + 2))
    return pool


adaptive_avg_pool1d = adaptive_avg_pool(1, (call(t(2, 3, 7), (3,)), call(t(3, 7), (1,))))
adaptive_avg_pool2d = adaptive_avg_pool(2, (call(t(2, 3, 7, 5), (3, 2)), call(t(2, 3, 4, 5), (1, 1)), call(t(3, 4, 5), (5, 1)),
                                            call(t(2, 3, 7, 5, order=(0, 2, 3, 1)), (3, 2))))
adaptive_avg_pool3d = adaptive_avg_pool(3, (call(t(1, 2, 4, 5, 3), (2, 2, 3)),))
