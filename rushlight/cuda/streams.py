"""Streams and events. Work of one stream runs in its order; of two, side by side, but for what
events say.
"""

from __future__ import annotations

from typing import Any

from rushlight import _core

from .devices import index_of


class Stream:
    """A queue of work on a device. The default stream of a device is the one with handle 0.

    priority: lower numbers go first; those the device knows are taken.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, handle: int | None = None) -> None:
        self.device_index = index_of(device)
        self.owned = handle is None
        self.priority = priority
        self.handle = (
            _core.cuda_stream_create(self.device_index, priority) if handle is None else handle
        )

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, for other libraries: the launch thread ends for good."""
        _core.cuda_hand_out()
        return self.handle

    @property
    def device(self) -> Any:
        return _core.resolve_device(f"cuda:{self.device_index}")

    def query(self) -> bool:
        """Whether everything queued so far is done."""
        return _core.cuda_stream_query(self.device_index, self.handle)

    def synchronize(self) -> None:
        """The host waits for everything queued so far."""
        _core.cuda_stream_wait(self.device_index, self.handle)

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is queued from now on starts after the event. The host does not wait."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What is queued from now on starts after what is queued on `stream` so far."""
        self.wait_event(stream.record_event())

    @staticmethod
    def priority_range(device: Any = None) -> tuple[int, int]:
        """(least, greatest)."""
        return _core.cuda_stream_range(index_of(device))

    def __enter__(self) -> Stream:
        self.context = StreamContext(self)
        self.context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.context.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.handle) == (
            other.device_index,
            other.handle,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.handle))

    def __repr__(self) -> str:
        place = f"device=cuda:{self.device_index} cuda_stream={self.handle:#x}"
        return f"<rushlight.cuda.Stream {place}>"

    def __del__(self) -> None:
        if getattr(self, "owned", False) and _core is not None:
            self.owned = False
            _core.cuda_stream_release(self.device_index, self.handle)


class Event:
    """A mark in a stream.

    enable_timing: `elapsed_time` can be asked; blocking: a host that waits for it sleeps. Events of
    other processes are refused.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("[Event] events shared between processes are not supported")
        self.timing, self.blocking = enable_timing, blocking
        self.device_index: int | None = None
        self.handle = 0

    @property
    def cuda_event(self) -> int:
        """The driver's handle, for other libraries; 0 before the first record."""
        _core.cuda_hand_out()
        return self.handle

    def record(self, stream: Stream | None = None) -> None:
        """Marks what is queued on a stream (default: the current one) so far."""
        stream = current_stream() if stream is None else stream
        if self.device_index is None:
            self.device_index = stream.device_index
            self.handle = _core.cuda_event_create(self.device_index, self.timing, self.blocking)
        elif self.device_index != stream.device_index:
            raise RuntimeError(
                f"[Event.record] the event is on cuda:{self.device_index}, the stream on "
                f"cuda:{stream.device_index}"
            )
        _core.cuda_event_record(self.device_index, self.handle, stream.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """What is queued on a stream from now on starts after the event. The host does not wait."""
        if self.device_index is None:
            return
        stream = current_stream() if stream is None else stream
        _core.cuda_stream_wait_event(stream.device_index, stream.handle, self.handle)

    def query(self) -> bool:
        """Whether the event has come."""
        if self.device_index is None:
            return True
        return _core.cuda_event_query(self.device_index, self.handle)

    def synchronize(self) -> None:
        """The host waits for the event."""
        if self.device_index is not None:
            _core.cuda_event_wait(self.device_index, self.handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another one. RuntimeError where one was not recorded, has
        not come, or keeps no time.
        """
        if not (self.timing and end_event.timing):
            raise ValueError(
                "[Event.elapsed_time] an event without a clock: make both with enable_timing=True"
            )
        if self.device_index is None or end_event.device_index is None:
            raise ValueError("[Event.elapsed_time] record both events first")
        return _core.cuda_event_elapsed(self.device_index, self.handle, end_event.handle)

    def __repr__(self) -> str:
        return (
            f"<rushlight.cuda.Event {self.handle:#x}>"
            if self.handle
            else "<rushlight.cuda.Event uninitialized>"
        )

    def __del__(self) -> None:
        if getattr(self, "handle", 0) and _core is not None:
            _core.cuda_event_destroy(self.device_index, self.handle)
            self.handle = 0


def ExternalStream(stream_ptr: int, device: Any = None) -> Stream:
    """A stream that another library made and owns."""
    _core.cuda_hand_out()
    return Stream(device, handle=stream_ptr)


def is_current_stream_capturing() -> bool:
    """Whether work is being captured into a CUDA graph: never, in this version."""
    return False


def current_stream(device: Any = None) -> Stream:
    """This thread's current stream of a device."""
    index = index_of(device)
    return Stream(index, handle=_core.cuda_stream_current(index))


def default_stream(device: Any = None) -> Stream:
    return Stream(index_of(device), handle=0)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream this thread's current one on its device; the device becomes the current one.
    None changes nothing.
    """
    if stream is None:
        return
    _core.cuda_set_device(stream.device_index)
    _core.cuda_stream_set(stream.device_index, stream.handle)


class StreamContext:
    """``with cuda.stream(s):`` s is the current stream of its device inside, and that device the
    current one.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self.before: list[tuple[int, int]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        device, handle = self.stream.device_index, self.stream.handle
        current = _core.cuda_set_device(device)
        self.before.append((current, _core.cuda_stream_set(device, handle)))

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            device, handle = self.before.pop()
            _core.cuda_stream_set(self.stream.device_index, handle)
            _core.cuda_set_device(device)


def stream(stream: Stream | None) -> StreamContext:
    """A context in which work goes to `stream`; None changes nothing."""
    return StreamContext(stream)
