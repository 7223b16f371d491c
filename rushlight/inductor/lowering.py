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
from rushlight.loops.cpp import addressed, folds, uses_element
from rushlight.loops.expr import Apply, Buffer, Const, Expr, Kernel, Load, Scalar, arena, simplify
from rushlight.loops.lower import DEVICE_OUTER, INNER, OUTER, place, store, terms
from rushlight.loops.nest import Nest
from rushlight.ops.declare import Arguments, many
from rushlight.ops.layouts import Layout, broadcast_shape
from rushlight.ops.values import Value

from .scheduler import Group, Read, Schedule

ELEMENT = 1 << 30  # of `serial`: the kernel counts elements


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
    results = tuple(out for n in group.nodes for out in n.outs if plan.needed(out, group.nodes))
    buffers, numbers, made = [], Numbers(), {}
    with arena(kind == "rows") as here:
        loads = {}
        for i, (x, per_row, _) in enumerate(reads):
            buffers.append(Buffer(f"x{i}", x.dtype, per_row, False, lies_across(group, x)))
            loads[reads[i]] = Load(f"x{i}", terms(f"x{i}", axes, per_row), x.dtype)
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
        ELEMENT if uses_element(kernel) else 0,
        sum(n.op.cost for n in group.nodes),
        origin(group),
    )


def signature(plan: Schedule, group: Group) -> tuple[tuple, list[Var]]:
    """(what decides the group's kernel, with variables by number; those variables). Groups with one
    signature have one kernel: the layers of a model are lowered once."""
    numbers: dict[Var, int] = {}

    def number(v: Var) -> int:
        return numbers.setdefault(v, len(numbers))

    def described(v: Any) -> Any:
        if isinstance(v, Var):
            base = plan.base(v)
            chain = tuple((n.op.name, repr(n.arguments[1:])) for n in plan.chain(v))
            made = number(base) if base in group.axes else None
            return number(v), made, chain, layout_key(v)
        if isinstance(v, (tuple, list)):
            return tuple(map(described, v))
        return type(v).__name__, repr(v)

    nodes = []
    for node in group.nodes:
        arguments = tuple(map(described, node.arguments))
        outs = tuple((number(o), layout_key(o), plan.needed(o, group.nodes)) for o in node.outs)
        nodes.append((node.op.name, arguments, outs))
    reads = tuple((number(r.var), r.per_row, repr(r.shape)) for r in group.reads)
    key = (tuple(nodes), reads, repr(group.space), group.rows, group.has_rows)
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


def values_of(
    plan: Schedule, group: Group, node: Node, loads: dict, made: dict, numbers: Numbers
) -> tuple:
    """The node's results as expressions."""
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
        return loads[plan.read_of(group, node, name, v, in_rows)]

    values = list(node.call.map(operand).values)
    for i, p in enumerate(op.parameters):
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


class Numbers:
    """Symbolic sizes that bodies compute with: each a run-time number of the kernel."""

    def __init__(self) -> None:
        self.sizes: list = []
        self.kinds = ""

    @property
    def named(self) -> tuple:
        return tuple((f"s{i}", k) for i, k in enumerate(self.kinds))

    def of(self, size: Any, kind: str, dtype: str) -> Expr:
        for i, (s, k) in enumerate(zip(self.sizes, self.kinds)):
            if k == kind and str(s) == str(size):
                return Scalar(f"s{i}", dtype)
        self.sizes.append(size)
        self.kinds += kind
        return Scalar(f"s{len(self.sizes) - 1}", dtype)


def lies_across(group: Group, x: Var) -> bool:
    """Whether an operand is one number for all rows that lie side by side: it picks the form for
    rows across memory."""
    outer = [d for d in range(len(group.space)) if d not in group.rows and not group.space[d] == 1]
    if not outer or x.rank > len(group.space):
        return False
    at = outer[-1] - (len(group.space) - x.rank)
    return at < 0 or bool(x.shape[at] == 1)


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
    layouts = [spread(group, *read) for read in reads]
    layouts += [spread(group, out, out in group.per_row) for out in results]
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


def known_form(group: Group, lowered: Lowered) -> tuple[str, tuple] | None:
    """(form, strides) of the kernel's calls where every size and stride is known: the innermost
    loop's strides (loops/cpp.py, `specialised`)."""
    walk, buffers = walk_of(group, lowered.reads, lowered.results), lowered.kernel.buffers
    if walk is None:
        return None
    if not group.has_rows:
        return "flat", walk.along(walk.nearest)
    if folds(lowered.kernel) and not addressed(lowered.kernel) and not lowered.kernel.locals:
        if lie_side_by_side(group, walk, [b.across for b in buffers]):
            return "columns", walk.along(walk.nearest)
    inner = walk.along(walk.last)
    return "rows", tuple(s for s, b in zip(inner, buffers) if not b.per_row)


def spread(group: Group, x: Var, per_row: bool, shape: tuple | None = None) -> Layout:
    """The variable's strides over the group's space."""
    layout = x.layout if shape is None else x.layout.expand(shape)
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
        if not same_shape(broadcast_shape([reads[j].var.shape for j in whole]), group.space):
            return group.space
    return None


def same_shape(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(map(same_size, a, b))


def origin(group: Group) -> str:
    """The kernel's provenance in a line: the user's lines, then the declarations."""
    lines = dict.fromkeys(n.where for n in group.nodes if n.where)
    return ", ".join([*lines, *dict.fromkeys(n.op.where for n in group.nodes)])
