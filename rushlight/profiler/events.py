"""Events of a profile, and the tables made of them.

Takes native records and ranges that the program named; gives `Event`s nested as they happened,
`EventList.key_averages()`, tables in PyTorch's shape, and traces that Perfetto and chrome://tracing
load. Times are microseconds where PyTorch's names are used (`cpu_time_total`), nanoseconds inside.
Invariant: an event's own time is its time less that of its children; all own times add up to the
time of the outermost events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rushlight.report.activities import Activity, DeviceTimes
from rushlight.report.records import Call, Calls, nbytes

OP, RUNTIME, KERNEL, USER = "op", "runtime", "kernel", "user_annotation"
ON_DEVICE = {"kernel": "gpu_kernel", "copy": "gpu_memcpy", "fill": "gpu_memset"}
LAYERS = {
    OP: "framework",
    RUNTIME: "compiler",
    KERNEL: "kernel",
    USER: "python",
    **dict.fromkeys(ON_DEVICE.values(), "hardware"),
}
WORDS = {
    "read": "Python reads numbers of a tensor",
    "compiled": "a call of compiled code: guards, wrapper, graphs",
    "graph": "a compiled graph",
    "fused": "a generated kernel of a graph",
    "view": "a view: a layout over memory that is there",
    "kernel": "a precompiled kernel",
    "library": "a library routine",
}


class Range(NamedTuple):
    """What `record_function` named; times of `time.perf_counter_ns`."""

    name: str
    start: int
    end: int


class Event:
    """One event. `cpu_time_total` and `self_cpu_time_total` are microseconds, memory bytes."""

    __slots__ = (
        "category", "children", "description", "end", "hit", "input_shapes", "memory", "name",
        "on_device", "parent", "start", "where",
    )  # fmt: skip

    def __init__(self, name: str, category: str, start: int, end: int) -> None:
        self.name, self.category, self.start, self.end = name, category, start, end
        self.description, self.where, self.memory = "", "", 0
        self.on_device = 0  # nanoseconds
        self.input_shapes: list[list[int]] = []
        self.hit: bool | None = None
        self.parent: Event | None = None
        self.children: list[Event] = []

    def __repr__(self) -> str:
        return f"<Event {self.name} ({self.category}) {self.cpu_time_total:.3f} us>"

    @property
    def key(self) -> str:
        return self.name

    @property
    def layer(self) -> str:
        return LAYERS[self.category]

    @property
    def count(self) -> int:
        return 1

    @property
    def cpu_time_total(self) -> float:
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        return max(0.0, self.cpu_time_total - sum(c.cpu_time_total for c in self.children))

    cpu_time = cpu_time_total

    @property
    def device_time_total(self) -> float:
        return max(self.on_device / 1e3, sum(c.device_time_total for c in self.children))

    @property
    def self_device_time_total(self) -> float:
        return max(0.0, self.device_time_total - sum(c.device_time_total for c in self.children))

    @property
    def cpu_memory_usage(self) -> int:
        return self.memory + sum(c.cpu_memory_usage for c in self.children)


class DeviceEvent(Event):
    """What a GPU did for the event above it. `start` and `end` are the device's, and no time of the
    CPU's."""

    __slots__ = ("activity",)

    def __init__(self, activity: Activity) -> None:
        super().__init__(
            activity.title,
            ON_DEVICE[activity.kind],
            activity.start,
            max(activity.start, activity.end),
        )
        self.activity, self.on_device = activity, activity.ns
        self.description = f"on cuda:{activity.device}, stream {activity.stream}"

    @property
    def cpu_time_total(self) -> float:
        return 0.0

    cpu_time = cpu_time_total


class Average:
    """All events of one name: sums, with PyTorch's names."""

    def __init__(self, event: Event) -> None:
        self.key, self.category, self.layer = event.name, event.category, event.layer
        self.description, self.input_shapes = event.description, event.input_shapes
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.self_cpu_memory_usage = self.cpu_memory_usage = 0
        self.device_time_total = self.self_device_time_total = 0.0

    def add(self, event: Event) -> None:
        self.count += 1
        self.self_cpu_time_total += event.self_cpu_time_total
        self.self_device_time_total += event.self_device_time_total
        self.self_cpu_memory_usage += event.memory
        above = event.parent
        while above is not None and (above.name, above.category) != (event.name, event.category):
            above = above.parent
        if above is None:  # else it stands in the outer one's total
            self.cpu_time_total += event.cpu_time_total
            self.device_time_total += event.device_time_total
            self.cpu_memory_usage += event.cpu_memory_usage

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return f"<{self.key}: {self.count} calls, {self.cpu_time_total:.3f} us>"


_SORTS = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "count", "cpu_memory_usage",
    "self_cpu_memory_usage", "device_time_total", "self_device_time_total", "device_time",
    "cuda_time_total", "self_cuda_time_total", "cuda_time",
)  # fmt: skip


class EventList(list[Any]):
    """Events, or averages of them. `device_times`: where the times of a GPU are from."""

    device_times = DeviceTimes()

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList:
        """One `Average` a name; with `group_by_input_shape` one a name and shapes; with
        `group_by_stack_n` one a name and line of the program."""
        found: dict[tuple, Average] = {}
        for event in self:
            key: tuple = (event.name, event.category)
            if group_by_input_shape:
                key += (str(event.input_shapes),)
            if group_by_stack_n:
                key += (event.where,)
            if key not in found:
                found[key] = Average(event)
            found[key].add(event)
        averages = EventList(found.values())
        averages.device_times = self.device_times
        return averages

    def total_average(self) -> Average:
        total = Average(Event("Total", OP, 0, 0))
        for event in self:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        return float(sum(event.self_cpu_time_total for event in self))

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = 55,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """The events as text. `sort_by`: a time, `count` or a memory column; ValueError for
        another."""
        if sort_by is not None and sort_by not in _SORTS:
            raise ValueError(f"[profiler] sort_by {sort_by!r}; known are {', '.join(_SORTS)}")
        rows = [e for e in self if not top_level_events_only or getattr(e, "parent", None) is None]
        if sort_by is not None:
            name = sort_by.replace("cuda", "device")
            name = {"device_time": "device_time_total"}.get(name, name)
            rows.sort(key=lambda e: -getattr(e, name))
        total = sum(e.self_cpu_time_total for e in self) or 1.0
        shapes = any(e.input_shapes for e in rows)
        memory = any(e.cpu_memory_usage for e in rows)
        heads = ["Name", "Category", "Layer", "Self CPU %", "Self CPU", "CPU total %", "CPU total",
                 "CPU time avg"]  # fmt: skip
        device = any(e.device_time_total for e in rows)
        heads += ["Self CUDA", "CUDA total"] if device else []
        heads += (["Self CPU Mem", "CPU Mem"] if memory else []) + ["# of Calls"]
        heads += ["Input Shapes"] if shapes else []
        body = []
        for e in rows[:row_limit] if row_limit >= 0 else rows:
            name = e.key
            if len(name) > max_name_column_width:
                name = name[: max_name_column_width - 3] + "..."
            share = lambda us: f"{100 * us / total:.2f}%"
            cells = [name, e.category, e.layer, share(e.self_cpu_time_total),
                     time_text(e.self_cpu_time_total), share(e.cpu_time_total),
                     time_text(e.cpu_time_total), time_text(e.cpu_time_total / e.count),
                     ]  # fmt: skip
            if device:
                cells += [time_text(e.self_device_time_total), time_text(e.device_time_total)]
            if memory:
                own = e.memory if isinstance(e, Event) else e.self_cpu_memory_usage
                cells += [memory_text(own), memory_text(e.cpu_memory_usage)]
            body.append(cells + [str(e.count)] + ([str(e.input_shapes)] if shapes else []))
        widths = [max(len(row[i]) for row in [heads, *body]) for i in range(len(heads))]
        rule = "  ".join("-" * w for w in widths)
        lines = [header] if header else []
        lines += [rule, _row(heads, widths), rule, *(_row(cells, widths) for cells in body), rule]
        if row_limit >= 0 and len(rows) > row_limit:
            lines.append(f"and {len(rows) - row_limit} more rows")
        lines.append(f"Self CPU time total: {time_text(sum(e.self_cpu_time_total for e in self))}")
        if device:
            total = sum(e.self_device_time_total for e in self)
            lines.append(f"Self CUDA time total: {time_text(total)}")
            lines.append(f"CUDA times: {self.device_times}")
        return "\n".join(lines) + "\n"

    def export_chrome_trace(self, path: str) -> None:
        """Writes the trace, whole or not at all: JSON that Perfetto and chrome://tracing load."""
        from rushlight.profiler.chrome import chrome_trace

        chrome_trace(self, path, str(self.device_times) if self.device_times.by else "")

    def __str__(self) -> str:
        return self.table()


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = 3  # names, category and layer stand left
    return "  ".join(
        c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))
    ).rstrip()


def time_text(us: float) -> str:
    for unit, size in (("us", 1.0), ("ms", 1e3)):
        if us < 1000 * size:
            return f"{us / size:.3f}{unit}"
    return f"{us / 1e6:.3f}s"


def memory_text(size: int) -> str:
    for unit, step in (("Gb", 1 << 30), ("Mb", 1 << 20), ("Kb", 1 << 10)):
        if abs(size) >= step:
            return f"{size / step:.2f} {unit}"
    return f"{size} b"


# ---- from records


def events_of(
    calls: Calls, ranges: Iterable[Range], shapes: bool, memory: bool, stack: bool
) -> EventList:
    """Events in the order of their start, nested by what called what; ranges hold what ran within
    them."""
    made: dict[int, Event] = {}
    found: list[Event] = []
    for call in calls.everything:
        event = _of_call(call, shapes, memory, stack)
        made[call.id] = event
        found.append(event)
        above = made.get(call.parent) if call.parent is not None else None
        if above is not None:
            event.parent = above
            above.children.append(event)
    on_device: list[Event] = []
    for call in calls.everything:
        event = made[call.id]
        if call.route in ("kernel", "library") and call.kind != "fused":
            event = _leaf(event, call)
            found.append(event)
        for activity in call.activities:
            on_device.append(DeviceEvent(activity))
            on_device[-1].parent = event
            event.children.append(on_device[-1])
    found += _nest(ranges, [e for e in found if e.parent is None])
    found += on_device
    found += map(DeviceEvent, calls.device_times.loose)
    found.sort(key=lambda e: (e.start, -e.end))
    events = EventList(found)
    events.device_times = calls.device_times
    return events


def _of_call(call: Call, shapes: bool, memory: bool, stack: bool) -> Event:
    category = {"compiled": RUNTIME, "graph": RUNTIME, "fused": KERNEL}.get(call.kind, OP)
    event = Event(call.operator, category, call.start, max(call.start, call.end))
    event.description = WORDS.get(call.kind, WORDS["view"] if call.route == "view" else "")
    event.hit, event.on_device = call.hit, call.device_ns
    if shapes:
        event.input_shapes = [list(x.shape) for x in call.inputs]
    if memory and call.route in ("kernel", "library"):
        event.memory = nbytes(call.outputs)
    if stack:
        event.where = call.where
    return event


def _leaf(event: Event, call: Call) -> Event:
    """The kernel or routine that a call ran: its time is the call's own, dispatch included."""
    inside = event.children
    start = max((c.end for c in inside), default=event.start)
    leaf = Event(call.ran, KERNEL, start, max(start, event.end))
    leaf.description, leaf.parent = WORDS[call.route], event
    leaf.on_device = max(0, call.device_ns - sum(c.on_device for c in inside))
    event.children.append(leaf)
    return leaf


def _nest(ranges: Iterable[Range], outermost: list[Event]) -> list[Event]:
    """Each range as an event that holds the ranges and outermost calls within it."""
    made = [Event(r.name, USER, r.start, r.end) for r in ranges]
    for event in sorted([*outermost, *made], key=lambda e: (e.start, -e.end)):
        holders = [
            r for r in made if r is not event and r.start <= event.start and event.end <= r.end
        ]
        if holders:
            holder = min(holders, key=lambda r: r.end - r.start)
            if holder.parent is event:  # equal times: the first one holds the other
                continue
            event.parent = holder
            holder.children.append(event)
    return made
