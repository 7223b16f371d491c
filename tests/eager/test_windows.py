"""Gradients of pieces of one tensor: each goes to its place in the gradient of the whole."""

import pytest

import rushlight as torch
from rushlight import _core


def ran(function):
    """The operators that a call ran, by name."""
    _core.record(True)
    try:
        function()
    finally:
        _core.record(False)
        names = [r[3] for r in _core.records()]
    return names


def pieces(y):
    a, b, c = y.split(2, dim=1)
    rows = (y[1] * 5).sum() + y[-1].sum() + y[:, ::2].sum()
    return (a + b * 2 + c * 3).sum() + rows + y[2:, 1].sum()


def test_every_piece_lands_in_its_place():
    x = torch.arange(24.0).reshape(4, 6).requires_grad_()
    pieces(x * 2).backward()
    expected = [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0] for _ in range(4)]
    for row in expected:
        for j in (0, 2, 4):
            row[j] += 1
    for j in range(6):
        expected[1][j] += 5
        expected[3][j] += 1
    for i in (2, 3):
        expected[i][1] += 1
    assert x.grad.tolist() == [[2 * v for v in row] for row in expected]


def test_no_piece_costs_the_whole():
    x = torch.ones(50, 8, requires_grad=True)
    y = x * 1
    loss = sum((y[i] * float(i)).sum() for i in range(50))
    names = ran(loss.backward)
    assert "select_backward" not in names and names.count("add_") == 49
    assert x.grad[:, 0].tolist() == [float(i) for i in range(50)]


def test_a_gradient_that_others_see_is_not_written():
    x = torch.ones(4, 3, requires_grad=True)
    y = x * 1
    kept = torch.ones(4, 3)
    torch.autograd.backward([y, y[1].sum()], [kept, torch.tensor(1.0)])
    assert kept.tolist() == torch.ones(4, 3).tolist()
    assert x.grad.tolist() == [[1.0] * 3, [2.0] * 3, [1.0] * 3, [1.0] * 3]


def test_a_hook_sees_the_whole():
    seen = []
    x = torch.ones(4, 3, requires_grad=True)
    y = x * 1
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y[0].sum() + y[2].sum()).backward()
    assert seen == [[[1.0] * 3, [0.0] * 3, [1.0] * 3, [0.0] * 3]]


@pytest.mark.parametrize("leaf", [False, True])
def test_backward_twice_and_create_graph(leaf):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = x if leaf else x * 1
    loss = (y[0] ** 3).sum() + (y[:, 1:] ** 2).sum()
    loss.backward(retain_graph=True)
    first = x.grad.tolist()
    x.grad = None
    loss.backward(retain_graph=True)
    assert x.grad.tolist() == first == [[0.0, 5.0, 16.0], [0.0, 8.0, 10.0]]
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    assert g.tolist() == first
    x.grad = None
    g.sum().backward()
    assert x.grad.tolist() == [[0.0, 8.0, 14.0], [0.0, 2.0, 2.0]]


def test_backward_again_where_nothing_was_saved():
    x = torch.ones(3, 2, requires_grad=True)
    loss = x[1].sum() + x[0:2].sum()
    loss.backward()
    loss.backward()
    assert x.grad.tolist() == [[2.0, 2.0], [4.0, 4.0], [0.0, 0.0]]
