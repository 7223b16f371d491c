"""Helpers that scripts take from PyTorch's module of this name."""

from .discrete import clamp_probs, logits_to_probs, probs_to_logits
from .distribution import broadcast_all, lazy_property

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits"]
