"""First sight of a call: declaration and arguments -> a recipe (one kernel or library call) or a
program of calls.

Core asks here once for each operator, dtypes, ranks and structural arguments (recipes) or layouts
(programs), and remembers.
"""

from rushlight import _core, dtypes
from rushlight.loops.lower import numbers_of, signature
from rushlight.ops import TABLE
from rushlight.ops.declare import HALVES, MISSING, Arguments, derived, many, none
from rushlight.ops.flash import SPELLED
from rushlight.ops.layouts import Layout
from rushlight.ops.recording import NumberSymbol, Recorder, Symbol, hinted
from rushlight.ops.values import Fake
from rushlight.reasons import refuse

from . import complexes, program

COUNTED = ("uint8", "int8", "int16", "int32")
AUTOCAST = 2  # docs/native.md, mode word


def make_plan(operator, values, needs):
    """Called by core. `values`: the bound arguments with real tensors; `needs`: mask of operands
    that require grad.
    """
    op = operator.declaration
    if op.autocast and _core.mode() & AUTOCAST and (plan := casting_plan(op, values)):
        return plan
    if any(map(complexes.is_complex, values)):
        if op.name in complexes.REFUSED:
            complexes.unsupported(op, "complex64")
        if complexes.planned_apart(op, values):
            return complexes.make_plan(op, values)
        if op.name in complexes.COPIES:
            return copied(op, values)
    recorder = Recorder()
    inputs = symbols(recorder, op, values)
    a = Arguments(op, named_dtypes(op, inputs))
    if op.kind in ("scalar", "rows", "library", "assemble") and on_meta(a):
        return layouts_only(op, a)
    if op.kind in ("scalar", "rows"):
        return leaf(recorder, op, a, inputs)
    if op.kind == "library":
        return library(recorder, op, a, inputs)
    if op.kind == "assemble" and (recipe := assembly(op, a)):
        return recipe
    with recorder:
        if op.kind == "assemble":
            changed = converted(op, a)
            out = recorder.assemble(op, changed)
        else:
            out = op.body(*a.values)
    apart = op.rule not in (None, none) and complexes.by_parts(op, values)
    return program.build(recorder, inputs, out, transparent=op.rule is derived or apart)


def copied(op, values):
    """A copy of whole elements (complex ones): native, with a cast on the way."""
    recorder = Recorder()
    a = Arguments(op, named_dtypes(op, symbols(recorder, op, values)))
    if on_meta(a):
        return layouts_only(op, a)
    _, (result,) = op.dtypes(a)
    (layout,) = op.infer(a)
    dtype = getattr(_core, result)
    source = len(a.tensors) - 1  # of two operands the second is what is copied
    piece = (source, None, layout.shape, layout.strides, 0)
    return _core.AssemblyRecipe((layout.shape, layout.strides, dtype), (piece,))


def on_meta(a):
    if a.tensors:
        return a.device == "meta"
    return _core.creation_device().type == "meta"


def device_of(a):
    return a.device if a.tensors else str(_core.creation_device())


def on_cuda(a):
    return device_of(a).startswith("cuda")


def accelerator():
    from . import accelerator

    return accelerator


def layouts_only(op, a):
    """The plan on the meta device: the outputs' layouts by the layout rule, and nothing to run."""
    a = hinted(a)
    best, results = op.dtypes(a)
    if op.kind != "assemble":
        converted(op, a)  # for what it refuses
    if op.kind == "library" and not op.routine:
        check_product(op, a, best)
    layouts = op.infer(a)
    return _core.MetaRecipe(
        tuple((x.shape, x.strides, getattr(_core, d)) for x, d in zip(layouts, results))
    )


def casting_plan(op, values):
    from .casting import cast_program

    return cast_program(op, values)


def symbols(recorder, op, values):
    """Tensors become symbols; run-time numbers become number symbols, unless they are at their
    default.
    """
    out = []
    for p, v in zip(op.parameters, values):
        if isinstance(v, _core.Tensor):
            out.append(Symbol(layout_of(v), recorder, p.name))
        elif p.type == "Tensor[]":
            out.append([Symbol(layout_of(x), recorder, f"{p.name}[{i}]") for i, x in enumerate(v)])
        elif (
            (p.is_tensor or p.is_run_time)
            and p.name not in op.structural
            and isinstance(v, (bool, int, float, complex))
            and not (p.default is not MISSING and type(v) is type(p.default) and v == p.default)
        ):
            out.append(NumberSymbol(recorder, v, p.name))
        else:
            out.append(v)
    return out


def layout_of(x):
    return Layout(tuple(x.shape), tuple(x.stride()), x.dtype.name, 0, str(x.device))


def named_dtypes(op, values):
    return [v.name if isinstance(v, _core.dtype) else v for v in values]


def converted(op, a):
    """Operands that take part, brought to the storage dtype; indices and conditions to the dtype
    their kernel takes.
    """
    best, _ = op.dtypes(a)

    def change(name, v):
        if isinstance(v, NumberSymbol) or not isinstance(v, Symbol):
            return v
        if op.promote.takes_part(name):
            return v.to(best)
        other = op.others.get(name)
        other = dtypes.opmath(best) if other == "opmath" else other
        if other is None or v.dtype == other:
            return v
        return v.to(other)

    return a.map(change)


def leaf(recorder, op, a, inputs):
    best, results = op.dtypes(a)
    changed = converted(op, a)
    if any(x is not y for (_, x), (_, y) in zip(a.operands(), changed.operands())):
        return program.build(recorder, inputs, recorder.record(op, changed))
    key = signature(op, best, changed.values)
    if _core.kernel_find(key) is None:
        return expanded(recorder, op, a, inputs, best)
    op.infer(a)  # shapes that do not fit are told of here, by the rule itself
    rule, rows, kinds, outs = op.layout.native(changed, op.outputs)
    sizes = op.position.get(getattr(op.layout, "size", None))
    nonempty = getattr(op.layout, "nonempty", False)  # checked by core for layouts to come
    return _core.Recipe(
        on_cuda(a) and accelerator().kernel_for(key, device_of(a)) or key,
        rule,
        rows,
        kinds,
        outs,
        tuple(getattr(_core, d) for d in results),
        handed(op, best, changed.values),
        sizes,
        nonempty,
    )


def handed(op, best, values):
    """The run-time numbers of a recipe; what becomes a bool is its truth (0.5 is True)."""
    return tuple(
        (i, "b" if kind == "i" and best == "bool" and op.parameters[i].type != "SymInt" else kind)
        for i, kind in numbers_of(op, best, values)
    )


def expanded(recorder, op, a, inputs, best):
    """No precompiled kernel for these dtypes: half types go through float32, other calls through
    the definition's own calls, one after another.
    """
    if best in HALVES and "float32" in op.domain and best not in op.domain:
        return widened(recorder, op, a, inputs, best)
    if counted(op, a, best):
        return widened(recorder, op, a, inputs, best, "int64")
    if op.kind == "scalar" and op.bottom:
        raise NotImplementedError(f'[{op.name}] "{op.name}" not implemented for {best!r}')
    refuse("eager.composition", op.name, f"no precompiled kernel {signature(op, best, a.values)}")
    with recorder:
        out = recorder.inside(op, a)
    if any(c.op is op for c in recorder.calls):
        if best in op.domain and takes_numbers(op) and any(is_number(v) for _, v in a.operands()):
            recorder.calls.clear()
            return filled(recorder, op, a, inputs, best)
        raise NotImplementedError(f'[{op.name}] "{op.name}" not implemented for {best!r}')
    return program.build(recorder, inputs, out, transparent=op.rule is derived)


def counted(op, a, best):
    """Whether a sum or product is wanted in an integer dtype (`dtype=`) that has no kernel: int64's
    has the same low bits.
    """
    asked = getattr(op.promote, "by", None) and a.get(op.promote.by, None)
    return bool(asked) and best in COUNTED and best not in op.domain and "int64" in op.domain


def takes_numbers(op):
    return any("N" in pattern for pattern in op.patterns)


def is_number(v):
    return isinstance(v, (bool, int, float, NumberSymbol))


def filled(recorder, op, a, inputs, best):
    """A number where only tensors have a kernel (`2 & x`): it becomes a tensor without dims."""
    full = TABLE["full"]
    with recorder:
        out = op(*a.map(lambda name, v: full((), v, dtype=best) if is_number(v) else v).values)
    return program.build(recorder, inputs, out)


def assembly(op, a):
    """The assembly as places in the output and what goes there; None where a run-time number says
    where, or where a piece is computed on the way: then it runs as a program.
    """
    if any(isinstance(v, NumberSymbol) for v in a.values):
        return None
    (layout,) = op.infer(a)
    operands = [x for _, x in a.operands() if isinstance(x, Symbol)]
    found = {id(x): i for i, x in enumerate(operands)}
    pieces = []
    for view, value in op.body(*a.values):
        place = view(Fake(layout)).layout
        if place.dtype != layout.dtype:  # the parts of complex numbers
            return None
        if isinstance(value, Symbol) and id(value) in found:
            entry = (found[id(value)], None)
        elif isinstance(value, (bool, int, float)):
            entry = (-1, value)
        else:
            return None
        pieces.append((*entry, place.shape, place.strides, place.offset))
    return _core.AssemblyRecipe(
        (layout.shape, layout.strides, getattr(_core, layout.dtype)), tuple(pieces)
    )


def widened(recorder, op, a, inputs, best, wide_dtype="float32"):
    """The call in float32, which is what half types compute in: operands cast up, outputs down."""
    _, results = op.dtypes(a)
    up = lambda name, v: v.to(wide_dtype) if wide_operand(op, name, v, best) else v
    asked = lambda p, v: p.type.startswith("ScalarType") and v == best  # the result's dtype
    with recorder:
        values = zip(op.parameters, a.map(up).values)
        wide = op(*(wide_dtype if asked(p, v) else v for p, v in values))
        outs = [o.to(d) for o, d in zip(many(wide), results)]
    return program.build(recorder, inputs, tuple(outs) if isinstance(wide, tuple) else outs[0])


def wide_operand(op, name, v, best):
    return isinstance(v, Symbol) and v.dtype == best and op.promote.takes_part(name)


def routine(recorder, op, a, inputs):
    """A routine of csrc/rt: operands in the dtypes it takes, its ints, the outputs' layouts."""
    best, results = op.dtypes(a)
    if best not in op.domain:
        if best in HALVES and "float32" in op.domain:
            return widened(recorder, op, a, inputs, best)
        raise NotImplementedError(f'[{op.name}] "{op.name}" not implemented for {best!r}')
    changed = converted(op, a)
    if any(x is not y for (_, x), (_, y) in zip(a.operands(), changed.operands())):
        return program.build(recorder, inputs, recorder.record(op, changed))
    told = op.body(*a.values)  # checks its arguments
    kernel = accelerator().whole_kernel(op, a) if on_cuda(a) else None
    if kernel is None and (on_cuda(a) or op.name in SPELLED):
        from .composed import composed

        if (out := composed(recorder, op, a)) is not None:
            return program.build(recorder, inputs, out)
        accelerator().told_of_host(op, a)
    operands = [x for _, x in a.operands() if isinstance(x, Symbol)]
    writes = -1
    if op.writes:
        writes = next(i for i, x in enumerate(operands) if x is a[op.writes])
    layouts = op.infer(a)
    return _core.RoutineRecipe(
        op.routine,
        tuple((x.shape, x.strides, getattr(_core, d)) for x, d in zip(layouts, results)),
        tuple(told or ()),
        handed(op, best, changed.values),
        writes,
        op.strided,
        kernel,
    )


def check_product(op, a, best):
    """What a product takes: operands of one dtype, but bool."""
    for _, x in a.operands():
        if x.dtype != best:
            raise RuntimeError(
                f"[{op.name}] expected all operands to have the same dtype, but got: "
                f"{', '.join(f'{n} {v.dtype}' for n, v in a.operands())}"
            )
    if best == "bool":
        raise NotImplementedError(f"[{op.name}] \"{op.name}\" not implemented for 'bool'")


def library(recorder, op, a, inputs):
    if op.routine:
        return routine(recorder, op, a, inputs)
    op.infer(a)
    best, _ = op.dtypes(a)
    check_product(op, a, best)
    if on_cuda(a):
        accelerator().told_of_host(op, a)
    at = op.position
    given = lambda name: at[name] if name in at and not a.is_default(at[name]) else None
    if "mat1" in at:
        return _core.GemmRecipe(
            at["mat1"], at["mat2"], at["self"], given("alpha"), given("beta"), getattr(_core, best)
        )
    return _core.GemmRecipe(at["self"], at["mat2"], None, None, None, getattr(_core, best))
