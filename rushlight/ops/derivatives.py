"""Reverse mode over operator calls, whatever the kind of value.

Symbols (programs of the eager tape, backward graphs) and loop values (derived kernels) pass through the same lines.
"""
from . import values

TAPES = []                          # the active tapes, outermost first: each call is recorded on all of them


def record(run):
    """(result, the calls made on the way)."""
    tape = []
    TAPES.append(tape)
    try:
        return run(), tape
    finally:
        TAPES[:] = [t for t in TAPES if t is not tape]


def gradients(run, wanted, g=None):
    """Cotangents of the wanted values; one value for one, a tuple for more. `g` defaults to ones."""
    out, tape = record(run)
    grads = pull_back(tape, [(out, g if g is not None else out * 0 + 1)], wanted)
    return grads if len(grads) > 1 else grads[0]


def pull_back(tape, seeds, wanted):
    """Walk the tape backwards from [(output, cotangent)]; None where nothing reached a wanted value."""
    found = {}
    for out, g in seeds:
        if g is not None:
            found[id(out)] = found[id(out)] + g if id(out) in found else g
    keep, active = {id(w) for w in wanted}, {id(w) for w in wanted}
    for _, a, outs in tape:                             # only what depends on the wanted values is walked back
        if any(id(x) in active for x in a.tensors):
            active.update(map(id, outs))
    for op, a, outs in reversed(tape):
        if op.rule == "none" or not any(id(x) in active for x in a.tensors):
            continue
        if any(o is x for o in outs for x in a.tensors):        # 1 * x, as loop values have it, is x: nothing to walk through
            continue
        gs = [found.get(id(o)) if id(o) in keep else found.pop(id(o), None) for o in outs]
        if all(x is None for x in gs):
            continue
        needs = [isinstance(x, values.Value) and id(x) in active for _, x in a.operands()]
        for (_, x), dx in zip(a.operands(), op.pull(a, outs, gs, needs)):
            if dx is not None and isinstance(x, values.Value) and id(x) in active:
                found[id(x)] = found[id(x)] + dx if id(x) in found else dx
    return tuple(found.get(id(w)) for w in wanted)
