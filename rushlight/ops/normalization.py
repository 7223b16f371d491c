"""Row bodies over whole rows: softmax, layer norm, cross entropy, and their backwards. One kernel each."""
from . import promotion
from .declare import RUN, derived, rows
from .derivatives import gradients
from .layouts import leading_rows, per_row, same_rows, trailing_rows
from .pointwise import eq, exp, log, sqrt, where
from .reductions import amax, mean, positions, sum
from .samples import call, t
from .values import take

ROWS = (call(t(3, 5), 1), call(t(2, 3, 4), 1), call(t(3, 40, dtype="float16"), -1), call(t(3, 5), 0), call(t(2, 70), -1),
        call(t(40, 33), 0), call(t(3, 1), 1))
TARGET = ("int64", "uint8")                             # labels, as PyTorch takes them


@rows("_softmax(Tensor self, int dim, bool half_to_float=False) -> Tensor", name="softmax_rows", layout=same_rows(out="C"),
      promote=promotion.floats, method=False, function=False, cost=12, samples=ROWS)
def softmax_rows(x, dim, half_to_float):
    e = exp(x - amax(x, dim, True))
    return e * (1 / sum(e, dim, True))                  # one division a row


@softmax_rows.derivative
def _(g, out, dim):
    return softmax_backward(g, out, dim)


@rows("_softmax_backward_data(Tensor grad_output, Tensor output, int dim) -> Tensor", layout=same_rows(out="C"),
      derivative=derived, method=False, function=False, cost=4, samples=(call(t(3, 5), t(3, 5, low=0.1), 1),))
def softmax_backward(g, y, dim):
    return y * (g - sum(g * y, dim, True))


@rows("_log_softmax(Tensor self, int dim, bool half_to_float=False) -> Tensor", name="log_softmax_rows",
      layout=same_rows(out="C"), promote=promotion.floats, method=False, function=False, cost=12, samples=ROWS)
def log_softmax_rows(x, dim, half_to_float):
    z = x - amax(x, dim, True)
    return z - log(sum(exp(z), dim, True))


@log_softmax_rows.derivative
def _(g, out, dim):
    return log_softmax_backward(g, out, dim)


@rows("_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim) -> Tensor", layout=same_rows(out="C"),
      derivative=derived, method=False, function=False, cost=12, samples=(call(t(3, 5), t(3, 5, low=-3.0, high=-0.1), 1),))
def log_softmax_backward(g, y, dim):
    return g - exp(y) * sum(g, dim, True)


@rows("native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"
      " -> (Tensor, Tensor, Tensor)", layout=trailing_rows(), promote=promotion.floats, method=False, cost=6,
      patterns=("TTT", "T00", "TT0"),
      samples=(call(t(4, 6), (6,), t(6), t(6), 1e-5), call(t(2, 3, 4), (3, 4), None, None, 1e-5),
               call(t(3, 4, 8, order=(1, 0, 2)), (8,), t(8), None, 1e-3), call(t(2, 40, dtype="float16"), (40,), None, None, 1e-5)))
def native_layer_norm(x, shape, weight, bias, eps):
    dim = tuple(range(-len(shape), 0))
    mu = mean(x, dim, True)
    rstd = 1 / sqrt(mean((x - mu) * (x - mu), dim, True) + eps)
    y = (x - mu) * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mu, rstd


@native_layer_norm.derivative
def _(g, x, shape, weight, bias, outs):
    _, mu, rstd = outs
    dx = layer_norm_backward(g, x, shape, mu, rstd, weight)
    if weight is None:
        return dx, None, None if bias is None else g
    dweight, dbias = layer_norm_backward_weight(g, x, shape, mu, rstd)
    return dx, dweight, dbias


@rows("native_layer_norm_backward.input(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd,"
      " Tensor? weight) -> Tensor", layout=trailing_rows(per_row=("mean", "rstd")),
      promote=promotion.floating.of("grad_out", "input", "weight"), others={"mean": "opmath", "rstd": "opmath"},
      patterns=("TTTTT", "TTTT0"), method=False, function=False, cost=6,
      samples=(call(t(4, 6), t(4, 6), (6,), t(4, 1), t(4, 1, low=0.5), t(6)),))
def layer_norm_backward(dy, x, shape, mu, rstd, weight):
    dim = tuple(range(-len(shape), 0))
    h, dy = (x - mu) * rstd, dy if weight is None else dy * weight
    return rstd * (dy - mean(dy, dim, True) - h * mean(dy * h, dim, True))


@layer_norm_backward.derivative
def _(g, dy, x, shape, mu, rstd, weight):
    wanted = [dy, x, mu, rstd] + ([] if weight is None else [weight])
    grads = gradients(lambda: layer_norm_backward.body(dy, x, shape, mu, rstd, weight), wanted, g)
    dx = through_statistics(grads[1], grads[2], grads[3], x, shape, mu, rstd)
    return grads[0], dx, None, None, None if weight is None else grads[4]


def through_statistics(dx, dmu, drstd, x, shape, mu, rstd):
    """The mean and the reciprocal deviation depend on x too: their cotangents, brought to x."""
    n = x.extent(tuple(range(-len(shape), 0)))
    back = dmu / n - drstd * rstd * rstd * rstd * (x - mu) / n if dmu is not None else -drstd * rstd * rstd * rstd * (x - mu) / n
    return back if dx is None else dx + back


@rows("native_layer_norm_backward.weight(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd)"
      " -> (Tensor, Tensor)", layout=leading_rows(across=("mean", "rstd")),
      promote=promotion.floating.of("grad_out", "input"), others={"mean": "opmath", "rstd": "opmath"}, method=False,
      function=False, cost=4, samples=(call(t(4, 6), t(4, 6), (6,), t(4, 1), t(4, 1, low=0.5)),))
def layer_norm_backward_weight(dy, x, shape, mu, rstd):
    return sum(dy * ((x - mu) * rstd), None, True), sum(dy, None, True)


@layer_norm_backward_weight.derivative
def _(gs, dy, x, shape, mu, rstd):
    gw, gb = gs
    h = (x - mu) * rstd
    ddy = gw * h if gb is None else gw * h + gb
    gh = gw * dy
    dim = tuple(range(-len(shape), 0))
    return ddy, through_statistics(gh * rstd, sum(-gh * rstd, dim, True), sum(gh * (x - mu), dim, True), x, shape, mu,
                                   rstd), None, None


@rows("pick(Tensor self, int dim, Tensor index) -> Tensor", layout=per_row(per_row=("index",)),
      promote=promotion.numeric.of("self"), others={"index": TARGET}, method=False, function=False,
      samples=(call(t(4, 5), 1, t(4, 1, dtype="int64", low=0, high=5)),))
def pick(x, dim, index):
    return take.pick(x, dim, index)


@pick.derivative                    # one index a row, so the scatter is a map over the row
def _(g, x, dim, index):
    return where(eq(positions(x, dim), index), g, 0.0), None


@rows("cross_entropy_rows(Tensor self, Tensor target, int dim, SymInt ignore_index=-100) -> (Tensor, Tensor)",
      layout=per_row(per_row=("target",)), promote=promotion.floats.of("self"), others={"target": TARGET}, method=False,
      function=False, cost=12, variants=({}, {"ignore_index": RUN}),
      samples=(call(t(4, 5), t(4, 1, dtype="int64", low=0, high=5), 1),
               call(t(4, 5), t(4, 1, dtype="int64", low=0, high=5), 1, 2)))
def cross_entropy_rows(x, target, dim, ignore_index):
    top = amax(x, dim, True)
    lse = log(sum(exp(x - top), dim, True)) + top
    ignored = eq(target, ignore_index)
    return where(ignored, 0.0, lse - pick(x, dim, where(ignored, 0, target))), lse


@rows("counted_mean(Tensor self, Tensor target, int[1]? dim=None, bool keepdim=False, SymInt ignore_index=-100) -> Tensor",
      layout=per_row(), promote=promotion.floating.of("self"), others={"target": TARGET}, method=False, function=False, cost=2,
      variants=({}, {"ignore_index": RUN}),
      samples=(call(t(4, 1), t(4, 1, dtype="int64", low=0, high=5)),
               call(t(4, 3), t(4, 3, dtype="int64", low=0, high=5), (1,), False, 2)))
def counted_mean(x, target, dim, keepdim, ignore_index):
    """The mean of x over those elements whose target is not ignored; x is 0 where it is."""
    return sum(x, dim, True) / sum(where(eq(target, ignore_index), 0.0, 1.0), dim, True)


@counted_mean.derivative
def _(g, x, target, dim, keepdim, ignore_index):
    counts = sum(where(eq(target, ignore_index), 0.0, 1.0), dim, keepdim)
    return (g / counts).spread(x, dim, keepdim), None


@cross_entropy_rows.derivative
def _(g, x, target, dim, ignore_index, outs):
    return cross_entropy_backward(g, x, target, outs[1], dim, ignore_index), None


@rows("cross_entropy_backward(Tensor grad, Tensor self, Tensor target, Tensor lse, int dim, SymInt ignore_index) -> Tensor",
      layout=same_rows(per_row=("grad", "target", "lse")), promote=promotion.floating.of("grad", "self"),
      others={"target": TARGET, "lse": "opmath"}, method=False, function=False, cost=12,
      samples=(call(t(4, 1), t(4, 5), t(4, 1, dtype="int64", low=0, high=5), t(4, 1, low=1.5, high=3.0), 1, -100),))
def cross_entropy_backward(grad, x, target, lse, dim, ignore_index):
    hot = where(eq(positions(x, dim), target), 1.0, 0 * x)
    return where(eq(target, ignore_index), 0 * x, grad * (exp(x - lse) - hot))


@cross_entropy_backward.derivative  # lse depends on x: softmax's own derivative carries that
def _(g, grad, x, target, dim, ignore_index):
    def formula():
        hot = where(eq(positions(x, dim), target), 1.0, 0 * x)
        return where(eq(target, ignore_index), 0 * x, grad * (softmax_rows(x, dim, False) - hot))
    dgrad, dx = gradients(formula, [grad, x], g)
    return dgrad, dx, None, None
