"""`rushlight.autograd`: grad, backward, Function and the grad modes, under PyTorch's names."""

from rushlight.eager import Tensor
from rushlight.eager.functions import Function, backward, grad
from rushlight.eager.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

Variable = Tensor  # PyTorch's name for a tensor with a gradient, of the past


def __getattr__(name):
    if name in ("anomaly_mode", "detect_anomaly", "set_detect_anomaly"):
        from rushlight.autograd import anomaly

        return anomaly if name == "anomaly_mode" else getattr(anomaly, name)
    if name in ("forward_ad", "function", "graph"):
        from importlib import import_module

        return import_module(f"rushlight.autograd.{name}")
    if name in ("functional", "gradcheck", "gradgradcheck"):
        from importlib import import_module

        module = "functional" if name == "functional" else "checking"
        found = import_module(f"rushlight.autograd.{module}")
        return found if name == "functional" else getattr(found, name)
    raise AttributeError(f"module 'rushlight.autograd' has no attribute {name!r}")


__all__ = [
    "Variable",
    "Function",
    "backward",
    "enable_grad",
    "grad",
    "graph",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
