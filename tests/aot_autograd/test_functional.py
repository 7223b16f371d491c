"""Graphs of functions that write, draw and alias: what eager mode would leave behind, from a graph
that writes to nothing."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import config
from rushlight.nn import functional as F
from rushlight.pipeline import compile_fx
from rushlight.trace import collect

from ..graphs import same


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield


def both(fn, *inputs, calls=2):
    """fn compiled and in eager mode on copies of the inputs, several times: the same results, the
    same inputs afterwards. Returns the compiled results of the last call, and its inputs."""
    mine, theirs = [x.clone() for x in inputs], [x.clone() for x in inputs]
    compiled = compile_fx(fn, mine)
    for _ in range(calls):
        rl.manual_seed(3)
        got = compiled(*mine)
        rl.manual_seed(3)
        want = fn(*theirs)
        same(tensors(got), tensors(want))
        same(mine, theirs)
    assert all(form.__class__.__name__ == "Inference" for form in compiled.forms.values())
    return got, mine


def tensors(v):
    if isinstance(v, (list, tuple)):
        return [x for y in v for x in tensors(y)]
    return [v] if hasattr(v, "data_ptr") else []


def x(*shape):
    rl.manual_seed(len(shape) + sum(shape))
    return rl.randn(*shape)


WRITES = {
    "in_place": lambda a, b: a.add(1).mul_(b).sub_(2),
    "operators": lambda a, b: write(a * 2, b),
    "through_slice": lambda a, b: through(a * 1.5, lambda v: v[1:], b),
    "through_select": lambda a, b: through(a * 1.5, lambda v: v.select(1, 2), b[0]),
    "through_transpose": lambda a, b: through(a * 1.5, lambda v: v.t()[0], b.sum()),
    "through_view": lambda a, b: through(a * 1.5, lambda v: v.view(-1)[3:9], b.sum()),
    "through_squeeze": lambda a, b: through(a * 1.5, lambda v: v.unsqueeze(0).squeeze(0)[::2], b),
    "through_narrow": lambda a, b: through(a * 1.5, lambda v: v.narrow(1, 1, 2), b[:2]),
    "through_diagonal": lambda a, b: through(a * 1.5, lambda v: v.diagonal(), b[:4]),
    "indices": lambda a, b: indices(a * 2, b),
    "slots": lambda a, b: slots((a * 5).to(rl.int64)),
    "permuted": lambda a, b: indices(a.t() * 2, b[:4]),
    "cast_and_back": lambda a, b: rl.where(a <= a, a, a).to(rl.int32).to(rl.float32) / 3,
    "through_two": lambda a, b: through(a * 1.5, lambda v: v[1:][:, 2:4], b[:2]),
    "setitem": lambda a, b: setitem(a * 2, b),
    "fill": lambda a, b: (a * 2).fill_(7).add_(b),
    "mask": lambda a, b: mask(a * 2),
    "other_dtype": lambda a, b: (a > 0).to(rl.float32).add_(b.to(rl.float64)),
    "out": lambda a, b: out(a, b),
    "out_view": lambda a, b: out_view(a * 1, b),
    "copy": lambda a, b: (a * 0).copy_(b),
    "relu_": lambda a, b: rl.relu((a + b).neg_()),
    "input": lambda a, b: a.mul_(b),
    "input_twice": lambda a, b: (a.mul_(b), b.add_(1), a.add_(b)),
    "input_view": lambda a, b: through(a, lambda v: v[1:3], b),
    "input_setitem": lambda a, b: setitem(a, b),
    "read_before_write": lambda a, b: (a.clone(), a.add_(b), a * 2),
    "output_is_an_input": lambda a, b: (a, b, a + b),
    "output_views_an_input": lambda a, b: (a.t(), b[1:], a[0]),
    "output_views_what_is_written": lambda a, b: (a.t(), a.add_(b), a[0]),
    "outputs_alias": lambda a, b: alias(a + b),
    "equal_outputs": lambda a, b: (a + b, a + b, (a + b).clone()),
    "detach": lambda a, b: detached(a * 2, b),
    "nested": lambda a, b: (a + 1, (b + 1, (a * b,))),
    "none": lambda a, b: (None, a + b, 3),
    "random": lambda a, b: (rl.rand(3), a + rl.randn(4, 5), rl.rand_like(b), F.dropout(a, 0.3)),
    "random_in_place": lambda a, b: (a.normal_(), (b * 1).uniform_(), rl.rand(2)),
    "integers": lambda a, b: (a > b).to(rl.int64).add_(3).mul_(2),
}


def write(v, b):
    v += b
    v *= 2
    v -= 1
    v /= 3
    return v


def through(v, view, value):
    view(v).add_(value)
    view(v).mul_(2)
    return v, view(v) + 1


def setitem(v, b):
    v[0] = 1.0
    v[:, 1] = v[:, 2]
    v[2:, ::2] += 3
    v[-1] = b
    return v


def indices(v, b):
    at = rl.arange(3) % 2
    v[at] = 0.25
    v[:, at] = v[:, at] + 1
    v[1, at] = b[:3]
    return v, v[at], v[at, at], v[..., at]


def slots(v):
    w = v % 3
    w |= 4
    w <<= 1
    return w, ~w, v // 2, v & 3, v ^ 1, 7 % (w + 1), (v > 1) & (w > 2)


def mask(v):
    v[v > 0.5] = 0.25
    return v


def out(a, b):
    made = rl.empty(4, 5)
    rl.add(a, b, out=made)
    return made * 2


def out_view(a, b):
    rl.mul(a[0], b, out=a[1])
    return a


def alias(v):
    return v, v[1:], v.t(), v.view(-1)


def detached(v, b):
    w = v.detach()
    w.add_(b)
    return v, w


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_followed(name):
    both(WRITES[name], x(4, 5), x(5))


def test_results_alias_as_in_eager_mode():
    got, (a, _) = both(lambda a, b: (a, a.t(), a[1:], b + 1), x(4, 5), x(5))
    assert got[0] is a
    a.zero_()
    assert not got[1].numpy().any() and not got[2].numpy().any()
    (v, part, turned, flat), _ = both(WRITES["outputs_alias"], x(4, 5), x(5))
    v.fill_(2)
    assert all((w.numpy() == 2).all() for w in (part, turned, flat))


def test_equal_results_have_memory_of_their_own():
    (p, q, r), _ = both(WRITES["equal_outputs"], x(4, 5), x(5))
    p.zero_()
    assert q.numpy().any() and r.numpy().any()
    (s,), (a, _) = both(lambda a, b: (a * 1,), x(4, 5), x(5))
    s.zero_()
    assert a.numpy().any()


def test_every_call_draws_anew():
    a = x(4, 5)
    compiled = compile_fx(lambda a: rl.rand(3), [a])
    assert not np.array_equal(compiled(a).numpy(), compiled(a).numpy())


# ---- gradients


def gradients(fn, *inputs, exact=False, seed=3):
    """The same outputs and gradients as eager mode's."""
    mine = [v.clone().requires_grad_(v.dtype.is_floating_point) for v in inputs]
    theirs = [v.clone().requires_grad_(v.dtype.is_floating_point) for v in inputs]
    compiled = compile_fx(fn, mine)
    for _ in range(2):
        results = []
        for f, given in ((compiled, mine), (fn, theirs)):
            rl.manual_seed(seed)
            outs = tensors(f(*given))
            total = None
            for i, o in enumerate(outs):
                if o.requires_grad:
                    part = (o * o * (i + 1)).sum()
                    total = part if total is None else total + part
            total.backward()
            results.append(outs)
        got, want = results
        assert [o.requires_grad for o in got] == [o.requires_grad for o in want]
        same([o.detach() for o in got], [o.detach() for o in want])
        for g, w in zip(mine, theirs):
            assert (g.grad is None) == (w.grad is None)
            if g.grad is not None:
                assert np.allclose(g.grad.numpy(), w.grad.numpy(), rtol=1e-5, atol=1e-5)
    assert all(form.__class__.__name__ == "Training" for form in compiled.forms.values())
    return compiled, mine


def no_grad_part(a, b):
    y = a * b
    with rl.no_grad():
        z = y * 3
    return y + z, z


def written_without_gradients(a, b):
    y = a * 0.1
    with rl.no_grad():
        y.mul_(b)
    return y * 2


LEARNING = {
    "plain": lambda a, b: rl.tanh(a * b),
    "writes": lambda a, b: setitem(a * 2, b),
    "slices": lambda a, b: through(a * 1.5, lambda v: v[1:], b),
    "alias": lambda a, b: alias(a * b),
    "detach": lambda a, b: (a.detach() * b, (a * 2).detach()),
    "no_grad": no_grad_part,
    "dropout": lambda a, b: F.dropout(rl.exp(a) * b, 0.5),
    "dropout_behind_gelu": lambda a, b: F.dropout(F.gelu(a * b), 0.5),
    "view_of_input": lambda a, b: (a.t(), a[1:], a * b),
    "input_itself": lambda a, b: (a, a * b),
    "integers_too": lambda a, b: (a > b, a * b),
    "one_unused": lambda a, b: (rl.exp(a), b.detach() + 1),
    "written_without_gradients": written_without_gradients,
    "matrix": lambda a, b: (a @ a.t() @ a * b).sum(0),
    "shared": lambda a, b: (a + b, (a + b).clone()),
}


@pytest.mark.parametrize("name", LEARNING)
def test_gradients_are_eagers(name):
    gradients(LEARNING[name], x(4, 5), x(5))


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16], ids=str)
def test_half_values_are_found_again(dtype):
    """The derivative of a maximum looks for it: what backward repeats must not be rounded anew."""
    mine, theirs = (x(6, 7).to(dtype).requires_grad_() for _ in range(2))

    def fn(a):
        m = a * a
        return rl.minimum(m, m).amax(0)

    compile_fx(fn, [mine])(mine).sum().backward()
    fn(theirs).sum().backward()
    assert np.allclose(mine.grad.float().numpy(), theirs.grad.float().numpy(), rtol=1e-2)


def test_an_input_that_is_written_moves_on_the_tape():
    def fn(a, b):
        a.mul_(b)
        return a.sum() + (a * b).sum()

    grads = []
    leaf = x(4, 5)
    compiled = compile_fx(fn, [leaf, x(5)])
    for f in (compiled, fn):
        a, b = leaf.clone().requires_grad_(), x(5).requires_grad_()
        inside = a * 2
        out = f(inside, b)
        (out + (inside * inside).sum()).backward()
        grads.append((inside.detach(), a.grad, b.grad))
    for p, q in zip(*grads):
        assert np.allclose(p.numpy(), q.numpy(), rtol=1e-5)


def test_a_written_leaf_is_refused_as_in_eager_mode():
    a = x(4, 5).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        compile_fx(lambda a: a.mul_(2) * 3, [a])(a)
    with rl.no_grad():
        compile_fx(lambda a: a.mul_(2) * 3, [a])(a)


def test_a_step_of_an_optimiser_is_captured():
    def step(p, g, m):
        with rl.no_grad():
            m.mul_(0.9).add_(g)
            p.sub_(m * 0.1)

    p, g, m = x(4, 5).requires_grad_(), x(4, 5), x(4, 5) * 0
    q, n = p.detach().clone().requires_grad_(), m.clone()
    compiled = compile_fx(step, [p, g, m])
    for _ in range(3):
        compiled(p, g, m)
        step(q, g, n)
    same([p.detach(), m], [q.detach(), n])


TWICE = {
    "product": lambda a, b: (rl.tanh(a * b) * a).sum(),
    "dropout": lambda a, b: (F.dropout(rl.exp(a * 0.3), 0.5) * b).sum(),
    "matrix": lambda a, b: F.layer_norm(a @ a.t() * b.sum(), (4,)).exp().mean(),
    "writes": lambda a, b: (setitem(a * 2, b) ** 3).sum(),
}


@pytest.mark.parametrize("name", TWICE)
def test_derivatives_of_gradients(name):
    """Gradients under create_graph are compiled too, as often as they are asked for."""
    fn, found = TWICE[name], []
    compiled = compile_fx(fn, [x(4, 5), x(5)])
    with collect() as records:
        for f in (compiled, fn):
            a, b = x(4, 5).requires_grad_(), x(5).requires_grad_()
            for _ in range(2):
                rl.manual_seed(3)
                first = rl.autograd.grad(f(a, b), (a, b), create_graph=True)
                total = (first[0] * first[0]).sum() + (first[1] ** 3).sum()
                second = rl.autograd.grad(total, (a, b), create_graph=True)
                (second[0] * second[0]).sum().backward()
            found.append([*first, *second, a.grad, b.grad])
    for p, q in zip(*found):
        p, q = p.detach().numpy(), q.detach().numpy()
        assert np.allclose(p, q, rtol=1e-4, atol=1e-4 * (1 + np.abs(q).max()))
    assert not [r.text for r in records if r.name == "fallback.graph"]
    made = {r.name for r in records if r.stage == "wrapper"}
    assert any("gradients" in name for name in made), made


def test_derivatives_of_gradients_whose_cotangents_lie_otherwise():
    """`sum()` gives one number for every element, `.T` columns for rows."""

    def fn(v):
        return (v.sin() * v).exp()

    for shown in (lambda y: y.sum(), lambda y: (y.T * x(5, 4)).sum()):
        found = []
        for f in (compile_fx(fn, [x(4, 5)]), fn):
            rl.manual_seed(3)
            v = x(4, 5).requires_grad_()
            (first,) = rl.autograd.grad(shown(f(v)), v, create_graph=True)
            (second,) = rl.autograd.grad((first * first).sum(), v)
            found.append([first.detach().numpy(), second.numpy()])
        for p, q in zip(*found):
            assert np.allclose(p, q, rtol=1e-4, atol=1e-5)


def test_derivatives_of_gradients_of_sizes_and_floats_that_vary():
    def fn(v, s):
        return (rl.tanh(v * s) * v).sum()

    v = x(4, 5).requires_grad_()
    compiled = rl.compile(fn, dynamic=True)
    for n, s in ((4, 0.5), (7, 0.25), (3, 1.5), (6, -1.0)):
        found = []
        for f in (compiled, fn):
            v = x(n, 5).requires_grad_()
            (first,) = rl.autograd.grad(f(v, s), v, create_graph=True)
            found.append(rl.autograd.grad((first * first).sum(), v)[0].numpy())
        assert np.allclose(*found, rtol=1e-4, atol=1e-5)


def test_a_second_backward_is_told():
    a = x(4, 5).requires_grad_()
    out = compile_fx(lambda a: rl.exp(a), [a])(a).sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_what_is_saved_must_not_be_overwritten():
    a = x(4, 5).requires_grad_()
    out = compile_fx(lambda a: rl.exp(a), [a])(a)
    total = out.sum()
    out.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_what_no_graph_follows_runs_in_eager_mode():
    def fn(a):
        return a * 2 if a.sum().item() > 0 else a * 3

    a = x(4, 5)
    compiled = compile_fx(fn, [a])
    with collect() as records:
        same(compiled(a), fn(a))
    assert any(r.name == "fallback.graph" for r in records)


def test_symbolic_sizes_draw_and_write():
    from rushlight.fake import symbolic
    from rushlight.sym import ShapeEnv

    def fn(a, b):
        a[1:].mul_(b)
        return F.dropout(a, 0.5), a.view(-1), rl.rand_like(a) + b

    b = x(5)
    compiled = compile_fx(fn, [symbolic(x(4, 5), ShapeEnv(), dims=(0,)), b])
    for n in (4, 9, 2, 33):
        mine, theirs = x(n, 5), x(n, 5)
        for _ in range(2):
            rl.manual_seed(n)
            got = compiled(mine, b)
            rl.manual_seed(n)
            same([*got, mine], [*fn(theirs, b), theirs])
    assert len(compiled.forms) == 1


def test_data_is_read_and_not_assigned():
    both(lambda a, b: (a * 2).data + b, x(4, 5), x(5))
    a = x(4, 5)
    compiled = compile_fx(lambda a: (a * 2).t_() + 1, [a])  # eager mode's own t_ assigns it
    with config.changed(strict=True), collect() as records:
        same(compiled(a), (a * 2).t_() + 1)
    assert any(r.name == "fallback.graph" for r in records)


def test_sizes_that_compare_otherwise_later():
    """What only compiling asks of sizes is no guard of the capture: such a call is eager mode's."""
    from rushlight.fake import symbolic
    from rushlight.sym import ShapeEnv

    def fn(a):
        return a.view(-1, 2).sum(1), a.reshape(2, -1).relu()

    compiled = compile_fx(fn, [symbolic(x(6, 4), ShapeEnv(), dims=(0, 1))])
    with collect() as records:
        for shape in ((6, 4), (8, 2), (2, 2), (4, 1), (1, 4), (2, 1), (6, 2)):
            a = x(*shape)
            same(compiled(a), fn(a))
    assert any(r.name == "fallback.sizes" for r in records)
    assert len(compiled.forms) == 1


def test_inputs_that_share_memory_are_followed():
    def fn(a, b):
        a[1:].add_(b)
        return a * b.sum()

    base, other = x(4, 5), x(4, 5)
    compiled = compile_fx(fn, [x(4, 5), x(3, 5)])
    with collect() as records:
        got = compiled(base, base[:3])
    same([got, base], [fn(other, other[:3]), other])
    assert any(r.name == "fallback.aliasing" for r in records)


# ---- where results are written


def text(fn, *inputs):
    compiled = compile_fx(fn, inputs)
    compiled(*(x.clone() for x in inputs))
    return compiled.forms[0].compiled.text


def test_a_new_value_is_written_by_its_kernel():
    made = text(lambda p, g, m: (m.mul_(0.9).add_(g), p.sub_(m * 0.1))[:0], *[x(4, 5)] * 3)
    assert "copy_" not in made and made.count("fused") == 1


def test_a_new_value_is_copied_where_the_old_one_is_read_later():
    both(lambda a, b: (a.add_(b), rl.exp(a.t() @ a))[1], x(4, 5), x(5))

    def late(a, b):
        old = a @ a.t()
        a.add_(b)
        return old, a * 2

    both(late, x(4, 5), x(5))

    def shifted(a, b):
        a[1:] = a[:-1] * 2
        a[:-1] = a[1:]
        return a + b

    both(shifted, x(4, 5), x(5))


def test_operands_that_die_are_written_over():
    made = text(lambda a, b: rl.tanh(rl.relu(a @ b) + 1) @ b, x(4, 4), x(4, 4))
    assert "(mm, mm)" in made
