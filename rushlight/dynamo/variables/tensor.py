"""A tensor of a capture: its layout, its node in the graph, and what is known of its gradient.

Operators written in the program (`x + 1`, `1 < x`, `x @ y`) reach the methods below also from
within builtins (`sum(tensors)`): they record a node. Whatever needs an element's value breaks the
graph.
"""

from __future__ import annotations

import operator
from typing import Any

from rushlight.dynamo.breaks import data_dependent, unsupported
from rushlight.dynamo.variables.numbers import SymFloat, SymInt

NUMBERS = (bool, int, float, complex, SymInt, SymFloat)


class Family:
    """The tensors that may share memory with one another."""

    __slots__ = ("members", "writer")

    def __init__(self) -> None:
        self.writer: Any = None  # the last node that wrote to that memory
        self.members: list[TensorVar] = []


class TensorVar:
    """`requires_grad` and `leaf` are None where it is not known."""

    __slots__ = (
        "cls",
        "example",
        "family",
        "fields",
        "leaf",
        "layout",
        "name",
        "node",
        "requires_grad",
        "state",
    )

    def __init__(
        self,
        state: Any,
        layout: Any,
        node: Any,
        cls: type,
        requires_grad: bool | None,
        leaf: bool | None,
        family: Family | None = None,
        example: Any = None,
    ) -> None:
        self.state, self.layout, self.node, self.cls = state, layout, node, cls
        self.requires_grad, self.leaf, self.example = requires_grad, leaf, example
        self.family = family or Family()
        self.family.members.append(self)
        self.fields: dict[str, Any] = {}

    def __hash__(self) -> int:
        return id(self) >> 4

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"attribute {name} read by a builtin", "it would see the stand-in's own")

    def __bool__(self) -> bool:
        raise data_dependent("truth of a tensor", "Use torch.where(condition, a, b).")

    def number(self, *_: Any) -> Any:
        raise data_dependent("a tensor as a Python number")

    __int__ = __float__ = __index__ = __complex__ = number

    def text(self, *_: Any) -> Any:
        raise data_dependent("a tensor as text")

    __format__ = __str__ = __repr__ = text

    def __len__(self) -> int:
        if not self.layout.rank:
            raise TypeError("len() of a 0-d tensor")
        n = self.layout.shape[0]
        return n if isinstance(n, int) else SymInt(n).fix()

    def __iter__(self) -> Any:
        if not self.layout.rank:
            raise TypeError("iteration over a 0-d tensor")
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: Any) -> Any:
        return self.state.get_item(self, key)

    def __contains__(self, value: Any) -> bool:
        raise data_dependent("whether a tensor contains a value")


TensorVar.__name__ = TensorVar.__qualname__ = "rushlight.Tensor"  # as messages have it

BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
IN_PLACE = {
    name: getattr(operator, f"i{name.rstrip('_')}" if name not in ("and", "or") else f"i{name}")
    for name in BINARY
}


def install(slot: str, function: Any) -> None:
    def forward(self: TensorVar, other: Any) -> Any:
        if not isinstance(other, (TensorVar, *NUMBERS)):
            return NotImplemented
        return self.state.slot(slot, function, self, other)

    setattr(TensorVar, f"__{slot}__", forward)
    if slot in COMPARE:
        return

    def backward(self: TensorVar, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            return NotImplemented
        return self.state.slot(slot, function, other, self)

    setattr(TensorVar, f"__r{slot}__", backward)

    def in_place(self: TensorVar, other: Any) -> Any:
        if not isinstance(other, (TensorVar, *NUMBERS)):
            return NotImplemented
        return self.state.in_place_slot(slot, IN_PLACE[slot], self, other)

    setattr(TensorVar, f"__i{slot}__", in_place)


def install_unary(slot: str, function: Any) -> None:
    def method(self: TensorVar) -> Any:
        return self.state.slot(slot, function, self)

    setattr(TensorVar, f"__{slot}__", method)


for _slot, _function in BINARY.items():
    install(_slot, _function)
for _slot in COMPARE:
    install(_slot, getattr(operator, _slot))
for _slot, _function in (
    ("neg", operator.neg),
    ("abs", operator.abs),
    ("invert", operator.invert),
    ("pos", operator.pos),
):
    install_unary(_slot, _function)
TensorVar.__hash__ = lambda self: id(self) >> 4  # type: ignore[method-assign]
