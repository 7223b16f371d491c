"""The text of a captured graph -> an equal graph, given the objects that the text names.

    text, objects = graph.source()
    parse_calls(text, objects, graph.constants).equals(graph)

Annotations are those of graphs of operators; sizes that vary and flags stand above the function.
"""

from __future__ import annotations

import ast
from typing import Any

from rushlight.errors import UserError

from .captured import FLAGS, CallGraph, CallNode
from .parsing import Parser


def parse_calls(text: str, objects: dict[str, Any], constants: dict | None = None) -> CallGraph:
    """Raises UserError (a ValueError) that quotes the line which cannot be read."""
    return CallParser(text, objects, constants or {}).read_graph()


class CallParser:
    def __init__(self, text: str, objects: dict[str, Any], constants: dict) -> None:
        self.rows, self.text, self.objects = text.splitlines(), text, objects
        self.layouts = Parser("", {})  # annotations are those of graphs of operators
        self.known: dict[str, CallNode] = {}
        self.places: list[str] = []  # the user's line of each row
        self.result = CallGraph()
        self.result.constants = dict(constants)

    def read_graph(self) -> CallGraph:
        where = ""
        for row in self.rows:
            if row.startswith("# "):
                self.note(row[2:])
            elif row.startswith("    #"):
                where = row[6:]
            self.places.append(where)
        try:
            definition = ast.parse(self.text).body[0]
            self.result.name = definition.name  # type: ignore[attr-defined]
            given = definition.args.args  # type: ignore[attr-defined]
            for a in given[1:] if given and given[0].arg == "self" else given:
                self.add("placeholder", a.arg, (), {}, a.arg, a.annotation, "")
            for s in definition.body:  # type: ignore[attr-defined]
                self.statement(s)
        except (SyntaxError, AttributeError, KeyError, IndexError, RecursionError) as error:
            raise UserError(
                "fx.parse", f"not the text of a captured graph: {error}", kind=ValueError
            ) from None
        return self.result.verify()

    def note(self, row: str) -> None:
        if row.startswith("flags: "):
            for flag in row[7:].split(", "):
                if flag in FLAGS:
                    setattr(self.result, flag, True)
        elif " = " in row:
            name, hint = row.split(" = ")
            self.layouts.env.size(name, int(hint))

    def statement(self, s: Any) -> None:
        place = self.places[s.lineno - 1]
        if isinstance(s, ast.Return):
            node = self.result.output(self.value(s.value))
            if place:
                node.meta["where"] = place
            return
        target = s.target if isinstance(s, ast.AnnAssign) else None
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            target = s.targets[0]
        if not isinstance(target, ast.Name):
            raise self.wrong(s, "expected `name = ...`")
        note = s.annotation if isinstance(s, ast.AnnAssign) else None
        if (path := self.path(s.value)) is not None:
            self.add("get_attr", path, (), {}, target.id, note, place)
            return
        if not isinstance(s.value, ast.Call):
            raise self.wrong(s, "expected a call")
        f, args = s.value.func, tuple(map(self.value, s.value.args))
        kwargs: dict[str, Any] = {}
        for k in s.value.keywords:
            kwargs.update({k.arg: self.value(k.value)} if k.arg else self.value(k.value))
        if (path := self.path(f)) is not None:
            self.add("call_module", path, args, kwargs, target.id, note, place)
        elif isinstance(f, ast.Name):
            self.add("call_function", self.object(f), args, kwargs, target.id, note, place)
        elif (split := self.member(f)) is not None:
            of, name = self.value(split[0]), split[1]
            self.add("call_method", name, (of, *args), kwargs, target.id, note, place)
        else:
            raise self.wrong(s, "expected a call of a function, a method or a module")

    def add(
        self, op: str, target: Any, args: tuple, kwargs: dict, name: str, note: Any, place: str
    ) -> None:
        node = self.known[name] = CallNode(self.result, op, target, args, kwargs, name)
        if note is not None:
            try:
                parsed = ast.parse(note.value, mode="eval").body
                node.meta["layout"] = self.layouts.layout(parsed)
            except UserError:
                raise self.wrong(note, "not a layout") from None
        if place:
            node.meta["where"] = place
        self.result.names.used.add(name)
        self.result.nodes.append(node)

    def path(self, a: Any) -> str | None:
        """`self.layers.0` of what names an attribute of the module, else None."""
        names: list[str] = []
        while (split := self.member(a)) is not None:
            a = split[0]
            names.append(split[1])
        found = names and isinstance(a, ast.Name) and a.id == "self"
        return ".".join(reversed(names)) if found else None

    def member(self, a: Any) -> tuple[Any, str] | None:
        match a:
            case ast.Attribute(of, name):
                return of, name
            case ast.Call(ast.Name("getattr"), [of, ast.Constant(str(name))]):
                return of, name
        return None

    def object(self, a: Any) -> Any:
        if a.id not in self.objects:
            raise self.wrong(a, f"there is no object {a.id!r}")
        return self.objects[a.id]

    def value(self, a: Any) -> Any:
        match a:
            case ast.Constant(value):
                return value
            case ast.Name("Ellipsis"):
                return ...
            case ast.Name(name):
                return self.known[name] if name in self.known else self.object(a)
            case ast.Tuple(elements):
                return tuple(map(self.value, elements))
            case ast.List(elements):
                return list(map(self.value, elements))
            case ast.Dict(keys, values):
                return {self.value(k): self.value(v) for k, v in zip(keys, values)}
            case ast.UnaryOp(ast.USub(), ast.Constant(value)):
                return -value
            case ast.Call(ast.Name() as kind, args, []):
                made = self.object(kind)
                if made is slice or isinstance(made, type) and hasattr(made, "_fields"):
                    return made(*map(self.value, args))
        raise self.wrong(a, "not an argument of a graph")

    def wrong(self, a: Any, why: str) -> UserError:
        row = self.rows[a.lineno - 1].strip()
        return UserError("fx.parse", f"line {a.lineno}: {why}: {row}", kind=ValueError)
