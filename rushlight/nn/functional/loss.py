"""Losses that compare element by element. ``reduction``: 'none' (one value an element), 'mean' or
'sum'.
"""

import math

from rushlight import eager
from rushlight.eager.casting import casts
from rushlight.nn.functional.normalization import pairwise_distance
from rushlight.nn.functional.shared import (
    REDUCTIONS,
    _reduced,
    _reduction,
    _warn_of_broadcast,
    floats,
    kernel,
)

_mse, _huber, _smooth_l1 = kernel("mse_loss"), kernel("huber_values"), kernel("smooth_l1_values")
_logits, _weighted_logits = kernel("logits_values"), kernel("weighted_logits_values")
_binary, _softplus, _log_sigmoid = (
    kernel("binary_values"),
    kernel("softplus"),
    kernel("log_sigmoid"),
)


def _weighted(loss, weight, reduction):
    """Losses times weights; their mean is over the sum of the weights."""
    if weight is None:
        return _reduced(loss, reduction)
    if weight.shape != loss.shape:
        raise ValueError("[loss] weight has another shape than the input")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


@casts("float32")
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target)^2."""
    reduction = _reduction(reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    if weight is None:
        return _mse(input, target, reduction=REDUCTIONS[reduction])
    return _weighted(_mse(input, target, reduction=0), weight, reduction)


@casts("float32")
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|."""
    reduction = _reduction(reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    return _weighted(eager.abs(input - target), weight, reduction)


@casts("float32")
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """d^2 / 2 where |d| < delta, else delta (|d| - delta / 2)."""
    if delta <= 0:
        raise RuntimeError("[huber_loss] delta is positive")
    reduction = _reduction(reduction)
    _warn_of_broadcast(input, target)
    loss = _huber(input, target, delta)
    if weight is not None:
        if weight.shape != input.shape:
            raise ValueError(
                f"[huber_loss] weight has shape {list(weight.shape)}, the input "
                f"{list(input.shape)}: they have to be equal"
            )
        loss = loss * weight  # and the mean is over the elements, unlike that of mse_loss
    return _reduced(loss, reduction)


@casts("float32")
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""
    if beta < 0:
        raise RuntimeError("[smooth_l1_loss] beta is not negative")
    reduction = _reduction(reduction, size_average, reduce)
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_broadcast(input, target)
    return _reduced(_smooth_l1(input, target, beta), reduction)


@casts("float32")
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """-(pos_weight t log s(x) + (1 - t) log s(-x)) with s the sigmoid, from logits."""
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"[binary_cross_entropy_with_logits] the target has shape {list(target.shape)}, the "
            f"input {list(input.shape)}: they have to be equal"
        )
    if pos_weight is None:
        loss = _logits(input, target)
    else:
        loss = _weighted_logits(input, target, pos_weight)
    return _reduced(loss if weight is None else loss * weight, reduction)


@casts("float32")
def binary_cross_entropy(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean"
):
    """-(t log x + (1 - t) log(1 - x)) for probabilities x; a logarithm is cut off at -100.

    RuntimeError for an x outside [0, 1].
    """
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"[binary_cross_entropy] the target has shape {list(target.shape)}, the input "
            f"{list(input.shape)}: they have to be equal"
        )
    if isinstance(input, eager.Tensor) and input.numel():
        plain = input.detach()
        if not (plain.amin().item() >= 0 and plain.amax().item() <= 1):
            raise RuntimeError("[binary_cross_entropy] the input holds probabilities, from 0 to 1")
    loss = _binary(input, target)
    return _reduced(loss if weight is None else loss * weight, reduction)


@casts("float32")
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log target - input); input holds logarithms, with log_target target too. 'batchmean'
    divides the sum by input's first size.
    """
    floats("kl_div", input), floats("kl_div", target)
    batchmean = reduction == "batchmean"
    reduction = _reduction("sum" if batchmean else reduction, size_average, reduce)
    if log_target:
        loss = eager.exp(target) * (target - input)
    else:
        loss = eager.xlogy(target, target) - target * input  # type: ignore[attr-defined]
    loss = _reduced(loss, reduction)
    return loss / input.shape[0] if batchmean and input.dim() else loss


@casts("float32")
def poisson_nll_loss(
    input,
    target,
    log_input=True,
    full=False,
    size_average=None,
    eps=1e-8,
    reduce=None,
    reduction="mean",
):
    """exp(x) - t x or, without log_input, x - t log(x + eps): minus the log-likelihood of counts t.

    full: with Stirling's approximation of log t! where t > 1.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if log_input:
        loss = eager.exp(input) - target * input
    else:
        loss = input - target * eager.log(input + eps)
    if full:
        many = target > 1
        count = eager.where(many, target, 1)
        stirling = count * eager.log(count) - count + 0.5 * eager.log(2 * math.pi * count)
        loss = loss + eager.where(many, stirling, 0)
    return _reduced(loss, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log var + (x - t)^2 / var) / 2, var at least eps. var: a number, or a tensor of input's
    shape, or with a last size of 1, or without the last dim.
    """
    if isinstance(var, (int, float)):
        var = eager.full_like(input, float(var))
    elif var.shape != input.shape:
        shape, own = tuple(input.shape), tuple(var.shape)
        if shape[:-1] == own:
            var = var.unsqueeze(-1)
        elif not (own and shape[:-1] == own[:-1] and own[-1] == 1):
            raise ValueError(
                "[gaussian_nll_loss] var has neither the input's shape nor one that goes with it"
            )
    if reduction not in REDUCTIONS:
        raise ValueError(f"[gaussian_nll_loss] no reduction {reduction!r}")
    floats("gaussian_nll_loss", var)
    if var.numel() and var.detach().amin().item() < 0:
        raise ValueError("[gaussian_nll_loss] a variance is negative")
    var = var + (var.detach().clamp(min=eps) - var.detach())  # the cut has no slope of its own
    d = input - target
    loss = 0.5 * (eager.log(var) + d * d / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


@casts("float32")
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-t x)) for targets of 1 and -1."""
    reduction = _reduction(reduction, size_average, reduce)
    return _reduced(_softplus(-target * input), reduction)


@casts("float32")
def hinge_embedding_loss(
    input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"
):
    """x where the target is 1, max(0, margin - x) where it is -1."""
    reduction = _reduction(reduction, size_average, reduce)
    gap = margin - input
    if not input.dtype.is_floating_point:  # in input's dtype, margin cut off
        gap = gap.to(input.dtype)
    far = eager.where(target == 1, 0, gap.clamp(min=0))
    near = eager.where(target == -1, 0, input)
    return _reduced(far + near, reduction)


@casts("float32")
def margin_ranking_loss(
    input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """max(0, -t (x1 - x2) + margin)."""
    reduction = _reduction(reduction, size_average, reduce)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            f"[margin_ranking_loss] the operands have one rank, got {list(input1.shape)}, "
            f"{list(input2.shape)} and target {list(target.shape)}"
        )
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@casts("float32")
def cosine_embedding_loss(
    input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """1 - cos(x1, x2) where the target is 1, max(0, cos - margin) where it is -1; (N, D) or (D)."""
    reduction = _reduction(reduction, size_average, reduce)
    if target.dim() not in (0, 1):
        raise RuntimeError("[cosine_embedding_loss] the target is one number or a vector")
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"[cosine_embedding_loss] a target of {target.dim()} dims goes with inputs of "
            f"{target.dim() + 1}, got {list(input1.shape)} and {list(input2.shape)}"
        )
    eps = 1e-12
    squares = ((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps)
    cosine = (input1 * input2).sum(-1) / eager.sqrt(squares)
    near = eager.where(target == 1, 1 - cosine, 0)
    far = eager.where(target == -1, (cosine - margin).clamp(min=0), 0)
    return _reduced(near + far, reduction)


@casts("float32")
def triplet_margin_loss(
    anchor,
    positive,
    negative,
    margin=1.0,
    p=2,
    eps=1e-6,
    swap=False,
    size_average=None,
    reduce=None,
    reduction="mean",
):
    """max(0, margin + |a - p| - |a - n|); swap: the nearer of a and p to n counts."""
    reduction = _reduction(reduction, size_average, reduce)
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


def triplet_margin_with_distance_loss(
    anchor,
    positive,
    negative,
    *,
    distance_function=None,
    margin=1.0,
    swap=False,
    reduction="mean",
):
    """triplet_margin_loss with a distance of one's own: a function of two tensors."""
    if margin <= 0:
        raise ValueError(f"[triplet_margin_with_distance_loss] margin is positive, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "[triplet_margin_with_distance_loss] anchor, positive and negative have the same "
            f"number of dims, got {anchor.dim()}, {positive.dim()} and {negative.dim()}"
        )
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = eager.minimum(far, distance(positive, negative))  # type: ignore[attr-defined]
    return _reduced((margin + near - far).clamp(min=0), _reduction(reduction))
