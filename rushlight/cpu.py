"""`rushlight.cpu`: what PyTorch asks of a device's module, of the CPU. There is one, it is always
there, and nothing is queued on it.
"""

from contextlib import contextmanager


class Stream:
    """The one order in which operators run."""

    def __init__(self, priority=-1):
        self.priority = priority

    def wait_stream(self, stream):
        """Nothing to wait for."""

    def synchronize(self):
        """Nothing to wait for."""


_stream = Stream()


def is_available():
    return True


def is_initialized():
    return True


def device_count():
    return 1


def current_device():
    return "cpu"


def set_device(device):
    """Changes nothing: there is one."""


def current_stream(device=None):
    return _stream


@contextmanager
def stream(stream):
    """A context in which a stream is current: changes nothing."""
    yield


def synchronize(device=None):
    """Nothing to wait for: operators have run when they return."""


__all__ = [
    "Stream",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]
