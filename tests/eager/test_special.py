"""NaN, infinities, signed zeros, denormals, empty and tied rows: as the oracle, value and sign."""

import math

import numpy as np
import pytest

import rushlight as rl

from .both import both_do, close, numpy_of, outcome, raises, same

NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -2.5, 1e-3, 30.0, -100.0, 89.0, 1e10, -1e10]
EDGES = {
    "float32": [1e-45, -1e-45, 1.1754942e-38, -1.1754944e-38, 3.4028235e38, -3.4028235e38],
    "float64": [5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1e308],
    "float16": [6e-8, -6e-8, 6.1e-5, 65504.0, -65504.0],
    "bfloat16": [1e-40, -1e-40, 1.2e-38, 3.3e38, -3.3e38],
}
TOLERANCE = {"float32": 5e-7, "float64": 2e-15, "float16": 2e-3, "bfloat16": 1.6e-2}
EXACT = ("neg", "abs", "sign", "relu", "sqrt", "reciprocal", "logical_not", "square", "clone")
UNARY = (
    *EXACT, "exp", "log", "rsqrt", "erf", "tanh", "sigmoid", "sin", "cos",
)  # fmt: skip


def special(lib, dtype, repeat=1):
    return lib.tensor((SPECIAL + EDGES[dtype]) * repeat, dtype=getattr(lib, dtype))


def near(a, b, dtype, context):
    """Equal NaNs and infinities, equal signs, values within the tolerance of the dtype."""
    assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1], context
    p, q = numpy_of(a).astype("float64"), numpy_of(b).astype("float64")
    assert (np.isnan(p) == np.isnan(q)).all(), (context, p, q)
    number = ~np.isnan(p)
    assert (np.isinf(p) == np.isinf(q)).all(), (context, p, q)
    wrong = number & (np.signbit(p) != np.signbit(q))
    assert not wrong.any(), (context, "signs", p, q)
    finite = np.isfinite(p)
    # below the least normal number the oracle's vectors flush to zero now and then
    tiny = {"float32": 2e-38, "float64": 3e-308, "float16": 6e-8, "bfloat16": 2e-38}[dtype]
    np.testing.assert_allclose(
        p[finite], q[finite], rtol=TOLERANCE[dtype], atol=tiny, err_msg=str(context)
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", UNARY)
def test_pointwise(name, dtype, oracle):
    for repeat in (1, 3):  # inside a vector, and in its remainder
        ours, theirs = (getattr(special(lib, dtype, repeat), name)() for lib in (rl, oracle))
        if name in EXACT and (dtype == "float32" or dtype == "float64" and name != "sqrt"):
            same(ours, theirs, (name, dtype))
        elif name in ("sin", "cos"):  # of numbers that are large in half precision: finite or not
            p, q = (numpy_of(v).astype("float64") for v in (ours, theirs))
            assert (np.isnan(p) == np.isnan(q)).all()
            small = np.abs(numpy_of(special(oracle, dtype, repeat)).astype("float64")) < 1e5
            np.testing.assert_allclose(p[small], q[small], TOLERANCE[dtype], TOLERANCE[dtype])
        elif name in ("reciprocal", "rsqrt", "square", "exp") and dtype in ("float16", "bfloat16"):
            near(ours, theirs, dtype, (name, dtype))
        else:
            near(ours, theirs, dtype, (name, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "silu", "softmax", "log_softmax"])
def test_activations(name, dtype, oracle):
    def run(lib):
        f = lib.nn.functional
        x = special(lib, dtype)
        if name == "gelu tanh":
            return f.gelu(x, approximate="tanh")
        if "softmax" in name:
            x = x[:4]
            return getattr(f, name)(x, 0)
        return getattr(f, name)(x)

    a, b = run(rl), run(oracle)
    p, q = numpy_of(a), numpy_of(b)
    x = numpy_of(special(oracle, dtype))[: len(p)].astype("float64")
    usual = np.abs(x) < 1e5  # gelu at the ends: 0 * inf in one, 0 in the other
    assert (np.isnan(p) == np.isnan(q))[usual | np.isnan(x)].all(), (p, q)
    np.testing.assert_allclose(
        p[usual], q[usual], rtol=max(TOLERANCE[dtype], 3e-6), atol=1e-6 if dtype[0] == "f" else 1e-2
    )


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": lambda a, b: a.maximum(b),
    "minimum": lambda a, b: a.minimum(b),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype, oracle):
    a, b = (BINARY[name](x[:, None], x) for x in (special(rl, dtype), special(oracle, dtype)))
    if name in ("maximum", "minimum"):
        # of two zeros either may come
        p, q = numpy_of(a), numpy_of(b)
        np.testing.assert_array_equal(p, q)
    elif a.dtype == rl.bool or dtype in ("float32", "float64"):
        same(a, b, name)
    else:
        near(a, b, dtype, name)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [0.0, -0.0, INF, -INF, NAN, 1e-45, 2])
def test_with_numbers(name, number, oracle):
    if name in ("maximum", "minimum"):
        pytest.skip("tensors only")
    a, b = (BINARY[name](special(lib, "float32"), number) for lib in (rl, oracle))
    same(a, b, (name, number))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, 4, INF, -INF, NAN])
def test_pow(exponent, oracle):
    for dtype in ("float32", "float64"):
        a, b = (special(lib, dtype) ** exponent for lib in (rl, oracle))
        p, q = numpy_of(a), numpy_of(b)
        np.testing.assert_allclose(p, q, rtol=2e-6, atol=1e-44, err_msg=str((dtype, exponent)))
        zero = (q == 0) | np.isinf(q)
        assert (np.signbit(p) == np.signbit(q))[zero & ~np.isnan(q)].all(), (dtype, exponent)


# ---- rows

ROWS = [
    [1.0, 2.0, 3.0, 0.5], [NAN, 1.0, 2.0, 0.0], [1.0, NAN, INF, 2.0], [INF, 1.0, 2.0, INF],
    [-INF, -INF, -INF, -INF], [-INF, 0.0, 1.0, -INF], [0.0, -0.0, 0.0, -0.0],
    [-0.0, -0.0, -0.0, -0.0], [2.0, 2.0, 2.0, 1.0], [1e38, 1e38, 1e38, 1e38],
    [1e-45, 1e-45, 1e-45, -1e-45], [INF, -INF, 0.0, 0.0],
]  # fmt: skip


@pytest.mark.parametrize("width", [4, 40, 300])
@pytest.mark.parametrize(
    "name", ["sum", "mean", "amax", "amin", "argmax", "argmin", "softmax", "log_softmax"]
)
def test_rows(name, width, oracle):
    rows = np.tile(np.array(ROWS, "float32"), (1, width // 4))

    def run(lib, dim):
        x = lib.tensor(rows.tolist())
        x = x.t() if dim == 0 else x
        out = getattr(x, name)(dim)
        return out.t() if dim == 0 and out.dim() == 2 else out

    for dim in (1, 0):
        a, b = run(rl, dim), run(oracle, dim)
        p, q = numpy_of(a), numpy_of(b)
        if name.startswith("arg"):
            np.testing.assert_array_equal(p, q)  # the first NaN, else the first of the equal
        else:
            close(a, b, 1e-6, 1e-6, (name, dim))


def test_arg_extremes_with_ties_and_nan(oracle):
    for values in ([1, 3, 3, 2], [NAN, NAN, 1], [1, NAN, 5, NAN], [-INF, -INF], [0.0, -0.0], [5]):
        for name in ("argmax", "argmin"):
            both_do(
                lambda lib: getattr(lib.tensor(values, dtype=lib.float32), name)(), (rl,),
                (oracle,), context=values,
            )  # fmt: skip
    for dtype in ("int64", "int8", "uint8"):
        for name in ("argmax", "argmin", "max", "min"):

            def run(lib):
                out = getattr(lib.tensor([[3, 3, 1], [0, 0, 0]], dtype=getattr(lib, dtype)), name)(
                    1
                )
                return out.indices if name in ("max", "min") else out

            both_do(run, (rl,), (oracle,), context=(dtype, name))
    for dtype in ("int64", "int8", "uint8"):
        lowest = {"int64": -(2**63), "int8": -128, "uint8": 0}[dtype]

        def run(lib):
            return lib.tensor([1, lowest, 5], dtype=getattr(lib, dtype)).argmin()

        both_do(run, (rl,), (oracle,), context=dtype)


def test_empty_reductions(oracle):
    for shape, dim in (
        ((0,), None),
        ((0,), 0),
        ((3, 0), 1),
        ((3, 0), 0),
        ((0, 3), 0),
        ((2, 0, 4), (0, 1)),
    ):
        for name in (
            "sum",
            "mean",
            "amax",
            "amin",
            "argmax",
            "max",
            "min",
            "all",
            "any",
            "softmax",
            "argmin",
        ):
            if isinstance(dim, tuple) and name not in ("sum", "mean", "amax", "amin"):
                continue

            def run(lib):
                x = lib.empty(*shape)
                if dim is None:
                    out = x.softmax(0) if name == "softmax" else getattr(x, name)()
                else:
                    out = getattr(x, name)(dim)
                return out.values if name in ("max", "min") and dim is not None else out

            ours, theirs = outcome(run, rl), outcome(run, oracle)
            context = (shape, dim, name)
            assert ours[0] == theirs[0], (context, ours, theirs)
            if ours[0] == "ok":
                same(ours[1], theirs[1], context)
            else:
                assert ours[1] is theirs[1], context


def test_cross_entropy_of_ignored_targets(oracle):
    def run(lib, reduction, targets, **more):
        x = lib.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]], requires_grad=True)
        t = lib.tensor(targets)
        loss = lib.nn.functional.cross_entropy(x, t, reduction=reduction, **more)
        loss.sum().backward()
        return lib.cat([loss.detach().reshape(-1), x.grad.reshape(-1)])

    for reduction in ("mean", "sum", "none"):
        for targets in ([0, 2], [-100, 1], [-100, -100], [1, -100]):
            both_do(
                lambda lib: run(lib, reduction, targets), (rl,), (oracle,), close,
                (reduction, targets),
            )  # fmt: skip
        both_do(lambda lib: run(lib, reduction, [0, 2], ignore_index=2), (rl,), (oracle,), close)


def test_cross_entropy_of_extreme_scores(oracle):
    def run(lib):
        x = lib.tensor([[1e4, -1e4, 0.0], [INF, 0.0, 1.0], [-INF, 0.0, 1.0], [NAN, 0.0, 1.0]])
        return lib.nn.functional.cross_entropy(x, lib.tensor([0, 1, 1, 2]), reduction="none")

    both_do(run, (rl,), (oracle,), close)


def test_layer_norm_of_constant_and_special_rows(oracle):
    def run(lib):
        x = lib.tensor(
            [
                [2.0] * 8,
                [0.0] * 8,
                [1e4, -1e4] * 4,
                [NAN] + [0.0] * 7,
                [INF] + [0.0] * 7,
                [1e-30] * 8,
            ]
        )
        return lib.nn.functional.layer_norm(x, (8,))

    both_do(run, (rl,), (oracle,), lambda a, b, context: close(a, b, 1e-4, 1e-4))


def test_gradients_at_special_points(oracle):
    points = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30]

    for name in (
        "abs",
        "relu",
        "sqrt",
        "rsqrt",
        "log",
        "reciprocal",
        "exp",
        "tanh",
        "sigmoid",
        "sign",
        "square",
        "sin",
    ):

        def run(lib):
            x = lib.tensor(points, requires_grad=True)
            out = getattr(x, name)()
            if not out.requires_grad:
                return lib.zeros(len(points))
            out.backward(lib.ones(len(points)))
            return x.grad

        both_do(run, (rl,), (oracle,), close, name)
    for name in ("maximum", "minimum", "div", "mul"):

        def run(lib):
            x, y = (lib.tensor(p, requires_grad=True) for p in (points, points[::-1]))
            getattr(x, name)(y).backward(lib.ones(len(points)))
            return lib.stack([x.grad, y.grad])

        both_do(run, (rl,), (oracle,), close, name)


def test_gradients_of_ties(oracle):
    def run(lib, f):
        x = lib.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], requires_grad=True)
        f(x).sum().backward()
        return x.grad

    for f in (
        lambda x: x.amax(1),
        lambda x: x.amin(1),
        lambda x: x.amax(),
        lambda x: x.maximum(x),
        lambda x: x.max(1).values,
        lambda x: x.max(),
        lambda x: x.min(0).values,
        lambda x: x.norm(),
        lambda x: (x * 0).norm(),
    ):
        both_do(lambda lib: run(lib, f), (rl,), (oracle,), close)


def test_masked_softmax_rows_of_nothing(oracle):
    def run(lib):
        x = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        m = lib.tensor([[True, True], [False, True]])
        y = x.masked_fill(m, -INF).softmax(1)
        y[1].sum().backward()
        return lib.cat([y.detach(), x.grad])

    both_do(run, (rl,), (oracle,), close)


def test_nothing_warns_about_division_by_zero():
    with raises(ZeroDivisionError):
        1 / 0  # noqa: B018
    assert (rl.ones(3) / 0).tolist() == [INF] * 3


def test_no_dims_are_all_dims_as_a_list_too():
    x = rl.ones(3, 4)
    assert x.amax([]).shape == x.amax(()).shape == x.sum([]).shape == ()


def test_polygamma_of_negative_order(oracle):
    for lib in (rl, oracle):
        with pytest.raises(RuntimeError, match="negative n"):
            lib.polygamma(-1, lib.ones(2))
