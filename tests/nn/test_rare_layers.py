"""Layers and helpers that few programs use: fractional pooling, the adaptive softmax, conversions
and fusions of norms, spectral norm by a hook, attention as one function."""

import numpy
import pytest

import rushlight
from rushlight import nn

from .test_layers import build

F = nn.functional
FRACTIONAL = [
    (2, "3, output_size=4", (2, 3, 9, 8)),
    (2, "(2, 3), output_ratio=(0.5, 0.5)", (3, 9, 8)),
    (2, "2, output_size=(1, 5)", (1, 2, 6, 7)),
    (3, "2, output_size=(3, 2, 4)", (2, 2, 6, 5, 7)),
    (3, "(1, 2, 3), output_ratio=(0.4, 0.4, 0.4)", (2, 8, 9, 9)),
]


@pytest.mark.parametrize(("dims", "options", "shape"), FRACTIONAL)
def test_fractional_pooling(pair, dims, options, shape):
    x = pair.make(*shape, seed=1, requires_grad=True)
    batch = (1, shape[0]) if len(shape) == dims + 1 else shape[:2]
    samples = pair.make(*batch, dims, high=1.0, seed=4)
    found = [
        eval(f"f(x, {options}, return_indices=True, _random_samples=u)", {"f": f, "x": x, "u": u})
        for f, x, u in zip(
            (getattr(lib, f"fractional_max_pool{dims}d")
             for lib in (F, pair.oracle.nn.functional)), x, samples, strict=True
        )
    ]  # fmt: skip
    for ours, theirs in zip(*found, strict=True):
        pair.assert_same(ours, theirs)
    pair.assert_same_gradients(found[0][0], found[1][0], [x])


def test_fractional_pooling_draws():
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.6)
    x = rushlight.randn(4, 3, 20, 20)
    rushlight.manual_seed(0)
    first, second = layer(x), layer(x)
    assert first.shape == (4, 3, 12, 12) and first.tolist() != second.tolist()
    rushlight.manual_seed(0)
    assert layer(x).tolist() == first.tolist()


@pytest.mark.parametrize(
    "call",
    [
        "nn.FractionalMaxPool2d(2)",
        "nn.FractionalMaxPool2d(2, output_size=3, output_ratio=0.5)",
        "nn.FractionalMaxPool2d(2, output_ratio=1.5)",
        "nn.functional.fractional_max_pool2d(lib.ones(1, 1, 4, 4), 2)",
        "nn.FractionalMaxPool2d(3, output_size=4)(lib.ones(1, 1, 5, 5))",
        "nn.AdaptiveLogSoftmaxWithLoss(4, 5, [])",
        "nn.AdaptiveLogSoftmaxWithLoss(4, 5, [3, 2])",
        "nn.AdaptiveLogSoftmaxWithLoss(4, 5, [5])",
        "nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(lib.ones(2, 4), lib.tensor([0, 5]))",
        "nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(lib.ones(2, 4), lib.tensor([0]))",
        "nn.SyncBatchNorm(3)(lib.ones(3))",
        "nn.CrossMapLRN2d(3)(lib.ones(3))",
        "nn.utils.spectral_norm(nn.Linear(2, 3), n_power_iterations=0)",
        "nn.utils.spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 3)))",
        "nn.utils.remove_spectral_norm(nn.Linear(2, 3))",
        "nn.utils.fuse_conv_bn_eval(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))",
        "nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())",
    ],
)
def test_refusals(oracle, call):
    kinds = []
    for lib in (rushlight, oracle):
        with pytest.raises((ValueError, RuntimeError, AssertionError)) as caught:
            eval(call, {"nn": lib.nn, "lib": lib})
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("options", ["3", "4, 0.1, 0.6, 2.0", "5, 0.1"])
def test_local_response_across_maps(pair, options):
    ours, theirs = (eval(f"nn.CrossMapLRN2d({options})", {"nn": lib.nn})
                    for lib in (rushlight, pair.oracle))  # fmt: skip
    x = pair.make(2, 6, 3, 2, dtype="float64", requires_grad=True)
    pair.assert_same(ours(x[0]), theirs(x[1]))
    assert rushlight.autograd.gradcheck(ours, (x[0],))


@pytest.mark.parametrize("shape", [(7,), ()])
def test_adaptive_softmax(pair, shape):
    ours, theirs = build(pair, "nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], 2.0, head_bias=True)")
    x = pair.make(*shape, 8, seed=2, requires_grad=True)
    target = pair.make(*shape, high=12, dtype="int64", seed=3)
    a, b = ours(x[0], target[0]), theirs(x[1], target[1])
    pair.assert_same(a.output, b.output)
    pair.assert_same(a.loss, b.loss)
    if shape:
        pair.assert_same(ours.log_prob(x[0]), theirs.log_prob(x[1]))
        assert ours.predict(x[0]).tolist() == theirs.predict(x[1]).tolist()
    inputs = [x, *zip(ours.parameters(), theirs.parameters(), strict=True)]
    pair.assert_same_gradients(a.output, b.output, inputs)


def test_convert_sync_batchnorm():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3))).eval()
    norm = net[1][0]
    x, before = rushlight.randn(4, 2), net(rushlight.ones(4, 2)).tolist()
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert made is net and type(made[1][0]) is nn.SyncBatchNorm
    assert made[1][0].weight is norm.weight and not made[1][0].training
    assert made(rushlight.ones(4, 2)).tolist() == before and made(x).shape == (4, 3)
    with pytest.raises(NotImplementedError, match="process groups"):
        nn.SyncBatchNorm(3, process_group=object())


FUSED = [
    ("nn.Conv2d(3, 4, 2)", "nn.BatchNorm2d(4)", (2, 3, 5, 5)),
    ("nn.Conv1d(4, 4, 2, groups=2, bias=False)", "nn.BatchNorm1d(4, affine=False)", (2, 4, 5)),
    ("nn.ConvTranspose2d(3, 4, 2)", "nn.BatchNorm2d(4)", (2, 3, 5, 5)),
    ("nn.Linear(3, 4)", "nn.BatchNorm1d(4)", (5, 3)),
    ("nn.Linear(3, 4, bias=False)", "nn.BatchNorm1d(4, eps=0.1)", (5, 3)),
]


@pytest.mark.parametrize(("layer", "norm", "shape"), FUSED)
def test_fused_norms(layer, norm, shape):
    rushlight.manual_seed(0)
    layer, norm = eval(layer), eval(norm)
    for tensor in norm.state_dict().values():
        tensor.copy_(rushlight.rand(tensor.shape) + 0.5)
    layer.eval(), norm.eval()
    x = rushlight.randn(*shape)
    if isinstance(layer, nn.Linear):
        fused = nn.utils.fuse_linear_bn_eval(layer, norm)
    else:
        fused = nn.utils.fuse_conv_bn_eval(layer, norm, isinstance(layer, nn.ConvTranspose2d))
    assert type(fused) is type(layer) and fused.weight.requires_grad
    a, b = (y.detach().numpy() for y in (fused(x), norm(layer(x))))
    numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("expression", "shape"),
    [("nn.Linear(3, 4)", (2, 3)), ("nn.Conv2d(3, 4, 2)", (1, 3, 4, 4)),
     ("nn.ConvTranspose2d(3, 2, 2)", (1, 3, 4, 4))],
)  # fmt: skip
def test_spectral_hook(pair, expression, shape, training):
    ours, theirs = build(pair, f"nn.utils.spectral_norm({expression}, n_power_iterations=2)")
    for module in (ours, theirs):
        module.train(training)
    x = pair.make(*shape, seed=1, requires_grad=True)
    for _ in range(2):
        a, b = ours(x[0]), theirs(x[1])
        pair.assert_same(a, b)
    inputs = [x, (ours.weight_orig, theirs.weight_orig)]
    pair.assert_same_gradients(a, b, inputs, 1e-5)
    pair.assert_same(ours.weight_u, theirs.weight_u)
    nn.utils.remove_spectral_norm(ours)
    pair.oracle.nn.utils.remove_spectral_norm(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    pair.assert_same(ours.weight, theirs.weight)


def test_weights_in_a_memory_format():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2), nn.ConvTranspose2d(3, 4, 3))
    found = nn.utils.convert_conv2d_weight_memory_format(net, rushlight.channels_last)
    assert found is net
    for layer in (net[0], net[2]):
        assert layer.weight.is_contiguous(memory_format=rushlight.channels_last)
        assert type(layer.weight) is nn.Parameter
    cube = nn.Conv3d(3, 4, 2)
    nn.utils.convert_conv3d_weight_memory_format(cube, rushlight.channels_last_3d)
    assert cube.weight.is_contiguous(memory_format=rushlight.channels_last_3d)


ATTENTION = {
    "plain": {},
    "no weights": {"need_weights": False},
    "each head": {"average_attn_weights": False},
    "zero": {"add_zero_attn": True},
    "padding": {"key_padding_mask": True},
    "mask": {"attn_mask": True, "need_weights": False},
    "apart": {"use_separate_proj_weight": True},
    "static": {"static_k": True, "static_v": True},
    "more": {"bias_k": True, "bias_v": True},
}


@pytest.mark.parametrize("case", ATTENTION)
@pytest.mark.parametrize("batch", [(2,), ()])
def test_attention_as_a_function(pair, case, batch):
    width, heads, targets, sources = 6, 2, 3, 4
    query = pair.make(targets, *batch, width, seed=1, requires_grad=True)
    key = pair.make(sources, *batch, width, seed=2, requires_grad=True)
    joint = pair.make(3 * width, width, seed=3, requires_grad=True)
    bias, out = pair.make(3 * width, seed=4), pair.make(width, width, seed=5)
    count = batch[0] if batch else 1
    tensors = {
        "key_padding_mask": pair.of([[False, True, False, False]] * count, "bool"),
        "attn_mask": pair.make(targets, sources, seed=6),
        "static_k": pair.make(count * heads, sources, width // heads, seed=7),
        "static_v": pair.make(count * heads, sources, width // heads, seed=8),
        "bias_k": pair.make(1, 1, width, seed=9),
        "bias_v": pair.make(1, 1, width, seed=10),
    }
    if not batch:
        tensors["key_padding_mask"] = tuple(m[0] for m in tensors["key_padding_mask"])
    found = []
    for i, lib in enumerate((rushlight, pair.oracle)):
        options = {k: tensors[k][i] if k in tensors else v for k, v in ATTENTION[case].items()}
        if case == "apart":
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            options |= dict(zip(names, joint[i].chunk(3), strict=True))
        arguments = {
            "bias_k": None, "bias_v": None, "add_zero_attn": False, "dropout_p": 0.0,
            "out_proj_weight": out[i], "out_proj_bias": None, "in_proj_bias": bias[i],
            "in_proj_weight": None if case == "apart" else joint[i],
        } | options  # fmt: skip
        call = lib.nn.functional.multi_head_attention_forward
        found.append(call(query[i], key[i], key[i], width, heads, **arguments))
    pair.assert_same(found[0][0], found[1][0])
    assert (found[0][1] is None) == (found[1][1] is None)
    if found[0][1] is not None:
        pair.assert_same(found[0][1], found[1][1])
    inputs = [query, joint] if case == "static" else [query, key, joint]
    pair.assert_same_gradients(found[0][0], found[1][0], inputs, 5e-6)


COMPILED = {
    "lambda x: F.fractional_max_pool2d(x, 2, 3, _random_samples=U)": (1, 2, 6, 6),
    "lambda x: nn.functional.conv_tbc(x, W, B)": (5, 2, 3),
    "nn.CrossMapLRN2d(3)": (2, 5, 4, 2),
    "nn.SyncBatchNorm(3)": (4, 3),
    "nn.utils.spectral_norm(nn.Linear(3, 2))": (4, 3),
    "lambda x: F.multi_head_attention_forward(x, x, x, 4, 2, P, None, None, None, False, 0.0, "
    "P[:4], None)[0]": (3, 2, 4),
}


@pytest.mark.parametrize("expression", COMPILED)
def test_in_one_graph(expression):
    rushlight.manual_seed(0)
    names = {"nn": nn, "F": F, "U": rushlight.rand(1, 2, 2), "W": rushlight.randn(2, 3, 4)}
    names |= {"B": rushlight.randn(4), "P": rushlight.randn(12, 4)}
    function, x = eval(expression, names), rushlight.randn(*COMPILED[expression])
    if isinstance(function, nn.Module):
        function(x)
        state = {k: v.clone() for k, v in function.state_dict().items()}
    plain = function(x)
    if isinstance(function, nn.Module):
        function.load_state_dict(state)
    found = rushlight.compile(function, backend="eager", fullgraph=True)(x)
    numpy.testing.assert_allclose(found.detach().numpy(), plain.detach().numpy(), rtol=1e-6)
