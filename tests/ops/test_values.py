"""Pointwise operators on what samples leave out: NaN, infinities, signed zeros, ends of integers;
nothing, one element, repeated and stepped operands. One test an operator.
"""

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops import TABLE

NAN, INF = float("nan"), float("inf")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, INF, -INF, NAN, 1e-3, 40.0]
ENDS = {
    "int64": [0, 1, -1, 7, -7, 2**63 - 1, -(2**63), 3],
    "int32": [0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 3],
    "uint8": [0, 1, 255, 7, 128, 3, 2, 200],
    "bool": [False, True, True, False, True, False, False, True],
}
TOLERANCE = {"float32": 4e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")
# What the oracle's vectors do to special values is not always what its own scalars do.
LOOSE = {"logit": "the oracle's result at its poles depends on its vectors"}
# Integers whose result the oracle leaves to C's undefined behaviour.
FLOATS_ONLY = {"pow", "integer_power", "float_power", "ldexp", "lerp", "addcdiv", *SHIFTS}


# Which of 0 and -0 is the larger is not said; halves are rounded on the way.
UNSIGNED = {"maximum", "minimum", "clamp_min", "clamp_max", "fmax", "fmin", "logaddexp2"}


def operators(count):
    """Public pointwise operators whose required parameters are `count` tensors."""
    for op in TABLE.values():
        required = [p for p in op.parameters if p.default is inspect_missing()]
        if not (op.function and op.method) or op.view or op.outputs > 1 or op.name in LOOSE:
            continue
        file = op.where.partition(":")[0]
        pointwise = op.kind == "scalar" or file.endswith(
            ("pointwise.py", "elementary.py", "rounding.py", "logic.py", "clamping.py")
        )
        if pointwise and len(required) == count and all(p.type == "Tensor" for p in required):
            yield op.name


def inspect_missing():
    from rushlight.ops.schema import MISSING

    return MISSING


UNARY, BINARY = list(operators(1)), list(operators(2))


def array(x):
    x = x.detach()
    return np.array((x.float() if str(x.dtype).endswith("bfloat16") else x).numpy())


def agree(ours, theirs, dtype, context):
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], context
    assert tuple(ours.shape) == tuple(theirs.shape), context
    a, b = array(ours), array(theirs)
    if a.dtype.kind != "f":
        np.testing.assert_array_equal(a, b, err_msg=context)
        return
    rtol = TOLERANCE.get(dtype, 4e-6)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=context)
    if context.split()[0] in UNSIGNED:
        return
    zero = (a == 0) & (b == 0)
    np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), err_msg=context)


def compare(name, oracle, dtype, make):
    """Both sides: the same result, or both refuse."""
    if not hasattr(oracle, name):
        pytest.skip("the oracle has it in nn.functional only")
    found = []
    for lib in (rl, oracle):
        operands = make(lib, getattr(lib, dtype))
        try:
            found.append(getattr(lib, name)(*operands))
        except (RuntimeError, TypeError) as error:
            found.append(error)
    ours, theirs = found
    context = f"{name} {dtype}"
    if isinstance(theirs, Exception):
        return  # the oracle has no kernel for a dtype: ours may
    assert not isinstance(ours, Exception), (context, ours)
    agree(ours, theirs, dtype, context)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name, oracle):
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        compare(name, oracle, dtype, lambda lib, d: (lib.tensor(SPECIAL, dtype=d),))
        compare(name, oracle, dtype, lambda lib, d: (lib.tensor(SPECIAL, dtype=d)[1:2],))
    if name not in FLOATS_ONLY:
        for dtype, values in ENDS.items():
            compare(name, oracle, dtype, lambda lib, d, v=values: (lib.tensor(v, dtype=d),))
    for shape in ((lambda x: x[:0]), (lambda x: x[::3]), (lambda x: x[:1].expand(3, 4))):
        compare(name, oracle, "float32", lambda lib, d, s=shape: (s(lib.tensor(SPECIAL, dtype=d)),))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name, oracle):
    def every_pair(values):
        def make(lib, d):
            x = lib.tensor(values, dtype=d)
            return x.unsqueeze(1), x.unsqueeze(0)

        return make

    for dtype in ("float32", "float64", "float16", "bfloat16"):
        halved = dtype in ("float16", "bfloat16")
        if not (halved and name in ("pow", "float_power", "remainder", "fmod")):
            compare(name, oracle, dtype, every_pair(SPECIAL))
    if name not in FLOATS_ONLY:
        for dtype, values in ENDS.items():
            divides = name in ("floor_divide", "remainder", "fmod")
            values = [v for v in values if v not in (0, -1)] if divides else values
            compare(name, oracle, dtype, every_pair(values))
    for shape in ((lambda x: x[:0]), (lambda x: x[::2]), (lambda x: x[:1].expand(3, 4))):
        compare(
            name,
            oracle,
            "float32",
            lambda lib, d, s=shape: (s(lib.tensor(SPECIAL, dtype=d)), lib.tensor(0.5, dtype=d)),
        )
