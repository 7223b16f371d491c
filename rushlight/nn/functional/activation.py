"""Activations: one value an element, or along rows. ``inplace`` writes over the input."""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional.shared import _softmax_dim, floats, kernel

# Operators whose signature is PyTorch's: the native objects themselves.
gelu, sigmoid, tanh = kernel("gelu"), kernel("sigmoid"), kernel("tanh")
logsigmoid, softsign, tanhshrink = kernel("log_sigmoid"), kernel("softsign"), kernel("tanhshrink")

_relu, _relu6, _silu, _mish = kernel("relu"), kernel("relu6"), kernel("silu"), kernel("mish")
_hardtanh, _hardsigmoid, _hardswish = (
    kernel("hardtanh"),
    kernel("hardsigmoid"),
    kernel("hardswish"),
)
_leaky_relu, _elu, _selu, _celu = (
    kernel("leaky_relu"),
    kernel("elu"),
    kernel("selu"),
    kernel("celu"),
)
_threshold, _hardshrink, _softshrink = (
    kernel("threshold"),
    kernel("hardshrink"),
    kernel("softshrink"),
)
_softplus, _glu, _prelu = kernel("softplus"), kernel("glu"), kernel("prelu")


def relu(input, inplace=False):
    return _relu.inplace(input) if inplace else _relu(input)


def relu6(input, inplace=False):
    return _relu6.inplace(input) if inplace else _relu6(input)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    if min_val > max_val:
        raise ValueError("[hardtanh] min_val is above max_val")
    return (_hardtanh.inplace if inplace else _hardtanh)(input, min_val, max_val)


def hardsigmoid(input, inplace=False):
    """clamp(x / 6 + 1 / 2, 0, 1)."""
    return _hardsigmoid.inplace(input) if inplace else _hardsigmoid(input)


def hardswish(input, inplace=False):
    """x * hardsigmoid(x)."""
    return _hardswish.inplace(input) if inplace else _hardswish(input)


def silu(input, inplace=False):
    """x * sigmoid(x)."""
    return _silu.inplace(input) if inplace else _silu(input)


def mish(input, inplace=False):
    """x * tanh(softplus(x))."""
    return _mish.inplace(input) if inplace else _mish(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return (_leaky_relu.inplace if inplace else _leaky_relu)(input, negative_slope)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """leaky_relu with a slope drawn from U[lower, upper] for each element while training, else
    their mean.
    """
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = eager.empty_like(input.detach()).uniform_(lower, upper)
    slopes = eager.where(input.detach() <= 0, slopes, 1.0)
    return input.mul_(slopes) if inplace else input * slopes


def elu(input, alpha=1.0, inplace=False):
    return (_elu.inplace if inplace else _elu)(input, alpha)


def selu(input, inplace=False):
    return _selu.inplace(input) if inplace else _selu(input)


def celu(input, alpha=1.0, inplace=False):
    return (_celu.inplace if inplace else _celu)(input, alpha)


def threshold(input, threshold, value, inplace=False):
    """x where x > threshold, else value."""
    return (_threshold.inplace if inplace else _threshold)(input, threshold, value)


def hardshrink(input, lambd=0.5):
    return _hardshrink(input, lambd)


def softshrink(input, lambd=0.5):
    return _softshrink(input, lambd)


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; the line itself where beta x > threshold."""
    return _softplus(input, beta, threshold)


def glu(input, dim=-1):
    """The first half of ``dim`` times the sigmoid of the second."""
    if input.dim() == 0:
        raise RuntimeError("[glu] a scalar has no two halves")
    return _glu(input, dim)


def prelu(input, weight):
    """leaky_relu with slopes that are learnt: one, or one a channel (dim 1)."""
    return _prelu(input, weight)


def relu_(input):
    return _relu.inplace(input)


def _in_place(function, name):
    def over(input, *args, **kwargs):
        return function(input, *args, inplace=True, **kwargs)

    over.__name__, over.__doc__ = name, f"In-place version of {function.__name__}."
    return over


leaky_relu_, elu_, selu_, celu_, threshold_, hardtanh_, rrelu_ = (
    _in_place(f, f.__name__ + "_")
    for f in (leaky_relu, elu, selu, celu, threshold, hardtanh, rrelu)
)


# ---- along rows


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return eager.softmax(input, _softmax_dim("softmax", input.dim(), dim), dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return eager.softmax(-input, _softmax_dim("softmin", input.dim(), dim), dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return eager.log_softmax(input, _softmax_dim("log_softmax", input.dim(), dim), dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """softmax((logits + noise) / tau), noise from the Gumbel distribution (Jang et al., 2017).

    hard: the largest becomes 1, the others 0; the gradient is that of the soft values.
    """
    floats("gumbel_softmax", logits)
    unit = eager.rand(logits.shape, dtype=eager.float64, device=place(logits))
    noise = -(-(unit * (1 - 2**-52) + 2**-53).log()).log()
    soft = eager.softmax((logits + noise.to(logits.dtype)) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    at = eager.arange(soft.shape[dim], device=place(soft)).view(
        [-1 if d == dim % soft.dim() else 1 for d in range(soft.dim())]
    )
    return (index == at).to(soft.dtype) - soft.detach() + soft
