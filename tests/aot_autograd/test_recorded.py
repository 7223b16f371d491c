"""A compiled graph as a node of the tape: what it writes beside the tape, views that it writes to,
cotangents that never come, and what saves its tensors."""

import pytest

import rushlight as rl
from rushlight import config
from rushlight.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts")), strict=True):
        yield


def leaf(n=3):
    return rl.arange(1.0, n + 1.0).requires_grad_()


def written_by_data(x):
    x.data.mul_(2)
    return x * x


def written_without_gradients(x):
    with rl.no_grad():
        x[0].mul_(2)
    return x * x


@pytest.mark.parametrize("function", (written_by_data, written_without_gradients))
def test_a_leaf_may_be_written_to_beside_the_tape(function):
    found = []
    for f in (function, rl.compile(function)):
        x = leaf()
        y = f(x)
        y.sum().backward()
        found.append((y.tolist(), x.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def test_a_written_view_takes_its_base_along():
    def function(v):
        return v.mul_(v).sum()

    found = []
    for f in (function, rl.compile(function)):
        x = leaf(4)
        y = x * 2
        (f(y[:2]) + y.prod()).backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def test_a_written_view_is_the_only_result_of_a_function():
    class Double(rl.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.mark_dirty(v)
            return v.mul_(2), v.clone()

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 2 * h

    y = leaf() * 1
    with pytest.raises(RuntimeError, match="only result"):
        Double.apply(y[:2])


def test_third_derivatives_take_expanded_cotangents():
    x, f = leaf(), rl.compile(lambda x: (x**4).sum())
    g = f(x)
    for _ in range(3):
        (g,) = rl.autograd.grad(g.sum(), x, create_graph=True)
    assert g.tolist() == (24 * x).tolist()


def test_no_gradient_where_no_cotangent_comes_from():
    f = rl.compile(lambda x, y: (x * 2, x * y, y.exp()))
    x, y = leaf(), leaf()
    a, b, c = f(x, y)
    a.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2, 2, 2] and y.grad is None
    c.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2, 2, 2] and rl.allclose(y.grad, c)
    b.sum().backward()
    assert x.grad.tolist() == [3, 4, 5]


@pytest.mark.parametrize("inside", (False, True))
def test_checkpoint_runs_the_same_graphs_twice(inside):
    model = rl.nn.Sequential(rl.nn.Linear(3, 3), rl.nn.GELU(), rl.nn.Linear(3, 3))
    run = lambda f, x: checkpoint(f, x, use_reentrant=False).sum()
    whole = rl.compile(lambda x: run(model, x)) if inside else None
    part = rl.compile(model)
    x = leaf().reshape(1, 3)
    (want,) = rl.autograd.grad(model(x).sum(), x)
    (got,) = rl.autograd.grad(whole(x) if inside else run(part, x), x)
    assert rl.allclose(got, want)


def test_a_whole_slice_is_a_tensor_of_its_own():
    x = rl.ones(2, 2)
    for f in (lambda x: (x[:], x[...]), rl.compile(lambda x: (x[:], x[...]))):
        for view in f(x):
            assert view is not x and view._base is x and view.data_ptr() == x.data_ptr()


def test_cotangents_lie_as_compiled_for_along_dims_of_size_one():
    """A convolution that leaves one pixel gets a cotangent that is contiguous, and whose strides
    are as well those of channels last: its backward's layouts are C order's."""
    w, x = rl.randn(8, 8, 4, 4), rl.randn(1, 16, 8)

    def function(x):
        image = (x * 2).transpose(1, 2).reshape(1, 8, 4, 4)
        return rl.nn.functional.conv2d(image.exp(), w, stride=4)

    found = []
    for f in (function, rl.compile(function)):
        a = x.clone().requires_grad_()
        y = f(a)
        (y.permute(0, 2, 3, 1) * rl.arange(8.0)).sum().backward()
        found.append(a.grad)
    assert rl.allclose(*found, rtol=1e-4, atol=1e-4)
