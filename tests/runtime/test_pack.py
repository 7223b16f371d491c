"""Packs of GPU kernels: written and read back, found by architecture, refused where broken."""

import os

import pytest

from rushlight import _core, trace
from rushlight.runtime.cuda import kernels
from rushlight.runtime.cuda.pack import BadPack, Pack, write


def record(key):
    launch = {"cubin": 0, "entry": key, "warps": 4, "shared": 0, "params": ["p0"], "grid": ["n0"]}
    made = {"key": key, "outer": 1, "inner": 0, "inputs": 0, "outputs": 1, "numbers": 0}
    return {**made, "variants": [{"launches": [launch]}]}


def test_round_trip(tmp_path):
    path = tmp_path / "kernels_sm90.pack"
    images = [b"one" * 1000, b"two"]
    assert write(path, 90, [(record("a"), images), (record("b"), images[:1])]) == 2
    pack = Pack(path)
    assert pack.target == 90 and sorted(pack) == ["a", "b"] and len(pack) == 2
    assert pack["a"] == (record("a"), images) and pack["b"] == (record("b"), images[:1])
    assert "c" not in pack
    with pytest.raises(KeyError):
        pack["c"]
    assert os.listdir(tmp_path) == [path.name], "nothing else is left behind"
    kernel = _core.DeviceKernel(*pack["a"])
    assert kernel.key == "a" and kernel.variants == 1 and kernel.launches == 0


def test_equal_images_are_stored_once(tmp_path):
    noise = os.urandom(5000)
    one, many = tmp_path / "one.pack", tmp_path / "many.pack"
    write(one, 90, [(record("a"), [noise])])
    write(many, 90, [(record(k), [noise]) for k in "abcdefgh"])
    assert many.stat().st_size < one.stat().st_size + 5000


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield record("a"), [b"x"]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write(tmp_path / "kernels_sm90.pack", 90, broken())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", (b"", b"short", b"RLCUPACK" + b"x" * 100))
def test_what_is_no_pack_is_refused(tmp_path, content):
    path = tmp_path / "kernels_sm90.pack"
    path.write_bytes(content)
    with pytest.raises(BadPack, match="no pack"):
        Pack(path)


def test_packs_are_found_by_architecture(tmp_path, monkeypatch):
    for target in (80, 86, 90):
        write(tmp_path / f"kernels_sm{target}.pack", target, [(record(f"k{target}"), [b"x"])])
    (tmp_path / "kernels_sm89.pack").write_bytes(b"broken")
    monkeypatch.setenv("RUSHLIGHT_CUDA_KERNELS", str(tmp_path))
    monkeypatch.setattr(kernels, "packs", {})
    with trace.collect() as seen:
        assert [p.target for p in kernels.available(89)] == [86, 80], "the same major version"
    assert any(r.facts.get("reason") and r.facts["reason"].id == "cuda.bad_pack" for r in seen)
    assert [p.target for p in kernels.available(90)] == [90]
    assert kernels.available(100) == []
    monkeypatch.setenv("RUSHLIGHT_CUDA_KERNELS", str(tmp_path / "kernels_sm80.pack"))
    monkeypatch.setattr(kernels, "packs", {})
    assert [p.target for p in kernels.available(90)] == [80], "a file is taken as it is named"
