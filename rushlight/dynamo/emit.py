"""Single instructions, spelled for the Python that runs."""

from __future__ import annotations

from typing import Any

from bytecode import Instr

from .bytecode import VERSION


def const(value: Any) -> Instr:
    return Instr("LOAD_CONST", value)


def push_null() -> Instr:
    return Instr("PUSH_NULL")


def call_instructions(n: int) -> list[Instr]:
    """Behind callable (and NULL) and n arguments."""
    return [Instr("PRECALL", n), Instr("CALL", n)] if VERSION == (3, 11) else [Instr("CALL", n)]


def load_attr(name: str) -> Instr:
    return Instr("LOAD_ATTR", name) if VERSION == (3, 11) else Instr("LOAD_ATTR", (False, name))


def call_of(function: Any, *arguments: Instr, count: int | None = -1) -> list:
    """Pushes function(*arguments); `count` where one takes several instructions, or None where
    the call itself is left out."""
    push = [const(function), push_null()]
    if VERSION < (3, 13):
        push.reverse()
    if count is None:
        return [*push, *arguments]
    return [*push, *arguments, *call_instructions(len(arguments) if count < 0 else count)]


# From a value to the one that a source reaches from there in a step.
STEP: dict[str, Any] = {
    "attr": lambda key: [load_attr(key)],
    "dict_attr": lambda key: [load_attr("__dict__"), const(key), Instr("BINARY_SUBSCR")],
    "item": lambda key: [const(key), Instr("BINARY_SUBSCR")],
    "index": lambda key: [const(key), Instr("BINARY_SUBSCR")],
    "default": lambda key: [load_attr("__defaults__"), const(key), Instr("BINARY_SUBSCR")],
    "kwdefault": lambda key: [load_attr("__kwdefaults__"), const(key), Instr("BINARY_SUBSCR")],
    "closure": lambda key: [
        load_attr("__closure__"),
        const(key),
        Instr("BINARY_SUBSCR"),
        load_attr("cell_contents"),
    ],
    "grad": lambda key: [load_attr("grad")],
}
