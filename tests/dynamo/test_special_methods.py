"""What builtins ask of objects of the program's classes, also where a number that varies comes back
and where the class lacks what is asked first. Inside try, where a failure of the capture would pass
for one of the program."""

import math

import pytest

import rushlight as rl
from rushlight import config, dynamo


class Only:
    def __init__(self, v):
        self.v = v

    def __index__(self):
        return self.v


class Seq:
    def __init__(self, v):
        self.v = v

    def __len__(self):
        return self.v

    def __getitem__(self, i):
        if i >= self.v:
            raise IndexError(i)
        return i * 10


class Iterable:
    def __init__(self, v):
        self.v = v

    def __iter__(self):
        return iter(range(self.v))


class Every(Only):
    def __bool__(self):
        return self.v > 2

    def __hash__(self):
        return self.v

    __int__ = __len__ = Only.__index__

    def __float__(self):
        return float(self.v)

    def __str__(self):
        return str(self.v)

    def __contains__(self, k):
        return k == self.v


class Bare:
    pass


def indices(x, n):
    try:
        made = (
            [10, 20, 30, 40, 50, 60][Only(n)],
            "abcdef"[Only(n)],
            [0] * Only(n),
            (1, 2, 3)[Only(n) :],
        )
        return x + n, made, list(range(Only(n))), hex(Only(n)), x[Only(n)], x[: Only(n)].sum()
    except Exception as e:
        return x, type(e), e.args


def numbers(x, n):
    try:
        made = (
            int(Only(n)),
            float(Only(n)),
            complex(Only(n)),
            round(2.345, Only(n)),
            math.sqrt(Only(n)),
        )
        return (
            x + n,
            made,
            int(Every(n)),
            float(Every(n)),
            len(Every(n)),
            bool(Every(n)),
            str(Every(n)),
        )
    except Exception as e:
        return x, type(e), e.args


def hashes(x, n):
    try:
        return x + n, hash(Every(n)), n in Every(n), hash(Every(n)) == hash(Every(n + 1))
    except Exception as e:
        return x, type(e), e.args


def sequences(x, n):
    try:
        made = (
            list(Seq(n)),
            10 in Seq(n),
            99 in Seq(n),
            list(reversed(Seq(n))),
            max(Seq(n)),
            [*Seq(n)],
        )
        return x + n, made, sum(Seq(n)), sorted(Seq(n)), ",".join(map(str, Seq(n)))
    except Exception as e:
        return x, type(e), e.args


def iterables(x, n):
    try:
        made = 1 in Iterable(n), 9 in Iterable(n), list(zip(Iterable(n), Iterable(n)))
        return x + n, made, bool(Iterable(n)), any(Iterable(n)), set(Iterable(n))
    except Exception as e:
        return x, type(e), e.args


def lacking(x, n):
    said = []
    for ask in (
        int, float, len, iter, lambda q: q[0], lambda q: q + 1, lambda q: 1 in q, round, reversed,
        math.floor, bytes, abs, lambda q: -q, lambda q: +q, lambda q: ~q, next, complex,
        lambda q: [1, 2][q], lambda q: q(),
    ):  # fmt: skip
        try:
            ask(Bare())
            said.append("nothing")
        except Exception as e:
            said.append((type(e), str(e)))
    return x + n, said


@pytest.mark.parametrize(
    "function", [indices, numbers, hashes, sequences, iterables, lacking], ids=lambda f: f.__name__
)
def test_special_methods(function):
    dynamo.reset()
    with config.changed(strict=True):
        compiled = rl.compile(function, backend="eager")
        x = rl.arange(8) * 0.5
        for n in (2, 2, 3, 5, 4):
            assert str(compiled(x, n)) == str(function(x, n))
    dynamo.reset()
