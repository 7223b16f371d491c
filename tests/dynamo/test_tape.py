"""What belongs to the tape inside graphs: autograd.Function, hooks of tensors, `x.data = y` and the
in-place views built on it. Results, gradients and calls of the user's code are eager's."""

import pytest

import rushlight as rl
from rushlight import dynamo, trace
from rushlight.autograd import Function
from rushlight.dynamo import convert

from .both import check

LOG = []


class Scale(Function):
    """A constant, saved inputs and outputs, a result without a gradient, a result None."""

    @staticmethod
    def forward(ctx, t, k, mask):
        ctx.k = k
        ctx.mark_non_differentiable(mask)
        y = t * k
        ctx.save_for_backward(t, y)
        return y, mask, None

    @staticmethod
    def backward(ctx, g, *rest):
        t, y = ctx.saved_tensors
        LOG.append(ctx.needs_input_grad)
        return g * ctx.k + t * y, None, None


class Clamp(Function):
    """The form with setup_context."""

    @staticmethod
    def forward(t, low):
        return t.clamp(min=low)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.low = inputs[1]

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * (t > ctx.low), None


class Doubled(Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, t):
        t.mul_(2)
        ctx.mark_dirty(t)
        return t

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Same(Function):
    """Gives its argument, which becomes another tensor."""

    @staticmethod
    def forward(ctx, t):
        ctx.set_materialize_grads(False)
        return t

    @staticmethod
    def backward(ctx, g):
        return None if g is None else -g


def functions(w, a):
    y, mask, none = Scale.apply(w * 2, 3.0, a)
    z = Clamp.apply(y, 1.0)
    q = w * 1
    q2 = Doubled.apply(q)
    s = Same.apply(q2)
    loss = (z * mask + q2 * q + s).sum()
    flags = (y.requires_grad, mask.requires_grad, s is q2, q2 is q, q.is_leaf, none)
    return loss, flags


def no_gradient(w, a):
    with rl.no_grad():
        y = Clamp.apply(w, 2.0)
    return (y * w).sum(), (y.requires_grad, Clamp.apply(a, 1.0).requires_grad)


def hooks(w, a):
    log = []
    y = w * w
    handle = y.register_hook(lambda g: (log.append(g.sum().item()), g * 3)[1])
    gone = y.register_hook(lambda g: g * 100)
    gone.remove()
    w.register_hook(lambda g: g + len(log))
    w.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))
    y.retain_grad()
    return (y * w * a).sum(), (log, y, handle)


def hook_on_result(w, a):
    y = w * a
    late = a.clone()
    late.requires_grad_()
    late.register_hook(lambda g: LOG.append("late"))
    z = y.sin()

    def seen(g):
        LOG.append(g.tolist())

    y.register_hook(seen)
    y = y + z
    return (y * late).sum(), (late.is_leaf,)


def plain(v):
    """The parts of a result, tensors with their gradients."""
    if isinstance(v, rl.Tensor):
        return v.tolist(), None if v.is_leaf or v.grad is None else v.grad.tolist()
    if isinstance(v, (tuple, list)):
        return [plain(x) for x in v]
    return v if isinstance(v, (int, float, str, type(None))) else type(v).__name__


def picture(f):
    LOG.clear()
    w, a = rl.arange(1, 4).float().requires_grad_(), rl.ones(3) * 2
    loss, rest = f(w, a)
    loss.backward()
    return plain(loss), plain(rest), w.grad.tolist(), list(LOG)


@pytest.mark.parametrize("function", [functions, no_gradient, hooks, hook_on_result])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.filterwarnings("ignore:full backward hook")
def test_gradients_through(function, backend):
    dynamo.reset()
    want = picture(function)
    compiled = rl.compile(function, backend=backend, fullgraph=True)
    assert picture(compiled) == want
    assert picture(compiled) == want


def test_second_gradients_through_a_function():
    def fn(w):
        return (Clamp.apply(w * w, 2.0) * w).sum()

    def second(f):
        w = rl.arange(1, 4).float().requires_grad_()
        (g,) = rl.autograd.grad(f(w), w, create_graph=True)
        (h,) = rl.autograd.grad(g.sum(), w)
        return g.tolist(), h.tolist()

    assert second(rl.compile(fn, backend="eager", fullgraph=True)) == second(fn)


def test_the_compiler_tells_what_it_leaves_to_the_tape():
    with trace.collect("fallback") as records:
        picture(rl.compile(hook_on_result))
    assert any("fallback.tape" in r.text and "test_tape.py" in r.text for r in records)


class Fails(Function):
    @staticmethod
    def forward(ctx, t):
        raise KeyError("in forward")


def test_an_error_in_forward_leaves_the_grad_mode():
    def fn(w):
        try:
            Fails.apply(w)
        except KeyError as e:
            return (w * 2).requires_grad, str(e)

    check(fn, (rl.ones(2).requires_grad_(),))


def test_what_a_function_of_the_frame_or_a_wrong_hook_gives():
    def local(w):
        class Local(Function):
            @staticmethod
            def forward(ctx, t):
                return t * 2

            @staticmethod
            def backward(ctx, g):
                return g * 3

        out = Local.apply(w).sum()
        out.backward()
        return out, w.grad

    def wrong(a):
        try:
            a.register_hook(print)
        except RuntimeError as e:
            return str(e)

    check(local, (rl.ones(2).requires_grad_(),), breaks=None)
    check(wrong, (rl.ones(2),), breaks=1)


def views_in_place(x, y):
    x.t_()
    before = x.shape, x.stride(), x.is_contiguous()
    z = y + 1
    same = z.unsqueeze_(0).transpose_(0, 1) is z
    z.squeeze_()
    y.unsqueeze_(-1)
    y.add_(5)
    return before, same, z, y @ y.t(), x + 1, x


def assigned_data(x, y):
    v = x[1:]
    x.data = y * 2
    x.add_(1)
    v += 1
    return x, v, x.data is x, x.data + y.data


@pytest.mark.parametrize("function", [views_in_place, assigned_data])
def test_data(function):
    args = (rl.arange(6).reshape(2, 3).float(), rl.ones(3))
    if function is assigned_data:
        args = (rl.arange(3).float(), rl.ones(3))
    check(function, args, args)


@pytest.mark.parametrize("function", [views_in_place])
def test_data_by_the_compiler(function):
    dynamo.reset()
    pairs = [(rl.arange(6).reshape(2, 3).float(), rl.ones(3)) for _ in range(2)]
    want, got = function(*pairs[0]), rl.compile(function, fullgraph=True)(*pairs[1])
    assert plain(want) == plain(got)
    for a, b in zip(*pairs):
        assert (a.tolist(), a.shape, a.stride()) == (b.tolist(), b.shape, b.stride())


def test_data_of_a_tensor_on_the_tape_breaks():
    def fn(w):
        w.data = w.data * 2
        return w.sum()

    check(fn, (rl.ones(2).requires_grad_(),), breaks=1)


# ---- indices that are tensors


def index_writes(x, i):
    x[i] = x[i] * 2
    x[i, 0] = 3.0
    x[:, i] += 1
    x[[0, 2]] -= 1
    x[x > 5] = rl.tensor(2.0)
    x[x > 4] = 0.5
    return x + 1


def test_writes_through_indices_are_captured():
    args = (rl.arange(16).reshape(4, 4).float(), rl.tensor([0, 2]))
    check(index_writes, args, args)


@pytest.mark.parametrize("wrong", [7, -9])
def test_a_wrong_index_leaves_what_eager_leaves(wrong):
    def fn(x, i, log):
        x.add_(1)
        log.append("before")
        try:
            x[i] = 5.0
        except IndexError:
            log.append("caught")
        return x

    def bare(x, i, log):
        x.add_(1)
        x[i] = 5.0
        log.append("not reached")

    for f in (fn, bare):
        check(f, *((rl.zeros(4), rl.tensor([k]), []) for k in (1, wrong)), breaks=None)


def test_masks_break_with_their_reason():
    def fn(x):
        return x[x > 1] + 1, (x > 1).nonzero()

    check(fn, (rl.arange(4).float(),), breaks=1)
    assert all("mask" in b[1].what and "where(" in b[1].hint for b in convert.BREAKS.values())
