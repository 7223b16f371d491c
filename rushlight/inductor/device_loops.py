"""The numbers of a GPU kernel's call, as the runtime will find them: loops merged, sorted, fitted.

The same rules as csrc/rt/loops.cpp and space.cpp, on a group's layouts, so that sizes and strides
can be constants of a compiled kernel. Its conditions ask that they are: a difference between the
two would be an error, not a wrong result; a test holds them equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rushlight import sym
from rushlight.ops.layouts import Layout

from .groups import Group
from .lowering import Lowered, spread


class Loop(NamedTuple):
    size: int
    strides: tuple[int, ...]  # of each buffer, in elements
    counter: int  # of the element counter


@dataclass(frozen=True)
class Numbers:
    """`values` as csrc/rt/kernels.h lays them out; `known`: no size or stride of them varies."""

    values: list[int]
    known: bool


def numbers_of(group: Group, low: Lowered) -> Numbers | None:
    """None where the call has more loops than the kernel has axes, or no element: the kernel must
    then take what comes."""
    layouts = [spread(group, r.layout, r.per_row) for r in low.reads]
    layouts += [spread(group, out.layout, out in group.per_row) for out in low.results]
    known = not any(
        isinstance(n, sym.Sym) for x in layouts for n in (*x.shape, *x.strides, *group.space)
    )
    space = [sym.hint(n) for n in group.space]
    if 0 in space:
        return None
    loops = loops_of(space, layouts, bool(low.serial))
    rows = group.rows if group.has_rows else ()
    outer = [x for d, x in enumerate(loops) if d not in rows]
    inner = [x for d, x in enumerate(loops) if d in rows]
    outer = merged(ordered(outer, importance(low)))
    inner = merged(inner)
    kernel = low.kernel
    if len(outer) > len(kernel.outer) or len(inner) > len(kernel.inner):
        return None
    return Numbers(laid_out(kernel, outer, inner, len(layouts)), known)


def loops_of(space: list[int], layouts: list[Layout], counts: bool) -> list[Loop]:
    """One loop a dim of the space. Strides of dims of one step, and of broadcast ones, are 0."""
    found: list[Loop] = []
    position = 1
    for d in range(len(space) - 1, -1, -1):
        strides = tuple(0 if x.shape[d] == 1 else sym.hint(x.strides[d]) for x in layouts)
        found.insert(0, Loop(space[d], strides, position if counts else 0))
        position *= space[d]
    return found


def importance(low: Lowered) -> list[int]:
    """The buffers whose strides decide the order of loops, the first first."""
    reads, results = range(len(low.reads)), range(len(low.reads), len(low.kernel.buffers))
    full = [i for i in reads if low.in_kinds[i] == "F"]
    single = [i for i in reads if low.in_kinds[i] == "P"]
    if low.rule == "rows":
        return [*full, *results, *single]
    return [*results, *full, *single]


def ordered(loops: list[Loop], buffers: list[int]) -> list[Loop]:
    """PyTorch's order of dims, outermost first. Strides of 0 decide nothing, ties keep C order."""
    count = len(loops)
    perm = list(range(count - 1, -1, -1))

    def compare(first: int, second: int) -> int:
        for b in buffers:
            one, other = abs(loops[first].strides[b]), abs(loops[second].strides[b])
            if one == 0 or other == 0:
                continue
            if one != other:
                return -1 if one < other else 1
            if loops[first].size > loops[second].size:
                return 1
        return 0

    for i in range(1, count):
        at = i
        for j in range(i - 1, -1, -1):
            order = compare(perm[j], perm[at])
            if order < 0:
                break
            if order > 0:
                perm[j], perm[at] = perm[at], perm[j]
                at = j
    return [loops[d] for d in reversed(perm)]


def merged(loops: list[Loop]) -> list[Loop]:
    """Loops of one step dropped; neighbours that every buffer walks as one, joined."""
    kept: list[Loop] = []
    for x in loops:
        if x.size == 1:
            continue
        if kept and joins(kept[-1], x):
            kept[-1] = x._replace(size=kept[-1].size * x.size)
        else:
            kept.append(x)
    return kept


def joins(outer: Loop, inner: Loop) -> bool:
    return outer.counter == inner.counter * inner.size and all(
        a == b * inner.size for a, b in zip(outer.strides, inner.strides)
    )


def laid_out(kernel: Any, outer: list[Loop], inner: list[Loop], buffers: int) -> list[int]:
    one = Loop(1, (0,) * buffers, 0)
    axes = [one] * (len(kernel.outer) - len(outer)) + outer
    axes += [one] * (len(kernel.inner) - len(inner)) + inner
    values = [x.size for x in axes]
    for b in range(buffers):
        values += [x.strides[b] for x in axes]
    return [*values, *(x.counter for x in axes), 0]
