"""The inputs of a graph all at once. Guards remember what hangs on modules while nothing there
changes: then the parameters of a model of any depth come in one tuple from there, and only else are
they read one by one.

    guards.fetch(*bound parameters, *given)      a tuple of all inputs, or None
"""

from __future__ import annotations

from typing import Any

from bytecode import Instr, Label

from .bytecode import VERSION, parameters
from .emit import call_of, const
from .sources import Source

FEW = 4  # inputs that are as quickly read one by one
INPUTS = ".inputs"


class Fetch:
    """Stands in the target's code for `guards.fetch`, until the guards are made."""

    def __init__(self, inputs: list, bound: int) -> None:
        self.inputs, self.bound = inputs, bound


def is_given(s: Any) -> bool:
    """Whether the target passes it: an argument, a number of one."""
    return isinstance(s, tuple) or s.op == "arg"


def planned(code: Any, inputs: list, cells: Any) -> Fetch | None:
    """None where the inputs are to be read one by one."""
    names = parameters(code)
    roots = [s[1] if isinstance(s, tuple) else s for s in inputs if is_given(s)]
    held = len(inputs) - len(roots)
    if held < FEW or cells & set(names) or any(s.op != "arg" for s in roots):
        return None
    return Fetch(inputs, len(names))


def fetched_call(fetch: Fetch, code: Any, loads: list[list], function: Any) -> list:
    """Pushes function(*inputs); `loads`: the instructions that push each input."""
    ready = Label()
    bound = [Instr("LOAD_FAST", name) for name in parameters(code)]
    given = [i for s, load in zip(fetch.inputs, loads) if is_given(s) for i in load]
    n = len(bound) + sum(map(is_given, fetch.inputs))
    jump = "POP_JUMP_FORWARD_IF_NOT_NONE" if VERSION == (3, 11) else "POP_JUMP_IF_NOT_NONE"
    out = [
        *call_of(fetch, *bound, *given, count=n),
        Instr("STORE_FAST", INPUTS),
        Instr("LOAD_FAST", INPUTS),
        Instr(jump, ready),
        *(i for load in loads for i in load),
        Instr("BUILD_TUPLE", len(loads)),
        Instr("STORE_FAST", INPUTS),
        ready,
    ]
    callee = call_of(function, count=None)
    out += [*callee, Instr("LOAD_FAST", INPUTS), Instr("CALL_FUNCTION_EX", 0)]
    out += [const(None), Instr("STORE_FAST", INPUTS)]
    return out


def with_guards(code: Any, fetch: Fetch | None, guards: Any, index: dict[Source, int]) -> Any:
    """The target's code once its guards are made."""
    if fetch is None:
        return code
    numbers = tuple(-1 if is_given(s) else index.get(s, -2) for s in fetch.inputs)
    if -2 in numbers:  # nothing guards it: then nothing remembers it
        consts = tuple(nothing if c is fetch else c for c in code.co_consts)
        return code.replace(co_consts=consts)
    guards.plan(numbers, fetch.bound)
    consts = tuple(guards.fetch if c is fetch else c for c in code.co_consts)
    return code.replace(co_consts=consts)


def nothing(*_: Any) -> None:
    return None
