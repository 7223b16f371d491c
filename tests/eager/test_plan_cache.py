"""The plan cache: memory stays flat however many sizes and numbers come; hits counted."""

import resource

import pytest

import rushlight as rl
from rushlight import _core


def rss():
    """Resident kilobytes now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * (resource.getpagesize() // 1024)


def grown(run, n, warm=2000):
    run(0, warm)
    before, stats = rss(), _core.plan_stats()
    run(warm, n)
    after = _core.plan_stats()
    return rss() - before, after["plans"] - stats["plans"], after["layouts"] - stats["layouts"]


N = 100_000
DEFAULT = _core.plan_stats()["limit"]


def many(n):
    x = rl.zeros(n + 2, 2)

    def index(a, b):
        for i in range(a, b):
            x[i]

    def bounds(a, b):
        for i in range(a, b):
            x[i : i + 2]

    def scalars(a, b):
        y = x[0]
        for i in range(a, b):
            y + (i + 0.5)
            y * i

    def writes(a, b):
        for i in range(a, b):
            x[i, 0] = i

    def pairs(a, b):
        for i in range(a, b):
            x[i, 1].item()

    def computed(a, b):
        for i in range(a, b):
            x[i] + 1

    return {f.__name__: f for f in (index, bounds, scalars, writes, pairs, computed)}


@pytest.mark.parametrize("name", many(1))
def test_distinct_indices_and_numbers_leave_no_trace(name):
    memory, plans, layouts = grown(many(N)[name], N)
    assert plans <= 2 and layouts <= 2
    assert memory < 4096


@pytest.mark.slow
@pytest.mark.parametrize("name", many(1))
def test_a_million_of_them(name):
    memory, plans, layouts = grown(many(1_000_000)[name], 1_000_000)
    assert plans <= 2 and layouts <= 2
    assert memory < 4096


def test_growing_lengths_are_bounded():
    limit = 500
    _core.plan_clear()
    _core.plan_limit(limit)
    try:
        x = rl.zeros(20_000)
        for i in range(3000):
            x[:i] + 1
        stats = _core.plan_stats()
        layouts = stats["layouts"]
        assert stats["plans"] <= limit
        for i in range(3000, 15_000):
            x[:i] + 1
        stats = _core.plan_stats()
        assert stats["plans"] <= limit and stats["evicted"] >= 14_000
        assert stats["layouts"] <= layouts + 50
        # what was evicted is planned again, and right
        assert (x[:7] + 1).tolist() == [1.0] * 7
    finally:
        _core.plan_limit(DEFAULT)


@pytest.mark.slow
def test_a_million_growing_lengths():
    _core.plan_clear()
    _core.plan_limit(1000)
    try:
        x = rl.zeros(1_000_001)

        def run(a, b):
            for i in range(a, b):
                x[i:].view(-1) if i % 10 else x[:i].neg_()

        memory, plans, layouts = grown(run, 300_000, 20_000)
        assert plans <= 1000 and layouts <= 2000 and memory < 20_000
    finally:
        _core.plan_limit(DEFAULT)


def test_layouts_die_with_their_tensors():
    kept = [rl.zeros(i, 2).t() for i in range(1, 2000)]
    high = _core.plan_stats()["layouts"]
    del kept
    assert _core.plan_stats()["layouts"] <= high - 1900


def test_hits_and_misses_are_counted():
    x = rl.zeros(13, 17)
    x + 1
    before = _core.plan_stats()
    for i in range(10):
        x + i
    after = _core.plan_stats()
    assert after["hits"] - before["hits"] == 10 and after["misses"] == before["misses"]
    y = rl.zeros(19, 23)  # other sizes: a plan of its own, by the same recipe
    y + 1
    more = _core.plan_stats()
    assert more["misses"] > after["misses"] and more["recipes"] == after["recipes"]


def test_least_recently_used_goes_first():
    _core.plan_clear()
    _core.plan_limit(20)
    try:
        often = rl.zeros(999)
        often + 1
        for i in range(1, 500):
            rl.zeros(i).neg()
            often + 1
        before = _core.plan_stats()["misses"]
        often + 1
        assert _core.plan_stats()["misses"] == before
    finally:
        _core.plan_limit(DEFAULT)


def test_graphs_of_growing_lengths():
    _core.plan_clear()
    _core.plan_limit(300)
    try:
        w = rl.ones(1, requires_grad=True)
        x = rl.ones(4000)

        def run(a, b):
            for i in range(a, b):
                w.grad = None
                ((x[:i] * w).exp()[i // 2 :]).sum().backward()

        run(1, 400)
        assert w.grad is not None
        plans = _core.plan_stats()
        run(400, 2500)
        after = _core.plan_stats()
        assert after["plans"] <= 300 and after["nodes"] == plans["nodes"]
        assert after["layouts"] <= plans["layouts"] + 100
        assert abs(w.grad.item() - 2.718281828 * (2499 - 1249)) < 0.1
    finally:
        _core.plan_limit(DEFAULT)


def test_clearing_while_in_use():
    x = rl.ones(5, requires_grad=True)
    y = x.exp().sum()
    _core.plan_clear()
    y.backward()
    assert abs(x.grad[0].item() - 2.7182817) < 1e-6


def test_programs_remember_plans_by_layout_numbers_and_mode():
    """A composition runs again on other layouts, numbers, modes: each time its own."""
    bias, weight = rl.arange(3.0), rl.arange(6.0).reshape(3, 2)
    for _ in range(4):
        for rows in (1, 2, 5):
            for x in (rl.ones(rows, 2), rl.ones(2, rows).t(), rl.ones(rows, 4)[:, ::2]):
                got = rl.nn.functional.linear(x, weight, bias)
                assert got.tolist() == [[1.0, 6.0, 11.0]] * rows
    x, y = rl.ones(2, 2, requires_grad=True), rl.ones(2, 2)
    for alpha in (1, 2, 1.0, 2.5, 1, 2):  # 1 is the default: a constant of its plan
        x.grad = None
        rl.addmm(x, y, y, beta=alpha, alpha=2).sum().backward()
        assert x.grad.tolist() == [[float(alpha)] * 2] * 2
    for _ in range(3):
        assert rl.softmax(y, 0).requires_grad is False and rl.softmax(x, 0).requires_grad
        with rl.no_grad():
            assert not rl.softmax(x, 0).requires_grad
        with rl.autocast("cpu", dtype=rl.bfloat16):
            assert rl.nn.functional.linear(y, y).dtype == rl.bfloat16
        assert rl.nn.functional.linear(y, y).dtype == rl.float32


def test_remembered_plans_are_counted_and_forgotten():
    x = rl.ones(3, 7)
    for _ in range(3):
        rl.softmax(x, 1)
    before = _core.plan_stats()
    rl.softmax(x, 1)
    after = _core.plan_stats()
    assert after["hits"] - before["hits"] == 2 and after["misses"] == before["misses"]
    _core.plan_clear()
    rl.softmax(x, 1)
    assert _core.plan_stats()["misses"] == 2
