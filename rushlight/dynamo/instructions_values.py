"""Instructions on values: constants, variables, operators, containers, formatting."""

from __future__ import annotations

from typing import Any

from .attributes import by_name
from .breaks import unsupported
from .bytecode import VERSION, Instruction
from .interpreter import NULL, Frame, handler
from .variables.objects import MISSING, Cell, Lazy


@handler(
    "RESUME",
    "NOP",
    "PRECALL",
    "CACHE",
    "EXTENDED_ARG",
    "COPY_FREE_VARS",
    "GEN_START",
    "EXIT_INIT_CHECK",
    "INTERPRETER_EXIT",
)
def nothing(f: Frame, i: Instruction) -> None:
    return None


@handler("LOAD_CONST")
def load_const(f: Frame, i: Instruction) -> None:
    f.stack.append(i.value)


@handler("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(f: Frame, i: Instruction) -> None:
    name = i.value
    value = f.locals.get(name, MISSING)
    if type(value) is Lazy:
        value = f.locals[name] = f.realize(value)
    if value is MISSING:
        if name in f.cells:  # 3.13 loads cells for closures this way
            f.stack.append(f.cells[name])
            return
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        raise f.raised(UnboundLocalError(text))
    f.stack.append(value)


@handler("LOAD_FAST_LOAD_FAST")
def load_two(f: Frame, i: Instruction) -> None:
    for name in i.value:
        load_name_of(f, name)


def load_name_of(f: Frame, name: str) -> None:
    value = f.locals.get(name, MISSING)
    if type(value) is Lazy:
        value = f.locals[name] = f.realize(value)
    if value is MISSING:
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        raise f.raised(UnboundLocalError(text))
    f.stack.append(value)


@handler("STORE_FAST_LOAD_FAST")
def store_load(f: Frame, i: Instruction) -> None:
    f.locals[i.value[0]] = f.pop()
    load_name_of(f, i.value[1])


@handler("STORE_FAST_STORE_FAST")
def store_two(f: Frame, i: Instruction) -> None:
    f.locals[i.value[0]] = f.pop()
    f.locals[i.value[1]] = f.pop()


@handler("LOAD_FAST_AND_CLEAR")
def load_and_clear(f: Frame, i: Instruction) -> None:
    f.cleared.add(i.value)
    if i.value in f.cells:
        f.push(f.cells.pop(i.value))
        return
    f.push(f.locals.pop(i.value, NULL))


@handler("STORE_FAST", "STORE_FAST_MAYBE_NULL")
def store_fast(f: Frame, i: Instruction) -> None:
    value = f.stack.pop()
    if value is NULL:
        f.locals.pop(i.value, None)
        f.cells.pop(i.value, None)
        f.cleared.discard(i.value)
    elif type(value) is Cell and i.value in f.code.co_cellvars:  # put back behind a comprehension
        f.cells[i.value] = value
        f.locals.pop(i.value, None)  # the comprehension's own
        f.cleared.discard(i.value)
    else:
        f.locals[i.value] = value


@handler("DELETE_FAST")
def delete_fast(f: Frame, i: Instruction) -> None:
    if f.locals.pop(i.value, MISSING) is MISSING:
        text = f"cannot access local variable '{i.value}' where it is not associated with a value"
        raise f.raised(UnboundLocalError(text))


# ---- globals


@handler("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction) -> None:
    value = global_value(f, i.value)
    if not i.arg or not i.arg & 1:
        f.stack.append(value)
    elif VERSION >= (3, 13):
        f.push(value)
        f.push(NULL)
    else:
        f.push(NULL)
        f.push(value)


def global_value(f: Frame, name: str) -> Any:
    state, namespace = f.state, f.namespace
    pending = state.globals_written.get((id(namespace), name))
    if pending is not None:
        if pending[2] is MISSING:
            return builtin_value(f, name)
        return pending[2]
    if name in namespace:
        value = namespace[name]
        if f.trusted and by_name(value):
            return value
        return state.wrap(value, state.roots.variable(namespace, name))
    return builtin_value(f, name)


def builtin_value(f: Frame, name: str) -> Any:
    if name in f.builtins:
        if not f.trusted and name not in ("__debug__",):
            f.state.guard("absent", f.state.roots.const(f.namespace), name)
        return f.builtins[name]
    raise f.raised(NameError(f"name '{name}' is not defined", name=name))


@handler("STORE_GLOBAL")
def store_global(f: Frame, i: Instruction) -> None:
    f.state.keep.append(f.namespace)
    f.state.globals_written[id(f.namespace), i.value] = (f.namespace, i.value, f.pop())


@handler("DELETE_GLOBAL")
def delete_global(f: Frame, i: Instruction) -> None:
    raise unsupported("deletion of a global", "it is not modelled")


# ---- names of class bodies


@handler("LOAD_NAME")
def load_name(f: Frame, i: Instruction) -> None:
    space = f.class_namespace
    if space is not None and i.value in space:
        f.push(space[i.value])
        return
    f.push(global_value(f, i.value))


@handler("STORE_NAME")
def store_name(f: Frame, i: Instruction) -> None:
    f.class_namespace[i.value] = f.pop()


@handler("DELETE_NAME")
def delete_name(f: Frame, i: Instruction) -> None:
    del f.class_namespace[i.value]


@handler("LOAD_LOCALS")
def load_locals(f: Frame, i: Instruction) -> None:
    f.push(f.class_namespace)


@handler("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict(f: Frame, i: Instruction) -> None:
    space = f.pop()
    f.push(space[i.value] if i.value in space else global_value(f, i.value))


@handler("LOAD_FROM_DICT_OR_DEREF", "LOAD_CLASSDEREF")
def load_class_deref(f: Frame, i: Instruction) -> None:
    space = f.pop() if i.name == "LOAD_FROM_DICT_OR_DEREF" else f.class_namespace
    if i.value in space:
        f.push(space[i.value])
    else:
        f.push(f.cell_content(f.cells[i.value], i.value))


# ---- cells


@handler("MAKE_CELL")
def make_cell(f: Frame, i: Instruction) -> None:
    name = i.value
    content = f.locals.pop(name, MISSING)
    known = f.cells.get(name)
    if known is not None and known.real is not None:
        return  # handed over by the frame that this one resumes
    own = f.outermost and name not in f.cleared  # a comprehension's cell is in no slot afterwards
    f.cells[name] = f.state.note_made(Cell(content, name if own else None))


@handler("LOAD_DEREF")
def load_deref(f: Frame, i: Instruction) -> None:
    f.stack.append(f.cell_content(f.cells[i.value], i.value))


@handler("STORE_DEREF")
def store_deref(f: Frame, i: Instruction) -> None:
    f.write_cell(f.cells[i.value], f.pop())


@handler("DELETE_DEREF")
def delete_deref(f: Frame, i: Instruction) -> None:
    cell = f.cells[i.value]
    f.cell_content(cell, i.value)
    f.write_cell(cell, MISSING)


@handler("LOAD_CLOSURE")
def load_closure(f: Frame, i: Instruction) -> None:
    f.push(f.cells[i.value])


# ---- the stack


@handler("POP_TOP", "END_FOR", "END_SEND_POP")
def pop_top(f: Frame, i: Instruction) -> None:
    f.pop()


@handler("PUSH_NULL")
def push_null(f: Frame, i: Instruction) -> None:
    f.push(NULL)


@handler("SWAP")
def swap(f: Frame, i: Instruction) -> None:
    s, n = f.stack, i.arg or 0
    s[-1], s[-n] = s[-n], s[-1]


@handler("COPY")
def copy(f: Frame, i: Instruction) -> None:
    f.push(f.stack[-(i.arg or 0)])
