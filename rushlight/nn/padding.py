"""Padding of the last one, two or three dims. ``padding``: one number, or both ends of each dim,
the last dim first; negative ends cut off."""

from rushlight.nn import functional as F
from rushlight.nn.module import Module


class _Pad(Module):
    _dims = 0
    _mode = "constant"

    def __init__(self, padding):
        super().__init__()
        ends = 2 * self._dims
        self.padding = (padding,) * ends if isinstance(padding, int) else tuple(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """The last dim with ``value`` around it."""

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """The last two dims with ``value`` around them."""

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """The last three dims with ``value`` around them."""

    _dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """The last dim with zeros around it."""

    _dims = 1


class ZeroPad2d(_ZeroPad):
    """The last two dims with zeros around them."""

    _dims = 2


class ZeroPad3d(_ZeroPad):
    """The last three dims with zeros around them."""

    _dims = 3


class ReflectionPad1d(_Pad):
    """The last dim continued by its mirror image, the edge not repeated."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two dims continued by their mirror images, edges not repeated."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The last three dims continued by their mirror images, edges not repeated."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The last dim continued by its outermost elements."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The last two dims continued by their outermost elements."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The last three dims continued by their outermost elements."""

    _dims, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The last dim continued by its other end."""

    _dims, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """The last two dims continued by their other ends."""

    _dims, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """The last three dims continued by their other ends."""

    _dims, _mode = 3, "circular"
