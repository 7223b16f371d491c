"""The functional API against the oracle's: values, gradients, warnings, errors."""

import warnings

import pytest

import rushlight
import rushlight.nn.functional as F

X = {"x": (4, 5)}
XT = {"x": (4, 5), "y": (4, 5)}
IDS = {"x": (4, 5), "t": (4,)}
IMAGE = {"x": (3, 5, 2, 2), "t": (3, 2, 2)}
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
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
        F.scaled_dot_product_attention(x, x, x, rushlight.zeros(3, 3), is_causal=True)


def test_all_rows_ignored_is_nan():
    loss = F.cross_entropy(rushlight.ones(2, 3), rushlight.tensor([1, 1]), ignore_index=1)
    assert loss.item() != loss.item()
