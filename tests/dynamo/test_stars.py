"""Calls and displays with stars, a break between their parts."""

import pytest

import rushlight as rl
from rushlight import dynamo

from .both import check


def give(*args, **kwargs):
    return args, kwargs


def pause(value=None):
    dynamo.graph_break()
    return value


FORMS = [
    "give(*[x, x], pause(), x)",
    "give(*items, pause(1))",
    "give(*[x * i for i in range(2)], pause(), *items, pause(2))",
    "give(pause(), *items, k=pause(3), **table)",
    "give(*(i for i in range(2)), pause())",
    "give(**table, k=pause(1), **{'z': pause(2)})",
    "give(**{'k': pause()}, **table, **{'a': 1})",
    "give(**table, **{'a': pause()})",
    "give(a=pause(), **table)",
    "[*items, pause(), *items, pause(x)]",
    "(*items, pause(), *items)",
    "{*items, pause(7), *[8]}",
    "{**table, 'a': pause(x), **{'b': pause(2)}, 'c': 3}",
    "[(i, pause(i)) for i in items]",
    "{i: pause(x) for i in items}",
    "f'{pause(1)}{items}{pause(2)}'",
    "items[pause(0) : pause(2)]",
]


@pytest.mark.parametrize("text", FORMS)
def test_stars(text):
    source = (
        f"def f(x, items, table):\n    try:\n        found = {text}\n"
        "    except TypeError as error:\n        found = str(error)\n"
        "    return found, items, table, x + 1\n"
    )
    space = {"give": give, "pause": pause, "__name__": __name__}
    exec(source, space)
    check(space["f"], (rl.ones(2), [1, 2, 3], {"a": 1, "q": 2}), breaks=None)
