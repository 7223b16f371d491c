"""`rushlight.serialization`: saving and loading, under PyTorch's names."""

from .interop.archive import CheckpointError
from .interop.checkpoint import load, save
from .interop.safe_globals import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "CheckpointError",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]
