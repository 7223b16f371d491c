"""`vars(object)`: one dict under two names, the object's attributes and itself."""

from __future__ import annotations

import gc
import sys
from typing import Any

from .breaks import unsupported
from .sources import Source
from .variables.objects import Instance, InstanceDict


def instance_dict(state: Any, value: Instance) -> Any:
    """`vars(value)`."""
    if not value.fresh:
        return InstanceDict(value)
    state.dict_owners[id(value.fields)] = value
    return value.fields


def may_be_own(source: Source) -> bool:
    """Whether a dict there is asked whether it is an object's `__dict__`: not the many inside other
    containers or in private attributes."""
    return source.op not in ("item", "index") and str(source.key)[:1] != "_"


def refuse_own_dict(value: Any, other: dict) -> None:
    """A dict that is `vars(value)`: what is written to one is read from the other."""
    if PLACES_STAY or any(v is other for v in gc.get_referents(value)):
        if own_dict(value) is other:
            raise unsupported(
                f"a dict that is the __dict__ of a {type(value).__name__}",
                "its attributes would have two names",
            )


def own_dict(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


PLACES_STAY = sys.version_info >= (3, 13)  # asking for the dict slows nothing, nor does gc show it
