"""Guards: every source and every check, and what does not fit them."""

import enum
import sys
from collections import OrderedDict

import pytest
from harness import core, f32, f64, i64

CompiledFunction, Guards = core.CompiledFunction, core.Guards
ARG = ("arg", -1, 0)


def refuse(self, args, kwargs, failures):
    raise AssertionError(f"miss {args} {kwargs} {failures}")


def plain(a, b=2):
    return a, b


# ---- sources


class Thing:
    shared = "class"

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @property
    def bad(self):
        raise ValueError("no")


class Slotted:
    __slots__ = ("x",)


GLOBAL = 5


def outer():
    cell = 7

    def inner(a, b=11, *, c=13):
        return cell, a, b, c

    return inner


INNER = outer()


def seen(sources, *locals, function=None):
    """The value of the last source."""
    box = []
    guards = Guards(sources, [("true", len(sources) - 1, lambda v: box.append(v) or True)])
    found = guards.explain(*locals, function=function)
    return box[0] if found is None else found


def test_sources():
    thing = Thing(x=1, inner=Thing(y=[1, 2, (3, 4)]), shared="own")
    slotted = Slotted()
    slotted.x = 9
    tensor = core.tensor([1.0])
    tensor.requires_grad_().backward()
    assert seen([("arg", -1, 1)], 1, 2) == 2
    assert seen([("global", -1, (globals(), "GLOBAL"))]) == 5
    assert seen([("builtin", -1, (__builtins__, "len"))]) is len
    assert seen([("cell", -1, INNER.__closure__[0])]) == 7
    assert seen([("const", -1, thing)]) is thing
    assert seen([("func", -1, None)], function=INNER) is INNER
    assert seen([("func", -1, None), ("closure", 0, 0)], function=INNER) == 7
    assert seen([ARG, ("default", 0, 0)], INNER) == 11
    assert seen([ARG, ("kwdefault", 0, "c")], INNER) == 13
    assert seen([ARG, ("attr", 0, "x")], thing) == 1
    assert seen([ARG, ("attr", 0, "x")], slotted) == 9
    assert seen([ARG, ("attr", 0, "shared")], thing) == "own"
    assert seen([ARG, ("attr", 0, "shared")], Thing()) == "class"
    assert seen([ARG, ("dict_attr", 0, "shared")], thing) == "own"
    assert seen([ARG, ("dict_attr", 0, "x")], thing) == 1
    assert seen([ARG, ("type", 0, None)], thing) is Thing
    assert seen([ARG, ("item", 0, "k")], {"k": 3}) == 3
    assert seen([ARG, ("item", 0, 1)], OrderedDict([(1, 4)])) == 4
    assert seen([ARG, ("item", 0, 1)], "abc") == "b"
    assert seen([ARG, ("index", 0, 1)], [1, 2]) == 2 and seen([ARG, ("index", 0, -1)], (1, 2)) == 2
    assert seen([ARG, ("grad", 0, None)], tensor) is tensor.grad
    assert seen([ARG, ("grad", 0, None)], core.tensor([1.0])) is None
    assert seen([ARG, ("len", 0, None)], [1, 2, 3]) == 3
    assert seen([ARG, ("call", 0, sorted)], (2, 1)) == [1, 2]
    path = [ARG, ("attr", 0, "inner"), ("attr", 1, "y"), ("index", 2, 2), ("index", 3, 0)]
    assert seen(path, thing) == 3


def test_values_that_lie_in_the_object():
    class Own:
        def __init__(self):
            self.a, self.b = 1, 2

    own = Own()  # no __dict__ is made for it
    assert seen([ARG, ("dict_attr", 0, "b")], own) == 2
    assert seen([ARG, ("dict_attr", 0, "c")], own) == (0, None)
    Own.c = 3
    assert seen([ARG, ("dict_attr", 0, "c")], own) == (0, None)
    own.c = 4
    assert seen([ARG, ("dict_attr", 0, "c")], own) == 4
    assert seen([ARG, ("dict_attr", 0, "c")], 1) == (0, None)


def test_sources_that_find_nothing_fail_the_guard():
    empty = outer.__code__.replace()
    cell = type(INNER.__closure__[0])()
    assert empty is not None
    for sources, value in (
        ([("arg", -1, 3)], 1),
        ([("global", -1, ({}, "nothing"))], 1),
        ([("cell", -1, cell)], 1),
        ([ARG, ("default", 0, 1)], INNER),
        ([ARG, ("default", 0, 0)], plain.__code__),
        ([ARG, ("kwdefault", 0, "d")], INNER),
        ([ARG, ("kwdefault", 0, "d")], plain),
        ([ARG, ("closure", 0, 1)], INNER),
        ([ARG, ("closure", 0, 0)], plain),
        ([ARG, ("dict_attr", 0, "shared")], Thing()),
        ([ARG, ("item", 0, "k")], {}),
        ([ARG, ("index", 0, 2)], [1, 2]),
        ([ARG, ("index", 0, -3)], (1, 2)),
        ([ARG, ("index", 0, 0)], "ab"),
        ([ARG, ("grad", 0, None)], 1),
    ):
        assert seen(sources, value) == (0, None)
    for sources, value, error in (
        ([ARG, ("attr", 0, "y")], Thing(), AttributeError),
        ([ARG, ("attr", 0, "bad")], Thing(), ValueError),
        ([ARG, ("item", 0, 5)], [1], IndexError),
        ([ARG, ("item", 0, "k")], OrderedDict(), KeyError),
        ([ARG, ("len", 0, None)], 5, TypeError),
        ([ARG, ("call", 0, int)], "x", ValueError),
    ):
        index, value = seen(sources, value)
        assert index == 0 and type(value) is error
    assert sys.exc_info() == (None, None, None)


def test_interrupts_are_not_swallowed():
    def interrupt(v):
        raise KeyboardInterrupt

    for guards in (
        Guards([ARG, ("call", 0, interrupt)], [("none", 1, None)]),
        Guards([ARG], [("true", 0, interrupt)]),
    ):
        with pytest.raises(KeyboardInterrupt):
            guards.check(1)
        made = CompiledFunction(plain, plain.__code__, refuse)
        made.add_entry(guards, plain)
        with pytest.raises(KeyboardInterrupt):
            made(1)


def test_a_source_is_read_right_before_its_first_check():
    log = []
    guards = Guards(
        [
            ARG,
            ("call", 0, lambda v: log.append("early")),
            ("call", 0, lambda v: log.append("late")),
        ],
        [("type", 0, int), ("none", 2, None), ("none", 1, None), ("none", 2, None)],
    )
    assert guards.check(1) and log == ["late", "early"]
    assert guards.explain("no") == (0, "no") and log == ["late", "early"]


# ---- checks


class Color(enum.Enum):
    RED, BLUE = 1, 2


class IntSub(int):
    pass


def ask(kind, payload, value):
    return Guards([ARG], [(kind, 0, payload)]).check(value)


NAN = float("nan")


@pytest.mark.parametrize(
    "kind, payload, good, bad",
    [
        ("is", Thing, [Thing], [Slotted, None, 1]),
        ("is", None, [None], [0, False]),
        ("is", True, [True], [1, False]),
        ("isnot", None, [1, Thing], [None]),
        ("type", int, [1, 5], [True, IntSub(1), 1.0, None]),
        ("type", Thing, [Thing()], [Thing, Slotted()]),
        ("none", None, [None], [0, (), False]),
        ("eq", 1, [1], [True, 1.0, 2, IntSub(1), "1"]),
        ("eq", True, [True], [1, False]),
        ("eq", 10**30, [10**30], [10**30 + 1]),
        ("eq", 0.0, [0.0], [-0.0, 0, 1.0]),
        ("eq", NAN, [float("nan"), NAN], [0.0]),
        ("eq", 1j, [1j], [1 + 1j, 1]),
        ("eq", "ab", ["ab", "".join("ab")], ["ac", b"ab", "abc"]),
        ("eq", "\u4e00", ["\u4e00"], ["\u4e01", "N"]),
        ("eq", b"ab", [b"ab"], ["ab", b"a"]),
        ("eq", (1, ("a", 2.0)), [(1, ("a", 2.0))], [(1, ("a", 2)), (1,), [1, ("a", 2.0)]]),
        ("eq", (True,), [(True,)], [(1,)]),
        ("eq", frozenset({1, "a"}), [frozenset({"a", 1})], [frozenset({True, "a"}), {1, "a"}]),
        ("eq", slice(1, None, 2), [slice(1, None, 2)], [slice(1, 2, 2), slice(True, None, 2)]),
        ("eq", range(3), [range(3), range(0, 3)], [range(4), range(0, 3, 2)]),
        ("eq", range(0), [range(0)], [range(1, 1)]),
        ("eq", Color.RED, [Color.RED], [Color.BLUE, 1]),
        ("eq", ..., [...], [None]),
        ("eq", f32, [f32], [f64]),
        ("len", 2, [[1, 2], (1, 2), "ab", {1: 2, 3: 4}, {1, 2}], [[], "abc", 5, None]),
        ("bool", True, [1, [0], "a", Thing()], [0, [], "", None]),
        ("bool", False, [0, [], None], [1]),
        ("absent", "x", [Thing(), {}, {"y": 1}, 5], [Thing(x=1), {"x": 1}]),
        ("absent", 3, [{}, {2: 1}], [{3: 1}]),
        ("absent", "shared", [vars(int)], [vars(Thing)]),
        ("absent", "keys", [vars(Thing)], [vars(dict)]),
        ("ints", None, [1, -(2**63), 2**63 - 1], [True, 1.0, 2**63, IntSub(2), None]),
        ("float", None, [1.0, NAN], [1, None]),
        ("true", lambda v: v > 3, [4], [3, "a"]),
        (
            "keys",
            ("a", 1),
            [{"a": 0, 1: 0}],
            [{1: 0, "a": 0}, {"a": 0}, {"a": 0, True: 1}, ["a", 1]],
        ),
        ("keys", (), [{}, OrderedDict()], [{1: 1}, ()]),
    ],
)
def test_checks_of_one_value(kind, payload, good, bad):
    for value in good:
        assert ask(kind, payload, value), (kind, payload, value)
    for value in bad:
        assert not ask(kind, payload, value), (kind, payload, value)
    assert sys.exc_info() == (None, None, None)


def test_keys_keep_the_order_of_an_ordered_dict():
    table = OrderedDict(a=1, b=2)
    guards = Guards([ARG], [("keys", 0, ("a", "b"))])
    assert guards.check(table)
    table.move_to_end("a")
    assert not guards.check(table) and guards.check({"a": 0, "b": 0})


def test_mode():
    word = core.mode()
    guards = Guards((), [("mode", -1, word)])
    grad = Guards((), [("mode", -1, (1, 1))])
    assert guards.check() and grad.check()
    core.set_mode(word | 4)  # records: no part of what is compiled
    assert guards.check()
    core.set_mode(word & ~1)
    assert guards.explain() == (0, word & ~1) and not grad.check()
    core.set_mode(word | 2)
    assert not guards.check() and grad.check()
    core.set_mode(word)


def test_clock():
    module = Thing(_changed_at=4)
    assert ask("clock", 4, module) and not ask("clock", 5, module)
    assert not ask("clock", 4, Thing()) and not ask("clock", 4, 4)


def tensor_facts(t, **changed):
    facts = {
        "type": type(t),
        "dtype": t.dtype,
        "ndim": t.ndim,
        "requires_grad": t.requires_grad,
        "sizes": tuple(t.shape),
        "strides": t.stride(),
        "leaf": t.is_leaf,
        "device": t.device,
    }
    return tuple({**facts, **changed}.values())


def test_tensor():
    class Sub(core.Tensor):
        pass

    x = core.empty((2, 3), f32)
    others = {
        "shape": core.empty((3, 3), f32),
        "dtype": core.empty((2, 3), f64),
        "ndim": core.empty((2, 3, 1), f32),
        "strides": core.empty((3, 2), f32).transpose(0, 1),
        "grad": core.empty((2, 3), f32).requires_grad_(),
        "type": core.Tensor._make_subclass(Sub, x, False)
        if hasattr(core.Tensor, "_make_subclass")
        else 1,
        "number": 1.0,
    }
    assert ask("tensor", tensor_facts(x), x) and ask(
        "tensor", tensor_facts(x), core.empty((2, 3), f32)
    )
    for name, other in others.items():
        assert not ask("tensor", tensor_facts(x), other), name
    contiguous = tensor_facts(x, strides=None)
    assert ask("tensor", contiguous, x) and not ask("tensor", contiguous, others["strides"])
    free = tensor_facts(x, strides="any")
    assert ask("tensor", free, x) and ask("tensor", free, others["strides"])
    dynamic = tensor_facts(x, sizes=(None, 3), strides=(3, None))
    assert ask("tensor", dynamic, x) and ask("tensor", dynamic, others["shape"])
    assert not ask("tensor", dynamic, core.empty((2, 4), f32))
    assert not ask("tensor", dynamic, others["strides"]) and not ask(
        "tensor", dynamic, others["dtype"]
    )
    dynamic = tensor_facts(x, sizes=(None, None), strides=None)
    assert ask("tensor", dynamic, core.empty((7, 1), f32)) and not ask(
        "tensor", dynamic, others["strides"]
    )
    odd = others["strides"]
    assert ask("tensor", tensor_facts(odd), odd) and not ask("tensor", tensor_facts(odd), x)
    leaf = others["grad"]
    inner = leaf * 2.0
    assert ask("tensor", tensor_facts(leaf), leaf) and not ask("tensor", tensor_facts(leaf), inner)
    assert ask("tensor", tensor_facts(leaf, leaf=None), inner)
    assert ask("tensor", tensor_facts(core.tensor(3, i64)), core.tensor(4, i64))


def test_bad_tensor_facts():
    x = core.empty((2, 3), f32)
    for changed, error in (
        ({"type": 1}, TypeError),
        ({"dtype": 1}, TypeError),
        ({"ndim": 3}, ValueError),
        ({"ndim": 99}, ValueError),
        ({"sizes": (1,)}, ValueError),
        ({"sizes": (-1, 2)}, ValueError),
        ({"strides": "c"}, ValueError),
        ({"strides": (2**70, 1)}, OverflowError),
    ):
        with pytest.raises(error):
            Guards([ARG], [("tensor", 0, tensor_facts(x, **changed))])


def test_alias():
    two = [ARG, ("arg", -1, 1)]
    same, apart = Guards(two, [("alias", -1, (0, 1))]), Guards(two, [("noalias", -1, (0, 1))])
    x, y = core.empty((4,), f32), core.empty((4,), f32)
    view = x.select(0, 1)
    assert same.check(x, x) and not same.check(x, y) and not same.check(x, view)
    assert apart.check(x, y) and not apart.check(x, x) and not apart.check(x, view)
    many = [("arg", -1, i) for i in range(40)]
    values = [core.empty((1,), f32) for _ in range(40)]
    guards = Guards(many, [("noalias", -1, tuple(range(40)))])
    assert guards.check(*values)
    values[39] = values[3].detach()
    assert not guards.check(*values)


def test_shape_programs():
    x, y = core.empty((4, 6), f32), core.empty((6, 2), f32)
    two = [ARG, ("arg", -1, 1)]

    def holds(*program, values=(x, y)):
        return Guards(two, [("shape", -1, program)]).check(*values)

    assert holds(("size", 0, 1), ("size", 1, 0), "==") and not holds(("size", 0, 0), 5, "==")
    assert holds(("size", 0, -1), 6, "==") and not holds(("size", 0, 2), 1, "==")
    assert holds(("stride", 0, 0), 6, "==") and holds(("offset", 0), 0, "==")
    assert holds(("size", 0, 0), 3, "%", 1, "==") and holds(("size", 0, 0), 3, "//", 1, "==")
    assert (
        holds(-7, 2, "//", -4, "==") and holds(-7, 2, "%", 1, "==") and holds(7, -2, "%", -1, "==")
    )
    assert holds(3, 4, "min", 3, 4, "max", "<") and holds(3, "neg", -3, "==")
    assert holds(1, 0, "or", 1, "and", 0, "not", "and") and holds(2, 3, "*", 6, 1, "-", ">")
    assert holds(2, 2, "<=", 2, 2, ">=", "and", 1, 2, "!=", "and", 1, 1, "+", "and")
    assert not holds(1, 0, "//") and not holds(1, 0, "%")  # nothing holds where nothing is defined
    big = 2**62
    assert not holds(big, 4, "*", 0, "==") and not holds(-(2**63), -1, "//", 0, "!=")
    assert not holds(-(2**63), "neg") and not holds(big, big, "+")
    assert holds(("int", 0), ("int", 1), "<", values=(1, 2)) and not holds(
        ("int", 0), values=(1.0, 2)
    )
    assert holds(("len", 0), 3, "==", values=([1, 2, 3], 2))
    assert not holds(("int", 0), values=(2**64, 2)) and not holds(("size", 0, 0), values=(3, 2))
    for bad, error in (
        (("+",), ValueError),
        ((1, 2), ValueError),
        ((), ValueError),
        ((1, "x"), ValueError),
        ((("size", 5, 0),), ValueError),
        ((("width", 0, 0),), ValueError),
        ((1.5,), TypeError),
        (tuple(range(70)), ValueError),
    ):
        with pytest.raises(error):
            Guards(two, [("shape", -1, bad)])


def test_bad_guards():
    for sources, checks, error in (
        ([("what", -1, 0)], [], ValueError),
        ([("arg", 0, 0)], [], ValueError),
        ([("arg", -1, -1)], [], ValueError),
        ([("attr", 0, "x")], [], ValueError),
        ([ARG, ("attr", 1, "x")], [], ValueError),
        ([ARG, ("attr", 0, 1)], [], TypeError),
        ([ARG, ("call", 0, 1)], [], TypeError),
        ([("cell", -1, 1)], [], TypeError),
        ([("global", -1, "x")], [], TypeError),
        ([("global", -1, (1, "x"))], [], TypeError),
        ([("arg", -1, "x")], [], TypeError),
        ([("arg",)], [], TypeError),
        ([1], [], TypeError),
        ([ARG], [("is", 1, 0)], ValueError),
        ([ARG], [("is", -1, 0)], ValueError),
        ([ARG], [("is", -2, 0)], ValueError),
        ([ARG], [("mode", 0, 0)], ValueError),
        ([ARG], [("what", 0, 0)], ValueError),
        ([ARG], [("type", 0, 1)], TypeError),
        ([ARG], [("true", 0, 1)], TypeError),
        ([ARG], [("len", 0, "x")], TypeError),
        ([ARG], [("alias", -1, (0, 1))], ValueError),
        ([ARG], [("is", 0)], TypeError),
        (1, [], TypeError),
    ):
        with pytest.raises(error):
            Guards(sources, checks)
