"""Packed weights follow their tensors: what writes to a weight is seen, and nothing is packed that
somebody else may write to.
"""

import gc

import numpy
import pytest

import rushlight as rl
from rushlight.runtime.packing import Packed


def counted(**options):
    calls = []

    def pack(weight, *rest):
        calls.append(weight.shape)
        return f"packed {len(calls)}"

    return Packed(pack, **options), calls


def test_a_weight_is_packed_when_it_comes_again():
    packed, calls = counted()
    w = rl.randn(4, 4)
    assert [packed(w), packed(w), packed(w)] == [None, "packed 1", "packed 1"]
    other = rl.randn(4, 4)
    assert [packed(other), packed(w), packed(w)] == [None, None, "packed 2"]
    assert len(calls) == 2


def test_at_once():
    packed, calls = counted(at_once=True)
    w = rl.randn(4, 4)
    assert [packed(w), packed(w)] == ["packed 1", "packed 1"]
    w.add_(1)
    assert packed(w) == "packed 2"


WRITES = {
    "in place": lambda w: w.add_(1),
    "out": lambda w: rl.add(w, 1, out=w),
    "item": lambda w: w.__setitem__((0, 0), 1.0),
    "view": lambda w: w.t()[0].zero_(),
    "data": lambda w: w.data.mul_(2),
    "detached": lambda w: w.detach().fill_(1),
    "other data": lambda w: setattr(w, "data", rl.randn(4, 4)),
    "numpy": lambda w: w.numpy().fill(1),
    "dlpack": lambda w: numpy.from_dlpack(w).sum(),
    "buffer": lambda w: memoryview(w).cast("B").release(),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_writes_is_seen(write):
    packed, calls = counted()
    w = rl.randn(4, 4)
    packed(w)
    assert packed(w) == "packed 1"
    WRITES[write](w)
    gc.collect()
    assert [packed(w), packed(w), len(calls)] == [None, "packed 2", 2]


def test_memory_that_others_hold_is_not_packed():
    packed, calls = counted()
    w = rl.randn(4, 4)
    array = w.numpy()
    assert [packed(w), packed(w), packed(w)] == [None, None, None]
    array[0] = 1
    del array
    gc.collect()
    assert [packed(w), packed(w)] == [None, "packed 1"]
    theirs = rl.from_numpy(numpy.ones((4, 4), "float32"))
    assert [packed(theirs), packed(theirs), packed(theirs)] == [None, None, None]


def test_the_packed_form_goes_with_its_weight():
    packed, _ = counted()
    w = rl.randn(4, 4)
    packed(w), packed(w)
    del w
    gc.collect()
    assert packed.state[2] is None


def test_a_refusal_is_remembered():
    calls = []

    def pack(weight):
        calls.append(weight)
        raise NotImplementedError

    packed, w = Packed(pack, at_once=True), rl.randn(4, 4)
    assert [packed(w), packed(w), packed(w), len(calls)] == [None, None, None, 1]


def test_another_number_of_threads_packs_anew():
    packed, calls = counted(at_once=True)
    w, before = rl.randn(4, 4), rl.get_num_threads()
    packed(w)
    try:
        rl.set_num_threads(before + 1)
        packed(w)
    finally:
        rl.set_num_threads(before)
    assert len(calls) == 2
