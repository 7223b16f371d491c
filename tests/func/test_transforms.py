"""Derivatives of functions: the oracle's values for each transform, for nests of them, for trees of
arguments; what stays on the tape outside; kinds of errors."""

from collections import OrderedDict

import numpy as np
import pytest

import rushlight

R = np.random.default_rng(5)
DATA = {name: R.standard_normal(shape).tolist() for name, shape in
        {"x": (3,), "y": (3,), "m": (3, 4), "v": (4,), "s": ()}.items()}  # fmt: skip

CASES = [
    "grad(lambda x: (x.sin() * x).sum())(x)",
    "grad(lambda x, y: (x * y * y).sum(), argnums=1)(x, y)",
    "grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(x, y)",
    "grad(lambda x, y: (x * y * y).sum(), argnums=-1)(x, y)",
    "grad(lambda d: (d['a'] * d['b'][0]).sum())({'a': x, 'b': [y]})",
    "grad(lambda x, k=2.0: (x * k).sum())(x, k=3.0)",
    "grad(lambda x: (x.sin().sum(), x * 2), has_aux=True)(x)",
    "grad(lambda x: y.sum())(x)",
    "grad(grad(lambda s: s.sin() * s))(s)",
    "grad(lambda s: grad(lambda t: t * t * s)(s) * s)(s)",
    "grad_and_value(lambda x: (x ** 3).sum())(x)",
    "grad_and_value(lambda x: ((x ** 3).sum(), {'aux': x}), has_aux=True)(x)",
    "vjp(lambda x: x.exp(), x)[1](y)",
    "vjp(lambda x: x.exp(), x)[0]",
    "vjp(lambda x, y: (x * y, x + y), x, y)[1]((x, y))",
    "vjp(lambda x: ({'a': x * 2, 'b': x.sum()}, y), x, has_aux=True)[2]",
    "jvp(lambda x: x.sin(), (x,), (y,))",
    "jvp(lambda x, y: (x * y, x.sum()), (x, y), (y, x))",
    "jvp(lambda x: (x.sin(), x), (x,), (y,), has_aux=True)",
    "linearize(lambda x: x.sin(), x)[1](y)",
    "jacrev(lambda v: m.tanh() @ v.tanh())(v)",
    "jacfwd(lambda v: m.tanh() @ v.tanh())(v)",
    "jacfwd(lambda x: (x.unsqueeze(1) * m).tanh())(x)",
    "jacrev(lambda x, y: {'p': x * y, 'q': x.sum()}, argnums=(0, 1))(x, y)",
    "jacrev(lambda x: (x * 2, x), has_aux=True)(x)",
    "jacrev(lambda x: x.new_zeros(2))(x)",
    "hessian(lambda x: (x.sin() * x.roll(1)).sum())(x)",
    "hessian(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(x, y)",
    "jacrev(jacrev(lambda x: x ** 3))(x)",
    "vmap(grad(lambda x, s: (x * x * s).sum()), in_dims=(0, None))(m, s)",
    "grad(lambda x: vmap(lambda t: t * t)(x).sum())(x)",
    "jacrev(lambda x: vjp(lambda t: t ** 3, x)[1](y))(x)",
    "vmap(jacrev(lambda v: v.sin()))(m)",
    "jvp(lambda x: (x > 0, x.sin()), (x,), (y,))",
    "jvp(lambda x: x.sin(), (x,), (y,), strict=True)",
    "jacfwd(lambda x: x > 0)(x)",
    "jacfwd(lambda x: x.float())(x)",
    "jacrev(lambda x: x.float())(x)",
    "jacrev(lambda x: x, chunk_size=2)(x)",
]


def tensors(lib):
    return {n: lib.tensor(v, dtype=lib.float64) for n, v in DATA.items()}


def evaluated(expression, lib, values):
    module = lib.func
    names = {n: getattr(module, n) for n in
             "grad grad_and_value hessian jacfwd jacrev jvp linearize vjp vmap".split()}
    return eval(expression, {"lib": lib, "OrderedDict": OrderedDict, **names, **values})


def assert_same(a, b):
    if isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            assert_same(a[key], b[key])
    elif b is None or isinstance(b, int):
        assert a == b
    elif isinstance(b, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert tuple(a.shape) == tuple(b.shape) and a.requires_grad == b.requires_grad
        assert str(a.dtype).split(".")[-1] == str(b.dtype).split(".")[-1]
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # the oracle, of linearize
@pytest.mark.parametrize("expression", CASES)
def test_values(oracle, expression):
    ours, theirs = (evaluated(expression, lib, tensors(lib)) for lib in (rushlight, oracle))
    assert_same(ours, theirs)


OUTSIDE = [
    "grad(lambda x: (x * x * y).sum())(x)",
    "grad(lambda x: (x.detach() * x * w).sum())(x)",
    "jacrev(lambda x: x * x * y)(x)",
    "vjp(lambda x: x ** 3, x)[1](y)[0]",
    "jvp(lambda x: x ** 3, (x,), (y,))[1]",
    "hessian(lambda x: (x ** 3 * y).sum())(x)",
    "grad_and_value(lambda x: (x ** 3).sum())(x)[1]",
]


@pytest.mark.parametrize("expression", OUTSIDE)
def test_the_tape_outside_goes_on(oracle, expression):
    """Results hang on what the program itself follows: arguments and what the function closes
    over."""
    found = []
    for lib in (rushlight, oracle):
        values = tensors(lib)
        values["w"] = values["y"] * 2
        for name in ("x", "y", "w"):
            values[name] = values[name].detach().requires_grad_()
        out = evaluated(expression, lib, values)
        out.sum().backward()
        grads = [values[n].grad for n in ("x", "y", "w")]
        found.append([out.detach(), *(None if g is None else g for g in grads)])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-9)


def test_without_gradients_outside():
    x = rushlight.ones(3)
    with rushlight.no_grad():
        found = rushlight.func.grad(lambda x: (x * x).sum())(x)
        assert found.tolist() == [2, 2, 2] and rushlight.func.jacrev(lambda x: x * 2)(x)[0, 0] == 2
        made, back = rushlight.func.vjp(lambda x: x * x, x)
        assert back(rushlight.ones(3))[0].tolist() == [2, 2, 2] and not made.requires_grad
    assert not x.requires_grad and x.grad is None


BAD = [
    "grad(lambda x: x)(x)",
    "grad(lambda x: 3.0)(x)",
    "grad(lambda x: x.sum(), argnums=1)(x)",
    "grad(lambda x: x.sum())(3)",
    "grad(lambda x: x.sum())(lib.tensor([1, 2]))",
    "grad(lambda x: x.sum(), has_aux=True)(x)",
    "vjp(lambda x: x * 2, x)[1](v)",
    "vjp(lambda x: (x, x), x)[1](x)",
    "jvp(lambda x: x * 2, x, x)",
    "jvp(lambda x: x * 2, (x,), (v,))",
    "jacrev(lambda x: 'text')(x)",
    "grad(lambda x, y: (x * y).sum(), argnums=[0, 1])(x, y)",
    "grad(lambda x: x.sum(), argnums=())(x)",
    "grad(lambda x: (x.sum(), 'text'), has_aux=True)(x)",
    "grad(lambda x: x.sum())(lib.complex(x, y))",
    "vjp(lambda x: x.sin(), x)[1](y, y)",
    "vjp(lambda x: (), x)",
    "vjp(lambda x: x > 0, x)",
    "jacrev(lambda x: x > 0)(x)",
    "jacrev(lambda x: x, chunk_size=0)(x)",
    "jacfwd(lambda x: x, randomness='text')(x)",
    "jacfwd(lambda x: x)(lib.tensor([1, 2]))",
    "jvp(lambda x: x, (lib.tensor([1]),), (lib.tensor([1]),))",
    "jvp(lambda: x, (), ())",
    "jvp(lambda x: y, (x,), (y,), strict=True)",
]


@pytest.mark.parametrize("expression", BAD)
def test_refusals(oracle, expression):
    kinds = []
    for lib in (rushlight, oracle):
        with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
            evaluated(expression, lib, tensors(lib))
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


def test_a_model_as_a_function(oracle):
    """Gradients for each sample of a batch, as the tutorials compute them."""
    found = []
    for lib in (rushlight, oracle):
        model = lib.nn.Sequential(lib.nn.Linear(4, 3), lib.nn.Tanh(), lib.nn.Linear(3, 2))
        for i, p in enumerate(model.parameters()):
            values = np.random.default_rng(i).standard_normal(tuple(p.shape))
            p.data = lib.tensor(values.tolist(), dtype=lib.float64)
        x = tensors(lib)["m"]
        target = lib.tensor([0, 1, 1])
        parameters = {k: v.detach() for k, v in model.named_parameters()}

        def loss(parameters, x, target, model=model, lib=lib):
            out = lib.func.functional_call(model, parameters, (x.unsqueeze(0),))
            return lib.nn.functional.cross_entropy(out, target.unsqueeze(0))

        each = lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, target)
        assert all(p.grad is None for p in model.parameters())
        found.append(each)
    assert_same(*found)
