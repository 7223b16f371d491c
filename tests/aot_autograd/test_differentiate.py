"""Forward and backward graphs: compiled, they give eager's gradients to the bit."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import config, fx
from rushlight.aot_autograd import differentiate
from rushlight.decomposition import decompose
from rushlight.errors import UserError
from rushlight.fx.passes import changed
from rushlight.inductor.pipeline import compile_graph
from rushlight.nn import functional as F
from rushlight.ops import TABLE
from rushlight.pipeline import compile_fx

from ..graphs import same
from ..ops.materialize import many


@pytest.fixture(autouse=True, scope="module")
def artifacts(tmp_path_factory):
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield


def labels(n, classes):
    return rl.from_numpy(np.arange(n) * 7 % classes)


def linear_gelu_cross_entropy(x, w, b, t):
    return TABLE["cross_entropy_loss"].native(rl.gelu(F.linear(x, w, b)), t, 2)


def norm_and_softmax(x, w, b):
    return (rl.softmax(F.layer_norm(x, (16,), w, b), 1) * x).sum()


def views(x, w):
    return (x.t()[1:] * w).reshape(-1).sum() + x.select(0, 2).sum()


def twice(x, y):
    h = rl.tanh(x * y)
    return (h + h * x).sum(), rl.exp(h).mean()


CASES = {
    "linear_gelu_cross_entropy": (
        linear_gelu_cross_entropy,
        lambda: (rl.randn(30, 16), rl.randn(40, 16), rl.randn(40), labels(30, 40)),
    ),
    "norm_and_softmax": (norm_and_softmax, lambda: (rl.randn(9, 16), rl.randn(16), rl.randn(16))),
    "views": (views, lambda: (rl.randn(5, 4), rl.randn(3, 5))),
    "twice": (twice, lambda: (rl.randn(5, 4), rl.randn(4))),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled_gradients_equal_eagers(name):
    function, make = CASES[name]
    inputs = make()
    with changed(verify=True):
        pair = differentiate(fx.trace(function, *inputs))
        for graph in (pair.forward.verify(), pair.backward.verify()):
            assert fx.parse(graph.print()) == graph
        forward, backward = decompose(pair.forward), decompose(pair.backward)
    run_forward, run_backward = compile_graph(forward), compile_graph(backward)
    results = run_forward(*inputs)
    outs, saved = results[: pair.outputs], results[pair.outputs :]
    grads = run_backward(*saved, *(rl.ones_like(o) for o in outs))

    wanted = [inputs[i].detach().requires_grad_() for i in pair.wanted]
    given = [wanted[pair.wanted.index(i)] if i in pair.wanted else x for i, x in enumerate(inputs)]
    eager = many(function(*given))
    same(outs, [o.detach() for o in eager])
    total = eager[0]
    for o in eager[1:]:
        total = total + o
    total.backward()
    exact = name != "twice"  # the engines add up several paths in another order
    for got, x in zip(grads, wanted, strict=True):
        same(got, x.grad, exact=exact, layout=False) if exact else close(got, x.grad)


def close(a, b):
    assert np.allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_backward_keeps_the_forward_lines_and_declarations():
    pair = differentiate(fx.trace(norm_and_softmax, rl.randn(9, 16), rl.randn(16), rl.randn(16)))
    for node in pair.backward.calls:
        assert node.where.startswith("test_differentiate.py:"), node
        assert any(o.what.startswith("derivative of ") for o in node.origins), node
    parts = [n for n in pair.forward.calls if n.op.name == "native_layer_norm"]
    assert parts[0].origins[1].what == "layer_norm"


def test_only_what_backward_reads_is_saved():
    pair = differentiate(fx.trace(lambda x: rl.exp(x + 1).sum(), rl.randn(3, 4)))
    assert [v.name for v in pair.backward.inputs] == ["exp", "grad_sum"]


def test_only_what_is_wanted_is_differentiated():
    pair = differentiate(
        fx.trace(lambda x, w: (x * w).sum(), rl.randn(3, 4), rl.randn(4)), wanted=[1]
    )
    assert pair.wanted == (1,) and len(pair.backward.result) == 1


def test_an_input_that_nothing_reaches_has_no_cotangent():
    pair = differentiate(
        fx.trace(lambda x, y: x.sum() + (y > 0).to("float32").sum(), rl.randn(3), rl.randn(3))
    )
    assert pair.backward.result[1] is None


def test_nothing_to_differentiate():
    with pytest.raises(UserError, match="nothing to differentiate"):
        differentiate(fx.trace(lambda t: t + 1, labels(3, 4)))


# ---- what is saved and what is computed again


def saved_by(function, *inputs):
    pair = differentiate(fx.trace(function, *inputs))
    count = len(pair.active)
    return [v.name for v in pair.backward.inputs][:-count], pair


def test_cheap_calls_are_repeated_where_that_saves_bytes():
    def f(x, w):
        h = x * w  # backward reads x and w, and h + 1 for the square
        return ((h + 1) * (h + 1)).sum()

    saved, pair = saved_by(f, rl.randn(30, 40), rl.randn(30, 40))
    assert saved == ["x", "w"]
    assert [n.op.name for n in pair.backward.calls][:2] == ["mul", "add"]


def test_costly_calls_and_products_are_saved():
    saved, _ = saved_by(lambda x, w: rl.tanh(x @ w).sum(), rl.randn(30, 40), rl.randn(40, 30))
    assert saved == ["x", "w", "tanh"]


def test_an_input_that_no_derivative_reads_is_not_saved():
    def f(x):
        return rl.relu(x * 2)

    a = rl.randn(4, 5).requires_grad_()
    b = a * 1
    out = compile_fx(f, [b])(b)
    with rl.no_grad():
        b.add_(1)  # eager mode allows it
    out.sum().backward()
    want = (a.detach() > 0).to(rl.float32) * 2
    same(a.grad, want)
