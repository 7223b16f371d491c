"""The compiler launcher: one object for the same text and flags, whatever the folder."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "cmake" / "object_cache.py"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not here")


def build(folder: Path, text: str, *flags: str, header: str = "#define N 1\n"):
    """Compiles folder/a.cpp as CMake would: the process, the object, the keys in the cache."""
    folder.mkdir(exist_ok=True)
    (folder / "a.cpp").write_text(text)
    (folder / "a.h").write_text(header)
    command = ["g++", f"-I{folder}", *flags, "-MD", "-MT", "a.o", "-MF", "a.o.d", "-o", "a.o"]
    done = subprocess.run(
        [sys.executable, "-S", str(LAUNCHER), str(folder.parent / "cache"), *command]
        + ["-c", str(folder / "a.cpp")],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done, folder / "a.o", {p.name for p in (folder.parent / "cache").glob("*.o")}


SOURCE = '#include "a.h"\nint f() { return N; }\n'


def test_the_same_text_is_compiled_once_in_any_folder(tmp_path: Path):
    _, one, keys = build(tmp_path / "one", SOURCE, "-O2")
    assert len(keys) == 1
    (kept,) = (tmp_path / "cache").glob("*.o")
    kept.write_bytes(one.read_bytes() + b"marked")
    done, two, keys = build(tmp_path / "two", SOURCE, "-O2")
    assert done.returncode == 0 and len(keys) == 1
    assert two.read_bytes().endswith(b"marked")  # came from the cache
    assert "a.h" in (tmp_path / "two" / "a.o.d").read_text()  # dependencies written on a hit too


@pytest.mark.parametrize(
    "change", [{"flags": ("-O3",)}, {"header": "#define N 2\n"}, {"text": SOURCE + "int g;\n"}]
)
def test_flags_headers_and_text_decide(tmp_path: Path, change: dict):
    before = build(tmp_path / "one", SOURCE, "-O2")[2]
    flags = change.pop("flags", ("-O2",))
    after = build(tmp_path / "one", change.pop("text", SOURCE), *flags, **change)[2]
    assert len(after - before) == 1


def test_the_place_of_the_standard_does_not_decide(tmp_path: Path):
    build(tmp_path / "one", SOURCE, "-std=c++20", "-O2")
    assert len(build(tmp_path / "two", SOURCE, "-O2", "-std=c++20")[2]) == 1


def test_errors_are_the_compilers_and_are_not_kept(tmp_path: Path):
    done, one, keys = build(tmp_path / "one", "int f( {}\n")
    assert done.returncode != 0 and "error" in done.stderr
    assert not one.exists() and not keys
    done, _, keys = build(tmp_path / "one", '#include "missing.h"\n')
    assert done.returncode != 0 and "missing.h" in done.stderr


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path):
    (tmp_path / "cache").write_text("a file in its place")
    done, one, _ = build(tmp_path / "one", SOURCE)
    assert done.returncode == 0 and one.exists()
