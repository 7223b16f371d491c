"""Clipping of gradients, and parameters as one vector."""

import pytest

import rushlight
from rushlight import nn
from rushlight.nn import utils


def with_gradients(library):
    parameters = [library.ones(n).requires_grad_() for n in (2, 3, 1)]
    parameters[0].grad = library.tensor([3.0, -4.0])
    parameters[1].grad = library.tensor([1.0, 0.0, 2.0])
    return parameters


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_clip_grad_norm(oracle, norm_type, limit):
    ours, theirs = with_gradients(rushlight), with_gradients(oracle)
    a = utils.clip_grad_norm_(ours, limit, norm_type)
    b = oracle.nn.utils.clip_grad_norm_(theirs, limit, norm_type)
    assert a.item() == pytest.approx(b.item(), rel=1e-6)
    for x, y in zip(ours[:2], theirs[:2], strict=True):
        assert x.grad.tolist() == pytest.approx(y.grad.tolist(), rel=1e-6)
    assert ours[2].grad is None


def test_clip_of_a_generator_and_of_nothing():
    layer = nn.Linear(2, 2)
    assert utils.clip_grad_norm_(layer.parameters(), 1.0).item() == 0.0
    layer(rushlight.ones(1, 2)).sum().backward()
    utils.clip_grad_norm_(layer.parameters(), 1e-3)
    assert utils.clip_grad_norm_(layer.parameters(), 1.0).item() == pytest.approx(1e-3, rel=1e-2)


def test_clip_under_its_old_name():
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert utils.clip_grad_norm(with_gradients(rushlight), 1.0) > 5


def test_non_finite_norm():
    parameters = with_gradients(rushlight)
    parameters[0].grad = rushlight.tensor([float("nan"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert parameters[1].grad.tolist() == [1.0, 0.0, 2.0]


def test_clip_grad_value():
    parameters = with_gradients(rushlight)
    utils.clip_grad_value_(parameters, 1.5)
    assert parameters[0].grad.tolist() == [1.5, -1.5]
    assert parameters[1].grad.tolist() == [1.0, 0.0, 1.5]


def test_vector_and_back():
    layer = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(layer.parameters())
    assert tuple(vector.shape) == (9,) and vector.requires_grad
    utils.vector_to_parameters(rushlight.arange(9).to(rushlight.float32), layer.parameters())
    assert layer.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert layer.bias.tolist() == [6.0, 7.0, 8.0] and layer.bias.requires_grad
    with pytest.raises(TypeError):
        utils.vector_to_parameters([1.0], layer.parameters())


def test_skip_init_draws_nothing():
    import rushlight as rl
    from rushlight import nn
    from rushlight.nn.utils import skip_init

    before = rl.get_rng_state().tolist()
    linear = skip_init(nn.Linear, 3, 4, bias=False)
    assert type(linear) is nn.Linear and tuple(linear.weight.shape) == (4, 3)
    assert linear.bias is None and linear.weight.requires_grad
    assert rl.get_rng_state().tolist() == before
    with pytest.raises(TypeError, match="ReLU"):
        skip_init(nn.ReLU)
