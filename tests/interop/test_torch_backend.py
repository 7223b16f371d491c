"""torch.compile(model, backend=rushlight) against torch's eager mode."""

import pytest

torch = pytest.importorskip("torch")
from rushlight.interop import torch_backend  # noqa: E402

pytestmark = pytest.mark.slow
nn, F = torch.nn, torch.nn.functional


def compiled(model):
    torch._dynamo.reset()
    torch_backend.REPORTS.clear()
    return torch.compile(model, backend=torch_backend.rushlight)


def gradients(model, f, *inputs):
    model.zero_grad()
    torch.manual_seed(3)
    out = f(*inputs)
    out.float().pow(2).mean().backward()
    return out.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def agree(model, *inputs, bound=1e-5):
    """Values and gradients, relative to the largest."""
    f = compiled(model)
    want, theirs = gradients(model, model, *inputs)
    got, ours = gradients(model, f, *inputs)
    for a, b in zip([got, *ours], [want, *theirs], strict=True):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        assert (a - b).abs().max() <= bound * b.abs().max().clamp(min=1e-6)
    with torch.no_grad():
        assert (f(*inputs) - model(*inputs)).abs().max() <= bound * want.abs().max()
    return torch_backend.REPORTS


class Block(nn.Module):
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).split(d, -1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


def test_a_perceptron_is_ours_whole():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    reports = agree(model, torch.randn(16, 8))
    assert {r.kind for r in reports} == {"forward", "backward", "inference"}
    assert all(not r.left and r.parts == 1 for r in reports)


def test_a_transformer_block():
    torch.manual_seed(0)
    reports = agree(nn.Sequential(nn.Embedding(20, 16), Block()), torch.randint(0, 20, (2, 9)))
    ours, left = sum(r.ours for r in reports), sum(sum(r.left.values()) for r in reports)
    assert ours >= 0.9 * (ours + left)


def test_dropout_draws_torchs_numbers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 4))
    f = compiled(model)
    want, got = (gradients(model, g, torch.ones(16, 8))[0] for g in (model, f))
    assert (want - got).abs().max() < 1e-6
    assert any("native_dropout" in r.left for r in torch_backend.REPORTS)


def test_running_statistics_are_written():
    torch.manual_seed(0)
    model, twin = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()) for _ in "ab")
    twin.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    assert torch.allclose(compiled(model)(x), twin(x), atol=1e-5)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_sizes_that_vary_are_right():
    f = compiled(lambda x: torch.relu(x) * 2 + x.shape[0])
    for n in (3, 5, 9):
        x = torch.randn(n, 4)
        assert torch.equal(f(x), torch.relu(x) * 2 + n)


def test_what_we_lack_is_torchs_and_told():
    f = compiled(lambda x: torch.special.i0(x.relu()) + 1)
    x = torch.randn(8)
    assert torch.allclose(f(x), torch.special.i0(x.relu()) + 1)
    (report,) = torch_backend.REPORTS
    assert report.left and report.ours >= 1


def test_strides_are_those_that_torch_expects():
    f = compiled(lambda x: (x.t() + 1, x.permute(1, 0).exp()))
    x = torch.randn(4, 6)
    for a, b in zip(f(x), (x.t() + 1, x.permute(1, 0).exp()), strict=True):
        assert a.stride() == b.stride() and torch.allclose(a, b)


def test_half_types_and_integers():
    f = compiled(lambda x, i: ((x * 2).sum(-1), (i // 3) + 1, x.to(torch.float32)))
    x, i = torch.randn(4, 8, dtype=torch.bfloat16), torch.arange(12)
    for a, b in zip(f(x, i), ((x * 2).sum(-1), (i // 3) + 1, x.float()), strict=True):
        assert a.dtype == b.dtype and torch.allclose(a.float(), b.float(), atol=0.1)


def test_an_error_of_the_program_is_the_programs():
    with pytest.raises(Exception, match="size|shape"):
        compiled(lambda a, b: a @ b)(torch.ones(2, 3), torch.ones(4, 5))
