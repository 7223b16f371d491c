"""Code that looks at the frame it runs in, across a break: super() without arguments in every
form, locals() and its like, a bare raise in a function that a handler calls."""

import sys

import pytest

import rushlight as rl
from rushlight import dynamo

from .both import check


class Base:
    def __init__(self, value=None):
        self.value = value

    def who(self, *args):
        return "base", self.value, args

    @classmethod
    def made(cls, k):
        return cls.__name__, k


class Derived(Base):
    def called(self, k):
        dynamo.graph_break()
        return super().who(k)

    def in_a_loop(self, k):
        for i in range(2):
            dynamo.graph_break()
            k = k + len(super().who(i))
        return k

    def kept(self, k):
        dynamo.graph_break()
        above = super()
        return above.who(k)

    def kept_across(self, k):
        above = super()
        dynamo.graph_break()
        return above.who(k)

    def bound_across(self, k):
        above = super().who
        dynamo.graph_break()
        return above(k)

    def with_a_cell(self, k):
        def inner():
            return self.value * k

        dynamo.graph_break()
        return super().who(k), inner()

    def rebound(self, k):
        self = Derived(k)  # noqa: F841
        dynamo.graph_break()
        return super().who(k)

    def given(self, k):
        dynamo.graph_break()
        return super(Derived, self).who(k), super().__init__(k), self.value  # noqa: UP008

    def as_a_value(self, k):
        dynamo.graph_break()
        alias = super
        return alias().who(k)

    def without_a_first(*args):
        dynamo.graph_break()
        return super().who(1)

    def deleted(self, k):
        del self
        dynamo.graph_break()
        return super().who(k)

    @classmethod
    def made(cls, k):
        dynamo.graph_break()
        above = super()
        return above.made(k + 1), super().made(k)


FORMS = [n for n, f in vars(Derived).items() if callable(f)]


@pytest.mark.parametrize("name", FORMS)
def test_super(name):
    check(lambda x, k: getattr(Derived(x), name)(k), (rl.arange(3), 2), breaks=None)
    method = getattr(Derived, name)
    check(lambda x, k: method(x, k), (Derived(rl.ones(2)), 2), breaks=None)


def test_super_of_a_class_method():
    check(lambda k: Derived.made(k), (1,), breaks=None)


def all_locals(x):
    a = 1
    dynamo.graph_break()
    b = a + 1
    return sorted(locals()), b


def locals_of_the_graph(x):
    y = x + 1
    return locals()["y"], y


def evaluated(x):
    a = 2  # noqa: F841
    dynamo.graph_break()
    return eval("a + 1"), x


def all_vars(x):
    a = 2
    dynamo.graph_break()
    return sorted(vars()), dir(), a


def a_frame(x):
    a = 2
    dynamo.graph_break()
    return sorted(sys._getframe().f_locals), a


@pytest.mark.parametrize("f", [all_locals, locals_of_the_graph, evaluated, all_vars, a_frame])
def test_variables_of_a_frame(f):
    check(f, (rl.ones(2),), breaks=1)


def vars_of_an_object(x):
    dynamo.graph_break()
    return vars(Base(x)), len(dir(Base))


def test_what_is_given_an_object_does_not_look():
    compiled = check(vars_of_an_object, (rl.ones(2),), breaks=None)
    assert compiled.entries


def again():
    try:
        raise
    except (RuntimeError, ValueError) as error:
        return type(error).__name__


def reraised(x, log):
    log.append(again())
    try:
        raise ValueError(1)
    except ValueError:
        log.append(again())
        dynamo.graph_break()
        log.append(again())
    return x + 1


def test_a_bare_raise_asks_the_caller():
    check(reraised, (rl.ones(2), []), breaks=None)
