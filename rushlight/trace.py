"""Records: what every stage did, as one stream that logs, debug folders and reports read.

Takes `emit(stage, name, text, ...)` calls from any room; gives `Record`s to whoever listens.
Invariant: with no listener an emit is one test of a tuple. Make the text lazily where it costs
something:

    if trace.listeners:
        trace.emit("fx_graph", graph.name, graph.print, nodes=len(graph))

Stages form a tree: the documented ones (`report/path.json` has their summaries) with finer ones
inside. The first emit reads RUSHLIGHT_LOGS and RUSHLIGHT_COMPILE_DEBUG; the log goes to
stderr, the debug folder gets every artifact. These outputs never stop the program: an unknown name
or a folder that cannot be written is one sentence on stderr.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from rushlight import config

# Lines of an artifact's text (counted from 1) -> where they came from, outermost first: user
# line, node, declaration.
SourceMap = Mapping[int, tuple[str, ...]]


class Stage(NamedTuple):
    id: str
    parent: str | None  # the stage it nests in; None for the documented ones
    what: str
    kind: str = "text"  # of its artifacts, unless emit says otherwise


class Kind(NamedTuple):
    id: str
    extension: str
    what: str


# fmt: off
STAGES: dict[str, Stage] = {s.id: s for s in (
    Stage("python_code", None, "The user's own source, line by line.", "python"),
    Stage("cpython", None, "The interpreter that runs the program's bytecode."),
    Stage("frame_hook", "cpython", "A frame handed to the compiler just before it runs."),
    Stage("aten", None, "One operator call: check, promote, allocate, choose, run."),
    Stage("validate", "aten", "Arguments bound to the signature, shapes and values checked."),
    Stage("promote", "aten", "The dtype of the result chosen from those of the operands."),
    Stage("allocate", "aten",
        "Layout of the result chosen, memory taken from the caching allocator."),
    Stage("dispatch", "aten", "Which implementation runs, by device, dtype and mode."),
    Stage("plan", "aten", "The steps of a call made once for its layouts, then found again."),
    Stage("kernel", "aten", "A generated kernel: its source, its calls.", "cpp"),
    Stage("library", "aten",
        "A routine of a library: matrix product, convolution, linear algebra."),
    Stage("view", "aten", "A new layout over the same memory; nothing is computed."),
    Stage("tape", "aten", "What a call leaves behind for its gradient."),
    Stage("backward", "aten", "The derivative program of a call, and its runs."),
    Stage("aten_cpu", None, "Precompiled kernels and libraries on the CPU.", "cpp"),
    Stage("aten_cuda", None, "Precompiled kernels and libraries on the GPU."),
    Stage("dynamo", None,
        "Bytecode interpreted symbolically to capture tensor operations.", "bytecode"),
    Stage("guards", "dynamo", "What capture assumed, checked at each call.", "guards"),
    Stage("graph_break", "dynamo", "Code that runs in plain Python between two graphs."),
    Stage("recompile", "dynamo", "A guard that failed, and the capture that followed."),
    Stage("fake_tensor", "dynamo", "Shapes and dtypes propagated without data."),
    Stage("symbolic_shapes", "dynamo", "Sizes that vary, and what was assumed of them."),
    Stage("fx_graph", None, "The captured operations as a graph.", "graph"),
    Stage("aot_autograd", "fx_graph",
        "Mutation removed, forward and backward captured together.", "graph"),
    Stage("forward_graph", "fx_graph", "The forward half, with what it saves.", "graph"),
    Stage("backward_graph", "fx_graph", "The backward half.", "graph"),
    Stage("decomposition", "fx_graph", "Operators rewritten in a smaller vocabulary.", "graph"),
    Stage("pass", "fx_graph", "One named rewrite of a graph.", "graph"),
    Stage("inductor", None, "A graph lowered to loops, fused and scheduled."),
    Stage("loop_ir", "inductor", "The loops of a graph, before and after fusion.", "loops"),
    Stage("fusion", "inductor", "Which loops became one, and why others did not."),
    Stage("memory_plan", "inductor", "Which results share memory."),
    Stage("wrapper", "inductor", "The function that calls a graph's kernels in order.", "python"),
    Stage("fallback", "inductor", "An operator inside a graph that no code is generated for."),
    Stage("artifact_cache", "inductor", "Compiled code found on disk, or missed and why."),
    Stage("cpp_openmp", None, "Generated C++ with OpenMP, compiled to a shared object.", "cpp"),
    Stage("triton_kernels", None, "Generated Triton kernels.", "python"),
    Stage("triton_compiler", None, "Triton's own compiler."),
    Stage("ttir", "triton_compiler", "Triton IR.", "ttir"),
    Stage("ttgir", "triton_compiler", "Triton GPU IR: layouts and threads decided.", "ttgir"),
    Stage("llvm_ir", None, "LLVM IR of a GPU kernel.", "llvm"),
    Stage("ptx", None, "PTX, the virtual instruction set of NVIDIA GPUs.", "ptx"),
    Stage("gpu_machine_code", None, "Machine code of one GPU architecture, disassembled.", "sass"),
    Stage("cpu", None, "The processor: what ran on it, and how long."),
    Stage("nvidia_gpu", None, "The GPU: what ran on it, and how long."),
    Stage("launch", "nvidia_gpu", "A kernel queued on a stream."),
    Stage("copy", "nvidia_gpu", "Bytes moved between host and device."),
    Stage("synchronise", "nvidia_gpu", "A point where Python waits for the device."),
    Stage("cuda_graph", "nvidia_gpu", "Launches replayed as one, or why not."),
)}

KINDS: dict[str, Kind] = {k.id: k for k in (
    Kind("text", "txt", "Plain text."),
    Kind("reason", "txt", "A refusal: what, why, what to do, where."),
    Kind("python", "py", "Python source."),
    Kind("cpp", "cpp", "C++ source."),
    Kind("graph", "py", "A graph printed as Python."),
    Kind("bytecode", "txt", "Bytecode, one instruction a line."),
    Kind("guards", "txt", "Guards, one a line."),
    Kind("loops", "txt", "Loop IR printed as loop nests."),
    Kind("ttir", "ttir", "Triton IR."),
    Kind("ttgir", "ttgir", "Triton GPU IR."),
    Kind("llvm", "ll", "LLVM IR."),
    Kind("ptx", "ptx", "PTX."),
    Kind("sass", "sass", "Disassembled GPU machine code."),
    Kind("json", "json", "A table or tree as JSON."),
)}
# fmt: on


class Record(NamedTuple):
    """One thing that a stage did. Times are nanoseconds of `time.perf_counter_ns`."""

    index: int
    time_ns: int
    thread: int
    stage: str
    name: str
    kind: str
    text: str
    sourcemap: SourceMap | None
    facts: Mapping[str, Any]


Listener = Callable[[Record], None]


class Kept(list[Record]):
    """A listener that keeps records, whose texts are made when they are read: a compilation that
    is recorded does not pay for printing its graphs. What texts are made of must not change."""

    __eq__, __hash__ = object.__eq__, object.__hash__  # type: ignore[assignment]

    def __call__(self, record: Record) -> None:
        self.append(record)

    def read(self) -> list[Record]:
        """The records with their texts; made once."""
        for i, r in enumerate(self):
            if callable(r.text) or callable(r.sourcemap):
                text = r.text() if callable(r.text) else r.text
                lines = r.sourcemap() if callable(r.sourcemap) else r.sourcemap
                self[i] = r._replace(text=text, sourcemap=lines)
        return self


def emit(
    stage: str,
    name: str,
    text: str | Callable[[], str] = "",
    sourcemap: SourceMap | None | Callable[[], SourceMap] = None,
    kind: str | None = None,
    **facts: Any,
) -> None:
    """Hands one record to every listener. `text` and `sourcemap` may be functions, called only if
    somebody listens; where all who do are `Kept`, not before the record is read."""
    if not listeners:
        return
    global _count
    if kind is None:
        entry = STAGES.get(stage)
        kind = "text" if entry is None else entry.kind
    if config.flags.strict and (stage not in STAGES or kind not in KINDS):
        raise KeyError(
            f"trace.emit: unknown stage {stage!r} or kind {kind!r}; add it to rushlight/trace.py"
        )
    told = listeners
    if told[0] is _start_outputs:
        told = start_outputs()
        if not told:
            return
    with _lock:
        _count += 1
        index = _count
    if _here.units:
        facts.setdefault("unit", _here.units[-1])
    for key, value in _here.about.items():
        facts.setdefault(key, value)
    if not all(isinstance(listener, Kept) for listener in told):
        text = text() if callable(text) else text
        sourcemap = sourcemap() if callable(sourcemap) else sourcemap
    record = Record(
        index,
        time.perf_counter_ns(),
        threading.get_ident(),
        stage,
        name,
        kind,
        text,  # type: ignore[arg-type]
        sourcemap,  # type: ignore[arg-type]
        facts,
    )
    for listener in told:
        listener(record)


@contextmanager
def span(stage: str, name: str, **facts: Any) -> Iterator[None]:
    """Records how long the block took, as facts `start_ns` and `end_ns`; nothing when nobody
    listens."""
    if not listeners:
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        emit(stage, name, start_ns=start, end_ns=time.perf_counter_ns(), **facts)


def numbered(name: str) -> str:
    """`name#7`: a name that no other unit of this process has."""
    return f"{name}#{next(_numbers)}"


@contextmanager
def unit(name: str) -> Iterator[None]:
    """Records that this thread emits inside belong to `name` (their fact `unit`): one capture with
    all that became of it, also what is compiled later."""
    _here.units.append(name)
    try:
        yield
    finally:
        _here.units.pop()


@contextmanager
def about(**facts: Any) -> Iterator[None]:
    """Records that this thread emits inside have these facts, where they say nothing else."""
    before, _here.about = _here.about, {**_here.about, **facts}
    try:
        yield
    finally:
        _here.about = before


def current_unit() -> str:
    """The innermost `unit` of this thread; empty outside."""
    return _here.units[-1] if _here.units else ""


def short_path(path: str) -> str:
    """A name for a file, which no other file of this process has: its last part, or as many more as
    tell it from those that were named before it. It has no white space."""
    found = _paths.get(path)
    if found is None and not os.path.isabs(path) and os.path.isfile(path):  # `python model.py`
        found = _paths[path] = short_path(os.path.abspath(path))
    if found is None:
        parts = [re.sub(r"[\s>]+", "_", part) for part in path.split("/") if part] or [path]
        found = parts[-1]
        for i in range(2, len(parts) + 1):
            if found not in _named:
                break
            found = "/".join(parts[-i:])
        found = f"./{found}" if found in _named else found
        _paths[path] = found
        _named.add(found)
    return found


def short_place(place: str) -> str:
    """`/app/model.py:12` -> `model.py:12`, the file as `short_path` has it."""
    path, colon, line = place.rpartition(":")
    return f"{short_path(path)}:{line}" if colon and ("/" in path or path in _paths) else place


_paths: dict[str, str] = {}  # files -> their names
_named: set[str] = set()
STEP = [""]  # what the compiler is doing, for who waits for it


on_step: list[Callable[[str], None]] = []  # told each step of the compiler as it begins


def doing(step: str) -> None:
    """The step that begins; "" where the compiler is done. It is no record: a line of progress
    shows it, and ranges for a profiler of the system."""
    STEP[0] = step
    for tell in on_step:
        tell(step)


class _Here(threading.local):
    def __init__(self) -> None:
        self.units: list[str] = []
        self.about: dict[str, Any] = {}


_here = _Here()
_numbers = itertools.count(1)


def add_listener(listener: Listener) -> None:
    global listeners
    with _lock:
        listeners = (*listeners, listener)


def remove_listener(listener: Listener) -> None:
    """Removes it once; does nothing when it is not there."""
    global listeners
    with _lock:
        rest = list(listeners)
        if listener in rest:
            rest.remove(listener)
        listeners = tuple(rest)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Calls `listener` with each record of the block, of whatever thread."""
    add_listener(listener)
    try:
        yield
    finally:
        remove_listener(listener)


@contextmanager
def collect(*stages: str) -> Iterator[list[Record]]:
    """The records of the block, as a list that grows: all of them, or those of `stages` and what
    nests in them."""
    records: list[Record] = []

    def keep(record: Record) -> None:
        if not stages or any(s in stages for s in within(record.stage)):
            records.append(record)

    with listen(keep):
        yield records


def within(stage: str) -> tuple[str, ...]:
    """The stage and those it nests in, innermost first: 'validate' -> ('validate', 'aten')."""
    chain = [stage]
    while (entry := STAGES.get(chain[-1])) is not None and entry.parent is not None:
        chain.append(entry.parent)
    return tuple(chain)


# ---- outputs: the log on stderr and the debug folder


def set_logs(names: str) -> None:
    """Logs these from now on, in place of those set before: `RUSHLIGHT_LOGS` from within a
    program."""
    start_outputs()
    config.flags.logs = names
    _start_logs(names)


def _start_outputs(record: Record) -> None:
    """Stands first in `listeners` until the first emit, which replaces it by the outputs that the
    settings ask for."""


def start_outputs() -> tuple[Listener, ...]:
    """Adds the outputs that the settings ask for, once; the first emit does it where nobody did."""
    if _start_outputs in listeners:
        remove_listener(_start_outputs)
        if config.flags.logs:
            _start_logs(config.flags.logs)
        if config.flags.compile_debug:
            add_listener(DebugFolder(config.flags.debug_dir))
    return listeners


class Log(NamedTuple):
    name: str
    stages: tuple[str, ...]  # empty: every stage
    what: str
    reasons_only: bool = False


# fmt: off
LOGS: dict[str, Log] = {log.name: log for log in (
    Log("ops",
        ("dispatch", "validate", "promote", "allocate", "view"), "Operator calls as they run."),
    Log("plans", ("plan",), "Plans made and dropped, with what they were made for."),
    Log("kernels", ("kernel", "aten_cpu", "aten_cuda"), "Kernels found, with their source."),
    Log("libraries", ("library",), "Library routines chosen, copies made for them."),
    Log("autograd", ("tape", "backward"), "What is saved for gradients, derivative programs."),
    Log("dynamo", ("dynamo", "frame_hook"), "Capture: frames, guards, breaks, recompiles."),
    Log("guards", ("guards",), "What captures assumed."),
    Log("graph_breaks", ("graph_break",), "Code that ran in Python between graphs, and why."),
    Log("recompiles", ("recompile",), "Which assumption failed, and what changed."),
    Log("graphs", ("fx_graph",), "Graphs after capture and after each rewrite."),
    Log("inductor", ("inductor",), "Loops, fusion, schedule, memory plan, wrapper."),
    Log("fusion", ("fusion",), "What was fused, what was not and why."),
    Log("code", ("wrapper", "cpp_openmp", "triton_kernels"), "Generated code."),
    Log("cache", ("artifact_cache",), "Artifacts found on disk, or missed and why."),
    Log("gpu", ("nvidia_gpu",), "Launches, copies, waits, CUDA graphs."),
    Log("reasons", (), "Everything that was refused, in whatever stage.", reasons_only=True),
    Log("all", (), "Everything."),
)}
# fmt: on


def _start_logs(names: str) -> None:
    """Replaces the log by one of these names."""
    global _log
    if _log is not None:
        remove_listener(_log)
        _log = None
    chosen = parse_logs(names)
    if chosen:
        _log = LogWriter(chosen)
        add_listener(_log)


def parse_logs(names: str) -> list[Log]:
    """The logs named; says on stderr which names are unknown, or all of them for 'help'."""
    words = [w.strip() for w in names.split(",") if w.strip()]
    if "help" in words:
        print(describe_logs(), file=sys.stderr)
        words.remove("help")
    unknown = [w for w in words if w not in LOGS]
    if unknown:
        said = ", ".join(repr(w) for w in unknown)
        print(
            f"rushlight: RUSHLIGHT_LOGS: unknown {said}; known are {', '.join(LOGS)}, help",
            file=sys.stderr,
        )
    return [LOGS[w] for w in words if w in LOGS]


def describe_logs() -> str:
    width = max(map(len, LOGS))
    lines = [f"  {log.name:{width}}  {log.what}" for log in LOGS.values()]
    return "RUSHLIGHT_LOGS takes a comma-separated list of\n" + "\n".join(lines)


class LogWriter:
    """Writes the records of its logs to stderr, each under the first log that takes it."""

    def __init__(self, logs: list[Log]) -> None:
        self.logs = logs

    def __call__(self, record: Record) -> None:
        chain = within(record.stage)
        for log in self.logs:
            if log.reasons_only and record.kind != "reason":
                continue
            if not log.stages or any(stage in log.stages for stage in chain):
                print(format_record(record, log.name), file=sys.stderr)
                return


def format_record(record: Record, log: str) -> str:
    """`[log] stage name fact=value` and the text below it, indented when it has several lines."""
    if record.kind == "reason":
        return f"[{log}] {record.text}"
    head = f"[{log}] {record.stage} {record.name}"
    facts = " ".join(f"{k}={_short(v)}" for k, v in record.facts.items())
    if facts:
        head += f"  {facts}"
    lines = record.text.splitlines()
    if len(lines) == 1:
        return f"{head}  {lines[0]}"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def _short(value: Any, limit: int = 120) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class DebugFolder:
    """Writes `FOLDER/<date>-<process>/<stage>/<number>-<name>.<extension>` for every record that
    has a text, and one line of `index.jsonl` for every record."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}")
        self.count = 0
        self.failed = False

    def __call__(self, record: Record) -> None:
        if self.failed:
            return
        try:
            self._write(record)
        except OSError as error:
            self.failed = True
            print(
                f"rushlight: RUSHLIGHT_COMPILE_DEBUG: cannot write {self.folder}: {error}",
                file=sys.stderr,
            )

    def _write(self, record: Record) -> None:
        self.count += 1
        os.makedirs(self.folder, exist_ok=True)
        file = None
        if record.text:
            stage = os.path.join(*(_file_name(s) for s in reversed(within(record.stage))))
            os.makedirs(os.path.join(self.folder, stage), exist_ok=True)
            kind = KINDS.get(record.kind, KINDS["text"])
            file = os.path.join(
                stage, f"{self.count:04d}-{_file_name(record.name)}.{kind.extension}"
            )
            with open(
                os.path.join(self.folder, file), "w", encoding="utf-8", errors="replace"
            ) as out:
                out.write(record.text if record.text.endswith("\n") else record.text + "\n")
        import json

        line = {
            "number": self.count,
            "stage": record.stage,
            "name": record.name,
            "kind": record.kind,
            "file": file,
            "time_ns": record.time_ns,
            "facts": _plain(record.facts),
        }
        if record.sourcemap:
            line["sourcemap"] = {str(k): list(v) for k, v in record.sourcemap.items()}
        with open(os.path.join(self.folder, "index.jsonl"), "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _file_name(name: str) -> str:
    """A name that is one component of a path on every system: no separators, no leading dot, at
    most 80 characters."""
    return re.sub(r"[^\w.,=+-]+", "_", name)[:80].lstrip(".") or "_"


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: v if isinstance(v, (int, float, bool, str, type(None))) else str(v)
        for k, v in facts.items()
    }


_lock = threading.Lock()
_count = 0
listeners: tuple[Listener, ...] = (_start_outputs,)
_log: LogWriter | None = None


class _Module(types.ModuleType):
    """`rushlight.trace(x)`, PyTorch's sum of a matrix's diagonal, has this module's name."""

    def __call__(self, input: Any) -> Any:
        return input.trace()


sys.modules[__name__].__class__ = _Module
