"""Records -> the observed path: what this run did, in the terms of the documented one.

Takes a `Run` (native calls, trace records, times, facts of the machine); gives `Observed`, plain
data that the terminal and the page render and `to_json` writes. Invariant: every number is counted
from records; a documented stage that this run did not take stands there with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rushlight import trace
from rushlight.report import path, table
from rushlight.report.captures import Capture
from rushlight.report.costs import Cost, costs, costs_of_tables, summed
from rushlight.report.stages import Finer, Run, Told, describe
from rushlight.report.steps import step_count
from rushlight.report.way_down import WayDown, way_down

SCHEMA = 3


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
    vendor: str = "Rushlight"  # who did this stage's work in this run, or would have


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
class Selection:
    """The path of one mode on one device, as far as this run took it."""

    mode: str
    device: str
    status: str
    taken: bool  # anything ran in this mode and on this device
    stages: list[ObservedStage]
    steps: list[ObservedStep]


@dataclass(slots=True)
class Observed:
    """`stages` and `steps` are those of the selection shown first."""

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
    selections: list[Selection]
    captures: list[Capture]
    functions: list[table.FunctionRow]
    costs: list[Cost]  # of every kernel and library routine, eager or inside graphs
    vendor: str = "Rushlight"  # whose program this is: "PyTorch" under `explain --torch`

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists. `documented` names the path.json that stages and steps refer
        to."""
        facts = path.load().facts
        names = ("schema", "version", "verified_on", "verified_against")
        documented = {name: facts[name] for name in names}
        return {**dataclasses.asdict(self), "documented": documented}


def merge(first: Observed, second: Observed) -> None:
    """What a second run of the program took and the first did not, in another mode: its selections,
    captures and functions join the first's."""
    for i, mine in enumerate(first.selections):
        other = second.selections[i]
        if other.taken and not mine.taken:
            first.selections[i] = other
    also = {"mode": second.mode, "device": second.device, "wall_ns": second.wall_ns}
    first.facts["also"] = [*first.facts.get("also", ()), also]
    first.costs = _merged_costs(first, second)
    if not first.captures:
        first.captures, first.functions = second.captures, second.functions
    if not first.operators:
        for name in ("operators", "tree", "kernels", "libraries", "lines"):
            setattr(first, name, getattr(second, name))


def _merged_costs(first: Observed, second: Observed) -> list[Cost]:
    rows = list(first.costs)
    for inside, missing in ((True, not first.captures), (False, not first.operators)):
        if missing:
            parts = [(r, [p for p in r.parts if bool(p.graph) == inside]) for r in second.costs]
            rows += [replace(r, lines=[], parts=mine) for r, mine in parts if mine]
    return summed(rows)


def _costs(run: Run) -> list[Cost]:
    if not run.describe:
        return costs(run.calls, run.captures)
    ran = [*table.ran(run.calls, "kernel", {}), *table.ran(run.calls, "library", {})]
    lines: dict[str, list[str]] = {}
    for call in run.calls:
        lines.setdefault(call.ran, []).append(trace.short_place(call.where.partition(" in ")[0]))
    return costs_of_tables(run.captures, ran, lines)


def observe(run: Run, operator: str | None = None) -> Observed:
    """The observed path of a run. `operator` names the one whose way down is shown; by default the
    costliest, or the call that was refused when the program stopped."""
    documented = path.load()
    calls = run.calls
    selections = [
        _select(run, mode, device, documented) for mode, device in documented.selections()
    ]
    first = next(s for s in selections if (s.mode, s.device) == (run.mode, run.device))
    return Observed(
        SCHEMA,
        run.program,
        run.mode,
        run.device,
        first.status,
        run.wall_ns,
        sum(call.ns for call in calls.roots),
        run.error,
        dict(run.facts),
        first.stages,
        first.steps,
        table.operators(calls),
        table.tree(calls),
        table.ran(calls, "kernel", run.kernels),
        table.ran(calls, "library", run.kernels),
        table.lines(calls, _captured(run.captures)),
        _refusals(run.records),
        None if run.describe else way_down(calls, run.device, operator, bool(run.error)),
        selections,
        list(run.captures),
        table.functions(calls),
        _costs(run),
        run.vendor,
    )


def _select(run: Run, mode: str, device: str, documented: path.Path) -> Selection:
    stages, steps = documented.select(mode, device)
    on_path, on_steps = {stage.id for stage in stages}, {step.id for step in steps}
    rest = [stage for stage in documented.stages.values() if stage.id not in on_path]
    observed = [
        _stage(run, stage, mode, device, stage.id in on_path, documented)
        for stage in [*stages, *rest]
    ]
    by_id = {stage.id: stage for stage in observed}
    return Selection(
        mode,
        device,
        documented.status(mode, device),
        mode in run.modes and device in run.devices,
        observed,
        [_step(run, mode, step, by_id, step.id in on_steps) for step in documented.steps],
    )


def _step(
    run: Run, mode: str, step: path.Step, stages: Mapping[str, ObservedStage], on_path: bool
) -> ObservedStep:
    source, target = stages[step.source], stages[step.target]
    taken = on_path and source.taken and target.taken
    done = target.count if taken else 0
    done, sentence = step_count(run, step.id, mode, done) if taken else (0, "")
    return ObservedStep(
        step.id, step.source, step.target, step.label, on_path, taken, done, sentence
    )


def _stage(
    run: Run, stage: path.Stage, mode: str, device: str, on_path: bool, documented: path.Path
) -> ObservedStage:
    """One documented stage: what the run did in it, or why it was not taken."""
    told = Told("", 0, None, [])
    if on_path and mode in run.modes and device in run.devices:
        told = describe(run, stage.id, mode)
    reason = ""
    if told.count == 0:
        said = told.sentence if run.describe else ""
        reason, why = _why_not(run, stage, mode, device, on_path, documented)
        told.sentence = said or why
    return ObservedStage(
        stage.id, stage.name, stage.kind, stage.layer, on_path, told.count > 0,
        told.sentence, reason, told.count, told.ns, told.finer,
        run.vendors.get(stage.id, run.vendor),
    )  # fmt: skip


def _why_not(
    run: Run, stage: path.Stage, mode: str, device: str, on_path: bool, documented: path.Path
) -> tuple[str, str]:
    if on_path and mode in run.modes and device in run.devices:
        return "path.nothing_recorded", "Part of this path, but the run left no record of it."
    choices = [c for c in documented.selections() if stage in documented.select(*c)[0]]
    needed = (mode, device) if on_path else choices[0]
    phrase = documented.phrase("mode", needed[0])
    if needed[0] not in run.modes:
        ran = documented.phrase("mode", min(run.modes))
        return "path.mode_not_taken", f"Part of {phrase}; this ran in {ran}."
    if mode not in dict(choices):
        shown = documented.phrase("mode", mode)
        return "path.mode_not_taken", f"Part of {phrase}; what is shown is {shown}."
    if on_path is False and needed[1] in run.devices and device != needed[1]:
        phrase = documented.phrase("device", needed[1])
        shown = documented.phrase("device", device)
        return "path.device_not_used", f"Part of the path on {phrase}; what is shown is {shown}."
    if "gpu" not in run.devices and run.facts.get("gpu", None) is False:
        return "device.no_gpu", "Nothing ran on a GPU: no NVIDIA driver was found here."
    phrase = documented.phrase("device", needed[1])
    worked = (c for c in run.calls if c.route in ("kernel", "library"))
    if "gpu" in run.devices and any(map(run.calls.on_host, worked)):
        kernels = "kernels that ran on the CPU stand behind the GPU's in the table of kernels"
        return "path.device_not_used", f"Part of the path on {phrase}; {kernels}."
    return "path.device_not_used", f"No tensor of this run was on {phrase}."


def _captured(captures: Sequence[Capture]) -> set[str]:
    """Places of the user's, as model.py:12, that the lines of captured graphs come from."""
    graphs = (a for c in captures for a in c.artifacts if a.stage == "fx_graph")
    return {chain[0] for graph in graphs for chain in graph.origins.values() if chain}


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
