"""Numbers that a capture does not know: sizes and ints that vary (`SymInt`), floats that vary
(`SymFloat`).

A `SymInt` is a polynomial of sizes: arithmetic stays symbolic, a comparison is answered from the
value seen and becomes a guard, and whatever needs the very value (a hash, an index, a format) fixes
it by a guard. A `SymFloat` is a node of the graph and the value seen.
"""

from __future__ import annotations

import operator
from typing import Any

from rushlight.sym import Sym


def lift(value: Any) -> Any:
    """A polynomial as a number of the interpreter; a constant one as an int."""
    return SymInt(value) if isinstance(value, Sym) else value


def expression(value: Any) -> Any:
    """A number of the interpreter as a polynomial or an int."""
    return value.expr if isinstance(value, SymInt) else value


def hint(value: Any) -> Any:
    """The value seen; of a plain number itself."""
    if isinstance(value, SymInt):
        return int(value.expr)
    return value.value if isinstance(value, SymFloat) else value


class SymInt:
    """An int that varies between calls."""

    __slots__ = ("expr",)

    def __init__(self, expr: Sym) -> None:
        self.expr = expr

    def fix(self) -> int:
        """Its value, which from now on is guarded."""
        value = int(self.expr)
        self.expr.env.fix(self.expr, value)
        return value

    def combine(self, other: Any, function: Any, swap: bool) -> Any:
        if isinstance(other, SymFloat):
            return NotImplemented
        if isinstance(other, (float, complex)):
            return fixed_with(self, other, function, swap)
        if not isinstance(other, (int, SymInt)):
            return NotImplemented
        a, b = self.expr, expression(other)
        if swap:
            a, b = b, a
        return lift(function(a, b)) if function in POLYNOMIAL else function(number(a), number(b))

    def __neg__(self) -> Any:
        return lift(-self.expr)

    def __pos__(self) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __invert__(self) -> Any:
        return -self - 1

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return not self == 0

    def compare(self, other: Any, relation: Any) -> Any:
        if isinstance(other, (float, SymFloat)):
            return relation(self.fix(), other)
        if not isinstance(other, (int, SymInt)):
            return NotImplemented
        return bool(relation(self.expr, int(other) if type(other) is bool else expression(other)))

    def __eq__(self, other: object) -> Any:
        return self.compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        found = self.compare(other, operator.eq)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> Any:
        return self.compare(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self.compare(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self.compare(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self.compare(other, operator.ge)

    def __hash__(self) -> int:
        return hash(self.fix())

    def __index__(self) -> int:
        return self.fix()

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.fix())

    def __format__(self, spec: str) -> str:
        return format(self.fix(), spec)

    def __repr__(self) -> str:
        return repr(self.fix())

    __str__ = __repr__

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else round(self.fix(), digits)

    def __getattr__(self, name: str) -> Any:
        return attribute_of(self, int, name)

    def conjugate(self) -> Any:
        return self

    @property
    def real(self) -> Any:
        return self

    numerator = real

    @property
    def imag(self) -> int:
        return 0

    @property
    def denominator(self) -> int:
        return 1


def number(a: Any) -> int:
    return SymInt(a).fix() if isinstance(a, Sym) else a


POLYNOMIAL = (operator.add, operator.sub, operator.mul)


def floor_divide(a: SymInt, other: Any, swap: bool = False) -> Any:
    if isinstance(other, (float, complex)):
        return fixed_with(a, other, operator.floordiv, swap)
    if not isinstance(other, (int, SymInt)):
        return NotImplemented
    a, b = (other, a) if swap else (a, other)
    if b == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if isinstance(a, SymInt) and not isinstance(b, SymInt):
        return lift(a.expr // b)
    if isinstance(a, SymInt):
        return lift(a.expr // b.expr)
    return a // b.fix()


def remainder(a: SymInt, other: Any, swap: bool = False) -> Any:
    if isinstance(other, (float, complex)):
        return fixed_with(a, other, operator.mod, swap)
    if not isinstance(other, (int, SymInt)):
        return NotImplemented
    a, b = (other, a) if swap else (a, other)
    if b == 0:
        raise ZeroDivisionError("integer modulo by zero")
    if isinstance(a, SymInt):
        return lift(a.expr % (b.expr if isinstance(b, SymInt) else b))
    return a % b.fix()


def quotient_and_remainder(a: SymInt, other: Any, swap: bool = False) -> Any:
    if isinstance(other, (float, complex)):
        return fixed_with(a, other, divmod, swap)
    if not isinstance(other, (int, SymInt)):
        return NotImplemented
    return floor_divide(a, other, swap), remainder(a, other, swap)


def install_int(name: str, function: Any) -> None:
    if function is operator.floordiv:
        forward: Any = floor_divide
    elif function is operator.mod:
        forward = remainder
    elif function is divmod:
        forward = quotient_and_remainder
    else:

        def forward(self: Any, other: Any, swap: bool = False) -> Any:
            return self.combine(other, function, swap)

    setattr(SymInt, f"__{name}__", lambda self, other: forward(self, other, False))
    setattr(SymInt, f"__r{name}__", lambda self, other: forward(self, other, True))


BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "divmod": divmod,
    "pow": operator.pow,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
for _name, _function in BINARY.items():
    install_int(_name, _function)


def fixed_with(value: Any, other: Any, function: Any, swap: bool) -> Any:
    """A number that varies where a constant of another kind is computed with: its value, fixed."""
    known = value.fix()
    return function(other, known) if swap else function(known, other)


def attribute_of(number: Any, kind: type, name: str) -> Any:
    """A method that is not modelled, of the value, fixed."""
    if hasattr(kind, name):
        return getattr(number.fix(), name)
    raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'", name=name)


class SymFloat:
    """A float that varies between calls: a node of the graph, and the value seen."""

    __slots__ = ("node", "source", "state", "value")

    def __init__(self, state: Any, node: Any, value: float, source: Any = None) -> None:
        self.state, self.node, self.value, self.source = state, node, value, source

    def fix(self) -> float:
        """Its value, which from now on is guarded."""
        return self.state.fix_float(self)

    def __bool__(self) -> bool:
        return bool(self.fix())

    def __hash__(self) -> int:
        return hash(self.fix())

    def __float__(self) -> float:
        return self.fix()

    def __int__(self) -> int:
        return int(self.fix())

    def __trunc__(self) -> int:
        return int(self.fix())

    def __round__(self, digits: Any = None) -> Any:
        return round(self.fix()) if digits is None else round(self.fix(), digits)

    def __format__(self, spec: str) -> str:
        return format(self.fix(), spec)

    def __repr__(self) -> str:
        return repr(self.fix())

    __str__ = __repr__

    def __neg__(self) -> Any:
        return self.state.float_node(operator.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.state.float_node(operator.abs, self)

    def __divmod__(self, other: Any) -> Any:
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        self.state.float_now(divmod, self, other)  # which refuses in its own words
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        self.state.float_now(divmod, other, self)
        return other // self, other % self

    def __getattr__(self, name: str) -> Any:
        return attribute_of(self, float, name)

    def conjugate(self) -> Any:
        return self

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> float:
        return 0.0


def float_binary(name: str, function: Any) -> None:
    def forward(self: Any, other: Any) -> Any:
        if isinstance(other, complex):
            return fixed_with(self, other, function, False)
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        return self.state.float_node(function, self, other)

    def backward(self: Any, other: Any) -> Any:
        if isinstance(other, complex):
            return fixed_with(self, other, function, True)
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        return self.state.float_node(function, other, self)

    setattr(SymFloat, f"__{name}__", forward)
    setattr(SymFloat, f"__r{name}__", backward)


def float_compare(name: str) -> None:
    def compare(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float, SymInt, SymFloat)):
            return NotImplemented
        relation = getattr(operator, name)
        if self.source is not None and type(other) in (int, float):
            return self.state.compare_float(self, relation, other)
        return relation(self.fix(), hint_fixed(other))

    setattr(SymFloat, f"__{name}__", compare)


def hint_fixed(value: Any) -> Any:
    return value.fix() if isinstance(value, (SymInt, SymFloat)) else value


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    float_binary(_name, BINARY[_name])
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    float_compare(_name)
SymInt.__name__ = SymInt.__qualname__ = "int"
SymFloat.__name__ = SymFloat.__qualname__ = "float"
