"""Functions of `nn.functional` that stand in `rushlight` under ATen's names: ATen's arguments, the
oracle's values and gradients, one graph each.
"""

import numpy
import pytest

import rushlight

X, XY, XYZ = {"x": (4, 5)}, {"x": (4, 5), "y": (4, 5)}, {n: (4, 5) for n in "xyz"}
IMAGE = {"x": (2, 4, 3, 3), "w": (4,), "b": (4,)}
GRID = {"x": (2, 3, 4, 5), "g": (2, 3, 3, 2)}
CELL = {"x": (2, 3), "h": (2, 4)}
ROWS = {n: (2, 3) for n in ("a", "b")}


def weights(gates, *more):
    """Of a cell or layer: w_ih, w_hh, b_ih, b_hh for 3 features and 4 states."""
    return {"u": (gates * 4, 3), "v": (gates * 4, 4), "p": (gates * 4,), "q": (gates * 4,)}


TWO = {  # layers, both directions
    **{f"u{i}": (16, 3 if i < 2 else 8) for i in range(4)},
    **{f"v{i}": (16, 4) for i in range(4)},
    **{f"p{i}": (16,) for i in range(4)},
}
PARAMS = ", ".join(f"u{i}, v{i}, p{i}, p{i}" for i in range(4))
CALLS = [
    ("batch_norm(x, w, b, None, None, True, 0.1, 1e-5, False)", IMAGE),
    ("batch_norm(x, None, None, w.data ** 2, b.data ** 2, False, 0.1, 1e-3, False)", IMAGE),
    ("instance_norm(x, w, b, None, None, True, 0.1, 1e-5, False)", IMAGE),
    ("native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[0]", IMAGE),
    ("native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[1].detach()", IMAGE),
    ("native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[2].detach()", IMAGE),
    ("rms_norm(x, (5,), None, 0.1)", X),
    ("bilinear(x, y, w)", {"x": (2, 3), "y": (2, 4), "w": (5, 3, 4)}),
    ("kl_div(x, y.exp(), 1)", XY),
    ("kl_div(x, y.exp())", XY),
    ("kl_div(x, y, 2, log_target=True)", XY),
    ("binary_cross_entropy_with_logits(x, y.sigmoid(), None, z.exp().detach(), 0)", XYZ),
    ("cosine_embedding_loss(x, y, s, 0.1, 2)", {**XY, "s": (4,)}),
    ("hinge_embedding_loss(x, y.sign(), 0.5)", XY),
    ("margin_ranking_loss(x, y, z.sign(), 0.2, 0)", XYZ),
    ("poisson_nll_loss(x, y, True, False, 1e-8, 1)", XY),
    ("triplet_margin_loss(x, y, z, 0.5, 1.0, 1e-6, True, 2)", XYZ),
    ("pixel_shuffle(x, 2)", {"x": (1, 4, 2, 3)}),
    ("pixel_unshuffle(x, 2)", {"x": (1, 1, 4, 6)}),
    ("channel_shuffle(x, 2)", {"x": (1, 4, 2)}),
    ("native_channel_shuffle(x.detach(), 2)", {"x": (1, 4, 2, 2)}),
    ("grid_sampler(x, g, 0, 0, False)", GRID),
    ("grid_sampler_2d(x, g, 0, 2, True)", GRID),
    ("grid_sampler_3d(x, g, 0, 1, False)", {"x": (1, 2, 3, 3, 3), "g": (1, 2, 2, 2, 3)}),
    ("affine_grid_generator(t, (2, 1, 3, 4), False)", {"t": (2, 2, 3)}),
    ("max_pool1d_with_indices(x, 2)[0]", {"x": (1, 2, 6)}),
    ("native_dropout(x, 0.5, False)[0]", X),
    ("native_dropout(x, 0.0, True)[0]", X),
    ("celu_(x * 2, 0.5)", X),
    ("selu_(x * 2)", X),
    ("rrelu_(x * 2, 0.1, 0.3)", X),
    ("threshold_(x * 2, 0.3, 5.0)", X),
    ("rnn_tanh_cell(x, h, u, v, p, q)", {**CELL, **weights(1)}),
    ("rnn_relu_cell(x, h, u, v)", {**CELL, **weights(1)}),
    ("gru_cell(x, h, u, v, p, q)", {**CELL, **weights(3)}),
    ("lstm_cell(x, (h, h * 2), u, v, p, q)[1]", {**CELL, **weights(4)}),
    (f"lstm(x, (h, h * 2), [{PARAMS}], True, 2, 0.0, False, True, True)[0]",
     {"x": (2, 5, 3), "h": (4, 2, 4), **TWO}),
    ("gru(x, h, [u, v, p, q], True, 1, 0.0, True, False, False)[1]",
     {"x": (5, 2, 3), "h": (1, 2, 4), **weights(3)}),
    ("rnn_tanh(x, h, [u, v], False, 1, 0.0, True, False, False)[0]",
     {"x": (5, 2, 3), "h": (1, 2, 4), **weights(1)}),
    ("rnn_relu(x, lib.tensor([3, 2]), h, [u, v, p, q], True, 1, 0.0, True, False)[0]",
     {"x": (5, 3), "h": (1, 3, 4), **weights(1)}),
]  # fmt: skip
IN_PLACE = ("celu_", "selu_", "rrelu_", "threshold_")


def inputs(pair, shapes):
    return {
        name: pair.make(*shape, seed=i, requires_grad=True)
        for i, (name, shape) in enumerate(shapes.items())
    }


def called(expression, lib, tensors, i):
    return eval(f"lib.{expression}", {"lib": lib, **{n: t[i] for n, t in tensors.items()}})


@pytest.mark.parametrize(("expression", "shapes"), CALLS, ids=[c for c, _ in CALLS])
def test_values_and_gradients(pair, expression, shapes):
    tensors = inputs(pair, shapes)
    ours, theirs = (called(expression, lib, tensors, i)
                    for i, lib in enumerate((rushlight, pair.oracle)))  # fmt: skip
    pair.assert_same(ours, theirs, 5e-6)
    if theirs.requires_grad:
        pair.assert_same_gradients(ours, theirs, list(tensors.values()), 2e-5)


@pytest.mark.parametrize(("expression", "shapes"), CALLS, ids=[c for c, _ in CALLS])
def test_in_one_graph(expression, shapes):
    rushlight.manual_seed(0)
    tensors = {n: rushlight.randn(*shape) for n, shape in shapes.items()}
    if "tensor(" in expression:
        pytest.skip("the sizes of a packed sequence are read from a tensor")
    names = ", ".join(tensors)
    function = eval(f"lambda {names}: lib.{expression}", {"lib": rushlight})
    plain = function(**tensors)
    made = rushlight.compile(function, backend="eager", fullgraph=True)(**tensors)
    numpy.testing.assert_allclose(made.numpy(), plain.numpy(), rtol=1e-6, atol=1e-7)


def test_ctc_loss(pair):
    x = pair.make(6, 2, 4, seed=1, requires_grad=True)
    found = [
        lib.ctc_loss(t.log_softmax(2), lib.tensor([[1, 2], [3, 1]]), [6, 5], [2, 1], 0, 2)
        for lib, t in zip((rushlight, pair.oracle), x, strict=True)
    ]
    pair.assert_same(*found, 5e-6)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bag(pair, mode):
    table = pair.make(6, 3, seed=1, requires_grad=True)
    found = [
        lib.embedding_bag(t, lib.tensor([1, 2, 4, 5, 4]), lib.tensor([0, 2, 2]), mode=mode)[0]
        for lib, t in zip((rushlight, pair.oracle), table, strict=True)
    ]
    pair.assert_same(*found)
    pair.assert_same_gradients(*found, [table])


def test_running_statistics_move(pair):
    x = pair.make(4, 3, seed=1)
    means, variances = (pair.of([v] * 3) for v in (0.0, 1.0))
    for i, lib in enumerate((rushlight, pair.oracle)):
        lib.batch_norm(x[i], None, None, means[i], variances[i], True, 0.3, 1e-5, False)
    pair.assert_same(*means)
    pair.assert_same(*variances)


def test_native_dropout_keeps_and_scales():
    x = rushlight.ones(10000).requires_grad_()
    out, kept = rushlight.native_dropout(x, 0.25, True)
    assert kept.dtype is rushlight.bool and abs(kept.to(rushlight.float32).mean() - 0.75) < 0.02
    assert (out == kept / 0.75).all()
    out.sum().backward()
    assert (x.grad == out).all()
    assert not rushlight.native_dropout(x, 1.0, True)[0].any()


@pytest.mark.parametrize(
    "call",
    [
        "grid_sampler(x, x, 5, 0, False)",
        "grid_sampler_3d(lib.ones(1, 2, 3, 4), lib.ones(1, 3, 4, 2), 0, 0, False)",
        "gru(lib.ones(2, 3, 4), lib.ones(1, 3, 2), [x] * 3, True, 1, 0.0, False, False, False)",
    ],
)
def test_refusals(oracle, call):
    for lib in (rushlight, oracle):
        with pytest.raises(RuntimeError):
            eval(f"lib.{call}", {"lib": lib, "x": lib.ones(2, 3)})
