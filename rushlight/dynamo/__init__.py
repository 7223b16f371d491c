"""Bytecode -> graphs, guards, graph breaks and replacement bytecode: the first half of
`rushlight.compile`."""

from .backends import BACKENDS, register_backend
from .breaks import BackendError, GraphBreakError
from .entry import (
    OptimizedModule,
    allow_in_graph,
    compile,
    disable,
    graph_break,
    is_compiling,
    reset,
)
from .explanation import explain
from .graph_module import GraphModule
from .wrapping import mark_dynamic
