"""Scans along a dim: each result folds the row's elements up to it."""
from rushlight import dtypes

from . import promotion
from .creation import full
from .declare import ALL, composition, library
from .layouts import ShapeError, shaped
from .pointwise import eq, exp, ne, sub, where
from .samples import call, t
from .scattering import gather_backward
from .views import slice, wrapped

PLAIN = tuple(d for d in ALL if d not in dtypes.HALVES)
ROWS = (call(t(3, 5), 1), call(t(3, 40, 2), 1), call(t(4, 3, order=(1, 0)), 0), call(t(), 0), call(t(0, 3), 0))
same = shaped(lambda x, *_: x.shape)


@library("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", routine="cumsum", domain=PLAIN, layout=same,
         promote=promotion.accumulating, samples=ROWS + (call(t(5, dtype="int32"), 0), call(t(5, dtype="bool"), 0), call(t(3, 4, dtype="bfloat16"), 1),
                                                         call(t(5), 0, dtype="float64")))
def cumsum(x, dim, dtype):
    """Sums of the row's elements up to each one; small integers become int64."""
    return wrapped(dim, x.rank), 0


@cumsum.derivative
def _(g, dim):
    return reverse_cumsum(g, dim)


@library("reverse_cumsum(Tensor self, int dim) -> Tensor", routine="cumsum", domain=("float32", "float64"), layout=same, method=False,
         function=False, samples=ROWS)
def reverse_cumsum(x, dim):
    """Sums of the row's elements from each one on."""
    return wrapped(dim, x.rank), 1


@reverse_cumsum.derivative
def _(g, dim):
    return cumsum(g, dim)


@library("linear_scan(Tensor coefficient, Tensor increment, int dim, bool reverse=False) -> Tensor", routine="linear_scan",
         domain=("float32", "float64"), layout=same, method=False, function=False,
         samples=(call(t(3, 5), t(3, 5), 1), call(t(3, 5), t(3, 5), 0, True)))
def linear_scan(coefficient, increment, dim, reverse):
    """y[j] = increment[j] + coefficient[j] * y[j - 1] along `dim`, from 0; backwards where `reverse`."""
    if coefficient.shape != increment.shape:
        raise ShapeError(f"[linear_scan] {coefficient.layout} and {increment.layout} differ in shape")
    return wrapped(dim, coefficient.rank), int(reverse)


@linear_scan.derivative
def _(g, out, coefficient, dim, reverse):
    total = linear_scan(shifted(coefficient, dim, -1 if not reverse else 1, 0), g, dim, not reverse)
    return total * shifted(out, dim, 1 if not reverse else -1, 0), total


def shifted(x, dim, by, fill):
    """x moved by one place along `dim` (1: later, -1: earlier), `fill` in the place that is free."""
    from .assembly import cat
    if x.rank == 0:
        return full((), fill, dtype=x.dtype)
    dim = wrapped(dim, x.rank)
    n = x.shape[dim]
    if n == 0:
        return x
    edge = full(tuple(1 if d == dim else m for d, m in enumerate(x.shape)), fill, dtype=x.dtype)
    return cat([edge, slice(x, dim, 0, n - 1, 1)], dim) if by > 0 else cat([slice(x, dim, 1, n, 1), edge], dim)


@library("cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", routine="cumprod", domain=PLAIN, layout=same,
         promote=promotion.accumulating, samples=ROWS + (call(t(5, dtype="int64"), 0),))
def cumprod(x, dim, dtype):
    """Products of the row's elements up to each one; small integers become int64."""
    return wrapped(dim, x.rank), 0


@cumprod.derivative                 # without a division: zeros are no special case
def _(g, x, out, dim):
    x = x.to(out.dtype)
    return shifted(out, dim, 1, 1) * linear_scan(shifted(x, dim, -1, 0), g, dim, True)


@library("logcumsumexp(Tensor self, int dim) -> Tensor", routine="logcumsumexp", domain=("float32", "float64"), layout=same,
         promote=promotion.floats, samples=ROWS)
def logcumsumexp(x, dim):
    """log of the sums of exp of the row's elements up to each one."""
    return (wrapped(dim, x.rank),)


@logcumsumexp.derivative            # out never falls, so that every factor is at most 1
def _(g, x, out, dim):
    ratio = lambda a, b: where(eq(a, b), 1.0, exp(a - b))
    later = shifted(out, dim, -1, 0)
    return ratio(x, out) * linear_scan(ratio(out, later), g, dim, True)


def extreme(name, least):
    @library(f"{name}(Tensor self, int dim) -> (Tensor, Tensor)", name=name, routine="cumulative_extreme", domain=PLAIN,
             layout=shaped(lambda x, *_: [x.shape] * 2, dtypes=("self", "int64")), samples=ROWS[:-1] + (call(t(3, 9, dtype="int64"), 1),))
    def operator(x, dim):
        return wrapped(dim, x.rank), int(least)

    operator.derivative(lambda gs, x, outs, dim: gather_backward(outs[1], gs[0], x.shape, wrapped(dim, x.rank)))
    return operator


cummax, cummin = extreme("cummax", False), extreme("cummin", True)


@composition("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
             samples=(call(t(3, 5)), call(t(3, 5), 2, 0), call(t(3, 5), 1, 1, t(3, 2), t(3, 1)), call(t(4, dtype="bool")), call(t(3, 5), 9)))
def diff(x, n, dim, prepend, append):
    """The n-th difference of neighbours along `dim`, after joining `prepend` and `append`."""
    from .assembly import cat
    if x.rank == 0:
        raise RuntimeError("[diff] a tensor of no dimensions has no neighbours")
    if n < 0:
        raise RuntimeError(f"[diff] order must be non-negative but got {n}")
    parts = [p for p in (prepend, x, append) if p is not None]
    if n and len(parts) > 1:
        x = cat(parts, dim)
    dim = wrapped(dim, x.rank)
    for _ in range(min(n, x.shape[dim])):
        m = x.shape[dim]
        if m == 0:
            break
        late, early = slice(x, dim, 1, m, 1), slice(x, dim, 0, m - 1, 1)
        x = ne(late, early) if x.dtype == "bool" else sub(late, early)
    return x
