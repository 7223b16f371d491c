"""Python's operators on values of the program: builtins answer for constants, containers and
numbers; tensors record; instances run their own methods."""

from __future__ import annotations

import operator
from typing import Any

from .attributes import NOT_FOUND, class_attribute, type_of
from .breaks import unsupported
from .variables.objects import Instance, InstanceDict, Opaque
from .variables.tensor import TensorVar

SIMPLE = (int, float, bool, str, bytes, type(None), complex)
OPERANDS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "** or pow()",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
}
LARGE = 1 << 24


def check(f: Any, a: Any, b: Any) -> None:
    for v in (a, b):
        if type(v) is Opaque:
            raise unsupported(
                f"an operator on a {type(v.value).__name__}", "its behaviour is not modelled"
            )
        if type(v) is InstanceDict:
            raise unsupported("an operator on vars(object)", "it is not modelled")


def binary(f: Any, function: Any, a: Any, b: Any) -> Any:
    state = f.state
    if type(a) not in SIMPLE or type(b) not in SIMPLE:
        check(f, a, b)
        if type(a) is not TensorVar and type(b) is not TensorVar:
            state.realize_all(a)
            state.realize_all(b)
        elif function is operator.mod and type(a) is str:
            raise unsupported("a tensor as text", "its value is known only when the graph runs")
    elif function in (operator.pow, operator.lshift, operator.mul):
        bounded(function, a, b)
    result = state.native(function, a, b)
    if type(result) in MUTABLE:
        state.note_made(result)
    return result


def bounded(function: Any, a: Any, b: Any) -> None:
    """Constant folding of enormous results is left to run time."""
    if function is operator.mul:
        for x, y in ((a, b), (b, a)):
            if isinstance(x, (str, bytes)) and isinstance(y, int) and len(x) * y > LARGE:
                raise unsupported("a very long string", "it is left to run time")
    elif isinstance(a, int) and isinstance(b, int) and b > 0:
        bits = a.bit_length() * b if function is operator.pow else a.bit_length() + b
        if bits > LARGE:
            raise unsupported("a very large number", "it is left to run time")


MUTABLE = (list, dict, set)


def in_place(f: Any, function: Any, a: Any, b: Any) -> Any:
    """`a += b`."""
    state = f.state
    if type(a) is list and function is operator.iadd:
        from .iteration import listed

        if not hasattr(type_of(b), "__iter__"):
            name = type_of(b).__name__
            raise f.raised(TypeError(f"'{name}' object is not iterable"))
        state.fill(a)
        a.extend(listed(f, b))
        return a
    return binary(f, function, a, b)


def unary(f: Any, function: Any, a: Any) -> Any:
    check(f, a, None)
    return f.state.native(function, a)


def compare(f: Any, function: Any, a: Any, b: Any) -> Any:
    state = f.state
    if type(a) in SIMPLE and type(b) in SIMPLE:
        return state.native(function, a, b)
    check(f, a, b)
    if type(a) is TensorVar or type(b) is TensorVar:
        return tensor_compare(f, function, a, b)
    state.realize_all(a)
    state.realize_all(b)
    return state.native(function, a, b)


def tensor_compare(f: Any, function: Any, a: Any, b: Any) -> Any:
    """With a tensor the answer is a tensor; what Tensor does not know is compared by identity."""
    for v in (a, b):
        if isinstance(v, Instance) and class_attribute(f.state, v.cls, "__eq__") is NOT_FOUND:
            raise unsupported("comparison of a tensor", "the other side is not modelled")
    return f.state.native(function, a, b)
