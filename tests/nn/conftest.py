"""Tensors of the same values on both sides, and comparison across them."""

import numpy
import pytest

import rushlight


class Pair:
    """Makes a rushlight tensor and the oracle's of one value; compares results and gradients."""

    def __init__(self, oracle):
        self.oracle = oracle

    def make(self, *shape, seed=0, low=None, high=None, dtype="float32", requires_grad=False):
        rng = numpy.random.default_rng(seed + sum(shape))
        if high is None:
            array = rng.standard_normal(shape)
        elif dtype == "int64":
            array = rng.integers(low or 0, high, shape)
        else:
            array = rng.uniform(low or 0.0, high, shape)
        return self.of(array.tolist(), dtype, requires_grad)

    def of(self, values, dtype="float32", requires_grad=False):
        tensors = [
            library.tensor(values, dtype=getattr(library, dtype))
            for library in (rushlight, self.oracle)
        ]
        return tuple(t.requires_grad_() if requires_grad else t for t in tensors)

    @staticmethod
    def assert_same(ours, theirs, tolerance=1e-6):
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        a, b = (numpy.array(t.detach().tolist(), dtype="float64") for t in (ours, theirs))
        scale = max(1.0, float(numpy.abs(b[numpy.isfinite(b)]).max(initial=0.0)))
        numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)

    def assert_same_gradients(self, ours, theirs, inputs, tolerance=2e-6):
        """inputs: pairs. The sum of the outputs times fixed weights is taken back."""
        weights = self.make(*ours.shape, seed=77)
        (ours * weights[0]).sum().backward()
        (theirs * weights[1]).sum().backward()
        for a, b in inputs:
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                self.assert_same(a.grad, b.grad, tolerance)


@pytest.fixture
def pair(oracle):
    return Pair(oracle)


def failure_of(function):
    with pytest.raises(Exception) as caught:
        function()
    return caught.type.__name__, str(caught.value)


@pytest.fixture
def assert_same_failure():
    """Both calls raise the same type. The texts are each library's own."""

    def check(ours, theirs):
        kind, text = failure_of(ours)
        assert (kind, bool(text)) == (failure_of(theirs)[0], True), text

    return check
