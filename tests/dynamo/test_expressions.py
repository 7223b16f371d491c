# ruff: noqa: E501, B018, B009, UP008, UP031, UP032
"""Expressions, builtin functions, text: one function each, run eager and compiled on
equal arguments. PYTEST_DONT_REWRITE: asserts are part of the programs."""

import itertools
import math

import pytest

import rushlight as rl

from .both import check
from .programs import collector, x

PROGRAMS, program = collector()


# ---- expressions


@program()
def arithmetic(a):
    b = 2 * a + 1 - a / 3
    c = -(b**2) @ a
    return b, c, 7 // 2, 7 % -3, 2**10, ~5, 1 << 3, 5 & 3 | 8 ^ 1


@program()
def comparisons(a):
    return a > 1, (a == a).all(), 1 < 2 < 3, 1 < 3 > 2 >= 2, not a.shape, a is a, None is not a


@program(x(2, 3))
def subscripts(a):
    return a[0], a[:, 1:], a[..., None], a[-1, -1], a[0:2, ::2], a[(0, 1)]


@program()
def text(a):
    n = a.shape[0]
    return (
        f"{n:03d}|{n!r}|{n + 1}|{'x'!r:>5}|{1.5:.2f}",
        "%d %s" % (n, "a"),
        f"{n} {1}",
    )


@program()
def walrus(a):
    if (n := a.shape[0]) > 2:
        return a * n
    return a


@program()
def conditional(a):
    return (a if a.shape[0] > 5 else a + 1), (0 or a), (None and a), (a.shape and 3)


@program()
def stars(a):
    first, *rest = [a, a + 1, 3, 4]
    head, *mid, last = range(5)
    return first, rest, head, mid, last, [*rest, *mid], {**{"k": a}, "z": 1}, (*rest,), {*mid}


@program()
def comprehensions(a):
    n = 3
    return (
        [a * i for i in range(n) if i % 2 == 0],
        {i: a + i for i in range(2)},
        {i * n for i in range(3)},
        list(a - j for j in range(2)),
        [[i * j for j in range(2)] for i in range(2)],
    )


@program()
def lambdas(a):
    f = lambda t, k=2, *r, z=1, **kw: t * k + z + len(r) + len(kw)
    return f(a), f(a, 3), f(a, 1, 2, 3, z=5, w=1), (lambda: a)()


# ---- builtins


@program()
def builtin_functions(a):
    return (
        max(3, 1), min([4, 2]), sum([a, a], a), abs(-2), round(2.567, 1), divmod(7, 2), pow(2, 3, 5),
        sorted([3, 1, 2], reverse=True), sorted("bca", key=lambda c: -ord(c)), list(reversed([1, 2])),
        any([0, 1]), all([]), list(map(lambda t: t + 1, [a, 1])), list(filter(None, [0, 1, 2])),
        list(zip("ab", [1, 2])), dict(k=1), isinstance(a, rl.Tensor), callable(len), hash("a") == hash("a"),
        chr(65), ord("a"), hex(10), bool([]), int("7"), float("1.5"), str(3), repr("a"), len(a), type(a).__name__,
        getattr(a, "nothing", 5), hasattr(a, "shape"), issubclass(bool, int), math.sqrt(4), math.pi,
    )  # fmt: skip


@program()
def itertools_functions(a):
    return (
        list(itertools.chain([1], [a])), list(itertools.islice(itertools.count(2), 3)),
        list(itertools.product([1, 2], "ab")), list(itertools.accumulate([1, 2, 3])),
        list(itertools.zip_longest([1], [2, 3])), [k for k, _ in itertools.groupby("aab")],
        list(itertools.starmap(lambda p, q: p * q, [(1, 2)])), list(itertools.pairwise([1, 2, 3])),
    )  # fmt: skip


@program()
def strings(a):
    s = "Hello, World"
    return (
        s.lower(),
        s.split(","),
        s[1:4],
        s.replace("l", "L"),
        ",".join(["a", "b"]),
        s.startswith("He"),
        "o" in s,
        s.find("W"),
        s * 2,
        s.encode(),
    )


@pytest.mark.parametrize(("function", "args", "breaks"), PROGRAMS)
def test_program(function, args, breaks):
    check(function, args, args, breaks=breaks)
