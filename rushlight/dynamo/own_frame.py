"""Code that looks at the frame it runs in: `super()` without arguments, `locals()`, `eval(text)`.

A resume function is another frame. Its `super()` is given the class and the object; what looks at
variables finds those of the resume function, so a function that does is not cut in two.
"""

from __future__ import annotations

from typing import Any, cast

from bytecode import CellVar, Instr

from .bytecode import bare_super, calls_super, instructions

LOOKERS = ("locals", "eval", "exec")
LOOKERS_WITHOUT_ARGUMENTS = ("vars", "dir")
FRAMES = ("_getframe", "currentframe")


def what_looks(code: Any, namespace: dict) -> str | None:
    """What in this code finds something else in a resume function, or None."""
    listed = instructions(code)
    for n, i in enumerate(listed):
        if i.name in ("LOAD_GLOBAL", "LOAD_NAME") and i.value not in namespace:
            if i.value in LOOKERS:
                return f"{i.value}()"
            if i.value in LOOKERS_WITHOUT_ARGUMENTS:
                called = i.name == "LOAD_NAME" or (i.arg or 0) & 1
                after = listed[n + 1]
                if not called or (after.name in ("PRECALL", "CALL") and not after.arg):
                    return f"{i.value}()"
    if any(name in FRAMES for name in code.co_names):
        return "a frame object"
    return super_that_looks(code, namespace)


def super_that_looks(code: Any, namespace: dict) -> str | None:
    """A `super` that `with_super` does not give what it looks for."""
    listed = instructions(code)
    loads = [i for i in listed if i.name == "LOAD_GLOBAL" and i.value == "super"]
    as_values = [i for i in loads if not (i.arg or 0) & 1]
    bare = [i for i in loads if bare_super(listed, i.position)]
    if len(as_values) > sum(i.name == "LOAD_SUPER_ATTR" for i in listed):
        return "super as a value"
    if bare:
        first = code.co_varnames[0] if code.co_argcount else None
        gone = any(i.name.startswith("DELETE_") and i.value == first for i in listed)
        if first is None or gone or "__class__" not in code.co_freevars or "super" in namespace:
            return "super()"
    return None


def with_super(items: Any, origin: Any) -> list:
    """The items, a bare `super()` given the class and the object of the frame it comes from. (From
    3.12 on one instruction may do it, with both on the stack: it is told to use them.)"""
    out: list[Any] = []
    listed = list(items)
    for n, item in enumerate(listed):
        if isinstance(item, Instr) and item.name == "LOAD_SUPER_ATTR":
            method, _, name = cast(tuple, item.arg)
            item = Instr(item.name, (method, True, name), location=item.location)
        out.append(item)
        if not isinstance(item, Instr) or item.name != "LOAD_GLOBAL":
            continue
        after = listed[n + 1]
        if isinstance(after, Instr) and calls_super(item.arg, after):
            first = origin.co_varnames[0]
            cell = first in origin.co_cellvars
            out += [
                Instr("LOAD_DEREF", CellVar("__class__")),
                Instr("LOAD_DEREF", CellVar(first)) if cell else Instr("LOAD_FAST", first),
            ]
            for k in (n + 1, n + 2):
                if listed[k].name in ("PRECALL", "CALL"):
                    listed[k] = Instr(listed[k].name, 2, location=listed[k].location)
                if listed[k].name == "CALL":
                    break
    return out
