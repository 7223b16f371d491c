"""Common divisors, mantissas, slopes, histograms, matrix functions and shared memory."""

import math
import os

import numpy as np
import pytest

import rushlight as rl

from .both import both, both_do, close, randn, same


@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_common_divisors(name, oracle):
    a, b = [[12, -18, 0, 7], [35, 2**40, 1, -9]], [8, 27, 0, -21]
    for dtypes in (("int64", "int64"), ("int32", "int64"), ("int16", "int16"), ("float32",) * 2,
                   ("bool", "bool")):  # fmt: skip
        if "int64" != dtypes[0]:
            a = [[12, -18, 0, 7], [35, 64, 1, -9]]
        xs, ys = zip(*(both(oracle, v, d) for v, d in zip((a, b), dtypes)))
        call = lambda x, y: getattr(rl if isinstance(x, rl.Tensor) else oracle, name)(x, y)
        both_do(call, xs, ys, same, (name, dtypes))
    x = rl.tensor([12, 18])
    assert getattr(x, name + "_")(rl.tensor([8, 27])) is x


def test_common_divisors_of_bytes(oracle):
    xs, ys = zip(both(oracle, [12, 250], "uint8"), both(oracle, [8, 100], "uint8"))
    same(rl.gcd(*xs), oracle.gcd(*ys))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_mantissa_and_exponent(dtype, oracle):
    values = [1.0, 0.5, -3.0, 0.0, -0.0, 1e-3, 1000.0, 6e-5]
    x, y = both(oracle, values, dtype)
    for a, b in zip(rl.frexp(x), oracle.frexp(y)):
        same(a, b, dtype)
    for a, b in zip(x.frexp(), y.frexp()):
        same(a, b, dtype)


def test_mantissas_of_the_smallest_and_the_largest(oracle):
    ends = {"float64": [5e-324, 1e-310, 1.7e308], "float32": [1e-45, 1e-40, 3e38]}
    for dtype, values in ends.items():
        x = rl.tensor(values, dtype=getattr(rl, dtype))
        mantissa, exponent = rl.frexp(x)
        want = np.frexp(np.array(values, dtype))
        assert mantissa.tolist() == want[0].tolist() and exponent.tolist() == want[1].tolist()
    assert rl.frexp(rl.tensor([math.inf]))[0].item() == math.inf
    with pytest.raises(RuntimeError, match="floating"):
        rl.frexp(rl.tensor([1]))


def test_slopes(oracle):
    for given in ({}, {"spacing": 0.5}, {"dim": 1}, {"spacing": [2.0, 0.5]}, {"edge_order": 2},
                  {"dim": (1, 0), "spacing": [1.0, 3.0], "edge_order": 2}, {"edge_order": 3},
                  {"dim": (0, 0)}, {"spacing": [1.0]}):  # fmt: skip
        pair = randn(oracle, 4, 5)

        def check(ours, theirs, context):
            for a, b in zip(ours, theirs, strict=True):
                close(a, b, 1e-5, 1e-5, context)

        call = lambda x: (rl if isinstance(x, rl.Tensor) else oracle).gradient(x, **given)
        both_do(call, pair[:1], pair[1:], check, given)
    for order in (1, 2):
        made = []
        for lib in (rl, oracle):
            x = lib.tensor([1.0, 4.0, 9.0, 25.0, 36.0], requires_grad=True)
            places = lib.tensor([1.0, 2.0, 3.0, 5.0, 6.0])
            (g,) = lib.gradient(x, spacing=[places], edge_order=order)
            (g**2).sum().backward()
            made += [g, x.grad]
        close(made[0], made[2])
        close(made[1], made[3])


def test_histograms(oracle):
    pair = randn(oracle, 40)
    for given in ({"bins": 5}, {"bins": 4, "range": (-1.0, 1.0)}, {"bins": 4, "density": True},
                  {"bins": [-1.0, 0.0, 0.5, 2.0]}, {"bins": 3, "weight": True},
                  {"bins": 0}):  # fmt: skip

        def call(x):
            lib = rl if isinstance(x, rl.Tensor) else oracle
            more = dict(given)
            if isinstance(more["bins"], list):
                more["bins"] = lib.tensor(more["bins"])
            if more.get("weight"):
                more["weight"] = lib.arange(40.0)
            return lib.histogram(x, **more)

        def check(ours, theirs, context):
            close(ours.hist, theirs.hist, 1e-5, 1e-5, context)
            close(ours.bin_edges, theirs.bin_edges, 1e-5, 1e-5, context)

        both_do(call, pair[:1], pair[1:], check, given)
    points = randn(oracle, 30, 2)
    for bins in ([3, 4], 2):
        ours, theirs = rl.histogramdd(points[0], bins), oracle.histogramdd(points[1], bins)
        close(ours.hist, theirs.hist)
        for a, b in zip(ours.bin_edges, theirs.bin_edges, strict=True):
            close(a, b)


def test_matrix_functions(oracle):
    for shape, dtype in (((3, 3), "float64"), ((2, 4, 4), "float32")):
        x, y = randn(oracle, *shape, dtype=dtype)
        close(rl.matrix_exp(x), oracle.matrix_exp(y), 1e-5, 1e-5)
        close(rl.linalg.matrix_exp(x * 9), oracle.linalg.matrix_exp(y * 9), 1e-4, 1e-2)
        for n in (0, 1, 3, -2):
            close(x.matrix_power(n), y.matrix_power(n), 1e-3, 1e-3)
    x, y = randn(oracle, 3, 3, dtype="float64", requires_grad=True)
    rl.matrix_exp(x).pow(2).sum().backward()
    oracle.matrix_exp(y).pow(2).sum().backward()
    close(x.grad, y.grad, 1e-7, 1e-7)
    for lib in (rl, oracle):
        with pytest.raises(RuntimeError, match="square|linalg"):
            lib.matrix_exp(lib.ones(2, 3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_writes_to_shared_memory():
    x = rl.zeros(3, 4).t()
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared()
    assert x.stride() == (1, 4) and x[1].is_shared()
    child = os.fork()
    if not child:
        x[1, 2] = 5.0
        os._exit(0)
    os.waitpid(child, 0)
    assert x[1, 2].item() == 5.0 and x.sum().item() == 5.0
    model = rl.nn.Linear(2, 2).share_memory()
    assert all(p.is_shared() and p.requires_grad for p in model.parameters())
    assert not rl.zeros(2).is_shared()
