"""Values of the capture -> bytecode that makes them again after the graph has run.

What an object from outside was is loaded through its source; what the program made is made anew,
once each, empty first and filled when everything exists, so that identity and cycles come out as
they were. Everything that is loaded is loaded before anything outside is changed.
"""

from __future__ import annotations

import types
from typing import Any

from bytecode import CellVar, FreeVar, Instr

from .bytecode import VERSION
from .emit import STEP, call_instructions, const, load_attr, push_null
from .interpreter import NULL
from .makers import MAKERS, SIMPLE, Makers, bound_to_container, is_constant
from .makers_iterators import DICT_ITERATORS, DICT_VIEWS, REDUCIBLE, IteratorMakers
from .sources import Source
from .variables.numbers import SymFloat
from .variables.objects import Cell, Lazy


class Codegen(Makers, IteratorMakers):
    """Builds values into temporary locals. `code` grows; `outputs` are the tensors and numbers that
    the graph is to give, in order."""

    def __init__(self, state: Any, frame: Any, cell_names: set[str], resumed: bool) -> None:
        self.state, self.frame, self.resumed = state, frame, resumed
        self.own = frame.code
        self.cell_names = cell_names  # parameters whose slot holds a cell after the prefix
        self.code: list[Instr] = []
        self.fills: list[Any] = []
        self.late: list[Any] = []  # what can be done only after everything outside is changed
        self.unmade: set[int] = set()  # ids of values that are made there
        self.temps: dict[int, str] = {}
        self.source_temps: dict[Source, str] = {}
        self.keep: list[Any] = []
        self.outputs: list[Any] = []
        self.own_cells: list[Cell] = []
        self.shared: set[Source] = set()  # loaded once, because more than one path goes on there
        self.count = 0
        self.taken = (
            set(self.own.co_varnames) | set(self.own.co_cellvars) | set(self.own.co_freevars)
        )

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
            if source.name in self.cell_names and self.resumed:
                self.load_cell(source)
            elif source.name in self.cell_names:
                self.emit(Instr("LOAD_DEREF", CellVar(source.name)))
            else:
                self.emit(Instr("LOAD_FAST", source.name))
        elif op == "closure" and source.parent is not None and source.parent.op == "func":
            self.emit(Instr("LOAD_DEREF", FreeVar(source.name)))
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
            if source in self.shared:
                name = self.source_temps[source] = self.temp()
                self.emit(Instr("COPY", 1), Instr("STORE_FAST", name))

    def load_cell(self, source: Source) -> None:
        """Pushes a cell object: of this frame where it is a parameter's slot. An argument may be a
        cell itself: what a comprehension puts aside stands on a resumed frame's stack.
        """
        if source.op == "arg" and source.name in self.cell_names:
            closure = "LOAD_FAST" if VERSION >= (3, 13) else "LOAD_CLOSURE"
            self.emit(Instr(closure, CellVar(source.name)))
        else:
            self.load_source(source)

    # ---- values

    def load(self, value: Any) -> None:
        """Pushes a value that `prepare` has seen."""
        if value is NULL:
            self.emit(push_null())
            return
        if id(value) in self.unmade:
            self.cannot(value, "an iterator over a container that was changed")
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
        if cls is Cell and source is not None:
            if source.op == "closure":
                closure = "LOAD_FAST" if VERSION >= (3, 13) else "LOAD_CLOSURE"
                self.emit(Instr(closure, FreeVar(source.name)))
            else:
                self.load_cell(source)
            self.store(value)
            return
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

    def take_fills(self) -> list[Any]:
        fills, self.fills = self.fills, []
        return fills
