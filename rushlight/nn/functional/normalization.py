"""Rows brought to a common scale, and distances between rows."""

import math

from rushlight import eager
from rushlight.dtypes import EPSILON
from rushlight.nn.functional.shared import floats, kernel, kind_of

_euclidean_norm = kernel("euclidean_norm")


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
    floats("rms_norm", input)
    wide = input if input.dtype == eager.float64 else input.to(eager.float32)
    if eps is None:
        eps = EPSILON["float64" if wide.dtype == eager.float64 else "float32"]
    out = (wide * eager.rsqrt((wide * wide).mean(dims, keepdim=True) + eps)).to(input.dtype)
    return out if weight is None else out * weight


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """x / max(|x|_p, eps) along ``dim``; the norm of halves is summed in float32."""
    half = floats("normalize", input).dtype in (eager.float16, eager.bfloat16)
    wide = input.to(eager.float32) if half else input
    wide = eager.abs(wide) if kind_of(input).startswith("complex") else wide
    if p == 2:  # cut off before the root, whose slope at 0 is infinite
        squares = (wide * wide).sum(dim, keepdim=True)
        norm = eager.sqrt(eager.where(squares < eps * eps, eps * eps, squares))
    else:
        norm = vector_norm(wide, p, dim, True)
        norm = eager.where(norm < eps, eps, norm)
    norm = norm.to(input.dtype) if half else norm
    return eager.div(input, norm) if out is None else eager.div(input, norm, out=out)


def vector_norm(input, p, dim, keepdim=False):
    """The p-norm along ``dim``; its gradient at zero is zero for p = 2."""
    if p == 2:
        return _euclidean_norm(input, dim, keepdim)
    size = eager.abs(input)
    if p == 1:
        return size.sum(dim, keepdim=keepdim)
    if p == math.inf:
        return size.amax(dim, keepdim=keepdim)
    if p == -math.inf:
        return size.amin(dim, keepdim=keepdim)
    if p == 0:
        return (input != 0).to(input.dtype).sum(dim, keepdim=keepdim)
    return (size**p).sum(dim, keepdim=keepdim) ** (1 / p)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """sum(x1 x2) / (max(|x1|, eps) max(|x2|, eps)) along ``dim``; shapes broadcast."""
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dim."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha mean of the squares in a window of ``size`` channels)^beta; (N, C, ...)."""
    if input.dim() < 3:
        raise ValueError(f"[local_response_norm] takes at least 3 dims, got {input.dim()}")
    if input.dtype is not eager.int64:
        floats("local_response_norm", input)
    if input.numel() == 0:
        return input
    total = channel_windows(input * input, size // 2, (size - 1) // 2)
    return input / (total * (alpha / size) + k) ** beta


def channel_windows(squares, before, after):
    """The sum over a window of channels, from ``before`` to ``after`` each; (N, C, ...)."""
    channels, total = squares.shape[1], None
    for shift in range(-before, after + 1):
        start, end = max(0, shift), min(channels, channels + shift)
        if start >= end:
            continue
        parts = [squares[:, start:end]]
        for missing, front in ((max(0, -shift), True), (max(0, shift), False)):
            if missing:
                blank = eager.zeros_like(squares[:, :missing])
                parts.insert(0 if front else len(parts), blank)
        term = parts[0] if len(parts) == 1 else eager.cat(parts, 1)
        total = term if total is None else total + term
    return total
