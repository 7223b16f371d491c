"""Losses of classes: scores or log-probabilities (C), (N, C) or (N, C, d...) against class ids, or
against probabilities of the same shape.
"""

import re

from rushlight import eager
from rushlight.eager.casting import casts
from rushlight.eager.sampling import place
from rushlight.nn.functional.activation import logsigmoid
from rushlight.nn.functional.shared import REDUCTIONS, _reduced, _reduction, kernel

_cross_entropy, _pick = kernel("cross_entropy_loss"), kernel("pick")


def _out_of_bounds(error):
    """PyTorch's text for a class id that is none."""
    found = re.search(r"index (-?\d+) is out of range", str(error))
    return IndexError(f"Target {found[1]} is out of bounds.") if found else error


def _check_classes(input, target):
    """Class scores (C), (N, C) or (N, C, d...) with class ids (), (N) or (N, d...). Returns the
    class dim.
    """
    dim = 0 if input.dim() == 1 else 1
    if input.dim() == 0 or target.dim() not in (0, input.dim() - 1):
        raise ValueError(
            f"[nll_loss] {input.shape[0] if input.dim() else 0} samples (batch_size) and "
            f"{target.shape[0] if target.dim() else 0} targets"
        )
    if input.dim() > 1 and target.dim() and input.shape[0] != target.shape[0]:
        raise ValueError(
            f"[nll_loss] {input.shape[0]} samples (batch_size) and {target.shape[0]} targets"
        )
    return dim


@casts("float32")
def nll_loss(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):
    """-weight[t] input[t] for log-probabilities and class ids; rows of ``ignore_index`` count as
    nothing, 'mean' divides by the sum of the weights used. IndexError for an id outside [0, C).
    """
    reduction = _reduction(reduction, size_average, reduce)
    dim = _check_classes(input, target)
    losses, used = _chosen(input, target, dim, weight, ignore_index)
    return losses.sum() / used() if reduction == "mean" else _reduced(losses, reduction)


def _chosen(input, target, dim, weight, ignore_index):
    """(losses of the target's shape, the sum of the weights used as a function)."""
    if target.dtype not in (eager.int64, eager.uint8):
        raise RuntimeError(f"[cross_entropy] targets are int64 or uint8, got {target.dtype}")
    ignored = target == ignore_index
    ids = eager.where(ignored, 0, target).long()
    try:
        chosen = _pick(input, dim, ids.unsqueeze(dim)).reshape(ids.shape)
    except IndexError as error:
        raise _out_of_bounds(error) from None
    if weight is None:
        return -chosen.masked_fill(ignored, 0.0), lambda: (~ignored).sum().to(input.dtype)
    if weight.dim() != 1 or weight.shape[0] != input.shape[dim]:
        raise RuntimeError(
            f"[nll_loss] weight gives one number a class, of {input.shape[dim]}, got shape "
            f"{list(weight.shape)}"
        )
    weights = eager.embedding(weight.unsqueeze(1), ids).squeeze(-1).masked_fill(ignored, 0.0)  # type: ignore[attr-defined]
    return -chosen.masked_fill(ignored, 0.0) * weights, weights.sum


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """Cross entropy between class scores and class ids, or class probabilities of input's shape.

    input: floating, (C), (N, C) or (N, C, d...). target: int64 ids in [0, C) (IndexError), or
    probabilities. weight: one a class. label_smoothing: so much of the target is spread evenly.
    """
    plain = weight is None and not label_smoothing and size_average is None and reduce is None
    if plain and reduction == "mean" and getattr(target, "dtype", None) is eager.int64:
        try:
            return _cross_entropy(input, target, 1, ignore_index)
        except (IndexError, RuntimeError):  # the checks below say what is wrong
            pass
    return _every_cross_entropy(
        input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
    )


@casts("float32")
def _every_cross_entropy(
    input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
):
    reduction = _reduction(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"[cross_entropy] label_smoothing lies in [0, 1], got {label_smoothing}")
    if target.is_floating_point() and target.shape == input.shape:
        if ignore_index >= 0:
            raise RuntimeError(
                "[cross_entropy] targets that are probabilities take no ignore_index: it is not "
                "supported there"
            )
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    dim = _check_classes(input, target)
    if label_smoothing == 0.0 and weight is None:
        try:
            return _cross_entropy(input, target, REDUCTIONS[reduction], ignore_index)
        except IndexError as error:
            raise _out_of_bounds(error) from None
    logs = eager.log_softmax(input, dim)
    hard, used = _chosen(logs, target, dim, weight, ignore_index)
    losses = hard
    if label_smoothing:
        shape = (-1,) + (1,) * (input.dim() - 1 - dim)
        smooth = -(logs if weight is None else logs * weight.view(shape)).sum(dim)
        smooth = smooth.masked_fill(target == ignore_index, 0.0)
        losses = (1 - label_smoothing) * hard + label_smoothing / input.shape[dim] * smooth
    return losses.sum() / used() if reduction == "mean" else _reduced(losses, reduction)


def _soft_cross_entropy(input, target, weight, reduction, label_smoothing):
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    logs = eager.log_softmax(input, dim)
    if weight is not None:
        logs = logs * weight.view((-1,) + (1,) * (input.dim() - 1 - dim))
    loss = -(logs * target).sum(dim)
    if reduction != "mean":
        return _reduced(loss, reduction)
    return loss.sum() / (input.numel() / classes if input.numel() else 0.0)


def multilabel_soft_margin_loss(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean"
):
    """The mean over classes (last dim) of -(t log s(x) + (1 - t) log s(-x)), s the sigmoid."""
    reduction = _reduction(reduction, size_average, reduce)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    loss = (loss if weight is None else loss * weight).mean(-1)
    return _reduced(loss, reduction)


@casts("float32")
def multi_margin_loss(
    input,
    target,
    p=1,
    margin=1.0,
    weight=None,
    size_average=None,
    reduce=None,
    reduction="mean",
):
    """The mean over classes i other than t of weight[t] max(0, margin - x[t] + x[i])^p, p 1 or 2;
    (N, C), (C) or one number. Without reduction the result is of the target's shape.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("[multi_margin_loss] p is 1 or 2")
    if weight is not None and weight.dim() != 1:
        raise ValueError("[multi_margin_loss] weight is a vector")
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    ids = target.reshape(-1) if input.dim() < 2 else target
    if rows.dim() != 2 or ids.dim() != 1 or ids.shape[0] != rows.shape[0]:
        raise RuntimeError(
            f"[multi_margin_loss] {rows.shape[0]} samples, and a target of {list(target.shape)}"
        )
    try:
        own = _pick(rows, 1, ids.unsqueeze(1))
    except IndexError:
        raise RuntimeError("[multi_margin_loss] a target is no class") from None
    z = (margin - own + rows).clamp(min=0)
    z = z if p == 1 else z * z
    if weight is not None:
        z = z * eager.embedding(weight.unsqueeze(1), ids)  # type: ignore[attr-defined]
    others = eager.arange(rows.shape[1], device=place(rows)) != ids.unsqueeze(1)
    loss = eager.where(others, z, 0.0).sum(1) / rows.shape[1]
    return _reduced(loss.reshape(target.shape), reduction)


@casts("float32")
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]), over the classes.

    target: int64 of input's shape, (N, C), (C) or one: labels first, the rest from a -1 on.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape or input.dim() > 2:
        raise RuntimeError(
            f"[multilabel_margin_loss] input {list(input.shape)}, target {list(target.shape)}: "
            "they have to be equal"
        )
    rows, ids = (x.reshape(1, -1) if input.dim() < 2 else x for x in (input, target))
    classes = rows.shape[1]
    if ids.numel() and not (ids.amin().item() >= -1 and ids.amax().item() < classes):
        raise RuntimeError("[multilabel_margin_loss] a target is no class")
    at = eager.arange(classes, device=place(input))
    ends = eager.where(ids < 0, at, classes).amin(1, keepdim=True)  # the first -1
    valid = at < ends
    hits = (ids.unsqueeze(2) == at) & valid.unsqueeze(2)  # (N, entry, class)
    labels = hits.to(eager.int64).amax(1)
    own = (hits.to(rows.dtype) * rows.unsqueeze(1)).sum(2)  # x of each entry
    z = (1 - own.unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    counted = valid.unsqueeze(2) & (labels == 0).unsqueeze(1)
    loss = eager.where(counted, z, 0.0).sum((1, 2)) / classes
    return _reduced(loss if input.dim() > 1 else loss.squeeze(0), reduction)
