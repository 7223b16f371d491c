"""What forward keeps for backward, and what backward computes again: a minimum cut.

Takes the values that backward reads and the forward calls that lead to them; gives the values to
save. Every value is an edge as wide as its bytes; a cheap call is one that backward may repeat, so
that what it is made of does in its place; everything else can only be saved. The cut with the
fewest bytes wins, and of equals the one that repeats least.

An input or a result that no derivative reads is not saved in place of one that is: the program may
write to it in the meantime, as in eager mode.

Repeated calls give the bits they gave before: pointwise arithmetic does not depend on what it is
fused with (but for half types, which are repeated only where nothing rounds), and random numbers
are drawn from the same counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rushlight import dtypes, sym
from rushlight.fx.graph import CALL, Graph, Node, Var

CHEAP = 4  # `cost` of a pointwise operator that is read back more slowly than computed again
ALIVE = 0.5  # weight of what is alive anyway: inputs, and what the function returns
ENDLESS = float("inf")
HALVES = ("float16", "bfloat16")
# Of operands of the same dtype they give one of those, its negative, or zero.
UNROUNDED = ("relu", "neg", "abs", "maximum", "minimum", "where", "clone", "positive", "alias")


def repeatable(node: Node) -> bool:
    """Whether backward may make the call again, and has the very value then: kernels compute half
    types in float32, so only what is never rounded has one value in two kernels."""
    op = node.op
    if op.kind == "view":
        return True
    if any(v.dtype in HALVES for v in node.outs) and op.name not in UNROUNDED:
        return False
    return op.kind == "scalar" and op.cost <= CHEAP


def size_of(x: Var) -> int:
    total = dtypes.TABLE[x.dtype].itemsize
    for n in x.shape:
        total *= sym.hint(n)
    return total


def choose_saved(graph: Graph, read: list[Var], outputs: list[Var]) -> list[Var]:
    """The values to save, in the order in which they are made."""
    flow, seen = Flow(), set()
    source, sink = "source", "sink"
    alive, wanted = {*graph.inputs, *outputs}, set(read)
    makers = graph.makers
    stack = list(dict.fromkeys(read))
    for v in stack:
        flow.edge((v, 1), sink, ENDLESS)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        width = size_of(v) * (ALIVE if v in alive else 1) + 1
        flow.edge((v, 0), (v, 1), ENDLESS if v in alive and v not in wanted else width)
        node = makers[v]
        if node.kind != CALL or not repeatable(node) or not node.reads:
            flow.edge(source, (v, 0), ENDLESS)
            continue
        for u in node.reads:
            flow.edge((u, 1), (v, 0), ENDLESS)
            stack.append(u)
    behind = flow.cut(source, sink)
    saved = {v for v in seen if (v, 1) in behind and (v, 0) not in behind}
    return [o for n in graph.nodes for o in n.outs if o in saved]


def repeated_calls(graph: Graph, read: list[Var], saved: Sequence[Var]) -> list[Node]:
    """The forward calls that backward makes again to have what it reads, in order."""
    have, needed = set(saved), {v for v in read}
    found = []
    for node in reversed(graph.calls):
        if any(o in needed and o not in have for o in node.outs):
            found.append(node)
            needed.update(node.reads)
    return found[::-1]


class Flow:
    """A network, and its minimum cut (shortest augmenting paths)."""

    def __init__(self) -> None:
        self.room: dict = {}  # from -> {to: capacity left}

    def edge(self, a: object, b: object, capacity: float) -> None:
        out = self.room.setdefault(a, {})
        out[b] = out.get(b, 0) + capacity
        self.room.setdefault(b, {}).setdefault(a, 0)

    def path(self, source: object, sink: object) -> list | None:
        came: dict = {source: None}
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for b, left in self.room.get(a, {}).items():
                if left > 0 and b not in came:
                    came[b] = a
                    if b == sink:
                        steps = [b]
                        while steps[-1] != source:
                            steps.append(came[steps[-1]])
                        return steps[::-1]
                    queue.append(b)
        return None

    def cut(self, source: object, sink: object) -> set:
        """What lies on the sink's side of the minimum cut that is nearest to the sink."""
        while (steps := self.path(source, sink)) is not None:
            pairs = list(zip(steps, steps[1:]))
            amount = min(self.room[a][b] for a, b in pairs)
            if amount == ENDLESS:  # a read value that nothing may cut: cannot happen
                raise AssertionError("the network has no finite cut")
            for a, b in pairs:
                self.room[a][b] -= amount
                self.room[b][a] += amount
        reach, stack = {sink}, [sink]
        into: dict = {}
        for a, out in self.room.items():
            for b, left in out.items():
                if left > 0:
                    into.setdefault(b, []).append(a)
        while stack:
            for a in into.get(stack.pop(), ()):
                if a not in reach:
                    reach.add(a)
                    stack.append(a)
        return reach


__all__ = ["choose_saved", "repeated_calls"]
