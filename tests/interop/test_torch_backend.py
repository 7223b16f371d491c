"""torch.compile(model, backend=rushlight) against torch's eager mode."""

import re

import pytest

torch = pytest.importorskip("torch")
from rushlight.interop import torch_backend  # noqa: E402
from tests.cuda.torch_block import Block  # noqa: E402

pytestmark = pytest.mark.slow
nn, F = torch.nn, torch.nn.functional


def compiled(model, **options):
    torch._dynamo.reset()
    torch_backend.REPORTS.clear()
    return torch.compile(model, backend=torch_backend.rushlight, **options)


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
    assert any("bernoulli" in r.left for r in torch_backend.REPORTS)


def test_running_statistics_are_written():
    torch.manual_seed(0)
    model, twin = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()) for _ in "ab")
    twin.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    assert torch.allclose(compiled(model)(x), twin(x), atol=1e-5)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("scaled, shifted", [(True, False), (False, True), (False, False)])
def test_norms_by_the_batch_alone_with_a_scale_or_a_shift(scaled, shifted):
    torch.manual_seed(0)

    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(6)) if scaled else None
            self.b = nn.Parameter(torch.randn(6)) if shifted else None
            self.before = nn.Conv1d(6, 6, 1, bias=False)  # a bias would have no slope

        def forward(self, x):
            x = F.batch_norm(self.before(x), None, None, self.w, self.b, True)
            # A shift alone fails in the backward of torch's group norm itself.
            return x + F.group_norm(x.sin(), 2, self.w, self.b if scaled else None) * 2

    reports = agree(Norms(), torch.randn(4, 6, 5))
    assert not any(r.left for r in reports) and all(r.parts == 1 for r in reports)


def test_a_node_that_fails_when_it_runs_leaves_the_rest_ours(monkeypatch):
    from rushlight.interop import aten

    def floor(x):
        if x.device.type != "meta":
            raise ValueError("not today")
        return x.floor()

    monkeypatch.setitem(aten.SPECIAL, "floor", floor)
    x = torch.randn(8)
    f = compiled(lambda x: ((x * 3).exp().floor() + 1).relu() * 2)
    assert torch.allclose(f(x), ((x * 3).exp().floor() + 1).relu() * 2)
    (report,) = torch_backend.REPORTS
    assert report.left == {"floor": 1} and report.ours == 5 and report.parts == 2


def test_sizes_that_vary_are_right():
    f = compiled(lambda x: torch.relu(x) * 2 + x.shape[0])
    for n in (3, 5, 9):
        x = torch.randn(n, 4)
        assert torch.equal(f(x), torch.relu(x) * 2 + n)


def test_what_we_lack_is_torchs_and_told():
    f = compiled(lambda x: torch.special.bessel_j0(x.relu()) + 1)
    x = torch.randn(8)
    assert torch.allclose(f(x), torch.special.bessel_j0(x.relu()) + 1)
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


def test_a_torch_that_is_not_known_is_refused_by_its_version(monkeypatch):
    torch_backend.check_version("2.13.0+cpu")
    for version in ("1.13.1", "2.1.0", "3.0.0a0+git1", "nightly"):
        with pytest.raises(
            RuntimeError, match=f"torch 2.6 up to 3.0; this is {re.escape(version)}"
        ):
            torch_backend.check_version(version)
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(Exception, match=r"this is 2\.5\.1"):
        compiled(torch.relu)(torch.ones(2))
    monkeypatch.undo()
    partitioner = "torch.fx.passes.infra.partitioner.CapabilityBasedPartitioner"
    for name in (partitioner, "torch._C._to_dlpack"):
        monkeypatch.delattr(name)
        with pytest.raises(Exception, match=rf"for torch 2\.6.*{name.rpartition('.')[2]}"):
            compiled(torch.relu)(torch.ones(2))
        monkeypatch.undo()
    assert compiled(torch.relu)(torch.ones(2)).sum() == 2


def test_two_devices_and_what_only_torch_has_stay_torchs():
    class Marked(torch.Tensor):
        pass

    f = compiled(lambda x: (x.relu() + 1, x.to("meta") * 2))
    x = torch.randn(4)
    near, far = f(x)
    assert torch.equal(near, x.relu() + 1) and far.device.type == "meta"

    def odd(x):
        return x.to(torch.complex64) * 1j, (x * 2).to(torch.uint16), x.to(torch.float8_e5m2)

    x = torch.rand(8) + 1
    for a, b in zip(compiled(odd)(x), odd(x), strict=True):
        assert a.dtype == b.dtype and torch.equal(a.to(torch.complex64), b.to(torch.complex64))
    (report,) = torch_backend.REPORTS
    assert report.ours == 1 and sum(report.left.values()) >= 4
    marked = torch.randn(3).as_subclass(Marked)
    got = compiled(lambda x: x.relu() + 1)(marked)
    assert type(got) is Marked and torch.equal(got, marked.relu() + 1)
    both = torch.nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(Exception, match="(?s)device.*(meta|cpu)"):
        compiled(both)(torch.ones(1, 2))


def test_an_exception_in_what_is_torchs_is_the_programs_and_leaves_nothing_behind():
    f = compiled(lambda x: torch.linalg.cholesky(x * 2).relu() + 1)
    good = torch.eye(3)
    want = torch.linalg.cholesky(good * 2).relu() + 1
    assert torch.allclose(f(good), want)
    for _ in range(2):
        with pytest.raises(torch.linalg.LinAlgError, match="positive-definite"):
            f(-good)
        assert torch.allclose(f(good), want)
    g = compiled(lambda table, i: table[i].relu())
    assert g(good, torch.tensor([2])).sum() == 1
    with pytest.raises(IndexError, match="out of"):
        g(good, torch.tensor([3]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_custom_operator_gives_is_what_it_said_or_refused(dynamic):
    """A fake function that promises other strides is put right; another dtype or shape is told."""

    @torch.library.custom_op(f"rushlight_test::gives_{dynamic}", mutates_args=())
    def gives(x: torch.Tensor, how: str) -> torch.Tensor:
        return {
            "as said": lambda: x + 1,
            "columns": lambda: (x + 1).t().contiguous().t(),
            "slice": lambda: torch.cat([x + 1, x], 1)[:, : x.shape[1]],
            "double": lambda: x.double(),
            "flat": lambda: x.reshape(-1) + 1,
        }[how]()

    gives.register_fake(lambda x, how: torch.empty_like(x))
    f = compiled(lambda x, how: gives(x.relu(), how).sin() * 2, dynamic=dynamic)
    for n in (3, 5) if dynamic else (3,):
        x = torch.randn(n, 4)
        for how in ("as said", "columns", "slice"):
            assert torch.allclose(f(x, how), (x.relu() + 1).sin() * 2), how
        for how, what in (("double", rf"float64\[{n}, 4\]"), ("flat", rf"float32\[{4 * n}\]")):
            told = rf"gives_{dynamic}.default gave {what}.*says float32\[({n}|s\w+), (4|s\w+)\]"
            with pytest.raises(RuntimeError, match=told):
                f(x, how)
        assert torch.allclose(f(x, "as said"), (x.relu() + 1).sin() * 2)


def test_attention_and_its_backward():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 4, requires_grad=True) for n in (5, 6, 6))
    masks = [None, torch.rand(5, 6) > 0.3, torch.randn(2, 1, 5, 6)]
    for mask, causal in [(m, False) for m in masks] + [(None, True)]:

        def attend(q, k, v, mask=mask, causal=causal):
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

        pairs = []
        for f in (attend, compiled(attend)):
            out = f(q, k, v)
            pairs.append((out, *torch.autograd.grad(out.sin().sum(), (q, k, v))))
        for a, b in zip(*pairs, strict=True):
            assert torch.allclose(a, b, atol=1e-5) and a.stride() == b.stride()
        assert not any(r.left for r in torch_backend.REPORTS), torch_backend.REPORTS


def test_several_dropouts_are_one_part_and_torchs_numbers():
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(8, 8), nn.Dropout(0.3))))
    f = compiled(model)
    (want, theirs), (got, ours) = (gradients(model, g, torch.ones(4, 8)) for g in (model, f))
    assert torch.allclose(got, want, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))
    assert all(r.parts == 1 for r in torch_backend.REPORTS)


def test_draws_of_several_kinds_keep_their_order():
    def f(x, tail):
        a = F.dropout(x.exp(), 0.4) * torch.rand(4, 1)
        b = F.dropout(a.relu() + tail(x), 0.2)
        return b.sin() + torch.randn(8)

    parts = []
    for tail in (torch.neg, lambda x: torch.bernoulli(x.sigmoid())):
        x = torch.randn(4, 8)
        torch.manual_seed(5)
        want = f(x, tail)
        g = compiled(lambda x, tail=tail: f(x, tail))
        torch.manual_seed(5)
        assert torch.allclose(g(x), want, atol=1e-6)
        parts.append(torch_backend.REPORTS[0].parts)
    assert parts == [1, 1]


def test_draws_keep_their_order_where_their_operands_are_one_part():
    """The operand of the second draw and what the last draw is added to are one part: that waits
    for the last draw, which must not come before the second."""

    def f(x):
        picked = torch.multinomial(x.softmax(0), 2)
        return picked, x.exp() + torch.randn_like(x), torch.rand(3)

    x = torch.randn(6)
    for seed in range(4):
        torch.manual_seed(seed)
        want = f(x)
        g = compiled(f)
        torch.manual_seed(seed)
        for a, b in zip(g(x), want, strict=True):
            assert torch.allclose(a, b, atol=1e-6), seed


def test_numbers_that_stand_negated_in_memory():
    x = torch.randn(4, dtype=torch.complex64)
    view = x.conj().imag
    assert view.is_neg()
    f = compiled(lambda v: v * 2 + 1)
    assert torch.equal(f(view), view * 2 + 1)
    slopes = []
    y = torch.randn(4, requires_grad=True)
    for g in (torch.sin, compiled(lambda y: y.sin())):
        y.grad = None
        g(y).backward(view)
        slopes.append(y.grad)
    assert torch.allclose(*slopes)


def test_images_and_their_backward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.t = nn.Conv2d(3, 8, 3, 2, 1, groups=1), nn.ConvTranspose2d(8, 4, 2, 2)
            self.d, self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)
            self.g = nn.GroupNorm(2, 4)

        def forward(self, x):
            x = F.max_pool2d(F.silu(self.b(self.d(self.c(x)))), 2)
            x = F.avg_pool2d(self.g(self.t(x)), 3, 2, 1)
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = F.interpolate(x, size=(7, 5), mode="nearest")
            return F.adaptive_avg_pool2d(x, 1) + F.adaptive_avg_pool2d(x, (3, 2)).mean()

    torch.manual_seed(0)
    reports = agree(Net(), torch.randn(2, 3, 17, 16))
    assert not any(r.left for r in reports), [r.left for r in reports]


def test_paths_dropped_norms_of_weights_and_new_memory_end_no_part():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3, padding="valid"))

        def forward(self, x):
            y = self.c(x)
            kept = y.new_empty((y.shape[0], 1, 1)).bernoulli_(0.5)
            room = torch.empty(y.shape)
            room.copy_(F.dropout(y, 0.5))
            return room + y * kept

    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3, 9)
    (want, theirs), (got, ours) = (gradients(model, f, x) for f in (model, compiled(model)))
    for a, b in zip([got, *ours], [want, *theirs], strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert [r.left for r in torch_backend.REPORTS] == [{"bernoulli": 2}, {}]
    assert all(r.parts == 1 for r in torch_backend.REPORTS)


def test_sizes_that_vary_are_ours_in_one_graph():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), Block(), nn.Linear(16, 5))
    torch._dynamo.reset()
    torch_backend.REPORTS.clear()
    f = torch.compile(model, backend=torch_backend.rushlight, dynamic=True)
    for shape in ((2, 9), (3, 7), (4, 12)):
        ids = torch.randint(0, 20, shape)
        (want, theirs), (got, ours) = (gradients(model, g, ids) for g in (model, f))
        for a, b in zip([got, *ours], [want, *theirs], strict=True):
            assert a.stride() == b.stride() and torch.allclose(a, b, atol=1e-6)
    reports = torch_backend.REPORTS
    ours, left = sum(r.ours for r in reports), sum(sum(r.left.values()) for r in reports)
    assert len(reports) == 2 and ours >= 0.9 * (ours + left), reports


def test_pools_to_one_pixel_leave_nothing_to_torch():
    """Their mean is followed by an `as_strided` that changes nothing but strides of one step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
    reports = agree(model, torch.randn(2, 3, 8, 8))
    assert not any(r.left for r in reports) and all(r.parts == 1 for r in reports)


@pytest.mark.parametrize(
    "size, stride, offset, ours",
    [((4, 6), (6, 1), None, True), ((24,), (1,), 0, True), ((2, 3, 4), (12, 4, 1), None, True),
     ((6, 4), (1, 6), None, False), ((4, 3), (6, 1), None, False), ((3, 6), (6, 1), 6, False),
     ((24, 2), (1, 0), None, False)],
)  # fmt: skip
def test_views_of_a_whole_memory_are_reshapes(size, stride, offset, ours):
    def program(x):
        return (x * 2).as_strided(size, stride, offset).exp() + 1

    x = torch.randn(4, 6)
    assert torch.allclose(compiled(program)(x), program(x))
    (report,) = torch_backend.REPORTS
    assert ("as_strided" in report.left) is not ours


def test_what_reads_memory_as_it_lies_is_torchs():
    def f(x):
        return torch.as_strided(x.t() * 2, (2, 3), (1, 2)) + 1

    x = torch.randn(2, 3)
    assert torch.equal(compiled(f)(x), f(x)) and "as_strided" in torch_backend.REPORTS[0].left


def test_masks_are_not_drawn_before_other_draws():
    """`poisson` draws before the dropout: both get the numbers that they get in eager mode."""

    def f(x):
        return torch.poisson(x.abs() * 3) + nn.functional.dropout(x * 2, 0.5)

    x = torch.randn(64)
    torch.manual_seed(3)
    want = f(x)
    made = compiled(f)
    torch.manual_seed(3)
    assert torch.equal(made(x), want)


def test_the_callers_number_of_threads_stays():
    """A small convolution runs on one thread; torch shares OpenMP with us."""
    before = torch.get_num_threads()
    compiled(nn.Conv2d(3, 4, 3))(torch.randn(2, 3, 8, 8))
    assert torch.get_num_threads() == before
