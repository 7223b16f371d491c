"""Trace records of the compile stages, put together again: one `Capture` a unit, one `GraphRun` a
compiled graph.

Takes the records of a run and its calls (`Calls.of_graphs`, `Calls.of_functions`); gives plain
data: every artifact with the origins of its lines, guards with who read them, breaks, recompiles,
and of each graph its steps, its kernels, how often and how long it ran. Invariant: a record of a
unit that nobody described goes nowhere silently: it is an artifact of its stage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import trace
from rushlight.report.links import eliminated
from rushlight.report.origins import short, spans, split_origins, user_lines, variables
from rushlight.report.records import Call, Calls, nbytes, operations

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(slots=True)
class Artifact:
    """A text that a stage left. `origins`: line from 1 -> chain, the user's line first."""

    id: str
    stage: str
    title: str
    language: str
    text: str
    origins: dict[int, tuple[str, ...]] = field(default_factory=dict)
    makes: dict[int, list[str]] = field(default_factory=dict)  # line -> the variables made there
    spans: list[tuple[int, int, str]] = field(default_factory=list)  # first, last line, kernel


@dataclass(slots=True)
class Refused:
    id: str
    what: str
    why: str
    hint: str
    where: str  # the innermost line of the user's
    via: list[str] = field(default_factory=list)  # the lines that called it, innermost first


@dataclass(slots=True)
class Ran:
    """A step of a graph: a generated kernel, or an operator that is called as it is."""

    name: str
    generated: bool
    operators: list[str]
    makes: list[str]
    origins: list[str]
    lines: list[str]  # the user's, as file.py:12
    library: str = ""  # what ran, where it was no generated kernel
    calls: int = 0
    ns: int = 0
    first_ns: int = 0  # of that, its first call, which may have made a plan
    moved_bytes: int = 0
    operations: int = 0  # of matrix products


@dataclass(slots=True)
class Absorbed:
    """A node that no step runs, with its chain of origins."""

    makes: list[str]
    origins: str
    why: str


@dataclass(slots=True)
class GraphRun:
    label: str
    name: str
    artifacts: list[Artifact] = field(default_factory=list)
    steps: list[Ran] = field(default_factory=list)
    absorbed: list[Absorbed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)  # kernel -> function of the C++ file
    total_bytes: int = 0
    peak_bytes: int = 0
    cache: str = ""  # found, or why not
    library: str = ""  # the shared object
    compiler: str = ""
    compiler_ms: float = 0.0
    calls: int = 0
    ns: int = 0
    inside_ns: int = 0  # of that, in kernels, library routines and views
    shared: dict[int, str] = field(default_factory=dict)  # step -> the step whose kernel it runs
    called_at: list[str] = field(default_factory=list)  # lines that ran it by no compiled function


@dataclass(slots=True)
class Capture:
    unit: str
    function: str
    recompiles: list[Refused]  # what failed, so that this capture followed; empty: the first one
    recompiled: str = ""  # the same in a sentence
    artifacts: list[Artifact] = field(default_factory=list)
    guards: list[tuple[str, str]] = field(default_factory=list)  # text, who read it
    breaks: list[Refused] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # name -> path
    modules: dict[str, tuple[str, str]] = field(default_factory=dict)  # node -> module, its class
    inlined: list[str] = field(default_factory=list)  # lines captured in what the function called
    first_line: int = 0
    nodes: int = 0
    capture_ms: float = 0.0
    stage_ms: dict[str, float] = field(default_factory=dict)
    graphs: list[GraphRun] = field(default_factory=list)
    eliminated: dict[str, str] = field(default_factory=dict)  # node -> why it reaches no kernel


def captures(records: Sequence[trace.Record], calls: Calls) -> list[Capture]:
    """In the order of their capture. Records outside all units are left to others."""
    reader = _Reader()
    for record in records:
        reader.read(record)
    for capture in reader.units.values():
        for graph in capture.graphs:
            _add_calls(graph, calls)
        capture.eliminated = eliminated(capture)
    return list(reader.units.values())


class _Reader:
    def __init__(self) -> None:
        self.units: dict[str, Capture] = {}
        self.graphs: dict[str, GraphRun] = {}
        self.missed: dict[str, list[Refused]] = {}  # function -> guards that failed
        self.waiting: dict[str, list[Artifact]] = {}  # unit -> graphs that no program has yet
        self.missing: dict[str, str] = {}  # unit -> why the cache had nothing

    def read(self, record: trace.Record) -> None:
        unit = str(record.facts.get("unit", ""))
        reason = record.facts.get("reason")
        if record.kind == "reason" and reason is not None:
            self.refused(unit, record.stage, _refused(reason))
        elif unit:
            self.artifact(self.capture(unit), record)

    def capture(self, unit: str) -> Capture:
        if unit not in self.units:
            function = unit.rpartition("#")[0]
            missed = self.missed.pop(function, [])
            self.units[unit] = Capture(unit, function, missed, recompiled(missed))
        return self.units[unit]

    def refused(self, unit: str, stage: str, told: Refused) -> None:
        if told.id == "capture.guard_failed":
            self.missed.setdefault(told.what.removeprefix("recompiling "), []).append(told)
        elif stage in ("graph_break", "dynamo") and unit:
            self.capture(unit).breaks.append(told)
        elif told.id == "cache.miss":
            self.missing[unit] = told.why
        elif unit and self.capture(unit).graphs:
            self.capture(unit).graphs[-1].refused.append(told)
        elif unit:
            self.missed.setdefault(f"graph of {unit}", []).append(told)

    def artifact(self, capture: Capture, record: trace.Record) -> None:
        facts, stage = record.facts, record.stage
        graph = self.graph(capture, facts)
        if stage == "dynamo" and "milliseconds" in facts:
            capture.capture_ms += facts["milliseconds"]
            return
        if stage == "inductor" and "stages" in facts:
            for name, spent in facts["stages"].items():
                if name != "all":
                    capture.stage_ms[name] = capture.stage_ms.get(name, 0.0) + spent
            return
        if stage == "artifact_cache":
            self.missing[capture.unit] = "found"
            self.found = str(facts.get("path", ""))
            return
        if stage == "cpp_openmp" and graph is None:  # it was built
            self.found, self.built = str(facts.get("path", "")), facts
            return
        if stage == "guards":
            read = facts.get("read_by") or []
            texts = [row.partition("    # ")[0] for row in record.text.splitlines()]
            capture.guards = [(t, read[i] if i < len(read) else "") for i, t in enumerate(texts)]
        if stage == "fx_graph" and "files" in facts:
            capture.files.update(facts["files"])
            capture.nodes += facts.get("nodes", 0)
            capture.modules.update(facts.get("modules", {}))
        if record.kind == "bytecode" and "file" in facts:
            capture.files.setdefault(trace.short_path(facts["file"]), facts["file"])
            capture.first_line = facts["first_line"]
            capture.inlined = list(facts.get("inlined", ()))
        if not record.text:
            return
        text, origins = record.text, dict(record.sourcemap or {})
        if record.kind in ("cpp", "loops"):
            text, origins = split_origins(text)
        made = Artifact(f"a{record.index}", stage, record.name, record.kind, text)
        made.origins = {n: short(chain) for n, chain in origins.items()}
        made.makes = variables(record.kind, text)
        if record.kind == "bytecode":
            made.origins = bytecode_lines(text, trace.short_path(str(facts.get("file", ""))))
        elif stage in ON_GPU and graph is not None:
            made.title = f"{record.name}, for {facts.get('target', 'a GPU')}"
            for n, (first, *rest) in made.origins.items():
                made.origins[n] = (first.removeprefix("line "), *rest)
            made.spans = [(1, len(text.splitlines()), s.name) for s in graph.steps
                          if s.generated and named_for(record.name, s.name)]  # fmt: skip
        elif record.kind == "loops":
            made.spans = [(1, len(text.splitlines()), record.name)]
        elif graph is not None and graph.symbols:
            made.spans = spans(text, {f"// {name}": name for name in graph.symbols})
        self.place(capture, graph, made)

    def place(self, capture: Capture, graph: GraphRun | None, made: Artifact) -> None:
        """Graphs of one lowering wait for the program that they become; a pass that changed nothing
        leaves its name only."""
        if graph is not None:
            graph.artifacts.append(made)
            return
        if made.stage in ("decomposition", "pass"):
            waiting = self.waiting.setdefault(capture.unit, [])
            if waiting and _body(waiting[-1].text) == _body(made.text):
                waiting[-1].title += f", {made.title}"
            else:
                waiting.append(made)
            return
        capture.artifacts.append(made)

    def graph(self, capture: Capture, facts: Mapping[str, Any]) -> GraphRun | None:
        label = facts.get("graph")
        if label is None:
            return None
        if label not in self.graphs:
            made = self.graphs[label] = GraphRun(label, label.rpartition("/")[2].rpartition("#")[0])
            made.artifacts += self.waiting.pop(capture.unit, [])
            made.refused += self.missed.pop(f"graph of {capture.unit}", [])
            capture.graphs.append(made)
        graph = self.graphs[label]
        if "steps" in facts:
            graph.steps = [_step(told) for told in facts["steps"]]
            graph.absorbed = [Absorbed(**told) for told in facts.get("absorbed", ())]
        if "peak" in facts:
            graph.total_bytes, graph.peak_bytes = facts["total"], facts["peak"]
        if "symbols" in facts:
            graph.symbols = dict(facts["symbols"])
            ran = facts.get("ran", {})
            graph.shared = {i: name for i, name in ran.items() if name != graph.steps[i].name}
            graph.cache = self.missing.pop(capture.unit, "")
            graph.library, self.found = self.found, ""
            graph.compiler = str(self.built.get("compiler", ""))
            graph.compiler_ms = float(self.built.get("ms", 0.0))
            self.built = {}
        return graph

    found = ""
    built: Mapping[str, Any] = {}


ON_GPU = ("triton_kernels", "ttir", "ttgir", "llvm_ir", "ptx", "gpu_machine_code")


def named_for(source: str, kernel: str) -> bool:
    """Whether a Triton source, `KERNEL_0` or `KERNEL_0_flat`, is one of this kernel's."""
    clean = "".join(c if c.isalnum() else "_" for c in kernel)[:80]
    rest = source.removeprefix(clean)
    return rest != source and re.fullmatch(r"_\d+(_\w+)?", rest) is not None


def bytecode_lines(text: str, file: str) -> dict[int, tuple[str, ...]]:
    """Line of a listing -> the source line that its instructions belong to."""
    found: dict[int, tuple[str, ...]] = {}
    line = ""
    for number, row in enumerate(text.splitlines(), 1):
        line = row[:5].strip() or line
        if line.isdigit() and file:
            found[number] = (f"{file}:{line}",)
    return found


def _body(text: str) -> str:
    return "\n".join(row for row in text.splitlines() if not row.startswith("#"))


def _refused(reason: Any) -> Refused:
    where, *via = str(reason.where or "").split("\n    in ")
    return Refused(reason.id, reason.what, reason.why, reason.hint, where, via)


def recompiled(missed: Sequence[Refused]) -> str:
    """Why a call was captured again, in a sentence: what failed of the capture that was tried
    first, and of the others."""
    whys = list(dict.fromkeys(r.why for r in missed))
    if len(whys) < 2:
        return "".join(whys)
    return f"{whys[0]} (another capture did not fit either: {'; '.join(whys[1:])})"


def distinct_breaks(captures: Sequence[Capture]) -> list[tuple[Refused, int]]:
    """(break, how many captures it ended), the most frequent first: a place of the source is one,
    whether its function was captured for itself or inside its caller."""
    seen: dict[tuple[str, ...], list[Any]] = {}
    for told in (b for c in captures for b in c.breaks):
        seen.setdefault((told.id, told.what, told.why, told.where), [told, 0])[1] += 1
    # An exception ends the captures of all the functions that it leaves: told where the user's
    # line called the first of ours, it is not told again of those.
    # Where all of them are ours (a module of `nn` was compiled), it is told of the outermost.
    shown: dict[tuple[str, ...], tuple[str, ...]] = {}
    for key in sorted(seen, key=lambda key: key[3].startswith(PACKAGE)):
        shown.setdefault(key[:3], key)
    rows = [
        (told, n)
        for key, (told, n) in seen.items()
        if not key[3].startswith(PACKAGE) or shown[key[:3]] == key
    ]
    return sorted(rows, key=lambda row: -row[1])


def _step(told: Mapping[str, Any]) -> Ran:
    lines = [line for chain in told["origins"] for line in user_lines(chain.split(" > "))]
    made = [name.partition("[")[0] for name in told["makes"]]  # of several results, the node's name
    return Ran(
        told["ran"],
        told["generated"],
        list(told["operators"]),
        list(dict.fromkeys(made)),
        list(told["origins"]),
        list(dict.fromkeys(lines)),
    )


def _add_calls(graph: GraphRun, calls: Calls) -> None:
    """Times of the graph's calls, and of each step, which is known by what it is recorded as; equal
    names stand in the order of their calls."""
    runs = [call for call in calls.of_graphs if call.operator == graph.label]
    graph.calls, graph.ns = len(runs), sum(call.ns for call in runs)
    graph.called_at = list(dict.fromkeys(filter(None, (_called_at(call, calls) for call in runs))))
    places: dict[str, list[int]] = {}
    for i, step in enumerate(graph.steps):
        places.setdefault(graph.shared.get(i, step.name), []).append(i)
    for call in runs:
        taken: dict[str, int] = {}
        for part in calls.everything.children.get(call.id, ()):
            graph.inside_ns += part.ns
            name = part.operator.rstrip("_") if part.operator not in places else part.operator
            if part.kind != "view" and name in places:
                nth = taken.get(name, 0)
                taken[name] = nth + 1
                at = places[name][min(nth, len(places[name]) - 1)]
                calls.everything.step_of[part.id] = (graph.label, at)
                _add(graph.steps[at], part)


def _called_at(call: Call, calls: Calls) -> str:
    """The user's line that a backward graph runs for, say; "" inside a compiled function, whose
    own lines are told with it."""
    above, where = call, call.where
    while above.kind != "compiled" and above.parent is not None:
        above = calls.everything.by_id[above.parent]
        where = where or above.where
    return "" if above.kind == "compiled" else where


def _add(step: Ran, call: Call) -> None:
    if not step.calls:
        step.first_ns = call.spent
    step.calls += 1
    step.ns += call.spent
    step.moved_bytes += nbytes(call.inputs) + nbytes(call.outputs)
    step.operations += operations(call.operator, call.inputs, call.outputs)
    if not step.generated and call.ran:
        step.library = call.ran
