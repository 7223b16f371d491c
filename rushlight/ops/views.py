"""Affine views: Layout -> Layout, so that the definition is the layout rule too. Offsets and indices are run-time values.

csrc/rt/views.cpp holds the native form of each (`view=` names it); a test compares the two on every sample.
"""
from rushlight import dtypes

from .declare import affine_view, composition, none
from .layouts import ShapeError, positive
from .samples import call, t
from .values import TABLE


def wrapped(dim, rank):
    """A non-negative dim, 0 where there are none; raises IndexError as PyTorch words it."""
    return positive((dim,), max(rank, 1))[0]


@affine_view("alias(Tensor(a) self) -> Tensor(a)", view="alias", method=False, function=False, samples=(call(t(2, 3)),))
def alias(x):
    return x


@alias.derivative
def _(g):
    return g


@affine_view("detach(Tensor(a) self) -> Tensor(a)", view="alias", derivative=none, method=False, function=False,
             samples=(call(t(2, 3)),))
def detach(x):
    return x


@affine_view("permute(Tensor(a) self, int[] dims) -> Tensor(a)", view="permute",
             samples=(call(t(2, 3, 4), (2, 0, 1)), call(t(2, 3), (-1, 0))))
def permute(x, dims):
    dims = [wrapped(d, x.rank) for d in dims]
    if sorted(dims) != list(range(x.rank)):
        raise RuntimeError(f"[permute] dims {list(dims)} are not a permutation of the {x.rank} dimensions of {x}")
    return x.permute(dims)


@permute.derivative
def _(g, x, dims):
    dims = [d % x.rank for d in dims]
    return permute(g, tuple(sorted(range(len(dims)), key=lambda d: dims[d])))


@affine_view("transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", view="transpose",
             samples=(call(t(2, 3, 4), 0, -1), call(t(2, 3), 0, 1)))
def transpose(x, i, j):
    order = list(range(x.rank))
    i, j = wrapped(i, x.rank), wrapped(j, x.rank)
    if x.rank:
        order[i], order[j] = order[j], order[i]
    return x.permute(order)


@transpose.derivative
def _(g, i, j):
    return transpose(g, i, j)


@composition("t(Tensor(a) self) -> Tensor(a)", name="t", samples=(call(t(2, 3)), call(t(3))))
def t_(x):
    if x.rank > 2:
        raise RuntimeError(f"[t] takes at most 2 dims, got {x.rank}")
    return transpose(x, 0, 1) if x.rank == 2 else alias(x)


@affine_view("view(Tensor(a) self, SymInt[] size) -> Tensor(a)", view="view",
             samples=(call(t(2, 6), (3, 4)), call(t(2, 3, 4), (6, 4)), call(t(2, 3, 4), (-1,)), call(t(0, 3), (3, 0))))
def view(x, size):
    size = inferred(x, size, "view")
    out = x.view(size)
    if out is None:
        raise RuntimeError(
            f"[view] {x} with strides {list(x.strides)} cannot be seen as {list(size)} without a copy: .reshape(...) "
            "makes one"
        )
    return out


def inferred(x, size, op):
    """The sizes with -1 filled in; raises where the numbers of elements differ."""
    total, known, holes = product(x.shape), 1, [d for d, n in enumerate(size) if isinstance(n, int) and n == -1]
    for d, n in enumerate(size):
        if d not in holes[:1]:
            known = known * n
    size = list(size)
    if holes and len(holes) == 1 and not known == 0 and total % known == 0:
        size[holes[0]] = total // known
        known = known * size[holes[0]]
    if len(holes) > 1 or not known == total:
        raise ShapeError(f"[{op}] {total} elements do not have the shape {list(size)}")
    return tuple(size)


def product(sizes):
    total = 1
    for n in sizes:
        total = total * n
    return total


@view.derivative
def _(g, x):
    return reshape(g, x.shape)


@composition("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", view="reshape",
             samples=(call(t(2, 6), (3, 4)), call(t(3, 4, order=(1, 0)), (12,)), call(t(2, 3, 4), (-1, 4))))
def reshape(x, shape):
    from .pointwise import clone
    shape = inferred(x.layout, shape, "reshape")
    return view(x if x.layout.view(shape) is not None else clone(x, memory_format="contiguous"), shape)


@reshape.derivative
def _(g, x):
    return reshape(g, x.shape)


@affine_view("expand(Tensor(a) self, SymInt[] size) -> Tensor(a)", view="expand",
             samples=(call(t(3, 1), (2, 3, 4)), call(t(3, 1), (-1, 4))))
def expand(x, size):
    lead = len(size) - x.rank
    return x.expand(tuple(x.shape[d - lead] if isinstance(n, int) and n == -1 and d >= lead else n
                          for d, n in enumerate(size)))


@expand.derivative
def _(g):
    return g                        # every cotangent is summed to its operand's shape


@affine_view("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", view="unsqueeze",
             samples=(call(t(2, 3), 1), call(t(2, 3), -1), call(t(), 0)))
def unsqueeze(x, dim):
    dim = wrapped(dim, x.rank + 1)
    pairs = x.pairs()
    pairs.insert(dim, (1, pairs[dim][0] * pairs[dim][1] if dim < x.rank else 1))
    return x.of(pairs)


@unsqueeze.derivative
def _(g, x):
    return reshape(g, x.shape)


@affine_view("squeeze.dims(Tensor(a) self, int[]? dim=None) -> Tensor(a)", view="squeeze",
             samples=(call(t(2, 1, 3)), call(t(2, 1, 3), 1), call(t(2, 3), 0), call(t(1, 2, 1, 3), (0, -2)), call(t(1, 2), (0, 1)),
                      call(t(2, 1), ())))
def squeeze(x, dim):
    dims = (dim,) if isinstance(dim, int) else dim
    at = range(x.rank) if dims is None else [wrapped(d, x.rank) for d in dims]
    return x.of([p for d, p in enumerate(x.pairs()) if not (d in at and p[0] == 1)])


@squeeze.derivative
def _(g, x):
    return reshape(g, x.shape)


@affine_view("slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
             view="slice", method=False, function=False, samples=(call(t(6, 4), 0, 1, 5, 2), call(t(6, 4), 1, 2, None, 1),
                                                  call(t(6, 4), 0, -3, -1), call(t(6, 4), 0, 4, 2), call(t(3), 0, 0, 99)))
def slice(x, dim, start, end, step):
    dim = wrapped(dim, x.rank)
    n = x.shape[dim]
    start, end = clamped(start, n, 0), clamped(end, n, n)
    if isinstance(step, int) and step <= 0:
        raise ValueError(f"[slice] slice step must be positive, got {step}")
    length = end - start
    if length < 0:
        length, end = 0, start
    return x.at(dim, start, length if isinstance(step, int) and step == 1 else (length + step - 1) // step, step)


def clamped(i, n, default):
    if i is None:
        return default
    if i < 0:
        i = i + n
    return 0 if i < 0 else n if i > n else i


@slice.derivative
def _(g, x, dim, start, end, step):
    from .assembly import slice_backward
    return slice_backward(g, x.shape, dim, start, end, step)


@affine_view("select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", view="select",
             samples=(call(t(3, 4), 0, 2), call(t(3, 4), 1, -1)))
def select(x, dim, index):
    dim = wrapped(dim, x.rank)
    n = x.shape[dim]
    if isinstance(index, int) and isinstance(n, int) and not -n <= index < n:
        raise IndexError(f"[select] index {index} is out of range: dim {dim} has size {n}")
    return x.at(dim, index + n if index < 0 else index)


@select.derivative
def _(g, x, dim, index):
    from .assembly import select_backward
    return select_backward(g, x.shape, dim, index)


@affine_view("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", view="narrow",
             samples=(call(t(6, 4), 0, 1, 3), call(t(6, 4), 1, -3, 2), call(t(6, 4), -1, 4, 0)))
def narrow(x, dim, start, length):
    """`length` elements of `dim` from `start` on; a negative start counts from the end."""
    dim = wrapped(dim, x.rank)
    n = x.shape[dim]
    start = start + n if start < 0 else start
    if length < 0 or start < 0 or start + length > n:
        raise RuntimeError(f"[narrow] start ({start}) + length ({length}) exceeds dimension size ({n})")
    return x.at(dim, start, length)


@narrow.derivative
def _(g, x, dim, start, length):
    from .assembly import narrow_backward
    return narrow_backward(g, x.shape, dim, start, length)


@affine_view("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)", view="diagonal",
             samples=(call(t(3, 4)), call(t(3, 4), 1), call(t(3, 4), -1), call(t(2, 3, 4), 0, -1, 0), call(t(3, 4), 9),
                      call(t(3, 4, order=(1, 0)), -2)))
def diagonal(x, offset, i, j):
    """The diagonal of two dims, as the last dim; `offset` above it, or below where it is negative."""
    i, j = wrapped(i, x.rank), wrapped(j, x.rank)
    if i == j:
        raise RuntimeError(f"[diagonal] diagonal dimensions cannot be identical {i}, {j}")
    rows, columns = x.shape[i] + min(offset, 0), x.shape[j] - max(offset, 0)
    n = max(min(rows, columns), 0)
    start = 0 if n == 0 else offset * x.strides[j] if offset >= 0 else -offset * x.strides[i]
    kept = [p for d, p in enumerate(x.pairs()) if d not in (i, j)]
    return x.of([*kept, (n, x.strides[i] + x.strides[j])], x.offset + start)


@diagonal.derivative
def _(g, x, offset, i, j):
    from .assembly import diagonal_backward
    return diagonal_backward(g, x.shape, offset, i, j)


@affine_view("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", view="unfold", function=False,
             samples=(call(t(7), 0, 2, 1), call(t(3, 8), 1, 3, 2), call(t(8, 3), 0, 2, 4), call(t(3, 4, 5), -1, 5, 1)))
def unfold(x, dim, size, step):
    """Windows of `size` elements along a dim, `step` apart; their elements become the last dim."""
    dim = wrapped(dim, x.rank)
    n, stride = (x.shape[dim], x.strides[dim]) if x.rank else (1, 1)
    if size < 0 or size > n:
        raise RuntimeError(f"[unfold] pieces of {size} do not fit dim {dim}, which has size {n}")
    if step <= 0:
        raise RuntimeError(f"[unfold] step is {step} but must be > 0")
    pairs = x.pairs()
    if x.rank:
        pairs[dim] = ((n - size) // step + 1, stride * step)
    return x.of([*pairs, (size, stride)])


@unfold.derivative
def _(g, x, dim, size, step):
    from .assembly import unfold_backward
    return unfold_backward(g, x.shape, dim, size, step)


@affine_view("as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
             view="as_strided", structural=("storage_offset",), samples=(call(t(12), (3, 4), (4, 1)), call(t(12), (3, 2), (4, 1), 1), call(t(6), (4, 3), (1, 1))))
def as_strided(x, size, stride, storage_offset):
    """Any sizes and strides over the storage; what lies outside it is refused."""
    if len(size) != len(stride):
        raise ValueError(f"[as_strided] {len(size)} sizes and {len(stride)} strides")
    return x.of(list(zip(size, stride)), x.offset if storage_offset is None else storage_offset)


@as_strided.derivative
def _(g, x, size, stride, storage_offset):
    from .assembly import as_strided_backward
    if not x.layout.is_dense:
        raise NotImplementedError(f"[as_strided] no derivative for an input with gaps or overlaps: {x.layout} with strides "
                                  f"{list(x.layout.strides)}; make it contiguous first")
    return as_strided_backward(g, x.shape, x.layout.strides, size, stride, storage_offset or 0)


@composition("movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
             samples=(call(t(2, 3, 4), 0, 2), call(t(2, 3, 4), (0, -1), (1, 0)), call(t(2, 3), (1,), (0,))))
def movedim(x, source, destination):
    """The dims of `source` moved to the places of `destination`; the others keep their order."""
    source, destination = ((v,) if isinstance(v, int) else tuple(v) for v in (source, destination))
    if len(source) != len(destination):
        raise RuntimeError(
            f"[movedim] as many dims go as come, got source {list(source)} and destination {list(destination)}"
        )
    source, destination = ([wrapped(d, x.rank) for d in v] for v in (source, destination))
    for what, dims in (("source", source), ("destination", destination)):
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"[movedim] repeated dim in `{what}` ({dims})")
    rest = iter(d for d in range(x.rank) if d not in source)
    placed = dict(zip(destination, source))
    return permute(x, tuple(placed[d] if d in placed else next(rest) for d in range(x.rank)))


@composition("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)",
             samples=(call(t(2, 6), 1, (2, 3)), call(t(6, 2), 0, (-1, 3))))
def unflatten(x, dim, sizes):
    """One dim cut up into several."""
    dim = wrapped(dim, x.rank)
    if not sizes:
        raise RuntimeError("[unflatten] sizes must be non-empty")
    total, known, holes = x.shape[dim], product([n for n in sizes if n != -1]), [i for i, n in enumerate(sizes) if n == -1]
    if len(holes) > 1 or (total % known if holes and known else known != total):
        raise RuntimeError(f"[unflatten] {list(sizes)} do not multiply up to {total}, the size of dim {dim}")
    return view(x, (*x.shape[:dim], *(total // known if n == -1 else n for n in sizes), *x.shape[dim + 1:]))


@composition("ravel(Tensor(a) self) -> Tensor(a)", samples=(call(t(2, 3)), call(t(4, 3, order=(1, 0))), call(t())))
def ravel(x):
    return reshape(x, (-1,)) if product(x.shape) else reshape(x, (0,))


@composition("swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", samples=(call(t(2, 3, 4), 0, -1),))
def swapaxes(x, i, j):
    return transpose(x, i, j)


@composition("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", samples=(call(t(3, 1), (2, 3, 4)),))
def broadcast_to(x, size):
    return expand(x, tuple(size))


@composition("adjoint(Tensor(a) self) -> Tensor(a)", samples=(call(t(2, 3, 4)),))
def adjoint(x):
    x = transpose(x, -2, -1)
    return TABLE["conj_physical"](x) if dtypes.is_complex(x.dtype) else x


@composition("flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
             samples=(call(t(2, 3, 4)), call(t(2, 3, 4), 1), call(t())))
def flatten(x, start, end):
    start, end = wrapped(start, x.rank), wrapped(end, x.rank)
    if x.rank == 0:
        return reshape(x, (1,))
    if start > end:
        raise RuntimeError(f"[flatten] start_dim cannot come after end_dim, got {start} and {end}")
    return reshape(x, (*x.shape[:start], product(x.shape[start:end + 1]), *x.shape[end + 1:]))
