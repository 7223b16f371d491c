"""Operator calls of the program -> nodes of the graph, with the layouts that the operators' own
rules give.

An error that a rule finds is looked for again on real tensors of the same layouts: if eager mode
raises it, it is the program's error; if not, the graph breaks.
"""

from __future__ import annotations

import enum
import math
import operator
from dataclasses import replace
from typing import Any

from rushlight import _core, dtypes, eager, sym
from rushlight.eager import ahead, casting, indexing
from rushlight.eager import operators as declared
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx.tracing import gathered, index
from rushlight.ops import TABLE
from rushlight.ops.declare import Arguments, Op, none
from rushlight.ops.layouts import Layout
from rushlight.ops.values import Fake

from .breaks import data_dependent, refuse_complex, unsupported
from .variables.numbers import SymFloat, SymInt, hint
from .variables.tensor import TensorVar

SLOT_OPERATORS = {slot: TABLE[name].native for name, slot in declared.SLOTS.items()}
ERRORS = (RuntimeError, TypeError, ValueError, IndexError)
NOT_ERRORS = (Unsupported, NotImplementedError, CompilerBug, RecursionError)
BASIC_KEYS = (int, slice, type(None), type(...), SymInt)
RANDOM = ("uniform", "normal", "counted_dropout", "bernoulli")


class Cast(Fake):
    """A fake under autocast: what a composition is made of is cast as in the run."""

    __slots__ = ()
    priority = 1.5
    half = "bfloat16"

    @classmethod
    def call(cls, op: Op, a: Arguments) -> Any:
        policy = op.autocast(*a.values) if callable(op.autocast) else op.autocast
        if policy is None and op.kind == "composition":
            return op.define(a.map(lambda _, v: cls(v.layout) if isinstance(v, Fake) else v))
        target = policy and policy_dtype(policy, [v for v in a.tensors if is_narrow(v)], cls.half)
        plain = a.map(lambda _, v: Fake(v.layout) if isinstance(v, Fake) else v)
        if target:
            plain = plain.map(lambda _, v: v.to(target) if is_narrow(v) else v)
        outs = Fake.call(op, plain)
        return (
            tuple(cls(o.layout) for o in outs) if isinstance(outs, tuple) else cls(outs.layout)
        )


class HalfCast(Cast):
    __slots__ = ()
    half = "float16"


def policy_dtype(policy: str, operands: list, half: str) -> str | None:
    """What autocast casts narrow operands to; None where it leaves them."""
    if policy == "off":
        return None
    if policy == "float32" or policy == "promote" and any(v.dtype == "float32" for v in operands):
        return "float32"
    return half


def notice_product(name: str, operands: list[Layout], out: Layout) -> None:
    """Its library is opened while the capture goes on."""
    conv = name.startswith("conv") and len(operands) > 1
    depth = operands[1].shape[1:] if conv else operands[0].shape[-1:]
    ahead.notice(name, operands, math.prod(map(sym.hint, (*out.shape, *depth))))


class Operators:
    """Of `Capture`."""

    # ---- values for nodes and for layout rules

    def argument(self: Any, value: Any) -> Any:
        """A value as an argument of a node. Raises Break for what no node can hold."""
        cls = type(value)
        if cls is TensorVar:
            return self.node_of(value)
        if cls in (SymInt, SymFloat):
            return self.number_node(value)
        if cls in (tuple, list, eager.Size):
            self.fill(value)
            return (list if cls is list else tuple)(self.argument(self.realize(v)) for v in value)
        if cls is slice:
            return slice(*(self.argument(v) for v in (value.start, value.stop, value.step)))
        if cls is dict:
            self.fill(value)
            return {k: self.argument(self.realize(v)) for k, v in value.items()}
        if cls in PLAIN or isinstance(value, (eager.device, eager.Generator, enum.IntEnum)):
            return value
        raise unsupported(f"an operator's argument of type {cls.__name__}", "it cannot be recorded")

    def lower(self: Any, value: Any) -> Any:
        """A value as a layout rule takes it."""
        cls = type(value)
        if cls is TensorVar:
            return Fake(value.layout)
        if cls is SymInt:
            return value.expr
        if cls is SymFloat:
            return value.value
        if isinstance(value, enum.IntEnum):
            return int(value)
        if cls in (tuple, list, eager.Size):
            return (list if cls is list else tuple)(self.lower(self.realize(v)) for v in value)
        if cls is slice:
            return slice(*(self.lower(v) for v in (value.start, value.stop, value.step)))
        return value

    def infer(
        self: Any, native: Any, args: tuple, kwargs: dict, casts: bool = True
    ) -> tuple[Layout, ...]:
        """The layouts of an operator's results. `casts`: not of a write, which autocast leaves
        alone. A call on the same layouts and numbers, as the layers of a model make it, has the
        same ones."""
        key: tuple | None = None
        if not self.symbols and not self.mode & casting.AUTOCAST:
            key = known_by(args), known_by(tuple(kwargs.items())), native
            found = None if None in key else self.inferred.get(key)
            if found is not None:
                return found
        layouts = self.infer_anew(native, args, kwargs, casts)
        if key is not None and None not in key and not self.symbols:
            self.inferred[key] = layouts
        return layouts

    def infer_anew(
        self: Any, native: Any, args: tuple, kwargs: dict, casts: bool
    ) -> tuple[Layout, ...]:
        declaration = native.declaration
        low = [self.lower(a) for a in args]
        named = {k: self.lower(v) for k, v in kwargs.items()}
        if self.mode & casting.AUTOCAST and casts:
            low, named = self.autocast(declaration, low, named)
        flat = [*flatten(low), *flatten(list(named.values()))]
        before = len(self.env.guards)
        try:
            if not any(isinstance(v, Fake) for v in flat):
                outs = Fake.call(declaration, declaration.bind(low, named))
            elif any(isinstance(v, sym.Sym) for v in flat):
                outs = declaration(*gathered_call(declaration, low), **renamed(named))
            else:
                outs = declaration.native(*low, **named)
        except NOT_ERRORS as error:
            raise unsupported(f"operator {declaration.name}", str(error)) from None
        except ERRORS as error:
            raise self.confirmed(native, args, kwargs, error) from None
        except (AttributeError, KeyError, AssertionError, NameError) as error:
            raise unsupported(
                f"operator {declaration.name}", f"its layout rule fails: {error!r}"
            ) from None
        assert len(self.env.guards) >= before
        outs = outs if isinstance(outs, tuple) else (outs,)
        for made in outs:
            refuse_complex(getattr(made, "layout", None))
        if declaration.name in ahead.PRODUCTS:
            operands = [v.layout for v in flat if isinstance(v, Fake)]
            notice_product(declaration.name, operands, outs[0].layout)
        return tuple(o.layout for o in outs)

    def autocast(self: Any, declaration: Any, low: list, named: dict) -> tuple[list, dict]:
        """The operands in the precision that autocast gives them."""
        policy = declaration.autocast
        if callable(policy):
            try:
                policy = policy(*declaration.bind(low, named).values)
            except (TypeError, AttributeError):
                policy = None
        if policy is None and declaration.kind == "composition":  # its parts are cast
            half = self.mode & casting.HALF
            change = lambda v: (HalfCast if half else Cast)(v.layout) if isinstance(v, Fake) else v
            low = [type(v)(map(change, v)) if type(v) in (list, tuple) else change(v) for v in low]
            return low, {k: change(v) for k, v in named.items()}
        if policy is None or policy == "off":
            return low, named
        operands = [v for v in flatten([*low, *named.values()]) if is_narrow(v)]
        half = "float16" if self.mode & casting.HALF else "bfloat16"
        target = policy_dtype(policy, operands, half)

        def cast(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return type(v)(map(cast, v))
            return v.to(target) if is_narrow(v) and v.dtype != target else v

        return [cast(v) for v in low], {k: cast(v) for k, v in named.items()}

    def confirmed(self: Any, native: Any, args: tuple, kwargs: dict, error: Exception) -> Any:
        """The error that eager mode raises for these layouts; a break if it raises none. Its text
        quotes sizes and numbers: those that vary are fixed."""
        mode = _core.mode()
        try:
            _core.set_grad_enabled(False)
            native(*map(self.real, args), **{k: self.real(v) for k, v in kwargs.items()})
        except Exception as real:
            for value in flatten([*args, *kwargs.values()]):
                self.fix_all(value)
            return self.raised(real.with_traceback(None))
        finally:
            _core.set_mode(mode)
        return unsupported(f"operator {native.name}", f"its layout rule says {error}")

    def fix_all(self: Any, value: Any) -> None:
        """A number, or a tensor's sizes, are what they are now."""
        value = self.realize(value)
        if type(value) in (SymInt, SymFloat):
            value.fix()
        elif type(value) is TensorVar:
            for n in (*value.layout.shape, *value.layout.strides):
                if isinstance(n, sym.Sym):
                    self.env.fix(n, int(n))

    def real(self: Any, value: Any) -> Any:
        """A real value of the same kind: tensors of the layout that is known, filled with ones."""
        cls = type(value)
        if cls is TensorVar:
            x = value.layout
            shape = tuple(int(n) for n in x.shape)
            return eager.ones(shape, dtype=getattr(_core, x.dtype))
        if cls in (SymInt, SymFloat):
            return hint(value)
        if cls in (tuple, list, eager.Size):
            return cls(self.real(self.realize(v)) for v in value)
        return value

    # ---- recording

    def record(
        self: Any,
        op: str,
        target: Any,
        args: tuple,
        kwargs: dict | None = None,
        layout: Layout | None = None,
        name: str = "",
    ) -> Any:
        refuse_complex(layout)
        nodes = tuple(self.argument(a) for a in args)
        named = {k: self.argument(v) for k, v in (kwargs or {}).items()}
        node = self.graph.add(op, target, nodes, named, name)
        self.locate(node)
        if layout is not None:
            node.meta["layout"] = layout
        return node

    def result(
        self: Any,
        node: Any,
        layout: Layout,
        inputs: list[TensorVar],
        differentiable: bool = True,
        view: bool = False,
        cls: type = _core.Tensor,
    ) -> TensorVar:
        """The tensor that a node makes: where its inputs are."""
        refuse_complex(layout)
        if self.device != layout.device and any(x.layout.device == self.device for x in inputs):
            layout = replace(layout, device=self.device)
        grads = [x.requires_grad for x in inputs]
        needs: bool | None = False
        if differentiable and self.mode & 1 and dtypes.is_floating(layout.dtype):
            needs = True if True in grads else None if None in grads else False
        family = inputs[0].family if view and inputs else None
        leaf = None if needs is None else not needs
        node.meta["layout"] = layout
        return self.note_made(TensorVar(self, layout, node, cls, needs, leaf, family))

    def call_operator(self: Any, native: Any, args: tuple, kwargs: dict) -> Any:
        """A native operator called by the program."""
        if kwargs.get("out") is not None:
            return self.call_out(native, args, kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        declaration = native.declaration
        args, kwargs = self.whole(args), {k: self.whole(v) for k, v in kwargs.items()}
        self.check_failure(declaration, (args, kwargs))
        if declaration.native is not native:
            return self.call_in_place(native, args, kwargs)
        layouts = self.infer(native, args, kwargs)
        inputs = tensors_in((args, kwargs))
        node = self.record("call_function", native, args, kwargs, name=native.name)
        if declaration.name in RANDOM:
            self.graph.effects = True
        differs = declaration.rule not in (None, none)
        view = declaration.kind in ("view", "composition")
        if declaration.outputs == 1 and len(layouts) == 1:
            out = self.result(node, layouts[0], inputs, differs, view)
            return self.same_input(native, inputs, out)
        outs = []
        for i, layout in enumerate(layouts):
            part = self.graph.add("call_function", operator.getitem, (node, i), name=native.name)
            part.meta["where"] = node.meta["where"]
            outs.append(self.result(part, layout, inputs, differs, view))
        named = native.result
        return tuple(outs) if named is None else named._make(outs)

    def check_failure(self: Any, declaration: Any, operands: Any, writes: bool = False) -> None:
        """A graph that has written an input cannot run again as plain Python. So what may refuse
        elements when it runs stands behind a write (or `writes` itself) only where an error leaves
        nothing undone: no handler waits for it, and nothing is to be replayed."""
        if not (writes or self.graph.writes_inputs):
            return
        if declaration.name not in LOOKS and not declaration.name.startswith("linalg"):
            return
        if declaration.name in ("div", "pow", "fmod", "remainder", "floor_divide") and all(
            dtypes.is_floating(t.layout.dtype) for t in tensors_in(operands)
        ):
            return
        from .side_effects import pending

        if not self.mode_touched and not pending(self):
            if all(f.now.handler is None for f in self.frames):
                return
        raise unsupported(
            f"operator {declaration.name} behind a write to an input",
            "if it refuses its elements, the function could not run again from its start",
        )

    def call_out(self: Any, native: Any, args: tuple, kwargs: dict) -> Any:
        """An operator that writes its results into tensors that exist."""
        out = kwargs["out"]
        kwargs = {k: self.whole(v) for k, v in kwargs.items() if k != "out"}
        args = self.whole(args)
        targets = self.whole(tuple(out)) if isinstance(out, (tuple, list)) else (out,)
        layouts = self.infer(native, args, kwargs, False)
        inputs = tensors_in((args, kwargs))
        differs = native.declaration.rule not in (None, none) and self.mode & 1
        tracked = differs and any(t.requires_grad is not False for t in inputs)
        if tracked or len(targets) != len(layouts) or len(set(map(id, targets))) != len(targets):
            raise unsupported(f"operator {native.name} with out=", "eager mode decides itself")
        for t, layout in zip(targets, layouts):
            if type(t) is not TensorVar:
                raise unsupported(f"operator {native.name} with out=", "of no tensors")
            self.check_write(native.name, t, layout)
        given = targets if isinstance(out, (tuple, list)) else targets[0]
        self.record("call_function", native, args, {**kwargs, "out": given}, name=native.name)
        for t in targets:
            self.wrote(t, [t])
        return out

    def same_input(self: Any, native: Any, inputs: list, out: TensorVar) -> TensorVar:
        return out

    def opaque_call(self: Any, function: Any, args: tuple, kwargs: dict) -> Any:
        """A Python function as one node; it is run on fakes for the layouts of its results."""
        try:
            outs = function(*map(self.lower, args), **{k: self.lower(v) for k, v in kwargs.items()})
        except Exception as error:
            raise unsupported(
                f"{function.__qualname__} in the graph", f"on fakes: {error}"
            ) from None
        node = self.record("call_function", function, args, kwargs, name=function.__name__)
        inputs = tensors_in((args, kwargs))
        if isinstance(outs, Fake):
            return self.result(node, outs.layout, inputs, view=True)
        if not isinstance(outs, tuple) or not all(isinstance(o, Fake) for o in outs):
            raise unsupported(f"{function.__qualname__} in the graph", "it gives no tensors")
        parts = []
        for i, out in enumerate(outs):
            part = self.graph.add("call_function", operator.getitem, (node, i))
            parts.append(self.result(part, out.layout, inputs, view=True))
        return tuple(parts)

    def whole(self: Any, value: Any) -> Any:
        """Arguments with nothing lazy in them."""
        if type(value) is tuple and WHOLE.issuperset(map(type, value)):
            return value
        if type(value) in (list, tuple):
            self.realize_all(value)
            if type(value) is tuple:
                return tuple(self.whole(self.realize(v)) for v in value)
        return self.realize(value)

    def call_in_place(self: Any, native: Any, args: tuple, kwargs: dict) -> Any:
        """An operator that writes its first operand and gives it back."""
        target = args[0] if args else kwargs.get("self", kwargs.get("input"))
        if type(target) is not TensorVar:
            raise unsupported(f"operator {native.name}", "its first operand is no tensor")
        (layout,) = self.infer(native.declaration.native, args, kwargs, False)[:1]
        self.check_write(native.name, target, layout)
        inputs = tensors_in((args, kwargs))
        outside = any(id(m) in self.sources for m in target.family.members)
        self.check_failure(native.declaration, (args, kwargs), outside)
        self.record("call_function", native, args, kwargs, target.layout, native.name)
        differs = native.declaration.rule not in (None, none)
        self.wrote(target, inputs if differs else [target])
        return target

    def check_write(self: Any, name: str, target: TensorVar, layout: Layout) -> None:
        mine = target.layout
        same = layout.rank == mine.rank and all(
            bool(m == n) for m, n in zip(layout.shape, mine.shape)
        )
        castable = _core.can_cast(getattr(_core, layout.dtype), getattr(_core, mine.dtype))
        stretched = any(s == 0 and not n == 1 for n, s in zip(mine.shape, mine.strides))
        leaf = self.mode & 1 and target.requires_grad is not False and target.leaf is not False
        if not same or not castable or stretched or leaf:
            raise unsupported(
                f"in-place operator {name}", "eager mode may refuse this write; it decides itself"
            )

    def wrote(self: Any, target: TensorVar, inputs: list[TensorVar]) -> None:
        """What an in-place write leaves: other tensors over the same memory may now carry a
        gradient too."""
        self.graph.effects = True
        target.family.writer = self.graph.nodes[-1]
        if any(id(m) in self.sources for m in target.family.members):
            self.graph.writes_inputs = True
        elif self.may_alias_input(target):
            self.graph.writes_inputs = True
        grads = [x.requires_grad for x in inputs]
        if not self.mode & 1 or not (True in grads or None in grads):
            return
        known = True in grads and dtypes.is_floating(target.layout.dtype)
        target.requires_grad = True if known or target.requires_grad else None
        target.leaf = False if target.requires_grad else None
        for other in target.family.members:
            if other is not target and other.requires_grad is not True:
                other.requires_grad = other.leaf = None

    def may_alias_input(self: Any, target: TensorVar) -> bool:
        return False

    # ---- Python's operators

    def slot(self: Any, slot: str, function: Any, *operands: Any) -> Any:
        """`a + b` and its like with a tensor among the operands."""
        native = SLOT_OPERATORS.get(slot)
        if native is None:
            return NotImplemented
        if any(isinstance(v, complex) for v in operands):
            raise unsupported("a complex number with a tensor", "complex dtypes are not modelled")
        self.check_failure(native.declaration, operands)
        layouts = self.infer(native, operands, {})
        inputs = tensors_in(operands)
        node = self.record("call_function", function, operands, name=native.name)
        differs = native.declaration.rule not in (None, none)
        return self.result(node, layouts[0], inputs, differs)

    def in_place_slot(self: Any, slot: str, function: Any, target: TensorVar, other: Any) -> Any:
        """`a += b`: in place where Tensor has that slot, else NotImplemented."""
        native = SLOT_OPERATORS.get(slot)
        if native is None or not has_in_place(slot):
            return NotImplemented
        (layout,) = self.infer(native, (target, other), {}, False)[:1]
        self.check_write(f"{slot}_", target, layout)
        self.record("call_function", function, (target, other), None, target.layout, f"{slot}_")
        self.wrote(target, tensors_in((target, other)))
        return target

    # ---- indexing

    def get_item(self: Any, x: TensorVar, key: Any) -> Any:
        keys = key if type(key) is tuple else (key,)
        if not all(type(k) in BASIC_KEYS for k in keys):
            return self.advanced_item(x, key)
        for k in keys:
            if type(k) is slice:
                parts = (k.start, k.stop, k.step)
                if not all(v is None or type(v) in (int, SymInt) for v in parts):
                    raise unsupported("a slice of a tensor", "its bounds are no ints")
        layout = self.sliced(x, keys)
        node = self.record("call_function", operator.getitem, (x, key), layout=layout)
        return self.result(node, layout, [x], view=True)

    def sliced(self: Any, x: TensorVar, keys: tuple) -> Layout:
        low = tuple(self.lower(k) for k in keys)
        try:
            return index(Fake(x.layout), low).layout
        except NOT_ERRORS as error:
            raise unsupported("indexing a tensor", str(error)) from None
        except ERRORS as error:
            key = keys if len(keys) > 1 else keys[0]
            try:
                self.real(x)[self.real(key)]
            except Exception as real:
                raise self.raised(real.with_traceback(None)) from None
            raise unsupported("indexing a tensor", str(error)) from None

    def advanced_item(self: Any, x: TensorVar, key: Any) -> Any:
        """Indices that are no view: the Python function that eager mode runs, interpreted."""
        self.realize_all(key)
        return self.frames[-1].call(indexing.index, (x, key), {})

    def set_item(self: Any, x: TensorVar, key: Any, value: Any) -> None:
        """x[key] = value."""
        keys = key if type(key) is tuple else (key,)
        if not isinstance(value, (TensorVar, int, float, SymInt, SymFloat)):
            raise unsupported("assignment to part of a tensor", "the value is no tensor or number")
        if not all(type(k) in BASIC_KEYS for k in keys):
            self.realize_all(key)
            self.check_write("setitem", x, x.layout)
            if is_mask(key, x) and same_number(value, x):
                self.frames[-1].call(indexing.fill_where, (x, key, value), {})
            else:
                self.frames[-1].call(indexing.assign, (x, key, value), {})
            return
        layout = self.sliced(x, keys)
        if isinstance(value, TensorVar):
            given = value.layout
            fits = given.rank <= layout.rank and all(
                m == 1 or m == n for m, n in zip(reversed(given.shape), reversed(layout.shape))
            )
            if not fits:
                raise unsupported("assignment to part of a tensor", "the shapes do not fit")
        self.check_write("setitem", x, x.layout)
        self.record("call_function", operator.setitem, (x, key, value))
        self.wrote(x, tensors_in((x, value)))


def is_mask(key: Any, x: TensorVar) -> bool:
    return (
        type(key) is TensorVar and key.layout.dtype == "bool" and key.layout.rank == x.layout.rank
    )


def same_number(value: Any, x: TensorVar) -> bool:
    """Whether the value is a tensor without dims, of x's dtype."""
    if type(value) is not TensorVar or value.layout.rank:
        return False
    return bool(value.layout.dtype == x.layout.dtype)


WORDS = (eager.formats.layout, eager.memory_format)
PLAIN = (int, float, bool, str, bytes, complex, type(None), type(...), _core.dtype, *WORDS)
# What looks at elements, and may refuse them, when it runs.
LOOKS = frozenset(
    "div floor_divide remainder fmod pow embedding gather index_select take take_along_dim scatter "
    "index index_write index_put index_add index_copy index_fill index_reduce put masked_scatter "
    "masked_scatter_same scatter_add scatter_reduce cross_entropy_loss "
    "nll_loss one_hot bincount multinomial histc cholesky inverse".split()
)
_in_place: dict[str, bool] = {}


def has_in_place(slot: str) -> bool:
    """Whether Tensor's own in-place slot answers."""
    found = _in_place.get(slot)
    if found is None:
        method = getattr(_core.Tensor, f"__i{slot}__", None)
        one = eager.ones((1, 1), dtype=_core.int64)
        try:
            found = method is not None and method(one, one) is not NotImplemented
        except (TypeError, RuntimeError):
            found = True
        _in_place[slot] = found
    return found


def is_narrow(v: Any) -> bool:
    return isinstance(v, Fake) and v.dtype in casting.NARROW


def known_by(value: Any) -> Any:
    """What a layout rule sees of an argument, to be found by; None where that is not known. 1, 1.0
    and True are three."""
    cls = type(value)
    if cls is TensorVar:
        return value.layout
    if cls in NUMBERS_AND_WORDS:
        return cls, value
    if cls in (tuple, list, eager.Size):
        parts = tuple(map(known_by, value))
        return None if None in parts else (cls, *parts)
    return None


NUMBERS_AND_WORDS = frozenset((int, float, bool, str, type(None), _core.dtype))
WHOLE = NUMBERS_AND_WORDS | {TensorVar, SymInt, SymFloat}


def flatten(values: Any) -> list:
    out = []
    for v in values:
        if isinstance(v, (list, tuple)):
            out += flatten(v)
        else:
            out.append(v)
    return out


def tensors_in(values: Any) -> list[TensorVar]:
    found: list[TensorVar] = []
    add_tensors((values,), found)
    return found


def add_tensors(values: Any, found: list[TensorVar]) -> None:
    for v in values:
        if type(v) is TensorVar:
            found.append(v)
        elif isinstance(v, (list, tuple)):
            add_tensors(v, found)
        elif isinstance(v, dict):
            add_tensors(v.values(), found)


def gathered_call(declaration: Any, args: list) -> tuple:
    """`x.view(2, n)` as `x.view((2, n))`."""
    if not args:
        return ()
    return (args[0], *gathered(declaration, tuple(args[1:])))


def renamed(kwargs: dict) -> dict:
    names = {"input": "self", "axis": "dim", "keepdims": "keepdim"}
    return {names.get(k, k): v for k, v in kwargs.items()}


__all__ = ["Operators", "data_dependent", "flatten", "has_in_place", "tensors_in"]
