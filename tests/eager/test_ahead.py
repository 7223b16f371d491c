"""What libraries make at their first use, begun while a graph is captured."""

import os

import pytest

import rushlight as rl
from rushlight import _core, dynamo
from rushlight.eager import ahead
from rushlight.ops.layouts import Layout, dense


@pytest.fixture
def asked(monkeypatch):
    found = []
    monkeypatch.setattr(ahead, "prepare", found.append)
    dynamo.reset()
    return found


def captured(fn, *inputs, **options):
    rl.compile(fn, backend="eager", **options)(*inputs)


def test_products_of_some_size_are_noticed(asked):
    captured(lambda x, w: rl.nn.functional.linear(x, w) + 1, rl.ones(128, 64), rl.ones(64, 64))
    assert asked == [False]
    captured(lambda x, w: rl.nn.functional.conv2d(x, w), rl.ones(1, 8, 40, 40), rl.ones(8, 8, 3, 3))
    assert asked == [False, False]


def test_small_products_other_dtypes_and_other_operators_are_not(asked):
    captured(lambda x: (x @ x, x * 2, x.double() @ x.double()), rl.ones(32, 32))
    captured(lambda x: (x @ x, x.exp()), rl.ones(128, 128, dtype=rl.float64))
    assert asked == []


def test_a_batch_with_gaps_is_told_from_one_without(asked):
    def heads(x):
        q = x.view(128, 8, 32).transpose(0, 1)
        return q @ q.transpose(1, 2)

    captured(heads, rl.ones(128, 256))
    captured(lambda x: x @ x, rl.ones(8, 64, 64))
    assert asked == [True, False]
    rows = Layout((2, 4, 128, 32), (128 * 128, 32, 128, 1), "float32")
    assert not ahead.has_gaps(rows)  # two batch dims: copied before the product
    assert not ahead.has_gaps(dense((128, 32), "float32"))


def test_a_gpu_has_its_own_library(asked, monkeypatch):
    begun = []
    monkeypatch.setattr(ahead, "prepare_gpu", begun.append)
    there = Layout((64, 64), (64, 1), "bfloat16", device="cuda:1")
    ahead.notice("mm", (there, there), 64**3)
    ahead.notice("conv2d", (there, there), 64**3)
    assert begun == ["cuda:1"] and asked == []


def test_symbolic_sizes_leave_no_guards(asked):
    f = rl.compile(lambda x: x.transpose(0, 1) @ x.permute(1, 2, 0), backend="eager", dynamic=True)
    for n in (40, 50, 60):
        assert f(rl.ones(n, 8, 64)).shape == (8, n, n)
    assert len(asked) == 1  # captured once


def test_preparing_changes_no_result_and_is_over_before_a_fork():
    x = rl.randn(128, 256)
    q = x.view(128, 8, 32).transpose(0, 1)
    want = (q @ q.transpose(1, 2)).tolist()
    ahead.begun.clear()
    try:
        ahead.prepare(True)
        ahead.prepare(False)
        assert len(ahead.begun) == (len(os.sched_getaffinity(0)) > 1)
        if (child := os.fork()) == 0:
            os._exit(any(t.is_alive() for t in ahead.begun.values()))
        assert os.waitpid(child, 0)[1] == 0
        assert not any(t.is_alive() for t in ahead.begun.values())
    finally:
        ahead.wait()
    _core.library_prepare(True)
    assert (q @ q.transpose(1, 2)).tolist() == want
