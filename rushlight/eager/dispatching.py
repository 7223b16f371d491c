"""Calls that are not eager ones: on fakes, recorded symbols and loop values; and every call while a
graph is recorded.
"""

from rushlight.ops.declare import FACTORIES
from rushlight.ops.values import Value


def dispatch(operator, values, out):
    """A call with a value that is no tensor (a fake, a recorded symbol, a loop value), or any call
    while a graph is recorded: the declaration takes it; a write goes to the recorder.
    """
    op = operator.declaration
    a = op.bind(values)
    if out is None and operator is op.native:
        if FACTORIES and not any(isinstance(v, Value) for v in a.tensors):
            return FACTORIES[0](op, a)
        return op(*values)
    return recorder_of(a, out).write(op, a, out)


def recorder_of(a, out):
    """Who follows a write: the recorder of what is written to, or of an operand."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for v in (*outs, *a.tensors):
        if hasattr(v, "recorder"):
            return v.recorder
    if FACTORIES:
        return FACTORIES[0].__self__
    raise TypeError(f"[{a.op_name}] only tensors can be written to in place")
