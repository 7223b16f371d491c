"""Schedules: the oracle's rates over thirty steps, alone, chained, one after the other, and
resumed.
"""

import math
import warnings

import pytest

import rushlight
from rushlight import optim

MAKERS = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda step: 0.9**step),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda step: 0.9**step, lambda step: 1 / (1 + step)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda step: 0.95),
    "step": lambda s, o: s.StepLR(o, 4, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 7, 7], 0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "linear": lambda s, o: s.LinearLR(o, 0.25, 1.0, 6),
    "linear down": lambda s, o: s.LinearLR(o, 1.0, 0.1, 6),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 4),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 10),
    "cosine min": lambda s, o: s.CosineAnnealingLR(o, 7, 0.01),
    "warm up, cosine": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 5), s.CosineAnnealingLR(o, 12)], [5]
    ),
    "three": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9), s.StepLR(o, 3, 0.5)], [4, 9]
    ),
}


def optimizer_of(library, module):
    a, b = (library.ones(2).requires_grad_() for _ in range(2))
    return module.SGD([{"params": [a]}, {"params": [b], "lr": 0.3}], lr=0.1)


def rates(optimizer, schedulers, steps):
    seen = [[group["lr"] for group in optimizer.param_groups]]
    for _ in range(steps):
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        seen.append([group["lr"] for group in optimizer.param_groups])
    return seen


def assert_same(ours, theirs):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-12), f"step {step}"


@pytest.mark.parametrize("name", MAKERS)
def test_same_rates_as_the_oracle(oracle, name):
    seen = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        optimizer = optimizer_of(library, module)
        scheduler = MAKERS[name](module.lr_scheduler, optimizer)
        seen.append(rates(optimizer, [scheduler], 30))
        assert scheduler.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
    assert_same(*seen)


@pytest.mark.parametrize("pair", [("linear", "exponential"), ("constant", "step")])
def test_chained_schedules_multiply(oracle, pair):
    seen = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        optimizer = optimizer_of(library, module)
        schedulers = [MAKERS[name](module.lr_scheduler, optimizer) for name in pair]
        seen.append(rates(optimizer, schedulers, 15))
    assert_same(*seen)


@pytest.mark.parametrize("name", MAKERS)
def test_resumes_from_its_state(name):
    whole = optimizer_of(rushlight, optim)
    expected = rates(whole, [MAKERS[name](optim.lr_scheduler, whole)], 14)
    first = optimizer_of(rushlight, optim)
    scheduler = MAKERS[name](optim.lr_scheduler, first)
    rates(first, [scheduler], 7)
    second = optimizer_of(rushlight, optim)
    resumed = MAKERS[name](optim.lr_scheduler, second)
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert_same(rates(second, [resumed], 7), expected[7:])


def test_by_hand():
    optimizer = optimizer_of(rushlight, optim)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    first = [group[0] for group in rates(optimizer, [scheduler], 4)]
    assert first == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 4)) for t in range(5)])


def test_bad_arguments():
    optimizer = optimizer_of(rushlight, optim)
    with pytest.raises(TypeError, match="is not an Optimizer"):
        optim.lr_scheduler.StepLR(3, 1)
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optimizer, 1, last_epoch=3)
    with pytest.raises(ValueError, match="lr_lambdas"):
        optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 1.0])
    with pytest.raises(ValueError, match="Starting multiplicative factor"):
        optim.lr_scheduler.LinearLR(optimizer, 0.0)
    with pytest.raises(ValueError, match="number of milestone"):
        optim.lr_scheduler.SequentialLR(optimizer, [optim.lr_scheduler.StepLR(optimizer, 1)], [3])


def test_warns_of_the_wrong_order():
    optimizer = optimizer_of(rushlight, optim)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    optimizer = optimizer_of(rushlight, optim)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
