"""Graph -> the same graph in fewer, simpler operators."""

from .opset import CORE_ATEN, vocabulary
from .pipeline import canonicalise, decompose, forget_gradients
