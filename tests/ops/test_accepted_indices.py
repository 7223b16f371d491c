"""Indices, masks and labels: the dtypes that PyTorch takes are taken, others refused by name."""

import pytest

import rushlight
from rushlight.fake import fake

VALUES = [[0, 1, 2, 1], [1, 0, 1, 1], [0, 0, 1, 1]]
DTYPES = "bool uint8 int8 int16 int32 int64 float32 complex64".split()
CALLS = {
    "gather": lambda m, x, i: x.gather(1, i),
    "scatter": lambda m, x, i: x.scatter(1, i, x),
    "scatter of a number": lambda m, x, i: x.scatter(1, i, 1.0),
    "scatter_add": lambda m, x, i: x.scatter_add(1, i, x),
    "scatter_reduce": lambda m, x, i: x.scatter_reduce(1, i, x, "amax"),
    "index_select": lambda m, x, i: x.index_select(0, i[0]),
    "index_add": lambda m, x, i: x.index_add(1, i[0], x),
    "index_copy": lambda m, x, i: x.index_copy(1, i[0], x),
    "take": lambda m, x, i: x.take(i),
    "x[i]": lambda m, x, i: x[i],
    "embedding": lambda m, x, i: m.nn.functional.embedding(i, x.t()),
    "one_hot": lambda m, x, i: m.nn.functional.one_hot(i),
    "cross_entropy": lambda m, x, i: m.nn.functional.cross_entropy(x, i[:, 0]),
    "nll_loss": lambda m, x, i: m.nn.functional.nll_loss(x, i[:, 0]),
    "max_unpool1d": lambda m, x, i: m.nn.functional.max_unpool1d(x[:, :2], i[:, :2], 2),
    "where": lambda m, x, i: m.where(i, x, x + 1),
    "where of a number": lambda m, x, i: m.where(i, 1.0, x),
    "masked_fill": lambda m, x, i: x.masked_fill(i, 0.0),
    "masked_select": lambda m, x, i: x.masked_select(i),
    "tensor_split": lambda m, x, i: m.tensor_split(x, i[0, :2].clone())[0],
}


def outcome(module, call, dtype):
    i = module.tensor(VALUES).to(getattr(module, dtype))
    x = module.arange(12.0).reshape(3, 4)
    try:
        return call(module, x, i).tolist()
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_of_indices(oracle, name):
    for dtype in DTYPES:
        expected = outcome(oracle, CALLS[name], dtype)
        found = outcome(rushlight, CALLS[name], dtype)
        if isinstance(expected, type):
            assert isinstance(found, type) and issubclass(found, expected), (dtype, found)
        else:
            assert not isinstance(found, type), (dtype, found)
            assert rushlight.tensor(found).allclose(rushlight.tensor(expected)), dtype


@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_a_condition_that_is_none_is_named(dtype):
    x = rushlight.ones(3).to(getattr(rushlight, dtype))

    def choose(x):
        return rushlight.where(x, 1.0, rushlight.zeros(3))

    for call, given in ((choose, x), (choose, fake(x)), (rushlight.compile(choose), x)):
        with pytest.raises(RuntimeError, match=rf"\[where\] expected condition .*{dtype}"):
            call(given)
