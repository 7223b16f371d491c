"""Instructions that compute: operators, comparisons, items, containers, attributes, text, match."""

from __future__ import annotations

import operator
from typing import Any

from .attributes import delete_attr, load_attr, store_attr, type_of
from .breaks import unsupported
from .bytecode import VERSION, Instruction
from .containers import contains, delete_item, get_item, mapping_items, set_item
from .interpreter import NULL, Frame, handler
from .iteration import listed, unpack
from .numeric import binary, compare, in_place, unary
from .variables.tensor import TensorVar

# ---- operators


@handler("UNARY_NEGATIVE")
def negative(f: Frame, i: Instruction) -> None:
    f.push(unary(f, operator.neg, f.pop()))


@handler("UNARY_POSITIVE")
def positive(f: Frame, i: Instruction) -> None:
    f.push(unary(f, operator.pos, f.pop()))


@handler("UNARY_INVERT")
def invert(f: Frame, i: Instruction) -> None:
    f.push(unary(f, operator.invert, f.pop()))


@handler("UNARY_NOT")
def not_(f: Frame, i: Instruction) -> None:
    f.push(not f.state.truth(f.pop()))


@handler("TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.push(value if type(value) is bool else f.state.truth(value))


OPERATORS = {
    "+": operator.add,
    "&": operator.and_,
    "//": operator.floordiv,
    "<<": operator.lshift,
    "@": operator.matmul,
    "*": operator.mul,
    "%": operator.mod,
    "|": operator.or_,
    "**": operator.pow,
    ">>": operator.rshift,
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
    "+=": operator.iadd,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
    "<<=": operator.ilshift,
    "@=": operator.imatmul,
    "*=": operator.imul,
    "%=": operator.imod,
    "|=": operator.ior,
    "**=": operator.ipow,
    ">>=": operator.irshift,
    "-=": operator.isub,
    "/=": operator.itruediv,
    "^=": operator.ixor,
}
BY_NUMBER = list(OPERATORS.values())


@handler("BINARY_OP")
def binary_op(f: Frame, i: Instruction) -> None:
    b, a = f.pop(), f.pop()
    n = i.arg or 0
    function = BY_NUMBER[n]
    f.push(binary(f, function, a, b) if n < 13 else in_place(f, function, a, b))


COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


@handler("COMPARE_OP")
def compare_op(f: Frame, i: Instruction) -> None:
    b, a = f.pop(), f.pop()
    found = compare(f, COMPARE[i.value], a, b)
    if VERSION >= (3, 13) and (i.arg or 0) & 16 and type(found) is not bool:
        found = f.state.truth(found)
    f.push(found)


@handler("IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    b, a = f.pop(), f.pop()
    f.push(same_object(f, a, b) ^ bool(i.arg))


def same_object(f: Frame, a: Any, b: Any) -> bool:
    """`a is b`, which two objects from outside must keep to."""
    state = f.state
    if a is b:
        return True
    s, t = state.sources.get(id(a)), state.sources.get(id(b))
    if s is not None and t is not None and type(a) is type(b):
        if s.op != "const" and t.op != "const":
            state.guard("distinct", None, (s, t))
    if isinstance(a, (int, float, str, bytes)) and type(a) is type(b) and a == b:
        return identical(a, b)
    from .variables.numbers import SymInt

    if type(a) is SymInt and type(b) in (int, SymInt) or type(b) is SymInt and type(a) is int:
        return bool(a == b)
    return False


def identical(a: Any, b: Any) -> bool:
    if isinstance(a, int) and -5 <= a <= 256:
        return True
    raise unsupported("`is` between equal numbers or strings", "it is a matter of the interpreter")


@handler("CONTAINS_OP")
def contains_op(f: Frame, i: Instruction) -> None:
    container, value = f.pop(), f.pop()
    f.push(contains(f, container, value) ^ bool(i.arg))


# ---- items


@handler("BINARY_SUBSCR")
def binary_subscr(f: Frame, i: Instruction) -> None:
    key, value = f.pop(), f.pop()
    f.push(get_item(f, value, key))


@handler("STORE_SUBSCR")
def store_subscr(f: Frame, i: Instruction) -> None:
    key, container, value = f.pop(), f.pop(), f.pop()
    set_item(f, container, key, value)


@handler("DELETE_SUBSCR")
def delete_subscr(f: Frame, i: Instruction) -> None:
    key, container = f.pop(), f.pop()
    delete_item(f, container, key)


@handler("BINARY_SLICE")
def binary_slice(f: Frame, i: Instruction) -> None:
    stop, start, value = f.pop(), f.pop(), f.pop()
    f.push(get_item(f, value, slice(start, stop)))


@handler("STORE_SLICE")
def store_slice(f: Frame, i: Instruction) -> None:
    stop, start, container, value = f.pop(), f.pop(), f.pop(), f.pop()
    set_item(f, container, slice(start, stop), value)


# ---- building


@handler("BUILD_TUPLE")
def build_tuple(f: Frame, i: Instruction) -> None:
    f.push(tuple(f.take(i.arg or 0)))


@handler("BUILD_LIST")
def build_list(f: Frame, i: Instruction) -> None:
    f.push(f.state.note_made(f.take(i.arg or 0)))


@handler("BUILD_SET")
def build_set(f: Frame, i: Instruction) -> None:
    items = f.take(i.arg or 0)
    f.push(f.state.note_made(f.state.native(set, items)))


@handler("BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    items = f.take(2 * (i.arg or 0))
    made: dict = {}
    for k, v in zip(items[::2], items[1::2]):
        f.state.native(made.__setitem__, k, v)
    f.push(f.state.note_made(made))


@handler("BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    keys = f.pop()
    f.push(f.state.note_made(dict(zip(keys, f.take(i.arg or 0)))))


@handler("BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    f.push(slice(*f.take(i.arg or 0)))


@handler("BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    f.push("".join(f.take(i.arg or 0)))


@handler("LIST_APPEND")
def list_append(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.stack[-(i.arg or 0)].append(value)


@handler("SET_ADD")
def set_add(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.state.native(f.stack[-(i.arg or 0)].add, value)


@handler("MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    value, key = f.pop(), f.pop()
    f.state.native(f.stack[-(i.arg or 0)].__setitem__, key, value)


@handler("LIST_EXTEND")
def list_extend(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack[-(i.arg or 0)]
    if not hasattr(type_of(value), "__iter__") and not hasattr(type_of(value), "__getitem__"):
        name = type_of(value).__name__
        raise f.raised(TypeError(f"Value after * must be an iterable, not {name}"))
    target.extend(listed(f, value))


@handler("SET_UPDATE")
def set_update(f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.state.native(f.stack[-(i.arg or 0)].update, listed(f, value))


@handler("DICT_UPDATE")
def dict_update(f: Frame, i: Instruction) -> None:
    value = f.pop()
    for k, v in mapping_items(f, value):
        f.state.native(f.stack[-(i.arg or 0)].__setitem__, k, v)


@handler("DICT_MERGE")
def dict_merge(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.state.fill(f.stack[-(i.arg or 0)])
    for k, v in mapping_items(f, value):
        if k in target:  # CPython's error names the function, or on 3.11 in a handler is another
            raise unsupported(f"a call with the keyword argument {k!r} twice", "it is an error")
        target[k] = v


@handler("LIST_TO_TUPLE")
def list_to_tuple(f: Frame, i: Instruction) -> None:
    f.push(tuple(f.state.fill(f.pop())))  # it may come from before a break


@handler("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction) -> None:
    f.stack.extend(reversed(unpack(f, f.pop(), i.arg or 0)))


@handler("UNPACK_EX")
def unpack_ex(f: Frame, i: Instruction) -> None:
    before, after = (i.arg or 0) & 255, (i.arg or 0) >> 8
    items = listed(f, f.pop())
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        raise f.raised(ValueError(text))
    end = len(items) - after
    middle = f.state.note_made(items[before:end])
    f.stack.extend(reversed([*items[:before], middle, *items[end:]]))


# ---- attributes


@handler("LOAD_ATTR")
def load_attr_instruction(f: Frame, i: Instruction) -> None:
    stack = f.stack
    value = stack.pop()
    if VERSION >= (3, 12) and (i.arg or 0) & 1:
        found = load_attr(f, value, i.value)
        if VERSION >= (3, 13):
            f.push(found)
            f.push(NULL)
        else:
            f.push(NULL)
            f.push(found)
        return
    stack.append(load_attr(f, value, i.value))


@handler("LOAD_METHOD")
def load_method(f: Frame, i: Instruction) -> None:
    value = f.stack.pop()
    f.stack += (NULL, load_attr(f, value, i.value))


@handler("STORE_ATTR")
def store_attr_instruction(f: Frame, i: Instruction) -> None:
    target, value = f.pop(), f.pop()
    store_attr(f, target, i.value, value)


@handler("DELETE_ATTR")
def delete_attr_instruction(f: Frame, i: Instruction) -> None:
    delete_attr(f, f.pop(), i.value)


@handler("LOAD_SUPER_ATTR")
def load_super_attr(f: Frame, i: Instruction) -> None:
    from .builtins import make_super

    self, cls, function = f.pop(), f.pop(), f.pop()
    arg = i.arg or 0
    found = f.call(function, (cls, self), {}) if function is not super else make_super(f, cls, self)
    name = i.value if isinstance(i.value, str) else f.code.co_names[arg >> 2]
    value = load_attr(f, found, name)
    if not arg & 1:
        f.push(value)
    elif VERSION >= (3, 13):
        f.push(value)
        f.push(NULL)
    else:
        f.push(NULL)
        f.push(value)


# ---- text


def formatted(f: Frame, value: Any, conversion: int, spec: Any) -> str:
    from .builtins import text_of

    if conversion == 1:
        value = text_of(f, value, str)
    elif conversion == 2:
        value = text_of(f, value, repr)
    elif conversion == 3:
        value = f.state.native(ascii, value)
    if type(value) is str and not spec:
        return value
    return text_of(f, value, format, spec)


@handler("FORMAT_VALUE")
def format_value(f: Frame, i: Instruction) -> None:
    spec = f.pop() if (i.arg or 0) & 4 else ""
    f.push(formatted(f, f.pop(), (i.arg or 0) & 3, spec))


@handler("FORMAT_SIMPLE")
def format_simple(f: Frame, i: Instruction) -> None:
    f.push(formatted(f, f.pop(), 0, ""))


@handler("FORMAT_WITH_SPEC")
def format_with_spec(f: Frame, i: Instruction) -> None:
    spec = f.pop()
    f.push(formatted(f, f.pop(), 0, spec))


@handler("CONVERT_VALUE")
def convert_value(f: Frame, i: Instruction) -> None:
    f.push(formatted(f, f.pop(), i.arg or 0, ""))


@handler("LOAD_ASSERTION_ERROR")
def load_assertion_error(f: Frame, i: Instruction) -> None:
    f.push(AssertionError)


# ---- match


@handler("GET_LEN")
def get_len(f: Frame, i: Instruction) -> None:
    f.push(f.call(len, (f.stack[-1],), {}))


@handler("MATCH_SEQUENCE")
def match_sequence(f: Frame, i: Instruction) -> None:
    import collections.abc

    cls = type_of(f.stack[-1])
    f.push(
        bool(cls.__flags__ & (1 << 5))
        or cls is TensorVar
        and isinstance(cls, collections.abc.Sequence)
    )


@handler("MATCH_MAPPING")
def match_mapping(f: Frame, i: Instruction) -> None:
    f.push(bool(type_of(f.stack[-1]).__flags__ & (1 << 6)))


@handler("MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    values = []
    absent = object()
    for k in keys:
        found = f.call(load_attr(f, subject, "get"), (k, absent), {})
        if found is absent:
            f.push(None)
            return
        values.append(found)
    f.push(tuple(values))


@handler("MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    names, cls, subject = f.pop(), f.pop(), f.pop()
    count = i.arg or 0
    if not isinstance(cls, type):
        raise f.raised(TypeError("called match pattern must be a class"))
    if not f.call(isinstance, (subject, cls), {}):
        f.push(None)
        return
    found = []
    whole = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
    wanted: list[str] = []
    if count:
        if cls in whole:
            found.append(subject)
            if count > 1:
                text = f"{cls.__name__}() accepts 1 positional sub-pattern ({count} given)"
                raise f.raised(TypeError(text))
        else:
            try:
                args = load_attr(f, cls, "__match_args__")
            except AttributeError:
                args = ()
            if count > len(args):
                text = (
                    f"{cls.__name__}() accepts {len(args)} positional sub-patterns ({count} given)"
                )
                raise f.raised(TypeError(text))
            wanted += args[:count]
    wanted += names
    for name in wanted:
        try:
            found.append(load_attr(f, subject, name))
        except AttributeError as error:
            if not f.state.is_raised(error):
                raise
            f.push(None)
            return
    f.push(tuple(found))
