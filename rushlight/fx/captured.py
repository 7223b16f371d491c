"""The graph of a captured program: calls as the program made them, in-place writes, random numbers
and grad modes included. It is what dynamo gives, and what a backend takes; `fx.trace` of it gives
the functional graph of operators.

    node = placeholder    target: its name
         | get_attr       target: the name of a constant
         | call_function  target: any callable
         | call_method    target: a method's name, args[0] is the object
         | call_module    target: the name of a submodule
         | output         args: (what is returned,)

    argument = node | constant | tuple, list, dict or slice of arguments

Invariant: nodes stand in the order in which the program ran, and a graph is run in that order.
It prints as Python; `captured_parsing.py` reads the text back, given the objects that it names.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from rushlight.errors import CompilerBug
from rushlight.sym import ShapeEnv, Sym

from .graph import Names
from .printing import annotation

KINDS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
FLAGS = ("effects", "random", "writes_inputs")
RESERVED = ("self", "ops", "getattr")  # what the text itself names
NOT_IN_NAMES = re.compile(r"\W", re.ASCII)
PLAIN = (int, float, bool, str, bytes, complex, type(None), type(...))


class CallNode:
    """One node. `meta` has `layout` (of a tensor), `where` (the user's line), and what passes
    add."""

    __slots__ = ("args", "graph", "kwargs", "meta", "name", "op", "target")

    def __init__(
        self, graph: CallGraph, op: str, target: Any, args: tuple, kwargs: dict, name: str
    ) -> None:
        self.graph, self.op, self.target, self.name = graph, op, target, name
        self.args, self.kwargs = args, kwargs
        self.meta: dict[str, Any] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def reads(self) -> tuple[CallNode, ...]:
        """The nodes among the arguments, in order, once each."""
        return tuple(dict.fromkeys(nodes_in((self.args, self.kwargs))))


def nodes_in(argument: Any) -> list[CallNode]:
    """The nodes in an argument, in order, as often as they stand there."""
    found: list[CallNode] = []
    add_nodes((argument,), found)
    return found


def add_nodes(arguments: Iterable[Any], found: list[CallNode]) -> None:
    for a in arguments:
        if type(a) is CallNode:
            found.append(a)
        elif isinstance(a, (list, tuple)):
            add_nodes(a, found)
        elif isinstance(a, dict):
            add_nodes(a.values(), found)
        elif isinstance(a, slice):
            add_nodes((a.start, a.stop, a.step), found)


def changed(argument: Any, change: Callable[[Any], Any]) -> Any:
    """An argument with `change` of everything in its tuples, lists, dicts and slices."""
    if type(argument) in (tuple, list):
        return type(argument)(changed(a, change) for a in argument)
    if type(argument) is dict:
        return {k: changed(a, change) for k, a in argument.items()}
    if type(argument) is slice:
        return slice(*(changed(a, change) for a in (argument.start, argument.stop, argument.step)))
    return change(argument)


class CallGraph:
    """Nodes in order. `constants` are the objects that get_attr nodes and arguments name."""

    def __init__(self, name: str = "forward") -> None:
        self.name = name
        self.nodes: list[CallNode] = []
        self.names = Names()
        self.constants: dict[str, Any] = {}
        self.effects = False  # whether a node does more than make its result
        self.random = False  # whether it draws from the default stream
        self.writes_inputs = False  # whether a node may write what existed before the graph

    def add(
        self, op: str, target: Any, args: tuple = (), kwargs: dict | None = None, name: str = ""
    ) -> CallNode:
        node = CallNode(self, op, target, args, kwargs or {}, self.fresh(name or spelled(target)))
        self.nodes.append(node)
        return node

    def fresh(self, base: str) -> str:
        return self.names.fresh(name_from(base))

    def placeholder(self, name: str) -> CallNode:
        node = self.add("placeholder", name, name=name)
        node.target = node.name
        return node

    def output(self, value: Any) -> CallNode:
        return self.add("output", "output", (value,))

    @property
    def placeholders(self) -> list[CallNode]:
        return [n for n in self.nodes if n.op == "placeholder"]

    @property
    def calls(self) -> list[CallNode]:
        return [n for n in self.nodes if n.op.startswith("call_")]

    def verify(self) -> CallGraph:
        """Raises CompilerBug where a node reads what is not made before it."""
        known: set[CallNode] = set()
        for n in self.nodes:
            if n.op not in KINDS:
                raise CompilerBug("fx", f"{n.name} is of kind {n.op!r}", self.print())
            for r in n.reads:
                if r not in known:
                    raise CompilerBug(
                        "fx", f"{n.name} reads {r.name}, not made before it", self.print()
                    )
            known.add(n)
        if not self.nodes or self.nodes[-1].op != "output":
            raise CompilerBug("fx", "the graph has no output", self.print())
        return self

    def source(self, annotate: bool = True, bound: bool = True) -> tuple[str, dict[str, Any]]:
        """(Python source of `def forward(self, ...)`, the objects that it names); without `self`
        where not `bound`: the graph's constants are objects like any other then."""
        writer = Writer(self, bound)
        lines, where = [], ""
        inputs = ["self"] if bound else []
        for n in self.nodes:
            if n.op == "placeholder":
                inputs.append(writer.annotated(n) if annotate else n.name)
                continue
            place = n.meta.get("where", "")
            if annotate and place != where:
                where = place
                lines.append(f"    # {place}".rstrip())
            lines.append("    " + writer.statement(n, annotate))
        head = f"def {self.name}({', '.join(inputs)}):"
        notes = self.notes() if annotate else []
        return "\n".join([*notes, head, *lines]) + "\n", writer.objects

    def notes(self) -> list[str]:
        """What the text says above the function: sizes that vary, and the flags that are set."""
        envs = {e: None for n in self.nodes for e in environments(n.meta.get("layout"))}
        sizes = {k: v for e in envs for k, v in e.hints.items() if "(" not in k}
        flags = [f for f in FLAGS if getattr(self, f)]
        return [f"# {k} = {v}" for k, v in sizes.items()] + (
            [f"# flags: {', '.join(flags)}"] if flags else []
        )

    def equals(self, other: CallGraph) -> bool:
        """Whether the other graph says the same: names, targets and arguments of the nodes, their
        layouts and lines, the flags, and the very same constants."""
        return (
            (self.name, *(getattr(self, f) for f in FLAGS))
            == (other.name, *(getattr(other, f) for f in FLAGS))
            and same(self.constants, other.constants)
            and len(self.nodes) == len(other.nodes)
            and all(map(same_node, self.nodes, other.nodes))
        )

    def print(self) -> str:
        return self.source()[0]

    __str__ = print

    def compile(self, bound: bool = True) -> Callable:
        """The graph as one Python function of (`self` and) its inputs."""
        text, objects = self.source(annotate=False, bound=bound)
        namespace = dict(objects)
        exec(compile(text, f"<graph {self.name}>", "exec"), namespace)
        return namespace[self.name]


@cache
def name_from(text: str) -> str:
    """A name that Python takes, from any text."""
    base = NOT_IN_NAMES.sub("_", text).strip("_").lower() or "value"
    if base[0].isdigit() or keyword.iskeyword(base) or base in RESERVED:
        base = f"v_{base}"
    return base


def spelled(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", "call")


def environments(layout: Any) -> list[ShapeEnv]:
    return [n.env for n in getattr(layout, "shape", ()) if isinstance(n, Sym)]


def origins_of_lines(text: str) -> dict[int, tuple[str, ...]]:
    """Line of a printed graph, from 1 -> (the user's line,)."""
    found: dict[int, tuple[str, ...]] = {}
    place = ""
    for number, row in enumerate(text.splitlines(), 1):
        if row.startswith("    # "):
            place = row[6:]
        elif row.startswith("    ") and place:
            found[number] = (place,)
    return found


def same_node(a: CallNode, b: CallNode) -> bool:
    return (
        a.op == b.op
        and (a.op == "output" or a.name == b.name)
        and (a.target is b.target or same(a.target, b.target))
        and same((a.args, a.kwargs), (b.args, b.kwargs))
        and layout_text(a.meta.get("layout")) == layout_text(b.meta.get("layout"))
        and a.meta.get("where", "") == b.meta.get("where", "")
    )


def same(a: Any, b: Any) -> bool:
    """Arguments of two graphs: nodes by name, plain values by what they print, others by
    identity."""
    if type(a) is not type(b):
        return False
    if isinstance(a, CallNode):
        return a.name == b.name
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return same(list(a.items()), list(b.items()))
    if type(a) is slice:
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a is b or type(a) in PLAIN and repr(a) == repr(b)


def identifier(name: Any) -> bool:
    return (
        isinstance(name, str)
        and name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
    )


def member(of: str, name: str) -> str:
    """`of.name`, where Python can spell it."""
    return f"{of}.{name}" if identifier(name) else f"getattr({of}, {name!r})"


class Writer:
    """Arguments and targets as text, and the objects that the text names."""

    def __init__(self, graph: CallGraph, bound: bool = True) -> None:
        self.graph, self.bound = graph, bound
        self.objects: dict[str, Any] = {}
        self.known: dict[int, str] = {}

    def annotated(self, n: CallNode) -> str:
        text = layout_text(n.meta.get("layout"))
        return f'{n.name}: "{text}"' if text else n.name

    def statement(self, n: CallNode, annotate: bool) -> str:
        if n.op == "output":
            return f"return {self.argument(n.args[0])}"
        left = self.annotated(n) if annotate else n.name
        if n.op in ("get_attr", "call_module"):
            what = self.attribute(n.target)
            return f"{left} = {what}" + (self.call(n.args, n.kwargs) if n.op != "get_attr" else "")
        if n.op == "call_method":
            of = self.argument(n.args[0])
            of = of if isinstance(n.args[0], CallNode) else f"({of})"  # 1.real is no Python
            return f"{left} = {member(of, n.target)}{self.call(n.args[1:], n.kwargs)}"
        return f"{left} = {self.object(n.target, 'f')}{self.call(n.args, n.kwargs)}"

    def attribute(self, path: str) -> str:
        """`layers.0.weight` of self; a graph that stands alone has but its constants."""
        if not self.bound and path in self.graph.constants:
            return self.object(self.graph.constants[path], "constant")
        what = "self"
        for name in path.split("."):
            what = member(what, name)
        return what

    def call(self, args: tuple, kwargs: dict) -> str:
        given = [self.argument(a) for a in args]
        given += [f"{k}={self.argument(v)}" for k, v in kwargs.items() if identifier(k)]
        odd = {k: v for k, v in kwargs.items() if not identifier(k)}
        return f"({', '.join([*given, *([f'**{self.argument(odd)}'] if odd else [])])})"

    def argument(self, a: Any) -> str:
        if isinstance(a, CallNode):
            return a.name
        if type(a) is tuple:
            return f"({''.join(self.argument(v) + ', ' for v in a).strip()})"
        if type(a) is list:
            return f"[{', '.join(map(self.argument, a))}]"
        if type(a) is dict:
            pairs = (f"{self.argument(k)}: {self.argument(v)}" for k, v in a.items())
            return "{" + ", ".join(pairs) + "}"
        if type(a) is slice:
            parts = ", ".join(map(self.argument, (a.start, a.stop, a.step)))
            return f"{self.object(slice, 'slice')}({parts})"
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.object(type(a), 'tuple')}({', '.join(map(self.argument, a))})"
        if type(a) is float and a - a != 0 or type(a) is complex:  # inf and nan have no literal
            return self.object(a, "number")
        return repr(a) if type(a) in PLAIN else self.object(a, "constant")

    def object(self, value: Any, base: str) -> str:
        """A name for an object: its own where it has one."""
        if id(value) in self.known:
            return self.known[id(value)]
        name = getattr(value, "__name__", None) or getattr(value, "name", None)
        name = name if identifier(name) else base
        if not callable(value) and name != base:
            name = f"{type(value).__name__}_{name}"
        base = taken = f"_{name}"  # nodes' names never begin like this
        i = 1
        while taken in self.objects:
            taken, i = f"{base}_{i}", i + 1
        self.objects[taken] = value
        self.known[id(value)] = taken
        return taken


def layout_text(layout: Any) -> str:
    """As graphs of operators print it; of what is no layout, its own text."""
    if layout is None:
        return ""
    return annotation(layout) if hasattr(layout, "strides") else str(layout)
