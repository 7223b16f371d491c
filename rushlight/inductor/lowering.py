"""A group of nodes -> one kernel in the loop IR, and what the runtime must know to call it.

Definitions are called with loop values: a load for what comes from outside, the expression
itself for what the group makes. The kernel is shape-generic, as the precompiled ones are: sizes
and strides are its run-time arguments, so that one kernel serves every size, and its bits are
those of the same definitions run one after another.
"""

# mypy: disable-error-code="call-arg"
# (expressions are made by a metaclass that interns them)
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from rushlight import dtypes, sym
from rushlight.fx.graph import Node, Var, same_size
from rushlight.loops import tiles
from rushlight.loops.cpp import addressed, folds, uses_element
from rushlight.loops.expr import (
    LANES,
    Apply,
    Buffer,
    Cast,
    Const,
    Expr,
    Kernel,
    Load,
    Scalar,
    arena,
    simplify,
)
from rushlight.loops.lower import DEVICE_OUTER, INNER, OUTER, place, store, terms
from rushlight.loops.nest import Nest
from rushlight.loops.phases import has_phases
from rushlight.loops.row_forms import rows_at_once
from rushlight.ops.declare import Arguments, many
from rushlight.ops.layouts import Layout, broadcast_shape
from rushlight.ops.values import Value

from .gathers import Gather
from .groups import Group, Read
from .scheduler import Schedule

LONG = 1 << 15  # elements of a row that threads share
ELEMENT, TILES = 1 << 30, 1 << 29  # of `serial`: the kernel counts elements, walks in tiles


@dataclass(frozen=True, eq=False)
class Lowered:
    """A kernel with its call: operands and results as variables, how each is laid out, numbers
    known at run time."""

    kernel: Kernel
    reads: tuple[Read, ...]
    results: tuple[Var, ...]
    rule: str
    rows: int
    in_kinds: str
    out_kinds: str
    sizes: tuple  # symbolic sizes that the body computes with, as run-time numbers
    number_kinds: str
    serial: int
    cost: int
    origin: str


def lower_group(plan: Schedule, group: Group, on_gpu: bool = False) -> Lowered:
    """`on_gpu`: more outer axes, since each loop beyond them is a launch, and no local rows."""
    kind = "rows" if group.has_rows else "scalar"
    outer = (DEVICE_OUTER if on_gpu else OUTER)[kind]
    axes = outer + INNER[kind]
    reads = tuple(group.reads)
    results = tuple(out for n in group.nodes for out in n.outs if plan.needed(out, group))
    buffers, numbers, made = [], Numbers(), {}
    with arena(kind == "rows") as here:
        loads = {}
        for i, read in enumerate(reads):
            x, per_row = read.var, read.per_row
            buffers.append(Buffer(f"x{i}", x.dtype, per_row, False, lies_across(group, read)))
            loads[read] = Load(f"x{i}", terms(f"x{i}", axes, per_row), x.dtype)
        for node in group.nodes:
            here.stack[:] = [
                *((o.what or "line", o.where) for o in node.origins),
                (node.op.name, node.op.where),
            ]
            made.update(zip(node.outs, values_of(plan, group, node, loads, made, numbers)))
        here.stack.clear()
        stores = []
        for i, out in enumerate(results):
            per_row, name = out in group.per_row, f"y{i}"
            buffers.append(Buffer(name, out.dtype, per_row, True, False))
            value = place(simplify(made[out]), axes)
            stores.append(store(name, terms(name, axes, False), terms(name, axes, per_row), value))
        extent = Apply("mul", (Scalar("n_k0", "int64"), Scalar("n_k1", "int64")), "int64")
        walk = walk_of(group, reads, results)
        alone = (
            not on_gpu
            and walk is not None
            and not lie_side_by_side(group, walk, [b.across for b in buffers])
        )
        nest = Nest(stores, extent, kind == "rows", walk.length if walk and alone else None)
        body = nest.run()
        loops = lambda names: tuple((a, f"n_{a}") for a in names)
        kernel = Kernel(
            group.name,
            tuple(buffers),
            loops(outer),
            loops(INNER[kind]),
            body,
            numbers.named,
            (),
            dict(here.origins),
            tuple(nest.locals),
        )
    in_kinds = "".join("P" if r.per_row else "F" for r in reads)
    out_kinds = "".join(
        plan.out_kind(group, list(reads), out, out in group.per_row) or "S" for out in results
    )
    rows = sum(1 << d for d in group.rows) if group.has_rows else 0
    return Lowered(
        kernel.verify(),
        reads,
        results,
        "rows" if group.has_rows else "broadcast",
        rows,
        in_kinds,
        out_kinds,
        tuple(numbers.sizes),
        numbers.kinds,
        (ELEMENT if uses_element(kernel) else 0)
        | (TILES if walk and not on_gpu and across_memory(group, walk, reads) else 0),
        sum(n.op.cost for n in group.nodes),
        origin(group),
    )


def hoist_indices(plan: Schedule, group: Group) -> None:
    """Without folds, the last dim is walked as a row where no index varies along it: indices are
    then checked once a row, and the row is a vector loop."""
    gathers = [g for g in (plan.facts(n).gather for n in group.nodes) if g is not None]
    last = len(group.space) - 1
    if not gathers or group.has_rows or last < 1 or not sym.hint(group.space[last]) >= 8:
        return
    if all(last not in p.dims or p.index.shape[-1] == 1 for g in gathers for p in g.picks):
        plan.walk_rows(group, (last,))


def signature(plan: Schedule, group: Group) -> tuple[tuple, list[Var]]:
    """(what decides the group's kernel, with variables by number; those variables). Groups with one
    signature have one kernel: the layers of a model are lowered once."""
    numbers: dict[Var, int] = {}

    def number(v: Var) -> int:
        return numbers.setdefault(v, len(numbers))

    def described(v: Any) -> Any:
        if isinstance(v, Var):
            base = plan.base(v)
            maker = plan.graph.makers[base]
            if maker.kind == "call_function" and maker.op.name == "full":
                return "full", repr(maker.arguments), layout_key(v)
            chain = tuple((n.op.name, repr(n.arguments[1:])) for n in plan.chain(v))
            made = number(base) if base in group.axes else None
            return number(v), made, chain, layout_key(v)
        if isinstance(v, (tuple, list)):
            return tuple(map(described, v))
        return type(v).__name__, repr(v)

    nodes = []
    for node in group.nodes:
        arguments = tuple(map(described, node.arguments))
        outs = tuple((number(o), layout_key(o), plan.needed(o, group)) for o in node.outs)
        nodes.append((node.op.name, arguments, outs))
    reads = tuple((number(r.var), r.per_row, repr(r[2:]), repr(r.layout)) for r in group.reads)
    placed = tuple((number(v), repr(x)) for v, x in group.placed.items())
    key = (tuple(nodes), reads, repr(group.space), group.rows, group.has_rows, placed)
    return key, list(numbers)


def layout_key(v: Var) -> tuple:
    return v.dtype, repr(v.shape), repr(v.layout.strides)


def renamed(low: Lowered, before: list[Var], now: list[Var], group: Group) -> Lowered:
    """The same kernel on the variables of another group."""
    table = dict(zip(before, now))
    return replace(
        low,
        reads=tuple(r._replace(var=table[r.var]) for r in low.reads),
        results=tuple(table[v] for v in low.results),
        origin=origin(group),
    )


# Numbers that layers of one model have each its own of, n / (n - 1) here: the kernel takes them, so
# that the layers share it.
OF_A_LAYER = {("running_step", "correction")}


def values_of(
    plan: Schedule, group: Group, node: Node, loads: dict, made: dict, numbers: Numbers
) -> tuple:
    """The node's results as expressions."""
    gather = plan.facts(node).gather
    if gather is not None:
        return (fetched(plan, group, node, gather, loads, numbers),)
    op, known = node.op, node.op.dtypes(node.call)
    _, in_rows = plan.node_axes(group, node)
    floating = dtypes.is_floating(dtypes.opmath(known[0]))
    compute = dtypes.opmath(known[0]) if floating else "int64"

    def operand(name: str, v: Any) -> Any:
        if isinstance(v, sym.Sym):
            return numbers.of(v, "f" if floating else "i", compute)
        if not isinstance(v, Var):
            return v
        base = plan.base(v)
        if base in made:
            return made[base]
        full = plan.number_for(node, v)
        if full is not None:
            return number_of(full, numbers)
        return loads[plan.read_of(group, node, name, v, in_rows)]

    values = list(node.call.map(operand).values)
    for i, p in enumerate(op.parameters):
        if (op.name, p.name) in OF_A_LAYER and type(values[i]) is float:
            values[i] = numbers.of(values[i], "f", compute)
        if isinstance(values[i], sym.Sym):
            whole = p.type.startswith("SymInt") or not floating
            values[i] = numbers.of(values[i], "i" if whole else "f", "int64" if whole else compute)
    outs = many(op.define(Arguments(op, values), known))
    return tuple(e if isinstance(e, Value) else constant(e, d) for e, d in zip(outs, known[1]))


def constant(number: Any, dtype: str) -> Any:
    """A number that a definition gives for every element, as a value of the dtype."""
    wide = dtypes.opmath(dtype)
    made = Const(number, wide)
    return made if wide == dtype else made.to(dtype)


def number_of(full: Node, numbers: Numbers) -> Expr:
    """The number that a tensor is full of, in its dtype."""
    op, known = full.op, full.op.dtypes(full.call)
    value = full.arguments[1]
    if isinstance(value, sym.Sym):
        floating = dtypes.is_floating(known[0])
        value = numbers.of(value, "f" if floating else "i", known[0] if floating else "int64")
    values = [full.arguments[0], value, *full.arguments[2:]]
    (out,) = many(op.define(Arguments(op, values), known))
    return out if isinstance(out, Expr) else Const(out, known[1][0])


def fetched(
    plan: Schedule, group: Group, node: Node, gather: Gather, loads: dict, numbers: Numbers
) -> Expr:
    """The load at a gather's indices, each checked against what it indexes."""
    table, *picks = plan.own_reads(group, node, False)
    base = loads[table]
    added = []
    for pick, read in zip(gather.picks, picks):
        index = loads[read]
        if index.dtype != "int64":
            index = Cast(index, "int64")
        extent = numbers.integer(pick.extent)
        if pick.wraps:
            zero, add = Const(0, "int64"), Apply("add", (index, extent), "int64")
            index = Apply("where", (Apply("lt", (index, zero), "bool"), add, index), "int64")
        stride = numbers.integer(pick.stride)
        where = Apply("checked", (index, extent), "int64")
        added.append((where, stride.value if isinstance(stride, Const) else stride.slot))
    return Load(base.buffer, (*base.terms, *added), base.dtype)


class Numbers:
    """Symbolic sizes that bodies compute with: each a run-time number of the kernel."""

    def __init__(self) -> None:
        self.sizes: list = []
        self.kinds = ""

    @property
    def named(self) -> tuple:
        return tuple((f"s{i}", k) for i, k in enumerate(self.kinds))

    def integer(self, size: Any) -> Expr:
        if isinstance(size, sym.Sym):
            return self.of(size, "i", "int64")
        return Const(int(size), "int64")

    def of(self, size: Any, kind: str, dtype: str) -> Expr:
        for i, (s, k) in enumerate(zip(self.sizes, self.kinds)):
            if k == kind and str(s) == str(size):
                return Scalar(f"s{i}", dtype)
        self.sizes.append(size)
        self.kinds += kind
        return Scalar(f"s{len(self.sizes) - 1}", dtype)


def lies_across(group: Group, read: Read) -> bool:
    """Whether an operand is one number for all rows that lie side by side: it picks the form for
    rows across memory."""
    outer = [d for d in range(len(group.space)) if d not in group.rows and not group.space[d] == 1]
    layout = read.layout
    if not outer or layout.rank > len(group.space):
        return False
    at = outer[-1] - (len(group.space) - layout.rank)
    return at < 0 or bool(layout.shape[at] == 1)


@dataclass(frozen=True)
class Walk:
    """The strides of a kernel's buffers over its group's space, where all are known, and which dims
    the loops will walk innermost (as csrc/rt/loops.cpp orders them)."""

    layouts: tuple[Layout, ...]
    nearest: int | None  # the innermost dim that is not a row's
    last: int | None  # the innermost dim of a row
    length: int  # elements of a row

    def along(self, d: int | None) -> tuple:
        """Every buffer's stride; where there is no such dim nothing is walked, and any will do."""
        return tuple(1 if d is None else x.strides[d] for x in self.layouts)


def walk_of(group: Group, reads: tuple, results: tuple) -> Walk | None:
    """None where something is symbolic."""
    layouts = [spread(group, read.layout, read.per_row) for read in reads]
    layouts += [
        spread(group, group.placed.get(out, out.layout), out in group.per_row) for out in results
    ]
    if any(isinstance(n, sym.Sym) for x in layouts for n in (*x.shape, *x.strides)):
        return None
    whole = [i for i, r in enumerate(reads) if not r.per_row]
    first = layouts[whole[0] if group.has_rows and whole else len(reads)]
    in_row = group.rows if group.has_rows else ()
    wide = [d for d, n in enumerate(group.space) if n != 1]
    outer = [d for d in wide if d not in in_row]
    nearest = min(outer, key=lambda d: (first.strides[d] or 1 << 60, -d), default=None)
    last = max((d for d in wide if d in in_row), default=None)
    return Walk(tuple(layouts), nearest, last, math.prod(group.space[d] for d in in_row))


def lie_side_by_side(group: Group, walk: Walk, across: list[bool]) -> bool:
    """Whether rows lie across memory, so that many run side by side (the form `columns`)."""
    if walk.nearest is None or not group.has_rows or group.space[walk.nearest] < 8:
        return False
    return all(s == (0 if one else 1) for s, one in zip(walk.along(walk.nearest), across))


def across_memory(group: Group, walk: Walk, reads: tuple[Read, ...]) -> tuple[str, ...]:
    """Operands that lie along another dim than the results do, where blocks of them should be
    turned over (loops/tiles.py)."""
    near = walk.nearest
    if near is None or group.space[near] < tiles.LEAST:
        return ()
    found: dict[int, list[str]] = {}
    for i, (x, read) in enumerate(zip(walk.layouts, reads)):
        if x.strides[near] in (0, 1) or read.strides is not None:
            continue
        for d, n in enumerate(group.space):
            if d != near and x.strides[d] == 1 and n >= tiles.LEAST:
                found.setdefault(d, []).append(f"x{i}")
    most = max(found.values(), key=len, default=[])
    return tuple(most[: tiles.MOST])


FAR = 16  # elements: from there on a stride's number helps no loop, and keeps layers apart


def known_form(group: Group, lowered: Lowered) -> tuple | None:
    """(form, strides, operands to turn over, whether it is one long row, rows at once, whether they
    end with the last lane) of the kernel's calls
    where every size and stride is known: the innermost loop's strides, None where rows are read
    that far apart that the call may tell (loops/cpp.py, `specialised`)."""
    walk, buffers = walk_of(group, lowered.reads, lowered.results), lowered.kernel.buffers
    if walk is None:
        return None
    if not group.has_rows:
        return "flat", walk.along(walk.nearest), across_memory(group, walk, lowered.reads)
    if folds(lowered.kernel) and not addressed(lowered.kernel) and not lowered.kernel.locals:
        if lie_side_by_side(group, walk, [b.across for b in buffers]):
            return "columns", walk.along(walk.nearest)
    inner = walk.along(walk.last)
    strides = tuple(s for s, b in zip(inner, buffers) if not b.per_row)
    strides = tuple(None if s >= FAR else s for s in strides)
    one = walk.nearest is None and walk.length >= LONG and set(strides) <= {1}
    together = 1 if one or walk.nearest is None else rows_at_once(lowered.kernel, walk.length)
    wide = [n for d, n in enumerate(group.space) if d in group.rows and n != 1]
    even = len(wide) == 1 and wide[0] % LANES == 0
    return "rows", strides, (), one and has_phases(lowered.kernel), together, even


def spread(group: Group, layout: Layout, per_row: bool) -> Layout:
    """A layout's strides over the group's space."""
    if per_row and group.has_rows and layout.rank < len(group.space):  # row dims left out
        left = [d for d in range(len(group.space)) if d not in group.rows]
        kept = dict(zip(left, layout.pairs()))
        layout = layout.of([kept.get(d, (1, 0)) for d in range(len(group.space))])
    return layout.expand(group.space)


def shape_for_call(group: Group, reads: tuple[Read, ...], i: int) -> tuple | None:
    """The shape that operand i must be expanded to before the call, so that the runtime reads it
    as meant; None: as it is."""
    if reads[i].per_row:
        return reads[i].shape
    whole = [j for j, r in enumerate(reads) if not r.per_row]
    if i == whole[0]:  # together they must show the whole space
        if not same_shape(broadcast_shape([reads[j].layout.shape for j in whole]), group.space):
            return group.space
    return None


def same_shape(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(map(same_size, a, b))


def origin(group: Group) -> str:
    """The kernel's provenance in a line: the user's lines, then the declarations."""
    lines = dict.fromkeys(n.where for n in group.nodes if n.where)
    return ", ".join([*lines, *dict.fromkeys(n.op.where for n in group.nodes)])
