"""Modules print exactly as the oracle's."""

import pytest

import rushlight
from rushlight import nn

EXPRESSIONS = """
nn.Linear(3, 4)
nn.Linear(3, 4, bias=False)
nn.Embedding(10, 3)
nn.Embedding(10, 3, padding_idx=-1)
nn.LayerNorm(4)
nn.LayerNorm((2, 3), eps=1e-12, bias=False)
nn.LayerNorm(4, elementwise_affine=False)
nn.RMSNorm(4)
nn.RMSNorm((2, 4), eps=1e-6, elementwise_affine=False)
nn.Dropout()
nn.Dropout(0.1, inplace=True)
nn.GELU()
nn.GELU('tanh')
nn.ReLU()
nn.ReLU(inplace=True)
nn.ReLU6()
nn.Hardtanh(-2.0, 2.0)
nn.SiLU()
nn.SiLU(inplace=True)
nn.LeakyReLU()
nn.LeakyReLU(0.2, True)
nn.ELU()
nn.Softplus()
nn.Tanh()
nn.Sigmoid()
nn.LogSigmoid()
nn.Softmax(dim=1)
nn.Softmin(dim=0)
nn.LogSoftmax(dim=-1)
nn.Identity(3, key=4)
nn.Flatten()
nn.Unflatten(1, (2, 3))
nn.CrossEntropyLoss()
nn.MSELoss()
nn.NLLLoss()
nn.L1Loss()
nn.BCEWithLogitsLoss()
nn.HuberLoss()
nn.Threshold(0.1, 20)
nn.RReLU(0.1, 0.3)
nn.Hardsigmoid()
nn.Hardswish(True)
nn.Mish()
nn.SELU(inplace=True)
nn.CELU(0.5)
nn.GLU(0)
nn.Hardshrink(0.3)
nn.Softshrink()
nn.Softsign()
nn.Tanhshrink()
nn.PReLU(3)
nn.Softmax2d()
nn.Dropout1d(0.2)
nn.Dropout2d()
nn.Dropout3d()
nn.AlphaDropout(0.1)
nn.FeatureAlphaDropout()
nn.Bilinear(2, 3, 4)
nn.EmbeddingBag(4, 3, mode='sum')
nn.EmbeddingBag(4, 3, max_norm=1.0, norm_type=1.0, padding_idx=1)
nn.Embedding(4, 3, max_norm=1.0, norm_type=3.0, scale_grad_by_freq=True)
nn.PixelShuffle(2)
nn.PixelUnshuffle(2)
nn.ChannelShuffle(2)
nn.LocalResponseNorm(2)
nn.CosineSimilarity()
nn.PairwiseDistance()
nn.PoissonNLLLoss()
nn.GaussianNLLLoss()
nn.TripletMarginLoss()
nn.TripletMarginWithDistanceLoss()
nn.CosineEmbeddingLoss()
nn.MultiMarginLoss()
nn.MultiheadAttention(8, 2, add_bias_kv=True)
nn.TransformerEncoderLayer(8, 2, 16)
nn.TransformerDecoderLayer(8, 2, 16, activation=nn.GELU())
nn.Transformer(8, 2, 1, 1, 16)
nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, bias=False), 2)
nn.Sequential()
nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))
nn.ModuleList()
nn.ModuleList([nn.Linear(2, 3)])
nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 3)])
nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.GELU()) for _ in range(3)])
nn.ModuleDict({'a': nn.Linear(2, 3), 'b': nn.ModuleList([nn.ReLU(), nn.ReLU()])})
nn.ParameterList([lib.ones(2, 3), lib.ones(())])
nn.ParameterDict({'b': lib.ones(2), 'a': lib.ones(1)})
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_repr(oracle, expression):
    ours = eval(expression, {"nn": nn, "lib": rushlight})
    theirs = eval(expression, {"nn": oracle.nn, "lib": oracle})
    assert repr(ours).replace("rushlight.", "torch.") == repr(theirs)


def test_a_module_of_ones_own():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2)
            self.nothing = None
            self.second = nn.ReLU()

        def extra_repr(self):
            return "width=2\ndepth=1"

    assert repr(Block()) == (
        "Block(\n"
        "  width=2\n"
        "  depth=1\n"
        "  (first): Linear(in_features=2, out_features=2, bias=True)\n"
        "  (second): ReLU()\n"
        ")"
    )


def test_parameter():
    assert repr(nn.Parameter(rushlight.ones(2))).startswith("Parameter containing:\n")
