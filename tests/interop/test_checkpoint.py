"""save and load: what was saved comes back, PyTorch reads it, PyTorch's own files are read, and a
training run goes on from a file as if it had not stopped.
"""

import collections
import io
import os
import subprocess
import sys

import pytest

import rushlight
from rushlight import nn
from rushlight.eager.storage import storage_of

NAMES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64"  # every dtype
).split()


def everything():
    base = rushlight.arange(12).float()
    parameter = nn.Parameter(rushlight.ones(2, 2))
    parameter.note = "kept"
    dtypes = {name: base.to(getattr(rushlight, name)) for name in NAMES}
    return {
        **dtypes,
        "base": base,
        "view": base.view(3, 4)[1:, ::2],
        "transposed": base.view(3, 4).t(),
        "expanded": rushlight.ones(1, 3).expand(4, 3),
        "empty": rushlight.zeros(0, 3),
        "scalar": rushlight.tensor(2.5),
        "parameter": parameter,
        "frozen": nn.Parameter(rushlight.zeros(3), requires_grad=False),
        "buffer": nn.Buffer(rushlight.ones(2), persistent=False),
        "needs": rushlight.ones(2, requires_grad=True),
        "shape": base.view(3, 4).shape,
        "dtype": rushlight.bfloat16,
        "device": base.device,
        "plain": [1, -2.5, "x", None, True, (1, (2,)), {3: {4}}, b"\xff\0", 2**100, 1j],
        "ordered": collections.OrderedDict(k=rushlight.ones(1)),
        "infinite": [float("inf"), float("-inf")],
    }


def same(a, b):
    if isinstance(a, rushlight.Tensor):
        assert type(a) is type(b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        assert tuple(a.shape) == tuple(b.shape) and a.stride() == b.stride()
        assert a.tolist() == b.tolist()
        assert getattr(a, "__dict__", None) == getattr(b, "__dict__", None)
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    else:
        assert type(a) is type(b) and a == b


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.pt"


# ---- round trip


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("weights_only", [True, False])
def test_everything_comes_back(path, mmap, weights_only):
    saved = everything()
    rushlight.save(saved, path)
    same(saved, rushlight.load(path, mmap=mmap, weights_only=weights_only))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_protocol_comes_back(protocol):
    file = io.BytesIO()
    rushlight.save(everything(), file, pickle_protocol=protocol)
    file.seek(0)
    same(everything(), rushlight.load(file))


def test_shared_memory_is_written_once_and_shared_again(path):
    base = rushlight.zeros(1000)
    rushlight.save([base, base[:10], base.view(10, 100)], path)
    assert path.stat().st_size < 2 * 4000
    for mmap in (False, True):
        whole, head, grid = rushlight.load(path, mmap=mmap)
        head.fill_(7)
        assert grid[0, :11].tolist() == [7.0] * 10 + [0.0]
        assert storage_of(whole).data_ptr() == storage_of(head).data_ptr()
    assert rushlight.load(path)[0].sum().item() == 0  # a private mapping: the file is as it was


def test_tied_weights_stay_tied(path):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    rushlight.save(model.state_dict(), path)
    loaded = rushlight.load(path)
    assert loaded["0.weight"].data_ptr() == loaded["1.weight"].data_ptr()


def test_loaded_tensors_are_no_views_of_one_another(path):
    """Versions are counted apart, and a leaf may be told to require a gradient."""
    base = rushlight.zeros(4)
    rushlight.save([base, base[:2]], path)
    whole, head = rushlight.load(path)
    head.add_(1)
    assert whole._version == 0 and head._version == 1
    head.requires_grad_()
    assert not whole.requires_grad


def test_one_memory_under_two_dtypes_is_refused():
    import numpy

    array = numpy.zeros(4, numpy.float32)
    both = rushlight.from_numpy(array), rushlight.from_numpy(array.view(numpy.int32))
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        rushlight.save(both, io.BytesIO())


def test_file_objects_are_read_from_where_they_stand(path):
    with open(path, "wb") as file:
        file.write(b"before")
        rushlight.save(rushlight.ones(3), file)
    with open(path, "rb") as file:
        file.seek(6)
        assert rushlight.load(file).tolist() == [1.0] * 3


def test_numpy_values_come_back(path):
    numpy = pytest.importorskip("numpy")
    saved = {
        "scalar": numpy.float64(1.5),
        "array": numpy.arange(6, dtype=numpy.int16).reshape(2, 3).T,
        "text": numpy.array(["a", "bcd"]),
        "state": numpy.random.RandomState(3).get_state(),
    }
    rushlight.save(saved, path)
    loaded = rushlight.load(path)
    assert loaded["scalar"] == 1.5 and type(loaded["scalar"]) is numpy.float64
    assert (loaded["array"] == saved["array"]).all() and loaded["array"].dtype == numpy.int16
    assert loaded["text"].tolist() == ["a", "bcd"]
    assert (loaded["state"][1] == saved["state"][1]).all()
    rushlight.save(numpy.array([object()]), path)
    with pytest.raises(Exception, match="numbers and text"):
        rushlight.load(path)


# ---- where storages go


def test_map_location(path):
    rushlight.save(rushlight.ones(2), path)
    seen = []
    places = (
        "cpu",
        rushlight.device("cpu"),
        {"cuda:0": "cpu"},
        lambda storage, location: seen.append(location),
        lambda storage, location: storage,
        lambda storage, location: storage.cpu(),
    )
    for place in places:
        assert rushlight.load(path, map_location=place).tolist() == [1.0, 1.0]
    assert seen == ["cpu"]
    for place in ("cuda", rushlight.device("cuda", 1), {"cpu": "cuda:0"}):
        with pytest.raises(RuntimeError, match="cuda.*map_location='cpu'"):
            rushlight.load(path, map_location=place)
    with pytest.raises(TypeError, match="map_location"):
        rushlight.load(path, map_location=lambda storage, location: 3)


def test_bad_calls(path):
    with pytest.raises(AttributeError, match="'write'"):
        rushlight.save(1, 3)
    with pytest.raises(AttributeError, match="read, seek and tell"):
        rushlight.load(3)
    with pytest.raises(ValueError, match="mmap"):
        rushlight.load(io.BytesIO(), mmap=True)
    with pytest.raises(FileNotFoundError):
        rushlight.load(path)
    with pytest.raises(TypeError, match="unexpected"):
        rushlight.load(path, colour=1)


# ---- classes


class Config:
    def __init__(self, width):
        self.width = width


class Slotted:
    __slots__ = ("a",)

    def __setstate__(self, state):
        self.a = state[1]["a"]


def double(x):
    raise AssertionError("a function that the file names must not be called unless allowed")


def test_classes_must_be_allowed(path):
    rushlight.save({"config": Config(3), "x": rushlight.ones(1)}, path)
    with pytest.raises(Exception, match=r"names .*Config.*add_safe_globals"):
        rushlight.load(path)
    with rushlight.serialization.safe_globals([Config]):
        assert rushlight.load(path)["config"].width == 3
    assert Config not in rushlight.serialization.get_safe_globals()
    with pytest.raises(Exception, match="Config"):
        rushlight.load(path)
    rushlight.serialization.add_safe_globals([(Config, f"{__name__}.Config"), Slotted])
    try:
        assert rushlight.load(path)["config"].width == 3
    finally:
        rushlight.serialization.clear_safe_globals()
    assert rushlight.load(path, weights_only=False)["config"].width == 3


def test_setstate_of_an_allowed_class(path):
    x = Slotted()
    x.a = [rushlight.ones(2)]
    rushlight.save(x, path)
    with rushlight.serialization.safe_globals([Slotted]):
        assert rushlight.load(path).a[0].tolist() == [1.0, 1.0]


def test_whole_modules_when_their_classes_are_allowed(path):
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    rushlight.save(model, path)
    with pytest.raises(Exception, match="Sequential"):
        rushlight.load(path)
    x = rushlight.ones(1, 2)
    with rushlight.serialization.safe_globals([nn.Sequential, nn.Linear, nn.LayerNorm]):
        assert rushlight.load(path)(x).tolist() == model(x).tolist()
    assert rushlight.load(path, weights_only=False)(x).tolist() == model(x).tolist()


# ---- written whole or not at all


def test_a_failed_save_leaves_the_old_file(path):
    rushlight.save(1, path)
    with pytest.raises(Exception, match="pickle"):
        rushlight.save(lambda: 1, path)
    assert rushlight.load(path) == 1
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("how", ["killed", "full"])
def test_an_interrupted_save_leaves_the_old_file(path, how):
    """Killed before the rename; or a disk that takes no more."""
    rushlight.save({"x": rushlight.ones(3)}, path)
    action = (
        "os.fsync = lambda file: os.kill(os.getpid(), 9)"
        if how == "killed"
        else "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    )
    code = f"""
import os, resource, rushlight
{action}
try:
    rushlight.save({{"x": rushlight.zeros(1_000_000)}}, {str(path)!r})
except OSError as error:
    print("OSError")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -9 if how == "killed" else done.stdout == "OSError\n", done.stderr
    assert rushlight.load(path)["x"].tolist() == [1.0] * 3
    if how == "full":
        assert os.listdir(path.parent) == [path.name]


def test_permissions_and_links_stay(path):
    rushlight.save(1, path)
    os.chmod(path, 0o600)
    link = path.parent / "link.pt"
    link.symlink_to(path.name)
    rushlight.save(2, link)
    assert link.is_symlink() and rushlight.load(path) == 2
    assert path.stat().st_mode & 0o777 == 0o600
    rushlight.save(3, os.devnull)  # written to, not replaced
    assert not os.path.isfile(os.devnull)


# ---- a training run


def training():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    return model, rushlight.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        x = rushlight.randn(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_goes_on_bit_for_bit(path):
    rushlight.manual_seed(5)
    model, optimizer = training()
    train(model, optimizer, 4)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": rushlight.get_rng_state(),
    }
    rushlight.save(state, path)
    expected = train(model, optimizer, 6)
    rushlight.manual_seed(99)
    again, other = training()
    state = rushlight.load(path)
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    rushlight.set_rng_state(state["rng"])
    assert train(again, other, 6) == expected


# ---- PyTorch


def plain(x):
    """Values of either library in the same words."""
    if hasattr(x, "dtype") and hasattr(x, "stride"):
        name = str(x.dtype).split(".")[1]
        return name, tuple(x.shape), tuple(x.stride()), x.tolist(), x.requires_grad
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    if type(x).__name__ in ("device", "dtype", "Size"):
        return str(x).replace("torch", "rushlight")
    return x


@pytest.mark.parametrize("mmap", [False, True])
def test_pytorch_reads_what_we_write(oracle, path, mmap):
    saved = everything()
    rushlight.save(saved, path)
    loaded = oracle.load(path, weights_only=True, mmap=mmap)
    assert plain(loaded) == plain(saved)
    assert type(loaded["parameter"]) is oracle.nn.Parameter and loaded["parameter"].note == "kept"
    assert loaded["buffer"].__dict__ == {"persistent": False, "_is_buffer": True}
    loaded["base"].fill_(3)
    assert loaded["view"].tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_we_read_what_pytorch_writes(oracle, path):
    base = oracle.arange(12.0)
    parameter = oracle.nn.Parameter(oracle.ones(2, 2))
    parameter.note = "kept"
    saved = {
        **{name: base.to(getattr(oracle, name)) for name in NAMES},
        "base": base,
        "view": base.view(3, 4)[1:, ::2],
        "expanded": oracle.ones(1, 3).expand(4, 3),
        "empty": oracle.zeros(0, 3),
        "parameter": parameter,
        "needs": oracle.ones(2, requires_grad=True),
        "shape": base.view(3, 4).shape,
        "dtype": oracle.float16,
        "device": base.device,
        "plain": [1, (2.5, "x"), {3}, b"\xff", 2**70],
    }
    oracle.save(saved, path)
    for mmap in (False, True):
        loaded = rushlight.load(path, mmap=mmap)
        assert plain(loaded) == plain(saved)
        assert type(loaded["parameter"]) is nn.Parameter and loaded["parameter"].note == "kept"
        loaded["base"].fill_(3)
        assert loaded["view"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    buffer = oracle.nn.Buffer(oracle.ones(2), persistent=False)
    oracle.save(buffer, path)
    assert type(rushlight.load(path)) is nn.Buffer and not rushlight.load(path).persistent


def test_tensors_that_are_not_what_lies_in_memory(oracle, path):
    """PyTorch saves a conjugate or negative view as its memory and a mark, and a meta tensor as
    its description."""
    z = oracle.tensor([1 + 2j, -3j, 4 + 0.5j])
    saved = {"conj": z.conj(), "part": z.conj()[1:], "plain": z, "neg": z.clone().conj().imag}
    meta = oracle.empty_strided((2, 3), (1, 2), dtype=oracle.bfloat16, device="meta")
    oracle.save({**saved, "meta": meta}, path)
    for weights_only in (True, False):
        loaded = rushlight.load(path, weights_only=weights_only)
        got = loaded.pop("meta")
        assert got.is_meta and got.stride() == (1, 2) and got.dtype is rushlight.bfloat16
        assert {k: x.tolist() for k, x in loaded.items()} == {
            k: x.tolist() for k, x in saved.items()
        }
        rushlight.save(got, path.with_suffix(".meta"))
        back = oracle.load(path.with_suffix(".meta"), weights_only=True)
        assert back.is_meta and back.stride() == (1, 2) and back.dtype is oracle.bfloat16
        loaded["conj"].fill_(7)
        assert loaded["part"].tolist() == [7, 7] and loaded["plain"].tolist() == z.tolist()


def test_the_library_version_beside_the_weights(oracle, path):
    from rushlight.interop.torch_version import TorchVersion

    oracle.save({"version": oracle.__version__}, path)
    for weights_only in (True, False):
        assert rushlight.load(path, weights_only=weights_only)["version"] >= (2, 0)
    rushlight.save({"version": TorchVersion("2.13.0+rushlight")}, path)
    assert oracle.load(path, weights_only=False)["version"] > (2, 9)


def test_files_without_checksums_are_read(oracle, path):
    before = oracle.serialization.get_crc32_options()
    oracle.serialization.set_crc32_options(False)
    try:
        oracle.save(oracle.ones(3), path)
    finally:
        oracle.serialization.set_crc32_options(before)
    assert rushlight.load(path).tolist() == [1.0] * 3


def test_big_endian_files_are_read(oracle, path):
    """As a big-endian machine writes them: the bytes of each element, and the record, swapped."""
    from rushlight.interop.archive import Archive, write

    oracle.save([oracle.arange(3.0), oracle.arange(3)], path)
    with open(path, "rb") as file:
        archive = Archive(file, "x")
        records = {name: bytes(archive.read(name)) for name in archive.records}
    records["byteorder"] = b"big"
    for key, size in (("data/0", 4), ("data/1", 8)):
        data = records[key]
        records[key] = b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))
    del records["version"], records[".data/serialization_id"]
    with open(path, "wb") as file:
        write(file, "x", records.items())
    assert [x.tolist() for x in rushlight.load(path)] == [[0.0, 1.0, 2.0], [0, 1, 2]]
    assert [x.tolist() for x in oracle.load(path)] == [[0.0, 1.0, 2.0], [0, 1, 2]]
    with pytest.raises(RuntimeError, match="big-endian"):
        rushlight.load(path, mmap=True)


def test_old_formats_are_refused(oracle, path):
    oracle.save(oracle.ones(3), path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="before PyTorch 1.6"):
        rushlight.load(path)
    module = oracle.jit.trace(oracle.nn.Linear(2, 2), oracle.ones(1, 2))
    module.save(str(path))
    with pytest.raises(RuntimeError, match="TorchScript"):
        rushlight.load(path)


def test_torch_classes_are_refused_by_name(oracle, path):
    oracle.save(oracle.nn.Linear(2, 2), path)
    for weights_only in (True, False):
        with pytest.raises(Exception, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
            rushlight.load(path, weights_only=weights_only)


def test_optimizer_states_cross_both_ways(oracle, path):
    """Three steps there, three here, as six in one library."""

    def steps(library, model, optimizer, count):
        for i in range(count):
            x = library.tensor([[0.1 * i, -1.0, 2.0], [0.5, 0.25, -0.1]])
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()

    def pair(library):
        model = library.nn.Linear(3, 2)
        with library.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_(library.arange(p.numel()).reshape(p.shape).to(p.dtype) * 0.1 - 0.2 * i)
        return model, library.optim.AdamW(model.parameters(), lr=0.05)

    def go_on(source, target):
        model, optimizer = pair(source)
        steps(source, model, optimizer, 3)
        source.save([model.state_dict(), optimizer.state_dict()], path)
        other, resumed = pair(target)
        weights, state = target.load(path, weights_only=True)
        other.load_state_dict(weights)
        resumed.load_state_dict(state)
        steps(target, other, resumed, 3)
        return [p.tolist() for p in other.parameters()]

    for source, target in ((oracle, rushlight), (rushlight, oracle)):
        model, optimizer = pair(oracle)
        steps(oracle, model, optimizer, 3)
        steps(oracle, model, optimizer, 3)
        for a, b in zip(go_on(source, target), model.parameters()):
            assert oracle.allclose(oracle.tensor(a), b.detach(), rtol=1e-5, atol=1e-6)
