"""A captured graph -> parts in order, where some of its calls stay outside of every compiled graph.

    parts = split(graph, outside)
    Parts(graph, parts, compile)(*inputs)

A call is outside where nothing compiled does better (a recurrent layer's own kernels), and then
everything that changes a mode is, too, because the next part must find the mode that it was
captured in. Parts hand each other tensors, as eager mode's calls do: views are views, what one
writes the next one reads, and the tape goes through all of them. Numbers are computed anew in
each part, and constants are looked up there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.fx.captured import CallGraph, CallNode, changed

FEW = 2  # calls (views not counted) from which on a part is worth compiling


class Part(NamedTuple):
    graph: CallGraph  # of its own inputs and outputs
    outside: bool
    inputs: tuple[int, ...]  # registers
    outputs: tuple[int, ...]
    dead: tuple[int, ...]  # registers that nobody reads after it


class Parts:
    """The parts as one callable with the graph's inputs and result. `compile(callable, examples)`
    is given each part that is not outside."""

    trusted = True  # as a backend's result

    def __init__(self, graph: CallGraph, parts: Sequence[Part], compile: Callable) -> None:
        self.name, self.graph, self.parts = graph.name, graph, parts
        self.places = register_of(graph)
        self.result = graph.nodes[-1].args[0]
        self.calls: list[tuple[Callable, Part]] = []
        for part in parts:
            run: Callable = Run(part.graph)
            if not part.outside:
                layouts = [n.meta.get("layout") for n in part.graph.placeholders]
                run = compile(run, layouts)
            self.calls.append((run, part))

    def __call__(self, *inputs: Any) -> Any:
        held: dict[int, Any] = dict(enumerate(inputs))
        for run, part in self.calls:
            made = run(*[held[i] for i in part.inputs])
            held.update(zip(part.outputs, made))
            for i in part.dead:
                del held[i]
        return self.looked_up(self.result, held)

    def looked_up(self, a: Any, held: dict[int, Any]) -> Any:
        if isinstance(a, CallNode):
            if a.op == "get_attr":
                return self.graph.constants[a.target]
            if a not in self.places:
                args = [self.looked_up(x, held) for x in a.args]
                return a.target(*args)
            return held[self.places[a]]
        if isinstance(a, (tuple, list)):
            return type(a)(self.looked_up(x, held) for x in a)
        return a


class Run:
    """A part as it stands: its calls one after another."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph, self.__name__ = graph, graph.name
        self.function = graph.compile(bound=False)

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def register_of(graph: CallGraph) -> dict[CallNode, int]:
    """A number for each node that hands a value from part to part; placeholders come first."""
    found = {n: i for i, n in enumerate(graph.placeholders)}
    for n in graph.calls:
        if not is_number(n):
            found[n] = len(found)
    return found


def is_number(n: CallNode) -> bool:
    """Arithmetic of sizes and other numbers: every part makes its own."""
    return (
        n.op == "call_function"
        and n.meta.get("layout") is None
        and getattr(n.target, "__module__", "") in ("_operator", "operator", "math", "builtins")
        and n.target is not operator.getitem
    )


def split(graph: CallGraph, outside: Callable[[CallNode], bool]) -> list[Part]:
    """The graph's calls in order, cut where `outside` says so."""
    groups: list[tuple[bool, list[CallNode]]] = []
    out: set[CallNode] = set()
    for n in graph.calls:
        if is_number(n):
            continue
        there = outside(n) or (n.target is operator.getitem and n.args[0] in out)
        if there:
            out.add(n)
        if not groups or groups[-1][0] is not there:
            groups.append((there, []))
        groups[-1][1].append(n)
    merged: list[tuple[bool, list[CallNode]]] = []
    for there, nodes in groups:
        there = there or sum(n.target is not operator.getitem for n in nodes) < FEW
        if merged and merged[-1][0] is there:
            merged[-1][1].extend(nodes)
        else:
            merged.append((there, nodes))
    registers = register_of(graph)
    last: dict[int, int] = {}  # register -> the last part that reads it
    reads = [values_read(nodes) for _, nodes in merged]
    for k, read in enumerate(reads):
        last.update({registers[n]: k for n in read})
    final = values_read([graph.nodes[-1]])
    last.update({registers[n]: len(merged) for n in final})
    parts = []
    for k, (there, nodes) in enumerate(merged):
        made = [n for n in nodes if last.get(registers[n], -1) > k]
        inputs = [n for n in reads[k] if n not in nodes]
        dead = [registers[n] for n in inputs if last[registers[n]] == k]
        part = copied(graph, f"{graph.name}_{k}", inputs, nodes, made)
        places = [tuple(registers[n] for n in group) for group in (inputs, made)]
        parts.append(Part(part, there, places[0], places[1], tuple(dead)))
    return parts


def values_read(nodes: Sequence[CallNode]) -> list[CallNode]:
    """The tensors and inputs that the nodes read, numbers' own operands included."""
    found: dict[CallNode, None] = {}

    def visit(n: CallNode) -> None:
        for r in n.reads:
            if is_number(r):
                visit(r)
            elif r.op != "get_attr":
                found[r] = None

    for n in nodes:
        visit(n)
    return list(found)


def copied(
    graph: CallGraph,
    name: str,
    inputs: Sequence[CallNode],
    nodes: Sequence[CallNode],
    outputs: Sequence[CallNode],
) -> CallGraph:
    """The nodes as a graph of their own."""
    made, known = CallGraph(name), dict[CallNode, CallNode]()
    made.constants = graph.constants
    for n in inputs:
        known[n] = made.placeholder(n.name)
        known[n].meta = n.meta

    def here(a: Any) -> Any:
        return a if not isinstance(a, CallNode) else known[a] if a in known else copy(a)

    def copy(n: CallNode) -> CallNode:
        args, kwargs = changed(n.args, here), changed(n.kwargs, here)
        known[n] = made.add(n.op, n.target, args, kwargs, n.name)
        known[n].meta = n.meta
        return known[n]

    for n in nodes:
        copy(n)
    made.output(tuple(known[n] for n in outputs))
    return made.verify()


__all__ = ["Part", "Parts", "split"]
