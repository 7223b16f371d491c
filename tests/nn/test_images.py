"""Convolution, pooling and normalisation over channels, as modules and as functions: values,
gradients, buffers, failures and text are the oracle's."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import rushlight
from rushlight import _core, nn
from rushlight.nn import functional as F

from .test_layers import build

LAYERS = {
    "nn.ZeroPad2d((1, 2, 0, 3))": (2, 3, 4, 5),
    "nn.ConstantPad1d(2, 3.5)": (2, 3, 5),
    "nn.ReflectionPad2d((1, 2, 0, 3))": (2, 3, 4, 5),
    "nn.ReplicationPad1d(2)": (2, 3, 5),
    "nn.ReplicationPad3d(1)": (1, 2, 3, 2, 3),
    "nn.CircularPad2d((1, 2, 0, 3))": (2, 3, 4, 5),
    "nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode='reflect')": (2, 3, 5, 6),
    "nn.Conv2d(3, 4, (2, 3), padding='same', padding_mode='replicate')": (2, 3, 5, 6),
    "nn.Conv1d(3, 4, 3, padding=2, padding_mode='circular', bias=False)": (2, 3, 5),
    "nn.Conv1d(3, 4, 3)": (2, 3, 9),
    "nn.Conv1d(4, 4, 3, stride=2, padding=1, dilation=2, groups=4, bias=False)": (2, 4, 9),
    "nn.Conv2d(3, 4, 3)": (2, 3, 6, 7),
    "nn.Conv2d(3, 4, (2, 3), (2, 1), (1, 0), groups=1)": (3, 6, 7),
    "nn.Conv2d(4, 6, 3, padding='same', dilation=(1, 2), groups=2)": (2, 4, 6, 7),
    "nn.Conv2d(4, 6, 2, padding='valid')": (2, 4, 6, 7),
    "nn.Conv3d(2, 3, 2, padding=1)": (1, 2, 3, 4, 3),
    "nn.ConvTranspose1d(3, 4, 3, 2, 1, 1)": (2, 3, 5),
    "nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=1)": (2, 4, 4, 3),
    "nn.ConvTranspose2d(3, 2, 3, dilation=2, output_padding=1)": (2, 3, 4, 3),
    "nn.ConvTranspose3d(2, 3, 2, 2, bias=False)": (1, 2, 2, 3, 2),
    "nn.MaxPool1d(3, 2, 1)": (2, 3, 9),
    "nn.MaxPool2d(2)": (2, 3, 6, 7),
    "nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True)": (3, 7, 8),
    "nn.MaxPool3d(2, 1)": (1, 2, 3, 4, 3),
    "nn.AvgPool1d(3, 2, 1)": (2, 3, 9),
    "nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)": (2, 3, 7, 8),
    "nn.AvgPool2d(2, divisor_override=3)": (2, 3, 7, 8),
    "nn.AvgPool3d(2)": (1, 2, 3, 4, 3),
    "nn.LPPool1d(2, 3)": (2, 3, 9),
    "nn.LPPool2d(2, (2, 3), 1)": (2, 3, 6, 7),
    "nn.AdaptiveMaxPool1d(4)": (2, 3, 9),
    "nn.AdaptiveMaxPool2d((3, None))": (2, 3, 7, 5),
    "nn.AdaptiveAvgPool1d(4)": (2, 3, 9),
    "nn.AdaptiveAvgPool2d((None, 3))": (2, 3, 7, 5),
    "nn.AdaptiveAvgPool2d(1)": (2, 3, 7, 5),
    "nn.AdaptiveAvgPool3d((2, 1, 3))": (1, 2, 3, 4, 3),
    "nn.BatchNorm1d(4)": (5, 4),
    "nn.BatchNorm1d(4, eps=0.01, momentum=0.3)": (3, 4, 5),
    "nn.BatchNorm1d(4, affine=False)": (5, 4),
    "nn.BatchNorm2d(4, momentum=None)": (2, 4, 3, 5),
    "nn.BatchNorm2d(4, track_running_stats=False)": (2, 4, 3, 5),
    "nn.BatchNorm2d(4).eval()": (2, 4, 3, 5),
    "nn.BatchNorm2d(4, affine=False).eval()": (2, 4, 3, 5),
    "nn.BatchNorm3d(4)": (2, 4, 2, 3, 2),
    "nn.InstanceNorm1d(4)": (2, 4, 5),
    "nn.InstanceNorm1d(4, affine=True)": (4, 5),
    "nn.InstanceNorm2d(4, affine=True, track_running_stats=True)": (2, 4, 3, 5),
    "nn.InstanceNorm2d(4, affine=True, track_running_stats=True).eval()": (2, 4, 3, 5),
    "nn.BatchNorm2d(4, bias=False)": (2, 4, 3, 5),
    "nn.GroupNorm(2, 4, bias=False)": (2, 4, 3, 5),
    "nn.GroupNorm(2, 4)": (2, 4, 3, 5),
    "nn.GroupNorm(4, 4, eps=0.01)": (2, 4, 5),
    "nn.GroupNorm(1, 4, affine=False)": (3, 4),
    "nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))": (
        4,
        3,
        8,
        8,
    ),
}


@pytest.mark.parametrize("expression", LAYERS)
def test_values_gradients_and_buffers(pair, expression):
    ours, theirs = build(pair, expression)
    for _ in range(2):  # the second step moves the buffers of the first
        x = pair.make(*LAYERS[expression], seed=5, requires_grad=True)
        a, b = ours(x[0]), theirs(x[1])
        pair.assert_same(a, b, 1e-5)
        assert tuple(a.stride()) == tuple(b.stride())
        inputs = [x, *zip(ours.parameters(), theirs.parameters())]
        for p in (*ours.parameters(), *theirs.parameters()):
            p.grad = None
        pair.assert_same_gradients(a, b, inputs, 2e-5)
    for (name, mine), (other, want) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        assert name == other
        pair.assert_same(mine, want, 1e-5)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("expression", ["nn.Conv2d(3, 4, 3)", "nn.BatchNorm2d(3)"])
def test_copies_and_pickles(expression):
    layer = eval(expression)
    x = rushlight.randn(2, 3, 5, 5)
    layer.eval()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is type(layer)
        assert rushlight.equal(other(x), layer(x))


def test_initialisation_has_the_oracles_bounds():
    conv = nn.Conv2d(8, 16, 3, groups=2)
    bound = (1 / (4 * 9)) ** 0.5
    for p in (conv.weight, conv.bias):
        values = p.detach().numpy()
        assert np.abs(values).max() <= bound and np.abs(values).max() > 0.8 * bound
    norm = nn.BatchNorm2d(3)
    assert norm.weight.tolist() == [1, 1, 1] and norm.bias.tolist() == [0, 0, 0]
    assert norm.num_batches_tracked.dtype == rushlight.int64


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_over_many_batches(pair, momentum):
    ours = nn.BatchNorm1d(3, momentum=momentum)
    theirs = pair.oracle.nn.BatchNorm1d(3, momentum=momentum)
    for step in range(6):
        a, b = pair.make(4, 3, seed=step)
        ours(a), theirs(b)
    pair.assert_same(ours.running_mean, theirs.running_mean)
    pair.assert_same(ours.running_var, theirs.running_var)
    assert ours.num_batches_tracked.item() == theirs.num_batches_tracked.item() == 6


def test_half_inputs_keep_float32_statistics(pair):
    x, y = pair.make(4, 3, 5, dtype="bfloat16")
    ours, theirs = nn.BatchNorm1d(3), pair.oracle.nn.BatchNorm1d(3)
    a, b = ours(x), theirs(y)
    pair.assert_same(a, b, 2e-2)
    pair.assert_same(ours.running_mean, theirs.running_mean, 1e-4)


FAILURES = [
    "F.conv2d(x(1, 2, 8, 8), x(4, 3, 3, 3))",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), x(3))",
    "F.conv2d(x(1, 4, 8, 8), x(4, 2, 3, 3), None, 1, 0, 1, 3)",
    "F.conv2d(x(1, 4, 8, 8), x(1, 2, 3, 3), None, 1, 0, 1, 2)",
    "F.conv2d(x(1, 3, 2, 2), x(4, 3, 3, 3))",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 0)",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 1, -1)",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 1, 0, 0)",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, (1, 1, 1))",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 2, 'same')",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 1, 'other')",
    "F.conv2d(x(3, 8), x(4, 3, 3, 3))",
    "F.conv2d(x(1, 3, 8, 8).double(), x(4, 3, 3, 3))",
    "F.conv2d(x(1, 3, 8, 8), x(4, 3, 3, 3), None, 1, 0, 1, 0)",
    "F.conv_transpose2d(x(1, 3, 4, 4), x(2, 3, 3, 3))",
    "F.conv_transpose2d(x(1, 3, 4, 4), x(3, 2, 3, 3), None, 1, 0, 1)",
    "F.conv_transpose2d(x(1, 3, 1, 1), x(3, 2, 2, 2), None, 1, 2)",
    "F.max_pool2d(x(1, 3, 4, 4), 2, 2, 2)",
    "F.max_pool2d(x(1, 3, 4, 4), 5)",
    "F.max_pool2d(x(1, 3, 4, 4), 2, 0)",
    "F.max_pool2d(x(1, 3, 4, 4), (2, 2, 2))",
    "F.max_pool2d(x(4, 4), 2)",
    "F.max_pool2d(x(1, 0, 4, 4), 2)",
    "F.avg_pool2d(x(1, 3, 4, 4), 2, divisor_override=0)",
    "F.avg_pool2d(x(1, 3, 4, 4), 2, padding=2)",
    "F.adaptive_avg_pool2d(x(1, 3, 0, 4), 2)",
    "F.adaptive_avg_pool2d(x(1, 3, 4, 4), -1)",
    "F.adaptive_max_pool2d(x(4, 4), 2)",
    "F.max_unpool2d(x(1, 1, 2, 2), ids(1, 1, 2, 2) + 40, 2)",
    "F.batch_norm(x(4, 3), x(4), x(4))",
    "F.batch_norm(x(4, 3), None, None)",
    "F.batch_norm(x(1, 3), None, None, training=True)",
    "F.batch_norm(x(4, 3), x(3), x(3), x(4), x(4))",
    "F.instance_norm(x(4, 3, 1))",
    "F.group_norm(x(2, 5, 3), 2)",
    "F.group_norm(x(2, 4, 3), 2, x(5))",
    "nn.Conv2d(3, 4, 3, groups=2)",
    "nn.Conv2d(4, 3, 3, groups=2)",
    "nn.Conv2d(4, 4, 3, groups=0)",
    "nn.Conv2d(4, 4, 3, padding='other')",
    "nn.Conv2d(4, 4, 3, 2, padding='same')",
    "nn.Conv2d(4, 4, 3, padding_mode='other')",
    "nn.ConvTranspose2d(4, 4, 3, padding_mode='reflect')",
    "nn.ConvTranspose2d(3, 4, 3, 2)(x(1, 3, 4, 4), (20, 9))",
    "nn.BatchNorm2d(3)(x(4, 3))",
    "nn.InstanceNorm2d(3, affine=True)(x(1, 4, 4, 4))",
    "nn.GroupNorm(3, 4)",
]


@pytest.mark.parametrize("expression", FAILURES)
def test_failures_are_of_the_oracles_kind(oracle, expression):
    def fails(library, functional, modules):
        def x(*shape):
            return library.ones(shape)

        def ids(*shape):
            return library.zeros(shape, dtype=library.int64)

        with pytest.raises(Exception) as caught:
            eval(expression, {"F": functional, "nn": modules, "x": x, "ids": ids})
        return caught

    ours = fails(rushlight, F, nn)
    theirs = fails(oracle, oracle.nn.functional, oracle.nn)
    assert ours.type is theirs.type or issubclass(ours.type, theirs.type), (ours, theirs)
    assert not str(ours.value).startswith("[assert")


def test_channels_and_sizes_stand_in_the_message():
    with pytest.raises(RuntimeError) as caught:
        F.conv2d(rushlight.ones(1, 2, 8, 8), rushlight.ones(4, 3, 3, 3))
    text = str(caught.value)
    assert "weight of [4, 3, 3, 3] take 3 channels" in text and "[1, 2, 8, 8] has 2" in text


def test_unpooling_puts_back_what_pooling_took(pair):
    x, y = pair.make(2, 3, 6, 6, requires_grad=True)
    a, places = F.max_pool2d(x, 2, return_indices=True)
    b, there = pair.oracle.nn.functional.max_pool2d(y, 2, return_indices=True)
    assert places.tolist() == there.tolist()
    up = nn.MaxUnpool2d(2)(a, places)
    want = pair.oracle.nn.MaxUnpool2d(2)(b, there)
    pair.assert_same(up, want)
    pair.assert_same_gradients(up, want, [(x, y)])


def test_transposed_convolution_reaches_a_given_size(pair):
    ours, theirs = build(pair, "nn.ConvTranspose2d(3, 4, 3, 2, 1)")
    x, y = pair.make(2, 3, 4, 5)
    pair.assert_same(ours(x, (8, 9)), theirs(y, [8, 9]), 1e-5)


def test_nan_and_ties_in_windows(oracle):
    nan = float("nan")
    rows = [[1.0, 1.0, nan, 2.0], [0.0, 1.0, 3.0, nan], [-np.inf] * 4, [5.0, 5.0, 5.0, 5.0]]
    for size in (2, 3):
        a, i = F.max_pool2d(rushlight.tensor([rows]), size, 1, 1, return_indices=True)
        b, j = oracle.nn.functional.max_pool2d(
            oracle.tensor([rows]), size, 1, 1, return_indices=True
        )
        assert np.array_equal(a.numpy(), b.numpy(), equal_nan=True)
        assert i.tolist() == j.tolist()


def test_empty_batches():
    x = rushlight.ones(0, 3, 6, 6, requires_grad=True)
    conv = nn.Conv2d(3, 4, 3)
    y = F.max_pool2d(nn.BatchNorm2d(4).eval()(conv(x)), 2)
    assert tuple(y.shape) == (0, 4, 2, 2)
    y.sum().backward()
    assert tuple(x.grad.shape) == (0, 3, 6, 6)
    assert np.array_equal(conv.weight.grad.numpy(), np.zeros((4, 3, 3, 3)))


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize(
    "shape, outs, kernel, options",
    (
        ((2, 8, 9, 11), 8, (3, 3), {"padding": 1}),
        ((2, 4, 9, 35), 8, (3, 3), {"stride": 2, "padding": 1}),
        ((1, 3, 7, 20), 3, (5, 3), {"dilation": (1, 2), "padding": (2, 5), "stride": (1, 3)}),
        ((2, 3, 40), 3, (4,), {"padding": 2}),
        ((1, 2, 4, 5, 6), 4, (2, 3, 1), {"stride": (1, 2, 2), "padding": 1}),
    ),
)
def test_a_kernel_for_each_channel(oracle, dtype, shape, outs, kernel, options):
    generator = np.random.default_rng(3)
    groups, name = shape[1], f"conv{len(kernel)}d"
    arrays = [
        generator.standard_normal(s).astype(dtype) for s in (shape, (outs, 1, *kernel), (outs,))
    ]
    results = []
    for torch in (rushlight, oracle):
        x, w, b = (torch.from_numpy(a.copy()).requires_grad_() for a in arrays)
        y = getattr(torch.nn.functional, name)(x, w, b, groups=groups, **options)
        g = torch.from_numpy(np.random.default_rng(4).standard_normal(tuple(y.shape)).astype(dtype))
        y.backward(g)
        back = getattr(torch.nn.functional, "conv_transpose" + name[4:])(
            g, w, groups=groups, **options
        )
        results.append([v.detach().numpy() for v in (y, x.grad, w.grad, b.grad, back)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


MIXED = """
import rushlight as rl
x = rl.randn(4, 3, 64, 64)
w = rl.randn(64, 3, 16, 16, requires_grad=True)
for x in (x, x.to(memory_format=rl.channels_last)):
    y = rl.nn.functional.conv2d(x, w, stride=16)  # a patch embedding
    for g in (rl.ones(4, 64, 4, 4), rl.ones(4, 4, 4, 64).permute(0, 3, 1, 2)):
        print("alike" if g.is_contiguous() == x.is_contiguous() else "mixed", flush=True)
        rl.autograd.grad(y, w, g, retain_graph=True)
"""


@pytest.mark.skipif(
    _core.packed_bytes(rushlight.float32, 64, 64) < 0, reason="oneDNN is not installed"
)
def test_gradients_that_lie_otherwise_get_no_plain_loops():
    """The library says what it runs: nothing worse where input and gradient lie differently."""
    done = subprocess.run(
        [sys.executable, "-c", MIXED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
    )
    slow, ran, now = {"alike": 0, "mixed": 0}, {"alike": 0, "mixed": 0}, None
    for line in done.stdout.splitlines():
        if line in slow:
            now = line
        elif ",convolution," in line and "backward" in line:
            ran[now] += 1
            slow[now] += ",convolution,ref" in line
    assert ran == {"alike": 2, "mixed": 2}, done.stdout
    if slow["alike"]:
        pytest.skip("the library has nothing better on this processor")
    assert not slow["mixed"], done.stdout


@pytest.mark.oracle
@pytest.mark.parametrize("geometry", [(8, 10, 3, 1, 0, 8), (8, 12, 5, 2, 2, 8), (2, 6, 3, 1, 0, 1)])
def test_an_infinity_touches_its_own_taps_alone(oracle, geometry):
    c, h, k, stride, padding, groups = geometry
    x = np.random.default_rng(0).standard_normal((2, c, h, h)).astype("float32")
    x[0, 1, 3, h - 1] = np.inf
    found = []
    for m in (rushlight, oracle):
        w = m.ones(c, c // groups, k, k, requires_grad=True)
        y = m.nn.functional.conv2d(m.tensor(x), w, stride=stride, padding=padding, groups=groups)
        found.append(m.autograd.grad(y, w, m.ones(*y.shape))[0].numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)
