"""Safetensors files: what was written comes back, bad files are refused by name and key, modules
are loaded whole or not.
"""

import json

import pytest

import rushlight
from rushlight import nn
from rushlight.interop import load_state_dict_file, save_state_dict_file
from rushlight.interop.safetensors import (
    DTYPES,
    SafetensorsError,
    load_file,
    load_metadata,
    save_file,
)

VALUES = {"bool": [True, False, True, True], "uint8": [0, 1, 200, 255]}


def tensor_of(name):
    return rushlight.tensor(VALUES.get(name, [-1, 0, 3, 100]), dtype=getattr(rushlight, name))


def write(path, header, data=b""):
    """A file by hand. header: a dict, or the JSON's bytes themselves."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


# ---- round trip


def test_every_dtype_comes_back(path):
    saved = {name: tensor_of(name) for name, _ in DTYPES.values()}
    saved["scalar"] = rushlight.tensor(2.5)
    saved["empty"] = rushlight.ones((0, 3))
    saved["matrix"] = rushlight.arange(6).view(2, 3).t()
    save_file(saved, path, {"made by": "hand"})
    loaded = load_file(path)
    assert loaded.keys() == saved.keys()
    for key, tensor in saved.items():
        assert loaded[key].dtype == tensor.dtype
        assert tuple(loaded[key].shape) == tuple(tensor.shape)
        assert loaded[key].tolist() == tensor.tolist()
    assert load_metadata(path) == {"made by": "hand"}


def test_the_formats_own_library_agrees(path):
    numpy = pytest.importorskip("safetensors.numpy")
    saved = {name: tensor_of(name) for name, _ in DTYPES.values() if name != "bfloat16"}
    save_file(saved, path)
    theirs = numpy.load_file(path)
    assert {key: array.tolist() for key, array in theirs.items()} == {
        key: tensor.tolist() for key, tensor in saved.items()
    }
    numpy.save_file(theirs, path, {"a": "b"})
    assert {key: tensor.tolist() for key, tensor in load_file(path).items()} == {
        key: tensor.tolist() for key, tensor in saved.items()
    }
    assert load_metadata(path) == {"a": "b"}


def test_bfloat16_as_the_oracle_writes_it(oracle, path):
    library = pytest.importorskip("safetensors.torch")
    values = [1.0, -2.5, 3e38, float("inf"), 1e-40]
    library.save_file({"x": oracle.tensor(values, dtype=oracle.bfloat16)}, path)
    loaded = load_file(path)["x"]
    assert loaded.dtype == rushlight.bfloat16
    assert loaded.tolist() == oracle.tensor(values, dtype=oracle.bfloat16).tolist()
    save_file({"x": loaded.clone()}, path)
    assert library.load_file(path)["x"].tolist() == loaded.tolist()


def test_an_empty_file_of_tensors(path):
    save_file({}, path)
    assert load_file(path) == {}


def test_tensors_outlive_the_call_and_do_not_write_to_the_file(path):
    save_file({"x": rushlight.ones(1000)}, path)
    before = path.read_bytes()
    x = load_file(path)["x"]
    x.add_(1)
    assert x.sum().item() == 2000
    assert path.read_bytes() == before


def test_unaligned_tensors_are_copied(path):
    data = b"\x07" + rushlight.tensor([1.5, -2.0]).numpy().tobytes()
    write(path, {"a": entry("U8", (1,), (0, 1)), "b": entry("F32", (2,), (1, 9))}, data)
    loaded = load_file(path)
    assert loaded["a"].tolist() == [7]
    assert loaded["b"].tolist() == [1.5, -2.0]


# ---- bad files

BAD = {
    "no header": (b"", "truncated"),
    "header longer than the file": ((1000).to_bytes(8, "little") + b"{}", "truncated"),
    "absurd header": ((1 << 60).to_bytes(8, "little") + b"{}", "corrupt"),
}
BAD_HEADERS = {
    "no JSON": (b"{nonsense", b"", "corrupt header"),
    "no UTF-8": (b'{"\xff": 1}', b"", "corrupt header"),
    "no object": (b"[1, 2]", b"", "expected an object"),
    "twice": (b'{"k": 1, "k": 2}', b"", "'k' stands there twice"),
    "cut short": ({"k": entry()}, b"1234", "'k': truncated"),
    "wrong size": ({"k": entry(shape=(3,))}, b"12345678", "'k': corrupt: F32 of shape"),
    "negative": ({"k": entry(offsets=(8, 0))}, b"12345678", "'k': corrupt"),
    "float shape": ({"k": entry(shape=(2.0,))}, b"12345678", "'k': corrupt entry"),
    "huge shape": ({"k": entry(shape=(2**62, 4))}, b"12345678", "'k': corrupt"),
    "no dtype": ({"k": {"shape": [2], "data_offsets": [0, 8]}}, b"12345678", "'k': corrupt entry"),
    "no entry": ({"k": 3}, b"", "'k': corrupt entry"),
    "unknown dtype": ({"k": entry("F8_E4M3", (8,))}, b"12345678", "'k': dtype F8_E4M3"),
    "gap": ({"k": entry(offsets=(4, 12))}, b"123456789012", "'k': corrupt: leaves a gap"),
    "overlap": (
        {"j": entry(), "k": entry(offsets=(4, 12))},
        b"1" * 12,
        "'k': corrupt: overlaps 'j'",
    ),
    "bytes left": ({"k": entry()}, b"1" * 12, "4 bytes that belong to no tensor"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_beginning(path, case):
    content, message = BAD[case]
    path.write_bytes(content)
    with pytest.raises(SafetensorsError, match=message) as caught:
        load_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_header(path, case):
    header, data, message = BAD_HEADERS[case]
    write(path, header, data)
    with pytest.raises(SafetensorsError) as caught:
        load_file(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_every_truncation_is_noticed(path):
    save_file({"a": rushlight.ones(3), "b": rushlight.ones(2, dtype=rushlight.float64)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SafetensorsError):
            load_file(path)


def test_no_such_file(path):
    with pytest.raises(FileNotFoundError):
        load_file(path)


# ---- writing


def test_a_failed_write_leaves_the_old_file(path):
    save_file({"x": rushlight.ones(2)}, path)
    before = path.read_bytes()
    for bad in ({"x": 3}, {3: rushlight.ones(1)}):
        with pytest.raises(TypeError):
            save_file(bad, path)
    with pytest.raises(TypeError):
        save_file({"x": rushlight.ones(2)}, path, {"a": object()})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_shared_memory_is_refused(path):
    x = rushlight.ones(4)
    with pytest.raises(ValueError, match="'a' and 'b' share memory"):
        save_file({"a": x, "b": x.view(4)}, path)
    assert not path.exists()


# ---- modules


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def state(module):
    return {key: tensor.tolist() for key, tensor in module.state_dict().items()}


@pytest.mark.parametrize("assign", [False, True])
def test_module_round_trip(path, assign):
    first, second = model(), model()
    save_state_dict_file(first, path)
    assert state(first) != state(second)
    keys = load_state_dict_file(second, path, assign=assign)
    assert repr(keys) == "<All keys matched successfully>"
    assert state(first) == state(second)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in second.parameters())
    x = rushlight.ones(2, 3)
    assert first(x).tolist() == second(x).tolist()


def test_tied_weights_are_written_once(path):
    first = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    first[1].weight = first[0].weight
    save_state_dict_file(first, path)
    assert "1.weight" not in load_file(path)
    keys = load_state_dict_file(first, path, strict=False)
    assert keys.missing_keys == ["1.weight"]


BAD_STATES = {
    "missing": (lambda s: s.pop("2.bias"), r'Missing key\(s\) in state_dict: "2.bias"'),
    "extra": (lambda s: s.update(more=rushlight.ones(1)), r'Unexpected key\(s\).*"more"'),
    "shape": (
        lambda s: s.update({"0.weight": rushlight.ones(4, 5)}),
        r"size mismatch for 0.weight: .*\[4, 5\].* in the checkpoint",
    ),
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("case", BAD_STATES)
def test_a_state_that_does_not_fit_changes_nothing(path, case, assign):
    spoil, message = BAD_STATES[case]
    given = {key: tensor.clone() for key, tensor in model().state_dict().items()}
    spoil(given)
    save_file(given, path)
    module = model()
    before = state(module)
    with pytest.raises(RuntimeError, match=message) as caught:
        load_state_dict_file(module, path, assign=assign)
    assert any(str(path) in note for note in caught.value.__notes__)
    assert state(module) == before


def test_a_truncated_checkpoint_changes_nothing(path):
    save_state_dict_file(model(), path)
    path.write_bytes(path.read_bytes()[:-5])
    module = model()
    before = state(module)
    with pytest.raises(SafetensorsError, match="'.*': truncated"):
        load_state_dict_file(module, path)
    assert state(module) == before
