"""Activations as modules. Each takes a floating tensor and returns one of the same shape."""

import warnings

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn.init import constant_
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter


def _flags(**values):
    """'a=1, inplace=True': what activations show of themselves; inplace only when set."""
    return ", ".join(
        f"{name}={value}" for name, value in values.items() if name != "inplace" or value
    )


class ReLU(Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return F.relu(input, self.inplace)

    def extra_repr(self):
        return _flags(inplace=self.inplace)


def _warn_of_name(old, new):
    warnings.warn(
        f"[activation] `{old}` is the older name of `{new}`",
        FutureWarning,
        stacklevel=3,
    )


class Hardtanh(Module):
    """Values cut to [min_val, max_val]. min_value and max_value, names of the past, warn."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        if min_value is not None:
            _warn_of_name("min_value", "min_val")
            min_val = min_value
        if max_value is not None:
            _warn_of_name("max_value", "max_val")
            max_val = max_value
        if max_val <= min_val:
            raise AssertionError(
                f"[Hardtanh] max_val is above min_val, got {max_val} and {min_val}"
            )
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return _flags(min_val=self.min_val, max_val=self.max_val, inplace=self.inplace)


class ReLU6(Hardtanh):
    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return _flags(inplace=self.inplace)


class GELU(Module):
    """approximate: 'none' (by erf) or 'tanh'."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return F.silu(input, self.inplace)

    def extra_repr(self):
        return _flags(inplace=self.inplace)


class LeakyReLU(Module):
    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return _flags(negative_slope=self.negative_slope, inplace=self.inplace)


class ELU(Module):
    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _flags(alpha=self.alpha, inplace=self.inplace)


class Softplus(Module):
    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return _flags(beta=self.beta, threshold=self.threshold)


class Tanh(Module):
    def forward(self, input):
        return F.tanh(input)


class Sigmoid(Module):
    def forward(self, input):
        return F.sigmoid(input)


class LogSigmoid(Module):
    def forward(self, input):
        return F.logsigmoid(input)


class _AlongDim(Module):
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    def forward(self, input):
        return F.softmax(input, self.dim)


class Softmin(_AlongDim):
    def forward(self, input):
        return F.softmin(input, self.dim)


class LogSoftmax(_AlongDim):
    def forward(self, input):
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"[Softmax2d] takes (C, H, W) or (N, C, H, W), got {input.dim()} dims")
        return F.softmax(input, -3)


class Threshold(Module):
    """x where x > threshold, else value."""

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return _flags(threshold=self.threshold, value=self.value, inplace=self.inplace)


class RReLU(Module):
    """LeakyReLU with slopes drawn from U[lower, upper] while training, else their mean."""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return _flags(lower=self.lower, upper=self.upper, inplace=self.inplace)


class _InPlace(Module):
    """An activation of no option but ``inplace``."""

    function = None
    shown = True

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return type(self).function(input, self.inplace)

    def extra_repr(self):
        return _flags(inplace=self.inplace) if self.shown else ""


class Hardsigmoid(_InPlace):
    function, shown = staticmethod(F.hardsigmoid), False


class Hardswish(_InPlace):
    function, shown = staticmethod(F.hardswish), False


class Mish(_InPlace):
    function = staticmethod(F.mish)


class SELU(_InPlace):
    function = staticmethod(F.selu)


class CELU(Module):
    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return _flags(alpha=self.alpha, inplace=self.inplace)


class GLU(Module):
    """The first half of ``dim`` times the sigmoid of the second."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Hardshrink(Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class Softshrink(Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.softshrink(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


class Softsign(Module):
    def forward(self, input):
        return F.softsign(input)


class Tanhshrink(Module):
    def forward(self, input):
        return F.tanhshrink(input)


class PReLU(Module):
    """LeakyReLU whose slope is learnt: one, or one a channel (num_parameters)."""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(eager.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"
