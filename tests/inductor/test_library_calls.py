"""Library calls that take along what follows them, and packed weights: eager values up to
the bound of library calls, whatever is written to a weight in between.
"""

import numpy
import pytest

import rushlight as rl
from rushlight import _core, fx, nn
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph
from rushlight.nn import functional as F

pytestmark = pytest.mark.skipif(
    _core.packed_bytes(rl.float32, 64, 64) < 0, reason="oneDNN is not installed"
)


def x(*shape, seed=1, scale=1.0, dtype="float32"):
    numbers = numpy.random.default_rng(seed).standard_normal(shape) * scale
    return rl.tensor(numbers.astype("float32").tolist()).to(getattr(rl, dtype))


def compiled(fn, *inputs, frozen=False):
    return compile_graph(decompose(fx.trace(fn, *inputs)), frozen=frozen)


def close(got, want, limit=2e-6):
    assert got.shape == want.shape and got.stride() == want.stride() and got.dtype is want.dtype
    a, b = (v.detach().to(rl.float64).numpy() for v in (got, want))
    numpy.testing.assert_array_equal(numpy.isnan(a), numpy.isnan(b))
    scale = 1 + numpy.nanmax(numpy.abs(b[numpy.isfinite(b)]), initial=0)
    numpy.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=limit)


W, B, X = x(96, 64, seed=2, scale=0.2), x(96, seed=3), x(48, 64, seed=4)
ROW, WHOLE = x(96, seed=5), x(48, 96, seed=6)
CHAINS = {
    "relu": lambda a: rl.relu(F.linear(a, W, B)),
    "gelu_tanh": lambda a: F.gelu(F.linear(a, W, B), approximate="tanh"),
    "silu": lambda a: F.silu(F.linear(a, W)),
    "sigmoid": lambda a: rl.sigmoid(a @ W.t()),
    "tanh": lambda a: rl.tanh(rl.addmm(B, a, W.t())),
    "add": lambda a: WHOLE + F.linear(a, W, B),
    "mul": lambda a: F.linear(a, W, B) * WHOLE,
    "add,relu": lambda a: rl.relu(F.linear(a, W) + WHOLE),
    "mul,add,silu": lambda a: F.silu(F.linear(a, W) * ROW + WHOLE),
    "silu,mul": lambda a: F.silu(F.linear(a, W, B)) * WHOLE,
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("steps", CHAINS)
def test_a_product_takes_along_what_follows(steps, frozen):
    fn = CHAINS[steps]
    c = compiled(fn, X, frozen=frozen)
    assert not c.kernels and f"'{steps}'" in c.text, c.text
    for _ in range(3):
        close(c(X), fn(X))


def test_a_sum_of_two_products():
    def fn(a):
        return rl.relu(F.linear(a, W, B) + F.linear(a * 2, W))

    c = compiled(fn, X)
    assert "'add,relu'" in c.text
    close(c(X), fn(X))


def test_other_shapes_than_matrices():
    rest = x(2, 24, 96, seed=7)

    def fn(a):
        return rest + F.silu(F.linear(a, W, B))

    a = X.view(2, 24, 64)
    c = compiled(fn, a)
    assert "'silu,add'" in c.text and not c.kernels
    close(c(a), fn(a))


def test_nan_and_infinity_pass():
    a = X.clone()
    a[0, 0], a[1, 0] = float("nan"), float("inf")
    for steps, fn in CHAINS.items():
        got, want = (v.numpy() for v in (compiled(fn, a)(a), fn(a)))
        assert numpy.isnan(got[0]).all(), steps
        if "relu" in steps:  # documented: of a sum of minus infinity it makes NaN
            got, want = got[:, want[1] > 0], want[:, want[1] > 0]
        numpy.testing.assert_array_equal(numpy.isfinite(got), numpy.isfinite(want), steps)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: F.gelu(F.linear(a, W, B)),  # by erf: the library's loses NaN
        lambda a: rl.exp(F.linear(a, W, B)),
        lambda a: F.linear(a, W, B) + x(1, 96),
        lambda a: F.linear(a, W, B) - WHOLE,
        lambda a: rl.add(F.linear(a, W, B), WHOLE, alpha=2),
    ],
)
def test_what_the_library_does_not_take_stays(fn):
    c = compiled(fn, X)
    assert "product(" not in c.text and "epilogue.step" in {r.id for r in c.reasons}
    close(c(X), fn(X))


@pytest.mark.parametrize(
    "fn, a",
    [
        (lambda a: rl.relu(a @ a), x(8, 8)),  # too small
        (lambda a: rl.relu(a.t() @ W[:48]), x(48, 64)),  # not dense as it lies
        (lambda a: (lambda y: (y, rl.relu(y)))(F.linear(a, W)), X),  # the product is needed itself
        (lambda a: rl.relu(F.linear(a, W.to(rl.float64))), x(48, 64, dtype="float64")),
    ],
)
def test_products_that_stay(fn, a):
    c = compiled(fn, a)
    assert "product(" not in c.text
    for got, want in zip(_flat(c(a)), _flat(fn(a)), strict=True):
        close(got, want)


def _flat(v):
    return list(v) if isinstance(v, (tuple, list)) else [v]


def test_half_types_round_once():
    w, b, a = W.to(rl.bfloat16), B.to(rl.bfloat16), X.to(rl.bfloat16)

    def fn(a):
        return F.silu(F.linear(a, w, b))

    c = compiled(fn, a, frozen=True)
    for _ in range(3):
        close(c(a), fn(a), 2e-2)


# ---- weights


def layers():
    rl.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.SiLU()).eval()


WRITES = {
    "nothing": lambda m: None,
    "copy_": lambda m: m[0].weight.copy_(x(96, 64, seed=9)),
    "data": lambda m: m[0].weight.data.mul_(2),
    "other data": lambda m: setattr(m[0].weight, "data", x(96, 64, seed=9)),
    "numpy": lambda m: m[0].weight.detach().numpy().fill(0.25),
    "view": lambda m: m[0].weight.detach()[3].zero_(),
    "parameter": lambda m: setattr(m[0], "weight", nn.Parameter(x(96, 64, seed=9))),
    "state": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
}


@pytest.mark.parametrize("write", WRITES)
def test_packed_weights_follow_what_is_written(write):
    model = layers()
    run = rl.compile(model)
    with rl.no_grad():
        for _ in range(3):
            close(run(X), model(X))
        WRITES[write](model)
        for _ in range(3):
            close(run(X), model(X))


def test_steps_of_an_optimizer_are_seen():
    model = layers()
    run = rl.compile(model)
    optimizer = rl.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        with rl.no_grad():
            for _ in range(3):
                close(run(X), model(X))
        optimizer.zero_grad()
        run(X).square().mean().backward()
        optimizer.step()


def test_a_large_weight_is_not_kept_twice(monkeypatch):
    from rushlight.inductor import epilogues

    monkeypatch.setattr(epilogues, "LARGEST", 64 * 96 * 4)
    c = compiled(lambda a: F.linear(a, x(256, 64)), X, frozen=True)
    assert "pack_weight(" not in c.text and "packing.stays" in {r.id for r in c.reasons}


def test_one_graph_for_all_batches():
    model = layers()
    run = rl.compile(model, dynamic=True)
    with rl.no_grad():
        for n in (48, 5, 64, 1, 48, 33, 48):
            close(run(x(n, 64, seed=n)), model(x(n, 64, seed=n)))


# ---- convolutions


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 24, 3, 1, 1)
        self.small = nn.Conv2d(24, 4, 1, 4)
        self.short = nn.Conv2d(16, 16, 3, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, a):
        y = self.pool(rl.relu(self.bn1(self.conv1(a))))
        z = rl.relu(self.bn2(self.conv2(y)) + self.short(y)) + y
        z = F.silu(self.conv3(z))
        return z, z.flatten(1), F.adaptive_avg_pool2d(z, 1), self.small(z) * 2


def images():
    rl.manual_seed(0)
    model = Images()
    model(x(4, 3, 32, 32))  # statistics that are not the first ones
    return model.eval()


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_stay_channels_last(last):
    model, a = images(), x(4, 3, 32, 32)
    a = a.contiguous(memory_format=rl.channels_last) if last else a
    run = rl.compile(model)
    with rl.no_grad():
        for _ in range(3):
            for got, want in zip(run(a), model(a), strict=True):
                close(got, want, 1e-5)


def test_the_steps_of_convolutions():
    model, a = images(), x(4, 3, 32, 32)
    with rl.no_grad():
        c = compiled(lambda a: model(a), a, frozen=True)
        for got, want in zip(c(a), model(a), strict=True):
            close(got, want, 1e-5)
    for steps in ("'mul,add,relu'", "'mul,add,add,relu,add'", "'silu'"):
        assert steps in c.text, c.text
    assert c.text.count("pack_convolution(") == 4
    assert c.text.count("permute(") == 2  # the image; everything else lies so by then


@pytest.mark.parametrize("part", ["conv2.weight", "conv1.weight", "bn1.running_mean", "bn2.weight"])
def test_what_is_written_to_convolutions(part):
    model, a = images(), x(4, 3, 32, 32)
    run, state = rl.compile(model), model.state_dict()
    with rl.no_grad():
        run(a), run(a)
        state[part].mul_(3)
        for got, want in zip(run(a), model(a), strict=True):
            close(got, want, 1e-5)


def test_batches_of_images():
    model = images()
    run = rl.compile(model, dynamic=True)
    with rl.no_grad():
        for n in (4, 2, 9, 4):
            a = x(n, 3, 32, 32, seed=n)
            for got, want in zip(run(a), model(a), strict=True):
                close(got, want, 1e-5)


def test_threads():
    model, a, before = images(), x(4, 3, 32, 32), rl.get_num_threads()
    run = rl.compile(model)
    try:
        with rl.no_grad():
            for threads in (1, 3, 1, 2):
                rl.set_num_threads(threads)
                for got, want in zip(run(a), model(a), strict=True):
                    close(got, want, 1e-5)
    finally:
        rl.set_num_threads(before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(16, 16, 3, groups=4),
        lambda: nn.ConvTranspose2d(16, 16, 3),
        lambda: nn.Conv2d(16, 2, 1),  # too little to do
        lambda: nn.Conv2d(16, 16, 3).double(),
    ],
)
def test_convolutions_that_stay(make):
    layer = make()
    a = x(2, 16, 20, 20).to(layer.weight.dtype)
    with rl.no_grad():
        c = compiled(lambda a: rl.relu(layer(a)), a, frozen=True)
        assert "fused_convolution" not in c.text
        assert "packing.stays" in {r.id for r in c.reasons}
        close(c(a), rl.relu(layer(a)), 1e-5)
