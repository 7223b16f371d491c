"""Building, loading, trusting: the artifact cache and the toolchain."""

import ctypes
import os
import stat

import pytest

from rushlight import config
from rushlight.errors import CompilerBug, Unsupported
from rushlight.runtime import cache, native, toolchain
from rushlight.trace import collect

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() {{ return {0}; }}\n'


@pytest.fixture
def folder(tmp_path):
    with config.changed(cache_dir=str(tmp_path / "artifacts")):
        yield tmp_path / "artifacts"


def load(number):
    with collect() as records:
        library = cache.load(SOURCE.format(number), native.isa())
    return (
        library.answer(),
        [r.name for r in records if r.kind == "reason"],
        [r.stage for r in records],
    )


def artifact(folder):
    (file,) = folder.glob("*.so")
    return file


def test_built_once_then_found(folder):
    assert load(7) == (7, ["cache.miss"], ["artifact_cache", "cpp_openmp"])
    assert load(7) == (7, [], ["artifact_cache"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(artifact(folder).stat().st_mode) == 0o600


def test_two_sources_are_two_libraries(folder):
    assert [load(n)[0] for n in (1, 2, 3, 1)] == [1, 2, 3, 1]


def damage(file):
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[:40])


def empty(file):
    file.write_bytes(b"")


def open_to_all(file):
    file.chmod(0o666)


def link(file):
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


@pytest.mark.parametrize("change", [damage, truncate, empty, open_to_all, link])
def test_what_cannot_be_trusted_is_built_anew(folder, change):
    load(11)
    change(artifact(folder))
    value, reasons, _ = load(11)
    assert value == 11 and reasons[0] == "cache.refused"
    assert load(11) == (11, [], ["artifact_cache"])


def test_a_folder_open_to_others_is_not_used(folder):
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    value, reasons, _ = load(12)
    assert value == 12 and reasons == ["cache.refused"] and not list(folder.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with config.changed(cache_dir=str(tmp_path / "file" / "artifacts")):
        value, reasons, _ = load(13)
    assert value == 13 and reasons == ["cache.unwritable"]


def test_the_compilers_first_error_is_quoted(folder):
    with pytest.raises(CompilerBug, match="no_such_thing"):
        cache.load('extern "C" int f() {\n  return no_such_thing;\n}\n', native.isa())
    assert not list(folder.iterdir())


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "")
    toolchain.find.cache_clear()
    try:
        with pytest.raises(Unsupported, match="Install g"):
            toolchain.find("v3")
    finally:
        toolchain.find.cache_clear()


def test_pointers(folder):
    library = cache.load(SOURCE.format(5), native.isa())
    address = cache.pointer(library, "answer")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 5
    with pytest.raises(AttributeError):
        cache.pointer(library, "question")
    assert os.path.exists("/proc/self/fd")
