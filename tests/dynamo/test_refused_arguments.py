"""What a call refuses, in a capture as in eager mode, word for word; namespaces; bound methods of C
code across a break."""

import functools
import types

import pytest

import rushlight as rl
from rushlight import dynamo

from .both import check

CALLS = [
    "x.to('nowhere')",
    "x.to('cpu', 'x')",
    "rl.ones(2, device='zz')",
    "x.numel(1)",
    "x.detach(1)",
    "x.stride(5)",
    "x.nosuch",
    "x + 'a'",
    "x < None",
    "divmod(x, 2)",
    "round(x)",
    "x()",
    "len(x, 1)",
    "isinstance(x)",
    "int(1, 2, 3)",
    "type()",
]


@pytest.mark.parametrize("text", CALLS)
def test_refused(text):
    source = (
        f"def f(x):\n    try:\n        return {text}\n"
        "    except Exception as error:\n"
        "        return str(error), isinstance(error, TypeError), x + 1\n"
    )
    space = {"rl": rl, "__name__": __name__}
    exec(source, space)
    check(space["f"], (rl.ones(3),), breaks=None)


class Settings(types.SimpleNamespace):
    depth = 2

    def scaled(self, x):
        return x * self.width


class Named(types.SimpleNamespace):
    def __init__(self, name, **rest):
        super().__init__(**rest)
        self.name = name


def read_and_write(x, outer):
    for _ in range(outer.inner.depth):
        x = x * outer.inner.width
    outer.last = x
    outer.inner.width = 3
    return x, hasattr(outer, "nothing"), getattr(outer, "nothing", 4), vars(outer)["inner"].width


def made(x):
    a = types.SimpleNamespace(x=x, n=2)
    a.y = a.x + a.n
    del a.n
    b = Settings(width=3)
    c = Named("c", size=x)
    return vars(a), b.scaled(x), vars(b), c.name, c.size, sorted(vars(c))


def test_namespaces():
    outer = types.SimpleNamespace(inner=Settings(width=2))
    check(read_and_write, (rl.ones(2), outer), breaks=0)
    check(made, (rl.ones(2),), breaks=0)


def across(x):
    a = types.SimpleNamespace(x=x)
    dynamo.graph_break()
    a.y = a.x + 1
    same = types.SimpleNamespace(n=1) == types.SimpleNamespace(n=1)
    return vars(a), same, repr(types.SimpleNamespace(n=1))


def test_namespaces_across_a_break():
    check(across, (rl.ones(2),), breaks=None)


class Watched:
    def __init__(self, value):
        self.value = value

    @functools.cached_property
    def double(self):
        dynamo.graph_break()
        return self.value * 2

    def __getattribute__(self, name):
        return super().__getattribute__(name)


class Shouting(Watched):
    def __repr__(self):
        return "own"

    def above(self):
        bound = super(Watched, self).__repr__
        dynamo.graph_break()
        return bound()[:1]


def test_bound_methods_of_c_code_keep_their_class():
    check(lambda x: (Watched(x).double, Shouting(x).above()), (rl.ones(2),), breaks=None)
