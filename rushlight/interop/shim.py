"""`import torch` means Rushlight: for a whole program, without torch installed.

`install()` makes the import system answer `torch` and its submodules with Rushlight's own modules,
so that a name is one object under both. A name or module that Rushlight lacks raises the error that
Python raises, with what is near it, and is kept in `missing`. Invariant: `uninstall()` leaves no
trace in `sys.modules` or on the modules.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NamedTuple

from rushlight.errors import user_line

from . import standins
from .torch_version import TorchVersion

# What stands elsewhere in Rushlight: a module of torch's, or the beginning of its name, and ours.
MOVED = {
    "torch.nn.modules": "rushlight.nn",
    "torch.nn.parallel": "rushlight.nn.parallel",
    "torch.nn.utils.clip_grad": "rushlight.nn.utils",
    "torch.nn.utils.convert_parameters": "rushlight.nn.utils",
    "torch.nn.utils.weight_norm": "rushlight.nn.utils",
    "torch.nn.utils.spectral_norm": "rushlight.nn.utils",
    "torch.optim.optimizer": "rushlight.optim.optimizer",
    "torch.optim.lr_scheduler": "rushlight.optim.lr_scheduler",
    "torch.optim.swa_utils": "rushlight.optim.swa_utils",
    "torch.optim": "rushlight.optim",
    "torch.utils.data": "rushlight.utils.data",
    "torch.utils.hooks": "rushlight.nn.hooks",
    "torch.utils.model_zoo": "rushlight.hub",
    "torch.cuda.amp": "rushlight.cuda.amp",
    "torch.cuda.nvtx": "rushlight.profiler.nvtx",
    "torch.cuda": "rushlight.cuda",
    "torch.amp": "rushlight.amp",
    "torch.autograd.functional": "rushlight.autograd.functional",
    "torch.autograd.graph": "rushlight.autograd.graph",
    "torch.autograd.profiler": "rushlight.profiler",
    "torch.autograd": "rushlight.autograd",
    "torch.profiler": "rushlight.profiler",
    **{
        f"torch.distributions.{name}": f"rushlight.distributions.{ours}"
        for ours, names in {
            "normal": "normal laplace cauchy gumbel half_normal",
            "positive": "uniform exponential",
            "multivariate": "multivariate_normal",
            "discrete": "bernoulli categorical geometric one_hot_categorical",
            "composed": "independent transformed_distribution log_normal mixture_same_family",
            "distribution": "distribution",
        }.items()
        for name in names.split()
    },
}
# Rooms whose modules a program knows as torch's, whichever way it reaches them.
PUBLIC = frozenset(
    "amp autograd backends cuda distributions fft func futures fx hub jit library linalg nn optim "
    "profiler random signal special testing utils".split()
)
ALSO = ("torch.autograd.profiler", "torch.cuda.nvtx", "torch.nn.modules")  # second names
HELD = ("torch.backends",)  # their submodules are attributes of ours
VERSION = TorchVersion("2.13.0+rushlight")


class Missing(NamedTuple):
    """A name that the program asked for and Rushlight lacks."""

    name: str  # torch.fft.rfft
    near: tuple[str, ...]
    where: str  # the line that asked first


missing: dict[str, Missing] = {}
listeners: list[Callable[[], None]] = []  # called when a name is added to `missing`


def install() -> None:
    """From now on `import torch` gives Rushlight. RuntimeError where torch itself is loaded."""
    loaded = sys.modules.get("torch")
    if loaded is not None and loaded is not sys.modules.get("rushlight"):
        raise RuntimeError(
            "[run] torch is loaded already; `import torch` can mean Rushlight only before that"
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name, module in list(sys.modules.items()):
        if (known := torch_name(name)) is not None:
            _finder.telling(module, known)
    _finder.telling(importlib.import_module("rushlight.ops"), "torch.ops")
    module = importlib.import_module("torch")
    _finder.version = getattr(module, "__version__", "")
    module.__version__ = VERSION  # type: ignore[attr-defined]


def uninstall() -> None:
    """`import torch` means torch again."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        sys.modules["rushlight"].__version__ = _finder.version  # type: ignore[attr-defined]
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    for parent, last, made in _finder.made:  # an import sets a module on its parent
        if parent.__dict__.get(last) is made:
            delattr(parent, last)
    _finder.made.clear()
    _finder.stand_ins.clear()
    for module, kind in _finder.kinds:
        module.__class__ = kind
    _finder.kinds.clear()
    missing.clear()


class Finder:
    """Answers `torch` and `torch.*`, as a finder and a loader."""

    def __init__(self) -> None:
        self.kinds: list[tuple[types.ModuleType, type]] = []  # modules whose class was changed
        self.specs: dict[str, Any] = {}
        self.made: list[tuple[types.ModuleType, str, types.ModuleType]] = []  # parent, name, module
        self.stand_ins: dict[str, types.ModuleType] = {}
        self.version = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            known = torch_name(name)
            spec = None if known is None else PathFinder.find_spec(name, path, target)
            if known is not None and spec is not None and spec.loader is not None:
                spec.loader = Announcing(spec.loader, known)
            return spec
        module = self.module(name)
        if module is None:
            near = note(name)
            if sys._getframe(2).f_code.co_name == "find_spec":
                return None  # importlib.util.find_spec asks whether it is there
            raise ModuleNotFoundError(f"{name} is not in Rushlight{near_text(near)}", name=name)
        self.specs[name] = (module, getattr(module, "__spec__", None))
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """What `importlib.metadata` finds: libraries ask it for torch's version."""
        name = getattr(context, "name", None)
        if name is None or name.lower() == "torch":
            yield standins.distribution(VERSION)

    def module(self, name: str, exact: bool = False) -> types.ModuleType | None:
        """Ours for a module of torch's, or None. `exact`: only one that has its names to itself."""
        parent, _, last = name.rpartition(".")
        if parent in HELD:
            held = importlib.import_module(parent.replace("torch", "rushlight"))
            return getattr(held, last, None)
        for ours in candidates(name, exact):
            try:
                return self.telling(importlib.import_module(ours), name)
            except ModuleNotFoundError as error:
                if error.name is None or not ours.startswith(error.name):
                    raise
        if parent in standins.HOLDING and last in vars(sys.modules[parent]):
            inside = vars(sys.modules[parent])[last]
            return inside if isinstance(inside, types.ModuleType) else None
        if name in self.stand_ins:
            return self.stand_ins[name]
        content = standins.content(name, VERSION)
        if content is None:
            return None
        made = self.stand_ins[name] = types.ModuleType(name)
        made.__dict__.update(content)
        self.made.append((sys.modules["rushlight"], last, made))
        return self.telling(made, name)

    def telling(self, module: types.ModuleType, name: str) -> types.ModuleType:
        """The module, which notes names that it lacks."""
        if not isinstance(module, Telling):
            self.kinds.append((module, type(module)))
            module.__class__ = Telling
            module.__dict__["__torch_name__"] = name
        return module

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module: types.ModuleType = self.specs[spec.name][0]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """It is there already; the import system wrote its spec over the module's own."""
        spec = module.__spec__
        if spec is not None and spec.name in self.specs:
            module.__spec__ = self.specs.pop(spec.name)[1]


class Announcing:
    """A loader of a module of ours that makes it one that tells."""

    def __init__(self, loader: Any, known: str) -> None:
        self.loader, self.known = loader, known

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        _finder.telling(module, self.known)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def torch_name(name: str) -> str | None:
    """What a program calls a module of ours, or None for one that it does not know."""
    parts = name.split(".")
    if parts[0] != "rushlight" or len(parts) < 2 or parts[1] not in PUBLIC:
        return None
    for torchs, ours in MOVED.items():
        if ours == name and torchs not in ALSO:
            return torchs
    return ".".join(("torch", *parts[1:]))


def candidates(name: str, exact: bool = False) -> list[str]:
    found = [name.replace("torch", "rushlight", 1)]
    for start, ours in MOVED.items():
        if name == start or (not exact and name.startswith(start + ".")):
            found.append(ours)
            break
    return found


class Telling(types.ModuleType):
    """A module of ours that the program knows as one of torch's."""

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__.get("__torch_name__", "torch")
        full = f"{known}.{name}"
        if name.startswith("__") and full not in standins.MODULES:
            raise AttributeError(f"module {known!r} has no attribute {name!r}")
        for ours in (standins.name(full), _finder.module(full, exact=True)):
            if ours is not None:
                return ours
        near = note(full, self)
        raise AttributeError(f"{full} is not in Rushlight{near_text(near)}")


def note(name: str, module: Any = None) -> tuple[str, ...]:
    """Keeps a name that is missing; gives what is near it."""
    if name not in missing:
        parent, _, last = name.rpartition(".")
        if module is None:
            module = sys.modules.get(parent)
        names = [n for n in dir(module) if n[0] != "_" and n != last] if module else []
        near = tuple(f"{parent}.{n}" for n in difflib.get_close_matches(last, names, 3))
        place = user_line()
        missing[name] = Missing(name, near, "" if place is None else str(place))
        for told in listeners:
            told()
    return missing[name].near


def near_text(near: Sequence[str]) -> str:
    return f"; near it: {', '.join(near)}" if near else ""


_finder = Finder()
