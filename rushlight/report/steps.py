"""How often a run took each documented step, and what is counted there.

Takes a `Run`; gives a number with its unit in words. Invariant: a step counts what passes along it,
which is not what happens in the stage that it leads to: two steps that end in one stage have two
numbers, which add up to the stage's.
"""

from __future__ import annotations

from collections.abc import Callable

from rushlight.report.stages import Run
from rushlight.report.words import count

Counted = tuple[int, str]  # how many, and of what


def step_count(run: Run, step: str, mode: str, reached: int) -> Counted:
    """(number, sentence). `reached`: the count of the stage that the step leads to, which stands
    where nothing else is counted."""
    known = None if run.describe else _COUNTED[mode].get(step)
    n, what = (0, "") if known is None else known(run)
    if not n:
        return reached, f"{count(reached, 'time')} in this run" if reached else ""
    return n, f"{count(n, what)} in this run"


def _ran_alone(run: Run) -> Counted:
    return sum(c.route in ("kernel", "library") for c in run.calls), "call"


def _ran_as_it_is(run: Run) -> Counted:
    inside = (c for c in run.calls.inside if c.kind != "fused")
    return sum(c.route in ("kernel", "library") for c in inside), "call"


def _ran_generated(run: Run) -> Counted:
    return sum(c.kind == "fused" for c in run.calls.inside), "kernel call"


def _steps(run: Run, generated: bool) -> int:
    graphs = (g for c in run.captures for g in c.graphs)
    return sum(s.generated == generated for g in graphs for s in g.steps)


_COUNTED: dict[str, dict[str, Callable[[Run], Counted]]] = {
    "eager": {
        "python_code-cpython": lambda run: (len(run.calls.roots) or 1, "call"),
        "cpython-aten": lambda run: (len(run.calls.roots), "call"),
        "aten-aten_cpu": _ran_alone,
        "aten-aten_cuda": _ran_alone,
        "aten_cpu-cpu": _ran_alone,
        "aten_cuda-nvidia_gpu": _ran_alone,
    },
    "compile": {
        "python_code-cpython": lambda run: (
            len(run.calls.of_functions) or 1, "call"
        ),
        "cpython-dynamo": lambda run: (len(run.captures), "capture"),
        "dynamo-fx_graph": lambda run: (sum(bool(c.nodes) for c in run.captures), "graph"),
        "fx_graph-inductor": lambda run: (
            sum(len(c.graphs) for c in run.captures), "graph"
        ),
        "inductor-cpp_openmp": lambda run: (_steps(run, True), "step"),
        "inductor-triton_kernels": lambda run: (_steps(run, True), "step"),
        "inductor-aten_cpu": lambda run: (_steps(run, False), "step"),
        "inductor-aten_cuda": lambda run: (_steps(run, False), "step"),
        "aten_cpu-cpu": _ran_as_it_is,
        "aten_cuda-nvidia_gpu": _ran_as_it_is,
        "cpp_openmp-cpu": _ran_generated,
        "gpu_machine_code-nvidia_gpu": _ran_generated,
    },
}  # fmt: skip
