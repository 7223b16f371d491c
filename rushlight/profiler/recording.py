"""Who takes the native records of calls.

Native records are one buffer (docs/native.md, "Records"); several may want them at once: a profile
inside an `explain`, the log. Each gives a list that batches are appended to, from `start` to
`stop`. Who asks for a GPU's own times gets them by CUPTI, from the moment that a GPU is opened.
Invariant: recording is on while somebody takes, and a batch goes to all that take when it is read;
CUPTI records while somebody asks for it, and costs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.report.activities import CUPTI, Batch

Batches = list[list[Any]]  # of native records; their ids are distinct in a batch

_taking: list[Batches] = []  # outermost first
_always: list[Callable[[list[Any]], None]] = []
_asking: list[Batches] = []  # of those that take, who wants a GPU's own times
_cupti = [False, ""]  # whether it records; why not


def start(batches: Batches, gpu: bool = False) -> None:
    """`gpu`: times of kernels and copies are wanted, from CUPTI where it can be had."""
    from rushlight import _core  # type: ignore[attr-defined]

    drain()
    _taking.append(batches)
    if gpu:
        _asking.append(batches)
        _ask_cupti()
    _core.record(True)


def _ask_cupti() -> None:
    """Turns CUPTI on where a GPU was opened; else once one is."""
    from rushlight.runtime import cuda

    if not cuda.opened():
        if _gpu_opened not in cuda.on_open:
            cuda.on_open.append(_gpu_opened)
        return
    if _cupti[0]:
        return
    from rushlight import _core  # type: ignore[attr-defined]
    from rushlight.runtime.cuda import libraries

    libraries.look_for_cupti()
    why = _core.cuda_activities(True)
    if why and why != _cupti[1]:
        from rushlight.reasons import refuse

        refuse("profiler.no_cupti", "CUPTI", why, "Times of a GPU are those between events.")
    _cupti[:] = [not why, why]


def _gpu_opened() -> None:
    if _asking:
        _ask_cupti()


def stop(batches: Batches) -> None:
    from rushlight import _core  # type: ignore[attr-defined]

    drain(last=all(one is batches for one in _asking))
    for lists in (_taking, _asking):
        for i, one in enumerate(lists):
            if one is batches:
                del lists[i]
                break
    if _cupti[0] and not _asking:
        _core.cuda_activities(False)
        _cupti[0] = False
    _core.record(bool(_taking or _always))


def drain(last: bool = False) -> None:
    """Takes the records made so far; `last`: CUPTI is turned off then."""
    from rushlight import _core  # type: ignore[attr-defined]

    activities, lost = _core.cuda_take_activities(last) if _cupti[0] else ((), 0)
    batch = Batch(_core.records())
    if _cupti[0]:
        batch.by, batch.activities, batch.lost = CUPTI, activities, lost
    elif _asking:
        batch.why = _cupti[1]
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
