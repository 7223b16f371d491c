"""Convolutions of graphs without gradients: channels last from the first to the last one, weights
packed, and what follows them taken along.

Takes a graph whose compositions are expanded; gives the graph with `fused_convolution` in it. The
library computes on pixels whose channels lie side by side: an image is turned over where it comes
to a convolution, stays so through pointwise operators and pooling, and is turned back where
something else reads it, or the graph returns it. Invariant: every value that leaves lies as
declared, and is the same up to the bound of library calls.
"""

from __future__ import annotations

from typing import Any

from rushlight import sym
from rushlight.fx.graph import ATTRIBUTE, CALL, PLACEHOLDER, Graph, Node, Var, same_layout
from rushlight.fx.tracing import retrace
from rushlight.ops.fused import MOST, OPERANDS
from rushlight.ops.layouts import is_channels_last
from rushlight.ops.values import TABLE
from rushlight.reasons import Reason, refuse
from rushlight.runtime import native

from .epilogues import ALONE, Chain, same_shape, why_not

LEAST = 1 << 20  # multiply-adds of a convolution that is worth turning its input over
IMAGES = ("pool_max", "pool_mean", "convolution")  # what takes images as they lie, and keeps that


def step_of(node: Node, v: Var) -> list[tuple] | None:
    """[(name, other, whole)] of a node that does something to an image, or None."""
    op, out = node.op.name, node.outs[0]
    if op == "scale_shift_rows" and node.arguments[0] == v:
        scale, shift = node.arguments[1:3]
        fits = all(isinstance(x, Var) and x.dtype == v.dtype for x in (scale, shift))
        return [("mul", scale, False), ("add", shift, False)] if fits else None
    if len(node.outs) != 1 or out.dtype != v.dtype or not same_shape(out.shape, v.shape):
        return None
    if op == "gelu" and node.arguments[1] == "tanh":
        return [("gelu_tanh", None, False)]
    if op in ALONE:
        return [(op, None, False)]
    if op not in ("add", "mul"):
        return None
    x, y, *rest = node.arguments
    other = y if x == v else x
    if not isinstance(other, Var) or other == v or other.dtype != v.dtype or rest not in ([], [1]):
        return None
    return [(op, other, True)] if same_shape(other.shape, v.shape) else None


def follow(graph: Graph, start: Node, inside: set[Node], reasons: list[Reason]) -> Chain:
    """The longest chain from a convolution; nodes `inside` are another one's."""
    chain, v, extras = Chain(start), start.outs[0], 0
    while v not in graph.output_set and len(graph.users[v]) == 1:
        (node,) = graph.users[v]
        if node.kind != CALL or node in inside:
            break
        steps = step_of(node, v)
        if steps is None:
            if node.op.kind == "scalar":
                reasons.append(why_not(node, start))
            break
        extras += sum(other is not None for _, other, _ in steps)
        if len(chain.steps) + len(steps) > MOST or extras > OPERANDS:
            break
        chain.nodes.append(node)
        chain.steps += [(name, node, other, whole) for name, other, whole in steps]
        v = node.outs[0]
    return chain


def why_stays(graph: Graph, node: Node) -> str:
    """Why a convolution stays the operator that it is, or ''."""
    x, w, bias, _, _, _, transposed, _, groups = node.arguments
    if transposed or groups != 1:
        return "only plain convolutions of one group are packed"
    if x.dtype != "float32" or len(x.shape) != 4:
        return "only images in float32 are kept channels last"
    if graph.makers[w].kind not in (PLACEHOLDER, ATTRIBUTE) or not w.layout.contiguous:
        return "its weight is computed in the graph, or has gaps"
    y = node.outs[0]
    if not all(isinstance(n, int) for n in (*x.shape[1:], *w.shape, *y.shape[1:])):
        return "its sizes vary"
    work = sym.hint(x.shape[0]) * y.shape[2] * y.shape[3]
    for n in w.shape:
        work *= n
    if any(z.shape[1] < 2 or z.shape[2] * z.shape[3] < 2 for z in (x, y)):
        return "its images have one channel or one pixel"
    if work < LEAST:
        return f"{work:,} multiply-adds are not worth turning an image over"
    return ""


def take_along(graph: Graph) -> tuple[Graph, list[Reason]]:
    """The graph with its convolutions channels last, packed, and with what follows them."""
    reasons: list[Reason] = []
    found: dict[Node, Chain] = {}
    inside: set[Node] = set()
    every = [n for n in graph.calls if n.op.name == "convolution"]
    here = [n for n in every if n.outs[0].layout.device == "cpu"]
    if not here or native.packed_bytes("float32", 64, 64) < 0:  # asked last: it opens the library
        return graph, reasons
    for node in here:
        why = why_stays(graph, node)
        if why:
            reasons.append(refuse("packing.stays", node.op.name, why, where=node.where or None))
            continue
        chain = follow(graph, node, inside, reasons)
        found[chain.end] = chain
        inside.update((node, *chain.nodes))
    if not found:
        return graph, reasons
    return Turning(graph, found, inside).graph(), reasons


class Turning:
    """The graph's second run, on proxies of which some lie channels last."""

    def __init__(self, graph: Graph, found: dict[Node, Chain], inside: set[Node]) -> None:
        self.old, self.found, self.inside = graph, found, inside
        self.values: dict[Node, tuple] = {}
        self.turned: dict[tuple, Any] = {}  # (variable, channels last) -> the copy

    def graph(self) -> Graph:
        return retrace(self.old, step=self.step)

    def copy(self, v: Var, value: Any, last: bool) -> Any:
        key = (v, last)
        if key not in self.turned:
            x = TABLE["permute"](value, (0, 2, 3, 1)) if last else value
            x = TABLE["clone"](x, memory_format="contiguous")
            self.turned[key] = TABLE["permute"](x, (0, 3, 1, 2)) if last else x
        return self.turned[key]

    def last(self, v: Var, value: Any) -> Any:
        """The value of v, channels last."""
        return value if is_channels_last(value.layout) else self.copy(v, value, True)

    def declared(self, v: Var, value: Any) -> Any:
        """The value of v as the graph declares it."""
        if value is None or same_layout(value.layout, v.layout):
            return value
        return self.copy(v, value, is_channels_last(v.layout))

    def step(self, node: Node, arguments: tuple) -> Any:
        if node in self.inside:
            self.values[node] = arguments
            if node not in self.found:
                return (None,) * len(node.outs)
            outs = (self.convolution(self.found[node]),)
        elif self.keeps(node, arguments):
            change = self.last if node.op.kind == "scalar" else lambda v, x: x
            outs = node.op(*both(node.arguments, arguments, self.like(node, change)))
        else:
            return node.op(*both(node.arguments, arguments, self.declared))
        outs = outs if isinstance(outs, tuple) else (outs,)
        leaves = self.old.output_set
        made = tuple(self.declared(v, x) if v in leaves else x for v, x in zip(node.outs, outs))
        return made if len(made) > 1 else made[0]

    def keeps(self, node: Node, arguments: tuple) -> bool:
        """Whether a node computes on an image as it lies now, and leaves it so."""
        if node.op.kind == "scalar":
            return any(moved(v, x) for v, x in pairs(node.arguments, arguments))
        return node.op.name in IMAGES and moved(node.arguments[0], arguments[0])

    def like(self, node: Node, change: Any) -> Any:
        """Operands as large as the result are turned over; others stay as declared."""
        shape = node.outs[0].shape

        def one(v: Var, value: Any) -> Any:
            whole = len(v.shape) == 4 and (node.op.kind != "scalar" or same_shape(v.shape, shape))
            return change(v, value) if whole else self.declared(v, value)

        return one

    def convolution(self, chain: Chain) -> Any:
        start = chain.start
        x, w, bias, stride, padding, dilation, _, _, groups = self.values[start]
        x = self.last(start.arguments[0], x)
        others = []
        for _, node, other, whole in chain.steps:
            if other is not None:
                at = node.arguments.index(other)
                value = self.values[node][at]
                others.append(self.last(other, value) if whole else self.declared(other, value))
        hint = sym.hint(start.arguments[0].shape[0])
        packed = TABLE["pack_convolution"](w, x, stride, padding, dilation, groups, hint)
        return TABLE["fused_convolution"](
            x, w, packed, bias, others, stride, padding, dilation, groups, hint, chain.text
        )


def moved(v: Any, value: Any) -> bool:
    """Whether an image lies channels last although it was not declared so."""
    if not isinstance(v, Var) or not is_channels_last(value.layout):
        return False
    return not same_layout(value.layout, v.layout)


def pairs(arguments: Any, values: Any) -> Any:
    """(variable, value) of all variables in a node's arguments."""
    for a, x in zip(arguments, values):
        if isinstance(a, Var):
            yield a, x
        elif isinstance(a, (tuple, list)):
            yield from pairs(a, x)


def both(arguments: Any, values: Any, change: Any) -> tuple:
    """The values, with those of variables changed: change(variable, value)."""
    return tuple(
        change(a, x)
        if isinstance(a, Var)
        else type(x)(both(a, x, change))
        if isinstance(a, (tuple, list))
        else x
        for a, x in zip(arguments, values)
    )
