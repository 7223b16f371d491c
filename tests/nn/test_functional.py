"""The functional API against the oracle's: values, gradients, warnings, errors."""

import warnings

import numpy
import pytest

import rushlight
import rushlight.nn.functional as F

X = {"x": (4, 5)}
XT = {"x": (4, 5), "y": (4, 5)}
IDS = {"x": (4, 5), "t": (4,)}
IMAGE = {"x": (3, 5, 2, 2), "t": (3, 2, 2)}
MORE = [
    "relu6(x * 4)",
    "hardsigmoid(x * 4)",
    "hardswish(x * 4)",
    "mish(x * 3)",
    "selu(x)",
    "celu(x, 0.7)",
    "threshold(x, 0.1, -2.0)",
    "hardshrink(x)",
    "softshrink(x, 0.3)",
    "softsign(x)",
    "tanhshrink(x)",
    "rrelu(x)",
    "hardtanh(x, -0.5, 0.7)",
    "leaky_relu(x, 0.3)",
    "glu(lib.cat([x, x], 1))",
    "softmin(x, 0)",
    "local_response_norm(x.reshape(2, 5, 2), 3)",
    "local_response_norm(x.reshape(2, 5, 2), 4, 0.1, 0.6, 2.0)",
    "pairwise_distance(x, x * 2, p=1.0)",
    "pairwise_distance(x, x * 2, p=3.0, keepdim=True)",
    "pairwise_distance(x, x * 2, p=float('inf'))",
    "soft_margin_loss(x, x.detach().sign())",
    "hinge_embedding_loss(x, x.detach().sign(), margin=0.7)",
    "multilabel_soft_margin_loss(x, (x.detach() > 0).to(x.dtype))",
    "poisson_nll_loss(x, x.detach() * 2 + 4, full=True)",
    "poisson_nll_loss(x.exp(), x.detach() + 4, log_input=False, reduction='none')",
    "pixel_shuffle(lib.cat([x.reshape(1, 5, 4, 1)] * 4, 1), 2)",
    "pixel_unshuffle(x.reshape(5, 2, 2), 2)",
    "channel_shuffle(x.reshape(1, 4, 5), 2)",
]
BAGS = ["", "mode='sum'", "mode='max'", "mode='sum', padding_idx=2", "mode='mean', padding_idx=-2"]
CUT_BAGS = ["mode='sum'", "mode='mean'", "mode='max'", "mode='max', padding_idx=1"]
CALLS = [
    ("F.normalize(x)", X),
    ("F.normalize(x, p=1.0, dim=0)", X),
    ("F.cosine_similarity(x, y)", XT),
    ("F.cosine_similarity(x, y, dim=0)", XT),
    ("F.pairwise_distance(x, y)", XT),
    ("F.softmax(x, -1, dtype=lib.float64)", X),
    ("F.layer_norm(x, (5,), w, None, 0.1)", {"x": (4, 5), "w": (5,)}),
    ("F.rms_norm(x, (5,), w)", {"x": (4, 5), "w": (5,)}),
    ("F.mse_loss(x, y)", XT),
    ("F.mse_loss(x, y, reduction='sum')", XT),
    ("F.mse_loss(x, y, reduction='none')", XT),
    ("F.l1_loss(x, y)", XT),
    ("F.l1_loss(x, y, reduction='none')", XT),
    ("F.huber_loss(x, y, delta=0.5)", XT),
    ("F.smooth_l1_loss(x, y, beta=0.7, reduction='sum')", XT),
    ("F.smooth_l1_loss(x, y, beta=0.0)", XT),
    ("F.binary_cross_entropy_with_logits(x, p)", {"x": (4, 5), "p": (4, 5)}),
    (
        "F.binary_cross_entropy_with_logits(x, p, pos_weight=q, reduction='none')",
        {"x": (4, 5), "p": (4, 5), "q": (5,)},
    ),
    ("F.binary_cross_entropy(q, p)", {"q": (4, 5), "p": (4, 5)}),
    ("F.kl_div(x, q, reduction='batchmean')", {"x": (4, 5), "q": (4, 5)}),
    ("F.kl_div(x, y, reduction='sum', log_target=True)", XT),
    ("F.cross_entropy(x, t)", IDS),
    ("F.cross_entropy(x, t, reduction='sum')", IDS),
    ("F.cross_entropy(x, t, reduction='none')", IDS),
    ("F.cross_entropy(x, t, ignore_index=2)", IDS),
    ("F.cross_entropy(x, t, q)", {**IDS, "q": (5,)}),
    ("F.cross_entropy(x, t, q, ignore_index=2, reduction='none')", {**IDS, "q": (5,)}),
    ("F.cross_entropy(x, t, label_smoothing=0.2)", IDS),
    ("F.cross_entropy(x, t, label_smoothing=0.2, reduction='sum')", IDS),
    ("F.cross_entropy(x, t, q, ignore_index=2, label_smoothing=0.3)", {**IDS, "q": (5,)}),
    ("F.cross_entropy(x, q)", {"x": (4, 5), "q": (4, 5)}),
    ("F.cross_entropy(x, q, w, label_smoothing=0.1)", {"x": (4, 5), "q": (4, 5), "w": (5,)}),
    ("F.cross_entropy(x, t)", IMAGE),
    ("F.cross_entropy(x, t, q, label_smoothing=0.1)", {**IMAGE, "q": (5,)}),
    ("F.cross_entropy(x, t)", {"x": (5,), "t": ()}),
    ("F.nll_loss(x, t)", IDS),
    ("F.nll_loss(x, t, q)", {**IDS, "q": (5,)}),
    ("F.nll_loss(x, t, ignore_index=1, reduction='none')", IMAGE),
    ("F.scaled_dot_product_attention(a, b, c)", {n: (2, 3, 4, 8) for n in "abc"}),
    ("F.scaled_dot_product_attention(a, b, c, is_causal=True)", {n: (2, 3, 4, 8) for n in "abc"}),
    (
        "F.scaled_dot_product_attention(a, b, c, attn_mask=m)",
        {**{n: (2, 3, 4, 8) for n in "abc"}, "m": (2, 1, 4, 4)},
    ),
    (
        "F.scaled_dot_product_attention(a, b, c, scale=0.2, enable_gqa=True)",
        {"a": (2, 4, 5, 8), "b": (2, 2, 3, 8), "c": (2, 2, 3, 6)},
    ),
    ("F.embedding(t, w, padding_idx=1)", {"t": (3, 2), "w": (6, 4)}),
    ("F.softplus(x * 30)", X),
    ("F.logsigmoid(x * 60)", X),
    ("F.elu(x * 60)", X),
    *[(f"F.{call}", X) for call in MORE],
    ("F.prelu(x, w)", {"x": (4, 5), "w": (5,)}),
    ("F.prelu(x, w)", {"x": (4, 5), "w": (1,)}),
    ("F.bilinear(x, y, w, b)", {"x": (2, 4, 3), "y": (2, 4, 5), "w": (6, 3, 5), "b": (6,)}),
    ("F.mse_loss(x, y, weight=q)", {**XT, "q": (4, 5)}),
    ("F.l1_loss(x, y, weight=q, reduction='sum')", {**XT, "q": (4, 5)}),
    ("F.huber_loss(x, y, weight=q)", {**XT, "q": (4, 5)}),
    ("F.binary_cross_entropy(q, p, weight=p, reduction='sum')", {"q": (4, 5), "p": (4, 5)}),
    ("F.binary_cross_entropy_with_logits(x * 40, p)", {"x": (4, 5), "p": (4, 5)}),
    ("F.gaussian_nll_loss(x, y, q)", {**XT, "q": (4, 5)}),
    ("F.gaussian_nll_loss(x, y, q, full=True, reduction='none')", {**XT, "q": (4, 1)}),
    ("F.gaussian_nll_loss(x, y, q, eps=0.4)", {**XT, "q": (4,)}),
    ("F.gaussian_nll_loss(x, y, v * v, eps=0.4)", {**XT, "v": (4, 5)}),
    ("F.margin_ranking_loss(x, y, s, margin=0.3)", {**XT, "s": (4, 5)}),
    ("F.cosine_embedding_loss(x, y, s, margin=0.1)", {**XT, "s": (4,)}),
    ("F.cosine_embedding_loss(x, y, s)", {"x": (5,), "y": (5,), "s": ()}),
    ("F.triplet_margin_loss(x, y, z)", {**XT, "z": (4, 5)}),
    (
        "F.triplet_margin_loss(x, y, z, margin=2.0, p=1.0, swap=True, reduction='none')",
        {**XT, "z": (4, 5)},
    ),
    (
        "F.triplet_margin_with_distance_loss(x, y, z, distance_function=F.pairwise_distance)",
        {**XT, "z": (4, 5)},
    ),
    ("F.conv_tbc(x, w, b, 1)", {"x": (5, 2, 3), "w": (2, 3, 4), "b": (4,)}),
    ("F.pdist(x)", X),
    ("F.max_pool3d_with_indices(x, 2)[0]", {"x": (1, 2, 4, 4, 4)}),
    ("F.adaptive_max_pool2d_with_indices(x, 2)[0]", {"x": (1, 2, 5, 4)}),
    ("F.multi_margin_loss(x, t)", IDS),
    ("F.multi_margin_loss(x, t, p=2, margin=0.7, weight=p, reduction='none')", {**IDS, "p": (5,)}),
    ("F.multi_margin_loss(x, t)", {"x": (5,), "t": ()}),
    ("F.multi_margin_loss(x, t, reduction='none')", {"x": (5,), "t": (1,)}),
    ("F.multi_margin_loss(x, t * 0)", {"x": (), "t": ()}),
    ("F.multilabel_margin_loss(x, t * 0)", {"x": (), "t": ()}),
    ("F.multilabel_margin_loss(x, l)", {"x": (4, 5), "l": (4, 5)}),
    ("F.multilabel_margin_loss(x, l, reduction='none')", {"x": (5,), "l": (5,)}),
    ("F.cross_entropy(x, q, reduction='sum')", {"x": (4, 5, 3), "q": (4, 5, 3)}),
    ("F.nll_loss(x, t, q, reduction='sum', ignore_index=3)", {**IMAGE, "q": (5,)}),
    ("F.nll_loss(x, t)", {"x": (5,), "t": ()}),
    (
        "F.scaled_dot_product_attention(a, b, c, attn_mask=m & (lib.arange(4) > 9))",
        {**{n: (2, 3, 4, 8) for n in "abc"}, "m": (4, 4)},
    ),
    ("F.embedding(t, w, scale_grad_by_freq=True)", {"t": (3, 4), "w": (6, 4)}),
    *[(f"F.embedding_bag(t, w, {bag})", {"t": (3, 4), "w": (6, 4)}) for bag in BAGS],
    (
        "F.embedding_bag(t, w, mode='sum', per_sample_weights=z)",
        {"t": (3, 4), "w": (6, 4), "z": (3, 4)},
    ),
    *[
        (f"F.embedding_bag(t, w, lib.tensor([0, 2, 2, 5]), {bag})", {"t": (9,), "w": (6, 4)})
        for bag in CUT_BAGS
    ],
    (
        "F.embedding_bag(t, w, lib.tensor([0, 2, 2, 9]), include_last_offset=True)",
        {"t": (9,), "w": (6, 4)},
    ),
    (
        "F.embedding_bag(t, w, lib.tensor([0, 4]), mode='sum', per_sample_weights=z)",
        {"t": (9,), "w": (6, 4), "z": (9,)},
    ),
]


def operands(pair, shapes):
    """Names: t class ids, p and q in (0, 1), m a mask; everything floating requires a gradient
    but p.
    """
    found = {}
    for i, (name, shape) in enumerate(shapes.items()):
        if name == "t":
            found[name] = pair.make(*shape, seed=i, high=5, dtype="int64")
        elif name == "m":
            mask = pair.make(*shape, seed=i, requires_grad=False)
            found[name] = tuple(tensor > -0.7 for tensor in mask)
        elif name == "l":
            labels = numpy.random.default_rng(1).permuted(numpy.tile(range(5), (4, 1)), axis=1)
            labels[:, 3] = -1
            labels[1, 0] = -1
            found[name] = pair.of(labels[0 if len(shape) == 1 else slice(None)].tolist(), "int64")
        elif name == "s":
            found[name] = tuple(x.sign() for x in pair.make(*shape, seed=i))
        elif name in "pq":
            found[name] = pair.make(*shape, seed=i, low=0.05, high=0.95)
        else:
            found[name] = pair.make(*shape, seed=i, requires_grad=True)
    return found


NAMES = [f"{expression} {shapes}" for expression, shapes in CALLS]


@pytest.mark.parametrize(("expression", "shapes"), CALLS, ids=NAMES)
def test_values_and_gradients(pair, expression, shapes):
    found = operands(pair, shapes)
    libraries = ((rushlight, F), (pair.oracle, pair.oracle.nn.functional))
    results = [
        eval(expression, {"F": f, "lib": lib, **{name: both[i] for name, both in found.items()}})
        for i, (lib, f) in enumerate(libraries)
    ]
    pair.assert_same(*results, 3e-6)
    inputs = [both for both in found.values() if both[1].requires_grad]
    if results[1].requires_grad:
        pair.assert_same_gradients(*results, inputs, 1e-5)


def test_one_hot(pair):
    ids = pair.make(3, 2, high=4, dtype="int64")
    for classes in (-1, 6):
        ours = F.one_hot(ids[0], classes)
        pair.assert_same(ours, pair.oracle.nn.functional.one_hot(ids[1], classes))


BAD_CALLS = [
    "F.dropout(lib.ones(2), 1.5)",
    "F.mse_loss(lib.ones(2), lib.ones(2), reduction='average')",
    "F.cross_entropy(lib.ones(2, 3), lib.tensor([0, 1, 2]))",
    "F.cross_entropy(lib.ones(2, 3), lib.tensor([0, 1]), reduction='all')",
    "F.cross_entropy(lib.ones(2, 3), lib.tensor([0, 1]), label_smoothing=1.5)",
    "F.nll_loss(lib.zeros(2, 3), lib.tensor([0, 3]))",
    "F.binary_cross_entropy_with_logits(lib.ones(2), lib.ones(3))",
    "F.hardtanh(lib.ones(2), 1.0, -1.0)",
    "F.one_hot(lib.tensor([0, 3]), 3)",
    "F.one_hot(lib.tensor([0, -1]), 3)",
    "F.cross_entropy(lib.ones(2, 3), lib.tensor([0, 3]), lib.ones(3))",
    "F.gaussian_nll_loss(lib.ones(2), lib.ones(2), lib.ones(3))",
    "F.gaussian_nll_loss(lib.ones(2), lib.ones(2), -lib.ones(2))",
    "F.gaussian_nll_loss(lib.ones(2), lib.ones(2), lib.ones(2), reduction='all')",
    "F.multi_margin_loss(lib.ones(2, 3), lib.tensor([0, 1]), p=3)",
    "F.triplet_margin_with_distance_loss(lib.ones(2), lib.ones(2), lib.ones(2), margin=-1.0)",
    "F.binary_cross_entropy(lib.ones(2) * 2, lib.ones(2))",
    "F.feature_alpha_dropout(lib.ones(2), training=True)",
    "F.dropout1d(lib.ones(2))",
    "F.pixel_shuffle(lib.ones(1, 3, 2, 2), 2)",
    "F.pixel_unshuffle(lib.ones(1, 3, 3, 2), 2)",
    "F.local_response_norm(lib.ones(2, 3), 2)",
    "F.embedding_bag(lib.tensor([0, 1]), lib.ones(3, 2))",
    "F.embedding_bag(lib.tensor([[0, 1]]), lib.ones(3, 2), mode='min')",
    "F.embedding_bag(lib.tensor([[0, 1]]), lib.ones(3, 2), lib.tensor([0]))",
]


@pytest.mark.parametrize("expression", BAD_CALLS)
def test_bad_calls_fail_as_the_oracles(oracle, assert_same_failure, expression):
    assert_same_failure(
        lambda: eval(expression, {"F": F, "lib": rushlight}),
        lambda: eval(expression, {"F": oracle.nn.functional, "lib": oracle}),
    )


def test_class_id_out_of_range():
    with pytest.raises(IndexError, match="3 is out of"):
        F.cross_entropy(rushlight.ones(2, 3), rushlight.tensor([0, 3]))


def test_warns_of_broadcast_targets():
    with pytest.warns(UserWarning, match="Using a target size"):
        F.mse_loss(rushlight.ones(2, 1), rushlight.ones(2))


def test_warns_of_an_implicit_dim():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert F.softmax(rushlight.zeros(2, 4)).tolist() == [[0.25] * 4] * 2


def test_old_reduction_flags():
    x, y = rushlight.ones(2, 3), rushlight.zeros(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert F.mse_loss(x, y, size_average=False).item() == 6
        assert tuple(F.mse_loss(x, y, reduce=False).shape) == (2, 3)
    with pytest.warns(UserWarning, match="reduction='sum'"):
        F.mse_loss(x, y, size_average=False)


def test_zero_vectors_normalise_to_zeros_with_finite_gradients():
    x = rushlight.zeros(2, 3).requires_grad_()
    y = F.normalize(x)
    y.sum().backward()
    assert y.tolist() == [[0.0] * 3] * 2
    assert all(abs(v) < 1e13 for row in x.grad.tolist() for v in row)


@pytest.mark.parametrize(
    "expression",
    [
        "F.normalize(x)",
        "F.normalize(x, p=3.0)",
        "F.cosine_similarity(x, x * 2)",
        "lib.linalg.vector_norm(x, 3)",
        "x.norm(2.5, dim=1)",
    ],
)
def test_norms_of_halves_do_not_leave_their_range(oracle, expression):
    """300 squared is beyond float16: found by a random program, compiled against eager."""
    values = [[100.0, 200.0, 300.0], [1.0, -2.0, 250.0]]
    found = []
    for lib in (rushlight, oracle):
        x = lib.tensor(values, dtype=lib.float16).requires_grad_()
        y = eval(expression, {"F": lib.nn.functional, "lib": lib, "x": x})
        y.float().sum().backward()
        found.append(y.detach().float().reshape(-1).tolist())
        if lib is rushlight:  # the oracle's own powers leave the range for p = 3
            assert all(abs(v) < 10 for row in x.grad.tolist() for v in row)
    numpy.testing.assert_allclose(*found, rtol=4e-3, atol=2e-3)


def test_attention_dropout():
    """Weights are dropped and scaled: with constant values the mean stays, the results do not."""
    rushlight.manual_seed(0)
    q = rushlight.zeros(1, 64, 4)
    out = F.scaled_dot_product_attention(q, q, rushlight.ones(1, 64, 2), dropout_p=0.5)
    values = [v for row in out.tolist()[0] for v in row]
    assert abs(sum(values) / len(values) - 1) < 0.1
    assert min(values) < 0.9 and max(values) > 1.1
    causal = F.scaled_dot_product_attention(
        q, q, rushlight.ones(1, 64, 2), dropout_p=1e-9, is_causal=True
    )
    assert causal.tolist()[0][5] == pytest.approx([1.0, 1.0])


def test_attention_takes_a_mask_or_causal():
    x = rushlight.ones(2, 3, 4)
    with pytest.raises(RuntimeError, match="attn_mask should not be set"):
        F.scaled_dot_product_attention(x, x, x, rushlight.zeros(3, 3), is_causal=True)


def test_all_rows_ignored_is_nan():
    loss = F.cross_entropy(rushlight.ones(2, 3), rushlight.tensor([1, 1]), ignore_index=1)
    assert loss.item() != loss.item()


def test_embedding_shortens_rows(oracle):
    ends = []
    for library, f in ((rushlight, F), (oracle, oracle.nn.functional)):
        table = library.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
        out = f.embedding(library.tensor([0, 1, 0]), table, max_norm=1.0)
        ends.append([*out.reshape(-1).tolist(), *table.reshape(-1).tolist()])
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"])
def test_channels_drop_as_a_whole(name):
    rushlight.manual_seed(1)
    dims = {"dropout1d": 1, "dropout2d": 2, "dropout3d": 3, "feature_alpha_dropout": 2}[name]
    x = rushlight.ones(8, 16, *[3] * dims)
    y = getattr(F, name)(x, 0.5, True)
    channels = y.reshape(8 * 16, -1)
    assert all(len(set(row)) == 1 for row in channels.tolist())
    kinds = {round(row[0], 5) for row in channels.tolist()}
    assert len(kinds) == 2
    if name != "feature_alpha_dropout":
        assert kinds == {0.0, 2.0}
    assert getattr(F, name)(x, 0.5, False) is x


def test_alpha_dropout_keeps_mean_and_variance():
    rushlight.manual_seed(2)
    x = rushlight.randn(200, 500)
    y = F.alpha_dropout(x, 0.3, True)
    assert abs(y.mean().item()) < 0.02
    assert abs((y * y).mean().item() - 1) < 0.03
    assert y.tolist() != x.tolist()


def test_rrelu_draws_slopes():
    rushlight.manual_seed(3)
    y = F.rrelu(-rushlight.ones(1000), 0.1, 0.3, training=True)
    assert y.amax().item() <= -0.1 and y.amin().item() >= -0.3 and len(set(y.tolist())) > 900
    assert F.rrelu(rushlight.ones(3), training=True).tolist() == [1.0] * 3


def test_gumbel_softmax():
    rushlight.manual_seed(4)
    logits = rushlight.tensor([0.0, 2.0]).requires_grad_()
    hard = F.gumbel_softmax(logits.expand(4000, 2), hard=True)
    assert hard.detach().amax(1).tolist() == pytest.approx([1.0] * 4000, abs=1e-6)
    assert abs(hard[:, 1].mean().item() - 1 / (1 + 2.718281828**-2)) < 0.03
    (hard * rushlight.tensor([1.0, 3.0])).sum().backward()
    assert logits.grad.abs().amin().item() > 0
    assert F.gumbel_softmax(logits, tau=0.5).sum().item() == pytest.approx(1.0, abs=1e-6)


def test_masked_rows_of_attention_are_zeros():
    q = rushlight.randn(2, 3, 4).requires_grad_()
    mask = rushlight.tensor([[True, True, False], [False, False, False], [True, False, False]])
    out = F.scaled_dot_product_attention(q, q, q, mask)
    assert out[:, 1].abs().amax().item() == 0
    out.sum().backward()
    assert all(v == v for v in q.grad.reshape(-1).tolist())
