"""A profile's events as a trace that Perfetto and chrome://tracing load.

Takes `Event`s; writes one row for the thread that was profiled, and one for each stream of each
GPU, with an arrow from the event that launched a kernel, copy or fill to what the GPU did.
Invariant: the file is written whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from .events import DeviceEvent, Event

ARROW = "ac2g"  # PyTorch's name of an arrow from the CPU to a GPU


def chrome_trace(events: Iterable[Event], path: str, device_times: str = "") -> None:
    """`device_times`: where times of a GPU are from, in words, for the file's head."""
    pid = os.getpid()
    rows: list[dict[str, Any]] = [
        _named("process_name", pid, "python"),
        _named("thread_name", pid, "CPU", 0),
    ]
    seen: set[tuple[int, int]] = set()  # (device, stream) that have their row
    for number, e in enumerate(events):
        if isinstance(e, DeviceEvent):
            place = (e.activity.device, e.activity.stream)
            if place not in seen:
                seen.add(place)
                rows += _row_of(*place)
            rows.append(_event(e, *place) | {"args": _facts(e)})
            rows += _arrow(e, pid, number)
        else:
            arguments = _arguments(e)
            rows.append(_event(e, pid, 0) | ({"args": arguments} if arguments else {}))
    made: dict[str, Any] = {"traceEvents": rows, "displayTimeUnit": "ns"}
    if device_times:
        made["deviceTimes"] = device_times
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump(made, file, separators=(",", ":"))
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _named(what: str, pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {"ph": "M", "pid": pid, "name": what, "args": {"name": name}}
    return row if tid is None else row | {"tid": tid}


def _row_of(device: int, stream: int) -> list[dict[str, Any]]:
    """A GPU is a process of the trace, its streams are threads; they stand below the CPU."""
    below = {"ph": "M", "pid": device, "name": "process_sort_index"}
    return [
        _named("process_name", device, f"GPU {device}"),
        below | {"args": {"sort_index": 1_000_000 + device}},
        _named("thread_name", device, f"stream {stream}", stream),
    ]


def _event(e: Event, pid: int, tid: int) -> dict[str, Any]:
    return {
        "ph": "X", "pid": pid, "tid": tid, "name": e.name, "cat": e.category,
        "ts": _us(e.start), "dur": _us(e.end - e.start),
    }  # fmt: skip


def _us(ns: int) -> float:
    return round(ns / 1e3, 3)


def _arguments(e: Event) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if e.input_shapes:
        arguments["Input Dims"] = e.input_shapes
    if e.where:
        arguments["at"] = e.where
    if e.memory:
        arguments["Bytes"] = e.memory
    if e.on_device:
        arguments["device us"] = _us(e.on_device)
    return arguments


def _facts(e: DeviceEvent) -> dict[str, Any]:
    a = e.activity
    facts: dict[str, Any] = {"device": a.device, "stream": a.stream, "correlation": a.correlation}
    if a.kind == "kernel":
        facts |= {"grid": a.grid, "block": a.block, "registers per thread": a.registers,
                  "shared memory": a.shared}  # fmt: skip
    if a.local:
        facts["local memory per thread"] = a.local
    if a.bytes:
        facts["bytes"] = a.bytes
        if a.ns:
            facts["memory bandwidth (GB/s)"] = round(a.bytes / a.ns, 3)
    if a.graph:
        facts |= {"graph id": a.graph, "graph node id": a.node}
    return facts


def _arrow(e: DeviceEvent, pid: int, number: int) -> list[dict[str, Any]]:
    """From the moment of the launch, inside the event that made it, to the start on the device."""
    above = e.parent
    if above is None:
        return []
    at = min(max(e.activity.launched or above.start, above.start), above.end)
    both = {"id": number, "cat": ARROW, "name": ARROW}
    return [
        {"ph": "s", "pid": pid, "tid": 0, "ts": _us(at), **both},
        {"ph": "f", "pid": e.activity.device, "tid": e.activity.stream, "ts": _us(e.start),
         "bp": "e", **both},
    ]  # fmt: skip
