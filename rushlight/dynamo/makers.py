"""How each kind of value is made again, by bytecode: mixed into `Codegen`."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

from bytecode import Instr

from rushlight import eager

from . import runtime
from .attributes import DELETED
from .breaks import Restart, unsupported
from .emit import call_instructions, const, load_attr
from .generators import Generator
from .interpreter import NULL
from .tape import HookHandle
from .tensors import TensorMethod
from .variables.numbers import SymFloat, SymInt
from .variables.objects import (
    MISSING,
    Cell,
    Function,
    Instance,
    InstanceDict,
    Method,
    ObjectId,
    Reenter,
    Super,
)
from .variables.tensor import TensorVar

SIMPLE = (int, float, bool, str, bytes, complex, type(None), type(...), type(NotImplemented))


class Makers:
    """Of `Codegen`: each method leaves the value in a temporary."""

    # What Codegen has.
    state: Any
    frame: Any
    emit: Any
    store: Any
    load: Any
    prepare: Any
    temp: Any
    function: Any
    call_runtime: Any
    take_fills: Any
    temps: dict[int, str]
    keep: list[Any]
    outputs: list[Any]
    fills: list[Any]
    own_cells: list[Cell]

    def cannot(self, value: Any, what: str, last: bool = False) -> None:
        """It cannot be made again: capture anew, and break where it was made."""
        reason = unsupported(
            f"{what} that is still needed after the graph", "it cannot be made again"
        )
        reason.stack = self.state.stack()
        raise Restart(self.state.made.get(id(value), 0), reason, last)

    def make_output(self, value: Any) -> None:
        """A tensor or number that the graph gives."""
        self.temps[id(value)] = name = self.temp()
        self.keep.append(value)
        self.outputs.append((name, value))

    def make_handle(self, value: HookHandle) -> None:
        """The graph gives the hook; its function is put into it here."""
        late = self.temp()
        self.outputs.append((late, value))
        self.emit(Instr("LOAD_FAST", late), load_attr("handle"))
        self.store(value)
        self.prepare(value.function)

        def fill() -> None:
            self.call_runtime(
                runtime.set_hook,
                lambda: self.emit(Instr("LOAD_FAST", late)),
                lambda: self.load(value.function),
            )
            self.emit(Instr("POP_TOP"))

        self.fills.append(fill)

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
        return (
            v is not NULL
            and type(v) in SIMPLE
            or (type(v) is tuple and id(v) not in self.temps and all(map(self.is_plain, v)))
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

    def make_dict(self, value: Any) -> None:
        cls = type(value)
        if (owner := self.state.dict_owners.get(id(value))) is not None:
            self.prepare(owner)
            self.load(owner)
            self.emit(load_attr("__dict__"))
            self.store(value)
            return
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

    def fill_dict(self, value: dict, added: bool = False) -> None:
        items = list(value.items())

        def push(column: int) -> Any:
            def run() -> None:
                for pair in items:
                    self.load(pair[column])
                self.emit(Instr("BUILD_TUPLE", len(items)))

            return run

        function = runtime.add_to_dict if added else runtime.fill_dict
        self.call_runtime(function, lambda: self.load(value), push(0), push(1))
        self.emit(Instr("POP_TOP"))

    def make_instance(self, value: Instance) -> None:
        if value.cls in self.state.made_classes:
            self.cannot(value, "an object of a class made in the frame")
        namespace = issubclass(value.cls, types.SimpleNamespace)
        plain: Any = types.SimpleNamespace if namespace else object
        self.call_runtime(plain.__new__, lambda: self.emit(const(value.cls)))
        self.store(value)
        self.prepare_fields(value)
        if value.fields or value.slots:
            kept = {k: v for k, v in value.slots.items() if v is not DELETED}  # the others are new
            self.fills.append(lambda: self.fill_fields(value, kept, dict(value.fields)))

    def prepare_fields(self, value: Instance) -> None:
        for v in (*value.fields.values(), *value.slots.values()):
            if v is not DELETED:
                self.prepare(v)

    def fill_fields(self, target: Instance, slots: dict, fields: dict) -> None:
        self.fill_some(target, slots, runtime.set_fields, runtime.clear_slots)
        if any(is_shadowed(target.cls, name) for name in fields):
            self.fill_some(target, fields, runtime.set_entries, runtime.delete_entries)
        else:
            self.fill_some(target, fields, runtime.set_fields, runtime.delete_fields)

    def fill_some(self, target: Instance, fields: dict, write: Any, delete: Any) -> None:
        kept = {k: v for k, v in fields.items() if v is not DELETED}
        gone = tuple(k for k, v in fields.items() if v is DELETED)

        def values() -> None:
            for v in kept.values():
                self.load(v)
            self.emit(Instr("BUILD_TUPLE", len(kept)))

        if kept:
            names = tuple(kept)
            self.call_runtime(
                write,
                lambda: self.load(target),
                lambda: self.emit(const(names)),
                values,
            )
            self.emit(Instr("POP_TOP"))
        if gone:
            self.call_runtime(delete, lambda: self.load(target), lambda: self.emit(const(gone)))
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
        self.call_runtime(runtime.set_cell, lambda: self.load(cell), lambda: self.load(content))
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
            self.call_runtime(
                runtime.bound,
                lambda: self.emit(const(value.function)),
                lambda: self.load(value.object),
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

    def make_id(self, value: ObjectId) -> None:
        self.prepare(value.value)
        self.call_runtime(id, lambda: self.load(value.value))
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
            # Left by `break`, it runs its end at once, unless a resume function still held it.
            looped = any(v is value for v in self.frame.stack)
            self.cannot(value, "a generator that has begun", looped and value.has_end)
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


def make_partial(function: Any, args: tuple, keywords: dict) -> Any:
    return functools.partial(function, *args, **keywords)


def bound_to_container(value: Any) -> bool:
    return isinstance(value.__self__, (list, dict, set, tuple, collections.deque, str))


def is_shadowed(cls: type, name: str) -> bool:
    """Whether `object.name = ...` would write a slot or call a property, not reach the dict."""
    found = next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)
    return hasattr(type(found), "__set__")


def is_constant(value: Any) -> bool:
    """Whether it may stand in the code as it is: it was not made by the frame."""
    if type(value).__module__.startswith("rushlight.dynamo"):
        return False
    return callable(value) or isinstance(
        value,
        (types.ModuleType, eager.device, eager.dtype, range, frozenset, types.CodeType, property,
         types.MappingProxyType, staticmethod, classmethod),
    ) or is_enum(value)  # fmt: skip


def is_enum(value: Any) -> bool:
    import enum

    return isinstance(value, enum.Enum)


MAKERS: dict[type, Any] = {
    TensorVar: Makers.make_output,
    SymInt: Makers.make_output,
    SymFloat: Makers.make_output,
    list: Makers.make_list,
    dict: Makers.make_dict,
    collections.OrderedDict: Makers.make_dict,
    collections.defaultdict: Makers.make_dict,
    set: Makers.make_set,
    frozenset: Makers.make_frozenset,
    collections.deque: Makers.make_deque,
    slice: Makers.make_slice,
    Instance: Makers.make_instance,
    Cell: Makers.make_cell,
    Function: Makers.make_function,
    Method: Makers.make_method,
    TensorMethod: Makers.make_tensor_method,
    Super: Makers.make_super,
    ObjectId: Makers.make_id,
    InstanceDict: Makers.make_dict_of,
    functools.partial: Makers.make_partial,
    Reenter: Makers.make_reenter,
    HookHandle: Makers.make_handle,
    Generator: Makers.make_generator,
}
