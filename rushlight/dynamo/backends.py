"""Backends: callables that take a captured graph module and example inputs, and give a callable of
the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph_module import GraphModule


def eager(module: GraphModule, examples: tuple) -> Callable:
    """The graph as it stands, one operator after another."""
    return module.function


BACKENDS: dict[str, Callable] = {"eager": eager}


def register_backend(name: str, backend: Callable) -> None:
    BACKENDS[name] = backend


def resolve(backend: Any) -> Callable:
    """A backend by name, or itself. ValueError for an unknown name."""
    if callable(backend):
        return backend
    found = BACKENDS.get(backend)
    if found is None:
        known = ", ".join(sorted(BACKENDS))
        raise ValueError(f"[compile] there is no backend {backend!r}; known are {known}")
    return found
