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
    "polynomial": lambda s, o: s.PolynomialLR(o, 12, 2.0),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 4, cycle_momentum=False),
    "cyclic 2": lambda s, o: s.CyclicLR(o, [0.01, 0.02], [0.2, 0.3], 3, 5, "triangular2"),
    "cyclic exp": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 4, mode="exp_range", gamma=0.9),
    "cyclic own": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, 4, scale_fn=lambda x: 1 / x, cycle_momentum=False
    ),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=31),
    "one cycle, three": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.4], epochs=4, steps_per_epoch=8, three_phase=True, anneal_strategy="linear"
    ),
    "chained": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)], optimizer=o
    ),
}


def optimizer_of(library, module):
    a, b = (library.ones(2).requires_grad_() for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.3}]
    return module.SGD(groups, lr=0.1, momentum=0.5)


def rates(optimizer, schedulers, steps):
    both = lambda: [group[name] for group in optimizer.param_groups for name in ("lr", "momentum")]
    seen = [both()]
    for _ in range(steps):
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        seen.append(both())
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


PLATEAUS = {
    "plain": {"patience": 1},
    "max, absolute": {"mode": "max", "threshold_mode": "abs", "threshold": 0.5, "patience": 0},
    "cooldown": {"factor": 0.5, "patience": 0, "cooldown": 2},
    "floor": {"factor": 0.5, "patience": 0, "min_lr": [0.05, 0.2]},
}


@pytest.mark.parametrize("name", PLATEAUS)
def test_plateaus(oracle, name):
    metrics = [3.0, 2.0, 2.1, 2.0, 1.9999, 1.5, 1.6, 1.7, 1.8, 1.9, 1.0, 5.0, 5.0, 5.0, 5.0]
    seen = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        optimizer = optimizer_of(library, module)
        scheduler = module.lr_scheduler.ReduceLROnPlateau(optimizer, **PLATEAUS[name])
        path = []
        for i, metric in enumerate(metrics):
            optimizer.step()
            scheduler.step(library.tensor(metric) if i % 2 else metric)
            path.append([group["lr"] for group in optimizer.param_groups])
        seen.append(path)
    assert_same(*seen)


def test_restarts_at_fractions_of_a_step(oracle):
    seen = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        optimizer = optimizer_of(library, module)
        scheduler = module.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2)
        optimizer.step()
        path = []
        for i in range(40):
            scheduler.step(i / 3)
            path.append(scheduler.get_last_lr())
        seen.append(path)
    assert_same(*seen)


def test_a_rate_that_is_a_tensor_stays_one():
    p = rushlight.ones(2).requires_grad_()
    rate = rushlight.tensor(0.5)
    optimizer = optim.Adam([p], lr=rate)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.25


def test_bad_cycles():
    optimizer = optimizer_of(rushlight, optim)
    schedules = optim.lr_scheduler
    for make, what in (
        (lambda: schedules.CosineAnnealingWarmRestarts(optimizer, 0), "T_0 is a positive integer"),
        (lambda: schedules.CosineAnnealingWarmRestarts(optimizer, 2, 0), "T_mult is a positive"),
        (lambda: schedules.CyclicLR(optimizer, 0.1, 0.2, mode="up"), "unknown mode"),
        (lambda: schedules.CyclicLR(optimizer, [0.1], 0.2), "1 values for"),
        (lambda: schedules.OneCycleLR(optimizer, 0.1), "takes total_steps"),
        (lambda: schedules.OneCycleLR(optimizer, 0.1, 10, pct_start=2.0), "pct_start"),
        (lambda: schedules.OneCycleLR(optimizer, 0.1, 10, anneal_strategy="up"), "cos"),
        (lambda: schedules.ReduceLROnPlateau(optimizer, factor=1.0), "factor is below 1"),
        (lambda: schedules.ReduceLROnPlateau(optimizer, mode="up"), "no mode .up"),
        (lambda: schedules.ChainedScheduler([]), "at least one scheduler, got none"),
        (lambda: optim.swa_utils.SWALR(optimizer, 0.1, anneal_strategy="up"), "anneal_strategy"),
    ):
        with pytest.raises(ValueError, match=what):
            make()
    last = schedules.OneCycleLR(optimizer, 0.1, 2)
    with pytest.raises(ValueError, match="Tried to step"):
        rates(optimizer, [last], 5)
