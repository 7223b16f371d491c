"""A captured graph with its compiled forms: what stands behind the backend "inductor".

Takes a captured graph and example inputs (`pipeline.compile_fx`); a call is given to the form made
for its kind of inputs: which of them require a gradient, and the numbers that are constants. A form
holds one native program (`Inference`), or two and a node of the tape (`Training`).
Invariant: what no graph can follow runs in eager mode, with a recorded reason.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight import _core, fx, sym, trace  # type: ignore[attr-defined]
from rushlight.aot_autograd import differentiate
from rushlight.aot_autograd.functional import Functionalised, Given, Own, ViewOf, functionalise
from rushlight.aot_autograd.pipeline import reached
from rushlight.decomposition import decompose, forget_gradients
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx.graph import Graph
from rushlight.fx.passes import record
from rushlight.fx.tracing import environment, layout_of
from rushlight.inductor.pipeline import CompiledGraph, compile_graph
from rushlight.inductor.wrapper import Ends
from rushlight.nn.recurrent import recurrent_layer
from rushlight.ops.layouts import Layout
from rushlight.ops.values import Value
from rushlight.reasons import refuse
from rushlight.runtime.autograd import Recorded, Roles
from rushlight.runtime.toolchain import NoCompiler

SLOW = 1.0  # seconds of compiling after which a terminal is told
FORMS = 16  # of one graph: for sets of inputs that require a gradient, and for constants
DISPATCH = 1 << 3  # of the mode word: every call of an operator goes to the recorder


class Compiled:
    """A captured graph with its compiled forms. `forms` has one for each mask of inputs that
    require a gradient."""

    def __init__(self, gm: Callable, example_inputs: Sequence[Any], check: int = 0) -> None:
        self.check = check  # calls that are still to be compared with eager mode
        self.gm, self.name = gm, str(getattr(gm, "__name__", None) or "graph")
        self.examples = [described(x) for x in example_inputs]
        self.names = [f"n{i}" for i in range(len(self.examples))]
        self.given: list[str] | None = None  # names of the inputs, where the graph has any
        self.recurrent = False  # whether a layer of an LSTM, GRU or RNN is one of its nodes
        graph = getattr(gm, "graph", None)
        if graph is not None and hasattr(graph, "placeholders"):
            self.name = graph.name
            for i, node in enumerate(graph.placeholders):
                self.examples[i] = node.meta.get("layout", self.examples[i])
                self.names[i] = node.name
            self.given = list(self.names)
            self.recurrent = any(n.target is recurrent_layer for n in graph.calls)
        self.tensors = [i for i, x in enumerate(self.examples) if isinstance(x, Layout)]
        # Whole numbers without an example vary from call to call; other numbers are constants, and
        # each value has a form of its own.
        self.varying = [i for i, x in enumerate(self.examples) if isinstance(x, sym.Sym)]
        self.constants = [
            i for i, x in enumerate(self.examples) if not isinstance(x, (Layout, sym.Sym))
        ]
        self.forms: dict[Any, Callable] = {}
        self.unit = trace.current_unit() or trace.numbered(self.name)  # the capture it is part of

    def __call__(self, *inputs: Any) -> Any:
        key: Any = 0
        if _core.is_grad_enabled():
            for i in self.tensors:
                if inputs[i].requires_grad:
                    key |= 1 << i
        mask = key
        if self.constants:
            key = (mask, *((type(inputs[i]), inputs[i]) for i in self.constants))
        form = self.forms.get(key)
        if form is None:
            if self.constants:
                self.vary(inputs)
                key = (mask, *((type(inputs[i]), inputs[i]) for i in self.constants))
            with trace.unit(self.unit):
                form = self.forms[key] = self.make(mask, inputs)
        if self.check > 0 and isinstance(form, Form):
            self.check -= 1
            return self.checked(form, inputs)
        return form(*inputs)

    def checked(self, form: Form, inputs: tuple) -> Any:
        """A call beside eager mode on copies of the inputs."""
        from rushlight.eager.randomness import default_generator
        from rushlight.inductor.checking import compare

        before = tuple(duplicate(x) for x in inputs)
        theirs = tuple(duplicate(x) for x in inputs)
        state = default_generator.position()
        got = form(*inputs)
        after = default_generator.position()
        default_generator.move_to(state)
        want = self.gm(*theirs)
        default_generator.move_to(after)
        pairs = list(zip(flat_tensors((got, inputs)), flat_tensors((want, theirs))))
        for i, (x, y) in enumerate(pairs):
            found = compare(f"result {i}", x, y)
            if found is not None:
                first = form.first_difference(before, state)
                raise CompilerBug(
                    "compile",
                    f"check: {found}. First: {first or 'no single node shows it'}",
                    str(form.made.graph),
                )
        return got

    def vary(self, inputs: tuple) -> None:
        """Whole numbers without an example become symbols."""
        env = environment([x for x in self.examples if isinstance(x, Layout)])
        for i in [i for i in self.constants if self.examples[i] is None]:
            if type(inputs[i]) is int:
                env.hints.setdefault(self.names[i], inputs[i])
                self.examples[i] = sym.Sym(env, {(self.names[i],): 1})
                self.constants.remove(i)
                self.varying.append(i)

    def make(self, mask: int, inputs: tuple) -> Callable:
        start = time.perf_counter()
        why = "its first call" if not self.forms else "inputs that require other gradients"
        slow = threading.Timer(SLOW, say, (f"compiling {self.name} ({why})",))
        slow.daemon = True
        slow.start()
        collecting = gc.isenabled()
        gc.disable()  # graphs are many small objects, all alive: looking through them is in vain
        try:
            if self.recurrent:
                raise Unsupported(
                    "compile",
                    "a recurrent layer's own kernels are faster than its steps one by one",
                )
            if len(self.forms) > FORMS:
                raise Unsupported("compile", f"more than {FORMS} sets of numbers were given")
            form = self.form(mask, inputs)
        except Unsupported as error:
            refuse("fallback.graph", self.name, str(error), "The graph runs in eager mode.")
            if isinstance(error, NoCompiler):
                warn_once(str(error))
            return self.gm
        finally:
            slow.cancel()
            if collecting:
                gc.enable()
        took = time.perf_counter() - start
        form.milliseconds["all"] = 1e3 * took
        trace.emit(
            "inductor",
            self.name,
            lambda: timed(form.milliseconds),
            why=why,
            ms=round(1e3 * took, 1),
            stages=dict(form.milliseconds),
        )
        if took > SLOW:
            say(f"compiled {self.name} in {took:.1f} s")
        return form

    def form(self, mask: int, inputs: tuple) -> Form:
        examples = list(self.examples)
        for i in self.constants:
            examples[i] = inputs[i]
        begun, learning = time.perf_counter(), mask != 0
        wanted = [k for k, i in enumerate(self.tensors) if mask >> i & 1]
        with recording():
            made = functionalise(
                self.gm,
                examples,
                name=self.name,
                names=self.given,
                grad_enabled=_core.is_grad_enabled if learning else lambda: True,
                wanted=wanted,
                instead=WHILE_RECORDED,
            )
        record(made.graph, "fx_graph", "functional")
        count = len(self.tensors)
        if _core.is_grad_enabled():
            wanted += [count + k for k, t in enumerate(made.captured) if t.requires_grad]
        active = reached(made.graph, wanted) if wanted else ()
        active = tuple(i for i in active if i >= made.own or i in made.shown)
        took = 1e3 * (time.perf_counter() - begun)
        form: Form = (
            Training(self, made, tuple(wanted), active) if wanted else Inference(self, made)
        )
        form.milliseconds = {"functionalise": took, **form.milliseconds}
        return form


def say(text: str) -> None:
    """A line for who waits at a terminal."""
    if sys.stderr.isatty():
        print(f"rushlight: {text}", file=sys.stderr, flush=True)


def timed(milliseconds: dict[str, float]) -> str:
    return "\n".join(f"{stage:16} {ms:9.2f} ms" for stage, ms in milliseconds.items())


def warn_once(text: str) -> None:
    """For what makes all compiling impossible on this machine."""
    if text not in WARNED:
        WARNED.add(text)
        warnings.warn(f"{text} Graphs run in eager mode.", RuntimeWarning, stacklevel=2)


WARNED: set[str] = set()


def made_anew(tracer: Any, data: Any, dtype: Any = None) -> Any:
    return tracer.copy_of(_core.tensor(data, dtype))


def emptied(tracer: Any, shape: Any, dtype: Any = None, device: Any = None) -> Any:
    return fx.tracing.TABLE["full"](tuple(shape), 0, dtype=(dtype or _core.float32).name)


WHILE_RECORDED: dict[Any, Callable] = {  # functions of the bindings that a captured graph may call
    _core.tensor: made_anew,
    _core.empty: emptied,
    _core.set_mode: lambda tracer, word: _core.set_mode(word | DISPATCH),
}


class Form:
    """What the two forms share: which arguments go to the graph, and its run-time numbers."""

    def __init__(self, c: Compiled, made: Functionalised) -> None:
        self.gm, self.milliseconds = c.gm, dict[str, float]()
        self.made, self.captured, self.draws = made, made.captured, made.draws
        self.takes = tuple(c.tensors) if len(c.tensors) != len(c.examples) else None
        self.varying = tuple(c.varying)
        self.plain = not (
            self.takes or self.captured or self.varying or made.graph.numbers or made.written
        )
        self.places = symbols_of(made.graph)

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.milliseconds[stage] = 1e3 * (time.perf_counter() - start)

    def tensors(self, inputs: tuple) -> tuple:
        if self.takes is not None:
            given = tuple(inputs[i] for i in self.takes)
        else:
            given = inputs
        return (*given, *self.captured) if self.captured else given

    def overlapping(self, tensors: tuple) -> bool:
        """Whether an input that the graph writes to shares memory with another one: no graph
        follows that."""
        if not self.made.written:
            return False
        memory = [x.untyped_storage_ptr() for x in tensors]
        if len(set(memory)) == len(memory):
            return False
        shared = [i for i in self.made.written if memory.count(memory[i]) > 1]
        if shared:
            names = ", ".join(self.made.graph.inputs[i].name for i in shared)
            refuse(
                "fallback.aliasing",
                self.made.graph.name,
                f"{names} is written to and shares memory with another input",
                "This call runs in eager mode. Pass clones, or one tensor with its views.",
            )
        return bool(shared)

    def numbers(self, inputs: tuple, tensors: tuple) -> tuple:
        """The values of the graph's `numbers`: sizes that were arguments, then the random
        stream's seed and counter, of which this call takes its part."""
        found = tuple(inputs[i] for i in self.varying)
        if not self.made.graph.numbers[len(found) :]:
            return found
        from rushlight.eager.randomness import default_generator

        draws = self.draws
        if isinstance(draws, sym.Sym):
            draws = draws.evaluate(self.sizes(tensors, found))
        return (*found, *default_generator.reserve(draws))

    def sizes(self, tensors: tuple, numbers: tuple = ()) -> dict[str, int]:
        found = {name: tensors[i].shape[d] for name, (i, d) in self.places.items()}
        return found | dict(zip(self.made.graph.numbers, numbers))

    def __call__(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def first_difference(self, inputs: tuple, state: tuple) -> Any:
        """Which node of the graph compiled code gets wrong."""
        from rushlight.inductor.checking import first_difference

        tensors = self.tensors(inputs)
        values = (*tensors, *(inputs[i] for i in self.varying))
        if len(self.made.graph.numbers) > len(self.varying):
            values = (*values, *state)
        with entry_mode(False):
            return first_difference(
                forget_gradients(self.made.graph),
                values,
                lambda part: compile_graph(decompose(part), single_kernels=True).program,
            )


class Inference(Form):
    """No gradients: one native program, with the writes and the views of its results."""

    def __init__(self, c: Compiled, made: Functionalised) -> None:
        super().__init__(c, made)
        ends = Ends(made.own, made.written, described_output(made.outputs))
        with self.timing("decompose"):
            graph = decompose(forget_gradients(made.graph))
        self.compiled = compile_graph(graph, ends=ends)
        self.program = self.compiled.program
        self.milliseconds |= self.compiled.milliseconds

    def __call__(self, *inputs: Any) -> Any:
        if self.plain:
            return self.program(*inputs)
        tensors = self.tensors(inputs)
        if self.overlapping(tensors):
            return self.gm(*inputs)
        return self.program(*tensors, *self.numbers(inputs, tensors))


class Training(Form):
    """Gradients: a forward and a backward program, and a node of the tape for each call."""

    def __init__(
        self, c: Compiled, made: Functionalised, wanted: tuple[int, ...], active: tuple[int, ...]
    ) -> None:
        super().__init__(c, made)
        forward = graph = made.graph
        if active:
            with self.timing("differentiate"):
                pair = differentiate(graph, wanted, active)
                got = [i for i, g in zip(wanted, pair.backward.result) if g is not None]
                if len(got) < len(wanted):  # nothing reaches the others
                    wanted = tuple(got)
                    pair = differentiate(graph, wanted, active)
            forward, self.late = pair.forward, pair.backward
        with self.timing("decompose"):
            forward = decompose(forget_gradients(forward))
        self.forward = compile_graph(forward, ends=Ends(made.own, made.written))
        self.milliseconds |= self.forward.milliseconds
        self.backward: CompiledGraph | None = None

        def backward() -> Callable:
            with trace.unit(c.unit):
                made = self.backward = compile_graph(decompose(forget_gradients(self.late)))
                trace.emit(
                    "inductor",
                    f"{c.name} backward",
                    lambda: timed(made.milliseconds),
                    why="its first backward",
                    stages=dict(made.milliseconds),
                )
            return made.program

        rebased = tuple(
            on_tape and made.own + k in active for k, on_tape in enumerate(made.on_tape)
        )
        roles = Roles(
            made.own,
            made.written,
            rebased,
            tuple(i for i in active if i < made.own or rebased[i - made.own]),
            wanted,
        )
        self.recorded = Recorded(made.graph.name, self.forward.program, backward, graph, roles)
        self.ends = described_output(made.outputs)

    def __call__(self, *inputs: Any) -> Any:
        tensors = self.tensors(inputs)
        if self.overlapping(tensors):
            return self.gm(*inputs)
        numbers = self.numbers(inputs, tensors)
        own = self.recorded(tensors, numbers)
        return self.placed(self.made.outputs, own, tensors, numbers)

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


def duplicate(x: Any) -> Any:
    """A copy of a tensor with its strides and its place before the tape; numbers as they are."""
    if not hasattr(x, "data_ptr"):
        return x
    order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
    back = sorted(range(x.dim()), key=order.__getitem__)
    copy = x.detach().permute(tuple(order)).clone().permute(tuple(back))
    if not x.requires_grad:
        return copy
    copy.requires_grad_()
    return copy if x.is_leaf else copy * 1


def flat_tensors(v: Any) -> list:
    if isinstance(v, (tuple, list)):
        return [x for y in v for x in flat_tensors(y)]
    return [v] if hasattr(v, "data_ptr") else []


@contextmanager
def entry_mode(grad: bool):
    before = _core.mode()
    _core.set_grad_enabled(grad)
    try:
        yield
    finally:
        _core.set_mode(before)


def described(x: Any) -> Any:
    """A layout, or the number that it is."""
    if isinstance(x, (Layout, sym.Sym, bool, int, float, str, type(None))):
        return x
    if isinstance(x, Value) or hasattr(x, "data_ptr"):
        return layout_of(x)
    return x


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


@contextmanager
def recording():
    """While a graph is recorded: every operator call, of constants too, goes to the recorder; the
    grad mode that gm leaves behind does not outlive it."""
    before = _core.mode()
    _core.set_mode(before | DISPATCH)
    try:
        yield
    finally:
        _core.set_mode(before)
