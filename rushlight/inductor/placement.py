"""Which results are written into memory that is there already. Takes scheduled and lowered steps;
gives, for a result, the variable whose memory it takes.

A result may take the memory of

    an input that the graph writes to: its new value needs no copy at the end
    an operand of its own kernel that nobody reads afterwards
    the slice that it is put into, where what the slice is of is read no more

where index expressions prove that the kernel reads each element before it writes it (access.py).
What is refused is recorded (fusion.overlap).
"""

from __future__ import annotations

from rushlight.fx.graph import Node, Var, same_layout
from rushlight.reasons import refuse

from .access import why_not_written
from .groups import Group, Step
from .lowering import Lowered
from .parts import Part, walks_rows
from .scheduler import Schedule

SCATTERS = {"slice_scatter": "slice", "select_scatter": "select"}  # written through this view
FRESH = ("scalar", "rows", "library", "assemble")  # kinds whose results have memory of their own


def place_results(
    plan: Schedule, lowered: dict[int, Lowered], own: int, written: tuple[int, ...]
) -> dict[Var, Var]:
    """`own`, `written`: of the graph's results, those from `own` on are the new values of the
    inputs `written`; what comes after them is kept."""
    p = Placer(plan, lowered)
    for k, i in enumerate(written, own):
        p.write(k, plan.graph.inputs[i])
    for step in plan.steps:
        p.reuse(step)
    for step in plan.steps:
        p.place_source(step)
    return p.targets


class Placer:
    def __init__(self, plan: Schedule, lowered: dict[int, Lowered]) -> None:
        self.plan, self.lowered = plan, lowered
        self.results = plan.graph.outputs
        self.bases = [plan.base(v) for v in self.results]
        self.targets: dict[Var, Var] = {}
        self.last: dict[Var, int] = {}
        for step in plan.steps:
            for node in step.nodes:
                for v in node.reads:
                    if plan.step_of(v) != step.index:
                        self.last[plan.base(v)] = step.index
        self.kept = set(self.bases)

    def write(self, k: int, target: Var) -> None:
        """Result k straight into the memory of an input."""
        value = self.results[k]
        if self.bases.count(value) == 1 and target not in self.kept:
            self.targets |= self.into(value, target) or {}

    def into(self, value: Var, target: Var) -> dict[Var, Var] | None:
        """What to place where, so that `value` comes to stand in the target's memory; None where it
        cannot."""
        if value not in self.plan.made or not same_layout(value.layout, target.layout):
            return None
        step = self.plan.steps[self.plan.made[value]]
        if self.rewrites(step):
            before = step.nodes[0].arguments[0]
            if before == target:
                return {value: target} if self.last[target] == step.index else None
            if before in self.kept or self.last.get(before) != step.index:
                return None
            found = self.into(before, target)
            return None if found is None else {**found, value: before}
        if self.last.get(target, -1) > step.index or not self.takes(step, value, target, target):
            return None
        return {value: target}

    def reuse(self, step: Step) -> None:
        """Results over operands that die here."""
        taken: set[Var] = set()
        if self.rewrites(step):
            (value,), before = step.nodes[0].outs, step.nodes[0].arguments[0]
            if value not in self.targets and self.dies(before, before, step):
                self.targets[value] = before
            return
        for value in self.made(step):
            if value in self.targets or value in self.plan.parts:
                continue
            for x in self.operands(step):
                base = self.plan.base(x)
                if base in taken or not self.dies(x, base, step):
                    continue
                if same_layout(value.layout, x.layout) and self.takes(step, value, x, base):
                    self.targets[value] = x
                    taken.add(base)
                    break

    def place_source(self, step: Step) -> None:
        """What is put into a slice, computed there: nobody may read the slice's old values after
        the kernel that makes the new ones, nor that kernel at other places."""
        if not scatters(step):
            return
        node = step.nodes[0]
        before, source, *where = node.arguments
        if node.outs[0] not in self.targets or not isinstance(source, Var):
            return
        plan, at = self.plan, self.plan.made.get(source)
        if at is None or source in self.targets or source in plan.parts or source in self.kept:
            return
        group, low = plan.steps[at], self.lowered.get(at)
        base = plan.base(before)
        if low is None or not isinstance(group, Group) or source not in low.results:
            return
        if plan.step_of(before) >= at or source in group.per_row:
            return
        inside = {o for n in group.nodes for o in n.outs}
        if [u for u in plan.graph.users[source] if not (u.outs and u.outs[0] in inside)] != [node]:
            return
        memory = {base, *(v for v in self.targets if self.stands_in(v) == self.stands_in(base))}
        for between in plan.steps[at + 1 : step.index]:
            if any(plan.base(v) in memory for n in between.nodes for v in n.reads):
                return
            if any(o in memory for n in between.nodes for o in n.outs):
                return
        if any(plan.base(r.var) in memory - {base} for r in low.reads):
            return
        views = ((SCATTERS[node.op.name], tuple(where)),)
        part = Part(before, views)
        if not walks_rows(plan, group, {**group.placed, source: part.layout}):
            return
        reads = [r for r in low.reads if plan.base(r.var) == base]
        if reads:
            why = f"the kernel that makes {source.name} reads {reads[0].var.name} of that memory"
            what = f"{source.name} in its slice of {before.name}"
            plan.reasons.append(refuse("fusion.overlap", what, why))
            return
        plan.parts[source] = part
        group.placed[source] = part.layout

    def stands_in(self, v: Var) -> Var:
        while v in self.targets:
            v = self.plan.base(self.targets[v])
        return v

    def rewrites(self, step: Step) -> bool:
        """A call whose result is its first operand with some elements changed, and which can
        change them in place: no other operand shares that memory."""
        if scatters(step):
            return True
        node = step.nodes[0]
        if isinstance(step, Group) or not rewrites(node):
            return False
        before = node.arguments[0]
        base = self.plan.base(before)
        return (
            base is before
            and same_layout(before.layout, node.outs[0].layout)
            and sum(self.plan.base(v) == base for v in node.reads) == 1
            and not any(v is not before and v == before for v in node.arguments[1:])
        )

    def dies(self, x: Var, base: Var, step: Step) -> bool:
        """Whether the memory behind x is the graph's own, and nobody reads it after this step."""
        if base in self.kept or self.last.get(base) != step.index:
            return False
        maker = self.plan.graph.makers[base]
        return maker.kind == "call_function" and maker.op.kind in FRESH

    def made(self, step: Step) -> tuple[Var, ...]:
        low = self.lowered.get(step.index)
        if low:
            return low.results
        return step.nodes[0].outs if isinstance(step, Group) and len(step.nodes) == 1 else ()

    def operands(self, step: Step) -> tuple[Var, ...]:
        low = self.lowered.get(step.index)
        if low:
            return tuple(r.var for r in low.reads if not r.per_row and r.shape is None)
        return step.nodes[0].reads[:1]

    def takes(self, step: Step, value: Var, x: Var, base: Var) -> bool:
        """Whether the step can write `value` to the memory of x, which it may read."""
        if not isinstance(step, Group) or value in self.plan.parts:
            return False
        low = self.lowered.get(step.index)
        if low is None:  # the operator's in-place form
            node = step.nodes[0]
            return (
                len(step.nodes) == 1  # another operator of the group may read x later
                and node.op.kind == "scalar"
                and len(node.outs) == 1
                and getattr(node.op.native, "inplace", None) is not None
                and node.arguments[0] is not None
                and isinstance(node.arguments[0], Var)
                and node.arguments[0] == x
                and all(self.plan.base(v) != base or v == x for v in node.reads)
            )
        if value not in low.results:
            return False
        why = why_not_written(self.plan, low, step.space, value, x)
        if why is not None:
            what = f"{value.name} in the memory of {x.name}"
            self.plan.reasons.append(refuse("fusion.overlap", what, why))
        return why is None


def scatters(step: Step) -> bool:
    return not isinstance(step, Group) and step.node.op.name in SCATTERS


def rewrites(node: Node) -> bool:
    op = node.op
    first = op.parameters[0].name if op.parameters else None
    return (
        op.writes is not None
        and op.writes == first
        and getattr(op.native, "inplace", None) is not None
        and isinstance(node.arguments[0], Var)
        and len(node.outs) == 1
    )


__all__ = ["SCATTERS", "place_results"]
