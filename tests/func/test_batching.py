"""vmap and modules as functions: the oracle's shapes, values and kinds of errors."""

import copy

import numpy as np
import pytest

import rushlight
from rushlight import nn

from .test_transforms import assert_same, evaluated, tensors

CASES = [
    "vmap(lambda t: t.sum())(m)",
    "vmap(lambda t: t, in_dims=1)(m)",
    "vmap(lambda t: t, in_dims=-1, out_dims=-1)(m)",
    "vmap(lambda a, b: a * b, in_dims=(0, None))(m, v)",
    "vmap(lambda a, b: a * b, in_dims=(1, 0))(m, v)",
    "vmap(lambda a, b: a * b, in_dims=(0, None))(x, 2)",
    "vmap(lambda d: d['a'] + d['b'], in_dims=({'a': 0, 'b': None},))({'a': x, 'b': x})",
    "vmap(lambda p: (p[0] * p[1], {'s': p[0]}), in_dims=((0, 1),))((x, m.t()))",
    "vmap(lambda t: (t, t * 2), out_dims=(0, 1))(m)",
    "vmap(lambda t: (t, t * 2), out_dims=1)(m)",
    "vmap(lambda t, k=None: t * k)(m, k=m)",
    "vmap(lambda t: v, out_dims=None)(x)",
    "vmap(lambda t: lib.ones(2))(x)",
    "vmap(vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))(x, v)",
    "vmap(vmap(lambda t: t * 2, out_dims=0), in_dims=1, out_dims=1)(m)",
    "vmap(lambda t: t @ m)(lib.stack([x, x]))",
    "vmap(lambda t: t[:2], chunk_size=2)(m)",
    "vmap(lambda t: t.sum(), in_dims=(0,))(lib.ones(0, 3))",
    "vmap(lambda t: (t * 2, t.sum()), out_dims=(1, 0))(lib.ones(0, 3))",
    "vmap(lambda t: (t, None, 5), out_dims=(0, None, None))(m)",
    "vmap(lambda t: [t, t], out_dims=[0, 1])(m)",
    "vmap(lambda d: d['a'], in_dims=({'a': 1},))(OrderedDict(a=m))",
]
BAD = [
    "vmap(lambda t: t, in_dims=5)(x)",
    "vmap(lambda t: 3)(x)",
    "vmap(lambda t: t, in_dims=(0, 0))(x)",
    "vmap(lambda t: t, in_dims=None)(x)",
    "vmap(lambda t: t, in_dims=[0])(x)",
    "vmap(lambda a, b: a)(x, v)",
    "vmap(lambda t: lib.rand(2))(x)",
    "vmap(lambda t: t * 2, out_dims=None)(x)",
    "vmap(lambda t: t, out_dims=(0, 1))(x)",
    "vmap(lambda t: t)(3)",
    "vmap(lambda t: t, randomness='foo')(x)",
    "vmap(lambda t: t)(s)",
    "vmap(lambda t: t, chunk_size=0)(x)",
    "vmap(lambda t: t, out_dims=3)(x)",
    "vmap(lambda t: [t, t], out_dims=(0, 1))(m)",
    "vmap(lambda p: p[0], in_dims=((0, 0),))([x, x])",
    "vmap(lambda t, u: t.add_(u), in_dims=(None, 0))(v, m)",
    "vmap(lib.nn.BatchNorm1d(3, dtype=lib.float64))(lib.ones(2, 4, 3, dtype=lib.float64))",
]


@pytest.mark.parametrize("expression", CASES)
def test_values(oracle, expression):
    assert_same(*(evaluated(expression, lib, tensors(lib)) for lib in (rushlight, oracle)))


@pytest.mark.parametrize("expression", BAD)
def test_refusals(oracle, expression):
    kinds = []
    for lib in (rushlight, oracle):
        with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
            evaluated(expression, lib, tensors(lib))
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


def test_random_numbers():
    draw = lambda x: rushlight.rand(2) + x  # noqa: E731
    x = rushlight.zeros(4)
    same = rushlight.vmap(draw, randomness="same")(x)
    assert all(row == same[0].tolist() for row in same.tolist())
    assert rushlight.vmap(draw, randomness="same")(x)[0].tolist() != same[0].tolist()
    other = rushlight.vmap(draw, randomness="different")(x)
    assert len({tuple(row) for row in other.tolist()}) == 4


def test_writes_reach_the_batch():
    x = rushlight.zeros(3, 2)
    rushlight.vmap(lambda row, i: row.add_(i))(x, rushlight.arange(3))
    assert x.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_gradients_through_it(oracle):
    found = []
    for lib in (rushlight, oracle):
        m = tensors(lib)["m"].requires_grad_()
        lib.vmap(lambda t: (t * t.sum()).sin(), out_dims=1)(m).sum().backward()
        found.append(m.grad)
    assert_same(*found)


def test_in_one_graph():
    function = rushlight.vmap(lambda a, b: (a * b).sum(), in_dims=(0, None))
    x, y = rushlight.randn(3, 4), rushlight.randn(4)
    made = rushlight.compile(lambda x, y: function(x, y) * 2, fullgraph=True)(x, y)
    np.testing.assert_allclose(made.numpy(), (function(x, y) * 2).numpy(), rtol=1e-6)


# ---- modules


def model():
    rushlight.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_functional_call():
    net, x = model(), rushlight.randn(4, 3)
    new = {"0.weight": rushlight.zeros(3, 3).requires_grad_()}
    before, plain = copy.deepcopy(net.state_dict()), net.eval()(x)
    call = rushlight.func.functional_call
    out = call(net, new, x)
    assert out.tolist() != plain.tolist()
    out.sum().backward()
    assert new["0.weight"].grad is not None and net[0].weight.grad is None
    assert call(net, {}, (x,)).tolist() == plain.tolist()
    statistics = {"1.running_mean": rushlight.ones(3)}
    assert call(net, (new, statistics), x).tolist() != out.tolist()
    for key, value in net.state_dict().items():
        assert value.tolist() == before[key].tolist()
    assert type(net[0].weight) is nn.Parameter
    assert rushlight.nn.utils.stateless.functional_call is call


def test_functional_call_restores_after_errors():
    net = model()
    weight = net[0].weight
    with pytest.raises(RuntimeError):
        rushlight.func.functional_call(
            net, {"0.weight": rushlight.zeros(7, 7)}, rushlight.ones(2, 3)
        )
    assert net[0].weight is weight


def test_functional_call_of_tied_weights(oracle):
    for lib in (rushlight, oracle):
        call = lib.func.functional_call
        net = lib.nn.Sequential(lib.nn.Linear(2, 2, bias=False), lib.nn.Linear(2, 2, bias=False))
        net[1].weight = net[0].weight
        x, new = lib.ones(1, 2), lib.eye(2) * 3
        assert call(net, {"0.weight": new}, x).tolist() == [[9, 9]]
        untied = call(net, {"0.weight": new}, x, tie_weights=False)
        assert untied.tolist() == net[1](x * 3).tolist()
        with pytest.raises(ValueError):
            call(net, {"0.weight": new, "1.weight": new * 2}, x)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"0.weight": 1}, {"strict": True}),
        ({"nothing": 1}, {"strict": True}),
        ([{"0.weight": 1}, {"0.weight": 1}], {}),
        ("text", {}),
    ],
)
def test_functional_call_refusals(oracle, given, options):
    for lib in (rushlight, oracle):
        net = lib.nn.Sequential(lib.nn.Linear(2, 2))
        tensor = lambda part: {k: lib.ones(2, 2) for k in part}  # noqa: B023, E731
        if isinstance(given, dict):
            values = tensor(given)
        else:
            values = [tensor(part) for part in given] if isinstance(given, list) else given
        with pytest.raises((RuntimeError, ValueError)):
            lib.func.functional_call(net, values, lib.ones(1, 2), **options)


def test_batch_norms_without_running_statistics(oracle):
    """What must not be written by each sample is taken out of all batch norms of a model."""
    for lib in (rushlight, oracle):
        inner = lib.nn.Sequential(lib.nn.BatchNorm2d(3), lib.nn.Linear(2, 2))
        model = lib.nn.Sequential(inner, lib.nn.BatchNorm1d(4), lib.nn.InstanceNorm1d(4))
        assert lib.func.replace_all_batch_norm_modules_(model) is model
        for norm in (inner[0], model[1]):
            assert norm.running_mean is norm.running_var is norm.num_batches_tracked is None
            assert norm.track_running_stats is False
        assert list(model.state_dict()) == [
            "0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias", "1.weight", "1.bias",
        ]  # fmt: skip
        alone = lib.func.replace_all_batch_norm_modules_(lib.nn.BatchNorm1d(4))
        assert lib.func.vmap(alone)(lib.ones(2, 3, 4)).shape == (2, 3, 4)


def test_ensembles():
    nets = [model() for _ in range(3)]
    for i, net in enumerate(nets):
        net[0].weight.data.mul_(i + 1)
    parameters, buffers = rushlight.func.stack_module_state(nets)
    assert parameters["0.weight"].shape == (3, 3, 3) and parameters["0.weight"].is_leaf
    assert parameters["0.weight"].requires_grad and not buffers["1.running_mean"].requires_grad
    x, base = rushlight.randn(4, 3), copy.deepcopy(nets[0]).eval()

    def one(parameters, buffers, x):
        return rushlight.func.functional_call(base, (parameters, buffers), (x,))

    out = rushlight.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
    for row, net in zip(out, nets, strict=True):
        np.testing.assert_allclose(row.detach().numpy(), net.eval()(x).detach().numpy(), rtol=1e-5)
    with pytest.raises(RuntimeError, match="at least one"):
        rushlight.func.stack_module_state([])
    with pytest.raises(RuntimeError, match="same class"):
        rushlight.func.stack_module_state([nn.ReLU(), nn.Tanh()])
