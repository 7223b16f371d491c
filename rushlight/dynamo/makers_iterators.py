"""Iterators that the program has stepped -> bytecode that makes them again, as far as they were.

What they go over may be a container from outside, which gets its new contents only after
everything is made (codegen.py). An iterator over a list is put to its place then, because its
place is bounded by the list's length; one over a deque or dict that changed is made then, because
it would no longer run.
"""

from __future__ import annotations

import collections
import gc
from typing import Any

from bytecode import Instr

from . import runtime
from .emit import const

DEQUE_ITERATOR = type(iter(collections.deque()))
REDUCIBLE = tuple(
    {
        type(iter([])),
        type(iter(())),
        type(iter(range(1))),
        type(iter("")),
        type(iter("\u1234")),
        type(reversed([])),
        enumerate,
        zip,
        map,
        filter,
        DEQUE_ITERATOR,
    }
)
LIST_ITERATORS = (type(iter([])), type(reversed([])))  # their place is bounded by the list's length
DICT_ITERATORS = (type(iter({})), type(iter({}.values())), type(iter({}.items())))
DICT_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
VIEWS = (dict.keys, dict.values, dict.items)


class IteratorMakers:
    """Of `Codegen`: each method leaves the value in a temporary."""

    # What Codegen has.
    state: Any
    emit: Any
    store: Any
    load: Any
    prepare: Any
    cannot: Any
    temp: Any
    call_runtime: Any
    take_fills: Any
    temps: dict[int, str]
    keep: list[Any]
    late: list[Any]
    unmade: set[int]

    def make_iterator(self, value: Any) -> None:
        reduced = value.__reduce__()
        function, args = reduced[0], reduced[1]
        args = tuple(self.state.plain(a) for a in args)
        rest = reduced[2] if len(reduced) > 2 else None
        stateful = rest is not None
        self.keep += [args, rest]
        for a in args:
            self.prepare(a)
        if type(value) in LIST_ITERATORS and rest is not None:
            self.make_list_iterator(value, function, args[0], rest)
            return
        if type(value) is DEQUE_ITERATOR and self.is_changed_later(args[0]):
            self.make_late(value, lambda: self.call_runtime(function, *map(self.loader, args)))
            return
        self.prepare(rest)
        for fill in self.take_fills():
            fill()
        parts = (function, args)

        def push_parts() -> None:
            self.emit(const(function))
            for a in args:
                self.load(a)
            self.emit(Instr("BUILD_TUPLE", len(args)), Instr("BUILD_TUPLE", 2))

        self.keep.append(parts)
        self.call_runtime(
            runtime.rebuild,
            push_parts,
            lambda: self.load(rest),
            lambda: self.emit(const(stateful)),
        )
        self.store(value)

    def loader(self, value: Any) -> Any:
        return lambda: self.load(value)

    def make_list_iterator(self, value: Any, function: Any, over: list, place: int) -> None:
        """Made at once, put to its place when the list has all its elements."""
        self.call_runtime(function, self.loader(over))
        self.store(value)

        def put() -> None:
            parts = self.loader(value), self.loader(over), lambda: self.emit(const(place))
            self.call_runtime(runtime.put_iterator, *parts)
            self.emit(Instr("POP_TOP"))

        self.late.append(put)

    def is_changed_later(self, container: Any) -> bool:
        """Whether it is from outside and gets its contents only when everything is made."""
        from .side_effects import differs  # which builds on Codegen

        shadow = self.state.shadows.get(id(container))
        return shadow is not None and differs(shadow)

    def make_late(self, value: Any, push: Any) -> None:
        """An iterator that no longer runs when its container changes: made after the changes, so
        nothing that is made before may hold it."""
        self.temps[id(value)] = name = self.temp()
        self.keep.append(value)
        self.unmade.add(id(value))

        def make() -> None:
            self.unmade.discard(id(value))
            push()
            self.emit(Instr("STORE_FAST", name))

        self.late.append(make)

    def make_dict_iterator(self, value: Any) -> None:
        referents = [r for r in gc.get_referents(value) if isinstance(r, dict)]
        if not referents:
            self.prepare_empty_iterator(value)
            return
        mapping = referents[0]
        if id(mapping) not in self.state.made and id(mapping) not in self.state.sources:
            self.cannot(value, "an iterator over a dict")
        self.prepare(mapping)
        for fill in self.take_fills():
            fill()
        steps = len(mapping) - value.__length_hint__()
        kind = DICT_ITERATORS.index(type(value))
        try:  # what is left, without a step
            left = value.__reduce__()[1][0]
        except RuntimeError:
            left = None
        if left is None or not same_objects(left, list(VIEWS[kind](mapping))[steps:]):
            self.cannot(value, "an iterator over a dict that was changed meanwhile")

        def push_view() -> None:
            self.call_runtime(VIEWS[kind], lambda: self.load(mapping))

        def push() -> None:
            self.call_runtime(runtime.advanced, push_view, lambda: self.emit(const(steps)))

        if self.is_changed_later(mapping):
            self.make_late(value, push)
            return
        push()
        self.store(value)

    def prepare_empty_iterator(self, value: Any) -> None:
        self.call_runtime(iter, lambda: self.emit(const(())))
        self.store(value)

    def make_dict_view(self, value: Any) -> None:
        mapping = gc.get_referents(value)[0]
        self.prepare(mapping)
        kind = DICT_VIEWS.index(type(value))
        self.call_runtime(VIEWS[kind], lambda: self.load(mapping))
        self.store(value)


def same_objects(a: list, b: list) -> bool:
    def same(x: Any, y: Any) -> bool:
        if type(x) is tuple and type(y) is tuple and len(x) == len(y):
            return all(p is q for p, q in zip(x, y))
        return x is y

    return len(a) == len(b) and all(map(same, a, b))
