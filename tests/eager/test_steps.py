"""Programs whose instructions' plans follow from their own plan: the same results on every path."""

import threading

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import _core


@pytest.fixture(autouse=True)
def fresh():
    _core.plan_clear()
    yield
    _core.plan_limit(4096)


def random(*shape, seed=0):
    values = np.random.default_rng(seed).normal(0, 1, shape)
    return rl.from_numpy(values.astype(np.float32))


def linear(x, w, b):
    return x.numpy() @ w.numpy().T + b.numpy()


def repeated(call, n=4):
    """Results of the first run, by instructions, and of later ones, by steps: the same bits."""
    found = [call() for _ in range(n)]
    assert len({f.detach().numpy().tobytes() for f in found}) == 1
    return found[-1]


def test_steps_of_several_layouts_live_side_by_side():
    shapes = [(rows, size) for rows in (1, 3, 8) for size in (2, 5, 9)]
    x = {s: random(*s) for s in shapes}
    w, b = {n: random(4, n, seed=n) for n in (2, 5, 9)}, random(4)
    for _ in range(4):
        for rows, n in shapes:
            np.testing.assert_allclose(
                F.linear(x[rows, n], w[n], b).numpy(), linear(x[rows, n], w[n], b), 1e-5, 1e-5
            )


def test_parameters_and_gradients():
    x, w = random(3, 4), rl.nn.Parameter(random(2, 4, seed=1))
    plain = repeated(lambda: F.linear(x, w.detach()))
    for _ in range(3):
        with rl.no_grad():
            assert not F.linear(x, w).requires_grad
        y = F.linear(x, w)
        assert y.requires_grad and type(y) is rl.Tensor
        (gradient,) = rl.autograd.grad(y.sum(), [w])
        np.testing.assert_allclose(gradient.numpy(), np.broadcast_to(x.sum(0), (2, 4)), 1e-5)
        assert y.detach().numpy().tobytes() == plain.numpy().tobytes()


def test_several_outputs_and_views():
    x = random(5, 4)
    for _ in range(4):
        values, places = x.max(1)
        np.testing.assert_array_equal(values, x.numpy().max(1))
        np.testing.assert_array_equal(places, x.numpy().argmax(1))
        found = F.cross_entropy(x, rl.tensor([0, 1, 2, 3, 0]), reduction="none")
        assert found.shape == (5,)
    pooled = repeated(lambda: F.max_pool2d(x.view(1, 1, 5, 4), 2))
    np.testing.assert_array_equal(pooled[0, 0], x.numpy()[:4].reshape(2, 2, 2, 2).max((1, 3)))


def test_modes_have_steps_of_their_own():
    x, w = random(4, 4), random(4, 4, seed=1)
    for _ in range(4):
        assert F.linear(x, w).dtype is rl.float32
        with rl.autocast("cpu", dtype=rl.bfloat16):
            assert F.linear(x, w).dtype is rl.bfloat16


def test_cleared_and_evicted_plans_are_not_followed():
    x = random(4, 4)
    want = repeated(lambda: rl.softmax(x, -1)).numpy().tobytes()
    _core.plan_clear()
    assert _core.plan_stats()["plans"] == 0
    assert repeated(lambda: rl.softmax(x, -1)).numpy().tobytes() == want
    _core.plan_limit(4)
    for n in range(1, 40):
        assert rl.softmax(random(n, 3), -1).shape == (n, 3)
        assert rl.softmax(x, -1).numpy().tobytes() == want
        assert _core.plan_stats()["plans"] <= 4


def test_records_name_the_parts():
    from rushlight.profiler import profile

    x = random(4, 4)
    repeated(lambda: rl.softmax(x, -1))
    with profile() as found:
        rl.softmax(x, -1)
    names = {e.key for e in found.key_averages()}
    assert any("softmax_rows" in n or "_softmax" in n for n in names)


def test_threads_share_steps():
    x, w, b = random(64, 300), random(300, 300, seed=1), random(300, seed=2)
    want, wrong = linear(x, w, b), []

    def work():
        for i in range(60):
            found = F.linear(x, w, b).numpy()
            if i % 20 == 19:
                _core.plan_clear()
            if not np.allclose(found, want, 1e-3, 1e-3):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_errors_leave_nothing_behind():
    x, labels = random(3, 4), rl.tensor([0, 1, 2])
    for _ in range(4):
        F.cross_entropy(x, labels)
    bad = rl.tensor([0, 9, 2])
    for _ in range(3):
        with pytest.raises(IndexError, match="9"):
            F.cross_entropy(x, bad)
    assert F.cross_entropy(x, labels).item() > 0
