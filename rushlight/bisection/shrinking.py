"""The smallest part of a graph that still shows a difference: a finding -> the same finding of a
smaller graph, with the values that its new inputs had.

The first operator that is wrong is found by halving; then as few operators before it as will do are
kept. Values that are not made inside become inputs. Invariant: the part shows the same step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rushlight.aot_autograd.pipeline import plain
from rushlight.fx.graph import ATTRIBUTE, CALL, OUTPUT, PLACEHOLDER, Graph, Node, map_variables
from rushlight.fx.interpreter import run
from rushlight.inductor.checking import keeping

from .stages import Finding, of_graph, quiet
from .values import Interpreted, plainly

DEPTHS = (1, 2, 3, 5, 8, 13)  # how many operators in a row before the wrong one


def shrink(found: Finding) -> Finding:
    """The finding of the smallest part that was found; itself where only the whole graph with what
    a call does around it shows it."""
    graph = found.graph
    if not isinstance(graph, Graph) or found.stage in ("functionalise", "derivatives", "call"):
        return found
    kept: dict[str, Any] = {}
    with plainly():
        run(graph, *found.values, step=keeping(kept, lambda v: v))
    kept |= {v.name: x for v, x in zip(graph.inputs, found.values)}
    kept |= {n.outs[0].name: graph.constants[n.target] for n in graph.nodes if n.kind == ATTRIBUTE}
    numbers = tuple(found.values[len(graph.inputs) :])

    def tried(part: Graph) -> Finding | None:
        values = (*(kept[origin[v.name]] for v in part.inputs), *numbers)
        try:
            part.verify()
            again = of_graph(Interpreted(part, None, False), values, quiet)
        except Exception:  # a part that cannot stand alone is no part
            return None
        return again if again is not None and again.stage == found.stage else None

    origin = {plain(v).name: v.name for n in graph.nodes for v in n.outs}
    calls = [n for n in graph.calls]
    best = tried(part_of(graph, calls, graph.result))
    if best is None:
        return found
    low, high = 0, len(calls) - 1
    while low < high:
        middle = (low + high) // 2
        here = tried(ending_at(graph, calls[middle], len(calls)))
        low, high, best = (low, middle, here) if here is not None else (middle + 1, high, best)
    last = calls[low]
    for depth in DEPTHS:
        small = tried(ending_at(graph, last, depth))
        if small is not None:
            best = small
            break
    where = f" at {last.where}" if last.where else ""
    return replace(
        best, node=f"{last.outs[0].name} = {last.op.name}(...){where}",
        function=found.function, call=found.call,
    )  # fmt: skip


def ending_at(graph: Graph, node: Node, depth: int) -> Graph:
    """What makes the node's results, as far as `depth` operators before it."""
    chosen, edge = {id(node)}, [node]
    for _ in range(depth - 1):
        edge = [
            m
            for n in edge
            for v in n.reads
            if (m := graph.makers[v]).kind == CALL and id(m) not in chosen
        ]
        if not edge:
            break
        chosen |= set(map(id, edge))
    return part_of(graph, [n for n in graph.calls if id(n) in chosen], tuple(node.outs))


def part_of(graph: Graph, calls: list[Node], result: Any) -> Graph:
    """These calls as a graph; whatever else they read is an input."""
    made = {v for n in calls for v in n.outs}
    read = [v for n in calls for v in n.reads if v not in made]
    result = result if isinstance(result, tuple) else (result,)
    read += [v for v in Node(OUTPUT, "output", (result,)).reads if v not in made]
    given = {v: plain(v) for v in dict.fromkeys(read)}
    look = lambda v: given.get(v, v)
    nodes = [Node(PLACEHOLDER, v.name, (), (v,)) for v in given.values()]
    for n in calls:
        nodes.append(Node(CALL, n.target, map_variables(n.arguments, look), n.outs, n.origins))
    nodes.append(Node(OUTPUT, "output", (map_variables(result, look),)))
    return Graph(graph.name, tuple(nodes), graph.env, {}, numbers=graph.numbers)
