"""A captured graph as a module: what a backend is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from rushlight.fx.captured import CallGraph
from rushlight.nn.module import Module


class GraphModule(Module):
    """`forward` runs the graph's nodes in order; `graph` and `code` show it."""

    def __init__(self, graph: CallGraph) -> None:
        super().__init__()
        self.graph = graph

    @cached_property
    def function(self) -> Callable:
        """The graph as a Python function; a backend that compiles the graph never asks for it."""
        return self.graph.compile(bound=False)

    @property
    def code(self) -> str:
        return self.graph.print()

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)

    def print_readable(self) -> str:
        print(self.code)
        return self.code
