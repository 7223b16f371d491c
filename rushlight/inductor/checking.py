"""Compiled code held against the operators one by one: `rl.compile(f, check=True)`.

    compare(got, want)              where two results differ by more than the numerics contract
    first_difference(graph, values) the first node whose compiled value is wrong, and by how much

A value is wrong when it is much farther from float64's than the operators' own value is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rushlight import dtypes
from rushlight.fx.graph import CALL, OUTPUT, Graph, Node
from rushlight.fx.interpreter import run
from rushlight.fx.rewrite import remove_dead_code

FACTOR, STEPS = 4, 64  # how much farther than the operators' value; how many steps always pass


class Difference(NamedTuple):
    what: str
    place: tuple[int, ...]
    got: float
    want: float
    maximum: float  # of |got - want|
    steps: float  # the same in steps of the dtype at that size

    def __str__(self) -> str:
        return (
            f"{self.what} differs: at {list(self.place)} it is {self.got!r} where the operators "
            f"give {self.want!r}; at most {self.maximum:.3g} apart, {self.steps:.3g} ulp"
        )


def compare(what: str, got: Any, want: Any, exact: Any = None) -> Difference | None:
    """`exact`: the same value computed in float64, where it is known."""
    if tuple(got.shape) != tuple(want.shape) or got.dtype is not want.dtype:
        return Difference(
            f"{what} ({got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)})",
            (), math.nan, math.nan, math.inf, math.inf,
        )  # fmt: skip
    a, b = numbers(got), numbers(want)
    if not a:
        return None
    name = want.dtype.name
    if name not in dtypes.EPSILON:
        wrong = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
        return report(what, want, a, b, wrong, 1.0) if wrong else None
    ideal = b if exact is None else numbers(exact)
    finite = [abs(y) for y in (*b, *ideal) if math.isfinite(y)]
    size = max(finite, default=0.0)
    theirs = max((abs(y - z) for y, z in zip(b, ideal) if math.isfinite(y - z)), default=0.0)
    bound = FACTOR * theirs + STEPS * dtypes.EPSILON[name] * size
    wrong = [
        i
        for i, (x, y, z) in enumerate(zip(a, b, ideal))
        if x != y and not (math.isnan(x) and math.isnan(y)) and not abs(x - z) <= bound
    ]
    return report(what, want, a, b, wrong, dtypes.EPSILON[name]) if wrong else None


def numbers(x: Any) -> list[float]:
    flat = x.detach().reshape((-1,))
    return list(flat.tolist())


def report(what: str, x: Any, a: list, b: list, wrong: list[int], step: float) -> Difference:
    def gap(i: int) -> float:
        d = abs(a[i] - b[i])
        return d if math.isfinite(d) else math.inf

    at = max(wrong, key=gap)
    place, rest = [], at
    for n in reversed(tuple(x.shape)):
        place.append(rest % n)
        rest //= n
    scale = step * max(abs(b[at]) if math.isfinite(b[at]) else 0.0, 1e-300)
    return Difference(what, tuple(place[::-1]), a[at], b[at], gap(at), gap(at) / scale)


def first_difference(graph: Graph, values: tuple, compile: Any) -> Difference | None:
    """The first call of the graph that `compile(part)(*values)` gets wrong, by halving; `compile`
    takes the graph's part that ends there."""
    kept: dict[str, Any] = {}
    run(graph, *values, step=keeping(kept, lambda v: v))
    exact: dict[str, Any] = {}
    try:
        wide = tuple(v.to(wider(v)) if hasattr(v, "data_ptr") else v for v in values)
        run(graph, *wide, step=keeping(exact, lambda v: v))
    except (RuntimeError, TypeError, NotImplementedError, IndexError):
        exact = {}
    calls = [n for n in graph.calls if n.outs[0].name in kept]

    def difference(node: Node) -> Difference | None:
        out = node.outs[0]
        part = remove_dead_code(
            graph.with_nodes([*graph.nodes[:-1], Node(OUTPUT, "output", (out,))])
        )
        got = compile(part)(*values)
        what = f"{out.name} = {node.op.name}(...)" + (f" at {node.where}" if node.where else "")
        return compare(what, got, kept[out.name], exact.get(out.name))

    low, high, found = 0, len(calls) - 1, None
    if not calls or (found := difference(calls[high])) is None:
        for node in calls:  # it does not show at the end: look everywhere
            if (found := difference(node)) is not None:
                return found
        return None
    while low < high:
        middle = (low + high) // 2
        here = difference(calls[middle])
        if here is None:
            low = middle + 1
        else:
            high, found = middle, here
    return found


def keeping(kept: dict[str, Any], change: Any) -> Any:
    from rushlight.fx.interpreter import call

    def step(node: Node, arguments: tuple) -> Any:
        outs = call(node, arguments)
        if node.kind == CALL:
            for v, out in zip(node.outs, outs if isinstance(outs, tuple) else (outs,)):
                kept[v.name] = change(out)
        return outs

    return step


def wider(x: Any) -> Any:
    """float64 for floating tensors; others keep their dtype."""
    from rushlight.runtime import native

    return native.dtype("float64" if dtypes.is_floating(x.dtype.name) else x.dtype.name)


__all__ = ["Difference", "compare", "first_difference"]
