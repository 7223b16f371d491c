"""The evaluator of guards and the compiled function in plain Python: the same answers as the
native ones, for builds without them and for tests that hold the two against each other.
"""

from __future__ import annotations

import functools
import struct
import types
from typing import Any

from rushlight import _core

from .bytecode import parameters

MISSING = object()
NOTHING = (None, -1)
TENSOR = _core.Tensor


class Guards:
    """`check(arguments)` is -1, or the index of the first check that fails; `seen` is what it
    saw."""

    def __init__(self, sources: tuple, checks: tuple) -> None:
        self.sources, self.checks = sources, checks

    def fetch(self, i: int, arguments: tuple, memo: dict) -> Any:
        if i in memo:
            return memo[i]
        op, parent, key = self.sources[i]
        p = self.fetch(parent, arguments, memo) if parent >= 0 else None
        if p is MISSING:
            value = MISSING
        else:
            try:
                from .sources import STEPS

                value = STEPS[op](p, key, arguments)
            except (AttributeError, KeyError, IndexError, TypeError, ValueError):
                value = MISSING
        memo[i] = value
        return value

    def explain(self, arguments: tuple) -> tuple[int, Any]:
        memo: dict = {}
        for n, (kind, at, payload) in enumerate(self.checks):
            value = self.fetch(at, arguments, memo) if at >= 0 else None
            if at >= 0 and value is MISSING and kind != "absent":
                return n, None
            ok, seen = CHECKS[kind](self, value, payload, arguments, memo)
            if not ok:
                return n, seen
        return -1, None

    def check(self, arguments: tuple) -> int:
        return self.explain(arguments)[0]


def same(value: Any, expected: Any) -> bool:
    if type(value) is not type(expected):
        return False
    if type(value) is float:
        return struct.pack("<d", value) == struct.pack("<d", expected)
    if type(value) is tuple:
        return len(value) == len(expected) and all(map(same, value, expected))
    return value is expected or bool(value == expected)


def check_tensor(_: Any, value: Any, p: Any, *__: Any) -> tuple:
    cls, dtype, rank, grad, sizes, strides, leaf = p
    if type(value) is not cls:
        return False, type(value)
    ok = (
        value.dtype is dtype
        and value.dim() == rank
        and value.requires_grad == grad
        and value.is_leaf == leaf
        and all(n is None or n == m for n, m in zip(sizes, value.shape))
        and (
            value.is_contiguous()
            if strides is None
            else all(
                s is None or s == t or n == 1
                for s, t, n in zip(strides, value.stride(), value.shape)
            )
        )
    )
    return ok, value


def check_keys(_: Any, value: Any, p: Any, *__: Any) -> tuple:
    keys = tuple(value)
    ok = len(keys) == len(p) and all(a is b or same(a, b) for a, b in zip(keys, p))
    return ok, keys


def check_absent(_: Any, value: Any, name: Any, *__: Any) -> tuple:
    if value is MISSING:
        return True, None
    holder = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return name not in holder, name


def check_distinct(g: Guards, _: Any, p: tuple, arguments: tuple, memo: dict) -> tuple:
    ids = [id(g.fetch(s, arguments, memo)) for s in p]
    return len(set(ids)) == len(ids), None


def check_alias(g: Guards, _: Any, p: tuple, arguments: tuple, memo: dict) -> tuple:
    first, *rest = [g.fetch(s, arguments, memo) for s in p]
    return all(r is first for r in rest), None


def check_shape(g: Guards, _: Any, program: tuple, arguments: tuple, memo: dict) -> tuple:
    stack: list[Any] = []
    for op, *operands in program:
        if op == "const":
            stack.append(operands[0])
        elif op == "size":
            stack.append(g.fetch(operands[0], arguments, memo).shape[operands[1]])
        elif op == "int":
            stack.append(g.fetch(operands[0], arguments, memo))
        elif op == "not":
            stack.append(not stack.pop())
        else:
            b, a = stack.pop(), stack.pop()
            if op == "//" and b == 0:
                return False, None
            stack.append(RELATIONS[op](a, b))
    return bool(stack.pop()), None


RELATIONS = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}
CHECKS: dict[str, Any] = {
    "is": lambda g, v, p, *_: (v is p, v),
    "none": lambda g, v, p, *_: (v is None, v),
    "type": lambda g, v, p, *_: (type(v) is p, type(v)),
    "eq": lambda g, v, p, *_: (same(v, p), v),
    "len": lambda g, v, p, *_: (len(v) == p, len(v)),
    "keys": check_keys,
    "absent": check_absent,
    "tensor": check_tensor,
    "clock": lambda g, v, p, *_: (v.__dict__.get("_changed_at") == p, None),
    "mode": lambda g, v, p, *_: (_core.mode() == p, _core.mode()),
    "alias": check_alias,
    "distinct": check_distinct,
    "ints": lambda g, v, p, *_: (type(v) is int, v),
    "float": lambda g, v, p, *_: (type(v) is float, v),
    "shape": check_shape,
    "true": lambda g, v, p, *_: (bool(p(v)), v),
}


def binder(function: Any) -> Any:
    """A function of the same signature that gives its arguments as one tuple."""
    code = function.__code__
    names = parameters(code)
    n, k = code.co_argcount, code.co_kwonlyargcount
    only = code.co_posonlyargcount
    plain = [f"{a}" for a in names[:n]]
    defaults = function.__defaults__ or ()
    given = [a if i < n - len(defaults) else f"{a}=_" for i, a in enumerate(plain)]
    if only:
        given.insert(only, "/")
    rest = list(names[n + k :])
    if code.co_flags & 4:
        given.append("*" + rest.pop(0))
    elif k:
        given.append("*")
    kw = function.__kwdefaults__ or {}
    given += [f"{a}=_" if a in kw else a for a in names[n : n + k]]
    if code.co_flags & 8:
        given.append("**" + rest.pop(0))
    safe = {a: a if a.isidentifier() else f"_{i}_" for i, a in enumerate(names)}
    text = f"lambda {', '.join(given)}: ({''.join(a + ', ' for a in names)})"
    for a, b in safe.items():
        if a != b:
            text = text.replace(a, b)
    made = eval(text, {"_": None})
    made.__name__, made.__qualname__ = function.__name__, function.__qualname__
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    made.__code__ = made.__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    return made


class CompiledFunction:
    """A callable with a cache of (guards, target): the first whose guards pass runs."""

    def __init__(self, callable: Any, code: Any, miss: Any) -> None:
        self.callable, self.miss = callable, miss
        self.entries: tuple = ()
        self.bind = binder(callable)
        functools.update_wrapper(self, callable)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = self.bind(*args, **kwargs)
        failures = []
        for entry in self.entries:
            index, seen = entry[0].explain(arguments)
            if index < 0:
                if self.entries[0] is not entry:
                    self.entries = (entry, *(e for e in self.entries if e is not entry))
                return entry[1](*args, **kwargs)
            failures.append((entry, index, seen))
        return self.miss(self, args, kwargs, failures)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def add_entry(self, guards: Any, target: Any) -> None:
        self.entries = ((guards, target), *self.entries)

    def clear(self) -> None:
        self.entries = ()
