"""The kernel library as a pack: what `rushlight prebuild` writes, without a GPU."""

import importlib.util

import pytest

from rushlight import _core, config
from rushlight.cli import main
from rushlight.eager.prebuild import prebuild
from rushlight.runtime.cuda.pack import Pack

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
KEY = "neg.float32.T"


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.changed(cache_dir=str(tmp_path / "cache")):
        yield


@needs_triton
def test_a_pack_has_every_kernel_that_was_asked_for(tmp_path):
    done = []
    made = prebuild(90, str(tmp_path), rf"^{KEY}$", jobs=1, progress=lambda *n: done.append(n))
    assert (made.kernels, made.refused, done) == (1, (), [(1, 1)])
    pack = Pack(made.path)
    assert list(pack) == [KEY] and pack.target == 90
    record, images = pack[KEY]
    assert record["cost"] > 0 and record["origin"].startswith("ops/pointwise.py:")
    assert all(image[:4] == b"\x7fELF" for image in images) and len(images) == made.images
    assert _core.DeviceKernel(record, images).key == KEY


@needs_triton
def test_a_rare_dtype_gets_the_general_variants_only(tmp_path):
    keys = "^neg.(float32|int16).T$"
    pack = Pack(prebuild(80, str(tmp_path), keys, jobs=1).path)
    assert len(pack["neg.int16.T"][1]) < len(pack["neg.float32.T"][1])
    assert pack["neg.int16.T"][0]["variants"][-1]["when"] == []


def test_an_unknown_architecture_is_said(capsys):
    assert main(["prebuild", "--cuda", "75"]) == 2
    assert "--cuda takes 80 or 90, not '75'" in capsys.readouterr().err


def test_without_triton_one_sentence_is_said(monkeypatch, capsys, tmp_path):
    from rushlight.runtime import triton

    monkeypatch.setattr(triton, "version", lambda: None)
    assert main(["prebuild", "--cuda", "90", "--out", str(tmp_path)]) == 1
    assert "triton is not installed" in capsys.readouterr().err
