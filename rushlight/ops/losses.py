"""What models call by another signature than ATen's primitives: softmax with a dtype, layer norm, losses. Compositions, and the values
of pointwise losses."""
from rushlight import dtypes

from . import promotion
from .activations import log_sigmoid
from .declare import composition, derived, rows, scalar
from .layouts import per_row
from .normalization import (
    counted_mean,
    cross_entropy_rows,
    log_softmax_rows,
    native_layer_norm,
    softmax_rows,
)
from .pointwise import abs, log, log1p, lt, maximum, where
from .reductions import mean, sum
from .samples import call, t
from .views import reshape, unsqueeze


def floating_rows(x, dtype, name):
    if dtype is None and dtypes.category(x.dtype) < 2:
        raise NotImplementedError(f"[{name}] not implemented for {x.dtype}: give a floating dtype")


@composition("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
             samples=(call(t(3, 5), 1), call(t(3, 5), 0), call(t(3, 5), 1, dtype="float64")))
def softmax(x, dim, dtype):
    floating_rows(x, dtype, "softmax")
    return softmax_rows(x if dtype is None else x.to(dtype), dim, False)


@composition("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", samples=(call(t(3, 5), 1), call(t(3, 5), 0)))
def log_softmax(x, dim, dtype):
    floating_rows(x, dtype, "log_softmax")
    return log_softmax_rows(x if dtype is None else x.to(dtype), dim, False)


@composition("layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)"
             " -> Tensor", method=False, samples=(call(t(4, 6), (6,), t(6), t(6)), call(t(2, 3, 4), (3, 4))))
def layer_norm(x, shape, weight, bias, eps):
    n = len(shape)
    if n == 0 or tuple(x.shape[x.rank - n:]) != tuple(shape):
        raise RuntimeError(f"[layer_norm] Given normalized_shape={list(shape)}, expected input with shape [*, "
                           f"{', '.join(map(str, shape))}], but got input of size{list(x.shape)}")
    if weight is None and bias is not None:
        return native_layer_norm(x, shape, None, None, eps)[0] + bias
    return native_layer_norm(x, shape, weight, bias, eps)[0]


@composition("cross_entropy_loss(Tensor self, Tensor target, int reduction=1, SymInt ignore_index=-100) -> Tensor",
             name="cross_entropy_loss", method=False, function=False,
             autocast="float32", samples=(call(t(4, 5), t(4, dtype="int64", low=0, high=5)), call(t(4, 5), t(4, dtype="int64", low=0, high=5), 2, 2),
                      call(t(2, 5, 3), t(2, 3, dtype="int64", low=0, high=5), 0), call(t(5), t(dtype="int64", low=0, high=5))))
def cross_entropy_loss(x, target, reduction, ignore_index):
    """Class indices as targets; reduction 0 none, 1 mean over what is not ignored, 2 sum."""
    dim = 1 if x.rank > 1 else 0
    if x.rank != target.rank + 1 or tuple(x.shape[:dim]) + tuple(x.shape[dim + 1:]) != tuple(target.shape):
        raise RuntimeError(f"[cross_entropy] Expected target size {list(x.shape[:dim]) + list(x.shape[dim + 1:])}, got "
                           f"{list(target.shape)} (input {x.layout}, target {target.layout})")
    spread = unsqueeze(target, dim)
    lost = cross_entropy_rows(x, spread, dim, ignore_index)[0]
    if reduction == 0:
        return reshape(lost, target.shape)
    if reduction == 2:
        return sum(lost)
    return counted_mean(lost, spread, None, False, ignore_index)


WIDE = ("float32", "float64")       # half types through float32
PAIRS = (call(t(3, 4), t(3, 4)), call(t(3, 4), t(4)))
CHANCES = (call(t(3, 4, low=0.1, high=0.9), t(3, 4, low=0.0, high=1.0)),)


@scalar("huber_values(Tensor self, Tensor target, float delta) -> Tensor", promote=promotion.floats, domain=WIDE, derivative=derived, method=False,
        function=False, cost=4, samples=(call(t(3, 4), t(3, 4), 0.8),))
def huber_values(x, target, delta):
    d = abs(x - target)
    return where(lt(d, delta), 0.5 * d * d, delta * (d - 0.5 * delta))


@scalar("smooth_l1_values(Tensor self, Tensor target, float beta) -> Tensor", promote=promotion.floats, domain=WIDE, derivative=derived, method=False,
        function=False, cost=4, samples=(call(t(3, 4), t(3, 4), 0.8),))
def smooth_l1_values(x, target, beta):
    d = abs(x - target)
    return where(lt(d, beta), 0.5 * d * d / beta, d - 0.5 * beta)


@scalar("logits_values(Tensor self, Tensor target) -> Tensor", domain=WIDE, derivative=derived, method=False, function=False,
        cost=16, samples=PAIRS)
def logits_values(x, target):
    """Binary cross entropy of logits: softplus(x) - t x."""
    return (1 - target) * x - log_sigmoid(x)


@scalar("weighted_logits_values(Tensor self, Tensor target, Tensor pos_weight) -> Tensor", domain=WIDE, derivative=derived,
        method=False, function=False, cost=16, samples=(call(t(3, 4), t(3, 4), t(4)),))
def weighted_logits_values(x, target, pos_weight):
    return (1 - target) * x - (1 + (pos_weight - 1) * target) * log_sigmoid(x)


@scalar("binary_values(Tensor self, Tensor target) -> Tensor", domain=WIDE, method=False, function=False, cost=16, samples=CHANCES)
def binary_values(x, target):
    """Binary cross entropy of probabilities; logarithms are cut off at -100."""
    return (target - 1) * maximum(log1p(-x), -100.0) - target * maximum(log(x), -100.0)


@binary_values.derivative           # finite at 0 and 1, as ATen's
def _(g, x, target):
    return binary_values_backward(g, x, target), g * (maximum(log1p(-x), -100.0) - maximum(log(x), -100.0))


@scalar("binary_values_backward(Tensor grad, Tensor self, Tensor target) -> Tensor", domain=WIDE, derivative=derived, method=False,
        function=False, cost=8, samples=(call(t(3, 4), t(3, 4, low=0.1, high=0.9), t(3, 4, low=0.0, high=1.0)),))
def binary_values_backward(g, x, target):
    return g * (x - target) / maximum((1 - x) * x, 1e-12)


@composition("mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", method=False, function=False,
             autocast="float32", samples=(call(t(3, 4), t(3, 4)), call(t(3, 4), t(3, 4), 0), call(t(3, 4), t(3, 4), 2)))
def mse_loss(x, target, reduction):
    d = x - target
    return d * d if reduction == 0 else sum(d * d) if reduction == 2 else mean(d * d)


__all__ = ["per_row", "promotion", "rows"]
