"""Observation: from a program to the path it took.

Takes a function or a script; gives its result and an `Explanation`. Eager mode has no pipeline of
its own: the program runs in CPython, each tensor expression calls an operator object, and
that object validates, promotes, finds or makes a plan, allocates and runs a kernel or a library
routine (docs/native.md, "One call, on its way down"). What is here turns recording on around it,
and makes a report of the records:

    run the program      Recording         native call records on, a listener on trace
    read the records     read_calls        tuples -> Call
    observe              observe           counts, times, what each documented stage did
    show                 report            terminal; JSON

Invariant: recording changes nothing that the program can see, and is off again whatever happens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rushlight import trace


def explain(fn: Callable[..., Any], *, operator: str | None = None) -> Callable[..., Explanation]:
    """`rushlight.explain(model)(x)` runs `model(x)` and returns an Explanation: printed, it is the
    path the call took; its `result` is what the call returned. An exception of `fn` passes through
    with the path up to there as its attribute `explanation`."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        recording = Recording(getattr(fn, "__qualname__", None) or type(fn).__qualname__)
        try:
            with recording:
                result = fn(*args, **kwargs)
        except Exception as error:
            error.explanation = recording.explanation()  # type: ignore[attr-defined]
            error.add_note("rushlight: the path up to here is this exception's `explanation`")
            raise
        return recording.explanation(operator, result)

    return run


class Explanation:
    """A run's result and its observed path. `str()` and the prompt show the report."""

    def __init__(self, observed: Any, calls: Any, result: Any, sources: Sources) -> None:
        self.observed = observed
        self.calls = calls
        self.result = result
        self._sources = sources

    def __str__(self) -> str:
        from rushlight.report import terminal

        return terminal.to_text(lambda: terminal.report(self.observed))

    __repr__ = __str__

    def print(self, command: str = "", rows: int = 12) -> None:
        """The report with colour. `command`: what to type again, for the hints; `rows`: the most a
        table shows."""
        from rushlight.report import terminal

        terminal.console().print(terminal.report(self.observed, command, rows), crop=False)

    def kernel(self, key: str) -> Any:
        """One kernel, to print with rich: its declaration, its loops, and the C++ generated from
        them with the origin of each line. KeyError where its source is not known."""
        from rushlight.report import terminal

        row = next((row for row in self.observed.kernels if row.key == key), None)
        return terminal.kernel(row, key, self._generated(key) or self._sources.find(key))

    def _generated(self, key: str) -> list[View]:
        """The code of a kernel that a graph of this run generated; [] where none has the name."""
        from rushlight.report import machine_code

        found = []
        machine_code.add_machine_code(self.observed)
        for graph in (g for c in self.observed.captures for g in c.graphs):
            for a in graph.artifacts if not found else ():
                for first, last, name in a.spans:
                    if name == key and a.language in ("loops", "cpp", "asm", "python"):
                        rows = a.text.splitlines()[first - 1 : last]
                        origins = {n - first + 1: o for n, o in a.origins.items()}
                        text = "\n".join(rows) + "\n"
                        found.append(View(_KERNEL_VIEWS[a.language], a.language, text, origins))
        return found

    def to_json(self) -> dict[str, Any]:
        return self.observed.to_json()

    def page(self, mode: str = "", device: str = "") -> str:
        """The page (docs/explain.md) as the text of one HTML file. `mode` and `device`: the path
        that is shown first, where it is to be another than the run's."""
        from rushlight.report import machine_code, page

        show = {k: v for k, v in (("mode", mode), ("device", device)) if v}
        machine_code.add_machine_code(self.observed)
        return page.html(page.data(self.observed, self.calls, self._belongings() | {"show": show}))

    def _belongings(self) -> dict[str, Any]:
        from rushlight.report import page

        called: dict[str, list[str]] = {}
        for call in self.calls:
            root = call
            while root.parent is not None:
                root = self.calls.by_id[root.parent]
            if root.where and call.ran and root.where not in called.setdefault(call.ran, []):
                called[call.ran].append(root.where)
        kernels = []
        for row in self.observed.kernels[:KERNELS_SHOWN]:
            try:
                views = self._sources.find(row.key)
            except KeyError:
                continue
            if (code := disassembled_kernel(row.key)) is not None:
                views = [*views, code]
            kernels.append(page.kernel_views(row.key, views, called.get(row.key, ())))
        limit = limits_of_gpu() if self.observed.device == "gpu" and opened() else limits()
        return {**page_vocabulary(), "limits": limit, "kernels": kernels, "called_at": called}


_KERNEL_VIEWS = {
    "loops": "Its loops", "cpp": "The C++ generated from them", "python": "The Triton generated",
    "asm": "Its machine code",
}  # fmt: skip
KERNELS_SHOWN = 12  # precompiled ones whose source the page holds


def page_vocabulary() -> dict[str, Any]:
    """Names that the page needs of the package: what nests in what, and which operators are Core
    ATen's or primitive."""
    import rushlight.ops  # noqa: F401  (declares them)
    from rushlight.decomposition.opset import CORE_ATEN
    from rushlight.ops.values import TABLE

    core = {name: "core" for name, op in TABLE.items() if op.schema.base in CORE_ATEN}
    bottom = {name: "primitive" for name, op in TABLE.items() if op.bottom or op.kind == "view"}
    return {
        "parents": {s.id: s.parent for s in trace.STAGES.values() if s.parent},
        "stage_names": _STAGE_NAMES,
        "vocabulary": {**bottom, **core, "linear": "other"},
    }


_STAGE_NAMES = {
    "dynamo": "bytecode", "fx_graph": "graph", "aot_autograd": "joint graph", "loop_ir": "loops",
    "cpp_openmp": "C++", "forward_graph": "forward", "backward_graph": "backward",
    "decomposition": "after", "memory_plan": "memory", "gpu_machine_code": "SASS", "ptx": "PTX",
    "llvm_ir": "LLVM IR", "ttir": "TTIR", "ttgir": "TTGIR", "triton_kernels": "Triton",
}  # fmt: skip


def limits() -> dict[str, float]:
    """What this machine can do: bytes a nanosecond, of the best of a few copies of 64 MB, read and
    written, and operations a nanosecond, of the best of a few products of float32 matrices.
    Measured once a process, in about 0.2 s."""
    global _limits
    if _limits is None:
        import rushlight as rl

        x = rl.ones(1 << 24)
        y = rl.empty_like(x)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter_ns()
            y.copy_(x)
            best = min(best, time.perf_counter_ns() - start)
        a, least = rl.ones(SIDE, SIDE), float("inf")
        for _ in range(4):
            start = time.perf_counter_ns()
            rl.mm(a, a)
            least = min(least, time.perf_counter_ns() - start)
        _limits = {"bytes_per_ns": 8 * (1 << 24) / best, "operations_per_ns": 2 * SIDE**3 / least}
    return _limits


SIDE = 768  # of the matrices that are multiplied for it
_limits: dict[str, float] | None = None


def limits_of_gpu() -> dict[str, float] | None:
    """{"bytes_per_ns": ...} of the current GPU, by copies of 64 MB between two events; None where
    it has no room for them."""
    import rushlight as rl

    begun, ended = (rl.cuda.Event(enable_timing=True) for _ in range(2))
    try:
        x = rl.ones(1 << 24, device="cuda")
        y, best = rl.empty_like(x), float("inf")
        for _ in range(5):
            begun.record()
            y.copy_(x)
            ended.record()
            ended.synchronize()
            best = min(best, begun.elapsed_time(ended) * 1e6)
    except RuntimeError:
        return None
    return {"bytes_per_ns": 8 * (1 << 24) / best} if best else None


def disassembled_kernel(key: str) -> View | None:
    """The machine code of a precompiled kernel, from its entry to the next kernel's, where the
    machine has objdump; at most KERNEL_BYTES of it."""
    from rushlight import _core  # type: ignore[attr-defined]
    from rushlight.report import machine_code

    found = _core.kernel_find(key)
    place = found and mapped(found["pointer"])
    if not place:
        return None
    file, base = place
    pointers = (_core.kernel_find(k)["pointer"] for k in _core.kernel_keys())
    after = min((p for p in pointers if p > found["pointer"]), default=1 << 62)
    start, end = found["pointer"] - base, min(after, found["pointer"] + machine_code.KERNEL_BYTES)
    span = (f"--start-address={start:#x}", f"--stop-address={end - base:#x}")
    rows = machine_code.disassembled(file, *span)
    return View("Machine code", "asm", machine_code.alone(rows, key, start)) if rows else None


def mapped(pointer: int) -> tuple[str, int] | None:
    """(file, address that it is loaded at) of what lies at a pointer."""
    try:
        with open("/proc/self/maps") as file:
            rows = [row.split(maxsplit=5) for row in file]
    except OSError:
        return None
    bases: dict[str, int] = {}
    for row in rows:
        if len(row) < 6:
            continue
        (low, high), name = (int(n, 16) for n in row[0].split("-")), row[5].strip()
        bases.setdefault(name, low - int(row[2], 16))
        if low <= pointer < high:
            return name, bases[name]
    return None


class Recording:
    """Records the operator calls of this thread, and every thread's trace records, for the length
    of a `with`."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.records = trace.Kept()
        self.batches: list[list[Any]] = []  # of native records; their ids are distinct in a batch
        self.error: BaseException | None = None
        self.wall_ns = 0
        self.waits: list[tuple[str, int, str]] = []
        self.gpu: dict[str, int] = {}  # how many kernels of each kind ran there

    def __enter__(self) -> Recording:
        from rushlight.profiler import recording

        trace.add_listener(self.records)
        take_waits()  # those before are not this run's
        self._before = gpu_counts()
        recording.start(self.batches, gpu=True)
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from rushlight.profiler import recording

        self.wall_ns = time.perf_counter_ns() - self._start
        recording.stop(self.batches)
        self.waits = take_waits()
        after = gpu_counts()
        self.gpu = {k: n - self._before.get(k, 0) for k, n in after.items()}
        if self._used_gpu():
            ran: dict[str, Any] = {k: n for k, n in self.gpu.items() if n and k != "wait_ns"}
            trace.emit("launch", ", ".join(f"{n} {k}" for k, n in ran.items()), **ran)
        for what, ns, line in self.waits:
            trace.emit("synchronise", what, ms=round(ns / 1e6, 3), at=line)
        trace.remove_listener(self.records)
        self.error = error

    def _used_gpu(self) -> bool:
        return any(self.gpu.get(k) for k in ("generated", "library", "copy"))

    def _waited(self) -> dict[str, Any]:
        """{"waits": [{line, what, count, ns}, ...]}, the longest first; {} where nothing waited."""
        rows: dict[tuple[str, str], list[int]] = {}
        for what, ns, line in self.waits:
            row = rows.setdefault((line, what), [0, 0])
            row[0] += 1
            row[1] += ns
        made = [
            {"line": line, "what": what, "count": count, "ns": ns}
            for (line, what), (count, ns) in rows.items()
        ]
        return {"waits": sorted(made, key=lambda row: -row["ns"])} if made else {}

    @staticmethod
    def _reads(calls: Any) -> dict[str, Any]:
        """{"reads": [{line, what, count, ns, host}, ...]}, the most frequent first; {} where there
        are none. `host`: what is read is an optimizer's own number, which a GPU program keeps on
        the host."""
        rows: dict[tuple[str, str, bool], list[int]] = {}
        for call in calls.of_reads:
            host = call.ran.startswith("optim/")
            own = "of the optimizer's own numbers" if host else f"in rushlight's {call.ran}"
            what = f"{call.operator} {own}" if call.ran else call.operator
            row = rows.setdefault((call.where, what, host), [0, 0])
            row[0] += 1
            row[1] += call.ns
        made = [
            {"line": line, "what": what, "count": count, "ns": ns, "host": host}
            for (line, what, host), (count, ns) in rows.items()
            if line  # others are an operator's own
        ]
        return {"reads": sorted(made, key=lambda row: -row["count"])} if made else {}

    def explanation(self, operator: str | None = None, result: Any = None) -> Explanation:
        from rushlight.report.captures import captures
        from rushlight.report.observe import observe
        from rushlight.report.records import gpu_facts, read_batches
        from rushlight.report.stages import Run

        calls = read_batches(self.batches)
        self.records.read()
        captured = captures(self.records, calls)
        sources = Sources(self.records)
        ran = (call for call in calls.everything if call.kind != "fused")
        keys = {call.ran for call in ran if call.route == "kernel"}
        run = Run(
            self.program, calls, self.records, "compile" if captured else "eager",
            "gpu" if self._used_gpu() else "cpu",
            wall_ns=self.wall_ns, error=_one_line(self.error),
            facts=machine() | self._waited() | self._reads(calls)
            | gpu_facts(calls, lambda device: opened().cuda_properties(device)),
            kernels={key: sources.facts(key) for key in sorted(keys)}, captures=captured,
        )  # fmt: skip
        return Explanation(observe(run, operator), calls, result, sources)


class TorchExplanation(Explanation):
    """Of a PyTorch program that `interop.torch_observe` recorded: the same report, page and
    JSON."""

    def __init__(self, recording: Any) -> None:
        from rushlight.report.observe import observe

        run = recording.run()
        super().__init__(observe(run), run.calls, None, Sources([]))

    def _belongings(self) -> dict[str, Any]:
        from rushlight.interop.torch_words import vocabulary

        texts = (a.text for c in self.observed.captures for g in c.graphs for a in g.artifacts)
        called: dict[str, list[str]] = {}
        for call in self.calls:
            if call.where and call.ran and call.where not in called.setdefault(call.ran, []):
                called[call.ran].append(call.where)
        parents = page_vocabulary() | {"vocabulary": vocabulary(texts)}
        return {**parents, "limits": limits(), "kernels": [], "called_at": called}


def opened() -> Any:
    """The native core where a GPU was opened; else None."""
    opening = sys.modules.get("rushlight.runtime.cuda.opening")
    return opening._core if opening is not None and opening.opened else None


def take_waits() -> list[tuple[str, int, str]]:
    """Where Python waited for a GPU since the last time this was asked: (what, ns, line)."""
    return opened().cuda_waits() if opened() else []


def gpu_counts() -> dict[str, int]:
    """How many GPU kernels of each kind ran so far; {} where no GPU was used."""
    return opened().cuda_counts() if opened() else {}


def start_logs() -> None:
    """What RUSHLIGHT_LOGS, RUSHLIGHT_COMPILE_DEBUG and RUSHLIGHT_NVTX ask of eager mode: this
    thread's operator calls are recorded, and logged when the process ends or a recording begins or
    ends. Called once the native core is loaded, where one of these settings is there."""
    import atexit

    from rushlight import config
    from rushlight.profiler import recording

    trace.start_outputs()
    if config.flags.nvtx:
        from rushlight.profiler import nvtx

        nvtx.start()
    wanted = {"ops", "plans", "kernels", "libraries", "all"}
    if config.flags.compile_debug or wanted & set(config.flags.logs.replace(" ", "").split(",")):
        recording.always(_log_calls)
        atexit.register(recording.drain)


def _log_calls(batch: list[Any]) -> None:
    """Trace records from native ones: each call, indented as it nests; each plan that was made;
    each kernel and library routine once."""
    from rushlight.report.records import read_calls
    from rushlight.report.words import ns

    for call in read_calls(batch):
        facts: dict[str, Any] = {
            "took": ns(call.ns),
            "plan": _PLANS[call.hit],
            "ran": call.ran,
            "at": call.where,
        }
        given = {name: value for name, value in facts.items() if value}
        inputs, outputs = (", ".join(map(str, side)) for side in (call.inputs, call.outputs))
        name = f"{call.operator}({inputs}) -> {outputs}"
        trace.emit("dispatch", "  " * call.depth + name, **given)
        if call.hit is False:
            trace.emit("plan", name, f"made: {call.ran}")
        if call.route in ("kernel", "library") and call.ran not in _logged:
            _logged.add(call.ran)
            _log_ran(call.route, call.ran, call.operator)


def _log_ran(route: str, key: str, operator: str) -> None:
    if route == "library":
        trace.emit("library", key, f"first called by {operator}")
        return
    try:
        view = Sources([]).find(key)[-1]
    except KeyError:
        trace.emit("kernel", key, operator=operator)
    else:
        trace.emit("kernel", key, view.text, view.origins, operator=operator)


_logged: set[str] = set()
_PLANS = {None: "", True: "found", False: "made"}


def _one_line(error: BaseException | None) -> str:
    if error is None or isinstance(error, SystemExit) and not error.code:
        return ""
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class View(NamedTuple):
    """One form of a kernel. `origins`: line -> where it came from."""

    title: str
    language: str
    text: str
    origins: Mapping[int, tuple[str, ...]] | None = None


class Sources:
    """Sources and facts of kernels: from trace records of this run, else from what the package was
    built with."""

    def __init__(self, records: list[trace.Record]) -> None:
        self._records = {r.name: r for r in records if r.kind == "cpp" and r.text}

    def find(self, key: str) -> list[View]:
        """How a kernel came about: declaration, loops, C++. KeyError where neither a record nor the
        package has it."""
        record = self._records.get(key)
        if record is not None:
            return [View("Generated C++", "cpp", record.text, record.sourcemap)]
        import inspect

        from rushlight.loops import cpp
        from rushlight.loops.expr import show
        from rushlight.report.origins import split_origins

        op, kernel = _precompiled(key)
        declared = op.source or op
        how = (
            f"Derived from the declaration at {op.where}"
            if op.source
            else f"Declared at {op.where}"
        )
        return [
            View(how, "python", inspect.getsource(declared.body)),
            View("Its loops", "python", show(kernel)),
            View(
                "The C++ generated from them", "cpp", *split_origins(cpp.function(kernel, "kernel"))
            ),
        ]

    def facts(self, key: str) -> dict[str, Any]:
        from rushlight import _core  # type: ignore[attr-defined]

        record = self._records.get(key)
        if record is not None:
            return dict(record.facts)
        entry = _core.kernel_find(key)
        return _kernel_facts(entry) if entry is not None else {}


def _precompiled(key: str) -> tuple[Any, Any]:
    """Declaration and loop IR of a kernel of the library, which is lowered only as far as needed.
    KeyError where there is none."""
    global _lowering
    if _lowering is None:
        from rushlight.loops import library

        _lowering = library.kernels()
    while key not in _lowered:
        op, kernel = next(_lowering, (None, None))
        if kernel is None:
            raise KeyError(key)
        _lowered[kernel.name] = (op, kernel)
    return _lowered[key]


_lowering: Iterator[Any] | None = None
_lowered: dict[str, tuple[Any, Any]] = {}
def _kernel_facts(entry: Any) -> dict[str, Any]:
    names = ("origin", "outer", "inner", "cost")
    if isinstance(entry, Mapping):
        return {name: entry[name] for name in names if name in entry}
    return {name: getattr(entry, name) for name in names if hasattr(entry, name)}


def machine() -> dict[str, Any]:
    """Versions and what this machine offers, as far as the native core says."""
    import os
    import platform

    import rushlight
    from rushlight import _core  # type: ignore[attr-defined]

    facts = {
        "rushlight": getattr(rushlight, "__version__", ""),
        "python": platform.python_version(),
    }
    for name, function in _NATIVE_FACTS.items():
        if hasattr(_core, function):
            facts[name] = getattr(_core, function)()
    return {**facts, "gpu": os.path.exists("/proc/driver/nvidia/version")}


_NATIVE_FACTS = {"isa": "isa", "threads": "num_threads", "kernels": "kernel_count"}


def libraries() -> dict[str, str]:
    """The libraries that operators call, each with its version, or that it was not found."""
    import os
    from importlib import metadata

    import rushlight

    found = {}
    for name, distribution in (("OpenBLAS", "scipy-openblas32"), ("numpy", "numpy")):
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = f"not found (pip install {distribution})"
    folder = os.path.join(rushlight.__path__[0], "lib")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    onednn = sorted(name for name in names if name.startswith("libdnnl"))
    found["oneDNN"] = ", ".join(onednn) or "not built in"
    return found


def cache_facts() -> dict[str, str]:
    """Where compiled artifacts are kept, and how much lies there."""
    import os

    from rushlight import config
    from rushlight.report.words import bytes_, count

    folder = config.flags.cache_dir or os.path.expanduser("~/.cache/rushlight")
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    size = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    return {"cache": f"{folder} ({count(len(files), 'file')}, {bytes_(size)})"}


def declarations() -> list[tuple[str, str, str, str, str]]:
    """Every declared operator: name, kind of definition, derivative, where it stands, schema."""
    import rushlight.ops  # noqa: F401  (declares them)
    from rushlight.ops.values import TABLE

    rows = []
    for name, op in sorted(TABLE.items()):
        rule = op.rule if isinstance(op.rule, str) else "none" if op.rule is None else "written"
        rows.append((name, op.kind, rule, op.where, op.schema.text))
    return rows
