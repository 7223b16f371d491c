# ruff: noqa: E501
"""Programs for `check`: functions collected by `program`, and the classes that they share."""

import contextlib
import dataclasses
import math

import pytest

import rushlight as rl


def x(*shape):
    return rl.arange(1, 1 + math.prod(shape or (3,))).reshape(shape or (3,)) * 0.5


def collector():
    """(programs, the decorator `program(*args, breaks=0)` that adds to them)."""
    programs = []

    def program(*args, breaks=0):
        def register(function):
            programs.append(
                pytest.param(function, args or (x(),), breaks, id=function.__name__)
            )
            return function

        return register

    return programs, program


class Mistake(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("exit", kind.__name__ if kind else None))
        return self.swallow


@contextlib.contextmanager
def managed(log):
    log.append("before")
    try:
        yield len(log)
    finally:
        log.append("after")


@dataclasses.dataclass
class Point:
    px: int
    py: int = 0

    def shifted(self, k):
        return dataclasses.replace(self, px=self.px + k)


class Base:
    shared = 3

    def __init__(self, t):
        self.t = t

    def value(self):
        return self.t * self.shared

    @classmethod
    def make(cls, t):
        return cls(t)

    @staticmethod
    def helper(k):
        return k + 1

    @property
    def double(self):
        return self.t * 2

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return self.t + k

    def __contains__(self, k):
        return k == 1

    def __call__(self, k):
        return self.t - k

    def __add__(self, other):
        return Base(self.t + (other.t if isinstance(other, Base) else other))

    def __radd__(self, other):
        return ("radd", other)

    def __eq__(self, other):
        return isinstance(other, Base) and self.shared == other.shared

    def __hash__(self):
        return 7

    def __bool__(self):
        return False

    def __iter__(self):
        yield self.t
        yield 2

    def __repr__(self):
        return "Base()"


class Derived(Base):
    shared = 5

    def value(self):
        return super().value() + super().double
