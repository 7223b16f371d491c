"""Native operators from declarations: one for each, with its in-place twin, its Tensor method and
its number slot.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.declare import LISTENERS, MISSING, Op, none

SLOTS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "neg": "neg",
    "matmul": "matmul",
    "abs": "abs",
    "pow": "pow",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "bitwise_and": "and",
    "bitwise_or": "or",
}
REQUIRED = ...  # core's mark for a parameter without a default
IN_PLACE = ("scalar",)  # kinds whose in-place twin is a method of Tensor


def has_twin(op):
    return bool(op.kind in IN_PLACE and op.tensor_slots and op.outputs == 1 or op.writes)


def make(op):
    """The native operator of one declaration."""
    params = tuple(
        (
            p.name,
            p.kind + ("!" if p.name in op.structural else ""),
            REQUIRED if p.default is MISSING else p.default,
            p.keyword_only,
        )
        for p in op.parameters
    )
    op.native = _core.Operator(
        op.name,
        params,
        op.kind,
        op,
        outputs=op.outputs,
        view=op.view,
        differentiable=op.rule not in (None, none),
    )
    return op.native


def install():
    """Make every operator; give Tensor its methods and number slots."""
    Op.native_dtype = staticmethod(lambda name: getattr(_core, name))
    for op in list(TABLE.values()):
        make(op)
        if has_twin(op):
            op.native.make_inplace()
    LISTENERS.append(make)
    for op in TABLE.values():
        if op.method and op.tensor_slots and op.tensor_slots[0] == 0:
            _core.set_method(op.name, op.native)
            if has_twin(op):
                _core.set_method(op.name + "_", op.native.inplace)
    for name, slot in SLOTS.items():
        if name in TABLE:
            _core.set_slot(slot, TABLE[name].native)
            if name in ("add", "sub", "mul", "div"):
                _core.set_slot("i" + slot, TABLE[name].native.inplace)
    _core.set_slot("copy_", TABLE["copy"].native.inplace)  # assignments that the tape must see
