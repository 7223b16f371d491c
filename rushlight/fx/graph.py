"""The graph IR: operator calls in order, on named variables. The whole grammar, with its checker.

    Graph    = Graph(name, nodes, env, constants, numbers)
    Node     = Node(kind, target, arguments, outs, origins)
        placeholder     target: its name            arguments: ()            outs: one
        get_attr        target: a constant's name   arguments: ()            outs: one
        call_function   target: an Op               one argument a parameter outs: one a result
        output          target: "output"            arguments: (result,)     outs: ()
    argument = Var | number | size | str | None | Op | (argument, ...)
    Var      = Var(name, layout)                    made once; a name is made once
    Origin   = Origin(what, where)                  the user's line first, then declarations

Everything is immutable: a pass takes a graph and gives another. Sizes are ints or `sym.Sym`s of
the graph's environment. `numbers` are symbols that no size of an input gives (the seed and the
counter of random numbers): the graph is called with their values, after its tensors.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import cached_property
from typing import Any, NamedTuple

from rushlight import sym
from rushlight.errors import CompilerBug, near
from rushlight.ops.declare import Arguments, Op
from rushlight.ops.layouts import Layout
from rushlight.ops.values import Array

PLACEHOLDER, ATTRIBUTE, CALL, OUTPUT = "placeholder", "get_attr", "call_function", "output"
ORDER = (PLACEHOLDER, ATTRIBUTE, CALL, OUTPUT)


class Origin(NamedTuple):
    """One link of a node's provenance: `what` is empty for the user's line, else the operator
    declared at `where`."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} {self.where}".strip()


class Var(Array):
    """A named result with a layout. Layout rules read it; computing with it is a mistake."""

    __slots__ = ("name",)

    def __init__(self, name: str, layout: Layout) -> None:
        super().__init__(layout)
        self.name = name

    @classmethod
    def call(cls, op: Op, a: Arguments) -> Any:
        raise TypeError(
            f"[{op.name}] a graph's variable has no value: run the graph, or trace a function of it"
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Var)
            and self.name == other.name
            and same_layout(self.layout, other.layout)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Node:
    kind: str
    target: Op | str
    arguments: tuple = ()
    outs: tuple[Var, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def op(self) -> Op:
        assert isinstance(self.target, Op)
        return self.target

    @cached_property
    def call(self) -> Arguments:
        """The arguments bound to the operator's parameters."""
        return Arguments(self.op, self.arguments)

    @cached_property
    def reads(self) -> tuple[Var, ...]:
        """The variables among the arguments, in order, once each."""
        return tuple(dict.fromkeys(variables(self.arguments)))

    @property
    def where(self) -> str:
        """The user's line, or ''."""
        return self.origins[0].where if self.origins and not self.origins[0].what else ""


@dataclass(frozen=True)
class Graph:
    name: str
    nodes: tuple[Node, ...]
    env: sym.ShapeEnv = field(default_factory=sym.ShapeEnv, compare=False, repr=False)
    constants: dict = field(default_factory=dict, compare=False, repr=False)  # name -> tensor
    made_by: str = field(default="", compare=False)  # the pass that made it
    milliseconds: float = field(default=0.0, compare=False)
    numbers: tuple[str, ...] = ()  # symbols given as ints, after the inputs

    @cached_property
    def inputs(self) -> tuple[Var, ...]:
        return tuple(n.outs[0] for n in self.nodes if n.kind == PLACEHOLDER)

    @cached_property
    def calls(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.kind == CALL)

    @property
    def result(self) -> Any:
        """What the graph returns: a variable, or tuples of them."""
        return self.nodes[-1].arguments[0]

    @cached_property
    def outputs(self) -> tuple[Var, ...]:
        """The variables returned, flat and in order."""
        return tuple(variables(self.result))

    @cached_property
    def output_set(self) -> frozenset[Var]:
        return frozenset(self.outputs)

    @cached_property
    def makers(self) -> dict[Var, Node]:
        return {out: n for n in self.nodes for out in n.outs}

    @cached_property
    def users(self) -> dict[Var, tuple[Node, ...]]:
        found: dict[Var, list[Node]] = {out: [] for n in self.nodes for out in n.outs}
        for n in self.nodes:
            for v in n.reads:
                found[v].append(n)
        return {v: tuple(ns) for v, ns in found.items()}

    def with_nodes(self, nodes: Any, **fields: Any) -> Graph:
        return changed(self, nodes=tuple(nodes), **fields)

    def with_calls(self, calls: Any) -> Graph:
        """The same inputs and result around other calls."""
        around = [n for n in self.nodes if n.kind != CALL]
        return self.with_nodes([*around[:-1], *calls, around[-1]])

    def print(self) -> str:
        from .printing import show

        return show(self)

    __str__ = print

    def __call__(self, *values: Any) -> Any:
        from .interpreter import run

        return run(self, *values)

    def verify(self) -> Graph:
        """Raises CompilerBug that quotes the graph around what breaks the grammar or disagrees
        with a layout rule."""
        rank, known = 0, set()
        for node in self.nodes:
            self.need(node.kind in ORDER, node, f"is of kind {node.kind!r}")
            self.need(ORDER.index(node.kind) >= rank, node, f"stands after a {ORDER[rank]}")
            rank = ORDER.index(node.kind)
            for v in node.reads:
                self.need(v in known, node, f"reads {v.name}, which is not made before it")
            for out in node.outs:
                self.need(out not in known, node, f"makes {out.name} again")
                known.add(out)
            getattr(self, "verify_" + node.kind)(node)
        self.need(bool(self.nodes) and self.nodes[-1].kind == OUTPUT, None, "has no output")
        self.need(sum(n.kind == OUTPUT for n in self.nodes) == 1, None, "has two outputs")
        return self

    def verify_placeholder(self, node: Node) -> None:
        self.need(len(node.outs) == 1 and not node.arguments, node, "is not one name")

    def verify_get_attr(self, node: Node) -> None:
        self.need(node.target in self.constants, node, "is a constant that the graph does not have")

    def verify_output(self, node: Node) -> None:
        self.need(len(node.arguments) == 1 and not node.outs, node, "does not return one thing")

    def verify_call_function(self, node: Node) -> None:
        self.need(isinstance(node.target, Op), node, f"calls {node.target!r}, which is no operator")
        op = node.op
        self.need(
            len(node.arguments) == len(op.parameters),
            node,
            f"gives {len(node.arguments)} of {len(op.parameters)} arguments",
        )
        expected = op.infer(node.call)
        self.need(
            len(node.outs) == len(expected),
            node,
            f"makes {len(node.outs)} of {len(expected)} results",
        )
        for out, layout in zip(node.outs, expected):
            self.need(
                same_layout(out.layout, layout),
                node,
                f"has {out.name} as {out.layout} {list(out.layout.strides)}, its rule says "
                f"{layout} {list(layout.strides)}",
            )

    def need(self, held: bool, node: Node | None, what: str) -> None:
        if held:
            return
        name = "graph" if node is None else node.outs[0].name if node.outs else str(node.target)
        text = self.print()
        raise CompilerBug("fx", f"{name} {what}", near(text, f" {name}:") if node else text)


def variables(argument: Any) -> Iterator[Var]:
    """The variables inside an argument, in order."""
    if isinstance(argument, Var):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for a in argument:
            yield from variables(a)


def map_variables(argument: Any, change: Any) -> Any:
    """The argument with every variable replaced by change(variable); lists become tuples."""
    if isinstance(argument, Var):
        return change(argument)
    if isinstance(argument, (list, tuple)):
        return tuple(map_variables(a, change) for a in argument)
    return argument


def same_size(m: Any, n: Any) -> bool:
    """Equal as polynomials: asks no question, so leaves no guard."""
    if type(m) is int and type(n) is int:
        return m == n
    return nonzero(sym.terms(m)) == nonzero(sym.terms(n))


def nonzero(terms: dict) -> dict:
    return {m: c for m, c in terms.items() if c}


def same_layout(x: Layout, y: Layout) -> bool:
    """Equal but for offsets, which are run-time values."""
    return x is y or (
        x.dtype == y.dtype
        and x.device == y.device
        and x.rank == y.rank
        and all(map(same_size, x.shape, y.shape))
        and all(map(same_size, x.strides, y.strides))
    )


class Names:
    """Names that no value of a graph has yet. `taken` from the start: those of symbols."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.used = set(taken)
        self.counts: dict[str, int] = {}  # names of each base that are surely used

    def fresh(self, base: str) -> str:
        if keyword.iskeyword(base):
            base += "_"
        i = self.counts.get(base, 0)
        name = f"{base}_{i}" if i else base
        while name in self.used:
            i += 1
            name = f"{base}_{i}"
        self.used.add(name)
        self.counts[base] = i + 1
        return name
