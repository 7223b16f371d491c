"""Builtin functions on values of the program.

`SPECIAL` answers those that would look through a stand-in; `PURE` names those that run as they are,
because all they do is compute from their arguments through Python's protocols.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
import types
from typing import Any

from rushlight import _core

from .attributes import (
    NOT_FOUND,
    class_attribute,
    delete_attr,
    generic_delattr,
    generic_getattr,
    generic_setattr,
    load_attr,
    store_attr,
    type_of,
)
from .breaks import served, unsupported
from .classes import build_class, namespace_init, new_object
from .iteration import END, get_iter, listed, settle, step
from .leaves import NATIVE_LEAVES
from .tensors import TensorMethod, type_name
from .variables.numbers import SymFloat, SymInt, hint
from .variables.objects import (
    Cell,
    Function,
    Instance,
    InstanceDict,
    Lazy,
    Method,
    ObjectId,
    Opaque,
    Reenter,
    Super,
)
from .variables.tensor import TensorVar

PURE = {
    abs, all, any, ascii, bin, chr, divmod, hex, max, min, oct, ord, pow, round, sorted, sum,
    functools.reduce, itertools.tee, *(v for v in vars(math).values() if callable(v)),
    *(v for v in vars(operator).values() if isinstance(v, types.BuiltinFunctionType)),
}  # fmt: skip
MATH = {
    getattr(math, n)
    for n in (
        "sqrt exp log log2 log10 pow sin cos tan tanh fabs exp2 cbrt expm1 log1p hypot atan2"
    ).split()
    if hasattr(math, n)
}  # of floats that vary: nodes of the graph
STRUCTURAL = {
    "append", "pop", "insert", "clear", "get", "setdefault", "keys", "values", "items",
    "move_to_end", "popitem", "appendleft", "popleft", "update", "reverse", "copy", "extend",
    "extendleft", "rotate", "__len__", "__setitem__", "__iter__", "add", "discard",
}  # fmt: skip
CONTAINERS = (
    list,
    dict,
    set,
    tuple,
    frozenset,
    str,
    bytes,
    int,
    float,
    bool,
    range,
    slice,
    complex,
)


def call_builtin(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    kind = type(function)
    leaf = NATIVE_LEAVES.get(function) if kind is types.BuiltinFunctionType else None
    if leaf is not None:
        return served(leaf, f, *args, **kwargs)
    special = SPECIAL.get(function) if hashable(function) else None
    if special is not None:
        return served(special, f, *args, **kwargs)
    args = tuple(map(f.realize, args))
    if kind is types.MethodType:
        return bound_method(f, function, args, kwargs)
    if kind in DESCRIPTORS:
        return call_descriptor(f, function, args, kwargs)
    if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
        owner = function.__self__
        if isinstance(owner, types.ModuleType) or owner is None:
            if function in PURE:
                return pure(f, function, args, kwargs)
        elif isinstance(owner, type):
            if owner in CLASS_METHODS or issubclass(owner, tuple):
                return class_method(f, function, args, kwargs)
        else:
            return method(f, owner, function, args, kwargs)
    if kind in GETTERS:
        return call_getter(f, function, args, kwargs)
    if kind is functools._lru_cache_wrapper:
        raise unsupported(
            f"a call of {getattr(function, '__qualname__', 'a cached function')}",
            "results of functools.cache are kept outside the graph",
        )
    if function in PURE:
        return pure(f, function, args, kwargs)
    if not callable(function) or type(function) in CONTAINERS:
        name = type_name(type_of(function))
        raise f.raised(TypeError(f"'{name}' object is not callable"))
    name = getattr(function, "__qualname__", None) or type(function).__name__
    where = getattr(function, "__module__", None)
    raise unsupported(
        f"a call of the builtin {where + '.' if where else ''}{name}",
        "a capture cannot tell what it does",
    )


DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
CLASS_METHODS = (dict, int, float, str, bytes, tuple, object, type)


def call_getter(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """operator.attrgetter and its like, whose parts pickling tells."""
    if len(args) != 1 or kwargs:
        raise unsupported(f"a call of {function!r}", "it takes one argument")
    _, given = function.__reduce__()[:2]
    if type(function) is operator.methodcaller:
        if not isinstance(given, tuple) or not given or not isinstance(given[0], str):
            raise unsupported("operator.methodcaller with keywords", "it is not modelled")
        return f.call(load_attr(f, args[0], given[0]), given[1:], {})
    found = []
    for part in given:
        value = args[0]
        if type(function) is operator.itemgetter:
            found.append(call_getitem(f, value, part))
            continue
        for name in part.split("."):
            value = load_attr(f, value, name)
        found.append(value)
    return tuple(found) if len(found) > 1 else found[0]


def hashable(value: Any) -> bool:
    return not isinstance(value, (Instance,)) and type(value).__hash__ is not None


def pure(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    state = f.state
    check(function, args)
    if function in MATH and any(type(a) is SymFloat for a in args):
        if isinstance(state.native(function, *map(hint, args)), float):
            return state.float_node(function, *args)
    if function is pow and (len(args) == 3 or kwargs):  # the last may be what varies
        args = tuple(map(fixed, args))
        kwargs = {k: fixed(v) for k, v in kwargs.items()}
    for a in args:
        state.realize_all(a)
    given = tuple(state.callable(looked_at(f, a)) for a in args)
    named = {k: state.callable(v) for k, v in kwargs.items()}
    found = settle(f, state.native(function, *given, **named))
    found = state.plain(found)
    if type(found) in (list, dict, set):
        state.note_made(found)
    return found


def fixed(value: Any) -> Any:
    return value.fix() if type(value) in (SymInt, SymFloat) else value


def looked_at(f: Any, value: Any) -> Any:
    """An iterator for a builtin that compares, adds or tests what comes: nothing lazy in it."""
    if not hasattr(type(value), "__next__") or isinstance(value, Instance):
        return value

    def items() -> Any:
        while (item := step(f, value)) is not END:
            yield f.state.realize_all(item)

    return items()


def class_method(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """`dict.fromkeys(...)`, `tuple.__new__(cls, items)`."""
    check(function, args)
    args = tuple(listed(f, a) if hasattr(a, "__next__") else f.state.realize_all(a) for a in args)
    return f.state.note_made(settle(f, f.state.native(function, *args, **kwargs)))


def check(function: Any, args: tuple) -> None:
    for a in args:
        if type(a) in (Opaque, InstanceDict):
            name = getattr(function, "__qualname__", "a builtin")
            raise unsupported(f"{name} of an object", "the object's behaviour is not modelled")


def bound_method(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A method of one of the interpreter's own objects: a generator, a number."""
    from .generators import Generator

    owner = function.__self__
    if isinstance(owner, (Generator, SymInt, SymFloat)):
        return settle(f, f.state.native(function, *args, **kwargs))
    if isinstance(owner, type) and type(function.__func__) is types.FunctionType:
        return f.call(function.__func__, (owner, *args), kwargs)
    raise unsupported(f"a call of {function!r}", "it is not modelled")


SAFE_OWNERS = (
    list, dict, set, tuple, frozenset, str, bytes, bytearray, int, float, bool, complex, range,
    slice, type(None), types.MappingProxyType,
)  # fmt: skip


def method(f: Any, owner: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A method of a builtin object, `[].append`."""
    state, name = f.state, function.__name__
    if isinstance(owner, BaseException) and not isinstance(owner, type):
        if name in ("with_traceback", "__reduce__"):
            raise unsupported(f"{name} of an exception", "it is not modelled")
        return settle(f, state.native(function, *args, **kwargs))
    if isinstance(owner, _core.Operator) or not safe_owner(owner):
        if hasattr(type(owner), "__next__"):
            return settle(f, state.native(function, *args, **kwargs))
        raise unsupported(
            f"a call of {type(owner).__name__}.{name}", "the object's behaviour is not modelled"
        )
    if isinstance(owner, dict) and name == "get" and args:
        from .containers import ABSENT, looked_up

        shadow = state.unfilled(owner)
        if shadow is not None and looked_up(state, args[0]):
            found = state.item_of_unfilled(shadow, args[0], ABSENT)
            return found if found is not ABSENT else args[1] if len(args) > 1 else None
    if name == "append" and type(owner) is list and state.unfilled(owner) is not None:
        return state.native(function, *args, **kwargs)
    state.fill(owner)
    if isinstance(owner, dict) and name in ("values", "items"):  # what looks at a view sees these
        for k, v in owner.items():
            if type(v) is Lazy:
                owner[k] = state.realize_element(owner, k, v)
    if name not in STRUCTURAL:
        state.realize_all(owner)
        check(function, args)
        for a in args:
            state.realize_all(a)
        if isinstance(owner, (str, bytes, set, frozenset)):
            args = tuple(looked_at(f, a) for a in args)
        args = tuple(map(state.callable, args))
        kwargs = {k: state.callable(v) for k, v in kwargs.items()}
    elif name in ("extend", "update", "extendleft") and args:
        args = (*(whole(f, a) for a in args),)
    found = state.native(function, *args, **kwargs)
    if type(found) is Lazy:
        found = f.realize(found)
        if name in ("get", "setdefault") and args[0] in owner:
            dict.__setitem__(owner, args[0], state.realize_element(owner, args[0], owner[args[0]]))
    found = settle(f, found)
    if type(found) in (list, dict, set):
        state.note_made(found)
    return found


def whole(f: Any, value: Any) -> Any:
    """What a container is extended by, listed before anything is changed."""
    if type(value) is InstanceDict:
        from .containers import mapping_items

        return dict(mapping_items(f, value))
    if isinstance(value, dict):
        return f.state.fill(value)
    if isinstance(value, (str, range, tuple)):
        return value
    return listed(f, value)


def safe_owner(owner: Any) -> bool:
    import collections

    cls = type(owner)
    return (
        cls in SAFE_OWNERS
        or cls in (collections.OrderedDict, collections.defaultdict, collections.deque)
        or isinstance(owner, tuple)
        or isinstance(owner, (type({}.keys()), type({}.values()), type({}.items())))
    )


def call_descriptor(f: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """An unbound method of a builtin class: `str.upper(s)`, `object.__setattr__(o, name, v)`."""
    owner = function.__objclass__
    if not args:
        raise unsupported(f"a call of {function.__qualname__}", "without an object")
    first = args[0]
    if owner is _core.Tensor and type(first) is TensorVar:
        return f.call(TensorMethod(first, function.__name__), args[1:], kwargs)
    if type(first) is Instance:
        handler = OBJECT_METHODS.get(function.__name__) if owner is object else None
        if handler is not None:
            return served(handler, f, *args, **kwargs)
        if function is types.SimpleNamespace.__init__:
            return namespace_init(f, *args, **kwargs)
        raise unsupported(f"{function.__qualname__} of an object", "it is not modelled")
    if (
        isinstance(first, BaseException)
        and issubclass(owner, BaseException)
        or owner is object
        and isinstance(first, BaseException)
    ):
        if function.__name__ in ("__init__", "__str__", "__repr__", "__setattr__", "__new__"):
            return f.state.native(function, *args, **kwargs)
    if type(first) in (SymInt, SymFloat) or not safe_owner(first):
        raise unsupported(f"a call of {function.__qualname__}", "it is not modelled")
    return f.call(getattr(first, function.__name__), args[1:], kwargs)


def object_init(f: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    if args or kwargs:
        raise unsupported("object.__init__ with arguments", "it may refuse them")


def object_eq(f: Any, self: Any, other: Any) -> Any:
    return True if self is other else NotImplemented


OBJECT_METHODS: dict[str, Any] = {
    "__init__": object_init,
    "__setattr__": lambda f, o, n, v: generic_setattr(f, o, n, v),
    "__getattribute__": lambda f, o, n: generic_getattr(f, o, n, False),
    "__delattr__": lambda f, o, n: generic_delattr(f, o, n),
    "__eq__": object_eq,
    "__ne__": lambda f, a, b: a is not b or NotImplemented,
    "__hash__": lambda f, o: hash(o),
}


# ---- builtins that look at their arguments' types


def call_isinstance(f: Any, value: Any, kinds: Any) -> bool:
    cls = type_of(f.realize(value))
    return matches(f, cls, kinds, value)


def matches(f: Any, cls: type, kinds: Any, value: Any) -> bool:
    if type(kinds) is tuple:
        return any(matches(f, cls, k, value) for k in kinds)
    if isinstance(kinds, types.UnionType):
        return any(matches(f, cls, k, value) for k in kinds.__args__)
    if not isinstance(kinds, type):
        if type(kinds) is Opaque or type(kinds) is Instance:
            raise unsupported("isinstance with an object", "it is no class")
        return f.state.native(isinstance, object(), kinds)
    hook = type(kinds).__instancecheck__
    if type(hook) is types.FunctionType and type(kinds).__module__ not in ("abc", "enum", "typing"):
        return f.state.truth(f.call(hook, (kinds, value), {}))
    if type(hook) is types.FunctionType and type(kinds).__module__ == "typing":
        raise unsupported("isinstance with a protocol", "it is not modelled")
    return f.state.native(issubclass, cls, kinds)


def call_issubclass(f: Any, cls: Any, kinds: Any) -> bool:
    if not isinstance(cls, type):
        return f.state.native(issubclass, cls, kinds)
    return matches(f, cls, kinds, None)


def call_getattr(f: Any, value: Any, name: Any, *default: Any) -> Any:
    if type(name) is not str:
        raise f.raised(
            TypeError("attribute name must be string, not " + repr(type_of(name).__name__))
        )
    try:
        return load_attr(f, f.realize(value), name)
    except AttributeError as error:
        if default and f.state.is_raised(error):
            return default[0]
        raise


def call_hasattr(f: Any, value: Any, name: Any) -> bool:
    try:
        load_attr(f, f.realize(value), name)
    except AttributeError as error:
        if f.state.is_raised(error):
            return False
        raise
    return True


def call_setattr(f: Any, value: Any, name: str, new: Any) -> None:
    store_attr(f, value, name, new)


def call_delattr(f: Any, value: Any, name: str) -> None:
    delete_attr(f, value, name)


def call_len(f: Any, value: Any) -> Any:
    state = f.state
    if type(value) is TensorVar:
        return f.call(TensorMethod(value, "__len__"), (), {})
    if type(value) is InstanceDict:
        return load_attr(f, value, "__len__").run(f)
    if type(value) is Instance:
        found = class_attribute(state, value.cls, "__len__")
        if found is NOT_FOUND:
            text = f"object of type '{value.cls.__name__}' has no len()"
            raise f.raised(TypeError(text))
        return f.call(found, (value,), {})
    check(len, (value,))
    state.fill(value)
    return state.native(len, value)


def call_iter(f: Any, value: Any, *sentinel: Any) -> Any:
    if sentinel:
        return f.state.note_made(f.state.native(iter, f.state.callable(value), *sentinel))
    return get_iter(f, value)


def call_next(f: Any, iterator: Any, *default: Any) -> Any:
    if not hasattr(type_of(iterator), "__next__"):
        name = type_of(iterator).__name__
        raise f.raised(TypeError(f"'{name}' object is not an iterator"))
    from .generators import Generator

    if isinstance(iterator, Generator) and not default:
        return f.realize(f.state.native(next, iterator))
    found = step(f, iterator)
    if found is END:
        if default:
            return default[0]
        raise f.raised(StopIteration())
    return found


def call_callable(f: Any, value: Any) -> bool:
    cls = type(value)
    if cls is Instance:
        return any("__call__" in c.__dict__ for c in value.cls.__mro__)
    if cls in (Function, Method, Reenter, TensorMethod):
        return True
    if cls is TensorVar:
        return False
    return callable(value.value if cls is Opaque else value)


def call_hash(f: Any, value: Any) -> Any:
    if type(value) is Instance and value.cls.__hash__ is not object.__hash__:
        return f.state.native(hash, value)
    if type(value) in (int, float, bool, str, bytes, type(None), tuple, SymInt, SymFloat):
        return f.state.native(hash, value)
    raise unsupported(f"hash of a {type_of(value).__name__}", "it is an address")


def call_vars(f: Any, *args: Any) -> Any:
    if len(args) == 1 and type(args[0]) is Instance:
        return load_attr(f, args[0], "__dict__")
    raise unsupported("vars()", "it is modelled for objects of Python classes only")


def make_super(f: Any, start: Any, *rest: Any) -> Super:
    if not rest:
        raise unsupported("super() without an object", "it is not modelled")
    value = rest[0]
    cls = value if isinstance(value, type) else type_of(value)
    if not issubclass(cls, start):
        text = "super(type, obj): obj must be an instance or subtype of type"
        raise f.raised(TypeError(text))
    return Super(start, value, cls)


def text_of(f: Any, value: Any, function: Any, *spec: Any) -> str:
    """str(), repr() or format() of a value."""
    state, cls = f.state, type(value)
    if cls is Instance:
        names = {
            str: ("__str__", "__repr__"),
            repr: ("__repr__",),
            format: ("__format__", "__str__", "__repr__"),
        }
        for name in names[function]:
            found = class_attribute(state, value.cls, name)
            if type(found) in (types.FunctionType, Function):
                args = (value, *spec) if name == "__format__" else (value,)
                made = f.call(found, args, {})
                return format(made, *spec) if spec and name != "__format__" else made
        raise unsupported(f"{function.__name__} of an object", "the text holds its address")
    if cls in (Function, Method, Opaque, Cell, Super, InstanceDict) or (
        callable(value) and not isinstance(value, type) and cls is not SymInt
    ):
        raise unsupported(
            f"{function.__name__} of a {type_of(value).__name__}", "the text may hold an address"
        )
    state.realize_all(value)
    return state.native(function, value, *spec)


def call_repr(f: Any, value: Any) -> str:
    return text_of(f, value, repr)


def call_format(f: Any, value: Any, spec: str = "") -> str:
    return text_of(f, value, format, spec)


def call_getitem(f: Any, value: Any, key: Any) -> Any:
    from .containers import get_item

    return get_item(f, value, key)


def call_setitem(f: Any, container: Any, key: Any, value: Any) -> None:
    from .containers import set_item

    set_item(f, container, key, value)


def call_object_new(f: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    return new_object(f, cls)


def in_place_call(function: Any) -> Any:
    def handler(f: Any, a: Any, b: Any) -> Any:
        from .numeric import in_place

        return in_place(f, function, a, b)

    return handler


def binary_call(function: Any) -> Any:
    def handler(f: Any, a: Any, b: Any) -> Any:
        from .numeric import binary

        return binary(f, function, f.realize(a), f.realize(b))

    return handler


def call_id(f: Any, value: Any) -> Any:
    return f.state.note_made(ObjectId(value))


SPECIAL: dict[Any, Any] = {
    id: call_id,
    isinstance: call_isinstance,
    issubclass: call_issubclass,
    getattr: call_getattr,
    hasattr: call_hasattr,
    setattr: call_setattr,
    delattr: call_delattr,
    len: call_len,
    iter: call_iter,
    next: call_next,
    callable: call_callable,
    hash: call_hash,
    vars: call_vars,
    repr: call_repr,
    format: call_format,
    builtins.__build_class__: build_class,
    operator.getitem: call_getitem,
    operator.setitem: call_setitem,
    operator.is_: lambda f, a, b: a is b,
    object.__new__: call_object_new,
    **{
        getattr(operator, n): in_place_call(getattr(operator, n))
        for n in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul")
    },
    **{
        getattr(operator, n): binary_call(getattr(operator, n))
        for n in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    },
}
