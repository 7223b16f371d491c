"""What picks elements: sorting and its kin (named tuples of values and indices), masks and
positions whose number only the data tells, histograms and sets of values.

Each function is a function of the package and, where PyTorch has one, a method of Tensor.
"""


from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.views import wrapped

from . import factories
from .indexing import count_of, data_of, index_put, index_put_
from .operators import named
from .sampling import place

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


kthvalue, mode, cummax, cummin, topk, _sort = (
    named(n) for n in ("kthvalue", "mode", "cummax", "cummin", "topk", "sort")
)


def sort(input, dim=-1, descending=False, *, stable=False, out=None, axis=None):
    """(values in order along `dim`, where they stood); always stable. NaN is the largest."""
    more = {} if out is None else {"out": tuple(out)}
    return _sort(input, dim if axis is None else axis, descending, stable=bool(stable), **more)


def argsort(input, dim=-1, descending=False, *, stable=False, axis=None):
    dim = dim if axis is None else axis
    return op("argsort")(input, dim, descending, stable=bool(stable))


def medians(name):
    along = named(f"{name}_dim", name)

    def function(input, dim=None, keepdim=False, *, out=None, axis=None, keepdims=False):
        dim, keepdim = dim if axis is None else axis, keepdim or keepdims
        if dim is None:
            if input.numel() == 0:
                lowest = -(2 ** (8 * input.dtype.itemsize - 1))  # what a NaN becomes
                whole = 0 if input.dtype.itemsize < 4 else lowest
                whole = input.dtype is _core.bool or whole
                nothing = float("nan") if input.is_floating_point() else whole
                return factories.full((), nothing, dtype=input.dtype, device=place(input))
            return op(f"{name}_whole")(input)
        more = {} if out is None else {"out": tuple(out)}
        return along(input, dim, keepdim, **more)

    function.__name__ = name
    function.__doc__ = "The lower median of all elements, or along `dim` (values and indices)."
    return function


median, nanmedian = medians("median"), medians("nanmedian")


# ---- masks and positions


def nonzero(input, *, as_tuple=False, out=None):
    """Places of the elements that are not 0: [n, dims] int64, or one index tensor a dim."""
    mask = input if input.dtype is _core.bool else op("ne")(input, 0)
    if as_tuple and mask.dim() == 0:
        mask = op("reshape")(mask, (1,))
    n = count_of(mask)
    columns = op("nonzero_counted")(mask, n, True)
    if as_tuple:
        return tuple(columns[d] for d in range(mask.dim()))
    found = op("transpose")(columns, 0, 1) if mask.dim() else op("reshape")(columns, (n, 0))
    return found if out is None else written(out, found)


def written(out, found):
    if tuple(out.shape) != tuple(found.shape):
        raise RuntimeError(f"[out=] expected shape {list(found.shape)}, got {list(out.shape)}")
    return op("copy").inplace(out, found)


def argwhere(input):
    return nonzero(input)


def nonzero_static(input, *, size, fill_value=-1):
    """nonzero cut or filled up with `fill_value` to `size` rows."""
    if size < 0:
        raise RuntimeError(f"[nonzero_static] size must be non-negative, got {size}")
    found = nonzero(input)
    n = len(found)
    if n >= size:
        return op("clone")(found[:size])
    rest = factories.full(
        (size - n, input.dim()), fill_value, dtype=_core.int64, device=place(input)
    )
    return op("cat")([found, rest])


def where(condition, input=None, other=None, *, out=None):
    """input where the condition holds, else other; alone: nonzero(condition, as_tuple=True)."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if out is None:
        return op("where")(condition, input, other)
    return op("where")(condition, input, other, out=out)


def where_of(input, condition, other):
    return op("where")(condition, input, other)


def common_shape(a, b, name):
    from rushlight.ops.layouts import broadcast_shape

    return broadcast_shape([tuple(a.shape), tuple(b.shape)], name)


def masked_select(input, mask, *, out=None):
    """Elements where the mask is set, in C order, as one dim; both broadcast."""
    if mask.dtype is not _core.bool:
        raise RuntimeError(
            f"[masked_select] expected BoolTensor for mask, got {mask.dtype.name}"
        )
    if tuple(input.shape) != tuple(mask.shape):
        shape = common_shape(input, mask, "masked_select")
        input, mask = op("expand")(input, shape), op("expand")(mask, shape)
    found = op("masked_select_counted")(input, mask, count_of(mask))
    return found if out is None else written(out, found)


def masked_scatter_(self, mask, source):
    """masked_scatter into self itself."""
    if mask.dtype is not _core.bool:
        raise RuntimeError(
            f"[masked_scatter] expected mask dtype to be Bool but got {mask.dtype.name}"
        )
    return op("masked_scatter_same").inplace(self, op("expand")(mask, self.shape), source)


def put_(self, index, source, accumulate=False):
    """put into self itself."""
    if not self.is_contiguous() or index.numel() != source.numel():
        return op("copy").inplace(self, op("put")(self, index, source, accumulate))
    flat = op("reshape")(index, (-1,))
    op("index_write").inplace(
        op("view")(self, (-1,)), [flat], op("reshape")(source, (-1,)), (0,), accumulate
    )
    return self


# ---- scatter's overloads


def scatter(input, dim, index, src=None, *, value=None, reduce=None, out=None):
    """input with src's elements (or one value) at their indices along `dim`."""
    more = {} if reduce is None else {"reduce": reduce}
    if out is not None:
        more["out"] = out
    return op("scatter")(input, dim, index, value if src is None else src, **more)


def scatter_(self, dim, index, src=None, *, value=None, reduce=None):
    more = {} if reduce is None else {"reduce": reduce}
    return op("scatter").inplace(self, dim, index, value if src is None else src, **more)


# ---- repeats, sets, histograms


def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Each slice along `dim` (element of the flattened tensor) repeated; of a tensor alone: its
    positions, each as often as it says.
    """
    if repeats is None:
        repeats = input.to(_core.int64)
        return op("repeat_places")(repeats, total(repeats) if output_size is None else output_size)
    if dim is None:
        input, dim = op("reshape")(input, (-1,)), 0
    n = input.shape[dim]
    if not isinstance(repeats, Tensor):
        repeats = [repeats] if isinstance(repeats, int) else repeats
        repeats = _core.tensor(repeats, _core.int64, place(input))
    if repeats.dtype not in (_core.int64, _core.int32):
        raise RuntimeError("[repeat_interleave] repeats is int64 or int32")
    if repeats.dim() == 0 or repeats.dim() == 1 and len(repeats) == 1:
        repeats = op("expand")(op("reshape")(repeats, (1,)), (n,))
    if repeats.dim() != 1:
        raise RuntimeError("[repeat_interleave] repeats is one number or a vector")
    if len(repeats) != n:
        raise RuntimeError(
            f"[repeat_interleave] {len(repeats)} repeats for dim {dim}, which has size {n}"
        )
    repeats = repeats.to(_core.int64)
    count = total(repeats) if output_size is None else output_size
    return op("index_select")(input, dim, op("repeat_places")(repeats, count))


def total(repeats):
    data_of("repeat_interleave", repeats)
    return int(op("sum")(repeats).item()) if repeats.numel() else 0


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements in order (or slices along `dim`), where each element went, how often
    each stands.
    """
    x = op("reshape")(input, (-1,)) if dim is None else moved(input, dim, 0)
    rows = op("reshape")(x, (x.shape[0], -1 if x.numel() else 0)) if dim is not None else x
    if dim is None:
        order = op("argsort")(x)
        ordered = op("index_select")(x, 0, order)
    else:
        order = op("order_rows")(rows)
        ordered = op("index_select")(x, 0, order)
    values, runs, counts = distinct(ordered)
    inverse = None
    if return_inverse:
        inverse = op("index_write")(runs, [order], runs, (0,), False)
        inverse = op("reshape")(inverse, input.shape) if dim is None else inverse
    return answer(back(values, dim), inverse, counts, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Runs of equal neighbours cut down to one element (or slice along `dim`)."""
    x = op("reshape")(input, (-1,)) if dim is None else moved(input, dim, 0)
    values, runs, counts = distinct(x)
    inverse = None
    if return_inverse:
        inverse = op("reshape")(runs, input.shape) if dim is None else runs
    return answer(back(values, dim), inverse, counts, return_counts)


def moved(x, source, to):
    """x with the dim `source` at the place `to`, the others in their order."""
    source, to = wrapped(source, x.dim()), wrapped(to, x.dim())
    order = [d for d in range(x.dim()) if d != source]
    order.insert(to, source)
    return x if order == list(range(x.dim())) else op("permute")(x, order)


def back(values, dim):
    """Slices along dim 0 as slices along `dim`, in C order."""
    if not dim:
        return values
    return op("clone")(moved(values, 0, dim), memory_format="contiguous")


def distinct(x):
    """(first slice of each run along dim 0, each slice's run, lengths of the runs)."""
    n = x.shape[0]
    width = 1
    for m in x.shape[1:]:
        width *= m
    runs = op("row_runs")(op("reshape")(x, (n, width)))
    data_of("unique", x)
    count = runs[-1].item() + 1 if n else 0
    starts = op("run_starts")(runs, count)
    end = _core.tensor([n], _core.int64, place(x))
    lengths = op("diff")(op("cat")([starts, end])) if n else starts
    return op("index_select")(x, 0, starts), runs, lengths


def answer(values, inverse, counts, return_counts):
    found = [values]
    if inverse is not None:
        found.append(inverse)
    if return_counts:
        found.append(counts)
    return found[0] if len(found) == 1 else tuple(found)


def bincount(input, weights=None, minlength=0):
    """How often each non-negative integer stands in a one-dim tensor, or the sums of weights."""
    if input.dim() != 1 or floating(input) or input.dtype is _core.bool:
        raise RuntimeError(
            "[bincount] only 1-d non-negative integral inputs are supported, got "
            f"{input.dtype.name}{list(input.shape)}"
        )
    if minlength < 0:
        raise RuntimeError("[bincount] minlength should be >= 0")
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise RuntimeError("[bincount] weights is a vector as long as the input")
    x, count = input.to(_core.int64), minlength
    if x.numel():
        if op("amin")(x).item() < 0:
            raise RuntimeError("[bincount] only 1-d non-negative integral inputs are supported")
        count = max(count, op("amax")(x).item() + 1)
    if weights is None:
        ones = factories.ones(x.shape, dtype=_core.int64, device=place(x))
        return op("bincount_counted")(x, ones, count)
    weights = weights if weights.dtype is _core.float32 else weights.to(_core.float64)
    return op("bincount_counted")(x, weights, count)


def floating(x):
    return x.dtype.is_floating_point


def histc(input, bins=100, min=0, max=0):
    """Counts of the elements in `bins` equal parts of [min, max] (0, 0: of the elements' range)."""
    if bins <= 0:
        raise RuntimeError(f"[histc] bins must be > 0, got {bins}")
    if not floating(input):
        raise RuntimeError(f"[histc] \"histogram_cpu\" not implemented for '{input.dtype.name}'")
    return op("histc_range")(input, bins, float(min), float(max))


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where each value would be put into the sorted rows so that they stay sorted."""
    number = not isinstance(input, Tensor) and isinstance(input, (bool, int, float))
    if number:
        input = _core.tensor(input, sorted_sequence.dtype, place(sorted_sequence))
    return op("searchsorted")(
        sorted_sequence, input, out_int32=out_int32, right=right, side=side, sorter=sorter
    )


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the bucket between one-dim boundaries that each value falls into."""
    if boundaries.dim() != 1:
        raise RuntimeError(
            f"[bucketize] boundaries is a vector, got {boundaries.dim()} dims"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each element is among the test elements; either may be a number."""
    if not isinstance(test_elements, Tensor) and isinstance(test_elements, (bool, int, float)):
        test_elements = _core.tensor([test_elements], None, place(elements))
    if not isinstance(elements, Tensor) and isinstance(elements, (bool, int, float)):
        elements = _core.tensor(elements, None, place(test_elements))
    return op("isin")(elements, test_elements, invert=invert)


# ---- quantiles


def quantiles(input, q, dim, keepdim, interpolation, name, ignore_nan):
    if not floating(input) or input.dtype not in (_core.float32, _core.float64):
        raise RuntimeError(f"[{name}] takes float32 or float64")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"[{name}] knows the interpolations linear, lower, higher, midpoint and nearest, not "
            f"{interpolation}"
        )
    if input.numel() == 0:
        raise RuntimeError(f"[{name}] input tensor must be non-empty")
    if isinstance(q, Tensor):
        if q.dim() > 1:
            raise RuntimeError(f"[{name}] q is one number or a vector")
        if q.dtype is not input.dtype:
            raise RuntimeError(f"[{name}] q and the input have the same dtype")
    else:
        q = _core.tensor(float(q), input.dtype, place(input))
    if q.numel() and not (op("amin")(q).item() >= 0 and op("amax")(q).item() <= 1):
        raise RuntimeError(f"[{name}] q lies in [0, 1]")
    rank = input.dim()
    if dim is not None and not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(
            f"[{name}] dim {dim} is out of range: {-max(rank, 1)} to {max(rank, 1) - 1}"
        )
    flat = dim is None or rank == 0
    d = 0 if flat else dim % rank
    found = interpolated(
        op("reshape")(input, (-1,)) if flat else moved(input, d, -1), q, interpolation, ignore_nan
    )
    if q.dim():
        found = moved(found, -1, 0)
        if keepdim:
            found = op("reshape")(found, (-1, *(1,) * rank)) if flat else found.unsqueeze(d + 1)
        return found
    found = op("select")(found, -1, 0)
    if keepdim:
        found = op("reshape")(found, (1,) * rank) if flat else found.unsqueeze(d)
    return found


def interpolated(x, q, interpolation, ignore_nan):
    """[..., n] -> [..., quantiles], between the two neighbours in order."""
    x = op("sort")(x)[0]
    n = x.shape[-1]
    nan = op("ne")(x, x)
    last = float(n - 1)
    if ignore_nan:
        last = op("sum")(op("logical_not")(nan), -1, True).to(x.dtype) - 1
        last = op("where")(op("lt")(last, 0), 0.0, last)
    ranks = op("expand")(op("reshape")(q, (-1,)) * last, (*x.shape[:-1], q.numel()))
    below = ranks.to(_core.int64)
    part = ranks - below.to(x.dtype)
    between = op("gt")(part, 0)
    above = op("where")(between, below + 1, below)
    if interpolation == "nearest":  # halves to the even rank
        odd = op("bitwise_and")(below, 1).to(x.dtype)
        part = op("where")(op("eq")(part, 0.5), odd, op("gt")(part, 0.5).to(x.dtype))
    elif interpolation != "linear":
        weight = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}[interpolation]
        part = between.to(x.dtype) * weight
    low, high = op("gather")(x, -1, below), op("gather")(x, -1, above)
    found = op("where")(op("eq")(part, 0), low, low + (high - low) * part)
    return found if ignore_nan else op("where")(nan[..., -1:], float("nan"), found)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The values below which the fractions q of the elements lie; NaN where there is one."""
    return quantiles(input, q, dim, keepdim, interpolation, "quantile", False)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """quantile of what is no NaN."""
    return quantiles(input, q, dim, keepdim, interpolation, "nanquantile", True)


METHODS = {
    f.__name__: f
    for f in (
        *(sort, argsort, topk, kthvalue, mode, median, nanmedian, cummax, cummin, quantile),
        *(nanquantile, nonzero, argwhere, nonzero_static, masked_select, masked_scatter_, put_),
        *(scatter, scatter_, index_put, index_put_, repeat_interleave, bincount, histc),
    )
}
METHODS |= {"where": where_of, "unique": unique, "unique_consecutive": unique_consecutive}
FUNCTIONS = {n: f for n, f in METHODS.items() if not n.endswith("_")}
FUNCTIONS |= {
    f.__name__: f for f in (where, searchsorted, bucketize, isin, unique, unique_consecutive)
}
