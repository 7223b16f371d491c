"""`from_torch(module)`: a torch module as one of Rushlight's, on the same memory.

The tree is built again. A class of torch's becomes the class of ours with that name, whose
attributes are the same; a user's class becomes a class with the same bodies, in whose functions
every global name and every variable of an enclosing function that stands for something of torch's
stands for ours. Parameters and buffers are the torch module's own memory, so training either trains
both. What we lack is a stand-in that raises the error of `rushlight run` when it is used.

Only functions that are reached from a method are built again, each once; what they look up is
looked up when `from_torch` runs. torch itself is imported by whoever made the module.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from rushlight import _core, nn
from rushlight.errors import Unsupported
from rushlight.interop import shim

# What torch keeps in every module's dictionary, and ours keeps elsewhere.
HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
FIELDS = frozenset({
    *HOOKS,
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook",
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_compiled_call_impl",
    "training",
})  # fmt: skip
DESCRIPTORS = (  # of a class, that are built again or hold no function of Python's
    types.FunctionType, staticmethod, classmethod, property, functools.cached_property,
    functools._lru_cache_wrapper, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MemberDescriptorType, types.GetSetDescriptorType, type,
)  # fmt: skip
PLAIN = (type(None), bool, int, float, complex, str, bytes)
SHARED = frozenset("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split())


def from_torch(module: Any, *, compile: bool = True) -> nn.Module:
    """A torch module -> a Rushlight module that runs its forward with Rushlight's tensors.

    Parameters, buffers and other tensors that the modules hold share memory, strides included;
    ties stay ties. compile: the forward is captured and compiled at its first call.

    TypeError for what is no torch module, RuntimeError for one whose tensors lie on two devices,
    Unsupported for tensors that DLPack does not carry (subclasses, sparse ones, float8), for
    modules with hooks and for classes with a metaclass or descriptors of their own. A name that
    Rushlight lacks raises where the program uses it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, getattr(torch.nn, "Module", ())):
        raise TypeError(f"[from_torch] expected a torch.nn.Module, got {type(module).__name__}")
    one_device(module)
    world = World(torch)
    made: nn.Module = world.value(module)
    world.finish()
    if compile:
        forward = type(made).forward.__get__(made)
        made.__dict__["forward"] = sys.modules["rushlight"].compile(forward)
    return made


def one_device(module: Any) -> None:
    """RuntimeError where the tensors of a module lie on more than one device."""
    seen: dict[str, str] = {}
    for name, x in [*module.named_parameters(), *module.named_buffers()]:
        seen.setdefault(str(x.device), name)
    if len(seen) > 1:
        told = ", ".join(f"{name} on {device}" for device, name in seen.items())
        raise RuntimeError(f"[from_torch] the tensors of a module must be on one device: {told}")


class World:
    """What stands for what, within one call of `from_torch`."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.known: dict[int, tuple[Any, Any]] = {}  # id -> (theirs, which stays alive; ours)
        self.spaces: dict[int, dict[str, Any]] = {}  # the globals of a module -> ours
        self.later: list[Callable[[], None]] = []  # cells and globals that are still to be filled
        self.names = names_of(torch)
        self.reaching: dict[type, bool] = {}  # classes that are not torch's

    def finish(self) -> None:
        while self.later:
            self.later.pop()()

    def keep(self, theirs: Any, ours: Any) -> Any:
        self.known[id(theirs)] = (theirs, ours)
        return ours

    def value(self, x: Any, name: str = "") -> Any:
        """What stands for an object; the object itself where it has nothing of torch's."""
        if isinstance(x, PLAIN):
            return x
        known = self.known.get(id(x))
        if known is not None:
            return known[1]
        torch = self.torch
        if isinstance(x, torch.Tensor):
            return self.keep(x, self.tensor(x, name))
        if isinstance(x, torch.nn.Module):
            return self.module(x, name)
        if isinstance(x, (torch.dtype, torch.device, torch.Size)):
            return plain_value(x)
        if isinstance(x, types.ModuleType):
            return self.namespace(x) if of_torch(x.__name__) else x
        if isinstance(x, type):
            return self.kind(x)
        if of_torch(getattr(x, "__module__", None) or "") or id(x) in self.names:
            return self.named(x)
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if isinstance(x, types.MethodType):
            return types.MethodType(self.value(x.__func__), self.value(x.__self__))
        if isinstance(x, functools.partial):
            named = {k: self.value(v) for k, v in x.keywords.items()}
            return functools.partial(self.value(x.func), *map(self.value, x.args), **named)
        if isinstance(x, (staticmethod, classmethod)):
            return type(x)(self.value(x.__func__))
        if isinstance(x, property):
            return property(*(self.value(f) for f in (x.fget, x.fset, x.fdel)))
        if isinstance(x, functools.cached_property):
            made = self.keep(x, functools.cached_property(self.value(x.func)))
            if x.attrname is not None:
                made.__set_name__(None, x.attrname)
            return made
        if isinstance(x, functools._lru_cache_wrapper):
            return self.keep(
                x, functools.lru_cache(**x.cache_parameters())(self.value(x.__wrapped__))
            )
        return self.container(x)

    def container(self, x: Any) -> Any:
        """Containers of Python's keep their identity where nothing in them changes."""
        if type(x) in (list, tuple, set, frozenset):
            items = [self.value(v) for v in x]
            same = all(a is b for a, b in zip(items, x))
            return x if same else self.keep(x, type(x)(items))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.value, x))
        if type(x) is dict or type(x).__name__ in ("OrderedDict", "defaultdict"):
            values = {k: self.value(v) for k, v in x.items()}
            if all(values[k] is v for k, v in x.items()):
                return x
            made = x.copy()
            made.update(values)
            return self.keep(x, made)
        return self.object(x)

    # ---- tensors

    def tensor(self, x: Any, name: str) -> Any:
        torch = self.torch
        if type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise Unsupported("from_torch", f"{name or 'a tensor'} is a {type(x).__name__}")
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in SHARED or x.layout is not torch.strided:
            what = f"{name or 'a tensor'} is {dtype}, {str(x.layout).removeprefix('torch.')}"
            raise Unsupported("from_torch", f"{what}: Rushlight has no such tensors")
        ours = _core.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach()))
        if isinstance(x, torch.nn.Parameter):
            return nn.Parameter(ours, x.requires_grad)
        return ours.requires_grad_() if x.requires_grad else ours

    # ---- modules

    def module(self, m: Any, name: str) -> nn.Module:
        where = name or type(m).__name__
        for hooks in HOOKS:
            if getattr(m, hooks, None):
                raise Unsupported("from_torch", f"{where} has hooks ({hooks})")
        kind = self.kind(type(m))
        if isinstance(kind, Absent):
            kind._raise()
        made = self.keep(m, kind.__new__(kind))
        nn.Module.__init__(made)
        at = f"{name}." if name else ""
        for into, given in (("_parameters", m._parameters), ("_buffers", m._buffers)):
            made.__dict__[into].update({k: self.value(v, at + k) for k, v in given.items()})
        made._modules.update({k: self.value(v, at + k) for k, v in m._modules.items()})
        made._non_persistent_buffers_set.update(m._non_persistent_buffers_set)
        for k, v in m.__dict__.items():
            if k not in FIELDS:
                made.__dict__[k] = self.value(v, at + k)
        made.training = m.training
        return made

    # ---- classes and functions

    def kind(self, cls: type) -> Any:
        """A class of torch's: ours of that name. One that derives from torch's: built again."""
        if id(cls) in self.known:
            return self.known[id(cls)][1]
        if of_torch(cls.__module__):
            found = self.named(cls)
            above = cls.__mro__[1]
            if isinstance(found, Absent) and issubclass(above, self.torch.nn.Module):
                if "forward" not in vars(cls):  # such as what only keeps quantisation away
                    return self.keep(cls, self.kind(above))
            return found
        if not of_torch_kind(cls):
            return self.plain_kind(cls)
        return self.built(cls)

    def plain_kind(self, cls: type) -> Any:
        """A class that does not derive from torch's: built again where its bodies reach torch and
        that can be done; else as it is."""
        if not reaches(cls, self.reaching):
            return cls
        try:
            return self.built(cls)
        except (Unsupported, TypeError):
            return self.keep(cls, cls)

    def object(self, x: Any) -> Any:
        """An object of such a class: one of the new class with the same attributes."""
        kind = self.kind(type(x)) if self.simple(type(x)) else type(x)
        if kind is type(x):
            return x
        made = self.keep(x, object.__new__(kind))
        for name, value in vars(x).items():
            made.__dict__[name] = self.value(value)
        return made

    @staticmethod
    def simple(cls: type) -> bool:
        """Whether objects are their attributes: made by `object`, without slots."""
        return cls.__new__ is object.__new__ and getattr(cls, "__dictoffset__", 0) != 0

    def built(self, cls: type) -> Any:
        """The class again, with bodies of ours."""
        bases = tuple(self.kind(c) if rebuildable(c) else c for c in cls.__bases__)
        for base in bases:
            if isinstance(base, Absent):
                base._raise()
        space = {k: v for k, v in cls.__dict__.items() if k not in ("__dict__", "__weakref__")}
        meta: Any = type(cls) if type(cls).__module__ in ("abc", "typing") else type
        if meta is type and type(cls) is not type and not of_torch(type(cls).__module__):
            what = f"{cls.__qualname__} has a metaclass, {type(cls).__qualname__}"
            raise Unsupported("from_torch", what)
        made = self.keep(cls, meta(cls.__name__, bases, {"__module__": cls.__module__}))
        for k, v in space.items():
            if k not in ("__module__", "__doc__", "__abstractmethods__", "_abc_impl"):
                if hasattr(type(v), "__get__") and not isinstance(v, DESCRIPTORS):
                    what = f"{cls.__qualname__}.{k} is a descriptor, a {type(v).__name__}"
                    raise Unsupported("from_torch", what)
                if k == "__init_subclass__":  # what it did is among the attributes
                    self.later.insert(
                        0, functools.partial(type.__setattr__, made, k, self.value(v))
                    )
                    continue
                type.__setattr__(made, k, self.value(v))
        made.__doc__ = cls.__doc__
        return made

    def function(self, f: types.FunctionType) -> Any:
        """The same body with other globals, enclosing variables and defaults."""
        root = (f.__module__ or "").partition(".")[0]
        if root in sys.stdlib_module_names and root != "__main__" or root in ("numpy", "rushlight"):
            return f
        space = self.spaces.setdefault(
            id(f.__globals__),
            {k: f.__globals__.get(k) for k in ("__name__", "__file__", "__package__")}
            | {"__builtins__": f.__globals__.get("__builtins__", __builtins__)},
        )
        cells = tuple(map(self.cell, f.__closure__ or ()))
        made = types.FunctionType(f.__code__, space, f.__name__, None, cells)
        made.__qualname__, made.__module__, made.__doc__ = f.__qualname__, f.__module__, f.__doc__
        self.keep(f, made)

        def fill() -> None:
            for name in looked_up(f.__code__):
                if name in f.__globals__ and name not in space:
                    space[name] = None  # a function that reaches itself
                    space[name] = self.value(f.__globals__[name])
            made.__defaults__ = self.value(f.__defaults__)
            made.__kwdefaults__ = self.value(f.__kwdefaults__)
            made.__dict__.update({k: self.value(v) for k, v in f.__dict__.items()})

        self.later.append(fill)
        return made

    def cell(self, theirs: Any) -> Any:
        if id(theirs) in self.known:
            return self.known[id(theirs)][1]
        made = self.keep(theirs, types.CellType())

        def fill() -> None:
            try:
                made.cell_contents = self.value(theirs.cell_contents)
            except ValueError:  # it was empty
                pass

        self.later.append(fill)
        return made

    # ---- names

    def named(self, x: Any) -> Any:
        """Ours for an object of torch's, by its name."""
        for full in candidates(x, self.names.get(id(x))):
            found = lookup(full)
            if found is not None:
                return self.keep(x, found)
        full = next(iter(candidates(x, self.names.get(id(x)))), repr(x))
        return self.keep(x, Absent(full))

    def namespace(self, module: types.ModuleType) -> Any:
        """Ours for one of torch's modules."""
        return self.keep(module, Namespace(module.__name__))


def looked_up(code: types.CodeType) -> Iterator[str]:
    """The names that a function and those inside it may look up."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from looked_up(const)


def rebuildable(cls: type) -> bool:
    """Whether a class is a program's: not Python's own, not a library's that has no torch in it."""
    root = (cls.__module__ or "").partition(".")[0]
    mine = root not in sys.stdlib_module_names or root == "__main__"
    return mine and root not in ("numpy", "rushlight")


def reaches(cls: type, known: dict[type, bool]) -> bool:
    """Whether a body of a class, or of one that a body names, looks up something of torch's."""
    if cls in known:
        return known[cls]
    known[cls] = False  # of a cycle
    if not rebuildable(cls) or issubclass(cls, (BaseException, enum.Enum)):
        return False
    known[cls] = any(
        reaches_torch(f, known) for c in cls.__mro__ if rebuildable(c) for f in bodies(vars(c))
    )
    return known[cls]


def bodies(space: Any) -> Iterator[types.FunctionType]:
    """The functions among the attributes of a class, and in the mappings that it keeps."""
    for x in space.values():
        x = getattr(x, "__func__", x)
        if isinstance(x, types.FunctionType):
            yield x
        elif isinstance(x, property):
            yield from (f for f in (x.fget, x.fset) if isinstance(f, types.FunctionType))
        elif type(x) is dict:
            yield from (f for f in x.values() if isinstance(f, types.FunctionType))


def reaches_torch(f: types.FunctionType, known: dict[type, bool]) -> bool:
    around = [f.__globals__.get(name) for name in looked_up(f.__code__)]
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # empty
            around.append(cell.cell_contents)
    for x in around:
        if isinstance(x, types.ModuleType):
            if of_torch(x.__name__):
                return True
        elif isinstance(x, type) and not of_torch(x.__module__):
            if reaches(x, known):
                return True
        elif x is not None and of_torch(str(getattr(x, "__module__", None) or "")):
            return True
    return False


def of_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


def of_torch_kind(cls: type) -> bool:
    return any(of_torch(c.__module__) for c in cls.__mro__)


def plain_value(x: Any) -> Any:
    """Ours for a dtype, a device or a size."""
    kind = type(x).__name__
    if kind == "dtype":
        name = str(x).removeprefix("torch.")
        return getattr(_core, name, None) or Absent(f"torch.{name}")
    rushlight = sys.modules["rushlight"]
    return rushlight.device(str(x)) if kind == "device" else rushlight.Size(tuple(x))


def names_of(torch: Any) -> dict[int, str]:
    """The public names of torch's objects that do not know their own: built-in functions."""
    found: dict[int, str] = {}
    for name in ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft"):
        module = importlib.import_module(name)
        for key, x in vars(module).items():
            if callable(x) and not key.startswith("_") and not isinstance(x, types.ModuleType):
                found.setdefault(id(x), f"{name}.{key}")
    return found


def candidates(x: Any, public: str | None) -> list[str]:
    """Full names under which an object of torch's may be known."""
    found = [] if public is None else [public]
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if module and name:
        found.append(f"{module}.{name}")
        if module.startswith("torch.nn.modules"):
            found.insert(0, f"torch.nn.{name}")
        if module.startswith("torch.autograd"):
            found.append(f"torch.{name}")
    return found


def lookup(full: str) -> Any:
    """Ours for a full name of torch's, or None."""
    parent, _, last = full.rpartition(".")
    module = counterpart(parent)
    return None if module is None else getattr(module, last, None)


def counterpart(name: str) -> types.ModuleType | None:
    """Ours for a module of torch's: where `rushlight run` finds it too."""
    for ours in shim.candidates(name):
        try:
            return importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name is None or not ours.startswith(error.name):
                raise
    return None


class Namespace(types.ModuleType):
    """One of torch's modules as a converted function sees it: what ours has under the same names.
    A name that we lack raises, and says what is near it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        ours = counterpart(name)
        self.__dict__["__ours__"] = ours
        if ours is not None:
            kept = {k: v for k, v in vars(ours).items() if not k.startswith("__")}
            self.__dict__.update({k: v for k, v in kept.items() if not inner(v)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        full, ours = f"{self.__name__}.{name}", self.__dict__["__ours__"]
        found = None if ours is None else getattr(ours, name, None)
        if inner(found) or found is None and counterpart(full) is not None:
            found = Namespace(full)
        if found is None:
            near = shim.note(full, ours)
            raise AttributeError(f"{full} is not in Rushlight{shim.near_text(near)}")
        self.__dict__[name] = found
        return found


def inner(x: Any) -> bool:
    return isinstance(x, types.ModuleType) and x.__name__.startswith("rushlight")


class Absent:
    """Stands for an object of torch's that Rushlight lacks; raises when it is used."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _raise(self) -> Any:
        near = shim.note(self._name, counterpart(self._name.rpartition(".")[0]))
        raise AttributeError(f"{self._name} is not in Rushlight{shim.near_text(near)}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._raise()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._raise()
