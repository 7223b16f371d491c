"""What a PyTorch program does while it runs: its operator calls with the user's line, and where
Python reads a value of a tensor.

Takes the run of a program (`with Watch() as watch:`); gives `watch.ops` and `watch.reads`. Operator
calls are seen by a TorchDispatchMode that torch.compile is told to ignore (torch's documented
`ignore_compile_internals`); each is marked in the profiler with its number, so that torch's own
events get a line. Reads that call no operator (`numpy`, `tolist`, `print`) are seen by wrapping
these methods while the program runs; while Dynamo traces, they are torch's own again.

Invariant: the program computes what it would without being watched, compiles the same graphs, and
torch.Tensor is as before when it has ended.
"""

from __future__ import annotations

import dis
import functools
import linecache
import os
import re
import sys
import sysconfig
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

LIMIT = 40_000  # operator calls that are recorded; a longer run goes on without
MARK = "rushlight:"  # what the profiler shows of a recorded call: this and its number


class Op(NamedTuple):
    """One dispatched operator call."""

    name: str  # aten::addmm
    view: bool
    inputs: tuple[Any, ...]  # (dtype, shape, strides) each
    outputs: tuple[Any, ...]
    where: str  # the innermost line outside torch: file:line in function
    own: str  # the innermost line outside every library too
    in_graph: bool  # a compiled graph called it


class Read(NamedTuple):
    """Python read a value of a tensor: on a GPU it waits there until that is computed."""

    what: str
    where: str  # the user's own line
    ns: int
    gpu: bool  # it was on a GPU


class Place(NamedTuple):
    """Where in the user's program a call came from."""

    inner: str  # outside torch
    own: str  # outside every library too; the same as `inner` where that is the user's
    frame: FrameType | None  # of `own`
    in_graph: bool
    host: bool  # called for what stays on the host: an optimizer's step count, a data loader


TORCH, LIBRARY, OWN, GRAPH = range(4)


def kind_of_file(file: str) -> int:
    """Whose code this is: torch's (or ours), a library's, the user's, or a compiled graph's."""
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _kind_of_file(file)
    return kind


def _kind_of_file(file: str) -> int:
    if file.startswith("<eval_with_key>") or "torchinductor" in file:
        return GRAPH
    if file.startswith("<"):
        return TORCH
    full = os.path.abspath(file)
    if full.startswith(_inside()):
        return TORCH
    if "site-packages" in full or "dist-packages" in full or full.startswith(_STDLIB):
        return LIBRARY
    return OWN


@functools.cache
def _inside() -> tuple[str, ...]:
    """Folders whose frames say nothing of the user's program."""
    import torch

    above = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    names = ("torch", "functorch", "torchgen")
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return (*(os.path.join(above, name) + os.sep for name in names), ours + os.sep)


_kinds: dict[str, int] = {}
_STDLIB = sysconfig.get_path("stdlib") + os.sep


# What these read stays on the host: step counts, lengths of sequences.
_HOST = ("torch/optim/", "torch/utils/data/")
_HOST_FILES = ("torch/nn/modules/rnn.py", "torch/nn/utils/rnn.py")


def place(frame: FrameType | None) -> Place:
    """From a frame outwards to the user's line."""
    inner: FrameType | None = None
    in_graph = host = False
    while frame is not None:
        file = frame.f_code.co_filename
        kind = kind_of_file(file)
        if kind == GRAPH:
            in_graph = in_graph or inner is None
        elif kind == TORCH:
            host = host or file.endswith(_HOST_FILES) or any(part in file for part in _HOST)
        else:
            inner = inner or frame
            if kind == OWN:
                break
        frame = frame.f_back
    return Place(_text(inner), _text(frame or inner), frame or inner, in_graph, host)


def loads_data(frame: FrameType | None) -> bool:
    """A data loader is at work further out."""
    while frame is not None:
        if "torch/utils/data/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _text(frame: FrameType | None) -> str:
    if frame is None:
        return ""
    name = RESUMED.sub(r"\1", frame.f_code.co_qualname)
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {name}"


RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")  # a function after a graph break


@functools.lru_cache(4096)
def expression(code: CodeType, at: int) -> str:
    """The source of what the instruction at this offset computes, `loss.item()`; of a condition,
    `if loss > 3`. The whole line where the code does not say."""
    positions = list(code.co_positions())
    line, end, first, last = positions[at // 2] if at // 2 < len(positions) else (None,) * 4
    if line is None:
        return ""
    text = linecache.getline(code.co_filename, line)
    if line == end and first is not None and last is not None:
        encoded = text.encode()[first:last].decode(errors="replace").strip()
        text = encoded or text
    text = text.strip()
    text = text if len(text) <= 80 else text[:77] + "..."
    name = dis.opname[code.co_code[at]] if at < len(code.co_code) else ""
    if "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT"):
        return f"the truth of {re.sub(r'^(?:if|elif|while|assert)? *(?:not )?|:$', '', text)}"
    return text


# Operators whose result's size or value must be known to Python before it can go on.
READS = frozenset(
    "aten::_local_scalar_dense aten::nonzero aten::masked_select aten::_unique aten::_unique2 "
    "aten::unique_dim aten::unique_consecutive aten::equal aten::bincount".split()
)
METHODS = ("numpy", "cpu", "tolist", "__array__", "__repr__")
_SAID = {"__array__": "as a NumPy array", "__repr__": "as text"}


def reads(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], torch: Any) -> bool:
    """Whether Python waits for this operator."""
    if name in READS:
        return True
    if name == "aten::index":
        masks = (torch.bool, torch.uint8)
        return any(i is not None and i.dtype in masks for i in args[1])
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None and hasattr(args[0], "dtype")
    if name == "aten::_to_copy":
        target = kwargs.get("device")
        to_host = target is not None and torch.device(target).type == "cpu"
        return to_host and args[0].is_cuda and not kwargs.get("non_blocking")
    if name == "aten::copy_":
        waits = not (kwargs.get("non_blocking") or len(args) > 2 and args[2])
        return waits and args[1].is_cuda and not args[0].is_cuda
    return False


class Watch:
    def __init__(self, full: Callable[[], None] | None = None) -> None:
        """`full` is called once, when LIMIT operator calls were recorded."""
        self.ops: list[Op] = []
        self.reads: list[Read] = []
        self.seen = 0  # operator calls, with those that were not recorded
        self.used_gpu = False
        self._full = full
        self._busy = False
        self._mode: Any = None
        self._replaced: dict[str, Any] = {}
        self._wrapped: dict[str, Any] = {}
        self._running = self._hidden = False

    def __enter__(self) -> Watch:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        self._running = True
        for name in METHODS:
            self._wrapped[name] = self._wrap(getattr(torch.Tensor, name), name)
        self.wrap_methods()
        # Without this, a dispatch mode would keep torch.compile from compiling.
        if hasattr(TorchDispatchMode, "ignore_compile_internals"):
            self._mode = _mode(self, torch, TorchDispatchMode)
            self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._mode is not None:
            self._mode.__exit__(*error)
        self._running = False
        self.unwrap_methods()

    def hide_from_dynamo(self) -> None:
        """Dynamo, now that it is there, does not compile what wraps the methods."""
        import torch

        if not self._hidden:
            self._hidden = True
            self.unwrap_methods()
            self._wrapped = {k: torch.compiler.disable(m) for k, m in self._wrapped.items()}
            self.wrap_methods()

    def wrap_methods(self, *_: Any) -> None:
        import torch

        if self._running and not self._replaced:
            for name, method in self._wrapped.items():
                self._replaced[name] = torch.Tensor.__dict__.get(name)
                setattr(torch.Tensor, name, method)

    def unwrap_methods(self, *_: Any) -> None:
        import torch

        for name, plain in self._replaced.items():
            if plain is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, plain)
        self._replaced.clear()

    @property
    def sees_operators(self) -> bool:
        return self._mode is not None

    def _wrap(self, plain: Any, name: str) -> Any:
        @functools.wraps(plain)
        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._busy or not _is_plain(tensor):
                return plain(tensor, *args, **kwargs)
            self._busy = True
            start = time.perf_counter_ns()
            try:
                return plain(tensor, *args, **kwargs)
            finally:
                self._busy = False
                spent = time.perf_counter_ns() - start
                self.read(name, sys._getframe(1), tensor.is_cuda, spent)

        return method

    def read(self, how: str, frame: FrameType | None, gpu: bool, ns: int) -> None:
        at = place(frame)
        if at.in_graph or at.frame is None or not gpu and (at.host or loads_data(at.frame)):
            return
        what = expression(at.frame.f_code, at.frame.f_lasti)
        what = what or linecache.getline(at.frame.f_code.co_filename, at.frame.f_lineno).strip()
        if how in _SAID:
            what = f"{what} ({_SAID[how]})"
        if at.inner != at.own:
            name, _, line = at.inner.partition(" in ")[0].rpartition(":")
            what = f"{what}, which reads it at {'/'.join(name.split('/')[-2:])}:{line}"
        self.reads.append(Read(what, at.own, ns, gpu))


def _is_plain(tensor: Any) -> bool:
    """A tensor with values, outside torch's own tracing."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    tracing = torch._guards.TracingContext.try_get() is not None or torch.compiler.is_compiling()
    return not (tracing or isinstance(tensor, FakeTensor) or tensor.is_meta)


_NOTHING = Op("", False, (), (), "", "", False)


def _mode(watch: Watch, torch: Any, base: Any) -> Any:
    mark = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
    tensor = torch.Tensor
    now = time.perf_counter_ns
    views: dict[Any, bool] = {}

    def layouts(values: Any) -> tuple[Any, ...]:
        found = []
        for value in values:
            if isinstance(value, tensor):
                try:
                    shape = tuple(map(int, value.shape))
                    found.append((str(value.dtype).rpartition(".")[2], shape, None))
                    watch.used_gpu = watch.used_gpu or value.is_cuda
                except Exception:  # noqa: BLE001  (a subclass with no such facts)
                    continue
            elif isinstance(value, (list, tuple)) and len(value) < 64:
                found.extend(layouts(value))
        return tuple(found)

    class Mode(base):  # type: ignore[misc, valid-type]
        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            watch.seen += 1
            name = func._schema.name if hasattr(func, "_schema") else str(func)
            if name.startswith("profiler::") or not hasattr(func, "_schema"):
                return func(*args, **kwargs)
            number = len(watch.ops)
            recorded = number < LIMIT
            start = now()
            if recorded:
                watch.ops.append(_NOTHING)  # keeps the number
                with mark(f"{MARK}{number}"):
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
            spent = now() - start
            frame = sys._getframe(1)
            if recorded:
                if func not in views:
                    views[func] = _is_view(func)
                at = place(frame)
                given, made = layouts(args), layouts((result,))
                watch.ops[number] = Op(
                    name, views[func], given, made, at.inner, at.own, at.in_graph
                )
            elif watch._full is not None:
                full, watch._full = watch._full, None
                full()
            if not watch._busy and reads(name, args, kwargs, torch):
                source = args[1] if name == "aten::copy_" else args[0]
                watch.read(name, frame, bool(getattr(source, "is_cuda", False)), spent)
            return result

    return Mode()


def _is_view(func: Any) -> bool:
    """Its result shares memory with an operand, which it does not write to."""
    returns = func._schema.returns
    alias = returns[0].alias_info if returns else None
    return alias is not None and not alias.is_write
