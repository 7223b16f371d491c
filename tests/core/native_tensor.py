"""Tensors: making, converting, sharing memory, indexing as views."""

import gc
import pickle
import sys
import weakref

import numpy as np
import pytest
from harness import OPS, core, f32, f64, i64, tensor

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def test_dtypes():
    assert repr(core.float32) == "rushlight.float32" and core.float32.itemsize == 4
    assert (
        core.bfloat16.is_floating_point
        and not core.int8.is_floating_point
        and not core.uint8.is_signed
    )
    assert [getattr(core, n).id for n in DTYPES] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert pickle.loads(pickle.dumps(core.int16)) is core.int16
    assert core.can_cast(i64, f32) and not core.can_cast(f32, i64)


@pytest.mark.parametrize(
    "data, dtype",
    [
        (True, "bool"),
        (3, "int64"),
        (2.5, "float32"),
        ([1, 2], "int64"),
        ([True, 2], "int64"),
        ([[1, 2.5], [3, 4]], "float32"),
        ([], "float32"),
        ([[], []], "float32"),
        ((1, 2, 3), "int64"),
        ([np.float64(1.5), 2], "float64"),
        ([np.int32(1)], "int32"),
    ],
)
def test_inference(data, dtype):
    t = core.tensor(data)
    assert t.dtype is getattr(core, dtype)
    assert t.tolist() == np.array(data).tolist()
    assert t.shape == np.array(data).shape and t.is_contiguous() and t.is_leaf


def test_nested_errors():
    with pytest.raises(ValueError, match=r"expected sequence of length 1 at dim 1 \(got 2\)"):
        core.tensor([[1], [2, 3]])
    with pytest.raises((TypeError, ValueError)):
        core.tensor([1, [2]])
    with pytest.raises(TypeError):
        core.tensor(["a"])
    deep = []
    for _ in range(20):
        deep = [deep]
    with pytest.raises(ValueError, match="dims"):
        core.tensor(deep)


def test_tensor_of_tensors():
    assert core.tensor([core.tensor(1.5), core.tensor(2.0)]).tolist() == [1.5, 2.0]
    assert core.tensor([core.tensor([1, 2]), core.tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_round_trip(name):
    a = (np.arange(24) % 5).reshape(2, 3, 4).astype(name)
    for view in (a, a.transpose(2, 0, 1), a[:, 1:, ::2], a[0, 0, 0:0], np.array(a[1, 1, 1])):
        t = core.from_numpy(view)
        assert (
            t.dtype is getattr(core, name) and t.shape == view.shape and t.tolist() == view.tolist()
        )
        back = t.numpy()
        assert back.dtype == a.dtype and np.array_equal(back, view)
        assert np.array_equal(np.asarray(t), view)
    shared = core.from_numpy(a)
    a[0, 0, 0] = 1
    assert shared[0, 0, 0].item() == 1 and shared.data_ptr() == a.ctypes.data
    shared.numpy()[0, 0, 1] = 0
    assert a[0, 0, 1] == 0


def test_numpy_keeps_memory_alive():
    t = core.tensor([1.0, 2.0])
    a = t.numpy()
    r = weakref.ref(t)
    del t
    gc.collect()
    assert a.tolist() == [1.0, 2.0]
    b = np.ones(1000)
    count = sys.getrefcount(b)
    u = core.from_numpy(b)
    v = u[3:]
    del u
    assert sys.getrefcount(b) > count and v.shape == (997,)
    del v
    assert sys.getrefcount(b) == count and r is not None


def test_numpy_refusals():
    with pytest.raises(ValueError, match="negative"):
        core.from_numpy(np.ones(3)[::-1])
    with pytest.raises(TypeError):
        core.from_numpy(np.ones(3, dtype="M8[s]"))
    with pytest.raises(TypeError):
        core.from_numpy([1])
    with pytest.raises(ValueError):
        core.from_numpy(np.ones(3, dtype=">f4"))
    with pytest.raises(RuntimeError, match="detach"):
        tensor([1.0], grad=True).numpy()
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(tensor([1.0], grad=True))
    with pytest.raises(TypeError):
        core.tensor([1.0], core.bfloat16).numpy()


def test_array_arguments():
    t = core.tensor([1.5, 2.5])
    assert np.asarray(t, dtype="int64").tolist() == [1, 2]
    copy = np.array(t)
    copy[0] = 9
    assert t.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves(name):
    values = [
        0.0,
        -0.0,
        1.0,
        1 / 3,
        65504.0,
        1e-7,
        6e-8,
        1e30,
        float("inf"),
        float("nan"),
        0.1,
        -2.7,
    ]
    t = core.tensor(values, getattr(core, name))
    if name == "float16":
        with np.errstate(over="ignore"):
            expected = np.array(values, dtype="float32").astype("float16").astype("float64")
    else:
        bits = np.array(values, dtype="float32").view("uint32")
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("uint32").view("float32")
        expected = np.where(np.isnan(values), np.nan, rounded).astype("float64")
    assert np.array_equal(np.array(t.tolist()), expected, equal_nan=True)
    every = np.arange(65536, dtype="uint16")
    if name == "float16":
        h = core.from_buffer(every.tobytes(), core.float16)
        assert np.array_equal(
            np.array(core.tensor(h, f64).tolist()),
            every.view("float16").astype("float64"),
            equal_nan=True,
        )
        again = core.tensor(core.tensor(h, f32), core.float16)
        same = np.array(again.numpy()).view("uint16") == every
        assert np.all(same | np.isnan(every.view("float16").astype("float32")))


def test_from_buffer():
    data = bytearray(range(16))
    t = core.from_buffer(data, core.uint8, (4, 3), 2)
    assert t.tolist()[1] == [5, 6, 7]
    data[2] = 99
    assert t[0, 0].item() == 99
    with pytest.raises(BufferError):
        data.append(1)
    del t
    data.append(1)
    with pytest.raises(ValueError, match="exceeds"):
        core.from_buffer(data, i64, (3,), 0)
    with pytest.raises(ValueError, match="aligned"):
        core.from_buffer(data, core.int16, (3,), 1)


def test_dlpack():
    a = np.arange(6, dtype="float32").reshape(2, 3)
    for source in (a, a.T, a[:, 1:]):
        t = core.from_dlpack(source)
        assert t.tolist() == source.tolist() and t.data_ptr() == source.ctypes.data
    t = core.tensor([[1, 2], [3, 4]])
    assert t.__dlpack_device__() == (1, 0)
    b = np.from_dlpack(t)
    assert b.tolist() == t.tolist() and b.ctypes.data == t.data_ptr()
    capsule = t.__dlpack__()
    u = core.from_dlpack(capsule)
    assert u.data_ptr() == t.data_ptr()
    with pytest.raises(ValueError, match="consumed"):
        core.from_dlpack(capsule)
    v = core.from_dlpack(t.__dlpack__(max_version=(1, 0), copy=True))
    assert v.data_ptr() != t.data_ptr() and v.tolist() == t.tolist()
    t.__dlpack__()  # never consumed: freed with the capsule
    with pytest.raises(BufferError):
        tensor([1.0], grad=True).__dlpack__()
    before = core.allocator_stats()["in_use"]
    del t, b, u, v, capsule
    assert core.allocator_stats()["in_use"] < before


def test_sizes():
    t = core.empty((2, 3, 4), f64)
    assert (
        t.stride() == (12, 4, 1) and t.stride(-1) == 1 and t.size(1) == 3 and t.size() == (2, 3, 4)
    )
    assert (t.dim(), t.ndim, t.numel(), t.element_size(), len(t)) == (3, 3, 24, 8, 2)
    assert (
        t.storage_offset() == 0
        and t[1].storage_offset() == 12
        and t.untyped_storage_ptr() == t[1].untyped_storage_ptr()
    )
    assert str(t.device) == "cpu" and t.layout_id == core.empty((2, 3, 4), f64).layout_id
    assert core.empty_strided((2, 3), (1, 2), f32).stride() == (1, 2)
    with pytest.raises(IndexError):
        t.size(3)
    with pytest.raises((RuntimeError, ValueError)):
        core.empty((-1,), f32)
    with pytest.raises((RuntimeError, ValueError, MemoryError)):
        core.empty((1 << 40, 1 << 40), f32)


def test_scalars():
    assert (
        core.tensor(3).item() == 3
        and int(core.tensor(3.7)) == 3
        and float(core.tensor([[2]])) == 2.0
    )
    assert bool(core.tensor(0.0)) is False and bool(core.tensor([5])) is True
    assert [10, 20, 30][core.tensor(1)] == 20
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(core.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="2 elements cannot be converted"):
        core.tensor([1, 2]).item()
    with pytest.raises(TypeError):
        [1][core.tensor(0.0)]
    with pytest.raises(ValueError):
        int(core.tensor([1, 2]))
    with pytest.raises(OverflowError):
        core.tensor([1 << 70])


INDICES = [
    0,
    -1,
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    slice(-100, 100),
    slice(3, 1),
    None,
    Ellipsis,
    (0, 1),
    (slice(None), 2),
    (Ellipsis, 1),
    (0, Ellipsis),
    (None, 1, None),
    (slice(1, None), slice(None, -1), 0),
    (Ellipsis, None),
    (1, Ellipsis, slice(0, 2)),
    (),
    (np.int64(1), 2),
    (slice(np.int64(1), None),),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indexing(index):
    a = np.arange(60).reshape(3, 4, 5)
    t = core.from_numpy(a)
    assert t[index].tolist() == a[index].tolist() and t[index].shape == a[index].shape
    grad = core.tensor(a.astype("float32")).requires_grad_()  # the path that records each step
    assert grad[index].tolist() == a[index].tolist()
    b = a.copy()
    b[index] = 7
    u = core.tensor(a)
    u[index] = 7
    assert u.tolist() == b.tolist()


def test_indexing_errors():
    t = core.tensor([[1, 2], [3, 4]])
    for index, message in (
        ((0, 0, 0), "too many indices"),
        (2, "out of (range|bounds)"),
        ((0, -3), "out of (range|bounds)"),
        ((Ellipsis, Ellipsis), "may stand once"),
    ):
        with pytest.raises(IndexError, match=message):
            t[index]
    with pytest.raises(ValueError, match="step"):
        t[::-1]
    with pytest.raises(TypeError, match="index hook"):
        t[[0, 1]]
    with pytest.raises(IndexError):
        core.tensor(1)[0]
    with pytest.raises(TypeError):
        iter(core.tensor(1))
    with pytest.raises(TypeError):
        len(core.tensor(1))
    assert [x.tolist() for x in t] == [[1, 2], [3, 4]]
    a, b = t
    assert b.tolist() == [3, 4]


def test_assignment():
    t = core.tensor([[1.0, 2.0], [3.0, 4.0]])
    t[0] = core.tensor([5.0, 6.0])
    t[:, 1] = core.tensor([7, 8])
    assert t.tolist() == [[5, 7], [3, 8]] and t._version == 2
    t[...] = t.permute(1, 0)  # overlapping source
    assert t.tolist() == [[5, 3], [7, 8]]
    with pytest.raises(RuntimeError, match="broadcast"):
        t[0] = core.tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="more than one element"):
        core.tensor([1.0]).expand(3)[:] = 2
    with pytest.raises(TypeError):
        del t[0]
    flat = core.tensor([1, 2, 3, 4])
    flat[1:] = flat[:-1]
    assert flat.tolist() == [1, 1, 2, 3]
    flat[0], flat[1:3], flat[3] = np.float32(7.9), [5, 6], np.array(8.0)
    assert flat.tolist() == [7, 5, 6, 8]
    with pytest.raises(TypeError):
        flat[0] = "a"
    half = core.empty((3,), core.float16)
    half[:] = core.tensor([1, 2, 3])
    assert half.tolist() == [1.0, 2.0, 3.0]


def test_copies_between_layouts():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 1, 6, 7)).astype("float32") * 40
    for name in DTYPES:
        source = (
            core.from_numpy(np.abs(a).astype(name)) if name != "bool" else core.from_numpy(a > 0)
        )
        for other in DTYPES:
            dst = core.empty_strided((4, 6, 5, 7), (1, 4, 24, 120), getattr(core, other))
            dst[:] = source.permute(1, 2, 0, 3)
            expected = np.broadcast_to(
                np.array(source.tolist()).astype(name).astype(other).transpose(1, 2, 0, 3),
                (4, 6, 5, 7),
            )
            assert dst.tolist() == expected.tolist(), (name, other)
    big = core.from_numpy(rng.standard_normal((700, 300)))
    out = core.empty((300, 700), f32)
    out[:] = big.transpose(0, 1)
    assert np.array_equal(out.numpy(), big.numpy().T.astype("float32"))


def test_data_and_detach():
    t = tensor([1.0, 2.0])
    d, e = t.data, t.detach()
    t.add_(1.0)
    assert d._version == 0 and e._version == 1 and d.tolist() == [2.0, 3.0]
    t.data = tensor([9.0])
    assert t.tolist() == [9.0] and t.shape == (1,)
    with pytest.raises(TypeError):
        t.data = 3


def test_subclass():
    class Parameter(core.Tensor):
        def __init__(self, data, name="p"):
            self.name = name

    p = Parameter(core.tensor([1.0]), name="w")
    assert isinstance(p, core.Tensor) and p.name == "w" and p.tolist() == [1.0]
    p.self = p  # a cycle through __dict__
    r = weakref.ref(p)
    del p
    gc.collect()
    assert r() is None
    q = core.Tensor._make_subclass(Parameter, core.tensor([2.0]), True)
    assert type(q) is Parameter and q.requires_grad and (q + q).tolist() == [4.0]
    assert hash(q) != hash(core.tensor([2.0])) and len({q, q}) == 1


def test_memory_is_flat():
    t = core.empty((100000,), f32)
    for i in range(1000):
        t[i], t[i:]
    before, layouts = core.allocator_stats()["in_use"], core.plan_stats()["layouts"]
    for i in range(50000):
        t[i], t[i:], t[:i]
    assert (
        core.allocator_stats()["in_use"] == before
        and abs(core.plan_stats()["layouts"] - layouts) < 300
    )
    assert core.plan_stats()["plans"] < 100 and OPS


def test_out_of_memory_is_an_error():
    with pytest.raises(MemoryError):
        core.allocator_limit(1 << 20)
        try:
            core.empty((1 << 20,), f64)
        finally:
            core.allocator_limit(0)
    core.empty((1 << 20,), f64)


def test_module_attributes():
    class Module:
        def __init__(self):
            self._parameters, self._modules, self.plain = {"weight": 1}, {"child": 2}, 3

        def __getattr__(self, name):
            raise AttributeError(f"no {name}")

        @property
        def half(self):
            return self.plain / 2

    class Own(Module):
        def __getattr__(self, name):
            return "own"

    core.module_attributes(Module)
    m = Module()
    assert (
        (m.weight, m.child, m.plain, m.half) == (1, 2, 3, 1.5)
        and not hasattr(m, "other")
        and Own().weight == "own"
    )
    with pytest.raises(AttributeError, match="no other"):
        _ = m.other
    with pytest.raises(TypeError):
        core.module_attributes(int)
