"""What each documented stage did in a run, counted from its records.

Takes a `Run` (native calls, trace records, captures, times); `describe(run, stage, mode)` gives a
sentence, a count (0: the run did not take it), a time, and the finer stages inside. Invariant:
every number is counted from records. In compile mode the operators that ran one at a time, outside
all graphs, are no part of the path: eager mode shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import trace
from rushlight.report import table
from rushlight.report.captures import Capture, GraphRun, distinct_breaks
from rushlight.report.links import captured_nodes
from rushlight.report.records import Calls, nbytes
from rushlight.report.words import bytes_, count, ns, short_path

_GPU = ("nvidia_gpu", "triton_kernels", "triton_compiler", "ptx", "gpu_machine_code")


@dataclass(slots=True)
class Run:
    """What was recorded of one program. `mode` and `device`: those shown first; what ran in the
    other mode is told where that one is looked at."""

    program: str
    calls: Calls
    records: Sequence[trace.Record] = ()
    mode: str = "eager"
    device: str = "cpu"
    wall_ns: int = 0
    error: str = ""  # of the program, one line; empty when it ended well
    facts: Mapping[str, Any] = field(default_factory=dict)  # isa, threads, libraries, versions
    kernels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # key -> origin, ...
    captures: Sequence[Capture] = ()
    vendor: str = "Rushlight"  # whose stages these are
    vendors: Mapping[str, str] = field(default_factory=dict)  # stage -> vendor, where another's
    describe: Callable[[Run, str, str], Told] | None = None  # words for another vendor's stages

    @property
    def modes(self) -> set[str]:
        """Those in which anything ran."""
        compiled = self.captures or self.calls.of_functions or self.mode == "compile"
        eager = self.calls or not compiled
        return {m for m, ran in (("compile", compiled), ("eager", eager)) if ran}

    @property
    def devices(self) -> set[str]:
        found = {self.device}
        if any(trace.within(record.stage)[-1] in _GPU for record in self.records):
            found.add("gpu")
        return found


@dataclass(slots=True)
class Finer:
    """A finer stage inside a documented one."""

    id: str
    what: str
    count: int
    ns: int | None  # None where it is not timed apart
    sentence: str


@dataclass(slots=True)
class Told:
    sentence: str
    count: int
    ns: int | None
    finer: list[Finer]


def _python_code(run: Run, stage: str) -> Told:
    lines = table.lines(run.calls)
    calls = len(run.calls.roots)
    if not calls:
        ended = f" before it stopped with {run.error}" if run.error else ""
        return Told(f"{run.program} ran, and called no operator{ended}.", 1, None, [])
    text = f"{run.program}: {count(len(lines), 'line')} called operators {count(calls, 'time')}"
    if lines:
        text += f"; the costliest is {short_path(lines[0].where)} ({ns(lines[0].ns)})"
    if run.error:
        text += f". It stopped with {run.error}"
    return Told(text + ".", calls, None, [])


def _cpython(run: Run, stage: str) -> Told:
    text, rest = _shares(run)
    return Told(text, max(1, len(run.calls.roots)), rest, _finer_from_records(run, "cpython"))


def _shares(run: Run) -> tuple[str, int]:
    """Where the run's time went, in parts that add up to it, and nanoseconds of the last one."""
    graphs = run.calls.of_graphs
    alone = run.calls.roots
    built = round(1e6 * sum(c.capture_ms + sum(c.stage_ms.values()) for c in run.captures))
    inside, called = sum(call.ns for call in graphs), sum(call.ns for call in alone)
    rest = max(0, run.wall_ns - inside - called - built)
    parts = []
    if graphs:
        parts.append(f"{ns(inside)} inside {count(len(graphs), 'call')} of compiled graphs")
    if built:
        parts.append(f"{ns(built)} in capturing and compiling")
    if alone or not parts:
        word = "one at a time" if parts else ""
        parts.append(f"{ns(called)} inside {count(len(alone), 'operator call')} {word}".rstrip())
    parts.append(f"{ns(rest)} in everything else (Python itself, imports, files, recording)")
    return f"The run took {ns(run.wall_ns)}: {', '.join(parts)}.", rest


def _aten(run: Run, stage: str) -> Told:
    calls = run.calls
    names = {call.operator for call in calls}
    hits, misses = table.plan_counts(calls)
    nested = sum(1 for call in calls if call.parent is not None)
    text = f"{count(len(calls), 'call')} of {count(len(names), 'operator')}"
    if nested:
        text += f", {nested} of them made by other operators"
    text += f"; {hits} found their plan, {misses} had to make one."
    return Told(text, len(calls), None, _aten_finer(run) if calls else [])


def _aten_finer(run: Run) -> list[Finer]:
    calls = run.calls
    mixed = [c for c in calls if len({x.dtype for x in (*c.inputs, *c.outputs)}) > 1]
    routes = Counter(call.route for call in calls if not call.failed)
    wrote = [c.outputs for c in calls if c.route in ("kernel", "library")]
    allocated = sum(map(len, wrote))
    hits, misses = table.plan_counts(calls)
    made_ns = sum(calls.own[call.id] for call in calls if call.hit is False)
    failed = sum(1 for call in calls if call.failed)
    refused = f", {failed} refused" if failed else ""
    became = [
        f"{count(routes[route], word)}" for route, word in _ROUTE_WORDS.items() if routes[route]
    ]
    rows = [
        ("validate", len(calls), None, f"{count(len(calls), 'call')} checked{refused}"),
        ("promote", len(mixed), None, f"{count(len(mixed), 'call')} had more than one dtype"),
        ("plan", hits + misses, None,
         f"{hits} found, {misses} made (calls that made one took {ns(made_ns)})"),
        ("allocate", allocated, None,
         f"{count(allocated, 'result')}, {bytes_(sum(map(nbytes, wrote)))}"),
        ("view", routes["view"], None, f"{count(routes['view'], 'view')} of memory already there"),
        ("dispatch", len(calls), None, ", ".join(became)),
    ]  # fmt: skip
    finer = [_finer(*row) for row in rows if row[1]]
    shown = {row.id for row in finer} | {"kernel", "library"}
    return finer + [row for row in _finer_from_records(run, "aten") if row.id not in shown]


_ROUTE_WORDS = {
    "kernel": "kernel call",
    "library": "library call",
    "view": "view",
    "program": "composition",
    "none": "call without a record of what ran",
}


def _kernels(run: Run, stage: str) -> Told:
    """ATen's kernels on whichever device."""
    return _kernels_of(run.calls, run.kernels)


def _kernels_of(calls: Calls, kernels: Mapping[str, Mapping[str, Any]]) -> Told:
    parts, finer, total, done = [], [], 0, 0
    for route, word in (("kernel", "kernel"), ("library", "library routine")):
        rows = table.ran(calls, route, kernels)
        if not rows:
            continue
        n, spent = sum(row.calls for row in rows), sum(row.ns for row in rows)
        sentence = f"{count(n, 'call')} of {count(len(rows), word)} took {ns(spent)}"
        cold = spent - sum(row.warm_ns for row in rows)
        if cold > spent / 10:
            sentence += f" ({ns(cold)} of it in calls that had to make their plan)"
        parts.append(sentence)
        finer.append(_finer(route, n, spent, f"{sentence}; most in {rows[0].key}"))
        total, done = total + spent, done + n
    return Told("; ".join(parts) + ".", done, total, finer)


def _cpu(run: Run, stage: str) -> Told:
    return _cpu_of(run, run.calls)


def _cpu_of(run: Run, calls: Calls) -> Told:
    rows = [call for call in calls if call.route in ("kernel", "library")]
    spent = sum(calls.own[call.id] for call in rows)
    moved = sum(nbytes(call.inputs) + nbytes(call.outputs) for call in rows)
    text = f"{ns(spent)} in kernels and libraries, on {bytes_(moved)} of operands and results"
    threads, isa = run.facts.get("threads"), run.facts.get("isa")
    if threads:
        text += f"; {count(int(threads), 'thread')}"
    if isa:
        text += f", {isa} kernels"
    return Told(text + ".", len(rows), spent, [])


def _from_records(run: Run, stage: str) -> Told:
    """A stage that this file has no words for: its records, counted."""
    records = [r for r in run.records if stage in trace.within(r.stage) and r.kind != "reason"]
    spent = sum(r.facts["end_ns"] - r.facts["start_ns"] for r in records if "end_ns" in r.facts)
    names = dict.fromkeys(r.name for r in records[:5])
    text = f"{count(len(records), 'record')}: {', '.join(names)}."
    return Told(text, len(records), spent or None, _finer_from_records(run, stage))


_QUEUED = {"generated": "generated kernel", "library": "library routine", "copy": "copy"}


def _nvidia_gpu(run: Run, stage: str) -> Told:
    """What was queued there, by kind, and how often the host waited for it."""
    told = _from_records(run, stage)
    launched = [r.facts for r in run.records if r.stage == "launch" and r.kind != "reason"]
    queued = {kind: sum(int(facts.get(kind, 0)) for facts in launched) for kind in _QUEUED}
    if not any(queued.values()):
        return told
    parts = [count(n, _QUEUED[kind]) for kind, n in queued.items() if n]
    text = f"{', '.join(parts)} queued"
    waits = [r for r in run.records if r.stage == "synchronise" and r.kind != "reason"]
    if waits:
        waited = sum(float(r.facts.get("ms", 0)) for r in waits)
        text += f"; the host waited {count(len(waits), 'time')}, {ns(waited * 1e6)} in all"
    told.sentence, told.count = text + ".", sum(queued.values())
    return told


def _finer_from_records(run: Run, stage: str, known: Sequence[Finer] = ()) -> list[Finer]:
    """Finer stages that have records and stand not among those known."""
    tally: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for record in run.records:
        if record.kind != "reason" and stage in trace.within(record.stage)[1:]:
            tally[record.stage] += 1
            if "end_ns" in record.facts:
                spent[record.stage] += record.facts["end_ns"] - record.facts["start_ns"]
    shown = {row.id for row in known}
    return [
        _finer(i, n, spent[i] or None, count(n, COUNTED.get(i, "record")))
        for i, n in tally.items()
        if i not in shown
    ]


COUNTED = {"loop_ir": "kernel", "wrapper": "wrapper", "memory_plan": "plan", "ptx": "kernel"}


def _finer(id: str, count: int, ns: int | None, sentence: str) -> Finer:
    return Finer(id, trace.STAGES[id].what if id in trace.STAGES else "", count, ns, sentence)


# ---- compile mode


def _graphs(run: Run) -> list[GraphRun]:
    return [graph for capture in run.captures for graph in capture.graphs]


def _python_code_compiled(run: Run, stage: str) -> Told:
    """The lines that called compiled functions."""
    rows = table.functions(run.calls)
    if not rows:
        return _python_code(run, stage)
    pieces = [row for row in rows if table.PIECE in row.function]
    whole = [row for row in rows if row not in pieces] or rows
    lines = list(dict.fromkeys(line for row in whole for line in row.where))
    calls = sum(row.calls for row in whole)
    text = (
        f"{run.program}: {count(len(lines), 'line')} called "
        f"{count(len(whole), 'compiled function')} {count(calls, 'time')}; "
        f"most time in {rows[0].function} ({ns(rows[0].ns)})"
    )
    if pieces and whole is not rows:
        went = count(sum(row.calls for row in pieces), "time")
        text += f". {count(len(pieces), 'piece')} after graph breaks ran {went}"
    if run.calls.roots:
        alone = len(run.calls.roots)
        text += f". {count(alone, 'operator call')} ran one at a time (see eager mode)"
    if run.error:
        text += f". It stopped with {run.error}"
    return Told(text + ".", calls, None, [])


def _cpython_compiled(run: Run, stage: str) -> Told:
    rows = table.functions(run.calls)
    if not rows:
        return _cpython(run, stage)
    hits = sum(row.calls - row.misses for row in rows)
    outside = sum(row.outside_ns for row in rows)
    text, rest = _shares(run)
    if hits:
        text += (
            f" {count(hits, 'call')} found compiled code, with {ns(outside / hits)} a call for "
            "guards, the wrapper and Python between graphs."
        )
    breaks = len(distinct_breaks(run.captures))
    finer = [_finer("graph_break", breaks, None, f"{count(breaks, 'place')} left to CPython")]
    return Told(text, max(1, sum(r.calls for r in rows)), rest, finer if breaks else [])


def _dynamo(run: Run, stage: str) -> Told:
    if not run.captures:
        return _from_records(run, stage)
    spent = sum(c.capture_ms for c in run.captures)
    names = {c.function for c in run.captures}
    guards = [len(c.guards) for c in run.captures]
    breaks = distinct_breaks(run.captures)
    again = [c for c in run.captures if c.recompiles]
    text = f"{count(len(run.captures), 'capture')} of {count(len(names), 'function')}"
    text += f" in {ns(spent * 1e6)}" if spent else ""
    checked = f"{count(sum(guards), 'guard')}"
    if len(guards) > 1:
        checked += f" in all; a call checks those of its capture, {max(guards)} at most"
    text += f"; {checked}"
    finer = [_finer("guards", sum(guards), None, checked)]
    if breaks:
        ended = sum(times for _, times in breaks)
        places = f"{count(len(breaks), 'place')}, which ended {count(ended, 'capture')}"
        text += f"; the graph broke at {places}"
        most, times = breaks[0]
        often = f" ({count(times, 'time')})" if times > 1 else ""
        finer.append(_finer("graph_break", len(breaks), None, f"{places}: {most.what}{often}"))
    if again:
        text += f"; {count(len(again), 'recompile')}"
        finer.append(_finer("recompile", len(again), None, again[0].recompiled))
    return Told(
        text + ".",
        len(run.captures),
        round(spent * 1e6) or None,
        finer + _finer_from_records(run, stage, finer),
    )


def _most(refused: Sequence[Any]) -> str:
    (what, times), *_ = Counter(r.what for r in refused).most_common(1)
    return what if times == 1 else f"{what} ({count(times, 'time')})"


def _fx_graph(run: Run, stage: str) -> Told:
    made = [c for c in run.captures if c.nodes]
    if not made:
        return _from_records(run, stage)
    nodes = sum(c.nodes for c in made)
    ours = run.vendor == "Rushlight"  # another's text lists calls alone
    called = sum(1 for c in made for _ in captured_nodes(c)) if ours else nodes
    graphs = _graphs(run)
    backward = sum(1 for g in graphs if g.name.endswith("_backward"))
    text = f"{count(len(made), 'graph')} with {count(called, 'call')} captured"
    if ours:
        text += f" ({count(nodes, 'node')} with inputs and outputs)"
    if graphs:
        text += f", {count(len(graphs), 'program')} made of them"
    if backward:
        text += f", {backward} of them backward"
    artifacts = [a for c in run.captures for a in c.artifacts]
    artifacts += [a for g in graphs for a in g.artifacts]
    finer = []
    for id, word in _GRAPH_STAGES.items():
        n = sum(a.stage == id for a in artifacts)
        if n:
            finer.append(_finer(id, n, None, count(n, word)))
    return Told(text + ".", len(made), None, finer)


_GRAPH_STAGES = {
    "aot_autograd": "joint graph or partition",
    "forward_graph": "forward graph",
    "backward_graph": "backward graph",
    "decomposition": "rewritten form",
}


def _inductor(run: Run, stage: str) -> Told:
    graphs = _graphs(run)
    if not graphs:
        return _from_records(run, stage)
    steps = [step for graph in graphs for step in graph.steps]
    fused = [step for step in steps if step.generated]
    operators = sum(len(step.operators) for step in fused)
    kernels = sum(len(set(graph.symbols.values())) for graph in graphs) or len(fused)
    spent = sum(sum(c.stage_ms.values()) for c in run.captures)
    refused = [r for graph in graphs for r in graph.refused]
    unfused = [r for r in refused if r.id.startswith("fusion.")]
    fallbacks = [r for r in refused if r.id.startswith("fallback.")]
    text = (
        f"{count(len(graphs), 'graph')} lowered to {count(len(steps), 'step')}: "
        f"{count(len(fused), 'step')} run {count(kernels, 'generated kernel')} for "
        f"{count(operators, 'operator')}, {count(len(steps) - len(fused), 'step')} "
        "call a library routine, an eager kernel or a view"
    )
    text += f"; {ns(spent * 1e6)} in all stages of compiling" if spent else ""
    most = max(graphs, key=lambda graph: graph.peak_bytes)
    finer = [
        _finer("fusion", len(unfused), None,
               f"{count(len(unfused), 'fusion')} refused: {_most(unfused)}" if unfused else ""),
        _finer("memory_plan", len(graphs), None,
               f"{bytes_(most.peak_bytes)} at once at most, in {most.label}"),
        _finer("fallback", len(fallbacks), None,
               f"{count(len(fallbacks), 'operator')} left to libraries or eager kernels"),
        _finer("artifact_cache", sum(g.cache == "found" for g in graphs), None,
               f"{sum(g.cache == 'found' for g in graphs)} found, "
               f"{sum(bool(g.symbols) and g.cache != 'found' for g in graphs)} built"),
    ]  # fmt: skip
    finer = [row for row in finer if row.count]
    return Told(
        text + ".",
        len(graphs),
        round(spent * 1e6) or None,
        finer + _finer_from_records(run, stage, finer),
    )


def _cpp_openmp(run: Run, stage: str) -> Told:
    graphs = [graph for graph in _graphs(run) if graph.symbols]
    if not graphs:
        return _from_records(run, stage)
    steps = [step for graph in graphs for step in graph.steps if step.generated]
    calls, spent = sum(s.calls for s in steps), sum(s.ns for s in steps)
    built = sum(graph.compiler_ms for graph in graphs)
    kernels = sum(len(set(graph.symbols.values())) for graph in graphs)
    text = f"{count(kernels, 'kernel')} in {count(len(graphs), 'file')}"
    text += f", compiled in {ns(built * 1e6)}" if built else ", found compiled on disk"
    if calls:
        first = max(steps, key=lambda s: s.ns)
        text += f"; {count(calls, 'call')} took {ns(spent)}, most in {first.name}"
    return Told(text + ".", kernels, spent or None, [])


def _kernels_in_graphs(run: Run, stage: str) -> Told:
    """What compiled graphs left to eager kernels and libraries."""
    calls = Calls(c for c in run.calls.inside if c.kind != "fused")
    return _kernels_of(calls, run.kernels)


def _cpu_compiled(run: Run, stage: str) -> Told:
    return _cpu_of(run, run.calls.inside)


_DESCRIBE: dict[str, dict[str, Callable[[Run, str], Told]]] = {
    "eager": {
        "python_code": _python_code,
        "cpython": _cpython,
        "aten": _aten,
        "aten_cpu": _kernels,
        "aten_cuda": _kernels,
        "cpu": _cpu,
        "nvidia_gpu": _nvidia_gpu,
    },
    "compile": {
        "python_code": _python_code_compiled,
        "cpython": _cpython_compiled,
        "dynamo": _dynamo,
        "fx_graph": _fx_graph,
        "inductor": _inductor,
        "cpp_openmp": _cpp_openmp,
        "aten_cpu": _kernels_in_graphs,
        "aten_cuda": _kernels_in_graphs,
        "cpu": _cpu_compiled,
        "nvidia_gpu": _nvidia_gpu,
    },
}


def describe(run: Run, stage: str, mode: str) -> Told:
    return (run.describe or describe_own)(run, stage, mode)


def describe_own(run: Run, stage: str, mode: str) -> Told:
    return _DESCRIBE[mode].get(stage, _from_records)(run, stage)
