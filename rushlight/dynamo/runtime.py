"""What replacement bytecode calls: small functions that make objects and replay mutations. They
use the builtin types' own methods, so that no code of the user's runs."""

from __future__ import annotations

import collections
import contextlib
import types
from typing import Any

from rushlight import reasons
from rushlight.errors import CompilerBug

from .breaks import BackendError

FAILURES = [0]  # how often a graph raised, and its function ran again


def graph_failed(error: Exception) -> None:
    """The graph raised and had written nothing: the function runs again from its start, as it is,
    and raises at its own line. A bug of the compiler is not hidden by that."""
    if isinstance(error, (CompilerBug, BackendError)):
        raise error
    FAILURES[0] += 1
    reasons.refuse(
        "capture.graph_failed", "a captured graph", f"it raised {type(error).__name__}: {error}"
    )


def make_function(
    code: Any, namespace: dict, name: str, qualname: str, module: Any, closure: tuple, doc: Any
) -> Any:
    made = types.FunctionType(code, namespace, name, None, closure or None)
    made.__qualname__ = qualname
    made.__module__ = module
    made.__doc__ = doc
    return made


def set_function(made: Any, defaults: Any, kwdefaults: Any, annotations: Any, fields: dict) -> None:
    made.__defaults__, made.__kwdefaults__ = defaults, kwdefaults
    if annotations is not None:
        made.__annotations__ = annotations
    made.__dict__.update(fields)


def set_cell(cell: Any, value: Any) -> None:
    cell.cell_contents = value


def clear_cell(cell: Any) -> None:
    del cell.cell_contents


def fill_list(target: list, items: tuple) -> None:
    list.__setitem__(target, slice(None), items)


def fill_dict(target: dict, keys: tuple, values: tuple) -> None:
    if isinstance(target, collections.OrderedDict):
        collections.OrderedDict.clear(target)
        for k, v in zip(keys, values):
            collections.OrderedDict.__setitem__(target, k, v)
        return
    dict.clear(target)
    dict.update(target, zip(keys, values))


def add_to_dict(target: dict, keys: tuple, values: tuple) -> None:
    for k, v in zip(keys, values):
        target[k] = v


def fill_set(target: set, items: tuple) -> None:
    set.clear(target)
    set.update(target, items)


def fill_deque(target: Any, items: tuple) -> None:
    collections.deque.clear(target)
    collections.deque.extend(target, items)


def make_deque(maxlen: Any) -> Any:
    return collections.deque(maxlen=maxlen)


def make_tuple(cls: type, items: tuple) -> Any:
    return tuple.__new__(cls, items)


def set_fields(target: Any, names: tuple, values: tuple) -> None:
    for name, value in zip(names, values):
        object.__setattr__(target, name, value)


def delete_fields(target: Any, names: tuple) -> None:
    for name in names:
        object.__delattr__(target, name)


def clear_slots(target: Any, names: tuple) -> None:
    """A slot may have been empty before the frame filled it and emptied it again."""
    for name in names:
        with contextlib.suppress(AttributeError):
            object.__delattr__(target, name)


def set_entries(target: Any, names: tuple, values: tuple) -> None:
    """As set_fields, where the class has a slot or a property of a name in the object's dict."""
    object.__getattribute__(target, "__dict__").update(zip(names, values))


def delete_entries(target: Any, names: tuple) -> None:
    for name in names:
        del object.__getattribute__(target, "__dict__")[name]


def set_item(namespace: dict, name: str, value: Any) -> None:
    dict.__setitem__(namespace, name, value)


def make_exception(cls: type, args: tuple, fields: dict) -> Any:
    made = cls.__new__(cls, *args)  # type: ignore[call-overload]
    made.args = args
    made.__dict__.update(fields)
    return made


def rebuild(parts: tuple, state: Any, has_state: bool) -> Any:
    """An iterator from what it reduces to."""
    made = parts[0](*parts[1])
    if has_state:
        made.__setstate__(state)
    return made


def put_iterator(iterator: Any, over: list, place: int) -> None:
    """Sets how far an iterator over a list is, even if the list has become shorter than that."""
    missing = place + 1 - len(over)
    if missing > 0:  # `__setstate__` bounds the place by the length
        list.extend(over, [None] * missing)
    iterator.__setstate__(place)
    if missing > 0:
        list.__delitem__(over, slice(-missing, None))


def advanced(iterable: Any, steps: int) -> Any:
    """A new iterator, some steps further."""
    found = iter(iterable)
    for _ in range(steps):
        next(found)
    return found


def partial_call(function: Any, args: tuple, kwargs: dict) -> Any:
    return function(*args, **kwargs)


def bound(descriptor: Any, target: Any) -> Any:
    """A method of C code, of whichever class: attribute access would find a subclass's."""
    return descriptor.__get__(target, type(target))


def replay_changed(module: Any) -> None:
    module._changed()


def set_hook(hook: Any, function: Any) -> None:
    hook.function = function


def set_data(tensor: Any, value: Any) -> None:
    tensor.data = value


def set_grad(tensor: Any, value: Any) -> None:
    tensor.grad = value
