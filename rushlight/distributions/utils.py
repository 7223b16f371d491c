"""Helpers that scripts take from PyTorch's module of this name."""

from rushlight import eager

from .discrete import clamp_probs, logits_to_probs, probs_to_logits
from .distribution import broadcast_all, lazy_property
from .transforms import sum_rightmost as _sum_rightmost  # noqa: F401

euler_constant = 0.57721566490153286060

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits"]


def _standard_normal(shape, dtype, device):
    return eager.randn(tuple(shape), dtype=dtype, device=device)
