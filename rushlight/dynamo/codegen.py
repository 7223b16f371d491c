"""Values of the capture -> bytecode that makes them again after the graph has run.

What an object from outside was is loaded through its source; what the program made is made anew,
once each, empty first and filled when everything exists, so that identity and cycles come out as
they were. Everything that is loaded is loaded before anything outside is changed.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from typing import Any

from bytecode import CellVar, FreeVar, Instr

from rushlight import eager

from . import runtime
from .breaks import Restart, unsupported
from .bytecode import VERSION
from .generators import Generator
from .interpreter import NULL, Previous
from .sources import Source
from .tensors import TensorMethod
from .variables.numbers import SymFloat, SymInt
from .variables.objects import (
    MISSING,
    Cell,
    Function,
    Instance,
    InstanceDict,
    Lazy,
    Method,
    Opaque,
    Reenter,
    Super,
)
from .variables.tensor import TensorVar

SIMPLE = (int, float, bool, str, bytes, complex, type(None), type(...), type(NotImplemented))
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
        type(iter(collections.deque())),
    }
)
DICT_ITERATORS = (type(iter({})), type(iter({}.values())), type(iter({}.items())))
DICT_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


def const(value: Any) -> Instr:
    return Instr("LOAD_CONST", value)


def push_null() -> Instr:
    return Instr("PUSH_NULL")


def call_instructions(n: int) -> list[Instr]:
    """Behind callable (and NULL) and n arguments."""
    return [Instr("PRECALL", n), Instr("CALL", n)] if VERSION == (3, 11) else [Instr("CALL", n)]


def load_attr(name: str) -> Instr:
    return Instr("LOAD_ATTR", name) if VERSION == (3, 11) else Instr("LOAD_ATTR", (False, name))


class Codegen:
    """Builds values into temporary locals. `code` grows; `outputs` are the tensors and numbers that
    the graph is to give, in order."""

    def __init__(self, state: Any, frame: Any, cell_names: set[str]) -> None:
        self.state, self.frame = state, frame
        self.own = frame.code
        self.cell_names = cell_names  # parameters whose slot holds a cell after the prefix
        self.code: list[Instr] = []
        self.fills: list[Any] = []
        self.temps: dict[int, str] = {}
        self.source_temps: dict[Source, str] = {}
        self.keep: list[Any] = []
        self.outputs: list[Any] = []
        self.own_cells: list[Cell] = []
        self.count = 0
        self.taken = set(self.own.co_varnames) | set(self.own.co_cellvars) | set(self.own.co_freevars)

    # ---- small pieces

    def emit(self, *instructions: Instr) -> None:
        self.code += instructions

    def temp(self) -> str:
        while True:
            name = f"t{self.count}"
            self.count += 1
            if name not in self.taken:
                return name

    def store(self, value: Any = None) -> str:
        """The top of the stack into a new temporary, remembered for the value."""
        name = self.temp()
        self.emit(Instr("STORE_FAST", name))
        if value is not None:
            self.temps[id(value)] = name
            self.keep.append(value)
        return name

    def function(self, function: Any) -> None:
        """Pushes a callable and the NULL that goes with it."""
        if VERSION >= (3, 13):
            self.emit(const(function), push_null())
        else:
            self.emit(push_null(), const(function))

    def call_runtime(self, function: Any, *parts: Any) -> None:
        """Pushes function(*parts); a part is a function that pushes it."""
        self.function(function)
        for p in parts:
            p()
        self.emit(*call_instructions(len(parts)))

    # ---- sources

    def load_source(self, source: Source) -> None:
        """Pushes what a source names."""
        name = self.source_temps.get(source)
        if name is not None:
            self.emit(Instr("LOAD_FAST", name))
            return
        op, key = source.op, source.key
        if op == "arg":
            if source.name in self.cell_names:
                self.emit(Instr("LOAD_DEREF", CellVar(source.name)))
            else:
                self.emit(Instr("LOAD_FAST", source.name))
        elif op == "cell":
            if source.name in self.own.co_freevars:
                self.emit(Instr("LOAD_DEREF", FreeVar(source.name)))
            else:
                self.emit(const(key), load_attr("cell_contents"))
        elif op == "const":
            self.emit(const(key))
        elif op in ("global", "builtin"):
            namespace, variable = key
            if namespace is self.frame.namespace:
                self.emit(Instr("LOAD_GLOBAL", (False, variable)))
            else:
                self.emit(const(namespace), const(variable), Instr("BINARY_SUBSCR"))
        else:
            assert source.parent is not None
            if op in ("type", "len", "call"):
                function = {"type": type, "len": len}.get(op, key)
                self.call_runtime(function, lambda: self.load_source(source.parent))
                return
            self.load_source(source.parent)
            self.emit(*STEP[op](key))

    # ---- values

    def load(self, value: Any) -> None:
        """Pushes a value that `prepare` has seen."""
        if value is NULL:
            self.emit(push_null())
            return
        name = self.temps.get(id(value))
        if name is not None:
            self.emit(Instr("LOAD_FAST", name))
        elif type(value) is Lazy:
            self.emit(Instr("LOAD_FAST", self.source_temps[value.source]))
        elif type(value) is Cell and value.name is not None:
            closure = "LOAD_FAST" if VERSION >= (3, 13) else "LOAD_CLOSURE"
            self.emit(Instr(closure, CellVar(value.name)))
        else:
            self.emit(const(value))

    def prepare(self, value: Any) -> None:
        """Code that makes a value and keeps it in a temporary, unless it is a constant."""
        cls = type(value)
        if cls in SIMPLE or value is NULL or id(value) in self.temps:
            return
        if cls is Lazy:
            if value.source not in self.source_temps:
                known = self.state.values.get(value.source)
                self.load_source(value.source)
                name = self.store()
                self.source_temps[value.source] = name
                if known is not None and type(known) not in SIMPLE:
                    self.temps.setdefault(id(known), name)
            return
        source = self.state.sources.get(id(value))
        if source is not None and cls is not SymFloat:
            if source.op == "const":
                return
            if source in self.source_temps:
                self.temps[id(value)] = self.source_temps[source]
                return
            self.load_source(source)
            self.source_temps[source] = self.store(value)
            return
        maker = MAKERS.get(cls)
        if maker is not None:
            maker(self, value)
        elif isinstance(value, tuple):
            self.make_tuple(value)
        elif cls in REDUCIBLE:
            self.make_iterator(value)
        elif cls in DICT_ITERATORS:
            self.make_dict_iterator(value)
        elif cls in DICT_VIEWS:
            self.make_dict_view(value)
        elif cls is types.BuiltinFunctionType and bound_to_container(value):
            owner = value.__self__
            self.prepare(owner)
            self.load(owner)
            self.emit(load_attr(value.__name__))
            self.store(value)
        elif isinstance(value, type) and value in self.state.made_classes:
            self.cannot(value, "a class made in the frame")
        elif isinstance(value, BaseException):
            self.make_exception(value)
        elif is_constant(value):
            return
        else:
            self.cannot(value, f"an object of type {cls.__name__}")

    def cannot(self, value: Any, what: str) -> None:
        """It cannot be made again: capture anew, and break where it was made."""
        reason = unsupported(
            f"{what} that is still needed after the graph", "it cannot be made again"
        )
        reason.stack = self.state.stack()
        raise Restart(self.state.made.get(id(value), 0), reason)

    def make_output(self, value: Any) -> None:
        """A tensor or number that the graph gives."""
        self.temps[id(value)] = name = self.temp()
        self.keep.append(value)
        self.outputs.append((name, value))

    def make_tuple(self, value: tuple) -> None:
        for v in value:
            self.prepare(v)
        if all(self.is_plain(v) for v in value) and type(value) is tuple:
            return  # a constant as it stands
        if type(value) is not tuple:
            self.function(runtime.make_tuple)
            self.emit(const(type(value)))
        for v in value:
            self.load(v)
        self.emit(Instr("BUILD_TUPLE", len(value)))
        if type(value) is not tuple:
            self.emit(*call_instructions(2))
        self.store(value)

    def is_plain(self, v: Any) -> bool:
        return v is not NULL and type(v) in SIMPLE or (
            type(v) is tuple and id(v) not in self.temps and all(map(self.is_plain, v))
        )

    def make_slice(self, value: slice) -> None:
        parts = (value.start, value.stop, value.step)
        for v in parts:
            self.prepare(v)
        for v in parts:
            self.load(v)
        self.emit(Instr("BUILD_SLICE", 3))
        self.store(value)

    def make_list(self, value: list) -> None:
        self.emit(Instr("BUILD_LIST", 0))
        self.store(value)
        self.state.fill(value)
        for v in value:
            self.prepare(v)
        if value:
            self.fills.append(lambda: self.fill_sequence(runtime.fill_list, value))

    def make_set(self, value: set) -> None:
        self.emit(Instr("BUILD_SET", 0))
        self.store(value)
        for v in value:
            self.prepare(v)
        if value:
            self.fills.append(lambda: self.fill_sequence(runtime.fill_set, value))

    def make_frozenset(self, value: frozenset) -> None:
        items = tuple(value)
        self.prepare(items)
        self.call_runtime(frozenset, lambda: self.load(items))
        self.store(value)

    def make_deque(self, value: Any) -> None:
        self.call_runtime(runtime.make_deque, lambda: self.emit(const(value.maxlen)))
        self.store(value)
        for v in value:
            self.prepare(v)
        self.fills.append(lambda: self.fill_sequence(runtime.fill_deque, value))

    def fill_sequence(self, function: Any, value: Any) -> None:
        items = list(value)

        def push_items() -> None:
            for v in items:
                self.load(v)
            self.emit(Instr("BUILD_TUPLE", len(items)))

        self.call_runtime(function, lambda: self.load(value), push_items)
        self.emit(Instr("POP_TOP"))

    def make_dict(self, value: dict) -> None:
        cls = type(value)
        if cls is dict:
            self.emit(Instr("BUILD_MAP", 0))
        elif cls is collections.defaultdict:
            factory = self.state.plain(value.default_factory)
            self.prepare(factory)
            self.call_runtime(cls, lambda: self.load(factory))
        else:
            self.call_runtime(cls)
        self.store(value)
        self.prepare_items(value)
        if value:
            self.fills.append(lambda: self.fill_dict(value))

    def prepare_items(self, value: dict) -> None:
        for k, v in value.items():
            self.prepare(k)
            self.prepare(v)

    def fill_dict(self, value: dict) -> None:
        items = list(value.items())

        def push(column: int) -> Any:
            def run() -> None:
                for pair in items:
                    self.load(pair[column])
                self.emit(Instr("BUILD_TUPLE", len(items)))

            return run

        self.call_runtime(runtime.fill_dict, lambda: self.load(value), push(0), push(1))
        self.emit(Instr("POP_TOP"))

    def make_instance(self, value: Instance) -> None:
        if value.cls in self.state.made_classes:
            self.cannot(value, "an object of a class made in the frame")
        self.call_runtime(object.__new__, lambda: self.emit(const(value.cls)))
        self.store(value)
        for v in value.fields.values():
            self.prepare(v)
        if value.fields:
            self.fills.append(lambda: self.fill_fields(value, dict(value.fields)))

    def fill_fields(self, target: Any, fields: dict) -> None:
        from .attributes import DELETED

        kept = {k: v for k, v in fields.items() if v is not DELETED}
        gone = tuple(k for k, v in fields.items() if v is DELETED)

        def values() -> None:
            for v in kept.values():
                self.load(v)
            self.emit(Instr("BUILD_TUPLE", len(kept)))

        if kept:
            names = tuple(kept)
            self.call_runtime(
                runtime.set_fields, lambda: self.load(target), lambda: self.emit(const(names)), values
            )
            self.emit(Instr("POP_TOP"))
        if gone:
            self.call_runtime(
                runtime.delete_fields, lambda: self.load(target), lambda: self.emit(const(gone))
            )
            self.emit(Instr("POP_TOP"))

    def make_cell(self, value: Cell) -> None:
        if value.name is not None:  # of this frame: the prefix has made it
            if value not in self.own_cells:
                self.own_cells.append(value)
                if value.content is not MISSING:
                    self.prepare(value.content)
            return
        self.call_runtime(types.CellType)
        self.store(value)
        if value.content is not MISSING:
            self.prepare(value.content)
            content = value.content
            self.fills.append(lambda: self.fill_cell(value, content))

    def fill_cell(self, cell: Cell, content: Any) -> None:
        self.call_runtime(
            runtime.set_cell, lambda: self.load(cell), lambda: self.load(content)
        )
        self.emit(Instr("POP_TOP"))

    def make_function(self, value: Function) -> None:
        for c in value.closure:
            self.prepare(c)

        def push_closure() -> None:
            for c in value.closure:
                self.load(c)
            self.emit(Instr("BUILD_TUPLE", len(value.closure)))

        plain = [value.code, value.namespace, value.name, value.qualname, value.module]
        self.call_runtime(
            runtime.make_function,
            *(lambda p=p: self.emit(const(p)) for p in plain),
            push_closure,
            lambda: self.emit(const(value.doc)),
        )
        self.store(value)
        parts = (value.defaults, value.kwdefaults, value.annotations, value.fields)
        if any(parts):
            for p in parts:
                self.prepare(p)

            def finish() -> None:
                self.call_runtime(
                    runtime.set_function,
                    lambda: self.load(value),
                    *(lambda p=p: self.load(p) for p in parts),
                )
                self.emit(Instr("POP_TOP"))

            self.fills.append(finish)

    def make_method(self, value: Method) -> None:
        self.prepare(value.object)
        if type(value.function) in (types.WrapperDescriptorType, types.MethodDescriptorType):
            name = value.function.__name__
            self.call_runtime(
                runtime.getter, lambda: self.load(value.object), lambda: self.emit(const(name))
            )
        else:
            self.prepare(value.function)
            self.call_runtime(
                types.MethodType,
                lambda: self.load(value.function),
                lambda: self.load(value.object),
            )
        self.store(value)

    def make_tensor_method(self, value: TensorMethod) -> None:
        self.prepare(value.var)
        self.load(value.var)
        self.emit(load_attr(value.name))
        self.store(value)

    def make_super(self, value: Super) -> None:
        self.prepare(value.object)
        self.call_runtime(
            super, lambda: self.emit(const(value.start)), lambda: self.load(value.object)
        )
        self.store(value)

    def make_dict_of(self, value: InstanceDict) -> None:
        self.prepare(value.instance)
        self.load(value.instance)
        self.emit(load_attr("__dict__"))
        self.store(value)

    def make_partial(self, value: functools.partial) -> None:
        function = self.state.plain(value.func)
        args = tuple(map(self.state.plain, value.args))
        keywords = {k: self.state.plain(v) for k, v in value.keywords.items()}
        self.keep += [args, keywords]
        self.prepare(function)
        self.prepare(args)
        self.prepare(keywords)
        for fill in self.take_fills():
            fill()
        self.call_runtime(
            make_partial,
            lambda: self.load(function),
            lambda: self.load(args),
            lambda: self.load(keywords),
        )
        self.store(value)

    def take_fills(self) -> list[Any]:
        fills, self.fills = self.fills, []
        return fills

    def make_reenter(self, value: Reenter) -> None:
        self.prepare(value.function)
        name = self.temps.get(id(value.function))
        if name is not None:
            self.temps[id(value)] = name
        else:
            self.emit(const(value.function))
            self.store(value)

    def make_generator(self, value: Generator) -> None:
        if value.started or value.call is None:
            self.cannot(value, "a generator that has begun")
        assert value.call is not None
        function, args, kwargs = value.call
        self.keep += [args, kwargs]
        self.prepare(function)
        self.prepare(args)
        self.prepare(kwargs)
        for fill in self.take_fills():
            fill()
        self.call_runtime(
            runtime.partial_call,
            lambda: self.load(function),
            lambda: self.load(args),
            lambda: self.load(kwargs),
        )
        self.store(value)

    def make_exception(self, value: BaseException) -> None:
        if self.state.is_raised(value):
            self.cannot(value, "an exception that was raised")
        args, fields = value.args, dict(value.__dict__)
        self.keep += [args, fields]
        self.prepare(args)
        self.prepare(fields)
        for fill in self.take_fills():
            fill()
        cls = type(value)
        self.call_runtime(
            runtime.make_exception,
            lambda: self.emit(const(cls)),
            lambda: self.load(args),
            lambda: self.load(fields),
        )
        self.store(value)

    def make_iterator(self, value: Any) -> None:
        reduced = value.__reduce__()
        function, args = reduced[0], reduced[1]
        args = tuple(self.state.plain(a) for a in args)
        rest = reduced[2] if len(reduced) > 2 else None
        self.keep += [args, rest]
        for a in args:
            self.prepare(a)
        self.prepare(rest)
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
            lambda: self.emit(const(len(reduced) > 2)),
        )
        self.store(value)

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

        def push_view() -> None:
            self.call_runtime(VIEWS[kind], lambda: self.load(mapping))

        self.call_runtime(
            runtime.advanced, push_view, lambda: self.emit(const(steps))
        )
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


def make_partial(function: Any, args: tuple, keywords: dict) -> Any:
    return functools.partial(function, *args, **keywords)


VIEWS = (dict.keys, dict.values, dict.items)


def bound_to_container(value: Any) -> bool:
    return isinstance(value.__self__, (list, dict, set, tuple, collections.deque, str))


def is_constant(value: Any) -> bool:
    """Whether it may stand in the code as it is: it was not made by the frame."""
    return callable(value) or isinstance(
        value,
        (types.ModuleType, eager.device, eager.dtype, range, frozenset, types.CodeType, property,
         types.MappingProxyType, staticmethod, classmethod),
    ) or is_enum(value)  # fmt: skip


def is_enum(value: Any) -> bool:
    import enum

    return isinstance(value, enum.Enum)


def subscript(*before: Instr) -> Any:
    return lambda key: [*before, const(key), Instr("BINARY_SUBSCR")]


STEP: dict[str, Any] = {
    "attr": lambda key: [load_attr(key)],
    "dict_attr": lambda key: [load_attr("__dict__"), const(key), Instr("BINARY_SUBSCR")],
    "item": lambda key: [const(key), Instr("BINARY_SUBSCR")],
    "index": lambda key: [const(key), Instr("BINARY_SUBSCR")],
    "default": lambda key: [load_attr("__defaults__"), const(key), Instr("BINARY_SUBSCR")],
    "kwdefault": lambda key: [load_attr("__kwdefaults__"), const(key), Instr("BINARY_SUBSCR")],
    "closure": lambda key: [
        load_attr("__closure__"),
        const(key),
        Instr("BINARY_SUBSCR"),
        load_attr("cell_contents"),
    ],
    "grad": lambda key: [load_attr("grad")],
}
MAKERS: dict[type, Any] = {
    TensorVar: Codegen.make_output,
    SymInt: Codegen.make_output,
    SymFloat: Codegen.make_output,
    list: Codegen.make_list,
    dict: Codegen.make_dict,
    collections.OrderedDict: Codegen.make_dict,
    collections.defaultdict: Codegen.make_dict,
    set: Codegen.make_set,
    frozenset: Codegen.make_frozenset,
    collections.deque: Codegen.make_deque,
    slice: Codegen.make_slice,
    Instance: Codegen.make_instance,
    Cell: Codegen.make_cell,
    Function: Codegen.make_function,
    Method: Codegen.make_method,
    TensorMethod: Codegen.make_tensor_method,
    Super: Codegen.make_super,
    InstanceDict: Codegen.make_dict_of,
    functools.partial: Codegen.make_partial,
    Reenter: Codegen.make_reenter,
    Generator: Codegen.make_generator,
}
__all__ = ["Codegen", "Opaque", "Previous"]
