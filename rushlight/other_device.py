"""The GPU's path of a program that runs on a CPU: each graph is lowered for an NVIDIA GPU as well,
and its kernels are compiled by Triton, as far as machine code. Nothing of it runs, and no GPU need
be there.

Takes graphs as the lowering gets them (`passes.changed(also=...)`); gives trace records of stages.
Invariant: the program's own compilation is what it would be without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import trace
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx import passes
from rushlight.fx.graph import Graph, Node, Var, map_variables
from rushlight.inductor import device_code, moving, scheduler
from rushlight.inductor.groups import Group
from rushlight.inductor.lowering import hoist_indices, lower_group
from rushlight.ops.layouts import Layout
from rushlight.reasons import refuse

ARCHITECTURE = 90  # of what is compiled: compute capability 9.0
DEVICE = "cuda:0"


@contextmanager
def compiled_for_gpu(architecture: int = ARCHITECTURE) -> Iterator[None]:
    """Graphs that are lowered inside are compiled for a GPU, too, under the same labels."""

    def also(graph: Graph, label: str) -> None:
        with trace.about(graph=label):
            compile_kernels(graph, architecture)

    now = passes.settings
    with passes.changed(now.disabled, now.limit, now.verify, now.instead, also) as inside:
        inside.ran = now.ran  # one count for the limit
        yield


def compile_kernels(graph: Graph, architecture: int) -> None:
    """Every group's kernel. What cannot be compiled is a reason."""
    try:
        graph = moved(graph)
        for one in moving.PASSES:
            graph = one(graph)
        plan = scheduler.schedule(graph)
        groups = []
        for step in plan.steps:
            if isinstance(step, Group):
                hoist_indices(plan, step)
                groups.append((step, lower_group(plan, step, True)))
        device_code.build_groups(groups, architecture)
    except (Unsupported, CompilerBug, NotImplementedError, TypeError, ValueError) as error:
        refuse("fallback.graph", f"{graph.name} on a GPU", str(error), "Its code is not shown.")


def moved(graph: Graph) -> Graph:
    """The graph with every variable on the GPU."""
    made: dict[Var, Var] = {}

    def elsewhere(v: Var) -> Var:
        if v not in made:
            old = v.layout
            layout = Layout(old.shape, old.strides, old.dtype, old.offset, DEVICE)
            made[v] = Var(v.name, layout)
        return made[v]

    def placed(argument: Any) -> Any:
        return DEVICE if isinstance(argument, str) and argument == "cpu" else argument

    nodes = [
        Node(
            n.kind,
            n.target,
            tuple(map(placed, map_variables(n.arguments, elsewhere))),
            tuple(map(elsewhere, n.outs)),
            n.origins,
        )
        for n in graph.nodes
    ]
    return graph.with_nodes(nodes)
