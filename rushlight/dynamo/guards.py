"""Guards: what a capture assumed, as checks over sources.

`compile_guards` gives the native evaluator and keeps, in the same order, a `Guard` for each check,
so that a failing index says what was expected, what was seen and which line had read it.
"""

from __future__ import annotations

from typing import Any

from rushlight import _core, sym

from .sources import Source


class Guard:
    """`kind` of check, the source, what was expected, and the user's line that read it."""

    __slots__ = ("kind", "payload", "source", "where")

    def __init__(self, kind: str, source: Source | None, payload: Any, where: str) -> None:
        self.kind, self.source, self.payload, self.where = kind, source, payload, where

    @property
    def text(self) -> str:
        """The assumption as an expression."""
        name = self.source.name if self.source is not None else ""
        p = self.payload
        if self.kind == "tensor":
            cls, dtype, _, grad, sizes, strides, _, device = p
            shape = ", ".join("?" if n is None else str(n) for n in sizes)
            more = "" if strides is None else f", strides {list(strides)}"
            flag = ", requires_grad" if grad else ""
            there = "" if device.type == "cpu" else f" on {device}"
            return f"{name} is {cls.__name__} {dtype.name}[{shape}]{more}{flag}{there}"
        if self.kind in ("is", "none", "isnot"):
            return f"{name} is {'not ' if self.kind == 'isnot' else ''}{short(p)}"
        if self.kind == "type":
            return f"type({name}) is {p.__name__}"
        if self.kind == "eq":
            return f"{name} == {p!r}"
        if self.kind == "len":
            return f"len({name}) == {p}"
        if self.kind == "keys":
            return f"list({name}) == {list(map(short, p))}"
        if self.kind == "absent":
            return f"{p!r} not in {name}"
        if self.kind == "mode":
            return f"grad mode is {'on' if p & 1 else 'off'}"
        if self.kind == "alias":
            return " is ".join(s.name for s in p)
        if self.kind == "distinct":
            return f"{', '.join(s.name for s in p)} are different objects"
        if self.kind == "ints":
            return f"type({name}) is int"
        if self.kind == "float":
            return f"type({name}) is float"
        if self.kind == "shape":
            return p[0]
        return f"{self.kind}({name}, {short(p)})"

    def __repr__(self) -> str:
        return f"{self.text}    # {self.where}" if self.where else self.text


def short(value: Any) -> str:
    if isinstance(value, (str, int, float, bool, type(None))):
        return repr(value)
    return (
        getattr(value, "__qualname__", None)
        or getattr(value, "__name__", None)
        or f"<{type(value).__name__}>"
    )


# The kinds in the order of the checks.
ORDER = ("mode", "tensor", "isnot", "is", "none", "type", "eq", "ints", "float", "len", "keys")
RANK = {kind: rank for rank, kind in enumerate(ORDER)}


class Table:
    """Sources numbered with parents before children."""

    def __init__(self) -> None:
        self.rows: list[tuple] = []
        self.index: dict[Source, int] = {}

    def add(self, source: Source | None) -> int:
        if source is None:
            return -1
        found = self.index.get(source)
        if found is None:
            parent = self.add(source.parent)
            found = self.index[source] = len(self.rows)
            self.rows.append((source.op, parent, source.key))
        return found


def ordered(guards: list[Guard]) -> list[Guard]:
    """A check stands behind those of what its source is reached through."""
    guards = [g for g in guards if g.kind != "shape"] + [g for g in guards if g.kind == "shape"]
    by_source: dict[Any, list[Guard]] = {}
    for g in guards:
        by_source.setdefault(g.source, []).append(g)
    out: list[Guard] = []
    placed: set[int] = set()
    walked: set[Source] = set()

    def place(source: Source | None) -> None:
        if source in walked:
            return
        if source is not None:
            walked.add(source)
            if source.parent is not None:
                place(source.parent)
        mine = by_source.get(source, ())
        for g in sorted(mine, key=lambda g: RANK.get(g.kind, 99)) if len(mine) > 1 else mine:
            if id(g) not in placed:
                placed.add(id(g))
                out.append(g)

    late = [g for g in guards if g.kind in ("alias", "distinct", "shape")]
    placed.update(map(id, late))
    for g in guards:
        place(g.source)
    return out + late


def program(
    relation: str, left: Any, right: Any, answer: bool, table: Table, symbols: dict, env: Any
) -> tuple:
    """A relation of polynomials as a postfix program over sizes and ints of sources."""
    code: list[Any] = []

    def emit(expr: Any) -> None:
        if not isinstance(expr, sym.Sym):
            code.append(int(expr))
            return
        first = True
        for names, coefficient in expr.terms.items():
            code.append(coefficient)
            for name in names:
                if name in symbols:
                    kind, source, *dim = symbols[name]
                    at = table.add(source)
                    code.append(("size", at, dim[0]) if kind == "size" else ("int", at))
                else:
                    top, bottom = env.quotients[name]
                    emit(top)
                    emit(bottom)
                    code.append("//")
                code.append("*")
            if not first:
                code.append("+")
            first = False

    emit(left)
    emit(right)
    code.append(relation)
    if not answer:
        code.append("not")
    return tuple(code)


def compile_guards(
    guards: list[Guard], symbols: dict, env: Any
) -> tuple[Any, list[Guard], dict[Source, int]]:
    """(the evaluator, the guards in the order of its checks, the numbers of its sources)."""
    table = Table()
    listed = ordered(guards)
    checks: list[Any] = []
    for g in listed:
        if g.kind == "alias":
            checks.append((g.kind, -1, tuple(table.add(s) for s in g.payload)))
        elif g.kind == "distinct":
            a, b = (table.add(s.child("call", id)) for s in g.payload)
            checks.append(("shape", -1, (("int", a), ("int", b), "!=")))
        elif g.kind == "shape":
            _, relation, left, right, answer = g.payload
            checks.append(
                ("shape", -1, program(relation, left, right, answer, table, symbols, env))
            )
        else:
            checks.append((g.kind, table.add(g.source), g.payload))
    return _core.Guards(tuple(table.rows), tuple(checks)), listed, table.index
