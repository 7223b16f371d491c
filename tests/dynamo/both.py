"""Eager against compiled: the same function on equal arguments, everything that a caller can see
compared."""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import types

import rushlight as rl
from rushlight import config, dynamo
from rushlight.dynamo import convert, runtime

from .comparing import freeze, same


def outcome(call):
    """What a call gives: its result or the kind of error, and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = call()
        except Exception as error:
            result = ("raised", kind(error).__name__, str(error).splitlines()[:1])
    return result, out.getvalue()


def kind(error):
    """The error's class; of Rushlight's own the builtin one that a program can name."""
    return next(c for c in type(error).__mro__ if not c.__module__.startswith("rushlight"))


def seen(value, depth=0):
    """A picture of a value in which objects show their attributes."""
    if depth > 7:
        return type(value).__name__
    if isinstance(value, rl.Tensor):
        return [type(value).__name__, value.requires_grad, freeze(value)]
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [type(value).__name__, *(seen(v, depth + 1) for v in items)]
    if isinstance(value, dict):
        return [
            type(value).__name__,
            *([seen(k, depth + 1), seen(v, depth + 1)] for k, v in value.items()),
        ]
    if isinstance(value, BaseException):
        return [type(value).__name__, seen(value.args, depth + 1)]
    if isinstance(value, types.SimpleNamespace):
        return [type(value).__name__, seen(vars(value), depth + 1)]
    if type(value).__module__.startswith("tests") or type(value).__module__ in ("__main__",):
        if hasattr(value, "__dict__") and not isinstance(value, type):
            return [type(value).__name__, seen(dict(vars(value)), depth + 1)]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if hasattr(value, "__next__"):
        return [type(value).__name__, *(seen(v, depth + 1) for v in value)]
    return freeze(value)


def check(fn, *calls, breaks=0, dynamic=None, modules=False):
    """fn on each tuple of arguments, eager and compiled; the arguments are compared afterwards too.
    `breaks`: how many distinct breaks there may be (None: any)."""
    dynamo.reset()
    with config.changed(strict=True):
        compiled = rl.compile(fn, backend="eager", dynamic=dynamic)
        for args in calls:
            mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
            rl.manual_seed(0)
            expected = outcome(lambda: fn(*mine))
            mode = rl.is_grad_enabled()
            expected_picture = seen([expected, mine])
            rl.manual_seed(0)
            runtime.FAILURES[0] = 0
            found = outcome(lambda: compiled(*theirs))
            raised = type(expected[0]) is tuple and expected[0][:1] == ("raised",)
            assert raised or not runtime.FAILURES[0], "the graph failed, eager mode did not"
            picture = seen([found, theirs])
            assert rl.is_grad_enabled() == mode
            assert same(expected_picture, picture), (
                f"\neager    {expected_picture}\ncompiled {picture}"
            )
    told = [str(b[1]) for b in convert.BREAKS.values()]
    assert breaks is None or len(told) == breaks, told
    return compiled


def graphs():
    """The captured graphs, in the order of their functions."""
    return [e.module for r in convert.COMPILED.values() for e in r.entries if e.module]
