"""Backends that fail or give nonsense: a clear error, and the program's data as it was."""

import pytest

import rushlight as rl
from rushlight import dynamo
from rushlight.dynamo.breaks import BackendError


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()


def fn(x, y):
    z = x * 2
    y.add_(1)
    return z, z.sum()


def raises(module, examples):
    raise ValueError("out of order")


BAD = {
    "raises": (raises, "raises raised ValueError: out of order"),
    "none": (lambda module, examples: None, "gave NoneType, not a callable"),
    "number": (lambda module, examples: lambda *xs: 3, "returned int, not a tuple of"),
    "short": (lambda module, examples: lambda *xs: (xs[0],), "returned tuple of 1, not a tuple of"),
    "strings": (lambda module, examples: lambda *xs: ("a", "b"), "str as result 0, not a Tensor"),
    "sizes": (
        lambda module, examples: lambda *xs: (rl.ones(5), rl.ones(())),
        r"float32\[5\] as result 0",
    ),
    "dtype": (
        lambda module, examples: lambda *xs: (rl.ones(3, dtype=rl.int64), rl.ones(())),
        r"int64\[3\] as result 0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_backends_are_told(name):
    backend, message = BAD[name]
    x, y = rl.ones(3), rl.zeros(3)
    compiled = rl.compile(fn, backend=backend)
    for _ in range(2):
        with pytest.raises(BackendError, match=message):
            compiled(x, y)
    assert x.tolist() == [1, 1, 1] and y.tolist() == [0, 0, 0]
    assert rl.compile(fn, backend="eager")(x, y)[1] == 6 and y.tolist() == [1, 1, 1]


def test_a_backend_that_raises_in_the_run():
    """It had written nothing: the function runs again as it is."""
    compiled = rl.compile(lambda x: x + 1, backend=lambda module, examples: lambda *xs: 1 / 0)
    assert compiled(rl.ones(2)).tolist() == [2, 2]


def test_good_backends_are_left_alone():
    for backend in ("eager", lambda module, examples: module.forward):
        dynamo.reset()
        x, y = rl.ones(3), rl.zeros(3)
        z, total = rl.compile(fn, backend=backend)(x, y)
        assert z.tolist() == [2, 2, 2] and total == 6 and y.tolist() == [1, 1, 1]
    for n in (2, 3, 4, 5):  # sizes that vary
        assert rl.compile(lambda x: x * 2, backend=backend)(rl.ones(n)).tolist() == [2] * n


def test_an_unknown_backend():
    with pytest.raises(ValueError, match="there is no backend 'nonsense'"):
        rl.compile(fn, backend="nonsense")
