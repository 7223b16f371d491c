"""Random numbers: the distributions, the ranges, the seeds. Every test draws enough that a wrong
distribution misses its bound by far, and a right one meets it but once in millions of seeds."""

import math

import pytest

import rushlight as rl

from .both import raises

N = 40_000
DRAWS = {
    # name: (draw into x, mean, standard deviation)
    "uniform": (lambda x, g: x.uniform_(-1, 3, generator=g), 1.0, 4 / math.sqrt(12)),
    "normal": (lambda x, g: x.normal_(2, 3, generator=g), 2.0, 3.0),
    "exponential": (lambda x, g: x.exponential_(0.5, generator=g), 2.0, 2.0),
    "geometric": (lambda x, g: x.geometric_(0.25, generator=g), 4.0, math.sqrt(12)),
    "log normal": (lambda x, g: x.log_normal_(0, 0.5, generator=g), math.exp(0.125), 0.6039),
    "bernoulli": (lambda x, g: x.bernoulli_(0.3, generator=g), 0.3, math.sqrt(0.21)),
    "random": (lambda x, g: x.random_(2, 10, generator=g), 5.5, math.sqrt(63 / 12)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", DRAWS)
def test_mean_and_deviation(what, dtype):
    draw, mean, deviation = DRAWS[what]
    x = rl.empty(N, dtype=getattr(rl, dtype))
    generator = rl.Generator().manual_seed(11)
    assert draw(x, generator) is x
    error = 6 * deviation / math.sqrt(N)
    assert abs(x.double().mean().item() - mean) < error
    assert abs(x.double().std().item() / deviation - 1) < 0.06
    again = draw(rl.empty_like(x), rl.Generator().manual_seed(11))
    assert rl.equal(x, again)
    assert not rl.equal(x, draw(rl.empty_like(x), generator))


def test_cauchy_quartiles():
    x = rl.empty(N).cauchy_(1.0, 2.0, generator=rl.Generator().manual_seed(3))
    inside = ((x > -1) & (x < 3)).float().mean().item()  # half of it lies within sigma
    assert abs(inside - 0.5) < 0.02


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_random_covers_the_dtype(dtype):
    rl.manual_seed(1)
    x = rl.empty(4000, dtype=getattr(rl, dtype)).random_()
    top = 2 ** {"uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}[dtype]
    assert x.min().item() >= 0 and x.max().item() > top * 0.98
    wide = rl.empty(4000, dtype=rl.int64).random_(-(2**63), 2**63 - 1)
    assert wide.min().item() < -(2**62) and wide.max().item() > 2**62


def test_randint():
    rl.manual_seed(0)
    x = rl.randint(-3, 4, (5000,))
    assert x.dtype is rl.int64 and sorted(set(x.tolist())) == list(range(-3, 4))
    assert rl.randint(5, (2, 3), dtype=rl.int32).dtype is rl.int32
    like = rl.randint_like(rl.zeros(4, 3).t(), 0, 9)
    assert like.dtype is rl.float32 and like.stride() == (1, 3)
    assert sorted(rl.randperm(50).tolist()) == list(range(50))


def test_bernoulli_of_probabilities():
    rl.manual_seed(2)
    p = rl.tensor([0.0, 1.0, 0.25]).expand(N, 3)
    mean = rl.bernoulli(p).mean(0).tolist()
    assert mean[0] == 0 and mean[1] == 1 and abs(mean[2] - 0.25) < 0.015
    assert rl.empty(3).bernoulli_(rl.tensor([0.0, 1.0, 1.0])).tolist() == [0, 1, 1]
    with raises(RuntimeError, "p"):
        rl.bernoulli(rl.tensor([1.5]))


def test_normal_of_tensors():
    rl.manual_seed(4)
    x = rl.normal(rl.tensor([0.0, 100.0]).expand(N, 2), rl.tensor([1.0, 0.001]))
    assert abs(x[:, 0].mean().item()) < 0.04 and abs(x[:, 1].mean().item() - 100) < 0.001
    assert rl.normal(1.0, 2.0, (3, 4)).shape == (3, 4)
    assert rl.normal(rl.zeros(3)).shape == (3,)
    with raises(RuntimeError, "std"):
        rl.normal(0.0, -1.0, (3,))


def test_multinomial():
    rl.manual_seed(5)
    weights = rl.tensor([1.0, 0.0, 3.0, 6.0])
    counts = [0] * 4
    for i in rl.multinomial(weights.expand(N // 4, 4), 1).flatten().tolist():
        counts[i] += 1
    total = sum(counts)
    assert counts[1] == 0
    for n, p in zip(counts, (0.1, 0, 0.3, 0.6)):
        assert abs(n / total - p) < 0.03
    rows = rl.multinomial(weights.expand(500, 4), 3)
    assert all(sorted(r) == [0, 2, 3] for r in rows.tolist())
    drawn = rl.multinomial(weights, 2000, replacement=True).tolist()
    assert len(drawn) == 2000 and abs(drawn.count(3) / 2000 - 0.6) < 0.07
    first = [r[0] for r in rows.tolist()]
    assert abs(first.count(3) / 500 - 0.6) < 0.14
    for bad, k in (([0.0, 0.0], 1), ([1.0, -1.0], 1), ([1.0, 1.0], 3), ([1.0, 0.0], 2)):
        with raises(RuntimeError, "multinomial"):
            rl.multinomial(rl.tensor(bad), k)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropouts(p):
    rl.manual_seed(6)
    x = rl.ones(200, 50, 4)
    kept = rl.feature_dropout(x, p, True)
    rows = kept[:, :, 0]
    assert rl.equal(kept, rows.unsqueeze(2).expand_as(kept))  # whole channels
    assert abs((rows == 0).float().mean().item() - p) < 0.03
    y = rl.alpha_dropout(rl.randn(N), p, True)
    if 0 < p < 1:
        assert abs(y.mean().item()) < 0.04 and abs(y.std().item() - 1) < 0.03
    assert rl.alpha_dropout(x, p, False) is x
    with raises(ValueError, "probability"):
        rl.feature_dropout(x, 1.5, True)


@pytest.mark.parametrize(
    "call",
    [
        lambda lib: lib.empty(3).uniform_(2, 1),
        lambda lib: lib.empty(3).normal_(0, -1),
        lambda lib: lib.empty(3).exponential_(0),
        lambda lib: lib.empty(3).geometric_(0),
        lambda lib: lib.empty(3).cauchy_(0, 0),
        lambda lib: lib.empty(3).log_normal_(0, 0),
        lambda lib: lib.empty(3).random_(5, 5),
        lambda lib: lib.empty(3).bernoulli_(2.0),
        lambda lib: lib.randint(3, 3, (2,)),
        lambda lib: lib.multinomial(lib.ones(2, 2, 2), 1),
    ],
)
def test_bad_parameters(call, oracle):
    from .both import kind, outcome

    ours, theirs = outcome(call, rl), outcome(call, oracle)
    assert ours[0] == theirs[0] == "error" and issubclass(ours[1], kind(theirs[1]))
