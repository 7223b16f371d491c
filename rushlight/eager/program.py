"""Recorded calls -> a native program: operator calls on registers, which core runs without entering
Python.
"""

from rushlight import _core
from rushlight.ops.recording import HOST, NumberSymbol, Symbol


def build(recorder, inputs, outputs, transparent=False):
    """`inputs`: for each register, the symbol it holds (or None, or a tuple of symbols for a list);
    `outputs`: values.

    Calls whose results nobody needs are left out. Raises TypeError for a value that no register
    holds.
    """
    known = {}
    for i, x in enumerate(inputs):
        if isinstance(x, (list, tuple)):
            known.update({id(e): ("i", i, k) for k, e in enumerate(x)})
        elif x is not None:
            known.setdefault(id(x), ("r", i))
    count, instructions = len(inputs), []
    for call in live(recorder.calls, outputs):
        values, parameters = arguments_of(call)
        if call.op == "copy_":
            values, parameters = (*values, False), (None,) * 3  # non_blocking
        spec = tuple(entry(v, p, known) for v, p in zip(values, parameters))
        registers = []
        for out in call.outs:
            known[id(out)] = ("r", count)
            registers.append(count)
            count += 1
        instructions.append((target(call.op), spec, tuple(registers)))
    result = (
        tuple(entry(o, None, known) for o in outputs)
        if isinstance(outputs, (tuple, list))
        else entry(outputs, None, known)
    )
    return _core.Program(len(inputs), instructions, result, transparent)


def live(calls, outputs):
    """The calls that the outputs depend on, in order; writes into what is needed are needed."""
    needed, kept = set(), []
    mark(outputs, needed)
    for call in reversed(calls):
        values, _ = arguments_of(call)
        writes = call.op in ("copy_", "fill_") and wanted(values[0], calls, needed)
        if writes or any(id(o) in needed for o in call.outs):
            kept.append(call)
            mark(values, needed)
    return kept[::-1]


def part(program, bits):
    """`program` for the outputs of these bits: the others are None, and what only they need does
    not run. Its inputs stay as they are."""
    outputs = tuple(o if bits >> i & 1 else ("c", None) for i, o in enumerate(program.outputs))
    makers = {r: call for call in program.instructions for r in call[2]}
    writes = (target("copy_"), target("fill_"))
    needed, kept = registers_of(outputs), []
    for call in reversed(program.instructions):
        callee, spec, outs = call
        writes_needed = callee in writes and needed & memory(spec[0], makers)
        if writes_needed or needed.intersection(outs):
            kept.append(call)
            needed |= registers_of(spec)
    return _core.Program(program.ninputs, kept[::-1], outputs, program.transparent)


def registers_of(entries):
    found = set()
    for e in entries:
        if e[0] == "l":
            found |= registers_of(e[1])
        elif e[0] in "ri":
            found.add(e[1])
    return found


def memory(entry, makers):
    """The registers of a view and of what it is a view of."""
    found = registers_of([entry])
    for r in tuple(found):
        callee, spec, _ = makers.get(r, (None, (), ()))
        if getattr(getattr(callee, "declaration", None), "kind", "") == "view":
            found |= memory(spec[0], makers)
    return found


def wanted(view, calls, needed):
    """Whether the memory that a write goes to belongs to something needed: walk up the views."""
    if id(view) in needed:
        return True
    maker = next((c for c in calls if any(o is view for o in c.outs)), None)
    return (
        maker is not None
        and not isinstance(maker.op, str)
        and maker.op.kind == "view"
        and wanted(maker.arguments.values[0], calls, needed)
    )


def mark(v, needed):
    if isinstance(v, (list, tuple)):
        for x in v:
            mark(x, needed)
    elif isinstance(v, (Symbol, NumberSymbol)):
        needed.add(id(v))


def arguments_of(call):
    if isinstance(call.op, str):
        return call.arguments, (None,) * len(call.arguments)
    return call.arguments.values, call.op.parameters


def target(op):
    """What core calls: a native operator, a creation function, or the name of a host operation on
    numbers.
    """
    if not isinstance(op, str):
        return native(op)
    if op in ("empty", "empty_strided"):
        return getattr(_core, op)
    if op in ("copy_", "fill_"):
        from rushlight.ops import TABLE

        return native(TABLE[op[:-1]]).inplace
    if op in ("real_part", "imaginary_part"):
        return HOST[op]
    return op


def native(op):
    if op.native is None:
        from .operators import make

        make(op)
    return op.native


def entry(v, parameter, known):
    if id(v) in known and isinstance(v, (Symbol, NumberSymbol)):
        return known[id(v)]
    if isinstance(v, (Symbol, NumberSymbol)):
        raise TypeError(f"no register holds {v!r}")
    if isinstance(v, (list, tuple)) and any(isinstance(x, (Symbol, NumberSymbol)) for x in v):
        return ("l", tuple(entry(x, None, known) for x in v))
    if (
        isinstance(v, str)
        and (parameter is None or parameter.kind.startswith("dtype"))
        and hasattr(_core, v)
    ):
        return ("c", getattr(_core, v))
    return ("c", v)
