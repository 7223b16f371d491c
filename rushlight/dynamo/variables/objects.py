"""Objects of Python as a capture sees them: instances of classes, functions made in the frame,
methods, cells, `super()`, and what the capture does not look into.

Builtins may call them (`sorted(key=f)`, `a == b` inside a dict): their special methods run the
interpreter again on the code that the user's class has for it.
"""

from __future__ import annotations

from typing import Any

from rushlight.dynamo.breaks import unsupported

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()


class Lazy:
    """A value that nobody has read yet: no guard is needed for it."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: Any) -> None:
        self.value, self.source = value, source


class Cell:
    """A cell: of the outermost frame (`name`), of a function from outside (`source`), or of an
    inlined frame (neither)."""

    __slots__ = ("content", "name", "real", "written")

    def __init__(self, content: Any = MISSING, name: str | None = None, real: Any = None) -> None:
        self.content, self.name, self.real, self.written = content, name, real, False


class Function:
    """A function that the frame made."""

    def __init__(
        self, state: Any, code: Any, namespace: dict, name: str, closure: tuple, module: Any
    ) -> None:
        self.state, self.code, self.namespace = state, code, namespace
        self.name, self.qualname = name, code.co_qualname
        self.closure, self.module = closure, module
        self.defaults: Any = None
        self.kwdefaults: Any = None
        self.annotations: Any = None
        self.doc: Any = None
        if code.co_consts and isinstance(code.co_consts[0], str):
            self.doc = code.co_consts[0]
        self.fields: dict[str, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.state.enter(self, args, kwargs)


class Method:
    """A function bound to an object."""

    __slots__ = ("function", "object", "state")

    def __init__(self, state: Any, function: Any, object: Any) -> None:
        self.state, self.function, self.object = state, function, object

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.state.enter(self, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Method)
            and self.object is other.object
            and self.function is other.function
        )

    def __hash__(self) -> int:
        return id(self.object) ^ id(self.function)


class Reenter:
    """A Python callable as builtins may call it: its code is interpreted."""

    __slots__ = ("function", "state")

    def __init__(self, state: Any, function: Any) -> None:
        self.state, self.function = state, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.state.enter(self.function, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reenter) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


class Super:
    """`super(start, object)`."""

    __slots__ = ("cls", "object", "start")

    def __init__(self, start: type, object: Any, cls: type) -> None:
        self.start, self.object, self.cls = start, object, cls


class Opaque:
    """An object that nothing is known of but its identity: touching it breaks the graph."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: Any) -> None:
        self.value, self.source = value, source

    def refuse(self, *_: Any) -> Any:
        name = type(self.value).__name__
        raise unsupported(
            f"use of an object of type {name}", "its behaviour in a capture is not modelled"
        )

    __iter__ = __next__ = __len__ = __eq__ = __lt__ = __bool__ = __contains__ = refuse  # type: ignore[assignment]
    __getitem__ = __call__ = __str__ = __repr__ = __format__ = __index__ = refuse

    def __hash__(self) -> int:
        return hash(id(self.value))


class Instance:
    """An object of a class written in Python. `fields` is what the capture knows of its
    dict, `slots` of its slots: all of them for an object made in the frame, those written for one
    from outside."""

    __slots__ = ("cls", "fields", "real", "slots", "source", "state")

    def __init__(self, state: Any, cls: type, real: Any = MISSING, source: Any = None) -> None:
        self.state, self.cls, self.real, self.source = state, cls, real, source
        self.fields: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}

    @property
    def fresh(self) -> bool:
        return self.real is MISSING

    def special(self, name: str, *args: Any) -> Any:
        """The class's method, interpreted; NotImplemented where it has none."""
        return self.state.special(self, name, args)

    def __hash__(self) -> int:
        if self.cls.__hash__ is object.__hash__:
            return id(self) >> 4
        if self.cls.__hash__ is None:
            raise self.state.raised(TypeError(f"unhashable type: '{self.cls.__name__}'"))
        return int(self.special("__hash__"))

    def __eq__(self, other: Any) -> Any:
        if self.cls.__eq__ is object.__eq__:
            return True if self is other else NotImplemented
        return self.special("__eq__", other)

    def __ne__(self, other: Any) -> Any:
        if self.cls.__ne__ is not object.__ne__:
            return self.special("__ne__", other)
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __bool__(self) -> bool:
        return self.state.truth(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.state.enter(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        raise unsupported(f"attribute {name} read by a builtin", "it would see the stand-in's own")


def forward(name: str) -> Any:
    def method(self: Instance, *args: Any) -> Any:
        return self.special(name, *args)

    method.__name__ = name
    return method


for _name in (
    "lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow "
    "matmul rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift divmod rdivmod "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
).split():
    setattr(Instance, f"__{_name}__", forward(f"__{_name}__"))


def unary(name: str, operation: str) -> Any:
    """Operators of one operand: there is nobody else to ask."""

    def method(self: Instance) -> Any:
        found = self.special(name)
        if found is NotImplemented:
            text = f"bad operand type for {operation}: '{self.cls.__name__}'"
            raise self.state.raised(TypeError(text))
        return found

    method.__name__ = name
    return method


for _name, _operation in (
    ("neg", "unary -"), ("pos", "unary +"), ("invert", "unary ~"), ("abs", "abs()"),
):  # fmt: skip
    setattr(Instance, f"__{_name}__", unary(f"__{_name}__", _operation))


def needed(name: str) -> Any:
    """Special methods without which the operation raises TypeError."""

    def method(self: Instance, *args: Any) -> Any:
        return self.state.special_or_raise(self, name, args)

    method.__name__ = name
    return method


for _name in (
    "iter next len contains getitem setitem delitem index int float complex str repr format "
    "enter exit reversed round trunc floor ceil bytes fspath missing length_hint"
).split():
    setattr(Instance, f"__{_name}__", needed(f"__{_name}__"))


class ObjectId:
    """id(value): equal to another of the same object, and nothing else is known of it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectId):
            self.refuse()
        return self.value is other.value  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return id(self.value) >> 4

    def refuse(self, *_: Any) -> Any:
        raise unsupported("id() as a number", "addresses belong to the run")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __and__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __int__ = __float__ = refuse
    __str__ = __repr__ = __format__ = __xor__ = __rxor__ = __rshift__ = refuse


class InstanceDict:
    """`vars(instance)` of an object from outside: reads and writes its attributes one by one."""

    __slots__ = ("instance",)

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
