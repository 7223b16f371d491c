"""Initialisers: each writes values into a given tensor in place, without history, and returns it.

Takes a Tensor of any floating dtype. Random ones draw from ``generator`` (None: the default one),
in program order.
"""

import math
import warnings

from rushlight import eager

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity, param=None):
    """The factor by which a layer's standard deviation makes up for the nonlinearity after it.

    param: the negative slope of 'leaky_relu' (0.01). ValueError for an unknown name.
    """
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        elif isinstance(param, bool) or not isinstance(param, (int, float)):
            raise ValueError(f"[init] negative_slope is a number, got {param!r}")
        return math.sqrt(2.0 / (1 + param**2))
    if nonlinearity not in _GAINS:
        raise ValueError(
            f"[init] Unsupported nonlinearity {nonlinearity}: nothing is known of its gain"
        )
    return _GAINS[nonlinearity]


def fans(tensor):
    """(fan in, fan out) of a weight (out, in, ...): inputs that an output sums over, and the
    reverse.

    ValueError for fewer than two dims.
    """
    if tensor.dim() < 2:
        raise ValueError("[init] a tensor of fewer than 2 dimensions has no fan in and fan out")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = fans  # the name that code written for PyTorch calls


def _fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"[init] Mode {mode} not supported: there are 'fan_in' and 'fan_out'")
    return fans(tensor)[mode == "fan_out"]


def _write(tensor, values):
    with eager.no_grad():
        return tensor.copy_(values)


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Values from U[a, b)."""
    with eager.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Values from N(mean, std^2)."""
    with eager.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Values from N(mean, std^2) cut to [a, b], by inversion of the distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "[trunc_normal_] the mean is more than 2 std outside [a, b]: few draws fall inside, "
            "and the values will not be distributed well",
            stacklevel=2,
        )
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2.0))) for bound in (a, b))
    with eager.no_grad():
        like = {"dtype": eager.float64, "device": tensor.device}
        unit = eager.rand(tensor.shape, generator=generator, **like)
        values = _inverse_erf(unit * (high - low) + low) * (std * math.sqrt(2.0)) + mean
        values = eager.where(values < a, a, eager.where(values > b, b, values))
        return tensor.copy_(values)


def _inverse_erf(y):
    """y: float64 in [-1, 1]. Winitzki's closed form (2008), then three Newton steps on erf."""
    limit = 1 - 2.0**-52
    y = eager.where(y > limit, limit, eager.where(y < -limit, -limit, y))
    log = eager.log(1 - y * y)
    half = 2 / (math.pi * 0.147) + log / 2
    x = eager.sqrt(eager.sqrt(half * half - log / 0.147) - half)
    x = eager.where(y < 0, -x, x)
    for _ in range(3):
        x = x - (eager.erf(x) - y) * (math.sqrt(math.pi) / 2) * eager.exp(x * x)
    return x


def constant_(tensor, val):
    with eager.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    return constant_(tensor, 1.0)


def zeros_(tensor):
    return constant_(tensor, 0.0)


def eye_(tensor):
    """The identity matrix, also for a 2-D tensor that is not square."""
    if tensor.dim() != 2:
        raise ValueError("[init] Only tensors with 2 dimensions, matrices, can be filled so")
    rows, columns = (eager.arange(size, device=tensor.device) for size in tensor.shape)
    return _write(tensor, (rows.unsqueeze(1) == columns).to(tensor.dtype))


def dirac_(tensor, groups=1):
    """A convolution weight (out, in, ...) that hands its input channels through."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("[dirac_] takes the weight of a convolution: 3 to 5 dims")
    if tensor.shape[0] % groups:
        raise ValueError("[dirac_] dim 0 is not divisible by groups")
    outputs = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    with eager.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(outputs, tensor.shape[1])):
                tensor[(group * outputs + channel, channel) + centre] = 1
    return tensor


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """U[-s, s] with s = gain sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """N(0, s^2) with s = gain sqrt(2 / (fan in + fan out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _is_empty(tensor):
    if 0 in tensor.shape:
        warnings.warn(
            "[init] a zero-element tensor is left as it is: zero-element means nothing to fill",
            stacklevel=3,
        )
        return True
    return False


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """U[-s, s] with s = gain sqrt(3 / fan) (He et al., 2015). a: negative slope of 'leaky_relu'."""
    if _is_empty(tensor):
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """N(0, s^2) with s = gain / sqrt(fan)."""
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor, gain=1, generator=None):
    """A (semi-)orthogonal matrix times gain; dims after the first count as one (Saxe et al.,
    2013).

    The rows (or columns, if fewer) of a normal matrix made orthonormal, which fixes the signs as a
    QR factorisation with a positive diagonal does.
    """
    if tensor.dim() < 2:
        raise ValueError("[orthogonal_] takes 2 or more dimensions")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    size = (rows, tensor.numel() // rows)
    normal = eager.randn(size, dtype=eager.float64, generator=generator)
    with eager.no_grad():
        q = _orthonormal(normal) if rows <= normal.shape[1] else _orthonormal(normal.t()).t()
        return _write(tensor, (q * gain).reshape(tensor.shape))


def _orthonormal(rows):
    """Each row [k, n], k <= n, against those before it: Gram and Schmidt, twice (enough)."""
    q = eager.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    for i in range(rows.shape[0]):
        row, before = rows[i], q[:i]
        for _ in range(2 if i else 0):
            row = row - before.t() @ (before @ row)
        q[i] = row / row.norm()
    return q


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """N(0, std^2) with the fraction ``sparsity`` of every column set to zero (Martens, 2010)."""
    if tensor.dim() != 2:
        raise ValueError("[init] Only tensors with 2 dimensions, matrices, can be filled so")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with eager.no_grad():
        keys = eager.rand((rows, columns), generator=generator, device=tensor.device)
        order = (keys.unsqueeze(0) < keys.unsqueeze(1)).to(eager.int64).sum(1)  # rank in its column
        return normal_(tensor, 0.0, std, generator).masked_fill_(order < zeros, 0.0)


def _without_underscore(function):
    """The name that `function` had before: it warns, and does the same."""
    name = function.__name__

    def older(*args, **kwargs):
        warnings.warn(
            f"`nn.init.{name[:-1]}` is the older name of `nn.init.{name}`",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    older.__name__ = older.__qualname__ = name[:-1]
    older.__doc__ = f"`{name}`, which is the name to use."
    return older


uniform, normal, constant, eye, dirac, xavier_uniform, xavier_normal = map(
    _without_underscore,
    (uniform_, normal_, constant_, eye_, dirac_, xavier_uniform_, xavier_normal_),
)
kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    _without_underscore, (kaiming_uniform_, kaiming_normal_, orthogonal_, sparse_)
)
