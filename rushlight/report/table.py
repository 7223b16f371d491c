"""Tables counted from calls: operators, the tree in which they dispatch, kernels, user lines.

Takes a list of `Call`s; gives rows, costliest first. Invariant: self times of all rows add up to
the time of the calls that Python made; a total counts an operator that calls itself only once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import trace
from rushlight.report.records import Call, Calls, nbytes, operations


@dataclass(slots=True)
class OperatorRow:
    operator: str
    calls: int
    total_ns: int
    self_ns: int
    hits: int
    misses: int
    ran: dict[str, int]  # what ran -> times
    routes: dict[str, int]  # kernel, library, view, program -> times


@dataclass(slots=True)
class TreeNode:
    """Calls of one operator from one place in the tree, merged."""

    operator: str
    calls: int
    total_ns: int
    self_ns: int
    hits: int
    misses: int
    ran: dict[str, int]
    children: list[TreeNode] = field(default_factory=list)


@dataclass(slots=True)
class KernelRow:
    key: str
    calls: int
    ns: int
    moved_bytes: int  # operands and results
    warm_calls: int  # those that found their plan, so that their time is not that of making one
    warm_ns: int
    warm_bytes: int
    warm_operations: int  # of matrix products
    operators: list[str]
    facts: dict[str, Any]  # origin, loops, ... where known


@dataclass(slots=True)
class LineRow:
    where: str
    calls: int
    ns: int
    operators: list[str]


PIECE = ", after the break at line "  # in the name of what goes on after a graph break


@dataclass(slots=True)
class FunctionRow:
    """Calls of one compiled function. What is outside its graphs is guards, wrapper and the code
    between graphs."""

    function: str
    calls: int
    misses: int  # in which it was captured, or a piece or function that it called
    ns: int
    graph_ns: int
    hit_ns: int  # of the others
    hit_graph_ns: int
    where: list[str]
    hit_called_ns: int = 0  # of hit_ns, in operators between graphs and functions called there

    @property
    def outside_ns(self) -> int:
        return max(0, self.hit_ns - self.hit_graph_ns - self.hit_called_ns)


def plan_counts(calls: Iterable[Call]) -> tuple[int, int]:
    """Plans found, plans made."""
    tally = Counter(call.hit for call in calls)
    return tally[True], tally[False]


def operators(calls: Calls) -> list[OperatorRow]:
    rows: dict[str, OperatorRow] = {}
    for call in calls:
        row = rows.get(call.operator)
        if row is None:
            row = rows[call.operator] = OperatorRow(call.operator, 0, 0, 0, 0, 0, {}, {})
        row.calls += 1
        row.self_ns += calls.own[call.id]
        row.hits += call.hit is True
        row.misses += call.hit is False
        if not _inside_itself(call, calls.by_id):
            row.total_ns += call.ns
        if call.route in ("kernel", "library"):
            row.ran[call.ran] = row.ran.get(call.ran, 0) + 1
        row.routes[call.route] = row.routes.get(call.route, 0) + 1
    return sorted(rows.values(), key=lambda r: (-r.self_ns, r.operator))


def _inside_itself(call: Call, by_id: Mapping[int, Call]) -> bool:
    above = call.parent
    while above is not None:
        if by_id[above].operator == call.operator:
            return True
        above = by_id[above].parent
    return False


def tree(calls: Calls) -> list[TreeNode]:
    """The calls that Python made, merged by operator, and below each the calls it made in turn."""
    return _merge(calls.roots, calls)


def _merge(group: Sequence[Call], calls: Calls) -> list[TreeNode]:
    named: dict[str, list[Call]] = defaultdict(list)
    for call in group:
        named[call.operator].append(call)
    nodes = []
    for operator, same in named.items():
        hits, misses = plan_counts(same)
        ran = Counter(call.ran for call in same if call.route in ("kernel", "library"))
        below = [child for call in same for child in calls.children.get(call.id, ())]
        nodes.append(
            TreeNode(
                operator,
                len(same),
                sum(c.ns for c in same),
                sum(calls.own[c.id] for c in same),
                hits,
                misses,
                dict(ran),
                _merge(below, calls) if below else [],
            )  # fmt: skip
        )
    return sorted(nodes, key=lambda node: (-node.total_ns, node.operator))


def ran(calls: Calls, route: str, facts: Mapping[str, Mapping[str, Any]]) -> list[KernelRow]:
    """Kernels or library routines that ran, by self time of the calls that ran them: on the device
    where that is known."""
    rows: dict[str, KernelRow] = {}
    for call in calls:
        if call.route != route or not call.ran:
            continue
        row = rows.get(call.ran)
        if row is None:
            row = rows[call.ran] = KernelRow(
                call.ran, 0, 0, 0, 0, 0, 0, 0, [], dict(facts.get(call.ran, {}))
            )
        row.calls += 1
        row.ns += calls.own_spent[call.id]
        moved = nbytes(call.inputs) + nbytes(call.outputs)
        row.moved_bytes += moved
        if call.hit:
            row.warm_calls += 1
            row.warm_ns += calls.own_spent[call.id]
            row.warm_bytes += moved
            row.warm_operations += operations(call.operator, call.inputs, call.outputs)
        if call.operator not in row.operators:
            row.operators.append(call.operator)
    return sorted(rows.values(), key=lambda r: (-r.ns, r.key))


def lines(calls: Calls, captured: Container[str] = ()) -> list[LineRow]:
    """User lines that called operators. `captured`: places, as model.py:12, of operators in graphs;
    a view there that a compiled function returns is made anew of the graph's result at each call,
    which is no call of the user's."""
    rows: dict[str, LineRow] = {}
    compiled = {call.id for call in calls.of_functions}
    by_id = calls.everything.by_id
    for call in calls.roots:
        place = trace.short_place(call.where.partition(" in ")[0])
        made_anew = call.kind == "view" and by_id[call.id].parent in compiled
        if not place or made_anew and place in captured:
            continue
        row = rows.get(call.where)
        if row is None:
            row = rows[call.where] = LineRow(call.where, 0, 0, [])
        row.calls += 1
        row.ns += call.ns
        if call.operator not in row.operators:
            row.operators.append(call.operator)
    return sorted(rows.values(), key=lambda r: (-r.ns, r.where))


def functions(calls: Calls) -> list[FunctionRow]:
    rows: dict[str, FunctionRow] = {}
    captured = _that_captured(calls)
    for call in calls.of_functions:
        row = rows.setdefault(call.operator, FunctionRow(call.operator, 0, 0, 0, 0, 0, 0, []))
        made = calls.everything.children.get(call.id, ())
        inside = sum(c.ns for c in made if c.kind == "graph")
        row.calls += 1
        row.misses += call.id in captured
        row.ns += call.ns
        row.graph_ns += inside
        if call.id not in captured:
            row.hit_ns += call.ns
            row.hit_graph_ns += inside
            row.hit_called_ns += sum(c.ns for c in made if c.kind not in ("graph", "read"))
        if call.where and call.where not in row.where:
            row.where.append(call.where)
    return sorted(rows.values(), key=lambda r: -r.ns)


def _that_captured(calls: Calls) -> set[int]:
    """Calls of compiled functions in which something was captured, however deep."""
    by_id = calls.everything.by_id
    found: set[int] = set()
    for call in calls.of_functions:
        above: Call | None = call if call.hit is False else None
        while above is not None and above.id not in found:
            found.add(above.id)
            above = None if above.parent is None else by_id[above.parent]
    return found
