"""Graph -> steps: groups of pointwise and row bodies that become one kernel each, and calls that
stay as they are.

Takes a graph without compositions; gives steps in an order that can run. Views are no steps: an
operand that is a view is other index arithmetic on its base. A node joins the latest group that
it shares a value with, unless

    fusion.library      it has no loop body (library calls, assemblies, tables)
    fusion.space        it runs over another space than the group, and not over the group's rows;
                        or its rows are not the group's
    fusion.dependency   it needs a value that is made after the group, or in it by way of a view
                        that the group's axes do not follow
    fusion.reduction    its folds would go over the rows in another order than in its own kernel
    fusion.layout       its result's memory would be laid out in another order than declared
    fusion.size         the kernel would have too many operands or results
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rushlight.fx.graph import Graph, Node, Var, same_layout
from rushlight.ops.layouts import Layout, dense, like_operands
from rushlight.reasons import Reason, refuse

from . import device_fusion

OPERANDS, RESULTS = 8, 4  # of one kernel: csrc/rt/kernels.h
ROW_LOOPS = 2  # of a kernel with rows: loops/lower.py
RULES = ("broadcast", "rows")  # of layout: what runs over one space of its operands
PROBE = 1 << 40  # strides that no layout has by itself, to see where a view takes each dim


class Read(NamedTuple):
    """An operand of a kernel. `shape`: what it must be expanded to before the call, where its own
    dims would be taken for others."""

    var: Var
    per_row: bool  # one number a row
    shape: tuple | None = None


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes, over `space`; dims in `rows` are folded over."""

    index: int
    space: tuple
    rows: tuple[int, ...]
    device: str = "cpu"
    nodes: list[Node] = field(default_factory=list)
    axes: dict[Var, tuple] = field(
        default_factory=dict
    )  # a value made here: the space's dim behind each of its own
    reads: dict[Read, None] = field(default_factory=dict)
    per_row: set[Var] = field(default_factory=set)  # values made here that are one number a row

    @property
    def has_rows(self) -> bool:
        return any(n.op.kind == "rows" for n in self.nodes)

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def name(self) -> str:
        return "_".join(["fused", *(n.op.name for n in self.nodes)])[:56] + f"_{self.index}"

    def __str__(self) -> str:
        rows = f" rows {list(self.rows)}" if self.has_rows else ""
        return f"{self.name} over {list(self.space)}{rows}"


@dataclass(eq=False)
class CallStep:
    """A node that is called as it is."""

    index: int
    node: Node

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def __str__(self) -> str:
        return f"call {self.node.op.name}"


Step = Group | CallStep


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
        for node in graph.calls:
            if node.op.kind != "view":
                self.place(node)

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
            group = self.find(node) or self.start(node)
            self.join(group, node)
            step = group
        for out in node.outs:
            self.made[out] = step.index
        read = map(self.base, node.reads) if isinstance(step, Group) else ()
        for v in (*node.outs, *read):
            self.touched.setdefault(v, set()).add(step.index)

    def find(self, node: Node) -> Group | None:
        """The latest group that takes the node. Reasons are recorded for groups that it shares a
        value with."""
        sharing: set[int] = set()
        for v in node.reads:
            sharing |= self.touched.get(self.base(v), set())
        for index in sorted(sharing, reverse=True):
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
            return no("library", f"{step.node.op.name} has no loop body")
        node_axes, in_rows = self.node_axes(step, node)
        if node_axes is None:
            return no(
                "space",
                f"it runs over {list(node.op.layout.full(node.call))}, the group over "
                f"{list(step.space)}",
            )
        rows = node.op.layout.rows(node.call)
        if node.op.kind == "rows" and step.has_rows and rows != step.rows:
            return no("space", f"its rows are dims {list(rows)}, the group's {list(step.rows)}")
        for name, x in node.call.operands():
            if not isinstance(x, Var):
                continue
            made = self.step_of(x)
            if made > step.index:
                return no("dependency", f"{x.name} is made after the group starts")
            if made == step.index and not self.aligned(step, node, name, x, node_axes):
                return no(
                    "dependency", f"{x.name} is a view of what the group makes, along other dims"
                )
        reads = self.reads_with(step, node, in_rows)
        if len(reads) > OPERANDS:
            return no(
                "size", f"the kernel would read {len(reads)} operands, {OPERANDS} are the most"
            )
        results = self.results_with(step, node)
        if len(results) > RESULTS:
            return no(
                "size", f"the kernel would write {len(results)} results, {RESULTS} are the most"
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
        rule = node.op.layout
        full, rows = tuple(rule.full(node.call)), tuple(rule.rows(node.call))
        group = Group(len(self.steps), full, rows, self.device)
        self.steps.append(group)
        return group

    def join(self, group: Group, node: Node) -> None:
        axes, in_rows = self.node_axes(group, node)
        assert axes is not None
        group.reads = dict.fromkeys(self.reads_with(group, node, in_rows))
        if node.op.kind == "rows" and not group.has_rows:
            group.rows = tuple(node.op.layout.rows(node.call))
        for i, out in enumerate(node.outs):
            kind = "S" if in_rows else node.op.layout.out_kind(node.call, i)
            rows = node.op.layout.rows(node.call)
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

    # ---- facts about a node in a group

    def node_axes(self, group: Group, node: Node) -> tuple[tuple | None, bool]:
        """(the group's dim behind each dim of the node's space, whether the node runs once a
        row); None: other spaces."""
        full, space = tuple(node.op.layout.full(node.call)), group.space
        if len(full) == len(space) and all(m == n for m, n in zip(full, space)):
            return tuple(range(len(space))), False
        if node.op.kind == "rows" or not group.has_rows or counts_elements(node):
            return None, False
        if len(full) == len(space) and all(
            m == (1 if d in group.rows else n) for d, (m, n) in enumerate(zip(full, space))
        ):
            return tuple(None if d in group.rows else d for d in range(len(space))), True
        left = [d for d in range(len(space)) if d not in group.rows]
        if len(full) == len(left) and all(m == space[d] for m, d in zip(full, left)):
            return tuple(left), True
        return None, False

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

    def reads_with(self, group: Group, node: Node, in_rows: bool) -> list[Read]:
        """The group's operands when the node joins: (operand, whether it is one number a row)."""
        reads = dict(group.reads)
        for name, x in node.call.operands():
            if isinstance(x, Var) and self.step_of(x) != group.index:
                reads[self.read_of(group, node, name, x, in_rows)] = None
        return list(reads)

    def results_with(self, group: Group, node: Node) -> list[Var]:
        """The values that must be written when the node joins: read elsewhere, or returned."""
        nodes = [*group.nodes, node]
        return [out for n in nodes for out in n.outs if self.needed(out, nodes)]

    def needed(self, out: Var, nodes: list[Node]) -> bool:
        """Whether somebody besides these nodes reads the value or a view of it."""
        if out in self.graph.outputs:
            return True
        for user in self.graph.users[out]:
            if user.kind == "output":
                return True
            if user.op.kind == "view":
                if self.needed(user.outs[0], nodes):
                    return True
            elif user not in nodes:
                return True
        return False

    def same_order(self, group: Group, nodes: list[Node], reads: list, results: list[Var]) -> bool:
        """Folds over several dims merge them into one loop where all buffers allow; the kernel
        must merge as each node's own kernel does."""
        folding = [n for n in nodes if n.op.kind == "rows"]
        if not folding:
            return True
        rows = folding[0].op.layout.rows(folding[0].call)
        if sum(not group.space[d] == 1 for d in rows) < 2:
            return True
        whole = [r.var.layout.expand(group.space) for r in reads if not r.per_row]
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
        whole = [r.var.layout for r in reads if not r.per_row]
        if same_layout(out.layout, like_operands(whole, group.space, out.dtype, out.device)):
            return "S"
        return None

    @staticmethod
    def reduces(node: Node, out: Var) -> bool:
        return node.op.layout.out_kind(node.call, node.outs.index(out)) in "KD"


def fusible(node: Node) -> bool:
    """A scalar or row body over the space of its operands, with operands."""
    op = node.op
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
