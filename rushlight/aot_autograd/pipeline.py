"""Graph -> forward and backward graphs, by the derivative rules that the eager tape uses.

    trace_joint     one graph: the function, then the wanted cotangents, from those of its outputs
    split_joint     what does not depend on a cotangent runs forward; backward reads what forward
                    saves, and repeats cheap calls where that saves bytes (partition.py)

Forward returns (*outputs, *saved); backward takes (*saved, *cotangents) and returns one
cotangent a wanted input, or None where nothing reaches it. Sizes that it computes with and that
nothing saved has are numbers that it takes behind the graph's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rushlight import dtypes, sym, trace
from rushlight.errors import UserError
from rushlight.fx.graph import CALL, OUTPUT, PLACEHOLDER, Graph, Names, Node, Var, map_variables
from rushlight.fx.interpreter import run
from rushlight.fx.passes import record
from rushlight.fx.rewrite import merge_equal_calls, remove_dead_code
from rushlight.fx.tracing import Proxy, Tracer, flat, from_recording
from rushlight.ops.declare import Arguments, Op, derived, many, none
from rushlight.ops.derivatives import TAPES, pull_back
from rushlight.ops.layouts import dense

from .partition import choose_saved, repeated_calls, size_of


class Pair(NamedTuple):
    """`forward(*inputs) -> (*outputs, *saved)`; `backward(*saved, *cotangents, *numbers, *sizes)
    -> one an input that was wanted`."""

    forward: Graph
    backward: Graph
    outputs: int  # how many of forward's results are the function's own
    wanted: tuple[int, ...]  # the inputs that backward gives cotangents of
    active: tuple[int, ...] = ()  # the outputs that backward takes cotangents of
    sizes: tuple[str, ...] = ()  # symbols that backward is given last, behind the graph's numbers


def differentiate(
    graph: Graph, wanted: Sequence[int] | None = None, active: Sequence[int] | None = None
) -> Pair:
    """`wanted`: positions of the inputs to differentiate by; all floating ones by default.
    `active`: positions of the outputs that get a cotangent each; by default one for every floating
    output, however often it is returned."""
    positions = tuple(
        i
        for i, v in enumerate(graph.inputs)
        if dtypes.is_floating(v.dtype) and (wanted is None or i in wanted)
    )
    if not positions or not any(dtypes.is_floating(v.dtype) for v in graph.outputs):
        raise UserError(
            "aot_autograd",
            "nothing to differentiate: no floating input is wanted, or no output is floating",
        )
    outputs = graph.outputs
    if active is None:
        floating = [i for i, v in enumerate(outputs) if dtypes.is_floating(v.dtype)]
        active = [i for i in floating if outputs.index(outputs[i]) == i]
    joint = trace_joint(graph, positions, [outputs[i] for i in active])
    record(joint, "aot_autograd", "joint")
    pair = split_joint(joint, graph, positions)._replace(active=tuple(active))
    record(pair.forward, "forward_graph", pair.forward.name)
    record(pair.backward, "backward_graph", pair.backward.name)
    return pair


def reached(graph: Graph, wanted: Sequence[int]) -> tuple[int, ...]:
    """Positions of the outputs that depend on the wanted inputs by way of derivatives."""
    found = {graph.inputs[i] for i in wanted}
    for node in graph.calls:
        if node.op.rule in (None, none) or not any(v in found for v in node.call.tensors):
            continue
        reads = [v for v in node.reads if v in found]
        if node.op.name == "with_data" and node.arguments[0] not in found:
            continue
        if any(dtypes.is_floating(v.dtype) for v in reads):
            found.update(o for o in node.outs if dtypes.is_floating(o.dtype))
    return tuple(i for i, v in enumerate(graph.outputs) if v in found)


def trace_joint(graph: Graph, positions: tuple[int, ...], outputs_seeded: list[Var]) -> Graph:
    """inputs, then a cotangent for each seeded output -> (outputs, cotangents of the wanted
    inputs)."""
    tracer = Tracer()
    inputs = [(v.name, Proxy(v.layout, tracer)) for v in graph.inputs]
    seeds = [(v, Proxy(dense(v.shape, v.dtype, None, v.device), tracer)) for v in outputs_seeded]
    line = [""]
    tracer.where = lambda: line[0]
    made: dict[Var, Any] = {}

    def follow(node: Node, arguments: tuple) -> Any:
        line[0] = node.where
        tracer.parents[:] = [(o.what, o.where) for o in node.origins if o.what]
        if (
            node.op.kind == "composition" and node.op.rule is derived
        ):  # its parts are recorded in its place
            tracer.parents.append((node.op.name, node.op.where))
        start = len(tape)
        outs = node.op(*arguments)
        tape[start:] = [
            (Pulled(op, tracer, line, node), a, results) for op, a, results in tape[start:]
        ]
        made.update(zip(node.outs, many(outs)))
        return outs

    constants = {name: tracer.constant(t) for name, t in graph.constants.items()}
    values = [p for _, p in inputs]
    made.update(zip(graph.inputs, values))
    tape: list[Any] = []
    TAPES.append(tape)
    with tracer:
        try:
            outputs = run(replace(graph, constants=constants), *values, step=follow)
        finally:
            TAPES[:] = [t for t in TAPES if t is not tape]
        grads = pull_back(tape, [(made[v], g) for v, g in seeds], [values[i] for i in positions])
    names = Names()
    cotangents = [
        (names.fresh(f"grad_{v.name.replace('[', '_').replace(']', '')}"), g) for v, g in seeds
    ]
    result = (tuple(flat(outputs)), tuple(grads))
    return from_recording(
        tracer, [*inputs, *cotangents], result, graph.name + "_joint", graph.env, graph.numbers
    )


class Pulled:
    """An operator on the tape that gives its derivative the provenance of its own node."""

    def __init__(self, op: Op, tracer: Tracer, line: list[str], node: Node) -> None:
        self.op, self.rule, self.tracer, self.line, self.node = op, op.rule, tracer, line, node

    def pull(self, a: Arguments, outs: tuple, gs: list, needs: list) -> list:
        self.line[0] = self.node.where
        parents = [(o.what, o.where) for o in self.node.origins if o.what]
        self.tracer.parents[:] = [*parents, ("derivative of " + self.op.name, self.op.where)]
        return self.op.pull(a, outs, gs, needs)


def split_joint(joint: Graph, graph: Graph, positions: tuple[int, ...]) -> Pair:
    joint = remove_dead_code(merge_equal_calls(joint))
    outputs, grads = joint.result
    count = len(graph.inputs)
    late = set(joint.inputs[count:])
    own = {n.outs[0] for n in ancestors(joint, outputs)}  # what only gradients need comes late
    for node in joint.calls:
        if node.outs[0] not in own or any(v in late for v in node.reads):
            late.update(node.outs)
    before = [n for n in joint.calls if n.outs[0] not in late]
    after = [n for n in joint.calls if n.outs[0] in late]
    read = [v for n in after for v in n.reads if v not in late]
    read += [g for g in grads if isinstance(g, Var) and g not in late]
    saved = tuple(choose_saved(joint, read, list(outputs)))
    again = repeated_calls(joint, read, saved)
    trace.emit("aot_autograd", "partition", lambda: partition_text(saved, again, read))
    around = [n for n in joint.nodes if n.kind not in (CALL, OUTPUT)]
    inputs = [n for n in around if n.outs[0] not in joint.inputs[count:]]
    forward = joint.with_nodes(
        [*inputs, *before, Node(OUTPUT, "output", ((*outputs, *saved),))],
        name=f"{graph.name}_forward",
    )
    given = [plain(v) for v in saved] + [plain(v) for v in joint.inputs[count:]]
    names = dict(zip((*saved, *joint.inputs[count:]), given))
    rename = lambda v: names.get(v, v)
    back = [
        Node(n.kind, n.target, map_variables(n.arguments, rename), n.outs, n.origins)
        for n in (*again, *after)
    ]
    backward = joint.with_nodes(
        [
            *(Node(PLACEHOLDER, v.name, (), (v,)) for v in given),
            *back,
            Node(OUTPUT, "output", (map_variables(grads, rename),)),
        ],
        name=f"{graph.name}_backward",
        constants={},
    )
    backward = remove_dead_code(backward)
    sizes = sizes_lost(backward)
    backward = backward.with_nodes(backward.nodes, numbers=(*backward.numbers, *sizes))
    return Pair(remove_dead_code(forward), backward, len(outputs), positions, sizes=sizes)


def sizes_lost(backward: Graph) -> tuple[str, ...]:
    """Symbols that its calls compute with and that are no size of what it is given: sizes of
    forward's inputs that are not saved."""
    alone = lambda n: isinstance(n, sym.Sym) and n.terms == {(str(n),): 1}
    lone = (str(n) for v in backward.inputs for n in v.shape if alone(n))
    known = {*backward.numbers, *lone}
    used: set[str] = set()
    for node in backward.calls:
        made = [(v.shape, v.layout.strides) for v in node.outs]
        for size in sym.sizes_in((node.arguments, made)):
            used |= sym.names(size)
    return tuple(sorted(used - known))


def ancestors(graph: Graph, values: Sequence[Var]) -> list[Node]:
    """The calls that the values depend on."""
    needed, found = set(values), []
    for node in reversed(graph.calls):
        if any(o in needed for o in node.outs):
            found.append(node)
            needed.update(node.reads)
    return found


def partition_text(saved: Sequence[Var], again: list[Node], read: list[Var]) -> str:
    rows = [f"saved     {v.name}: {v.layout}, {size_of(v):,} bytes" for v in saved]
    rows += [f"repeated  {n.outs[0].name} = {n.op.name}" for n in again]
    rows.append(f"{sum(map(size_of, saved)):,} bytes saved, {sum(map(size_of, set(read))):,} read")
    return "\n".join(rows)


def plain(v: Var) -> Var:
    """A variable under a name that can be a parameter: `layer_norm[1]` becomes `layer_norm_1_`."""
    return Var(v.name.replace("[", "_").replace("]", "_"), v.layout)
