"""Instructions that move control: jumps, loops, calls, functions, exceptions, `with`, generators,
imports, class bodies."""

from __future__ import annotations

import builtins
import functools
import importlib
import operator
from typing import Any

from .attributes import load_attr, type_of
from .breaks import unsupported
from .bytecode import VERSION, Instruction, is_generator
from .containers import mapping_items
from .generators import Generator, begin_generator
from .interpreter import NULL, RETURN, YIELD, Frame, Position, Previous, handler
from .iteration import END, get_iter, listed, step
from .leaves import Region
from .variables.objects import Function

# ---- jumps


@handler("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP", "JUMP_NO_INTERRUPT")
def jump(f: Frame, i: Instruction) -> None:
    f.at = i.target or 0


@handler("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def jump_if_true(f: Frame, i: Instruction) -> None:
    value = f.pop()
    if value if type(value) is bool else f.state.truth(value):
        f.at = i.target or 0


@handler("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def jump_if_false(f: Frame, i: Instruction) -> None:
    value = f.pop()
    if not (value if type(value) is bool else f.state.truth(value)):
        f.at = i.target or 0


@handler("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def jump_if_none(f: Frame, i: Instruction) -> None:
    if f.pop() is None:
        f.at = i.target or 0


@handler("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def jump_if_not_none(f: Frame, i: Instruction) -> None:
    if f.pop() is not None:
        f.at = i.target or 0


@handler("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(f: Frame, i: Instruction) -> None:
    if f.state.truth(f.stack[-1]):
        f.at = i.target or 0
    else:
        f.pop()


@handler("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(f: Frame, i: Instruction) -> None:
    if f.state.truth(f.stack[-1]):
        f.pop()
    else:
        f.at = i.target or 0


# ---- loops

PAST_END = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)  # END_FOR, and POP_TOP after it


@handler("GET_ITER")
def get_iter_instruction(f: Frame, i: Instruction) -> None:
    f.push(get_iter(f, f.pop()))


@handler("FOR_ITER")
def for_iter(f: Frame, i: Instruction) -> None:
    value = step(f, f.stack[-1])
    if value is END:
        f.pop()
        f.at = (i.target or 0) + PAST_END
    else:
        f.push(value)


# ---- calls


def finish(f: Frame, function: Any, args: list, names: tuple) -> None:
    if not names:
        f.stack.append(f.call(function, tuple(args), {}))
        return
    n = len(args) - len(names)
    f.push(f.call(function, tuple(args[:n]), dict(zip(names, args[n:]))))


@handler("KW_NAMES")
def kw_names(f: Frame, i: Instruction) -> None:
    f.keywords = i.value


@handler("CALL")
def call_instruction(f: Frame, i: Instruction) -> None:
    args, stack = f.take(i.arg or 0), f.stack
    b, a = stack.pop(), stack.pop()
    names, f.keywords = f.keywords, ()
    if VERSION >= (3, 13):
        function, self = a, b
    else:
        function, self = (b, NULL) if a is NULL else (a, b)
    if self is not NULL:
        args = [self, *args]
    finish(f, function, args, names)


@handler("CALL_KW")
def call_kw(f: Frame, i: Instruction) -> None:
    names = f.pop()
    args = f.take(i.arg or 0)
    self, function = f.pop(), f.pop()
    if self is not NULL:
        args = [self, *args]
    finish(f, function, args, names)


@handler("CALL_FUNCTION_EX")
def call_function_ex(f: Frame, i: Instruction) -> None:
    kwargs = f.pop() if (i.arg or 0) & 1 else {}
    args = f.pop()
    if VERSION >= (3, 13):
        f.pop()
        function = f.pop()
    else:
        function = f.pop()
        f.pop()
    if type(args) is not tuple:
        args = listed(f, args)
    f.push(f.call(function, tuple(map(f.realize, args)), dict(mapping_items(f, kwargs))))


@handler("CALL_INTRINSIC_1")
def call_intrinsic_1(f: Frame, i: Instruction) -> None:
    n = i.arg
    if n == 3:  # StopIteration that leaves a generator
        error = f.pop()
        if isinstance(error, StopIteration):
            made = RuntimeError("generator raised StopIteration")
            made.__cause__ = made.__context__ = error
            f.push(f.raised(made))
        else:
            f.push(error)
    elif n == 5:
        f.push(f.call(operator.pos, (f.pop(),), {}))
    elif n == 6:
        f.push(tuple(f.state.fill(f.pop())))  # it may come from before a break
    elif n in (7, 8, 9, 10, 11):
        raise unsupported("a type parameter", "generic functions and classes are not modelled")
    else:
        raise unsupported("an intrinsic function", f"number {n} is not modelled")


# ---- functions


@handler("MAKE_FUNCTION")
def make_function(f: Frame, i: Instruction) -> None:
    flags = i.arg or 0 if VERSION < (3, 13) else 0
    code = f.pop()
    closure = f.pop() if flags & 8 else ()
    annotations = f.pop() if flags & 4 else None
    kwdefaults = f.pop() if flags & 2 else None
    defaults = f.pop() if flags & 1 else None
    module = f.namespace.get("__name__")
    made = Function(f.state, code, f.namespace, code.co_name, closure, module)
    made.defaults, made.kwdefaults = defaults, kwdefaults
    made.annotations = annotations_of(annotations)
    f.push(f.state.note_made(made))


def annotations_of(value: Any) -> Any:
    return dict(zip(value[::2], value[1::2])) if type(value) is tuple else value


@handler("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(f: Frame, i: Instruction) -> None:
    function, value = f.pop(), f.pop()
    if i.arg == 8:
        function.closure = value
    elif i.arg == 4:
        function.annotations = annotations_of(value)
    elif i.arg == 2:
        function.kwdefaults = value
    else:
        function.defaults = value
    f.push(function)


@handler("LOAD_BUILD_CLASS")
def load_build_class(f: Frame, i: Instruction) -> None:
    f.push(builtins.__build_class__)


@handler("RETURN_VALUE")
def return_value(f: Frame, i: Instruction) -> tuple:
    return RETURN, f.pop()


@handler("RETURN_CONST")
def return_const(f: Frame, i: Instruction) -> tuple:
    return RETURN, i.value


# ---- exceptions


def exception_of(f: Frame, value: Any) -> BaseException:
    """What `raise value` raises."""
    if isinstance(value, type) and issubclass(value, BaseException):
        value = f.call(value, (), {})
    if not isinstance(value, BaseException):
        raise f.raised(TypeError("exceptions must derive from BaseException"))
    if not isinstance(value, Exception):
        raise unsupported(f"raise {type(value).__name__}", "it ends more than the function")
    return value


@handler("RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    state = f.state
    if not i.arg:
        if state.current is None:
            raise unsupported("raise", "which exception is handled, the caller knows")
        raise f.raised(state.current)
    cause = None
    if i.arg == 2:
        given = f.pop()
        cause = None if given is None else exception_of(f, given)
    error = exception_of(f, f.pop())
    if i.arg == 2:
        error.__cause__ = cause
        error.__suppress_context__ = True
    if state.current is not None and state.current is not error:
        error.__context__ = state.current
    state.tell_story(error)
    raise f.raised(error)


@handler("PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    error = f.pop()
    f.push(Previous(f.state.current, error))
    f.push(error)
    f.state.current = error


@handler("POP_EXCEPT")
def pop_except(f: Frame, i: Instruction) -> None:
    f.state.current = f.pop().error


@handler("RERAISE")
def reraise(f: Frame, i: Instruction) -> None:
    error = f.pop()
    raise f.raised(error)


@handler("CHECK_EXC_MATCH")
def check_exc_match(f: Frame, i: Instruction) -> None:
    wanted, error = f.pop(), f.stack[-1]
    kinds = wanted if type(wanted) is tuple else (wanted,)
    for k in kinds:
        if not (isinstance(k, type) and issubclass(k, BaseException)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise f.raised(TypeError(text))
    f.push(isinstance(error, wanted))


# ---- with


@handler("BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    manager = f.pop()
    if type(manager) is Region:
        f.push(functools.partial(manager.leave, f))
        f.push(manager.enter(f))
        return
    cls = type_of(manager)
    for name, say in (("__enter__", ""), ("__exit__", " (missed __exit__ method)")):
        if not hasattr(cls, name):
            text = f"'{cls.__name__}' object does not support the context manager protocol{say}"
            raise f.raised(TypeError(text))
    leave = load_attr(f, manager, "__exit__")
    enter = load_attr(f, manager, "__enter__")
    f.push(leave)
    f.push(f.call(enter, (), {}))


@handler("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    error, leave = f.stack[-1], f.stack[-4]
    f.push(f.call(leave, (type(error), error, None), {}))


# ---- generators


@handler("RETURN_GENERATOR")
def return_generator(f: Frame, i: Instruction) -> tuple:
    return RETURN, begin_generator(f)


@handler("YIELD_VALUE")
def yield_value(f: Frame, i: Instruction) -> tuple:
    return YIELD, f.pop()


@handler("GET_YIELD_FROM_ITER")
def get_yield_from_iter(f: Frame, i: Instruction) -> None:
    f.push(get_iter(f, f.pop()))


@handler("SEND")
def send(f: Frame, i: Instruction) -> None:
    value, receiver = f.pop(), f.stack[-1]
    try:
        if value is None and not isinstance(receiver, Generator):
            found = f.state.native(next, receiver)
        elif isinstance(receiver, Generator):
            found = receiver.send(value)
        else:
            found = f.call(load_attr(f, receiver, "send"), (value,), {})
    except StopIteration as stop:
        if not f.state.is_raised(stop):
            raise
        if VERSION == (3, 11):
            f.pop()
        f.push(stop.value)
        f.at = i.target or 0
        return
    f.push(f.realize(found))


@handler("END_SEND")
def end_send(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.pop()
    f.push(value)


@handler("CLEANUP_THROW")
def cleanup_throw(f: Frame, i: Instruction) -> None:
    error = f.pop()
    if isinstance(error, StopIteration):
        f.pop()
        f.pop()
        if VERSION >= (3, 12):
            f.push(None)
        f.push(error.value)
        return
    raise f.raised(error)


# ---- imports


@handler("IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    import sys

    names, level = f.pop(), f.pop()
    name = i.value
    package = f.namespace.get("__package__") or f.namespace.get("__name__", "")
    full = importlib.util.resolve_name("." * level + name, package) if level else name
    if full not in sys.modules:
        raise unsupported(f"import of {full}", "it is loaded for the first time")
    if not names and not level:
        full = full.partition(".")[0]
    f.push(sys.modules[full])


@handler("IMPORT_FROM")
def import_from(f: Frame, i: Instruction) -> None:
    try:
        f.push(load_attr(f, f.stack[-1], i.value))
    except AttributeError as error:
        if not f.state.is_raised(error):
            raise
        raise unsupported(f"import of {i.value}", "the module does not have it yet") from None


__all__ = ["Position", "is_generator"]
