# ruff: noqa: E501, B018, B009, UP008, UP031, UP032
"""Programs that break: results, effects and order are eager's all the same: one function each, run eager and compiled on
equal arguments. PYTEST_DONT_REWRITE: asserts are part of the programs."""


import pytest

import rushlight as rl

from .both import check
from .programs import Base, Manager, Mistake, collector, managed

PROGRAMS, program = collector()


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
def break_in_comprehension_over_a_cell(a):
    """`v` is a cell in the function too: what the comprehension puts aside on the stack is that cell."""
    out = []

    def noisy(v=1):
        print("in", v)
        return v

    def pair(*given):
        return given

    try:
        out.append(([1, noisy()], [pair(v, noisy(v)) for v in range(2)]))
    except KeyError:
        pass
    if out:
        return out, a + 1
    return [(lambda: v)() for v in range(2)]


@program(breaks=None)
def breaks_where_a_cell_is_put_aside(a):
    """The first comprehension makes `v` a cell; the others use its slot for plain values (3.12 on)."""
    v = 7
    made = [(lambda: v)() for v in range(2)]
    made += [(v, print("in", v)) for v in range(2)]
    v += 1
    made += [v * 2 for v in range(2) if print("if", v) is None]
    return a + v, made, {v: print("value", v) for v in range(2)}, v


@program(breaks=1)
def break_behind_a_plain_use_of_a_cell(a):
    """What a comprehension had in the slot of `v` is gone where the frame goes on (3.12 on)."""
    made = [(lambda: v)() for v in range(2)] + [v + 1 for v in range(3)]
    print("break")
    match made:
        case [_, v, *_]:
            made.append(v)
    return a + 1, made, [v * 2 for v in made]


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
