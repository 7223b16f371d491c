"""One capture: the graph under construction, the guards, and the objects that the program met.

Takes values together with their sources and gives what the interpreter computes with. Invariants:
one object from outside has one stand-in, whatever way it is reached; what is read is guarded where
it is read; nothing outside is written before the graph has run.
"""

from __future__ import annotations

import abc
import operator
import types
from typing import Any

from rushlight import _core, sym, trace
from rushlight.errors import of_user, user_line
from rushlight.fx.captured import CallGraph, CallNode
from rushlight.nn.module import Module

from .breaks import Break, Bug, unsupported
from .containers import DictMethod
from .guards import Guard
from .operators import Operators
from .sources import Roots, Source
from .tensors import TensorMethod
from .variables.numbers import SymFloat, SymInt, hint, hint_fixed
from .variables.objects import Cell, Function, Instance, Lazy, Method, Opaque, Reenter
from .variables.tensor import TensorVar
from .wrapping import Shadow, Wrapping


class Capture(Operators, Wrapping):
    """State of one capture; the interpreter's frames share it."""

    def __init__(
        self, dynamic: dict, stop_at: int | None = None, force: bool | None = None
    ) -> None:
        self.graph = CallGraph()
        self.roots = Roots()
        self.guards: dict[tuple, Guard] = {}
        self.values: dict[Source, Any] = {}  # what a source was wrapped as
        self.sources: dict[int, Source] = {}  # id of a stand-in -> its source
        self.stand_ins: dict[int, Any] = {}  # id of an object from outside -> its stand-in
        self.keep: list[Any] = []  # objects whose ids are keys above
        self.shadows: dict[int, Shadow] = {}  # id of the stand-in -> shadow
        self.device = "cpu"  # of the graph: a GPU where a tensor from outside is on one
        self.made_on_cpu = False  # whether the graph makes tensors there from nothing
        self.env = sym.ShapeEnv()
        self.fetch: Any = None  # how the graph's inputs are had at once (fetching.py)
        self.symbols: dict[str, tuple] = {}  # name -> ("size", source, dim) or ("int", source)
        self.symbol_nodes: dict[Any, CallNode] = {}
        self.inputs: list[tuple[CallNode, Any]] = []  # placeholder -> source or symbol
        self.dynamic, self.force = dynamic, force
        self.stop_at = stop_at
        self.last = False  # whether nothing is captured behind the stop
        self.options: Any = None
        self.frames: list[Any] = []
        self.captured = bytearray()  # for each position of the outermost frame: was it reached
        self.inlined: dict[types.CodeType, bytearray] = {}  # the same of what it called
        self.steps = 0  # instructions of the outermost frame so far
        self.made: dict[int, int] = {}  # id of an object -> the step that made it
        self.current: Any = None  # the exception being handled
        self.known_exceptions: dict[int, BaseException] = {}
        self.stories: dict[int, tuple] = {}  # id -> its cause, its context, is that suppressed
        self.initial_mode = self.mode = _core.mode()
        self.mode_touched = False
        self.cast_dtype: Any = None  # of the autocast region that the capture is in
        self.globals_written: dict[tuple[int, str], tuple[dict, str, Any]] = {}
        self.cells: dict[int, Cell] = {}
        self.written: dict[int, Any] = {}  # instances from outside whose attributes changed
        self.effects: list[tuple] = []  # calls to make after the graph
        self.class_writes: dict[tuple, Any] = {}
        self.made_classes: set[type] = set()
        self.of_classes: dict[tuple, Any] = {}  # (class, name) -> its attribute (attributes.py)
        self.inferred: dict[tuple, tuple] = {}  # calls of operators -> the layouts (operators.py)
        self.plain_dicts: list[dict] = []  # from outside, with a name of their own
        self.dict_owners: dict[int, Any] = {}  # id of a `__dict__` -> the new object that it is of
        self.caller: str | None = None
        self.generators: list[Any] = []
        self.stepped: list[Any] = []  # iterators from outside that were stepped
        self.guard("mode", None, self.initial_mode)

    # ---- the user's place

    def where(self) -> str:
        """The innermost line of the user's code, as file:line; where none is (a module of `nn` was
        compiled), the line that called."""
        for frame in reversed(self.frames):
            if of_user(frame.file):
                return f"{frame.file}:{frame.line}"
        if self.caller is None:
            place = user_line()
            self.caller = "" if place is None else f"{place.file}:{place.line}"
        return self.caller

    def locate(self, node: CallNode) -> None:
        """Notes where the node comes from: the user's line and, for who looks at records, the
        innermost module with its class."""
        node.meta["where"] = self.where()
        if trace.listeners:
            for frame in reversed(self.frames):
                names = frame.code.co_varnames[: frame.code.co_argcount]
                me: Any = frame.locals.get(names[0]) if names else None
                known = isinstance(me, Instance) and me.source is not None
                if known and issubclass(me.cls, Module):
                    node.meta["module"] = (me.source.name, me.cls.__name__)
                    return

    def stack(self) -> tuple[str, ...]:
        """The user's frames, outermost first; all of them where none is the user's."""
        told = [(f.file, f"{f.file}:{f.line} in {f.name}") for f in self.frames]
        mine = tuple(text for file, text in told if of_user(file))
        return mine or tuple(text for _, text in told)

    # ---- guards

    def guard(self, kind: str, source: Source | None, payload: Any) -> None:
        """Assume it from now on; a repetition is dropped."""
        if source is not None and source.op == "const" and kind in ("is", "type", "eq", "none"):
            return
        key = (kind, source, payload if kind in SEVERAL else None)
        if key not in self.guards:
            self.guards[key] = Guard(kind, source, payload, self.where())

    # ---- exceptions of the program

    def raised(self, error: BaseException) -> BaseException:
        """Marks an exception as the program's own, not a failure of the interpreter."""
        self.known_exceptions[id(error)] = error
        return error

    def is_raised(self, error: BaseException) -> bool:
        return id(error) in self.known_exceptions

    def tell_story(self, error: BaseException) -> None:
        """Remember an exception's cause and context as the program has them."""
        story = (error.__cause__, error.__context__, error.__suppress_context__)
        self.stories[id(error)] = story

    def restore_story(self, error: BaseException) -> None:
        """The interpreter's own way of raising leaves no trace in what the program sees."""
        story = self.stories.get(id(error))
        if story is None:  # raised by a builtin
            context = self.current if self.current is not error else None
            story = self.stories[id(error)] = (None, context, False)
        error.__cause__, error.__context__, error.__suppress_context__ = story

    def native(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a builtin on values of the capture; what it raises is the program's."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, RecursionError):
                raise unsupported("deep recursion", "the interpreter's own stack is full") from None
            raise self.raised(error) from None

    def enter(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """The interpreter called from within a builtin, which may pass on what nobody has read."""
        try:
            return self.frames[-1].call(function, tuple(map(self.realize_pair, args)), kwargs)
        except Exception as error:
            if self.is_raised(error):
                raise
            if isinstance(error, RecursionError):  # a container that holds itself
                raise unsupported("deep recursion", "the interpreter's own stack is full") from None
            raise Bug(error) from error

    def realize_pair(self, value: Any) -> Any:
        """A value read, and what is in a tuple that `zip` or `items` has just made."""
        value = self.realize(value)
        if type(value) is tuple and id(value) not in self.sources:
            if any(type(v) is Lazy for v in value):
                return tuple(map(self.realize, value))
        return value

    def callable(self, value: Any) -> Any:
        """A value as a builtin may call it: code of the program is interpreted."""
        cls = type(value)
        if cls is types.FunctionType:
            return Reenter(self, value)
        if isinstance(value, type) and cls in (type, abc.ABCMeta) and value.__flags__ & (1 << 9):
            return Reenter(self, value)
        if cls in (_core.Operator, TensorMethod, DictMethod, *GETTERS):
            return Reenter(self, value)
        if cls in (types.BuiltinFunctionType, types.MethodDescriptorType) and value in GUARDED:
            return Reenter(self, value)
        return value

    def plain(self, value: Any) -> Any:
        """The value that `callable` was given."""
        return value.function if type(value) is Reenter else value

    def special(self, instance: Instance, name: str, args: tuple) -> Any:
        from .attributes import NOT_FOUND, class_attribute

        found = class_attribute(self, instance.cls, name, instance)
        if found is NOT_FOUND or found is None:
            return NotImplemented
        return self.enter(found, (instance, *args), {})

    def special_or_raise(self, instance: Instance, name: str, args: tuple) -> Any:
        found = self.special(instance, name, args)
        if found is NotImplemented:
            for other in INSTEAD.get(name, ()):
                found = self.special(instance, other, ())
                if found is not NotImplemented:
                    return NUMBERS[name](found)
        if found is NotImplemented:
            cls = instance.cls
            if name not in WITHOUT or any(hasattr(cls, other) for other in PROTOCOL.get(name, ())):
                raise unsupported(
                    f"an object of {cls.__name__} without {name}",
                    "what Python does instead is not modelled",
                )
            raise self.raised(TypeError(WITHOUT[name].format(cls.__name__)))
        if type(found) in (SymInt, SymFloat) and name in NUMBERS:
            return NUMBERS[name](found)  # a builtin takes real numbers alone
        return found

    def truth(self, value: Any) -> bool:
        """bool(value) as the program would have it."""
        if isinstance(value, Instance):
            found = self.special(value, "__bool__", ())
            if found is NotImplemented:
                found = self.special(value, "__len__", ())
                if found is NotImplemented:
                    return True
                return bool(found)
            if not isinstance(found, bool):
                name = type(found).__name__
                raise self.raised(TypeError(f"__bool__ should return bool, returned {name}"))
            return found
        if isinstance(value, (Function, Method, Reenter, Cell)):
            return True
        self.fill(value)
        return bool(self.native(bool, value))

    def is_changed(self, container: Any) -> bool:
        """Whether the frame has changed a container from outside."""
        from .side_effects import differs

        shadow = self.shadows.get(id(self.stand_ins.get(id(container))))
        return shadow is not None and differs(shadow)

    # ---- what was made when

    def note_made(self, value: Any) -> Any:
        """Remember the step that made an object, for restarts."""
        self.made.setdefault(id(value), self.steps - 1)  # the one under way
        self.keep.append(value)
        return value

    # ---- numbers in the graph

    def number_node(self, value: Any) -> Any:
        """A number of the interpreter as an argument of a node."""
        if isinstance(value, SymFloat):
            return value.node
        expr = value.expr if isinstance(value, SymInt) else value
        if not isinstance(expr, sym.Sym):
            return expr
        found = self.symbol_nodes.get(expr)
        if found is None:
            found = self.symbol_nodes[expr] = self.expression_node(expr)
        return found

    def expression_node(self, expr: sym.Sym) -> CallNode:
        total: Any = None
        for names, coefficient in expr.terms.items():
            product: Any = None
            for name in names:
                factor = self.symbol_node(name)
                product = factor if product is None else self.call(operator.mul, product, factor)
            if product is None:
                product = coefficient
            elif coefficient != 1:
                product = self.call(operator.mul, product, coefficient)
            total = product if total is None else self.call(operator.add, total, product)
        return total

    def symbol_node(self, name: str) -> CallNode:
        found = self.symbol_nodes.get(name)
        if found is None:
            if name in self.symbols:
                found = self.graph_input(name, self.symbols[name])
            else:
                top, bottom = self.env.quotients[name]
                found = self.call(
                    operator.floordiv, self.number_node(top), self.number_node(bottom)
                )
            self.symbol_nodes[name] = found
        return found

    def call(self, function: Any, *args: Any) -> CallNode:
        node = self.graph.add("call_function", function, args)
        self.locate(node)
        return node

    def graph_input(self, name: str, source: Any) -> CallNode:
        """A new input of the graph; placeholders stand in front of everything else."""
        node = CallNode(self.graph, "placeholder", name, (), {}, self.graph.fresh(name))
        node.target = node.name
        self.graph.nodes.insert(len(self.inputs), node)
        self.inputs.append((node, source))
        return node

    def float_node(self, function: Any, *args: Any) -> Any:
        """Arithmetic of floats that vary: a node, and the value now."""
        value = self.float_now(function, *args)
        if not isinstance(value, float):
            raise unsupported(f"{function.__name__} of a float that varies", "it gives no float")
        for a in args:
            if isinstance(a, SymInt):
                a.fix()
        args = tuple(a.fix() if isinstance(a, SymInt) else a for a in args)
        node = self.call(function, *(self.number_node(a) for a in args))
        return SymFloat(self, node, value)

    def float_now(self, function: Any, *args: Any) -> Any:
        """The value now; where it raises, that is so for these values only."""
        try:
            return self.native(function, *map(hint, args))
        except Exception:
            for a in args:
                hint_fixed(a)
            raise

    def compare_float(self, value: SymFloat, relation: Any, other: Any) -> bool:
        """A comparison of a float from outside: its answer is guarded, not the value."""
        answer = relation(value.value, other)
        self.guard("true", value.source, Compared(relation, other, answer))
        return answer

    def fix_float(self, value: SymFloat) -> float:
        if value.source is None:
            raise unsupported(
                "a decision on a float computed from one that varies",
                "the float is part of the graph",
                "Compute it outside the compiled function, or pass it as a tensor.",
            )
        self.dynamic.setdefault(value.source.name, {})["static"] = True
        self.guard("eq", value.source, value.value)
        return value.value


# Kinds that may be asked of one source again.
SEVERAL = frozenset(("alias", "distinct", "absent", "true", "isnot"))


class Compared:
    """The predicate of a guard: a comparison with a constant has this answer."""

    def __init__(self, relation: Any, other: Any, answer: bool) -> None:
        self.relation, self.other, self.answer = relation, other, answer
        self.__name__ = f"{relation.__name__}(value, {other!r}) is {answer}"

    def __call__(self, value: Any) -> bool:
        return self.relation(value, self.other) is self.answer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.__name__ == other.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
# Builtins that look at types: as `key=len` they must meet the stand-ins' handlers.
GUARDED = {isinstance, issubclass, getattr, hasattr, setattr, len, iter, next, hash, repr, callable}
# What a builtin asks next where a class lacks the first; and what it falls back on, which is not
# modelled.
INSTEAD = {
    "__int__": ("__index__",),
    "__float__": ("__index__",),
    "__complex__": ("__float__", "__index__"),
}
PROTOCOL = {
    "__iter__": ("__getitem__",),
    "__contains__": ("__iter__", "__getitem__"),
    "__reversed__": ("__getitem__",),
}
NUMBERS = {"__index__": operator.index, "__int__": operator.index, "__len__": operator.index} | {
    "__float__": float,
    "__complex__": complex,
}
WITHOUT = {
    "__iter__": "'{}' object is not iterable",
    "__next__": "'{}' object is not an iterator",
    "__len__": "object of type '{}' has no len()",
    "__contains__": "argument of type '{}' is not iterable",
    "__getitem__": "'{}' object is not subscriptable",
    "__setitem__": "'{}' object does not support item assignment",
    "__delitem__": "'{}' object does not support item deletion",
    "__index__": "'{}' object cannot be interpreted as an integer",
    "__call__": "'{}' object is not callable",
    "__reversed__": "'{}' object is not reversible",
}
__all__ = ["Break", "Capture", "Lazy", "Opaque", "Shadow", "TensorVar"]
