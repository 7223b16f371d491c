"""Index tensors: rows of a table, x[index, ...] read and written, and the index_* operators along one dim."""
from rushlight import dtypes

from . import promotion
from .creation import full
from .declare import ALL, FLOATS, RUN, composition, library, rows
from .layouts import ShapeError, broadcast_shape, into_table, shaped, table
from .pointwise import eq, lt, to, where
from .samples import call, t
from .values import put as deposit
from .values import take as fetch
from .views import expand, product, reshape, unsqueeze, wrapped

FROM_ZEROS, NUMBER, NO_NEGATIVE, WITHOUT_SELF, MEAN = 1, 2, 4, 8, 16        # PutFlags of csrc/rt/typed.h
ASSIGN, ADD, MULTIPLY, MAX, MIN = range(5)                                  # Put, likewise
REDUCTIONS = {"sum": (ADD, 0), "prod": (MULTIPLY, 0), "mean": (ADD, MEAN), "amax": (MAX, 0), "amin": (MIN, 0)}


@rows("embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1) -> Tensor", layout=table(), method=False,
      structural=("padding_idx",),
      promote=promotion.numeric.of("weight"), others={"indices": "int64"}, domain=ALL, cost=1,
      samples=(call(t(5, 3), t(4, dtype="int64", low=0, high=5)), call(t(5, 40), t(2, 2, dtype="int64", low=0, high=5))))
def embedding(weight, indices, padding_idx):
    return fetch.embedding(weight, indices)


@embedding.derivative
def _(g, weight, indices, padding_idx):
    return embedding_backward(g, indices, weight.shape[0], padding_idx), None


@rows("embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx=-1) -> Tensor",
      layout=into_table("num_weights"), promote=promotion.numeric.of("grad_output"), others={"indices": "int64"},
      domain=FLOATS, variants=({}, {"padding_idx": RUN}), method=False, function=False,
      samples=(call(t(4, 3), t(4, dtype="int64", low=0, high=5), 5),))
def embedding_backward(dy, indices, num_weights, padding_idx):
    kept = where(eq(indices, padding_idx), 0 * dy, dy)
    return deposit.embedding_backward(kept, indices)


@embedding_backward.derivative
def _(g, dy, indices, padding_idx):
    return where(unsqueeze(eq(indices, padding_idx), indices.rank), 0.0, embedding(g, indices, padding_idx)), None


# ---- several index tensors: `dims` says which dims they index, in order (the places in ATen's list that are not None)

def indexed_shape(shape, indices, dims, op="index"):
    """The common shape of the indices stands where neighbouring indexed dims stood, else in front."""
    try:
        common = broadcast_shape([i.shape for i in indices], op)
    except ShapeError:
        raise IndexError(f"[{op}] the indexing tensors do not broadcast: "
                         f"{', '.join(str(list(i.shape)) for i in indices)}") from None
    rest = [n for d, n in enumerate(shape) if d not in dims]
    at = dims[0] if tuple(dims) == tuple(range(dims[0], dims[0] + len(dims))) else 0
    return (*rest[:at], *common, *rest[at:])


def indexed_dims(x, indices, dims):
    if not indices or len(indices) != len(dims) or list(dims) != sorted(set(dims)) or not 0 <= dims[0] <= dims[-1] < x.rank:
        raise IndexError(f"[index] {len(indices)} index tensors for dims {list(dims)} of {x.layout}")
    empty = [d for d in dims if x.shape[d] == 0]
    if empty and all(i.numel() for i in indices):
        raise IndexError(f"[index] dim {empty[0]} has size 0: any index is out of bounds")
    return tuple(dims)


INDEXED = (call(t(4, 5), [t(3, dtype="int64", low=-4, high=4)], (0,)), call(t(4, 5), [t(2, 3, dtype="int64", low=0, high=5)], (1,)),
           call(t(4, 5, 3), [t(2, 1, dtype="int64", low=0, high=4), t(3, dtype="int64", low=0, high=3)], (0, 2)),
           call(t(4, 5, 3, order=(2, 0, 1)), [t(2, dtype="int64", low=0, high=5), t(2, dtype="int64", low=0, high=3)], (1, 2)),
           call(t(6, dtype="bfloat16"), [t(0, dtype="int64")], (0,)), call(t(6, dtype="bool"), [t(9, dtype="int64", low=0, high=6)], (0,)))


@library("index.Tensor(Tensor self, Tensor[] indices, int[] dims) -> Tensor", routine="index", domain=ALL, method=False, function=False,
         layout=shaped(lambda x, indices, dims: indexed_shape(x.shape, indices, dims)),
         promote=promotion.numeric.of("self"), others={"indices": "int64"}, samples=INDEXED)
def index(x, indices, dims):
    """Elements of x at the indices' places. Raises IndexError for an index outside its dim."""
    return indexed_dims(x, indices, dims)


@index.derivative
def _(g, x, indices, dims):
    return index_backward(indices, g, x.shape, dims), None


@library("index_backward(Tensor[] indices, Tensor grad, SymInt[] size, int[] dims) -> Tensor", routine="index_put", domain=ALL,
         layout=shaped(lambda indices, g, size, dims: size), promote=promotion.numeric.of("grad"), others={"indices": "int64"},
         method=False, function=False, samples=(call([t(3, dtype="int64", low=0, high=4)], t(3, 5), (4, 5), (0,)),))
def index_backward(indices, g, size, dims):
    """Zeros of `size` with g's elements added at the indices' places."""
    return (ADD, FROM_ZEROS, *dims)


@index_backward.derivative
def _(g, indices, dims):
    return None, index(g, indices, dims)


@library("index_put(Tensor self, Tensor[] indices, Tensor values, int[] dims, bool accumulate=False) -> Tensor", name="index_write",
         routine="index_put", writes="self", domain=ALL, layout=shaped(lambda x, indices, values, dims, accumulate: x.shape),
         promote=promotion.numeric.of("self"), others={"indices": "int64"}, method=False, function=False,
         samples=(call(t(4, 5), [t(3, dtype="int64", low=0, high=4)], t(3, 5), (0,), True),
                  call(t(4, 5), [t(2, dtype="int64", low=0, high=2)], t(4, 2), (1,), True),
                  call(t(4, 5), [t(1, dtype="int64", low=0, high=4), t(1, dtype="int64", low=0, high=5)], t(1), (0, 1))))
def index_write(x, indices, values, dims, accumulate):
    """x with `values` (of the places' shape, or one element) written at, or added to, the indices' places."""
    shape = indexed_shape(x.shape, indices, dims, "index_put")
    if hasattr(values, "layout"):
        same_dtype("index_put", x, values, "source")
        if values.shape != shape and values.numel() != 1:
            raise ShapeError(
                f"[index_put] values of shape {list(values.shape)} do not broadcast to the indexed shape "
                f"{list(shape)}"
            )
    return (ADD if accumulate else ASSIGN, 0 if hasattr(values, "layout") else NUMBER, *indexed_dims(x, indices, dims))


@index_write.derivative
def _(g, indices, values, dims, accumulate):
    read = index(g, indices, dims)
    if not hasattr(values, "layout"):
        read = None
    return g if accumulate else index_write(g, indices, 0, dims, False), None, read


def same_dtype(op, x, other, name):
    if x.dtype != other.dtype:
        raise RuntimeError(f"[{op}] expected self and {name} to have the same dtype, got {x.dtype} and {other.dtype}")


# ---- one index tensor along one dim

ALONG = t(3, dtype="int64", low=0, high=4)


def along(op, x, dim, index):
    """The dim, checked; the index has one dim or none."""
    if index.rank > 1:
        raise IndexError(f"[{op}] index is a vector, got shape {list(index.shape)}, {index.rank} dims")
    return wrapped(dim, x.rank)


def selected_shape(x, dim, n):
    return tuple(n if d == dim else m for d, m in enumerate(x.shape))


@library("index_select(Tensor self, int dim, Tensor index) -> Tensor", routine="index", domain=ALL,
         layout=shaped(lambda x, dim, index: selected_shape(x, along("index_select", x, dim, index), index.numel())),
         promote=promotion.numeric.of("self"), others={"index": "int64"},
         samples=(call(t(4, 5), 0, ALONG), call(t(5, 4, order=(1, 0)), -1, ALONG), call(t(4, 2, dtype="float16"), 0, ALONG),
                  call(t(4, 0), 0, ALONG), call(t(4), 0, t(dtype="int64", low=0, high=4))))
def index_select(x, dim, index):
    """x's slices at `index` (one dim, int32 or int64) along `dim`."""
    if index.dtype not in ("int32", "int64"):
        raise RuntimeError(f"[index_select] index is int32 or int64, got {index.dtype}")
    return (along("index_select", x, dim, index),) if x.rank else ()


@index_select.derivative
def _(g, x, dim, index):
    return (index_select_backward(g, x, dim, index), None)


def index_select_backward(g, x, dim, index):
    if x.rank == 0:
        return g
    flat = index if index.rank else reshape(index, (1,))
    return index_backward([flat], g, x.shape, (wrapped(dim, x.rank),))


def fits(op, x, dim, index, source):
    """The source has the index's length along `dim` and x's sizes elsewhere."""
    dim = along(op, x, dim, index)
    same_dtype(op, x, source, "source")
    if x.rank and (source.rank != x.rank or selected_shape(x, dim, index.numel()) != tuple(source.shape)):
        if not (source.rank == 0 and index.numel() == 1 and x.rank == 1):
            raise (IndexError if op == "index_copy" else RuntimeError)(
                f"[{op}] expected a source of shape {list(selected_shape(x, dim, index.numel()))}: the index's length along "
                f"dim {dim}, self's sizes elsewhere; got {list(source.shape)}")
    return (dim,) if x.rank else ()


def writes_along(schema, samples, index="int64", **more):
    return library(schema, routine="index_put", writes="self", domain=ALL, layout=shaped(lambda x, *_: x.shape),
                   promote=promotion.numeric.of("self"), others={"index": index}, samples=samples, **more)


@writes_along("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
              (call(t(4, 5), 0, ALONG, t(3, 5)), call(t(5, 4), 1, ALONG, t(5, 3), alpha=0.5),
               call(t(4, 5, dtype="int64"), 0, ALONG, t(3, 5, dtype="int64"), alpha=2), call(t(4), 0, ALONG, t(3))))
def index_add(x, dim, index, source, alpha):
    """x with alpha * source added at `index` along `dim`."""
    return (ADD, NO_NEGATIVE, *fits("index_add", x, dim, index, source))


@index_add.derivative
def _(g, dim, index, source, alpha):
    return g, None, reshape(index_select(g, dim, index), source.shape) * alpha


@writes_along("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
              (call(t(4, 5), 0, t(1, dtype="int64", low=0, high=4), t(1, 5)), call(t(5, 4), 1, t(1, dtype="int64", low=0, high=4), t(5, 1))),
              index=("int64",), autocast="promote")
def index_copy(x, dim, index, source):
    """x with source's slices at `index` along `dim`."""
    return (ASSIGN, NO_NEGATIVE, *fits("index_copy", x, dim, index, source))


@index_copy.derivative
def _(g, dim, index, source):
    return index_fill(g, dim, index, 0), None, reshape(index_select(g, dim, index), source.shape)


@writes_along("index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
              (call(t(4, 5), 0, ALONG, 1.5), call(t(5, 4, dtype="int64"), -1, ALONG, 7), call(t(4), 0, ALONG, 2)))
def index_fill(x, dim, index, value):
    """x with `value` at `index` along `dim`."""
    if index.dtype not in ("int32", "int64"):
        raise IndexError(f"[index_fill] index is int64, got {index.dtype}")
    return (ASSIGN, NUMBER, *([along("index_fill", x, dim, index)] if x.rank else []))


@index_fill.derivative
def _(g, dim, index):
    return index_fill(g, dim, index, 0), None


@writes_along("index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
              tuple(call(t(4, 5, low=0.5), 0, ALONG, t(3, 5, low=0.5), how, include_self=self) for how in ("prod", "mean", "amax", "amin")
                    for self in (True, False)))
def index_reduce(x, dim, index, source, reduce, include_self):
    """x with source's slices folded in at `index` along `dim`."""
    how, flags = reduction("index_reduce", reduce)
    return (how, NO_NEGATIVE | flags | (0 if include_self else WITHOUT_SELF), *fits("index_reduce", x, dim, index, source))


def reduction(op, reduce):
    if reduce not in REDUCTIONS or op == "index_reduce" and reduce == "sum":
        raise RuntimeError(f"[{op}] reduce is one of sum, prod, mean, amax and amin, got {reduce}")
    return REDUCTIONS[reduce]


@index_reduce.derivative
def _(g, x, out, dim, index, source, reduce, include_self):
    dx, ds = reduced(g, x, out, source, reduce, include_self,
                     read=lambda v: index_select(v, dim, index), add=lambda v, s: index_add(v, dim, index, s),
                     fill=lambda v: index_fill(v, dim, index, 0),
                     again=lambda v, s: index_reduce(v, dim, index, s, reduce, include_self=include_self))
    return dx, None, ds


def zeros_like(x):
    return full(x.shape, 0, dtype=x.dtype)


def reduced(g, x, out, source, reduce, include_self, read, add, fill, again):
    """Gradients of x and source where source was folded into x: `read` brings what belongs to x to source's places, `add` the
    reverse, `fill` zeroes where something was put, `again` repeats the operator."""
    one = lambda v: zeros_like(v) + 1
    if reduce == "sum":
        dx, ds = g, read(g)
    elif reduce == "mean":
        count = add(one(x) if include_self else zeros_like(x), one(source))
        count = where(eq(count, 0), 1, count)
        dx, ds = g / count, read(g / count)
    elif reduce == "prod":
        kept = where(eq(x, 0), 1, x)
        dx = g * again(kept, source) / kept
        zero = eq(source, 0)
        alone = where(zero, eq(read(add(zeros_like(x), to(zero, dtype=x.dtype))), 1), False)
        others = again(x, where(alone, 1, source))
        ds = where(alone, read(g * others), read(g * out) / where(zero, 1, source))
    else:
        mine, theirs = to(eq(x, out), dtype=x.dtype), to(eq(source, read(out)), dtype=x.dtype)
        if not include_self:
            mine = fill(mine)
        count = add(mine, theirs)
        share = g / where(eq(count, 0), 1, count)
        untouched = eq(fill(one(x)), 1)
        dx, ds = mine * share if include_self else where(untouched, g, 0.0), theirs * read(share)
        return dx, ds
    return (dx if include_self else fill(dx)), ds


# ---- positions in the flattened tensor

@composition("take(Tensor self, Tensor index) -> Tensor",
             samples=(call(t(4, 5), t(2, 3, dtype="int64", low=-20, high=20)), call(t(5, 4, order=(1, 0)), t(3, dtype="int64", low=0, high=20))))
def take(x, at):
    """x's elements at positions of its C order; the shape is the index's."""
    if at.dtype != "int64":
        raise RuntimeError(f"[take] index is int64, got {at.dtype}")
    if x.numel() == 0 and at.numel():
        raise IndexError(f"[take] there is nothing to take from an empty tensor, at {list(at.shape)} places")
    return index(reshape(x, (-1,)) if x.numel() else reshape(x, (0,)), [at], (0,))


@composition("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
             samples=(call(t(4, 5), t(2, dtype="int64", low=0, high=20), t(2), True),))
def put(x, at, source, accumulate):
    """x with source's elements at positions of its C order."""
    if at.dtype != "int64":
        raise RuntimeError(f"[put_] index is int64, got {at.dtype}")
    same_dtype("put_", x, source, "source")
    if at.numel() != source.numel():
        raise IndexError(
            f"[put_] source and index have the same number of elements, got {source.numel()} and {at.numel()}"
        )
    n = product(x.shape)
    return reshape(index_write(reshape(x, (n,)), [reshape(at, (at.numel(),))], reshape(source, (at.numel(),)), (0,), accumulate), x.shape)


def broadcast_but(dim, shape, other):
    """The shape that `shape` and `other` broadcast to everywhere but along `dim`."""
    both = broadcast_shape([[1 if d == dim else n for d, n in enumerate(s)] for s in (shape, other)], "take_along_dim")
    return tuple(shape[d] if d == dim else n for d, n in enumerate(both))


@composition("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
             samples=(call(t(4, 5), t(4, 2, dtype="int64", low=0, high=5), 1), call(t(1, 5), t(4, 2, dtype="int64", low=0, high=5), -1),
                      call(t(4, 5), t(7, dtype="int64", low=0, high=20))))
def take_along_dim(x, indices, dim):
    """gather after broadcasting all dims but `dim`; of the flattened tensors without one."""
    from .scattering import gather
    if indices.dtype != "int64":
        raise RuntimeError(f"[take_along_dim] indices are int64, got {dtypes.TABLE[indices.dtype].name}")
    from_end = lambda n: where(lt(indices, 0), indices + n, indices)
    if dim is None:
        n = product(x.shape)
        return gather(reshape(x, (n,)), 0, reshape(from_end(n), (product(indices.shape),)))
    if x.rank != indices.rank:
        raise RuntimeError(
            f"[take_along_dim] input and indices have the same number of dims, got {x.rank} and {indices.rank}"
        )
    dim = wrapped(dim, x.rank)
    indices = from_end(x.shape[dim])
    return gather(expand(x, broadcast_but(dim, x.shape, indices.shape)), dim, expand(indices, broadcast_but(dim, indices.shape, x.shape)))
