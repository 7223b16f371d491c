"""Layouts that an operator's rule gave once are remembered: what tells calls apart."""

import pickle

import pytest

from rushlight import sym
from rushlight.ops import TABLE
from rushlight.ops.declare import REMEMBERED, call_key
from rushlight.ops.layouts import Layout, ShapeError, dense
from rushlight.ops.values import Fake


def fake(*shape, dtype="float32"):
    return Fake(dense(shape, dtype))


def test_equal_numbers_of_other_types_promote_as_they_are():
    x = fake(3, dtype="int64")
    for _ in range(2):
        kinds = [TABLE["add"](x, v).dtype for v in (1, 1.0, True)]
        assert kinds == ["int64", "float32", "int64"]
    mask = fake(3, dtype="bool")
    assert [TABLE["mul"](mask, v).dtype for v in (True, 1, 1.0)] == ["bool", "int64", "float32"]


def test_layouts_are_told_apart_by_strides_dtype_and_device():
    keys = {
        call_key([Fake(x)])
        for x in (
            dense((2, 3), "float32"),
            dense((3, 2), "float32"),
            dense((2, 3), "float64"),
            Layout((2, 3), (1, 2), "float32"),
            Layout((2, 3), (3, 1), "float32", 4),
            Layout((2, 3), (3, 1), "float32", 0, "cuda:0"),
        )
    }
    assert len(keys) == 6 and None not in keys
    assert call_key([fake(2, 3)]) == call_key([fake(2, 3)])
    assert call_key([(1, 2)]) != call_key([(1, 2.0)]) != call_key([1, 2.0])


def test_what_varies_is_asked_each_time():
    env = sym.ShapeEnv()
    n = env.size("s0", 4)
    x = Fake(dense((n, 3), "float32"))
    assert call_key([x]) is None and call_key([fake(3), (n, 1)]) is None
    assert call_key([fake(3), slice(None)]) is None
    y = Fake(dense((4, 3), "float32"))
    TABLE["add"](x, y)
    assert env.guards  # the comparison of n with 4


def test_an_error_comes_each_time_and_nothing_grows():
    for _ in range(2):
        with pytest.raises(ShapeError):
            TABLE["add"](fake(3), fake(4))
    op = TABLE["add"]
    for n in range(2 * REMEMBERED):
        assert op(fake(n), fake(n)).shape == (n,)
    assert len(op.inferred) <= REMEMBERED


def test_callers_may_change_the_list():
    op = TABLE["add"]
    a = op.bind((fake(5), fake(5)))
    op.infer(a).clear()
    assert [x.shape for x in op.infer(a)] == [(5,)]


def test_a_layout_travels_without_its_hash():
    x = dense((2, 3), "float32")
    hash(x)
    again = pickle.loads(pickle.dumps(x))
    assert again == x and "hashed" not in again.__dict__ and hash(again) == hash(x)
