"""The command line with a stand-in for the native core, and, where the core is built, with it."""

import json
import os
import subprocess
import sys
import types

import pytest

import rushlight
from rushlight import call_log, cli, kernel_sources, observation, trace

SCRIPT = """
import sys
from rushlight import _core, trace
print("output of", sys.argv[1:], __name__)
_core.call("add", 10, 30, "add.float32.TT", "model.py:3")
trace.emit("kernel", "add.float32.TT", "void add() {\\n}\\n", {1: ("ops/pointwise.py:41",)})
"""


class Core(types.ModuleType):
    """What observation needs of rushlight._core; `call` stands for an operator call."""

    def __init__(self):
        super().__init__("rushlight._core")
        self.on, self.made = False, []

    def record(self, on):
        self.on = on

    def records(self):
        made, self.made = self.made, []
        return made

    def call(self, name, start, end, ran, where):
        if self.on:
            layout = ("float32[4]",)
            self.made.append(
                (
                    len(self.made),
                    None,
                    0,
                    name,
                    "scalar",
                    True,
                    start,
                    end,
                    layout,
                    layout,
                    ran,
                    where,
                )
            )

    def kernel_find(self, key):
        return None

    def isa(self):
        return "avx2"

    def num_threads(self):
        return 2


@pytest.fixture
def core(monkeypatch):
    fake = Core()
    monkeypatch.setitem(sys.modules, "rushlight._core", fake)
    monkeypatch.setattr(rushlight, "_core", fake, raising=False)
    return fake


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(SCRIPT)
    return str(file)


def test_explain_passes_output_through_and_shows_the_path(core, script, capsys):
    assert cli.main(["explain", script, "a", "--flag", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("output of ['a', '--flag', '1'] __main__\n")
    assert "Showing eager mode on a CPU: 5 stages, 4 steps" in out
    assert f"rushlight explain {script} a --flag 1 --kernel add.float32.TT" in " ".join(out.split())
    assert not core.on and not any(isinstance(x, type([].append)) for x in trace.listeners)


def test_options_stand_anywhere_before_two_dashes():
    split = cli.split_script
    ours = ["explain", "--json", "x.json"]
    assert split(["explain", "--json", "x.json", "m.py", "1"]) == (ours, ["m.py", "1"])
    assert split(["explain", "m.py", "--json", "x.json", "1"]) == (ours, ["m.py", "1"])
    assert split(["explain", "m.py", "--lr", "1"]) == (["explain"], ["m.py", "--lr", "1"])
    assert split(["explain", "m.py", "--", "--json", "y"]) == (["explain"], ["m.py", "--json", "y"])
    assert split(["explain", "--json"]) == (["explain", "--json"], [])
    assert split(["explain", "m.py", "--op=add"]) == (["explain", "--op=add"], ["m.py"])


def test_kernel_and_operator(core, script, capsys):
    assert cli.main(["explain", script, "--kernel", "add.float32.TT"]) == 0
    out = capsys.readouterr().out
    assert "void add()" in out and "ops/pointwise.py:41" in out and "Showing" not in out
    assert cli.main(["explain", script, "--op", "add"]) == 0
    assert "validate" in capsys.readouterr().out
    assert cli.main(["explain", script, "--kernel", "ad.float32.TT"]) == 2
    assert "no kernel 'ad.float32.TT'; near it: add.float32.TT" in capsys.readouterr().err
    assert cli.main(["explain", script, "--op", "addd"]) == 2
    assert "no operator 'addd'; near it: add" in capsys.readouterr().err


def test_json(core, script, tmp_path, capsys):
    file = tmp_path / "path.json"
    assert cli.main(["explain", script, "--json", str(file), "-q"]) == 0
    assert json.loads(file.read_text())["operators"][0]["operator"] == "add"
    assert capsys.readouterr().out == "output of [] __main__\n"
    assert cli.main(["explain", script, "--json", str(tmp_path), "-q"]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    "end, code",
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('bad')", 1), ("1 / 0", 1)],
)
def test_exit_code_is_the_scripts(core, tmp_path, capsys, end, code):
    file = tmp_path / "model.py"
    file.write_text(SCRIPT + end)
    assert cli.main(["explain", str(file)]) == code
    shown = capsys.readouterr()
    assert "Showing eager mode" in shown.out  # the path up to there
    if end == "1 / 0":
        assert "ZeroDivisionError: division by zero" in shown.err
        assert "runpy" not in shown.err and "observation.py" not in shown.err
        assert "The program stopped with ZeroDivisionError" in shown.out
    if end == "sys.exit('bad')":
        assert shown.err == "bad\n"


def test_a_script_that_does_not_parse(core, tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text("x = (\n")
    assert cli.main(["explain", str(file)]) == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_wrong_arguments(core, capsys):
    assert cli.main([]) == 2
    assert cli.main(["explain", "no_such_file.py"]) == 2
    assert "no such script: no_such_file.py" in capsys.readouterr().err
    for words in (["explain", "--mode", "fast"], ["explain", "--kernle", "x"], ["explode"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code == 2


def test_explain_a_function(core):
    def f(x):
        core.call("add", 0, 50, "add.float32.TT", "model.py:9")
        return x + 1

    seen = observation.explain(f)(1)
    assert seen.result == 2
    assert "add.float32.TT" in str(seen) and repr(seen) == str(seen)
    assert seen.to_json()["operators"][0]["calls"] == 1


def test_explain_a_function_that_raises(core):
    def f():
        core.call("add", 0, 50, "add.float32.TT", "model.py:9")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        observation.explain(f)()
    assert caught.value.explanation.observed.error == "ValueError: no"
    assert not core.on


def test_info(core, capsys):
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    for word in ("avx2", "threads", "OpenBLAS", "oneDNN", "cache", "RUSHLIGHT_LOGS"):
        assert word in out


def test_operators_are_logged(core, capsys, monkeypatch):
    from rushlight.profiler import recording

    monkeypatch.setattr(recording, "_always", [call_log._log_calls])
    core.record(True)
    core.call("add", 0, 50, "add.float32.TT", "model.py:9")
    trace.set_logs("ops")
    try:
        recording.drain()
        seen = observation.explain(core.call)("mul", 50, 60, "mul.float32.TT", "model.py:10")
    finally:
        trace.set_logs("")
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "[ops] dispatch add(f32[4]) -> f32[4]"
        "  took=50 ns plan=found ran=add.float32.TT at=model.py:9"
    )
    assert "mul" in second and core.on
    assert [call.operator for call in seen.calls] == ["mul"]


def test_logs_of_eager_mode(built, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import rushlight as torch\n"
        "from rushlight import call_log\n"
        "call_log.start_logs()\n"
        "x = torch.ones(4, 4)\n"
        "for _ in range(3):\n"
        "    y = (x @ x).exp()\n"
    )
    logs = {"RUSHLIGHT_LOGS": "plans,kernels,libraries"}
    debug = {"RUSHLIGHT_COMPILE_DEBUG": "1", "RUSHLIGHT_DEBUG_DIR": str(tmp_path / "debug")}
    command = [sys.executable, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **logs, **debug}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("[plans] plan exp(f32[4, 4]) -> f32[4, 4]  made: exp.float32") == 1
    assert done.stderr.count("[kernels] kernel exp.float32") == 1 and "rl_exp_f32" in done.stderr
    assert done.stderr.count("[libraries] library ") >= 1
    (folder,) = (tmp_path / "debug").iterdir()
    assert any("exp.float32" in path.name for path in (folder / "aten" / "kernel").iterdir())


def test_recordings_nest(core):
    def outer():
        core.call("add", 0, 50, "add.float32.TT", "model.py:9")
        inner = observation.explain(core.call)("mul", 50, 60, "mul.float32.TT", "model.py:10")
        core.call("sub", 60, 70, "sub.float32.TT", "model.py:11")
        return inner

    seen = observation.explain(outer)()
    assert [call.operator for call in seen.result.calls] == ["mul"]
    assert [call.operator for call in seen.calls] == ["add", "mul", "sub"]
    assert len({call.id for call in seen.calls}) == 3 and not core.on


def test_origins_are_split_from_generated_code():
    text = (
        "// ops/pointwise.py:21\nint x;\nt2 = (t0 + t1);  // add ops/pointwise.py:21\n}  // end\n"
    )
    from rushlight.report.origins import split_origins

    code, origins = split_origins(text)
    assert code == "// ops/pointwise.py:21\nint x;\nt2 = (t0 + t1);\n}  // end\n"
    assert origins == {3: ("add ops/pointwise.py:21",)}
    deep = "x = 1;  // model.py:8 > derivative of gelu ops/a.py:4 > mul ops/a.py:5\n"
    code, origins = split_origins(deep)
    assert code == "x = 1;\n" and [link.split()[0] for link in origins[1]] == [
        "model.py:8", "derivative", "mul"]  # fmt: skip


def test_sources_of_a_precompiled_kernel():
    key = "gelu.float32.T.approximate=none"
    declared, loops, cpp = kernel_sources.Sources([]).find(key)
    assert "def gelu(" in declared.text and declared.title.startswith("Declared at ops/")
    assert "erf(" in loops.text and "rl_erf_f32" in cpp.text
    assert set(cpp.origins.values()) == {("gelu " + declared.title.removeprefix("Declared at "),)}


# ---- with the native core


def _core_is_built():
    code = "import rushlight; (rushlight.ones(2) + 1).tolist()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def built():
    if not _core_is_built():
        pytest.skip("the native core is not built")


def rushlight_command(*words):
    command = [sys.executable, "-m", "rushlight.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_real_script(built, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import rushlight as torch\n"
        "import rushlight.nn.functional as F\n"
        "x, w, b = torch.ones(64, 32), torch.ones(16, 32), torch.ones(16)\n"
        "for _ in range(3):\n"
        "    y = F.linear(x, w, b)\n"
        "print((y + 1).tolist()[0][0])\n"
    )
    path = tmp_path / "path.json"
    done = rushlight_command("explain", str(file), "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("34.0\n")
    data = json.loads(path.read_text())
    assert [s["id"] for s in data["stages"] if s["taken"]] == [
        "python_code", "cpython", "aten", "aten_cpu", "cpu"]  # fmt: skip
    rows = {row["operator"]: row for row in data["operators"]}
    assert rows["linear"]["calls"] == 3 and rows["add"]["calls"] >= 1
    assert data["libraries"], "a matrix product runs in a library"
    assert any(row["where"].endswith("model.py:5 in <module>") for row in data["lines"])
    key = next(row["key"] for row in data["kernels"] if row["operators"] == ["add"])
    source = rushlight_command("explain", str(file), "--kernel", key)
    assert source.returncode == 0, source.stderr


def test_real_info_and_operators(built):
    done = rushlight_command("info")
    assert done.returncode == 0, done.stderr
    listed = rushlight_command("ops", "gelu")
    assert listed.returncode == 0 and "gelu" in listed.stdout, listed.stderr


def test_json_on_stdout_is_json_alone(tmp_path, capsys):
    script = tmp_path / "says.py"
    script.write_text("print('the script says this')\n")
    assert cli.main(["explain", "--json", "-", str(script)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["program"] == "says.py"
    assert "the script says this" in shown.err


MODEL = """
import rushlight as torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
x = torch.ones(3, 4)
with torch.no_grad():
    print(float(model(x).sum()))
"""


def test_a_script_runs_in_the_mode_that_is_asked_for(built, tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    seen = {}
    for name, words in {"own": [], "compile": ["--mode", "compile"], "all": ["--all"]}.items():
        out = tmp_path / f"{name}.json"
        assert cli.main(["explain", str(file), "-q", "--json", str(out), *words]) == 0
        seen[name] = json.loads(out.read_text())
    numbers = [float(row) for row in capsys.readouterr().out.splitlines()]
    assert len(numbers) == 4 and len(set(numbers)) >= 1
    taken = {n: {s["mode"] for s in d["selections"] if s["taken"]} for n, d in seen.items()}
    assert seen["own"]["mode"] == "eager" and taken["own"] == {"eager"}
    assert seen["compile"]["mode"] == "compile" and seen["compile"]["captures"]
    assert taken["all"] == {"eager", "compile"} and seen["all"]["captures"]
    from rushlight.nn.module import Module

    assert Module.__call__.__qualname__ == "Module.__call__"


def test_eager_mode_of_a_script_that_compiles(built, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(MODEL.replace("x = torch", "model = torch.compile(model)\nx = torch"))
    out = tmp_path / "path.json"
    assert cli.main(["explain", str(file), "-q", "--mode", "eager", "--json", str(out)]) == 0
    data = json.loads(out.read_text())
    assert data["mode"] == "eager" and not data["captures"]


def test_the_page_is_written_whole_or_not_at_all(built, tmp_path, capsys):
    page = tmp_path / "paths.html"
    assert cli.main(["explain", "-o", str(page), "--mode", "eager"]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert cli.main(["explain", "-o", str(tmp_path / "no" / "such.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["paths.html"]
