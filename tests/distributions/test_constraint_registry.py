"""Transforms for constraints, against torch's."""

import pytest

import rushlight as rl
from rushlight import distributions as ours

X = [-1.5, 0.2, 3.0]
CASES = {
    "real": lambda c: c.real,
    "positive": lambda c: c.positive,
    "above": lambda c: c.greater_than(2.0),
    "below": lambda c: c.less_than(2.0),
    "unit": lambda c: c.unit_interval,
    "between": lambda c: c.interval(-1.0, 3.0),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("registry", ("biject_to", "transform_to"))
def test_what_fits_a_constraint(oracle, case, registry):
    theirs = oracle.distributions
    made = getattr(ours, registry)(CASES[case](ours.constraints))
    want = getattr(theirs, registry)(CASES[case](theirs.constraints))
    found = made(rl.tensor(X))
    assert found.tolist() == pytest.approx(want(oracle.tensor(X)).tolist(), rel=1e-6)
    assert made.inv(found).tolist() == pytest.approx(X, abs=1e-4)


def test_ones_own_and_refusals():
    class Even(ours.constraints.Constraint):
        pass

    with pytest.raises(NotImplementedError, match="Even"):
        ours.transform_to(Even())
    ours.transform_to.register(Even, lambda c: ours.ExpTransform())
    assert ours.transform_to(Even())(rl.zeros(1)).tolist() == [1.0]
    with pytest.raises(TypeError):
        ours.biject_to.register(3, print)
