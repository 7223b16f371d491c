"""When each result's memory is free again. Takes instructions on registers; gives lifetimes and
the peak.

The runtime drops a register after its last use, and the caching allocator hands its block to the
next result of the size: that is the reuse. The plan says which block each result gets, and what
the graph needs at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rushlight import dtypes, sym
from rushlight.fx.graph import Var


@dataclass
class Block:
    bytes: int
    users: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MemoryPlan:
    blocks: tuple[Block, ...]
    total: int  # bytes of all results
    peak: int  # bytes of the blocks that hold them

    def __str__(self) -> str:
        rows = [f"{b.bytes:>12,} bytes: {', '.join(b.users)}" for b in self.blocks]
        return "\n".join([f"results {self.total:,} bytes, in blocks of {self.peak:,}", *rows])


def size_of(x: Var) -> int:
    """Bytes, at the sizes first seen."""
    total = dtypes.TABLE[x.dtype].itemsize
    for n in x.shape:
        total *= sym.hint(n)
    return total


def plan_memory(
    steps: list[tuple[list[Var], list[Var]]], kept: set[Var], shared: dict[Var, Var]
) -> MemoryPlan:
    """`steps`: (bases read, bases made) in order; `kept`: bases that outlive the graph; `shared`:
    results written over another base."""
    last = {x: i for i, (reads, made) in enumerate(steps) for x in (*reads, *made)}
    blocks: list[Block] = []
    free: list[Block] = []
    held: dict[Var, Block] = {}
    for i, (reads, made) in enumerate(steps):
        for x in made:
            if x in shared:
                if shared[x] in held:  # else it is an input's memory
                    held[x] = held.pop(shared[x])
                    held[x].users.append(x.name)
                continue
            need = size_of(x)
            fitting = [b for b in free if b.bytes >= need]
            block = min(fitting, key=lambda b: b.bytes) if fitting and x not in kept else None
            if block is None:
                block = Block(need)
                blocks.append(block)
            else:
                free.remove(block)
            block.users.append(x.name)
            held[x] = block
        for x in dict.fromkeys([*reads, *made]):
            if last[x] == i and x in held and x not in kept:
                free.append(held[x])
    return MemoryPlan(tuple(blocks), sum(map(size_of, held)), sum(b.bytes for b in blocks))
