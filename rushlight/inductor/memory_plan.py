"""One block of memory for everything that lives only inside a call. Takes steps with what they read
and make; gives each value a lifetime and a place in the block.

    members     values that share a place: results written over an operand that dies, pieces of a
                whole
    lifetime    from the step that first writes a member to the last that reads one
    offsets     the largest first, each at the lowest place that no value alive at the same time
                has; multiples of 64 bytes

Results of the graph have memory of their own, and so has what a call cannot be told to write to.
With symbolic sizes the lifetimes are fixed, and offsets are found for each set of sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rushlight import dtypes, sym
from rushlight.fx.graph import Var
from rushlight.runtime import native

LINE = 64  # bytes
SETS = 64  # of sizes, whose offsets a graph remembers


@dataclass(frozen=True)
class Place:
    """Where a value lies, at the sizes first seen; `first` and `last` are steps."""

    value: Var
    members: tuple[str, ...]
    bytes: int
    first: int
    last: int
    offset: int


@dataclass(frozen=True)
class MemoryPlan:
    places: tuple[Place, ...]
    total: int  # bytes of all results
    workspace: int  # bytes of the block
    peak: int  # bytes alive at once, at most: the block, and what has memory of its own

    def __str__(self) -> str:
        rows = [
            f"{p.offset:>12,} .. {p.offset + p.bytes:>12,}  steps {p.first}-{p.last}: "
            + ", ".join(p.members)
            for p in self.places
        ]
        head = (
            f"{self.total:,} bytes of results in all, at most {self.peak:,} alive at once; "
            f"{self.workspace:,} of them in the call's workspace, at these places:"
        )
        return "\n".join([head, *rows])


def size_of(x: Var) -> Any:
    """Bytes; symbolic where the shape is."""
    total: Any = dtypes.TABLE[x.dtype].itemsize
    for n in x.shape:
        total = total * n
    return total


class Lives:
    """The lifetime of each value's memory. `within`: a value -> the one whose memory it takes."""

    def __init__(
        self, steps: list[tuple[list[Var], list[Var]]], within: dict[Var, Var], kept: set[Var]
    ) -> None:
        self.within = within
        self.first: dict[Var, int] = {}
        self.last: dict[Var, int] = {}
        self.members: dict[Var, list[Var]] = {}
        for i, (reads, made) in enumerate(steps):
            for x in made:
                root = self.root(x)
                self.first.setdefault(root, i)
                self.members.setdefault(root, []).append(x)
            for x in (*reads, *made):
                root = self.root(x)
                self.last[root] = i
        self.kept = {self.root(x) for x in kept}

    def root(self, x: Var) -> Var:
        while x in self.within:
            x = self.within[x]
        return x


def plan_memory(lives: Lives, carved: set[Var], steps: int) -> MemoryPlan:
    """`carved`: the roots that the block may hold."""
    roots = [r for r in lives.members if r in carved and r not in lives.kept]
    spans = [(lives.first[r], lives.last[r]) for r in roots]
    sizes = [int(sym.hint(size_of(r))) for r in roots]
    offsets, workspace = assign_offsets(sizes, spans)
    places = tuple(
        Place(r, tuple(m.name for m in lives.members[r]), n, *span, at)
        for r, n, span, at in zip(roots, sizes, spans, offsets)
    )
    alone = {
        r: int(sym.hint(size_of(r)))
        for r, members in lives.members.items()
        if r not in carved or r in lives.kept
        if r in members  # else it is an input's
    }
    change = [0] * (steps + 1)  # of the bytes alive, at each step
    for r, n in alone.items():
        change[lives.first[r]] += n
        if r not in lives.kept:
            change[lives.last[r] + 1] -= n
    peak = max((*accumulate(change[:steps]), 0))
    total = sum(sizes) + sum(alone.values())
    return MemoryPlan(places, total, workspace, workspace + peak)


def assign_offsets(sizes: list[int], spans: list[tuple[int, int]]) -> tuple[list[int], int]:
    """(offset of each, bytes of the block)."""
    offsets, end = [0] * len(sizes), 0
    placed: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], spans[i])):
        first, last = spans[i]
        taken = sorted(
            (offsets[k], offsets[k] + sizes[k])
            for k in placed
            if spans[k][0] <= last and first <= spans[k][1] and sizes[k]
        )
        at = 0
        for low, high in taken:
            if at + sizes[i] <= low:
                break
            at = max(at, -(-high // LINE) * LINE)
        offsets[i] = at
        end = max(end, at + sizes[i])
        placed.append(i)
    return offsets, end


def fixed_places(plan: MemoryPlan) -> list[tuple]:
    """(offset, shape, strides, dtype) of each place; for a plan without symbolic sizes."""
    return [(p.offset, p.value.shape, p.value.layout.strides, p.value.dtype) for p in plan.places]


def workspace(plan: MemoryPlan, names: list[str]) -> Any:
    """What a program calls once: without sizes, or with the values of the symbols `names`; it
    gives a tensor for each place."""
    values = [p.value for p in plan.places]
    if not names:
        return native.workspace(plan.workspace, fixed_places(plan))
    spans = [(p.first, p.last) for p in plan.places]
    known: dict[tuple, Any] = {}

    def sized(*given: int) -> Any:
        made = known.get(given)
        if made is None:
            at = dict(zip(names, given))
            now = lambda n: n.evaluate(at) if isinstance(n, sym.Sym) else n
            sizes = [now(size_of(v)) for v in values]
            offsets, end = assign_offsets(sizes, spans)
            made = native.workspace(
                end,
                [
                    (o, tuple(map(now, v.shape)), tuple(map(now, v.layout.strides)), v.dtype)
                    for o, v in zip(offsets, values)
                ],
            )
            if len(known) >= SETS:
                known.pop(next(iter(known)))
            known[given] = made
        return made()

    return sized
