"""Legal calls that hardly anybody makes, as the oracle: odd `dtype=`, tensors without dims, no dims
to reduce, complex numbers where few expect them.
"""

import math

import pytest

import rushlight as rl

from .both import both, both_do, close, randn, same

PLAIN = [[1, -2, 3, 0], [4, 5, -1, 2], [0, 7, 1, 1]]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["prod", "sum", "cumsum", "cumprod", "nansum"])
def test_reductions_into_a_narrow_dtype(name, dtype, oracle):
    """A program in half precision asked for itself again, until the stack ended."""
    for given in ("int64", "float32", "bool"):
        x, y = both(oracle, PLAIN, given)
        for dim in (0, -1):
            both_do(
                lambda v: getattr(v, name)(
                    dim, dtype=getattr(rl if isinstance(v, rl.Tensor) else oracle, dtype)
                ),
                (x,), (y,), check=close, context=(name, dtype, given, dim),
            )  # fmt: skip


def test_no_dim_of_a_tensor_without_dims():
    """These read memory behind the layout."""
    x = rl.tensor(1.0)
    for call in (lambda: x.size(-1), lambda: x.size(0), lambda: x.stride(0), lambda: x.stride(-1)):
        with pytest.raises(IndexError, match="no dimensions"):
            call()


def test_topk_of_none_of_one_number(oracle):
    for lib in (rl, oracle):
        values, places = lib.tensor(7.5).topk(0)
        assert values.item() == 7.5 and places.item() == 0


@pytest.mark.parametrize("name", ["all", "any"])
def test_truth_over_no_dims(name, oracle):
    for dtype in ("bool", "float32", "uint8"):
        x, y = both(oracle, PLAIN, dtype)
        for dims in ((), []):
            same(getattr(x, name)(dim=dims), getattr(y, name)(dim=dims), (name, dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin", "nanmean"])
def test_dtypes_that_are_refused(name, oracle):
    for lib in (rl, oracle):
        with pytest.raises(RuntimeError, match="support|expected|takes a floating"):
            getattr(lib.ones(3, dtype=lib.bool), name)()
        pair = lib.tensor([[True, False]]).max(1)  # but the place of the largest is given here
        assert pair[0].item() is True and pair[1].item() == 0


COMPLEX = """
acos acosh asin asinh atan atanh sinc prod cumprod
""".split()


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions_and_their_gradients(name, oracle):
    parts = [[0.5, -0.25], [2.0, 3.0], [-1.5, 0.75], [0.0, 0.0], [-2.0, -0.5]]
    found = []
    for lib in (rl, oracle):
        x = lib.view_as_complex(lib.tensor(parts, dtype=lib.float64))
        call = getattr(lib, name)
        whole = call(x, 0) if "prod" in name else call(x)
        x = x[:3].clone().requires_grad_()
        out = call(x, 0) if "prod" in name else call(x)
        factors = lib.tensor([1.0 + 2j, 1 - 1j, 0.5j], dtype=lib.complex128)
        (out * factors).sum().abs().backward()
        found.append((whole, x.grad))
    for ours, theirs in zip(*found):
        close(
            rl.view_as_real(ours), oracle.view_as_real(theirs.resolve_conj()), 1e-9, 1e-12, name
        )


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_complex_sums_in_a_real_dtype(oracle):
    for lib in (rl, oracle):
        x = lib.tensor([[1 + 2j, 3 - 1j]])
        for name in ("sum", "mean"):
            assert getattr(x, name)(dim=0, dtype=lib.float64).tolist() == [1.0, 3.0]
        assert lib.tensor([2, 3]).prod(0, dtype=lib.complex64).item() == 6


def test_prod_of_no_complex_elements(oracle):
    for lib in (rl, oracle):
        assert lib.zeros(2, 0, dtype=lib.complex64).prod(1).tolist() == [1, 1]
        assert lib.full((2, 5, 3), 1j, dtype=lib.complex64).prod().item() == pytest.approx(-1)


def test_angles_of_real_numbers(oracle):
    x, y = both(oracle, [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -2.5])
    same(rl.angle(x), oracle.angle(y))


def test_trapezoids_of_small_integers(oracle):
    x, y = both(oracle, [[200, 190, 7, 250]], "uint8")
    same(rl.trapezoid(x), oracle.trapezoid(y))
    for dim in (0, 1):
        same(rl.trapezoid(x, dx=0.5, dim=dim), oracle.trapezoid(y, dx=0.5, dim=dim))
    for lib in (rl, oracle):
        with pytest.raises(RuntimeError, match="bool"):
            lib.trapezoid(lib.ones(3, dtype=lib.bool))


def test_membership(oracle):
    for lib in (rl, oracle):
        x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert 3 in x and 5 not in x and x in x and lib.tensor([9.0, 2.0]) in x
        assert 7 in lib.tensor(7)
        with pytest.raises(RuntimeError, match="Tensor or scalar"):
            "a" in x  # noqa: B015


def test_nuclear_norm_by_name(oracle):
    x, y = randn(oracle, 4, 3)
    close(x.norm("nuc"), y.norm("nuc"), 1e-5, 1e-5)
    x, y = randn(oracle, 2, 4, 3)
    close(x.norm("nuc", dim=(1, 2)), y.norm("nuc", dim=(1, 2)), 1e-5, 1e-5)


def test_hardshrink_is_a_method(oracle):
    x, y = randn(oracle, 8)
    same(x.hardshrink(0.3), y.hardshrink(0.3))


def test_median_of_no_bools(oracle):
    assert rl.zeros(0, dtype=rl.bool).median().item() is True
    assert oracle.zeros(0, dtype=oracle.bool).median().item() is True


def test_cat_takes_nothing_of_a_tensor_without_elements(oracle):
    """`found = tensor([])`, then `found = cat([found, batch])`."""
    found = []
    for lib in (rl, oracle):
        x = lib.ones(2, 3, requires_grad=True)
        empty = lib.tensor([], requires_grad=True)
        y = lib.cat([empty, x, x * 2, empty], dim=-1)
        y.sum().backward()
        whole = lib.cat([lib.tensor([]), lib.arange(3)])
        found.append((y.tolist(), x.grad.tolist(), empty.grad.tolist(), whole.tolist()))
        assert whole.dtype is lib.float32
        assert tuple(lib.cat([lib.tensor([]), lib.tensor([])]).shape) == (0,)
        with pytest.raises(RuntimeError):
            lib.cat([lib.ones(2, 3), lib.ones(1)])
        with pytest.raises((RuntimeError, IndexError)):
            lib.cat([lib.tensor([]), lib.ones(2, 3)], 2)
    assert found[0] == found[1]
    f = rl.compile(lambda e, x: rl.cat([e, x * 2]) + 1)
    assert f(rl.tensor([]), rl.ones(2, 3)).tolist() == [[3.0] * 3] * 2


def test_dims_of_pieces_that_are_refused(oracle):
    for lib in (rl, oracle):
        x = lib.ones(())
        for call in (lambda: x.split(2), lambda: x.chunk(2), lambda: lib.ones(2, 3).flatten(-1, 0)):
            with pytest.raises(RuntimeError):
                call()
        with pytest.raises(IndexError):
            x.flatten(1)
        assert type(lib.gradient(lib.ones(3))) is tuple


def test_cat_of_an_empty_one_before_elementwise_calls_in_a_graph():
    f = rl.compile(lambda e, x, y: (rl.cat([e, x, x], 1) * y).relu())
    e, x, y = rl.tensor([]), rl.randn(3, 4), rl.randn(3, 8)
    assert f(e, x, y).equal((rl.cat([x, x], 1) * y).relu())


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ("prod", "median", "nanmedian", "std", "max"))
def test_gradients_of_ties_zeros_and_nan(oracle, name):
    nan, inf = float("nan"), float("inf")
    rows = [[2.0, 2, 1], [2, 1, 2]], [[0.0, 0, 3], [1, 0, 2]], [[inf, 1, 2], [nan, 1, 1]], [[5.0]]
    for values in rows[: 2 if name == "max" else 4]:
        x, y = both(oracle, values, "float32")
        for v in (x, y):
            v.requires_grad_()
            getattr(v, name)().backward()
        same(x.grad, y.grad)
        if len(values[0]) == 1:  # the count is 1 - 1: nothing may divide by it in Python
            graph, z = rl.compile(lambda v, n=name: getattr(v, n)()), x.detach().requires_grad_()
            graph(z).backward()
            same(z.grad, y.grad)


def test_no_norm_of_negative_order_of_nothing(oracle):
    for lib in (rl, oracle):
        assert lib.zeros(0, 3).norm(-1, 1).shape == (0,)
        for call in (lambda x: x.norm(-1), lambda x: lib.linalg.vector_norm(x, -2.5, dim=0)):
            with pytest.raises(RuntimeError, match="norm"):
                call(lib.zeros(0, 3))
