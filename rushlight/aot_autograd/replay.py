"""What is functionalised, run on the tracer's proxies: a function, a graph of operators, or a
captured program, whose nodes keep their lines and origins.
"""

from __future__ import annotations

from typing import Any

from rushlight import sym
from rushlight.errors import UserError
from rushlight.fx.captured import changed
from rushlight.fx.graph import Graph, Node
from rushlight.fx.interpreter import run
from rushlight.trace import short_place


def run_module(gm: Any, arguments: list, tracer: Any) -> Any:
    """gm on the proxies; a graph's nodes keep their lines and origins."""
    graph = gm if isinstance(gm, Graph) else getattr(gm, "graph", None)
    if graph is None or not hasattr(graph, "nodes"):
        return gm(*arguments)
    lines = [""]
    tracer.where = lambda: lines[0]
    if not isinstance(graph, Graph):
        return run_captured(gm, graph, arguments, tracer, lines)

    def step(node: Node, values: tuple) -> Any:
        lines[0] = node.where
        tracer.parents[:] = [(o.what, o.where) for o in node.origins if o.what]
        return node.op(*values)

    try:
        return run(graph, *arguments, step=step)
    finally:
        tracer.parents.clear()


def run_captured(
    gm: Any, graph: Any, arguments: list, tracer: Any, lines: list[str]
) -> Any:
    """The nodes of a captured program (fx/captured.py) in order: calls of functions, methods and
    modules, with their users' lines."""
    given, known = iter(arguments), {}

    def value(a: Any) -> Any:
        return known[a] if getattr(a, "graph", None) is graph else a

    for node in graph.nodes:
        where = str(node.meta.get("where", ""))
        lines[0] = short_place(where)
        args = [changed(a, value) for a in node.args]
        named = {k: changed(v, value) for k, v in node.kwargs.items()}
        match node.op:
            case "placeholder":
                known[node] = next(given)
            case "get_attr":
                known[node] = attribute(gm, node.target)
            case "call_function":
                called = tracer.instead.get(node.target)
                if any(isinstance(a, sym.Float) for a in args) and all(map(is_number, args)):
                    known[node] = sym.Float.of(node.target, *args)
                elif called is None:
                    known[node] = node.target(*args, **named)
                else:
                    known[node] = called(tracer, *args, **named)
            case "call_method":
                known[node] = getattr(args[0], node.target)(*args[1:], **named)
            case "call_module":
                known[node] = attribute(gm, node.target)(*args, **named)
            case "output":
                return args[0]
    raise UserError("compile", "the graph has no output")


def is_number(a: Any) -> bool:
    return isinstance(a, (int, float, sym.Sym))


def attribute(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = getattr(holder, name)
    return holder


__all__ = ["run_module"]
