"""GradScaler on the CPU, step by step against PyTorch's: scales, skipped steps, weights, errors."""

import copy
import pickle

import pytest

import rushlight
from rushlight.amp import GradScaler

INF, NAN = float("inf"), float("nan")


def run(library, factors, **options):
    """Weights, scale and growth tracker after each step; a step's loss is its factor times w^2."""
    w = library.tensor([1.0, 2.0, -3.0], requires_grad=True)
    optimizer = library.optim.SGD([w], lr=0.01, momentum=0.5)
    scaler = library.amp.GradScaler("cpu", **options)
    history = []
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        history.append((w.tolist(), scaler.get_scale(), scaler.state_dict()))
    return history


@pytest.mark.parametrize(
    "factors, options",
    [
        ([1.0] * 4, {"growth_interval": 2}),
        ([1.0, INF, 1.0, NAN, 1.0, 1.0, 1.0], {"growth_interval": 2}),
        ([INF] * 3, {"init_scale": 8.0, "backoff_factor": 0.25}),
        ([1.0] * 3, {"init_scale": 2.0**126, "growth_interval": 1, "growth_factor": 16.0}),
        ([1.0, -INF, 1.0], {"enabled": False}),
    ],
    ids=["grows", "skips", "backs off", "does not overflow", "disabled"],
)
def test_steps_equal_the_oracles(oracle, factors, options):
    ours, theirs = run(rushlight, factors, **options), run(oracle, factors, **options)
    for (w, scale, state), (their_w, their_scale, their_state) in zip(ours, theirs):
        assert w == pytest.approx(their_w, rel=1e-6, nan_ok=True)
        assert scale == their_scale and state == their_state


def test_a_nan_step_changes_nothing_but_the_scale():
    w = rushlight.tensor([1.0, 2.0], requires_grad=True)
    optimizer = rushlight.optim.AdamW([w])
    scaler = GradScaler("cpu", init_scale=16.0)
    before = w.tolist()
    scaler.scale((w * NAN).sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert w.tolist() == before and not optimizer.state and scaler.get_scale() == 8.0
    optimizer.zero_grad()
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    assert w.tolist() != before


def prepared():
    w = rushlight.tensor([3.0, 4.0], requires_grad=True)
    optimizer = rushlight.optim.SGD([w], lr=1.0)
    scaler = GradScaler("cpu", init_scale=64.0)
    scaler.scale((w * w).sum()).backward()
    return w, optimizer, scaler


def test_gradients_are_unscaled_once_for_clipping():
    w, optimizer, scaler = prepared()
    assert w.grad.tolist() == [6.0 * 64, 8.0 * 64]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [6.0, 8.0]
    rushlight.nn.utils.clip_grad_norm_([w], 5.0)
    scaler.step(optimizer)
    assert w.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)


def test_calls_out_of_order():
    w, optimizer, scaler = prepared()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="have been unscaled"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="called twice"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="no closure"):
        scaler.step(optimizer, closure=lambda: 1)
    scaler.update()
    with pytest.raises(AssertionError, match="no optimizer has been unscaled"):
        scaler.update()
    fresh = GradScaler("cpu")
    for call in (lambda: fresh.step(optimizer), fresh.update, lambda: fresh.unscale_(optimizer)):
        with pytest.raises(AssertionError, match="_scale is None"):
            call()
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match="factor must be"):
            GradScaler("cpu", **options)


def test_half_gradients_are_refused():
    w = rushlight.ones(2, dtype=rushlight.float16, requires_grad=True)
    optimizer, scaler = rushlight.optim.SGD([w], lr=0.1), GradScaler("cpu", init_scale=2.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="unscale FP16"):
        scaler.unscale_(optimizer)


def test_containers_of_losses():
    scaler = GradScaler("cpu", init_scale=4.0)
    x = rushlight.ones(())
    a, (b, c) = scaler.scale([x, (x, 2 * x)])
    assert [a.item(), b.item(), c.item()] == [4.0, 4.0, 8.0]
    with pytest.raises(ValueError, match="iterable of tensors"):
        scaler.scale(3)


def test_several_optimizers():
    """An inf in one skips its own step only; the scale is one for all."""
    a, b = (rushlight.ones(1, requires_grad=True) for _ in range(2))
    first, second = (rushlight.optim.SGD([x], lr=0.5) for x in (a, b))
    scaler = GradScaler("cpu", init_scale=4.0)
    scaler.scale(a * INF + b).sum().backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.item(), b.item(), scaler.get_scale()) == (1.0, 0.5, 2.0)


def test_state_goes_into_checkpoints(tmp_path, oracle):
    _, optimizer, scaler = prepared()
    scaler.step(optimizer)
    scaler.update()
    rushlight.save(scaler.state_dict(), tmp_path / "s.pt")
    other = GradScaler("cpu")
    other.load_state_dict(rushlight.load(tmp_path / "s.pt"))
    assert other.state_dict() == scaler.state_dict() and other.get_scale() == 64.0
    theirs = oracle.amp.GradScaler("cpu")
    theirs.load_state_dict(oracle.load(tmp_path / "s.pt"))
    assert theirs.state_dict() == scaler.state_dict()
    for copied in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert copied.state_dict() == scaler.state_dict()
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    assert GradScaler("cpu", enabled=False).state_dict() == {}


def test_the_scale_can_be_set():
    _, optimizer, scaler = prepared()
    scaler.step(optimizer)
    scaler.update(new_scale=5.0)
    assert scaler.get_scale() == 5.0
    scaler.update(rushlight.tensor(7.0))
    assert scaler.get_scale() == 7.0
    with pytest.raises(AssertionError, match="float32"):
        scaler.update(rushlight.ones(2))


def test_without_a_gpu_the_cuda_one_stands_aside():
    for make in (GradScaler, rushlight.cuda.amp.GradScaler):
        with pytest.warns(UserWarning, match="there is no CUDA here"):
            scaler = make()
        x = rushlight.ones(())
        assert not scaler.is_enabled() and scaler.scale(x) is x and scaler.get_scale() == 1.0
    with pytest.warns(UserWarning, match="there is no CUDA here"):
        with rushlight.cuda.amp.autocast():
            assert not rushlight.is_autocast_enabled("cuda")


def test_training_in_float16_with_autocast():
    """Gradients that would vanish in float16 arrive."""

    def gradient(scaler):
        w = rushlight.full((4, 4), 0.5, requires_grad=True)
        with rushlight.autocast("cpu", rushlight.float16):
            loss = (rushlight.ones(4, 4) @ w).float().sum() * 1e-9
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(rushlight.optim.SGD([w], lr=1.0))
        return w.grad

    assert gradient(None).abs().sum().item() == 0
    grad = gradient(GradScaler("cpu"))
    assert grad[0, 0].item() == pytest.approx(4e-9, rel=1e-2)
