"""Python's cycle collector at rest while graphs are made: they are many small objects, all alive,
among which a collection finds nothing to free."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collections inside; afterwards as before. May be nested."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
