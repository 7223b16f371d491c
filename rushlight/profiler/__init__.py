"""`rushlight.profiler`: what ran, how long, nested as it happened, under PyTorch's names.

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        with record_function("step"):
            model(x)
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

It reads the native records of operator calls (docs/native.md), which cost about a microsecond a
call while they are on and one test when they are off. Only calls of the thread that entered
`profile` are seen.
"""

from __future__ import annotations

import enum
import functools
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import nvtx
from .events import Event, EventList, Range, events_of
from .nvtx import emit_nvtx
from .recording import start, stop

__all__ = [
    "Event",
    "EventList",
    "ProfilerAction",
    "ProfilerActivity",
    "emit_nvtx",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    CPU = 0
    CUDA = 1


class ProfilerAction(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """Step number -> what to do: after `skip_first` steps, cycles of `wait` steps off, `warmup` on
    but dropped, `active` recorded; `repeat` cycles, 0: without end."""
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            f"[profiler] a schedule has no negative numbers and at least one active step, got "
            f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
            f"skip_first={skip_first}"
        )

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"[profiler] step {step}")
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or repeat and step >= repeat * length:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def _all_steps(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


class profile:  # noqa: N801  (PyTorch's name)
    """Records the operator calls of this thread for the length of a `with`, or between `start()`
    and `stop()`. With a `schedule`, `step()` ends a step, and `on_trace_ready(self)` is called
    after the last active step of each cycle; without one, when the profile ends.

    `record_shapes`: events know the shapes of their inputs. `profile_memory`: and the bytes of
    their results. `with_stack`: and the line of the program. Other arguments of PyTorch's are taken
    and change nothing here. ValueError for an activity that is none."""

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
    ) -> None:
        self.activities = set(ProfilerActivity if activities is None else activities)
        for activity in self.activities:
            if not isinstance(activity, ProfilerActivity):
                raise ValueError(f"[profiler] {activity!r} is no ProfilerActivity")
        self.schedule = schedule or _all_steps
        self.scheduled = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack = with_stack
        self.step_num = 0
        self.action = ProfilerAction.NONE
        self.batches: list[list[Any]] | None = None  # while recording
        self.ranges: list[Range] = []
        self.begun = 0
        self._events: EventList | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        self.enter(self.schedule(self.step_num))

    def stop(self) -> None:
        """Ends the profile; what is on is kept, and handed to `on_trace_ready`."""
        recorded = self.batches is not None and self.action != ProfilerAction.WARMUP
        self.leave()
        if recorded and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self.action = ProfilerAction.NONE

    def step(self) -> None:
        """The end of a step of the schedule."""
        before = self.action
        if self.batches is not None and self.scheduled:
            now = time.perf_counter_ns()
            self.ranges.append(Range(f"ProfilerStep#{self.step_num}", self.begun, now))
            self.begun = now
        self.step_num += 1
        after = self.schedule(self.step_num)
        if before == ProfilerAction.RECORD_AND_SAVE:
            self.leave()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self.action = ProfilerAction.NONE
        elif before == ProfilerAction.WARMUP and after != ProfilerAction.WARMUP:
            self.leave()  # what the warm-up recorded is dropped
        self.enter(after)

    def enter(self, action: ProfilerAction) -> None:
        self.action = action
        if action == ProfilerAction.NONE:
            if self.batches is not None:
                self.leave()
        elif self.batches is None:
            self.batches, self.ranges, self._events = [], [], None
            self.begun = time.perf_counter_ns()
            start(self.batches, ProfilerActivity.CUDA in self.activities)
            _profiles.append(self)

    def leave(self) -> None:
        if self.batches is None:
            return
        stop(self.batches)
        _profiles.remove(self)
        from rushlight.report.records import read_batches

        calls = read_batches(self.batches)
        self.batches = None
        self._events = events_of(
            calls, self.ranges, self.record_shapes, self.profile_memory, self.with_stack
        )

    # ---- what it saw

    def events(self) -> EventList:
        """Every event, in the order of its start. RuntimeError while the profile is on, or where
        nothing was recorded."""
        if self._events is None:
            raise RuntimeError("[profiler] there are no events before the profile has ended")
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList:
        """Sums by name; see `EventList.key_averages`."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the trace, for Perfetto or chrome://tracing."""
        self.events().export_chrome_trace(path)


_profiles: list[profile] = []  # those that record, outermost first


class record_function:  # noqa: N801  (PyTorch's name)
    """Names what runs inside, as a context manager or a decorator. Costs one test where no profile
    is on."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args, self.begun, self.pushed = name, args, 0, False

    def __enter__(self) -> record_function:
        if _profiles:
            self.begun = time.perf_counter_ns()
        if nvtx.on():
            nvtx.range_push(self.name)
            self.pushed = True
        return self

    def __exit__(self, *error: Any) -> None:
        if self.pushed:
            nvtx.range_pop()
            self.pushed = False
        if self.begun:
            now = time.perf_counter_ns()
            for one in _profiles:
                one.ranges.append(Range(self.name, self.begun, now))
            self.begun = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each trace into a folder, made where it is missing."""

    def write(prof: profile) -> None:
        import gzip
        import socket

        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        path = os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json")
        prof.export_chrome_trace(path)
        if use_gzip:
            with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
                packed.write(plain.read())
            os.unlink(path)

    return write
