"""A function that writes to its tensors -> a graph that writes to none.

    made = functionalise(gm, [layout, ...])
    made.graph       inputs -> (*own, *written): what nobody else's memory holds, then the new
                     values of the inputs that were written to
    made.outputs     how the function's results come from those: `own` results themselves, inputs,
                     and views of either

The function runs once on Functional proxies. Each has the memory that it shows and the views that
lead to it. A write makes a new value for the memory, put back through the views; whoever shows the
same memory computes its views again from then on. So aliasing needs no analysis: it is followed.

What a run draws from a random stream is numbered by symbols (`rng_seed`, `rng_offset`), so that
every call of the graph draws anew, and backward draws again what forward drew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, NamedTuple

from rushlight import dtypes, sym
from rushlight.errors import Unsupported, UserError
from rushlight.fx.graph import Graph, Names, same_layout, same_size
from rushlight.fx.tracing import (
    Proxy,
    Tracer,
    environment,
    from_recording,
    index,
    indexed,
    layout_of,
    parameter_names,
)
from rushlight.ops.declare import Arguments, Op, derived, none
from rushlight.ops.indexing import indexed_shape
from rushlight.ops.layouts import Layout
from rushlight.ops.recording import STREAMS, Symbol
from rushlight.ops.values import METHODS, TABLE, Value

from .replay import run_module

SEED, OFFSET = "rng_seed", "rng_offset"
View = tuple  # (Op, arguments after the first)


@dataclass(eq=False)
class Memory:
    """What one storage holds, as a value of the graph. Whoever shows it asks for its views anew
    when `version` has moved."""

    value: Symbol
    input: int | None = None  # which input's memory it is
    version: int = 0
    on_tape: bool = False  # written while gradients were recorded


class Own(NamedTuple):
    """Result number `index` of the graph."""

    index: int


class Given(NamedTuple):
    """Input number `index` itself, after what was written to it."""

    index: int


class ViewOf(NamedTuple):
    base: Own | Given
    views: tuple[View, ...]


@dataclass(frozen=True)
class Functionalised:
    graph: Graph
    outputs: Any  # the function's result: Own, Given, ViewOf, None and numbers in tuples
    own: int  # how many of the graph's results are Own
    written: tuple[int, ...]  # inputs that the graph's further results are written to, in order
    on_tape: tuple[bool, ...]  # for each of those: whether gradients were recorded then
    shown: tuple[int, ...] = ()  # of the own results, those that the function hands out undetached
    captured: tuple = ()  # tensors that the function closes over: inputs after its own
    draws: Any = 0  # random numbers that a call takes from the stream
    layouts: tuple[Layout, ...] = field(default=())  # of the inputs


class Functional(Proxy):
    """A tensor of the function: a memory, and the views from it to this tensor."""

    __slots__ = ("memory", "views", "seen", "now")

    def __init__(
        self, layout: Layout, recorder: Functionaliser, memory: Memory, views: tuple[View, ...]
    ) -> None:
        super().__init__(layout, recorder)
        self.memory, self.views, self.seen, self.now = memory, views, -1, memory.value

    @property
    def symbol(self) -> Symbol:
        """The graph's value that this tensor has now."""
        if self.seen != self.memory.version:
            value = self.memory.value
            for op, rest in self.views:
                value = self.recorder.view_of(op, value, rest)
            self.now, self.seen = value, self.memory.version
        return self.now

    @classmethod
    def form(cls, kind: str, op: Op, args: tuple) -> Any:
        return cls.call(op, op.bind(args))

    def __getattr__(self, name: str) -> Any:
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else ""
        if base in TABLE and name not in METHODS:
            op = TABLE[base]
            twin = getattr(op.native, "inplace", None)
            if twin is not None:  # binds as the method does, and comes back to `write`
                return partial(twin, self)
            return lambda *args, **kwargs: self.recorder.write(op, op.bind((self, *args), kwargs))
        op = TABLE.get(name)
        if op is not None and op.method and op.native is not None and name not in METHODS:
            return partial(op.native, self)
        if name in ("grad", "grad_fn", "untyped_storage"):
            raise Unsupported("compile", f"Tensor.{name} of what a graph computes")
        return Value.__getattr__(self, name)

    @property
    def data(self) -> Any:
        return self.detach()  # versions are no matter of a graph

    @data.setter
    def data(self, value: Any) -> None:
        raise Unsupported("compile", "an assignment to Tensor.data", "Write in place.")

    def detach(self) -> Any:
        return TABLE["detach"](self)

    def requires_grad_(self, on: bool = True) -> Any:
        raise Unsupported("compile", "requires_grad_() inside a graph", "Call it before.")

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        op = TABLE["copy" if is_tensor(src) else "fill"]
        return self.recorder.write(op, op.bind((self, src)))

    def fill_(self, value: Any) -> Any:
        op = (
            TABLE["copy"]
            if isinstance(value, Value) or hasattr(value, "data_ptr")
            else TABLE["fill"]
        )
        return self.recorder.write(op, op.bind((self, value)))

    def zero_(self) -> Any:
        return self.fill_(0)

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        if all(k is None or k is Ellipsis or isinstance(k, (int, slice, sym.Sym)) for k in keys):
            index(self, keys).copy_(value)
            return
        if isinstance(key, Value) and key.dtype == "bool" and not isinstance(value, Value):
            mask = key
            for _ in range(self.rank - key.rank):
                mask = TABLE["unsqueeze"](mask, -1)
            op = TABLE["masked_fill"]
            self.recorder.write(op, op.bind((self, mask, value)))
            return
        view, indices, dims = indexed(self, keys)
        if is_tensor(value):
            if getattr(value.dtype, "name", value.dtype) != self.dtype:
                raise Unsupported("compile", "assigning values of another dtype at indices")
            shape = indexed_shape(tuple(view.shape), indices, dims, "index_put")
            value = value if tuple(value.shape) == shape else TABLE["expand"](value, shape)
        op = TABLE["index_write"]
        self.recorder.write(op, op.bind((view, indices, value, dims, False)))


def dense_of(shape: Sequence[Any]) -> list[Any]:
    """The strides of C order."""
    strides: list[Any] = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return strides


def same_strides(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(map(same_size, a, b))


def is_tensor(v: Any) -> bool:
    return isinstance(v, Functional) or hasattr(v, "data_ptr")


def in_place(name: str) -> Callable:
    def method(self: Functional, other: Any) -> Any:
        return self.recorder.write(TABLE[name], TABLE[name].bind((self, other)))

    return method


for _slot, _name in (
    ("iadd", "add"),
    ("isub", "sub"),
    ("imul", "mul"),
    ("itruediv", "div"),
    ("ipow", "pow"),
    ("iand", "bitwise_and"),
    ("ior", "bitwise_or"),
    ("ixor", "bitwise_xor"),
    ("imod", "remainder"),
    ("ifloordiv", "floor_divide"),
    ("ilshift", "bitwise_left_shift"),
    ("irshift", "bitwise_right_shift"),
):
    if _name in TABLE:
        setattr(Functional, f"__{_slot}__", in_place(_name))


class Functionaliser(Tracer):
    """A tracer on Functional proxies. `grad_enabled()` says whether the tape of eager mode would
    record now."""

    def __init__(
        self,
        env: sym.ShapeEnv,
        grad_enabled: Callable[[], bool],
        instead: dict[Any, Callable],
        casts: Any = None,
    ) -> None:
        super().__init__()
        self.casts = casts  # autocast: on(), target(op, values), off(), narrow(x), kept(x)
        self.cast: dict[tuple, Symbol] = {}  # inputs as autocast has cast them in this region
        self.env, self.grad_enabled, self.instead = env, grad_enabled, instead
        self.inputs: list[Functional] = []
        self.first: list[Symbol] = []  # what each input holds before any write
        self.captured: dict[int, tuple[Any, Functional]] = {}
        self.own_inputs = 0
        self.draws: Any = 0
        self.rng: tuple[sym.Sym, sym.Sym] | None = None
        self.learning: set[int] = set()  # ids of values that eager mode would have on its tape

    def __enter__(self) -> Any:
        STREAMS.append(self.reserve)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        STREAMS.remove(self.reserve)
        super().__exit__(*exception)

    # ---- inputs

    def input(self, layout: Layout) -> Functional:
        memory = Memory(Proxy(layout, self), len(self.inputs))
        made = Functional(layout, self, memory, ())
        self.inputs.append(made)
        self.first.append(memory.value)
        return made

    def capture(self, tensor: Any) -> Functional:
        """A tensor that the function closes over: one more input."""
        found = self.captured.get(id(tensor))
        if found is None:
            found = self.captured[id(tensor)] = (tensor, self.input(layout_of(tensor)))
            if tensor.requires_grad:
                self.learning.add(id(found[1].memory.value))
        return found[1]

    def copy_of(self, tensor: Any) -> Functional:
        """A tensor that every run of the graph makes anew, from the same numbers."""
        return self.fresh(self.plain("clone", self.capture(tensor).memory.value))

    def reserve(self, count: Any) -> tuple[Any, Any]:
        """(seed, first counter) of `count` random numbers of this call."""
        if self.rng is None:
            self.rng = (self.env.size(SEED, 0), self.env.size(OFFSET, 0))
        seed, start = self.rng
        at = start + self.draws
        least = count if isinstance(count, sym.Sym) else max(int(count), 1)
        self.draws = self.draws + least
        return seed, at

    # ---- calls

    def call(self, op: Op, a: Arguments) -> Any:
        a = self.lifted_operands(a)
        if op.kind == "view":
            return self.view(op, a)
        casting = self.casts is not None and self.casts.on()
        if casting and (target := self.casts.target(op, a.values)) is not None:
            if target:
                a = a.map(lambda _, v: self.lowered(v, target))
            with self.casts.off():
                return self.call(op, a)
        self.check_numbers(op, a)
        if op.kind == "composition" and (casting or op.rule is derived or "(a" in op.schema.text):
            self.parents.append((op.name, op.where))
            try:
                return op.define(a)
            finally:
                self.parents.pop()
        plain = a.map(lambda _, v: v.symbol if isinstance(v, Functional) else v)
        outs = self.record(op, plain)
        return tuple(map(self.fresh, outs)) if isinstance(outs, tuple) else self.fresh(outs)

    def lowered(self, v: Any, dtype: str) -> Any:
        """The operand as autocast casts it; an input is cast once a region."""
        if not self.casts.narrow(v) or v.dtype == dtype:
            return v
        whole = v.memory.input is not None and not v.views and not v.memory.version
        if not (whole and id(v.memory.value) in self.learning and self.casts.kept(v)):
            return v.to(dtype)
        key = (v.memory.input, dtype, self.grad_enabled())
        if key not in self.cast:
            self.cast[key] = v.to(dtype)
        return self.cast[key]

    def check_numbers(self, op: Op, a: Arguments) -> None:
        """A definition may look at its structural arguments: a float that varies is none."""
        for p, v in zip(op.parameters, a.values):
            if isinstance(v, sym.Float) and not (
                (p.is_tensor or p.is_run_time) and p.name not in op.structural
            ):
                raise TypeError(f"[{op.name}] {p.name} decides what is computed, and varies")

    def lifted_operands(self, a: Arguments) -> Arguments:
        if any(hasattr(v, "data_ptr") for v in a.tensors):
            return a.map(lambda _, v: self.capture(v) if hasattr(v, "data_ptr") else v)
        return a

    def fresh(self, value: Symbol) -> Functional:
        if dtypes.is_floating(value.dtype) and not self.grad_enabled():
            value = self.plain("detach", value)
        return Functional(value.layout, self, Memory(value), ())

    def view(self, op: Op, a: Arguments) -> Functional:
        x = a.values[0]
        (layout,) = op.infer(a)
        views = (*x.views, (op, tuple(a.values[1:])))
        if op.name != "detach" and dtypes.is_floating(x.dtype) and not self.grad_enabled():
            views = (*views, (TABLE["detach"], ()))
        made = Functional(layout, self, x.memory, views)
        made.now, made.seen = self.view_of(op, x.symbol, tuple(a.values[1:])), x.memory.version
        if len(views) > len(x.views) + 1:
            made.now = self.plain("detach", made.now)
        return made

    def plain(self, name: str, *values: Any, **named: Any) -> Any:
        """A call on the graph's own values."""
        op = TABLE[name]
        return self.record(op, op.bind(values, named))

    def view_of(self, op: Op, value: Symbol, rest: tuple) -> Symbol:
        a = Arguments(op, (value, *rest))
        try:
            op.infer(a)
        except RuntimeError:  # a write has left the memory in another order
            a = Arguments(op, (self.plain("clone", value, memory_format="contiguous"), *rest))
        return self.record(op, a)

    def note(self, op: Any, arguments: Any, outs: tuple) -> None:
        super().note(op, arguments, outs)
        if self.learning and self.grad_enabled() and op.rule not in (None, none):
            if any(id(v) in self.learning for v in arguments.tensors):
                self.learning.update(id(o) for o in outs if dtypes.is_floating(o.dtype))

    # ---- writes

    def write(self, op: Op, a: Arguments, out: Any = None) -> Any:
        """op_(...) or op(..., out=...): the result goes to the memory of its first operand, or of
        `out`. Returns what was written to."""
        a = self.lifted_operands(a)
        targets = a.values[0] if out is None else out
        with self.casts.off() if self.casts is not None else nullcontext():
            made = self.call(op, a)
        several = isinstance(made, tuple)
        for target, value in zip(targets if several else (targets,), made if several else (made,)):
            if not isinstance(target, Functional):
                found = self.captured.get(id(target))
                if found is None:
                    raise Unsupported(
                        "compile",
                        f"[{op.name}] a tensor made outside of the graph is written to in place",
                        "Make it an argument of the function.",
                    )
                target = found[1]
            self.assign(op, target, value, out is not None)
        return targets

    def assign(self, op: Op, target: Functional, value: Functional, resizes: bool) -> None:
        memory = target.memory
        if memory.input is not None and memory.input >= self.own_inputs:
            raise Unsupported(
                "compile",
                f"[{op.name}] a tensor that the function closes over is written to in place",
                "Make it an argument of the function, or a buffer of a module.",
            )
        if dtypes.category(value.dtype) > dtypes.category(target.dtype):
            raise UserError(
                op.name,
                f"[copy_] a result of {value.dtype} can't be cast to {target.dtype}, the dtype "
                "written to",
            )
        new = value.symbol
        if new.dtype != target.dtype:
            new = self.plain("to", new, dtype=target.dtype)
        if tuple(new.shape) != tuple(target.shape):
            self.check_shape(op, target, new, resizes)
            new = self.plain("expand", new, tuple(target.shape))
        if id(new) in self.learning and any(v.name == "detach" for v, _ in target.views):
            raise Unsupported(
                "compile",
                f"[{op.name}] a detached view takes a value that requires a gradient",
                "Write to the tensor itself, or detach the value.",
            )
        if dtypes.is_floating(new.dtype) and not self.grad_enabled():
            new = self.plain("with_data", target.symbol, new)
        elif dtypes.is_floating(new.dtype) and all(v.name != "detach" for v, _ in target.views):
            memory.on_tape = True
        memory.value = self.dense(self.put(memory.value, target.views, new), memory)
        memory.version += 1

    def check_shape(self, op: Op, target: Functional, new: Symbol, resizes: bool) -> None:
        lead = target.rank - new.rank
        fits = lead >= 0 and all(
            n == 1 or n == target.shape[d + lead] for d, n in enumerate(new.shape)
        )
        if resizes or not fits:
            raise UserError(
                op.name,
                f"[copy_] the target has shape {list(target.shape)}, the operands broadcast to "
                f"{list(new.shape)}",
            )

    def dense(self, value: Symbol, memory: Memory) -> Symbol:
        """The value in the order of dims that the memory has."""
        before = memory.value.layout
        if same_layout(value.layout, before):
            return value
        if before.contiguous:
            return self.plain("clone", value, memory_format="contiguous")
        order = tuple(sorted(range(before.rank), key=lambda d: -int(before.strides[d])))
        turned = self.plain("permute", value, order)
        if not same_strides(dense_of(turned.shape), [before.strides[d] for d in order]):
            return value  # an input with gaps: it is copied into
        copy = self.plain("clone", turned, memory_format="contiguous")
        return self.plain("permute", copy, tuple(map(order.index, range(before.rank))))

    def put(self, base: Symbol, views: tuple[View, ...], new: Symbol) -> Symbol:
        """The base's value once `new` stands where the views lead."""
        if not views:
            return new
        (op, rest), more = views[0], views[1:]
        if more:
            new = self.put(self.view_of(op, base, rest), more, new)
        return self.put_back(op, rest, base, new)

    def put_back(self, op: Op, rest: tuple, base: Symbol, new: Symbol) -> Symbol:
        match op.name:
            case "alias":
                return new
            case "detach":
                return self.plain("with_data", base, new) if new is not base else new
            case "transpose":
                return self.plain("transpose", new, *rest)
            case "permute":
                dims = [d % base.rank for d in rest[0]]
                return self.plain(
                    "permute", new, tuple(sorted(range(len(dims)), key=dims.__getitem__))
                )
            case "narrow":
                dim, start, length = rest
                return self.plain("slice_scatter", base, new, dim, start, start + length)
            case "select" | "slice":
                return self.plain(f"{op.name}_scatter", base, new, *rest)
            case "view" | "unsqueeze" | "squeeze":
                return self.view_of(TABLE["view"], new, (tuple(base.shape),))
            case "expand" if new.rank >= base.rank and prod(new.shape) == prod(base.shape):
                return self.view_of(TABLE["view"], new, (tuple(base.shape),))
            case "expand":
                raise Unsupported(
                    "compile",
                    "a write to elements that an expanded tensor shows more than once",
                    "Eager mode decides whether it may be.",
                )
        name = f"{op.name}_scatter"
        if name in TABLE:
            return self.plain(name, base, new, *rest)
        if op.name == "unfold" or not base.layout.contiguous:
            raise Unsupported(
                "compile", f"a write through {op.name}()", "Write to the tensor itself."
            )
        count = prod(base.shape)
        places = self.plain("steps", (count,), 0, 1, dtype="int64")
        at = self.view_of(TABLE["view"], places, (tuple(base.shape),))
        at, flat = self.view_of(op, at, rest), self.view_of(TABLE["view"], base, ((count,),))
        found = self.plain("index_write", flat, [at], new, (0,), False)
        return self.view_of(TABLE["view"], found, (tuple(base.shape),))

    # ---- results

    def outputs(self, result: Any) -> tuple[Any, list[Symbol], list[Functional], tuple[int, ...]]:
        """(what the result is made of, the graph's own results, the inputs written to, which own
        results are handed out undetached)."""
        own: dict[int, int] = {}
        values: list[Symbol] = []
        shown: set[int] = set()

        def place(x: Functional) -> Any:
            memory = x.memory
            if memory.input is not None:
                base: Own | Given = Given(memory.input)
            else:
                if id(memory) not in own:
                    own[id(memory)] = len(values)
                    values.append(memory.value)
                base = Own(own[id(memory)])
                if all(op.name != "detach" for op, _ in x.views):
                    shown.add(own[id(memory)])
            return ViewOf(base, x.views) if x.views else base

        def visit(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return tuple(map(visit, v))
            if hasattr(v, "data_ptr"):
                return place(self.capture(v))
            if isinstance(v, Functional):
                return place(v)
            if isinstance(v, Value) and not isinstance(v, sym.Sym):
                raise UserError("compile", f"{v!r} was not made by this trace", kind=TypeError)
            return v

        made = visit(result)
        return made, values, [x for x in self.inputs if x.memory.version], tuple(sorted(shown))


def functionalise(
    gm: Callable,
    inputs: Sequence[Any],
    *,
    name: str = "graph",
    names: Sequence[str] | None = None,
    grad_enabled: Callable[[], bool] = lambda: True,
    wanted: Sequence[int] = (),
    instead: dict[Any, Callable] | None = None,
    casts: Any = None,
) -> Functionalised:
    """`inputs`: for each argument of gm a layout, a number or a symbolic size. `wanted`: which of
    the layouts' tensors require a gradient. `instead`: functions of a captured graph that mean
    something else while it is recorded, as (tracer, *arguments) -> result. `casts`: what autocast
    does to operators (`Functionaliser`).

    Raises Unsupported where gm asks for a value, or writes where no graph can follow.
    """
    layouts = [x for x in inputs if isinstance(x, Layout)]
    sizes = [x for x in inputs if isinstance(x, sym.Sym)]
    env = sizes[0].env if sizes else environment(layouts)
    tracer = Functionaliser(env, grad_enabled, instead or {}, casts)
    arguments = [tracer.input(x) if isinstance(x, Layout) else x for x in inputs]
    tracer.own_inputs = len(tracer.inputs)
    tracer.learning.update(id(tracer.first[i]) for i in wanted)
    names = names or parameter_names(getattr(gm, "forward", gm), len(inputs))
    names = [n for n, x in zip(names, inputs) if isinstance(x, Layout)]
    with tracer:
        result = run_module(gm, arguments, tracer)
        made, own, written, shown = tracer.outputs(result)
    numbers = tuple(dict.fromkeys(str(s) for s in sizes if s.terms == {(str(s),): 1}))
    if tracer.rng:
        numbers = (*numbers, SEED, OFFSET)
    taken = Names(env.hints)
    placed = [
        (taken.fresh(names[i] if i < len(names) else f"captured_{i - len(names)}"), first)
        for i, first in enumerate(tracer.first)
    ]
    graph = from_recording(
        tracer,
        placed,
        (tuple(own) + tuple(x.memory.value for x in written)),
        name if name.isidentifier() else "graph",
        env,
        numbers,
    )
    return Functionalised(
        graph,
        made,
        len(own),
        tuple(i for x in written if (i := x.memory.input) is not None),
        tuple(x.memory.on_tape for x in written),
        shown,
        tuple(t for t, _ in tracer.captured.values()),
        tracer.draws,
        tuple(v.layout for v in graph.inputs),
    )


__all__ = ["Functionalised", "Given", "Own", "ViewOf", "functionalise"]
