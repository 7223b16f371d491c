"""The JSON form against its schema (rushlight/report/schema.json)."""

import json
import re
from pathlib import Path

import pytest

import rushlight as rl
from rushlight import cli, report
from rushlight.report import observe

SCHEMA = json.loads((Path(report.__file__).parent / "schema.json").read_text())

EAGER = "y = rl.nn.functional.linear(rl.randn(4, 8), rl.randn(3, 8)).relu().sum()"
COMPILE = """
model = rl.compile(rl.nn.Sequential(rl.nn.Linear(8, 8), rl.nn.GELU(), rl.nn.LayerNorm(8)))
for rows in (3, 3, 4):
    model(rl.randn(rows, 8)).sum().backward()
"""
BREAKING = """
def f(x):
    y = rl.sin(x) * 2
    print(end="")
    y = y + 1
    if y.sum() > 0:
        y = y * 2
    return y.view(-1)[0].item()
g = rl.compile(f)
g(rl.ones(2, 3)), g(rl.ones(3, 3))
"""
RAISING = COMPILE + "rl.ones(2, 3) @ rl.ones(2, 3)"


def observed(tmp_path, text, *options):
    script, made = tmp_path / "program.py", tmp_path / "path.json"
    script.write_text("import rushlight as rl\n" + text)
    code = cli.main(["explain", str(script), "--json", str(made), "-q", *options])
    return code, json.loads(made.read_text())


def errors(data):
    validator = pytest.importorskip("jsonschema").Draft202012Validator(SCHEMA)
    return [f"{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in validator.iter_errors(data)]


def test_the_schema_is_one_and_says_what_each_thing_is():
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema"]["const"] == observe.SCHEMA
    for name, entry in {"Observed": SCHEMA, **SCHEMA["$defs"]}.items():
        assert entry["description"] and not entry["additionalProperties"], name


@pytest.mark.parametrize(
    "text, code, options",
    [
        (EAGER, 0, ()),
        (COMPILE, 0, ()),
        (BREAKING, 0, ("--all",)),
        (RAISING, 1, ()),
    ],
    ids=["eager", "compile", "breaking", "raising"],
)
def test_what_scripts_give_follows_it(tmp_path, text, code, options):
    rl.compiler.reset()
    ended, data = observed(tmp_path, text, *options)
    assert ended == code and errors(data) == []
    assert bool(data["error"]) == (code == 1)
    assert bool(data["captures"]) == (text is not EAGER)
    if text is RAISING:
        (place,) = data["facts"]["stopped_at"]
        assert place.endswith(f"program.py:{len(text.splitlines()) + 1} in <module>")
    if text is BREAKING:
        assert any(c["breaks"] for c in data["captures"]) and data["operators"]
    if text is COMPILE:
        steps = [s for c in data["captures"] for g in c["graphs"] for s in g["steps"]]
        assert sum(s["calls"] for s in steps) > 0


def test_a_gpu_path_that_is_compiled_and_not_run_follows_it(tmp_path):
    pytest.importorskip("triton")
    rl.compiler.reset()
    text = "f = rl.compile(lambda x: rl.tanh(x) * 2 + 1)\nf(rl.ones(64, 64))"
    _, data = observed(tmp_path, text, "--device", "cuda")
    assert errors(data) == [] and data["device"] == "cpu"
    (graph,) = [g for c in data["captures"] for g in c["graphs"]]
    (kernel,) = [s["name"] for s in graph["steps"] if s["generated"]]
    found = {a["stage"]: a for a in graph["artifacts"]}
    for stage in ("triton_kernels", "ttir", "ttgir", "llvm_ir", "ptx", "gpu_machine_code"):
        assert found[stage]["spans"][0][2] == kernel, stage
    chains = found["triton_kernels"]["origins"].values()
    assert any(re.fullmatch(r"\S*program\.py:2", chain[0]) for chain in chains)
    greyed = next(s for s in data["selections"][-1]["stages"] if s["id"] == "cpp_openmp")
    assert "what is shown is an NVIDIA GPU" in greyed["sentence"]
    (gpu,) = [s for s in data["selections"] if (s["mode"], s["device"]) == ("compile", "gpu")]
    taken = {s["id"] for s in gpu["stages"] if s["taken"]}
    assert {"triton_kernels", "triton_compiler", "llvm_ir", "ptx", "gpu_machine_code"} <= taken
    assert "nvidia_gpu" not in taken


def test_what_does_not_follow_it_is_told(tmp_path):
    _, data = observed(tmp_path, EAGER)
    data["operators"][0]["calls"] = "3"
    data["more"] = 1
    assert len(errors(data)) == 2


def test_both_modes_of_a_model_follow_it_and_its_code_has_the_models_name(tmp_path):
    rl.compiler.reset()
    text = "model = rl.nn.Sequential(rl.nn.Linear(4, 4), rl.nn.Tanh())\nmodel(rl.ones(2, 4)).sum()"
    _, data = observed(tmp_path, text, "--all")
    assert errors(data) == [] and data["mode"] == "eager"
    assert [row["mode"] for row in data["facts"]["also"]] == ["compile"]
    assert {c["function"] for c in data["captures"]} == {"Sequential.__call__"}
    assert {f["function"] for f in data["functions"]} == {"Sequential.__call__"}
