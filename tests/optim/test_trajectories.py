"""Twenty steps of each optimizer in each setting: the same path as the oracle's, and a state that
moves both ways.
"""

import numpy
import pytest

import rushlight
from rushlight import optim

SHAPES = [(3, 4), (4,), ()]
SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True}),
    ("RMSprop", {"lr": 0.02}),
    ("RMSprop", {"lr": 0.02, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.5, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1},
    ),
    ("Adadelta", {"lr": 1.0}),
    ("Adadelta", {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.05}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {"lr": 0.05}),
    ("Rprop", {"lr": 0.05, "etas": (0.3, 1.5), "step_sizes": (0.01, 0.2), "maximize": True}),
    ("ASGD", {"lr": 0.05}),
    ("ASGD", {"lr": 0.05, "t0": 3.0, "lambd": 0.1, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.2, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.2, "d": 1.5, "maximize": True}),
]
IDS = [
    f"{name}-{'-'.join(k for k in options if k != 'lr') or 'plain'}" for name, options in SETTINGS
]


def start(library):
    rng = numpy.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in SHAPES]
    return [library.tensor(a.tolist(), dtype=library.float32).requires_grad_() for a in arrays]


def set_gradients(library, parameters, step):
    """Gradients that depend on the step and on where the parameter is: a bowl with noise."""
    rng = numpy.random.default_rng(100 + step)
    for parameter in parameters:
        noise = rng.standard_normal(tuple(parameter.shape)).astype("float32")
        noise = library.tensor(noise.tolist(), dtype=library.float32)
        parameter.grad = parameter.detach() * 0.5 + noise


def run(library, optimizer, parameters, steps):
    path = []
    for step in steps:
        set_gradients(library, parameters, step)
        optimizer.step()
        path.append([parameter.detach().tolist() for parameter in parameters])
    return path


def values(tree):
    """Tensors as nested lists, so that states of both libraries compare."""
    if isinstance(tree, dict):
        return {key: values(value) for key, value in tree.items()}
    return tree.tolist() if hasattr(tree, "tolist") else tree


def assert_close(a, b, tolerance=1e-6):
    for left, right in zip(a, b, strict=True):
        numpy.testing.assert_allclose(
            numpy.array(left), numpy.array(right), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_same_path_as_the_oracle(oracle, name, options):
    paths = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        parameters = start(library)
        optimizer = getattr(module, name)(parameters, **options)
        paths.append(run(library, optimizer, parameters, range(20)))
    for ours, theirs in zip(*paths, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_same_state_dict_as_the_oracle(oracle, name, options):
    states = []
    for library, module in ((rushlight, optim), (oracle, oracle.optim)):
        parameters = start(library)
        optimizer = getattr(module, name)(parameters, **options)
        run(library, optimizer, parameters, range(3))
        states.append(optimizer.state_dict())
    ours, theirs = states
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for key, saved in theirs["state"].items():
        assert ours["state"][key].keys() == saved.keys()
        for field, tensor in saved.items():
            assert_close([values(ours["state"][key][field])], [values(tensor)])


@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_goes_on_from_the_oracles_checkpoint(oracle, name, options):
    """Ten steps there, its state loaded here, ten more here: where twenty steps there end."""
    parameters = start(oracle)
    optimizer = getattr(oracle.optim, name)(parameters, **options)
    run(oracle, optimizer, parameters, range(10))
    saved = optimizer.state_dict()
    ours = [
        rushlight.tensor(p.detach().tolist(), dtype=rushlight.float32).requires_grad_()
        for p in parameters
    ]
    state = {
        key: {
            field: rushlight.tensor(t.tolist(), dtype=rushlight.float32)
            for field, t in fields.items()
            if t is not None
        }
        for key, fields in saved["state"].items()
    }
    resumed = getattr(optim, name)(ours)
    resumed.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    here = run(rushlight, resumed, ours, range(10, 20))
    there = run(oracle, optimizer, parameters, range(10, 20))
    assert_close(here[-1], there[-1])


@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_resumes_its_own_checkpoint_exactly(name, options):
    parameters = start(rushlight)
    optimizer = getattr(optim, name)(parameters, **options)
    run(rushlight, optimizer, parameters, range(5))
    copies = [p.detach().clone().requires_grad_() for p in parameters]
    resumed = getattr(optim, name)(copies, lr=1.0)
    resumed.load_state_dict(optimizer.state_dict())
    assert run(rushlight, resumed, copies, range(5, 10)) == run(
        rushlight, optimizer, parameters, range(5, 10)
    )


def test_adamw_by_hand():
    """One step from p = 1 with gradient 2: decay first, then lr times the sign (up to eps)."""
    p = rushlight.tensor([1.0], dtype=rushlight.float64).requires_grad_()
    p.grad = rushlight.tensor([2.0], dtype=rushlight.float64)
    optim.AdamW([p], lr=0.1, weight_decay=0.5).step()
    assert abs(p.item() - (1 * (1 - 0.1 * 0.5) - 0.1 * 2 / (2 + 1e-8))) < 1e-12


def test_sgd_by_hand():
    p = rushlight.tensor([1.0], dtype=rushlight.float64).requires_grad_()
    optimizer = optim.SGD([p], lr=0.1, momentum=0.5)
    for expected in (1 - 0.1 * 2, 1 - 0.1 * 2 - 0.1 * 3):
        p.grad = rushlight.tensor([2.0], dtype=rushlight.float64)
        optimizer.step()
        assert abs(p.item() - expected) < 1e-12
