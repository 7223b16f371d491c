"""Bad parameters and values: the kind of error is PyTorch's; what a distribution prints."""

import pytest

import rushlight

BAD = {
    "a scale of 0": lambda t: t.distributions.Normal(0.0, 0.0),
    "nan": lambda t: t.distributions.Normal(float("nan"), 1.0),
    "text": lambda t: t.distributions.Normal("a", 1.0),
    "probabilities above 1": lambda t: t.distributions.Bernoulli(t.tensor(1.5)),
    "both": lambda t: t.distributions.Bernoulli(t.tensor(0.5), t.tensor(0.5)),
    "neither": lambda t: t.distributions.Categorical(),
    "no dims": lambda t: t.distributions.Categorical(t.tensor(0.5)),
    "negative weights": lambda t: t.distributions.Categorical(t.tensor([-1.0, 2.0])),
    "low above high": lambda t: t.distributions.Uniform(1.0, 0.0),
    "a value outside": lambda t: t.distributions.Exponential(1.0).log_prob(t.tensor(-1.0)),
    "a class too high": lambda t: t.distributions.Categorical(t.ones(3)).log_prob(t.tensor(3)),
    "a value that is no tensor": lambda t: t.distributions.Normal(0.0, 1.0).log_prob(0.5),
    "shapes": lambda t: t.distributions.Normal(t.zeros(3), 1.0).log_prob(t.zeros(2)),
    "an event": lambda t: t.distributions.Independent(
        t.distributions.Normal(t.zeros(3), 1.0), 1
    ).log_prob(t.zeros(2, 4)),
    "too many dims": lambda t: t.distributions.Independent(t.distributions.Normal(0.0, 1.0), 1),
    "no factor": lambda t: t.distributions.MultivariateNormal(t.zeros(2)),
    "no covariance": lambda t: t.distributions.MultivariateNormal(t.zeros(2), -t.eye(2)),
    "no mean": lambda t: t.distributions.MultivariateNormal(t.tensor(0.0), t.eye(2)),
    "not symmetric": lambda t: t.distributions.MultivariateNormal(
        t.zeros(2), t.tensor([[1.0, 0.5], [0.0, 1.0]])
    ),
    "no transform": lambda t: t.distributions.TransformedDistribution(
        t.distributions.Normal(0.0, 1.0), [abs]
    ),
    "no rsample": lambda t: t.distributions.Bernoulli(t.tensor(0.5)).rsample(),
    "an unknown default": lambda t: t.distributions.Distribution.set_default_validate_args("no"),
}


@pytest.fixture
def checking(oracle):
    """The oracle with its checks on: its compiler turns them off for the whole process."""
    checks = oracle.distributions.Distribution
    before = checks._validate_args
    checks.set_default_validate_args(True)
    yield oracle
    checks.set_default_validate_args(before)


@pytest.mark.parametrize("name", BAD)
def test_errors_are_of_pytorchs_kind(name, checking):
    oracle = checking
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        BAD[name](oracle)
    with pytest.raises(theirs.type):
        BAD[name](rushlight)


def test_an_unchecked_distribution_takes_anything():
    made = rushlight.distributions.Exponential(1.0, validate_args=False)
    assert float(made.log_prob(rushlight.tensor(-1.0))) == 1.0
    assert made.expand((2,))._validate_args is False
    with pytest.raises(ValueError, match="scale"):
        rushlight.distributions.Normal(0.0, -1.0)


def test_the_text_of_a_distribution_is_pytorchs(oracle):
    for make in (
        lambda t: t.distributions.Normal(0.0, 1.5),
        lambda t: t.distributions.Normal(t.zeros(2, 3), 1.5),
        lambda t: t.distributions.Categorical(logits=t.zeros(2, 3)),
        lambda t: t.distributions.Independent(t.distributions.Uniform(t.zeros(2), 1.5), 1),
        lambda t: t.distributions.Bernoulli(t.tensor([0.5])),
    ):
        assert repr(make(rushlight)).replace("rushlight.", "torch.") == repr(make(oracle))


def test_the_other_parameter_is_kept_once_it_was_asked_for():
    made = rushlight.distributions.Categorical(logits=rushlight.zeros(4))
    assert "probs" not in made.__dict__
    assert made.probs is made.probs and made.probs.tolist() == [0.25] * 4
