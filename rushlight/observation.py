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

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rushlight import trace
from rushlight.errors import lines_of
from rushlight.kernel_sources import Sources, View
from rushlight.machine import (
    gpu_counts,
    limits,
    limits_of_gpu,
    machine,
    opened,
    processor_time,
    take_waits,
)


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

    def __init__(
        self,
        observed: Any,
        calls: Any,
        result: Any,
        sources: Sources,
        generated_code: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.observed = observed
        self.calls = calls
        self.result = result
        self._sources = sources
        self._generated_code = generated_code or {}  # routine -> what oneDNN made for it
        self._compilations: Sequence[Any] = ()  # events of the timeline
        self._begun_ns = 0

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
        from rushlight.loaded_code import machine_code
        from rushlight.report import page
        from rushlight.report.costs import GENERATED, KERNEL
        from rushlight.report.timeline import timeline

        called: dict[str, list[str]] = {}
        for call in self.calls:
            root = call
            while root.parent is not None:
                root = self.calls.by_id[root.parent]
            if root.where and call.ran and root.where not in called.setdefault(call.ran, []):
                called[call.ran].append(root.where)
        on_gpu = self.observed.device == "gpu" and opened()
        kernels = []
        for row in [c for c in self.observed.costs if c.how != GENERATED][:KERNELS_SHOWN]:
            views: list[View] = []
            if row.how == KERNEL:
                with suppress(KeyError):
                    views += self._sources.find(row.name)
            if not on_gpu:
                made = self._generated_code.get(row.name, ())
                views.append(machine_code(row.name, row.how, made))
            if views:
                kernels.append(page.kernel_views(row.name, views, row.lines))
        limit = limits_of_gpu() if on_gpu else limits()
        shown = {"limits": limit, "kernels": kernels, "called_at": called}
        times = timeline(
            self.calls,
            self._compilations,
            self._begun_ns,
            self.observed.wall_ns,
            self.observed.program,
        )
        return {**page_vocabulary(), **shown, "timeline": times}


_KERNEL_VIEWS = {
    "loops": "Its loops", "cpp": "The C++ generated from them", "python": "The Triton generated",
    "asm": "Its machine code",
}  # fmt: skip
KERNELS_SHOWN = 40  # the costliest precompiled ones and routines, whose code the page holds


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
        self.begun_ns = 0  # on the clock of calls
        self.processors: dict[str, Any] = {}  # what its threads got of them

    def __enter__(self) -> Recording:
        from rushlight.loaded_code import Generated
        from rushlight.profiler import recording

        self.generated = Generated()
        self.generated.start()
        trace.add_listener(self.records)
        take_waits()  # those before are not this run's
        self._before = gpu_counts()
        self._thread = threading.get_ident()
        recording.start(self.batches, gpu=True)
        self._processors = processor_time()
        self.begun_ns = time.perf_counter_ns()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from rushlight.profiler import recording

        self.wall_ns = time.perf_counter_ns() - self.begun_ns
        recording.stop(self.batches)
        spent, waited = (b - a for a, b in zip(self._processors, processor_time(), strict=True))
        if spent > 0:  # threads that ended took their times along
            self.processors = {"processors": {"ran_ns": spent, "waited_ns": max(0, waited)}}
        self.generated.stop()
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

    def _reads(self, calls: Any) -> dict[str, Any]:
        """{"reads": [{line, what, count, ns, host}, ...]}, the most frequent first; {} where there
        are none but those that waited for a GPU and are told as waits. `host`: what is read is an
        optimizer's own number, which a GPU program keeps on the host."""
        rows: dict[tuple[str, str, bool], list[int]] = {}
        waited = {(line, what) for what, _, line in self.waits}
        for call in calls.of_reads:
            what = _read_as(call.operator, call.ran)
            if (call.where, what) in waited:
                continue
            host = call.ran.startswith("optim/")
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
        from rushlight.report.records import gpu_facts, read_batches, without_compiling
        from rushlight.report.stages import Run
        from rushlight.report.timeline import compilations

        recorded = read_batches(self.batches)
        self.records.read()
        compiling = compilations(self.records)
        mine = compilations(r for r in self.records if r.thread == self._thread)
        calls = without_compiling(recorded, ((e.start, e.end) for e in mine))
        captured = captures(self.records, calls)
        sources = Sources(self.records)
        ran = (call for call in calls.everything if call.kind != "fused")
        keys = {call.ran for call in ran if call.route == "kernel"}
        run = Run(
            self.program, calls, self.records, "compile" if captured else "eager",
            "gpu" if self._used_gpu() else "cpu",
            wall_ns=self.wall_ns, error=_one_line(self.error),
            facts=machine() | self.processors | stopped_at(self.error) | self._waited()
            | self._reads(calls)
            | gpu_facts(calls, lambda device: opened().cuda_properties(device)),
            kernels={key: sources.facts(key) for key in sorted(keys)}, captures=captured,
        )  # fmt: skip
        made = generated_for(recorded, self.generated.functions)
        explained = Explanation(observe(run, operator), calls, result, sources, made)
        explained._compilations = compiling
        explained._begun_ns = self.begun_ns
        return explained


def generated_for(calls: Any, functions: Sequence[Any]) -> dict[str, list[Any]]:
    """What oneDNN generated, by the routine in whose call it did; "": in no call of one."""
    found: dict[str, list[Any]] = {}
    for f in functions:
        around = [c for c in calls.everything if c.start <= f.time_ns <= c.end and c.ran]
        inner = max(around, key=lambda c: c.start, default=None)
        name = inner.ran if inner is not None and inner.route == "library" else "onednn matmul"
        operands = " x ".join(str(x._replace(strides=None)) for x in inner.inputs) if inner else ""
        found.setdefault(name, []).append(f._replace(operands=operands))
    return found


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


# Functions of ours that read -> how the user wrote it.
_WRITTEN = {"formatted": "f-string or format(tensor)", "count_of": "tensor[mask]"}


def stopped_at(error: BaseException | None) -> dict[str, Any]:
    """{"stopped_at": the user's lines that it went through, innermost first}; {} without one."""
    lines = [] if isinstance(error, SystemExit) else [str(where) for where in lines_of(error)]
    return {"stopped_at": lines} if lines else {}


def _read_as(what: str, inside: str) -> str:
    """A read in the user's words. `inside`: "file:line in f" of ours that reads, empty where the
    user's line does."""
    function = inside.rpartition(" in ")[2]
    if inside.startswith("optim/"):
        return f"{what} of the optimizer's own numbers"
    if function in _WRITTEN:
        return _WRITTEN[function]
    return f"{function}, which calls {what}" if inside else what


def _one_line(error: BaseException | None) -> str:
    if error is None or isinstance(error, SystemExit) and not error.code:
        return ""
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
