"""Autograd: accumulation, graphs kept and freed, hooks, modes, threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

import rushlight as rl
from rushlight import _core, autograd

from .both import both_do, close, dtype_name, note_of, raises, randn, same


def test_gradients_accumulate(oracle):
    def run(lib):
        x = lib.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        (x * x).sum().backward()
        return x.grad

    both_do(run, (rl,), (oracle,))


def test_an_accumulated_gradient_is_not_shared(oracle):
    for lib in (rl, oracle):
        x, y = (lib.ones(3, requires_grad=True) for _ in range(2))
        g = lib.ones(3)
        (x + y).backward(g)
        x.grad.add_(1)
        assert y.grad.tolist() == [1.0] * 3 and g.tolist() == [1.0] * 3
        (x + y).backward(g)
        assert x.grad.tolist() == [3.0] * 3 and y.grad.tolist() == [2.0] * 3


def test_broadcast_gradients(oracle):
    shapes = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 3), (1, 2, 1), (0, 3)]
    for s in shapes:
        for t in shapes:
            if 0 in s + t and 2 in s + t:
                continue
            x = randn(oracle, *s, requires_grad=True)
            y = randn(oracle, *t, seed=1, requires_grad=True)
            for a, b in zip(x, y):
                (a * b + a / (b * b + 1)).sum().backward()
            close(x[0].grad, x[1].grad, context=(s, t))
            close(y[0].grad, y[1].grad, context=(s, t))


def test_a_gradient_of_the_wrong_shape_or_dtype(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        with raises(RuntimeError, match="hape"):
            (x * 2).backward(lib.ones(4))
        with raises(RuntimeError, match="scalar outputs"):
            (x * 2).backward()
        with raises(RuntimeError, match="does not require grad"):
            lib.ones(3).sum().backward()
        with pytest.raises((RuntimeError, TypeError)):
            x.grad = lib.ones(4)
        with pytest.raises((RuntimeError, TypeError)):
            x.grad = lib.ones(3).double()
        with pytest.raises(TypeError):
            x.grad = 1.0
        assert x.grad is None
        x.grad = lib.ones(3)
        x.grad = None


def test_integers_do_not_require_gradients(oracle):
    for lib in (rl, oracle):
        with raises(RuntimeError, match="floating"):
            lib.ones(3, dtype=lib.int64).requires_grad_()
        with raises(RuntimeError, match="floating"):
            lib.tensor([1, 2], requires_grad=True)
        x = lib.ones(3, requires_grad=True)
        y = x * lib.arange(3)
        y.sum().backward()
        assert x.grad.tolist() == [0, 1, 2]
        assert not (x > 0).requires_grad and not x.long().requires_grad
        assert not x.argmax().requires_grad


def test_mixed_dtypes(oracle):
    for a in ("float16", "bfloat16", "float32", "float64"):
        for b in ("float16", "bfloat16", "float32", "float64", "int32"):
            found = []
            for lib in (rl, oracle):
                x = lib.ones(3, dtype=getattr(lib, a), requires_grad=True)
                y = lib.full((2, 3), 2, dtype=getattr(lib, b))
                if y.is_floating_point():
                    y.requires_grad_()
                (x * y + y).sum().backward()
                found.append((x.grad, y.grad))
            for p, q in zip(*found):
                assert (p is None) == (q is None)
                if p is not None:
                    same(p, q, (a, b))


# ---- graphs


def test_backward_twice(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [4.0] * 3
        with raises(RuntimeError, match="second time"):
            y.backward()
        z = (x + 1).sum()
        z.backward()
        z.backward()  # nothing was saved


def test_create_graph(oracle):
    def run(lib):
        x = lib.tensor([0.5, 1.5, -1.0], requires_grad=True)
        y = (x.sin() * x.exp()).sum()
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        assert g.requires_grad
        (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)
        (t,) = lib.autograd.grad((h * h).sum(), x)
        return t

    both_do(run, (rl,), (oracle,), close)


def test_second_derivatives_of_what_networks_use(oracle):
    def run(lib, f):
        x = lib.tensor([[0.5, 1.5, -1.0], [2.0, 0.3, 0.1]], requires_grad=True)
        w = lib.tensor([[0.1, -0.2, 0.3], [0.3, 0.1, -0.7]], requires_grad=True)
        gx, gw = lib.autograd.grad((f(lib, x, w) ** 2).sum(), (x, w), create_graph=True)
        ((gx * gx).sum() + gw.sum()).backward()
        return lib.cat([x.grad, w.grad])

    for f in (
        lambda lib, x, w: x @ w.t(),
        lambda lib, x, w: (x * w).softmax(1),
        lambda lib, x, w: (x + w).log_softmax(0),
        lambda lib, x, w: lib.nn.functional.layer_norm(x, (3,), w[0], w[1]),
        lambda lib, x, w: lib.nn.functional.gelu(x * w),
        lambda lib, x, w: lib.nn.functional.silu(x) * w,
        lambda lib, x, w: lib.nn.functional.linear(x, w).tanh(),
        lambda lib, x, w: (x[1:] * w[:1]).sigmoid(),
        lambda lib, x, w: lib.stack([x, w]).mean(0).sqrt() * 0 + x * w.exp(),
        lambda lib, x, w: lib.where(x > w, x * x, w * x),
        lambda lib, x, w: lib.nn.functional.cross_entropy(x * w, lib.tensor([0, 2])),
        lambda lib, x, w: (x * w).amax(1) * w.mean(),
        lambda lib, x, w: lib.nn.functional.embedding(lib.tensor([0, 1, 1]), w) * x[0],
    ):
        both_do(
            lambda lib: run(lib, f), (rl,), (oracle,), lambda a, b, context: close(a, b, 1e-4, 1e-4)
        )


def test_grad_and_unused_inputs(oracle):
    for lib in (rl, oracle):
        x, y = (lib.ones(3, requires_grad=True) for _ in range(2))
        z = (x * 2).sum()
        with raises(RuntimeError, match="allow_unused"):
            lib.autograd.grad(z, (x, y), retain_graph=True)
        a, b = lib.autograd.grad(z, (x, y), allow_unused=True, retain_graph=True)
        assert a.tolist() == [2.0] * 3 and b is None
        a, b = lib.autograd.grad(z, (x, y), materialize_grads=True, retain_graph=True)
        assert b.tolist() == [0.0] * 3
        assert x.grad is None
        with pytest.raises(RuntimeError):
            lib.autograd.grad(z, lib.ones(3))
        (a,) = lib.autograd.grad(z, [x])
        # of an inner tensor, of several outputs with weights, of an output by itself
        u = x * 3
        v = u * y
        assert lib.autograd.grad(v.sum(), u, retain_graph=True)[0].tolist() == [1.0] * 3
        both = lib.autograd.grad((u, v), (x,), (lib.ones(3), lib.ones(3) * 2))
        assert both[0].tolist() == [9.0] * 3
        assert lib.autograd.grad(z * 1, z, retain_graph=True)[0].item() == 1


def test_backward_with_inputs(oracle):
    for lib in (rl, oracle):
        x, y = (lib.ones(3, requires_grad=True) for _ in range(2))
        (x * y).sum().backward(inputs=[x])
        assert x.grad is not None and y.grad is None


def test_what_leads_to_no_asked_input_does_not_run():
    from rushlight.nn import functional as F

    called = []

    class Told(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            called.append(1)
            return g * 2

    def products(inputs):
        _core.record(True)
        try:
            found = rl.autograd.grad(y, inputs, retain_graph=True)
        finally:
            _core.record(False)
            names = [r[3] for r in _core.records()]
        return found, names.count("mm")

    x, w, v, b = (rl.randn(4, 4, requires_grad=True) for _ in range(4))
    h = F.linear(rl.relu(F.linear(x, w)), Told.apply(v))
    h[1:] = h[1:].clone() * b[1:]  # a write through a window
    h[:2].add_(b[2:] * 3)
    y = h.sum()
    every, count = products([x, w, v, b])
    assert count == 4 and called == [1]
    for i, expected in enumerate((2, 2, 1, 0)):
        called.clear()
        (alone,), count = products([(x, w, v, b)[i]])
        assert alone.tolist() == every[i].tolist()
        assert count == expected and called == [1] * (i == 2)
    called.clear()
    y.backward(inputs=[x], retain_graph=True)
    assert not called and x.grad.tolist() == every[0].tolist() and w.grad is None
    (twice,) = rl.autograd.grad(rl.autograd.grad(y, x, create_graph=True)[0].sum(), w)
    assert twice.shape == w.shape


def test_several_roots_in_one_run(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        y = x * x
        lib.autograd.backward([y.sum(), (y * 2).sum()])
        assert x.grad.tolist() == [6.0] * 3
        with raises(RuntimeError, match="second time"):
            y.sum().backward()


def test_a_deep_chain_is_run_and_freed():
    gc.collect()
    others = _core.plan_stats()["nodes"]  # of graphs that other tests keep
    x = rl.ones(2, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    before = _core.plan_stats()["nodes"]
    assert before >= others + 100_000
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    del y
    assert _core.plan_stats()["nodes"] < others + 100
    y = x
    for _ in range(100_000):
        y = y + x  # freed without backward
    del y
    gc.collect()
    assert _core.plan_stats()["nodes"] < others + 100


def test_a_deep_chain_of_views_and_writes():
    gc.collect()
    others = _core.plan_stats()["nodes"]
    x = rl.ones(2, requires_grad=True)
    y = x * 1
    for _ in range(20_000):
        y = y.view(2)
    y.sum().backward()
    z = x * 1
    for _ in range(2_000):
        z[0].mul_(1.0)
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    del y, z
    gc.collect()
    assert _core.plan_stats()["nodes"] < others + 100


def test_graphs_die_with_their_last_reference():
    gc.collect()
    gc.disable()
    try:
        x = rl.ones(1000, requires_grad=True)
        y = x.exp()
        z = (y * y).sum()
        ref, node = weakref.ref(y), weakref.ref(z.grad_fn)
        del y
        z.backward()
        del z
        assert node() is None and ref() is None
        # without backward
        y = (x * x).softmax(0)
        ref = weakref.ref(y.grad_fn)
        del y
        assert ref() is None
        # a result that its own node saves makes no cycle
        e = x.exp()
        ref = weakref.ref(e)
        del e
        assert ref() is None
    finally:
        gc.enable()


def test_saved_tensors_are_freed_by_backward():
    x = rl.ones(1 << 20, requires_grad=True)
    _core.allocator_trim()
    y = x.exp()
    z = (y * y).sum()
    del y
    held = _core.allocator_stats()["in_use"]
    z.backward()
    x.grad = None
    assert _core.allocator_stats()["in_use"] <= held - (1 << 22) + 4096


def test_a_hook_that_holds_its_handle_is_collected():
    def step():
        y, scale = rl.ones(3, requires_grad=True) * 2, rl.ones(3)
        handle = y.register_hook(lambda g: g * scale * (handle.id >= 0))
        y.sum().backward()
        return weakref.ref(scale)

    gone = step()
    gc.collect()
    assert gone() is None


def test_cycles_through_hooks_are_collected():
    x = rl.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g, y=y: None)
    ref = weakref.ref(y)
    del y
    gc.collect()
    assert ref() is None


def test_grad_fn_names_and_edges(oracle):
    # where an operator here is one of ATen's (others: softmax_rows, reshape, to)
    def names(lib):
        x = lib.ones(2, 3, requires_grad=True)
        ys = [
            x + 1, x - x, x * 2, x / 2, -x, x.exp(), x.log(), x.sum(), x.mean(),
            x[0], x[:, 1:], x.view(6), x.permute(1, 0), x.expand(4, 2, 3),
            x.unsqueeze(0), x.squeeze(), x.clone(), x @ x.t(),
            x.relu(), x.sigmoid(), x.tanh(), x.sqrt(), x.rsqrt(), x.abs(), x.sin(), x.cos(),
            x.erf(), x.reciprocal(), x.amax(1), lib.cat([x, x]),
            lib.where(x > 0, x, x), x.masked_fill(x > 0, 0), x.transpose(0, 1),
            lib.maximum(x, x), lib.minimum(x, x),
            lib.nn.functional.gelu(x), lib.nn.functional.silu(x),
            lib.nn.functional.layer_norm(x, (3,)),
        ]  # fmt: skip
        return [y.grad_fn.name() for y in ys]

    assert names(rl) == names(oracle)
    x = rl.ones(2, requires_grad=True)
    y = x.exp() * x
    (first, _), (second, _) = y.grad_fn.next_functions
    assert first.name().startswith("Exp")
    assert "AccumulateGrad" in str(second)


# ---- hooks


def test_hooks_run_in_order_and_may_change_gradients(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        y = x * 2
        seen = []
        y.register_hook(lambda g: seen.append(("a", g.tolist())))
        handle = y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: seen.append(("b", g.tolist())))
        x.register_hook(lambda g: seen.append(("x", g.tolist())))
        y.sum().backward(retain_graph=True)
        assert seen == [("a", [1.0] * 3), ("b", [10.0] * 3), ("x", [20.0] * 3)]
        handle.remove()
        handle.remove()
        seen.clear()
        x.grad = None
        y.sum().backward()
        assert x.grad.tolist() == [2.0] * 3 and seen[1] == ("b", [1.0] * 3)


def test_hooks_that_fail_or_misbehave(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        y = x * 2
        handle = y.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            y.sum().backward(retain_graph=True)
        handle.remove()
        for bad in (lambda g: 3, lambda g: lib.ones(4), lambda g: "a"):
            handle = y.register_hook(bad)
            with pytest.raises((RuntimeError, TypeError)):
                y.sum().backward(retain_graph=True)
            handle.remove()
        assert x.grad is None
        y.sum().backward()
        assert x.grad.tolist() == [2.0] * 3
        with pytest.raises(RuntimeError):
            lib.ones(3).register_hook(print)


def test_retain_grad(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: g * 3)
        z = y * y
        z.sum().backward()
        assert y.grad.tolist() == [12.0] * 3
        assert x.grad.tolist() == [24.0] * 3
        x.retain_grad()  # no effect on a leaf
        with pytest.raises(RuntimeError):
            lib.ones(3).retain_grad()


def test_post_accumulate_hooks(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        seen = []
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
        (x * 2).sum().backward()
        (x * 2).sum().backward()
        assert seen == [[2.0] * 3, [4.0] * 3]


def test_backward_inside_a_hook():
    x = rl.ones(3, requires_grad=True)
    w = rl.ones(3, requires_grad=True)
    y = x * 2

    def hook(g):
        with rl.enable_grad():
            (w * w).sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and w.grad.tolist() == [2.0] * 3


# ---- modes


def test_modes(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        with lib.no_grad():
            assert not lib.is_grad_enabled()
            y = x * 2
            assert not y.requires_grad
            with lib.enable_grad():
                assert (x * 2).requires_grad
            assert not lib.is_grad_enabled()
        assert lib.is_grad_enabled()
        with pytest.raises(ZeroDivisionError), lib.no_grad():
            _ = 1 / 0
        assert lib.is_grad_enabled()

        @lib.no_grad()
        def f(v):
            "doc"
            return v * 2

        @lib.no_grad
        def g(v):
            return v * 2

        @lib.enable_grad()
        def h(v):
            return v * 2

        assert f.__name__ == "f" and f.__doc__ == "doc"
        assert not f(x).requires_grad and not g(x).requires_grad
        with lib.no_grad():
            assert h(x).requires_grad
        lib.set_grad_enabled(False)
        assert not lib.is_grad_enabled()
        lib.set_grad_enabled(True)
        with lib.set_grad_enabled(False):
            assert not (x * 1).requires_grad
        assert lib.is_grad_enabled()

        @lib.set_grad_enabled(False)
        def off():
            return lib.is_grad_enabled()

        assert not off() and lib.is_grad_enabled()


def test_one_context_used_twice():
    mode = rl.no_grad()
    with mode:
        with mode:
            pass
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()


def test_generators_under_no_grad(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)

        @lib.no_grad()
        def numbers():
            for _ in range(2):
                yield (x * 1).requires_grad

        found = []
        for flag in numbers():
            assert lib.is_grad_enabled()
            found.append(flag)
        assert found == [False, False]


def test_inference_mode(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        with lib.inference_mode():
            assert not lib.is_grad_enabled()
            y = x * 2
            assert not y.requires_grad
            y.add_(1)
        assert lib.is_grad_enabled()
        assert y.tolist() == [3.0] * 3

        @lib.inference_mode()
        def f(v):
            return v * 2

        assert not f(x).requires_grad
        with lib.inference_mode(False):
            assert (x * 1).requires_grad


def test_modes_belong_to_threads():
    seen = []
    with rl.no_grad():
        thread = threading.Thread(target=lambda: seen.append(rl.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# ---- threads


def test_two_threads_run_backward():
    w = rl.randn(16, 16, requires_grad=True)
    errors, results = [], {}

    def work(k):
        try:
            total = 0.0
            for i in range(200):
                x = rl.full((4, 16), float(k + 1))
                leaf = rl.ones(16, requires_grad=True)
                y = ((x * leaf) @ w).tanh().sum()
                (g,) = autograd.grad(y, leaf)
                total = g.sum().item()
                if i % 50 == 0:
                    gc.collect()
            results[k] = total
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    def alone(k):
        leaf = rl.ones(16, requires_grad=True)
        y = ((rl.full((4, 16), float(k + 1)) * leaf) @ w).tanh().sum()
        return autograd.grad(y, leaf)[0].sum().item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert results == {k: alone(k) for k in range(4)}


def test_threads_share_a_graph():
    x = rl.ones(100, requires_grad=True)
    y = (x * x).sum()
    errors = []

    def work():
        try:
            for _ in range(50):
                y.backward(retain_graph=True)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert x.grad.tolist() == [200.0] * 100


def test_the_users_line_is_told():
    x = rl.ones(2, 3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError) as caught:
        y.backward()
    assert "test_autograd.py" in note_of(caught.value)
    assert dtype_name(x) == "float32"


def test_only_inputs_is_taken_and_ignored():
    x = rl.ones(2, requires_grad=True)
    (g,) = rl.autograd.grad((x * 3).sum(), x, retain_graph=True, only_inputs=True)
    assert g.tolist() == [3, 3] and x.grad is None
    with pytest.warns(FutureWarning, match="only_inputs"):
        rl.autograd.grad((x * 3).sum(), x, only_inputs=False)


@pytest.mark.parametrize(
    "view", [lambda m: m.unfold(0, 2, 1), lambda m: m.as_strided((2, 2), (1, 2)),
             lambda m: m.unsqueeze(0).expand(2, 3, 2)], ids=["unfold", "as_strided", "expand"]
)  # fmt: skip
def test_a_view_that_shows_elements_twice_after_a_write_to_its_base(view, oracle):
    grads = []
    for lib in (rl, oracle):
        x = lib.tensor([[1.0, 2.0], [0.3, 0.4], [0.5, 0.6]], requires_grad=True)
        base = x * 1
        seen = view(base)
        base.clamp_(-1, 1)
        (seen * seen).sum().backward()
        grads.append(np.array(x.grad.tolist()))
    assert np.allclose(*grads)
