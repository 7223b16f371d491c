"""Memory formats: who lies how, and what keeps it."""

import pickle

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5)]
)
def test_strides_are_the_oracles(oracle, shape):
    x, y = rl.zeros(shape), oracle.zeros(shape)
    for name in ("contiguous_format", "channels_last"):
        ours, theirs = getattr(rl, name), getattr(oracle, name)
        for a, b in (
            (x.contiguous(memory_format=ours), y.contiguous(memory_format=theirs)),
            (x.to(memory_format=ours), y.to(memory_format=theirs)),
            (x.to(rl.float64, memory_format=ours), y.to(oracle.float64, memory_format=theirs)),
            (rl.empty(shape, memory_format=ours), oracle.empty(shape, memory_format=theirs)),
            (rl.empty_like(x, memory_format=ours), oracle.empty_like(y, memory_format=theirs)),
        ):
            assert a.is_contiguous(memory_format=ours) and b.is_contiguous(memory_format=theirs)
            assert a.is_contiguous() == b.is_contiguous()
            if a.numel():
                mine = [s for s, n in zip(a.stride(), shape) if n != 1]
                assert mine == [s for s, n in zip(b.stride(), shape) if n != 1]


def test_three_spatial_dims(oracle):
    a = rl.zeros(2, 3, 4, 5, 6).contiguous(memory_format=rl.channels_last_3d)
    b = oracle.zeros(2, 3, 4, 5, 6).contiguous(memory_format=oracle.channels_last_3d)
    assert a.stride() == b.stride() and a.is_contiguous(memory_format=rl.channels_last_3d)


def test_values_and_gradients_go_through():
    x = rl.arange(24.0).view(1, 2, 3, 4).requires_grad_()
    y = x.contiguous(memory_format=rl.channels_last)
    assert y.tolist() == x.tolist() and y.stride() == (24, 1, 8, 2)
    y.sum().backward()
    assert x.grad.tolist() == rl.ones(1, 2, 3, 4).tolist()
    assert y.contiguous(memory_format=rl.channels_last) is y


def test_refusals():
    with pytest.raises(RuntimeError, match="required rank 4"):
        rl.zeros(2, 3).contiguous(memory_format=rl.channels_last)
    with pytest.raises(RuntimeError, match="preserve"):
        rl.zeros(2, 3).contiguous(memory_format=rl.preserve_format)
    with pytest.raises(TypeError):
        rl.zeros(2, 3).contiguous(memory_format="sideways")
    with pytest.raises(RuntimeError):
        rl.zeros(2, 3).is_contiguous(memory_format="sideways")


def test_formats_print_and_pickle():
    assert repr(rl.channels_last) == "rushlight.channels_last"
    assert repr(rl.contiguous_format) == "rushlight.contiguous_format"
    assert pickle.loads(pickle.dumps(rl.channels_last)) == rl.channels_last


def network(torch):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d((2, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_a_network_keeps_channels_last(oracle, training):
    ours, theirs = network(rl), network(oracle)
    ours.load_state_dict({k: rl.tensor(v.tolist()) for k, v in theirs.state_dict().items()})
    ours.train(training).to(memory_format=rl.channels_last)
    theirs.train(training).to(memory_format=oracle.channels_last)
    assert [p.stride() for p in ours.parameters()] == [p.stride() for p in theirs.parameters()]
    x = oracle.randn(2, 3, 12, 12).contiguous(memory_format=oracle.channels_last)
    y = rl.tensor(x.tolist()).contiguous(memory_format=rl.channels_last)
    for a, b in zip(ours, theirs):
        x, y = b(x), a(y)
        assert y.stride() == x.stride(), a
        assert rl.allclose(y, rl.tensor(x.tolist()), atol=1e-5)
    y.sum().backward()
    x.sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert rl.allclose(p.grad, rl.tensor(q.grad.tolist()), atol=1e-4)


def test_channels_last_and_c_order_agree():
    conv, x = nn.Conv2d(4, 6, 3, groups=2), rl.randn(2, 4, 7, 6)
    last = x.contiguous(memory_format=rl.channels_last)
    for f in (conv, lambda v: F.max_pool2d(v, 3, 2, 1), lambda v: F.group_norm(v, 2)):
        a, b = f(x), f(last)
        assert rl.allclose(a, b, atol=1e-5)
        assert a.is_contiguous() and b.is_contiguous(memory_format=rl.channels_last)
