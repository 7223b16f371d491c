"""Iterators from outside: of a `for` loop that goes on in a resume function, or given as arguments.

What an iterator gives next is looked at without a step, guarded like any value from outside, and
the steps are made after the graph. So one capture of a loop's body serves all its iterations. A
`zip`, `enumerate`, `map` or `filter` is taken apart into the iterators that it steps.
"""

from __future__ import annotations

import collections
import gc
from typing import Any

from rushlight.dynamo.breaks import unsupported

END: Any = type("End", (), {"__repr__": lambda self: "<end>"})()
STALE: Any = type("Stale", (), {})()
LEAVES = {
    type(iter([])),
    type(iter(())),
    type(iter(range(1))),
    type(iter(range(1 << 70))),
    type(iter("")),
    type(iter("\u1234")),
    type(reversed([])),
    type(iter(collections.deque())),
    type(iter(set())),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(reversed({})),
}
TREES = {zip, enumerate, map, filter}


def copied(iterator: Any) -> Any:
    """An iterator over what is left. RuntimeError for one over a dict that has changed its size."""
    parts = iterator.__reduce__()
    made = parts[0](*parts[1])
    if len(parts) > 2 and parts[2] is not None:
        made.__setstate__(parts[2])
    return made


class Ahead:
    """iterator -> what it gives after `n` others; END where there is none, STALE where the next
    step fails because its dict was changed."""

    def __init__(self, n: int) -> None:
        self.n, self.__name__ = n, f"next{n or ''}"

    def __call__(self, iterator: Any) -> Any:
        try:
            left = copied(iterator)
        except RuntimeError:
            return STALE
        for _ in range(self.n):
            next(left, None)
        return next(left, END)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ahead) and self.n == other.n

    def __hash__(self) -> int:
        return self.n


class Part:
    """zip, enumerate, map or filter -> one of the things that it was made of."""

    def __init__(self, i: int) -> None:
        self.i, self.__name__ = i, f"part{i}"

    def __call__(self, tree: Any) -> Any:
        return tree.__reduce__()[1][self.i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.i == other.i

    def __hash__(self) -> int:
        return self.i


class Shape:
    """The predicate of a guard: a tree of these very kinds of iterators."""

    def __init__(self, tree: tuple) -> None:
        self.tree, self.__name__ = tree, f"steps {tree!r}"

    def __call__(self, value: Any) -> bool:
        return shape_of(value) == self.tree


def shape_of(value: Any) -> Any:
    """The kinds of a tree's iterators; None where something else is stepped, too."""
    cls = type(value)
    if cls in LEAVES:
        return cls
    if cls not in TREES:
        return None
    parts = value.__reduce__()
    inner = parts[1]
    if len(parts) > 2:  # zip(strict=True)
        return None
    stepped = inner[1:] if cls in (map, filter) else inner[:1] if cls is enumerate else inner
    found = tuple(map(shape_of, stepped))
    if None in found or cls is enumerate and has_functions(found):
        return None
    return (cls, *found)


def has_functions(tree: Any) -> bool:
    """Whether a step of the whole would call a function of the program."""
    if not isinstance(tree, tuple):
        return False
    return tree[0] in (map, filter) or any(map(has_functions, tree[1:]))


def container_of(leaf: Any) -> Any:
    """The list, dict or other object that an iterator goes over; None at its end."""
    for held in gc.get_referents(leaf):
        if isinstance(held, (list, dict, set, collections.deque)):
            return held
    return None


class IteratorVar:
    """One from outside. `step(frame)` gives what comes next, or END."""

    def __init__(self, state: Any, real: Any, source: Any) -> None:
        self.state, self.real, self.source = state, real, source

    def step(self, f: Any) -> Any:
        raise NotImplementedError

    def __iter__(self) -> IteratorVar:
        return self

    def __next__(self) -> Any:
        found = self.step(self.state.frames[-1])
        if found is END:
            raise self.state.raised(StopIteration())
        return found


class Leaf(IteratorVar):
    """`taken`: how many steps the frame has made; `own`: how many of them are its to replay."""

    def __init__(self, state: Any, real: Any, source: Any) -> None:
        super().__init__(state, real, source)
        self.taken = self.own = 0
        self.ended = False
        self.container = container_of(real)

    def step(self, f: Any, own: bool = True) -> Any:
        state = self.state
        if self.ended:
            return END
        if state.is_changed(self.container):
            raise unsupported("a container that changes under its iterator", "it is not modelled")
        look = Ahead(self.taken)
        value = look(self.real)
        if value is STALE:
            raise unsupported("an iterator over a changed dict", "its next step fails")
        if self not in state.stepped:
            state.stepped.append(self)
        self.taken += 1
        self.own += own
        source = self.source.child("call", look)
        if value is END:
            self.ended = True
            state.guard("is", source, END)
            return END
        state.guard("isnot", source, END)
        state.guard("isnot", source, STALE)
        return state.wrap(value, source)


class Zip(IteratorVar):
    def __init__(self, state: Any, real: Any, source: Any, parts: list) -> None:
        super().__init__(state, real, source)
        self.parts, self.ended = parts, not parts

    def step(self, f: Any) -> Any:
        items = []
        for part in self.parts:
            item = part.step(f)
            if item is END:
                return END
            items.append(item)
        return tuple(items) if items else END


class Map(Zip):
    """`function` is called with what its iterators give."""

    def __init__(self, state: Any, real: Any, source: Any, parts: list, function: Any) -> None:
        super().__init__(state, real, source, parts)
        self.function = function

    def step(self, f: Any) -> Any:
        items = super().step(f)
        return END if items is END else f.realize(f.call(self.function, items, {}))


class Filter(IteratorVar):
    def __init__(self, state: Any, real: Any, source: Any, part: Any, function: Any) -> None:
        super().__init__(state, real, source)
        self.part, self.function = part, function

    def step(self, f: Any) -> Any:
        while (item := self.part.step(f)) is not END:
            test = item if self.function is None else f.call(self.function, (item,), {})
            if self.state.truth(f.realize(test)):
                return item
        return END


class Enumerate(IteratorVar):
    """Its own steps are replayed, because they count."""

    def __init__(self, state: Any, real: Any, source: Any, part: Any, count: Any) -> None:
        super().__init__(state, real, source)
        self.part, self.count = part, count
        self.steps = 0

    def step(self, f: Any) -> Any:
        if self not in self.state.stepped:
            self.state.stepped.append(self)
        item = stepped_within(f, self.part)
        self.steps += 1
        if item is END:
            return END
        count, self.count = self.count, self.count + 1
        return count, item


def stepped_within(f: Any, part: Any) -> Any:
    """A step of an iterator that another's step replays."""
    if isinstance(part, Leaf):
        return part.step(f, False)
    items = []
    for inner in part.parts:
        item = stepped_within(f, inner)
        if item is END:
            return END
        items.append(item)
    return tuple(items) if items else END


def wrap_iterator(state: Any, value: Any, source: Any) -> Any:
    """The stand-in; None where a step of it is not modelled."""
    tree = shape_of(value)
    if tree is None:
        return None
    if not isinstance(tree, tuple):
        state.guard("type", source, type(value))
        return state.remember(Leaf(state, value, source), value, source)
    cls = type(value)
    if source.op != "call":  # the whole tree at its root
        state.guard("type", source, cls)
        state.guard("true", source, Shape(tree))
    inner = value.__reduce__()[1]
    parts = [state.wrap(v, source.child("call", Part(i))) for i, v in enumerate(inner)]
    made: Any
    if cls is zip:
        made = Zip(state, value, source, parts)
    elif cls is map:
        made = Map(state, value, source, parts[1:], parts[0])
    elif cls is filter:
        made = Filter(state, value, source, parts[1], parts[0])
    else:
        if isinstance(parts[0], Enumerate):
            return None
        made = Enumerate(state, value, source, *parts)
    return state.remember(made, value, source)


def advance(iterator: Any, steps: int) -> None:
    """Replays steps; at the end it stays at its end."""
    for _ in range(steps):
        next(iterator, None)


__all__ = ["END", "IteratorVar", "advance", "wrap_iterator"]
