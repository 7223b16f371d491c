"""Objects from outside -> what the interpreter computes with.

None, bool, str, bytes, dtype, enum member ...   themselves, guarded by value
int, float                                       themselves; symbolic once they were seen to vary
Tensor, Parameter                                TensorVar, an input of the graph when used
tuple, namedtuple, range, slice, frozenset       the same of stand-ins
list, dict, set, deque, OrderedDict, defaultdict a shadow: a container of the same type, which
                                                 the program may change; replayed at the end
function, class, module, builtin                 themselves, guarded
other objects                                    Instance, attribute by attribute
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from typing import Any

from rushlight import _core, eager, nn
from rushlight.errors import Unsupported
from rushlight.fake import symbolic
from rushlight.ops.layouts import Layout

from .breaks import refuse_complex, unsupported
from .own_dicts import may_be_own, refuse_own_dict
from .sources import Source
from .variables.iterators import LEAVES, TREES, wrap_iterator
from .variables.numbers import SymFloat, SymInt
from .variables.objects import Cell, Instance, Lazy, Method, Opaque
from .variables.tensor import TensorVar

TENSORS = (_core.Tensor, nn.Parameter, nn.Buffer)
NONE_TYPES = (type(None), type(...), type(NotImplemented))
WORDS = (eager.formats.layout, eager.memory_format)
CONSTANTS = (bool, str, bytes, complex, *NONE_TYPES, _core.dtype, *WORDS)
BY_IDENTITY = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    _core.Operator,
    _core.Factory,
    types.CodeType,
)
CONTAINERS = (
    list,
    dict,
    set,
    collections.OrderedDict,
    collections.deque,
    collections.defaultdict,
)
OPAQUE = (
    types.GeneratorType,
    types.CoroutineType,
    types.FrameType,
    types.TracebackType,
    type(iter([])),
    type(iter(())),
    type(iter({})),
    zip,
    map,
    enumerate,
    filter,
)
SIZES_VARY = "sizes vary"  # key of `dynamic`: a capture that a changed size made necessary
STEPPED = LEAVES | TREES  # iterators whose steps are modelled
MARKED: dict[int, dict[int, tuple]] = {}  # id of a tensor -> the dims that vary, with bounds


def mark_dynamic(
    tensor: Any, dim: int | tuple | list, *, min: int | None = None, max: int | None = None
) -> None:
    """Sizes of these dims are symbolic from the first capture on. The compiled code is for sizes
    from `min` to `max` where they are given: comparisons that follow from them leave no guard.

    IndexError for a dim that the tensor has not; ValueError where its size is not in the bounds.
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -tensor.dim() <= d < tensor.dim():
            raise IndexError(
                f"[mark_dynamic] dim {d} is out of range for shape {list(tensor.shape)}"
            )
        if not within(tensor.shape[d], (min, max)):
            raise ValueError(
                f"[mark_dynamic] size {tensor.shape[d]} of dim {d} is not within {min} to {max}"
            )
    known = MARKED.get(id(tensor))
    if known is None:
        known = MARKED[id(tensor)] = {}
        weakref.finalize(tensor, MARKED.pop, id(tensor), None)
    known.update((d % tensor.dim(), (min, max)) for d in dims)


def within(n: int, bounds: tuple) -> bool:
    least, greatest = bounds
    return (least is None or least <= n) and (greatest is None or n <= greatest)


def is_bound(value: Any) -> bool:
    """Whether a builtin is a method of some object, not a function of a module or class."""
    owner = value.__self__
    return owner is not None and not isinstance(owner, (type, types.ModuleType))


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


class Shadow:
    """A container from outside and its stand-in: `before` are its contents as they were, None until
    they are looked at as a whole."""

    __slots__ = ("before", "real", "source", "value")

    def __init__(self, real: Any, value: Any, source: Source) -> None:
        self.real, self.value, self.source = real, value, source
        self.before: Any = None


class Wrapping:
    """Of `Capture`."""

    def wrap(self: Any, value: Any, source: Source) -> Any:
        """The stand-in of a value from outside, guarded."""
        if source in self.values:
            return self.values[source]
        found = self.values[source] = self.wrap_new(value, source)
        return found

    def realize(self: Any, value: Any) -> Any:
        return self.wrap(value.value, value.source) if type(value) is Lazy else value

    def wrap_new(self: Any, value: Any, source: Source) -> Any:
        cls = type(value)
        if cls is int or cls is float:
            return self.wrap_number(value, source)
        if value is None:
            self.guard("none", source, None)
            return None
        if cls in CONSTANTS:
            kind = "eq" if cls in (str, bytes, complex) else "is"
            self.guard(kind, source, value)
            return value
        known = self.stand_ins.get(id(value))
        if known is not None:
            self.guard("alias", None, (self.sources[id(known)], source))
            return known
        if isinstance(value, _core.Tensor):
            return self.wrap_tensor(value, source)
        if cls in CONTAINERS:
            return self.wrap_container(value, source)
        if cls is types.FunctionType:
            return self.wrap_function(value, source)
        if isinstance(value, type):
            return self.same_object(value, source)
        if cls in (types.BuiltinFunctionType, types.MethodWrapperType) and is_bound(value):
            return self.wrap_bound(value, source)
        if cls in BY_IDENTITY or isinstance(value, (enum.Enum, types.ModuleType)):
            return self.same_object(value, source)
        if cls is tuple or cls is eager.Size or is_namedtuple(cls):
            return self.wrap_tuple(value, source)
        if cls in (range, slice, frozenset) and fixed(value):
            self.guard("eq" if cls is not slice else "is", source, value)
            return self.remember(value, value, source)
        if cls is types.MethodType:
            return self.wrap_method(value, source)
        if cls in (property, staticmethod, classmethod, functools.cached_property):
            return self.same_object(value, source)
        if cls is functools.partial:
            return self.wrap_partial(value, source)
        if cls is eager.device:
            self.guard("type", source, cls)
            self.guard("eq", source.child("attr", "type"), value.type)
            self.guard("eq", source.child("attr", "index"), value.index)
            return self.remember(value, value, source)
        if cls is types.CellType:
            return self.wrap_cell(value, source)
        if cls is types.MappingProxyType:
            return self.wrap_proxy(value, source)
        if cls in STEPPED:
            found = wrap_iterator(self, value, source)
            if found is not None:
                return found
        if cls in OPAQUE or issubclass(
            cls, (list, dict, set, tuple, str, int, float, BaseException)
        ):
            return self.opaque(value, source)
        if not is_python_class(cls):
            return self.opaque(value, source)
        self.guard("type", source, cls)
        for other in self.plain_dicts:
            refuse_own_dict(value, other)
        instance = Instance(self, cls, value, source)
        return self.remember(instance, value, source)

    def opaque(self: Any, value: Any, source: Source) -> Any:
        """Only its identity is known, and that it is of this type."""
        self.guard("type", source, type(value))
        return self.remember(Opaque(value, source), value, source)

    def remember(self: Any, stand_in: Any, value: Any, source: Source) -> Any:
        self.sources[id(stand_in)] = source
        self.stand_ins[id(value)] = stand_in
        self.keep += [stand_in, value]
        return stand_in

    def same_object(self: Any, value: Any, source: Source) -> Any:
        self.guard("is", source, value)
        return self.remember(value, value, source)

    # ---- numbers

    def wrap_number(self: Any, value: Any, source: Source) -> Any:
        state = self.dynamic.get(source.name, {})
        varies = state.get("number") or (self.force and not source.is_fixed())
        if not varies or state.get("static") or self.force is False:
            self.guard("eq", source, value)
            return value
        if type(value) is int:
            if value in (0, 1) or not -(2**31) < value < 2**31:
                self.guard("eq", source, value)
                return value
            self.guard("ints", source, None)
            name = self.fresh_symbol("i")
            self.symbols[name] = ("int", source)
            return SymInt(self.env.size(name, value))
        if value != value or value in (float("inf"), float("-inf")):
            self.guard("eq", source, value)
            return value
        self.guard("float", source, None)
        return SymFloat(self, self.graph_input("number", source), value, source)

    def fresh_symbol(self: Any, letter: str) -> str:
        return f"{letter}{len(self.symbols)}"

    # ---- tensors

    def wrap_tensor(self: Any, value: Any, source: Source) -> Any:
        cls = type(value)
        if cls not in TENSORS:
            raise unsupported(
                f"a tensor of the subclass {cls.__name__}",
                "its methods may mean anything",
                "Pass a plain Tensor, or leave this function to eager mode.",
            )
        refuse_complex(Layout((), (), value.dtype.name))
        if value.device.type == "meta":
            raise unsupported(
                "a tensor on the meta device",
                "compiled code computes, and there is no data",
                "Call the function itself: eager mode gives the shapes.",
            )
        layout = Layout(
            tuple(value.shape), tuple(value.stride()), value.dtype.name, 0, str(value.device)
        )
        if value.device.type == "cuda" and self.device == "cpu":
            if self.made_on_cpu:
                told = "a tensor on a GPU after others were made on the CPU"
                raise unsupported(told, "graphs stay on one device")
            self.device = layout.device
        layout, sizes, strides = self.symbolic_layout(value, layout, source)
        leaf = value.is_leaf
        facts = cls, value.dtype, layout.rank, value.requires_grad, sizes, strides
        self.guard("tensor", source, (*facts, leaf, value.device))
        var = TensorVar(self, layout, None, cls, value.requires_grad, leaf, None, value)
        return self.remember(var, value, source)

    def symbolic_layout(self: Any, value: Any, layout: Layout, source: Source) -> tuple:
        """(layout, guarded sizes, guarded strides): None where a size varies."""
        dims = self.dynamic_dims(value, layout, source)
        if dims and value.is_contiguous():
            names = []
            for d in dims:
                name = self.fresh_symbol("s")
                self.symbols[name] = ("size", source, d)
                names.append(name)
            try:
                made = symbolic(layout, self.env, dims, names).layout
                for d, bounds in MARKED.get(id(value), {}).items():
                    if d in dims and within(layout.shape[d], bounds):
                        self.env.bound(made.shape[d], *bounds)
                sizes = tuple(None if d in dims else n for d, n in enumerate(layout.shape))
                return made, sizes, None
            except Unsupported:
                for name in names:
                    self.symbols.pop(name, None)
        return layout, layout.shape, layout.strides

    def dynamic_dims(self: Any, value: Any, layout: Layout, source: Source) -> list[int]:
        state = self.dynamic.setdefault(source.name, {})
        known, state["sizes"] = state.get("sizes", ()), layout.shape
        if state.get("static") or self.force is False:
            return []
        if self.dynamic.get(SIZES_VARY) and len(known) == layout.rank:
            # One size has changed: what changed with it varies too, without a capture of its own.
            changed = {d for d, n in enumerate(layout.shape) if n != known[d]}
            state.setdefault("dims", set()).update(changed)
        dims = set(MARKED.get(id(value), ())) | set(state.get("dims", ()))
        if self.force and type(value) is _core.Tensor:
            dims |= set(range(layout.rank))
        return sorted(d for d in dims if d < layout.rank and layout.shape[d] > 1)

    def node_of(self: Any, var: TensorVar) -> Any:
        """The tensor's node; an input from outside becomes a placeholder when first used."""
        if var.node is None:
            source = self.sources[id(var)]
            var.node = self.graph_input(input_name(source), source)
            var.node.meta["layout"] = var.layout
            var.node.meta["example"] = var.example
        return var.node

    # ---- containers

    def wrap_container(self: Any, value: Any, source: Source) -> Any:
        cls = type(value)
        self.guard("type", source, cls)
        if cls is collections.defaultdict:
            made: Any = cls(value.default_factory)
            self.guard("is", source.child("attr", "default_factory"), value.default_factory)
        elif cls is collections.deque:
            made = cls(maxlen=value.maxlen)
            self.guard("eq", source.child("attr", "maxlen"), value.maxlen)
        else:
            made = cls()
        if cls is dict and may_be_own(source):
            self.plain_dicts.append(value)
            for other in self.keep:
                if type(other) is Instance and not other.fresh:
                    refuse_own_dict(other.real, value)
        self.shadows[id(made)] = Shadow(value, made, source)
        return self.remember(made, value, source)

    def fill(self: Any, value: Any) -> Any:
        """A shadow with its contents in it; anything else as it is. What was added to it before
        anyone looked at it comes behind."""
        shadow = self.shadows.get(id(value))
        if shadow is None or shadow.before is not None:
            return value
        real, source, cls = shadow.real, shadow.source, type(value)
        tail = list(value.items()) if issubclass(cls, dict) else list(value)
        value.clear()
        if issubclass(cls, dict):
            keys = tuple(real)
            for k in keys:
                if not is_key(k):
                    raise unsupported(
                        f"a dict with a key of type {type(k).__name__}",
                        "keys are numbers, strings, classes, enum members, functions or tuples",
                    )
            self.guard("keys", source, keys)
            for k in keys:
                child = source.child("item", k)
                value[k] = self.values.get(child, Lazy(real[k], child))
            shadow.before = list(value.items())
            for k, v in tail:
                value[k] = v
        elif issubclass(cls, set):
            if not all(is_key(k) for k in real):
                raise unsupported("a set of objects", "its elements are no constants")
            self.guard("true", source, SameSet(real))
            value.update(real)
            shadow.before = set(value)
            value.update(tail)
        else:
            self.guard("len", source, len(real))
            for i, v in enumerate(real):
                child = source.child("index", i)
                value.append(self.values.get(child, Lazy(v, child)))
            shadow.before = list(value)
            value.extend(tail)
        return value

    def unfilled(self: Any, value: Any) -> Any:
        """The shadow of a dict nobody has looked at as a whole, or None."""
        shadow = self.shadows.get(id(value))
        return shadow if shadow is not None and shadow.before is None else None

    def item_of_unfilled(self: Any, shadow: Any, key: Any, default: Any) -> Any:
        """One item of such a dict, guarded alone."""
        if key in shadow.value:
            return self.realize(shadow.value[key])
        if type(key) is TensorVar:
            self.guard("is", self.sources[id(key)], key.example)
            key = key.example
        if key in shadow.real:
            child = shadow.source.child("item", key)
            return self.wrap(shadow.real[key], child)
        self.guard("absent", shadow.source, key)
        return default

    def realize_all(self: Any, value: Any) -> Any:
        """No lazy value left in a container, at any depth."""
        cls = type(value)
        if cls in CONTAINERS:
            self.fill(value)
            if issubclass(cls, dict):
                for k, v in value.items():
                    if type(v) is Lazy:
                        value[k] = self.realize_element(value, k, v)
                for v in list(value.values()):
                    if is_deep(v):
                        self.realize_all(v)
            elif not issubclass(cls, set):
                for i, v in enumerate(value):
                    if type(v) is Lazy:
                        value[i] = self.realize_element(value, i, v)
                    if is_deep(value[i]):
                        self.realize_all(value[i])
        elif isinstance(value, (tuple, *VIEWS)):
            for v in value:
                if is_deep(v):
                    self.realize_all(v)
        return value

    def realize_element(self: Any, container: Any, key: Any, lazy: Lazy) -> Any:
        """What a lazy element is; the shadow's memory of its contents follows."""
        found = self.realize(lazy)
        shadow = self.shadows.get(id(container))
        if shadow is not None and shadow.before is not None:
            if isinstance(shadow.before, list):
                shadow.before = [swap(entry, lazy, found) for entry in shadow.before]
        return found

    def wrap_tuple(self: Any, value: Any, source: Source) -> Any:
        cls = type(value)
        self.guard("type", source, cls)
        self.guard("len", source, len(value))
        items = [self.wrap(v, source.child("index", i)) for i, v in enumerate(value)]
        return self.remember(tuple.__new__(cls, items), value, source)

    # ---- callables

    def wrap_function(self: Any, value: Any, source: Source) -> Any:
        """By identity where it has a name in a module; else by its code, so that a function made
        anew for each call is the same function."""
        if source.op in ("global", "const") or not value.__closure__ and source.op != "arg":
            return self.same_object(value, source)
        self.guard("type", source, types.FunctionType)
        self.guard("is", source.child("attr", "__code__"), value.__code__)
        return self.remember(value, value, source)

    def wrap_method(self: Any, value: Any, source: Source) -> Any:
        self.guard("type", source, types.MethodType)
        function = self.wrap(value.__func__, source.child("attr", "__func__"))
        bound = self.wrap(value.__self__, source.child("attr", "__self__"))
        return self.remember(Method(self, function, bound), value, source)

    def wrap_bound(self: Any, value: Any, source: Source) -> Any:
        """A method of a builtin object, `[].append`: of the object's stand-in."""
        self.guard("type", source, type(value))
        self.guard("eq", source.child("attr", "__name__"), value.__name__)
        owner = self.wrap(value.__self__, source.child("attr", "__self__"))
        if type(owner) in CONTAINERS or isinstance(owner, (str, int, float, tuple)):
            return getattr(owner, value.__name__)
        if type(owner) is TensorVar:
            from .tensors import TensorMethod

            return TensorMethod(owner, value.__name__)
        return self.opaque(value, source)

    def wrap_partial(self: Any, value: Any, source: Source) -> Any:
        self.guard("type", source, functools.partial)
        function = self.wrap(value.func, source.child("attr", "func"))
        args = self.wrap(value.args, source.child("attr", "args"))
        named = source.child("attr", "keywords")
        self.guard("keys", named, tuple(value.keywords))
        keywords = {k: self.wrap(v, named.child("item", k)) for k, v in value.keywords.items()}
        made = functools.partial(self.callable(function), *args, **keywords)
        return self.remember(made, value, source)

    def wrap_proxy(self: Any, value: Any, source: Source) -> Any:
        """A read-only view of a dict: fixed where it is empty, like the shared hook tables."""
        if not value:
            self.guard("is", source, value)
            return self.remember(value, value, source)
        return self.opaque(value, source)

    def wrap_cell(self: Any, value: Any, source: Source) -> Any:
        self.guard("is", source, value)
        return self.cell_of(value, source)

    def cell_of(self: Any, real: Any, source: Source) -> Cell:
        """The stand-in of a cell; its content is read through `source`.cell_contents."""
        found = self.cells.get(id(real))
        if found is None:
            found = self.cells[id(real)] = Cell(real=real)
            self.sources[id(found)] = source
            self.keep += [found, real]
        return found


def is_deep(value: Any) -> bool:
    """Whether it is a container with parts that may be lazy."""
    return type(value) in CONTAINERS or isinstance(value, tuple)


def swap(entry: Any, lazy: Lazy, found: Any) -> Any:
    if entry is lazy:
        return found
    if type(entry) is tuple and len(entry) == 2 and entry[1] is lazy:
        return entry[0], found
    return entry


class SameSet:
    """The predicate of a guard: an equal set."""

    def __init__(self, expected: set) -> None:
        self.expected = frozenset(expected)
        self.__name__ = f"equals {set(expected)!r}"

    def __call__(self, value: Any) -> bool:
        return value == self.expected


def is_key(k: Any) -> bool:
    if type(k) is tuple:
        return all(map(is_key, k))
    return type(k) in (int, bool, float, str, bytes, type(None), _core.dtype) or isinstance(
        k, (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, _core.Operator)
    )


def fixed(value: Any) -> bool:
    """Whether a range, slice or frozenset is made of constants."""
    if isinstance(value, range):
        return True
    if isinstance(value, slice):
        parts: Any = (value.start, value.stop, value.step)
    else:
        parts = value
    return all(v is None or is_key(v) for v in parts)


VIEWS = (type({}.values()), type({}.items()))
HEAP = 1 << 9  # flag of types: made at run time
PLAIN = (object, types.SimpleNamespace)  # nothing but attributes
WORLDLY = ("threading", "logging", "io", "weakref")


def is_python_class(cls: type) -> bool:
    """Whether every class of the MRO but the plain ones is written in Python."""
    found = _python.get(cls)
    if found is None:
        found = _python[cls] = all(
            c in PLAIN or c.__module__ not in WORLDLY and not is_native(c) for c in cls.__mro__
        )
    return found


_python: Any = weakref.WeakKeyDictionary()


def is_native(c: type) -> bool:
    """Whether a class has slots or methods written in C of its own."""
    if not c.__flags__ & HEAP:
        return True
    for name, v in c.__dict__.items():
        kind = type(v)
        if kind in (types.WrapperDescriptorType, types.MethodDescriptorType):
            if v.__objclass__ is c:
                return True
        elif kind is types.GetSetDescriptorType:
            if name not in ("__dict__", "__weakref__"):
                return True
        elif kind is types.BuiltinFunctionType and name == "__new__" and v.__self__ is c:
            return True
    return False


def input_name(source: Source) -> str:
    return source.name.rpartition(".")[2] if source.op in ("attr", "dict_attr") else source.name
