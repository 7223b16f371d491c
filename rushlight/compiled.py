"""A captured graph with its compiled forms: what stands behind the backend "inductor".

Takes a captured graph and example inputs (`pipeline.compile_fx`); a call is given to the form made
for its kind of inputs: which of them require a gradient, and the numbers that are constants. A form
holds one native program (`Inference`), or two and a node of the tape (`Training`).
Invariant: what no graph can follow runs in eager mode, with a recorded reason.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rushlight import _core, config, fx, kept_forms, sym, trace  # type: ignore[attr-defined]
from rushlight.aot_autograd.functional import Functionalised, functionalise
from rushlight.aot_autograd.parts import Parts, split
from rushlight.aot_autograd.pipeline import reached
from rushlight.eager import casting
from rushlight.errors import CompilerBug, Unsupported
from rushlight.forms import CASTING, Form, Inference, Training, settled, timed
from rushlight.fx.captured import CallGraph, CallNode
from rushlight.fx.passes import record
from rushlight.fx.pausing import paused_collector
from rushlight.fx.tracing import environment, layout_of
from rushlight.nn.recurrent import recurrent_layer
from rushlight.ops.declare import Op
from rushlight.ops.layouts import Layout
from rushlight.ops.values import Value
from rushlight.reasons import refuse
from rushlight.runtime.toolchain import NoCompiler

SLOW = 1.0  # seconds of compiling after which a terminal is told
LINE = 79  # characters of a line of progress
FORMS = 16  # of one graph: for sets of inputs that require a gradient, and for constants
# Bits of the mode word (docs/native.md).
GRAD, DISPATCH = 1, 1 << 3  # DISPATCH: every call of an operator goes to the recorder
LEFT = GRAD | CASTING  # what a graph may leave otherwise than it found it


def compiled(
    gm: Callable, example_inputs: Sequence[Any], check: int = 0, make: Callable | None = None
) -> Callable:
    """The graph with its compiled forms: whole, or in parts around recurrent layers and what
    belongs to the tape. `make`: what becomes of a whole graph or of a part; `Compiled`."""
    make = make or Compiled
    graph: Any = getattr(gm, "graph", None)
    calls = graph.calls if isinstance(graph, CallGraph) else ()
    left = [n for n in calls if n.target is recurrent_layer or of_tape(n)]
    if not left:
        return make(gm, example_inputs, check)
    for n in left:
        what, where = f"{n.name} in {graph.name}", n.meta.get("where") or None
        if of_tape(n):
            refuse("fallback.tape", what, "it runs Python code in backward", where=where)
        else:
            why = "its own kernels run it, between compiled parts"
            refuse("fallback.recurrent", what, why, where=where)
    return Parts(graph, split(graph, outside), partial(make, check=check))


def outside(node: CallNode) -> bool:
    """What no part compiles: recurrent layers, what belongs to the tape, and changes of modes."""
    if of_tape(node):
        return True
    if node.target in (recurrent_layer, casting.autocast, _core.set_mode, _core.set_grad_enabled):
        return True
    return node.op == "call_method" and node.target in ("__enter__", "__exit__", "remove")


def of_tape(node: CallNode) -> bool:
    """Whether it is an `autograd.Function` or a hook, as dynamo marks them."""
    return bool(getattr(node.target, "of_tape", False))


def turns_on_gradients(node: CallNode) -> bool:
    return node.target in (_core.set_grad_enabled, _core.set_mode) and bool(node.args[0] & GRAD)


class Compiled:
    """A captured graph with its compiled forms. `forms` has one for each mask of inputs that
    require a gradient."""

    trusted = True  # its results are the graph's: nobody need compare them

    def __init__(self, gm: Callable, example_inputs: Sequence[Any], check: int = 0) -> None:
        self.check = check  # calls that are still to be compared with eager mode
        self.gm, self.name = gm, str(getattr(gm, "__name__", None) or "graph")
        self.examples = [described(x) for x in example_inputs]
        self.names = [f"n{i}" for i in range(len(self.examples))]
        self.given: list[str] | None = None  # names of the inputs, where the graph has any
        self.turns_on = False  # whether the graph turns gradients on itself
        graph = getattr(gm, "graph", None)
        if graph is not None and hasattr(graph, "placeholders"):
            self.name = graph.name
            for i, node in enumerate(graph.placeholders):
                self.examples[i] = node.meta.get("layout", self.examples[i])
                self.names[i] = node.name
            self.given = list(self.names)
            self.turns_on = any(turns_on_gradients(n) for n in graph.calls)
        self.tensors = [i for i, x in enumerate(self.examples) if isinstance(x, Layout)]
        # Numbers without an example vary from call to call, floats from their second value on;
        # other numbers are constants, and each value has a form of its own.
        self.varying = [i for i, x in enumerate(self.examples) if isinstance(x, sym.Sym)]
        self.constants = [
            i for i, x in enumerate(self.examples) if not isinstance(x, (Layout, sym.Sym))
        ]
        self.fixed: set[int] = set()  # floats that a graph cannot compute with as they vary
        self.forms: dict[Any, Callable] = {}
        self.unit = trace.current_unit() or trace.numbered(self.name)  # the capture it is part of

    def __call__(self, *inputs: Any) -> Any:
        word, mask = _core.mode(), 0
        if word & GRAD or self.turns_on:
            for i in self.tensors:
                if inputs[i].requires_grad:
                    mask |= 1 << i
        key = self.key(word, mask, inputs) if word & CASTING or self.constants else mask
        form = self.forms.get(key)
        if form is None:
            if self.constants:
                self.vary(inputs)
                key = self.key(word, mask, inputs)
            with trace.unit(self.unit):
                form = self.forms[key] = self.make(mask, inputs)
            if key != (again := self.key(word, mask, inputs)):  # a float turned out to be constant
                self.forms = {again: form}
        if not isinstance(form, Form):
            return form(*inputs)
        if form.asked and not form.fits(inputs):
            return self.gm(*inputs)
        if self.check > 0:
            self.check -= 1
            return self.checked(form, inputs)
        if form.leaves is None:
            return form(*inputs)
        try:
            return form(*inputs)
        finally:
            _core.set_mode(_core.mode() & ~LEFT | form.leaves)

    def key(self, word: int, mask: int, inputs: tuple) -> Any:
        """What a form is made for."""
        if not (word & CASTING or self.constants):
            return mask
        numbers = ((type(inputs[i]), inputs[i]) for i in self.constants)
        return (mask, word & CASTING, *numbers)

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
        """Whole numbers without an example become symbols, and so do floats: those without an
        example at once, others when they come with a second value."""
        for i in [i for i in self.constants if i not in self.fixed]:
            known, value = self.examples[i], inputs[i]
            if type(value) is int and known is None:
                env = self.env  # a new one, where no size is a symbol
                env.hints.setdefault(self.names[i], value)
                self.change(i, sym.Sym(env, {(self.names[i],): 1}))
            elif type(value) is float and (known is None or type(known) is float and self.forms):
                if value != known:
                    self.change(i, sym.Float(self.env, self.names[i], value))

    def change(self, i: int, example: Any) -> None:
        """Argument i varies from now on; forms for its values are of no more use."""
        self.examples[i] = example
        self.constants.remove(i)
        self.varying = sorted([*self.varying, i])
        self.forms.clear()

    def fix_floats(self) -> None:
        """No graph can compute with these floats as they vary: each value is a constant again."""
        for i in [i for i in self.varying if isinstance(self.examples[i], sym.Float)]:
            self.fixed.add(i)
            self.examples[i] = None
            self.varying.remove(i)
            self.constants.append(i)

    @property
    def env(self) -> sym.ShapeEnv:
        for x in self.examples:
            if isinstance(x, sym.Sym):
                return x.env
        return environment([x for x in self.examples if isinstance(x, Layout)])

    @paused_collector()
    def make(self, mask: int, inputs: tuple) -> Callable:
        start = time.perf_counter()
        why = "its first call" if not self.forms else "inputs that require other gradients"
        slow = Progress(f"compiling {self.name} ({why})")
        try:
            if len(self.forms) > FORMS:
                raise Unsupported("compile", f"more than {FORMS} sets of numbers were given")
            try:
                form = self.form(mask, inputs)
            except (TypeError, Unsupported) as error:
                if not any(isinstance(x, sym.Float) for x in self.examples):
                    raise
                refuse(
                    "fallback.number",
                    self.name,
                    str(error),
                    "Each value of its floats gets a graph of its own.",
                )
                self.fix_floats()
                form = self.form(mask, inputs)
        except Unsupported as error:
            refuse("fallback.graph", self.name, str(error), "The graph runs in eager mode.")
            if isinstance(error, NoCompiler):
                warn_once(str(error))
            return self.gm
        except CompilerBug:
            raise
        except Exception as error:
            # The program's own errors come again from eager mode; ours must not be the program's.
            if config.flags.strict:
                raise
            refuse("fallback.graph", self.name, repr(error), "The graph runs in eager mode.")
            return self.gm
        finally:
            slow.end()
            trace.doing("")
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
        trace.doing("functionalise")
        begun = time.perf_counter()
        kept_as = kept_forms.name_of(self, mask, examples)
        if kept_as is not None:
            found = kept_forms.find(kept_as, self, lambda: self.functional(mask, examples)[0])
            if found is not None:
                return found
        asked = self.env.relations
        known = len(asked)
        wanted = [k for k, i in enumerate(self.tensors) if mask >> i & 1]
        made, leaves = self.functional(mask, examples)
        record(made.graph, "fx_graph", "functional")
        if any(o.dtype.startswith("complex") for n in made.graph.nodes for o in n.outs):
            raise Unsupported("compile", "its numbers are complex: no code is generated for them")
        count = len(self.tensors)
        if _core.is_grad_enabled():
            wanted += [count + k for k, t in enumerate(made.captured) if t.requires_grad]
        active = reached(made.graph, wanted) if wanted else ()
        active = tuple(i for i in active if i >= made.own or i in made.shown)
        took = 1e3 * (time.perf_counter() - begun)
        with settled():
            form: Form = (
                Training.of(self, made, tuple(wanted), active)
                if wanted
                else Inference.of(self, made)
            )
        form.asked = tuple(asked[known:])
        form.leaves = leaves
        form.milliseconds = {"functionalise": took, **form.milliseconds}
        if kept_as is not None:
            kept_forms.keep(kept_as, form)
        return form

    def functional(self, mask: int, examples: list) -> tuple[Functionalised, int | None]:
        """The graph without writes, for inputs of which those of the mask require a gradient; the
        mode bits that it leaves, where it changes any."""
        before = _core.mode()
        with recording():
            made = functionalise(
                self.gm,
                examples,
                name=self.name,
                names=self.given,
                grad_enabled=_core.is_grad_enabled if mask else lambda: True,
                wanted=[k for k, i in enumerate(self.tensors) if mask >> i & 1],
                instead=WHILE_RECORDED,
                casts=Casts(),
            )
            after = _core.mode()
        return made, after & LEFT if (before ^ after) & LEFT else None

class Progress:
    """From a second of compiling on, a line on a terminal says what is being done, and for how
    long. It goes when the compiling ends."""

    def __init__(self, what: str) -> None:
        self.what, self.ended, self.shown = what, threading.Event(), False
        self.start = time.perf_counter()
        self.thread = threading.Thread(target=self.show, daemon=True)
        if sys.stderr.isatty():
            self.thread.start()

    def show(self) -> None:
        wait = SLOW
        while not self.ended.wait(wait):
            self.shown, wait = True, 0.25
            seconds = time.perf_counter() - self.start
            line = f"rushlight: {self.what}: {trace.STEP[0].replace('_', ' ')}, {seconds:.0f} s"
            print(f"\r{line[:LINE]:{LINE}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self.ended.set()
        if self.thread.ident is not None:
            self.thread.join()
        if self.shown:
            print(f"\r{'':{LINE}}\r", end="", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line for who waits at a terminal."""
    if sys.stderr.isatty():
        print(f"rushlight: {text}", file=sys.stderr, flush=True)


def warn_once(text: str) -> None:
    """For what makes all compiling impossible on this machine."""
    if text not in WARNED:
        WARNED.add(text)
        warnings.warn(f"{text} Graphs run in eager mode.", RuntimeWarning, stacklevel=2)


WARNED: set[str] = set()


def made_anew(tracer: Any, data: Any, dtype: Any = None, device: Any = None) -> Any:
    return tracer.copy_of(_core.tensor(data, dtype, device))


def emptied(tracer: Any, shape: Any, dtype: Any = None, device: Any = None) -> Any:
    return fx.tracing.TABLE["full"](tuple(shape), 0, dtype=(dtype or _core.float32).name)


WHILE_RECORDED: dict[Any, Callable] = {  # functions of the bindings that a captured graph may call
    _core.tensor: made_anew,
    _core.empty: emptied,
    _core.set_mode: lambda tracer, word: _core.set_mode(word | DISPATCH),
}


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


def described(x: Any) -> Any:
    """A layout, or the number that it is."""
    if isinstance(x, (Layout, sym.Sym, bool, int, float, str, type(None))):
        return x
    if isinstance(x, Value) or hasattr(x, "data_ptr"):
        return layout_of(x)
    return x


class Casts:
    """Autocast while a graph is recorded, as eager mode's plans follow it (eager/casting.py)."""

    off = staticmethod(settled)

    def on(self) -> bool:
        return bool(_core.mode() & CASTING)

    def target(self, op: Op, values: Sequence[Any]) -> str | None:
        """The dtype that the operator's narrow operands get; "" where they stay and its inside is
        not cast either, None where the operator says nothing."""
        policy = op.autocast(*values) if callable(op.autocast) else op.autocast
        if policy is None or policy == "off":
            return policy and ""
        narrow = [x for v in values for x in (v if isinstance(v, (list, tuple)) else (v,))]
        narrow = [x for x in narrow if self.narrow(x)]
        if policy == "float32" or policy == "promote" and any(x.dtype == "float32" for x in narrow):
            return "float32"
        return casting.lower().name

    def narrow(self, x: Any) -> bool:
        return isinstance(x, Value) and getattr(x, "dtype", None) in casting.NARROW

    def kept(self, x: Any) -> bool:
        """Whether a cast of this leaf is found again by the region's other calls."""
        return casting.state.cache_enabled and casting.state.depth > 0 and x.dtype == "float32"


@contextmanager
def recording():
    """While a graph is recorded: every operator call, of constants too, goes to the recorder; the
    grad mode that gm leaves behind does not outlive it."""
    before, state = _core.mode(), dict(casting.state.__dict__)
    _core.set_mode(before | DISPATCH)
    try:
        yield
    finally:
        _core.set_mode(before)
        casting.state.__dict__.update(state)
