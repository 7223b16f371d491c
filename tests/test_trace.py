"""trace: records, listeners, logs, the debug folder."""

import json
import os
import subprocess
import sys

import pytest

from rushlight import config, trace


@pytest.fixture(autouse=True)
def strict():
    with config.changed(strict=True):
        yield


def test_nobody_listening_makes_no_text():
    trace.emit("aten", "first")  # reads the environment, as the first emit does
    before = trace.listeners
    assert trace._start_outputs not in before
    if not before:
        trace.emit("aten", "x", text=lambda: pytest.fail("text made though nobody listens"))


def test_collect_takes_nested_stages():
    with trace.collect("aten") as records:
        trace.emit("validate", "add", "two operands", operands=2)
        trace.emit("cpu", "add")
        trace.emit("kernel", "add.float32.TT", lambda: "void f();", sourcemap={1: ("model.py:3",)})
    trace.emit("validate", "after")
    assert [(r.stage, r.name, r.kind) for r in records] == [
        ("validate", "add", "text"),
        ("kernel", "add.float32.TT", "cpp"),
    ]
    assert records[0].facts == {"operands": 2}
    assert records[1].text == "void f();" and records[1].sourcemap == {1: ("model.py:3",)}
    assert records[0].index < records[1].index


def test_collectors_nest_and_leave_nothing():
    before = tuple(x for x in trace.listeners if x is not trace._start_outputs)
    with trace.collect() as outer, trace.collect() as inner:
        trace.emit("aten", "x")
    assert len(outer) == len(inner) == 1
    with pytest.raises(ZeroDivisionError), trace.collect():
        raise ZeroDivisionError
    assert tuple(x for x in trace.listeners if x is not trace._start_outputs) == before


def test_span_has_times_also_when_it_raises():
    with trace.collect() as records, pytest.raises(ZeroDivisionError):
        with trace.span("dynamo", "capture f"):
            raise ZeroDivisionError
    facts = records[0].facts
    assert facts["end_ns"] >= facts["start_ns"]


def test_unknown_stage_raises_when_strict_and_is_kept_otherwise():
    with trace.collect() as records:
        with pytest.raises(KeyError, match="no_such_stage"):
            trace.emit("no_such_stage", "x")
        with config.changed(strict=False):
            trace.emit("no_such_stage", "x")
    assert [r.stage for r in records] == ["no_such_stage"]


def test_stages_form_a_tree_with_descriptions():
    for stage in trace.STAGES.values():
        assert stage.parent is None or stage.parent in trace.STAGES
        assert stage.kind in trace.KINDS
        assert stage.what.endswith(".")
        assert trace.within(stage.id)[0] == stage.id
    for log in trace.LOGS.values():
        assert set(log.stages) <= set(trace.STAGES), log.name
        assert log.what.endswith(".")


def test_logs_write_what_was_asked_for(capsys):
    try:
        trace.set_logs("plans,kernels")
        trace.emit("plan", "add", "made", inputs="f32[2, 3]")
        trace.emit("kernel", "add.float32.TT", "line one\nline two")
        trace.emit("library", "sgemm", "not asked for")
    finally:
        trace.set_logs("")
    trace.emit("plan", "add", "after")
    assert capsys.readouterr().err == (
        "[plans] plan add  inputs=f32[2, 3]  made\n"
        "[kernels] kernel add.float32.TT\n    line one\n    line two\n"
    )


def test_unknown_log_is_one_sentence_and_the_known_ones_still_work(capsys):
    try:
        trace.set_logs("plans,plnas")
        trace.emit("plan", "add", "made")
    finally:
        trace.set_logs("")
    said, log = capsys.readouterr().err.splitlines()
    assert said.startswith(
        "rushlight: RUSHLIGHT_LOGS: unknown 'plnas'; known are ops, plans, kernels"
    )
    assert log == "[plans] plan add  made"


def test_logs_help_lists_every_name(capsys):
    assert trace.parse_logs("help") == []
    err = capsys.readouterr().err
    for name in trace.LOGS:
        assert f"  {name} " in err


def test_debug_folder_writes_numbered_files(tmp_path):
    folder = trace.DebugFolder(str(tmp_path))
    with trace.listen(folder):
        trace.emit("kernel", "add.float32.TT", "void f();", sourcemap={1: ("a.py:1",)}, cost=1)
        trace.emit("fx_graph", "../../evil name\x00", "x = add(a, b)", where=object())
        trace.emit("plan", "no text")
    (run,) = tmp_path.iterdir()
    assert (run / "aten/kernel/0001-add.float32.TT.cpp").read_text() == "void f();\n"
    (graph,) = (run / "fx_graph").iterdir()
    assert graph.name.startswith("0002-") and graph.suffix == ".py"
    index = [json.loads(line) for line in (run / "index.jsonl").read_text().splitlines()]
    assert [line["number"] for line in index] == [1, 2, 3]
    assert index[0]["facts"] == {"cost": 1} and index[0]["sourcemap"] == {"1": ["a.py:1"]}
    assert index[2]["file"] is None


def test_debug_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with trace.listen(trace.DebugFolder(str(tmp_path / "file"))):
        trace.emit("plan", "a", "text")
        trace.emit("plan", "b", "text")
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "cannot write" in err


@pytest.mark.parametrize("logs, expected", [("plans", "[plans] plan add  made\n"), ("", "")])
def test_logs_are_read_from_the_environment_at_the_first_emit(logs, expected):
    code = "from rushlight import trace; trace.emit('plan', 'add', 'made')"
    environment = {**os.environ, "RUSHLIGHT_LOGS": logs, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, expected)
