"""Names of PyTorch's past and of its other devices, against the oracle."""

import numpy as np
import pytest

import rushlight as rl

from .both import both, dtype_name, kind, randn, same

SAYS = {
    "type": lambda lib, x: x.type(),
    "type of int64": lambda lib, x: x.type("torch.LongTensor").type(),
    "type by type": lambda lib, x: x.type(lib.DoubleTensor).type(),
    "type by dtype": lambda lib, x: x.type(lib.int32).type(),
    "isinstance": lambda lib, x: [
        isinstance(x, lib.FloatTensor),
        isinstance(x, lib.LongTensor),
        isinstance(3, lib.FloatTensor),
    ],
    "cpu": lambda lib, x: [x.is_cpu, x.is_cuda, x.is_sparse, x.is_meta, x.is_quantized],
    "complex": lambda lib, x: [x.is_complex(), x.is_conj(), x.is_neg(), x.is_signed()],
    "sizes": lambda lib, x: [x.itemsize, x.ndimension(), x.get_device(), x.is_same_size(x.t())],
    "nonzero": lambda lib, x: [lib.tensor(2.0).is_nonzero(), lib.tensor([0]).is_nonzero()],
    "legacy sizes": lambda lib, x: [
        tuple(lib.FloatTensor(2, 3).shape),
        tuple(lib.Tensor(2, 3).shape),
        tuple(lib.Tensor(lib.Size([2, 3])).shape),
        tuple(lib.Tensor(0).shape),
        tuple(lib.Tensor().shape),
    ],
}
GIVES = {
    "legacy data": lambda lib, x: lib.LongTensor([[1, 2], [3, 4]]),
    "legacy default": lambda lib, x: lib.Tensor([1, 2]),
    "legacy array": lambda lib, x: lib.Tensor(np.arange(3)),
    "new": lambda lib, x: x.new([1, 2]),
    "real": lambda lib, x: lib.real(x) + x.real + x.conj() + x.resolve_conj().resolve_neg(),
    "plus": lambda lib, x: +x,
    "resize smaller": lambda lib, x: x.clone().resize_(2, 2),
    "resize same": lambda lib, x: x.clone().resize_((6,)),
    "resize as": lambda lib, x: x.clone().resize_as_(lib.ones(3, 2)),
    "resize larger": lambda lib, x: x.clone().resize_(3, 5)[:1, :5],
    "resize a view": lambda lib, x: x.clone()[1].resize_(1, 2),
    "diagonal": lambda lib, x: x.clone().fill_diagonal_(7.0),
    "diagonal of a tall one": lambda lib, x: lib.zeros(7, 3).fill_diagonal_(1.0, wrap=True),
    "diagonal of a tall one, once": lambda lib, x: lib.zeros(7, 3).fill_diagonal_(1.0),
    "diagonal of a cube": lambda lib, x: lib.zeros(3, 3, 3).fill_diagonal_(2.0),
    "apply": lambda lib, x: x.clone().apply_(lambda v: v * 2 + 1),
    "map": lambda lib, x: x.clone().map_(lib.ones(3), lambda a, b: a - b),
    "sum to size": lambda lib, x: x.expand(4, 2, 3).sum_to_size(2, 1),
    "sum to itself": lambda lib, x: x.sum_to_size((2, 3)),
    "functions": lambda lib, x: lib.relu_(lib.neg_(x.clone()) - 1) + lib.clamp_(x.clone(), 0, 1),
    "fill": lambda lib, x: lib.fill(x, 3) + lib.fill_(x.clone(), 2.0) + lib.zero_(x.clone()),
    "numpy's function": lambda lib, x: np.add(x, 1),
    "numpy's predicate": lambda lib, x: np.isnan(x),
    "dtype float": lambda lib, x: lib.ones(2, dtype=float) + lib.full((2,), 1, dtype=float),
    "dtype int": lambda lib, x: lib.zeros(2, dtype=int) + lib.arange(2.0, dtype=int),
    "dtype bool": lambda lib, x: (
        lib.tensor([1, 0], dtype=bool) | lib.empty_like(x[0, :2], dtype=bool).fill_(0)
    ),
    "to float": lambda lib, x: x.to(float) + x.to(dtype=float).sum(dtype=float),
    "to int": lambda lib, x: lib.zeros_like(x, dtype=int) + x.to(int) + lib.eye(2, 3, dtype=int),
}
RAISES = {
    "resize a parameter": lambda lib, x: x.clone().requires_grad_().resize_(2),
    "diagonal of a row": lambda lib, x: x[0].fill_diagonal_(1.0),
    "diagonal of a box": lambda lib, x: lib.zeros(2, 3, 3).fill_diagonal_(1.0),
    "legacy of another dtype": lambda lib, x: lib.LongTensor(x),
    "legacy of floats": lambda lib, x: lib.Tensor(1.5, 2),
    "legacy of a negative size": lambda lib, x: lib.Tensor(-1),
    "a type that is none": lambda lib, x: x.type("torch.NoTensor"),
    "a dtype that is none": lambda lib, x: lib.ones(2, dtype=str),
    "apply to what requires grad": lambda lib, x: x.clone().requires_grad_().apply_(abs),
    "plus a bool": lambda lib, x: +(x > 0),
    "sum to no size of it": lambda lib, x: x.sum_to_size(5),
    "pinned": lambda lib, x: x.pin_memory(),
}


@pytest.mark.parametrize("name", SAYS)
def test_what_a_tensor_says(name, oracle):
    ours, theirs = randn(oracle, 2, 3)
    assert SAYS[name](rl, ours) == SAYS[name](oracle, theirs)


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # the oracle's
@pytest.mark.parametrize("name", GIVES)
def test_what_it_gives(name, oracle):
    ours, theirs = randn(oracle, 2, 3)
    same(GIVES[name](rl, ours), GIVES[name](oracle, theirs))


@pytest.mark.parametrize("name", RAISES)
def test_what_it_refuses(name, oracle):
    ours, theirs = randn(oracle, 2, 3)
    with pytest.raises(Exception) as expected:
        RAISES[name](oracle, theirs)
    with pytest.raises(kind(expected.type)):
        RAISES[name](rl, ours)


def test_resizing_keeps_to_the_memory_there_is(oracle):
    for lib, x in zip((rl, oracle), both(oracle, list(range(6)), "float32"), strict=True):
        y = x[2:]
        y.resize_(2)
        y.fill_(9)
        assert x.tolist() == [0, 1, 9, 9, 4, 5], lib
        x.resize_(0).resize_(6)
        assert x.tolist() == [0, 1, 9, 9, 4, 5], lib


def test_every_function_that_writes(oracle):
    from rushlight.eager.traits import WRITTEN

    for name in sorted(WRITTEN):
        assert callable(getattr(rl, name)) and hasattr(oracle, name), name
        assert dtype_name(rl.ones(1)) == "float32"
        assert hasattr(rl.Tensor, name), name


NAMES = {  # NumPy's names of arguments, and PyTorch's own by keyword
    "max": lambda lib, x: x.max(axis=1)[0],
    "min": lambda lib, x: x.min(axis=1, keepdims=True).values,
    "max of two": lambda lib, x: lib.max(input=x, other=x * 2),
    "sort": lambda lib, x: x.sort(axis=0)[0] + lib.sort(input=x, dim=0)[0],
    "argsort": lambda lib, x: x.argsort(axis=0) + lib.argsort(input=x, dim=0, stable=True),
    "median": lambda lib, x: x.median(axis=1, keepdims=True)[0],
    "concat": lambda lib, x: lib.concat([x, x], axis=1) + lib.concatenate((x, x), axis=-1),
    "scatter": lambda lib, x: lib.scatter(
        input=x, dim=1, index=lib.tensor([[0]]), src=lib.ones(1, 1)
    ),
    "split": lambda lib, x: x.split(split_size=2, dim=1)[1],
    "repeat": lambda lib, x: lib.repeat_interleave(input=x, repeats=2, dim=1),
    "zeros": lambda lib, x: lib.zeros(size=(2, 3)) + lib.ones(size=(3,), pin_memory=False),
    "empty": lambda lib, x: lib.empty(size=(2, 3)).zero_(),
    "drawn": lambda lib, x: lib.rand(size=(2, 3)) * 0 + lib.randn(size=(3,)) * 0,
    "converted": lambda lib, x: x.double(memory_format=lib.preserve_format),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_arguments(name, oracle):
    ours, theirs = randn(oracle, 2, 3)
    same(NAMES[name](rl, ours), NAMES[name](oracle, theirs))
