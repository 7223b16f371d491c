"""Assembled outputs: (view of the output, what is written through it), in order. The last write wins."""
from . import promotion
from .declare import assemble, composition
from .layouts import concatenated, like_first, like_size, passed_over, positive, shaped, stacked
from .samples import call, t
from .views import as_strided, diagonal, narrow, permute, product, reshape, select, slice


@assemble("cat(Tensor[] tensors, int dim=0) -> Tensor", layout=concatenated(), method=False,
          autocast="promote", samples=(call([t(2, 3), t(4, 3)], 0), call([t(2, 3), t(2, 1), t(2, 2)], 1), call([t(2, 3), t(2, 3, dtype="float64")], -1),
                                       call([t(0), t(2, 3), t(2, 1)], 1)))
def cat(tensors, dim):
    start = 0
    for x in [x for x in tensors if not passed_over(x)] or tensors:
        stop = start + x.shape[dim]
        yield (lambda out, start=start, stop=stop: slice(out, dim, start, stop, 1)), x
        start = stop


@cat.derivative
def _(g, tensors, dim):
    start, parts = 0, []
    for x in tensors:
        if passed_over(x):
            parts.append(reshape(slice(g, dim, 0, 0, 1), (0,)))
            continue
        parts.append(slice(g, dim, start, start + x.shape[dim], 1))
        start = start + x.shape[dim]
    return (parts,)


@assemble("stack(Tensor[] tensors, int dim=0) -> Tensor", layout=stacked(), method=False,
          autocast="promote", samples=(call([t(2, 3), t(2, 3)], 0), call([t(3), t(3), t(3)], -1), call([t(2), t(2, dtype="float64")], 1)))
def stack(tensors, dim):
    dim = positive((dim,), tensors[0].rank + 1)[0]
    for i, x in enumerate(tensors):
        yield (lambda out, i=i: select(out, dim, i)), x


@stack.derivative
def _(g, tensors, dim):
    dim = positive((dim,), tensors[0].rank + 1)[0]
    return ([select(g, dim, i) for i in range(len(tensors))],)


@assemble("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(4), (3, 4), 0, 1),))
def select_backward(dy, input_sizes, dim, index):
    yield (lambda out: out), 0
    yield (lambda out: select(out, dim, index)), dy


@select_backward.derivative
def _(g, dim, index):
    return select(g, dim, index)


@assemble("slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt? start, SymInt? end, SymInt step) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(2, 4), (6, 4), 0, 1, 5, 2),))
def slice_backward(dy, input_sizes, dim, start, end, step):
    yield (lambda out: out), 0
    yield (lambda out: slice(out, dim, start, end, step)), dy


@slice_backward.derivative
def _(g, dim, start, end, step):
    return slice(g, dim, start, end, step)


@assemble("select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", layout=like_first(),
          promote=promotion.numeric.of("self"), samples=(call(t(3, 4), t(4), 0, 1), call(t(3, 4), t(3), 1, -1)))
def select_scatter(x, src, dim, index):
    yield (lambda out: out), x
    yield (lambda out: select(out, dim, index)), src


@select_scatter.derivative
def _(g, src, dim, index):
    return select_scatter(g, 0 * src, dim, index), select(g, dim, index)


@assemble("slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
          layout=like_first(), promote=promotion.numeric.of("self"),
          samples=(call(t(6, 4), t(2, 4), 0, 1, 5, 2), call(t(6, 4), t(6, 2), 1, 2), call(t(6, 4), t(2, 4), 0, -3, -1)))
def slice_scatter(x, src, dim, start, end, step):
    yield (lambda out: out), x
    yield (lambda out: slice(out, dim, start, end, step)), src


@slice_scatter.derivative
def _(g, src, dim, start, end, step):
    return slice_scatter(g, 0 * src, dim, start, end, step), slice(g, dim, start, end, step)


@assemble("narrow_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt length) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(3, 4), (6, 4), 0, 1, 3),))
def narrow_backward(dy, input_sizes, dim, start, length):
    yield (lambda out: out), 0
    yield (lambda out: narrow(out, dim, start, length)), dy


@narrow_backward.derivative
def _(g, dim, start, length):
    return narrow(g, dim, start, length)


@assemble("diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(3), (3, 4), 0, 0, 1), call(t(2), (3, 4), -1, 0, 1)))
def diagonal_backward(dy, input_sizes, offset, dim1, dim2):
    yield (lambda out: out), 0
    yield (lambda out: diagonal(out, offset, dim1, dim2)), dy


@diagonal_backward.derivative
def _(g, offset, dim1, dim2):
    return diagonal(g, offset, dim1, dim2)


@composition("unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) -> Tensor", method=False,
             function=False, structural=("input_sizes",), samples=(call(t(6, 2), (7,), 0, 2, 1), call(t(3, 2, 3), (3, 6), 1, 3, 2)))
def unfold_backward(dy, input_sizes, dim, size, step):
    """Windows added up where they overlap; windows that do not are written side by side."""
    dim = positive((dim,), len(input_sizes))[0]
    windows = dy.shape[dim]
    if size <= step and windows:                        # room between the windows stays 0
        moved = [d for d in range(dy.rank - 1) if d <= dim] + [dy.rank - 1] + list(range(dim + 1, dy.rank - 1))
        whole = windows * step
        parts = slice_backward(permute(dy, tuple(moved)), (*dy.shape[:dim + 1], step, *dy.shape[dim + 1:-1]), dim + 1, 0, size, 1)
        flat = reshape(parts, (*dy.shape[:dim], whole, *dy.shape[dim + 1:-1]))
        n = input_sizes[dim]
        if whole > n:
            return slice(flat, dim, 0, n, 1)
        return flat if whole == n else slice_backward(flat, input_sizes, dim, 0, whole, 1)
    total = None
    for k in range(size):
        part = slice_backward(select(dy, dy.rank - 1, k), input_sizes, dim, k, k + (windows - 1) * step + 1, step)
        total = part if total is None else total + part
    return total


@composition("as_strided_backward(Tensor grad, SymInt[] input_sizes, SymInt[] input_strides, SymInt[] size, SymInt[] stride, SymInt offset)"
             " -> Tensor", method=False, function=False, structural=("input_sizes", "input_strides", "size", "stride", "offset"),
             samples=(call(t(3, 4), (12,), (1,), (3, 4), (4, 1), 0), call(t(4, 3), (6,), (1,), (4, 3), (1, 1), 0)))
def as_strided_backward(g, input_sizes, input_strides, size, stride, offset):
    """Each element added at its place in the storage, then read as the input lies in it."""
    from .creation import steps
    from .indexing import embedding_backward
    places = steps((1,) * len(size), offset, 1, dtype="int64")
    for d, (n, step) in enumerate(zip(size, stride)):
        places = places + reshape(steps((n,), 0, step, dtype="int64"), (n,) + (1,) * (len(size) - 1 - d))
    count = 1
    for n, step in zip(input_sizes, input_strides):
        count += (n - 1) * step
    total = product(size)
    flat = embedding_backward(reshape(g, (total, 1)), reshape(places, (total,)), count, -1)
    return as_strided(reshape(flat, (count,)), input_sizes, input_strides)


# ---- rearranged copies

def padded(x, pad, value):
    """Sizes with (before, after) pairs added, from the last dim on. Negative ones cut off."""
    shape = list(x.shape)
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise RuntimeError(
            f"[constant_pad_nd] pad has two numbers a dim, for at most {len(shape)} dims, got {len(pad)} numbers"
        )
    for i in range(len(pad) // 2):
        d = len(shape) - 1 - i
        shape[d] = shape[d] + pad[2 * i] + pad[2 * i + 1]
        if isinstance(shape[d], int) and shape[d] < 0:
            raise RuntimeError(
                f"[constant_pad_nd] a dim of size {x.shape[d]} has less to cut off than {pad[2 * i]} and "
                f"{pad[2 * i + 1]}"
            )
    return tuple(shape)


@assemble("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", layout=shaped(padded), method=False,
          promote=promotion.numeric, samples=(
              call(t(2, 3), (1, 2)), call(t(2, 3), (1, 0, 0, 2), 1.5), call(t(4, 5), (-1, 2, 1, -2)), call(t(2, 3, dtype="int64"), (1, 1), 7),
              call(t(2, 3), (0, 0))))
def constant_pad_nd(x, pad, value):
    yield (lambda out: out), value

    def inside(v, sign):
        for i in range(len(pad) // 2):
            d = v.rank - 1 - i
            before, after = (max(sign * n, 0) for n in pad[2 * i:2 * i + 2])
            if before or after:
                v = narrow(v, d, before, v.shape[d] - before - after)
        return v
    yield (lambda out: inside(out, 1)), inside(x, -1)


@constant_pad_nd.derivative
def _(g, pad):
    return constant_pad_nd(g, tuple(-n for n in pad), 0)


@assemble("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
          layout=shaped(lambda x, offset, i, j: embedded(x, offset, i, j)), promote=promotion.numeric,
          samples=(call(t(3)), call(t(2, 3)), call(t(2, 3), 1), call(t(2, 3), -2, 0, 2)))
def diag_embed(x, offset, dim1, dim2):
    """The last dim laid along the diagonal of two new dims; 0 elsewhere."""
    yield (lambda out: out), 0
    yield (lambda out: diagonal(out, offset, dim1, dim2)), x


def embedded(x, offset, i, j):
    i, j = (positive((d,), x.rank + 1)[0] for d in (i, j))
    if i == j:
        raise RuntimeError(f"[diag_embed] diagonal dimensions cannot be identical {i}, {j}")
    rest = iter(x.shape[:-1])
    n = x.shape[-1] + abs(offset)
    return tuple(n if d in (i, j) else next(rest) for d in range(x.rank + 1))


@diag_embed.derivative
def _(g, offset, dim1, dim2):
    return diagonal(g, offset, dim1, dim2)
