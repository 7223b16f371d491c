"""torch.profiler's events as the calls that our own recorder would have written.

Takes the events of a run, and what the dispatch mode saw (`torch_watch`); gives `Calls`, and what
the GPU ran. An operator has the line, the layouts and the kind that the mode saw; a call of
compiled code is of kind `compiled`, a graph inside of kind `graph`. Invariant: what torch did to
compile is not among the operators, and the time that watching took is not in theirs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.interop.torch_watch import MARK, Op
from rushlight.report.records import Call, Calls, Layout, read_layouts, without_graphs

REGION = "Torch-Compiled Region: "
GRAPH = "## Call CompiledFxGraph "
EVALUATE = "autograd::engine::evaluate_function: "
_MODE = "PythonDispatchMode"
# Compiling, and what stands around a call of compiled code.
COMPILING = (
    "dynamo", "entire_frame_compile", "entire_backward_compile", "CachingAutotuner.",
)  # fmt: skip
# The CUDA runtime's own calls: what they launch is known of the operator that called them.
_RUNTIME = re.compile(
    r"cuda?[A-Z]|(Lazy Function|Runtime Triggered Module) Loading|Activity Buffer"
)
_AROUND = (
    "TorchDynamo Cache Lookup", "Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue",
)  # fmt: skip


@dataclass(slots=True)
class Device:
    """What ran on a GPU: kernel name -> calls, nanoseconds."""

    kernels: dict[str, list[int]] = field(default_factory=dict)
    spent: dict[int, int] = field(default_factory=dict)  # call id -> of that on the GPU


@dataclass(slots=True)
class _Node:
    name: str
    start: int
    ns: int
    children: list[_Node]
    op: Op | None = None
    sequence: int = -1
    compiles: bool = False  # something was compiled in it
    device: list[tuple[str, int]] = field(default_factory=list)  # GPU kernels it launched, ns


def calls(
    events: Iterable[Any],
    ops: Sequence[Op],
    graphs: dict[str, str],
    functions: dict[str, str],
    called_at: dict[str, str],
) -> tuple[Calls, Device]:
    """`graphs`: the cache key of an Inductor graph -> its label. `functions`: '0/0' -> the compiled
    function's name; `called_at`: -> the line of its first call."""
    roots = [event for event in events if event.cpu_parent is None and _on_host(event)]
    roots.sort(key=lambda event: event.time_range.start)
    device = Device()
    nodes = [node for event in roots for node in _read(event, ops, device)]
    writer = _Writer(graphs, functions, called_at)
    writer.write(nodes, None, 0, "", False)
    device.spent = writer.on_device
    return without_graphs(
        Calls(sorted(writer.calls, key=lambda c: (c.start, c.depth, c.id)))
    ), device


def _on_host(event: Any) -> bool:
    return str(event.device_type).endswith("CPU") and not event.is_async


def _read(event: Any, ops: Sequence[Op], device: Device) -> list[_Node]:
    """The event without what watching put around it: the mode's own events give way to their
    children."""
    name = event.name
    if name.startswith(_AROUND):
        return []
    parts = sorted(event.cpu_children, key=lambda e: e.time_range.start)
    if name.startswith(COMPILING):
        start, spent = _times(event)
        return [_Node(name, start, spent, [], compiles=True)]
    children = [node for part in parts for node in _read(part, ops, device)]
    if name == _MODE or _RUNTIME.match(name):
        return children
    if name.startswith(MARK):
        number = int(name.removeprefix(MARK))
        op = ops[number] if number < len(ops) and ops[number].name else None
        for child in children:
            if op is not None and child.name == op.name and child.op is None:
                child.op = op
        if op is not None and not any(child.op is op for child in children):
            start, spent = _times(event)
            children = [_Node(op.name, start, spent, children, op)]
        return children
    start, spent = _times(event)
    node = _Node(name, start, spent, children, sequence=event.sequence_nr)
    for kernel in event.kernels:
        ran = round(kernel.duration * 1000)
        node.device.append((kernel.name, ran))
        row = device.kernels.setdefault(kernel.name, [0, 0])
        row[0] += 1
        row[1] += ran
    return [_without_twins(node, parts)]


def _times(event: Any) -> tuple[int, int]:
    return round(event.time_range.start * 1000), round(event.time_range.elapsed_us() * 1000)


def _without_twins(node: _Node, parts: Sequence[Any]) -> _Node:
    """An operator that only handed on to itself below the mode, or to `detach` of `aten::detach`,
    is one call. What watching took inside comes off its time."""
    short = node.name.rpartition("::")[2]
    twins = [c for c in node.children if c.name in (node.name, short)]
    others = [c for c in node.children if c not in twins and not c.compiles]
    if len(twins) == 1 and "::" in node.name and len(others) <= 1:
        twin = twins[0]
        twin.name, twin.sequence = node.name, max(node.sequence, twin.sequence)
        twin.device += node.device
        return twin
    raw = sum(_times(part)[1] for part in parts if not part.name.startswith(_AROUND))
    kept = sum(child.ns for child in node.children)
    node.ns = max(kept, node.ns - max(0, raw - kept))
    return node


class _Writer:
    def __init__(
        self, graphs: dict[str, str], functions: dict[str, str], called_at: dict[str, str]
    ) -> None:
        self.calls: list[Call] = []
        self.graphs, self.functions, self.called_at = graphs, functions, called_at
        self.regions: set[str] = set()
        self.on_device: dict[int, int] = {}
        self.unkeyed = ""  # label of a graph whose key torch does not say, its cache being off
        self.forward: dict[int, str] = {}  # a CompiledFunction's sequence number -> '0/0'

    def write(
        self, nodes: Sequence[_Node], parent: int | None, depth: int, region: str, in_graph: bool
    ) -> None:
        """`region`: the compile id whose code is running."""
        group: list[_Node] = []  # operators that one graph called, one after another
        for node in nodes:
            if not in_graph and region and node.op is not None and node.op.in_graph:
                group.append(node)
                continue
            self.graph(group, parent, depth, f"graph {region}")
            group = []
            self.one(node, parent, depth, region, in_graph)
        self.graph(group, parent, depth, f"graph {region}")

    def graph(self, nodes: Sequence[_Node], parent: int | None, depth: int, label: str) -> None:
        if nodes:
            spent = sum(node.ns for node in nodes)
            id = self.add(parent, depth, label, "graph", nodes[0].start, spent)
            self.write(nodes, id, depth + 1, "", True)

    def one(self, node: _Node, parent: int | None, depth: int, region: str, in_graph: bool) -> None:
        name = node.name
        if node.compiles:
            return
        if name.startswith(REGION):
            number = name.removeprefix(REGION).split()[0]
            first = number not in self.regions or _compiled_in(node)
            self.regions.add(number)
            function = self.functions.get(number, number)
            id = self.add(
                parent, depth, function, "compiled", node.start, node.ns, hit=not first,
                where=self.called_at.get(number, ""),
            )  # fmt: skip
            self.write(node.children, id, depth + 1, number, False)
        elif name.startswith(GRAPH):
            key = name.removeprefix(GRAPH).split()[0]
            label = self.graphs.get(key) or self.unkeyed or f"graph {region or key[:8]}"
            id = self.add(parent, depth, label, "graph", node.start, node.ns)
            self.write(node.children, id, depth + 1, "", True)
        elif name == "CompiledFunction":
            self.forward[node.sequence] = region
            self.compiled_part(node, parent, depth, f"forward {region}")
        elif name.removeprefix(EVALUATE) == "CompiledFunctionBackward":
            number = self.forward.get(node.sequence, "")
            self.compiled_part(_only(node), parent, depth, f"backward {number}".strip())
        elif name.startswith(EVALUATE):
            inner = _only(node)
            named = name.removeprefix(EVALUATE).rpartition("::")[2]
            id = self.add(parent, depth, named, "backward", node.start, node.ns)
            self.write(inner.children, id, depth + 1, region, in_graph)
        else:
            id = self.operator(node, parent, depth)
            self.write(node.children, id, depth + 1, region, in_graph)

    def compiled_part(self, node: _Node, parent: int | None, depth: int, label: str) -> None:
        """A compiled graph behind an autograd.Function: Inductor says its graph's key, of another
        backend the operators are the graph."""
        if any(child.name.startswith(GRAPH) for child in node.children):
            self.unkeyed = label
            for child in node.children:
                self.one(child, parent, depth, "", child.compiles)
            self.unkeyed = ""
        else:
            inside = [child for child in node.children if not child.compiles]
            spent = sum(child.ns for child in inside)
            id = self.add(parent, depth, label, "graph", node.start, spent)
            self.write(inside, id, depth + 1, "", True)

    def operator(self, node: _Node, parent: int | None, depth: int) -> int:
        op, name = node.op, node.name
        view = op.view if op is not None else is_view(name)
        works = op is not None or not node.children and "::" in name
        ran = name
        if node.device:
            heaviest = max(node.device, key=lambda d: (not d[0].startswith("Mem"), d[1]))
            ran = short_kernel(heaviest[0])
        kind = "view" if view else "kernel" if works or node.device else "composition"
        id = self.add(
            parent, depth, name, kind, node.start, node.ns,
            ran="view" if view else ran if kind == "kernel" else "program",
            where=op.where if op is not None else _first_line(node, "::" not in name),
            inputs=read_layouts(op.inputs) if op is not None else (),
            outputs=read_layouts(op.outputs) if op is not None else (),
        )  # fmt: skip
        if node.device:
            self.on_device[id] = sum(spent for _, spent in node.device)
        return id

    def add(
        self, parent: int | None, depth: int, name: str, kind: str, start: int, ns: int, *,
        hit: bool | None = None, ran: str = "", where: str = "",
        inputs: tuple[Layout, ...] = (), outputs: tuple[Layout, ...] = (),
    ) -> int:  # fmt: skip
        id = len(self.calls)
        route = {"view": "view", "kernel": "kernel", "composition": "program"}.get(kind, "none")
        route = "program" if kind == "backward" else route
        self.calls.append(
            Call(id, parent, depth, name, kind, hit, start, start + ns, inputs, outputs, ran,
                 where, route=route)
        )  # fmt: skip
        return id


def _only(node: _Node) -> _Node:
    """evaluate_function: X holds X."""
    named = node.name.removeprefix(EVALUATE)
    inner = next((child for child in node.children if child.name == named), None)
    return inner or node


def _compiled_in(node: _Node) -> bool:
    return any(child.compiles or _compiled_in(child) for child in node.children)


def _first_line(node: _Node, own: bool) -> str:
    """Of a composition: the line of the first operator in it; of an optimiser's step and other
    scopes that Python opens, the user's own."""
    for child in node.children:
        op = child.op
        found = _first_line(child, own) if op is None else op.own if own else op.where
        if found:
            return found
    return ""


def short_kernel(name: str) -> str:
    """A kernel's name without its C++ template arguments, but with the functor among them."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    plain = re.split(r"[<(]", name, maxsplit=1)[0].strip()
    functor = re.search(r"(\w+)Functor\b", name)
    return f"{plain}<{functor[1]}>" if functor and plain != name else plain or name


@functools.cache
def is_view(name: str) -> bool:
    """Whether an operator, by its full name, only gives another layout of its operand's memory."""
    import torch

    space, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), short, None) if short else None
    if packet is None or not hasattr(packet, "overloads"):
        return False
    returns = getattr(packet, packet.overloads()[0])._schema.returns
    alias = returns[0].alias_info if returns else None
    return alias is not None and not alias.is_write
