"""The first use of a CUDA device in a process: driver, libraries, kernels."""

from __future__ import annotations

import atexit

from rushlight import _core
from rushlight.errors import OutOfMemoryError

from . import kernels, libraries, on_open

opened = False


def available() -> tuple[bool, str]:
    """Whether a CUDA device can be used, and if not, why. Opens the driver, makes no context."""
    return _core.cuda_available()


def open_cuda() -> None:
    """RuntimeError, in one sentence, where there is no driver, an old one, or no GPU."""
    global opened
    if opened:
        return
    _core.cuda_open()
    _core.set_type("OutOfMemoryError", OutOfMemoryError)
    # While the vendor's libraries are there: what ends first at exit is what was loaded last.
    atexit.register(_core.cuda_end)
    libraries.look()
    _core.cuda_set_finder(kernels.find)
    opened = True
    for hook in on_open:
        hook()
