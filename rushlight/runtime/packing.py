"""Weights in the order in which a library reads them, kept from call to call of a compiled graph.

Takes the weight as each call brings it; gives its packed form, or None, with which the product
takes the weight as it lies. Invariant: a packed form is used only while the tensor is the same
object on the same memory, and nobody wrote to that memory, through whatever tensor: `_stamp`
changes with every write, and is -1 while somebody else (numpy, DLPack) holds the memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from rushlight import _core  # type: ignore[attr-defined]


class Packed:
    """What a program calls in place of `pack`, an operator on (weight, *rest). A weight is packed
    when it comes for the second time unchanged, so that one which changes in every call never is;
    `at_once`: the first time, where the library would do it in every call otherwise."""

    __slots__ = ("__weakref__", "at_once", "pack", "refused", "state")

    def __init__(self, pack: Callable, at_once: bool = False) -> None:
        self.pack, self.at_once, self.refused = pack, at_once, False
        # (reference to the weight, its stamp, its packed form): replaced as one, for threads
        self.state: tuple = (nothing, (), None)

    def __call__(self, weight: Any, *rest: Any) -> Any:
        seen, known, kept = self.state
        stamp = weight._stamp, weight.data_ptr(), _core.num_threads()
        same = seen() is weight and known == stamp
        if same and kept is not None:
            return kept
        made = self.packed(weight, rest) if same or self.at_once else None
        if stamp[0] < 0:
            self.state = (nothing, (), None)
        elif made is not None or not same:
            me = weakref.ref(self)
            self.state = (weakref.ref(weight, lambda _: forget(me)), stamp, made)
        return made

    def packed(self, weight: Any, rest: tuple) -> Any:
        if self.refused:
            return None
        try:
            return self.pack(weight, *rest)
        except NotImplementedError:
            self.refused = True
            return None


def forget(me: Callable) -> None:
    """The weight is gone: its packed form goes too."""
    packed = me()
    if packed is not None:
        packed.state = (nothing, (), None)


def nothing() -> None:
    return None
