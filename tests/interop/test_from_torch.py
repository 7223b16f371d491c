"""from_torch(module): torch's modules on torch's memory, in Rushlight."""

import functools
import math

import pytest

torch = pytest.importorskip("torch")
import rushlight  # noqa: E402
from rushlight.errors import Unsupported  # noqa: E402
from rushlight.interop import from_torch  # noqa: E402

nn, F = torch.nn, torch.nn.functional
softmax = torch.softmax


def helper(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh") * math.pi


def scaled(factor):
    def inside(x):
        return torch.relu(x) * factor

    return inside


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(8)

    def forward(self, x):
        return self.n(x)


class Net(Normed):
    """Inheritance, helpers, closures, ties, buffers, dtypes, isinstance, a list of modules."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.s = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.0))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)), persistent=False)
        self.tied, self.kind, self.act = self.l.weight, torch.float32, scaled(0.5)
        self.conv, self.bn = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.more = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))

    @property
    def width(self):
        return self.l.out_features

    @staticmethod
    def doubled(x):
        return torch.add(x, x)

    def forward(self, x):
        y = super().forward(x)
        y = helper(self.s(self.l(y))) + x @ self.tied
        scores = (y @ y.transpose(-1, -2)).masked_fill(self.mask == 0, float("-inf"))
        y = softmax(scores, dim=-1) @ y + torch.arange(self.width, dtype=self.kind)
        for layer in self.more:
            y = self.act(layer(y)) + self.doubled(y)
        assert isinstance(y, torch.Tensor)
        return self.bn(self.conv(y))


def same(ours, theirs, bound=1e-5):
    a, b = torch.from_dlpack(ours.detach()), theirs.detach()
    return float((a - b).abs().max()) <= bound * max(1.0, float(b.abs().max()))


def test_a_module_runs_and_trains_on_torchs_memory():
    torch.manual_seed(0)
    theirs = Net()
    x = torch.randn(2, 4, 8)
    want = theirs(x)
    want.pow(2).mean().backward()
    mean = theirs.bn.running_mean.clone()
    with torch.no_grad():
        theirs.bn.running_mean.zero_()
        theirs.bn.running_var.fill_(1)
        theirs.bn.num_batches_tracked.zero_()
    ours = from_torch(theirs)
    got = ours(rushlight.from_dlpack(x))
    got.pow(2).mean().backward()
    assert same(got, want) and torch.allclose(theirs.bn.running_mean, mean, atol=1e-6)
    assert int(theirs.bn.num_batches_tracked) == 1
    for (n, p), (m, q) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        assert n == m and same(q.grad, p.grad), n
    before = theirs.l.weight.detach().clone()
    rushlight.optim.SGD(ours.parameters(), lr=0.1).step()
    theirs_too = torch.optim.SGD(theirs.parameters(), lr=0.1)
    assert not torch.equal(theirs.l.weight, before)
    assert same(ours.l.weight, before - 0.1 * theirs.l.weight.grad)
    assert ours.l.weight.data_ptr() == theirs.l.weight.data_ptr() and ours.tied is ours.l.weight
    theirs_too.step()
    assert same(ours.l.weight, before - 0.2 * theirs.l.weight.grad)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    report = rushlight.dynamo.explain(from_torch(theirs, compile=False))(rushlight.from_dlpack(x))
    assert str(report).startswith("1 graphs") and "0 breaks" in str(report)


def test_strides_and_modes_stay_and_memory_lives_on():
    theirs = nn.Linear(4, 3)
    theirs.weight = nn.Parameter(torch.randn(4, 3).t(), requires_grad=False)
    theirs.eval()
    ours = from_torch(theirs)
    assert ours.weight.stride() == (1, 3) and not ours.weight.requires_grad and not ours.training
    want = theirs.weight.detach().clone()
    del theirs
    assert same(ours.weight, want)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.LSTM(4, 5, batch_first=True), (2, 3, 4)),
        (lambda: nn.MultiheadAttention(4, 2, batch_first=True), (2, 3, 4)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4)),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.MaxPool2d(2)),
         (1, 3, 8, 8)),
    ],
)  # fmt: skip
def test_modules_of_torchs(make, shape):
    torch.manual_seed(0)
    theirs = make()
    x = torch.randn(*shape)
    given = (x, x, x) if isinstance(theirs, nn.MultiheadAttention) else (x,)
    want = theirs(*given)
    got = from_torch(theirs, compile=False)(*map(rushlight.from_dlpack, given))
    want, got = (v[0] if isinstance(v, tuple) else v for v in (want, got))
    assert same(got, want)


def test_a_missing_name_raises_where_it_is_used():
    class Lacks(nn.Module):
        def forward(self, x):
            return torch.relu(x) if x.dim() == 1 else torch.reluu(x)

    ours = from_torch(Lacks())
    assert float(ours(rushlight.ones(2)).sum()) == 2
    with pytest.raises(AttributeError, match=r"torch\.reluu is not in Rushlight; near it: .*relu"):
        ours(rushlight.ones(2, 2))
    with pytest.raises(AttributeError, match="torch.nn.LinearCrossEntropyLoss is not in Rushlight"):
        from_torch(nn.Sequential(nn.LinearCrossEntropyLoss(2, 2)))


def test_what_cannot_be_shared_is_refused_by_name():
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, got Linear"):
        from_torch(rushlight.nn.Linear(2, 2))
    two = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(RuntimeError, match="one device: 0.weight on cpu, 1.weight on meta"):
        from_torch(two)
    odd = nn.Module()
    odd.register_buffer("table", torch.ones(2, 2).to(torch.float8_e4m3fn))
    with pytest.raises(Unsupported, match="table is float8_e4m3fn"):
        from_torch(odd)
    odd.table = torch.eye(2).to_sparse()
    with pytest.raises(Unsupported, match="table is float32, sparse_coo"):
        from_torch(odd)

    class Marked(torch.Tensor):
        pass

    odd.table = torch.ones(2).as_subclass(Marked)
    with pytest.raises(Unsupported, match="table is a Marked"):
        from_torch(odd)
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *a: None)
    with pytest.raises(Unsupported, match="Linear has hooks"):
        from_torch(hooked)


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    @functools.cached_property
    def twice(self):
        return torch.add(self.w, self.w)

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def ramp(n):
        return torch.arange(n)

    def forward(self, x):
        return x * self.twice + self.ramp(3)


def test_cached_properties_and_functions_are_built_again():
    ours = from_torch(Cached(), compile=False)
    x = rushlight.ones(3)
    assert ours(x).tolist() == [2.0, 3.0, 4.0] and ours(x).tolist() == [2.0, 3.0, 4.0]
    assert isinstance(ours.twice, rushlight.Tensor) and ours.twice is ours.twice


def test_metaclasses_and_other_descriptors_are_refused_by_name():
    class Meta(type):
        pass

    class Made(nn.Linear, metaclass=Meta):
        pass

    class Twice:
        def __init__(self, f):
            self.f = f

        def __get__(self, x, kind=None):
            return self.f(self.f(x))

    class Described(nn.Linear):
        more = Twice(lambda x: torch.relu(x))

    for kind, why in ((Made, "metaclass, .*Meta"), (Described, "more is a descriptor, a Twice")):
        with pytest.raises(Unsupported, match=why):
            from_torch(kind(2, 2))


class Named(nn.Module):
    def __init_subclass__(cls, **given):
        super().__init_subclass__(**given)
        cls.called = cls.__name__.lower()


class Child(Named):
    def forward(self, x):
        return (torch.relu(x), self.called)


def test_what_a_class_does_to_those_made_of_it_is_done_once():
    ours = from_torch(Child(), compile=False)
    assert ours(rushlight.ones(1))[1] == "child"
    assert type("Late", (type(ours),), {}).called == "late"


def test_classes_that_do_not_derive_from_torchs():
    """A registry of functions and a cache of tensors, as libraries keep them: their bodies are
    built again, so that no torch function meets a tensor of ours."""

    class Layer:
        def __init__(self):
            self.kept = None

        def put(self, x):
            self.kept = x if self.kept is None else torch.cat([self.kept, x])
            return self.kept

    class Cache:
        def __init__(self):
            self.layers = [Layer()]

        def put(self, x):
            return self.layers[0].put(x)

    class Registry:
        mapping = {"softmax": lambda x: torch.softmax(x, -1)}

        def __getitem__(self, key):
            return self.mapping[key]

    class Untouched:
        def double(self, x):
            return x * 2

    registry, untouched = Registry(), Untouched()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)
            self.untouched = untouched

        def forward(self, x):
            cache = Cache()
            assert isinstance(registry, Registry)
            y = cache.put(self.fc(x))
            return registry["softmax"](self.untouched.double(cache.put(y)))

    model = Model()
    ours, x = from_torch(model), torch.randn(2, 3)
    assert ours.untouched is untouched
    out = ours(rushlight.from_dlpack(x))
    want = model(x)
    assert out.shape == (4, 3)
    (out * out).sum().backward()
    (want * want).sum().backward()
    assert out.detach().numpy() == pytest.approx(want.detach().numpy(), abs=1e-6)
    grads = ours.fc.weight.grad.numpy(), model.fc.weight.grad.numpy()
    assert grads[0] == pytest.approx(grads[1], abs=1e-6)
