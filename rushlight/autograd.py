"""`rushlight.autograd`: grad, backward, Function and the grad modes, under PyTorch's names."""

from .eager.functions import Function, backward, grad
from .eager.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
