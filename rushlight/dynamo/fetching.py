"""The inputs of a graph all at once. Guards remember what hangs on modules while nothing there
changes: then the parameters of a model of any depth come in one tuple from there, and only else are
they read one by one, by a function whose code is made when it is first called.

    guards.fetch(*bound parameters, *anchors, *given)      a tuple of all inputs, or None
    Reading(fetch, names)(the same)                        that tuple, read anew
"""

from __future__ import annotations

import types
from typing import Any

from bytecode import Bytecode, Instr, Label

from .bytecode import VERSION, parameters
from .emit import STEP, call_instructions, call_of, const
from .sources import Source, branching

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


def fetched_call(fetch: Fetch, code: Any, given: list, function: Any) -> list:
    """Pushes function(*inputs); `given` pushes the anchors and what the target passes."""
    ready = Label()
    names = parameters(code)
    passed = [*(Instr("LOAD_FAST", name) for name in names), *given]
    n = fetch.bound + len(fetch.anchors) + sum(map(is_given, fetch.inputs))
    jump = "POP_JUMP_FORWARD_IF_NOT_NONE" if VERSION == (3, 11) else "POP_JUMP_IF_NOT_NONE"
    out = [
        *call_of(fetch, *passed, count=n),
        Instr("STORE_FAST", INPUTS),
        Instr("LOAD_FAST", INPUTS),
        Instr(jump, ready),
        *call_of(Reading(fetch, names), *passed, count=n),
        Instr("STORE_FAST", INPUTS),
        ready,
    ]
    callee = call_of(function, count=None)
    out += [*callee, Instr("LOAD_FAST", INPUTS), Instr("CALL_FUNCTION_EX", 0)]
    out += [const(None), Instr("STORE_FAST", INPUTS)]
    return out


class Reading:
    """Reads each input of a graph through its source; called with what `fetch` is called with."""

    def __init__(self, fetch: Fetch, names: tuple[str, ...]) -> None:
        self.fetch, self.names = fetch, names
        self.function: Any = None

    def __call__(self, *passed: Any) -> tuple:
        if self.function is None:
            self.function = self.made()
        return self.function(*passed)

    def made(self) -> Any:
        inputs, anchors = self.fetch.inputs, self.fetch.anchors
        known = {s: f".anchor{i}" for i, s in enumerate(anchors)}
        given = [f".given{i}" for i in range(sum(map(is_given, inputs)))]
        arguments = [*self.names, *known.values(), *given]
        shared = branching(s for s in inputs if not is_given(s))
        out: list[Any] = [Instr("RESUME", 0)]

        def load(s: Source) -> None:
            if s in known:
                out.append(Instr("LOAD_FAST", known[s]))
            elif s.op == "arg":
                out.append(Instr("LOAD_FAST", s.name))
            elif s.op == "const":
                out.append(const(s.key))
            else:
                assert s.parent is not None
                if s.op in ("type", "len", "call"):
                    out.extend(call_of({"type": type, "len": len}.get(s.op, s.key), count=None))
                    load(s.parent)
                    out.extend(call_instructions(1))
                else:
                    load(s.parent)
                    out.extend(STEP[s.op](s.key))
                if s in shared:
                    name = known[s] = f".shared{len(known)}"
                    out.extend((Instr("COPY", 1), Instr("STORE_FAST", name)))

        for s in inputs:
            if is_given(s):
                out.append(Instr("LOAD_FAST", given.pop(0)))
            else:
                load(s)
        out += [Instr("BUILD_TUPLE", len(inputs)), Instr("RETURN_VALUE")]
        made = Bytecode(out)
        made.argcount, made.argnames = len(arguments), arguments
        made.name, made.filename, made.flags = "inputs", "<inputs of a graph>", 3
        code = made.to_code(stacksize=len(inputs) + 8, compute_exception_stack_depths=False)
        return types.FunctionType(code, {}, "inputs")


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
