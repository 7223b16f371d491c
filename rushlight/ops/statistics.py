"""Reductions beyond sums: products, truth, variances, sums that leave NaN out, log-sum-exp. Row bodies, one kernel each."""
from rushlight import dtypes

from . import promotion
from .declare import ALL, composition, none, rows
from .derivatives import gradients
from .layouts import per_row, same_rows
from .pointwise import abs, eq, exp, fill, log, ne, sqrt, where
from .reductions import AXES, EVERYTHING, amax, amin, mean, sum
from .samples import call, t
from .values import fold

INF = float("inf")
WIDE = ("float32", "float64")
STORED = tuple(d for d in ALL if d not in dtypes.HALVES)
TRUTH = ("bool", "int64", "float32", "float64")
MEANS = AXES + EVERYTHING[:1] + (call(t(3, 70, dtype="bfloat16"), 1),)


@rows("prod.dim_int(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", layout=per_row(),
      promote=promotion.accumulating, domain=("int64", *WIDE), autocast="float32",
      samples=tuple(s for s in AXES if not isinstance(s.args[1], tuple)) + EVERYTHING +
      (call(t(3, 4, dtype="bool"), 1), call(t(3, 0), 1), call(t(3, 4), 1, dtype="float64"), call(t(5, dtype="int32")), call(t(3, 20, dtype="float16"), 1)))
def prod(x, dim, keepdim, dtype):
    return fold.prod(x, dim, keepdim)


@prod.derivative
def _(g, x, dim, keepdim):
    return prod_backward(g.kept(x, dim, keepdim), x, dim)


@rows("prod_backward(Tensor grad, Tensor self, int[1]? dim) -> Tensor", layout=same_rows(per_row=("grad",)), promote=promotion.floating,
      domain=WIDE, method=False, function=False, samples=(call(t(3, 1), t(3, 4, low=0.5), 1),))
def prod_backward(dy, x, dim):
    """The product of all the others: where one element is 0, only that one has a slope; where two are, none has."""
    zero = eq(x, 0)
    zeros, others = sum(zero.to(x.dtype), dim, True), prod(where(zero, 1.0, x), dim, True)
    return dy * where(zero, where(eq(zeros, 1), others, 0.0), where(eq(zeros, 0), others / where(zero, 1.0, x), 0.0))


@prod_backward.derivative
def _(g, dy, x, dim):
    return gradients(lambda: prod_backward.body(dy, x, dim), [dy, x], g)


def truth(body):
    name = body.__name__
    return rows(f"{name}(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.comparing,
                derivative=none, domain=STORED, method=False, function=False,
                samples=(call(t(3, 4, dtype="bool"), 1), call(t(2, 3, 4, dtype="int64"), (0, 2), True), call(t(3, 0), 1), call(t(3, 70), 1),
                         call(t(3, 4, dtype="int32"), 0)))(body)


@truth
def all_rows(x, dim, keepdim):
    return fold.all_rows(ne(x, 0), dim, keepdim)


@truth
def any_rows(x, dim, keepdim):
    return fold.any_rows(ne(x, 0), dim, keepdim)


TRUTHS = (call(t(3, 4, dtype="bool")), call(t(3, 4, dtype="bool"), 1), call(t(2, 3, 4, dtype="int64"), (0, 2), True), call(t(3, 0), 1),
          call(t(0)), call(t(4, dtype="uint8")), call(t(3, 4, dtype="float16"), 0), call(t()))


def as_given(out, x):
    return out.to("uint8") if x.dtype == "uint8" else out


@composition("all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", derivative=none, samples=TRUTHS)
def all(x, dim, keepdim):
    """Whether no element of a row is 0 (of no elements: True); uint8 gives uint8. No dims (`()`): of each element alone."""
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return as_given(ne(x, 0), x)
    return as_given(all_rows(x, dim, keepdim), x)


@composition("any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", derivative=none, samples=TRUTHS)
def any(x, dim, keepdim):
    """Whether some element of a row is not 0 (of no elements: False). No dims (`()`): of each element alone."""
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return as_given(ne(x, 0), x)
    return as_given(any_rows(x, dim, keepdim), x)


@rows("count_rows(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.whole,
      derivative=none, domain=TRUTH, method=False, function=False, samples=(call(t(3, 4), 1), call(t(3, 4, dtype="bool"), 0)))
def count_rows(x, dim, keepdim):
    return sum(ne(x, 0).to("int64"), dim, True)


@composition("count_nonzero.dim_IntList(Tensor self, int[1]? dim=None) -> Tensor", derivative=none,
             samples=(call(t(3, 4)), call(t(3, 4, dtype="bool"), 1), call(t(2, 3, 4, dtype="int32"), (0, 2)), call(t(3, 0), 1)))
def count_nonzero(x, dim):
    return count_rows(x, dim, False)


@rows("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", layout=per_row(),
      promote=promotion.accumulating, domain=("int64", *WIDE), samples=MEANS + (call(t(3, 4, dtype="int32"), 1),))
def nansum(x, dim, keepdim, dtype):
    return sum(where(ne(x, x), 0, x), dim, True)


@nansum.derivative
def _(g, x, dim, keepdim):
    return where(ne(x, x), 0.0, g.spread(x, dim, keepdim))


@composition("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", samples=MEANS)
def nanmean(x, dim, keepdim, dtype):
    if dtypes.category(x.dtype) < 2:
        raise RuntimeError(f"[nanmean] takes a floating or complex tensor, got {x.dtype}")
    x = x if dtype is None else x.to(dtype)
    return nansum(x, dim, keepdim) / sum(eq(x, x), dim, keepdim).to(x.dtype)


# ---- variances

@rows("var_rows(Tensor self, int[1]? dim, float divisor, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.averaging,
      method=False, function=False, cost=3, domain=WIDE, samples=(call(t(3, 4), 1, 1.0), call(t(3, 40), 1, 40.0, True), call(t(2, 3, 4), (0, 2), 1.5)))
def var_rows(x, dim, divisor, keepdim):
    d = x - mean(x, dim, True)
    return sum(d * d, dim, True) / divisor


@var_rows.derivative
def _(g, x, dim, divisor, keepdim):
    return var_backward(g.kept(x, dim, keepdim), x, dim, divisor)


@rows("std_rows(Tensor self, int[1]? dim, float divisor, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.averaging,
      method=False, function=False, cost=3, domain=WIDE, samples=(call(t(3, 4), 1, 1.0), call(t(3, 40), 1, 40.0, True), call(t(2, 3, 4), (0, 2), 1.5)))
def std_rows(x, dim, divisor, keepdim):
    return sqrt(var_rows(x, dim, divisor, True))


@std_rows.derivative                # 0 where nothing varies
def _(g, x, out, dim, divisor, keepdim):
    return var_backward(where(eq(out, 0), 0.0, g / (out * 2)).kept(x, dim, keepdim), x, dim, divisor)


@rows("var_backward(Tensor grad, Tensor self, int[1]? dim, float divisor) -> Tensor", layout=same_rows(per_row=("grad",)),
      promote=promotion.floating, method=False, function=False, cost=3, domain=WIDE,
      samples=(call(t(3, 1), t(3, 4), 1, 1.0),))
def var_backward(dy, x, dim, divisor):
    slope = INF if isinstance(divisor, float) and divisor == 0 else 2 / divisor
    return slope * dy * (x - mean(x, dim, True))


@var_backward.derivative
def _(g, dy, x, dim, divisor):
    return sum(g * var_backward(fill(dy, 1), x, dim, divisor), dim, True), var_backward(dy, g, dim, divisor)


SPREADS = (call(t(3, 4)), call(t(3, 4), 1), call(t(2, 70), -1, correction=0), call(t(2, 3, 4), (0, 2), correction=1.5, keepdim=True),
           call(t(4, 3, order=(1, 0)), 0, unbiased=False), call(t(3, 40, dtype="float16"), 1), call(t(5, step=2), 0), call(t(3, 4), 1, False, True))


def corrected(x, dim, unbiased, correction, name):
    """(dim, divisor) of the three forms of a call: `x.var(False)`, `x.var(0, False)`, `x.var(0, correction=2)`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"[{name}] give unbiased or correction, not both")
    if dtypes.category(x.dtype) < 2:
        raise RuntimeError(f"[{name}] takes a floating or complex tensor, got {x.dtype}")
    correction = (0.0 if unbiased is False else 1.0) if correction is None else float(correction)
    n = x.extent(dim)
    return dim, max(n - correction, 0.0) if isinstance(n, int) else n - correction


@composition("var.correction(Tensor self, int[1]? dim=None, bool? unbiased=None, bool keepdim=False, *, Scalar? correction=None)"
             " -> Tensor", structural=("correction",), samples=SPREADS)
def var(x, dim, unbiased, keepdim, correction):
    """The mean square distance from the mean; the count is less by `correction` (1)."""
    dim, divisor = corrected(x, dim, unbiased, correction, "var")
    return var_rows(x, dim, divisor, keepdim)


@composition("std.correction(Tensor self, int[1]? dim=None, bool? unbiased=None, bool keepdim=False, *, Scalar? correction=None)"
             " -> Tensor", structural=("correction",), samples=SPREADS)
def std(x, dim, unbiased, keepdim, correction):
    dim, divisor = corrected(x, dim, unbiased, correction, "std")
    return std_rows(x, dim, divisor, keepdim)


@composition("var_mean.correction(Tensor self, int[1]? dim=None, bool? unbiased=None, bool keepdim=False, *, Scalar? correction=None)"
             " -> (Tensor, Tensor)", structural=("correction",), method=False, samples=SPREADS)
def var_mean(x, dim, unbiased, keepdim, correction):
    dim, divisor = corrected(x, dim, unbiased, correction, "var_mean")
    return var_rows(x, dim, divisor, keepdim), mean(x, dim, keepdim)


@composition("std_mean.correction(Tensor self, int[1]? dim=None, bool? unbiased=None, bool keepdim=False, *, Scalar? correction=None)"
             " -> (Tensor, Tensor)", structural=("correction",), method=False, samples=SPREADS)
def std_mean(x, dim, unbiased, keepdim, correction):
    dim, divisor = corrected(x, dim, unbiased, correction, "std_mean")
    return std_rows(x, dim, divisor, keepdim), mean(x, dim, keepdim)


# ---- log-sum-exp, extremes

@rows("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", layout=per_row(), promote=promotion.floating, cost=12,
      domain=WIDE, samples=AXES + (call(t(3, 40, dtype="float16"), 1),))
def logsumexp(x, dim, keepdim):
    """log of the sum of exp, without overflow on the way."""
    top = amax(x, dim, True)
    top = where(eq(abs(top), float("inf")), 0.0, top)
    return log(sum(exp(x - top), dim, True)) + top


@logsumexp.derivative
def _(g, x, out, dim, keepdim):
    return g.spread(x, dim, keepdim) * exp(x - out.spread(x, dim, keepdim))


@composition("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor, Tensor)", name="aminmax_pair", method=False,
             function=False, samples=(call(t(3, 4)), call(t(3, 4), dim=1), call(t(3, 4), dim=0, keepdim=True)))
def aminmax_pair(x, dim, keepdim):
    dims = () if dim is None else (dim,)
    return amin(x, dims, keepdim), amax(x, dims, keepdim)


