"""What each kernel and library routine cost: one row each over the whole run.

Takes the calls of a run, eager ones and those inside graphs alike; gives `Cost`s, costliest first,
with a `CostPart` for each graph that ran them. Invariant: each call of a kernel or a routine is in
one part of one row. Calls that made a plan took the time of making one, so they are counted apart:
`ns` and `first_ns` of all rows add up to what the stages of both modes say of kernels. Of calls
with the same layouts the fastest tells what a kernel can do: others may have waited for a
processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import trace
from rushlight.report.captures import Capture, Ran
from rushlight.report.records import Call, Calls, nbytes, operations
from rushlight.report.table import KernelRow


@dataclass(slots=True)
class CostPart:
    """Of one row, what one graph called, or with `graph` "" what ran outside all graphs."""

    graph: str
    steps: list[int] = field(default_factory=list)  # of the graph
    calls: int = 0  # those that made no plan; the next four are theirs
    ns: int = 0
    moved_bytes: int = 0
    operations: int = 0
    first_calls: int = 0  # those that made their plan
    first_ns: int = 0
    fastest_ns: int = 0  # what `calls` would take, were each as fast as the fastest of its layouts
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Cost:
    name: str
    how: str  # generated, eager kernel or library routine
    host: bool = False  # it ran on the CPU, in a run that used a GPU
    calls: int = 0
    ns: int = 0
    moved_bytes: int = 0
    operations: int = 0
    first_calls: int = 0
    first_ns: int = 0
    fastest_ns: int = 0  # 0 where single calls are not known
    lines: list[str] = field(default_factory=list)
    parts: list[CostPart] = field(default_factory=list)


GENERATED, KERNEL, ROUTINE = "generated", "eager kernel", "library routine"


def costs(calls: Calls, captures: Sequence[Capture]) -> list[Cost]:
    """Of Rushlight's own calls."""
    everything = calls.everything
    steps = {g.label: g.steps for c in captures for g in c.graphs}
    rows: dict[tuple[str, str, bool], Cost] = {}
    parts: dict[tuple[str, str, bool, str], CostPart] = {}
    alike: dict[Any, list[tuple[CostPart, int]]] = {}  # row and layouts -> calls of the same work
    for call in everything:
        generated = call.kind == "fused"
        if not generated and not (call.route in ("kernel", "library") and call.ran):
            continue
        graph, step, line = _place(call, everything)
        name = call.operator if generated else call.ran
        host = everything.on_host(call)
        key = (graph if generated else "", name, host)
        how = GENERATED if generated else KERNEL if call.route == "kernel" else ROUTINE
        row = rows.setdefault(key, Cost(name, how, host))
        part = parts.get((*key, graph))
        if part is None:
            part = parts[(*key, graph)] = CostPart(graph)
            row.parts.append(part)
        spent = everything.own_spent[call.id]
        _add(part, call, spent)
        if call.hit is not False:
            alike.setdefault((key, call.inputs, call.outputs), []).append((part, spent))
        if step is not None and step not in part.steps:
            part.steps.append(step)
            _join(part.lines, steps[graph][step].lines)
        elif step is None and line:
            _join(part.lines, [line])
    for same in alike.values():
        fastest = min(spent for _, spent in same)
        for part, _ in same:
            part.fastest_ns += fastest
    return summed(list(rows.values()))


def costs_of_tables(
    captures: Sequence[Capture], rows: Sequence[KernelRow], lines: Mapping[str, Sequence[str]]
) -> list[Cost]:
    """The same of a program of another vendor, whose calls are known as tables only. `lines`: what
    ran -> the user's lines."""
    found, routines = [], {}
    for graph in (g for c in captures for g in c.graphs):
        for i, step in enumerate(graph.steps):
            part = _of_step(graph.label, i, step)
            if not step.calls:
                continue
            if step.generated:  # by another graph it is another one
                found.append(Cost(step.name, GENERATED, parts=[part]))
            elif step.name in routines:
                routines[step.name].parts.append(part)
            else:
                routines[step.name] = Cost(step.name, ROUTINE, parts=[part])
                found.append(routines[step.name])
    for row in rows:
        part = CostPart("", [], row.calls, row.ns, row.moved_bytes, row.warm_operations)
        _join(part.lines, lines.get(row.key, ()))
        found.append(Cost(row.key, KERNEL, parts=[part]))
    return summed(found)


def _of_step(graph: str, index: int, step: Ran) -> CostPart:
    part = CostPart(graph, [index], step.calls, step.ns, step.moved_bytes, step.operations)
    _join(part.lines, step.lines)
    return part


def _place(call: Call, everything: Calls) -> tuple[str, int | None, str]:
    """(graph, step, the user's line) that a call was made for."""
    above = call
    while True:
        if above.id in everything.step_of:
            return (*everything.step_of[above.id], "")
        parent = None if above.parent is None else everything.by_id[above.parent]
        if parent is None or parent.kind == "compiled":
            return "", None, trace.short_place(above.where.partition(" in ")[0])
        if parent.kind == "graph":
            return parent.operator, None, ""
        above = parent


def _add(part: CostPart, call: Call, spent: int) -> None:
    if call.hit is False:
        part.first_calls += 1
        part.first_ns += spent
        return
    part.calls += 1
    part.ns += spent
    part.moved_bytes += nbytes(call.inputs) + nbytes(call.outputs)
    part.operations += operations(call.operator, call.inputs, call.outputs)


_SUMMED = ("calls", "ns", "moved_bytes", "operations", "first_calls", "first_ns", "fastest_ns")


def summed(rows: list[Cost]) -> list[Cost]:
    """Rows with the sums of their parts, costliest first, those of the host behind a GPU's."""
    for row in rows:
        row.parts.sort(key=lambda p: (-p.ns, -p.first_ns))
        for name in _SUMMED:
            setattr(row, name, sum(getattr(part, name) for part in row.parts))
        for part in row.parts:
            _join(row.lines, part.lines)
    return sorted(rows, key=lambda r: (r.host, -r.ns, -r.first_ns, r.name))


def _join(known: list[str], more: Sequence[str]) -> None:
    known += [line for line in dict.fromkeys(more) if line and line not in known]
