"""`rushlight.accelerator`: the device beside the CPU, whatever its kind, under PyTorch's names: a
GPU or none.
"""

from rushlight import cuda
from rushlight.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from rushlight.eager import device


def is_available():
    """Whether there is one that can be used."""
    return cuda.is_available()


def device_count():
    """How many: 0 where there is none."""
    return cuda.device_count()


def current_accelerator(check_available=False):
    """Its kind as a device without an index, or None. check_available changes nothing: only one
    that can be used counts.
    """
    return device("cuda") if is_available() else None


def _there():
    if not is_available():
        raise RuntimeError("[accelerator] no accelerator is available here")


def current_device_index():
    """The number of this thread's current one. RuntimeError where there is none."""
    _there()
    return cuda.current_device()


def set_device_index(device):
    """Which one is current; negative numbers change nothing."""
    _there()
    cuda.set_device(device)


def current_stream(device=None):
    _there()
    return cuda.current_stream(device)


def set_stream(stream):
    _there()
    cuda.set_stream(stream)


def synchronize(device=None):
    """Waits for all that is queued there."""
    _there()
    cuda.synchronize(device)


class device_index:  # noqa: N801
    """A context in which another one is current; None changes nothing."""

    def __init__(self, device):
        self.index, self.before = device, None

    def __enter__(self):
        if self.index is not None:
            self.before = current_device_index()
            set_device_index(self.index)

    def __exit__(self, *_):
        if self.index is not None:
            set_device_index(self.before)
        return False


current_device_idx, set_device_idx = current_device_index, set_device_index

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]
