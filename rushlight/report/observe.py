"""Records -> the observed path: what this run did, in the terms of the documented one.

Takes a `Run` (native calls, trace records, times, facts of the machine); gives `Observed`, plain
data that the terminal and the page render and `to_json` writes. Invariant: every number is counted
from records; a documented stage that this run did not take stands there with the reason.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import trace
from rushlight.report import path, table
from rushlight.report.records import Calls, nbytes
from rushlight.report.way_down import WayDown, way_down
from rushlight.report.words import bytes_, count, ns, short_path

SCHEMA = 1


@dataclass(slots=True)
class Run:
    """What was recorded of one program, in one mode on one device."""

    program: str
    calls: Calls
    records: Sequence[trace.Record] = ()
    mode: str = "eager"
    device: str = "cpu"
    wall_ns: int = 0
    error: str = ""  # of the program, one line; empty when it ended well
    facts: Mapping[str, Any] = field(default_factory=dict)  # isa, threads, libraries, versions
    kernels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # key -> origin, ...


@dataclass(slots=True)
class Finer:
    """A finer stage inside a documented one."""

    id: str
    what: str
    count: int
    ns: int | None  # None where it is not timed apart
    sentence: str


@dataclass(slots=True)
class ObservedStage:
    id: str
    name: str
    kind: str
    layer: str
    on_path: bool  # belongs to this mode and device
    taken: bool
    sentence: str  # what happened in this run, or why nothing did
    reason: str  # id of rushlight/reasons.py where it was not taken
    count: int
    ns: int | None
    finer: list[Finer]


@dataclass(slots=True)
class ObservedStep:
    id: str
    source: str
    target: str
    label: str
    on_path: bool
    taken: bool
    count: int
    sentence: str


@dataclass(slots=True)
class Refusal:
    id: str
    what: str
    why: str
    hint: str
    where: str
    count: int


@dataclass(slots=True)
class Observed:
    schema: int
    program: str
    mode: str
    device: str
    status: str
    wall_ns: int
    operator_ns: int
    error: str
    facts: dict[str, Any]
    stages: list[ObservedStage]
    steps: list[ObservedStep]
    operators: list[table.OperatorRow]
    tree: list[table.TreeNode]
    kernels: list[table.KernelRow]
    libraries: list[table.KernelRow]
    lines: list[table.LineRow]
    refusals: list[Refusal]
    way_down: WayDown | None

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists. `documented` names the path.json that stages and steps refer
        to."""
        facts = path.load().facts
        names = ("schema", "version", "verified_on", "verified_against")
        documented = {name: facts[name] for name in names}
        return {**dataclasses.asdict(self), "documented": documented}


def observe(run: Run, operator: str | None = None) -> Observed:
    """The observed path of a run. `operator` names the one whose way down is shown; by default the
    costliest, or the call that was refused when the program stopped."""
    documented = path.load()
    stages, steps = documented.select(run.mode, run.device)
    on_path = {stage.id for stage in stages}
    calls = run.calls
    observed = [
        _stage(run, stage, stage.id in on_path, documented) for stage in documented.stages.values()
    ]
    by_id = {stage.id: stage for stage in observed}
    taken_steps = {step.id for step in steps}
    return Observed(
        SCHEMA,
        run.program,
        run.mode,
        run.device,
        documented.status(run.mode, run.device),
        run.wall_ns,
        sum(call.ns for call in calls.roots),
        run.error,
        dict(run.facts),
        observed,
        [_step(step, by_id, step.id in taken_steps) for step in documented.steps],
        table.operators(calls),
        table.tree(calls),
        table.ran(calls, "kernel", run.kernels),
        table.ran(calls, "library", run.kernels),
        table.lines(calls),
        _refusals(run.records),
        way_down(calls, run.device, operator, bool(run.error)),
    )


def _step(step: path.Step, stages: Mapping[str, ObservedStage], on_path: bool) -> ObservedStep:
    source, target = stages[step.source], stages[step.target]
    taken = on_path and source.taken and target.taken
    done = target.count if taken else 0
    sentence = f"{count(done, 'time')} in this run" if taken and done else ""
    return ObservedStep(
        step.id, step.source, step.target, step.label, on_path, taken, done, sentence
    )


def _stage(run: Run, stage: path.Stage, on_path: bool, documented: path.Path) -> ObservedStage:
    """One documented stage: what its describer makes of the run, or why it was not taken."""
    told = _Told("", 0, None, [])
    if on_path:
        told = _DESCRIBE.get(stage.id, _from_records)(run, stage.id)
    reason = ""
    if told.count == 0:
        reason, told.sentence = _why_not(run, stage, on_path, documented)
    taken = told.count > 0
    return ObservedStage(
        stage.id, stage.name, stage.kind, stage.layer, on_path, taken,
        told.sentence, reason, told.count, told.ns, told.finer,
    )  # fmt: skip


def _why_not(run: Run, stage: path.Stage, on_path: bool, documented: path.Path) -> tuple[str, str]:
    if on_path:
        return "path.nothing_recorded", "Part of this path, but the run left no record of it."
    taking = [c for c in documented.selections() if stage in documented.select(*c)[0]]
    if run.mode not in {mode for mode, _ in taking}:
        needed = documented.phrase("mode", taking[0][0])
        sentence = f"Part of {needed}; this ran in {_mode(run)}."
        return "path.mode_not_taken", sentence
    if run.device == "cpu" and run.facts.get("gpu", None) is False:
        return "device.no_gpu", "Nothing ran on a GPU: no NVIDIA driver was found here."
    needed = documented.phrase("device", taking[0][1])
    return "path.device_not_used", f"No tensor of this run was on {needed}."


def _mode(run: Run) -> str:
    return path.load().phrase("mode", run.mode)


# ---- what each stage of a path did, counted from the records


@dataclass(slots=True)
class _Told:
    sentence: str
    count: int
    ns: int | None
    finer: list[Finer]


def _python_code(run: Run, stage: str) -> _Told:
    lines = table.lines(run.calls)
    calls = len(run.calls.roots)
    if not calls:
        ended = f" before it stopped with {run.error}" if run.error else ""
        return _Told(f"{run.program} ran, and called no operator{ended}.", 1, None, [])
    text = f"{run.program}: {count(len(lines), 'line')} called operators {count(calls, 'time')}"
    if lines:
        text += f"; the costliest is {short_path(lines[0].where)} ({ns(lines[0].ns)})"
    if run.error:
        text += f". It stopped with {run.error}"
    return _Told(text + ".", calls, None, [])


def _cpython(run: Run, stage: str) -> _Told:
    inside = sum(call.ns for call in run.calls.roots)
    calls = len(run.calls.roots)
    rest = max(0, run.wall_ns - inside)
    text = (
        f"The run took {ns(run.wall_ns)}: {ns(inside)} inside {count(calls, 'operator call')}, "
        f"{ns(rest)} in everything else (Python itself, imports, files, recording)."
    )
    return _Told(text, max(1, calls), rest, _finer_from_records(run, "cpython"))


def _aten(run: Run, stage: str) -> _Told:
    calls = run.calls
    names = {call.operator for call in calls}
    hits, misses = table.plan_counts(calls)
    nested = sum(1 for call in calls if call.parent is not None)
    text = f"{count(len(calls), 'call')} of {count(len(names), 'operator')}"
    if nested:
        text += f", {nested} of them made by other operators"
    text += f"; {hits} found their plan, {misses} had to make one."
    return _Told(text, len(calls), None, _aten_finer(run) if calls else [])


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


def _kernels(run: Run, stage: str) -> _Told:
    """ATen's kernels on whichever device."""
    parts, finer, total, done = [], [], 0, 0
    for route, word in (("kernel", "kernel"), ("library", "library routine")):
        rows = table.ran(run.calls, route, run.kernels)
        if not rows:
            continue
        calls, spent = sum(row.calls for row in rows), sum(row.ns for row in rows)
        sentence = f"{count(calls, 'call')} of {count(len(rows), word)} took {ns(spent)}"
        cold = spent - sum(row.warm_ns for row in rows)
        if cold > spent / 10:
            sentence += f" ({ns(cold)} of it in calls that first made their plan)"
        parts.append(sentence)
        finer.append(_finer(route, calls, spent, f"{sentence}; most in {rows[0].key}"))
        total, done = total + spent, done + calls
    return _Told("; ".join(parts) + ".", done, total, finer)


def _cpu(run: Run, stage: str) -> _Told:
    rows = [call for call in run.calls if call.route in ("kernel", "library")]
    spent = sum(run.calls.own[call.id] for call in rows)
    moved = sum(nbytes(call.inputs) + nbytes(call.outputs) for call in rows)
    text = f"{ns(spent)} in kernels and libraries, on {bytes_(moved)} of operands and results"
    threads, isa = run.facts.get("threads"), run.facts.get("isa")
    if threads:
        text += f"; {count(int(threads), 'thread')}"
    if isa:
        text += f", {isa} kernels"
    return _Told(text + ".", len(rows), spent, [])


def _from_records(run: Run, stage: str) -> _Told:
    """A stage that this file has no words for: its records, counted."""
    records = [r for r in run.records if stage in trace.within(r.stage) and r.kind != "reason"]
    spent = sum(r.facts["end_ns"] - r.facts["start_ns"] for r in records if "end_ns" in r.facts)
    names = dict.fromkeys(r.name for r in records[:5])
    text = f"{count(len(records), 'record')}: {', '.join(names)}."
    return _Told(text, len(records), spent or None, _finer_from_records(run, stage))


def _finer_from_records(run: Run, stage: str) -> list[Finer]:
    tally: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for record in run.records:
        if record.kind != "reason" and stage in trace.within(record.stage)[1:]:
            tally[record.stage] += 1
            if "end_ns" in record.facts:
                spent[record.stage] += record.facts["end_ns"] - record.facts["start_ns"]
    return [_finer(i, n, spent[i] or None, count(n, "record")) for i, n in tally.items()]


def _finer(id: str, count: int, ns: int | None, sentence: str) -> Finer:
    return Finer(id, trace.STAGES[id].what if id in trace.STAGES else "", count, ns, sentence)


_DESCRIBE: dict[str, Callable[[Run, str], _Told]] = {
    "python_code": _python_code,
    "cpython": _cpython,
    "aten": _aten,
    "aten_cpu": _kernels,
    "aten_cuda": _kernels,
    "cpu": _cpu,
}


def _refusals(records: Sequence[trace.Record]) -> list[Refusal]:
    """Distinct reasons with counts, most frequent first."""
    found: dict[tuple[str, ...], Refusal] = {}
    for record in records:
        reason = record.facts.get("reason")
        if record.kind != "reason" or reason is None:
            continue
        parts = (reason.id, reason.what, reason.why, reason.hint, str(reason.where or ""))
        if parts not in found:
            found[parts] = Refusal(*parts, 0)
        found[parts].count += 1
    return sorted(found.values(), key=lambda r: -r.count)
