# ruff: noqa: E501, B018, B009, UP008, UP031, UP032
"""Functions, containers, classes, and what a program changes outside: one function each, run eager and compiled on
equal arguments. PYTEST_DONT_REWRITE: asserts are part of the programs."""

import collections
import dataclasses
import enum
import functools
import operator

import pytest

import rushlight as rl
from rushlight.dynamo import graph_break

from .both import check
from .programs import Base, Derived, Point, collector, x

PROGRAMS, program = collector()


# ---- functions


@program()
def closures(a):
    count = 0
    scale = 2.0

    def bump(k=1):
        nonlocal count
        count += k
        return a * scale + count

    r = [bump(), bump(3)]
    scale = 10.0
    r.append(bump())
    return r, count


@program()
def returned_closure_runs(a):
    def make(k):
        def f(t):
            return t * k

        return f

    fs = [make(i) for i in range(3)]
    return sum(f(a) for f in fs)


@program()
def recursion(a):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def build(n):
        return a if n == 0 else build(n - 1) + n

    return fact(5), build(4)


@program()
def argument_errors(a):
    def f(p, /, q, *, r=1):
        return p

    out = []
    for call in (
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2, 3),
        lambda: f(p=1, q=2),
        lambda: f(1, 2, s=3),
        lambda: f(1, 2, q=3),
    ):
        try:
            call()
        except TypeError as e:
            out.append(str(e))
    return a, out


@program()
def decorators(a):
    def twice(g):
        @functools.wraps(g)
        def inside(*args, **kwargs):
            return g(g(*args, **kwargs))

        return inside

    @twice
    def add(t):
        return t + 1

    return add(a), add.__name__


@program()
def partials(a):
    f = functools.partial(operator.mul, 3)
    g = functools.partial(lambda p, q, k: p + q * k, a, k=2)
    return f(a), g(1), functools.reduce(lambda p, q: p + q, [a, a, a])


# ---- containers


@program()
def lists(a):
    v = [a, 1, "s"]
    v.append(2)
    v.insert(0, 0)
    v.extend(i for i in range(2))
    v += [9]
    v[1] = a + 1
    v[2:4] = [7]
    del v[-1]
    w = v.copy()
    w.reverse()
    p = v.pop()
    v.remove(0)
    return (
        v,
        w,
        p,
        [3, 7].index(7),
        [7].count(7),
        [1, 2] + [3],
        [0] * 3,
        [1, 2] == [1, 2],
        [1, 3] > [1, 2],
        1 in [1],
    )


@program()
def dicts(a):
    d = {"p": a, 1: 2}
    d["q"] = 3
    d.setdefault("r", []).append(4)
    d.update({"s": 5}, t=6)
    e = {**d, "p": 0}
    f = d | {"u": 1}
    del d["q"]
    g = d.pop("s"), d.pop("none", None), d.get("x"), d.get("p")
    keys = list(d), list(d.values()), list(d.items()), len(d), "p" in d
    dd = collections.defaultdict(list)
    dd["k"].append(a)
    od = collections.OrderedDict(z=1, y=2)
    od.move_to_end("z")
    c = dict.fromkeys("ab", 0)
    return d, e, f, g, keys, dd, od, c


@program()
def sets_and_deques(a):
    s = {1, 2}
    s.add(3)
    s |= {4}
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    q.appendleft(0)
    q.rotate(1)
    return a, s, s & {1, 9}, s - {1}, frozenset([1]) <= s, q, list(q)


Pair = collections.namedtuple("Pair", "left right")


@program()
def named_tuples(a):
    p = Pair(a, right=2)
    q = p._replace(left=3)
    left, right = p
    return p, q, left, p.right, p[0], q == (3, 2), p._fields


# ---- classes


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def pretty(self):
        return self.name.title()


class Flag(enum.IntEnum):
    LOW = 1
    HIGH = 2


@program()
def enums(a):
    c = Color.RED
    return (
        c is Color.RED, c.name, c.value, Color(1) is c, Color["BLUE"].value, c.pretty, [m.name for m in Color],
        Flag.HIGH + 1, Flag.LOW < Flag.HIGH, a * Flag.HIGH, {c: 1}[Color.RED],
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    key: int
    items: tuple = ()


@program()
def dataclasses_(a):
    p = Point(1)
    p.py = 5
    q = p.shifted(2)
    f = Frozen(1, (2,))
    try:
        f.key = 2
    except dataclasses.FrozenInstanceError as e:
        text = str(e)
    return p, q, p == Point(1, 5), f < Frozen(2), {f: a}[Frozen(1, (2,))], text, f


@program()
def classes(a):
    b, d = Base(a), Derived.make(a)
    return (
        b.value(), d.value(), Base.helper(1), d.helper(2), b.double, b.dyn_name, len(b), b[1], 1 in b, b(1),
        (b + 1).t, 5 + b, b == d, b != d, b == Base(1), hash(b), bool(b), list(b), repr(b), f"{b}",
        isinstance(d, Base), type(d).__name__, d.shared, {b: 1}[Base(0)], hasattr(b, "none"), b.t,
        [b, 1] == [Base(2), 1], max([b, b], key=len) is b,
    )  # fmt: skip


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, kind=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 2)


class Holder:
    __slots__ = ("_field", "slot")
    field = Typed()


@program()
def descriptors(a):
    h = Holder()
    r = [h.field]
    h.field = 4
    h.slot = a
    return r, h.field, h._field, h.slot


@program()
def class_in_frame(a):
    class Local(Base):
        k = 2

        def value(self):
            return super().value() * self.k

    return Local(a).value(), Local.k


# ---- mutation of what the caller gave


@program([1, 2], {"k": 1}, x())
def mutation(v, d, a):
    v.append(a)
    v[0] = "new"
    d["n"] = v
    d.pop("k")
    return a * 2


@program(Base(x()), x())
def attribute_mutation(b, a):
    b.t = b.t + a
    b.extra = [a]
    b.extra.append(b)
    del b.t
    return len(b.extra)


class WithSlot:
    __slots__ = ("__dict__", "kept", "other")

    def __init__(self):
        self.kept, self.own = 1, 2


def seen_dict(o):
    d = vars(o)
    return d.keys() == {"own"}, list(d), len(d), "kept" in d, d.get("other"), {**d}, list(d.items())


@program(x(), WithSlot())
def slots_are_not_in_the_dict(a, o):
    before = seen_dict(o)
    o.kept, o.other = a + 1, 3
    made = WithSlot()
    made.other = 4
    return before, seen_dict(o), o.kept, o.other, seen_dict(made), made, made.kept, made.other


@program(x(), WithSlot())
def a_dict_s_entry_beside_the_slot_of_its_name(a, o):
    made = WithSlot()
    for one in (o, made):
        one.__dict__["kept"] = a
        vars(one)["other"] = 6
    o.other = 7
    return o.kept, o.other, list(vars(o)), made.kept, hasattr(made, "other"), made


def the_slots_of(a, o):
    """What a program left in the slots, which are not among what `check` compares."""
    o.__dict__["kept"] = 5
    o.kept, o.other = a + 1, 3
    del o.other
    made = WithSlot()
    made.other = 4
    del made.kept
    return made


def test_slots_and_entries_are_written_apart():
    o = WithSlot()
    made = rl.compile(the_slots_of, fullgraph=True)(rl.ones(1), o)
    assert o.kept.tolist() == [2] and not hasattr(o, "other")
    assert vars(o) == {"own": 2, "kept": 5}
    assert made.other == 4 and not hasattr(made, "kept") and vars(made) == {"own": 2}


@program(x())
def an_operator_s_results_have_names(a):
    top, most, (low, at) = a.topk(1), a.max(0), a.min(0)
    return top.values + most.values, most.indices, type(most).__name__, most, low, at, top[1]


@program(x(), x())
def tensor_mutation(a, b):
    a.add_(1)
    b[0] = 5
    c = a[1:]
    c *= 2
    a += b
    return a, c, a is a


@program()
def identity(a):
    v = [a]
    w = [v, v, (v,)]
    v.append(w)
    return w[0] is w[1], w[2][0] is v, a is v[0], len(v)


GLOBAL = 1


@program()
def global_writes(a):
    global GLOBAL
    GLOBAL += 1
    now = GLOBAL
    GLOBAL = 1
    return a * now


@pytest.mark.parametrize(("function", "args", "breaks"), PROGRAMS)
def test_program(function, args, breaks):
    check(function, args, args, breaks=breaks)


class Bag:
    def __init__(self):
        self.v = 1


def its_dict(x):
    o = Bag()
    d = vars(o)
    graph_break()
    d["q"] = 2
    o.z = 3
    return d is vars(o), list(d), o.q


def its_dict_elsewhere(x):
    o, other = Bag(), Bag()
    other.d = vars(o)
    o.get = lambda: list(other.d)
    graph_break()
    o.new = x * 2
    return o.get(), other.d is vars(o), other.d["new"]


def another_dict(x):
    made = {"e": 5}
    o = Bag()
    o.__dict__ = made
    graph_break()
    o.f = 6
    return made, made is vars(o)


@pytest.mark.parametrize("fn", [its_dict, its_dict_elsewhere, another_dict])
def test_the_dict_of_a_new_object_is_one_behind_a_break(fn):
    check(fn, (rl.ones(2),), (rl.ones(2),), breaks=None)


def test_a_dict_that_is_an_arguments_dict():
    def fn(o, d):
        o.a = 1
        d["b"] = 2
        return o.b, d["a"], list(d)

    compiled = rl.compile(fn, backend="eager")
    for _ in range(3):
        mine, theirs = Bag(), Bag()
        assert compiled(theirs, vars(theirs)) == fn(mine, vars(mine))
        assert vars(mine) == vars(theirs)
