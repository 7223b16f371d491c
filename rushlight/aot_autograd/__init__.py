"""Graph -> forward and backward graphs, ahead of time."""

from .pipeline import Pair, differentiate
