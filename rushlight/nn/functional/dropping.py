"""Dropout: elements, or whole channels, replaced while training."""

import math

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional.shared import _written_over


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"[dropout] a probability lies between 0 and 1, got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    """While training: zero with probability p, else x / (1 - p). ValueError unless 0 <= p <= 1."""
    _check(p)
    if not training or p == 0.0:
        return input
    return (
        _written_over(input, lambda x: eager.dropout(x, p, True))
        if inplace
        else eager.dropout(input, p, True)
    )


def _channel_mask(input, p):
    """1 / (1 - p) or 0 for each (sample, channel), of as many dims as the input."""
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return eager.dropout(eager.ones(shape, dtype=input.dtype, device=place(input)), p, True)


def _channels(input, p, training, inplace):
    _check(p)
    if not training or p == 0.0 or input.numel() == 0:
        return input
    mask = _channel_mask(input, p)
    return input.mul_(mask) if inplace else input * mask


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, L) or (C, L)."""
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"[dropout1d] takes (C, L) or (N, C, L), whose channels it drops, got {input.dim()} "
            "dims"
        )
    if input.dim() == 2:
        out = _channels(input.unsqueeze(0), p, training, inplace)
        return input if inplace else out.squeeze(0)
    return _channels(input, p, training, inplace)


def _warn_of_dims(name, input, usual):
    import warnings

    if input.dim() not in usual:
        warnings.warn(
            f"[{name}] a {input.dim()}-D input has no channels for it to drop, which PyTorch will "
            "refuse: use dropout",
            stacklevel=3,
        )


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, H, W)."""
    _check(p)
    _warn_of_dims("dropout2d", input, (3, 4))
    return _channels(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    _warn_of_dims("dropout3d", input, (4, 5))
    if input.dim() == 4:
        return _channels(input.unsqueeze(0), p, training, False).squeeze(0)
    return _channels(input, p, training, inplace)


_ALPHA = 1.7580993408473766  # SELU's scale * alpha: what it tends to for -infinity


def _alpha(input, p, training, inplace, shape):
    """Dropped values become SELU's limit; then all are brought back to mean 0 and variance 1."""
    _check(p)
    if not training or p == 0.0 or input.numel() == 0:
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    ones = eager.ones(shape, dtype=input.dtype, device=place(input))
    kept = eager.dropout(ones, p, True) * (1 - p)
    scale, shift = kept * a, (kept - 1) * (_ALPHA * a) + _ALPHA * a * p
    return input.mul_(scale).add_(shift) if inplace else input * scale + shift


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of SELU networks (Klambauer et al., 2017)."""
    return _alpha(input, p, training, inplace, tuple(input.shape))


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels (dim 1)."""
    if input.dim() < 2:
        raise RuntimeError("[feature_alpha_dropout] takes at least 2 dimensions")
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return _alpha(input, p, training, inplace, shape)
