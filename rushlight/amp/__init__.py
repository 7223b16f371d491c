"""Automatic mixed precision: `autocast` chooses the precision of each operator, `GradScaler` keeps
small float16 gradients from vanishing.
"""

from rushlight.eager.casting import autocast, custom_bwd, custom_fwd, is_autocast_available

from .grad_scaler import GradScaler, OptState

__all__ = [
    "GradScaler",
    "OptState",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
]
