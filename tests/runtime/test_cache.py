"""Building, loading, trusting: the artifact cache and the toolchain."""

import ctypes
import hashlib
import os
import stat
import subprocess
import sys
import warnings

import pytest

import rushlight as rl
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
    with collect() as records, warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


def test_one_graphs_code_under_anothers_name_is_refused(folder):
    load(21)
    first = artifact(folder)
    load(22)
    (second,) = set(folder.glob("*.so")) - {first}
    second.write_bytes(first.read_bytes())
    value, reasons, _ = load(22)
    assert value == 22 and reasons[0] == "cache.refused"


def test_a_refusal_is_a_warning_once(folder):
    load(23)
    damage(artifact(folder))
    with pytest.warns(RuntimeWarning, match="does not match its digest. It is built anew"):
        cache.load(SOURCE.format(23), native.isa())
    damage(artifact(folder))
    cache.load(SOURCE.format(23), native.isa())  # a second warning would be an error here


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


# ---- misses, failures, other processes


def text_of(records, name):
    return next(r.text for r in records if r.name == name)


def test_a_miss_names_the_part_of_the_key_that_differs(folder):
    source = SOURCE.format(3)
    with collect() as records:
        cache.load(lambda: source, native.isa(), kernels="a", emitter="e", graph="model")
    assert "no artifact to compare with" in text_of(records, "cache.miss")
    with collect() as records:
        cache.load(lambda: source, native.isa(), kernels="b", emitter="e", graph="model")
    assert "(model) differs in kernels: b here, a there" in text_of(records, "cache.miss")
    with config.changed(isa="v2"), collect() as records:
        cache.load(lambda: source, "v2", kernels="a", emitter="e", graph="model")
    text = text_of(records, "cache.miss")
    assert "flags" in text and "settings" in text and "kernels" not in text
    with collect() as records:  # a graph's name alone makes no other code
        cache.load(lambda: source, native.isa(), kernels="a", emitter="e", graph="other")
    assert not any(r.name == "cache.miss" for r in records)


def test_a_folder_that_is_read_only(folder, monkeypatch):
    folder.mkdir(mode=0o700)

    def refuse(*args, **kwargs):
        if kwargs.get("dir") == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return real(*args, **kwargs)

    real = cache.tempfile.mkstemp
    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    value, reasons, _ = load(22)
    assert value == 22 and reasons == ["cache.miss", "cache.unwritable"]


def test_a_full_disk_costs_the_cache_not_the_program(folder, monkeypatch):
    ends, real = [], cache.end_of

    def full(content, key):
        ends.append(key)
        if len(ends) == 1:
            raise OSError(28, "No space left on device")
        return real(content, key)

    monkeypatch.setattr(cache, "end_of", full)
    value, reasons, _ = load(26)
    assert value == 26 and reasons == ["cache.miss", "cache.unwritable"]
    assert not list(folder.iterdir())


def test_an_interrupted_build_leaves_nothing(folder, monkeypatch):
    def build(tools, source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(toolchain, "build", build)
    with pytest.raises(KeyboardInterrupt):
        load(23)
    assert not list(folder.iterdir())
    monkeypatch.undo()
    assert load(23)[0] == 23


def test_a_file_of_another_kind_is_built_anew(folder):
    load(24)
    file = artifact(folder)
    content = b"not an object at all"
    file.write_bytes(content + hashlib.sha256(content).digest())
    file.chmod(0o600)
    value, reasons, _ = load(24)
    assert value == 24 and reasons[0] == "cache.refused"


def test_two_processes_build_the_same_at_once(folder):
    code = (
        "from rushlight.runtime import cache, native\n"
        f"print(cache.load({SOURCE.format(31)!r}, native.isa()).answer())"
    )
    environment = {**os.environ, "RUSHLIGHT_CACHE_DIR": str(folder)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [p.communicate()[0].split() for p in both] == [[b"31"], [b"31"]]
    assert len(list(folder.glob("*.so"))) == 1 and not list(folder.glob("*.part"))


@pytest.mark.parametrize("compiler", ["/bin/false", "/bin/true"])
def test_a_compiler_that_fails_is_told(folder, monkeypatch, compiler):
    monkeypatch.setenv("CXX", compiler)
    toolchain.find.cache_clear()
    try:
        with pytest.raises(Unsupported, match="failed"):
            load(25)
        with pytest.warns(RuntimeWarning, match="eager mode"):
            assert rl.compile(lambda a: rl.exp(a) + 1)(rl.zeros(3)).tolist() == [2, 2, 2]
    finally:
        toolchain.find.cache_clear()


def test_code_that_the_compiler_refuses_is_a_bug_of_ours(folder):
    with pytest.raises(CompilerBug, match="refused generated code"):
        cache.load("int f() { return x; }\n", native.isa())


def test_info_and_clear(folder, capsys):
    from rushlight.cli import main

    load(41)
    load(42)
    assert main(["cache", "info"]) == 0
    assert "2 artifacts" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "removed 2 files" in capsys.readouterr().out
    assert not list(folder.glob("*.so"))


# ---- pieces that are compiled at the same time

HEAD = "static int twice(int x) { return 2 * x; }\n"
UNIT = """extern "C" __attribute__((visibility("default"))) int {name}() {{ return twice({n}); }}
"""


def units(*numbers, head=HEAD):
    made = [UNIT.format(name=f"f{n}", n=n) for n in numbers]
    return toolchain.UNIT.join([head, *made])


def test_a_long_source_is_cut_into_pieces_that_each_have_the_head(monkeypatch):
    source = units(*range(5))
    assert toolchain.pieces(source, 8) == [source]  # short: one run of the compiler
    monkeypatch.setattr(toolchain, "WORTH_A_PROCESS", 100)
    assert toolchain.pieces(source, 1) == [source]
    found = toolchain.pieces(source, 3)
    assert len(found) == 3 and all(p.startswith(HEAD) for p in found)
    lengths = [len(p) for p in found]
    assert max(lengths) - min(lengths) < 2 * len(UNIT)
    for n in range(5):
        assert sum(f"int f{n}()" in p for p in found) == 1


def test_pieces_become_one_library(folder, monkeypatch):
    monkeypatch.setattr(toolchain, "WORTH_A_PROCESS", 100)
    monkeypatch.setattr(toolchain, "processors", lambda: 2)
    library = cache.load(units(3, 4, 5), native.isa())
    assert [library.f3(), library.f4(), library.f5()] == [6, 8, 10]
    assert artifact(folder).suffix == ".so" and len(list(folder.iterdir())) == 1


def test_an_error_in_any_piece_is_quoted(folder, monkeypatch):
    monkeypatch.setattr(toolchain, "WORTH_A_PROCESS", 100)
    monkeypatch.setattr(toolchain, "processors", lambda: 2)
    good, wrong = UNIT.format(name="good", n=1), UNIT.format(name="wrong", n="missing")
    for order in ((good, wrong), (wrong, good)):
        with pytest.raises(CompilerBug, match="missing"):
            cache.load(toolchain.UNIT.join([HEAD, *order]), native.isa())
    assert not list(folder.iterdir())
