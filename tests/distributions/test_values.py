"""Log-probabilities, moments, entropies, distribution functions and divergences, against the oracle
(samples by their moments).
"""

import math

import pytest

import rushlight

D = rushlight.distributions
LOC = [[0.0, -1.5, 2.0], [0.3, 4.0, -0.7]]
SCALE = [[1.0, 0.5, 2.0], [0.25, 3.0, 1.5]]
PROBS = [[0.1, 0.5, 0.9], [0.3, 0.7, 0.45]]
INSIDE = [[0.2, 0.6, 0.9], [0.35, 0.75, 0.5]]
COVARIANCE = [[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 1.5]]
COUNTS = [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]

# How to make each, and where its log_prob is asked for; d: the module, t: makes a tensor.
CASES = {
    "Normal": (lambda d, t: d.Normal(t(LOC), t(SCALE)), LOC),
    "Normal of numbers": (lambda d, t: d.Normal(0.5, 2), 0.25),
    "Laplace": (lambda d, t: d.Laplace(t(LOC), t(SCALE)), SCALE),
    "Cauchy": (lambda d, t: d.Cauchy(t(LOC), t(SCALE)), SCALE),
    "Gumbel": (lambda d, t: d.Gumbel(t(LOC), t(SCALE)), SCALE),
    "HalfNormal": (lambda d, t: d.HalfNormal(t(SCALE)), SCALE),
    "LogNormal": (lambda d, t: d.LogNormal(t(LOC), t(SCALE)), SCALE),
    "Uniform": (lambda d, t: d.Uniform(t(LOC) - 9, t(LOC) + t(SCALE)), LOC),
    "Exponential": (lambda d, t: d.Exponential(t(SCALE)), INSIDE),
    "Bernoulli": (lambda d, t: d.Bernoulli(t(PROBS)), COUNTS),
    "Bernoulli of logits": (lambda d, t: d.Bernoulli(logits=t(LOC)), COUNTS),
    "Geometric": (lambda d, t: d.Geometric(t(PROBS)), COUNTS),
    "Categorical": (lambda d, t: d.Categorical(t(SCALE)), [2.0, 0.0]),
    "Categorical of logits": (lambda d, t: d.Categorical(logits=t(LOC)), [1.0, 2.0]),
    "OneHotCategorical": (lambda d, t: d.OneHotCategorical(t(SCALE)), [[0.0, 1.0, 0.0]] * 2),
    "Independent": (lambda d, t: d.Independent(d.Normal(t(LOC), t(SCALE)), 1), LOC),
    "MultivariateNormal": (
        lambda d, t: d.MultivariateNormal(t(LOC), t(COVARIANCE)),
        SCALE,
    ),
    "MultivariateNormal of a factor": (
        lambda d, t: d.MultivariateNormal(t(LOC), scale_tril=t(COVARIANCE).tril()),
        SCALE,
    ),
    "MultivariateNormal of a precision": (
        lambda d, t: d.MultivariateNormal(t(LOC[0]), precision_matrix=t(COVARIANCE)),
        SCALE,
    ),
    "a chain of transforms": (
        lambda d, t: d.TransformedDistribution(
            d.Normal(t(LOC), t(SCALE)),
            [d.TanhTransform(), d.AffineTransform(0.5, 0.5)],
        ),
        INSIDE,
    ),
    "sigmoid of a uniform": (
        lambda d, t: d.TransformedDistribution(
            d.Uniform(t(LOC) - 9, t(LOC) + 9), [d.SigmoidTransform().inv.inv]
        ),
        INSIDE,
    ),
    "a mixture": (
        lambda d, t: d.MixtureSameFamily(d.Categorical(t(SCALE)), d.Normal(t(LOC), t(SCALE))),
        [0.1, -0.4],
    ),
}


def close(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    mine, other = ours.detach().tolist(), theirs.detach().tolist()
    flat = rushlight.tensor(mine).reshape(-1).tolist(), rushlight.tensor(other).reshape(-1).tolist()
    for a, b in zip(*flat, strict=True):
        assert a == b or math.isnan(a) and math.isnan(b) or a == pytest.approx(b, 2e-5, 2e-6)


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_it_is_pytorchs(name, oracle):
    make, at = CASES[name]
    ours, theirs = make(D, rushlight.tensor), make(oracle.distributions, oracle.tensor)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    close(ours.log_prob(rushlight.tensor(at)), theirs.log_prob(oracle.tensor(at)))
    asked = 0
    for what in ("mean", "mode", "variance", "stddev"):
        try:
            expected = getattr(theirs, what)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(ours, what)
            continue
        close(getattr(ours, what), expected)
        asked += 1
    for what, given in (("entropy", ()), ("cdf", (at,)), ("icdf", (INSIDE,))):
        try:
            expected = getattr(theirs, what)(*map(oracle.tensor, given))
        except (NotImplementedError, RuntimeError):
            continue  # not there, or the shape does not fit
        close(getattr(ours, what)(*map(rushlight.tensor, given)), expected)
        asked += 1
    assert asked or "transforms" in name or "sigmoid" in name
    wide, expected = ours.expand((2, *ours.batch_shape)), theirs.expand((2, *theirs.batch_shape))
    assert tuple(wide.batch_shape) == tuple(expected.batch_shape)
    close(wide.log_prob(rushlight.tensor(at)), expected.log_prob(oracle.tensor(at)))


@pytest.mark.parametrize("name", [n for n in CASES if "Cauchy" not in n])
def test_samples_have_the_mean_and_the_shape(name):
    rushlight.manual_seed(3)
    made = CASES[name][0](D, rushlight.tensor)
    drawn = made.sample((4, 5000))
    assert tuple(drawn.shape) == (4, 5000, *made.batch_shape, *made.event_shape)
    assert not drawn.requires_grad
    if made.support is not None and made._validate_args:
        made._validate_sample(drawn)
    try:
        mean, std = made.mean, made.stddev
    except NotImplementedError:
        return
    if not mean.isnan().any():
        away = (drawn.float().mean((0, 1)) - mean).abs() / (std / 20000**0.5 + 1e-6)
        skewed = 12 if name == "LogNormal" else 5
        assert float(away.max()) < skewed


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("Normal of numbers", "a mixture")])
def test_divergences_are_pytorchs(name, oracle):
    make, _ = CASES[name]

    def pair(d, t):
        return make(d, t), make(d, lambda x: t(x) * 0.8 + (0.0 if x is COVARIANCE else 0.05))

    try:
        expected = oracle.distributions.kl_divergence(*pair(oracle.distributions, oracle.tensor))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            D.kl_divergence(*pair(D, rushlight.tensor))
        return
    close(D.kl_divergence(*pair(D, rushlight.tensor)), expected)


def test_gradients_of_draws_and_log_probs(oracle):
    got = []
    for torch in (rushlight, oracle):
        loc = torch.tensor([0.3, -1.0], requires_grad=True)
        scale = torch.tensor([0.5, 2.0], requires_grad=True)
        draw = torch.distributions.Normal(loc, scale).log_prob(torch.tensor([1.0, 0.0]))
        squashed = torch.distributions.TransformedDistribution(
            torch.distributions.Normal(loc, scale), torch.distributions.TanhTransform()
        )
        (draw.sum() + squashed.log_prob(torch.tensor([0.2, -0.9])).sum()).backward()
        got.append((loc.grad, scale.grad))
    for ours, theirs in zip(*got, strict=True):
        close(ours, theirs)
    loc = rushlight.zeros(3, requires_grad=True)
    D.Normal(loc, 1.0).rsample((7,)).sum().backward()
    assert loc.grad.tolist() == [7.0, 7.0, 7.0]


def test_a_divergence_is_that_of_the_closest_classes():
    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Normal)
    def mine(p, q):
        return "mine"

    try:
        assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == "mine"
        assert float(D.kl_divergence(D.Normal(0.0, 1.0), Mine(0.0, 1.0))) == 0
    finally:
        del D.kl._RULES[Mine, D.Normal]
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Cauchy(0.0, 1.0))
    with pytest.raises(TypeError):
        D.register_kl(int, D.Normal)


def test_values_of_a_support_are_enumerated():
    made = D.Categorical(rushlight.tensor(SCALE))
    assert made.enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert made.enumerate_support(expand=False).tolist() == [[0], [1], [2]]
    assert D.Bernoulli(rushlight.tensor([0.2])).enumerate_support().tolist() == [[0.0], [1.0]]
    hot = D.OneHotCategorical(rushlight.tensor(SCALE))
    assert tuple(hot.enumerate_support().shape) == (3, 2, 3)
