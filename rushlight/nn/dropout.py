"""Dropout: while training, zeroes elements or whole channels with probability p and scales the
others by 1 / (1 - p).
"""

from rushlight.nn import functional as F
from rushlight.nn.module import Module


class _Dropout(Module):
    """p: probability of zero, 0 to 1 (ValueError). inplace: write over the input. In eval mode it
    returns its input.
    """

    function = None

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"[{type(self).__name__}] a probability lies between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input):
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Elements."""

    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Channels of (N, C, L) or (C, L)."""

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Channels of (N, C, H, W)."""

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Channels of (N, C, D, H, W) or (C, D, H, W)."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Elements, so that mean and variance of SELU networks stay (Klambauer et al., 2017)."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Whole channels, as AlphaDropout."""

    function = staticmethod(F.feature_alpha_dropout)
