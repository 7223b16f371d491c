"""Graph -> Python text, which `parse.py` reads back to an equal graph.

    # decompose_compositions, 0.41 ms
    # s0 = 5
    def graph(x: f32[s0, 4], b: f32[4]):
        add: f32[s0, 4] = ops.add(x, b)  # model.py:12
        return add

Annotations are dense in C order unless `.strides(...)` follows. A call with several results is
one tuple, `layer_norm[0]`.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight import dtypes, sym
from rushlight.ops.declare import MISSING, Op
from rushlight.ops.layouts import Layout, dense

from .graph import ATTRIBUTE, CALL, OUTPUT, PLACEHOLDER, Graph, Node, Var, same_layout


def header(graph: Graph) -> list[str]:
    """The lines above the nodes."""
    lines = []
    if graph.made_by:
        lines.append(f"# {graph.made_by}, {graph.milliseconds:.2f} ms")
    lines += [f"# {name} = {value}" for name, value in graph.env.hints.items() if "(" not in name]
    lines += [f"# guard: {text} is {answer}" for text, answer in graph.env.guards]
    head = ", ".join(f"{v.name}: {annotation(v.layout)}" for v in graph.inputs)
    if graph.numbers:
        head = ", ".join([*([head] if head else []), "*", *(f"{n}: int" for n in graph.numbers)])
    return [*lines, f"def {graph.name}({head}):"]


def printed(graph: Graph) -> list[Node]:
    """The nodes that have a line each."""
    return [n for n in graph.nodes if n.kind != PLACEHOLDER]


def show(graph: Graph) -> str:
    return "\n".join([*header(graph), *("    " + line(n) for n in printed(graph))]) + "\n"


def line(node: Node) -> str:
    if node.kind == ATTRIBUTE:
        return f"{node.outs[0].name}: {annotation(node.outs[0].layout)} = constants.{node.target}"
    if node.kind == OUTPUT:
        return f"return {', '.join(map(argument, node.arguments))}"
    if node.kind != CALL:
        return f"{node.kind} {node.target} {argument(node.arguments)}"  # in messages only
    left = node.outs[0].name
    kind = annotation(node.outs[0].layout)
    if len(node.outs) > 1:
        left = left.split("[")[0]
        kind = f"tuple[{', '.join(annotation(o.layout) for o in node.outs)}]"
    text = f"{left}: {kind} = ops.{node.op.name}({arguments(node)})"
    return f"{text}  # {' > '.join(map(str, node.origins))}" if node.origins else text


def source_map(graph: Graph) -> dict[int, tuple[str, ...]]:
    """Line of the printed graph, from 1 -> the node's origins, outermost first."""
    first = len(header(graph)) + 1
    return {i: tuple(map(str, n.origins)) for i, n in enumerate(printed(graph), first) if n.origins}


def annotation(layout: Layout) -> str:
    text = f"{dtypes.short(layout.dtype)}[{', '.join(map(str, layout.shape)) or '()'}]"
    if not same_layout(layout, dense(layout.shape, layout.dtype, None, layout.device)):
        text += f".strides({', '.join(map(str, layout.strides))})"
    return text


def arguments(node: Node) -> str:
    """Positional where it can be; defaults at the end are left out."""
    parts, by_name = [], False
    for p, value in zip(node.op.parameters, node.arguments):
        if p.default is not MISSING and type(value) is type(p.default) and value == p.default:
            by_name = True
            continue
        by_name = by_name or p.keyword_only
        parts.append(f"{p.name}={argument(value)}" if by_name else argument(value))
    return ", ".join(parts)


def argument(value: Any) -> str:
    match value:
        case Var():
            return value.name
        case Op():
            return f"ops.{value.name}"
        case sym.Sym():
            return str(value)
        case tuple() | list():
            inside = ", ".join(map(argument, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case float() if not math.isfinite(value):
            return f"float({str(value)!r})"
    return repr(value)
