"""Graph -> the same graph in fewer, simpler operators."""
from .pipeline import canonicalise, decompose
from .vocabulary import CORE_ATEN, vocabulary
