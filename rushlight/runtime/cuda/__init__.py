"""The CUDA device's runtime: opening it, the vendor's libraries, precompiled kernels."""

import sys
from collections.abc import Callable

on_open: list[Callable[[], None]] = []  # called once a device was opened


def opened() -> bool:
    """Whether this process has opened CUDA; loads nothing."""
    opening = sys.modules.get(f"{__name__}.opening")
    return opening is not None and opening.opened
