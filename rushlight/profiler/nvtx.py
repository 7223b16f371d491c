"""NVTX ranges: what Nsight Systems shows of a program beside the GPU's work (docs/nsight.md).

    with emit_nvtx():               each recorded call is a range: compiled functions, graphs,
        model(x)                    kernels and operators; and each step of a compilation
    range_push("load"); range_pop()

The tool that profiles a process names its library in NVTX_INJECTION64_PATH, as for any program
that uses NVTX 3, and gives its functions when they are asked for. Without one nothing is done. A
range of a recorded call carries the call's id, which its record has, as payload; its name is the
record's: `Model.forward`, `forward#2/forward#5` (a graph's label), a kernel's, an operator's.
Invariant: ranges that were pushed are popped, whatever the program does.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLE = "NVTX_INJECTION64_PATH"
ENTRY = "InitializeInjectionNvtx2"
# Of nvtxDetail/nvtxTypes.h: the module that has marks and ranges, how many functions it has, and
# where those stand that are used here.
CORE, FUNCTIONS = 1, 16
MARK, PUSH, PUSH_NAMED, POP = 2, 8, 9, 11
CALLBACKS, VERSION = 1, 3  # export tables

Pointer = ctypes.c_void_p
GetTable = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(Pointer), ctypes.POINTER(ctypes.c_uint)
)
GetExport = ctypes.CFUNCTYPE(Pointer, ctypes.c_uint32)
SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)


class Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("get", GetTable)]


class Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("version", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        ("set", SetVersion),
    ]  # fmt: skip


class Tool:
    """The tool's functions by their number; 0 where it has none."""

    def __init__(self, path: str) -> None:
        self.functions = (Pointer * FUNCTIONS)()
        # the table is an array of pointers to function pointers, which the tool writes
        self.table = (Pointer * (FUNCTIONS + 1))(
            *(ctypes.addressof(self.functions) + 8 * i for i, _ in enumerate(self.functions)), None
        )
        self.callbacks = Callbacks(ctypes.sizeof(Callbacks), GetTable(self.give_table))
        self.version = Version(ctypes.sizeof(Version), 3, 0, SetVersion(lambda v: None))
        self.give = GetExport(self.give_export)
        self.library = ctypes.CDLL(path)
        start = self.library[ENTRY]
        start.argtypes, start.restype = [GetExport], ctypes.c_int
        if not start(self.give):
            raise OSError(f"{path} does not start")

    def give_table(self, module: int, table: Any, size: Any) -> int:
        if module != CORE:
            return 0
        table[0], size[0] = ctypes.addressof(self.table), FUNCTIONS
        return 1

    def give_export(self, which: int) -> int | None:
        wanted = {CALLBACKS: self.callbacks, VERSION: self.version}.get(which)
        return None if wanted is None else ctypes.addressof(wanted)

    def call(self, number: int, *message: bytes) -> None:
        address = self.functions[number]
        if address:
            kinds = [ctypes.c_char_p] * len(message)
            ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)(*message)


_tool: list[Tool | None] = []  # looked for once


class Open(threading.local):
    """A thread's: how many `start`s are open, and the compiler's step that its range is of."""

    depth = 0
    step = ""


_open = Open()


def tool() -> Tool | None:
    """The tool that profiles this process, or None, with a reason where it cannot be used."""
    if not _tool:
        path = os.environ.get(VARIABLE, "")
        try:
            _tool.append(Tool(path) if path else None)
        except (OSError, AttributeError) as error:
            from rushlight.reasons import refuse

            refuse("profiler.no_nvtx", VARIABLE, str(error), "Ranges are left out.")
            _tool.append(None)
    return _tool[0]


def range_push(message: str) -> None:
    """Begins a range of this thread. Nothing where no tool is there."""
    if (taker := tool()) is not None:
        taker.call(PUSH_NAMED, message.encode())


def range_pop() -> None:
    if (taker := tool()) is not None:
        taker.call(POP)


def mark(message: str) -> None:
    if (taker := tool()) is not None:
        taker.call(MARK, message.encode())


@contextmanager
def range(message: str) -> Iterator[None]:  # noqa: A001  PyTorch's name
    range_push(message)
    try:
        yield
    finally:
        range_pop()


def step(name: str) -> None:
    """Ranges of the compiler's steps, in threads that take ranges: one ends where the next
    begins."""
    if not on():
        return
    if _open.step:
        range_pop()
    if name:
        range_push(f"compile: {name}")
    _open.step = name


@contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> Iterator[bool]:
    """Every recorded call of this thread is a range inside. Gives whether a tool takes them.
    `record_shapes` is PyTorch's and changes nothing."""
    taken = enabled and start()
    try:
        yield taken
    finally:
        if taken:
            stop()


def on() -> bool:
    return _open.depth > 0


def start() -> bool:
    """Ranges of this thread from now on, until `stop`; False where no tool takes them. Nests."""
    from rushlight import _core, trace  # type: ignore[attr-defined]

    taker = tool()
    if taker is None or not taker.functions[PUSH] or not taker.functions[POP]:
        return False
    _open.depth += 1
    if _open.depth == 1:
        _core.ranges(taker.functions[PUSH], taker.functions[POP])
        if step not in trace.on_step:  # once for all threads
            trace.on_step.append(step)
    return True


def stop() -> None:
    from rushlight import _core  # type: ignore[attr-defined]

    if _open.depth == 1:
        step("")
        _core.ranges(0, 0)
    _open.depth -= 1
