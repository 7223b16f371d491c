"""Where Python waited for the GPU: which call, how long, on which line.

Asking a tensor for its numbers (`item`, `bool`, `tolist`, printing, `cpu`, an index by a mask)
makes the host wait until the GPU has come so far, and then the GPU waits for the host. `take_waits`
tells where that happened; `sync_debug` warns of it or refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rushlight import _core

MODES = ("default", "warn", "error")


class Wait(NamedTuple):
    what: str  # "item", "copy to host", "synchronize", or the operator that ran on the host
    milliseconds: float
    line: str  # "file.py:12 in f"


def take_waits() -> list[Wait]:
    """The latest waits (4,096 at most), the oldest first. They are forgotten."""
    return [Wait(what, ns / 1e6, line) for what, ns, line in _core.cuda_waits()]


def counts() -> dict[str, int]:
    """How many kernels of each kind ran so far: generated, library, copy, fallback (on the host);
    and the host's waits.
    """
    return _core.cuda_counts()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """ "default" or 0: waits are only recorded; "warn" or 1: each warns; "error" or 2: each raises
    RuntimeError.
    """
    _core.cuda_sync_mode(debug_mode)


def get_sync_debug_mode() -> int:
    return _core.cuda_sync_mode(None)


@contextmanager
def sync_debug(mode: str = "warn") -> Iterator[None]:
    """Inside, each wait of the host for the GPU warns ("warn") or raises RuntimeError ("error"),
    naming the line.
    """
    before = _core.cuda_sync_mode(mode)
    try:
        yield
    finally:
        _core.cuda_sync_mode(before)
