"""The tape where memory is written and shared: saved versions, in-place writes, views."""

import numpy as np
import pytest
from harness import CALLS, OPS, core, tensor

add, mul, exp = OPS["add"], OPS["mul"], OPS["exp"]


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    yield
    core.set_mode(1)


def leaf(*values):
    return tensor(list(values), grad=True)


def test_saved_versions():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * 1.0
    z = y * w
    y.add_(1.0)
    with pytest.raises(
        RuntimeError,
        match=r"modified by an inplace operation: \[float32 \[2\]\].*"
        "is at version 1; expected version 0",
    ):
        z.sum().backward()
    e = exp(x)
    e.add_(1.0)
    with pytest.raises(
        RuntimeError, match="output 0 of ExpBackward0, is at version 1; expected version 0"
    ):
        e.sum().backward()
    d = x * 1.0
    p = d * w
    d.detach().add_(1.0)  # shares the counter
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        p.sum().backward()
    d = x * 1.0
    p = d * w
    d.data.add_(1.0)  # does not
    p.sum().backward()


def test_in_place_gradients():
    x = leaf(1.0, 2.0)
    with pytest.raises(
        RuntimeError,
        match="a leaf that requires grad cannot be written to in place",
    ):
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="a view of a leaf that requires grad"):
        x[0:1].add_(1.0)
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        x[0] = 1.0
    assert x.tolist() == [1, 2] and x._version == 0
    core.set_grad_enabled(False)
    x.add_(1.0)
    core.set_grad_enabled(True)
    assert x.tolist() == [2, 3] and x._version == 1
    y = x * 1.0
    y.mul_(3.0)
    y.add_(x)
    y.exp_()
    assert y.grad_fn.name() == "ExpBackward0"
    y.sum().backward()
    assert np.allclose(x.grad.tolist(), 4 * np.exp([8, 12]))
    b = tensor([1.0, 1.0])  # a plain tensor joins the graph
    b.mul_(x)
    assert b.requires_grad and not b.is_leaf
    x.grad = None
    (b * 2.0).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_views_have_gradients():
    x = core.tensor(np.arange(24, dtype="float32").reshape(2, 3, 4)).requires_grad_()
    for view, expected in (
        (lambda t: t[1], np.s_[1]),
        (lambda t: t[:, 1:, ::2], np.s_[:, 1:, ::2]),
        (lambda t: t[0, :, 2], np.s_[0, :, 2]),
        (lambda t: t.permute(2, 0, 1)[1], np.s_[:, :, 1]),
        (lambda t: t.view(6, 4)[4], np.s_[1, 1]),
    ):
        x.grad = None
        view(x).sum().backward()
        zeros = np.zeros((2, 3, 4))
        zeros[expected] = 1
        assert np.array_equal(x.grad.numpy(), zeros)
    x.grad = None
    (x.unsqueeze(0).expand(5, 2, 3, 4) * 1.0).sum().backward()
    assert np.all(x.grad.numpy() == 5)
    t = x.transpose(0, 2).reshape(24)  # needs a copy
    assert (
        t.grad_fn is not None
        and t.tolist() == x.detach().numpy().transpose(2, 1, 0).reshape(-1).tolist()
    )
    x.grad = None
    t[:4].sum().backward()
    assert x.grad.numpy().sum() == 4


def test_run_time_indices_share_a_derivative():
    x = core.tensor(np.arange(50, dtype="float32")).requires_grad_()
    before = len(CALLS)
    for i in range(50):
        x.grad = None
        (x[i] * 2.0).backward()
        assert x.grad.tolist() == [2.0 if k == i else 0.0 for k in range(50)]
    assert len(CALLS) - before < 12


def test_write_through_a_view():
    x, w = leaf(1.0, 2.0, 3.0), leaf(5.0, 7.0)
    y = x * 1.0
    before = y[1:]
    v = y[:2]
    v.mul_(w)
    assert (
        y.grad_fn.name() == "CopySlices"
        and y.tolist() == [5, 14, 3]
        and v.grad_fn.name() == "AsStridedBackward0"
    )
    assert before.tolist() == [14, 3]
    (y * tensor([1.0, 10.0, 100.0])).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [5, 70, 100] and w.grad.tolist() == [1, 20]
    x.grad = w.grad = None
    before.sum().backward(retain_graph=True)  # an older view follows its base
    assert x.grad.tolist() == [0, 7, 1] and w.grad.tolist() == [0, 2]
    x.grad = w.grad = None
    v.sum().backward()
    assert x.grad.tolist() == [5, 7, 0] and w.grad.tolist() == [1, 2]


def test_base_without_gradient():
    b, w = tensor([1.0, 1.0, 1.0]), leaf(2.0, 3.0)
    v = b[1:]
    v.mul_(w)
    assert b.requires_grad and b.grad_fn.name() == "CopySlices"
    (b * tensor([1.0, 2.0, 3.0])).sum().backward()
    assert w.grad.tolist() == [2, 3]
    c = tensor([1.0, 1.0, 1.0])
    u = c[1:]
    c.mul_(leaf(1.0, 2.0, 3.0))
    assert u.requires_grad and not u.is_leaf  # a view made before its base joined the graph


def test_assignment_gradients():
    x, s = leaf(1.0, 2.0), leaf(9.0)
    b = tensor([[0.0, 0.0], [0.0, 0.0]])
    b[0] = x
    b[1, 1:] = s
    b[1, 0] = 4.0
    assert b.tolist() == [[1, 2], [4, 9]]
    (b * tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [1, 2] and s.grad.tolist() == [4]
    y = x * 1.0
    y[0] = 5.0
    x.grad = None
    (y * y).sum().backward()
    assert x.grad.tolist() == [0, 4]


def test_writes_differentiate_twice():
    x = leaf(2.0, 3.0)
    y = x * x
    y[:1].mul_(x[1:])
    (g,) = core.grad(y.sum(), x, create_graph=True)  # x0^2 x1 + x1^2
    assert g.tolist() == [12, 4 + 6]
    assert core.grad(g.sum(), x)[0].tolist() == [2 * 3 + 2 * 2, 2 * 2 + 2]


def test_no_grad_views():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    core.set_grad_enabled(False)
    v = y[:1]
    core.set_grad_enabled(True)
    assert not v.requires_grad
    with pytest.raises(RuntimeError, match="no_grad mode"):
        v.mul_(2.0)
    with pytest.raises(RuntimeError, match="views in-place"):
        y[:1].detach_()
