# ruff: noqa: E501, B018, B009, UP008, UP031, UP032
"""Loops, match, exceptions, `with`, generators: one function each, run eager and compiled on
equal arguments. PYTEST_DONT_REWRITE: asserts are part of the programs."""


import pytest

import rushlight as rl

from .both import check
from .programs import Manager, Mistake, Point, collector, managed, x

PROGRAMS, program = collector()


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


@program()
def asserts(a):
    assert a.shape[0] == 3
    try:
        assert a.shape[0] == 4, "wrong"
    except AssertionError as e:
        return str(e), a
    return None


# ---- with


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


@pytest.mark.parametrize(("function", "args", "breaks"), PROGRAMS)
def test_program(function, args, breaks):
    check(function, args, args, breaks=breaks)
