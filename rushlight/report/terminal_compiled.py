"""The part of the terminal report that compile mode adds: functions, graphs with their kernels,
breaks, recompiles, and where compiling spent its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rushlight.report.captures import Capture, GraphRun, Refused, distinct_breaks
from rushlight.report.observe import Observed
from rushlight.report.words import bytes_, count, ns, rate, short_path


def sections(observed: Observed, rows: int) -> list[RenderableType]:
    parts: list[RenderableType] = []

    def add(title: str, body: RenderableType) -> None:
        parts.extend([Padding(Text(title, "bold cyan"), (1, 0, 0, 0)), body])

    if observed.functions:
        add("Compiled functions", _functions(observed, rows))
    graphs = [graph for capture in observed.captures for graph in capture.graphs]
    if graphs:
        shown = sorted(graphs, key=lambda g: -g.ns)
        add(
            "Graphs and what they run",
            Group(*(_graph(g, rows) for g in shown[: max(1, rows // 2)])),
        )
        if len(shown) > max(1, rows // 2):
            parts.append(Text(f"and {count(len(shown) - max(1, rows // 2), 'more graph')}", "dim"))
    captures = observed.captures
    breaks = distinct_breaks(captures)
    if breaks:
        add("Graph breaks", Group(*(_refused(b.what, b, times) for b, times in breaks[:rows])))
    recompiles = [(c, c.recompiles[0]) for c in captures if c.recompiles]
    again = distinct((c.function, replace(r, why=c.recompiled)) for c, r in recompiles)
    if again:
        add("Recompiles", Group(*(_refused(*row) for row in again[:rows])))
    if any(c.capture_ms or c.stage_ms for c in observed.captures):
        add("Compiling, by stage", _compiling(observed.captures))
    return parts


def _grid(*columns: str, numeric: Sequence[str] = ()) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        right = column in numeric
        justify = "right" if right else "left"
        made.add_column(column, justify=justify, no_wrap=right, overflow="fold")  # type: ignore[arg-type]
    return made


def _functions(observed: Observed, rows: int) -> RenderableType:
    numeric = ("calls", "hits", "a hit", "outside graphs")
    made = _grid("function", *numeric, "called at", numeric=numeric)
    for row in observed.functions[:rows]:
        hits = row.calls - row.misses
        each = ns(row.hit_ns / hits) if hits else ""
        outside = ns(row.outside_ns / hits) if hits else ""
        places = ", ".join(map(short_path, row.where[:2]))
        made.add_row(Text(row.function), f"{row.calls:,}", f"{hits:,}", each, outside, Text(places))
    return made


def _graph(graph: GraphRun, rows: int) -> RenderableType:
    head = Text.assemble((graph.label, "bold"), f"  {count(graph.calls, 'call')}, {ns(graph.ns)}")
    if graph.peak_bytes:
        head.append(f"; {bytes_(graph.peak_bytes)} at most at once", "dim")
    numeric = ("calls", "time", "moved")
    made = _grid("step", "what ran", *numeric, "lines", numeric=numeric)
    steps = sorted(graph.steps, key=lambda s: -s.ns)
    for step in steps[:rows]:
        ran = "generated" if step.generated else step.library or "called as it is"
        moved = rate(step.moved_bytes, step.ns, "B") if step.moved_bytes else ""
        made.add_row(
            Text(step.name, "green" if step.generated else ""), Text(ran), f"{step.calls:,}",
            ns(step.ns) if step.ns else "", moved, Text(", ".join(step.lines[:4])),
        )  # fmt: skip
    parts: list[RenderableType] = [made]
    if len(steps) > rows:
        parts.append(Text(f"and {count(len(steps) - rows, 'step')} more", "dim"))
    return Group(head, Padding(Group(*parts), (0, 0, 0, 2)))


def distinct(told: Iterable[tuple[str, Refused]]) -> list[tuple[str, Refused, int]]:
    """(what, reason, how often), the most frequent first."""
    seen: dict[tuple[str, ...], list] = {}
    for what, one in told:
        seen.setdefault((what, one.why, one.where), [what, one, 0])[2] += 1
    return sorted(map(tuple, seen.values()), key=lambda row: -row[2])  # type: ignore[arg-type]


def _refused(what: str, told: Refused, times: int = 1) -> RenderableType:
    often = f" ({times} times)" if times > 1 else ""
    rows: list[RenderableType] = [
        Text.assemble(what, often, (f"  [{told.id}]", "dim")),
        Padding(Text(told.why), (0, 0, 0, 4)),
    ]
    if told.hint:
        rows.append(Padding(Text(told.hint, "green"), (0, 0, 0, 4)))
    if told.where:
        rows.append(Padding(Text(f"at {short_path(told.where)}", "dim"), (0, 0, 0, 4)))
    return Group(*rows)


def _compiling(captures: Sequence[Capture]) -> RenderableType:
    spent = {"capture": sum(c.capture_ms for c in captures)}
    for capture in captures:
        for name, ms in capture.stage_ms.items():
            spent[name] = spent.get(name, 0.0) + ms
    # A capture's own time holds that of the backend it called, where that compiled at once.
    made = Table.grid(padding=(0, 2))
    for name, ms in spent.items():
        made.add_row(Text(name, "green"), Text(ns(ms * 1e6)))
    return made
