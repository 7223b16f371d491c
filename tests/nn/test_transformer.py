"""Transformer layers and stacks against the oracle's, on the same weights."""

import pytest

import rushlight
from rushlight import nn

SMALL = "8, 2, dim_feedforward=12, dropout=0.0"


def build(pair, expression):
    theirs = eval(expression, {"nn": pair.oracle.nn})
    ours = eval(expression, {"nn": nn})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    state = {}
    for i, (key, tensor) in enumerate(theirs.state_dict().items()):
        state[key], value = pair.make(*tensor.shape, seed=i)
        state[key], value = state[key] * 0.4, value * 0.4
        tensor.copy_(value)
    ours.load_state_dict(state)
    return ours, theirs


def compare(pair, ours, theirs, inputs, masks):
    results = []
    for i, (library, layer) in enumerate(((rushlight, ours), (pair.oracle, theirs))):
        given = {k: library.tensor(v) if isinstance(v, list) else v for k, v in masks.items()}
        results.append(layer(*(x[i] for x in inputs), **given))
    pair.assert_same(*results, 2e-5)
    every = [*inputs, *zip(ours.parameters(), theirs.parameters(), strict=True)]
    pair.assert_same_gradients(*results, every, 2e-4)


CAUSAL = [[j > i for j in range(5)] for i in range(5)]
ADDED = [[-float("inf") if j > i else 0.1 * j for j in range(5)] for i in range(5)]
PADDED = [[False] * 5, [False, False, False, True, True]]
ENCODERS = {
    "plain": ("", {}),
    "gelu, norm first": ("activation='gelu', norm_first=True", {}),
    "batch first, causal": ("batch_first=True", {"src_mask": CAUSAL, "is_causal": True}),
    "no bias": ("bias=False", {"src_mask": ADDED}),
    "padded": ("layer_norm_eps=0.01", {"src_key_padding_mask": PADDED}),
    "own activation": ("activation=nn.Tanh()", {"src_mask": CAUSAL}),
}


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("case", ENCODERS)
def test_encoder_layer(pair, case):
    options, masks = ENCODERS[case]
    ours, theirs = build(pair, f"nn.TransformerEncoderLayer({SMALL}, {options})")
    shape = (2, 5, 8) if "batch_first" in options else (5, 2, 8)
    compare(pair, ours, theirs, [pair.make(*shape, seed=2, requires_grad=True)], masks)


DECODERS = {
    "plain": ("", {}),
    "norm first": ("norm_first=True, activation='gelu'", {"tgt_mask": CAUSAL}),
    "batch first": ("batch_first=True", {"tgt_mask": CAUSAL, "tgt_is_causal": True}),
    "padded": (
        "",
        {"tgt_key_padding_mask": PADDED, "memory_key_padding_mask": [[False, True, False]] * 2},
    ),
}


@pytest.mark.parametrize("case", DECODERS)
def test_decoder_layer(pair, case):
    options, masks = DECODERS[case]
    ours, theirs = build(pair, f"nn.TransformerDecoderLayer({SMALL}, {options})")
    shapes = [(5, 2, 8), (3, 2, 8)]
    if "batch_first" in options:
        shapes = [(n, length, width) for length, n, width in shapes]
    inputs = [pair.make(*s, seed=i, requires_grad=True) for i, s in enumerate(shapes)]
    compare(pair, ours, theirs, inputs, masks)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("masks", [{}, {"mask": CAUSAL}, {"mask": ADDED, "is_causal": False}])
def test_encoder(pair, masks):
    ours, theirs = build(
        pair, f"nn.TransformerEncoder(nn.TransformerEncoderLayer({SMALL}), 2, nn.LayerNorm(8))"
    )
    compare(pair, ours, theirs, [pair.make(5, 2, 8, requires_grad=True)], masks)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("batched", [True, False])
def test_transformer(pair, batched):
    ours, theirs = build(pair, "nn.Transformer(8, 2, 2, 2, 12, dropout=0.0, batch_first=True)")
    lead = (2,) if batched else ()
    source = pair.make(*lead, 3, 8, seed=1, requires_grad=True)
    target = pair.make(*lead, 5, 8, seed=2, requires_grad=True)
    compare(pair, ours, theirs, [source, target], {"tgt_mask": ADDED})


def test_square_subsequent_mask(oracle):
    ours = nn.Transformer.generate_square_subsequent_mask(4)
    assert ours.tolist() == oracle.nn.Transformer.generate_square_subsequent_mask(4).tolist()
    wide = nn.Transformer.generate_square_subsequent_mask(2, dtype=rushlight.float64)
    assert wide.dtype == rushlight.float64


def test_dropout_only_while_training():
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.5)
    x = rushlight.randn(3, 2, 8)
    assert layer(x).tolist() != layer(x).tolist()
    layer.eval()
    assert layer(x).tolist() == layer(x).tolist()


def test_layers_of_a_stack_are_copies():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12), 2)
    first, second = stack.layers
    assert first.linear1.weight is not second.linear1.weight
    assert first.linear1.weight.tolist() == second.linear1.weight.tolist()


MISTAKES = [
    "nn.TransformerEncoderLayer(8, 2, activation='tanh')",
    "nn.TransformerEncoderLayer(8, 3)",
    "nn.TransformerEncoderLayer(8, 2)(lib.ones(3, 2, 8), is_causal=True)",
    "nn.Transformer(8, 2, 1, 1, 8)(lib.ones(3, 2, 8), lib.ones(3, 3, 8))",
    "nn.Transformer(8, 2, 1, 1, 8)(lib.ones(3, 2, 6), lib.ones(3, 2, 8))",
]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("expression", MISTAKES)
def test_mistakes(oracle, assert_same_failure, expression):
    assert_same_failure(
        lambda: eval(expression, {"nn": nn, "lib": rushlight}),
        lambda: eval(expression, {"nn": oracle.nn, "lib": oracle}),
    )
