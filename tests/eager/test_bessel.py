"""Bessel functions and those of the normal distribution: far out, at the seams, and where PyTorch
says what is no number.
"""

import math

import pytest

import rushlight as rl

from .both import both, close

PLACES = [-30.0, -9.0, -8.0, -7.99, -1.0, -1e-3, 0.0, 0.25, 1.0, 7.99, 8.01, 20.0, 300.0, math.nan]
NAMES = "i0 i0e i1 i1e erfcx ndtr log_ndtr entr".split()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, dtype, oracle):
    x, y = both(oracle, PLACES, dtype)
    rtol = 1e-12 if dtype == "float64" else 1e-5
    atol = 1e-14 if name == "ndtr" else 1e-38  # the oracle's is 0 far below, where this is not
    close(getattr(rl.special, name)(x), getattr(oracle.special, name)(y), rtol, atol, name)


def test_the_ends_of_the_normal_distribution(oracle):
    shares = [0.0, 1e-300, 1e-10, 0.1, 0.5, 0.999, 1.0, -0.1, 1.1, math.nan]
    x, y = both(oracle, shares, "float64")
    close(rl.special.ndtri(x), oracle.special.ndtri(y), 1e-12, 1e-15)
    x, y = both(oracle, [-1e3, -40.0, 40.0, math.inf, -math.inf], "float64")
    close(rl.special.log_ndtr(x), oracle.special.log_ndtr(y), 1e-12)


@pytest.mark.parametrize("name", [*NAMES[:7], "ndtri"])
def test_gradients(name, oracle):
    values = [0.1, 0.3, 0.9] if name == "ndtri" else [-9.0, -0.5, 0.25, 3.0, 9.0]
    x, y = both(oracle, values, "float64", requires_grad=True)
    for lib, v in ((rl, x), (oracle, y)):
        getattr(lib.special, name)(v).sum().backward()
    close(x.grad, y.grad, 1e-9, 1e-12, name)


def test_i0_is_a_method_and_integers_become_floats(oracle):
    x, y = both(oracle, [0, 1, -3], "int64")
    close(x.i0(), y.i0())
    close(rl.i0(x), oracle.i0(y))
    z = rl.tensor([1.0])
    assert z.i0_() is z and z.item() == pytest.approx(1.2660658)
