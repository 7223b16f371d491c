"""The observed path in a terminal.

Takes `Observed` (and, for one kernel, its source); prints with rich, which is imported here only.
Invariant: text of the user's program goes out as plain text, never as rich's markup; a long table
says how many rows it left out.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from rushlight import trace
from rushlight.report import terminal_compiled
from rushlight.report.activities import DeviceTimes
from rushlight.report.observe import Observed, ObservedStage
from rushlight.report.stages import Finer
from rushlight.report.table import KernelRow, TreeNode
from rushlight.report.way_down import WayDown
from rushlight.report.words import count, ns, rate, short_path

ROWS = 12
NAME = 48  # letters of a library's kernel, whose names are long


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Writes to `file` or stdout; 100 columns where that is no terminal."""
    made = Console(file=file, highlight=False, width=width)
    if width is None and not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 100
    return made


def report(observed: Observed, command: str = "", rows: int = ROWS) -> RenderableType:
    """The whole report. `command` is what to type again for the hints, such as 'rushlight explain
    model.py'."""
    title = Rule(Text(observed.program, "bold"), align="left")
    parts: list[RenderableType] = [title, _header(observed)]
    parts += [section("The path"), path_tree(observed)]
    if observed.captures:
        parts += terminal_compiled.sections(observed, rows)
    if observed.operators:
        parts += [section("Operators, by their own time"), _operators(observed, rows)]
        parts += [section("As they dispatch"), *_dispatch(observed, rows)]
    # Of another vendor, what ran on the CPU is known by its operator's name only.
    if observed.vendor == "Rushlight" and (observed.kernels or observed.libraries):
        parts += [section("Kernels and library routines"), _ran(observed, rows)]
        if observed.kernels and command:
            key = observed.kernels[0].key
            parts.append(_hint("the C++ of a kernel", f"{command} --kernel {key}"))
    if observed.facts.get("gpu_work"):
        parts += [section("What the GPU did"), _gpu_work(observed, rows)]
    if observed.facts.get("gpu_times"):
        parts.append(Text(_gpu_times(observed.facts["gpu_times"]), "dim"))
    if observed.way_down is not None:
        parts += [section("One operator on the way down"), way_down(observed.way_down)]
        others = [
            r.operator for r in observed.operators if r.operator != observed.way_down.operator
        ]
        if command and others:
            parts.append(_hint("another operator", f"{command} --op {others[0]}"))
    if observed.lines:
        parts += [section("Your lines, by time"), _lines(observed, rows)]
    if observed.facts.get("waits"):
        parts += [section("Where Python waited for the GPU"), _waits(observed, rows)]
    if observed.facts.get("reads"):
        parts += [section("Where Python read numbers of tensors"), _reads(observed, rows)]
    if observed.refusals:
        parts += [section("What was not done, and why"), _refusals(observed, rows)]
    if command:
        parts.append(Text())
        parts.append(_hint("everything, as JSON", f"{command} --json path.json"))
    return Group(*parts)


def _header(observed: Observed) -> Text:
    facts = observed.facts
    rest = [f"{name} {facts[key]}" for key, name in _HEADER_FACTS.items() if facts.get(key)]
    text = Text(observed.status, "bold")
    if observed.vendor != "Rushlight":
        text.append(
            f"\nThis is {observed.vendor}'s path, as it ran; Rushlight only watched.", "bold"
        )
    if rest:
        text.append("\n" + ", ".join(rest), "dim")
    for sentence in facts.get("not_observed", ()):
        text.append(f"\nNot observed: {sentence}.", "yellow")
    if observed.error:
        text.append(
            f"\nThe program stopped with {observed.error}{_stopped(observed.facts)}; this is its "
            "path up to there.",
            "red",
        )
    return text


_HEADER_FACTS = {
    "torch": "PyTorch",
    "rushlight": "Rushlight",
    "python": "Python",
    "isa": "kernels for",
    "threads": "threads",
}


def section(title: str) -> Padding:
    return Padding(Text(title, "bold cyan"), (1, 0, 0, 0))


def _hint(what: str, command: str) -> Text:
    return Text.assemble((f"{what}: ", "dim"), command, no_wrap=True, overflow="ignore")


# ---- the path


def path_tree(observed: Observed) -> RenderableType:
    """The stages of the path in order, each with its finer ones; below, those not taken."""
    incoming: dict[str, list[str]] = {}
    for step in observed.steps:
        if step.on_path:
            incoming.setdefault(step.target, []).append(step.label)
    parts: list[RenderableType] = []
    for number, stage in enumerate((s for s in observed.stages if s.on_path), 1):
        parts.append(_stage(number, stage, incoming.get(stage.id, [])))
    parts.append(_not_taken([s for s in observed.stages if not s.on_path]))
    return Group(*parts)


def _stage(number: int, stage: ObservedStage, labels: Sequence[str]) -> RenderableType:
    style = "bold" if stage.taken else "dim"
    head = Text.assemble(
        (f"{number:2}  ", "dim"),
        (stage.name, style),
        (f"  {stage.kind.replace('_', ' ')}, {stage.vendor}", "dim"),
    )
    arrow = Text(f"    | {labels[0]}", "dim") if labels else None
    sentence = Padding(Text(stage.sentence, "" if stage.taken else "dim"), (0, 0, 0, 4))
    rows: list[RenderableType] = [head, sentence]
    if stage.finer:
        rows.append(Padding(_finer(stage.finer), (0, 0, 0, 6)))
    return Group(*([arrow] if arrow else []), *rows)


def _finer(rows: Sequence[Finer]) -> Table:
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(Text(row.id, "green"), Text(row.sentence))
    return table


def _not_taken(stages: Sequence[ObservedStage]) -> RenderableType:
    """The greyed stages: each reason once, with the stages it holds for."""
    by_sentence: dict[str, list[str]] = {}
    for stage in stages:
        by_sentence.setdefault(stage.sentence, []).append(stage.name)
    rows = [
        Text(f"\nnot taken: {', '.join(names)}. {why}", "dim") for why, names in by_sentence.items()
    ]
    return Padding(Group(*rows), (0, 0, 0, 4))


# ---- tables


def _table(*columns: str, numeric: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        right = column in numeric
        table.add_column(
            column, justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    return table


def _operators(observed: Observed, rows: int) -> RenderableType:
    numeric = ("calls", "total", "own", "plan found", "made")
    if observed.vendor != "Rushlight":  # others keep no plans
        numeric = numeric[:3]
    table = _table("operator", *numeric, "became", numeric=numeric)
    for row in observed.operators[:rows]:
        plans = (f"{row.hits:,}", f"{row.misses:,}")[: len(numeric) - 3]
        table.add_row(
            Text(row.operator), f"{row.calls:,}", ns(row.total_ns), ns(row.self_ns), *plans,
            Text(_became(row.ran, row.routes)),
        )  # fmt: skip
    return _cut(table, len(observed.operators), rows, "more operator")


def _became(ran: Mapping[str, int], routes: Mapping[str, int]) -> str:
    if not ran:
        words = [_ROUTES.get(route, route) for route in routes]
        return ", ".join(words)
    names = sorted(ran, key=lambda key: -ran[key])
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return names[0] + more


_ROUTES = {"program": "other operators", "view": "a view", "none": ""}


def _cut(table: Table, total: int, rows: int, word: str) -> RenderableType:
    if total <= rows:
        return table
    return Group(table, Text(f"and {count(total - rows, word)}", "dim"))


def _dispatch(observed: Observed, rows: int) -> list[RenderableType]:
    """Trees of the operators that Python called and that called others; the rest are in the table
    above."""
    nested = [node for node in observed.tree if node.children]
    plain = len(observed.tree) - len(nested)
    shown: list[RenderableType] = [_branch(node) for node in nested[:rows]]
    if len(nested) > rows:
        shown.append(Text(f"and {count(len(nested) - rows, 'tree')} more", "dim"))
    if plain:
        shown.append(
            Text(f"{count(plain, 'operator')} went straight to a kernel, library or view", "dim")
        )
    return shown


def _branch(node: TreeNode, tree: Tree | None = None) -> Tree:
    label = Text.assemble(
        (node.operator, "bold"),
        f"  {count(node.calls, 'call')}, {ns(node.total_ns)}",
        (_plans(node), "dim"),
    )
    branch = Tree(label, guide_style="dim") if tree is None else tree.add(label)
    for child in node.children[:ROWS]:
        _branch(child, branch)
    if len(node.children) > ROWS:
        branch.add(Text(f"and {count(len(node.children) - ROWS, 'operator')} more", "dim"))
    if not node.children:
        for key, times in sorted(node.ran.items(), key=lambda item: -item[1])[:3]:
            branch.add(
                Text(key if times == node.calls else f"{key}  {count(times, 'time')}", "green")
            )
    return branch


def _plans(node: TreeNode) -> str:
    if not node.hits and not node.misses:
        return ""
    return f"  plans: {node.hits} found, {node.misses} made"


def _ran(observed: Observed, rows: int) -> RenderableType:
    table = _table(
        "name",
        "calls",
        "time",
        "a call",
        "moved",
        "from",
        numeric=("calls", "time", "a call", "moved"),
    )
    both = sorted([*observed.kernels, *observed.libraries], key=lambda row: -row.ns)
    for row in both[:rows]:
        table.add_row(
            Text(row.key), f"{row.calls:,}", ns(row.ns),
            ns(row.warm_ns / row.warm_calls if row.warm_calls else row.ns / row.calls),
            rate(row.warm_bytes, row.warm_ns, "B"), Text(_origin(row)),
        )  # fmt: skip
    return _cut(table, len(both), rows, "other")


def _gpu_work(observed: Observed, rows: int) -> RenderableType:
    numeric = ("times", "time", "each", "registers", "occupancy")
    table = _table("what", *numeric, "launched by", numeric=numeric)
    work = observed.facts["gpu_work"]
    for row in work[:rows]:
        table.add_row(
            Text(row["name"][:NAME]), f"{row['count']:,}", ns(row["ns"]),
            ns(row["ns"] / row["count"]), str(row["registers"] or ""),
            f"{row['occupancy']:.0%}" if row["occupancy"] else "",
            Text(row["from"] + (" (in a CUDA graph)" if row["graph"] else "")),
        )  # fmt: skip
    return _cut(table, len(work), rows, "other")


def _gpu_times(facts: Mapping[str, Any]) -> str:
    return f"Times on the GPU: {DeviceTimes(facts['by'], facts['why'], facts['lost'])}."


def _origin(row: KernelRow) -> str:
    return str(row.facts.get("origin") or ", ".join(row.operators[:3]))


def _lines(observed: Observed, rows: int) -> RenderableType:
    table = _table("line", "calls", "time", "operators", numeric=("calls", "time"))
    for row in observed.lines[:rows]:
        names = ", ".join(row.operators[:6]) + (", ..." if len(row.operators) > 6 else "")
        table.add_row(Text(short_path(row.where)), f"{row.calls:,}", ns(row.ns), Text(names))
    return _cut(table, len(observed.lines), rows, "more line")


def _waits(observed: Observed, rows: int) -> RenderableType:
    waits = observed.facts["waits"]
    table = _table("line", "asked by", "times", "waited", numeric=("times", "waited"))
    for row in waits[:rows]:
        where = Text(short_path(row["line"]))
        table.add_row(where, Text(row["what"]), f"{row['count']:,}", ns(row["ns"]))
    return _cut(table, len(waits), rows, "more line")


def _stopped(facts: Mapping[str, Any]) -> str:
    """Where an exception came from, and through which lines of the user's."""
    places = [trace.short_place(at.partition(" in ")[0]) for at in facts.get("stopped_at", ())]
    return f" at {', called at '.join(places)}" if places else ""


def _reads(observed: Observed, rows: int) -> RenderableType:
    reads = observed.facts["reads"]
    table = _table("line", "by", "times", numeric=("times",))
    for row in reads[:rows]:
        table.add_row(Text(short_path(row["line"])), Text(row["what"]), f"{row['count']:,}")
    note = Text("On a GPU the host waits there until everything queued before has run.", "dim")
    return Group(_cut(table, len(reads), rows, "more line"), note)


def _refusals(observed: Observed, rows: int) -> RenderableType:
    parts: list[RenderableType] = []
    for refusal in observed.refusals[:rows]:
        parts.append(Text(f"{refusal.count} x  {refusal.what}: {refusal.why} [{refusal.id}]"))
        if refusal.where:
            parts.append(Text(f"      at {short_path(refusal.where)}", "dim"))
        if refusal.hint:
            parts.append(Text(f"      {refusal.hint}", "green"))
    more = len(observed.refusals) - rows
    if more > 0:
        parts.append(Text(f"and {count(more, 'reason')} more", "dim"))
    return Group(*parts)


# ---- one operator, one kernel


def way_down(way: WayDown) -> RenderableType:
    """The stages of one call with the values they had; a composition's parts below it."""
    parts: list[RenderableType] = [Text(" -> ".join(way.chain), "bold")]
    where = f", called at {short_path(way.where)}" if way.where else ""
    head = f"{ns(way.ns)}, one of {way.calls:,} calls" if way.calls > 1 else ns(way.ns)
    parts.append(Text(f"{head}{where}", "dim"))
    table = Table.grid(padding=(0, 2))
    for stage in way.stages:
        table.add_row(Text(stage.stage, "green"), Text(stage.sentence))
    parts.append(Padding(table, (0, 0, 0, 2)))
    for part in way.parts:
        parts.append(Padding(way_down(part), (0, 0, 0, 4)))
    return Group(*parts)


def kernel(row: KernelRow | None, key: str, views: Sequence[Any]) -> RenderableType:
    """The forms of a kernel, each (title, language, text, origins of its lines or None)."""
    parts: list[RenderableType] = [Rule(Text(key, "bold"), align="left")]
    if row is not None:
        facts = [f"{name} {value}" for name, value in row.facts.items()]
        called = f"{count(row.calls, 'call')}, {ns(row.ns)}, by {', '.join(row.operators)}"
        parts.append(Text("; ".join([called, *facts]), "dim"))
    for title, language, text, origins in views:
        parts += [section(title), _code(text, language, origins or {})]
    return Group(*parts)


def _code(text: str, language: str, origins: Mapping[int, Sequence[str]]) -> RenderableType:
    """Numbered lines; on the right the origin of each line that has one, below what these say."""
    from rich.syntax import Syntax

    table = Table.grid(padding=(0, 2))
    highlighted = Syntax(text, language, background_color="default").highlight(text)
    last: Sequence[str] = ()
    for number, line in enumerate(highlighted.split("\n", allow_blank=False), 1):
        given = tuple(origins.get(number, ()))
        margin = "" if given == last else " < ".join(given)
        last = given or last
        line.rstrip()
        table.add_row(Text(str(number), "dim"), line, Text(margin, "dim"))
    parts: list[RenderableType] = [table]
    for origin in dict.fromkeys(o for given in origins.values() for o in given):
        if line_there := quote(origin):
            parts.append(Text.assemble((f"{origin}: ", "dim"), line_there))
    return Group(*parts)


def quote(origin: str) -> str:
    """The source line that 'file:line' names; a relative file lies in the package. Empty where it
    cannot be read."""
    file, _, number = origin.partition(" in ")[0].rpartition(":")
    if not os.path.isabs(file):
        file = os.path.join(os.path.dirname(os.path.dirname(__file__)), file)
    return linecache.getline(file, int(number)).strip() if number.isdecimal() else ""


def to_text(make: Callable[[], RenderableType], width: int = 100) -> str:
    """Rendered without colour, for files, tests and `str()`."""
    import io

    file = io.StringIO()
    console(file, width).print(make(), crop=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
