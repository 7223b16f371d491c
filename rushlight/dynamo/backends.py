"""Backends: callables that take a captured graph module and example inputs, and give a callable of
the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import _core
from rushlight.errors import CompilerBug

from .breaks import BackendError
from .graph_module import GraphModule


def eager(module: GraphModule, examples: tuple) -> Callable:
    """The graph as it stands, one operator after another."""
    return module.function


BACKENDS: dict[str, Callable] = {"eager": eager}


def register_backend(name: str, backend: Callable) -> None:
    BACKENDS[name] = backend


def build(backend: Any, module: GraphModule, examples: tuple) -> Callable:
    """What a backend makes of a graph. BackendError where it raises, or gives what cannot be
    called; what it gives is held to the graph's results at every call, unless it is ours."""
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
    try:
        made = resolve(backend)(module, examples)
    except (CompilerBug, RecursionError, BackendError):
        raise
    except Exception as error:
        told = f"[compile] the backend {name} raised {type(error).__name__}: {error}"
        raise BackendError(told) from error
    if not callable(made):
        raise BackendError(
            f"[compile] the backend {name} gave {type(made).__name__}, not a callable"
        )
    if backend == "eager" or getattr(made, "trusted", False):
        return made
    return Checked(name, made, module.graph.nodes[-1].args[0])


class Checked:
    """A foreign backend's function, its results compared with what the graph says of them."""

    def __init__(self, name: str, made: Callable, results: tuple) -> None:
        self.name, self.made = name, made
        self.layouts = [getattr(r, "meta", {}).get("layout") for r in results]

    def __call__(self, *inputs: Any) -> Any:
        outs = self.made(*inputs)
        if not isinstance(outs, (tuple, list)) or len(outs) != len(self.layouts):
            what = type(outs).__name__
            what += f" of {len(outs)}" if isinstance(outs, (tuple, list)) else ""
            raise self.wrong(f"{what}, not a tuple of {len(self.layouts)}")
        for i, (out, layout) in enumerate(zip(outs, self.layouts)):
            if layout is None:
                continue
            if not isinstance(out, _core.Tensor):
                raise self.wrong(f"{type(out).__name__} as result {i}, not a Tensor")
            sizes = zip(out.shape, layout.shape) if out.dim() == layout.rank else [(0, 1)]
            fits = all(type(n) is not int or m == n for m, n in sizes)
            if out.dtype.name != layout.dtype or not fits:
                seen = f"{out.dtype.name}{list(out.shape)}"
                raise self.wrong(f"{seen} as result {i}, not {layout}")
        return outs

    def wrong(self, what: str) -> BackendError:
        return BackendError(f"[compile] a graph of the backend {self.name} returned {what}")


def resolve(backend: Any) -> Callable:
    """A backend by name, or itself. ValueError for an unknown name."""
    if callable(backend):
        return backend
    found = BACKENDS.get(backend)
    if found is None:
        known = ", ".join(sorted(BACKENDS))
        raise ValueError(f"[compile] there is no backend {backend!r}; known are {known}")
    return found
