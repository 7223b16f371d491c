"""Symbolic sizes: what bounds decide leaves no guard, what a guard excludes is never decided."""

import itertools
import math
import random
from math import inf

import pytest

from rushlight import sym
from rushlight.sym import ShapeEnv, Sym, interval


def env_of(**hints):
    env = ShapeEnv()
    return env, *(env.size(name, n, least=0) for name, n in hints.items())


def test_a_size_is_never_negative():
    env, n = env_of(n=5)
    assert n >= 0 and not n < 0 and n != -1 and n + 1 > 0 and 2 * n * n + 3 >= 3
    assert max(n, 0) is n and min(0, n) == 0
    assert not env.guards


def test_another_number_may_be():
    env = ShapeEnv()
    i = env.size("i", 5)
    assert i >= 0
    assert env.guards == [("i < 0", False)]


@pytest.mark.parametrize("hint", [3, 15, 16, 17, 40])
@pytest.mark.parametrize("f", [max, min])
def test_max_and_min_become_one_guard(f, hint):
    env, n = env_of(n=hint)
    found = f(n, 16)
    assert int(found) == f(hint, 16)
    assert len(env.guards) == 1 and not any("==" in text for text, _ in env.guards)
    before = list(env.guards)
    assert f(n, 16) is found or f(n, 16) == found  # asked again: known
    assert env.guards == before


def test_max_and_min_that_bounds_decide():
    env, n = env_of(n=40)
    env.bound(n, 32, 64)
    before = list(env.guards)
    assert before == [("n < 32", False), ("n <= 64", True)]
    assert max(n, 16) is n and max(n, 32) is n and min(n, 64) is n
    assert min(n, 8) == 8 and max(n, 100) == 100 and max(2 * n, n) == 2 * n
    assert n * n >= 1024 and n // 8 >= 4 and n // 8 < 9 and n - 64 <= 0
    assert env.guards == before


def test_guards_imply_one_another():
    env, n = env_of(n=20)
    assert n > 16
    before = list(env.guards)
    assert n > 16 and n >= 17 and n != 16 and n > 3 and n * 2 > 32 and not n <= 10
    assert env.guards == before
    assert n > 17
    assert len(env.guards) == len(before) + 1


def test_a_fixed_size_decides_everything():
    env, n = env_of(n=20)
    env.fix(n, 20)
    before = list(env.guards)
    assert n == 20 and n != 21 and n < 21 and n * n == 400 and n // 3 == 6
    assert [g for g in env.guards if "//" not in g[0]] == before


def test_bounds_that_the_hint_breaks():
    env, n = env_of(n=20)
    for bounds in ((21, None), (None, 19), (30, 10)):
        with pytest.raises(ValueError, match="not between"):
            env.bound(n, *bounds)
    assert not env.bounds["n"][0]


def test_bound_of_an_expression_and_of_a_number():
    env, n, m = env_of(n=20, m=3)
    env.bound(n - m, 10)
    env.bound(7, 1, 9)
    assert env.guards == [("(n + -1*m) < 10", False)]


def test_intervals():
    env, n, m = env_of(n=20, m=3)
    env.bound(n, 2, 30)
    assert interval(n) == (2, 30) and interval(-n) == (-30, -2) and interval(4) == (4, 4)
    assert interval(n * m) == (0, inf) and interval(1 - n * m) == (-inf, 1)
    assert interval(n // 7) == (0, 4) and interval(5 // n) == (0, 2)
    env.bound(m, 1, 5)
    assert interval(n * m - n) == (-28, 148)
    assert interval(n // m) == (0, 30)
    assert interval((n - 50) // m) == (-48, -4)


def expressions(env, rng):
    names = [env.size("a", rng.randint(-6, 6)), env.size("b", rng.randint(0, 6), least=0)]
    names.append(env.size("c", rng.randint(1, 6), least=1))
    made = list(names)
    for _ in range(8):
        x, y = rng.choice(made), rng.choice([*made, rng.randint(-9, 9)])
        kind = rng.randrange(4)
        z = (
            x + y
            if kind == 0
            else x - y
            if kind == 1
            else x * y
            if kind == 2 and isinstance(x, Sym) and len(x.terms) < 6
            else x // names[2]
            if rng.random() < 0.5
            else x // rng.randint(1, 4)
        )
        if isinstance(z, Sym):
            made.append(z)
    return made


@pytest.mark.parametrize("seed", range(60))
def test_answers_hold_wherever_the_guards_do(seed):
    """Random comparisons; then every assignment that keeps the guards gives the same answers."""
    rng = random.Random(seed)
    env = ShapeEnv()
    made = expressions(env, rng)
    asked = []
    for _ in range(12):
        x, y = rng.choice(made), rng.choice([*made, rng.randint(-20, 20)])
        relation = rng.choice(["__lt__", "__le__", "__gt__", "__ge__", "__eq__"])
        asked.append((relation, x, y, getattr(x, relation)(y)))
    at = lambda v, values: v.evaluate(values) if isinstance(v, Sym) else v
    for a, b, c in itertools.product(range(-8, 9), range(0, 9), range(1, 9)):
        values = {"a": a, "b": b, "c": c}
        holds = (
            getattr(at(x, values), {"<": "__lt__", "<=": "__le__", "==": "__eq__"}[relation])(
                at(y, values)
            )
            == answer
            for relation, x, y, answer in env.relations
        )
        if all(holds):
            for relation, x, y, answer in asked:
                assert getattr(at(x, values), relation)(at(y, values)) is answer
    assert sym.hint(made[0]) == env.hints["a"]


def test_what_python_takes_for_a_plain_int_is_fixed():
    env = ShapeEnv()
    n = env.size("n", 4)
    assert math.sqrt(n) == 2.0
    assert ("n == 4", True) in env.guards
