"""Affine views: Layout -> Layout, so that the definition is the layout rule too. Offsets and indices are run-time values.

csrc/rt/views.cpp holds the native form of each (`view=` names it); a test compares the two on every sample.
"""
from .declare import affine_view, composition, none
from .layouts import ShapeError, positive
from .samples import call, t


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
        raise RuntimeError(f"[t] expects a tensor with <= 2 dimensions, but self is {x.rank}D")
    return transpose(x, 0, 1) if x.rank == 2 else alias(x)


@affine_view("view(Tensor(a) self, SymInt[] size) -> Tensor(a)", view="view",
             samples=(call(t(2, 6), (3, 4)), call(t(2, 3, 4), (6, 4)), call(t(2, 3, 4), (-1,)), call(t(0, 3), (3, 0))))
def view(x, size):
    size = inferred(x, size, "view")
    out = x.view(size)
    if out is None:
        raise RuntimeError(f"[view] view size is not compatible with input tensor's size and stride (at least one dimension "
                           f"spans across two contiguous subspaces): {x} with strides {list(x.strides)} as {list(size)}. "
                           "Use .reshape(...) instead.")
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
        raise ShapeError(f"[{op}] shape '{list(size)}' is invalid for input of size {total}")
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


@affine_view("squeeze.dim(Tensor(a) self, int? dim=None) -> Tensor(a)", view="squeeze",
             samples=(call(t(2, 1, 3)), call(t(2, 1, 3), 1), call(t(2, 3), 0)))
def squeeze(x, dim):
    at = range(x.rank) if dim is None else (wrapped(dim, x.rank),)
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
        raise IndexError(f"[select] index {index} is out of bounds for dimension {dim} with size {n}")
    return x.at(dim, index + n if index < 0 else index)


@select.derivative
def _(g, x, dim, index):
    from .assembly import select_backward
    return select_backward(g, x.shape, dim, index)


@composition("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", structural=("start", "length"),
             samples=(call(t(6, 4), 0, 1, 3),))
def narrow(x, dim, start, length):
    n = x.shape[wrapped(dim, x.rank)]
    if all(isinstance(v, int) for v in (n, start, length)):
        start = start + n if start < 0 else start
        if length < 0 or start < 0 or start + length > n:
            raise RuntimeError(f"[narrow] start ({start}) + length ({length}) exceeds dimension size ({n})")
    return slice(x, dim, start, start + length, 1)


@composition("flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
             samples=(call(t(2, 3, 4)), call(t(2, 3, 4), 1), call(t())))
def flatten(x, start, end):
    if x.rank == 0:
        return reshape(x, (1,))
    start, end = wrapped(start, x.rank), wrapped(end, x.rank)
    return reshape(x, (*x.shape[:start], product(x.shape[start:end + 1]), *x.shape[end + 1:]))
