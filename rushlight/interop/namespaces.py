"""`torch.ops.aten.add.Tensor(x, y)`: operators by ATen's names, for programs that call them so.

A packet is the function of Rushlight's with that name, and its overloads are the packet: arguments
say which is meant. Operators that only other libraries register are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import eager, library

from . import shim

PLACES = ("rushlight", "rushlight.nn.functional", "rushlight.linalg", "rushlight.special")


class Namespace:
    """`torch.ops.NAME`. AttributeError for an operator that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = f"torch.ops.{name}"

    def __getattr__(self, name: str) -> Any:
        function = None if name.startswith("__") else found(self.name, name)
        if function is None and (self.name != "aten" or name.startswith("__")):
            if not name.startswith("__"):
                shim.note(f"{self.__name__}.{name}")
            raise AttributeError(f"{self.__name__}.{name} is not in Rushlight")
        if function is None:
            function = refusing(f"{self.__name__}.{name}")
        if isinstance(function, library.Operator):
            return function
        self.__dict__[name] = packet = Packet(f"{self.name}.{name}", function)
        return packet

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


class Packet:
    """An operator with all its overloads; or one of them."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.__name__ = name.rpartition(".")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("_") or name.count("."):
            raise AttributeError(f"torch.ops.{self.name} has no overload {name!r}")
        self.__dict__[name] = overload = Packet(f"{self.name}.{name}", self.function)
        return overload

    def __repr__(self) -> str:
        return self.name


def refusing(name: str) -> Callable[..., Any]:
    """What an operator of ATen is that is not here: a name, for tables of operators."""

    def call(*args: Any, **kwargs: Any) -> Any:
        shim.note(name)
        raise NotImplementedError(f"{name} is not in Rushlight")

    return call


def part(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """aten.slice: from start to end, as Python's slices count."""
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


def to_copy(x: Any, **options: Any) -> Any:
    """aten._to_copy: a copy, with this dtype, device, ..."""
    return x.to(copy=True, **{k: v for k, v in options.items() if v is not None and k != "layout"})


def found(namespace: str, name: str) -> Callable[..., Any] | None:
    """The function of an operator: a public function, else a method of Tensor."""
    if namespace != "aten":
        return library.OPERATORS.get(f"{namespace}::{name}")
    known = {"_to_copy": to_copy, "_pin_memory": eager.Tensor.pin_memory, "slice": part}
    if name in known:
        return known[name]
    if name in ("alias", "detach"):
        return lambda x: x.detach() if name == "detach" else x.view_as(x)
    import importlib

    for place in PLACES:
        module = importlib.import_module(place)
        function = vars(module).get(name)
        if function is None and place == "rushlight":
            function = vars(eager).get(name)
        if callable(function) and not isinstance(function, type):
            return function  # type: ignore[no-any-return]
    method = getattr(eager.Tensor, name, None)
    return method if callable(method) else None
