"""Order within rows: sorting, the k-th, the most frequent; searching what is sorted. NaN counts as the largest."""
from rushlight import dtypes

from . import promotion
from .declare import ALL, composition, library, none
from .layouts import shaped
from .logic import logical_and, logical_or
from .pointwise import eq, ne
from .reductions import sum
from .samples import call, t
from .scattering import gather_backward
from .views import reshape, unsqueeze, wrapped

PLAIN = tuple(d for d in ALL if d not in dtypes.HALVES)         # half types go through float32, which keeps their order
ORDERED = (call(t(3, 5)), call(t(3, 5), 0), call(t(2, 3, 4), 1), call(t(6, dtype="int64")), call(t(3, 5, dtype="bfloat16")),
           call(t()), call(t(0, 3)))


def placed(g, x, index, dim):
    """A cotangent of chosen elements, put where they were."""
    return gather_backward(index, g, x.shape, wrapped(dim, x.rank))


@library("sort.stable(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> (Tensor, Tensor)", routine="sort",
         domain=PLAIN, layout=shaped(lambda x, *_: [x.shape] * 2, dtypes=("self", "int64")),
         samples=ORDERED + (call(t(3, 40), -1, True, stable=True),))
def sort(x, dim, descending, stable):
    """(x in order along `dim`, where its elements stood). Always stable."""
    return wrapped(dim, x.rank), int(descending)


@sort.derivative
def _(gs, x, outs, dim):
    return placed(gs[0], x, outs[1], dim)


@composition("argsort.stable(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> Tensor", derivative=none, samples=ORDERED)
def argsort(x, dim, descending, stable):
    return sort(x, dim, descending, stable=stable)[1]


@composition("msort(Tensor self) -> Tensor", samples=(call(t(3, 5)),))
def msort(x):
    return sort(x, 0)[0]


def topk_shape(x, k, dim):
    dim = wrapped(dim, x.rank)
    n = x.shape[dim] if x.rank else 1
    if not 0 <= k <= n:
        raise RuntimeError(f"[topk] selected index k out of range: k is {k}, dim {dim} of {list(x.shape)} has {n} elements")
    return tuple(k if d == dim else m for d, m in enumerate(x.shape))


@library("topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor)", routine="topk", domain=PLAIN,
         promote=promotion.Promotion(no_bools="topk does not support bool dtypes"),
         structural=("k",), layout=shaped(lambda x, k, dim, *_: [topk_shape(x, k, dim)] * 2, dtypes=("self", "int64")),
         samples=(call(t(3, 5), 2), call(t(3, 40), 3, 1, False), call(t(5, 3), 5, 0), call(t(3, 5), 0), call(t(2, 70, dtype="float16"), 2),
                  call(t(), 1)))
def topk(x, k, dim, largest, sorted):
    """The k largest (or least) elements along `dim` and where they stand."""
    topk_shape(x, k, dim)
    return wrapped(dim, x.rank), k if x.rank else 1, int(largest), int(sorted)      # one number is always given back


@topk.derivative
def _(gs, x, outs, dim):
    return placed(gs[0], x, outs[1], dim)


# ---- one element a row

def row_shape(x, dim, keepdim):
    dim = wrapped(dim, x.rank)
    return tuple(1 if d == dim else n for d, n in enumerate(x.shape) if keepdim or d != dim)


def chosen(op, x, dim):
    dim = wrapped(dim, x.rank)
    if x.rank and x.shape[dim] == 0:
        raise IndexError(f"[{op}] dim {dim} of {list(x.shape)} is empty: it has no element to choose")
    return dim


def put_back(gs, x, outs, dim, keepdim):
    if not keepdim and x.rank:
        dim = wrapped(dim, x.rank)
        return placed(unsqueeze(gs[0], dim), x, unsqueeze(outs[1], dim), dim)
    return placed(gs[0], x, outs[1], dim)


ONE = shaped(lambda x, dim, keepdim: [row_shape(x, dim, keepdim)] * 2, dtypes=("self", "int64"))
CHOICES = (call(t(3, 5), 1), call(t(3, 5), 0, True), call(t(2, 6, 3), 1), call(t(3, 4, dtype="bfloat16"), -1), call(t(), 0))


@library("kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)", routine="kth", domain=PLAIN[1:], promote=promotion.numbers,
         structural=("k",), layout=shaped(lambda x, k, dim, keepdim: [row_shape(x, dim, keepdim)] * 2, dtypes=("self", "int64")),
         samples=(call(t(3, 5), 2), call(t(3, 5), 3, 0, True), call(t(6, dtype="int64"), 1)))
def kthvalue(x, k, dim, keepdim):
    """The k-th least element (from 1) along `dim` and where it stands."""
    dim = chosen("kthvalue", x, dim)
    if not 1 <= k <= (x.shape[dim] if x.rank else 1):
        raise RuntimeError(f"[kthvalue] k={k} is out of range: dim {dim} of {list(x.shape)}")
    return dim, 0, k


@kthvalue.derivative
def _(gs, x, outs, dim, keepdim):
    return put_back(gs, x, outs, dim, keepdim)


@library("median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", name="median_dim", routine="kth", domain=PLAIN[1:],
         layout=ONE, method=False, function=False, samples=CHOICES)
def median_dim(x, dim, keepdim):
    """The median along `dim` (the lower of two) and where it stands; NaN where there is one."""
    return chosen("median", x, dim), 1


@library("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", name="nanmedian_dim", routine="kth",
         domain=PLAIN[1:], layout=ONE, method=False, function=False, samples=CHOICES)
def nanmedian_dim(x, dim, keepdim):
    """The median along `dim` of what is no NaN."""
    return chosen("nanmedian", x, dim), 2


@library("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)", routine="mode", domain=PLAIN, layout=ONE,
         samples=(call(t(3, 5), 1), call(t(3, 12, dtype="int64")), call(t(9, 3, dtype="int32"), 0, True)))
def mode(x, dim, keepdim):
    """The most frequent element along `dim` (the least of several) and where it stands last."""
    return (chosen("mode", x, dim),)


for op in (median_dim, nanmedian_dim, mode):
    op.derivative(lambda gs, x, outs, dim, keepdim: put_back(gs, x, outs, dim, keepdim))

WHOLE = (call(t(3, 5)), call(t(4, 6, order=(1, 0))), call(t()), call(t(9, dtype="int64")))


@composition("median(Tensor self) -> Tensor", name="median_whole", method=False, function=False, samples=WHOLE)
def median_whole(x):
    """The median of all elements (the lower of two)."""
    return median_dim(reshape(x, (-1,)), 0, False)[0]


@composition("nanmedian(Tensor self) -> Tensor", name="nanmedian_whole", method=False, function=False, samples=WHOLE)
def nanmedian_whole(x):
    """The median of all elements that are no NaN."""
    return nanmedian_dim(reshape(x, (-1,)), 0, False)[0]


for op in (median_whole, nanmedian_whole):      # all elements that are the median share the gradient
    @op.derivative
    def _(g, x, out):
        chosen = logical_or(eq(x, out), logical_and(ne(x, x), ne(out, out))).to(x.dtype)
        return chosen * (g / sum(chosen))


# ---- rows as wholes: what unique is made of

@library("order_rows(Tensor self) -> Tensor", routine="order_rows", domain=PLAIN, layout=shaped(lambda x: (x.shape[0],), dtypes=("int64",)),
         derivative=none, method=False, function=False, samples=(call(t(6, 2, dtype="int64")),))
def order_rows(x):
    """Positions of the rows of x[n, m] in lexicographic order."""


@library("row_runs(Tensor self) -> Tensor", routine="row_runs", domain=PLAIN, layout=shaped(lambda x: (x.shape[0],), dtypes=("int64",)),
         derivative=none, method=False, function=False, samples=(call(t(6, 1, dtype="int64")),))
def row_runs(x):
    """For each row of x[n, m] the number of the run of equal neighbours that it belongs to."""


@library("run_starts(Tensor self, int count) -> Tensor", routine="run_starts", domain=("int64",),
         layout=shaped(lambda runs, count: (count,)), derivative=none, method=False, function=False,
         samples=(call(t(1, dtype="int64", low=0, high=1), 1),))
def run_starts(runs, count):
    """Where each of `count` runs begins."""


@library("repeat_places(Tensor repeats, int total) -> Tensor", routine="repeat_places", domain=("int64",),
         layout=shaped(lambda repeats, total: (total,)), derivative=none, method=False, function=False,
         samples=(call(t(3, dtype="int64", low=2, high=3), 6),))
def repeat_places(repeats, total):
    """Position i, repeats[i] times; `total` in all."""


# ---- search

def searched(op, sequence, values):
    if sequence.rank == 0:
        raise RuntimeError(f"[{op}] boundaries tensor should have at least one dimension, got {list(sequence.shape)}")
    if sequence.rank > 1 and tuple(sequence.shape[:-1]) != tuple(values.shape[:-1]):
        raise RuntimeError(
            f"[{op}] boundaries are a vector, or rows that go with those of the values: got {list(sequence.shape)} "
            f"and {list(values.shape)}"
        )


@library("searchsorted.rows(Tensor sorted_sequence, Tensor self, Tensor? sorter, bool out_int32, bool right) -> Tensor", name="search_rows",
         routine="searchsorted", domain=PLAIN, promote=promotion.numbers.of("sorted_sequence", "self"), others={"sorter": "int64"},
         layout=shaped(lambda s, v, sorter, out_int32, right: v.shape, dtypes=("int64",)), derivative=none, method=False, function=False,
         samples=(call(t(1, low=0.0, high=1.0), t(2, 3), None, False, True),))
def search_rows(sequence, values, sorter, out_int32, right):
    """Where the values would be put into the sorted rows: before equal ones, or behind them (`right`)."""
    searched("searchsorted", sequence, values)
    if sorter is not None and tuple(sorter.shape) != tuple(sequence.shape):
        raise RuntimeError(
            f"[searchsorted] sorter has the shape {list(sequence.shape)} of the boundaries, got {list(sorter.shape)}"
        )
    return (int(right),)


@composition("searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None,"
             " Tensor? sorter=None) -> Tensor", derivative=none, method=False, function=False,
             samples=(call(t(1, low=0.0, high=1.0), t(2, 3)),))
def searchsorted(sequence, values, out_int32, right, side, sorter):
    if side not in (None, "left", "right"):
        raise RuntimeError(f"[searchsorted] side is 'left' or 'right', got {side}")
    if side == "left" and right:
        raise RuntimeError("[searchsorted] side='left' and right=True contradict each other")
    found = search_rows(sequence, values, sorter, out_int32, right or side == "right")
    return found.to("int32") if out_int32 else found


@library("isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", routine="isin",
         domain=PLAIN, promote=promotion.numbers, layout=shaped(lambda x, test, *_: x.shape, dtypes=("bool",)), derivative=none, method=False, function=False,
         samples=(call(t(3, 5, dtype="int64"), t(2, dtype="int64")), call(t(3, 5), t(0), invert=True)))
def isin(x, test, assume_unique, invert):
    """Whether each element of x is among the test elements."""
    return (int(invert),)


@library("bincount.counted(Tensor self, Tensor? weights, int count) -> Tensor", name="bincount_counted", routine="bincount",
         domain=("int64", "float32", "float64"), promote=promotion.numeric.of("weights"), others={"self": ("int64", "int32", "int16", "int8", "uint8")},
         layout=shaped(lambda x, weights, count: (count,)), derivative=none, method=False, function=False,
         samples=(call(t(9, dtype="int64", low=0, high=4), t(9, dtype="float64"), 5),))
def bincount_counted(x, weights, count):
    """How often each of 0 .. count - 1 stands in x, or the sum of weights there."""


@library("histc.range(Tensor self, int bins, Scalar low, Scalar high) -> Tensor", name="histc_range", routine="histc", domain=("float32", "float64"),
         layout=shaped(lambda x, bins, low, high: (bins,)), derivative=none, method=False, function=False, promote=promotion.numeric.of("self"),
         samples=(call(t(30), 5, 0.0, 0.0), call(t(30), 4, -1.0, 1.5)))
def histc_range(x, bins, low, high):
    """Counts in equal bins of [low, high] (of the elements' own range where both are equal)."""
