"""Muon: the oracle's path within what bfloat16 leaves, its checks, its step in a graph."""

import numpy
import pytest

import rushlight
from rushlight import optim

SETTINGS = [
    ({"lr": 0.02}, (6, 4)),
    ({"lr": 0.02, "nesterov": False, "weight_decay": 0.0}, (4, 6)),
    ({"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}, (5, 5)),
]
BAD = [
    {"lr": -1.0},
    {"momentum": -0.1},
    {"weight_decay": -0.1},
    {"adjust_lr_fn": "none"},
]


def path(library, options, shape):
    rng = numpy.random.default_rng(3)
    w = library.tensor(rng.standard_normal(shape).tolist()).requires_grad_()
    optimizer = library.optim.Muon([w], **options)
    for _ in range(5):
        w.grad = library.tensor(rng.standard_normal(shape).tolist())
        optimizer.step()
    return w.detach(), optimizer.state[w]["momentum_buffer"]


@pytest.mark.parametrize(("options", "shape"), SETTINGS)
def test_path(oracle, options, shape):
    ours, theirs = path(rushlight, options, shape), path(oracle, options, shape)
    moved = options["lr"] * 5
    for a, b, tolerance in zip(ours, theirs, (0.03 * moved, 1e-6), strict=True):
        numpy.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("options", BAD, ids=lambda o: next(iter(o)))
def test_bad_options(oracle, options):
    for library in (rushlight, oracle):
        with pytest.raises(ValueError):
            library.optim.Muon([library.ones(2, 2).requires_grad_()], **options)
        with pytest.raises(ValueError, match="2D"):
            library.optim.Muon([library.ones(2).requires_grad_()])


@pytest.mark.parametrize("kind", ["Muon", "Adafactor"])
def test_complex_parameters_are_refused(kind, oracle):
    for library in (rushlight, oracle):
        w = library.ones(2, 2, dtype=library.complex64).requires_grad_()
        w.grad = library.ones(2, 2, dtype=library.complex64)
        with pytest.raises(RuntimeError, match=f"{kind} does not support complex"):
            getattr(library.optim, kind)([w]).step()


@pytest.mark.parametrize("kind", ["Muon", "Adafactor"])
def test_in_a_graph(kind):
    """A compiled step is one graph and does the same."""
    ends = []
    for compiled in (False, True):
        rushlight.manual_seed(0)
        w = rushlight.randn(5, 3).requires_grad_()
        optimizer = getattr(optim, kind)([w], lr=0.1)
        step = rushlight.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
        for i in range(3):
            w.grad = rushlight.randn(5, 3)
            if i == 0:
                optimizer.step()  # the state begins in eager mode
            else:
                step()
        ends.append(w.detach().tolist())
    tolerance = 1e-5 if kind == "Adafactor" else 2e-2
    numpy.testing.assert_allclose(*ends, atol=tolerance)
