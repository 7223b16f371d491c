"""Pickles and deep copies: what shared memory shares it again; nothing is shared with the
original.
"""

import copy
import pickle

import pytest

import rushlight
from rushlight import nn
from rushlight.eager.storage import storage_of

NAMES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


def copies():
    for protocol in range(6):
        yield pytest.param(
            lambda x, p=protocol: pickle.loads(pickle.dumps(x, p)), id=f"pickle {protocol}"
        )
    yield pytest.param(copy.deepcopy, id="deepcopy")


@pytest.mark.parametrize("copied", list(copies()))
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(copied, name):
    x = rushlight.arange(6).to(getattr(rushlight, name)).view(2, 3).t()
    y = copied(x)
    assert (y.dtype, y.shape, y.stride(), y.tolist()) == (x.dtype, x.shape, x.stride(), x.tolist())
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("copied", list(copies()))
def test_shared_memory_is_shared_again(copied):
    x = rushlight.arange(12).float()
    whole, part, same = copied([x, x.view(3, 4)[1:, ::2], x])
    assert whole is same
    whole.fill_(7)
    assert part.tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert x.tolist() == list(map(float, range(12)))


@pytest.mark.parametrize("copied", list(copies()))
def test_empty_and_expanded(copied):
    assert tuple(copied(rushlight.zeros(0, 3)).shape) == (0, 3)
    assert copied(rushlight.tensor(2.5)).item() == 2.5
    y = copied(rushlight.ones(1, 3).expand(4, 3))
    assert y.stride() == (0, 1) and y.tolist() == [[1.0] * 3] * 4
    assert y.untyped_storage().nbytes() == 12


@pytest.mark.parametrize("copied", list(copies()))
def test_parameters_and_modules(copied):
    p = nn.Parameter(rushlight.ones(2))
    p.note = [1]
    q = copied(p)
    assert type(q) is nn.Parameter and q.requires_grad and q.is_leaf and q.note == [1]
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    other = copied(model)
    assert other[0].weight is other[1].weight and other[0].weight is not model[0].weight
    buffer = copied(nn.Buffer(rushlight.ones(2), persistent=False))
    assert type(buffer) is nn.Buffer and not buffer.persistent


def test_out_of_band_nothing_is_copied():
    x, buffers = rushlight.zeros(1000), []
    data = pickle.dumps([x, x[:2]], 5, buffer_callback=buffers.append)
    assert len(buffers) == 1 and len(data) < 1000
    y, part = pickle.loads(data, buffers=buffers)
    part.fill_(1)
    assert y[:3].tolist() == [1.0, 1.0, 0.0] and x[0].item() == 1.0
    copied = pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])  # read-only: copied
    copied[0].fill_(5)


def test_gradients_and_leaves():
    x = rushlight.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3.0, 3.0] and y.grad.data_ptr() != x.grad.data_ptr()
    assert pickle.loads(pickle.dumps(x)).grad is None
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_a_storage_is_one_object_while_somebody_holds_it():
    x = rushlight.zeros(4)
    held = storage_of(x)
    assert storage_of(x[1:]) is held is x.untyped_storage()
    assert held.data_ptr() == x.data_ptr() and len(held) == held.nbytes() == 16
    assert storage_of(x.clone()) is not held
    held.memory()[:4] = b"\0\0\x80?"
    assert x.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_compared_with_the_oracle(oracle):
    """deepcopy keeps sharing there too."""
    for library in (rushlight, oracle):
        x = library.zeros(4)
        a, b = copy.deepcopy([x, x[:2]])
        a.fill_(1)
        assert b.tolist() == [1.0, 1.0] and x.sum().item() == 0


@pytest.mark.parametrize("copied", list(copies()))
def test_results_under_their_names(copied):
    """In PyTorch they are `torch.return_types.max` and so on."""
    x = rushlight.tensor([[3.0, 1.0], [1.0, 2.0]])
    for made in (x.max(0), x.topk(1), x.aminmax(), rushlight.linalg.qr(x), rushlight.svd(x)):
        again = copied(made)
        assert type(again) is type(made)
        assert type(made).__module__ == "rushlight.return_types"
        assert getattr(rushlight.return_types, type(made).__name__) is type(made)
        assert [v.tolist() for v in again] == [v.tolist() for v in made]


def test_results_print_a_line_a_field(oracle):
    def text(module):
        found = repr(module.tensor([[3.0, 1.0], [1.0, 2.0]]).max(0))
        return found.replace("torch.", "rushlight.")

    assert text(rushlight) == text(oracle)
