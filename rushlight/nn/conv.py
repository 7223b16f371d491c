"""Convolutions and transposed convolutions over one, two or three spatial dims.

Input is (N, C, ...) or (C, ...). ``kernel_size``, ``stride``, ``padding``, ``dilation``: one number
for all spatial dims, or one each. Weights start uniform in +-1/sqrt(fan in).
"""

import math

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _each(value, dims):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * dims


class _ConvNd(Module):
    """What all of them share: checked arguments, the parameters, the repr."""

    _dims = 0
    _function = None

    def _prepare(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        bias,
        padding_mode,
        device,
        dtype,
    ):
        dims = self._dims
        if groups <= 0:
            raise ValueError("[conv] groups is positive")
        if in_channels % groups:
            raise ValueError("[conv] the in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("[conv] the out_channels must be divisible by groups")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _each(kernel_size, dims)
        self.stride = _each(stride, dims)
        self.padding = padding if isinstance(padding, str) else _each(padding, dims)
        self.dilation = _each(dilation, dims)
        self.transposed = transposed
        self.output_padding = _each(output_padding, dims)
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"[conv] padding is 'same', 'valid' or numbers, got {padding!r}")
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError("[conv] padding='same' needs a stride of 1")
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"[conv] padding_mode is one of {set(PADDING_MODES)}, got {padding_mode!r}"
            )
        shape = (
            (in_channels, out_channels // groups)
            if transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(
            eager.empty((*shape, *self.kernel_size), device=device, dtype=dtype)
        )
        self.register_parameter(
            "bias",
            Parameter(eager.empty((out_channels,), device=device, dtype=dtype)) if bias else None,
        )
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        ones, zeros = (1,) * self._dims, (0,) * self._dims
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        for name, plain in (
            ("padding", zeros),
            ("dilation", ones),
            ("output_padding", zeros),
            ("groups", 1),
        ):
            if getattr(self, name) != plain:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._prepare(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _ends(self):
        """The padding as F.pad takes it: both ends of each dim, the last dim first."""
        ends = []
        for d in reversed(range(self._dims)):
            if self.padding == "same":
                total = self.dilation[d] * (self.kernel_size[d] - 1)
                ends += [total // 2, total - total // 2]
            else:
                ends += [0 if self.padding == "valid" else self.padding[d]] * 2
        return tuple(ends)

    def forward(self, input):
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._ends(), mode=self.padding_mode), 0
        return self._function(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """(N, C, L): each output channel the sum of the input channels of its group, correlated with
    weight (out, in / groups, kernel), plus bias.

    padding: a number, 'same' or 'valid'. padding_mode: 'zeros', 'reflect', 'replicate' or
    'circular'.
    """

    _dims = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """(N, C, H, W): as Conv1d, in two dims."""

    _dims = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """(N, C, D, H, W): as Conv1d, in three dims."""

    _dims = 3
    _function = staticmethod(F.conv3d)


class _ConvTranspose(_ConvNd):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__()
        if padding_mode != "zeros":
            raise ValueError(f"[{type(self).__name__}] padding_mode is 'zeros' here")
        self._prepare(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input, output_size=None):
        output_padding = (
            self.output_padding if output_size is None else self._reach(input, output_size)
        )
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )

    def _reach(self, input, output_size):
        """The output padding that gives `output_size`; ValueError where none does."""
        dims = self._dims
        wanted = tuple(output_size)
        if len(wanted) == input.dim() and len(wanted) > dims:
            wanted = wanted[-dims:]
        if len(wanted) != dims:
            raise ValueError(
                f"[ConvTranspose{dims}d] output_size has {dims} or {input.dim()} values for this "
                f"input, got {len(output_size)}"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-dims:], self.stride, self.padding, self.dilation, self.kernel_size
            )
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride)]
        if any(not low <= n <= high for n, low, high in zip(wanted, least, most)):
            raise ValueError(
                f"[conv_transpose] an output of {list(wanted)} cannot be: "
                f"{list(input.shape[-dims:])} gives from {least} to {most}"
            )
        return tuple(n - low for n, low in zip(wanted, least))


class ConvTranspose1d(_ConvTranspose):
    """(N, C, L): the transpose of Conv1d as a linear map; weight (in, out / groups, kernel).

    output_padding: how many elements longer the output is, where stride leaves a choice; or give
    ``forward`` an ``output_size``.
    """

    _dims = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """(N, C, H, W): as ConvTranspose1d, in two dims."""

    _dims = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """(N, C, D, H, W): as ConvTranspose1d, in three dims."""

    _dims = 3
    _function = staticmethod(F.conv_transpose3d)
