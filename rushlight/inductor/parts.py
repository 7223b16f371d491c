"""Which values are computed where they will lie: pieces of a concatenation, what is padded, what a
slice's gradient is put into. Takes a schedule; gives, for such a value, the whole it is part of and
the views that lead there.

A value may lie in its whole where one kernel makes it and nobody but the whole reads it: there are
no strides that others rely on, and nobody can see the memory before it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.fx.graph import Node, Var
from rushlight.ops.layouts import Layout, passed_over
from rushlight.ops.values import TABLE

from .groups import CallStep, Group
from .scheduler import ROW_LOOPS, Schedule, runs

View = tuple[str, tuple]  # operator, its arguments after the first


class Part(NamedTuple):
    whole: Var
    views: tuple[View, ...]

    @property
    def layout(self) -> Layout:
        layout = self.whole.layout
        for name, rest in self.views:
            layout = TABLE[name].body(layout, *rest)
        return layout


class Whole(NamedTuple):
    """A result put together of pieces, over memory that is full of `number` where there is one."""

    pieces: tuple[tuple[Any, tuple[View, ...]], ...]
    number: Any = None


def whole_of(node: Node) -> Whole | None:
    rule = RULES.get(node.op.name)
    return rule(node) if rule is not None else None


def cat(node: Node) -> Whole:
    tensors, dim = node.arguments
    dim %= node.outs[0].rank
    pieces, start = [], 0
    for x in [x for x in tensors if not passed_over(x)] or tensors:
        stop = start + x.shape[dim]
        pieces.append((x, (("slice", (dim, start, stop, 1)),)))
        start = stop
    return Whole(tuple(pieces))


def stack(node: Node) -> Whole:
    tensors, dim = node.arguments
    dim %= node.outs[0].rank
    return Whole(tuple((x, (("select", (dim, i)),)) for i, x in enumerate(tensors)))


def select_backward(node: Node) -> Whole:
    dy, _, dim, index = node.arguments
    return Whole(((dy, (("select", (dim, index)),)),), 0)


def slice_backward(node: Node) -> Whole:
    dy, _, dim, start, end, step = node.arguments
    return Whole(((dy, (("slice", (dim, start, end, step)),)),), 0)


def constant_pad_nd(node: Node) -> Whole | None:
    x, pad, value = node.arguments
    if isinstance(value, Var) or any(not isinstance(n, int) or n < 0 for n in pad):
        return None
    views = []
    for i in range(len(pad) // 2):
        d = x.rank - 1 - i
        if pad[2 * i] or pad[2 * i + 1]:
            views.append(("narrow", (d, pad[2 * i], x.shape[d])))
    return Whole(((x, tuple(views)),), value) if views else None


RULES: dict[str, Callable[[Node], Whole | None]] = {
    "cat": cat,
    "stack": stack,
    "select_backward": select_backward,
    "slice_backward": slice_backward,
    "constant_pad_nd": constant_pad_nd,
}


def find_parts(plan: Schedule) -> dict[Var, Part]:
    found: dict[Var, Part] = {}
    for step in plan.steps:
        whole = whole_of(step.node) if isinstance(step, CallStep) else None
        if whole is None or not isinstance(step, CallStep):
            continue
        (out,) = step.node.outs
        for x, views in whole.pieces:
            if not isinstance(x, Var) or not fits(plan, step.node, x, out):
                continue
            part, group = Part(out, views), plan.steps[plan.made[x]]
            assert isinstance(group, Group)
            if walks_rows(plan, group, {**group.placed, x: part.layout}):
                found[x] = part
                group.placed[x] = part.layout
    return found


def walks_rows(plan: Schedule, group: Group, placed: dict[Var, Layout]) -> bool:
    """Whether the group's kernel still has loops for its rows where results lie so, and folds them
    in the same order."""
    rows = [d for d in group.rows if not group.space[d] == 1]
    if not group.has_rows or len(rows) < 2:
        return True
    read = [r.layout.expand(group.space) for r in group.reads if not r.per_row]
    outs = [o for n in group.nodes for o in n.outs if plan.needed(o, group)]
    outs = [o for o in outs if o not in group.per_row and o.rank == len(group.space)]
    before = runs([*read, *(o.layout for o in outs)], group.rows)
    after = runs([*read, *(placed.get(o, o.layout) for o in outs)], group.rows)
    folds = any(plan.facts(n).folds for n in group.nodes)
    return after == before if folds else len(after) <= ROW_LOOPS


def fits(plan: Schedule, node: Node, x: Var, out: Var) -> bool:
    if plan.base(x) is not x or x not in plan.made or x in plan.graph.output_set:
        return False
    group = plan.steps[plan.made[x]]
    if plan.device != "cpu":
        return False
    if not isinstance(group, Group) or x.dtype != out.dtype or x in group.per_row:
        return False
    inside = {o for n in group.nodes for o in n.outs}
    others = [u for u in plan.graph.users[x] if not (u.outs and u.outs[0] in inside)]
    pieces = node.arguments[0]
    alone = not isinstance(pieces, (list, tuple)) or sum(p == x for p in pieces) == 1
    return others == [node] and alone and x.rank > 0
