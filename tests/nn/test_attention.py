"""MultiheadAttention against the oracle's, with every kind of mask."""

import pytest

import rushlight
from rushlight import nn

CASES = {
    "plain": ({}, {}),
    "no bias": ({"bias": False}, {}),
    "batch first": ({"batch_first": True}, {}),
    "no weights": ({}, {"need_weights": False}),
    "all heads": ({}, {"average_attn_weights": False}),
    "other widths": ({"kdim": 6, "vdim": 4}, {}),
    "learnt key": ({"add_bias_kv": True}, {"key_padding_mask": [[False, False, True]] * 2}),
    "zero key": ({"add_zero_attn": True, "batch_first": True}, {"need_weights": False}),
    "both keys, causal": (
        {"add_bias_kv": True, "add_zero_attn": True},
        {"attn_mask": [[i < j for j in range(3)] for i in range(5)]},
    ),
    "mask a head": (
        {},
        {
            "attn_mask": [
                [[(i + j + k) % 3 == 1 for j in range(3)] for i in range(5)] for k in range(4)
            ]
        },
    ),
    "one number a pair": ({}, {"key_padding_mask": [[0.0, -1.5, 0.25], [0.0, 0.5, -2.0]]}),
    "padding": ({}, {"key_padding_mask": [[False, False, True], [False, True, True]]}),
    "causal": ({}, {"attn_mask": [[i < j for j in range(3)] for i in range(5)]}),
    "added": ({}, {"attn_mask": [[0.5 * i - j for j in range(3)] for i in range(5)]}),
    "both, no weights": (
        {"batch_first": True},
        {
            "need_weights": False,
            "attn_mask": [[i + 1 < j for j in range(3)] for i in range(5)],
            "key_padding_mask": [[False, False, True], [False, False, False]],
        },
    ),
}


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(pair, case):
    options, call = CASES[case]
    theirs = pair.oracle.nn.MultiheadAttention(8, 2, **options)
    ours = nn.MultiheadAttention(8, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    state = {}
    for i, (key, tensor) in enumerate(theirs.state_dict().items()):
        state[key], value = pair.make(*tensor.shape, seed=i)
        tensor.copy_(value)
    ours.load_state_dict(state)
    shapes = [(5, 2, 8), (3, 2, options.get("kdim", 8)), (3, 2, options.get("vdim", 8))]
    if options.get("batch_first"):
        shapes = [(n, length, width) for length, n, width in shapes]
    x = [pair.make(*shape, seed=i, requires_grad=True) for i, shape in enumerate(shapes)]
    results = []
    for i, (library, layer) in enumerate(((rushlight, ours), (pair.oracle, theirs))):
        masks = {k: library.tensor(v) if isinstance(v, list) else v for k, v in call.items()}
        results.append(layer(*(both[i] for both in x), **masks))
    (a, a_weights), (b, b_weights) = results
    pair.assert_same(a, b, 5e-6)
    assert (a_weights is None) == (b_weights is None)
    if a_weights is not None:
        pair.assert_same(a_weights, b_weights, 5e-6)
    inputs = [*x, *zip(ours.parameters(), theirs.parameters(), strict=True)]
    pair.assert_same_gradients(a, b, inputs, 2e-5)


def test_without_a_batch():
    layer = nn.MultiheadAttention(8, 2)
    x = rushlight.randn(5, 8)
    alone, weights = layer(x, x, x)
    batched, _ = layer(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1))
    assert tuple(alone.shape) == (5, 8) and tuple(weights.shape) == (5, 5)
    for a, b in zip(alone.tolist(), batched.squeeze(1).tolist(), strict=True):
        assert a == pytest.approx(b, abs=1e-6)


def test_mistakes():
    with pytest.raises(AssertionError, match="divisible"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="are positive"):
        nn.MultiheadAttention(0, 1)
    layer = nn.MultiheadAttention(8, 2)
    x = rushlight.ones(2, 1, 8)
    with pytest.raises(RuntimeError, match="The shape of the attn_mask is"):
        layer(x, x, x, attn_mask=rushlight.zeros(3, 3))
