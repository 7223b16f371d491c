"""`rushlight.nn.attention`: MultiheadAttention, which kernels attention may use, and attention with
scores of one's own (`flex_attention`).
"""

from .kernels import SDPBackend, sdpa_kernel
from .multihead import MultiheadAttention, NonDynamicallyQuantizableLinear


def __getattr__(name):
    if name in ("bias", "flex_attention"):
        from importlib import import_module

        return import_module(f"rushlight.nn.attention.{name}")
    raise AttributeError(f"module 'rushlight.nn.attention' has no attribute {name!r}")


__all__ = ["MultiheadAttention", "NonDynamicallyQuantizableLinear", "SDPBackend", "sdpa_kernel"]
