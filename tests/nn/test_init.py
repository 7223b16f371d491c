"""Initialisers: bounds, moments, structure and errors (streams of random numbers are our own)."""

import math

import pytest

import rushlight
from rushlight import nn
from rushlight.nn import init


@pytest.fixture(autouse=True)
def seed():
    rushlight.manual_seed(0)


def numbers(tensor):
    return tensor.reshape(-1).tolist()


def moments(tensor):
    values = numbers(tensor)
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


SHAPE = (60, 100)  # fan in 100, fan out 60
UNIFORM = {
    "uniform_(w, -2.0, 3.0)": (-2.0, 3.0),
    "xavier_uniform_(w, gain=2.0)": 2 * math.sqrt(6 / 160),
    "kaiming_uniform_(w, a=math.sqrt(5))": 0.1,
    "kaiming_uniform_(w, mode='fan_out', nonlinearity='relu')": math.sqrt(6 / 60),
}
NORMAL = {
    "normal_(w, 1.0, 0.5)": (1.0, 0.5),
    "xavier_normal_(w)": (0.0, math.sqrt(2 / 160)),
    "kaiming_normal_(w)": (0.0, math.sqrt(2 / (1 + 0)) / 10),
    "kaiming_normal_(w, mode='fan_out', nonlinearity='tanh')": (0.0, 5 / 3 / math.sqrt(60)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("call", UNIFORM)
def test_uniform(call, dtype):
    w = nn.Parameter(rushlight.empty(SHAPE, dtype=getattr(rushlight, dtype)))
    assert eval(f"init.{call}") is w
    bounds = UNIFORM[call]
    low, high = bounds if isinstance(bounds, tuple) else (-bounds, bounds)
    mean, std = moments(w)
    assert low - 0.02 * abs(low) <= min(numbers(w)) and max(numbers(w)) <= high * 1.02
    assert abs(mean - (low + high) / 2) < 0.03 * (high - low)
    assert abs(std / ((high - low) / math.sqrt(12)) - 1) < 0.03
    assert w.requires_grad and w.is_leaf


@pytest.mark.parametrize("call", NORMAL)
def test_normal(call):
    w = rushlight.empty(SHAPE)
    assert eval(f"init.{call}") is w
    mean, std = moments(w)
    assert abs(mean - NORMAL[call][0]) < 0.05 * NORMAL[call][1]
    assert abs(std / NORMAL[call][1] - 1) < 0.04


GENERATED = (
    "uniform_(w, generator=g)",
    "normal_(w, generator=g)",
    "trunc_normal_(w, generator=g)",
    "xavier_uniform_(w, generator=g)",
    "xavier_normal_(w, generator=g)",
    "kaiming_uniform_(w, generator=g)",
    "kaiming_normal_(w, generator=g)",
    "orthogonal_(w, generator=g)",
    "sparse_(w, 0.5, generator=g)",
)


@pytest.mark.parametrize("call", GENERATED)
def test_a_generator_of_its_own(call):
    """It alone decides, and the default stream stands where it stood."""
    found, before = [], rushlight.get_rng_state().tolist()
    for seed in (3, 3, 4):
        names = {"w": rushlight.empty(4, 6), "g": rushlight.Generator().manual_seed(seed)}
        found.append(eval(f"init.{call}", {"init": init, **names}).tolist())
    assert found[0] == found[1] != found[2]
    assert rushlight.get_rng_state().tolist() == before


@pytest.mark.parametrize("name", ["uniform", "normal", "eye", "xavier_normal", "kaiming_uniform"])
def test_names_of_the_past_warn(name):
    w = rushlight.zeros(3, 3)
    with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is the older name"):
        assert getattr(init, name)(w) is w
    assert w.abs().sum() > 0


def test_truncated_normal():
    w = init.trunc_normal_(rushlight.empty(100, 100), mean=1.0, std=2.0, a=-1.0, b=3.0)
    values = numbers(w)
    assert min(values) >= -1.0 and max(values) <= 3.0
    mean, std = moments(w)
    assert abs(mean - 1.0) < 0.05
    assert abs(std - 2 * 0.5396) < 0.05  # of a normal cut at one deviation
    with pytest.warns(UserWarning, match="more than 2 std"):
        tail = init.trunc_normal_(rushlight.empty(1000), 0.0, 1.0, 4.0, 6.0)
    assert min(numbers(tail)) >= 4.0 and max(numbers(tail)) <= 6.0


def test_inverse_erf():
    points = [-0.999999, -0.9, -0.3, -1e-9, 0.0, 1e-5, 0.5, 0.99, 0.9999999999]
    found = init._inverse_erf(rushlight.tensor(points, dtype=rushlight.float64)).tolist()
    for y, x in zip(points, found, strict=True):
        assert math.erf(x) == pytest.approx(y, rel=1e-12, abs=1e-15)


def test_constants():
    w = nn.Parameter(rushlight.empty(2, 3))
    assert numbers(init.constant_(w, 2.5)) == [2.5] * 6
    assert numbers(init.ones_(w)) == [1.0] * 6
    assert numbers(init.zeros_(w)) == [0.0] * 6
    assert init.eye_(w).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (3, 2, 2)])
def test_orthogonal(shape):
    w = init.orthogonal_(rushlight.empty(shape, dtype=rushlight.float64), gain=2.0)
    m = w.reshape(shape[0], -1)
    small = m @ m.t() if m.shape[0] <= m.shape[1] else m.t() @ m
    for i, row in enumerate(small.tolist()):
        assert row == pytest.approx([4.0 if i == j else 0.0 for j in range(len(row))], abs=1e-12)


def test_sparse():
    w = init.sparse_(rushlight.empty(10, 6), 0.35, std=1.0)
    for column in w.t().tolist():
        assert sum(v == 0 for v in column) == 4


@pytest.mark.parametrize("groups", [1, 2])
def test_dirac(oracle, groups):
    w = init.dirac_(rushlight.empty(4, 2, 3, 3), groups)
    assert w.tolist() == oracle.nn.init.dirac_(oracle.empty(4, 2, 3, 3), groups).tolist()


@pytest.mark.parametrize(
    "name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"]
)
def test_gains(oracle, name):
    assert init.calculate_gain(name) == pytest.approx(oracle.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(
        oracle.nn.init.calculate_gain("leaky_relu", 0.3)
    )


def test_fans():
    assert init.fans(rushlight.empty(8, 3, 5, 5)) == (75, 200)


def test_mistakes():
    vector = rushlight.empty(3)
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        init.xavier_uniform_(vector)
    with pytest.raises(ValueError, match="Mode middle not supported"):
        init.kaiming_normal_(rushlight.empty(2, 2), mode="middle")
    with pytest.raises(ValueError, match="Unsupported nonlinearity swish"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        init.eye_(vector)
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(vector)
    with pytest.warns(UserWarning, match="zero-element"):
        init.kaiming_uniform_(rushlight.empty(0, 3))
