"""Native operators from declarations: one for each, with its in-place twin, its Tensor method and
its number slot.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.declare import LISTENERS, MISSING, Op, none

from .results import result_class

SLOTS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "pow": "pow",
    "matmul": "matmul",
    "neg": "neg",
    "positive": "pos",
    "abs": "abs",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "invert",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
}
NO_INPLACE_SLOT = frozenset("matmul neg positive abs bitwise_not eq ne lt le gt ge".split())
REQUIRED = ...  # core's mark for a parameter without a default
# PyTorch's in-place methods, without their underscore: of these operators the twin is one too.
IN_PLACE = frozenset(
    """
    abs acos acosh add addbmm addcdiv addcmul addmm addmv addr asin asinh atan atan2 atanh baddbmm
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
    clamp_max clamp_min copysign cos cosh cumprod cumsum deg2rad digamma div eq erf erfc erfinv exp
    exp2 expm1 float_power floor floor_divide fmod frac gcd ge gt heaviside hypot i0 index_add
    index_copy index_fill index_put index_reduce lcm ldexp le lerp lgamma log log10 log1p log2
    logical_and logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul
    nan_to_num ne neg nextafter pow put rad2deg reciprocal relu remainder renorm round
    rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt square sub tan tanh
    tril triu trunc xlogy
    """.split()
)
# Others that are written in place, by `nn.functional`.
WRITTEN = frozenset(("celu", "relu6", "selu"))
# Other names of an operator.
ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "divide": "div",
    "true_divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "moveaxis": "movedim",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
    "swapdims": "swapaxes",
}


def has_twin(op):
    """Whether there is an in-place form: a method of Tensor, or for this room and nn alone."""
    alone = op.kind == "scalar" and op.tensor_slots and op.outputs == 1
    return bool(alone or has_method(op) or op.name in WRITTEN)


def has_method(op):
    """Whether `name_` is a method of Tensor."""
    return bool(op.name in IN_PLACE or op.writes)


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


def named(name, result=None, fields=("values", "indices")):
    """The operator of this name, whose results are a named tuple from now on, as PyTorch's."""
    native = TABLE[name].native or make(TABLE[name])
    native.result = result_class(result or name, *fields)
    return native


def install():
    """Make every operator; give Tensor its methods and number slots."""
    Op.native_dtype = staticmethod(lambda name: getattr(_core, name))
    for op in list(TABLE.values()):
        if op.native is None:
            make(op)
        if has_twin(op):
            op.native.make_inplace()
    LISTENERS.append(make)
    for op in TABLE.values():
        if op.method and op.tensor_slots and op.tensor_slots[0] == 0:
            _core.set_method(op.name, op.native)
            if has_method(op):
                _core.set_method(op.name + "_", op.native.inplace)
    for alias, name in ALIASES.items():
        _core.set_method(alias, TABLE[name].native)
        if name in IN_PLACE:
            _core.set_method(alias + "_", TABLE[name].native.inplace)
    for name, slot in SLOTS.items():
        _core.set_slot(slot, TABLE[name].native)
        if name not in NO_INPLACE_SLOT:
            _core.set_slot("i" + slot, TABLE[name].native.inplace)
    _core.set_slot("copy_", TABLE["copy"].native.inplace)  # assignments that the tape must see
    _core.set_slot("index", TABLE["index"].native)
