"""The functional API: what the modules compute, as functions of tensors.

Each function takes PyTorch's arguments in PyTorch's order and is an operator itself or a few
operators; those that have no operator of their own yet say so by their body. Losses take
``reduction`` 'none' (one value an element or row), 'mean' or 'sum'.
"""

import math
import warnings

from rushlight import eager

Tensor = eager.Tensor
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}

# Operators whose signature is PyTorch's: the native objects themselves.
gelu, sigmoid, tanh = eager.gelu, eager.sigmoid, eager.tanh  # type: ignore[attr-defined]
linear = eager.linear  # type: ignore[attr-defined]


# ---- shared by several functions


def _reduction(reduction, size_average=None, reduce=None):
    """'none', 'mean' or 'sum'; the two old flags win when given."""
    if size_average is not None or reduce is not None:
        average = True if size_average is None else size_average
        keep = reduce is not None and not reduce
        reduction = "none" if keep else "mean" if average else "sum"
        warnings.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead.",
            stacklevel=3,
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss, reduction):
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _softmax_dim(name, ndim, dim):
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _written_over(input, function):
    """function(input), stored in ``input``. What the derivative of ``function`` needs is kept
    apart from the write.
    """
    keeps = eager.is_grad_enabled() and input.requires_grad
    return input.copy_(function(input.clone() if keeps else input))


def _warn_of_broadcast(input, target):
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely "
            "lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )


# ---- activations: one value an element


def relu(input, inplace=False):
    return input.relu_() if inplace else eager.relu(input)


def relu6(input, inplace=False):
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")

    def clamped(x):
        return eager.where(x > max_val, max_val, eager.where(x < min_val, min_val, x))

    return _written_over(input, clamped) if inplace else clamped(input)


def silu(input, inplace=False):
    """x * sigmoid(x)."""
    return _written_over(input, eager.silu) if inplace else eager.silu(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    def body(x):
        return eager.where(x > 0, x, x * negative_slope)

    return _written_over(input, body) if inplace else body(input)


def elu(input, alpha=1.0, inplace=False):
    def body(x):
        return eager.where(x > 0, x, (eager.exp(eager.where(x > 0, 0.0, x)) - 1) * alpha)

    return _written_over(input, body) if inplace else body(input)


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; the line itself where beta x > threshold."""
    scaled = input * beta
    linear_part = scaled > threshold
    return eager.where(
        linear_part, input, eager.log(1 + eager.exp(eager.where(linear_part, 0.0, scaled))) / beta
    )


def logsigmoid(input):
    """-log(1 + exp(-x)), stable for both signs."""
    return eager.where(input < 0, input, 0.0) - eager.log(1 + eager.exp(-eager.abs(input)))


# ---- along rows


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return eager.softmax(input, _softmax_dim("softmax", input.dim(), dim), dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return eager.softmax(-input, _softmax_dim("softmin", input.dim(), dim), dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return eager.log_softmax(input, _softmax_dim("log_softmax", input.dim(), dim), dtype=dtype)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return eager.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last dims; half types are computed in float32."""
    dims = tuple(range(-len(normalized_shape), 0))
    if tuple(input.shape[len(input.shape) - len(dims) :]) != tuple(normalized_shape):
        raise RuntimeError(
            f"[rms_norm] expected input with shape [*, {', '.join(map(str, normalized_shape))}], "
            f"got {input.shape}"
        )
    wide = input if input.dtype == eager.float64 else input.to(eager.float32)
    if eps is None:
        eps = _EPSILON["float64" if wide.dtype == eager.float64 else "float32"]
    out = (wide * eager.rsqrt((wide * wide).mean(dims, keepdim=True) + eps)).to(input.dtype)
    return out if weight is None else out * weight


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """x / max(|x|_p, eps) along ``dim``."""
    if p == 2:  # cut off before the root, whose slope at 0 is infinite
        squares = (input * input).sum(dim, keepdim=True)
        norm = eager.sqrt(eager.where(squares < eps * eps, eps * eps, squares))
    else:
        norm = (eager.abs(input) ** p).sum(dim, keepdim=True) ** (1 / p)
        norm = eager.where(norm < eps, eps, norm)
    return eager.div(input, norm) if out is None else eager.div(input, norm, out=out)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """sum(x1 x2) / (max(|x1|, eps) max(|x2|, eps)) along ``dim``; shapes broadcast."""
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dim."""
    return (eager.abs(x1 - x2 + eps) ** p).sum(-1, keepdim=keepdim) ** (1 / p)


# ---- ids


def embedding(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    """weight[input]: rows of a (rows, columns) table for integer ids of any shape."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError(
            "[embedding] max_norm, scale_grad_by_freq and sparse are not supported"
        )
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.shape[0]
        if padding_idx >= rows or padding_idx < -rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    return eager.embedding(weight, input, padding_idx)


def one_hot(tensor, num_classes=-1):
    """int64 ids of any shape -> int64 zeros and ones, shape ids.shape + (classes,)."""
    if num_classes == -1:
        num_classes = int(tensor.amax().item()) + 1
    elif tensor.numel() and int(tensor.amax().item()) >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    if tensor.numel() and int((-tensor).amax().item()) > 0:
        raise RuntimeError("Class values must be non-negative.")
    return (tensor.unsqueeze(-1) == eager.arange(num_classes, device=tensor.device)).to(eager.int64)


# ---- chance


def dropout(input, p=0.5, training=True, inplace=False):
    """While training: zero with probability p, else x / (1 - p). ValueError unless 0 <= p <= 1."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    return (
        _written_over(input, lambda x: eager.dropout(x, p, True))
        if inplace
        else eager.dropout(input, p, True)
    )


# ---- attention


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """softmax(query key^T * scale + mask) value; query (..., T, E), key (..., S, E), value (...,
    S, V).

    attn_mask: broadcast to (..., T, S); bool (True: look) or added to the scores. is_causal:
    position t sees keys 0 to t; RuntimeError with a mask. scale: 1 / sqrt(E). enable_gqa: each
    head of key and value serves several of query. dropout_p is always applied: pass 0.0 when not
    training.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )
    if enable_gqa:
        key, value = (_repeated_heads(x, query.shape[-3]) for x in (key, value))
    if dropout_p == 0.0:
        return eager.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        rows, columns = (eager.arange(n, device=query.device) for n in scores.shape[-2:])
        attn_mask = rows.unsqueeze(1) >= columns
    if attn_mask is not None:
        added = attn_mask.is_floating_point()
        scores = scores + attn_mask if added else eager.where(attn_mask, scores, -math.inf)
    return eager.dropout(eager.softmax(scores, -1), dropout_p, True) @ value


def _repeated_heads(x, heads):
    """x (..., h, S, E) -> (..., heads, S, E): each head stands for heads / h neighbours."""
    *batch, own, length, width = x.shape
    if heads % own:
        raise RuntimeError(
            f"[scaled_dot_product_attention] enable_gqa: {heads} heads of query are no multiple of "
            f"{own} heads of key and value"
        )
    x = x.unsqueeze(-3).expand((*batch, own, heads // own, length, width))
    return x.reshape((*batch, heads, length, width))


# ---- losses


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    reduction = _reduction(reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    if weight is not None:
        d = input - target
        loss = d * d * weight
        return (
            loss.sum() / weight.expand(loss.shape).sum()
            if reduction == "mean"
            else _reduced(loss, reduction)
        )
    return eager.mse_loss(input, target, reduction=_REDUCTIONS[reduction])


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    reduction = _reduction(reduction, size_average, reduce)
    _warn_of_broadcast(input, target)
    return _reduced(eager.abs(input - target), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0):
    """d^2 / 2 where |d| < delta, else delta (|d| - delta / 2)."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    reduction = _reduction(reduction)
    _warn_of_broadcast(input, target)
    d = eager.abs(input - target)
    return _reduced(eager.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    reduction = _reduction(reduction, size_average, reduce)
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_broadcast(input, target)
    d = eager.abs(input - target)
    return _reduced(eager.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta), reduction)


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """-(pos_weight t log s(x) + (1 - t) log s(-x)) with s the sigmoid, from logits."""
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    positive = target if pos_weight is None else target * pos_weight
    loss = -(positive * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return _reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean"
):
    """-(t log x + (1 - t) log(1 - x)) for probabilities x; a logarithm is cut off at -100."""
    reduction = _reduction(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    floor = eager.full((), -100.0, dtype=input.dtype, device=input.device)
    loss = -(
        target * eager.maximum(eager.log(input), floor)
        + (1 - target) * eager.maximum(eager.log(1 - input), floor)
    )
    return _reduced(loss if weight is None else loss * weight, reduction)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log target - input); input holds logarithms. 'batchmean' divides the sum by input's
    first size.
    """
    batchmean = reduction == "batchmean"
    reduction = _reduction("sum" if batchmean else reduction, size_average, reduce)
    if log_target:
        loss = eager.exp(target) * (target - input)
    else:
        positive = target > 0
        loss = eager.where(
            positive, target * (eager.log(eager.where(positive, target, 1.0)) - input), 0.0 * input
        )
    loss = _reduced(loss, reduction)
    return loss / input.shape[0] if batchmean else loss


def _check_classes(input, target):
    """Class scores (C), (N, C) or (N, C, d...) with class ids (), (N) or (N, d...). Returns the
    class dim.
    """
    dim = 0 if input.dim() == 1 else 1
    if input.dim() == 0 or target.dim() not in (0, input.dim() - 1):
        raise ValueError(
            f"Expected input batch_size ({input.shape[0] if input.dim() else 0}) to match target "
            "batch_size "
            f"({target.shape[0] if target.dim() else 0})."
        )
    if input.dim() > 1 and target.dim() and input.shape[0] != target.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
            f"({target.shape[0]})."
        )
    return dim


def nll_loss(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):
    """-weight[t] input[t] for log-probabilities and class ids; rows of ``ignore_index`` count as
    nothing, 'mean' divides by the sum of the weights used.
    """
    reduction = _reduction(reduction, size_average, reduce)
    dim = _check_classes(input, target)
    ids = target.unsqueeze(dim)
    classes = eager.arange(input.shape[dim], device=input.device).view(
        (-1,) + (1,) * (input.dim() - 1 - dim)
    )
    chosen = (ids == classes).masked_fill(ids == ignore_index, False)
    hits = eager.where(target == ignore_index, 1, chosen.to(eager.int64).sum(dim))
    if hits.numel() and hits.amin().item() == 0:
        names = (ignore_index, *range(input.shape[dim]))
        bad = next(name for name in target.reshape(-1).tolist() if name not in names)
        raise IndexError(f"Target {bad} is out of bounds.")
    weight = None if weight is None else weight.view(classes.shape)
    loss = eager.where(chosen, -input if weight is None else -input * weight, 0.0).sum(dim)
    if reduction != "mean":
        return _reduced(loss, reduction)
    used = chosen.to(input.dtype)
    return loss.sum() / (used if weight is None else used * weight).sum()


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
    probabilities.
    """
    reduction = _reduction(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.is_floating_point() and target.shape == input.shape:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    dim = _check_classes(input, target)
    if label_smoothing == 0.0 and weight is None:
        return eager.cross_entropy_loss(input, target, _REDUCTIONS[reduction], ignore_index)
    logs = eager.log_softmax(input, dim)
    hard = nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if label_smoothing == 0.0:
        return hard
    shape = (-1,) + (1,) * (input.dim() - 1 - dim)
    smooth = (
        -(logs if weight is None else logs * weight.view(shape))
        .sum(dim)
        .masked_fill(target == ignore_index, 0.0)
    )
    if reduction == "mean":
        used = nll_loss(
            -eager.ones(input.shape, dtype=input.dtype, device=input.device),
            target,
            weight,
            ignore_index=ignore_index,
            reduction="sum",
        )
        smooth = smooth.sum() / used
    else:
        smooth = _reduced(smooth, reduction)
    return (1 - label_smoothing) * hard + label_smoothing / input.shape[dim] * smooth


def _soft_cross_entropy(input, target, weight, reduction, label_smoothing):
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    logs = eager.log_softmax(input, dim)
    if weight is not None:
        logs = logs * weight.view((-1,) + (1,) * (input.dim() - 1 - dim))
    loss = -(logs * target).sum(dim)
    return (
        loss.sum() / max(1, math.prod(loss.shape))
        if reduction == "mean"
        else _reduced(loss, reduction)
    )
