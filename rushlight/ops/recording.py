"""Recorded calls: a function of values run on Symbols leaves the list of operator calls that it made.

The programs of eager mode (compositions, derivative rules) and FX graphs are both made this way. A Symbol has a layout and
no data; a NumberSymbol stands for a number that is known only at run time, and refuses to be branched on.
"""
import operator
from dataclasses import dataclass, field

from rushlight import dtypes

from .declare import FACTORIES, Op, many
from .values import TABLE, Array, Value

STREAMS = []                        # while a call is recorded: callables (count) -> (seed, first counter); innermost last


@dataclass(eq=False)
class Call:
    """One operator call (or, with a string for `op`, a host operation on numbers) and what it gave."""
    op: object
    arguments: object               # Arguments, or a tuple for host operations
    outs: tuple
    parents: tuple = ()             # the compositions it came from, outermost first: (name, where)
    where: str = ""                 # the user's line
    meta: dict = field(default_factory=dict)


class Recorder:
    """The calls of one recording. `expand(op, a)` says whether an operator is replaced by its definition."""

    def __init__(self, expand=lambda op, a: False, where=lambda: ""):
        self.calls, self.expand, self.where, self.parents = [], expand, where, []

    def __enter__(self):
        FACTORIES.insert(0, self.call)
        return self

    def __exit__(self, *_):
        FACTORIES.remove(self.call)

    def call(self, op, a):
        if self.expand(op, a):
            return self.inside(op, a)
        return self.record(op, a)

    def write(self, op, a, out=None):
        """An in-place or `out=` call. Recordings are functional: only a tracer that follows memory takes it."""
        raise TypeError(f"[{op.name}] a recorded value is written to in place: use the form that returns a new tensor")

    def symbol(self, layout):
        """A result; another kind of recorder may give another kind of symbol."""
        return Symbol(layout, self)

    def inside(self, op, a):
        """The definition's own calls; a body gives values only, so the declared layout is restored."""
        self.parents.append((op.name, op.where))
        try:
            if op.kind == "assemble":
                return self.assemble(op, a)
            out = op.define(a)
            if op.kind == "composition":
                return out
            outs = [self.declared(o, x) for o, x in zip(many(out), op.infer(a))]
            return tuple(outs) if len(outs) > 1 else outs[0]
        finally:
            self.parents.pop()

    def record(self, op, a):
        outs = tuple(self.symbol(x) for x in op.infer(hinted(a)))
        self.note(op, a, outs)
        return outs if len(outs) > 1 else outs[0]

    def declared(self, out, layout):
        """A body's value in the layout that the declaration promises; a number fills it."""
        if not isinstance(out, Array):
            return TABLE["full"](layout.shape, out, dtype=layout.dtype)
        if out.rank > layout.rank:                      # bodies keep the dims that they reduce
            out = TABLE["reshape"](out, layout.shape)
        if out.shape != layout.shape:                   # and need not repeat what broadcasting repeats
            out = TABLE["expand"](out, layout.shape)
        if out.layout.strides == layout.strides:
            return out
        order = sorted(range(layout.rank), key=lambda d: -int(layout.strides[d]))
        if order == list(range(layout.rank)):
            return TABLE["clone"](out, memory_format="contiguous")
        copy = TABLE["clone"](TABLE["permute"](out, tuple(order)), memory_format="contiguous")
        return TABLE["permute"](copy, tuple(order.index(d) for d in range(layout.rank)))

    def assemble(self, op, a):
        """An assembly as calls: an empty output, and one copy through each view of it that is written, in order."""
        layout, = op.infer(a)
        out = Symbol(layout, self)
        if layout.contiguous:
            self.note("empty", (layout.shape, layout.dtype), (out,))
        else:
            self.note("empty_strided", (layout.shape, layout.strides, layout.dtype), (out,))
        for view, value in op.body(*a.values):
            self.note("copy_" if isinstance(value, Array) else "fill_", (view(out), value), ())
        return out

    def note(self, op, arguments, outs):
        self.calls.append(Call(op, arguments, outs, tuple(self.parents), self.where()))

    def host(self, name, *numbers):
        hint = HOST[name](*(n.hint if isinstance(n, NumberSymbol) else n for n in numbers))
        out = NumberSymbol(self, hint)
        self.note(name, numbers, (out,))
        return out


HOST = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "neg": operator.neg,
        "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
        "real_part": operator.attrgetter("real"), "imaginary_part": operator.attrgetter("imag")}


def hinted(a):
    """The call with run-time numbers as the values they have now: layouts may look at them, bodies may not."""
    if not any(isinstance(v, NumberSymbol) for v in a.values):
        return a
    return type(a)(a.op, [v.hint if isinstance(v, NumberSymbol) and not p.is_tensor else v
                          for p, v in zip(a.parameters, a.values)])


class Symbol(Array):
    """The result of a recorded call."""
    __slots__ = ("recorder", "name")
    priority = 2

    def __init__(self, layout, recorder, name=None):
        self.layout, self.recorder, self.name = layout, recorder, name

    @classmethod
    def call(cls, op, a):
        return recorder_of(a).call(op, a)

    @classmethod
    def form(cls, kind, op, args):
        a = op.bind(args)
        return recorder_of(a).record(op, a)              # the bottom: recorded even where operators are expanded

    def __repr__(self):
        return self.name or f"<symbol {self.layout}>"


def recorder_of(a):
    for v in a.tensors:
        if isinstance(v, (Symbol, NumberSymbol)):
            return v.recorder
    raise TypeError(f"[{a.op_name}] expected a Tensor among the operands, got numbers only")


class NumberSymbol(Value):
    """A run-time number inside a recording; `hint` is the value it has at this call."""
    __slots__ = ("recorder", "hint", "dtype", "name")
    priority = 2
    tier = 0
    rank = 0
    shape = ()

    def __init__(self, recorder, hint, name=None):
        self.recorder, self.hint, self.name = recorder, hint, name
        self.dtype = "bool" if isinstance(hint, bool) else "int64" if isinstance(hint, int) else dtypes.DEFAULT
        if isinstance(hint, complex):
            self.dtype = dtypes.complex_of(dtypes.DEFAULT)

    @classmethod
    def call(cls, op, a):
        return recorder_of(a).call(op, a)

    def refuse(self, *_):
        raise TypeError("a run-time number cannot be branched on in a definition or derivative rule: declare the parameter "
                        "structural, or write the condition with where()")

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = refuse

    def to(self, dtype):
        return self


def host(name, swap=False):
    def method(self, other=None):
        if other is None:
            return self.recorder.host(name, self)
        if isinstance(other, Array):
            return NotImplemented
        return self.recorder.host(name, other, self) if swap else self.recorder.host(name, self, other)
    return method


for slot in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(NumberSymbol, f"__{slot}__", host(slot))
    setattr(NumberSymbol, f"__r{slot}__", host(slot, swap=True))
NumberSymbol.__neg__ = host("neg")


def record(function, layouts, expand=lambda op, a: False, where=lambda: ""):
    """(recorder, inputs, result) of a function run on one Symbol a layout."""
    recorder = Recorder(expand, where)
    inputs = [Symbol(x, recorder) for x in layouts]
    with recorder:
        return recorder, inputs, function(*inputs)


__all__ = ["Call", "NumberSymbol", "Op", "Recorder", "Symbol", "record"]
