"""One operator, one declaration.

A decorator named for the kind of definition turns one function into an operator. It takes the ATen schema, how dtypes
promote, the layout rule, the domain of its precompiled kernels and samples; `@op.derivative` adds the rule. The function's
parameters are the schema's, by position, under short names. A derivative asks by name for what it needs: `g` (the
cotangent), `gs` (of every output), `out`, `outs`, `needs`, or any parameter. What it does not name is not saved.
"""
import inspect
from functools import cached_property

from rushlight import dtypes, sym

from . import layouts, promotion
from .derivatives import TAPES, gradients, pull_back, record
from .schema import MISSING, RUN_TIME, Parameter, Schema, parse
from .values import TABLE, Fake, Value

derived, none = "derived", "none"
RUN = object()                      # in `variants`: this number is given at run time, not left at its default
FLOATS, HALVES, NUMBERS = dtypes.FLOATS, dtypes.HALVES, dtypes.INTEGERS + dtypes.FLOATS
ALL = ("bool",) + NUMBERS


class Arguments:
    """The arguments of one call, bound to their parameters."""
    __slots__ = ("op", "parameters", "values", "_tensors")

    def __init__(self, op, values):
        self.op, self.parameters, self.values, self._tensors = op, op.parameters, tuple(values), None

    @property
    def op_name(self):
        return self.op.name

    def __getitem__(self, name):
        return self.values[self.op.position[name]]

    def __contains__(self, name):
        return name in self.op.position

    def get(self, name, default=None):
        i = self.op.position.get(name)
        return default if i is None else self.values[i]

    def operands(self):
        """(name, value) of whatever stands where the schema says Tensor; Python numbers included, None not."""
        for i in self.op.tensor_slots:
            v = self.values[i]
            if v is not None:
                name = self.parameters[i].name
                if isinstance(v, (list, tuple)):
                    yield from ((name, x) for x in v)
                else:
                    yield name, v

    @property
    def tensors(self):
        """The operands that are values, not Python numbers or symbolic sizes."""
        if self._tensors is None:
            self._tensors = [v for _, v in self.operands() if not isinstance(v, (bool, int, float, complex, sym.Sym)) and getattr(v, "tier", None) != 0]
        return self._tensors

    @property
    def device(self):
        return next((v.layout.device for v in self.tensors if hasattr(v, "layout")), "cpu")    # a run-time number has none

    def map(self, change):
        """The same call with every operand changed: change(name, value)."""
        new = list(self.values)
        for i in self.op.tensor_slots:
            v, name = new[i], self.parameters[i].name
            if v is not None:
                new[i] = [change(name, x) for x in v] if isinstance(v, (list, tuple)) else change(name, v)
        return Arguments(self.op, new)

    def is_default(self, i):
        """Whether a run-time number was left at its default: then it is a constant of the kernel."""
        v, d = self.values[i], self.parameters[i].default
        return d is not MISSING and type(v) is type(d) and v == d


PLAIN = frozenset((int, float, bool, str, type(None)))
REMEMBERED = 128                    # calls of one operator


def call_key(values):
    """What an operator's layouts depend on, as a key; None where something in it varies or has no key."""
    key = []
    for v in values:
        kind = type(v)
        if kind in PLAIN:
            key += (kind, v)        # 1, 1.0 and True are equal, and promote differently
        elif kind is tuple or kind is list:
            inside = call_key(v)
            if inside is None:
                return None
            key += (kind, inside)
        else:
            layout = getattr(v, "layout", None)
            if type(layout) is not layouts.Layout or not layout.fixed or getattr(v, "tier", None) is not None:
                return None
            key.append(layout)
    return tuple(key)


TAKEN = {"int64": ("int64", "int32"), "bool": ("bool",)}      # `others` of these kernel dtypes take


class Op:
    """A declared operator. Immutable after registration, but for its derivative rule."""
    source = None                   # of a derived derivative: the operator that it belongs to
    native = None                   # the native Operator, once rushlight.eager has made it
    native_dtype = None             # a dtype's name -> its native object, likewise

    def __init__(self, schema, kind, body, *, name=None, layout=None, promote=None, samples=(), derivative=None,
                 method=True, function=True, domain=FLOATS, patterns=None, variants=({},), others=None, structural=(),
                 view=None, bottom=False, cost=1, routine=None, writes=None, strided=False, where=None,
                 autocast=None):
        self.schema: Schema = parse(schema) if isinstance(schema, str) else schema
        self.kind, self.body, self.layout, self.promote = kind, body, layout, promote
        self.name = name or body.__name__
        self.samples, self.rule, self.method, self.function = tuple(samples), derivative, method, function
        self.domain, self.structural, self.view, self.bottom, self.cost = tuple(domain), structural, view, bottom, cost
        self.parameters: tuple[Parameter, ...] = self.schema.parameters
        self.position = {p.name: i for i, p in enumerate(self.parameters)}
        self.tensor_slots = tuple(i for i, p in enumerate(self.parameters) if p.is_tensor)
        self.routine, self.writes, self.strided = routine, writes, strided      # of library calls: see `library` below
        self.autocast = autocast        # under autocast: "lower" precision, "float32", "promote" (the widest), "off" inside too; or a function of the arguments
        self.outputs = len(self.schema.returns)
        self.patterns = tuple(patterns or ("T" * len(self.tensor_slots),))
        self.variants = tuple(variants)
        # operands that take no part in promotion: the dtype their kernel takes, and those that a call may have
        self.others = {n: d[0] if isinstance(d, tuple) else d for n, d in (others or {}).items()}
        self.taken = {n: d if isinstance(d, tuple) else TAKEN[d] for n, d in (others or {}).items() if d in TAKEN or isinstance(d, tuple)}
        self.where = where or location(body)
        self.inferred = {}              # key of a call -> layouts of its outputs

    def __repr__(self):
        return f"<op {self.name}>"

    @cached_property
    def short_names(self):
        """The body's own parameter names, by position."""
        return tuple(inspect.signature(self.body).parameters)

    # ---- calls

    def bind(self, args, kwargs=None):
        if len(args) > len(self.parameters):
            raise TypeError(f"[{self.name}] takes at most {len(self.parameters)} arguments, got {len(args)}: {self.schema.text}")
        values, kwargs = list(args), dict(kwargs or ())
        for p in self.parameters[len(args):]:
            v = kwargs.pop(p.name, p.default)
            if v is MISSING:
                raise TypeError(f"[{self.name}] missing argument {p.name!r}: {self.schema.text}")
            values.append(v)
        if kwargs:
            raise TypeError(f"[{self.name}] got an unexpected argument {next(iter(kwargs))!r}: {self.schema.text}")
        for i, p in enumerate(self.parameters):
            if p.type.startswith("ScalarType"):
                values[i] = getattr(values[i], "name", values[i])
        return Arguments(self, values)

    def __call__(self, *args, **kwargs):
        """A call on values (never on native tensors: their calls enter through `native`)."""
        a = self.bind(args, kwargs)
        if not a.tensors:
            return self.call_without_operands(a)
        kind = max((type(t) for t in a.tensors), key=lambda k: getattr(k, "priority", 0))       # native tensors: 0
        if getattr(kind, "transparent", False):
            return kind.call(self, a)                   # a pair of values: its parts record themselves
        if TAPES and self.rule is derived and self.kind == "composition":
            return kind.call(self, a) if kind.priority == 1 else self.define(a)      # its parts record themselves
        tapes, TAPES[:] = TAPES[:], ()
        try:
            out = kind.call(self, a)
        finally:
            TAPES[:] = tapes
        for tape in TAPES:
            tape.append((self, a, out if isinstance(out, tuple) else (out,)))
        return out

    def call_without_operands(self, a):
        for factory in FACTORIES:                       # the innermost recorder or loop lowering takes it
            return factory(self, a)
        return Fake.call(self, a)

    # ---- what a declaration answers

    def dtypes(self, a):
        """(storage dtype of the operands, dtype of each output). Outputs after the first are statistics: opmath."""
        for name, v in a.operands() if self.taken else ():
            if name in self.taken and isinstance(v, Value) and v.dtype not in self.taken[name]:
                raise RuntimeError(f"[{self.name}] expected {name} to be {' or '.join(self.taken[name])}, got {v.dtype}")
        best, result = self.promote(a) if self.promote else (a.tensors[0].dtype,) * 2
        if self.source:
            return best, [result] * self.outputs
        if self.routine:
            return best, self.layout.dtypes(a, best, result)
        return best, [result] + [dtypes.opmath(best)] * (self.outputs - 1)

    def define(self, a, known=None):
        """The definition under its promotion, for any kind of value: the one place where casts appear."""
        if not self.promote or self.kind in ("composition", "view"):
            return self.body(*a.values)
        best, results = known or self.dtypes(a)
        wide = dtypes.opmath(best)
        promoted = self.promote.takes_part
        alone = a.tensors and not any(isinstance(v, Value) and promoted(n) for n, v in a.operands())    # beside a condition

        def widen(name, v):
            if not promoted(name):
                return v
            return v.to(wide) if isinstance(v, Value) else a.tensors[0].number(v, wide) if alone else v

        narrow = lambda v, d: v.to(d) if isinstance(v, Value) else v      # a number: the same for every element
        out = self.body(*a.map(widen).values)
        return tuple(map(narrow, out, results)) if isinstance(out, tuple) else narrow(out, results[0])

    def infer(self, a):
        """The layouts of the outputs. Those of a call without symbolic sizes are remembered: a model's layers ask alike."""
        key = call_key(a.values)
        if key is None:
            return self.infer_anew(a)
        found = self.inferred.get(key)
        if found is None:
            found = self.infer_anew(a)
            if len(self.inferred) >= REMEMBERED:
                self.inferred.clear()
            self.inferred[key] = found
        return list(found)

    def infer_anew(self, a):
        """The layout rule, or for views and compositions the definition itself."""
        if self.kind == "view":
            return [self.body(a.tensors[0].layout, *a.values[1:])]
        if self.kind == "composition":
            FACTORIES.insert(0, Fake.call)              # what it creates inside is fake too, and nobody records it
            try:
                out = self.body(*a.map(lambda _, v: Fake(v.layout) if isinstance(v, Value) else v).values)
            finally:
                FACTORIES.remove(Fake.call)
            return [o.layout for o in many(out)]
        return self.layout.infer(a, self.dtypes(a)[1])

    # ---- derivative

    def derivative(self, rule):
        self.rule = rule
        return self

    def pull(self, a, outs, gs, needs):
        """Cotangents, one an operand: of its operand's shape and dtype, or None."""
        operands = list(a.operands())
        if self.rule is derived and self.kind == "view":
            grads = [TABLE["view_backward"](gs[0], self, a.values[1:], a.tensors[0].shape)]
        elif self.rule is derived and (self.kind == "composition" or self.outputs > 1):     # through its parts
            whole = self.repeated(a)
            inside, tape = record(lambda: self.define(whole))
            grads = pull_back(tape, list(zip(many(inside), gs)), [x if isinstance(x, Value) else None for _, x in whole.operands()])
        elif self.rule is derived:
            g = self.layout.keep(a, gs[0])
            found = iter(many(self.backward(g, *a.values)))
            grads = [next(found) if self.differentiates(n, x) else None for n, x in operands]
        else:
            known = dict(zip(self.short_names, a.values))
            known |= {"g": gs[0], "gs": gs, "out": outs[0], "outs": outs}
            grads = self.by_operand(a, many(self.rule(**{n: known[n] for n in inspect.signature(self.rule).parameters})))
        return [g.to(x.dtype).sum_to(x) if want and g is not None and isinstance(x, Value) and dtypes.is_differentiable(x.dtype)
                else None for (_, x), g, want in zip(operands, grads, needs)]

    def repeated(self, a):
        """Of a derivative by several operands: these in the full shape, for so come its results, before any is summed up."""
        if not self.source or self.kind != "scalar":
            return a
        full = tuple(self.layout.full(a))
        return a.map(lambda _, v: TABLE["expand"](v, full) if hasattr(v, "layout") and tuple(v.shape) != full else v)

    def by_operand(self, a, grads):
        """A rule gives one entry a tensor parameter (a list for a list); absent operands drop out here."""
        if len(grads) != len(self.tensor_slots):
            raise AssertionError(f"[{self.name}] its derivative gives {len(grads)} cotangents for {len(self.tensor_slots)} "
                                 f"tensor parameters ({self.where})")
        flat = []
        for i, g in zip(self.tensor_slots, grads):
            v = a.values[i]
            if isinstance(v, (list, tuple)):
                flat += [None] * len(v) if g is None else list(g)
            elif v is not None:
                flat.append(g)
        return flat

    def differentiates(self, name, x):
        return isinstance(x, Value) and self.promote.takes_part(name) and dtypes.is_differentiable(x.dtype)

    @cached_property
    def backward(self):
        """The derived derivative, itself an operator of the same kind: one fused kernel in eager mode."""
        takes = [i for i in self.tensor_slots if self.promote.takes_part(self.parameters[i].name)]

        def body(g, *args):
            wanted = [args[i] for i in takes if isinstance(args[i], Value)]
            grads = many(gradients(lambda: many(self.body(*args))[0], wanted, g))
            grads = tuple(0 if d is None else d for d in grads)     # the result does not depend on that operand
            return grads if len(grads) > 1 else grads[0]

        grad = f"grad_{self.name}"
        name = f"{self.name}_backward"
        inside = ", ".join(["Tensor " + grad] + [self.schema.text.split("(", 1)[1].rsplit("->", 1)[0].rsplit(")", 1)[0]])
        returns = "Tensor" if len(takes) == 1 else f"({', '.join(['Tensor'] * len(takes))})"
        promote = self.promote.of(grad, *self.promote.names) if self.promote.names else self.promote
        op = Op(f"{name}({inside}) -> {returns}", self.kind, body, name=name, layout=layouts.cotangents(self.layout, grad),
                promote=promote, derivative=derived, method=False, function=False, cost=2 * self.cost, where=self.where,
                domain=[d for d in self.domain if dtypes.is_floating(d)], variants=self.variants, others=self.others,
                patterns=["T" + p for p in self.patterns if "N" not in p])
        op.source = self
        op.short_names = ("g", *self.short_names)
        TABLE.setdefault(name, op)
        for listener in LISTENERS:
            listener(op)
        return op


FACTORIES = []                      # callables (op, arguments) for operators without operands; innermost first
LISTENERS = []                      # told of operators that come to be after import (derived derivatives)


def many(out):
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def location(function):
    code = function.__code__
    return f"{code.co_filename.rsplit('rushlight/')[-1]}:{code.co_firstlineno}"


# ---- the kinds of definition

def declares(kind, layout=None, promote=None, **defaults):
    def declare(schema, *, layout=layout, promote=promote, **given):
        def make(body):
            op = Op(schema, kind, body, layout=layout, promote=promote, **{**defaults, **given})
            if op.name in TABLE:
                raise ValueError(f"[{op.name}] is declared twice: {TABLE[op.name].where} and {op.where}")
            if not op.samples and not op.bottom:
                raise ValueError(f"[{op.name}] needs samples=: without them nothing tests it ({op.where})")
            TABLE[op.name] = op
            return op
        return make
    return declare


scalar = declares("scalar", layouts.broadcast(), promotion.numeric)
rows = declares("rows", promote=promotion.numeric)
affine_view = declares("view")
assemble = declares("assemble", promote=promotion.numeric)
composition = declares("composition", derivative=derived)
# `routine` names the function of csrc/rt that a library call runs; the body checks its arguments and returns what the routine
# is told: ints, static for the call's layouts. `writes`: the operand that output 0 begins as (the in-place twin's output).
# `strided`: the routine takes operands as they lie; others are handed C order.
library = declares("library", promote=promotion.numeric)

__all__ = ["ALL", "FLOATS", "HALVES", "NUMBERS", "RUN", "RUN_TIME", "Arguments", "Op", "affine_view", "assemble", "composition",
           "derived", "library", "many", "none", "rows", "scalar"]
