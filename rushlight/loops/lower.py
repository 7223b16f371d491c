"""An operator call -> its shape-generic kernel: sizes, strides and numbers are run-time arguments.

The kernel's loops are canonical (three outer for scalar bodies, two outer and two inner for row bodies); csrc/rt/loops.cpp
coalesces any call to them. `signature` is the key under which a kernel is built, found and shared.
"""
from rushlight import dtypes
from rushlight.ops.declare import Op, many

from .expr import (
    ARENAS,
    Apply,
    Axis,
    Buffer,
    Const,
    Element,
    ElementAt,
    Expr,
    Kernel,
    Load,
    Put,
    Scalar,
    Store,
    arena,
    memo,
    postorder,
    simplify,
    substitute,
    traced,
)
from .nest import sections

OUTER = {"scalar": ("i0", "i1", "i2"), "rows": ("i0", "i1")}
INNER = {"scalar": (), "rows": ("k0", "k1")}
DEVICE_OUTER = {"scalar": ("i0", "i1", "i2", "i3", "i4"), "rows": ("i0", "i1", "i2", "i3")}     # a launch costs more than an axis


class Operand:
    """A typed stand-in for a tensor operand, at build time: enough for promotion and for naming."""
    __slots__ = ("dtype", "rank", "tier")

    def __init__(self, dtype):
        self.dtype, self.rank, self.tier = dtype, 1, 2


class Run:
    """A run-time number in an argument list."""
    __slots__ = ("kind", "dtype", "rank", "tier")

    def __init__(self, kind):
        self.kind = kind
        self.dtype = {"f": dtypes.DEFAULT, "i": "int64"}[kind]
        self.rank, self.tier = 0, 0


def signature(op: Op, best, values):
    """The kernel's key: operator, storage dtype, a letter a tensor slot (T tensor, N number, 0 absent), then what else a
    kernel is specialised to. `values`: bound arguments, run-time numbers as numbers or Run."""
    pattern, extras = "", []
    for p, v in zip(op.parameters, values):
        if p.is_tensor:
            pattern += "0" if v is None else "N" if is_number(v) else "T"
            if v is not None and not is_number(v) and op.promote and not op.promote.takes_part(p.name) and v.dtype != best:
                extras.append(f"{p.name}:{v.dtype}")
        elif p.is_run_time and p.name not in op.structural:
            if not constant(p, v):
                extras.append(f"{p.name}:{number_kind(op, p, best)}")
        elif isinstance(v, str) and p.kind.startswith("str") and p.name != "memory_format":     # that is the layout's
            extras.append(f"{p.name}={v}")
        elif p.kind.startswith("dtype") and v is not None and v != best:
            extras.append(f"{p.name}={v}")
        elif isinstance(v, bool) and p.name not in ("keepdim", "half_to_float"):
            extras.append(f"{p.name}={v}")
    return ".".join([op.name, best, pattern, *extras])


def is_number(v):
    return isinstance(v, (bool, int, float, Run)) or getattr(v, "tier", None) == 0


def constant(p, v):
    """A run-time number left at its default is a constant of the kernel."""
    return not isinstance(v, Run) and type(v) is type(p.default) and v == p.default


def number_kind(op, p, best):
    """How a run-time number is handed over: "f" (double) where the kernel computes in floating point."""
    kind = p.type.rstrip("?")
    if kind == "float":
        return "f"
    if kind == "SymInt":
        return "i"
    return "f" if dtypes.is_floating(best) else "i"


def numbers_of(op, best, values):
    """[(parameter index, kind)] of the run-time numbers that the kernel takes, in order."""
    out = []
    for i, (p, v) in enumerate(zip(op.parameters, values)):
        if p.is_tensor and v is not None and not isinstance(v, (list, tuple)) and is_number(v):
            out.append((i, "f" if dtypes.is_floating(best) else "i"))
        elif p.is_run_time and p.name not in op.structural and v is not None and not constant(p, v):
            out.append((i, number_kind(op, p, best)))
    return out


def device_outer(op: Op):
    """The outer axes of a GPU kernel; a table's are its two groups."""
    return OUTER["rows"] if op.layout.rule in ("table", "into_table") else DEVICE_OUTER[op.kind]


def generic(op: Op, best, values, results, outer=None):
    """The kernel of one signature. `values`: Operand, Run, None or structural; `results`: dtype of each output."""
    outer = OUTER[op.kind] if outer is None else outer
    axes = outer + INNER[op.kind]
    with arena() as here:
        here.stack.append((op.name, op.where))
        loads, buffers, numbers = list(values), [], []
        for i, kind in numbers_of(op, best, values):
            name = f"s{len(numbers)}"
            numbers.append((name, kind))
            p = op.parameters[i]
            loads[i] = Scalar(name, "int64" if p.type.startswith("SymInt") else compute_dtype(best, kind))
        for i, (p, v) in enumerate(zip(op.parameters, values)):
            if isinstance(v, Operand):
                per_row = op.layout.is_per_row(p.name)
                name = f"x{len(buffers)}"
                buffers.append(Buffer(name, v.dtype, per_row, False, p.name in op.layout.across))
                loads[i] = Load(name, terms(name, axes, per_row), v.dtype)
        a = op.bind(loads)
        outs = [e if isinstance(e, Expr) else Const(e, d) for e, d in zip(many(op.define(a, (best, results))), results)]
        stores = []
        for i, e in enumerate(outs):
            per_row = op.layout.row_output(i)
            name = f"y{i}"
            buffers.append(Buffer(name, e.dtype, per_row, True, False))
            stores.append(store(name, terms(name, axes, False), terms(name, axes, per_row), place(simplify(e), axes)))
        extent = Apply("mul", (Scalar("n_k0", "int64"), Scalar("n_k1", "int64")), "int64")
        body = sections(stores, extent, op.kind == "rows")
        sizes = lambda names: tuple((x, f"n_{x}") for x in names)
        return Kernel(signature(op, best, values), tuple(buffers), sizes(outer), sizes(INNER[op.kind]), body,
                      tuple(numbers), (), dict(here.origins))


def compute_dtype(best, kind):
    wide = dtypes.opmath(best)
    return wide if dtypes.is_floating(wide) == (kind == "f") else {"f": "float64", "i": "int64"}[kind]


def terms(buffer, axes, per_row):
    return tuple((Axis(x, "int64"), f"{buffer}_{x}") for x in axes if not (per_row and x[0] == "k"))


def store(buffer, full, where, value):
    """A store; a Put goes to the row's place `index`, added up."""
    if not isinstance(value, Put):
        return Store(buffer, where, value)
    moved = tuple((value.index if e.name == "k1" else e, s) for e, s in full if e.name != "k0")
    return Store(buffer, moved, value.value, "add")


def place(e, axes, strides=None):
    """Element() becomes the logical position: an address in the C-ordered full shape, plus the call's base."""
    if not any(isinstance(x, (Element, ElementAt)) for x in postorder([e])):
        return e
    total = Scalar("e_base", "int64")
    for x in axes:
        stride = Scalar(f"e_{x}", "int64") if strides is None else Const(strides[x], "int64")
        total = Apply("add", (total, Apply("mul", (Axis(x, "int64"), stride), "int64")), "int64")
    element = Element("int64")

    def change(e, look):
        if isinstance(e, ElementAt):
            return substitute(total, {Axis("k0", "int64"): Const(0, "int64"), Axis("k1", "int64"): look(e.index)})
        return total if e is element else traced(e.rebuilt(look), e)
    return memo(change)(e)


__all__ = ["ARENAS", "Operand", "Run", "generic", "numbers_of", "signature"]
