"""The room's passes in order. Takes a graph; gives the same graph in a smaller vocabulary,
cleaned up.

decompose(graph)                   compositions give way to their definitions: what Inductor
takes decompose(graph, to="primitive")   scalar and row bodies too, down to the bottom forms
"""

from __future__ import annotations

from rushlight.errors import UserError
from rushlight.fx.graph import Graph, Var, same_layout
from rushlight.fx.passes import run_passes
from rushlight.fx.rewrite import apply_rules, merge_equal_calls, remove_dead_code
from rushlight.fx.tracing import retrace, substitute
from rushlight.ops.declare import Op

from .rules import CANONICAL


def expand_compositions(graph: Graph) -> Graph:
    """Softmax, linear, losses: calls of several operators, in their own words."""
    if not any(node.op.kind == "composition" for node in graph.calls):
        return graph
    return retrace(graph, expand=lambda op, a: op.kind == "composition")


def expand_bodies(graph: Graph) -> Graph:
    """Scalar and row bodies down to the bottom forms; declared strides are restored by copies."""
    return retrace(graph, expand=lambda op, a: op.kind == "composition" or expands(op))


def expands(op: Op) -> bool:
    """Bodies whose rows are not a dim that operator calls could name stay whole (tables, sums
    over leading dims)."""
    return op.kind in ("scalar", "rows") and not op.bottom and not op.layout.loops_only


def apply_canonical_rules(graph: Graph) -> Graph:
    return apply_rules(graph, CANONICAL)


CANONICALISE = (merge_equal_calls, apply_canonical_rules, merge_equal_calls, remove_dead_code)
PASSES = {
    "operator": (expand_compositions, *CANONICALISE),
    "primitive": (expand_compositions, expand_bodies, *CANONICALISE),
}


def decompose(graph: Graph, to: str = "operator") -> Graph:
    """`to`: "operator" or "primitive"."""
    if to not in PASSES:
        raise UserError(
            "decompose", f"expected one of {', '.join(PASSES)}, got {to!r}", kind=ValueError
        )
    return run_passes(graph, PASSES[to], "decomposition")


def forget_gradients(graph: Graph) -> Graph:
    """Once derivatives are taken, what only they told apart is one value."""
    return run_passes(graph, (drop_gradient_marks,), "decomposition")


def drop_gradient_marks(graph: Graph) -> Graph:
    table: dict[Var, Var] = {}
    for node in graph.calls:
        at = GRADIENT_MARKS.get(node.op.name)
        if at is not None and same_layout(node.outs[0].layout, node.arguments[at].layout):
            table[node.outs[0]] = node.arguments[at]
    return substitute(graph, table) if table else graph


GRADIENT_MARKS = {"detach": 0, "with_data": 1}  # which argument has the result's numbers


def canonicalise(graph: Graph) -> Graph:
    return run_passes(graph, CANONICALISE, "decomposition")


__all__ = ["canonicalise", "decompose", "forget_gradients"]
