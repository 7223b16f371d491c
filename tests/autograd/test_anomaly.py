"""Anomaly detection: a NaN gradient is an error that names the forward line."""

import warnings

import pytest

import rushlight as rl


def root(x):
    return rl.sqrt(x)  # the line that is named


@pytest.fixture
def enabled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rl.autograd.detect_anomaly():
            yield
    assert not rl.is_anomaly_enabled()


def test_a_nan_names_the_forward_line(enabled):
    x = rl.tensor([-1.0, 4.0], requires_grad=True)
    y = (root(x) * 2).sum()
    with pytest.warns(UserWarning, match="rl.sqrt\\(x\\)  # the line that is named"):
        with pytest.raises(RuntimeError, match="SqrtBackward0' returned nan values in its 0th"):
            y.backward()


def test_gradients_without_nan_pass(enabled):
    x = rl.tensor([1.0, 4.0], requires_grad=True)
    root(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.25]


def test_nothing_is_remembered_afterwards_and_without_it():
    rl.autograd.set_detect_anomaly(True)
    assert rl.is_anomaly_enabled() and rl.is_anomaly_check_nan_enabled()
    rl.autograd.set_detect_anomaly(False)
    x = rl.tensor([-1.0], requires_grad=True)
    y = root(x)
    assert "traceback_" not in y.grad_fn.metadata
    y.sum().backward()
    assert x.grad.isnan().all()


def test_without_the_search_for_nan():
    with rl.autograd.set_detect_anomaly(True, check_nan=False):
        x = rl.tensor([-1.0], requires_grad=True)
        y = root(x)
        assert any("rl.sqrt(x)" in line for line in y.grad_fn.metadata["traceback_"])
        y.sum().backward()
    assert x.grad.isnan().all()
