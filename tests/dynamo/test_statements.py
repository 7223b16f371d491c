# ruff: noqa: E501, B018, B009, UP008, UP031, UP032
"""Python's statements and expressions around tensor operations: one function each, run eager and
compiled on equal arguments. PYTEST_DONT_REWRITE: asserts are part of the programs."""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator

import pytest

import rushlight as rl

from .both import check


def x(*shape):
    return rl.arange(1, 1 + math.prod(shape or (3,))).reshape(shape or (3,)) * 0.5


PROGRAMS = []


def program(*args, breaks=0):
    def register(function):
        PROGRAMS.append(pytest.param(function, args or (x(),), breaks, id=function.__name__))
        return function

    return register


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


# ---- control flow


@program()
def loops(a):
    total = a * 0
    for i in range(4):
        if i == 1:
            continue
        if i == 3:
            break
        total = total + a * i
    else:
        total = total + 100
    n = 0
    while n < 3:
        n += 1
        total += n
    else:
        total = total - 1
    for k, (u, v) in enumerate(zip([1, 2], "ab")):
        total = total + k * u + len(v)
    return total, n


@program()
def matching(a):
    out = []
    for v in (1, "s", [1, 2, 3], {"k": 4, "z": 5}, (a,), Point(1, 2), None, 2.5):
        match v:
            case 1 | 2:
                out.append("small")
            case str(s):
                out.append(s * 2)
            case [p, *rest] if len(rest) == 2:
                out.append((p, rest))
            case {"k": k, **more}:
                out.append((k, more))
            case Point(px=1, py=q):
                out.append(q)
            case Point(p, q):
                out.append(("never", p, q))
            case (t,):
                out.append(t + 1)
            case None:
                out.append("none")
            case _:
                out.append("other")
    return out


@program()
def exceptions(a):
    log = []
    try:
        raise ValueError("no")
    except (TypeError, ValueError) as e:
        log.append(str(e))
        log.append(type(e).__name__)
    else:
        log.append("else")
    finally:
        log.append("finally")
    try:
        log.append({}["missing"])
    except KeyError as e:
        log.append(e.args)
    try:
        try:
            [][1]
        except IndexError:
            raise RuntimeError("second") from None
    except RuntimeError as e:
        log.append((str(e), e.__cause__, e.__suppress_context__, type(e.__context__).__name__))
    try:
        int("x")
    except ValueError as e:
        log.append(str(e))
    try:
        None.nothing
    except AttributeError as e:
        log.append(str(e))
    try:
        1 + "a"
    except TypeError as e:
        log.append(str(e))
    return a + len(log), log


@program()
def try_in_loop(a):
    out = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 2:
                raise KeyError(i)
            out.append(i)
        except KeyError as e:
            out.append(("caught", e.args[0]))
        else:
            out.append("else")
        finally:
            out.append(("finally", i))
    return a * len(out), out


@program()
def nested_finally(a):
    def inner(log):
        try:
            try:
                return a * 2
            finally:
                log.append("inner")
        finally:
            log.append("outer")

    log = []
    return inner(log), log


@program()
def custom_exception(a):
    class Local(Exception):
        pass

    try:
        raise Mistake("text", 7)
    except Mistake as e:
        found = (e.code, str(e))
    return a, found


class Mistake(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


@program()
def asserts(a):
    assert a.shape[0] == 3
    try:
        assert a.shape[0] == 4, "wrong"
    except AssertionError as e:
        return str(e), a
    return None


# ---- with


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


@program()
def managers(a):
    log = []
    with Manager(log) as m, managed(log) as n:
        b = a * n
        m.log.append("body")
    with Manager(log, True):
        raise ValueError
    try:
        with Manager(log), managed(log):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    for i in range(3):
        with managed(log):
            if i == 1:
                break
    return b, log


@program()
def grad_modes(a):
    a = a.clone().requires_grad_()
    with rl.no_grad():
        b = a * 2
        with rl.enable_grad():
            c = a * 3
    d = a * 4
    rl.set_grad_enabled(False)
    e = a * 5
    rl.set_grad_enabled(True)
    return [t.requires_grad for t in (b, c, d, e)], b, c, d, e


@program(x(3, 3))
def autocast(a):
    with rl.autocast("cpu"):
        b = a @ a
        with rl.autocast("cpu", enabled=False):
            c = a @ a
        d = rl.nn.functional.mse_loss(b, b)
        e = a + 1
    f = a @ a
    return [t.dtype.name for t in (b, c, d, e, f)], b, c, d, e, f


@program(x(3, 3), breaks=None)
def break_in_autocast(a):
    with rl.autocast("cpu", dtype=rl.bfloat16):
        b = a @ a
        print(b.sum().item())
        c = b @ a
        n = str(c.dtype)
    return c, n, (a @ a).dtype.name


@program()
def decorated_no_grad(a):
    a = a.clone().requires_grad_()

    @rl.no_grad()
    def f(t):
        return t * 2

    return f(a), f(a).requires_grad


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


# ---- generators


@program()
def generators(a):
    def count(n):
        got = []
        for i in range(n):
            got.append((yield a + i))
        return got

    def outer():
        result = yield from count(2)
        yield len(result)

    g = outer()
    first = next(g)
    second = g.send("s")
    third = next(g)
    try:
        next(g)
    except StopIteration as e:
        end = e.value
    return first, second, third, end, list(count(2)), [*count(1)], sum(count(3))


@program()
def generator_errors(a):
    log = []

    def g():
        try:
            yield 1
            yield 2
        except ValueError as e:
            log.append(str(e))
            yield 3
        finally:
            log.append("end")

    it = g()
    r = [next(it), it.throw(ValueError("v"))]
    r += list(it)

    def bad():
        yield 1
        raise StopIteration

    try:
        list(bad())
    except RuntimeError as e:
        log.append(str(e))
    return a, r, log


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


@dataclasses.dataclass
class Point:
    px: int
    py: int = 0

    def shifted(self, k):
        return dataclasses.replace(self, px=self.px + k)


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


# ---- breaks


@program(breaks=2)
def break_in_the_middle(a):
    b = a * 2
    print("value", b.sum().item())
    return b + 1


@program(breaks=None)
def breaks_in_loop(a):
    out = []
    for i in range(4):
        a = a + i
        if a.sum().item() > 8:
            out.append(i)
    return a, out


@program(breaks=None)
def break_on_truth(a):
    if (a > 0).all():
        a = a + 1
    else:
        a = a - 1
    while a.sum() < 20:
        a = a * 2
    return a if a.sum() > 0 and a.mean() < 100 else -a


@program(breaks=None)
def break_in_with(a):
    log = []
    with managed(log), Manager(log), rl.no_grad():
        b = a.clone().requires_grad_() * 2
        print(b.sum().item())
        c = b + 1
    d = a.clone().requires_grad_() * c
    return d, log, b.requires_grad, d.requires_grad


@program(breaks=None)
def break_in_try(a):
    log = []
    for i in range(3):
        try:
            b = a * i
            print(i)
            if b.sum().item() > 2:
                raise ValueError(i)
            log.append(i)
        except ValueError as e:
            log.append(e.args)
            print("handler", a.sum().item())
        finally:
            log.append("f")
    return a, log


@program(breaks=None)
def break_raises(a):
    try:
        int(str(a.sum().item()) + "z")
    except ValueError:
        return a * 2
    return a


@program(breaks=None)
def break_in_callee(a):
    def inner(t, k):
        u = t * k
        print("inner", u.sum().item())
        return u + 1

    return inner(a, 2) + inner(a, k=3)


@program(breaks=None)
def break_in_comprehension(a):
    return [t.item() for t in a], {i: (a * i).sum().item() for i in range(2)}


@program(breaks=None)
def break_with_closure(a):
    n = 1

    def f(t):
        nonlocal n
        n += 1
        return t * n

    b = f(a)
    print(n)
    c = f(b)
    print(n, [f(a).sum().item()])
    return c, n


@program(breaks=None)
def break_with_iterators(a):
    it = iter([1, 2, 3, 4])
    pairs = zip(it, "abcd")
    first = next(pairs)
    print(first)
    rest = list(pairs)
    d = {"p": 1, "q": 2}
    for k, v in d.items():
        a = a + v
        print(k)
    for i, t in enumerate([a, a + 1]):
        print(i, t.sum().item())
    return a, rest


@program(breaks=None)
def break_with_generator(a):
    def g():
        for i in range(3):
            yield a * i

    total = a
    for t in g():
        total = total + t
        print(total.sum().item())
    return total


@program(breaks=None)
def break_keeps_identity(a):
    v = [a]
    d = {"v": v}
    print(len(v), a.sum().item())
    v.append(1)
    return d["v"] is v, v


@program(breaks=None)
def break_in_argument(a):
    return max(a.sum().item(), 3) + (a * 2).sum().item(), a.add(a.max().item()).mul(2)


@program(breaks=None)
def break_in_match(a):
    match a.sum().item():
        case v if v > 2:
            return a + 1
        case _:
            return a


@program(breaks=None)
def break_in_conditional_expression(a):
    return (a + 1 if a.sum().item() > 0 else a - 1) * (2 if a.mean() > 100 else 3), (
        a.sum().item() or 5
    )


class Loud(Base):
    def value(self):
        print("loud", self.t.sum().item())
        first = super().value()
        print("again")
        return first + super().value() + super(Loud, self).double

    def deeper(self):
        f = lambda: self.t + 1
        print("deeper")
        return super().value() + f()


@program(breaks=None)
def break_with_super(a):
    return Loud(a).value(), Loud(a).deeper()


@program(breaks=None)
def break_in_a_function_of_many_variables(a):
    b, c, d, e, f, g, h, i, j, k = range(10)
    m, n, o, p, q, r, s, t = b + c, d + e, f + g, h + i, j + k, b + k, c + j, d + i
    out = []
    for u in range(3):
        v, w = u + t, s + r
        out.append([(a * z).sum().item() for z in (v, w)])
        print(v + w, m + n, o + p)
        v, w = w + q, v + q
        out.append(v * w)
    return out, b + c + d + e + f + g + h + i + j + k


@program(breaks=None)
def raises(a):
    b = a + 1
    raise Mistake("left", b.shape[0])


@program(breaks=None)
def operator_error(a):
    return a + rl.ones(7)


@program()
def caught_operator_error(a):
    try:
        return a + rl.ones(7)
    except RuntimeError as e:
        return a * 2, str(e)


@program()
def randomness(a):
    return rl.nn.functional.dropout(a, 0.5), rl.rand(2), rl.randn(3) * a


@pytest.mark.parametrize(("function", "args", "breaks"), PROGRAMS)
def test_program(function, args, breaks):
    check(function, args, args, breaks=breaks)
