"""What a schedule is made of: groups of nodes that one kernel computes, and calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rushlight.fx.graph import Node, Var
from rushlight.ops.layouts import Layout


class Read(NamedTuple):
    """An operand of a kernel. `shape`: what it must be expanded to before the call, where its own
    dims would be taken for others; with `strides`, how it is looked at instead."""

    var: Var
    per_row: bool  # one number a row
    shape: tuple | None = None
    strides: tuple | None = None

    @property
    def layout(self) -> Layout:
        """As the kernel sees it."""
        own = self.var.layout
        if self.shape is None:
            return own
        if self.strides is None:
            return own.expand(self.shape)
        return own.of(list(zip(self.shape, self.strides)))


class Facts(NamedTuple):
    """What of a node decides where it can go: `space` it runs over, `rows` it folds over."""

    folds: bool
    space: tuple
    rows: tuple[int, ...]
    gather: Any = None  # gathers.Gather


@dataclass(eq=False)
class Group:
    """Nodes that one kernel computes, over `space`; dims in `rows` are folded over, or walked as
    rows."""

    index: int
    space: tuple
    rows: tuple[int, ...]
    device: str = "cpu"
    nodes: list[Node] = field(default_factory=list)
    axes: dict[Var, tuple] = field(
        default_factory=dict
    )  # a value made here: the space's dim behind each of its own
    reads: dict[Read, None] = field(default_factory=dict)
    per_row: set[Var] = field(default_factory=set)  # values made here that are one number a row
    has_rows: bool = False
    open: dict[Var, None] = field(default_factory=dict)  # values made here and read elsewhere
    numbers: set[str] = field(default_factory=set)  # known at run time
    placed: dict[Var, Layout] = field(default_factory=dict)  # where a result lies in a whole
    coming: frozenset[Var] = frozenset()  # values of nodes that are about to join

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def name(self) -> str:
        return "_".join(["fused", *(n.op.name for n in self.nodes)])[:56] + f"_{self.index}"

    def __str__(self) -> str:
        rows = f" rows {list(self.rows)}" if self.has_rows else ""
        return f"{self.name} over {list(self.space)}{rows}"


@dataclass(eq=False)
class CallStep:
    """A node that is called as it is."""

    index: int
    node: Node

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def __str__(self) -> str:
        return f"call {self.node.op.name}"


Step = Group | CallStep
