"""Printed graph -> the same graph. Layouts of results are found again by the layout rules, so
the text is checked as it is read: an annotation that the rule does not give is an error.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from rushlight import dtypes, sym
from rushlight.errors import UserError
from rushlight.ops.layouts import Layout, dense
from rushlight.ops.values import TABLE

from .graph import ATTRIBUTE, CALL, OUTPUT, PLACEHOLDER, Graph, Node, Origin, Var
from .printing import annotation

DTYPES = {d.short: d.name for d in dtypes.TABLE.values()}


def parse(text: str, constants: dict | None = None) -> Graph:
    """Raises UserError that quotes the line that cannot be read."""
    return Parser(text, constants or {}).graph()


class Parser:
    def __init__(self, text: str, constants: dict) -> None:
        self.text, self.rows, self.constants = text, text.splitlines(), constants
        self.env, self.known, self.nodes = sym.ShapeEnv(), {}, []
        self.guards: list = []
        self.made_by, self.milliseconds = "", 0.0

    def graph(self) -> Graph:
        for row in self.rows:
            if row.startswith("# "):
                self.header(row[2:])
        try:
            return self.read(ast.parse(self.text))
        except (SyntaxError, AttributeError, KeyError, IndexError, RecursionError) as error:
            raise UserError(
                "fx.parse", f"not the text of a graph: {error}", kind=ValueError
            ) from None

    def read(self, module: Any) -> Graph:
        definition = module.body[0]
        for given in definition.args.args:
            layout = self.layout(given.annotation)
            self.add(PLACEHOLDER, given.arg, (), (self.var(given.arg, layout),), ())
        numbers = tuple(given.arg for given in definition.args.kwonlyargs)
        for statement in definition.body:
            self.statement(statement)
        self.env.guards[:] = self.guards
        return Graph(
            definition.name,
            tuple(self.nodes),
            self.env,
            self.constants,
            self.made_by,
            self.milliseconds,
            numbers,
        )

    def header(self, row: str) -> None:
        if row.startswith("guard: "):
            question, answer = row[7:].rsplit(" is ", 1)
            self.guards.append((question, answer == "True"))
        elif " = " in row:
            name, hint = row.split(" = ")
            self.env.size(name, int(hint))
        elif row.endswith(" ms"):
            self.made_by, time = row.rsplit(", ", 1)
            self.milliseconds = float(time[:-3])

    def statement(self, s: Any) -> None:
        if isinstance(s, ast.Return):
            self.add(OUTPUT, "output", (self.value(s.value),), (), ())
            return
        if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name):
            raise self.wrong(s, "expected `name: layout = ops.operator(...)`")
        name = s.target.id
        if isinstance(s.value, ast.Attribute):
            self.add(ATTRIBUTE, s.value.attr, (), (self.var(name, self.layout(s.annotation)),), ())
            return
        if not isinstance(s.value, ast.Call) or not isinstance(s.value.func, ast.Attribute):
            raise self.wrong(s, "expected a call of an operator")
        op = TABLE.get(s.value.func.attr)
        if op is None:
            raise self.wrong(s, f"there is no operator {s.value.func.attr!r}")
        given = {k.arg: self.value(k.value) for k in s.value.keywords}
        call = op.bind([self.value(a) for a in s.value.args], given)
        layouts = op.infer(call)
        names = [name] if len(layouts) == 1 else [f"{name}[{i}]" for i in range(len(layouts))]
        where: Any = s.annotation
        stated = [where] if len(layouts) == 1 else where.slice.elts
        for place, layout in zip(stated, layouts):
            if ast.unparse(place) != ast.unparse(ast.parse(annotation(layout), mode="eval").body):
                raise self.wrong(s, f"the layout rule of {op.name} gives {annotation(layout)}")
        self.add(
            CALL, op, call.values, tuple(map(self.var, names, layouts)), self.origins(s.lineno)
        )

    def add(self, kind, target, arguments, outs, origins) -> None:
        self.nodes.append(Node(kind, target, tuple(arguments), outs, origins))

    def var(self, name: str, layout: Layout) -> Var:
        made = self.known[name] = Var(name, layout)
        return made

    def origins(self, number: int) -> tuple[Origin, ...]:
        _, found, note = self.rows[number - 1].rpartition("  # ")
        links = [link.rpartition(" ") for link in note.split(" > ")] if found else []
        return tuple(Origin(what, where) for what, _, where in links)

    def layout(self, a: Any) -> Layout:
        strides = None
        if hasattr(a, "func"):  # f32[4, 3].strides(1, 4)
            strides = tuple(map(self.value, a.args))
            a = a.func.value
        sizes = a.slice.elts if isinstance(a.slice, ast.Tuple) else [a.slice]
        found = dense(tuple(map(self.value, sizes)), DTYPES[a.value.id])
        return found if strides is None else Layout(found.shape, strides, found.dtype)

    def value(self, a: Any) -> Any:
        match a:
            case ast.Constant(value):
                return value
            case ast.Name(name) if name in self.known:
                return self.known[name]
            case ast.Name(name) if isinstance(self.env.hints.get(name), float):
                return sym.Float(self.env, name)
            case ast.Name(name) if name in self.env.hints:
                return sym.Sym(self.env, {(name,): 1})
            case ast.Tuple(elements):
                return tuple(map(self.value, elements))
            case ast.Subscript(ast.Name(name), ast.Constant(int(i))) if (
                f"{name}[{i}]" in self.known
            ):
                return self.known[f"{name}[{i}]"]
            case ast.Attribute(ast.Name("ops"), name) if name in TABLE:
                return TABLE[name]
            case ast.UnaryOp(ast.USub(), operand):
                return -self.value(operand)
            case ast.BinOp(left, ast.Add(), right):
                return self.value(left) + self.value(right)
            case ast.BinOp(left, ast.Mult(), right):
                return self.value(left) * self.value(right)
            case ast.BinOp(left, ast.FloorDiv(), right):
                return self.value(left) // self.value(right)
            case ast.Call(ast.Name("float"), [ast.Constant(str(text))]):
                number = float(text)
                return number if number == number else math.nan  # one object, so that it is equal
        raise self.wrong(a, "not an argument of a graph")

    def wrong(self, a: Any, why: str) -> Exception:
        row = self.rows[a.lineno - 1].strip()
        return UserError("fx.parse", f"line {a.lineno}: {why}: {row}", kind=ValueError)
