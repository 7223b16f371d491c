"""One call of one captured graph -> the stage that makes its answer wrong.

The captured graph as it stands is right by definition: it is what eager mode runs. Against it stand
the same call with stages replaced by the one before, and the first that differs is named:

    functionalise, derivatives      AOT's graphs, interpreted
    a pass of the decomposition     graphs after it, interpreted
    write_wrapper                   lowered, every operator called as it is
    code_generation                 a kernel each operator
    fusion, then each of SWITCHES   one more step of the lowering switched on
    call                            each graph is right, but not what stands around them

Invariant: inputs, random numbers and modes are afterwards as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rushlight.aot_autograd import differentiate
from rushlight.compiled import Compiled
from rushlight.decomposition import decompose
from rushlight.eager.randomness import default_generator
from rushlight.forms import Form
from rushlight.fx import passes
from rushlight.fx.graph import Graph
from rushlight.fx.interpreter import run, sizes_of
from rushlight.inductor.pipeline import SWITCHES, compile_graph

from .values import Interpreted, Outcome, differences, outcome

STAGES = {
    "capture": "capture (dynamo)",
    "functionalise": "AOT: the functional graph",
    "derivatives": "AOT: forward and backward graphs",
    "decomposition": "decomposition",
    "write_wrapper": "the wrapper that calls operators",
    "code_generation": "code generation",
    "fusion": "fusion",
    "find_parts": "values computed where they will lie",
    "place_results": "results in memory that is there",
    "plan_memory": "the memory plan",
    "take_along": "library calls that take along what follows",
    "call": "the call around the graphs",
    "guards": "guards and what is kept between calls",
}


@dataclass
class Finding:
    """`stage`: one of STAGES, or "pass". `step`: the pass or switch that shows it. `expected` and
    `got` are sentences. `graph`, `values`: what the step is given, where it is a graph."""

    stage: str
    step: str
    what: str
    graph: Any = None
    values: tuple = ()
    ends: Any = None
    frozen: bool = False
    limit: int = 0  # passes before the one that is named
    node: str = ""  # the first operator that is wrong
    function: str = ""
    call: int = 0

    @property
    def title(self) -> str:
        named = STAGES.get(self.stage, f"the pass {self.step}")
        return f"{named}, pass {self.step}" if self.stage == "decomposition" else named


Say = Callable[[str], None]


def quiet(step: str) -> None:
    """Nobody asks what is being done."""


def examine(
    gm: Callable,
    examples: Sequence[Any],
    inputs: tuple,
    say: Say = quiet,
    careful: bool = False,
) -> Finding | None:
    """None where compiled code gives what the captured graph gives. `say` is told each step before
    it runs; `careful`: the earliest stages run first, so that a crash names its stage."""
    position = default_generator.position()
    ask = partial(outcome, inputs=inputs, position=position)
    want = ask(gm)
    exact = partial(ask, gm, wide=True)

    def differs(f: Callable) -> str | None:
        return differences(ask(f), want, exact)

    if not careful:
        say("code_generation")
        whole = differs(Compiled(gm, examples))
        if whole is None:
            return None
    say("functionalise")
    seen: list[tuple[Interpreted, tuple]] = []
    form = Compiled(gm, examples)
    with passes.changed(limit=0, verify=False, instead=partial(Interpreted, seen=seen)):
        found = differs(form)
    if found is not None:
        return of_aot(found, form, gm, inputs, ask, want)
    for unit, values in seen:
        inside = of_graph(unit, values, say)
        if inside is not None:
            return inside
    say("call")
    found = differs(Compiled(gm, examples))
    return None if found is None else Finding("call", "", found, gm, inputs)


def of_aot(
    found: str, form: Compiled, gm: Callable, inputs: tuple, ask: Callable, want: Outcome
) -> Finding:
    """Whether the functional graph is wrong already, or only what is derived from it."""
    made = next((f for f in form.forms.values() if isinstance(f, Form)), None)
    if made is not None and want.gradients:
        graph = made.made.graph
        plain = made.tensors(inputs)
        numbers = tuple(inputs[i] for i in made.varying)
        if len(graph.numbers) == len(numbers) and not made.made.written:
            call = lambda *values: run(graph, *values)
            eager = outcome(call, (*plain, *numbers), default_generator.position())
            backward = outcome(lambda *values: Derived(graph)(*values), (*plain, *numbers), (0, 0))
            if eager.error is None and differences(backward, eager) is not None:
                return Finding("derivatives", "differentiate", found, graph, (*plain, *numbers))
    return Finding("functionalise", "functionalise", found, gm, inputs)


class Derived:
    """A functional graph with the gradients of its forward and backward graphs, interpreted."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, *values: Any) -> Any:
        from rushlight.autograd import Function

        graph, count = self.graph, len(self.graph.inputs)
        wanted = [i for i, x in enumerate(values[:count]) if x.requires_grad]
        pair = differentiate(graph, wanted)
        kept: list[Any] = []

        class Once(Function):
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                made = run(pair.forward, *given)
                kept[:] = made[pair.outputs :]
                return tuple(made[: pair.outputs])

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                cotangents = [grads[i] for i in pair.active]
                known = sizes_of(graph, values)
                sizes = [known[name] for name in pair.sizes]
                found = run(pair.backward, *kept, *cotangents, *values[count:], *sizes)
                given: list[Any] = [None] * len(values)
                for i, g in zip(pair.wanted, found):
                    given[i] = g
                return tuple(given)

        return Once.apply(*values)


# ---- graphs of operators


def build(graph: Graph, ends: Any, frozen: bool, step: str) -> Callable:
    """The graph with the stages up to `step` and none behind it."""
    if step == "decomposition":
        return Interpreted(decompose(graph), ends, frozen).program
    order = ("write_wrapper", *SWITCHES)
    off = order[order.index(step) + 1 :]
    alone = step == "code_generation"
    with passes.changed(disabled=off, verify=False):
        return compile_graph(
            decompose(graph), ends=ends, frozen=frozen and not off, single_kernels=alone
        ).program


def result_of(make: Callable[[], Callable], values: tuple) -> Outcome:
    try:
        program = make()
    except Exception as error:
        return Outcome(error=error)
    return outcome(lambda *given: without_grad(program, given), values, (0, 0))


def without_grad(program: Callable, values: tuple) -> Any:
    from rushlight.runtime import native

    return native.without_grad(program, values)


def of_graph(unit: Interpreted, values: tuple, say: Say) -> Finding | None:
    graph, ends, frozen = unit.graph, unit.ends, unit.frozen
    want = result_of(lambda: Interpreted(graph, ends, frozen).program, values)
    exact = partial(exactly, graph, values) if ends is None or ends.outputs is None else None

    def differs(step: str) -> str | None:
        got = result_of(lambda: build(graph, ends, frozen, step), values)
        return differences(got, want, exact)

    say("decomposition")
    found = differs("decomposition")
    if found is not None:
        return named_pass(found, unit, values, differs)
    for step in ("write_wrapper", *SWITCHES):
        say(step)
        found = differs(step)
        if found is not None:
            stage = step if step in STAGES else "pass"
            return Finding(stage, step, found, graph, values, ends, frozen)
    return None


def named_pass(
    found: str, unit: Interpreted, values: tuple, differs: Callable[[str], str | None]
) -> Finding:
    made = Finding("decomposition", "", found, unit.graph, values, unit.ends, unit.frozen)
    with passes.changed(verify=False) as now:
        build(unit.graph, unit.ends, unit.frozen, "decomposition")
        names = list(now.ran)
    low, high = 0, len(names)
    while high - low > 1:
        middle = (low + high) // 2
        with passes.changed(limit=middle, verify=False):
            low, high = (low, middle) if differs("decomposition") else (middle, high)
    return replace(made, step=names[high - 1] if names else "", limit=high - 1)


def exactly(graph: Graph, values: tuple) -> Outcome:
    return outcome(lambda *given: run(graph, *given), values, (0, 0), wide=True)
