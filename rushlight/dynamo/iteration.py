"""Iteration: `iter`, `next`, unpacking and listing of what the program iterates over."""

from __future__ import annotations

import collections
from typing import Any

from .attributes import NOT_FOUND, class_attribute, load_attr, type_of
from .breaks import unsupported
from .containers import DictMethod
from .variables.iterators import END, IteratorVar
from .variables.numbers import SymInt, lift
from .variables.objects import Instance, InstanceDict, Opaque
from .variables.tensor import TensorVar


def get_iter(f: Any, value: Any) -> Any:
    """iter(value)."""
    state = f.state
    cls = type(value)
    if cls is Instance:
        found = class_attribute(state, value.cls, "__iter__")
        if found is NOT_FOUND or found is None:
            if class_attribute(state, value.cls, "__getitem__") is not NOT_FOUND:
                raise unsupported("iteration by __getitem__", "it is not modelled")
            name = value.cls.__name__
            raise f.raised(TypeError(f"'{name}' object is not iterable"))
        return f.call(found, (value,), {})
    if cls is Opaque:
        raise unsupported(
            f"iteration over a {type(value.value).__name__}", "its behaviour is not modelled"
        )
    if cls is InstanceDict:
        return iter(DictMethod(value, "keys").run(f))
    if cls is TensorVar:
        if value.layout.rank:
            n = lift(value.layout.shape[0])
            if isinstance(n, SymInt):
                n.fix()
        return state.note_made(state.native(iter, value))
    if isinstance(value, type):
        return get_class_iter(f, value)
    state.fill(value)
    return state.note_made(state.native(iter, value))


def get_class_iter(f: Any, cls: type) -> Any:
    import enum

    if isinstance(cls, enum.EnumMeta):
        return f.state.note_made(iter(list(cls)))
    raise f.raised(TypeError(f"'{type(cls).__name__}' object is not iterable"))


def step(f: Any, iterator: Any) -> Any:
    """next(iterator), END where there is none."""
    state = f.state
    cls = type(iterator)
    if cls is Instance:
        method = load_attr(f, iterator, "__next__")
        try:
            return f.realize(f.call(method, (), {}))
        except StopIteration as stop:
            if state.is_raised(stop):
                return END
            raise
    if cls is Opaque:
        raise unsupported(
            f"iteration over a {type(iterator.value).__name__}",
            "what it gives next is not modelled",
        )
    if isinstance(iterator, IteratorVar):
        return settle(f, iterator.step(f))
    try:
        found = next(iterator)
    except StopIteration:
        return END
    except Exception as error:
        if isinstance(error, RecursionError):
            raise
        raise f.raised(error) from None
    return settle(f, found)


def settle(f: Any, value: Any) -> Any:
    """A result of a builtin, with nothing lazy at its top."""
    value = f.realize(value)
    if type(value) is tuple and any(type(v).__name__ == "Lazy" for v in value):
        return tuple(map(f.realize, value))
    return value


def listed(f: Any, value: Any) -> list[Any]:
    """list(value)."""
    state = f.state
    cls = type(value)
    if cls is list or cls is tuple or cls is collections.deque:
        state.fill(value)
        return [f.realize(v) for v in list(value)]
    iterator = get_iter(f, value)
    found = []
    while True:
        item = step(f, iterator)
        if item is END:
            return found
        found.append(item)
        if len(found) > 100_000:
            raise unsupported("a very long iteration", "it has more than 100,000 steps")


def unpack(f: Any, value: Any, n: int) -> list[Any]:
    """The n items of `a, b = value`."""
    cls = type_of(value)
    if not hasattr(cls, "__iter__") and not hasattr(cls, "__getitem__"):
        raise f.raised(TypeError(f"cannot unpack non-iterable {cls.__name__} object"))
    if type(value) in (list, tuple) or type(value) is TensorVar:
        items = listed(f, value)
    else:
        iterator = get_iter(f, value)
        items = []
        while len(items) <= n:
            item = step(f, iterator)
            if item is END:
                break
            items.append(item)
    if len(items) > n:
        raise f.raised(ValueError(f"too many values to unpack (expected {n}{got(value, items)})"))
    if len(items) < n:
        raise f.raised(ValueError(f"not enough values to unpack (expected {n}, got {len(items)})"))
    return items


def got(value: Any, items: list) -> str:
    return ""
