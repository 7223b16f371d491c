"""`rushlight.autograd`: grad, backward, Function and the grad modes, under PyTorch's names."""

from .eager.functions import Function, backward, grad
from .eager.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from .eager.saved import saved_tensors_hooks


class graph:
    """`autograd.graph`: what happens to saved tensors."""

    saved_tensors_hooks = saved_tensors_hooks


__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "graph",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
