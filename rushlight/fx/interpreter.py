"""A graph and values -> what its operators give, one call after another: the reference that
compiled code is held against.

Values are tensors, fakes, proxies or anything else that operators take; nothing is fused,
planned or reordered.
"""

from __future__ import annotations

from typing import Any

from rushlight.errors import UserError
from rushlight.ops.declare import Op, many
from rushlight.ops.schema import Parameter

from .graph import ATTRIBUTE, CALL, PLACEHOLDER, Graph, Node, Var, map_variables


def run(graph: Graph, *values: Any, step: Any = None) -> Any:
    """`step(node, arguments)` makes a node's results (one, or a tuple); it defaults to calling
    the operator."""
    if len(values) != len(graph.inputs):
        raise UserError(
            graph.name, f"takes {len(graph.inputs)} inputs, got {len(values)}", kind=TypeError
        )
    given, known = iter(values), {}
    step = step or call

    def look(v: Var) -> Any:
        return known[v]

    for node in graph.nodes:
        if node.kind == PLACEHOLDER:
            known[node.outs[0]] = next(given)
        elif node.kind == ATTRIBUTE:
            known[node.outs[0]] = graph.constants[node.target]
        elif node.kind == CALL:
            outs = step(node, map_variables(node.arguments, look))
            known.update(zip(node.outs, many(outs)))
    return map_variables(graph.result, look)


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
