"""`cond` and `while_loop`: eager, with gradients, and in compiled functions."""

import pytest

import rushlight as rl


def branches(x):
    return rl.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))


def test_cond_takes_one_branch_and_its_gradient():
    for value, want, slope in ((3.0, 6.0, 2.0), (-3.0, -4.0, 1.0)):
        x = rl.tensor([value], requires_grad=True)
        y = branches(x)
        y.sum().backward()
        assert y.item() == want and x.grad.item() == slope
    assert rl.cond(True, lambda: 1, lambda: 2) == 1


def test_while_loop():
    i, total = rl.while_loop(
        lambda i, s: i < 4, lambda i, s: (i + 1, s + i), (rl.tensor(0), rl.tensor(0))
    )
    assert (i.item(), total.item()) == (4, 6)


def test_both_in_a_compiled_function():
    def f(x):
        y = branches(x * 1.0) + 1
        (n,) = rl.while_loop(lambda v: v.sum() < 100, lambda v: (v * 2,), (y,))
        return n + 1

    g = rl.compile(f)
    for value in (1.0, -0.5):
        x = rl.tensor([value, 7.0])
        assert g(x).tolist() == f(x).tolist()
    x = rl.tensor([-9.0, 200.0])
    assert g(x).tolist() == f(x).tolist()


def test_what_is_refused():
    with pytest.raises(RuntimeError, match="callable"):
        rl.cond(True, 1, 2)
    with pytest.raises(RuntimeError, match="single-element"):
        rl.cond(rl.ones(2) > 0, lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="bool or tensor"):
        rl.cond("a", lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="same number"):
        rl.while_loop(lambda x: x.sum() < 3, lambda x: (x, x), (rl.zeros(1),))
    with pytest.raises(RuntimeError, match="boolean scalar"):
        rl.while_loop(lambda x: x, lambda x: (x,), (rl.zeros(1),))
