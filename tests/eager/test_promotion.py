"""Type promotion: every pair of dtypes, every kind of operand, integers at their ends."""

import operator

import pytest

import rushlight as rl

from .both import both, both_do, close, outcome, same

OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
}
NUMBERS = {"bool": True, "int": 3, "float": 2.5}


def of(lib, kind, dtype):
    if kind == "number":
        return NUMBERS[dtype]
    values = [1, 0, 2, 3]
    x = lib.tensor(values if kind == "tensor" else 2).to(getattr(lib, dtype))
    return x


def one_rounding(a, b, context):
    """Of a number over a tensor the oracle takes the reciprocal first, which rounds twice."""
    half = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(str(a.dtype).split(".")[1], 1e-6)
    close(a, b, half, 0, context)


OPERANDS = [("tensor", d) for d in rl.DTYPES] + [("0-dim", d) for d in rl.DTYPES]
OPERANDS += [("number", d) for d in NUMBERS]


def has_no_dtype(*dtypes):
    """float16 and a complex number make PyTorch's ComplexHalf, which is not there."""
    return "float16" in dtypes and any(d.startswith("complex") for d in dtypes)


@pytest.mark.parametrize("left", OPERANDS, ids="-".join)
def test_every_pair(left, oracle):
    for right in OPERANDS:
        if left[0] == right[0] == "number" or has_no_dtype(left[1], right[1]):
            continue
        for name, f in OPERATORS.items():

            def run(lib):
                return f(of(lib, *left), of(lib, *right))

            check = one_rounding if name == "div" and left[0] == "number" else same
            both_do(run, (rl,), (oracle,), check, (name, left, right))


TERNARY = ["where", "maximum", "minimum"]


@pytest.mark.parametrize("name", TERNARY)
def test_other_operators_promote_alike(name, oracle):
    for left in OPERANDS:
        for right in OPERANDS:
            kinds = {left[0], right[0]}
            if name != "where" and "number" in kinds or kinds == {"number"}:
                continue
            if has_no_dtype(left[1], right[1]):
                continue

            def run(lib):
                a, b = of(lib, *left), of(lib, *right)
                if name == "where":
                    return lib.where(lib.tensor([True, False, True, False]), a, b)
                return getattr(lib, name)(a, b)

            both_do(run, (rl,), (oracle,), context=(name, left, right))


UNARY = [
    "neg", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "tanh", "sigmoid",
    "sin", "cos", "relu", "logical_not", "sum", "mean", "amax", "amin", "argmax", "all", "any",
    "square", "max", "min", "norm",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_result_dtypes(name, oracle):
    def check(a, b, context):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1], context
        if name in ("neg", "abs", "sign", "relu", "sum", "amax", "argmax", "logical_not", "square"):
            same(a, b, context)

    for dtype in rl.DTYPES:
        if dtype == "bool" and name in ("sign", "argmax"):
            continue  # refused here and there, the other way round

        def run(lib):
            return getattr(of(lib, "tensor", dtype), name)()

        both_do(run, (rl,), (oracle,), check, (name, dtype))


def test_cat_and_stack_promote(oracle):
    for a in rl.DTYPES:
        for b in rl.DTYPES:
            for name in ("cat", "stack"):

                def run(lib):
                    return getattr(lib, name)([of(lib, "tensor", a), of(lib, "tensor", b)])

                both_do(run, (rl,), (oracle,), context=(name, a, b))


def test_reductions_take_a_dtype(oracle):
    for a in rl.DTYPES:
        for b in rl.DTYPES[1:]:
            if a.startswith("complex") and not b.startswith("complex"):
                continue  # refused here; there the imaginary part is lost, with a warning
            both_do(
                lambda lib: of(lib, "tensor", a).sum(dtype=getattr(lib, b)), (rl,), (oracle,),
                context=("sum", a, b),
            )  # fmt: skip


# ---- integers at their ends


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_wrap_around(dtype, oracle):
    bits = int(dtype.lstrip("uint"))
    high = 2**bits - 1 if dtype == "uint8" else 2 ** (bits - 1) - 1
    low = 0 if dtype == "uint8" else -(2 ** (bits - 1))

    def make(lib):
        return lib.tensor([high, high - 1, low, low + 1, 0, 1], dtype=getattr(lib, dtype))

    for f in (
        lambda x: x + x,
        lambda x: x + 1,
        lambda x: x - 1,
        lambda x: x * x,
        lambda x: x * 3,
        lambda x: -x,
        lambda x: x.abs(),
        lambda x: x.sum(),
        lambda x: x.amax(),
        lambda x: x.amin(),
        lambda x: x.argmax(),
        lambda x: x - x[2],
        lambda x: x**2,
        lambda x: x**3,
        lambda x: x / 3,
        lambda x: x / x[1],
        lambda x: x == x[0],
        lambda x: x > 1,
        lambda x: x < 0.5,
        lambda x: x + 0.5,
        lambda x: x.relu(),
        lambda x: x.float(),
        lambda x: x.double(),
        lambda x: x.int(),
        lambda x: x.byte(),
        lambda x: x.char(),
        lambda x: x.short(),
        lambda x: x.bool(),
        lambda x: x.half(),
        lambda x: x.bfloat16(),
        lambda x: x.clone().add_(1),
        lambda x: x.clone().mul_(2),
    ):
        both_do(lambda lib: f(make(lib)), (rl,), (oracle,), context=dtype)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 300, -1, 2**62, 2**63 - 1])
def test_numbers_that_do_not_fit(number, oracle):
    for dtype in ("uint8", "int32", "int64", "float32"):
        for f in (
            lambda x: x + number,
            lambda x: x * number,
            lambda x: x == number,
            lambda x: x < number,
        ):
            both_do(
                lambda lib: f(lib.ones(3, dtype=getattr(lib, dtype))), (rl,), (oracle,),
                context=(dtype, number),
            )  # fmt: skip


def test_creating_from_numbers_that_do_not_fit(oracle):
    for number in (2**63, -(2**63) - 1, 2**70, 300, -1, 1e40, 1e400, 3.7, -3.7):
        for dtype in (None, "uint8", "int8", "int32", "int64", "float32", "float16"):
            for name in ("tensor", "full", "fill"):
                if name != "tensor" and dtype in (None, "float32") and abs(number) >= 2**63:
                    continue  # ours takes any integer that a float can hold
                if name == "tensor" and dtype in ("uint8", "int8") and number == 300:
                    continue  # wraps around here

                def run(lib):
                    d = getattr(lib, dtype) if dtype else None
                    if name == "tensor":
                        return lib.tensor([number], dtype=d)
                    if name == "full":
                        return lib.full((2,), number, dtype=d)
                    return lib.zeros(2, dtype=d).fill_(number)

                ours, theirs = outcome(run, rl), outcome(run, oracle)
                context = (number, dtype, name)
                assert ours[0] == theirs[0], (context, ours, theirs)
                if ours[0] == "ok":
                    same(ours[1], theirs[1], context)


def test_numbers_beyond_64_bits():
    for number in (2**63, 2**70, -(2**70)):
        for dtype in (rl.uint8, rl.int64):
            with pytest.raises((OverflowError, RuntimeError)):
                rl.ones(3, dtype=dtype) + number
    assert (rl.ones(1) + 2**70).item() == 2.0**70


def test_float_to_integer_conversions(oracle):
    def run(lib, to, source):
        x = lib.tensor([1.9, -1.9, 0.5, -0.5, 100.7, 3.0, -0.0], dtype=getattr(lib, source))
        return x.to(getattr(lib, to))

    for source in ("float16", "bfloat16", "float32", "float64"):
        for to in rl.DTYPES:
            if to == "uint8":
                continue  # negative numbers to unsigned: undefined
            both_do(lambda lib: run(lib, to, source), (rl,), (oracle,), context=(source, to))


def test_division_of_integers(oracle):
    def run(lib):
        x = lib.tensor([7, -7, 0, 1])
        y = lib.tensor([2, 2, 0, 0])
        return x / y

    both_do(run, (rl,), (oracle,))


def test_bool_arithmetic(oracle):
    for f in (
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a == b,
        lambda a, b: a < b,
        lambda a, b: a + 1,
        lambda a, b: a * 2.5,
        lambda a, b: a + True,
        lambda a, b: True + a,
        lambda a, b: a.sum(),
        lambda a, b: a.logical_not(),
        lambda a, b: a.any(),
        lambda a, b: a.all(),
        lambda a, b: a.amax(),
        lambda a, b: a.float() - b.float(),
        lambda a, b: a - b,
        lambda a, b: a - 1,
        lambda a, b: 1 - a,
        lambda a, b: -a,
        lambda a, b: a.clone().add_(b),
        lambda a, b: a.clone().mul_(b),
        lambda a, b: a.clone().add_(1),
    ):

        def run(lib):
            a = lib.tensor([True, False, True, False])
            b = lib.tensor([True, True, False, False])
            return f(a, b)

        both_do(run, (rl,), (oracle,))


def test_results_of_numbers_on_the_left(oracle):
    for number in (True, 3, 2.5):
        for dtype in rl.DTYPES:
            for f in (
                lambda n, x: n + x,
                lambda n, x: n * x,
                lambda n, x: n / x,
                lambda n, x: n == x,
                lambda n, x: n < x,
                lambda n, x: n - x,
            ):
                both_do(
                    lambda lib: f(number, of(lib, "tensor", dtype)), (rl,), (oracle,),
                    one_rounding, (number, dtype),
                )  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_a_number_stands_first(name, dtype, oracle):
    """`6 & x`: there is no kernel with a number in front of these."""
    ours, theirs = both(oracle, [0, 1, 1] if dtype == "bool" else [3, 4, 5], dtype)
    for number in (True, 6, 0):
        same(getattr(operator, name)(number, ours), getattr(operator, name)(number, theirs))


def test_numbers_that_become_bools_are_their_truth():
    """0.5 is True, as in PyTorch: it was cut off to 0."""
    at, mask = rl.tensor([1]), rl.tensor([False, True])
    for made in (
        rl.zeros(2, dtype=rl.bool).index_fill(0, at, 0.5),
        rl.zeros(2, dtype=rl.bool).masked_fill(mask, 0.5),
        rl.zeros(2, dtype=rl.bool).scatter(0, at, 0.5),
        rl.zeros(2, dtype=rl.bool).masked_fill_(mask, rl.tensor(0.25)),
    ):
        assert made.tolist() == [False, True]
    assert rl.zeros(2, dtype=rl.bool).fill_(-0.5).tolist() == [True, True]
    assert rl.full((2,), 0.5, dtype=rl.bool).tolist() == [True, True]
    assert rl.zeros(2, dtype=rl.int64).fill_(1.5).tolist() == [1, 1]
