"""Arithmetic on sizes, which may be symbols: `sym_max` and its like, under PyTorch's names.

Sizes are ints in programs that run, and symbols (`rushlight.sym`) where shapes are inferred.
"""

import math

from rushlight.sym import Float, Sym

SymInt, SymFloat = Sym, Float


class SymBool:
    """A condition on symbols. There are no objects of it: conditions are decided where they are
    asked, and guarded.
    """

    def __init__(self, *args):
        raise TypeError("[SymBool] conditions on sizes are decided at once: they are bools")


def mixed(a, b):
    """Whether one of two is a float: then so is the larger or smaller one."""
    return isinstance(a, (float, Float)) or isinstance(b, (float, Float))


def sym_max(a, b):
    """The larger of two; a float where one is."""
    found = a if a >= b else b
    return sym_float(found) if mixed(a, b) else found


def sym_min(a, b):
    """The smaller of two; a float where one is."""
    found = a if a <= b else b
    return sym_float(found) if mixed(a, b) else found


def sym_int(a):
    """Towards zero."""
    if isinstance(a, Sym) and not isinstance(a, Float):
        return a
    return math.floor(a) if a >= 0 else math.ceil(a)


def sym_float(a):
    return a if isinstance(a, Float) else float(a)


def sym_not(a):
    return not a


def sym_ite(b, t, f):
    """t where b holds, else f; both of one type."""
    if type(t) is not type(f):
        raise AssertionError(f"t and f are of one type, got {type(t)} and {type(f)}")
    return t if b else f


def sym_sum(args):
    """The sum of any number of sizes."""
    total = 0
    for value in args:
        total = total + value
    return total


def sym_sqrt(a):
    return math.sqrt(a)
