"""Averages of weights, and L-BFGS, against the oracle and alone."""

import pytest

import rushlight
from rushlight import nn, optim

AVERAGES = {
    "mean": lambda u: {},
    "moving": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "one by one": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "mean, one by one": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "buffers": lambda u: {"use_buffers": True},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_model(oracle, name):
    ends = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        layer = library.nn.Linear(2, 2)
        layer.register_buffer("seen", library.zeros(2))
        with library.no_grad():
            layer.weight.copy_(library.tensor([[1.0, 2.0], [3.0, 4.0]]))
        average = module.swa_utils.AveragedModel(layer, **AVERAGES[name](module.swa_utils))
        for i in range(4):
            with library.no_grad():
                layer.weight.add_(float(i))
                layer.seen.add_(1.0)
            average.update_parameters(layer)
        assert list(average.state_dict()) == [
            "n_averaged",
            *(f"module.{k}" for k in layer.state_dict()),
        ]
        ends.append(
            [
                average.n_averaged.item(),
                average.module.weight.tolist(),
                average.module.seen.tolist(),
            ]
        )
    assert ends[0][0] == ends[1][0]
    for a, b in zip(*(sum(end[1], []) + end[2] for end in ends), strict=True):
        assert a == pytest.approx(b, rel=1e-6)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 5])
def test_swalr(oracle, strategy, epochs):
    seen = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        optimizer = module.SGD([library.ones(2).requires_grad_()], lr=0.1)
        schedule = module.swa_utils.SWALR(optimizer, 0.4, epochs, strategy)
        path = []
        for _ in range(9):
            optimizer.step()
            schedule.step()
            path.append(optimizer.param_groups[0]["lr"])
        seen.append(path)
    assert seen[0] == pytest.approx(seen[1], rel=1e-9)


def rosenbrock(library, module, **options):
    p = library.tensor([-1.5, 2.0], dtype=library.float64).requires_grad_()
    optimizer = module.LBFGS([p], **options)

    def closure():
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    return p, optimizer, closure


def test_lbfgs_with_fixed_steps_goes_the_oracles_way(oracle):
    ends = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        p, optimizer, closure = rosenbrock(library, module, lr=0.1, max_iter=7, history_size=3)
        path = []
        for _ in range(4):
            path += [optimizer.step(closure).item(), *p.tolist()]
        ends.append(path)
        state = optimizer.state_dict()["state"][0]
        ends.append([state["n_iter"], state["func_evals"]])
    assert ends[0] == pytest.approx(ends[2], rel=1e-7)
    assert ends[1] == ends[3]


def test_lbfgs_with_a_line_search_finds_the_minimum():
    p, optimizer, closure = rosenbrock(rushlight, optim, line_search_fn="strong_wolfe", max_iter=60)
    first = optimizer.step(closure).item()
    assert first > 1 and closure().item() < 1e-8
    assert p.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)


def test_lbfgs_refuses_groups_and_unknown_searches():
    a, b = (rushlight.ones(2).requires_grad_() for _ in range(2))
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [a]}, {"params": [b]}])
    _, optimizer, closure = rosenbrock(rushlight, optim, line_search_fn="golden")
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optimizer.step(closure)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_differentiable_steps_are_on_the_tape(name):
    """The gradient of what a step leads to, by the gradient that the step took."""
    slope = rushlight.tensor([0.5, -2.0]).requires_grad_()
    start = rushlight.tensor([1.0, 1.0]).requires_grad_()
    p = start.clone()
    optimizer = getattr(optim, name)([p], lr=0.1, differentiable=True)
    p.grad = slope * 1.0
    optimizer.step()
    (p * p).sum().backward()
    assert start.grad is not None
    if name == "SGD":
        end = [1.0 - 0.1 * 0.5, 1.0 + 0.1 * 2.0]
        assert slope.grad.tolist() == pytest.approx([2 * v * -0.1 for v in end])


def test_a_step_of_half_types():
    p = nn.Parameter(rushlight.ones(3, dtype=rushlight.bfloat16))
    optimizer = optim.AdamW([p], lr=0.5)
    p.grad = rushlight.ones(3, dtype=rushlight.bfloat16)
    optimizer.step()
    assert p.dtype == rushlight.bfloat16 and p.tolist()[0] < 0.6


def test_one_kernel_a_parameter():
    """Adam, AdamW and SGD with momentum: no copies, no temporaries."""
    for make in (
        lambda p: optim.Adam(p, weight_decay=0.1),
        lambda p: optim.AdamW(p, amsgrad=True),
        lambda p: optim.SGD(p, momentum=0.9, nesterov=True),
    ):
        p = nn.Parameter(rushlight.randn(4, 5))
        optimizer = make([p])
        p.grad = rushlight.randn(4, 5)
        optimizer.step()
        address = p.data_ptr()
        rushlight.eager._core.record(True)
        optimizer.step()
        rushlight.eager._core.record(False)
        ran = [record[10] for record in rushlight.eager._core.records()]
        assert p.data_ptr() == address
        assert len([r for r in ran if "_step." in str(r)]) == 1, ran
        assert not any("copied" in str(r) for r in ran), ran
