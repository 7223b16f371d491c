"""The inputs of a graph all at once. Guards remember what hangs on modules while nothing there
changes: then the parameters of a model of any depth come in one tuple from there, and only else are
they read one by one.

    guards.fetch(*bound parameters, *anchors, *given)      a tuple of all inputs, or None
"""

from __future__ import annotations

from typing import Any

from bytecode import Instr, Label

from .bytecode import VERSION, parameters
from .emit import call_of, const
from .sources import Source

FEW = 4  # inputs that are read one by one
INPUTS = ".inputs"


class Fetch:
    """Stands in the target's code for `guards.fetch`, until the guards are made. `anchors`: the
    contents of cells and globals through which inputs are reached."""

    def __init__(self, inputs: list, bound: int, anchors: list[Source]) -> None:
        self.inputs, self.bound, self.anchors = inputs, bound, anchors


def is_given(s: Any) -> bool:
    """Whether the target passes it: an argument, a number of one."""
    return isinstance(s, tuple) or s.op == "arg"


def anchor(s: Source) -> Source:
    """What the target passes so that `fetch` can tell whether the input still hangs there."""
    while s.parent is not None and s.parent.op != "func":
        s = s.parent
    return s


def planned(code: Any, inputs: list, cells: Any) -> Fetch | None:
    """None where the inputs are to be read one by one."""
    names = parameters(code)
    roots = [s[1] for s in inputs if isinstance(s, tuple)]
    held = [anchor(s) for s in inputs if not is_given(s)]
    if len(held) < FEW or cells & set(names) or any(s.op != "arg" for s in roots):
        return None
    anchors = [s for s in dict.fromkeys(held) if s.op not in ("arg", "const")]
    return Fetch(inputs, len(names), anchors)


def fetched_call(fetch: Fetch, code: Any, anchors: list, loads: list[list], function: Any) -> list:
    """Pushes function(*inputs); `anchors` push those, `loads` each input."""
    ready = Label()
    bound = [Instr("LOAD_FAST", name) for name in parameters(code)] + anchors
    given = [i for s, load in zip(fetch.inputs, loads) if is_given(s) for i in load]
    n = fetch.bound + len(fetch.anchors) + sum(map(is_given, fetch.inputs))
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
    anchors = tuple(index.get(s, -2) for s in fetch.anchors)
    if -2 in numbers + anchors:  # nothing guards it: then nothing remembers it
        consts = tuple(nothing if c is fetch else c for c in code.co_consts)
        return code.replace(co_consts=consts)
    guards.plan(numbers, fetch.bound, anchors)
    consts = tuple(guards.fetch if c is fetch else c for c in code.co_consts)
    return code.replace(co_consts=consts)


def nothing(*_: Any) -> None:
    return None
