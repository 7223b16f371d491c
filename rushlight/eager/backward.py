"""Derivative rules -> backward programs. A rule is traced once for a call's layouts and needed
gradients; what its program reads decides what the tape saves.
"""

from rushlight import _core
from rushlight.ops.declare import Arguments, many, none
from rushlight.ops.derivatives import pull_back, record
from rushlight.ops.layouts import dense
from rushlight.ops.recording import NumberSymbol, Recorder, Symbol
from rushlight.ops.values import Value

from . import complexes, program
from .plan import layout_of, named_dtypes, symbols


def make_backward(operator, values, outs, needs):
    """Called by core. Returns None where the operator has no derivative, else (program, saved
    operands, saved outputs, saved parameters, undefined): see docs/native.md."""
    op = operator.declaration
    if op.rule is None or op.rule == none:
        return None
    recorder = Recorder()
    inputs = symbols(recorder, op, values)
    a = Arguments(op, named_dtypes(op, inputs))
    outs = outs if isinstance(outs, tuple) else (outs,)
    results = [Symbol(layout_of(x), recorder, "out") for x in outs]
    gs = [
        Symbol(dense(x.shape, x.dtype, None, x.layout.device), recorder, "g") for x in results
    ]
    operands = flat(op, inputs)
    wants = [bool(needs >> i & 1) for i in range(len(operands))]
    with recorder:
        every = [
            wants[operands.index_of(x)] if isinstance(x, Symbol) else False for _, x in a.operands()
        ]
        if complexes.by_parts(op, values):
            inside, tape = record(lambda: complexes.worked_out(op, a))
            wanted = [x if isinstance(x, Value) else None for _, x in a.operands()]
            grads = pull_back(tape, list(zip(many(inside), gs)), wanted)
            grads = [
                g.to(x.dtype).sum_to(x) if want and g is not None else None
                for (_, x), g, want in zip(a.operands(), grads, every)
            ]
        else:
            grads = op.pull(a, tuple(results), gs, every)
    by_symbol = {id(x): g for (_, x), g in zip(a.operands(), grads)}
    outputs = tuple(by_symbol.get(id(x)) for x in operands)
    used = set()
    for call in program.live(recorder.calls, outputs):
        program.mark(program.arguments_of(call)[0], used)
    program.mark(outputs, used)
    saved_operands = [i for i, x in enumerate(operands) if id(x) in used]
    saved_outs = [i for i, x in enumerate(results) if id(x) in used]
    saved_params = [
        i for i, x in enumerate(inputs) if isinstance(x, NumberSymbol) and id(x) in used
    ]
    registers = (
        gs
        + [operands[i] for i in saved_operands]
        + [results[i] for i in saved_outs]
        + [inputs[i] for i in saved_params]
    )
    return (
        program.build(recorder, registers, outputs),
        saved_operands,
        saved_outs,
        saved_params,
        False,
    )


class flat(list):
    """The tensors in tensor slots, lists flattened; numbers and None are not counted."""

    def __init__(self, op, inputs):
        super().__init__()
        for i in op.tensor_slots:
            v = inputs[i]
            for x in v if isinstance(v, (list, tuple)) else (v,):
                if isinstance(x, Symbol):
                    self.append(x)

    def index_of(self, symbol):
        return next(i for i, x in enumerate(self) if x is symbol)


__all__ = ["_core", "make_backward"]
