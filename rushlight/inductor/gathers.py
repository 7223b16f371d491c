"""Operators that fetch at indices (rows of a table, x[index, ...]) as loads of a kernel: the
result's element i lies in the table at a plain address, plus for each index tensor

    index[i] * stride of the dim that it indexes

Takes a graph's node; gives its operands as views over the result's space and how the indices are
read, or None where the node is no such operator. The table's own values are read at other places
than the element's own, so the table must be whole before the kernel starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.fx.graph import Node, Var
from rushlight.ops.indexing import indexed_shape


class Pick(NamedTuple):
    """An index tensor: `dims` are the result's dims that its own dims lie along; `stride` and
    `extent` those of the dim that it indexes; `wraps`: negative ones count from the end."""

    index: Var
    dims: tuple[int, ...]
    stride: Any
    extent: Any
    wraps: bool


class Gather(NamedTuple):
    table: Var
    strides: tuple  # of the table over the result's dims, without what the indices add
    picks: tuple[Pick, ...]


def gather_of(node: Node) -> Gather | None:
    rule = RULES.get(node.op.name)
    if any(v.layout.device != "cpu" for v in (*node.reads, *node.outs)):
        return None  # nobody there tells of an index outside
    return rule(node) if rule is not None else None


def embedding(node: Node) -> Gather | None:
    weight, indices = node.arguments[:2]
    if weight.rank != 2:
        return None
    strides = (0,) * indices.rank + weight.layout.strides[1:]
    pick = Pick(
        indices, tuple(range(indices.rank)), weight.layout.strides[0], weight.shape[0], False
    )
    return Gather(weight, strides, (pick,))


def index_select(node: Node) -> Gather | None:
    x, dim, index = node.arguments
    if x.rank == 0 or index.rank != 1:
        return None
    dim %= x.rank
    strides = tuple(0 if d == dim else s for d, s in enumerate(x.layout.strides))
    return Gather(x, strides, (Pick(index, (dim,), x.layout.strides[dim], x.shape[dim], True),))


def index(node: Node) -> Gather | None:
    x, indices, dims = node.arguments
    if any(x.shape[d] == 0 for d in dims):
        return None
    side = dims[-1] - dims[0] + 1 == len(dims)  # neighbours: the indices' shape stands there
    at = dims[0] if side else 0
    common = node.outs[0].rank - (x.rank - len(dims))
    rest = [s for d, s in enumerate(x.layout.strides) if d not in dims]
    strides = (*rest[:at], *(0,) * common, *rest[at:])
    assert len(indexed_shape(x.shape, indices, dims)) == len(strides)
    picks = tuple(
        Pick(
            i,
            tuple(range(at + common - i.rank, at + common)),
            x.layout.strides[d],
            x.shape[d],
            True,
        )
        for i, d in zip(indices, dims)
    )
    return Gather(x, strides, picks)


RULES = {"embedding": embedding, "index_select": index_select, "index": index}
