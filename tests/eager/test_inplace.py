"""In-place operators, views and version counters under autograd."""

import numpy as np
import pytest

import rushlight as rl

from .both import both_do, close, note_of, raises, randn


def lib_of(x):
    if isinstance(x, rl.Tensor):
        return rl
    import torch

    return torch


# Programs: given leaves x (4, 3) and y (4, 3) that require gradients, they return what is summed.


def base_then_view(x, y):
    a = x * 1
    v = a[1]
    a.mul_(2)
    return v * y[0]


def view_then_base(x, y):
    a = x * 1
    v = a[1]
    v.mul_(y[0])
    return a * a


def view_of_view(x, y):
    a = x * 2
    v = a[1:][:, 1]
    v.add_(y[1:, 0] * 3)
    return a.exp()


def two_views(x, y):
    a = x * 1
    v, w = a[0], a[0:2]
    v.mul_(y[0])
    return w * w


def sibling_views(x, y):
    a = x * 1
    v, w = a[0], a[1]
    v.copy_(y[0])
    w.mul_(3)
    return a * a + v * w


def transposed(x, y):
    a = x.clone()
    a.t().mul_(y.t())
    return a.sin()


def flat(x, y):
    a = x.clone()
    a.view(-1)[2:5].copy_(y.view(-1)[:3])
    return a * x


def assign(x, y):
    a = x.clone()
    a[1] = y[2] * 2
    a[:, 2] = 5
    a[::2] = a[1::2]
    return a * a


def assign_constant(x, y):
    a = lib_of(x).zeros(4, 3)
    a[1:3] = x[:2] * y[:2]
    a[0, 0] = x[3, 1]
    return a * a


def chain(x, y):
    a = x * 1
    for _ in range(3):
        a.mul_(y).add_(x)
    return a


def iadd(x, y):
    a = x * 1
    a += y
    a -= y * y
    a *= y
    a /= y.exp()
    return a


def number(x, y):
    a = x * 1
    a += 1
    a *= 2.5
    return a * y


def filled(x, y):
    a = x * 2
    b = a * 1
    b.fill_(3)
    return b * y + a


def filled_view(x, y):
    a = x * 2
    a[1].zero_()
    return a * a


def relu_in_place(x, y):
    return (x * y).relu_() * y


def sigmoid_in_place(x, y):
    return (x * y).sigmoid_()


def exp_in_place(x, y):
    a = x * 1
    a.exp_()
    return a * y


def no_grad_update(x, y):
    a = x * 1
    b = a * y.detach()
    with lib_of(x).no_grad():
        a[0] = 0
    return b + a * 2


def detached_write(x, y):
    a = x + 1
    d = a.detach()
    d.mul_(2)
    return a + y


def data_write(x, y):
    a = x * 1
    b = a * y
    a.data.zero_()
    return b


def masked(x, y):
    a = x * 1
    a.masked_fill_(y.detach() > 0, 0.5)
    return a * a


def copy_broadcast(x, y):
    a = x * 1
    a.copy_(y[0])
    return a * x


def copy_cast(x, y):
    a = (x * 1).double()
    a[1:].copy_(y[1:])
    return a.float() * x


def squeeze_view(x, y):
    a = x * 1
    a.unsqueeze(0)[0, 1].squeeze(0).add_(y[0])
    return a * a


def after_use_in_add(x, y):
    a = x * 1
    b = a + y
    a.add_(1)
    return a * b


def self_twice(x, y):
    a = x * y
    a.mul_(a)
    return a


def self_view(x, y):
    a = x * y
    a.add_(a[0])
    return a * a


def out_of_leaf_view(x, y):
    v = x[0]
    return (v * 1).mul_(y[0])


def expand_then_write(x, y):
    a = x[:, :1].expand(4, 3).clone()
    a.mul_(y)
    return a


def detach_in_place(x, y):
    a = x * 2
    b = a * y
    a.detach_()
    return a * y + b


def zero_then_add(x, y):
    a = lib_of(x).zeros(4, 3)
    a.add_(x).mul_(y)
    return a


def view_of_constant(x, y):
    a = lib_of(x).zeros(4, 3)
    v = a[2]
    v.add_(x[0])
    a.mul_(2)
    return a * y + v.sum()


def requires_grad_view(x, y):
    a = lib_of(x).zeros(4, 3)
    a[1] += x[1]
    a.t()[0] += y[:, 0]
    return a * a


def pow_and_write(x, y):
    a = x * 1
    b = a**2
    c = b + y
    b.add_(c)
    return b


def where_then_write(x, y):
    a = x * 1
    b = lib_of(x).where(y > 0, a, y)
    a.zero_()
    return b + a


def softmax_then_write(x, y):
    s = (x * y).softmax(1)
    t = s * 1
    t[0] = 0
    return t * y


def split_write(x, y):
    a = x * 1
    left = a.narrow(0, 0, 2)
    right = a.narrow(0, 2, 2)
    left.add_(right * y[:2])
    return a * a


PROGRAMS = [
    f
    for f in dict(globals()).values()
    if callable(f)
    and getattr(f, "__module__", "") == __name__
    and f.__code__.co_varnames[:2] == ("x", "y")
]


# The oracle refuses; ours does what the same program without in-place does.
BETTER = {
    "self_twice": lambda x, y: (x * y) * (x * y),
    "self_view": lambda x, y: (x * y + (x * y)[0]) ** 2,
    "detach_in_place": lambda x, y: (x.detach() * 2) * y + (x * 2) * y,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_the_oracles(program, oracle):
    x, y = (randn(oracle, 4, 3, seed=i, requires_grad=True) for i in (1, 2))
    results = []
    for i in range(2):
        try:
            out = program(x[i], y[i])
            (out * out.detach().sin()).sum().backward()
            results.append((out, x[i].grad, y[i].grad))
        except RuntimeError as error:
            results.append(str(error))
    ours, theirs = results
    if program.__name__ in BETTER:
        assert isinstance(theirs, str)
        a, b = (v.detach().clone().requires_grad_() for v in (x[0], y[0]))
        out = BETTER[program.__name__](a, b)
        (out * out.detach().sin()).sum().backward()
        for p, q in zip(ours, (out, a.grad, b.grad)):
            assert rl.allclose(p, q)
        return
    assert isinstance(ours, str) == isinstance(theirs, str), results
    if isinstance(ours, str):
        return
    for name, a, b in zip(("out", "x.grad", "y.grad"), ours, theirs):
        assert (a is None) == (b is None), name
        if a is not None:
            close(a, b, context=name)


def test_double_backward_through_in_place(oracle):
    x, y = (randn(oracle, 4, 3, seed=i, requires_grad=True) for i in (1, 2))
    for program in (view_then_base, chain, assign, exp_in_place, two_views):
        found = []
        for lib, a, b in ((rl, x[0], y[0]), (oracle, x[1], y[1])):
            out = program(a, b)
            grad = lib.autograd.grad(out.sin().sum(), (a, b), create_graph=True, allow_unused=True)
            second = lib.autograd.grad(
                sum((g * g).sum() for g in grad if g is not None), (a, b), allow_unused=True
            )
            found.append(second)
        for p, q in zip(*found):
            assert (p is None) == (q is None), program
            if p is not None:
                close(p, q, 1e-4, 1e-4, program.__name__)


# ---- what is refused


def test_a_leaf_that_requires_gradients():
    x = rl.ones(3, requires_grad=True)
    for write in (
        lambda: x.add_(1),
        lambda: x.mul_(2),
        lambda: x.zero_(),
        lambda: x.fill_(1),
        lambda: x.copy_(rl.zeros(3)),
        lambda: x.exp_(),
        lambda: x.masked_fill_(rl.ones(3).bool(), 0),
    ):
        with raises(RuntimeError, match="a leaf that requires grad") as caught:
            write()
        assert "test_inplace.py" in note_of(caught.value)
    for view in (lambda: x[0].add_(1), lambda: x.view(3).mul_(2), lambda: x.__setitem__(0, 1)):
        with raises(RuntimeError, match="a view of a leaf that requires grad"):
            view()
    assert x.tolist() == [1.0, 1.0, 1.0] and x._version == 0
    with rl.no_grad():
        x.add_(1)
        x[0] = 7
    assert x.tolist() == [7.0, 2.0, 2.0] and x.requires_grad and x.is_leaf


SAVED = {
    "exp (its result)": lambda x: (lambda y: (y.add_(1), y))(x.exp())[1],
    "mul (an operand)": lambda x: (lambda a: (lambda b: (a.add_(1), b))(a * a)[1])(x * 1),
    "mul, through a view": lambda x: (lambda a: (lambda b: (a[0].zero_(), b))(a * a)[1])(x * 1),
    "mul, through the base": lambda x: (lambda a: (lambda b: (a.zero_(), b))(a[0] * a[1])[1])(
        x * 1
    ),
    "softmax": lambda x: (lambda y: (y.mul_(2), y))(x.softmax(0))[1],
    "mm": lambda x: (lambda a: (lambda b: (a.add_(1), b))(a @ a.t())[1])(x * 1),
    "sigmoid": lambda x: (lambda y: (y.mul_(2), y))(x.sigmoid())[1],
    "tanh": lambda x: (lambda y: (y.mul_(2), y))(x.tanh())[1],
    "relu": lambda x: (lambda y: (y.mul_(2), y))(x.relu())[1],
    "div": lambda x: (lambda a: (lambda b: (a.add_(1), b))(x / a)[1])(x * 1),
    "a detached alias": lambda x: (lambda y: (y.detach().add_(1), y))(x.exp())[1],
    "under no_grad": lambda x: (lambda y: (in_no_grad(y), y))(x.exp())[1],
}


def in_no_grad(y):
    with lib_of(y).no_grad():
        y.add_(1)


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_tensor_that_was_modified(name, oracle):
    for lib in (rl, oracle):
        x = lib.ones(2, 3, requires_grad=True)
        y = SAVED[name](x)
        with raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        assert x.grad is None
    x = rl.ones(2, 3, requires_grad=True)
    y = SAVED[name](x)
    with raises(RuntimeError, "[2, 3]" if "base" not in name else "[3]", "version", "expected"):
        y.sum().backward()


def test_what_needs_no_saved_value_may_be_modified(oracle):
    def run(lib):
        x = lib.ones(3, requires_grad=True)
        y = x + 2
        z = y * 3  # a number: y is not needed
        y.add_(1)
        w = (z + y).sum()
        w.backward()
        return x.grad

    both_do(run, (rl,), (oracle,))


def test_version_counters(oracle):
    for lib in (rl, oracle):
        x = lib.zeros(4)
        v, d = x[1:], x.detach()
        assert (x._version, v._version, d._version) == (0, 0, 0)
        x.add_(1)
        v.mul_(2)
        d.zero_()
        assert (x._version, v._version, d._version) == (3, 3, 3)
        x[0] = 1
        assert v._version == 4
        a = x.data
        a.add_(1)
        assert x._version == 4 and a._version != x._version
        assert x.clone()._version == 0
        with lib.no_grad():
            x.add_(1)
        assert x._version == 5


def test_views_made_in_no_grad(oracle):
    """Writes through a view that was made under no_grad are refused."""
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        a = x * 2
        with lib.no_grad():
            v = a[0]
        w = lib.ones((), requires_grad=True)
        with pytest.raises(RuntimeError):
            v.mul_(w)
        assert a.tolist() == [2.0] * 3


def test_data_assignment(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        x.data = lib.zeros(5)
        assert tuple(x.shape) == (5,) and x.requires_grad and x.is_leaf
        x.data.add_(1)
        assert x.sum().item() == 5
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0] * 5


def test_requires_grad_of_in_place_results(oracle):
    for lib in (rl, oracle):
        a = lib.zeros(3)
        x = lib.ones(3, requires_grad=True)
        v = a[1:]
        a.add_(x)
        assert a.requires_grad and not a.is_leaf and v.requires_grad
        assert v.grad_fn is not None
        v.sum().backward()
        assert x.grad.tolist() == [0, 1, 1]


def test_detach_of_a_view_and_detach_in_place(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        a = x * 2
        d = a.detach()
        assert d.is_leaf and not d.requires_grad and d.data_ptr() == a.data_ptr()
        a.detach_()
        assert a.is_leaf and not a.requires_grad and a.grad_fn is None
        v = (x * 2)[0]
        with pytest.raises(RuntimeError):
            v.detach_()


def test_requires_grad_turned_on_and_off(oracle):
    for lib in (rl, oracle):
        a = lib.ones(3)
        a.requires_grad_()
        b = a * 2
        with pytest.raises(RuntimeError):
            b.requires_grad = False
        a.requires_grad_(False)
        assert not (a * 2).requires_grad
        b.sum().backward()


def test_optimizer_style_updates(oracle):
    def run(lib):
        w = lib.ones(3, requires_grad=True)
        for _ in range(5):
            loss = ((w * w) - 0.25).pow(2).sum()
            loss.backward()
            with lib.no_grad():
                w -= 0.1 * w.grad
                w.grad.zero_()
        return w.detach()

    both_do(run, (rl,), (oracle,), close)


def test_a_product_is_written_into_given_memory():
    """Rows of a wider matrix, and the bias itself: no copy is made; a factor is read first."""
    x, y, table = rl.randn(3, 4), rl.randn(4, 5), rl.randn(6, 8)
    expected = rl.addmm(table[2:5, 1:6].clone(), x, y)
    place = table[2:5, 1:6]
    before = table.clone()
    rl.eager._core.record(True)
    got = rl.addmm(place, x, y, out=place)
    rl.eager._core.record(False)
    assert not any("copied" in str(r[10]) for r in rl.eager._core.records())
    assert got is place and np.allclose(table[2:5, 1:6].numpy(), expected.numpy(), atol=1e-5)
    table[2:5, 1:6] = before[2:5, 1:6]
    assert table.tolist() == before.tolist()
    square = rl.randn(4, 4)
    expected = square @ square
    assert np.allclose(rl.mm(square, square, out=square).numpy(), expected.numpy(), atol=1e-5)


def test_outputs_written_over_operands_one_element_at_a_time():
    from rushlight.ops import TABLE

    step = TABLE["momentum_step"].native
    p, g, b = (rl.randn(4, 6) for _ in range(3))
    want = step(p, g, b, 0.1, 0.9, 1.0)
    got = step(p, g, b, 0.1, 0.9, 1.0, out=(b, p))  # each over the other's operand
    assert got[0] is b and b.tolist() == want[0].tolist() and p.tolist() == want[1].tolist()
    p = rl.randn(8)
    want = step(p[:6].clone(), p[1:7].clone(), p[2:].clone(), 0.1, 0.9, 1.0)
    step(p[:6], p[1:7], p[2:], 0.1, 0.9, 1.0, out=(p[:6], rl.empty(6)))
    assert p[:6].tolist() == want[0].tolist()  # partly overlapping: by way of a temporary


@pytest.mark.parametrize("bias", ["whole", "row", "itself", "transposed"])
@pytest.mark.parametrize("beta", [1, 0.5])
def test_products_added_to_a_bias_again_and_again(bias, beta):
    """One library from the first run on: the same bits each time."""
    first = None
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((96, 96)).astype("float32") for _ in range(2))
    b = rng.standard_normal((1, 96) if bias == "row" else (96, 96)).astype("float32")
    want = beta * (b.T if bias == "transposed" else b) + x @ y
    for _ in range(4):
        given = rl.from_numpy(b.copy())
        given = given.t() if bias == "transposed" else given
        out = {"out": given} if bias == "itself" else {}
        got = rl.addmm(given, rl.from_numpy(x), rl.from_numpy(y), beta=beta, **out)
        np.testing.assert_allclose(got.numpy(), want, atol=1e-4)
        first = got.tolist() if first is None else first
        assert got.tolist() == first
