"""What the GPUs did, as CUPTI tells it: kernels, copies and fills, each with the call that launched
it.

Takes the tuples of `_core.cuda_take_activities()`; gives `Activity`s, sums by kernel and what a
multiprocessor holds of each. Invariant: an activity's time is the device's, mapped to the clock of
calls; where CUPTI was not there, there are no activities and `DeviceTimes` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

CUPTI, EVENTS = "cupti", "events"


class Activity(NamedTuple):
    """Times are nanoseconds; bytes are those copied or filled; shared memory and `local` (what a
    thread spilled) are bytes too. `node` and `graph` are numbers of a CUDA graph; 0: none."""

    owner: int | None  # the call's id; None: nobody of the recorded thread launched it
    kind: str  # kernel, copy or fill
    name: str
    start: int
    end: int
    launched: int  # when the host called CUDA for it; 0: not known
    device: int
    stream: int
    correlation: int
    graph: int = 0
    node: int = 0
    bytes: int = 0
    registers: int = 0
    static_shared: int = 0
    dynamic_shared: int = 0
    local: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)

    @property
    def ns(self) -> int:
        return self.end - self.start

    @property
    def title(self) -> str:
        return self.name if self.kind == "kernel" else f"{self.kind} {self.name}".rstrip()

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared


class DeviceTimes(NamedTuple):
    """Where the times of a GPU are from: `by` "cupti" or "events", or "" where no GPU was used;
    `why` CUPTI was not; how many of its records were `lost`; what was launched by no recorded call
    (`loose`)."""

    by: str = ""
    why: str = ""
    lost: int = 0
    loose: tuple[Activity, ...] = ()

    def __str__(self) -> str:
        if self.by == CUPTI:
            text = "of each kernel, copy and fill, by CUPTI"
            return text + (f"; {self.lost:,} records were lost, so sums are low" * bool(self.lost))
        why = self.why or "CUPTI was not asked for"
        return f"between events on the stream, around what a call queued ({why})"


class Batch(list[Any]):
    """Native records that were taken together, with what the GPUs did meanwhile."""

    by, why, lost = "", "", 0
    activities: Sequence[tuple[Any, ...]] = ()


def read_activity(told: Sequence[Any]) -> Activity:
    """Read as far as it goes: a newer core may tell more."""
    values = tuple(told)[: len(Activity._fields)]
    return Activity(values[0] or None, *values[1:])


def merge_times(all_of: Iterable[DeviceTimes]) -> DeviceTimes:
    """Of several batches: by CUPTI where any was."""
    every = list(all_of)
    by = CUPTI if any(t.by == CUPTI for t in every) else max((t.by for t in every), default="")
    why = "" if by == CUPTI else next((t.why for t in every if t.why), "")
    return DeviceTimes(
        by, why, sum(t.lost for t in every), tuple(a for t in every for a in t.loose)
    )


# ---- what a multiprocessor holds

BLOCKS = {70: 32, 72: 32, 75: 16, 80: 32, 86: 16, 87: 16, 89: 24}  # of a multiprocessor at once
RESERVED = 1024  # bytes of shared memory that a block costs beside its own, from 8.0 on
REGISTERS, SHARED, WARPS = 256, 128, 4  # they are given out in such portions


def occupancy(a: Activity, device: Mapping[str, Any]) -> tuple[float, float]:
    """(the share of a multiprocessor's threads that blocks of this kernel can fill at once, how
    often its grid fills all multiprocessors), by the limits of threads, registers, shared memory
    and blocks; (0, 0) where they are not known. `device`: as `_core.cuda_properties` gives it."""
    warp, threads = device.get("warp_size", 0), device.get("max_threads_per_multi_processor", 0)
    size = a.block[0] * a.block[1] * a.block[2]
    if not (warp and threads and size):
        return 0.0, 0.0
    warps = -(-size // warp)
    limits = [threads // warp // warps]
    capability = 10 * device.get("major", 0) + device.get("minor", 0)
    limits.append(BLOCKS.get(capability, 32))
    registers = device.get("regs_per_multiprocessor", 0)
    if a.registers and registers:
        one = -(-a.registers * warp // REGISTERS) * REGISTERS
        limits.append(registers // one // WARPS * WARPS // warps)
    shared = device.get("shared_memory_per_multiprocessor", 0)
    if shared:
        asked = a.shared + (RESERVED if capability >= 80 else 0)
        one = -(-asked // SHARED) * SHARED
        if one:
            limits.append(shared // one)
    blocks = min(limits)
    grid = a.grid[0] * a.grid[1] * a.grid[2]
    at_once = blocks * device.get("multi_processor_count", 0)
    return blocks * warps * warp / threads, grid / at_once if at_once else 0.0


def sums(
    activities: Iterable[Activity],
    launched_by: Mapping[int | None, tuple[str, str]],
    devices: Mapping[int, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """One row a kernel, launch shape and launching operator, the longest first. `launched_by`: the
    id of a call -> (what it ran, the user's line)."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for a in activities:
        by, line = launched_by.get(a.owner, ("", ""))
        key = (a.kind, a.name, by, a.grid, a.block, a.shared, bool(a.graph))
        row = rows.get(key)
        if row is None:
            row = rows[key] = {
                "kind": a.kind, "name": a.title, "from": by, "lines": [], "count": 0, "ns": 0,
                "bytes": 0, "graph": bool(a.graph), "registers": a.registers, "shared": a.shared,
                "local": a.local, "grid": list(a.grid), "block": list(a.block),
            }  # fmt: skip
            share, waves = occupancy(a, devices.get(a.device, {}))
            row |= {"occupancy": round(share, 4), "waves": round(waves, 3)}
        row["count"] += 1
        row["ns"] += a.ns
        row["bytes"] += a.bytes
        if line and line not in row["lines"]:
            row["lines"].append(line)
    return sorted(rows.values(), key=lambda row: (-row["ns"], row["name"]))
