"""The compiled forms of a captured graph: what a call of it runs.

`Inference` holds one native program, `Training` two and a node of the tape for each call. A form is
made from a functional graph (aot_autograd/functional.py) and knows how its inputs become the
graph's, and the graph's results the function's. Invariant: a call that no graph can follow runs in
eager mode, with a recorded reason.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight import _core, sym, trace  # type: ignore[attr-defined]
from rushlight.aot_autograd import differentiate
from rushlight.aot_autograd.functional import Functionalised, Given, Own, ViewOf
from rushlight.aot_autograd.pipeline import Pair, reached
from rushlight.decomposition import decompose, forget_gradients
from rushlight.eager import casting
from rushlight.errors import Unsupported
from rushlight.fx.graph import Graph
from rushlight.fx.interpreter import run, sizes_of
from rushlight.fx.pausing import paused_collector
from rushlight.inductor import recall
from rushlight.inductor.pipeline import CompiledGraph, compile_graph
from rushlight.inductor.wrapper import Ends
from rushlight.reasons import refuse
from rushlight.runtime.autograd import Recorded, Roles

if TYPE_CHECKING:
    from rushlight.compiled import Compiled

RELATIONS = {"==": operator.eq, "<": operator.lt, "<=": operator.le}
CASTING = casting.AUTOCAST | casting.HALF  # of the mode word (docs/native.md)


def timed(milliseconds: dict[str, float]) -> str:
    return "\n".join(f"{stage:16} {ms:9.2f} ms" for stage, ms in milliseconds.items())


def lower(
    graph: Graph, ends: Ends | None = None, frozen: bool = False, kept_as: str | None = None
) -> CompiledGraph:
    begun = time.perf_counter()
    smaller = decompose(forget_gradients(graph))
    took = 1e3 * (time.perf_counter() - begun)
    made = compile_graph(smaller, ends=ends, frozen=frozen, kept_as=kept_as)
    made.milliseconds = {"decompose": took, **made.milliseconds}
    return made


def lowered(graph: Graph, ends: Ends | None = None, frozen: bool = False) -> Any:
    """The graph compiled (a CompiledGraph), or its program found in the artifact cache
    (inductor/recall.py)."""
    name = recall.name_of(graph, ends, frozen)
    if name is not None:
        found = recall.find(name, graph.name, lambda: lower(graph, ends, frozen))
        if found is not None:
            return found
    return lower(graph, ends, frozen, name)


class Facts(NamedTuple):
    """What a form needs of its functional graph at each call."""

    name: str
    inputs: tuple[str, ...]  # their names
    numbers: tuple[str, ...]
    own: int
    written: tuple[int, ...]
    draws: Any
    outputs: Any
    captured: tuple = ()
    places: dict[str, tuple[int, int]] = {}  # where each symbol stands: (input, dim)

    @staticmethod
    def of(made: Functionalised) -> Facts:
        graph = made.graph
        return Facts(
            graph.name,
            tuple(v.name for v in graph.inputs),
            graph.numbers,
            made.own,
            made.written,
            made.draws,
            made.outputs,
            made.captured,
            symbols_of(graph),
        )


class Form:
    """What the two forms share: which arguments go to the graph, and its run-time numbers."""

    asked: tuple = ()  # comparisons of sizes that were asked when it was made, and their answers
    leaves: int | None = None  # mode bits that a call leaves behind, where it changes any

    def __init__(self, c: Compiled, facts: Facts, whole: Callable[[], Functionalised]) -> None:
        self.gm, self.milliseconds = c.gm, dict[str, float]()
        self.facts, self.whole = facts, whole
        self.captured, self.draws, self.places = facts.captured, facts.draws, facts.places
        self.takes = tuple(c.tensors) if len(c.tensors) != len(c.examples) else None
        self.varying = tuple(c.varying)
        self.plain = not (
            self.takes or self.captured or self.varying or facts.numbers or facts.written
        )

    @cached_property
    def made(self) -> Functionalised:
        """The functional graph; of a form that was found it is made here."""
        return self.whole()

    def tensors(self, inputs: tuple) -> tuple:
        if self.takes is not None:
            given = tuple(inputs[i] for i in self.takes)
        else:
            given = inputs
        return (*given, *self.captured) if self.captured else given

    def overlapping(self, tensors: tuple) -> bool:
        """Whether an input that the graph writes to shares memory with another one: no graph
        follows that."""
        if not self.facts.written:
            return False
        memory = [x.untyped_storage_ptr() for x in tensors]
        if len(set(memory)) == len(memory):
            return False
        shared = [i for i in self.facts.written if memory.count(memory[i]) > 1]
        if shared:
            names = ", ".join(self.facts.inputs[i] for i in shared)
            refuse(
                "fallback.aliasing",
                self.facts.name,
                f"{names} is written to and shares memory with another input",
                "This call runs in eager mode. Pass clones, or one tensor with its views.",
            )
        return bool(shared)

    def numbers(self, inputs: tuple, tensors: tuple) -> tuple:
        """The values of the graph's `numbers`: sizes that were arguments, then the random
        stream's seed and counter, of which this call takes its part."""
        found = tuple(inputs[i] for i in self.varying)
        if not self.facts.numbers[len(found) :]:
            return found
        from rushlight.eager.randomness import default_generator

        draws = self.draws
        if isinstance(draws, sym.Sym):
            draws = draws.evaluate(self.sizes(tensors, found))
        return (*found, *default_generator.reserve(draws))

    def sizes(self, tensors: tuple, numbers: tuple = ()) -> dict[str, int]:
        found = {name: tensors[i].shape[d] for name, (i, d) in self.places.items()}
        return found | dict(zip(self.facts.numbers, numbers))

    def fits(self, inputs: tuple) -> bool:
        """Whether the sizes of this call compare as those of the call that the form was made for:
        what the capture itself asked, its guards have seen to."""
        known = self.sizes(self.tensors(inputs), tuple(inputs[i] for i in self.varying))
        value = lambda v: v.evaluate(known) if isinstance(v, sym.Sym) else v
        for relation, a, b, answer in self.asked:
            if RELATIONS[relation](value(a), value(b)) is not answer:
                told = f"{a} {relation} {b} is not {answer}, as it was for the first call"
                hint = "This call runs in eager mode."
                refuse("fallback.sizes", self.facts.name, told, hint)
                return False
        return True

    def __call__(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def first_difference(self, inputs: tuple, state: tuple) -> Any:
        """Which node of the graph compiled code gets wrong."""
        from rushlight.inductor.checking import first_difference

        tensors = self.tensors(inputs)
        values = (*tensors, *(inputs[i] for i in self.varying))
        if len(self.facts.numbers) > len(self.varying):
            values = (*values, *state)
        with entry_mode(False):
            return first_difference(
                forget_gradients(self.made.graph),
                values,
                lambda part: compile_graph(decompose(part), single_kernels=True).program,
            )


class Inference(Form):
    """No gradients: one native program, with the writes and the views of its results."""

    def __init__(
        self, c: Compiled, facts: Facts, whole: Callable[[], Functionalised], compiled: Any
    ) -> None:
        super().__init__(c, facts, whole)
        self.compiled, self.program = compiled, compiled.program
        self.milliseconds |= compiled.milliseconds

    @staticmethod
    def of(c: Compiled, made: Functionalised) -> Inference:
        facts = Facts.of(made)
        return Inference(c, facts, lambda: made, lowered(made.graph, ends_of(facts), frozen=True))

    def __call__(self, *inputs: Any) -> Any:
        if self.plain:
            return self.program(*inputs)
        tensors = self.tensors(inputs)
        if self.overlapping(tensors):
            return self.gm(*inputs)
        return self.program(*tensors, *self.numbers(inputs, tensors))


def ends_of(facts: Facts) -> Ends:
    """What the program of a form without gradients does with its results."""
    return Ends(facts.own, facts.written, described_output(facts.outputs))


def derived(graph: Graph, wanted: tuple[int, ...], active: tuple[int, ...]) -> Pair:
    """The forward and backward graphs; `wanted` of the pair are the inputs that something
    reaches."""
    if not active:
        return Pair(graph, graph, 0, ())
    pair = differentiate(graph, wanted, active)
    got = [i for i, g in zip(wanted, pair.backward.result) if g is not None]
    return pair if len(got) == len(wanted) else differentiate(graph, tuple(got), active)


class Training(Form):
    """Gradients: a forward and a backward program, and a node of the tape for each call.
    `active`: the results that depend on a wanted input; `rebased`: see `Roles`; `backward`: where
    its program was found."""

    def __init__(
        self,
        c: Compiled,
        facts: Facts,
        whole: Callable[[], Functionalised],
        wanted: tuple[int, ...],
        active: tuple[int, ...],
        rebased: tuple[bool, ...],
        *,
        forward: Any = None,
        backward: Any = None,
    ) -> None:
        super().__init__(c, facts, whole)
        self.wanted, self.active, self.rebased = wanted, active, rebased
        self.lost: tuple[str, ...] = ()
        start = time.perf_counter()
        if forward is None:
            if active:
                self.wanted, self.lost = self.pair.wanted, self.pair.sizes
                self.milliseconds["differentiate"] = 1e3 * (time.perf_counter() - start)
            forward = lowered(self.pair.forward, Ends(facts.own, facts.written))
        self.forward, self.backward = forward, backward
        self.milliseconds |= forward.milliseconds

        def late() -> Callable:
            if self.backward is not None:
                return self.backward.program
            with trace.unit(c.unit), settled(), paused_collector():
                graph = self.pair.backward
                try:
                    made = self.backward = lowered(graph)
                except Unsupported as error:
                    told = "Its operators are called one by one."
                    refuse("fallback.graph", graph.name, str(error), told)
                    return partial(run, forget_gradients(graph))
                finally:
                    trace.doing("")
                trace.emit(
                    "inductor",
                    f"{c.name} backward",
                    lambda: timed(made.milliseconds),
                    why="its first backward",
                    stages=dict(made.milliseconds),
                )
            return made.program

        def again() -> Callable:
            return gradients_of(self.pair, self.made.graph)

        roles = Roles(
            facts.own,
            facts.written,
            rebased,
            active,
            self.wanted,
            lambda: dependents(self.made.graph, self.wanted, active),
        )
        self.recorded = Recorded(facts.name, self.forward.program, late, again, roles)

    @staticmethod
    def of(
        c: Compiled, made: Functionalised, wanted: tuple[int, ...], active: tuple[int, ...]
    ) -> Training:
        # an input written to beside the tape keeps its place there, and gets no cotangent
        active = tuple(i for i in active if i < made.own or made.on_tape[i - made.own])
        rebased = tuple(
            on_tape and made.own + k in active for k, on_tape in enumerate(made.on_tape)
        )
        return Training(c, Facts.of(made), lambda: made, wanted, active, rebased)

    @cached_property
    def pair(self) -> Pair:
        return derived(self.made.graph, self.wanted, self.active)

    def __call__(self, *inputs: Any) -> Any:
        tensors = self.tensors(inputs)
        if self.overlapping(tensors):
            return self.gm(*inputs)
        numbers = self.numbers(inputs, tensors)
        sizes: tuple = ()
        if self.lost:
            known = self.sizes(tensors, numbers)
            sizes = tuple(known[name] for name in self.lost)
        own = self.recorded(tensors, numbers, sizes)
        return self.placed(self.facts.outputs, own, tensors, numbers)

    def placed(self, o: Any, own: list, tensors: tuple, numbers: tuple) -> Any:
        match o:
            case Own(k):
                return own[k]
            case Given(i):
                return tensors[i]
            case ViewOf(base, views):
                x = self.placed(base, own, tensors, numbers)
                for op, rest in views:
                    x = (
                        x.detach()
                        if op.name == "detach"
                        else op.native(x, *self.known(rest, tensors, numbers))
                    )
                return x
            case tuple():
                return tuple(self.placed(x, own, tensors, numbers) for x in o)
            case sym.Sym():
                return o.evaluate(self.sizes(tensors, numbers))
        return o

    def known(self, rest: tuple, tensors: tuple, numbers: tuple) -> tuple:
        def value(v: Any) -> Any:
            if isinstance(v, sym.Sym):
                return v.evaluate(self.sizes(tensors, numbers))
            return tuple(map(value, v)) if isinstance(v, tuple) else v

        return tuple(map(value, rest))


def gradients_of(pair: Pair, graph: Graph) -> Callable:
    """(*inputs, *cotangents, *numbers) -> gradients, compiled and itself differentiable: forward
    again, and backward on what it saves."""
    from rushlight.compiled import Compiled

    count = len(graph.inputs)
    seeds = pair.backward.inputs[len(pair.backward.inputs) - len(pair.active) :]
    ends = count + len(seeds)

    def gradients(*given: Any) -> Any:
        inputs, cotangents, numbers = given[:count], given[count:ends], given[ends:]
        saved = run(pair.forward, *inputs, *numbers)[pair.outputs :]
        known = sizes_of(graph, (*inputs, *numbers))
        sizes = [known[name] if known else number_of(graph.env, name) for name in pair.sizes]
        return tuple(run(pair.backward, *saved, *cotangents, *numbers, *sizes))

    gradients.__name__ = f"{graph.name}_gradients"
    numbers = [number_of(graph.env, name) for name in graph.numbers]
    return Compiled(gradients, [v.layout for v in (*graph.inputs, *seeds)] + numbers)


def dependents(
    graph: Graph, wanted: tuple[int, ...], active: tuple[int, ...]
) -> tuple[frozenset[int], ...]:
    """For each wanted input the places among the active outputs that depend on it."""
    found = []
    for i in wanted:
        outs = set(reached(graph, [i]))
        found.append(frozenset(k for k, at in enumerate(active) if at in outs))
    return tuple(found)


def number_of(env: sym.ShapeEnv, name: str) -> sym.Sym:
    if isinstance(env.hints.get(name), float):
        return sym.Float(env, name)
    return sym.Sym(env, {(name,): 1})


@contextmanager
def settled():
    """Without autocast: what it casts is part of the graph."""
    before = _core.mode()
    _core.set_mode(before & ~CASTING)
    try:
        yield
    finally:
        _core.set_mode(before)


@contextmanager
def entry_mode(grad: bool):
    before = _core.mode()
    _core.set_grad_enabled(grad)
    try:
        yield
    finally:
        _core.set_mode(before)


def described_output(o: Any) -> Any:
    match o:
        case Own(k):
            return ("own", k)
        case Given(i):
            return ("given", i)
        case ViewOf(base, views):
            return ("view", described_output(base), views)
        case tuple():
            return ("tuple", tuple(map(described_output, o)))
    return ("value", o)


def symbols_of(graph: Graph) -> dict[str, tuple[int, int]]:
    """Where each symbol stands as a size of an input: (input, dim)."""
    found: dict[str, tuple[int, int]] = {}
    for i, v in enumerate(graph.inputs):
        for d, n in enumerate(v.shape):
            if isinstance(n, sym.Sym) and n.terms == {(str(n),): 1}:
                found.setdefault(str(n), (i, d))
    return found


__all__ = ["CASTING", "Form", "Inference", "Training", "settled", "timed"]
