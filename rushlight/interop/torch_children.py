"""`import torch` means Rushlight in the processes that a program starts, too.

A process that `multiprocessing` spawns begins with nothing of its parent's: it unpickles what the
parent sends and then imports the program again. What is sent holds an object here that puts the
shim in place when it is unpickled, which is before that import. A forked process has it already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Installed:
    """Installs the shim where it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        from .shim import install

        return install, ()


@contextmanager
def same_in_children() -> Iterator[None]:
    """Within: processes that are spawned, or that a fork server forks, import as this one does."""
    from multiprocessing import forkserver, spawn

    plain = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        return {**plain(name), "torch": Installed()}

    spawn.get_preparation_data = prepared
    # The server would import the program before it hears of the shim; its children do that.
    forkserver.set_forkserver_preload([])
    try:
        yield
    finally:
        spawn.get_preparation_data = plain
