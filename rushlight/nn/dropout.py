"""Dropout: while training, zeroes elements with probability p and scales the others by 1/(1-p)."""

from rushlight.nn import functional as F
from rushlight.nn.module import Module


class Dropout(Module):
    """p: probability of zero, 0 to 1 (ValueError). inplace: write over the input. In eval mode it
    returns its input.
    """

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"
