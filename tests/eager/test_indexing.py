"""Index tensors, lists, masks and their mixtures, read and written: random keys against the oracle,
and what PyTorch's rules say without it.
"""

import random

import numpy as np
import pytest

import rushlight as rl

from .both import both_do, counted, kind, outcome, raises, same

SHAPES = ((), (5,), (3, 4), (2, 3, 4), (0, 3), (4, 1, 3, 2))
FAST, ALL = 300, 3000


class Key:
    """A random key for a shape: a list of builders lib -> entry. Some keys are wrong on purpose."""

    def __init__(self, seed, shape):
        r = random.Random(seed)
        self.entries, dim = [], 0
        common = r.choice(((), (2,), (3,), (2, 2), (1,), (0,)))
        wrong = r.random() < 0.1
        ellipsis = r.random() < 0.3
        while dim < len(shape) and r.random() < 0.85:
            n = shape[dim]
            what = r.choice(("int", "slice", "index", "index", "list", "mask", "none", "array"))
            if ellipsis and r.random() < 0.3:
                self.entries.append(lambda lib: ...)
                dim = max(dim, len(shape) - 1)
                ellipsis = False
                continue
            if what == "none":
                self.entries.append(lambda lib: None)
                continue
            dim += 1
            if what == "int":
                i = r.randrange(-n, n) if n else 0
                self.entries.append(lambda lib, i=i: i)
            elif what == "slice":
                a, b = r.randrange(-n - 1, n + 2), r.randrange(-n - 1, n + 2)
                s = slice(r.choice((None, a)), r.choice((None, b)), r.choice((None, 1, 2)))
                self.entries.append(lambda lib, s=s: s)
            elif what == "mask":
                k = r.choice((1, 1, 2))
                sizes = shape[dim - 1 : dim - 1 + k]
                dim += len(sizes) - 1
                data = np.array([r.random() < 0.5 for _ in range(int(np.prod(sizes)))])
                data = data.reshape(sizes)
                self.entries.append(lambda lib, d=data: lib.tensor(d.tolist(), dtype=lib.bool)
                                    .reshape(d.shape))  # fmt: skip
            else:
                sizes = common if r.random() < 0.7 else (1,) * len(common)
                high = n + (3 if wrong else 0)
                count = int(np.prod(sizes))
                data = [r.randrange(-n, high) if n or wrong else 0 for _ in range(count)]
                data = np.array(data, dtype="int64").reshape(sizes)
                dtype = r.choice(("int64", "int64", "int32"))
                if what == "list" and data.ndim:
                    self.entries.append(lambda lib, d=data: d.tolist())
                elif what == "array":
                    self.entries.append(lambda lib, d=data: d)
                else:
                    self.entries.append(
                        lambda lib, d=data, t=dtype: lib.tensor(
                            d.tolist(), dtype=getattr(lib, t)
                        ).reshape(d.shape)
                    )

    def key(self, lib):
        made = tuple(e(lib) for e in self.entries)
        return made[0] if len(made) == 1 else made


def agree(a, b, context):
    assert a[0] == b[0], (context, a, b)
    if a[0] == "error":
        assert issubclass(a[1], kind(b[1])), (context, a, b)
    return a[0] == "ok"


def read_and_written(oracle, seed):
    shape = SHAPES[seed % len(SHAPES)]
    key = Key(seed, shape)
    ours, theirs = counted(oracle, *shape, dtype="float64")
    results = []
    for lib, x in ((rl, ours), (oracle, theirs)):
        x = x.clone().requires_grad_()
        results.append((x, outcome(lambda x=x, lib=lib: x[key.key(lib)])))
    (x, a), (y, b) = results
    if not agree(a, b, seed):
        return
    same(a[1], b[1], seed)
    for found in (a[1], b[1]):
        if found.numel():
            (found * found).sum().backward()
    if x.grad is not None:
        same(x.grad, y.grad, f"gradient of {seed}")
    shape = tuple(a[1].shape)
    values = np.arange(1, 1 + int(np.prod(shape)), dtype="float64").reshape(shape)
    if seed % 3 == 1 and shape:
        values = values[..., :1]
    for value in (values, 7.5):
        written, made = [], []
        for lib, x in ((rl, ours), (oracle, theirs)):
            x = x.clone()
            v = value
            if value is values:
                v = lib.tensor(value.tolist(), dtype=lib.float64).reshape(value.shape)
            made.append(outcome(lambda x=x, v=v, lib=lib: x.__setitem__(key.key(lib), v)))
            written.append(x)
        if agree(*made, f"write {seed}") and once(oracle, key, ours.shape):
            same(*written, f"write {seed}")


def once(oracle, key, shape):
    """Whether every place is written once: the oracle's order of writes is not defined."""
    places = oracle.arange(int(np.prod(shape))).reshape(tuple(shape))[key.key(oracle)].reshape(-1)
    return len(set(places.tolist())) == len(places)


@pytest.mark.parametrize("part", range(10))
@pytest.mark.filterwarnings("ignore")
def test_random_keys(part, oracle):
    for seed in range(part * FAST // 10, (part + 1) * FAST // 10):
        read_and_written(oracle, seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_more_random_keys(oracle):
    for seed in range(FAST, ALL):
        read_and_written(oracle, seed)


def test_where_the_indices_dims_stand():
    x = rl.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    i, j = rl.tensor([0, 1, 2]), rl.tensor([[0], [1]])
    a = np.arange(120).reshape(2, 3, 4, 5)
    ni, nj = np.array([0, 1, 2]), np.array([[0], [1]])
    assert x[:, i, nj].tolist() == a[:, ni, nj].tolist()  # neighbours: in their place
    assert x[:, i, :, j].tolist() == a[:, ni, :, nj].tolist()  # apart: in front
    assert tuple(x[0, :, i].shape) == (3, 3, 5)  # ints select first, unlike numpy
    assert tuple(x[:, None, i].shape) == (2, 1, 3, 4, 5)
    assert tuple(x[..., i].shape) == (2, 3, 4, 3)


def test_masks_of_any_rank():
    x = rl.arange(12).reshape(3, 4)
    m = rl.tensor([True, False, True])
    assert x[m].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert x[:, rl.tensor([True, False, False, True])].tolist() == [[0, 3], [4, 7], [8, 11]]
    assert x[m, rl.tensor([1, 2])].tolist() == [1, 10]
    assert x[x > 8].tolist() == [9, 10, 11]
    assert tuple(x[True].shape) == (1, 3, 4) and tuple(x[False].shape) == (0, 3, 4)
    assert tuple(x[rl.tensor(True)].shape) == (1, 3, 4)
    with raises(IndexError, "[3]", "[3, 4]"):
        x[:, m]


@pytest.mark.parametrize("index", (rl.tensor([0, 3]), rl.tensor([-4]), [5]))
def test_an_index_outside_tells_index_dim_and_size(index):
    with raises(IndexError, "dim 1", "size 3"):
        rl.zeros(2, 3)[:, index]
    x = rl.zeros(2, 3)
    with pytest.raises(IndexError):
        x[:, index] = 1
    assert x.sum().item() == 0


def test_keys_that_are_none():
    x = rl.zeros(2, 3)
    for wrong, error in ((1.5, IndexError), ("a", TypeError), (rl.tensor([0.5]), IndexError)):
        with pytest.raises(error):
            x[wrong]
    with raises(IndexError, "too many indices"):
        x[rl.tensor([0]), 0, 0]


def test_index_put_accumulates_every_time():
    x = rl.zeros(3)
    i = rl.tensor([0, 0, 2])
    assert x.index_put((i,), rl.tensor([1.0, 2, 3]), accumulate=True).tolist() == [3, 0, 3]
    assert x.tolist() == [0, 0, 0]
    x.index_put_((i,), rl.tensor(1.0), accumulate=True)
    assert x.tolist() == [2, 0, 1]


def test_index_put_of_half_types_and_bools():
    for dtype in (rl.float16, rl.bfloat16):
        x = rl.zeros(4, dtype=dtype)
        x[rl.tensor([1, 2])] = 1.5
        x.index_put_((rl.tensor([1, 1]),), rl.tensor([1.0, 2.0], dtype=dtype), accumulate=True)
        assert x.tolist() == [0, 4.5, 1.5, 0]
    b = rl.zeros(3, dtype=rl.bool)
    b[[0, 2]] = True
    assert b.tolist() == [True, False, True]


def test_writes_into_views_reach_the_base():
    x = rl.zeros(3, 4)
    x[1:, ::2][rl.tensor([0, 1]), rl.tensor([1, 0])] = rl.tensor([5.0, 6.0])
    assert x.tolist() == [[0, 0, 0, 0], [0, 0, 5, 0], [6, 0, 0, 0]]
    x.t()[x.t() > 5] = -1
    assert x[2, 0].item() == -1


def test_gradients_of_writes_on_the_tape():
    x = rl.ones(4, requires_grad=True)
    v = rl.tensor([2.0, 3.0], requires_grad=True)
    y = x * 2
    y[rl.tensor([0, 2])] = v
    y[y > 2.5] *= 3
    (y * rl.tensor([1.0, 10, 100, 1000])).sum().backward()
    assert x.grad.tolist() == [0, 20, 0, 2000]
    assert v.grad.tolist() == [1, 300]


def test_gradient_of_a_gradient():
    x = rl.tensor([1.0, 2, 3], requires_grad=True)
    y = x[rl.tensor([0, 0, 2])]
    (g,) = rl.autograd.grad((y * y * y).sum(), x, create_graph=True)
    assert g.tolist() == [6, 0, 27]
    g.sum().backward()
    assert x.grad.tolist() == [12, 0, 18]


def test_mask_sizes_leave_memory_flat():
    before = rl._core.plan_stats()["plans"]
    x = rl.arange(20000)
    for n in range(3000):
        assert x[x < n].numel() == n
    assert rl._core.plan_stats()["plans"] - before < 20000


@pytest.mark.filterwarnings("ignore")
def test_uint8_masks(oracle):
    for lib in (rl, oracle):
        x = lib.arange(4)
        assert x[lib.tensor([1, 0, 0, 1], dtype=lib.uint8)].tolist() == [0, 3]


def test_values_of_another_dtype(oracle):
    ours, theirs = counted(oracle, 3, 4)
    for value in (True, 3, 2.5):
        for key in (lambda lib: [0, 2], lambda lib: lib.tensor([[True, False, True, False]] * 3)):

            def write(x, key=key, value=value):
                lib = rl if isinstance(x, rl.Tensor) else oracle
                x[key(lib)] = value
                return x

            both_do(write, (ours.clone(),), (theirs.clone(),))
            both_do(write, (ours.long(),), (theirs.long(),))
            both_do(write, (ours.bool(),), (theirs.bool(),))

    def double(x):
        lib = rl if isinstance(x, rl.Tensor) else oracle
        x[[0, 1]] = lib.ones(2, 4, dtype=lib.float64)
        return x

    both_do(double, (ours.clone(),), (theirs.clone(),))
