"""Ints and floats that vary, under every operator and method: what Python gives, and its errors."""

import math
import operator

import pytest

import rushlight as rl

from .both import check

INTS = (
    "~n, -n, +n, abs(n), n & 6, 6 | n, n ^ 3, n << 2, 1000 >> n, n + True, n * 1j",
    "n // 2.0, n % 2.0, 2.0 // n, 7.5 % n, divmod(n, 2.5), divmod(7.5, n), n / 3, n**0.5, n**-1",
    "pow(n, 2, 5), pow(2, n, 7), pow(2, 3, mod=n), 2**n, round(n), round(n, -1)",
    "divmod(n, 3), divmod(100, n)",
    "math.trunc(n), math.floor(n), math.ceil(n), math.sqrt(n), math.gcd(n, 6)",
    "n.bit_length(), n.bit_count(), n.to_bytes(2, 'big'), n.conjugate(), n.as_integer_ratio()",
    "n.real, n.imag, n.numerator, n.denominator, n.__floor__(), n.__trunc__()",
    "operator.invert(n), operator.index(n), int.bit_length(n), [n].index(n), 'ab' * n",
    "n.foo",
    "n @ 2",
    "n // 0.0",
    "divmod(n, 0)",
    "divmod(n, 0.0)",
    "divmod(n, 1j)",
    "divmod(n, 'a')",
    "divmod('a', n)",
    "n.to_bytes(0, 'big')",
    "hasattr(n, 'is_integer'), hasattr(n, 'hex')",
)
FLOATS = (
    "-n, +n, abs(n), n * 1j, divmod(n, 3), divmod(100, n), n // 2.0, 7.5 % n, n + True",
    "n.is_integer(), n.hex(), n.conjugate(), n.real, n.imag, n.as_integer_ratio()",
    "math.floor(n), math.ceil(n), math.trunc(n), n.__floor__(), float.fromhex(n.hex())",
    "~n",
    "n << 1",
    "n.foo",
    "n % 0",
    "divmod(n, 0)",
    "divmod(n, 1j)",
    "divmod(n, None)",
    "divmod('a', n)",
)


@pytest.mark.parametrize(
    ("text", "values"), [(t, (4, 7, 5)) for t in INTS] + [(t, (4.25, 0.5, 7.0)) for t in FLOATS]
)
def test_operators(text, values):
    source = (
        f"def f(x, n):\n    try:\n        found = {text}\n"
        "    except Exception as error:\n        found = type(error).__name__, str(error)\n"
        "    return found, x + 1\n"
    )
    space = {"math": math, "operator": operator, "__name__": __name__}
    exec(source, space)
    check(space["f"], *[(rl.ones(2), v) for v in values], breaks=None, dynamic=True)


def test_the_packages_own_numbers_do_not_vary():
    def fn(x):
        return x.clone().fill_(3), rl.full((2,), 1.5), rl.full_like(x, 2)

    check(fn, (rl.ones(2),), (rl.ones(3),), dynamic=True)


@pytest.mark.parametrize("text", ["1.0 // n", "divmod(1.0, n)", "2.0 ** (1000 / (n + 0.5))"])
def test_what_raised_for_one_float_need_not_for_another(text):
    source = (
        f"def f(x, n):\n    try:\n        found = {text}\n"
        "    except ArithmeticError as error:\n        found = str(error)\n"
        "    return found, x + 1\n"
    )
    space = {}
    exec(source, space)
    calls = [(rl.ones(2), v) for v in (0.0, 2.0, 0.5, 0.0, 3.0)]
    check(space["f"], *calls, breaks=None, dynamic=True)


@pytest.mark.parametrize("text", ["x + rl.ones(11)", "x.view(7)", "rl.cat([x, rl.ones(n, 2)])"])
def test_an_error_quotes_the_sizes_of_its_own_call(text):
    """Found by a random program: the text of the first call's error came again."""
    space = {"rl": rl}
    exec(
        "def f(x, n):\n    try:\n        return "
        + text
        + "\n    except (RuntimeError, IndexError) as e:\n        return str(e)",
        space,
    )
    check(space["f"], *[(rl.ones(n), n) for n in (3, 4, 5)], breaks=None, dynamic=True)
