"""Whole networks: one graph each, the numbers and gradients of eager mode."""

import pytest

import rushlight as rl
from rushlight import config, dynamo

from . import models
from .both import graphs

MODELS = models.make()


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b)
        [same(p, q) for p, q in zip(a, b)]
    elif a is not None:
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, training):
    rl.manual_seed(0)
    try:
        model, args = MODELS[name]()
        model.train(training)
        model(*args)
    except (NotImplementedError, AttributeError) as missing:
        pytest.skip(f"eager mode: {missing}")
    dynamo.reset()
    model.zero_grad()
    with config.changed(strict=True):
        compiled = rl.compile(model, backend="eager", fullgraph=True)
        state = {k: v.clone() for k, v in model.state_dict().items()}
        rl.manual_seed(1)
        expected = model(*args)
        first = expected if isinstance(expected, rl.Tensor) else expected[0]
        first.sum().backward()
        gradients = [p.grad for p in model.parameters()]
        model.zero_grad()
        model.load_state_dict(state)
        rl.manual_seed(1)
        found = compiled(*args)
    assert len(graphs()) == 1
    same(expected, found)
    first = found if isinstance(found, rl.Tensor) else found[0]
    first.sum().backward()
    for p, g in zip(model.parameters(), gradients):
        same(p.grad, g)
