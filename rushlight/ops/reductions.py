"""Row bodies that give one number a row: keepdim reductions. Dropping the dims is the layout's business."""
from rushlight import dtypes

from . import promotion
from .declare import ALL, NUMBERS, composition, none, rows
from .layouts import per_row, same_rows
from .pointwise import eq, ne, sqrt, where
from .samples import call, t
from .values import fold, leaf

AXES = (call(t(3, 4), 1, False), call(t(3, 4), 0, True), call(t(2, 3, 4), (0, 2), False), call(t(2, 70), -1),
        call(t(2, 3, 4, order=(2, 0, 1)), (0, 1), True), call(t(40, 33), 0), call(t(3, 1), 1))
EVERYTHING = (call(t(3, 4)), call(t()))


@rows("sum.dim_IntList(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
      layout=per_row(), promote=promotion.accumulating, domain=NUMBERS,
      samples=AXES + EVERYTHING + (call(t(3, 4, dtype="bool"), 1), call(t(3, 70, dtype="float16"), 1), call(t(3, 0), 1),
                                   call(t(3, 4), 1, dtype="float64"), call(t(5, dtype="int32"))))
def sum(x, dim, keepdim, dtype):
    return fold.sum(x, dim, keepdim)


@sum.derivative
def _(g, x, dim, keepdim):
    return g.spread(x, dim, keepdim)


@rows("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", layout=per_row(nonempty=True), domain=ALL,
      samples=AXES + EVERYTHING)
def amax(x, dim, keepdim):
    return fold.amax(x, dim, keepdim)


@amax.derivative                    # equal maxima share the gradient
def _(g, x, out, dim, keepdim):
    top = eq(x, out.spread(x, dim, keepdim)).to(x.dtype)
    return g.spread(x, dim, keepdim) * (top / sum(top, dim, True))


@rows("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", layout=per_row(nonempty=True), domain=ALL,
      samples=AXES + EVERYTHING)
def amin(x, dim, keepdim):
    return fold.amin(x, dim, keepdim)


@amin.derivative
def _(g, x, out, dim, keepdim):
    low = eq(x, out.spread(x, dim, keepdim)).to(x.dtype)
    return g.spread(x, dim, keepdim) * (low / sum(low, dim, True))


@rows("mean.dim(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", layout=per_row(),
      promote=promotion.averaging, samples=AXES + EVERYTHING + (call(t(3, 70, dtype="bfloat16"), 1),))
def mean(x, dim, keepdim, dtype):
    return sum(x, dim, keepdim) / x.extent(dim)


@mean.derivative
def _(g, x, dim, keepdim):
    return g.spread(x, dim, keepdim) / x.extent(dim)


@rows("positions(Tensor self, int dim) -> Tensor", layout=same_rows(), promote=promotion.counting, derivative=none, domain=ALL,
      method=False, function=False, bottom=True)
def positions(x, dim):
    return leaf.positions(x, dim)


@rows("argmax.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", name="argmax_rows", layout=per_row(nonempty=True),
      promote=promotion.counting, domain=NUMBERS, derivative=none, method=False, function=False,
      samples=(call(t(3, 40), 1), call(t(3, 5), 0, True)))
def argmax_rows(x, dim, keepdim):
    found = eq(x, amax(x, dim, True))
    return fold.amin(where(found, positions(x, dim), where(ne(x, x), positions(x, dim), 2 ** 62)), dim, True)


def ordered(x, name):
    if x.dtype == "bool" or dtypes.is_complex(x.dtype):
        raise RuntimeError(f"[{name}] does not support {x.dtype} input")


def something(x, name):
    n = x.numel()
    if isinstance(n, int) and n == 0:
        raise IndexError(f"[{name}] expected a dim to be given for {list(x.shape)}, which has no elements")


@composition("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", derivative=none,
             samples=(call(t(3, 4)), call(t(3, 4), 1), call(t(3, 4), -2, True)))
def argmax(x, dim, keepdim):
    ordered(x, "argmax")
    if dim is None:
        something(x, "argmax")
        flat = argmax_rows(x.viewed((x.numel(),)), 0, False)
        return flat.viewed((1,) * x.rank) if keepdim else flat
    return argmax_rows(x, dim, keepdim)


@rows("argmin.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", name="argmin_rows", layout=per_row(nonempty=True),
      promote=promotion.counting, domain=NUMBERS, derivative=none, method=False, function=False,
      samples=(call(t(3, 40), 1), call(t(3, 5), 0, True), call(t(3, 5, dtype="uint8"), 1)))
def argmin_rows(x, dim, keepdim):
    found = eq(x, amin(x, dim, True))
    return fold.amin(where(found, positions(x, dim), where(ne(x, x), positions(x, dim), 2 ** 62)), dim, True)


@composition("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", derivative=none,
             samples=(call(t(3, 4)), call(t(3, 4), 1), call(t(3, 4), -2, True)))
def argmin(x, dim, keepdim):
    ordered(x, "argmin")
    if dim is None:
        something(x, "argmin")
        flat = argmin_rows(x.viewed((x.numel(),)), 0, False)
        return flat.viewed((1,) * x.rank) if keepdim else flat
    return argmin_rows(x, dim, keepdim)


@composition("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", name="max_dim", method=False,
             function=False, samples=(call(t(3, 4), 1), call(t(3, 4), 0, True)))
def max_dim(x, dim, keepdim):
    place = argmax_rows if x.dtype == "bool" else argmax                # PyTorch refuses argmax of bools, not this
    return amax(x, (dim,), keepdim), place(x, dim, keepdim)


@composition("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", name="min_dim", method=False,
             function=False, samples=(call(t(3, 4), 1), call(t(3, 4), 0, True)))
def min_dim(x, dim, keepdim):
    place = argmin_rows if x.dtype == "bool" else argmin
    return amin(x, (dim,), keepdim), place(x, dim, keepdim)


def to_position(g, x, outs, dim, keepdim):
    """The gradient goes to the element that was chosen, also among equals."""
    spread = g.spread(x, dim, keepdim)
    return where(eq(positions(spread, dim), outs[1].spread(x, dim, keepdim)), spread, 0.0)


max_dim.derivative(lambda g, x, outs, dim, keepdim: to_position(g, x, outs, dim, keepdim))
min_dim.derivative(lambda g, x, outs, dim, keepdim: to_position(g, x, outs, dim, keepdim))


@rows("euclidean_norm(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.floating,
      cost=2, method=False, function=False, samples=(call(t(3, 4)), call(t(3, 4), 1), call(t(3, 4), 0, True)))
def euclidean_norm(x, dim, keepdim):
    return sqrt(sum(x * x, dim, True))


@euclidean_norm.derivative          # 0 at 0, as the subgradient of least norm
def _(g, x, out, dim, keepdim):
    return x * where(eq(out, 0), 0.0, g / out).spread(x, dim, keepdim)
