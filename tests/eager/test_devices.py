"""Devices: names and objects, where tensors are created, moves, calls with operands on several."""

import copy
import pickle
import threading

import pytest

import rushlight as rl
from rushlight import _core


def meta(*shape, **options):
    return rl.empty(*shape, device="meta", **options)


def test_device_objects(oracle):
    for given in (("cpu",), ("cuda",), ("cuda:1",), ("cuda", 2), ("meta",)):
        mine, theirs = rl.device(*given), oracle.device(*given)
        assert (mine.type, mine.index, str(mine), repr(mine)) == (
            theirs.type,
            theirs.index,
            str(theirs),
            repr(theirs),
        )
    assert rl.device("cuda", 1) == rl.device("cuda:1") != rl.device("cuda")
    assert rl.device(rl.device("cuda:1")) == rl.device("cuda:1") == rl.device(1)
    assert hash(rl.device("meta")) == hash(rl.device("meta"))
    assert pickle.loads(pickle.dumps(rl.device("cuda:1"))) == rl.device("cuda", 1)
    for wrong in ("foo", "cuda:x", "cuda:-1", "cuda:01", "cpu:"):
        for lib in (rl, oracle):
            with pytest.raises(RuntimeError):
                lib.device(wrong)
    with pytest.raises(TypeError):
        rl.device("cuda", "1")
    with pytest.raises(TypeError):
        rl.device(1.5)


def test_a_device_that_is_not_there():
    for make in (
        lambda: rl.empty(2, device="cuda"),
        lambda: rl.ones(2).to("cuda:1"),
        lambda: rl.ones(2).cuda(),
        lambda: rl.nn.Linear(2, 2, device="cuda"),
        lambda: rl.set_default_device("cuda"),
        lambda: rl.device("cuda").__enter__(),
    ):
        with pytest.raises(RuntimeError, match="'cuda' is not available"):
            make()
    assert rl.ones(1).device == rl.device("cpu")
    with pytest.raises(TypeError, match="argument 'device' must be"):
        rl.empty(1, device=2.5)


def created(lib):
    """Device types of what the factories make where no device is given."""
    cpu = lib.ones(2, device="cpu")
    made = (
        lib.ones(3),
        lib.zeros(2, 2),
        lib.empty(3),
        lib.full((2,), 1.5),
        lib.arange(4),
        lib.linspace(0, 1, 3),
        lib.eye(3),
        lib.tensor([1.0]),
        lib.as_tensor([1]),
        lib.as_tensor(cpu),
        lib.randn(3),
        lib.randint(0, 4, (3,)),
        lib.randperm(3),
        lib.empty_strided((2,), (1,)),
        lib.tril_indices(3, 3),
        lib.nn.Linear(2, 2).weight,
        lib.nn.BatchNorm2d(3).running_mean,
        lib.ones(2, device="cpu"),
        lib.zeros_like(cpu),
        cpu.new_zeros(2),
        cpu + 1,
        lib.get_rng_state(),
    )
    return [x.device.type for x in made]


def test_where_tensors_are_created(oracle):
    assert set(created(rl)) == {"cpu"}
    with rl.device("meta"), oracle.device("meta"):
        assert created(rl) == created(oracle)
        assert rl.get_default_device() == rl.device("meta")
        with rl.device("cpu"):
            assert rl.ones(2).device.type == "cpu"
        assert rl.ones(2).device.type == "meta"
    rl.set_default_device("meta")
    try:
        assert rl.ones(2).device.type == "meta"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(rl.ones(2).device.type))
        thread.start()
        thread.join()
        assert seen == ["cpu"]  # of this thread alone
    finally:
        rl.set_default_device(None)
    assert rl.ones(2).device.type == "cpu"
    with pytest.raises(ZeroDivisionError), rl.device("meta"):
        raise ZeroDivisionError
    assert rl.ones(2).device.type == "cpu"
    again = rl.device("meta")
    with again, again:
        pass
    assert rl.ones(2).device.type == "cpu"


def test_internal_work_is_done_where_the_operands_are():
    x = rl.randn(4, 4)
    plain = [repr(x), str(x.cov()), x.median(), rl.combinations(x[0]).shape]
    with rl.device("meta"):
        assert [repr(x), str(x.cov())] == plain[:2]
        assert x.median() == plain[2] and rl.combinations(x[0]).shape == plain[3]
        assert x[[0, 1]].device.type == "cpu" and float(x.softmax(0).sum()) > 3.9
        assert rl.nn.functional.one_hot(rl.tensor([1], device="cpu"), 3).tolist() == [[0, 1, 0]]


def mixed(lib):
    there = lib.empty(3, device="meta")
    cpu, scalar = lib.ones(3), lib.tensor(1.0)
    return {
        "add": lambda: cpu + there,
        "scalar there": lambda: cpu + there[0],
        "cat": lambda: lib.cat([cpu, there]),
        "where": lambda: lib.where(cpu > 0, there, cpu),
        "out": lambda: lib.add(there, there, out=cpu),
        "copy out": lambda: cpu.copy_(there),
        "scalar": lambda: there + scalar,
        "scalar first": lambda: scalar - there,
        "in place": lambda: there.add_(scalar),
        "copy in": lambda: there.copy_(cpu),
        "lerp": lambda: lib.lerp(there, there, scalar),
        "index": lambda: there[lib.tensor([0, 2])],
    }


@pytest.mark.parametrize("name", mixed(rl))
def test_operands_on_several_devices(name, oracle):
    try:
        theirs = mixed(oracle)[name]()
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(NotImplementedError if name == "copy out" else RuntimeError):
            mixed(rl)[name]()
        assert name != "scalar", error
    else:
        mine = mixed(rl)[name]()
        assert (tuple(mine.shape), mine.device.type) == (tuple(theirs.shape), theirs.device.type)


def test_mixed_devices_are_told_apart():
    with pytest.raises(RuntimeError) as told:
        rl.ones(2, 3) + meta(3)
    assert str(told.value) == (
        "[add] expected all tensors on one device, got cpu and meta (shapes [2, 3] and [3])"
    )
    with pytest.raises(RuntimeError, match=r"\[matmul\].* got meta and cpu .shapes \[2, 2\] and"):
        meta(2, 2) @ rl.ones(2, 2)
    with pytest.raises(RuntimeError, match="cpu and meta"):
        rl.ones(2).add_(meta(2))
    with pytest.raises(RuntimeError, match="cpu and meta"):
        rl.tensor(1.0).add_(meta(()))


def test_moves():
    x = rl.arange(6.0).reshape(2, 3)
    assert x.to("cpu") is x and x.cpu() is x and x.to(device=rl.device("cpu")) is x
    y = x.t().to("meta", rl.float64)
    assert (y.device.type, y.dtype, tuple(y.shape), y.stride()) == (
        "meta",
        rl.float64,
        (3, 2),
        (1, 3),
    )
    assert y.is_meta and not y.is_cpu and not y.is_cuda and x.is_cpu and y.get_device() == -1
    assert x.to(y).device == y.device and x.type_as(y).dtype is rl.float64
    assert y.to("meta") is y and y.data_ptr() == 0
    with pytest.raises(NotImplementedError, match="Cannot copy out of a meta tensor"):
        y.cpu()
    w = rl.ones(3, requires_grad=True)
    moved = w.to("meta")
    assert moved.requires_grad and not moved.is_leaf
    with pytest.raises(NotImplementedError, match="no data"):  # its gradient would go to the CPU
        moved.sum().backward()


def test_plans_of_devices_are_apart():
    """The same call on two devices: two plans, each found again."""
    _core.plan_clear()
    x, there = rl.ones(5, 7), meta(5, 7)
    for _ in range(2):
        assert rl.exp(x).device.type == "cpu" and rl.exp(there).device.type == "meta"
    assert _core.plan_stats()["misses"] == 2
    assert rl.exp(x)[0, 0] > 2.7
    with rl.device("meta"):
        assert rl.full((5,), 2.0).device.type == "meta"
    assert rl.full((5,), 2.0).tolist() == [2.0] * 5


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.empty(2, device="meta", dtype=lib.int64),
        lambda lib: lib.empty(2, 3, device="meta", dtype=lib.float64, requires_grad=True),
        lambda lib: lib.empty((), device="meta"),
        lambda lib: lib.empty(0, 3, device="meta"),
        lambda lib: lib.nn.Parameter(lib.empty(2, device="meta")),
    ],
)
def test_printing(make, oracle):
    assert repr(make(rl)) == repr(make(oracle)).replace("torch.", "rushlight.")


def test_copies_and_pickles_stay_there():
    x = meta(2, 3)
    assert copy.deepcopy(x).device.type == "meta" and x.clone().device.type == "meta"
    back = pickle.loads(pickle.dumps(x))
    assert back.device.type == "meta" and back.shape == x.shape


def test_a_vendor_library_of_another_name_is_refused():
    with pytest.raises(ValueError, match="no vendor library 'cufft'"):
        _core.cuda_library_missing("cufft")
