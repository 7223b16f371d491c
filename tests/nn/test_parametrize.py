"""Parametrizations, weight norm and spectral norm: names, values, gradients, removal."""

import copy
import pickle

import numpy
import pytest

import rushlight
from rushlight import nn
from rushlight.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return (x + x.t()) / 2


class Scaled(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_a_parameter_as_a_function_of_another():
    layer = nn.Linear(3, 3)
    original = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert layer.weight.tolist() == layer.weight.t().tolist()
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert layer.parametrizations.weight.original is original
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    layer(rushlight.ones(2, 3)).sum().backward()
    assert original.grad is not None
    with pytest.raises(RuntimeError, match="right_inverse"):
        layer.weight = rushlight.ones(3, 3)


def test_two_in_a_row_and_assignment():
    layer = nn.Linear(2, 2, bias=False)
    before = layer.weight.tolist()
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", Scaled())
        numpy.testing.assert_allclose(layer.weight.tolist(), before, rtol=1e-6)
    layer.weight = rushlight.full((2, 2), 8.0)
    assert layer.parametrizations.weight.original.tolist() == [[2.0, 2.0]] * 2
    assert layer.weight.tolist() == [[8.0, 8.0]] * 2


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave):
    layer = nn.Linear(2, 2)
    kept = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    value, original = layer.weight.tolist(), kept.tolist()
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
    assert type(layer) is nn.Linear and layer.weight is kept
    assert layer.weight.tolist() == (value if leave else original)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_cached_computes_once():
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 1

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Counted())
    calls.clear()
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert len(calls) == 1
    assert layer.weight is not layer.weight


def test_copies_have_their_own_originals():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Scaled())
    other = copy.deepcopy(layer)
    other.weight = rushlight.zeros(2, 2)
    assert layer.weight.abs().amax().item() > 0 and other.weight.abs().amax().item() == 0
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules"):
        pickle.dumps(layer)


def test_refusals():
    layer = nn.Linear(2, 3)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "w", Scaled())
    with pytest.raises(ValueError, match="may not change the shape"):

        class Cut(nn.Module):
            def forward(self, x):
                return x[:1]

        parametrize.register_parametrization(layer, "weight", Cut())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(oracle, dim):
    ends = []
    for library in (rushlight, oracle):
        layer = library.nn.Linear(3, 2)
        with library.no_grad():
            layer.weight.copy_(library.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]]))
            layer.bias.fill_(0.5)
        library.nn.utils.parametrizations.weight_norm(layer, dim=dim)
        state = list(layer.state_dict())
        with library.no_grad():
            layer.parametrizations.weight.original0.mul_(1.5)
        (layer(library.ones(1, 3)) ** 2).sum().backward()
        each = layer.parametrizations.weight
        ends.append(
            [
                state,
                layer.weight.tolist(),
                each.original0.grad.tolist(),
                each.original1.grad.tolist(),
            ]
        )
    assert ends[0][0] == ends[1][0]
    for a, b in zip(ends[0][1:], ends[1][1:], strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_weight_norm_by_a_hook(oracle):
    ends = []
    for library in (rushlight, oracle):
        layer = library.nn.Linear(3, 2)
        with library.no_grad():
            layer.weight.copy_(library.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]]))
            layer.bias.fill_(0.5)
        library.nn.utils.weight_norm(layer)
        state = list(layer.state_dict())
        with library.no_grad():
            layer.weight_g.mul_(2.0)
        out = layer(library.ones(1, 3)).tolist()
        library.nn.utils.remove_weight_norm(layer)
        ends.append([state, out, layer.weight.tolist(), sorted(layer.state_dict())])
    assert ends[0][0] == ends[1][0] and ends[0][3] == ends[1][3]
    for a, b in zip(ends[0][1:3], ends[1][1:3], strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-5)


def test_spectral_norm(oracle):
    rng = numpy.random.default_rng(0)
    weight, u, v = (rng.standard_normal(s).astype("float32") for s in ((4, 3), (4,), (3,)))
    ends = []
    for library in (rushlight, oracle):
        layer = library.nn.Linear(3, 4)
        with library.no_grad():
            layer.weight.copy_(library.tensor(weight.tolist()))
        library.nn.utils.parametrizations.spectral_norm(layer)
        names = list(layer.state_dict())
        norm = layer.parametrizations.weight[0]
        with library.no_grad():
            norm._u.copy_(library.tensor((u / numpy.linalg.norm(u)).tolist()))
            norm._v.copy_(library.tensor((v / numpy.linalg.norm(v)).tolist()))
        (layer.weight**3).sum().backward()
        ends.append([names, norm._u.tolist(), layer.parametrizations.weight.original.grad.tolist()])
    assert ends[0][0] == ends[1][0]
    for a, b in zip(ends[0][1:], ends[1][1:], strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    layer = nn.Linear(5, 6)
    parametrizations.spectral_norm(layer, n_power_iterations=30)
    largest = numpy.linalg.svd(layer.weight.detach().numpy())[1][0]
    assert largest == pytest.approx(1.0, abs=1e-4)
