"""Methods and functions that give several tensors or take several: splits, stacks, grids. They are
views where PyTorch's are.
"""

from rushlight import _core
from rushlight.ops import TABLE

from .complexes import is_complex
from .modes import is_compiling

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


def one_list(tensors):
    """`f(a, b)` and `f([a, b])` are the same."""
    return tuple(
        tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    )


# ---- pieces


def split(self, split_size_or_sections=None, dim=0, *, split_size=None):
    """Views of consecutive pieces along `dim`, of one size (the last may be smaller) or of a list
    of sizes.
    """
    k = split_size if split_size_or_sections is None else split_size_or_sections
    if not self.dim():
        raise RuntimeError("[split] a tensor of no dimensions cannot be split")
    n = self.size(dim)
    if type(k) is int and k > 0 and n:
        if type(self) is Tensor and not is_compiling():
            return _core.pieces(self, k, dim)
        return tuple([op("slice")(self, dim, i, i + k) for i in range(0, n, k)])
    piece = op("slice")
    if k is None:
        raise TypeError("split() missing 1 required positional arguments: 'split_size_or_sections'")
    if isinstance(k, int) and (k < 0 or k == 0 and n):
        raise RuntimeError(f"[split] split_size must be positive, got {k} for a dim of size {n}")
    pieces = [min(k, n - i) for i in range(0, n, k)] or [0] if isinstance(k, int) else list(k)
    if sum(pieces) != n or any(p < 0 for p in pieces):
        raise RuntimeError(
            f"[split] the pieces {pieces} have to add up to {n}, the size of dim {dim}"
        )
    out, start = [], 0
    for size in pieces:
        out.append(piece(self, dim, start, start + size))
        start += size
    return tuple(out)


def split_with_sizes(self, split_sizes, dim=0):
    return split(self, tuple(split_sizes), dim)


def chunk(self, chunks, dim=0):
    """At most so many pieces of equal size; the last may be smaller."""
    if chunks < 1:
        raise RuntimeError(f"[chunk] takes a positive number of chunks, got {chunks}")
    if not self.dim():
        raise RuntimeError("[chunk] a tensor of no dimensions cannot be split")
    n = self.size(dim)
    if n == 0:
        return split(self, (0,) * chunks, dim)
    return split(self, max(-(-n // chunks), 1), dim)


def tensor_split(self, indices_or_sections, dim=0):
    """Pieces that differ by one element at most, or pieces cut before the given positions."""
    if not self.dim():
        raise RuntimeError("[tensor_split] expected a tensor with dims, got a 0-dim one")
    n, cuts = self.size(dim), indices_or_sections
    if isinstance(cuts, Tensor):
        if cuts.dtype.name != "int64":
            raise RuntimeError(
                f"[tensor_split] a tensor of sections or indices is int64, got {cuts.dtype.name}"
            )
        cuts = cuts.tolist()
    if isinstance(cuts, int):
        if cuts <= 0:
            raise RuntimeError(f"[tensor_split] number of sections must be positive, got {cuts}")
        size, more = divmod(n, cuts)
        cuts = [i * size + min(i, more) for i in range(1, cuts)]
    edges = [0, *cuts, n]
    return tuple(op("slice")(self, dim, a, b) for a, b in zip(edges, edges[1:]))


def splitter(name, dim, least):
    def method(self, indices_or_sections):
        if self.dim() < least:
            raise RuntimeError(
                f"[{name}] requires a tensor with at least {least} dimension"
                f"{'s' * (least > 1)}, but got a tensor with {self.dim()} dimensions!"
            )
        at = 0 if name == "hsplit" and self.dim() == 1 else dim
        k = indices_or_sections
        if isinstance(k, int) and (k <= 0 or self.size(at) % k):
            raise RuntimeError(
                f"[{name}] dim {at} has size {self.size(at)}, which is not divisible by {k}"
            )
        return tensor_split(self, k, at)

    method.__doc__ = f"`tensor_split` along dim {dim}."
    return method


def unbind(self, dim=0):
    """Views of the slices along `dim`, without it."""
    return tuple(op("select")(self, dim, i) for i in range(self.size(dim)))


# ---- stacks


def least_dims(count):
    def at_least(*tensors):
        tensors = one_list(tensors)
        made = tuple(widened(t, count) for t in tensors)
        return made[0] if len(made) == 1 else made

    at_least.__doc__ = f"Views with {count} dims at least."
    return at_least


def widened(t, count):
    if t.dim() >= count:
        return t
    if t.dim() == 0:
        return t.reshape((1,) * count)
    if t.dim() == 1 and count > 1:
        t = t.unsqueeze(0)
    return t.unsqueeze(-1) if t.dim() < count else t


def stacker(name, count, dim):
    def stack(tensors, *, out=None):
        made = [widened(t, count) for t in tensors]
        if not made:
            raise RuntimeError(f"[{name}] expects a non-empty TensorList")
        at = 0 if name == "hstack" and made[0].dim() == 1 else dim
        return joined(made, at, out)

    stack.__name__ = name
    return stack


def joined(tensors, dim, out):
    return op("cat")(tensors, dim) if out is None else op("cat")(tensors, dim, out=out)


def concat(tensors, dim=0, *, out=None, axis=None):
    """`cat` by its other name."""
    return joined(tensors, dim if axis is None else axis, out)


def column_stack(tensors, *, out=None):
    """Vectors as columns, matrices as they are, side by side."""
    columns = [t.reshape(t.numel(), 1) if t.dim() <= 1 else t for t in tensors]
    return joined(columns, 1, out)


def broadcast_tensors(*tensors):
    """Every tensor expanded to the shape that all of them broadcast to."""
    tensors = one_list(tensors)
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple(op("expand")(t, shape) for t in tensors)


def broadcast_shapes(*shapes):
    from rushlight.ops.layouts import broadcast_shape

    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    size = _core.empty((0,), _core.bool).shape.__class__
    return size(broadcast_shape(shapes, "broadcast_shapes"))


def meshgrid(*tensors, indexing=None):
    """Coordinate vectors -> coordinate arrays; indexing "xy" swaps the first two dims."""
    tensors = one_list(tensors)
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'[meshgrid] indexing must be "xy" or "ij", got {indexing!r}')
    if any(t.dim() > 1 for t in tensors):
        raise RuntimeError("[meshgrid] expects scalars or 1D tensors")
    if not tensors:
        raise RuntimeError("[meshgrid] expects a non-empty TensorList")
    swap = indexing == "xy" and len(tensors) > 1
    if swap:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    shape, n = [t.numel() for t in tensors], len(tensors)
    grids = [
        t.reshape((1,) * i + (-1,) + (1,) * (n - 1 - i)).expand(shape)
        for i, t in enumerate(tensors)
    ]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def cartesian_prod(*tensors):
    """Every combination of the vectors' elements, one a row."""
    if len(tensors) == 1:
        return tensors[0]
    return op("stack")([g.reshape(-1) for g in meshgrid(*tensors)], 1)


def block_diag(*tensors):
    """Matrices along the diagonal of one; 0 elsewhere."""
    blocks = [t if t.dim() == 2 else t.reshape(1, -1) for t in one_list(tensors)]
    if any(t.dim() > 2 for t in one_list(tensors)):
        raise RuntimeError("[block_diag] a block has at most 2 dimensions")
    if not blocks:
        return _core.empty((1, 0), _core.float32)
    width, start, rows = sum(t.shape[1] for t in blocks), 0, []
    for t in blocks:
        rows.append(op("constant_pad_nd")(t, (start, width - start - t.shape[1])))
        start += t.shape[1]
    return op("cat")(rows, 0)


# ---- views in place: the tensor itself changes its sizes and strides


def in_place(name):
    def method(self, *args, **kwargs):
        if _core.is_grad_enabled() and self.requires_grad:
            if self.is_leaf:
                raise RuntimeError(
                    f"[{name}_] a leaf that requires grad cannot be written to in place: use "
                    "no_grad()"
                )
            raise NotImplementedError(
                f"[{name}_] a tensor on the tape keeps its sizes: use {name}(), which gives a view"
            )
        self.data = op(name)(self, *args, **kwargs)
        return self

    method.__doc__ = f"`{name}`, of the tensor itself."
    return method


def view_as(name):
    def method(self, other):
        return op(name)(self, other.shape)

    return method


VIEWS_IN_PLACE = ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "as_strided")
METHODS = {
    "split": split,
    "split_with_sizes": split_with_sizes,
    "chunk": chunk,
    "tensor_split": tensor_split,
    "hsplit": splitter("hsplit", 1, 1),
    "vsplit": splitter("vsplit", 0, 2),
    "dsplit": splitter("dsplit", 2, 3),
    "unbind": unbind,
    "view_as": view_as("view"),
    "reshape_as": view_as("reshape"),
    "expand_as": view_as("expand"),
    **{name + "_": in_place(name) for name in VIEWS_IN_PLACE},
    "T": property(lambda self: op("permute")(self, tuple(reversed(range(self.dim()))))),
    "mT": property(lambda self: op("transpose")(self, -2, -1)),
    "mH": property(lambda self: op("adjoint")(self)),
    "H": property(lambda self: op("conj_physical")(self.t()) if is_complex(self) else self.t()),
}
FUNCTIONS = {
    "atleast_1d": least_dims(1),
    "atleast_2d": least_dims(2),
    "atleast_3d": least_dims(3),
    "hstack": stacker("hstack", 1, 1),
    "vstack": stacker("vstack", 2, 0),
    "row_stack": stacker("row_stack", 2, 0),
    "dstack": stacker("dstack", 3, 2),
    "column_stack": column_stack,
    "concat": concat,
    "concatenate": concat,
    "broadcast_tensors": broadcast_tensors,
    "broadcast_shapes": broadcast_shapes,
    "meshgrid": meshgrid,
    "cartesian_prod": cartesian_prod,
    "block_diag": block_diag,
}
