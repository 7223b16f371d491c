"""Routines as compositions of kernels, for a GPU: what the CPU does by a routine of csrc/rt and a
GPU would do on the host.

Each takes a call's arguments (symbols, within a recorder) and gives its result by calls of
operators that have kernels: places become indices into one long row, which `embedding` reads and
`embedding_backward` adds into. None: this call has no such form. An index out of range is found by
those kernels.
"""

from math import prod

from rushlight.ops import TABLE, flash
from rushlight.ops.declare import FLOATS


def call(name, *arguments, **options):
    return TABLE[name](*arguments, **options)


def dense(x):
    return call("clone", x, memory_format="contiguous")


def row_of(n):
    """0 .. n - 1."""
    return call("steps", (n,), 0, 1, dtype="int64")


def read(flat, places):
    """The elements of a flattened operand at these places, of the places' shape."""
    table = call("reshape", flat, (flat.numel(), 1))
    return call("reshape", call("embedding", table, places), places.shape)


def added(values, places, size):
    """Zeros of `size` with values added at places in its flattened form."""
    n = values.numel()
    rows = call("reshape", values, (n, 1)), call("reshape", places, (n,))
    return call("reshape", call("embedding_backward", *rows, prod(size), -1), tuple(size))


def long(x):
    return x if x.dtype == "int64" else x.to("int64")


def wrapped(index, size):
    """Negative indices count from the end."""
    index = long(index)
    return call("where", call("lt", index, 0), index + size, index)


def linear(indices, sizes):
    """One index into the flattened dims of these sizes; what is out of range stays out of it."""
    total, found, good = prod(sizes), None, None
    for index, size in zip(indices, sizes):
        index = wrapped(index, size)
        if len(sizes) == 1:
            return index
        fits = call("logical_and", call("ge", index, 0), call("lt", index, size))
        found = index if found is None else found * size + index
        good = fits if good is None else call("logical_and", good, fits)
    return call("where", good, found, total)


def order(rank, dims):
    """The indexed dims in front, the others after them."""
    return (*dims, *(d for d in range(rank) if d not in dims))


def home(dims, common, rank):
    """Where the dims of an indexed result belong that has `common` dims of indices in front."""
    together = tuple(dims) == tuple(range(dims[0], dims[0] + len(dims)))
    at = dims[0] if together else 0
    rest = rank - len(dims)
    return (
        *range(common, common + at),
        *range(common),
        *range(common + at, common + rest),
    )


def inverse(dims):
    return tuple(sorted(range(len(dims)), key=lambda i: dims[i]))


def identity(dims):
    return tuple(dims) == tuple(range(len(dims)))


def index(x, indices, dims):
    if 0 in x.shape or any(i.numel() == 0 for i in indices):
        return None
    front = order(x.rank, dims)
    table = x if identity(front) else call("permute", x, front)
    sizes = [x.shape[d] for d in dims]
    rest = [x.shape[d] for d in front[len(dims) :]]
    table = call("reshape", table, (prod(sizes), prod(rest)))
    places = linear(indices, sizes)
    out = call("reshape", call("embedding", table, places), (*places.shape, *rest))
    back = home(dims, places.rank, x.rank)
    return out if identity(back) else dense(call("permute", out, back))


def index_select(x, dim, index_):
    if not x.rank or index_.dtype not in ("int32", "int64") or index_.rank > 1:
        return None
    dim = dim % x.rank
    at = call("reshape", long(index_), (1,)) if index_.rank == 0 else index_
    return index(x, [at], (dim,))


def index_backward(indices, g, size, dims):
    if g.dtype not in FLOATS or not g.numel() or 0 in size:
        return None
    sizes = [size[d] for d in dims]
    places = linear(indices, sizes)
    back = home(dims, places.rank, len(size))
    values = g if identity(back) else call("permute", g, inverse(back))
    front = order(len(size), dims)
    rest = prod(size[d] for d in front[len(dims) :])
    values = call("reshape", values, (*places.shape, rest))
    total = call("embedding_backward", values, places, prod(sizes), -1)
    total = call("reshape", total, tuple(size[d] for d in front))
    return total if identity(front) else dense(call("permute", total, inverse(front)))


def places_along(index_, size, dim):
    """Where each element of `gather`'s result lies in the flattened operand of this size."""
    step = [prod(size[d + 1 :]) for d in range(len(size))]
    at = long(index_)
    n = size[dim]
    bad = call("logical_or", call("lt", at, 0), call("ge", at, n))
    found = at * step[dim]
    for d, m in enumerate(index_.shape):
        if d != dim and m > 1:
            ones = (1,) * (len(size) - 1 - d)
            found = found + call("reshape", row_of(m) * step[d], (m, *ones))
    outside = call("where", call("lt", at, 0), at, prod(size) + at)  # shows in the error
    return call("where", bad, outside, found)


def gather(x, dim, index_, sparse_grad):
    if not x.rank or not x.numel() or not index_.numel() or index_.rank != x.rank:
        return None
    return read(x, places_along(index_, x.shape, dim % x.rank))


def gather_backward(index_, g, size, dim):
    if g.dtype not in FLOATS or not g.numel() or not size:
        return None
    return added(g, places_along(index_, size, dim % len(size)), size)


def flip(x, dims):
    if not x.layout.contiguous or not x.numel():
        return None
    for d in {d % x.rank for d in dims} if x.rank else ():
        n = x.shape[d]
        x = index(x, [call("steps", (n,), n - 1, -1, dtype="int64")], (d,))
    return x


def planes(shape, nd):
    """The first place of each plane, for planes of `nd` dims: of the rank of the whole."""
    lead, area = prod(shape[:-nd]), prod(shape[-nd:])
    return call("reshape", row_of(lead) * area, (*shape[:-nd], *(1,) * nd))


def pool_scatter(x, indices, size, nd, adds):
    if not adds or not x.layout.contiguous or not indices.layout.contiguous or not x.numel():
        return None
    return added(x, long(indices) + planes(tuple(size), nd), size)


def pool_gather(x, indices, nd):
    if not x.layout.contiguous or not indices.layout.contiguous or not indices.numel():
        return None
    return read(x, long(indices) + planes(x.shape, nd))


def windows(x, size, nd, numbers, value):
    """The windows of x as dims of their own, [..., *size, *kernel]; it is padded by `value`."""
    kernel, stride, padding, dilation = (numbers[i * nd : (i + 1) * nd] for i in range(4))
    before = x.shape[-nd:]
    reach = [
        (m - 1) * s + (k - 1) * d + 1 for m, s, k, d in zip(size[-nd:], stride, kernel, dilation)
    ]
    after = [max(0, r - n - p) for r, n, p in zip(reach, before, padding)]
    if any(padding) or any(after):
        ends = [e for pair in zip(padding, after) for e in (pair[1], pair[0])]
        x = call("constant_pad_nd", x, tuple(ends[::-1]), value)
    else:
        x = dense(x) if not x.layout.contiguous else x
    steps = [prod(x.shape[d + 1 :]) for d in range(x.rank)]
    inner = steps[-nd:]
    strides = (*steps[:-nd], *(s * t for s, t in zip(stride, inner)))
    strides = (*strides, *(d * t for d, t in zip(dilation, inner)))
    return call("as_strided", x, (*size, *kernel), strides, 0)


def pool_max(x, size, nd, adaptive, numbers):
    if adaptive or not x.layout.contiguous or not x.numel():
        return None
    kernel, stride, padding, dilation = (numbers[i * nd : (i + 1) * nd] for i in range(4))
    seen = windows(x, tuple(size), nd, numbers, float("-inf"))
    seen = call("reshape", seen, (*size, prod(kernel)))
    best, place = call("amax", seen, (-1,), False), call("argmax", seen, -1, False)
    flat = None
    for d in range(nd):  # the place in the window becomes a place in the plane
        inside = prod(kernel[d + 1 :])
        at = call("floor_divide", place, inside) if inside > 1 else place
        if d:
            at = call("remainder", at, kernel[d])
        m, ones = size[len(size) - nd + d], (1,) * (nd - 1 - d)
        begin = call("reshape", row_of(m) * stride[d] - padding[d], (m, *ones))
        at = at * dilation[d] + begin
        flat = at if flat is None else flat * x.shape[x.rank - nd + d] + at
    return best, call("clamp_min", flat, 0)


def even(whole, size, nd, adaptive, numbers):
    """(kernel, stride, padding, dilation) and what a window's sum is divided by; None where that
    differs from window to window.
    """
    inner, outer = whole[-nd:], size[-nd:]
    if adaptive:
        if any(n % m for n, m in zip(inner, outer)):
            return None
        kernel = tuple(n // m for n, m in zip(inner, outer))
        return (*kernel, *kernel, *(0,) * nd, *(1,) * nd), prod(kernel)
    kernel, stride, padding, dilation = (numbers[i * nd : (i + 1) * nd] for i in range(4))
    counted, divisor = numbers[4 * nd :]
    over = any(
        (m - 1) * s + (k - 1) * d + 1 > n + 2 * p
        for n, m, k, s, p, d in zip(inner, outer, kernel, stride, padding, dilation)
    )
    if over or (any(padding) and not counted and not divisor):
        return None
    return numbers[: 4 * nd], divisor or prod(kernel)


def pool_mean(x, size, nd, adaptive, numbers):
    found = even(x.shape, size, nd, adaptive, numbers)
    if found is None or not x.layout.contiguous or not x.numel():
        return None
    seen = windows(x, tuple(size), nd, found[0], 0.0)
    seen = call("reshape", seen, (*size, prod(found[0][:nd])))
    return call("sum", seen, (-1,), False) / found[1]


def pool_mean_backward(dy, size, nd, adaptive, numbers):
    found = even(size, dy.shape, nd, adaptive, numbers)
    if found is None or not dy.layout.contiguous or not dy.numel():
        return None
    kernel, stride = found[0][:nd], found[0][nd : 2 * nd]
    whole = [m * k for m, k in zip(dy.shape[-nd:], kernel)]
    if kernel != stride or any(found[0][2 * nd : 3 * nd]) or whole != list(size[-nd:]):
        return None  # windows overlap, or leave something out
    lead, apart, full = dy.shape[:-nd], [], []
    for m, k in zip(dy.shape[-nd:], kernel):
        apart += [m, 1]
        full += [m, k]
    spread = call("reshape", dy / found[1], (*lead, *apart))
    return call("reshape", dense(call("expand", spread, (*lead, *full))), tuple(size))


FORMS = flash.SPELLED | {
    f.__name__: f
    for f in (
        index, index_select, index_backward, gather, gather_backward, flip, pool_scatter,
        pool_gather, pool_max, pool_mean, pool_mean_backward,
    )
}  # fmt: skip


def composed(recorder, op, a):
    """A routine's outputs, recorded as calls of kernels; None where it has no such form."""
    form = FORMS.get(op.name)
    if form is None:
        return None
    with recorder:
        made = form(*a.values)
    if made is None:
        recorder.calls.clear()
    return made
