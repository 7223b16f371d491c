"""Guards against a reference written in Python: random sources and checks on random values."""

import math
import random
import struct
import types

import pytest
from harness import core, f32, f64, i64

MISSING = object()


class Point:
    kind = "class"

    def __init__(self, x, y):
        self.x, self.y = x, y

    @property
    def norm(self):
        if self.x is None:
            raise ValueError("no norm")
        return self.y

    def method(self):
        return self


class Sloped(Point):
    __slots__ = ("slope",)

    def __getattr__(self, name):
        if name == "made":
            return 5
        raise AttributeError(name)


def function(value, table):
    def inner(a, b=value, *, c=table):
        return value, a, b, c

    return inner


def scalar(r):
    return r.choice(
        [
            None,
            True,
            False,
            0,
            1,
            2,
            -1,
            2**70,
            0.0,
            -0.0,
            1.0,
            math.nan,
            1j,
            "",
            "a",
            "ab",
            b"a",
            ...,
        ]
    )


def value(r, depth=2):
    if depth == 0 or r.random() < 0.3:
        return scalar(r)
    inner = lambda: value(r, depth - 1)
    kind = r.randrange(11)
    if kind == 0:
        return tuple(inner() for _ in range(r.randrange(4)))
    if kind == 1:
        return [inner() for _ in range(r.randrange(4))]
    if kind == 2:
        return {r.choice(["a", "b", 1, 2]): inner() for _ in range(r.randrange(4))}
    if kind == 3:
        return Point(inner(), inner())
    if kind == 4:
        made = Sloped(inner(), inner())
        if r.random() < 0.5:
            made.slope = inner()
        return made
    if kind == 5:
        return function(inner(), {"a": 1})
    if kind == 6:
        return r.choice([Point, Sloped, int, f32])
    if kind == 7:
        return frozenset(x for x in (scalar(r), scalar(r)) if x == x)
    if kind == 8:
        return r.choice([slice(1, 2), slice(None), range(3), range(0), range(1, 1), slice(True, 2)])
    if kind == 9:
        return Point(1, 2).method
    t = core.empty(
        tuple(r.choice((1, 2, 3)) for _ in range(r.randrange(3))), r.choice((f32, f64, i64))
    )
    if t.ndim == 2 and r.random() < 0.3:
        t = t.transpose(0, 1)
    if t.dtype is not i64 and r.random() < 0.3:
        t.requires_grad_()
    return t


# ---- the reference


def read(source, values, arguments, called):
    op, parent, key = source
    v = values[parent] if parent >= 0 else None
    if op == "arg":
        return arguments[key] if key < len(arguments) else MISSING
    if op == "func":
        return called
    if op == "const":
        return key
    if op == "global":
        return key[0].get(key[1], MISSING)
    if op == "attr":
        return getattr(v, key)
    if op == "dict_attr":
        return vars(v).get(key, MISSING) if hasattr(v, "__dict__") else MISSING
    if op == "type":
        return type(v)
    if op == "item":
        return v[key]
    if op == "index":
        return v[key] if isinstance(v, (tuple, list)) and -len(v) <= key < len(v) else MISSING
    if op == "len":
        return len(v)
    if op == "call":
        return key(v)
    if op == "grad":
        return v.grad if isinstance(v, core.Tensor) else MISSING
    if not isinstance(v, types.FunctionType):
        return MISSING
    if op == "default":
        defaults = v.__defaults__ or ()
        return defaults[key] if key < len(defaults) else MISSING
    if op == "kwdefault":
        return (v.__kwdefaults__ or {}).get(key, MISSING)
    cells = v.__closure__ or ()
    return cells[key].cell_contents if key < len(cells) else MISSING


def bits(x):
    return struct.pack("d", x)


def equal(a, b):
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (int, str, bytes):
        return a == b
    if type(a) is float:
        return bits(a) == bits(b)
    if type(a) is complex:
        return (bits(a.real), bits(a.imag)) == (bits(b.real), bits(b.imag))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if type(a) in (frozenset, set):
        return len(a) == len(b) and all(any(equal(x, y) for y in b) for x in a)
    if type(a) in (slice, range):
        return all(equal(getattr(a, n), getattr(b, n)) for n in ("start", "stop", "step"))
    return False


def layout_fits(v, facts):
    cls, dtype, ndim, grad, sizes, strides = facts[:6]
    if type(v) is not cls or not isinstance(v, core.Tensor):
        return False
    if v.dtype is not dtype or v.ndim != ndim or v.requires_grad != grad:
        return False
    if any(n is not None and n != m for n, m in zip(sizes or (), v.shape)):
        return False
    if strides is None:
        return v.is_contiguous()
    return strides == "any" or all(n is None or n == m for n, m in zip(strides, v.stride()))


def shape_value(program, values):
    stack = []
    fits = lambda n: -(2**63) <= n < 2**63
    for s in program:
        if isinstance(s, int):
            stack.append(s)
        elif isinstance(s, tuple):
            v = values[s[1]]
            if s[0] == "len":
                stack.append(len(v))
            elif s[0] == "int":
                if not isinstance(v, int) or not fits(v):
                    return False
                stack.append(v)
            else:
                if not isinstance(v, core.Tensor) or not -v.ndim <= s[2] < v.ndim:
                    return False
                stack.append((v.shape if s[0] == "size" else v.stride())[s[2]])
        elif s in ("neg", "not"):
            a = stack.pop()
            stack.append(-a if s == "neg" else int(not a))
        else:
            b, a = stack.pop(), stack.pop()
            if s in ("//", "%") and b == 0:
                return False
            name = {"and": "bool(a and b)", "or": "bool(a or b)"}.get(s, f"a {s} b")
            if s in ("min", "max"):
                name = f"{s}(a, b)"
            stack.append(int(eval(name)))
        if not fits(stack[-1]):
            return False
    return stack[0] != 0


def holds(check, values):
    kind, source, payload = check
    v = values[source] if source >= 0 else None
    if kind in ("is", "isnot"):
        return (v is payload) == (kind == "is")
    if kind == "type":
        return type(v) is payload
    if kind == "eq":
        return equal(payload, v)
    if kind == "none":
        return v is None
    if kind == "len":
        return len(v) == payload
    if kind == "bool":
        return bool(v) == payload
    if kind == "keys":
        return isinstance(v, dict) and equal(tuple(v), payload)
    if kind == "absent":
        return payload not in v if isinstance(v, dict) else not hasattr(v, payload)
    if kind == "tensor":
        return layout_fits(v, payload)
    if kind == "ints":
        return type(v) is int and -(2**63) <= v < 2**63
    if kind == "float":
        return type(v) is float
    if kind == "alias":
        return all(values[s] is values[payload[0]] for s in payload)
    if kind == "noalias":
        place = lambda o: o.untyped_storage_ptr() if isinstance(o, core.Tensor) else id(o)
        return len({place(values[s]) for s in payload}) == len(payload)
    if kind == "shape":
        return shape_value(payload, values)
    return bool(payload(v))


def reference(sources, checks, arguments, called):
    """The number of the first check that fails, or None."""
    values = {}

    def need(s):
        if s < 0 or s in values:
            return
        need(sources[s][1])
        found = read(sources[s], values, arguments, called)
        if found is MISSING:
            raise LookupError
        values[s] = found

    for i, check in enumerate(checks):
        try:
            if check[1] >= 0:
                need(check[1])
            elif check[0] == "shape":
                for step in check[2]:
                    if isinstance(step, tuple):
                        need(step[1])
            else:
                for s in check[2]:
                    need(s)
            if not holds(check, values):
                return i
        except Exception:
            return i
    return None


# ---- making guards that mostly hold


def a_source(r, sources, values):
    """A further source that suits the value of an earlier one, nearly always."""
    p = r.randrange(len(sources))
    v = values[p]
    choices = [
        ("type", None),
        ("attr", r.choice(("x", "y", "kind", "norm", "method", "made", "slope"))),
    ]
    if isinstance(v, (tuple, list)):
        choices += [("index", r.randrange(-3, 3))] * 3 + [("item", r.randrange(3)), ("len", None)]
    if isinstance(v, dict):
        choices += [("item", r.choice(("a", "b", 1, True, 2)))] * 3 + [("len", None)]
    if isinstance(v, Point):
        choices += [("attr", r.choice("xy"))] * 3
        choices += [("dict_attr", r.choice(("x", "y", "kind", "slope")))] * 2
    if isinstance(v, types.FunctionType):
        choices += [("default", 0), ("kwdefault", "c"), ("closure", r.randrange(2)), ("default", 1)]
    if isinstance(v, core.Tensor):
        choices += [("grad", None), ("attr", "dtype"), ("attr", "ndim"), ("len", None)]
    choices.append(("call", r.choice((type, callable, len, bool))))
    op, key = r.choice(choices)
    return op, p, key


def a_check(r, sources, values):
    s = r.randrange(len(sources))
    v = values[s] if r.random() < 0.85 else value(r)
    kinds = ["is", "type", "eq", "eq", "isnot", "none", "absent", "bool", "ints", "float", "true"]
    kinds += ["len", "keys"] * isinstance(v, (dict, tuple, list, str)) * 2
    kinds += ["tensor"] * 6 * isinstance(v, core.Tensor)
    tensors = [i for i, o in enumerate(values) if isinstance(o, (core.Tensor, int))]
    kinds += ["alias", "noalias"] + ["shape", "shape"] * bool(tensors)
    kind = r.choice(kinds)
    if kind in ("alias", "noalias"):
        return kind, -1, tuple(r.choices(range(len(sources)), k=r.choice((1, 2, 2, 3))))
    if kind == "shape":
        return kind, -1, a_program(r, tensors, values)
    try:
        payload = {
            "is": v,
            "isnot": value(r),
            "type": type(v),
            "eq": v if r.random() < 0.5 else scalar(r),
            "len": len(v) if kind == "len" else 0,
            "keys": tuple(v) if kind == "keys" else (),
            "absent": r.choice(("x", "slope", "zz", "a")),
            "bool": r.random() < 0.5,
            "true": r.choice((lambda o: True, lambda o: o is not None, len, callable)),
        }.get(kind)
    except TypeError:
        return "none", s, None
    if kind == "tensor":
        drop = lambda dims: tuple(None if r.random() < 0.3 else n for n in dims)
        strides = r.choice((None, "any", v.stride(), drop(v.stride())))
        sizes = r.choice((tuple(v.shape), drop(v.shape), None))
        payload = (type(v), v.dtype, v.ndim, v.requires_grad, sizes, strides)
    return kind, s, payload


def a_program(r, tensors, values):
    program, depth = [], 0
    while depth != 1 or len(program) < 3:
        if depth < 2 or (depth < 5 and r.random() < 0.4):
            s = r.choice(tensors)
            leaf = r.choice((3, -2, 2**62, ("size", s, r.randrange(-2, 2)), ("int", s)))
            if isinstance(values[s], core.Tensor) and r.random() < 0.5:
                leaf = (r.choice(("size", "stride")), s, 0)
            program.append(leaf)
            depth += 1
        elif r.random() < 0.15:
            program.append(r.choice(("neg", "not")))
        else:
            words = ("+", "-", "*", "//", "%", "min", "max", "==", "!=", "<", "<=", ">", ">=")
            program.append(r.choice((*words, "and", "or")))
            depth -= 1
    return tuple(program)


def a_case(r):
    arguments = [value(r) for _ in range(3)]
    called = function(scalar(r), scalar(r))
    space = {"g": value(r)}
    sources = [("arg", -1, 0), ("arg", -1, 1), ("arg", -1, 2), ("func", -1, None)]
    sources += [("global", -1, (space, "g")), ("const", -1, value(r))]
    known = {}
    for i in range(r.randrange(4, 24)):
        if i >= 6:
            sources.append(a_source(r, sources, [known.get(k) for k in range(len(sources))]))
        for k in range(len(sources)):
            if k not in known:
                try:
                    found = read(sources[k], known, arguments, called)
                except Exception:
                    found = None
                known[k] = None if found is MISSING else found
    values = [known.get(k) for k in range(len(sources))]
    checks = [a_check(r, sources, values) for _ in range(r.randrange(1, 8))]
    return sources, checks, arguments, called, space


@pytest.mark.parametrize("part", range(4))
def test_guards_are_the_reference(part):
    r = random.Random(part)
    passed = failed = 0
    for case in range(1500):
        sources, checks, arguments, called, space = a_case(r)
        guards = core.Guards(sources, checks)
        for _ in range(4):
            want = reference(sources, checks, arguments, called)
            got = guards.explain(*arguments, function=called)
            assert (got and got[0]) == want, (part, case, checks[want if got is None else got[0]])
            assert guards.check(*arguments, function=called) == (want is None)
            passed, failed = passed + (want is None), failed + (want is not None)
            if r.random() < 0.5:
                arguments[r.randrange(3)] = value(r)
            if r.random() < 0.2:
                space["g"] = value(r)
    assert passed > 400 and failed > 400
