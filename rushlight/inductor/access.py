"""Where loops touch memory: affine index expressions, and what follows when two of them meet in one
storage.

    Access(layout, space)     element i of the space lies at  offset + sum(stride[d] * i[d])

A kernel may write where it reads only if both are proved: every element is written at the very
place where it was read, or no place is touched by both. Offsets count from the start of the base.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from rushlight import sym
from rushlight.fx.graph import Var, same_size
from rushlight.ops.layouts import Layout

COUNTS = 1 << 30  # of a kernel's `serial`: it counts elements


class Access(NamedTuple):
    shape: tuple
    strides: tuple
    offset: Any

    def __str__(self) -> str:
        terms = [f"{s}*i{d}" for d, (n, s) in enumerate(zip(self.shape, self.strides)) if n != 1]
        return " + ".join([str(self.offset), *terms])


def access(plan: Any, x: Var, space: tuple | None = None) -> Access | None:
    """x's place in its base, over the space that it is broadcast to; None where its views say
    nothing affine."""
    base = plan.base(x)
    layout = Layout(base.shape, base.layout.strides, base.dtype)
    try:
        for view in plan.chain(x):
            layout = view.op.body(layout, *view.arguments[1:])
        if space is not None:
            layout = layout.expand(space)
    except RuntimeError:
        return None
    return Access(layout.shape, layout.strides, layout.offset)


def same_place(a: Access, b: Access) -> bool:
    """Whether element i of both is one place, for every i."""
    return (
        len(a.shape) == len(b.shape)
        and same_size(a.offset, b.offset)
        and all(
            same_size(m, n) and (n == 1 or same_size(s, t))
            for m, n, s, t in zip(a.shape, b.shape, a.strides, b.strides)
        )
    )


def one_to_one(a: Access) -> bool:
    """Whether no two elements share a place (sufficient: each stride steps over what is inside)."""
    reach: Any = 0
    pairs = [(n, s) for n, s in zip(a.shape, a.strides) if not (isinstance(n, int) and n == 1)]
    if any(isinstance(s, sym.Sym) or isinstance(n, sym.Sym) for n, s in pairs):
        ordered = sorted(pairs, key=lambda p: sym.hint(p[1]))
        inside: Any = 1
        for n, s in ordered:  # dense in some order: each stride is all that is inside
            if not same_size(s, inside):
                return False
            inside = n * inside
        return True
    for n, s in sorted(pairs, key=lambda p: abs(p[1])):
        if abs(s) <= reach:
            return False
        reach += abs(s) * (n - 1)
    return True


def disjoint(a: Access, b: Access) -> bool:
    """Whether no place is touched by both: ranges apart, or never equal modulo the strides'
    common divisor."""
    numbers = (a.offset, b.offset, *a.shape, *a.strides, *b.shape, *b.strides)
    if any(isinstance(n, sym.Sym) for n in numbers):
        return False
    low_a, high_a = ends(a)
    low_b, high_b = ends(b)
    if high_a < low_b or high_b < low_a:
        return True
    step = 0
    for x in (a, b):
        for n, s in zip(x.shape, x.strides):
            if n != 1:
                step = gcd(step, s)
    return step > 1 and (a.offset - b.offset) % step != 0


def ends(a: Access) -> tuple[int, int]:
    """The first and last place touched."""
    low = high = a.offset
    for n, s in zip(a.shape, a.strides):
        if n == 0:
            return 0, -1
        low, high = low + min(0, s * (n - 1)), high + max(0, s * (n - 1))
    return low, high


def why_not_written(plan: Any, low: Any, space: tuple, value: Var, target: Var) -> str | None:
    """Why the kernel may not write `value` where `target` lies; None: it may."""
    base = plan.base(target)
    write = access(plan, target)
    if write is None or not one_to_one(write):
        return f"{target.name} is not known to be one place an element"
    for i, read in enumerate(low.reads):
        if plan.base(read.var) != base:
            continue
        if read.strides is not None:
            return f"{read.var.name} is read at indices"
        seen = access(plan, read.var, space if not read.per_row else None)
        if seen is None:
            return f"{read.var.name} is no affine view"
        if disjoint(write, seen):
            continue
        if read.per_row or not same_place(write, seen):
            return f"element i is written at {write}, and {read.var.name} is read at {seen}"
        if low.serial & COUNTS:
            return "the kernel counts elements in an order of its own"
        if not read_before_written(low, f"x{i}", f"y{low.results.index(value)}"):
            return f"{read.var.name} is read again after {value.name} is written"
    return None


def read_before_written(low: Any, operand: str, result: str) -> bool:
    """Whether no pass over a row reads the operand after a pass that stores the result."""
    written = False
    for section in low.kernel.sections:
        values = [v for _, v in section.lets] + [v for _, _, v in section.folds]
        values += [s.value for s in section.stores]
        if written and any(loads(v, operand) for v in values):
            return False
        written = written or any(s.buffer == result for s in section.stores)
    return True


def loads(e: Any, buffer: str) -> bool:
    return getattr(e, "buffer", None) == buffer or any(loads(a, buffer) for a in e.args)
