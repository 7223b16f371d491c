"""The tape: gradients, accumulation, retained and freed graphs, in-place writes, views, hooks,
cycles, long chains.
"""

import gc
import threading
import weakref

import numpy as np
import pytest
from harness import CALLS, OPS, Declaration, R, core, f32, f64, i64, tensor

add, mul, exp = OPS["add"], OPS["mul"], OPS["exp"]


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()
    yield
    core.set_mode(1)


def leaf(*values):
    return tensor(list(values), grad=True)


def test_flags():
    x = leaf(1.0)
    y = x * 2.0
    assert x.is_leaf and x.requires_grad and x.grad_fn is None and not y.is_leaf and y.requires_grad
    assert (
        y.grad_fn.name() == "MulBackward0"
        and y.grad_fn.next_functions[0][0].name() == "AccumulateGrad"
        and y.output_nr == 0
    )
    assert y.grad_fn.next_functions[0][0].variable is x and y.grad_fn.operator is mul
    assert (
        not (tensor([1.0]) * 2.0).requires_grad
        and not y.detach().requires_grad
        and not y.data.requires_grad
    )
    core.set_grad_enabled(False)
    assert not (x * 2.0).requires_grad
    core.set_grad_enabled(True)
    core.set_mode(core.mode() | 16)  # inference
    assert not (x * 2.0).requires_grad
    core.set_mode(1)
    with pytest.raises(RuntimeError, match="leaf variables"):
        y.requires_grad = False
    with pytest.raises(RuntimeError, match="floating"):
        core.tensor([1]).requires_grad_()
    x.requires_grad = False
    assert not x.requires_grad
    y.detach_()
    assert y.is_leaf and not y.requires_grad


def test_simple_gradients():
    x, y = leaf(1.0, 2.0, 3.0), leaf(4.0, 5.0, 6.0)
    (x * y + exp(x)).sum().backward()
    assert np.allclose(
        x.grad.tolist(), np.array([4, 5, 6]) + np.exp([1, 2, 3])
    ) and y.grad.tolist() == [1, 2, 3]
    assert not x.grad.requires_grad and x.grad.is_leaf


def test_one_derivative_a_plan():
    x = leaf(1.0, 2.0)
    for _ in range(5):
        (x * x).sum().backward()
    assert [n for k, n in CALLS if k == "backward"].count("mul") == 1
    n = core.plan_stats()["nodes"]
    y = (x * x).sum()
    assert (
        core.plan_stats()["nodes"] == n + 2 or core.plan_stats()["nodes"] == n + 3
    )  # and perhaps the leaf's own
    del y


def test_broadcast_and_numbers():
    x, b = (
        core.tensor(np.ones((3, 4), "float32")).requires_grad_(),
        core.tensor(np.ones((4,), "float32")).requires_grad_(),
    )
    (add(x * 3.0, b, alpha=2) * (2.0 * x)).sum().backward()
    assert np.allclose(x.grad.numpy(), 6 + 10) and np.allclose(b.grad.numpy(), 12)
    assert b.grad.shape == (4,)


def test_diamond_runs_once():
    x = leaf(2.0)
    a = x * x
    seen = []
    a.register_hook(lambda g: seen.append(g.tolist()))
    (a * a + a).sum().backward()
    assert x.grad.tolist() == [4 * 8 + 4] and seen == [[9.0]]


def test_outputs_and_undefined():
    x = leaf(1.0, 3.0)
    a, b = OPS["pair"](x)
    b.sum().backward()
    assert x.grad.tolist() == [2, 6] and a.grad_fn is b.grad_fn and b.output_nr == 1
    x.grad = None
    a, b = OPS["pair"](x)
    (a + b).sum().backward()
    assert x.grad.tolist() == [4, 8]


def test_zeros_for_outputs_with_gaps():
    """An undefined gradient is zero everywhere, also where the output's layout leaves gaps."""
    x = leaf(1.0, 2.0, 3.0, 4.0)
    wide = core.empty((4, 1000), f32)
    wide[...] = 7.0
    a, b = wide.detach()[:, 0], x.detach() * 1.0
    del wide
    seen = []
    core.python_node((x,), lambda g, h: (seen.append(g.tolist()), h)[1], (a, b), "GapsBackward")
    assert a.stride() == (1000,)
    b.sum().backward()
    assert seen == [[0, 0, 0, 0]] and x.grad.tolist() == [1, 1, 1, 1]


def test_programs_on_the_tape():
    x = leaf(3.0)
    y, z = OPS["square"](x), OPS["twice"](x)
    assert y.grad_fn.name() == "MulBackward0" and z.grad_fn.name() == "TwiceBackward0"
    (y + z).sum().backward()
    assert x.grad.tolist() == [8]


def test_gemm_gradients():
    rng = np.random.default_rng(0)
    a, b = (
        core.from_numpy(rng.standard_normal(s).astype("float32")).requires_grad_()
        for s in ((3, 4), (4, 5))
    )
    (a @ b).sum().backward()
    assert np.allclose(a.grad.numpy(), np.ones((3, 5)) @ b.detach().numpy().T, atol=1e-5)
    assert np.allclose(b.grad.numpy(), a.detach().numpy().T @ np.ones((3, 5)), atol=1e-5)


def test_accumulation():
    x = leaf(1.0, 2.0)
    (x * 3.0).sum().backward()
    first = x.grad
    p = first.data_ptr()
    (x * 4.0).sum().backward()
    assert (
        x.grad is first
        and first.data_ptr() == p
        and first.tolist() == [7, 7]
        and first._version >= 1
    )
    g = tensor([1.0, 1.0])
    x.grad = None
    (x + 0.0).backward(g)
    assert x.grad.data_ptr() != g.data_ptr()  # a shared gradient is not stolen
    (x + 0.0).backward(g)
    assert g.tolist() == [1, 1] and x.grad.tolist() == [2, 2]
    y = leaf(1.0, 2.0)
    (x + y).sum().backward()
    y.grad.add_(1.0)
    assert x.grad.tolist() == [3, 3]
    t = core.tensor(np.ones((2, 3), "float32")).transpose(0, 1).detach().requires_grad_()
    (t * 2.0).sum().backward()
    assert t.grad.stride() == t.stride()


def test_grad_setter():
    x = leaf(1.0, 2.0)
    x.grad = tensor([5.0, 6.0])
    (x * 1.0).sum().backward()
    assert x.grad.tolist() == [6, 7]
    for bad in (3, tensor([1.0]), tensor([1, 2]), x):
        with pytest.raises((TypeError, RuntimeError)):
            x.grad = bad
    x.grad = None
    assert x.grad is None


def test_retain_and_second_time():
    x = leaf(1.0, 2.0)
    y = (exp(x) * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="through the graph a second time"):
        y.backward()
    z = (x + x).sum()  # nothing was saved: allowed
    z.backward()
    z.backward()


def test_backward_errors():
    x = leaf(1.0, 2.0)
    with pytest.raises(
        RuntimeError, match="of scalar outputs"
    ):
        (x * 2.0).backward()
    with pytest.raises(
        RuntimeError, match="tensor 0 does not require grad"
    ):
        tensor([1.0]).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2.0).backward(tensor([1.0]))
    with pytest.raises(TypeError):
        (x * 2.0).backward(3)
    (x * 2.0).backward(tensor([1.0, 1.0], f64))
    assert x.grad.dtype is f32


def test_grad_function():
    x, y, unused = leaf(2.0), leaf(3.0), leaf(4.0)
    z = x * y * x
    assert [g.tolist() for g in core.grad(z, (x, y), retain_graph=True)] == [
        [12],
        [4],
    ] and x.grad is None
    mid = x * y
    out = mid * mid
    gm, gx = core.grad(out, [mid, x], tensor([1.0]), retain_graph=True)
    assert gm.tolist() == [12] and gx.tolist() == [36]
    assert core.grad(out, out, retain_graph=True)[0].tolist() == [1]
    with pytest.raises(RuntimeError, match="was not used in the graph"):
        core.grad(out, (unused,), retain_graph=True)
    assert core.grad(out, (unused, x), allow_unused=True)[0] is None
    with pytest.raises(RuntimeError, match="does not require grad"):
        core.grad(z, (tensor([1.0]),))
    a = leaf(1.0)
    seen = []
    b = a * 2.0
    c = b * 3.0
    b.register_hook(lambda g: seen.append("b"))
    assert (
        core.grad(c.sum(), (c,), retain_graph=True)[0].tolist() == [1] and seen == []
    )  # stops early
    (x * y).backward(inputs=[x])
    assert x.grad.tolist() == [3] and y.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * y).backward(inputs=[])


def test_create_graph():
    x = leaf(2.0)
    y = x * x * x
    (g,) = core.grad(y, x, create_graph=True)
    assert g.tolist() == [12] and g.requires_grad
    (h,) = core.grad(g, x, create_graph=True)
    assert h.tolist() == [12]
    assert core.grad(h, x)[0].tolist() == [6]
    z = leaf(1.0)
    (gz,) = core.grad(exp(exp(z)), z, create_graph=True)
    e = np.e
    assert np.allclose(core.grad(gz, z)[0].tolist(), np.exp(e) * e * (e + 1))
    w = leaf(3.0)
    (w * w).backward(create_graph=True)
    assert w.grad.requires_grad
    (w.grad * 2.0).backward()
    assert w.grad.tolist() == [10]


# ---- hooks


def test_tensor_hooks():
    x = leaf(1.0, 2.0)
    seen = []
    a = x.register_hook(lambda g: seen.append("leaf"))
    y = x * 2.0
    b = y.register_hook(lambda g: g * 10.0)
    y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [20, 20] and seen == ["leaf"]
    b.remove()
    a.remove()
    a.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and seen == ["leaf"]
    with x.register_hook(lambda g: g * 0.0):
        x.grad = None
        (x * 2.0).sum().backward()
        assert x.grad.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        tensor([1.0]).register_hook(print)
    z = x * 1.0
    z.register_hook(lambda g: tensor([1.0]))
    with pytest.raises(RuntimeError, match="changed the size"):
        z.sum().backward()
    z = x * 1.0
    z.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        z.sum().backward()


def test_hooks_stay_with_their_node():
    x = leaf(1.0)
    y = x * 2.0
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    y.mul_(5.0)
    y.register_hook(lambda g: seen.append(-g.item()))
    y.sum().backward()
    assert seen == [-1.0, 5.0] and x.grad.tolist() == [10]


def test_node_hooks_and_metadata():
    x = leaf(1.0)
    y = x * 2.0
    y.grad_fn.metadata["k"] = 1
    assert y.grad_fn.metadata == {"k": 1}
    seen = []
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 3.0,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].item(), outs[0].item())))
    handle = y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 2.0,))
    y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [12] and seen == [(6.0, 3.0)]
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [18]


def test_retain_grad_and_post_accumulate():
    x = leaf(1.0)
    y = x * 2.0
    y.retain_grad()
    y.retain_grad()
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (y * 3.0).sum().backward()
    assert y.grad.tolist() == [3] and seen == [6.0] and y.retains_grad
    z = x * 2.0
    z.retain_grad()
    z.mul_(2.0)
    z.sum().backward()
    assert z.grad.tolist() == [1]
    w = x * 2.0
    w.retain_grad()
    out = (w * 1.0).sum()
    del w
    out.backward()
    with pytest.raises(RuntimeError):
        tensor([1.0]).retain_grad()


# ---- nodes from Python


def test_python_node():
    x = leaf(1.0, 2.0)
    y = x.detach() * 5.0
    seen = []

    def backward(g):
        seen.append(g.tolist())
        return g * 5.0

    (out,) = core.python_node((x,), backward, (y,), "FiveBackward")
    assert out is y and y.grad_fn.name() == "FiveBackward"
    (y * 2.0).sum().backward()
    assert x.grad.tolist() == [10, 10] and seen == [[2, 2]]
    assert core.python_node((tensor([1.0]),), backward, (tensor([1.0]),), "N")[0].grad_fn is None
    a, b = x.detach() * 1.0, x.detach() * 1.0
    core.python_node((x, x), lambda g, h: (g, h), (a, b), "TwoBackward")
    x.grad = None
    b.sum().backward()  # a's gradient is materialised
    assert x.grad.tolist() == [1, 1]
    for bad, message in (
        (lambda g: (g, g), "incorrect number of gradients"),
        (lambda g: 3, "expected"),
        (lambda g: tensor([1.0]), "invalid gradient"),
    ):
        c = x.detach() * 1.0
        core.python_node((x,), bad, (c,), "BadBackward")
        with pytest.raises((RuntimeError, TypeError), match=message):
            c.sum().backward()


def test_saved_tensors():
    x = leaf(1.0, 2.0)
    y = exp(x.detach())
    saved = core.SavedTensor(y, 0), core.SavedTensor(x)
    core.python_node((x,), lambda g: g * saved[0].unpack(y.grad_fn), (y,), "ExpBackward", saved)
    r = weakref.ref(y.grad_fn)
    y.sum().backward()
    assert np.allclose(x.grad.tolist(), np.exp([1, 2]))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    z = exp(x.detach())
    kept = core.SavedTensor(z, 0)
    z.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        kept.unpack()
    assert r() is not None


def test_dirty_python_node():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    core.set_grad_enabled(False)
    y.mul_(3.0)
    core.set_grad_enabled(True)
    core.python_node((y,), lambda g: g * 3.0, (y,), "TripleBackward")
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_reentrant_backward():
    x = leaf(2.0)

    def backward(g):
        core.set_grad_enabled(True)
        inner = leaf(3.0)
        (inner * inner).backward()
        (x * 1.0 * x).backward()
        core.set_grad_enabled(False)
        return g * inner.grad

    y = x.detach() * 1.0
    core.python_node((x,), backward, (y,), "NestedBackward")
    (y * 1.0).backward()
    assert x.grad.tolist() == [4 + 6]


def test_not_differentiable():
    flat = core.Operator(
        "flat",
        (("self", "tensor", R, False),),
        "scalar",
        Declaration(lambda x: core.Recipe("exp.f32", "broadcast", 0, "F", "S", (f32,))),
    )
    x = leaf(1.0)
    assert not flat(x).requires_grad
    y = x * 1.0
    with pytest.raises(RuntimeError, match="not differentiable"):
        flat.make_inplace()(y)
    assert not add(x, 1).detach().requires_grad and i64


def test_constants_end_gradients():
    zero = core.Operator(
        "zero",
        (("self", "tensor", R, False),),
        "scalar",
        Declaration(lambda x: core.Program(1, [(mul, (("r", 0), ("c", 0.0)), 1)], ("r", 1))),
        differentiable=False,
    ).make_inplace()
    x = leaf(1.0, 2.0)
    y = x * 3.0
    z = y * 1.0
    zero(y)
    assert y.requires_grad and y.grad_fn.name() == "ZeroBackward0"
    (y * 2.0 + z).sum().backward()
    assert x.grad.tolist() == [3, 3]
    y = x * 3.0
    zero(y[:1])
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [0, 3]
    with pytest.raises(RuntimeError, match="a leaf that requires grad"):
        zero(x)
    b = tensor([1.0])
    zero(b)
    assert not b.requires_grad


# ---- memory


def test_long_chains_are_freed():
    gc.collect()
    x = leaf(1.0)
    before = core.plan_stats()["nodes"]
    y = x
    for _ in range(1_000_000):
        y = y * 1.0
    assert core.plan_stats()["nodes"] >= before + 1_000_000
    y.sum().backward()
    assert x.grad.tolist() == [1]
    del y
    assert core.plan_stats()["nodes"] <= before + 1
    z = tensor([1.0, 2.0])
    for _ in range(200_000):  # views of views share one base
        z = z[:]
    assert z._base.shape == (2,)
    del z


def test_graphs_die_by_reference_counts():
    gc.collect()
    gc.disable()
    try:
        before = core.plan_stats()["nodes"]
        x = leaf(1.0, 2.0)
        y = exp(x)  # saves its own output
        z = OPS["pair"](y)
        y.mul_(2.0)
        r = [weakref.ref(t) for t in (x, y, *z)] + [weakref.ref(y.grad_fn)]
        del x, y, z
        assert [w() for w in r] == [None] * 5 and core.plan_stats()["nodes"] == before
    finally:
        gc.enable()


def test_cycles_are_collected():
    gc.collect()
    before, memory = core.plan_stats()["nodes"], core.allocator_stats()["in_use"]
    for _ in range(10):
        x = leaf(1.0)
        y = x * 2.0
        y.register_hook(lambda g, y=y: None)  # node -> hook -> tensor -> node
        x.register_hook(lambda g, x=x, y=y: None)
        w = x.detach() * 1.0
        core.python_node((x,), lambda g, w=w: g, (w,), "LoopBackward")
        w.grad_fn.metadata["me"] = w
        x.grad = y.detach()
        del x, y, w
    gc.collect()
    assert core.plan_stats()["nodes"] == before and core.allocator_stats()["in_use"] == memory


def test_saved_memory_is_released():
    x = core.tensor(np.ones((1 << 18,), "float32")).requires_grad_()
    y = x
    for _ in range(8):
        y = exp(y * 0.1)
    held = core.allocator_stats()["in_use"]
    s = y.sum()
    s.backward()
    assert core.allocator_stats()["in_use"] < held
    del y, s


def test_threads():
    w = leaf(1.0, 2.0)
    failures = []

    def work():
        try:
            for _ in range(200):
                y = w
                for _ in range(5):
                    y = y * w
                assert np.allclose(core.grad(y.sum(), w)[0].tolist(), [6.0, 6 * 32.0])
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


def test_concurrent_backwards_of_one_graph():
    x = core.tensor(np.ones((1 << 21,), "float32")).requires_grad_()
    y = exp(exp(x * 0.1) * 0.1).sum()
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(core.grad(y, x, retain_graph=True)[0][0].item())
        )
        for _ in range(3)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(results) == 3 and len(set(results)) == 1


def test_no_references_leak():
    x = leaf(1.0, 2.0)

    def work():
        y = exp(x * x + 1.0) + 0.0
        y.mul_(2.0)
        y[:1].add_(x[1:])
        (g,) = core.grad(y.sum(), x, create_graph=True)
        core.grad(g.sum(), x)
        y = x * 2.0
        y.register_hook(lambda g: g)
        y.retain_grad()
        y.sum().backward()
        x.grad = None
        for bad in (
            lambda: y.backward(),
            lambda: x.add_(1.0),
            lambda: core.grad(y.sum(), leaf(1.0)),
        ):
            try:
                bad()
            except RuntimeError:
                pass

    for _ in range(20):
        work()
    gc.collect()
    objects, memory, nodes = (
        len(gc.get_objects()),
        core.allocator_stats()["in_use"],
        core.plan_stats()["nodes"],
    )
    for _ in range(100):
        work()
    gc.collect()
    assert len(gc.get_objects()) - objects < 20
    assert core.allocator_stats()["in_use"] == memory and core.plan_stats()["nodes"] == nodes
