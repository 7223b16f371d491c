"""Limits on gradients: by the norm of all of them together, or value by value.

They take parameters (an iterable or one tensor) whose ``grad`` may be None, and change the
gradients in place.
"""

import math
import warnings

from rushlight import eager
from rushlight.ops import TABLE

_square_sum = TABLE["square_sum"].native


def _gradients(parameters):
    parameters = [parameters] if isinstance(parameters, eager.Tensor) else parameters
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all elements of all tensors, as a 0-dim tensor.

    RuntimeError if error_if_nonfinite and it is infinite or NaN.
    """
    tensors = [tensors] if isinstance(tensors, eager.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return eager.tensor(0.0)
    with eager.no_grad():
        if norm_type == math.inf:
            parts = [eager.abs(tensor).amax() for tensor in tensors]
            total = eager.stack(parts).amax()
        elif norm_type == 2.0:
            total = eager.stack([_square_sum(tensor) for tensor in tensors]).sum().sqrt()
        else:
            parts = [(eager.abs(tensor) ** norm_type).sum() for tensor in tensors]
            total = eager.stack(parts).sum() ** (1 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"[clip_grad_norm_] the {norm_type}-norm of the gradients is non-finite, so they "
            "cannot be scaled by it: error_if_nonfinite=False scales them all the same"
        )
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales gradients by max_norm / total_norm where that is below 1."""
    with eager.no_grad():
        scale = float(max_norm) / (total_norm + 1e-6)
        scale = eager.where(scale > 1.0, 1.0, scale)
        for gradient in _gradients(parameters):
            gradient.mul_(scale)


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients so that their common norm is at most max_norm; returns the norm
    before.
    """
    parameters = [parameters] if isinstance(parameters, eager.Tensor) else list(parameters)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """clip_grad_norm_ under its name of the past, which warns."""
    warnings.warn(
        "[clip_grad_norm] an older name: use nn.utils.clip_grad_norm_",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Brings every gradient element into [-clip_value, clip_value]."""
    limit = float(clip_value)
    with eager.no_grad():
        for g in _gradients(parameters):
            g.clamp_(-limit, limit)
