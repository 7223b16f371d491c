"""What a compiled graph is made of: native programs, fused kernels, operators and constants of
the bindings.

Rooms above the bindings describe these with plain values; here they become objects of `_core`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rushlight import _core, dtypes  # type: ignore[attr-defined]

empty = _core.empty  # (shape, dtype): memory for what a program puts together
DType, Workspace = _core.dtype, _core.Workspace
Entry = tuple  # ("r", register), ("l", entries), ("c", constant): docs/native.md


def isa() -> str:
    """The instruction set that this process computes with."""
    return _core.isa()


def capability(device: str) -> int:
    """That of a GPU, as 90 for 9.0."""
    told = _core.cuda_properties(int(device.partition(":")[2] or 0))
    return 10 * told["major"] + told["minor"]


def device_kernel(record: dict, images: list[bytes]) -> Any:
    """A kernel of a GPU, for `kernel`: docs/gpu.md."""
    return _core.DeviceKernel(record, images)


def packed_bytes(dtype: str, k: int, n: int) -> int:
    """Bytes of a product's right operand [k, n] in the order of the library; 0: it takes it as it
    lies; -1: there is no library."""
    found = _core.packed_bytes(getattr(_core, dtype), k, n)
    asked = getattr(HERE, "asked", None)
    if asked is not None:
        asked[dtype, k, n] = found
    return found


HERE = threading.local()


@contextmanager
def questions() -> Iterator[dict[tuple, int]]:
    """What this thread asks of the machine in the block: arguments of `packed_bytes` -> answer."""
    before, HERE.asked = getattr(HERE, "asked", None), {}
    try:
        yield HERE.asked
    finally:
        HERE.asked = before


class KernelFacts(NamedTuple):
    """What the runtime is told of a kernel."""

    name: str
    rule: str
    rows: int
    in_kinds: str
    out_kinds: str
    out_dtypes: tuple[str, ...]
    number_kinds: str
    outer: int  # loops
    inner: int
    serial: int
    cost: int
    origin: str


def kernel(pointer: Any, facts: KernelFacts, owner: Any, phased: tuple | None = None) -> Any:
    """A callable on tensors that allocates its results. `pointer`: the code's address, or a
    `device_kernel`; `owner` keeps the code loaded. `phased`: (pointer, phases, mask, bytes of
    state, bytes a block) for a long row on several threads."""
    dtypes = tuple(getattr(_core, d) for d in facts.out_dtypes)
    return _core.FusedKernel(pointer, *facts._replace(out_dtypes=dtypes), owner, phased)


def program(inputs: int, instructions: list, outputs: Any) -> Any:
    """Instructions on registers as one callable, which runs without autocast: graphs have casts."""
    return _core.Program(inputs, instructions, outputs, settled=True)


def workspace(size: int, places: list[tuple]) -> Any:
    """A callable that allocates `size` bytes and gives a tensor for each place in them: (byte
    offset, shape, strides, dtype's name)."""
    return _core.Workspace(size, [(*p[:3], getattr(_core, p[3])) for p in places])


def constant(value: Any) -> Entry:
    """A constant argument; dtypes are given by name."""
    if isinstance(value, str) and value in dtypes.TABLE:
        return ("c", getattr(_core, value))
    return ("c", value)


def dtype(name: str) -> Any:
    return getattr(_core, name)


def copy_into(target: Any, value: Any) -> Any:
    """Called by programs that write to their inputs."""
    return target.copy_(value)


def size(x: Any, dim: int) -> int:
    """Called by programs whose sizes vary."""
    return x.size(dim)


class MadeOn:
    """An operator without operands whose results go to a device, called with all its arguments in
    order; the last of them are `named`."""

    def __init__(self, device: str, operator: Callable, named: Sequence[str]) -> None:
        self.device, self.operator, self.named = device, operator, tuple(named)
        self.there = _core.resolve_device(device)

    def __call__(self, *arguments: Any) -> Any:
        at = len(arguments) - len(self.named)
        before = _core.set_creation_device(self.there)
        try:
            return self.operator(*arguments[:at], **dict(zip(self.named, arguments[at:])))
        finally:
            _core.set_creation_device(before)


def is_other_strides(error: IndexError) -> bool:
    """Whether the code that a kernel returned was no index but `loops.cpp.OTHER_STRIDES`."""
    return str(2**63 - 1) in str(error)


def without_grad(run: Callable, arguments: tuple) -> Any:
    """run(*arguments) with nothing recorded on the tape: a compiled graph has a backward of its
    own, or none."""
    before = _core.mode()
    _core.set_grad_enabled(False)
    try:
        return run(*arguments)
    finally:
        _core.set_mode(before)
