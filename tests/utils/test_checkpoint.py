"""Gradient checkpointing: the gradients of the plain run, the memory of none of it."""

import contextlib
import gc

import pytest

import rushlight
from rushlight import _core, nn
from rushlight.utils import checkpoint as module
from rushlight.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

BOTH = pytest.mark.parametrize("reentrant", [False, True])


def block():
    rushlight.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.4), nn.Linear(32, 8), nn.Tanh())


def gradients(run, model):
    """Loss and gradients of two blocks in a row."""
    rushlight.manual_seed(3)
    model.zero_grad()
    x = rushlight.randn(4, 8, requires_grad=True)
    loss = run(run(x * 1.5)).pow(2).sum()
    after = rushlight.randn(2).tolist()
    loss.backward()
    return loss.item(), x.grad.tolist(), [p.grad.tolist() for p in model.parameters()], after


@BOTH
def test_gradients_and_random_numbers_are_those_of_the_plain_run(reentrant):
    model = block()
    plain = gradients(model, model)
    assert gradients(lambda x: checkpoint(model, x, use_reentrant=reentrant), model) == plain


def test_without_the_random_state_the_second_run_draws_others():
    model = block()
    run = lambda x: checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
    assert gradients(run, model)[2] != gradients(model, model)[2]


@BOTH
def test_the_stream_goes_on_as_if_backward_had_drawn_nothing(reentrant):
    model = block()
    rushlight.manual_seed(1)
    y = checkpoint(model, rushlight.ones(2, 8, requires_grad=True), use_reentrant=reentrant)
    state = rushlight.get_rng_state().tolist()
    y.sum().backward()
    assert rushlight.get_rng_state().tolist() == state


def held(run):
    """Bytes that a graph holds besides its output."""
    gc.collect()
    before = _core.allocator_stats()["in_use"]
    out = run()
    gc.collect()
    return _core.allocator_stats()["in_use"] - before - out.untyped_storage_nbytes()


@BOTH
def test_what_the_inside_saves_is_freed(reentrant):
    x = rushlight.randn(256, 256, requires_grad=True)

    def deep(x):
        for _ in range(10):
            x = rushlight.tanh(x * 1.1)
        return x

    plain = held(lambda: deep(x))
    kept = held(lambda: checkpoint(deep, x, use_reentrant=reentrant))
    assert plain > 8.9 * x.nbytes and kept <= 2 * x.nbytes
    inner = lambda x: checkpoint(
        deep, checkpoint(deep, x, use_reentrant=False), use_reentrant=False
    )
    nested = held(lambda: checkpoint(inner, x, use_reentrant=False))
    assert nested <= 2 * x.nbytes  # the inner ones' arguments too


def test_nesting():
    model = block()
    inner = lambda x: checkpoint(model, x, use_reentrant=False)
    outer = lambda x: checkpoint(lambda x: inner(inner(x)) + x, x, use_reentrant=False)
    plain = lambda x: model(model(x)) + x
    assert gradients(outer, model) == gradients(plain, model)


def test_arguments_of_any_form():
    w = rushlight.full((3,), 2.0, requires_grad=True)

    def run(pair, *, scale, bias=None, factor=1):
        a, b = pair
        return {"out": (a * scale * w).exp() * factor, "b": b}

    x, scale = rushlight.ones(3, requires_grad=True), rushlight.full((3,), 0.5, requires_grad=True)
    out = checkpoint(run, (x, 7), scale=scale, factor=3, use_reentrant=False)
    assert out["b"] == 7
    out["out"].sum().backward()
    e = 3 * 2.718281828
    assert x.grad.tolist() == pytest.approx([e] * 3) and scale.grad.tolist() == pytest.approx(
        [2 * e] * 3
    )
    assert w.grad.tolist() == pytest.approx([e / 2] * 3)


def test_gradients_by_grad_again_and_of_gradients():
    f = lambda x: (x.sin() * x).exp()
    x = rushlight.tensor([0.3, 0.7], requires_grad=True)
    for create in (False, True):
        y, z = checkpoint(f, x, use_reentrant=False).sum(), f(x).sum()
        for _ in range(2):  # the graph is kept: computed again each time
            (a,) = rushlight.autograd.grad(y, x, retain_graph=True, create_graph=create)
            (b,) = rushlight.autograd.grad(z, x, retain_graph=True, create_graph=create)
            assert a.tolist() == pytest.approx(b.tolist(), rel=1e-6)
    (c,) = rushlight.autograd.grad(a.sum(), x)
    (d,) = rushlight.autograd.grad(b.sum(), x)
    assert c.tolist() == pytest.approx(d.tolist(), rel=1e-6)


@BOTH
def test_how_often_the_function_runs(reentrant):
    calls = []

    def f(x):
        calls.append(1)
        y = x.exp()
        z = y.sin()
        calls.append(2)
        return z * 1.0

    x = rushlight.ones(2, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=reentrant)
    assert calls == [1, 2]
    y.sum().backward()
    assert calls.count(1) == 2
    with rushlight.no_grad():
        assert not checkpoint(f, x, use_reentrant=reentrant).requires_grad
    assert calls.count(1) == 3


def test_early_stop():
    calls = []

    def f(x):
        y = x.exp()
        calls.append("late")
        return y

    for early, expected in ((True, 1), (False, 2)):
        calls.clear()
        x = rushlight.ones(2, requires_grad=True)
        checkpoint(f, x, use_reentrant=False, early_stop=early).sum().backward()
        assert len(calls) == expected and x.grad.tolist() == pytest.approx([2.7182817] * 2)


@BOTH
def test_autocast_is_as_it_was(reentrant):
    seen, layer = [], nn.Linear(4, 4)

    def f(x):
        y = layer(x)
        seen.append(y.dtype)
        return y.float().exp()

    x = rushlight.ones(2, 4, requires_grad=True)
    with rushlight.autocast("cpu"):
        y = checkpoint(f, x, use_reentrant=reentrant)
    y.sum().backward()
    assert seen == [rushlight.bfloat16] * 2 and layer.weight.grad.dtype is rushlight.float32


def test_contexts_of_both_runs():
    seen = []

    @contextlib.contextmanager
    def named(name):
        seen.append(name)
        yield

    x = rushlight.ones(2, requires_grad=True)
    pair = lambda: (named("first"), named("second"))
    checkpoint(rushlight.exp, x, use_reentrant=False, context_fn=pair).sum().backward()
    assert seen == ["first", "second"]


def test_a_function_that_changes_its_mind_is_told():
    runs = []

    def another_shape(x):
        runs.append(1)
        y = x[: len(runs)].exp()
        return (y * y).sum()

    def fewer(x):
        runs.append(1)
        return x.exp() if len(runs) > 1 else x.exp().sin()

    x = rushlight.ones(4, requires_grad=True)
    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(another_shape, x, use_reentrant=False).backward()
    runs.clear()
    with pytest.raises(CheckpointError, match="different number of tensors"):
        checkpoint(fewer, x, use_reentrant=False).sum().backward()


def test_arguments_written_to_are_told():
    x = rushlight.ones(2, requires_grad=True)
    y = x * 2
    z = checkpoint(rushlight.exp, y, use_reentrant=False)
    with rushlight.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


def test_a_failing_function_leaves_nothing_behind():
    x = rushlight.ones(2, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        checkpoint(lambda x: x.exp() / (1 // 0), x, use_reentrant=False)
    y = x.exp()  # saved as ever
    assert y.sum().backward() is None and _core.set_saved_hooks(None) is None


def test_reentrant_limits():
    x = rushlight.ones(2, requires_grad=True)
    y = checkpoint(rushlight.exp, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="incompatible with .grad"):
        rushlight.autograd.grad(y.sum(), x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(rushlight.exp, x.detach(), use_reentrant=True)
    with pytest.warns(UserWarning, match="say use_reentrant"):
        checkpoint(rushlight.exp, x)
    for kwargs in ({"a": 1}, {"context_fn": lambda: None}):
        with pytest.raises(ValueError):
            checkpoint(rushlight.exp, x, use_reentrant=True, **kwargs)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(rushlight.exp, x, use_reentrant=False, determinism_check="x")


@BOTH
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequences(segments, reentrant):
    rushlight.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(4, 4), nn.Tanh())))
    run = lambda x: checkpoint_sequential(model, segments, x, use_reentrant=reentrant)
    rushlight.manual_seed(0)
    x = rushlight.randn(2, 4, requires_grad=True)
    run(x).sum().backward()
    found = [x.grad.tolist(), *(p.grad.tolist() for p in model.parameters())]
    model.zero_grad()
    x.grad = None
    model(x).sum().backward()
    assert found == [x.grad.tolist(), *(p.grad.tolist() for p in model.parameters())]
    with pytest.raises(ValueError, match="segments"):
        checkpoint_sequential(model, 7, x, use_reentrant=reentrant)


# ---- hooks on saved tensors


def test_saved_tensor_hooks(oracle):
    def run(library):
        log = []

        def pack(x):
            log.append(("pack", tuple(x.shape)))
            return x * 2

        def unpack(x):
            log.append(("unpack", tuple(x.shape)))
            return x / 2

        a = library.tensor([1.0, 2.0], requires_grad=True)
        with library.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (a * a).exp()
        z = y * 3
        z.sum().backward()
        return sorted(log), a.grad.tolist()

    ours, theirs = run(rushlight), run(oracle)
    assert ours[1] == pytest.approx(theirs[1]) and set(ours[0]) == set(theirs[0])
    x = rushlight.ones(2, requires_grad=True)
    with rushlight.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="unpack_hook has to give a Tensor"):
        y.sum().backward()
    with rushlight.autograd.graph.saved_tensors_hooks(lambda x: 1 / 0, lambda x: x):
        with pytest.raises(ZeroDivisionError):
            x.exp()
    assert module.saved_tensors_hooks is rushlight.autograd.graph.saved_tensors_hooks


def test_packed_values_die_with_the_graph():
    class Box:
        count = 0

        def __init__(self, x):
            self.x = x
            Box.count += 1

        def __del__(self):
            Box.count -= 1

    x = rushlight.ones(2, requires_grad=True)
    with rushlight.autograd.graph.saved_tensors_hooks(Box, lambda box: box.x):
        y = x.exp().sin()
        assert Box.count == 2
        y.sum().backward()
        assert Box.count == 0
        cycle = [x.exp()]
        cycle.append(cycle)
        del cycle
    gc.collect()
    assert Box.count == 0
