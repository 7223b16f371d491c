"""Indices that are no affine view: index tensors, masks, lists, arrays; read, written, and
`index_put`. Core handles ints, slices, None and Ellipsis by itself and comes here with the rest.

A key becomes (a view by its ints, slices and None; index tensors; the view's dims that they index).
Ints select first, so that where the indexed dims are neighbours in the view decides where the
indices' own dims stand, as in PyTorch.
"""

import warnings

from rushlight import _core
from rushlight.ops import TABLE

from . import factories

Tensor = _core.Tensor
INTEGERS = ("int64", "int32")
WHOLE = slice(None)


def op(name):
    return TABLE[name].native


def index(x, key, *value):
    """x[key], or x[key] = value."""
    if value:
        return assign(x, key, value[0])
    if type(key) is Tensor and plain_index(key) and x.dim() and key.device is x.device:
        return op("index")(x, [key], (0,))
    if type(key) is tuple and len(key) <= x.dim() and all(plain_index(k, x) for k in key):
        return op("index")(x, list(key), tuple(range(len(key))))
    view, indices, dims, mask = resolve(x, key)
    if mask is not None:
        return op("masked_select_counted")(view, mask, count_of(mask))
    if not indices:
        return view if view is not x else op("alias")(x)
    return op("index")(view, indices, dims)


def assign(x, key, value):
    """x[key] = value; the value broadcasts to what the key selects."""
    if type(key) is Tensor and type(value) in (Tensor, float) and key.device is x.device:
        if plain_index(key) and type(value) is Tensor and value.dtype is x.dtype and x.dim():
            if tuple(value.shape) == (*key.shape, *x.shape[1:]):
                return op("index_write").inplace(x, [key], value, (0,), False)
        elif key.dtype is _core.bool and key.shape == x.shape and type(value) is float:
            if floating(x):
                return op("masked_fill").inplace(x, key, value)
    view, indices, dims, mask = resolve(x, key)
    value = value_for(x, value)
    if mask is None and not indices:
        op("copy").inplace(view, as_tensor(x, value))
    elif mask is not None:
        assign_masked(view, mask, value)
    else:
        put(view, indices, dims, value, False)


def plain_index(k, x=None):
    there = type(k) is Tensor and k.dtype is _core.int64 and k.dim() > 0
    return there and (x is None or k.device is x.device)


def value_for(x, value):
    """A tensor of x's dtype, or a number that x's dtype holds."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return bool(value) if x.dtype is _core.bool else value if floating(x) else int(value)
    return factories.tensor(value, dtype=x.dtype, device=x.device)


def floating(x):
    return x.dtype.is_floating_point


def as_tensor(x, value):
    return value if isinstance(value, Tensor) else _core.tensor(value, x.dtype, x.device)


def assign_masked(view, mask, value):
    if not isinstance(value, Tensor) or (
        value.numel() == 1 and value.dim() == 0 and value.dtype is view.dtype
    ):
        if isinstance(value, Tensor) and value.requires_grad:
            return fill_where(view, mask, value)
        value = value.item() if isinstance(value, Tensor) else value
        return op("masked_fill").inplace(view, mask, value)
    n = count_of(mask)
    if value.dim() == 1 and len(value) == n and value.dtype is view.dtype:
        return op("masked_scatter_same").inplace(view, mask, value)
    return put(view, places(mask, n), tuple(range(mask.dim())), value, False)


def fill_where(view, mask, value):
    """view[mask] = value, a tensor without dims that is not read."""
    value = op("expand")(moved(view, value), view.shape)
    return op("copy").inplace(view, op("where")(mask, value, view))


def put(view, indices, dims, value, accumulate):
    """Written at, or added to, the indexed places of `view`, in place."""
    return op("index_write").inplace(*prepared(view, indices, dims, value, accumulate))


def prepared(view, indices, dims, value, accumulate):
    """Arguments of index_write: the value in the places' shape, or as one number."""
    if isinstance(value, Tensor):
        if value.dtype is not view.dtype:
            raise RuntimeError(
                f"[index_put] the values are {value.dtype.name}, the tensor written to is "
                f"{view.dtype.name}: they have to be equal"
            )
        if value.dim() == 0:
            value = moved(view, value)
        if value.numel() != 1 or value.requires_grad:
            value = broadcast(view, indices, dims, value)
    return view, indices, value, dims, accumulate


def broadcast(view, indices, dims, value):
    from rushlight.ops.indexing import indexed_shape

    shape = indexed_shape(tuple(view.shape), indices, dims, "index_put")
    while value.dim() > len(shape) and value.shape[0] == 1:
        value = value[0]
    if tuple(value.shape) == shape:
        return value
    try:
        return op("expand")(value, shape)
    except RuntimeError:
        raise RuntimeError(
            f"[index_put] values of shape {list(value.shape)} do not broadcast to the indexed "
            f"shape {list(shape)}"
        ) from None


# ---- keys


def resolve(x, key):
    """(view, index tensors, dims of the view that they index, mask). A mask over all of the view
    is given as it is, with no index tensors.
    """
    items = [moved(x, item) for item in entries(key, x.device)]
    consumed = sum(map(extent, items))
    rank = x.dim()
    if consumed > rank:
        raise IndexError(f"[index] too many indices for tensor of dimension {rank}")
    if sum(i is Ellipsis for i in items) > 1:
        raise IndexError("[index] `...` may stand once in an index")
    steps, found, dim, at = [], [], 0, 0  # dim: of the view; at: of x
    for item in items:
        if item is Ellipsis:
            steps += [WHOLE] * (rank - consumed)
            dim, at = dim + rank - consumed, at + rank - consumed
        elif item is None:
            steps.append(None)
            dim += 1
        elif isinstance(item, slice):
            steps.append(item)
            dim, at = dim + 1, at + 1
        elif isinstance(item, Tensor):
            if item.dtype is _core.bool:
                check_mask(x, item, at)
            if item.dim() == 0 and item.dtype is _core.bool:  # a new dim of one or no element
                steps.append(None)
                found.append((dim, op("reshape")(item, (1,))))
                dim += 1
                continue
            n = extent(item)
            found.append((dim, item))
            steps += [WHOLE] * n
            dim, at = dim + n, at + n
        else:
            steps.append(item)
            at += 1
    plain = all(s is WHOLE or isinstance(s, slice) and s == WHOLE for s in steps)
    view = x if plain else x[tuple(steps)]
    if len(found) == 1:
        mask = found[0][1]
        if mask.dtype is _core.bool and mask.dim() == view.dim():
            return view, (), (), mask
    indices, dims = [], []
    for dim, item in found:
        if item.dtype is _core.bool:
            columns = places(item, count_of(item))
            indices += columns
            dims += range(dim, dim + len(columns))
        else:
            indices.append(item)
            dims.append(dim)
    return view, indices, tuple(dims), None


def moved(x, item):
    """Index tensors on the CPU, and values without dims, may go with tensors elsewhere."""
    if isinstance(item, Tensor) and item.device is not x.device and item.device.type == "cpu":
        return factories.moved(item, x.device)
    return item


def check_mask(x, mask, at):
    for d, n in enumerate(mask.shape):
        if n != x.shape[at + d]:
            raise IndexError(
                f"[index] a mask of shape {list(mask.shape)} on {list(x.shape)}: they differ in "
                f"the mask's dim {d}, which is the tensor's {at + d}"
            )


def entries(key, device):
    """The key as a list of ints, slices, None, Ellipsis and index tensors, of which those made
    here are on `device`."""
    if isinstance(key, list) and any(
        isinstance(k, (slice, Tensor, list, tuple)) or k is None or k is Ellipsis for k in key
    ):
        key = tuple(key)  # a list of indices is a tuple of them, as PyTorch has it
    return [entry(k, device) for k in key] if isinstance(key, tuple) else [entry(key, device)]


def entry(k, device):
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if isinstance(k, bool):
        return _core.tensor(k, _core.bool, device)
    if isinstance(k, int):
        return k
    if not isinstance(k, Tensor):
        if isinstance(k, (str, float, complex, dict, set)):
            raise (TypeError if isinstance(k, (str, dict, set)) else IndexError)(
                "[index] an index is an integer, a slice, `...`, None or a tensor of integers or "
                f"bools, got {type(k).__name__}"
            )
        if isinstance(k, range):
            k = list(k)
        if hasattr(k, "__index__") and not hasattr(k, "__len__"):
            return k.__index__()
        empty = isinstance(k, (list, tuple)) and not k
        k = _core.tensor([], _core.int64, device) if empty else made(k, device)
    if k.dtype is _core.uint8:
        warnings.warn(
            "[index] a uint8 tensor is read as a mask, as PyTorch once did: make it a bool tensor",
            stacklevel=4,
        )
        k = op("ne")(k, 0)
    if k.dtype.name in INTEGERS:
        return int(k.item()) if k.dim() == 0 else k
    if k.dtype is not _core.bool:
        raise IndexError(
            f"[index] a tensor that indexes has an integer or bool dtype, got {k.dtype.name}"
        )
    return k


def made(k, device):
    """A list as an index tensor on the device, an array as one on the CPU."""
    if hasattr(k, "dtype") and hasattr(k, "__array__"):
        import numpy

        k = numpy.asarray(k)
        if k.dtype.kind == "u" and k.dtype.itemsize > 1:
            k = k.astype("int64")
        return _core.from_numpy(numpy.ascontiguousarray(k).reshape(k.shape))
    try:
        return factories.tensor(k, device=device)
    except (TypeError, ValueError) as error:
        raise TypeError(f"[index] {type(k).__name__} is no valid index: {error}") from None


def extent(item):
    """How many dims of the tensor an entry takes."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, Tensor) and item.dtype is _core.bool:
        return item.dim()
    return 1


# ---- masks


def count_of(mask):
    data_of("nonzero", mask)
    return op("count_set")(mask).item()


def data_of(name, x):
    """NotImplementedError for tensors without data, where the result depends on values."""
    if isinstance(x, Tensor) and x.is_meta:
        raise NotImplementedError(
            f"[{name}] the result depends on the values of a tensor, which meta tensors do not have"
        )


def places(mask, count):
    """The set elements' places as one index tensor a dim."""
    columns = op("nonzero_counted")(mask, count, True)
    return [columns[d] for d in range(mask.dim())]


# ---- index_put


def located(self, indices):
    """(index tensors, dims) of a list with one entry a dim; None entries index nothing."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            "index_put_(): argument 'indices' must be tuple of Tensors, not "
            f"{type(indices).__name__}"
        )
    if len(indices) > self.dim():
        raise IndexError(f"[index_put] too many indices for tensor of dimension {self.dim()}")
    found, dims, dim = [], [], 0
    for i in indices:
        if i is None:
            dim += 1
            continue
        i = moved(self, op("ne")(i, 0) if i.dtype is _core.uint8 else i)
        if i.dtype is _core.bool:
            check_mask(self, i, dim)
            columns = places(i, count_of(i))
        elif i.dtype.name in ("int64", "int32"):
            columns = [i]
        else:
            raise IndexError("[index_put] a tensor that indexes has an integer or bool dtype")
        found += columns
        dims += range(dim, dim + len(columns))
        dim += len(columns)
    return found, tuple(dims)


def index_put(self, indices, values, accumulate=False):
    """A copy of self with `values` written at, or added to, self[indices]."""
    found, dims = located(self, indices)
    values = op("expand")(values, self.shape) if not found else values
    if not found:
        return op("add")(self, values) if accumulate else op("copy")(self, values)
    return op("index_write")(*prepared(self, found, dims, values, accumulate))


def index_put_(self, indices, values, accumulate=False):
    """index_put into self itself."""
    found, dims = located(self, indices)
    if not found:
        return op("add").inplace(self, values) if accumulate else op("copy").inplace(self, values)
    return put(self, found, dims, values, accumulate)
