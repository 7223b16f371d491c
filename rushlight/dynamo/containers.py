"""Items of containers, and `vars(object)` of an object from outside as a mapping."""

from __future__ import annotations

import collections
import operator
import types
from typing import Any

from .breaks import unsupported
from .variables.numbers import SymInt
from .variables.objects import Instance, InstanceDict, Lazy, Opaque
from .variables.tensor import TensorVar

ABSENT: Any = type("Absent", (), {})()
SEQUENCES = (list, tuple, collections.deque)


def get_item(f: Any, value: Any, key: Any) -> Any:
    """value[key]."""
    state, cls = f.state, type(value)
    if cls is TensorVar:
        state.realize_all(key)
        return state.native(state.get_item, value, key)
    if cls is InstanceDict:
        return DictMethod(value, "__getitem__").run(f, key)
    if cls is Instance:
        return f.realize(state.native(value.__getitem__, key))
    if isinstance(value, type):
        return class_item(f, value, key)
    if cls is Opaque or type(key) is Opaque:
        raise unsupported("an item of an object", "its behaviour is not modelled")
    shadow = state.unfilled(value)
    if shadow is not None and isinstance(value, dict) and looked_up(state, key):
        found = state.item_of_unfilled(shadow, key, ABSENT)
        if found is not ABSENT:
            return found
        if cls is not collections.defaultdict:
            raise f.raised(KeyError(key))
    state.fill(value)
    if cls is collections.defaultdict and key not in value and value.default_factory is not None:
        made = f.call(state.plain(value.default_factory), (), {})
        state.native(dict.__setitem__, value, key, made)
        return made
    if type(key) is slice and cls is list:
        return state.note_made(state.native(list.__getitem__, value, fixed_slice(key)))
    if type(key) is TensorVar:
        key = value  # the message below; a tensor as index of a list reads its value
        raise unsupported("a tensor as an index", "its value is known only when the graph runs")
    if cls is list or isinstance(value, dict):
        found = state.native(value.__getitem__, key)
        if type(found) is Lazy:
            found = state.realize_element(value, key, found)
            if isinstance(value, dict):
                dict.__setitem__(value, key, found)
            else:
                value[key] = found
        return found
    return f.realize(state.native(read, value, key))


def read(value: Any, key: Any) -> Any:
    return value[key]


def fixed_slice(key: slice) -> slice:
    parts = (key.start, key.stop, key.step)
    return slice(*(v.fix() if type(v) is SymInt else v for v in parts))


def plain_key(key: Any) -> bool:
    return type(key) in (str, int, bool, bytes, type(None)) or isinstance(key, type)


def looked_up(state: Any, key: Any) -> bool:
    """Whether one item can be looked up apart: by a constant, or by a tensor from outside."""
    return plain_key(key) or type(key) is TensorVar and id(key) in state.sources


def class_item(f: Any, cls: type, key: Any) -> Any:
    """`list[int]`, `Color["RED"]`."""
    import enum

    if isinstance(cls, enum.EnumMeta):
        return f.state.native(read, cls, key)
    if hasattr(cls, "__class_getitem__") and type(key) in (str, type, tuple):
        return f.state.native(read, cls, key)
    raise unsupported(f"an item of class {cls.__name__}", "it is not modelled")


def set_item(f: Any, container: Any, key: Any, value: Any) -> None:
    state, cls = f.state, type(container)
    if cls is TensorVar:
        state.realize_all(key)
        state.set_item(container, key, value)
    elif cls is InstanceDict:
        DictMethod(container, "__setitem__").run(f, key, value)
    elif cls is Instance:
        state.native(container.__setitem__, key, value)
    elif cls is Opaque or isinstance(container, type):
        raise unsupported("assignment to an item", "the object's behaviour is not modelled")
    else:
        if state.unfilled(container) is not None and type(container) is dict and plain_key(key):
            container[key] = value
            return
        state.fill(container)
        if type(key) is slice:
            from .iteration import listed

            if cls is not list:
                raise unsupported("assignment to a slice", f"of a {cls.__name__}")
            if type(value) not in SEQUENCES:
                value = listed(f, value)
            state.realize_all(value)
            key = fixed_slice(key)
        state.native(write, container, key, value)


def write(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def erase(container: Any, key: Any) -> None:
    del container[key]


def delete_item(f: Any, container: Any, key: Any) -> None:
    state, cls = f.state, type(container)
    if cls is InstanceDict:
        DictMethod(container, "__delitem__").run(f, key)
    elif cls in (TensorVar, Opaque) or isinstance(container, type):
        raise unsupported("deletion of an item", "the object's behaviour is not modelled")
    else:
        state.fill(container)
        state.native(erase, container, fixed_slice(key) if type(key) is slice else key)


def contains(f: Any, container: Any, value: Any) -> bool:
    """value in container."""
    state, cls = f.state, type(container)
    if cls is InstanceDict:
        return DictMethod(container, "__contains__").run(f, value)
    if cls is Opaque or type(value) is Opaque:
        raise unsupported("`in` an object", "its behaviour is not modelled")
    if cls is types.MappingProxyType:
        return bool(state.native(lambda: value in container))
    shadow = state.unfilled(container)
    if shadow is not None and isinstance(container, dict) and looked_up(state, value):
        return state.item_of_unfilled(shadow, value, ABSENT) is not ABSENT
    if isinstance(container, dict):
        state.fill(container)
    else:
        state.realize_all(container)
    if cls is Instance:
        from .attributes import NOT_FOUND, class_attribute

        found = class_attribute(state, container.cls, "__contains__")
        if found is NOT_FOUND:
            from .iteration import END, get_iter, step

            iterator = get_iter(f, container)
            while True:
                item = step(f, iterator)
                if item is END:
                    return False
                if item is value or state.truth(state.native(operator.eq, item, value)):
                    return True
        return state.truth(f.call(found, (container, value), {}))
    from .builtins import looked_at

    state.realize_all(value)
    within = looked_at(f, container)
    return bool(state.native(lambda: value in within))


def mapping_items(f: Any, value: Any) -> list[tuple[Any, Any]]:
    """The items of `**value`."""
    state = f.state
    if type(value) is InstanceDict:
        return list(DictMethod(value, "items").run(f))
    if isinstance(value, dict):
        state.fill(value)
        return [(k, f.realize(v)) for k, v in value.items()]
    if type(value) is types.MappingProxyType and not value:
        return []
    from .attributes import load_attr, type_of

    if not hasattr(type_of(value), "keys"):
        raise f.raised(TypeError(f"'{type_of(value).__name__}' object is not a mapping"))
    from .iteration import listed

    keys = listed(f, f.call(load_attr(f, value, "keys"), (), {}))
    return [(k, get_item(f, value, k)) for k in keys]


class DictMethod:
    """A method of `vars(object)`, object from outside."""

    __slots__ = ("name", "view")

    def __init__(self, view: InstanceDict, name: str) -> None:
        self.view, self.name = view, name

    def run(self, f: Any, *args: Any) -> Any:
        method = getattr(self, "do_" + self.name.strip("_"), None)
        if method is None:
            raise unsupported(f"vars(object).{self.name}", "it is not modelled")
        return method(f, self.view.instance, *args)

    def look(self, f: Any, instance: Instance, key: Any) -> Any:
        from .attributes import NOT_FOUND, load_field

        if not isinstance(key, str):
            raise unsupported("an item of vars(object)", "its key is no string")
        found = load_field(f.state, instance, key)
        return ABSENT if found is NOT_FOUND else found

    def do_getitem(self, f: Any, instance: Instance, key: Any) -> Any:
        found = self.look(f, instance, key)
        if found is ABSENT:
            raise f.raised(KeyError(key))
        return found

    def do_get(self, f: Any, instance: Instance, key: Any, default: Any = None) -> Any:
        found = self.look(f, instance, key)
        return default if found is ABSENT else found

    def do_contains(self, f: Any, instance: Instance, key: Any) -> bool:
        return self.look(f, instance, key) is not ABSENT

    def do_setitem(self, f: Any, instance: Instance, key: Any, value: Any) -> None:
        from .attributes import store_field

        store_field(f.state, instance, key, value)

    def do_setdefault(self, f: Any, instance: Instance, key: Any, default: Any = None) -> Any:
        found = self.look(f, instance, key)
        if found is not ABSENT:
            return found
        self.do_setitem(f, instance, key, default)
        return default

    def do_delitem(self, f: Any, instance: Instance, key: Any) -> None:
        from .attributes import delete_field

        if self.look(f, instance, key) is ABSENT:
            raise f.raised(KeyError(key))
        delete_field(f.state, instance, key)

    def do_pop(self, f: Any, instance: Instance, key: Any, *default: Any) -> Any:
        found = self.look(f, instance, key)
        if found is ABSENT:
            if default:
                return default[0]
            raise f.raised(KeyError(key))
        self.do_delitem(f, instance, key)
        return found

    def do_update(self, f: Any, instance: Instance, *others: Any) -> None:
        for other in others:
            for k, v in mapping_items(f, other):
                self.do_setitem(f, instance, k, v)

    def whole(self, f: Any, instance: Instance) -> dict:
        from .attributes import DELETED, load_field, real_dict

        real = real_dict(instance.real) or {}
        source = instance.source.child("attr", "__dict__")
        f.state.guard("keys", source, tuple(real))
        names = [n for n in real if instance.fields.get(n) is not DELETED]
        names += [n for n, v in instance.fields.items() if n not in real and v is not DELETED]
        return {n: load_field(f.state, instance, n) for n in names}

    def do_keys(self, f: Any, instance: Instance) -> Any:
        return self.do_copy(f, instance).keys()

    def do_items(self, f: Any, instance: Instance) -> Any:
        return self.do_copy(f, instance).items()

    def do_values(self, f: Any, instance: Instance) -> Any:
        return self.do_copy(f, instance).values()

    def do_copy(self, f: Any, instance: Instance) -> Any:
        return f.state.note_made(self.whole(f, instance))

    def do_len(self, f: Any, instance: Instance) -> int:
        return len(self.whole(f, instance))
