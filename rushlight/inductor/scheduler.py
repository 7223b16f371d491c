"""Graph -> steps: groups of pointwise and row bodies that become one kernel each, and calls that
stay as they are.

Takes a graph without compositions; gives steps in an order that can run. Views are no steps: an
operand that is a view is other index arithmetic on its base. Nor are tensors of one number: where
a kernel reads one, the number stands in its code. A node joins the latest group that it shares a
value with, and then earlier groups that it reads from join that one, unless

    fusion.library      it has no loop body (library calls, assemblies, tables)
    fusion.space        it runs over another space than the group, and not over the group's rows;
                        or its rows are not the group's
    fusion.dependency   it needs a value that is made after the group, or in it by way of a view
                        that the group's axes do not follow, or of indices
    fusion.reduction    its folds would go over the rows in another order than in its own kernel
    fusion.layout       its result's memory would be laid out in another order than declared
    fusion.size         the kernel would have too many operands, results or nodes

Small groups over one space that share nothing become one kernel too: a call costs more than they
do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rushlight import sym
from rushlight.fx.graph import Graph, Node, Var, same_layout
from rushlight.fx.passes import left_out
from rushlight.ops.layouts import Layout, dense, like_operands
from rushlight.reasons import Reason, refuse

from . import device_fusion
from .gathers import Pick, gather_of
from .groups import CallStep, Facts, Group, Read, Step

OPERANDS, RESULTS = 16, 8  # of one kernel: csrc/rt/kernels.h
NODES, JOINED = 512, 64  # of one kernel; of one that is made of two
NUMBERS = 8  # at run time, each in two forms at most: kNumbers of csrc/core/plan.h
SMALL = 1 << 14  # elements, below which a call costs as much as the work
ROW_LOOPS = 2  # of a kernel with rows: loops/lower.py
RULES = ("broadcast", "rows")  # of layout: what runs over one space of its operands
PROBE = 1 << 40  # strides that no layout has by itself, to see where a view takes each dim


class Schedule:
    """The steps of one graph, and why nodes did not join."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.device = device_of(graph)
        self.steps: list[Step] = []
        self.made: dict[Var, int] = {}  # base -> index of the step that makes it
        self.reasons: list[Reason] = []
        self.touched: dict[
            Var, set[int]
        ] = {}  # base -> the steps that make it, the groups that read it
        self.known: dict[int, Facts] = {}
        self.order = {id(n): i for i, n in enumerate(graph.calls)}
        self.left: set[int] = set()  # indices of groups that became part of another
        self.tried: set[tuple[int, int]] = set()
        self.alone = left_out("fusion")  # each node by itself
        self.parts: dict[Var, Any] = {}  # values computed where they will lie: parts.py
        for node in graph.calls:
            if node.op.kind != "view" and node.op.name != "full":
                self.place(node)
        if not self.alone:
            self.put_side_by_side()
        self.close_up()

    # ---- views

    def base(self, x: Var) -> Var:
        """The value that x is a view of, or x."""
        node = self.graph.makers[x]
        while node.kind == "call_function" and node.op.kind == "view":
            x = node.reads[0]
            node = self.graph.makers[x]
        return x

    def elsewhere(self, x: Var) -> bool:
        """Whether x comes from another device than the graph's: a number in a tensor on the CPU."""
        base = self.base(x)
        made = self.graph.makers[base].kind == "call_function"
        return not made and base.layout.device != self.device

    def chain(self, x: Var) -> list[Node]:
        """The views from a base to x, outermost last."""
        found, node = [], self.graph.makers[x]
        while node.kind == "call_function" and node.op.kind == "view":
            found.append(node)
            node = self.graph.makers[node.reads[0]]
        return found[::-1]

    def step_of(self, x: Var) -> int:
        """Which step makes x's base; -1: an input."""
        return self.made.get(self.base(x), -1)

    # ---- placing

    def place(self, node: Node) -> None:
        step: Step
        if not fusible(node) or any(self.elsewhere(v) for v in node.reads):
            step = CallStep(len(self.steps), node)
            self.steps.append(step)
        else:
            group = (None if self.alone else self.find(node)) or self.start(node)
            self.join(group, node)
            step = group
        for out in node.outs:
            self.made[out] = step.index
        read = map(self.base, node.reads) if isinstance(step, Group) else ()
        for v in (*node.outs, *read):
            self.touched.setdefault(v, set()).add(step.index)
        if isinstance(step, Group) and not self.alone:
            self.take_in(step, node)

    def find(self, node: Node) -> Group | None:
        """The latest group that takes the node. Reasons are recorded for groups that it shares a
        value with."""
        sharing: set[int] = set()
        for v in node.reads:
            sharing |= self.touched.get(self.base(v), set())
        for index in sorted(sharing - self.left, reverse=True):
            step = self.steps[index]
            reason = self.why_not(step, node)
            if reason is None and isinstance(step, Group):
                return step
            if reason is not None:
                self.reasons.append(reason)
        return None

    def why_not(self, step: Step, node: Node) -> Reason | None:
        def no(kind: str, why: str, hint: str = "") -> Reason:
            return refuse(
                f"fusion.{kind}", f"{node.outs[0].name} into {step}", why, hint, node.where or None
            )

        if isinstance(step, CallStep):
            return no("library", f"{step.node.op.name} is called as it is: it has no loop to join")
        facts = self.facts(node)
        node_axes, in_rows = self.node_axes(step, node)
        if node_axes is None:
            return no(
                "space",
                f"it loops over {list(facts.space)}, the kernel over {list(step.space)}",
            )
        if facts.folds and step.has_rows and facts.rows != step.rows:
            mine, theirs = list(facts.rows), list(step.rows)
            return no("space", f"its rows are dims {mine}, the group's {theirs}")
        if len(step.nodes) >= NODES:
            return no("size", f"the kernel has {NODES} nodes")
        for name, x in node.call.operands():
            if not isinstance(x, Var):
                continue
            made = self.step_of(x)
            if made > step.index:
                return no("dependency", f"it needs {x.name}, made only after that kernel began")
            if made != step.index:
                continue
            if facts.gather is not None:
                why = f"{x.name} is made by the group, and read at indices or as them"
                return no("dependency", why)
            if not self.aligned(step, node, name, x, node_axes):
                return no(
                    "dependency", f"{x.name} is a view of what the group makes, along other dims"
                )
        reads = self.reads_with(step, node, in_rows)
        operands, most = device_fusion.limits() if step.on_gpu else (OPERANDS, RESULTS)
        if len(reads) > operands:
            return no(
                "size", f"the kernel would read {len(reads)} operands, {operands} are the most"
            )
        if len(step.numbers | self.numbers_of(node)) > NUMBERS:
            return no("size", f"the kernel would take more than {NUMBERS} numbers at run time")
        results = self.results_with(step, node)
        if len(results) > most:
            return no(
                "size", f"the kernel would write {len(results)} results, {most} are the most"
            )
        nodes = [*step.nodes, node]
        if step.on_gpu and device_fusion.starves(self, step, node, in_rows, results):
            return no("reduction", "few long rows could no more be folded in pieces side by side")
        if not self.same_order(step, nodes, reads, results):
            return no(
                "reduction",
                "the rows would be folded in another order, which changes the last bits",
            )
        for out in results:
            if self.out_kind(step, reads, out, in_rows and out in node.outs, node) is None:
                return no(
                    "layout", f"{out.name} would lie in memory as its operands do, not as declared"
                )
        return None

    def start(self, node: Node) -> Group:
        facts = self.facts(node)
        group = Group(len(self.steps), facts.space, facts.rows, self.device)
        self.steps.append(group)
        return group

    def join(self, group: Group, node: Node) -> None:
        axes, in_rows = self.node_axes(group, node)
        assert axes is not None
        facts = self.facts(node)
        if facts.folds and not group.has_rows:
            self.walk_rows(group, facts.rows)
        group.reads = dict.fromkeys(self.reads_with(group, node, in_rows))
        group.open = dict.fromkeys(self.results_with(group, node))
        group.numbers |= self.numbers_of(node)
        for i, out in enumerate(node.outs):
            kind = "S" if in_rows or facts.gather else node.op.layout.out_kind(node.call, i)
            rows = facts.rows
            if in_rows or kind in "KD":
                group.per_row.add(out)
            if kind == "D":
                axes_of = tuple(d for j, d in enumerate(axes) if j not in rows)
            else:
                axes_of = tuple(
                    None if kind == "K" and j in rows else d for j, d in enumerate(axes)
                )
            group.axes[out] = axes_of
        group.nodes.append(node)

    def walk_rows(self, group: Group, rows: tuple[int, ...]) -> None:
        """From now on the group has rows; indices that do not vary along them are read once a
        row."""
        group.has_rows, group.rows = True, rows
        if any(self.facts(n).gather for n in group.nodes):
            group.reads = {}
            for n in group.nodes:
                group.reads.update(dict.fromkeys(self.own_reads(group, n, False)))

    # ---- groups into groups

    def take_in(self, group: Group, node: Node) -> None:
        """Earlier groups that the node shares values with."""
        sharing: set[int] = set()
        for v in node.reads:
            sharing |= self.touched.get(self.base(v), set())
        for index in sorted(sharing - self.left, reverse=True)[:8]:
            other = self.steps[index]
            if index < group.index and isinstance(other, Group):
                reason = self.merge(other, group)
                if reason is not None:
                    self.reasons.append(reason)

    def merge(self, other: Group, group: Group) -> Reason | None:
        """The earlier group's nodes into the later one, where every node may join again."""
        if (other.index, group.index) in self.tried:
            return None
        self.tried.add((other.index, group.index))

        def no(kind: str, why: str) -> Reason:
            return refuse(f"fusion.{kind}", f"{other} into {group}", why)

        if len(other.nodes) + len(group.nodes) > JOINED:
            return no("size", f"the kernel would have more than {JOINED} nodes")
        if other.has_rows and group.has_rows and other.rows != group.rows:
            return no("space", f"the rows are dims {list(other.rows)} and {list(group.rows)}")
        made = {v for n in other.nodes for v in n.outs}
        for step in self.steps[other.index + 1 : group.index]:
            if step.index not in self.left and any(
                self.base(v) in made for n in step.nodes for v in n.reads
            ):
                return no("dependency", f"{step} between them needs what the first makes")
        wide = other if other.has_rows and not group.has_rows else group
        trial = Group(group.index, wide.space, wide.rows, self.device, has_rows=wide.has_rows)
        nodes = sorted([*other.nodes, *group.nodes], key=lambda n: self.order[id(n)])
        trial.coming = frozenset(v for n in nodes for v in n.outs)
        self.made.update(dict.fromkeys(made, group.index))
        for node in nodes:
            reason = self.why_not(trial, node)
            if reason is not None:
                self.made.update(dict.fromkeys(made, other.index))
                return reason
            self.join(trial, node)
        if trial.has_rows and trial.reads and all(read.per_row for read in trial.reads):
            self.made.update(dict.fromkeys(made, other.index))
            return no("space", "no operand would show how long a row is")
        trial.coming = frozenset()
        group.__dict__.update(trial.__dict__)  # who holds the group holds the merged one
        self.left.add(other.index)
        for sharing in self.touched.values():
            if other.index in sharing:
                sharing.discard(other.index)
                sharing.add(group.index)
        return None

    def put_side_by_side(self) -> None:
        """Small groups over one space, each with the one before it."""
        latest: dict[tuple, Group] = {}
        for step in list(self.steps):
            if not isinstance(step, Group) or step.index in self.left:
                continue
            if math.prod(map(sym.hint, step.space)) > SMALL:
                continue
            key = (str(step.space), step.rows if step.has_rows else None)
            if key in latest:
                self.merge(latest[key], step)
            latest[key] = step

    def close_up(self) -> None:
        """Steps are numbered anew, without those that became part of others."""
        kept = [s for s in self.steps if s.index not in self.left]
        at = {s.index: i for i, s in enumerate(kept)}
        self.made = {v: at[i] for v, i in self.made.items()}
        for i, step in enumerate(kept):
            step.index = i
        self.steps = kept

    # ---- facts about a node in a group

    def node_axes(self, group: Group, node: Node) -> tuple[tuple | None, bool]:
        """(the group's dim behind each dim of the node's space, whether the node runs once a
        row); None: other spaces."""
        facts, space = self.facts(node), group.space
        full = facts.space
        if len(full) == len(space) and all(m == n for m, n in zip(full, space)):
            return tuple(range(len(space))), False
        if facts.folds or facts.gather or not group.has_rows or counts_elements(node):
            return None, False
        if len(full) == len(space) and all(
            m == (1 if d in group.rows else n) for d, (m, n) in enumerate(zip(full, space))
        ):
            return tuple(None if d in group.rows else d for d in range(len(space))), True
        left = [d for d in range(len(space)) if d not in group.rows]
        if len(full) == len(left) and all(m == space[d] for m, d in zip(full, left)):
            return tuple(left), True
        return None, False

    def facts(self, node: Node) -> Facts:
        found = self.known.get(id(node))
        if found is None:
            gather = gather_of(node)
            if gather is not None:
                found = Facts(False, tuple(node.outs[0].shape), (), gather)
            else:
                rule = node.op.layout
                folds = node.op.kind == "rows"
                found = Facts(folds, tuple(rule.full(node.call)), tuple(rule.rows(node.call)))
            self.known[id(node)] = found
        return found

    def number_for(self, node: Node, x: Var) -> Node | None:
        """What makes an operand that is one number all over, where another operand shows the
        space, rows and all."""
        maker = self.graph.makers[self.base(x)]
        if maker.kind != "call_function" or maker.op.name != "full":
            return None
        for name, v in node.call.operands():
            if isinstance(v, Var) and not node.op.layout.is_per_row(name):
                other = self.graph.makers[self.base(v)]
                if other.kind != "call_function" or other.op.name != "full":
                    return maker
        return None

    def aligned(self, group: Group, node: Node, name: str, x: Var, node_axes: tuple) -> bool:
        """Whether x, made in the group, lies along the dims that the node would read it over."""
        at = self.axes_of(group, x)
        if at is None:
            return False
        if node.op.layout.is_per_row(name):
            rows = node.op.layout.rows(node.call)
            if x.rank == len(node_axes) - len(rows) and rows:  # row dims left out
                node_axes = tuple(d for j, d in enumerate(node_axes) if j not in rows)
        lead = len(node_axes) - x.rank
        return lead >= 0 and all(
            n == 1 or a == node_axes[j + lead] for j, (n, a) in enumerate(zip(x.shape, at))
        )

    def axes_of(self, group: Group, x: Var) -> tuple | None:
        """The group's dim behind each dim of x, seen through its views; None where a view takes
        only a part or reorders memory. Found by sending a layout with strides of its own through
        the views' definitions."""
        base = self.base(x)
        known = group.axes[base]
        if x is base:
            return known
        probe = tuple(PROBE + 17 * d * PROBE for d in range(base.rank))
        layout = Layout(base.shape, probe, base.dtype)
        try:
            for view in self.chain(x):
                layout = view.op.body(layout, *view.arguments[1:])
        except RuntimeError:
            return None
        if not layout.offset == 0:
            return None
        found: list[Any] = []
        for n, s in layout.pairs():
            d = probe.index(s) if isinstance(s, int) and s in probe else None
            if n == 1 or s == 0:
                found.append(None)
            elif d is None or not n == base.shape[d]:
                return None
            else:
                found.append(known[d])
        kept = [d for d, n in zip(known, base.shape) if not n == 1]
        return (
            tuple(found)
            if [d for d in found if d is not None] and set(kept) == set(found) - {None} or not kept
            else None
        )

    def read_of(self, group: Group, node: Node, name: str, x: Var, in_rows: bool) -> Read:
        """How the node reads an operand that comes from outside the group."""
        if not in_rows and not node.op.layout.is_per_row(name):
            return Read(x, False)
        rows = node.op.layout.rows(node.call) if node.op.kind == "rows" else group.rows
        space, rank = group.space, len(group.space)
        left = tuple(n for d, n in enumerate(space) if d not in rows)
        if x.rank == rank or x.rank == len(left) and all(m == n for m, n in zip(x.shape, left)):
            return Read(x, True)
        if in_rows:
            return Read(x, True, tuple(node.op.layout.full(node.call)))
        return Read(x, True, tuple(1 if d in rows else n for d, n in enumerate(space)))

    def own_reads(self, group: Group, node: Node, in_rows: bool) -> list[Read]:
        """What the node reads from outside the group."""
        facts = self.facts(node)
        if facts.gather is not None:
            table = Read(facts.gather.table, False, group.space, facts.gather.strides)
            return [table, *(self.pick_read(group, p) for p in facts.gather.picks)]
        return [
            self.read_of(group, node, name, x, in_rows)
            for name, x in node.call.operands()
            if isinstance(x, Var)
            and self.step_of(x) != group.index
            and self.number_for(node, x) is None
        ]

    def numbers_of(self, node: Node) -> set[str]:
        """What a kernel of the node is told at run time, beside tensors."""
        gather = self.facts(node).gather
        picks = gather.picks if gather is not None else ()
        return set(map(str, sym.sizes_in([node.arguments, *((p.extent, p.stride) for p in picks)])))

    def pick_read(self, group: Group, pick: Pick) -> Read:
        """Indices, over the group's space: once a row where they do not vary along it."""
        shape, strides = list(group.space), [0] * len(group.space)
        for d, n, s in zip(pick.dims, pick.index.shape, pick.index.layout.strides):
            strides[d] = 0 if n == 1 else s
        once = group.has_rows and all(strides[d] == 0 or shape[d] == 1 for d in group.rows)
        if once:
            shape = [1 if d in group.rows else n for d, n in enumerate(shape)]
        return Read(pick.index, once, tuple(shape), tuple(strides))

    def reads_with(self, group: Group, node: Node, in_rows: bool) -> list[Read]:
        """The group's operands when the node joins."""
        return list(dict.fromkeys([*group.reads, *self.own_reads(group, node, in_rows)]))

    def results_with(self, group: Group, node: Node) -> list[Var]:
        """The values that must be written when the node joins: read elsewhere, or returned."""

        def inside(v: Var) -> bool:
            return v in group.axes or v in group.coming or v in node.outs

        read = set(map(self.base, node.reads))
        kept = [o for o in group.open if o not in read or self.reaches(o, inside)]
        return kept + [o for o in node.outs if self.reaches(o, inside)]

    def needed(self, out: Var, group: Group) -> bool:
        """Whether somebody outside the group reads the value or a view of it."""
        return self.reaches(out, group.axes.__contains__)

    def reaches(self, out: Var, inside: Callable[[Var], bool]) -> bool:
        if out in self.graph.output_set:
            return True
        for user in self.graph.users[out]:
            if user.kind == "output":
                return True
            if user.op.kind == "view":
                if self.reaches(user.outs[0], inside):
                    return True
            elif not inside(user.outs[0]):
                return True
        return False

    def same_order(self, group: Group, nodes: list[Node], reads: list, results: list[Var]) -> bool:
        """Folds over several dims merge them into one loop where all buffers allow; the kernel
        must merge as each node's own kernel does."""
        if not (group.has_rows or self.facts(nodes[-1]).folds):
            return True
        folding = [n for n in nodes if self.facts(n).folds]
        if not folding:
            return True
        rows = folding[0].op.layout.rows(folding[0].call)
        if sum(not group.space[d] == 1 for d in rows) < 2:
            return True
        whole = [r.layout.expand(group.space) for r in reads if not r.per_row]
        whole += [
            o.layout
            for o in results
            if o.rank == len(group.space) and all(m == n for m, n in zip(o.shape, group.space))
        ]
        mine = runs(whole, rows)
        if len(mine) > ROW_LOOPS:
            return False
        for node in folding:
            _, _, layouts = node.op.layout.space(node.call)
            outs = [
                o.layout
                for i, o in enumerate(node.outs)
                if node.op.layout.out_kind(node.call, i) in "SC"
            ]
            if runs(layouts + outs, rows) != mine:
                return False
        return True

    def out_kind(
        self, group: Group, reads: list, out: Var, in_rows: bool, node: Node | None = None
    ) -> str | None:
        """How the kernel lays out a result (csrc/rt/kernels.h): S, C, K or D; None where none of
        them is as declared."""
        rank = len(group.space)
        if (
            in_rows
            or out in group.per_row
            or node is not None
            and out in node.outs
            and self.reduces(node, out)
        ):
            kind = "K" if out.rank == rank else "D"
            return (
                kind
                if same_layout(out.layout, dense(out.shape, out.dtype, None, out.device))
                else None
            )
        if same_layout(out.layout, dense(group.space, out.dtype, None, out.device)):
            return "C"
        whole = [r.layout for r in reads if not r.per_row]
        if not whole:
            return None
        if same_layout(out.layout, like_operands(whole, group.space, out.dtype, out.device)):
            return "S"
        return None

    def reduces(self, node: Node, out: Var) -> bool:
        folds = self.facts(node).folds
        return folds and node.op.layout.out_kind(node.call, node.outs.index(out)) in "KD"


def fusible(node: Node) -> bool:
    """A scalar or row body over the space of its operands, with operands; or a fetch at indices."""
    op = node.op
    if gather_of(node) is not None:
        return True
    return op.kind in ("scalar", "rows") and op.layout.rule in RULES and bool(node.call.tensors)


def device_of(graph: Graph) -> str:
    """Where a graph computes: on the GPU that one of its inputs is on, else on the CPU. What it
    makes
    from nothing is made there."""
    inputs = (*graph.inputs, *(n.outs[0] for n in graph.nodes if n.kind == "get_attr"))
    found = (v.layout.device for v in inputs)
    return next((d for d in found if d.startswith("cuda")), "cpu")


def counts_elements(node: Node) -> bool:
    """Bodies that ask for their logical position: it counts over the node's own space."""
    return node.op.name in ("element", "uniform", "normal", "counted_dropout", "positions")


def runs(layouts: list[Layout], rows: tuple[int, ...]) -> tuple[int, ...]:
    """The row dims after merging neighbours that all operands walk as one, each by its first."""
    kept: list[int] = []
    last = None
    for d in rows:
        if all(x.shape[d] == 1 for x in layouts):
            continue
        if last is not None and all(x.strides[last] == x.strides[d] * x.shape[d] for x in layouts):
            last = d
            continue
        kept.append(d)
        last = d
    return tuple(kept)


def schedule(graph: Graph) -> Schedule:
    return Schedule(graph)
