"""Short rows side by side: the bits of rows taken one at a time, and of rows across memory."""

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.ops import TABLE

SPECIAL = (np.nan, np.inf, -np.inf, -0.0)
WEIGHT = np.random.default_rng(1).normal(1, 0.1, (2, 17)).astype(np.float32)


def layer_norm(x):
    n = x.shape[-1]
    weight, bias = (rl.from_numpy(w[:n].copy()).to(x.dtype) for w in WEIGHT)
    return TABLE["native_layer_norm"].native(x, (n,), weight, bias, 1e-5)


CALLS = {
    "softmax": lambda x: rl.softmax(x, -1),
    "log_softmax": lambda x: rl.log_softmax(x, -1),
    "logsumexp": lambda x: rl.logsumexp(x, -1),
    "argmax": lambda x: x.argmax(-1),
    "amin": lambda x: x.amin(-1),
    "var": lambda x: x.var(-1),
    "layer_norm": layer_norm,
}


def numbers(rows, length, dtype):
    x = np.random.default_rng(rows * length).normal(0, 3, (rows, length))
    for i in range(0, rows, 3):  # a special value, and some of equal size
        x[i, i % length] = SPECIAL[i // 3 % len(SPECIAL)] if dtype != "int64" else 0
    x[1::4] = np.round(x[1::4])
    return x.astype(dtype)


def bits(found):
    return [t.numpy().tobytes() for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 15, 16, 17])
@pytest.mark.parametrize(
    "name, dtype",
    [(n, d) for n in CALLS for d in ("float32", "float64", "float16")]
    + [("argmax", "int64"), ("amin", "int64")],
)
def test_bits_are_those_of_other_forms(name, dtype, length):
    call = CALLS[name]
    x = numbers(37, length, dtype)
    together = call(rl.from_numpy(x))
    across = call(rl.from_numpy(np.ascontiguousarray(x.T)).t())
    if name != "layer_norm":
        assert bits(together) == bits(across)
    if length > 4:  # a row alone is no group of short rows then
        for i in range(37):
            part = call(rl.from_numpy(x[i : i + 1]))
            rows = together if isinstance(together, tuple) else (together,)
            assert bits(part) == [np.ascontiguousarray(t.numpy()[i]).tobytes() for t in rows]


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17])
def test_missing_rows_are_not_written(rows):
    x = numbers(rows, 4, "float32")
    out = rl.full((rows + 2, 4), 7.0)
    rl.softmax(rl.from_numpy(x), -1)
    rl.softmax(rl.from_numpy(x), -1, out=out[1:-1])
    assert bits(out[1:-1].clone()) == bits(rl.softmax(rl.from_numpy(x), -1))
    assert (out[0] == 7).all() and (out[-1] == 7).all()


def test_strided_rows_and_indices():
    x = rl.from_numpy(numbers(40, 12, "float32"))
    labels = rl.arange(40) % 6
    for view in x[::2, ::2], x.flip(0)[:20, 3:9]:
        found = F.cross_entropy(view, labels[:20], reduction="none")
        one = [F.cross_entropy(view[i : i + 1], labels[i : i + 1]) for i in range(20)]
        assert bits(found) == bits(rl.stack(one))
    with pytest.raises(IndexError, match="7"):
        F.cross_entropy(x[:3, :6], rl.tensor([1, 7, 9]))
