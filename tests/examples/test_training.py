"""One step of each example equals torch's on the same weights and data; fifty stay beside it.

The programs are the examples themselves, once as they stand and once with torch's names in their
imports.
"""

import numpy as np
import pytest

import rushlight

from .programs import example

pytestmark = pytest.mark.oracle


def weights(model, seed=0):
    """Arrays by parameter name, scaled by fan-in."""
    generator = np.random.default_rng(seed)
    made = {}
    for name, p in model.named_parameters():
        shape = tuple(p.shape)
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        made[name] = (generator.standard_normal(shape) * scale).astype(np.float32)
    return made


def load(torch, model, arrays):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(arrays[name]))


def relative(a, b):
    """The largest difference of two sets of parameters, relative to each one's largest element."""
    return max(np.abs(a[n] - b[n]).max() / max(np.abs(b[n]).max(), 1e-3) for n in b)


def outcome(model):
    """Parameters after the steps, and the gradients of the latest one."""
    named = list(model.named_parameters())
    return {n: p.detach().numpy() for n, p in named}, {n: p.grad.numpy() for n, p in named}


def gpt(torch, steps, arrays=None):
    program = example("train_char_gpt", torch.__name__)
    model = program.GPT(50, 32, layers=2, dim=64, heads=4)
    arrays = arrays or weights(model)
    load(torch, model, arrays)
    optimizer, schedule = program.make_optimizer(model, 1e-3, 100, 10)
    batches = np.random.default_rng(1).integers(0, 50, (5, 4, 33))
    losses = []
    for i in range(steps):
        ids = torch.from_numpy(batches[i % 5])
        loss = program.train_step(model, optimizer, ids[:, :-1], ids[:, 1:].contiguous())
        schedule.step()
        losses.append(loss.item())
    return arrays, losses, outcome(model)


def lstm(torch, steps, arrays=None):
    program = example("lstm_lm", torch.__name__)
    model = program.LanguageModel(50, dim=32, hidden=48, dropout=0.0)
    arrays = arrays or weights(model)
    load(torch, model, arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = np.random.default_rng(1).integers(0, 50, (5, 17, 4))
    losses, state = [], None
    for i in range(steps):
        ids = torch.from_numpy(batches[i % 5])
        loss, state = program.train_step(model, optimizer, ids[:-1], ids[1:], state)
        losses.append(loss.item())
    return arrays, losses, outcome(model)


def cnn(torch, steps, arrays=None):
    program = example("train_digits_cnn", torch.__name__)
    model = program.CNN()
    arrays = arrays or weights(model)
    load(torch, model, arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = np.random.default_rng(1)
    images = generator.random((5, 32, 1, 8, 8), dtype=np.float32)
    labels = generator.integers(0, 10, (5, 32))
    losses = []
    for i in range(steps):
        x, y = torch.from_numpy(images[i % 5]), torch.from_numpy(labels[i % 5])
        losses.append(program.train_step(model, optimizer, x, y).item())
    return arrays, losses, outcome(model)


@pytest.mark.parametrize("train", [gpt, lstm, cnn])
def test_one_step_equals_torch(oracle, train):
    arrays, losses, (parameters, gradients) = train(rushlight, 1)
    _, expected, (reference, reference_gradients) = train(oracle, 1, arrays)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert relative(gradients, reference_gradients) < 1e-5
    # Adam divides a gradient by its own size, so that one near zero may go either way
    assert relative(parameters, reference) < 1e-3
    moved = {n: np.abs(parameters[n] - reference[n]) > 1e-6 for n in reference}
    assert sum(m.sum() for m in moved.values()) <= 1e-3 * sum(m.size for m in moved.values())


@pytest.mark.parametrize("train", [gpt, lstm, cnn])
def test_fifty_steps_stay_beside_torch(oracle, train):
    arrays, losses, _ = train(rushlight, 50)
    _, expected, _ = train(oracle, 50, arrays)
    assert losses == pytest.approx(expected, rel=1e-3)
    assert losses[-1] < losses[0]
