"""The meta device: every operator's samples give the layouts that eager mode gives, and no data;
modules without memory; what needs data is refused as in PyTorch.
"""

import warnings

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.ops import TABLE

from ..ops import materialize
from ..ops.materialize import CASES, arguments, call, many, ours


def there(x, seed):
    made = ours(x, seed)
    return rl.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="meta")


def facts(x):
    return tuple(x.shape), tuple(x.stride()), x.storage_offset(), x.dtype, x.requires_grad


OPERATORS = [op for op in list(TABLE.values()) if op.samples]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_layouts_are_those_of_eager_mode(op):
    for sample in op.samples:
        want = call(op, arguments(op, sample, ours))
        given = arguments(op, sample, there)
        creates = not any(isinstance(v, (rl.Tensor, list)) for v in given)
        with rl.device("meta" if creates else "cpu"):
            got = call(op, given)
        assert isinstance(got, tuple) == isinstance(want, tuple), sample
        for x, y in zip(many(got), many(want), strict=True):
            assert x.device.type == "meta", sample
            assert facts(x) == facts(y), sample


def gradients(op, sample, make):
    """Layouts of the gradients of the sum of an operator's first floating result."""
    values = arguments(op, sample, make)
    leaves = [x for v in values for x in (v if isinstance(v, list) else (v,))]
    leaves = [x for x in leaves if isinstance(x, rl.Tensor) and x.dtype.is_floating_point]
    for x in leaves:
        x.requires_grad_()
    out = next((x for x in many(call(op, values)) if x.requires_grad), None)
    if out is None:
        return None
    total = out.sum()
    (total.real if total.is_complex() else total).backward()
    return [None if x.grad is None else facts(x.grad) for x in leaves]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_gradients_have_the_layouts_of_eager_mode(op):
    if op.name.startswith("linalg_eig_"):
        pytest.skip("it has no derivative: backward raises")
    for sample in op.samples[:4]:
        assert gradients(op, sample, there) == gradients(op, sample, ours), sample


@pytest.mark.parametrize(
    "name", ["add", "mul", "copy", "masked_fill", "addmm", "index_add", "relu"]
)
def test_writes_in_place(name):
    op = TABLE[name]
    for sample in op.samples[:2]:
        values = arguments(op, sample, there)
        try:
            arguments(op, sample, ours)  # the same call must be possible in place
            op.native.inplace(*arguments(op, sample, ours))
        except (RuntimeError, TypeError) as error:
            with pytest.raises(type(error)):
                op.native.inplace(*values)
            continue
        version = values[0]._version
        assert op.native.inplace(*values) is values[0] and values[0]._version == version + 1


def needing_data(lib):
    """Calls that read elements."""
    x = lib.empty(2, 3, device="meta")
    one = lib.empty((), device="meta")
    mask = lib.empty(2, 3, dtype=lib.bool, device="meta")
    return {
        "item": lambda: one.item(),
        "int": lambda: int(one),
        "float": lambda: float(one),
        "bool": lambda: bool(one),
        "bool of many": lambda: bool(x),
        "tolist": lambda: x.tolist(),
        "numpy": lambda: x.numpy(),
        "cpu": lambda: x.cpu(),
        "to": lambda: x.to("cpu"),
        "nonzero": lambda: x.nonzero(),
        "mask": lambda: x[mask],
        "unique": lambda: lib.unique(x),
        "equal": lambda: lib.equal(x, x),
        "allclose": lambda: lib.allclose(x, x),
        "contains": lambda: 1 in x,
        "dlpack": lambda: lib.from_dlpack(x),
        "repeat_interleave": lambda: lib.repeat_interleave(x[0].long()),
    }


@pytest.mark.parametrize("name", needing_data(rl))
def test_what_needs_data_is_refused(name, oracle):
    with pytest.raises(Exception) as theirs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        needing_data(oracle)[name]()
    kinds = RuntimeError, TypeError, ValueError, BufferError
    kind = next((k for k in kinds if issubclass(theirs.type, k)), Exception)
    with pytest.raises(kind) as mine:
        needing_data(rl)[name]()
    if issubclass(theirs.type, NotImplementedError) and name != "unique":
        assert isinstance(mine.value, NotImplementedError)
    assert "meta" in str(mine.value) or "ambiguous" in str(mine.value)


def test_random_numbers_leave_the_stream_alone():
    rl.manual_seed(3)
    before = rl.get_rng_state().tolist()
    with rl.device("meta"):
        rl.randn(3), rl.rand(2), rl.randint(0, 5, (3,)), rl.randperm(4)
        nn.Linear(3, 4)
        rl.empty(3).normal_().uniform_().bernoulli_().exponential_()
    assert rl.get_rng_state().tolist() == before


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.attend = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.embed = nn.Embedding(10, 16)
        self.rnn = nn.LSTM(16, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, image, tokens):
        x = self.norm(self.conv(image)).relu().mean((2, 3))
        y, _ = self.rnn(self.attend(self.embed(tokens)))
        return self.head(y), x


def test_a_model_without_memory():
    with rl.device("meta"):
        model = Net()
    assert all(p.device.type == "meta" for p in (*model.parameters(), *model.buffers()))
    tokens = rl.empty(2, 7, dtype=rl.int64, device="meta")
    out, features = model(rl.empty(2, 3, 8, 8, device="meta"), tokens)
    assert tuple(out.shape) == (2, 7, 5) and tuple(features.shape) == (2, 4)
    (out.sum() + features.sum()).backward()
    for p in model.parameters():
        assert p.grad.shape == p.shape and p.grad.device.type == "meta"
    rl.optim.AdamW(model.parameters()).step()
    rl.optim.SGD(model.parameters(), 0.1, momentum=0.9).step()


def test_from_meta_to_memory():
    real = Net()
    with pytest.raises(NotImplementedError, match="to_empty"):
        Net().to("meta").to("cpu")
    model = Net().to("meta")
    assert model.load_state_dict(real.state_dict(), assign=True).missing_keys == []
    assert all(a is b or a.data_ptr() == b.data_ptr() for a, b in zip(
        model.state_dict().values(), real.state_dict().values(), strict=True))  # fmt: skip
    made = Net().to("meta").to_empty(device="cpu")
    assert all(p.is_cpu for p in made.parameters())
    made.load_state_dict(real.state_dict())
    made.eval(), real.eval()
    given = rl.randn(2, 3, 8, 8), rl.arange(14).reshape(2, 7) % 10
    assert all(rl.equal(a, b) for a, b in zip(made(*given), real(*given), strict=True))
    with pytest.warns(UserWarning, match="assign=True"):
        Net().to("meta").load_state_dict(real.state_dict())
    with pytest.raises(RuntimeError, match="no data"):
        real.load_state_dict(Net().to("meta").state_dict())


def test_samples_reach_the_device():
    """The comparisons above compare something: both kinds of operand exist."""
    kinds = {op.kind for op, _ in CASES}
    assert kinds == {"scalar", "rows", "view", "assemble", "composition", "library"}
    assert materialize.ours is ours
