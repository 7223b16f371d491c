"""Layers with the oracle's weights: the same values and gradients."""

import pytest

import rushlight
from rushlight import nn

PAIRS = {
    "nn.Bilinear(3, 4, 5)": ((2, 6, 3), (2, 6, 4)),
    "nn.Bilinear(3, 4, 5, bias=False)": ((6, 3), (6, 4)),
    "nn.CosineSimilarity(dim=0)": ((4, 3), (4, 3)),
    "nn.PairwiseDistance(p=1.0)": ((4, 3), (4, 3)),
    "nn.MSELoss(reduction='sum')": ((4, 3), (4, 3)),
    "nn.KLDivLoss(reduction='batchmean', log_target=True)": ((4, 3), (4, 3)),
    "nn.MultiLabelSoftMarginLoss()": ((4, 3), (4, 3)),
    "nn.PoissonNLLLoss()": ((4, 3), (4, 3)),
}
TRIPLES = {
    "nn.TripletMarginLoss(p=1.0, swap=True)": (4, 3),
    "nn.TripletMarginWithDistanceLoss(margin=2.0)": (4, 3),
    "nn.MarginRankingLoss(0.2)": (4,),
}

LAYERS = {
    "nn.Linear(5, 3)": (4, 5),
    "nn.Linear(5, 3, bias=False)": (2, 4, 5),
    "nn.Linear(5, 1)": (5,),
    "nn.LayerNorm(5)": (3, 5),
    "nn.LayerNorm((4, 5), eps=0.01)": (3, 4, 5),
    "nn.LayerNorm(5, bias=False)": (3, 5),
    "nn.LayerNorm(5, elementwise_affine=False)": (3, 5),
    "nn.RMSNorm(5)": (3, 5),
    "nn.RMSNorm((4, 5), eps=0.1)": (2, 4, 5),
    "nn.GELU()": (3, 5),
    "nn.GELU('tanh')": (3, 5),
    "nn.ReLU()": (3, 5),
    "nn.ReLU6()": (30, 5),
    "nn.Hardtanh(-0.5, 0.25)": (3, 5),
    "nn.SiLU()": (3, 5),
    "nn.LeakyReLU(0.1)": (3, 5),
    "nn.ELU(0.7)": (3, 5),
    "nn.Softplus(2.0, 1.0)": (3, 5),
    "nn.Tanh()": (3, 5),
    "nn.Sigmoid()": (3, 5),
    "nn.LogSigmoid()": (3, 5),
    "nn.Softmax(1)": (3, 5),
    "nn.Softmin(0)": (3, 5),
    "nn.LogSoftmax(-1)": (3, 5),
    "nn.Identity()": (3, 5),
    "nn.Flatten()": (2, 3, 4),
    "nn.Flatten(0, 1)": (2, 3, 4),
    "nn.Unflatten(1, (2, -1))": (2, 6),
    "nn.Dropout(0.0)": (3, 5),
    "nn.Threshold(0.1, 2.0)": (3, 5),
    "nn.RReLU().eval()": (3, 5),
    "nn.Hardsigmoid()": (30, 5),
    "nn.Hardswish()": (30, 5),
    "nn.Mish()": (3, 5),
    "nn.SELU()": (3, 5),
    "nn.CELU(0.7)": (3, 5),
    "nn.GLU(0)": (4, 5),
    "nn.Hardshrink()": (3, 5),
    "nn.Softshrink()": (3, 5),
    "nn.Softsign()": (3, 5),
    "nn.Tanhshrink()": (3, 5),
    "nn.PReLU()": (3, 5),
    "nn.PReLU(5)": (3, 5),
    "nn.Softmax2d()": (2, 3, 4, 5),
    "nn.LocalResponseNorm(3)": (2, 5, 4),
    "nn.SyncBatchNorm(4)": (3, 4, 2),
    "nn.SyncBatchNorm(5, affine=False).eval()": (3, 5),
    "nn.Hardtanh(min_value=-0.5, max_value=0.25)": (3, 5),
    "nn.PixelShuffle(2)": (1, 8, 2, 3),
    "nn.PixelUnshuffle(2)": (1, 2, 4, 6),
    "nn.ChannelShuffle(2)": (2, 4, 3),
    "nn.AlphaDropout(0.3).eval()": (3, 5),
    "nn.Dropout2d(0.0)": (2, 3, 4, 5),
    "nn.Linear(5, 3, dtype=None, device='cpu')": (4, 5),
    "nn.Dropout(0.5).eval()": (3, 5),
    "nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))": (4, 5),
}


def build(pair, expression):
    """The layer in both libraries, with one set of weights."""
    theirs = eval(expression, {"nn": pair.oracle.nn})
    ours = eval(expression, {"nn": nn})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    state = {}
    for i, (key, tensor) in enumerate(theirs.state_dict().items()):
        state[key], value = pair.make(*tensor.shape, seed=i)
        tensor.copy_(value)
    ours.load_state_dict(state)
    return ours, theirs


@pytest.mark.filterwarnings("ignore:(keyword argument|.activation)")
@pytest.mark.parametrize("expression", LAYERS)
def test_values_and_gradients(pair, expression):
    ours, theirs = build(pair, expression)
    x = pair.make(*LAYERS[expression], seed=5, requires_grad=True)
    a, b = ours(x[0]), theirs(x[1])
    pair.assert_same(a, b)
    inputs = [x, *zip(ours.parameters(), theirs.parameters(), strict=True)]
    pair.assert_same_gradients(a, b, inputs, 5e-6)


@pytest.mark.parametrize("padding_idx", [None, 0, -1])
def test_embedding(pair, padding_idx):
    ours, theirs = build(pair, f"nn.Embedding(7, 3, padding_idx={padding_idx})")
    ids = pair.make(4, 5, high=7, dtype="int64")
    a, b = ours(ids[0]), theirs(ids[1])
    pair.assert_same(a, b)
    pair.assert_same_gradients(a, b, [(ours.weight, theirs.weight)])


def test_embedding_from_pretrained():
    table = rushlight.ones(4, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer.weight.data_ptr() == table.data_ptr()
    assert nn.Embedding.from_pretrained(table, freeze=False, padding_idx=1).weight.requires_grad


def test_embedding_padding_row_starts_as_zeros():
    assert nn.Embedding(3, 2, padding_idx=1).weight[1].tolist() == [0.0, 0.0]
    with pytest.raises(AssertionError, match="Padding_idx must be within num_embeddings"):
        nn.Embedding(3, 2, padding_idx=3)


@pytest.mark.parametrize("id", [-1, 7])
def test_embedding_id_out_of_range(id):
    with pytest.raises(IndexError):
        nn.Embedding(7, 2)(rushlight.tensor([0, id]))


def test_dropout_drops_and_scales():
    rushlight.manual_seed(0)
    layer = nn.Dropout(0.25)
    x = rushlight.ones(20000).requires_grad_()
    y = layer(x)
    kept = sum(v > 0 for v in y.tolist())
    assert abs(kept / 20000 - 0.75) < 0.02
    assert all(v == 0 or abs(v - 4 / 3) < 1e-6 for v in y.tolist())
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert layer.eval()(x) is x


def test_all_or_nothing_dropout():
    x = rushlight.ones(10)
    assert nn.Dropout(1.0)(x).tolist() == [0.0] * 10
    assert nn.Dropout(0.0)(x).tolist() == [1.0] * 10
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


@pytest.mark.parametrize("layer", ["ReLU", "SiLU", "LeakyReLU", "ELU", "ReLU6", "Hardtanh"])
def test_inplace_writes_over_the_input(pair, layer):
    x = pair.make(3, 4, requires_grad=True)
    a, b = x[0] * 2, x[1] * 2
    left, right = (
        getattr(nn, layer)(inplace=True)(a),
        getattr(pair.oracle.nn, layer)(inplace=True)(b),
    )
    assert left is a
    pair.assert_same(left, right)
    pair.assert_same_gradients(left, right, [x])


def test_inplace_dropout():
    x = rushlight.ones(100)
    assert nn.Dropout(0.5, inplace=True)(x) is x
    assert 0.0 in x.tolist()


@pytest.mark.parametrize(
    ("expression", "shape"),
    [("nn.Linear(3, 2)", (4, 5)), ("nn.LayerNorm(3)", (4, 5)), ("nn.RMSNorm(3)", (4, 5))],
)
def test_wrong_sizes(expression, shape):
    with pytest.raises(RuntimeError):
        eval(expression)(rushlight.ones(shape))


def test_flatten_of_bad_dims():
    with pytest.raises(IndexError, match="dim 5 is out of range: -2 to 1"):
        nn.Flatten(1, 5)(rushlight.ones(2, 3))
    with pytest.raises(RuntimeError, match="start_dim cannot come after end_dim"):
        nn.Flatten(1, 0)(rushlight.ones(2, 3))


def test_starting_values():
    """Linear starts in +-1/sqrt(in), LayerNorm as the identity."""
    rushlight.manual_seed(1)
    layer = nn.Linear(16, 200)
    for tensor in (layer.weight, layer.bias):
        values = tensor.reshape(-1).tolist()
        assert max(map(abs, values)) <= 0.25
        assert max(values) > 0.2 and min(values) < -0.2
    norm = nn.LayerNorm(4)
    assert norm.weight.tolist() == [1.0] * 4 and norm.bias.tolist() == [0.0] * 4


@pytest.mark.parametrize("expression", [*PAIRS, *TRIPLES])
def test_modules_of_several_inputs(pair, expression):
    ours, theirs = build(pair, expression)
    shapes = PAIRS.get(expression) or (TRIPLES[expression],) * 3
    inputs = [pair.make(*s, seed=i, requires_grad=True) for i, s in enumerate(shapes)]
    a, b = ours(*(x[0] for x in inputs)), theirs(*(x[1] for x in inputs))
    pair.assert_same(a, b, 2e-6)
    inputs += zip(ours.parameters(), theirs.parameters(), strict=True)
    pair.assert_same_gradients(a, b, inputs, 1e-5)


@pytest.mark.parametrize("options", [{}, {"mode": "sum", "padding_idx": 1}, {"mode": "max"}])
def test_embedding_bag(pair, options):
    ours, theirs = build(pair, f"nn.EmbeddingBag(7, 3, **{options})")
    ids = pair.make(8, high=7, dtype="int64")
    starts = pair.of([0, 3, 3], "int64")
    a, b = ours(ids[0], starts[0]), theirs(ids[1], starts[1])
    pair.assert_same(a, b)
    pair.assert_same_gradients(a, b, [(ours.weight, theirs.weight)])
    assert not nn.EmbeddingBag.from_pretrained(rushlight.ones(3, 2)).weight.requires_grad
    with pytest.raises(IndexError):
        ours(rushlight.tensor([[7]]))
