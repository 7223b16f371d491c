"""Attributes: what `obj.name`, `obj.name = v` and `del obj.name` mean for each kind of value, by
the protocol of descriptors.

A miss raises the program's AttributeError in CPython's words.
"""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

from rushlight import nn
from rushlight.nn.module import Module

from .breaks import unsupported
from .own_dicts import instance_dict
from .tensors import load_tensor_attribute, store_tensor_attribute
from .variables.iterators import IteratorVar
from .variables.numbers import SymFloat, SymInt
from .variables.objects import (
    MISSING,
    Cell,
    Function,
    Instance,
    InstanceDict,
    Method,
    ObjectId,
    Opaque,
    Reenter,
    Super,
)
from .variables.tensor import TensorVar

NOT_FOUND: Any = type("NotFound", (), {"__repr__": lambda self: "<not found>"})()
DELETED: Any = type("Deleted", (), {"__repr__": lambda self: "<deleted>"})()
TRUSTED = frozenset(
    "builtins collections functools contextlib enum typing abc dataclasses".split()
)  # their classes keep the functions that they have
MISS = object()
HEAP = 1 << 9  # flag of types: made at run time


def trusted(module: str) -> bool:
    return module in TRUSTED or module.startswith("rushlight.")


def type_of(value: Any) -> type:
    """type(value) as the program sees it."""
    cls = type(value)
    if cls in (TensorVar, Instance, Super):
        return value.cls if cls is not Super else super
    found = TYPES.get(cls)
    if found is not None:
        return found
    if cls is Reenter:
        return type_of(value.function)
    if cls is Opaque:
        return type(value.value)
    if isinstance(value, IteratorVar):
        return type(value.real)
    from .generators import Generator

    return types.GeneratorType if cls is Generator else cls


TYPES = {
    SymInt: int,
    SymFloat: float,
    Function: types.FunctionType,
    Method: types.MethodType,
    Cell: types.CellType,
    InstanceDict: dict,
    ObjectId: int,
}


def class_attribute(state: Any, cls: type, name: str, instance: Any = None) -> Any:
    """What stands under a name in the class or its bases, unbound; NOT_FOUND if nothing does.
    Asked again in one capture it is the same, and guarded already."""
    found = state.of_classes.get((cls, name), MISS)
    if found is MISS:
        home = next((c for c in cls.__mro__ if name in c.__dict__), None)
        if home is not cls and home is not None:
            guard_absent(state, cls, name, home)
        found = NOT_FOUND if home is None else class_value(state, home, name)
        state.of_classes[cls, name] = found
    return found


def guard_absent(state: Any, cls: type, name: str, end: type | None = None) -> None:
    """No class before `end` in the MRO has the name: one that gets it later would hide it."""
    for c in cls.__mro__:
        if c is end:
            return
        if name in c.__dict__ or not c.__flags__ & HEAP:  # it has it; or it never changes
            continue
        if c not in state.made_classes and not trusted(c.__module__):
            state.guard("absent", state.roots.const(c).child("attr", "__dict__"), name)


def class_value(state: Any, c: type, name: str) -> Any:
    pending = state.class_writes.get((c, name), MISS)
    if pending is not MISS:
        return pending
    value = c.__dict__[name]
    if c in state.made_classes:
        return value
    if trusted(c.__module__) and (callable(value) or hasattr(value, "__get__")):
        return value
    source = state.roots.const(c).child("attr", "__dict__").child("item", name)
    if type(value) in DESCRIPTORS:
        if not c.__flags__ & HEAP:  # a builtin class never changes
            return value
        state.guard("is", source, value)
        return value
    if type(value) in (types.MemberDescriptorType, types.GetSetDescriptorType):
        return value
    return state.wrap(value, source)


DESCRIPTORS = (
    types.FunctionType,
    property,
    staticmethod,
    classmethod,
    functools.cached_property,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)


def missing(state: Any, value: Any, name: str) -> Exception:
    cls = type_of(value)
    if isinstance(value, type):
        text = f"type object '{value.__name__}' has no attribute '{name}'"
    else:
        text = f"'{cls.__name__}' object has no attribute '{name}'"
    error = AttributeError(text, name=name)
    return state.raised(error)


def load_attr(frame: Any, value: Any, name: str) -> Any:
    state = frame.state
    cls = type(value)
    loader = LOADERS.get(cls)
    if loader is not None:
        return loader(frame, value, name)
    if cls is types.ModuleType or isinstance(value, types.ModuleType):
        return load_module(frame, value, name)
    if isinstance(value, type):
        return load_class(frame, value, name)
    if cls is types.FunctionType:
        return load_function(frame, value, name)
    if isinstance(value, enum.Enum):
        return load_enum(frame, value, name)
    if isinstance(value, BaseException):
        return load_exception(frame, value, name)
    if cls.__module__ == "rushlight.dynamo.generators":
        return load_generator(frame, value, name)
    if cls.__module__.startswith("rushlight.dynamo"):
        raise unsupported(f"attribute {name} of a stand-in", "it is not modelled")
    if cls in (property, staticmethod, classmethod, functools.partial) or cls in PARTIALS:
        found = state.native(getattr, value, name)
        return found
    for c in cls.__mro__:
        if name in c.__dict__:
            found = c.__dict__[name]
            if type(found) is types.FunctionType:
                return Method(state, found, value)
            if type(found) is property:
                return frame.call(found.fget, (value,), {})
            break
    if cls in UNSAFE:
        raise unsupported(f"attribute {name} of {cls.__name__}", "it is not modelled")
    return frame.realize(state.native(getattr, value, name))


PARTIALS = (functools.partial,)
UNSAFE: tuple = (types.FrameType, types.TracebackType, types.CodeType)


# ---- instances


def load_instance(frame: Any, value: Instance, name: str) -> Any:
    cls = value.cls
    own = cls.__getattribute__
    if own is not object.__getattribute__ and type(own) is types.FunctionType:
        return frame.call(own, (value, name), {})
    return generic_getattr(frame, value, name)


def generic_getattr(frame: Any, value: Instance, name: str, hook: bool = True) -> Any:
    """object.__getattribute__, and then the class's __getattr__."""
    state, cls = frame.state, value.cls
    if name == "__class__":
        return cls
    if name == "__dict__":
        return instance_dict(state, value)
    found = class_attribute(state, cls, name)
    kind = type(found)
    if kind is property:
        return call_property(frame, found.fget, value, name, hook)
    if kind is types.MemberDescriptorType:
        field = load_slot(state, value, name, found)
        if field is NOT_FOUND:
            return use_getattr(frame, value, name, hook)
        return field
    if kind is Instance and has(found.cls, "__get__") and has(found.cls, "__set__"):
        return frame.call(class_attribute(state, found.cls, "__get__"), (found, value, cls), {})
    field = load_field(state, value, name)
    if field is not NOT_FOUND:
        return field
    if found is not NOT_FOUND:
        return bind(frame, found, value, cls, name)
    return use_getattr(frame, value, name, hook)


def has(cls: type, name: str) -> bool:
    return any(name in c.__dict__ for c in cls.__mro__)


def call_property(frame: Any, getter: Any, value: Any, name: str, hook: bool) -> Any:
    if getter is None:
        raise missing(frame.state, value, name)
    try:
        return frame.call(getter, (value,), {})
    except AttributeError as error:
        if not frame.state.is_raised(error) or not has(type_of(value), "__getattr__") or not hook:
            raise
        return use_getattr(frame, value, name, hook)


def bind(frame: Any, found: Any, value: Any, cls: type, name: str) -> Any:
    """What a class attribute becomes when it is read through an instance (or, value None, through
    the class)."""
    state, kind = frame.state, type(found)
    if kind in (types.FunctionType, Function):
        return found if value is None else Method(state, found, value)
    if kind is staticmethod:
        return found.__func__
    if kind is classmethod:
        return Method(state, found.__func__, cls)
    if kind is property:
        return found if value is None else frame.call(found.fget, (value,), {})
    if kind is functools.cached_property:
        if value is None:
            return found
        made = frame.call(found.func, (value,), {})
        store_field(state, value, found.attrname, made)
        return made
    if kind in (types.WrapperDescriptorType, types.MethodDescriptorType):
        return found if value is None else Method(state, found, value)
    if kind is types.ClassMethodDescriptorType:
        return found.__get__(None, cls)
    if kind is types.GetSetDescriptorType:
        if value is None:
            return found
        raise unsupported(f"attribute {name} of {cls.__name__}", "it is computed natively")
    if kind is Instance and has(found.cls, "__get__"):
        return frame.call(class_attribute(state, found.cls, "__get__"), (found, value, cls), {})
    if kind is Opaque and hasattr(type(found.value), "__get__"):
        raise unsupported(f"attribute {name} of {cls.__name__}", "its descriptor is not modelled")
    return found


def load_field(state: Any, value: Instance, name: str) -> Any:
    """An entry of the instance's own dict."""
    field = value.fields.get(name, MISS)
    if field is not MISS:
        if field is DELETED:
            return NOT_FOUND
        return state.realize(field)
    if value.fresh:
        return NOT_FOUND
    real = real_dict(value.real)
    if real is None:
        return NOT_FOUND
    if name in real:
        return state.wrap(real[name], value.source.child("dict_attr", name))
    state.guard("absent", value.source.child("attr", "__dict__"), name)
    return NOT_FOUND


def real_dict(real: Any) -> dict | None:
    try:
        return object.__getattribute__(real, "__dict__")
    except AttributeError:
        return None


def load_slot(state: Any, value: Instance, name: str, descriptor: Any) -> Any:
    field = value.slots.get(name, MISS)
    if field is not MISS:
        return NOT_FOUND if field is DELETED else state.realize(field)
    if value.fresh:
        return NOT_FOUND
    try:
        real = descriptor.__get__(value.real)
    except AttributeError:
        raise unsupported(f"slot {name}", "it is empty") from None
    return state.wrap(real, value.source.child("attr", name))


def use_getattr(frame: Any, value: Instance, name: str, hook: bool) -> Any:
    state = frame.state
    if issubclass(value.cls, Module):
        found = load_from_module(frame, value, name)
        if found is not NOT_FOUND:
            return found
    if hook:
        found = class_attribute(state, value.cls, "__getattr__")
        if found is not NOT_FOUND and found is not Module.__getattr__:
            guard_absent(state, value.cls, name)
            return frame.call(found, (value, name), {})
    guard_absent(state, value.cls, name)
    raise missing(state, value, name)


def load_from_module(frame: Any, value: Instance, name: str) -> Any:
    """Parameters, submodules and buffers, as the native look-up finds them."""
    state = frame.state
    for table in ("_parameters", "_modules", "_buffers"):
        held = load_field(state, value, table)
        if held is NOT_FOUND:
            continue
        shadow = state.unfilled(held)
        if shadow is not None:
            found = state.item_of_unfilled(shadow, name, NOT_FOUND)
        elif isinstance(held, dict):
            found = state.realize(held.get(name, NOT_FOUND))
        else:
            continue
        if found is not NOT_FOUND:
            return found
    return NOT_FOUND


def store_slot(state: Any, value: Instance, name: str, new: Any) -> None:
    value.slots[name] = new
    if not value.fresh:
        state.written[id(value)] = value


def store_field(state: Any, value: Instance, name: str, new: Any) -> None:
    """Into the instance's own dict."""
    if value.fields.get(name, MISS) is DELETED and new is not DELETED:
        raise unsupported(f"attribute {name}, deleted and set again", "it moves in its dict")
    value.fields[name] = new
    if not value.fresh:
        state.written[id(value)] = value


def store_attr(frame: Any, value: Any, name: str, new: Any) -> None:
    state, cls = frame.state, type(value)
    if cls is Instance:
        own = class_attribute(state, value.cls, "__setattr__")
        if type(own) is types.FunctionType:
            frame.call(own, (value, name, new), {})
            return
        generic_setattr(frame, value, name, new)
    elif cls is TensorVar:
        store_tensor_attribute(frame, value, name, new)
    elif cls is Function:
        if name in FUNCTION_FIELDS:
            setattr(value, FUNCTION_FIELDS[name], new)
        else:
            value.fields[name] = new
    elif isinstance(value, BaseException) and not isinstance(value, type):
        state.native(setattr, value, name, new)
    else:
        raise unsupported(
            f"assignment to attribute {name} of a {type_of(value).__name__}", "it is not modelled"
        )


def generic_setattr(frame: Any, value: Instance, name: str, new: Any) -> None:
    """object.__setattr__."""
    state, cls = frame.state, value.cls
    if name in ("__class__", "__dict__"):
        raise unsupported(f"assignment to {name}", "it is not modelled")
    found = class_attribute(state, cls, name)
    kind = type(found)
    if kind is property:
        if found.fset is None:
            text = f"property '{name}' of '{cls.__qualname__}' object has no setter"
            raise state.raised(AttributeError(text, name=None, obj=None))
        frame.call(found.fset, (value, new), {})
        return
    if kind is Instance and has(found.cls, "__set__"):
        frame.call(class_attribute(state, found.cls, "__set__"), (found, value, new), {})
        return
    if kind is types.MemberDescriptorType:
        store_slot(state, value, name, new)
        return
    if not has_dict(cls):
        raise missing(state, value, name)
    store_field(state, value, name, new)


def has_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0


def delete_attr(frame: Any, value: Any, name: str) -> None:
    state = frame.state
    if type(value) is not Instance:
        raise unsupported(f"deletion of attribute {name}", "it is not modelled")
    own = class_attribute(state, value.cls, "__delattr__")
    if type(own) is types.FunctionType:
        frame.call(own, (value, name), {})
        return
    generic_delattr(frame, value, name)


def generic_delattr(frame: Any, value: Instance, name: str) -> None:
    state = frame.state
    found = class_attribute(state, value.cls, name)
    if type(found) is property:
        if found.fdel is None:
            raise unsupported(f"deletion of property {name}", "it has no deleter")
        frame.call(found.fdel, (value,), {})
        return
    if type(found) is types.MemberDescriptorType:
        if load_slot(state, value, name, found) is NOT_FOUND:
            raise missing(state, value, name)
        store_slot(state, value, name, DELETED)
        return
    if load_field(state, value, name) is NOT_FOUND:
        raise missing(state, value, name)
    delete_field(state, value, name)


def delete_field(state: Any, value: Instance, name: str) -> None:
    """Of an attribute that is there."""
    if value.fresh:
        del value.fields[name]
    elif name in (real_dict(value.real) or {}):
        store_field(state, value, name, DELETED)
    else:  # it was made in the frame
        state.guard("absent", value.source.child("attr", "__dict__"), name)
        del value.fields[name]


# ---- other objects


def load_tensor(frame: Any, value: TensorVar, name: str) -> Any:
    return load_tensor_attribute(frame, value, name)


def load_module(frame: Any, value: types.ModuleType, name: str) -> Any:
    state = frame.state
    pending = state.globals_written.get((id(value.__dict__), name))
    if pending is not None:
        return pending[2]
    if name in value.__dict__:
        found = value.__dict__[name]
        if trusted(value.__name__ + ".") and by_name(found) and its_own(found, name):
            return found
        return state.wrap(found, state.roots.variable(value.__dict__, name))
    if name == "__dict__":
        raise unsupported("the dict of a module", "it is not modelled")
    try:
        found = getattr(value, name)
    except AttributeError as error:
        raise state.raised(error) from None
    if trusted(value.__name__ + "."):
        return found if by_name(found) else state.wrap(found, state.roots.const(found))
    return state.wrap(found, state.roots.const(value).child("attr", name))


def by_name(value: Any) -> bool:
    """Whether it is a thing that a trusted module binds once: a function, a class, a module, an
    operator."""
    return isinstance(value, (types.FunctionType, type, types.ModuleType)) or (
        callable(value)
        and not isinstance(value, (list, dict))
        and type(value).__module__ in ("builtins", "rushlight", "rushlight._core")
    )


def its_own(value: Any, name: str) -> bool:
    """Whether a trusted module came with this under the name: what a program has put there, it may
    take away again."""
    if isinstance(value, types.ModuleType):
        return trusted(value.__name__ + ".")
    if isinstance(value, types.FunctionType):
        home = value.__globals__.get("__name__")
    else:
        home = getattr(value, "__module__", None) or "builtins"
    return trusted(f"{home}.") and getattr(value, "__name__", None) == name


def load_class(frame: Any, cls: type, name: str) -> Any:
    state = frame.state
    if name in PLAIN_OF_CLASSES:
        return getattr(cls, name)
    if name == "__class__":
        return type(cls)
    if name == "__dict__":
        raise unsupported("the dict of a class", "it is not modelled")
    if isinstance(cls, enum.EnumMeta):
        found = state.native(getattr, cls, name)
        if type(found) is types.MethodType:
            return Method(state, found.__func__, found.__self__)
        return found
    if type(cls) is not type and has_python(type(cls), "__getattribute__"):
        raise unsupported(f"attribute {name} of class {cls.__name__}", "its metaclass reads it")
    found = class_attribute(state, cls, name)
    if found is NOT_FOUND:
        meta = class_attribute(state, type(cls), name)
        if meta is NOT_FOUND:
            hook = class_attribute(state, type(cls), "__getattr__")
            guard_absent(state, cls, name)
            if hook is not NOT_FOUND:
                return frame.call(hook, (cls, name), {})
            raise missing(state, cls, name)
        if type(meta) in (types.FunctionType, property, types.MethodDescriptorType):
            return bind(frame, meta, cls, type(cls), name)
        return state.native(getattr, cls, name)
    if type(found) in (types.MemberDescriptorType, types.GetSetDescriptorType):
        return state.native(getattr, cls, name)
    return bind(frame, found, None, cls, name)


def has_python(cls: type, name: str) -> bool:
    return type(getattr(cls, name, None)) is types.FunctionType


PLAIN_OF_CLASSES = frozenset(
    "__name__ __qualname__ __module__ __doc__ __mro__ __bases__ __base__".split()
)
FUNCTION_FIELDS = {
    "__name__": "name",
    "__qualname__": "qualname",
    "__defaults__": "defaults",
    "__kwdefaults__": "kwdefaults",
    "__doc__": "doc",
    "__module__": "module",
    "__annotations__": "annotations",
}


def load_function(frame: Any, value: Any, name: str) -> Any:
    """Of a function from outside."""
    state = frame.state
    source = state.sources.get(id(value))
    if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__"):
        return getattr(value, name)
    if name in ("__defaults__", "__kwdefaults__", "__annotations__", "__type_params__", "__dict__"):
        held = getattr(value, name, MISS)
        if held is not MISS:
            base = source if source is not None else state.roots.const(value)
            return state.wrap(held, base.child("attr", name))
    if name in value.__dict__ and source is not None:
        return state.wrap(value.__dict__[name], source.child("dict_attr", name))
    if name in value.__dict__:
        return state.wrap(value.__dict__[name], state.roots.const(value).child("dict_attr", name))
    if name.startswith("__") and hasattr(value, name):
        raise unsupported(f"attribute {name} of a function", "it is not modelled")
    if source is not None:
        state.guard("absent", source.child("attr", "__dict__"), name)
    error = AttributeError(f"'function' object has no attribute '{name}'", name=name)
    raise state.raised(error)


def load_made_function(frame: Any, value: Function, name: str) -> Any:
    if name in FUNCTION_FIELDS:
        found = getattr(value, FUNCTION_FIELDS[name])
        if name == "__annotations__" and found is None:
            found = value.annotations = {}
        return found
    if name == "__code__":
        return value.code
    if name == "__type_params__":
        return ()
    if name == "__dict__":
        return value.fields
    if name == "__call__":
        return value
    if name in value.fields:
        return value.fields[name]
    if hasattr(types.FunctionType, name):
        raise unsupported(f"attribute {name} of a function", "it is not modelled")
    error = AttributeError(f"'function' object has no attribute '{name}'", name=name)
    raise frame.state.raised(error)


def load_method(frame: Any, value: Method, name: str) -> Any:
    if name == "__self__":
        return value.object
    if name == "__func__":
        return value.function
    return load_attr(frame, value.function, name)


def load_super(frame: Any, value: Super, name: str) -> Any:
    state = frame.state
    mro = value.cls.__mro__
    start = mro.index(value.start) + 1
    for c in mro[start:]:
        if name in c.__dict__:
            found = class_value(state, c, name)
            bound = None if isinstance(value.object, type) and name != "__new__" else value.object
            if isinstance(value.object, type):
                bound = None
            return bind(frame, found, bound, value.cls, name)
    error = AttributeError(f"'super' object has no attribute '{name}'", name=name)
    raise state.raised(error)


def load_enum(frame: Any, value: Any, name: str) -> Any:
    if name in ("name", "value", "_name_", "_value_"):
        found = getattr(value, name)
        return (
            found
            if type(found) in (int, str, float, bool, type(None))
            else frame.state.wrap(found, frame.state.roots.const(value).child("attr", name))
        )
    for c in type(value).__mro__:
        if name in c.__dict__:
            found = c.__dict__[name]
            if type(found) in (types.FunctionType, staticmethod, classmethod, property):
                return bind(frame, found, value, type(value), name)
            break
    return frame.state.native(getattr, value, name)


def load_exception(frame: Any, value: BaseException, name: str) -> Any:
    if name == "__traceback__":
        raise unsupported("the traceback of an exception", "frames of a capture are not real")
    for c in type(value).__mro__:
        if name in c.__dict__:
            found = c.__dict__[name]
            if type(found) in (types.FunctionType, property):
                return bind(frame, found, value, type(value), name)
            break
    return frame.state.native(getattr, value, name)


def load_generator(frame: Any, value: Any, name: str) -> Any:
    if name in ("send", "throw", "close", "__next__", "__iter__"):
        return getattr(value, name)
    if name == "__name__":
        return value.frame.code.co_name
    raise unsupported(f"attribute {name} of a generator", "it is not modelled")


def load_cell(frame: Any, value: Cell, name: str) -> Any:
    if name == "cell_contents":
        return frame.cell_content(value, "cell")
    raise unsupported(f"attribute {name} of a cell", "it is not modelled")


def load_opaque(frame: Any, value: Opaque, name: str) -> Any:
    raise unsupported(
        f"attribute {name} of a {type(value.value).__name__}",
        "a capture cannot tell what such objects do",
    )


def load_dict_view(frame: Any, value: InstanceDict, name: str) -> Any:
    from .containers import DictMethod

    return DictMethod(value, name)


def load_reenter(frame: Any, value: Reenter, name: str) -> Any:
    return load_attr(frame, value.function, name)


def load_number(frame: Any, value: Any, name: str) -> Any:
    return frame.state.native(getattr, value, name)


LOADERS: dict[type, Any] = {
    Instance: load_instance,
    TensorVar: load_tensor,
    Function: load_made_function,
    Method: load_method,
    Super: load_super,
    Cell: load_cell,
    Opaque: load_opaque,
    InstanceDict: load_dict_view,
    Reenter: load_reenter,
    SymInt: load_number,
    SymFloat: load_number,
}
__all__ = ["MISSING", "NOT_FOUND", "load_attr", "nn", "store_attr"]
