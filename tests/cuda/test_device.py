"""On a real GPU, where there is one: operators and gradients against the CPU, the runtime,
training, and what is wrong. `python benchmarks/device.py` runs these and what else belongs to
the device.
"""

import numpy as np
import pytest

import rushlight as rl
from rushlight import cuda, nn
from tests.ops import materialize as m

pytestmark = pytest.mark.cuda
if not cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

# Ours compute in another order there; products and sums of many have the wider bounds.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}
UNDEFINED = ("empty", "empty_like", "new_empty")


@pytest.fixture(autouse=True, scope="module")
def full_float32():
    """Convolutions may use TF32 by default, as PyTorch's do: three digits."""
    before, rl.backends.cudnn.allow_tf32 = rl.backends.cudnn.allow_tf32, False
    yield
    rl.backends.cudnn.allow_tf32 = before


def put(v):
    if isinstance(v, rl.Tensor):
        return rl.empty_strided(tuple(v.shape), v.stride(), dtype=v.dtype, device="cuda").copy_(v)
    return type(v)(map(put, v)) if isinstance(v, (list, tuple)) else v


def near(got, want, what):
    if not isinstance(want, rl.Tensor):
        assert got == want, what
        return
    assert got.dtype is want.dtype and got.shape == want.shape, what
    a, b = m.numpy(got.detach().cpu()), m.numpy(want.detach())
    bound = TOLERANCE.get(want.dtype.name)
    if bound is None:
        np.testing.assert_array_equal(a, b, what)
    else:
        largest = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * largest, err_msg=what)


@pytest.mark.parametrize("case", m.CASES, ids=m.name)
def test_operator(case):
    op, sample = case
    values = m.arguments(op, sample, m.ours)
    rl.manual_seed(1)
    try:
        want = m.many(m.call(op, values))
    except NotImplementedError:
        pytest.skip("not on the CPU either")
    rl.manual_seed(1)
    for a, b in zip(m.many(m.call(op, [put(v) for v in values])), want):
        if op.name not in UNDEFINED:
            near(a, b, m.name(case))


@pytest.mark.parametrize("case", [c for c in m.CASES if c[0].rule is not None], ids=m.name)
def test_gradient(case):
    op, sample = case
    values = m.arguments(op, sample, m.ours)
    found = []
    for place in (lambda v: v, put):
        own = [place(v) for v in values]
        floats = [v for v in own if isinstance(v, rl.Tensor) and v.dtype.is_floating_point]
        leaves = {id(v): v.detach().clone().requires_grad_() for v in floats}
        rl.manual_seed(1)
        try:
            outs = m.many(m.call(op, [leaves.get(id(v), v) for v in own]))
            outs = [o for o in outs if isinstance(o, rl.Tensor) and o.requires_grad]
            if not outs:
                pytest.skip("no gradient")
            outs = [rl.view_as_real(o) if o.is_complex() else o for o in outs]
            sum(o.float().sum() * (i + 1) for i, o in enumerate(outs)).backward()
        except (RuntimeError, NotImplementedError):
            if not found:
                pytest.skip("not on the CPU either")
            raise
        found.append([v.grad for v in leaves.values()])
    for a, b in zip(found[1], found[0]):
        assert (a is None) == (b is None)
        if b is not None:
            near(a, b, m.name(case))


def test_large_sizes_and_odd_strides():
    x = rl.randn(1000, 1001)
    there = x.cuda()
    for f in (
        lambda v: v.sum(),
        lambda v: v.sum(0),
        lambda v: v.t().sum(0),
        lambda v: rl.softmax(v, 1),
        lambda v: rl.softmax(v, 0),
        lambda v: v[:, 1:] * 2 + v[:, :-1],
        lambda v: v[::3, ::7].exp(),
        lambda v: v.t().contiguous(),
        lambda v: nn.functional.layer_norm(v, (1001,)),
        lambda v: v.amax(1) - v.mean(),
        lambda v: v @ v.t(),
    ):
        near(f(there), f(x), "large")
    flat = rl.arange(1 << 24, device="cuda")
    assert flat.sum().item() == (1 << 24) * ((1 << 24) - 1) // 2


def test_an_index_out_of_range_names_operator_and_line():
    table = rl.randn(4, 3, device="cuda")
    nn.functional.embedding(rl.tensor([1, 9]).cuda(), table)
    with pytest.raises(IndexError, match=r"\[embedding\] index 9 .*test_device.py"):
        cuda.synchronize()
    assert (table + 1).shape == (4, 3), "the device goes on"


def test_running_out_of_memory():
    free, total = cuda.mem_get_info()
    with pytest.raises(cuda.OutOfMemoryError, match="Tried to allocate"):
        rl.empty(total, dtype=rl.uint8, device="cuda")
    assert rl.ones(3, device="cuda").sum().item() == 3


def test_streams_and_events():
    side = cuda.Stream()
    a, b = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    x = rl.ones(1 << 22, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        a.record()
        y = x * 2 + 1
        b.record()
    x.record_stream(side)
    b.synchronize()
    assert a.elapsed_time(b) > 0 and y[-1].item() == 3
    p = rl.arange(1000.0).pin_memory()
    assert p.to("cuda", non_blocking=True).sum().item() == 499500


def test_waits():
    x = rl.ones(3, device="cuda")
    cuda.take_waits()
    x.sum().item()
    (wait,) = cuda.take_waits()
    assert wait.what == "item" and "test_device.py" in wait.line
    with cuda.sync_debug("error"), pytest.raises(RuntimeError, match="host waits"):
        x.cpu()


def network(device):
    rl.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5),
    ).to(device)  # fmt: skip


@pytest.mark.parametrize("make", (rl.optim.SGD, rl.optim.AdamW))
def test_training(make):
    losses = {}
    for device in ("cpu", "cuda"):
        net = network(device)
        optimizer = make(net.parameters(), lr=0.01)
        rl.manual_seed(1)
        x, y = rl.randn(10, 1, 8, 8).to(device), (rl.arange(10) % 5).to(device)
        kept = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            kept.append(loss.detach())
        losses[device] = [v.item() for v in kept]
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=2e-3)


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16])
@pytest.mark.parametrize(
    "heads, sizes, mode",
    [
        ((4, 4), (256, 256, 64), "causal"), ((4, 4), (128, 384, 64), ""),
        ((6, 2), (77, 203, 64), ""),
        ((4, 2), (203, 77, 128), "causal"), ((2, 2), (100, 160, 64), "bias"),
        ((2, 2), (130, 70, 32), "bool"), ((2, 2), (90, 90, 40), "causal"),
        ((2, 1), (70, 70, 256), ""),
    ],
)  # fmt: skip
def test_attention_of_half_types(heads, sizes, mode, dtype):
    """One kernel, forward and backward, against the composition in float32."""
    (h, g), (s, t, d) = heads, sizes
    rl.manual_seed(3)
    q, k, v = rl.randn(2, s, h, d), rl.randn(2, t, g, d), rl.randn(2, t, g, d)
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    mask = rl.randn(2, 1, s, t).to(dtype) if mode == "bias" else None
    mask = rl.rand(s, t) > 0.5 if mode == "bool" else mask
    cotangent = rl.randn(2, h, s, d).to(dtype)
    found = []
    for place in (lambda x: x.float(), lambda x: x.cuda()):
        own = [place(x).detach().requires_grad_() for x in (q, k, v)]
        bias = None if mask is None else mask.cuda() if own[0].is_cuda else mask
        if mode == "bias":
            bias = bias.to(own[0].dtype).requires_grad_()
        before = cuda.counts()["fallback"]
        out = nn.functional.scaled_dot_product_attention(
            *own, bias, is_causal=mode == "causal", enable_gqa=h != g
        )
        leaves = own if mode != "bias" else [*own, bias]
        found.append((out, *rl.autograd.grad(out, leaves, place(cotangent))))
        assert cuda.counts()["fallback"] == before
    bound = 3e-3 if dtype is rl.float16 else 2e-2
    for want, got in zip(*found):
        assert got.dtype is dtype and got.shape == want.shape
        a, b = m.numpy(got.detach().float().cpu()), m.numpy(want.detach())
        np.testing.assert_allclose(a, b, atol=bound * np.abs(b).max(), rtol=bound)


def test_attention():
    q, k, v = (rl.randn(2, 4, 33, 16) for _ in range(3))
    want = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    got = nn.functional.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), is_causal=True)
    near(got, want, "attention")


@pytest.mark.skipif(cuda.device_count() < 2, reason="one GPU only")
def test_two_devices():
    x = rl.ones(1000, device="cuda:0")
    y = x.to("cuda:1") + 1
    assert y.device.index == 1 and y.sum().item() == 2000
    with pytest.raises(RuntimeError, match="one device"):
        x + y
