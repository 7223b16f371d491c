"""Calls of classes: conversions, containers, exceptions, and objects of classes written in
Python."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import itertools
import operator
import types
from typing import Any

from rushlight import _core, eager
from rushlight.eager import casting

from .attributes import NOT_FOUND, class_attribute, load_attr, store_attr, type_of
from .breaks import served, unsupported
from .iteration import listed, settle
from .leaves import region
from .variables.numbers import SymFloat, SymInt
from .variables.objects import (
    MISSING,
    Cell,
    Function,
    Instance,
    InstanceDict,
    Method,
    Opaque,
    Reenter,
    Super,
)

RUN_NATIVELY = (
    list, tuple, dict, set, frozenset, range, slice, enumerate, zip, map, filter, reversed, str,
    bytes, bytearray, int, float, bool, complex, collections.deque, collections.OrderedDict,
    collections.defaultdict, functools.partial, operator.itemgetter, operator.attrgetter,
    operator.methodcaller, eager.Size, eager.device, property, staticmethod, classmethod,
    itertools.chain, itertools.count, itertools.cycle, itertools.repeat, itertools.accumulate,
    itertools.product, itertools.permutations, itertools.combinations, itertools.islice,
    itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.zip_longest,
    itertools.groupby, itertools.pairwise, itertools.compress, itertools.filterfalse,
    itertools.combinations_with_replacement,
)  # fmt: skip
TRUTHS = (filter, itertools.filterfalse)
CALLING = {  # where the function stands that they call
    map: 0, filter: 0, itertools.filterfalse: 0, itertools.starmap: 0, itertools.takewhile: 0,
    itertools.dropwhile: 0, itertools.accumulate: 1, itertools.groupby: 1,
}  # fmt: skip
ITERATING = (list, tuple, set, frozenset, dict, collections.deque, collections.OrderedDict)


def call_class(f: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    state = f.state
    special = SPECIAL.get(cls)
    if special is not None:
        found = served(special, f, *args, **kwargs)
        if found is not NOT_FOUND:
            return found
    if cls in RUN_NATIVELY:
        return run_natively(f, cls, args, kwargs)
    if issubclass(cls, BaseException):
        return make_exception(f, cls, args, kwargs)
    if isinstance(cls, enum.EnumMeta):
        if len(args) == 1 and not kwargs:
            return state.native(cls, args[0])
        raise unsupported(f"a call of enum {cls.__name__}", "it makes a new class")
    if is_plain_namedtuple(cls):
        return state.native(cls, *args, **kwargs)
    if issubclass(cls, _core.Tensor):
        raise unsupported(f"a call of {cls.__name__}", "tensors of a class are made outside")
    return make_instance(f, cls, args, kwargs)


def is_plain_namedtuple(cls: type) -> bool:
    return (
        issubclass(cls, tuple)
        and hasattr(cls, "_fields")
        and getattr(cls.__new__, "__module__", "").startswith("namedtuple_")
        and cls.__init__ is object.__init__
    )


def entering(state: Any, function: Any) -> Any:
    """A function as an iterator may call it: the interpreter makes the call."""
    known = function is None or type(function) in (Reenter, Function, Method, Instance)
    return function if known else Reenter(state, function)


def run_natively(f: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    state = f.state
    if any(type(a) is Opaque for a in args):
        raise unsupported(f"{cls.__name__}() of an object", "its behaviour is not modelled")
    if cls in ITERATING and args and type(args[0]) not in (list, tuple, str, range):
        first = args[0]
        if type(first) is InstanceDict or (cls is dict and isinstance(first, Instance)):
            from .containers import mapping_items

            args = (dict(mapping_items(f, first)), *args[1:])
        elif not isinstance(first, dict) and type(first) is not Super:
            args = (listed(f, first), *args[1:])
    if cls in TRUTHS and args and args[0] is None:
        args = (bool, *args[1:])
    if cls in CALLING:  # what the function is given may be lazy, or a stand-in
        at = CALLING[cls]
        args = tuple(entering(state, a) if i == at else a for i, a in enumerate(args))
        kwargs = {k: entering(state, v) if k in ("func", "key") else v for k, v in kwargs.items()}
    if cls is dict and args:
        state.realize_all(args[0])
    given = tuple(state.callable(state.fill(a)) for a in args)
    if cls not in (list, tuple, zip, enumerate, reversed, map, filter, dict, functools.partial):
        for a in args:
            state.realize_all(a)
    named = {k: state.callable(state.fill(v)) for k, v in kwargs.items()}
    made = settle(f, state.native(cls, *given, **named))
    if type(made) not in (int, float, str, bool, bytes, complex):
        state.note_made(made)
    return made


# ---- objects


def make_exception(f: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    state = f.state
    init: Any = getattr(cls, "__init__", None)
    args = tuple(map(f.realize, args))
    if type(cls.__new__) is types.FunctionType:
        raise unsupported(f"a call of {cls.__name__}", "its __new__ is not modelled")
    if type(init) is not types.FunctionType:
        return state.note_made(state.native(cls, *args, **kwargs))
    made = state.native(cls.__new__, cls, *args, **kwargs)
    state.note_made(made)
    f.call(class_attribute(state, cls, "__init__"), (made, *args), kwargs)
    return made


def make_instance(f: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    state = f.state
    meta = type(cls)
    if meta is not type and meta is not abc.ABCMeta:
        found = class_attribute(state, meta, "__call__")
        if type(found) is types.FunctionType:
            return f.call(found, (cls, *args), kwargs)
    if getattr(cls, "__abstractmethods__", None):
        raise unsupported(f"a call of {cls.__name__}", "the class is abstract")
    new = class_attribute(state, cls, "__new__")
    new = new.__func__ if type(new) is staticmethod else new
    if type(new) in (types.FunctionType, Function):
        made = f.call(new, (cls, *args), kwargs)
        if not isinstance(type_of(made), type) or not issubclass(type_of(made), cls):
            return made
    else:
        made = new_object(f, cls)
    init = class_attribute(state, cls, "__init__")
    if type(init) in (types.FunctionType, Function):
        f.call(init, (made, *args), kwargs)
    elif init is types.SimpleNamespace.__init__:
        namespace_init(f, made, *args, **kwargs)
    elif (args or kwargs) and type(new) not in (types.FunctionType, Function):
        raise f.raised(TypeError(f"{cls.__name__}() takes no arguments"))
    return made


def new_object(f: Any, cls: type) -> Instance:
    """object.__new__(cls)."""
    from .wrapping import is_python_class

    if not is_python_class(cls):
        name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
        raise unsupported(f"a call of {name}", "the class is not written in Python")
    return f.state.note_made(Instance(f.state, cls))


def build_class(f: Any, body: Function, name: str, *bases: Any, **kwargs: Any) -> type:
    """A class made in the frame: a real class whose functions are the capture's."""
    from .calls import bind
    from .interpreter import Frame

    state = f.state
    if kwargs or any(type(b) not in (type, abc.ABCMeta) for b in bases):
        raise unsupported(f"class {name}", "a class with a metaclass or keywords")
    if any("__init_subclass__" in c.__dict__ for b in bases for c in b.__mro__[:-1]):
        raise unsupported(f"class {name}", "a base wants to know of its subclasses")
    local, cells = bind(f, body, (), {})
    frame = Frame(state, body.code, body.namespace, local, cells)
    space: dict[str, Any] = {}
    frame.class_namespace = space
    cell = frame.run()[1]
    space.pop("__classcell__", None)
    for v in space.values():
        if type(v) not in (Function, str, int, float, bool, tuple, type(None), property,
                           staticmethod, classmethod, dict, list):  # fmt: skip
            raise unsupported(f"class {name}", f"it holds a {type_of(v).__name__}")
    made = state.native(type, name, bases, dict(space))
    state.note_made(made)
    state.made_classes.add(made)
    if type(cell) is Cell:
        f.write_cell(cell, made)
    return made


# ---- classes that mean something else to the program than to the interpreter


def call_type(f: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return type_of(args[0])
    raise unsupported("a class made by type()", "it is not modelled")


def call_super(f: Any, *args: Any) -> Any:
    from .builtins import make_super

    if args:
        return make_super(f, *args)
    cell = f.cells.get("__class__")
    if cell is None or not f.code.co_argcount:
        raise f.raised(RuntimeError("super(): no arguments"))
    name = f.code.co_varnames[0]
    value = f.cells[name].content if name in f.cells else f.locals.get(name, MISSING)
    return make_super(f, f.cell_content(cell, "__class__"), f.realize(value))


def call_int(f: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        (v,) = args
        if type(v) is SymInt:
            return v
        if type(v) is Instance:
            return f.state.native(int, v)
    return NOT_FOUND


def call_float(f: Any, *args: Any) -> Any:
    if len(args) == 1 and type(args[0]) is SymFloat:
        return args[0]
    return NOT_FOUND


def call_bool(f: Any, *args: Any) -> Any:
    return f.state.truth(args[0]) if args else False


def call_str(f: Any, *args: Any, **kwargs: Any) -> Any:
    from .builtins import text_of

    if len(args) == 1 and not kwargs:
        return text_of(f, args[0], str)
    return NOT_FOUND


def call_object(f: Any, *args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise f.raised(TypeError("object() takes no arguments"))
    return f.state.note_made(Instance(f.state, object))


def namespace_init(f: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """SimpleNamespace.__init__."""
    if args:
        raise unsupported("SimpleNamespace() of a mapping", "it is not modelled")
    for name, v in kwargs.items():
        store_attr(f, self, name, v)


def call_dict(f: Any, *args: Any, **kwargs: Any) -> Any:
    from .containers import mapping_items

    if args and not isinstance(args[0], (dict, list, tuple)) and hasattr(type_of(args[0]), "keys"):
        made = dict(mapping_items(f, args[0]))
        made.update(kwargs)
        return f.state.note_made(made)
    return NOT_FOUND


def call_tuple(f: Any, *args: Any) -> Any:
    if args and type(args[0]) is tuple:
        return args[0]
    return tuple(listed(f, args[0])) if args else ()


SPECIAL: dict[Any, Any] = {
    casting.autocast: region,
    type: call_type,
    super: call_super,
    int: call_int,
    float: call_float,
    bool: call_bool,
    str: call_str,
    object: call_object,
    dict: call_dict,
    tuple: call_tuple,
}
__all__ = ["call_class", "load_attr"]
