"""Who takes the native records of calls.

Native records are one buffer (docs/native.md, "Records"); several may want them at once: a profile
inside an `explain`, the log. Each gives a list that batches are appended to, from `start` to
`stop`.
Invariant: recording is on while somebody takes, and a batch goes to all that take when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Batches = list[list[Any]]  # of native records; their ids are distinct in a batch

_taking: list[Batches] = []  # outermost first
_always: list[Callable[[list[Any]], None]] = []


def start(batches: Batches) -> None:
    from rushlight import _core  # type: ignore[attr-defined]

    drain()
    _taking.append(batches)
    _core.record(True)


def stop(batches: Batches) -> None:
    from rushlight import _core  # type: ignore[attr-defined]

    drain()
    for i, one in enumerate(_taking):
        if one is batches:
            del _taking[i]
            break
    _core.record(bool(_taking or _always))


def drain() -> None:
    """Takes the records made so far."""
    from rushlight import _core  # type: ignore[attr-defined]

    batch = _core.records()
    for batches in _taking:
        batches.append(batch)
    for give in _always:
        give(batch)


def always(give: Callable[[list[Any]], None]) -> None:
    """Records from now on, until the process ends; once, however often it is asked for."""
    from rushlight import _core  # type: ignore[attr-defined]

    if give not in _always:
        _always.append(give)
    _core.record(True)
