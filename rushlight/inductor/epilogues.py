"""Library calls that take along what follows them: a product and the pointwise operators behind it
become one call of the library, whose primitives apply them before a result is stored.

Takes a graph whose compositions are expanded; gives the graph with `product` where that holds, and
the reasons where it does not. A chain is followed from a product through values that nobody else
reads: views, activations, and sums and products with a tensor of the result's shape or with one
number a column. Weights that come as inputs of a graph without gradients are packed beside
(`pack_weight`, runtime/packing.py). Invariant: the same values up to the bound of library calls
(docs/compile.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rushlight import sym
from rushlight.fx.graph import ATTRIBUTE, CALL, PLACEHOLDER, Graph, Node, Var, same_size
from rushlight.fx.tracing import retrace
from rushlight.ops.fused import MOST, OPERANDS
from rushlight.ops.values import TABLE
from rushlight.reasons import Reason, refuse
from rushlight.runtime import native

ALONE = {"relu": "relu", "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh"}
WITH = {"add": "add", "mul": "mul"}
HALVES = ("bfloat16",)  # float16 products are another library form on few processors
LARGEST = 64 << 20  # bytes of a packed weight: it is a second copy, and large ones gain least
WORK = 1 << 18  # multiply-adds: below, a call of OpenBLAS costs less than one of oneDNN


@dataclass
class Chain:
    """A product and what follows it. `steps`: (name, the node that is it, other operand or None,
    whether that has the result's shape)."""

    start: Node
    nodes: list[Node] = field(default_factory=list)  # behind the start, views included
    steps: list[tuple] = field(default_factory=list)

    @property
    def end(self) -> Node:
        return self.nodes[-1] if self.nodes else self.start

    @property
    def text(self) -> str:
        return ",".join(name for name, *_ in self.steps)


def step_of(node: Node, v: Var, columns: Any) -> tuple | str | None:
    """(name, other, whole) of a node that does something to v, "view", or None where it is no
    step. `columns`: how many numbers a result's row has."""
    out, op = node.outs[0], node.op.name
    if op == "view":
        return "view"
    if len(node.outs) != 1 or out.dtype != v.dtype or not out.layout.contiguous:
        return None
    if op == "gelu" and node.arguments[1] == "tanh":
        return ("gelu_tanh", None, False)
    if op in ALONE:
        return (ALONE[op], None, False)
    if op not in WITH:
        return None
    x, y, *rest = node.arguments
    other = y if x is v or x == v else x
    if not isinstance(other, Var) or other == v or other.dtype != v.dtype or rest not in ([], [1]):
        return None
    if not other.layout.contiguous or not same_shape(out.shape, v.shape):
        return None
    if same_shape(other.shape, v.shape):
        return (WITH[op], other, True)
    row = len(other.shape) == 1 and same_size(other.shape[0], columns)
    return (WITH[op], other, False) if row and same_size(v.shape[-1], columns) else None


def same_shape(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(map(same_size, a, b))


def follow(
    graph: Graph, start: Node, columns: Any, inside: set[Node], reasons: list[Reason]
) -> Chain:
    """The longest chain from a product; views at its end stay outside. Nodes `inside` are another
    chain's: of a sum of two products only one takes the sum along."""
    chain, views, v = Chain(start), [], start.outs[0]
    extras = 0
    while v not in graph.output_set and len(graph.users[v]) == 1:
        (node,) = graph.users[v]
        if node.kind != CALL or node in inside:
            break
        step = step_of(node, v, columns)
        if step is None:
            if node.op.kind == "scalar":
                reasons.append(why_not(node, start))
            break
        if step == "view":
            views.append(node)
        else:
            extras += step[1] is not None
            if len(chain.steps) == MOST or extras > OPERANDS:
                break
            chain.nodes += [*views, node]
            chain.steps.append((step[0], node, *step[1:]))
            views = []
        v = node.outs[0]
    return chain


def why_not(node: Node, start: Node) -> Reason:
    return refuse(
        "epilogue.step",
        f"{node.op.name} after {start.op.name}",
        "the library has no such step, or not with an operand of this shape, dtype or strides",
        where=node.where or None,
    )


def products(graph: Graph, frozen: bool, reasons: list[Reason]) -> dict[Node, tuple]:
    """What becomes of each product: by its last node, (chain, weight, turned, bytes packed)."""
    found: dict[Node, tuple] = {}
    inside: set[Node] = set()
    given = {n.outs[0] for n in graph.nodes if n.kind in (PLACEHOLDER, ATTRIBUTE)}
    for node in graph.calls:
        if node.op.name not in ("mm", "addmm"):
            continue
        bias, x, y = node.arguments[:3] if node.op.name == "addmm" else (None, *node.arguments[:2])
        maker = graph.makers[y]
        turned = maker.kind == CALL and maker.op.name == "transpose" and len(y.shape) == 2
        weight = maker.arguments[0] if turned else y
        if not turned and across(y):
            turned, weight = True, None  # nobody has the matrix that it is the transpose of
        if unfit(node, x, weight, bias):
            continue
        k, n = y.shape
        if sym.hint(x.shape[0]) * sym.hint(k) * sym.hint(n) < WORK:
            continue
        fixed = all(isinstance(size, int) for size in y.shape)
        size = native.packed_bytes(x.dtype, k, n) if fixed else 0
        if size < 0 or x.dtype in HALVES and size <= 0:
            continue  # no library, or none for this type on this processor
        chain = follow(graph, node, n, inside, reasons)
        packs = frozen and size > 0 and weight in given
        if packs and size > LARGEST:
            packs = False
            why = f"packed it would take {size >> 20} MB once more"
            reasons.append(refuse("packing.stays", str(weight), why, where=node.where or None))
        if chain.steps or packs:
            inside.update((node, *chain.nodes))
            found[chain.end] = (chain, weight, turned, size if packs else 0)
    return found


def across(y: Var) -> bool:
    """Whether a matrix lies column by column, without gaps."""
    return not y.layout.contiguous and y.layout.permute((1, 0)).contiguous


def unfit(node: Node, x: Var, weight: Var | None, bias: Any) -> bool:
    """Whether a product is none that `product` takes: it is a library call of its own then."""
    if x.layout.device != "cpu" or x.dtype not in ("float32", *HALVES) or len(x.shape) != 2:
        return True
    if not x.layout.contiguous or not (weight is None or weight.layout.contiguous):
        return True
    if bias is None:
        return False
    row = isinstance(bias, Var) and same_shape(bias.shape, node.outs[0].shape[1:])
    return not (row and bias.layout.contiguous and set(node.arguments[3:]) <= {1})


def take_along(graph: Graph, frozen: bool = False) -> tuple[Graph, list[Reason]]:
    """The graph with library calls that take along what follows them. `frozen`: it has no
    gradients, so that weights among its inputs are likely to come again unchanged."""
    reasons: list[Reason] = []
    found = products(graph, frozen, reasons)
    if not found:
        return graph, reasons
    inside = {n for chain, *_ in found.values() for n in (chain.start, *chain.nodes)}
    values: dict[Node, tuple] = {}  # the arguments of nodes that are inside, or make a weight
    packed: dict[Any, Any] = {}

    def step(node: Node, arguments: tuple) -> Any:
        values[node] = arguments
        if node in found:
            return fused(*found[node])
        if node in inside:
            return (None,) * len(node.outs)
        return node.op(*arguments)

    def fused(chain: Chain, weight: Var | None, turned: bool, size: int) -> Any:
        given = values[chain.start]
        bias, x, y = given[:3] if chain.start.op.name == "addmm" else (None, *given[:2])
        maker = graph.makers[chain.start.arguments[index_of(chain.start)]]
        w = y
        if turned:
            w = TABLE["transpose"](y, 0, 1) if weight is None else values[maker][0]
        others = []
        for _, node, other, whole in chain.steps:
            if other is None:
                continue
            at = 0 if node.arguments[0] == other else 1
            value = values[node][at]
            if whole and len(other.shape) != 2:
                value = TABLE["view"](value, tuple(chain.start.outs[0].shape))
            others.append(value)
        beside = None
        if size:
            if (weight, turned) not in packed:
                packed[weight, turned] = TABLE["pack_weight"](w, turned, size)
            beside = packed[weight, turned]
        out = TABLE["product"](x, w, beside, bias, others, turned, chain.text)
        shape = tuple(chain.end.outs[0].shape)
        return out if len(shape) == 2 else TABLE["view"](out, shape)

    return retrace(graph, step=step), reasons


def index_of(node: Node) -> int:
    """Which argument of a product is its right operand."""
    return 2 if node.op.name == "addmm" else 1
