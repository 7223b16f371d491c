"""Jacobians, Hessians and their products against the oracle; gradcheck of right and wrong rules."""

import numpy as np
import pytest

import rushlight as rl

ONE = {
    "square": lambda lib, x: x**2,
    "row sums": lambda lib, x: x.exp().sum(1),
    "a number": lambda lib, x: (x**3).sum(),
    "independent": lambda lib, x: lib.ones(2),
}
TWO = {
    "product": lambda lib, x, y: x * y,
    "two results": lambda lib, x, y: (x.sin() * y, (x + y * 2).sum()),
}
NUMBER = {
    "cubes": lambda lib, x, y: (x**3 * y).sum(),
    "one alone": lambda lib, x, y: x.pow(3).sum(),
}


def inputs(lib, count):
    r = np.random.default_rng(5)
    found = tuple(lib.tensor(r.standard_normal((2, 3))) for _ in range(count))
    return found[0] if count == 1 else found


def flat(v):
    if isinstance(v, (tuple, list)):
        return ("tuple", *[flat(x) for x in v])
    return np.round(v.detach().numpy(), 9).tolist()


def agree(name, functions, key, count, oracle, *more):
    found = []
    for lib in (rl, oracle):
        f = functions[key]
        api = getattr(lib.autograd.functional, name)
        vectors = [m(lib) for m in more]
        found.append(flat(api(lambda *xs, lib=lib, f=f: f(lib, *xs), inputs(lib, count), *vectors)))
    assert found[0] == found[1]


@pytest.mark.parametrize("key", ONE)
def test_jacobian_of_one(key, oracle):
    agree("jacobian", ONE, key, 1, oracle)


@pytest.mark.parametrize("key", TWO)
def test_jacobian_of_two(key, oracle):
    agree("jacobian", TWO, key, 2, oracle)


@pytest.mark.parametrize("key", NUMBER)
def test_hessian_and_its_products(key, oracle):
    agree("hessian", NUMBER, key, 2, oracle)
    v = lambda lib: tuple(x.cos() for x in inputs(lib, 2))
    agree("vhp", NUMBER, key, 2, oracle, v)
    agree("hvp", NUMBER, key, 2, oracle, v)


def test_products_with_the_jacobian(oracle):
    v = lambda lib: tuple(x.cos() for x in inputs(lib, 2))
    agree("jvp", TWO, "product", 2, oracle, v)
    agree("vjp", TWO, "product", 2, oracle, lambda lib: v(lib)[0])
    agree("jvp", TWO, "two results", 2, oracle, v)
    agree("vjp", ONE, "a number", 1, oracle)


def test_results_differentiate_again(oracle):
    grads = []
    for lib in (rl, oracle):
        x = inputs(lib, 1).requires_grad_()
        j = lib.autograd.functional.jacobian(lambda x: x**3, x, create_graph=True)
        j.sum().backward()
        grads.append(x.grad.tolist())
        assert not lib.autograd.functional.jacobian(lambda x: x**3, x).requires_grad
    np.testing.assert_allclose(*grads)


def test_bad_calls(oracle):
    for lib in (rl, oracle):
        f = lib.autograd.functional
        x = lib.ones(2)
        with pytest.raises(RuntimeError):
            f.hessian(lambda x: x * 2, x)
        with pytest.raises(RuntimeError):
            f.jacobian(lambda x: lib.ones(2), x, strict=True)
        with pytest.raises(RuntimeError):
            f.vjp(lambda x: x * 2, x)
        with pytest.raises(RuntimeError):
            f.jvp(lambda x: x * 2, x, lib.ones(3))
        with pytest.raises(TypeError):
            f.jacobian(lambda x: 3, x)


def test_gradcheck_tells_right_rules_from_wrong_ones(oracle):
    for lib in (rl, oracle):

        class Wrong(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return g * x * 3

        x = lib.tensor([0.5, -1.5], dtype=lib.float64, requires_grad=True)
        assert lib.autograd.gradcheck(lambda x: (x.sin(), x.sum()), (x,))
        assert lib.autograd.gradgradcheck(lambda x: x.sin() * x, (x,))
        with pytest.raises(RuntimeError, match="Jacobian|derivatives of output 0"):
            lib.autograd.gradcheck(Wrong.apply, (x,))
        assert not lib.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)
        with pytest.raises(ValueError, match="requires? a? ?gradient"):
            lib.autograd.gradcheck(lambda x: x, (x.detach(),))
        assert isinstance(lib.ones(1), lib.autograd.Variable)
