"""A graph and values -> what its operators give, one call after another: the reference that
compiled code is held against.

Values are tensors, fakes, proxies or anything else that operators take; nothing is fused,
planned or reordered.
"""

from __future__ import annotations

from typing import Any

from rushlight import sym
from rushlight.errors import UserError
from rushlight.ops.declare import Op, many
from rushlight.ops.schema import Parameter
from rushlight.ops.values import Value

from .graph import ATTRIBUTE, CALL, PLACEHOLDER, Graph, Node, Var, map_variables


def run(graph: Graph, *values: Any, step: Any = None) -> Any:
    """`step(node, arguments)` makes a node's results (one, or a tuple); it defaults to calling
    the operator."""
    expected = len(graph.inputs) + len(graph.numbers)
    if len(values) != expected and len(values) != len(graph.inputs):
        raise UserError(graph.name, f"takes {expected} inputs, got {len(values)}", kind=TypeError)
    given, known = iter(values), {}
    step = step or call
    sizes = sizes_of(graph, values) if graph.env.hints else {}

    def look(v: Var) -> Any:
        return known[v]

    for node in graph.nodes:
        if node.kind == PLACEHOLDER:
            known[node.outs[0]] = next(given)
        elif node.kind == ATTRIBUTE:
            known[node.outs[0]] = graph.constants[node.target]
        elif node.kind == CALL:
            arguments = map_variables(node.arguments, look)
            outs = step(node, evaluated(arguments, sizes) if sizes else arguments)
            known.update(zip(node.outs, many(outs)))
    return map_variables(graph.result, look)


def sizes_of(graph: Graph, values: tuple) -> dict[str, int]:
    """What the graph's symbols stand for when it is run on tensors; empty where it is run on values
    whose sizes are symbols themselves."""
    tensors, numbers = values[: len(graph.inputs)], values[len(graph.inputs) :]
    if any(isinstance(x, Value) for x in tensors):
        return {}
    found = dict(zip(graph.numbers, numbers))
    for var, x in zip(graph.inputs, tensors):
        for n, m in zip(var.shape, x.shape):
            if isinstance(n, sym.Sym) and len(n.terms) == 1:
                ((names, factor),) = n.terms.items()
                if len(names) == 1 and factor == 1:
                    found.setdefault(names[0], m)
    return found


def evaluated(argument: Any, sizes: dict[str, int]) -> Any:
    """Arguments with every symbolic size replaced by its value."""
    if isinstance(argument, sym.Sym):
        return argument.evaluate(sizes)
    if isinstance(argument, tuple):
        return tuple(evaluated(a, sizes) for a in argument)
    return argument


def call(node: Node, arguments: tuple) -> Any:
    """The operator on the arguments: the native one where there is one, which takes tensors and
    values alike."""
    op = node.op
    if op.native is None:
        return op(*arguments)
    given = [native(v, p) for v, p in zip(arguments, op.parameters) if not p.keyword_only]
    named = {p.name: native(v, p) for v, p in zip(arguments, op.parameters) if p.keyword_only}
    return op.native(*given, **named)


def native(value: Any, parameter: Parameter) -> Any:
    if isinstance(value, str) and parameter.kind.startswith("dtype"):
        convert: Any = Op.native_dtype
        return convert(value)
    return value
