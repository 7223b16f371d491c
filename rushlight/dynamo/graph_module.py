"""A captured graph as a module: what a backend is given."""

from __future__ import annotations

from typing import Any

from rushlight.fx.captured import CallGraph
from rushlight.nn.module import Module


class GraphModule(Module):
    """`forward` runs the graph's nodes in order; `graph` and `code` show it."""

    def __init__(self, graph: CallGraph) -> None:
        super().__init__()
        self.graph = graph
        self.function = graph.compile(bound=False)

    @property
    def code(self) -> str:
        return self.graph.print()

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)

    def print_readable(self) -> str:
        print(self.code)
        return self.code
