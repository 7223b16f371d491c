"""gather and scatter, one index an element; and masks: what they select, where they put."""
from rushlight import dtypes

from . import promotion
from .declare import ALL, composition, library, none
from .indexing import (
    ADD,
    ASSIGN,
    FROM_ZEROS,
    MULTIPLY,
    NUMBER,
    REDUCTIONS,
    WITHOUT_SELF,
    reduced,
    reduction,
    same_dtype,
)
from .layouts import ShapeError, broadcast_shape, shaped
from .pointwise import masked_fill
from .samples import call, t
from .views import expand, reshape, wrapped

INDEX = t(2, 3, dtype="int64", low=0, high=4)


def met(op, x, dim, index, source=None):
    """The dim, checked: the index has x's rank and fits x everywhere but along `dim`, and the source everywhere."""
    dim = wrapped(dim, x.rank)
    if index.dtype not in ("int64", "int32"):
        raise RuntimeError(f"[{op}] Expected dtype int64 for index, got {index.dtype}")
    if source is not None:
        same_dtype(op, x, source, "src")
    if index.numel() == 0:
        return dim
    for name, other in (("self", x), ("src", source)):
        if other is None:
            continue
        if max(other.rank, 1) != max(index.rank, 1):
            raise RuntimeError(
                f"[{op}] index and {name} have the same number of dims, got {list(index.shape)} and "
                f"{list(other.shape)}"
            )
        for d, (n, m) in enumerate(zip(index.shape, other.shape)):
            if n > m and not (name == "self" and d == dim):
                raise RuntimeError(f"[{op}] index "
                                   f"{list(index.shape)} "
                                   "is larger in dim "
                                   f"{d} than {name} "
                                   f"{list(other.shape)}" + (f" apart from dimension {dim}" if name == "self" else ""))
    return dim


@library("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", routine="gather", domain=ALL,
         layout=shaped(lambda x, dim, index, sparse_grad: index.shape), promote=promotion.numeric.of("self"), others={"index": "int64"},
         samples=(call(t(4, 5), 0, INDEX), call(t(4, 5, order=(1, 0)), 1, INDEX), call(t(2, 3, 4), -1, t(2, 3, 2, dtype="int64", low=0, high=4)),
                  call(t(4, dtype="float16"), 0, t(7, dtype="int64", low=0, high=4)), call(t(4, 5), 0, t(0, 5, dtype="int64")),
                  call(t(), 0, t(dtype="int64", low=0, high=1))))
def gather(x, dim, index, sparse_grad):
    """out[i][j] = x[index[i][j]][j] for dim 0. Raises RuntimeError for an index outside dim."""
    return (met("gather", x, dim, index),)


@gather.derivative
def _(g, x, dim, index):
    return gather_backward(index, g, x.shape, dim), None


@library("gather_backward(Tensor index, Tensor grad, SymInt[] size, int dim) -> Tensor", routine="scatter", domain=ALL,
         name="gather_backward", layout=shaped(lambda index, g, size, dim: size), promote=promotion.numeric.of("grad"),
         others={"index": "int64"}, method=False, function=False, samples=(call(INDEX, t(2, 3), (4, 5), 0),))
def gather_backward(index, g, size, dim):
    """Zeros of `size` with g's elements added at their indices."""
    return (wrapped(dim, len(size)), ADD, FROM_ZEROS)


@gather_backward.derivative
def _(g, index, dim):
    return None, gather(g, dim, index)


def scatters(schema, samples, **more):
    return library(schema, routine="scatter", writes="self", domain=ALL, layout=shaped(lambda x, *_: x.shape),
                   promote=promotion.numeric.of("self"), others={"index": "int64"}, samples=samples, **more)


def cut(source, index):
    """The part of the source that the index covers."""
    from .views import slice
    for d, (n, m) in enumerate(zip(index.shape, source.shape)):
        if n != m:
            source = slice(source, d, 0, n, 1)
    return source


def padded(g, source):
    """The transpose of `cut`: zeros where the index did not reach."""
    from .assembly import slice_backward
    for d, m in enumerate(source.shape):
        if g.shape[d] != m:
            g = slice_backward(g, (*g.shape[:d], m, *g.shape[d + 1:]), d, 0, g.shape[d], 1)
    return g


ONCE = t(1, 3, dtype="int64", low=0, high=4)


@scatters("scatter.src(Tensor self, int dim, Tensor index, Tensor src, *, str? reduce=None) -> Tensor",
          (call(t(4, 5), 0, ONCE, t(1, 3)), call(t(4, 5, dtype="int64"), 0, ONCE, t(2, 4, dtype="int64"))))
def scatter(x, dim, index, src, reduce):
    """x with src's elements (or one number) at their indices along `dim`; reduce 'add' or 'multiply' folds them in."""
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError(f"[scatter] reduce is 'add' or 'multiply', got {reduce}")
    tensor = hasattr(src, "layout")
    dim = met("scatter", x, dim, index, src if tensor else None)
    return (dim, {None: ASSIGN, "add": ADD, "multiply": MULTIPLY}[reduce], 0 if tensor else NUMBER)


@scatter.derivative
def _(g, dim, index, src, reduce):
    if reduce == "multiply":
        raise RuntimeError("[scatter] the derivative with reduce='multiply' is not implemented: scatter_reduce with 'prod' has one")
    taken = padded(gather(g, dim, index), src) if hasattr(src, "layout") else None
    return g if reduce == "add" else scatter(g, dim, index, 0), None, taken


@scatters("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
          (call(t(4, 5), 0, INDEX, t(2, 3)), call(t(4, 5), 1, INDEX, t(2, 3)), call(t(4, 5, dtype="int32"), 0, INDEX, t(2, 3, dtype="int32"))))
def scatter_add(x, dim, index, src):
    """x with src's elements added at their indices along `dim`."""
    return (met("scatter_add", x, dim, index, src), ADD, 0)


@scatter_add.derivative
def _(g, dim, index, src):
    return g, None, padded(gather(g, dim, index), src)


@scatters("scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
          tuple(call(t(4, 5, low=0.5), 0, INDEX, t(2, 3, low=0.5), how, include_self=self) for how in REDUCTIONS for self in (True, False)))
def scatter_reduce(x, dim, index, src, reduce, include_self):
    """x with src's elements folded in at their indices along `dim`: sum, prod, mean, amax, amin."""
    how, flags = reduction("scatter_reduce", reduce)
    return (met("scatter_reduce", x, dim, index, src), how, flags | (0 if include_self else WITHOUT_SELF))


@scatter_reduce.derivative
def _(g, x, out, dim, index, src, reduce, include_self):
    dx, ds = reduced(g, x, out, cut(src, index), reduce, include_self,
                     read=lambda v: gather(v, dim, index), add=lambda v, s: scatter_add(v, dim, index, s),
                     fill=lambda v: scatter(v, dim, index, 0),
                     again=lambda v, s: scatter_reduce(v, dim, index, s, reduce, include_self=include_self))
    return dx, None, padded(ds, src)


# ---- masks. The number of set elements decides shapes: callers count first (`count_set`), then say it.

MASK = promotion.counting               # nothing is converted: the mask is bool already


@library("count_set(Tensor self) -> Tensor", routine="count_set", domain=("bool",), layout=shaped(lambda mask: (1,), dtypes=("int64",)),
         promote=MASK, derivative=none, method=False, function=False, samples=(call(t(3, 40, dtype="bool")), call(t(0, dtype="bool"))))
def count_set(mask):
    """How many elements of a bool tensor are set, as [1] int64."""


@library("nonzero.counted(Tensor self, int count, bool columns) -> Tensor", name="nonzero_counted", routine="nonzero", domain=("bool",),
         layout=shaped(lambda mask, count, columns: (mask.rank, count) if columns else (count, mask.rank), dtypes=("int64",)),
         promote=MASK, derivative=none, method=False, function=False, samples=(call(t(0, 3, dtype="bool"), 0, False),))
def nonzero_counted(mask, count, columns):
    """Places of the set elements in C order: one a row, or one a column."""
    return int(columns), count


@library("masked_select.counted(Tensor self, Tensor mask, int count) -> Tensor", name="masked_select_counted", routine="masked_select",
         domain=ALL, layout=shaped(lambda x, mask, count: (count,)), promote=promotion.numeric.of("self"), others={"mask": "bool"},
         method=False, function=False, samples=(call(t(0, 3), t(0, 3, dtype="bool"), 0),))
def masked_select_counted(x, mask, count):
    """x's elements where the mask of x's shape is set, in C order."""
    if x.shape != mask.shape:
        raise ShapeError(f"[masked_select] expected a mask of shape {list(x.shape)}, got {list(mask.shape)}")


@masked_select_counted.derivative
def _(g, mask):
    return masked_select_backward(mask, g), None


@library("masked_select_backward(Tensor mask, Tensor grad) -> Tensor", routine="masked_scatter", domain=ALL,
         layout=shaped(lambda mask, g: mask.shape), promote=promotion.numeric.of("grad"), others={"mask": "bool"}, method=False,
         function=False, samples=(call(t(2, 3, dtype="bool"), t(6)),))
def masked_select_backward(mask, dy):
    """Zeros of the mask's shape with the elements of dy, in order, where it is set."""
    return (1,)


@masked_select_backward.derivative
def _(g, mask, dy):
    return None, masked_taken(g, mask, dy)


@library("masked_taken(Tensor self, Tensor mask, Tensor like) -> Tensor", routine="masked_taken", domain=ALL,
         layout=shaped(lambda x, mask, like: like.shape), promote=promotion.numeric.of("self"), others={"mask": "bool"},
         method=False, function=False, samples=(call(t(2, 3), t(2, 3, dtype="bool"), t(7)),))
def masked_taken(x, mask, like):
    """x's elements where the mask is set, in C order; zeros fill what is left of `like`'s shape."""


@masked_taken.derivative
def _(g, x, mask):
    return masked_select_backward(mask, reshape(g, (-1,))), None, None


@library("masked_scatter.same(Tensor self, Tensor mask, Tensor source) -> Tensor", name="masked_scatter_same", routine="masked_scatter",
         writes="self", domain=ALL, layout=shaped(lambda x, mask, source: x.shape), promote=promotion.numeric.of("self"),
         others={"mask": "bool"}, method=False, function=False, samples=(call(t(2, 3), t(2, 3, dtype="bool"), t(7)),))
def masked_scatter_same(x, mask, source):
    """x with source's elements, in order, where the mask of x's shape is set."""
    if x.shape != mask.shape:
        raise ShapeError(f"[masked_scatter] expected a mask of shape {list(x.shape)}, got {list(mask.shape)}")
    same_dtype("masked_scatter", x, source, "source")
    return (0,)


@masked_scatter_same.derivative
def _(g, mask, source):
    return masked_fill(g, mask, 0), None, masked_taken(g, mask, source)


@composition("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
             samples=(call(t(2, 3), t(3, dtype="bool"), t(7)), call(t(3), t(2, 3, dtype="bool"), t(2, 4))))
def masked_scatter(x, mask, source):
    """x with source's elements, in order, where the mask is set; x and the mask broadcast."""
    if mask.dtype != "bool":
        raise RuntimeError(f"[masked_scatter] expected mask dtype to be Bool but got {dtypes.TABLE[mask.dtype].name}")
    shape = broadcast_shape([x.shape, mask.shape], "masked_scatter")
    return masked_scatter_same(expand(x, shape), expand(mask, shape), source)
