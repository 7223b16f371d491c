"""Other libraries' memory without a copy, both ways; pickle, copies, and Python's own protocols."""

import copy
import gc
import io
import pickle
import weakref

import numpy as np
import pytest

import rushlight as rl

from .both import numpy_of, raises, same

SHARED = [d for d in rl.DTYPES if d != "bfloat16"]
SHAPES = [(), (1,), (0,), (3,), (2, 3), (0, 3), (2, 0), (2, 3, 4)]


@pytest.mark.parametrize("dtype", SHARED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numpy_shares_memory(dtype, shape):
    x = rl.ones(shape, dtype=getattr(rl, dtype))
    a = x.numpy()
    assert a.dtype.name == dtype and a.shape == shape and a.flags.writeable
    if a.size:
        a[...] = 0
        assert x.sum().item() == 0
        x.fill_(1)
        assert a.all()
        assert a.ctypes.data == x.data_ptr()
    back = rl.from_numpy(a)
    assert tuple(back.shape) == shape and back.dtype == x.dtype
    if a.size:
        assert back.data_ptr() == x.data_ptr()


def test_numpy_of_views():
    x = rl.arange(24.0).reshape(4, 6)
    for v in (x.t(), x[1:, ::2], x[:, :1].expand(4, 5), x[2], x[0, 0], x[:0]):
        a = v.numpy()
        assert a.shape == tuple(v.shape)
        assert np.array_equal(a, np.array(v.tolist()).reshape(a.shape))
        if v.numel() > 1:
            assert a.strides == tuple(4 * s for s in v.stride())


def test_from_numpy_of_views():
    a = np.arange(24.0).reshape(4, 6)
    for v in (a.T, a[1:, ::2], a[2], a[:, 3], a[:0]):
        x = rl.from_numpy(v)
        assert x.tolist() == v.tolist()
        if v.size:
            assert x.data_ptr() == v.ctypes.data
    x = rl.from_numpy(a[::2])
    x.mul_(0)
    assert a[0].sum() == 0 and a[1].sum() > 0


def test_numpy_keeps_memory_alive():
    x = rl.ones(1000)
    a = x.numpy()
    del x
    gc.collect()
    rl.zeros(1000)
    assert a.sum() == 1000
    a = np.ones(1000)
    ref = weakref.ref(a)
    x = rl.from_numpy(a)
    del a
    gc.collect()
    assert ref() is not None and x.sum().item() == 1000
    del x
    gc.collect()
    assert ref() is None


def test_what_numpy_refuses(oracle):
    for lib in (rl, oracle):
        with pytest.raises(ValueError):
            lib.from_numpy(np.arange(4.0)[::-1])
        with pytest.raises(TypeError):
            lib.from_numpy(np.array(["a"]))
        with pytest.raises(TypeError):
            lib.from_numpy([1, 2])
        with pytest.raises(TypeError):
            lib.from_numpy(np.array([object()]))
        with pytest.raises(TypeError):
            lib.ones(3, dtype=lib.bfloat16).numpy()
        with raises(RuntimeError, match="detach"):
            lib.ones(3, requires_grad=True).numpy()
        assert lib.ones(3, requires_grad=True).detach().numpy().sum() == 3
    with pytest.raises((TypeError, ValueError)):
        rl.from_numpy(np.arange(4.0).astype(">f8"))
    with pytest.raises((TypeError, ValueError)):
        rl.from_numpy(np.zeros(3, dtype=[("a", "f4"), ("b", "f8")])["b"])


@pytest.mark.filterwarnings("ignore:.*not writ:UserWarning")
def test_read_only_arrays():
    """Memory that must not be written is refused, or copied: never written."""
    a = np.arange(4.0)
    a.flags.writeable = False
    try:
        x = rl.from_numpy(a)
    except (ValueError, TypeError, RuntimeError, BufferError):
        x = None
    if x is not None and x.data_ptr() != a.ctypes.data:
        x.add_(1)
    assert a.tolist() == [0, 1, 2, 3]
    assert rl.tensor(a).tolist() == [0, 1, 2, 3]
    b = np.broadcast_to(np.float32(3), (4,))
    assert rl.tensor(b).tolist() == [3.0] * 4


def test_tensor_of_arrays_copies(oracle):
    for lib in (rl, oracle):
        a = np.arange(4.0)
        x = lib.tensor(a)
        a[0] = 9
        assert x.tolist() == [0, 1, 2, 3] and x.dtype == lib.float64
        y = lib.as_tensor(a)
        a[0] = 5
        assert y[0].item() == 5
        assert lib.as_tensor(y) is y
        assert lib.tensor(np.float32(2)).dtype == lib.float32
        assert lib.tensor(np.int32(2)).dtype == lib.int32
        assert lib.tensor(np.bool_(True)).dtype == lib.bool
        assert lib.tensor([np.float32(2), np.float32(3)]).tolist() == [2.0, 3.0]
        assert lib.tensor(a[::-1].copy()).tolist()[0] == 3
        assert lib.tensor([[1, 2], [3, 4]], dtype=lib.float32).dtype == lib.float32
        assert lib.tensor(()).tolist() == [] and lib.tensor([[], []]).shape == (2, 0)
        assert lib.tensor([lib.tensor(1), lib.tensor(2)]).tolist() == [1, 2]
        assert lib.tensor(range(3)).tolist() == [0, 1, 2]
        assert lib.tensor([True, 2]).dtype == lib.int64
        assert lib.tensor([1, 2.5]).dtype == lib.float32
        assert lib.tensor((1, 2)).tolist() == [1, 2]
    assert rl.tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]


def test_array_protocols():
    x = rl.arange(6.0).reshape(2, 3)
    assert np.asarray(x).tolist() == x.tolist()
    assert np.array(x, dtype="int64").dtype == "int64"
    assert np.array(x).ctypes.data != x.data_ptr()
    assert np.sum(x) == 15 and np.exp(x).shape == (2, 3)
    assert np.stack([x, x]).shape == (2, 2, 3)
    assert (np.ones(3) == np.asarray(rl.ones(3))).all()
    y = rl.ones(3) * np.float64(2.5)
    assert isinstance(y, rl.Tensor) and y.dtype == rl.float32
    z = np.float32(2) * rl.ones(3)
    assert isinstance(z, rl.Tensor) and z.tolist() == [2.0] * 3
    assert (rl.ones(3) + np.int64(1)).dtype == rl.float32
    assert memoryview(x).shape == (2, 3)


# ---- DLPack


@pytest.mark.parametrize("dtype", rl.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dlpack_with_the_oracle(dtype, shape, oracle):
    x = rl.ones(shape, dtype=getattr(rl, dtype))
    y = oracle.from_dlpack(x)
    assert str(y.dtype) == f"torch.{dtype}" and tuple(y.shape) == shape
    if x.numel():
        assert y.data_ptr() == x.data_ptr()
        y.zero_()
        assert x.sum().item() == 0
    t = oracle.ones(shape, dtype=getattr(oracle, dtype))
    z = rl.from_dlpack(t)
    same(z, t)
    if t.numel():
        assert z.data_ptr() == t.data_ptr()
        z.fill_(0)
        assert t.sum().item() == 0
    same(rl.from_dlpack(oracle.utils.dlpack.to_dlpack(t)), t)


def test_dlpack_of_views(oracle):
    x = rl.arange(24.0).reshape(4, 6)
    for v in (x.t(), x[1:, ::2], x[:, :1].expand(4, 5), x[2], x[3, 3]):
        same(v, oracle.from_dlpack(v))
    t = oracle.arange(24.0).reshape(4, 6)
    for v in (t.t(), t[1:, ::2], t[:, :1].expand(4, 5), t[2], t[3, 3]):
        w = rl.from_dlpack(v)
        same(w, v)
        assert w.data_ptr() == v.data_ptr()
        if v.numel() > 1:
            assert tuple(w.stride()) == tuple(v.stride())


def test_dlpack_lifetimes(oracle):
    x = rl.ones(1000)
    y = oracle.from_dlpack(x)
    del x
    gc.collect()
    rl.zeros(1000)
    assert y.sum() == 1000
    t = oracle.ones(1000)
    z = rl.from_dlpack(t)
    del t
    gc.collect()
    oracle.zeros(1000)
    assert z.sum().item() == 1000
    before = rl._core.allocator_stats()["in_use"]
    for _ in range(1000):
        rl.ones(10).__dlpack__()
    gc.collect()
    assert rl._core.allocator_stats()["in_use"] == before


def test_dlpack_capsules_are_taken_once():
    c = rl.ones(3).__dlpack__()
    rl.from_dlpack(c)
    with pytest.raises((RuntimeError, ValueError, TypeError, BufferError)):
        rl.from_dlpack(c)
    for bad in (3, None, "a", object()):
        with pytest.raises((TypeError, RuntimeError, AttributeError)):
            rl.from_dlpack(bad)


def test_dlpack_with_numpy():
    x = rl.arange(6.0).reshape(2, 3)
    a = np.from_dlpack(x)
    assert a.ctypes.data == x.data_ptr() and a.tolist() == x.tolist()
    b = np.arange(6).reshape(2, 3)
    y = rl.from_dlpack(b)
    assert y.data_ptr() == b.ctypes.data and y.tolist() == b.tolist()
    with pytest.raises((RuntimeError, BufferError)):
        rl.ones(3, requires_grad=True).__dlpack__()
    assert rl.ones(3).__dlpack_device__()[0] == 1
    with pytest.raises((RuntimeError, BufferError, ValueError)):
        rl.from_dlpack(np.arange(4.0)[::-1])


# ---- Python


@pytest.mark.parametrize("dtype", rl.DTYPES)
def test_pickle(dtype):
    for x in (
        rl.arange(6).reshape(2, 3).to(getattr(rl, dtype)),
        rl.ones((), dtype=getattr(rl, dtype)),
        rl.ones(0, 3, dtype=getattr(rl, dtype)),
        rl.arange(6).reshape(2, 3).to(getattr(rl, dtype)).t(),
    ):
        for protocol in range(2, 6):
            y = pickle.loads(pickle.dumps(x, protocol))
            assert y.dtype == x.dtype and y.shape == x.shape and y.tolist() == x.tolist()
        z = copy.deepcopy(x)
        assert z.tolist() == x.tolist() and z.dtype == x.dtype
        if x.numel():
            assert z.data_ptr() != x.data_ptr()
            y.fill_(0)
            z.fill_(0)
            assert complex(x.sum()).real > 0


def test_pickle_keeps_what_belongs_to_a_leaf():
    x = rl.ones(3, requires_grad=True)
    y = pickle.loads(pickle.dumps(x))
    assert y.requires_grad and y.is_leaf
    p = rl.nn.Parameter(rl.ones(3))
    q = pickle.loads(pickle.dumps(p))
    assert type(q) is rl.nn.Parameter and q.requires_grad
    for thing in (rl.float32, rl.ones(2, 3).shape, rl.device("cpu")):
        assert pickle.loads(pickle.dumps(thing)) == thing
        assert copy.deepcopy(thing) == thing
    buffer = io.BytesIO()
    pickle.dump({"a": rl.ones(2), "b": [rl.zeros(1)]}, buffer)
    buffer.seek(0)
    assert pickle.load(buffer)["a"].tolist() == [1.0, 1.0]


def test_deepcopy(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        y = copy.deepcopy(x)
        assert y.requires_grad and y.grad.tolist() == [2.0] * 3 and y.grad is not x.grad
        a, b = copy.deepcopy([x, x])
        assert a is b
        with pytest.raises(RuntimeError):
            copy.deepcopy(x * 2)
        v = lib.arange(6.0).reshape(2, 3).t()
        assert copy.deepcopy(v).tolist() == v.tolist()
        c = copy.copy(lib.ones(3))
        assert c.tolist() == [1.0] * 3


def test_numbers(oracle):
    for lib in (rl, oracle):
        assert lib.tensor(3).item() == 3 and type(lib.tensor(3).item()) is int
        assert type(lib.tensor(3.0).item()) is float and type(lib.tensor(True).item()) is bool
        assert lib.tensor([[2.5]]).item() == 2.5
        assert int(lib.tensor(3.7)) == 3 and float(lib.tensor(3)) == 3.0
        assert bool(lib.tensor(0.5)) and not bool(lib.tensor([0]))
        assert list(range(5))[lib.tensor(2)] == 2
        assert [10, 20, 30][lib.tensor(1)] == 20
        with pytest.raises(TypeError):
            [1, 2][lib.tensor(1.0)]
        assert "a" * lib.tensor(3) == "aaa"
        with raises(RuntimeError, match="ambiguous"):
            bool(lib.ones(2))
        with pytest.raises(RuntimeError):
            bool(lib.ones(0))
        with pytest.raises(RuntimeError):
            lib.ones(2).item()
        assert len(lib.ones(4, 2)) == 4
        with pytest.raises(TypeError):
            len(lib.tensor(1))
        assert lib.tensor(float("nan")).item() != 0
        assert lib.tensor(-0.0).item().hex() == "-0x0.0p+0"
        assert lib.tensor(2**62).item() == 2**62
        assert lib.tensor(0.1, dtype=lib.bfloat16).item() == 0.10009765625
        assert lib.tensor(0.1, dtype=lib.float16).item() == 0.0999755859375
        x, other = lib.ones(2), lib.ones(2)
        assert hash(x) == hash(x) != hash(other)
        assert {x: 1}[x] == 1
        assert x in [x]
        with pytest.raises(ValueError):
            int(lib.tensor(float("nan")))
        with pytest.raises(OverflowError):
            int(lib.tensor(float("inf")))


def test_tolist_and_iteration(oracle):
    for lib in (rl, oracle):
        x = lib.arange(6).reshape(2, 3)
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x.t().tolist() == [[0, 3], [1, 4], [2, 5]]
        assert lib.tensor(1.5).tolist() == 1.5 and lib.ones(0, 2).tolist() == []
        assert lib.ones(2, 0).tolist() == [[], []]
        assert lib.tensor([True]).tolist() == [True]
        assert [r.tolist() for r in x] == x.tolist()
        a, b = x
        assert b.tolist() == [3, 4, 5]
        assert list(reversed(x))[0].tolist() == [3, 4, 5]
        assert list(lib.ones(0)) == []
        assert max(lib.tensor([1, 5, 2])).item() == 5
        assert sum(lib.tensor([1, 2, 3])).item() == 6
        assert sorted(lib.tensor([3, 1, 2]))[0].item() == 1
        assert tuple(x.shape) == (2, 3) and x.shape == (2, 3) and x.shape[-1] == 3
        assert x.shape.numel() == 6 and x.size(0) == 2 and x.size(-1) == 3
        row = next(iter(lib.ones(2, 2, requires_grad=True) * 1))
        assert row.requires_grad
        dict(zip("ab", x))


def test_comparison_with_foreign_things(oracle):
    for lib in (rl, oracle):
        x = lib.ones(2)
        assert (x == None) is False  # noqa: E711
        assert (x != None) is True  # noqa: E711
        assert (x == "a") is False
        assert x is not None
        with pytest.raises(TypeError):
            x < "a"  # noqa: B015
        with pytest.raises(TypeError):
            x + None
        with pytest.raises(TypeError):
            x + [1]


def test_weak_references_and_attributes(oracle):
    x = rl.ones(3)
    ref = weakref.ref(x)
    del x
    assert ref() is None
    for lib in (rl, oracle):
        p = lib.nn.Parameter(lib.ones(2))
        p.mark = 3
        assert copy.deepcopy(p).shape == (2,)


def test_dtype_objects(oracle):
    for name in rl.DTYPES:
        ours, theirs = getattr(rl, name), getattr(oracle, name)
        assert ours.itemsize == theirs.itemsize
        assert ours.is_floating_point == theirs.is_floating_point
        assert ours.is_signed == theirs.is_signed
        assert ours == ours and ours != rl.float64 or name == "float64"
        assert hash(ours) == hash(getattr(rl, name))
    assert rl.float is rl.float32 and rl.long is rl.int64


def test_values_through_every_door(oracle):
    a = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    x = rl.from_numpy(a)
    for door in (
        lambda: rl.tensor(a),
        lambda: rl.tensor(a.tolist()),
        lambda: rl.as_tensor(a),
        lambda: rl.from_dlpack(a),
        lambda: rl.from_dlpack(oracle.from_numpy(a)),
        lambda: rl.tensor(x),
        lambda: rl.tensor(list(x)),
        lambda: rl.stack(list(x)),
    ):
        assert np.array_equal(numpy_of(door()), a)


def test_without_grad_mode_a_tensor_that_requires_grad_is_an_array(oracle):
    for torch in (rl, oracle):
        x = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            assert x.numpy().tolist() == [1.0, 1.0]
            assert np.asarray(x).tolist() == [1.0, 1.0]
        with pytest.raises(RuntimeError, match="detach"):
            x.numpy()
        with pytest.raises(RuntimeError):
            np.asarray(x)
