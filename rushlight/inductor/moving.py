"""Graph -> the same graph with views and concatenations out of the way of fusion.

    push_through_cat    f(cat(a, b), c)  ->  cat(f(a, c[:m]), f(b, c[m:])): pieces are computed
                        where they will lie, and nothing is concatenated before it is used
    raise_views         f(a, b)[1:]      ->  f(a[1:], b[1:]): a view of what a kernel makes would
                        end the kernel; views of its operands are index arithmetic

Both compute the same elements by the same operators, so the same bits. Neither changes a layout
that anybody can see: where a result further on would be laid out in another way, nothing moves.
First, `fold_constants` computes what depends on no input: masks, positions, one-hot rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rushlight import sym
from rushlight.fx.graph import (
    ATTRIBUTE,
    CALL,
    OUTPUT,
    Graph,
    Names,
    Node,
    Var,
    map_variables,
    same_layout,
    same_size,
)
from rushlight.fx.rewrite import merge_equal_calls, remove_dead_code
from rushlight.ops.declare import Arguments, Op
from rushlight.ops.layouts import passed_over
from rushlight.ops.values import TABLE

from .scheduler import counts_elements, device_of, fusible

PIECES = 4  # of a concatenation that calls move into: each becomes a kernel
TAKES_PART = ("slice", "select", "permute", "transpose", "view", "diagonal", "unfold")
CHEAP = 2  # operations that are rather repeated than kept
SMALL = 1 << 16  # elements of a constant
REPEATED = 2  # times its elements that a cheap call may be computed


class Editor:
    """A graph being changed: nodes in order, and what reads what."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = list(graph.nodes)
        self.names = Names([*graph.env.hints, *(o.name for n in graph.nodes for o in n.outs)])
        self.outputs = graph.output_set
        self.changed = False

    def index(self) -> None:
        self.makers = {o: n for n in self.nodes for o in n.outs}
        self.users: dict[Var, list[Node]] = {o: [] for n in self.nodes for o in n.outs}
        for n in self.nodes:
            for v in n.reads:
                self.users[v].append(n)

    def call(self, op: Op, arguments: tuple, like: Node, name: str = "") -> Node:
        (layout,) = op.infer(Arguments(op, arguments))
        out = Var(name or self.names.fresh(op.name), layout)
        return Node(CALL, op, arguments, (out,), like.origins)

    def instead(self, old: Node, new: list[Node]) -> None:
        """`new` at the place of `old`, the last of them with its result."""
        at = next(i for i, n in enumerate(self.nodes) if n is old)
        self.nodes[at : at + 1] = new
        self.reread({old.outs[0]: new[-1].outs[0]})

    def reread(self, table: dict[Var, Var]) -> None:
        """Every reader of a key reads its value; views of it look as they then do."""
        table, nodes = dict(table), []
        for n in self.nodes:
            if any(v in table for v in n.reads):
                n = replace(n, arguments=map_variables(n.arguments, lambda v: table.get(v, v)))
                if n.kind == CALL and n.op.kind == "view":
                    (layout,) = n.op.infer(n.call)
                    if not same_layout(layout, n.outs[0].layout):
                        new = Var(n.outs[0].name, layout)
                        table[n.outs[0]] = new
                        n = replace(n, outs=(new,))
            nodes.append(n)
        self.nodes, self.changed = nodes, True
        self.index()

    def finished(self) -> Graph:
        if not self.changed:
            return self.graph
        return remove_dead_code(merge_equal_calls(self.graph.with_nodes(self.nodes)))


def elementwise(node: Node) -> bool:
    """One result, each element of which comes from the operands' elements at its place."""
    return (
        node.kind == CALL
        and node.op.kind == "scalar"
        and len(node.outs) == 1
        and node.op.name != "full"
        and fusible(node)
        and not counts_elements(node)
        and not any(isinstance(a, (list, tuple)) and any(map(is_var, a)) for a in node.arguments)
    )


def is_var(x: Any) -> bool:
    return isinstance(x, Var)


# ---- constants


def fold_constants(graph: Graph) -> Graph:
    """What no input decides is computed now, and kept with the graph: small tensors only. Tensors
    of one number stay calls: kernels have the number in their code."""
    if device_of(graph) != "cpu":
        return graph
    known: set[Var] = set()
    folded: list[Node] = []
    for node in graph.nodes:
        if node.kind == ATTRIBUTE:
            known.update(node.outs)
        if node.kind != CALL or not all(v in known for v in node.reads):
            continue
        if node.op.kind == "composition" or symbolic(node.arguments):
            continue
        if all(count(o) <= SMALL for o in node.outs):
            known.update(node.outs)
            folded.append(node)
    made = {
        n.outs[0]
        for n in folded
        if len(n.outs) == 1 and n.op.kind != "view" and n.op.name != "full"
    }
    own = {id(n) for n in folded}
    readers = [n for n in graph.nodes if id(n) not in own]  # views of constants are views still
    bases = (base(graph, v) for n in readers for v in n.reads)
    read = dict.fromkeys(v for v in bases if v in made)
    wanted = tuple(v for v in read if not handed_out(graph, v))
    if not wanted:
        return graph
    names = set(wanted)
    around = [n for n in graph.nodes if n.kind == ATTRIBUTE]
    values = graph.with_nodes([*around, *folded, Node(OUTPUT, "output", (wanted,))])()
    constants = {**graph.constants, **{f"constant_{v.name}": t for v, t in zip(wanted, values)}}
    calls = [n for n in graph.calls if not any(o in names for o in n.outs)]
    nodes = [n for n in graph.nodes if n.kind not in (CALL, OUTPUT)]
    nodes += [Node(ATTRIBUTE, f"constant_{v.name}", (), (v,)) for v in wanted]
    nodes += [*calls, graph.nodes[-1]]
    return remove_dead_code(graph.with_nodes(nodes, constants=constants))


def base(graph: Graph, x: Var) -> Var:
    node = graph.makers[x]
    while node.kind == CALL and node.op.kind == "view":
        x = node.reads[0]
        node = graph.makers[x]
    return x


def symbolic(arguments: Any) -> bool:
    if isinstance(arguments, (list, tuple)):
        return any(map(symbolic, arguments))
    return isinstance(arguments, sym.Sym)


def handed_out(graph: Graph, x: Var) -> bool:
    """Whether x, or a view of it, is a result: that needs memory of its own at each call."""
    return x in graph.output_set or any(
        n.kind == CALL and n.op.kind == "view" and handed_out(graph, n.outs[0])
        for n in graph.users[x]
    )


# ---- gradients of slices


def join_slices(graph: Graph) -> Graph:
    """The gradient of a tensor that was taken apart is a sum of its parts' gradients, each between
    zeros: where the parts make up the whole, one behind the other. What eager mode adds to 0 is
    added to 0 here (-0 becomes 0)."""
    if not any(n.op.name in PARTS_OF for n in graph.calls):
        return graph
    editor = Editor(graph)
    editor.index()
    for node in reversed(graph.calls):
        if is_sum(node) and not any(is_sum(u) for u in editor.users.get(node.outs[0], ())):
            new = joined(editor, node)
            if new is not None:
                editor.instead(node, new)
    return editor.finished()


PARTS_OF = {"slice_backward": "cat", "select_backward": "stack"}


def is_sum(node: Node) -> bool:
    return (
        node.kind == CALL
        and node.op.name == "add"
        and all(map(is_var, node.arguments[:2]))
        and type(node.arguments[2]) is int
        and node.arguments[2] == 1
    )


def joined(editor: Editor, root: Node) -> list[Node] | None:
    leaves, todo = [], [root]
    while todo:
        node = todo.pop()
        for v in node.arguments[:2]:
            maker = editor.makers[v]
            alone = len(editor.users[v]) == 1 and v not in editor.outputs
            if is_sum(maker) and alone:
                todo.append(maker)
            elif maker.kind == CALL and maker.op.name in PARTS_OF and alone:
                leaves.append(maker)
            else:
                return None
    first = leaves[0]
    _, sizes, dim, *_ = first.arguments
    if any(n.op is not first.op or n.arguments[1:3] != (sizes, dim) for n in leaves):
        return None
    if any(n.outs[0].dtype != root.outs[0].dtype for n in leaves) or symbolic(sizes):
        return None
    size = sizes[dim]
    parts: list[tuple[int, int, Node]] = []
    for n in leaves:
        if symbolic(n.arguments):
            return None
        if n.op.name == "select_backward":
            at = n.arguments[3] % size
            parts.append((at, at + 1, n))
        else:
            start, stop, step = slice(*n.arguments[3:]).indices(size)
            if step != 1:
                return None
            parts.append((start, stop, n))
    parts.sort(key=lambda p: p[0])
    ends = [0, *(stop for _, stop, _ in parts)]
    if [start for start, _, _ in parts] != ends[:-1] or ends[-1] != size:
        return None
    made = [editor.call(TABLE["add"], (n.arguments[0], 0, 1), n) for _, _, n in parts]
    pieces = tuple(n.outs[0] for n in made)
    made.append(editor.call(TABLE[PARTS_OF[first.op.name]], (pieces, dim), root, root.outs[0].name))
    return made if same_layout(made[-1].outs[0].layout, root.outs[0].layout) else None


# ---- concatenations


def push_through_cat(graph: Graph) -> Graph:
    if not any(n.op.name == "cat" for n in graph.calls):
        return graph
    editor = Editor(graph)
    editor.index()
    at = 0
    while at < len(editor.nodes):
        node = editor.nodes[at]
        if node.kind == CALL and node.op.name == "cat":
            new = pushed(editor, node)
            if new is not None:
                editor.instead(*new)
        at += 1
    return editor.finished()


def pushed(editor: Editor, cat: Node) -> tuple[Node, list[Node]] | None:
    """(the only reader of a concatenation, the calls that stand for it)."""
    out, pieces = cat.outs[0], cat.arguments[0]
    if out in editor.outputs or len(editor.users[out]) != 1 or len(pieces) > PIECES:
        return None
    (user,) = editor.users[out]
    if any(passed_over(p) for p in pieces):
        return None
    dim = cat.arguments[1] % out.rank
    sizes = [p.shape[dim] for p in pieces]
    if not elementwise(user) or not all(isinstance(n, int) and n > 0 for n in sizes):
        return None
    if user.outs[0].rank != out.rank or any(p.dtype != out.dtype for p in pieces):
        return None
    made, parts, start = [], [], 0
    for piece, n in zip(pieces, sizes):
        arguments = []
        for a in user.arguments:
            if a is out or isinstance(a, Var) and a == out:
                arguments.append(piece)
                continue
            d = dim - (out.rank - a.rank) if isinstance(a, Var) else -1
            if d < 0 or a.shape[d] == 1:
                arguments.append(a)
                continue
            view = editor.call(TABLE["slice"], (a, d, start, start + n, 1), user)
            made.append(view)
            arguments.append(view.outs[0])
        made.append(editor.call(user.op, tuple(arguments), user))
        parts.append(made[-1].outs[0])
        start += n
    made.append(editor.call(cat.op, (tuple(parts), dim), cat, user.outs[0].name))
    if not same_layout(made[-1].outs[0].layout, user.outs[0].layout):
        return None
    return user, made


# ---- views


def raise_views(graph: Graph) -> Graph:
    if not any(n.op.name in TAKES_PART for n in graph.calls):
        return graph
    editor = Editor(graph)
    editor.index()
    at = len(editor.nodes) - 1
    while at >= 0:
        node = editor.nodes[at]
        if elementwise(node) and node.outs[0] not in editor.outputs:
            new = raised(editor, node)
            if new is not None:
                table, made = new
                gone = {id(n) for n in (node, *editor.users[node.outs[0]])}
                editor.nodes[at:] = [
                    *made,
                    *(n for n in editor.nodes[at:] if id(n) not in gone),
                ]
                editor.reread(table)
                at += len(made)
        at -= 1
    return editor.finished()


def raised(editor: Editor, node: Node) -> tuple[dict[Var, Var], list[Node]] | None:
    """What stands for the views of a call: the call of the operands' views, once a view."""
    out = node.outs[0]
    views = editor.users[out]
    if not views or not all(
        v.kind == CALL
        and v.op.name in TAKES_PART
        and v.outs[0] not in editor.outputs
        and v.outs[0].rank > 0  # promotion asks whether operands have dims
        for v in views
    ):
        return None
    size = count(out)
    times = sum(count(v.outs[0]) for v in views)
    if times > size * (REPEATED if node.op.cost <= CHEAP else 1):
        return None
    made: list[Node] = []
    table: dict[Var, Var] = {}
    for view in views:
        found = viewed(editor, node, view)
        if found is None or not kept_by_users(editor, view.outs[0], found[-1].outs[0]):
            return None
        made += found
        table[view.outs[0]] = found[-1].outs[0]
    return table, made


def count(x: Var) -> int:
    total = 1
    for n in x.shape:
        total *= sym.hint(n)
    return total


def viewed(editor: Editor, node: Node, view: Node) -> list[Node] | None:
    """The call on views of its operands."""
    full, made, arguments = node.outs[0].shape, [], []
    try:
        for a in node.arguments:
            if not isinstance(a, Var) or a.rank == 0:
                arguments.append(a)
                continue
            if a.rank != len(full) or not all(map(same_size, a.shape, full)):
                spread = editor.call(TABLE["expand"], (a, tuple(full)), node)
                made.append(spread)
                a = spread.outs[0]
            look = editor.call(view.op, (a, *view.arguments[1:]), view)
            made.append(look)
            arguments.append(look.outs[0])
        made.append(editor.call(node.op, tuple(arguments), node))
    except (RuntimeError, ValueError, TypeError):  # no view of that operand
        return None
    if tuple(made[-1].outs[0].shape) != tuple(view.outs[0].shape):
        return None
    if made[-1].outs[0].dtype != view.outs[0].dtype:
        return None
    return made


def kept_by_users(editor: Editor, old: Var, new: Var) -> bool:
    """Whether every reader of `old` joins kernels, and makes what it made when it reads `new`."""
    if same_layout(old.layout, new.layout):
        return all(joins(editor, u) for u in editor.users[old])
    for user in editor.users[old]:
        if user.kind != CALL:
            return False
        arguments = map_variables(user.arguments, lambda v: new if v == old else v)
        try:
            layouts = user.op.infer(Arguments(user.op, arguments))
        except (RuntimeError, ValueError, TypeError):
            return False
        same = all(same_layout(a.layout, b) for a, b in zip(user.outs, layouts))
        if user.op.kind == "view":
            if user.outs[0] in editor.outputs:
                return False
            looked = Var(user.outs[0].name, layouts[0])
            if looked.shape != user.outs[0].shape or not kept_by_users(
                editor, user.outs[0], looked
            ):
                return False
        elif not same or not fusible(user):
            return False
    return True


def joins(editor: Editor, user: Node) -> bool:
    if user.kind != CALL:
        return False
    if user.op.kind == "view":
        return user.outs[0] not in editor.outputs and all(
            joins(editor, u) for u in editor.users[user.outs[0]]
        )
    return fusible(user)


PASSES = (fold_constants, join_slices, push_through_cat, raise_views)
