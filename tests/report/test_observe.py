"""Records -> observed path: what is counted, what is greyed and why."""

import json

import pytest

from rushlight import reasons, trace
from rushlight.report import path
from rushlight.report.observe import merge, observe
from rushlight.report.records import Calls, read_calls
from rushlight.report.stages import Run


def stage(observed, id):
    return next(s for s in observed.stages if s.id == id)


def test_the_path_of_an_eager_run_on_a_cpu(run):
    seen = observe(run)
    taken = [s.id for s in seen.stages if s.taken]
    assert taken == ["python_code", "cpython", "aten", "aten_cpu", "cpu"]
    assert sum(step.taken for step in seen.steps) == 4
    assert seen.status == path.load().status("eager", "cpu")
    assert stage(seen, "aten_cpu").count == 7 and stage(seen, "aten_cpu").ns == 509_000
    assert seen.operator_ns == 533_000
    finer = {f.id: f for f in stage(seen, "aten").finer}
    assert set(finer) == {"validate", "promote", "plan", "allocate", "view", "dispatch"}
    assert finer["promote"].count == 1 and finer["view"].count == 2


def test_every_stage_not_taken_has_a_known_reason(run):
    for s in observe(run).stages:
        assert s.sentence
        assert s.taken == (s.reason == "")
        assert s.taken or s.reason in reasons.IDS
    assert stage(observe(run), "dynamo").reason == "path.mode_not_taken"
    assert stage(observe(run), "nvidia_gpu").reason == "device.no_gpu"
    run.facts = {**run.facts, "gpu": True}
    assert stage(observe(run), "nvidia_gpu").reason == "path.device_not_used"


def test_a_run_without_operators():
    seen = observe(Run("empty.py", Calls(), wall_ns=5))
    assert [s.id for s in seen.stages if s.taken] == ["python_code", "cpython"]
    assert stage(seen, "aten").reason == "path.nothing_recorded"
    assert seen.way_down is None and seen.operators == []


def test_a_run_that_raised():
    failed = (
        0,
        None,
        0,
        "mm",
        "library",
        None,
        100,
        0,
        ("f32[2, 3]", "f32[4, 5]"),
        (),
        "",
        "a.py:3",
    )
    before = (
        1,
        None,
        0,
        "add",
        "scalar",
        False,
        0,
        90,
        ("f32[2]",),
        ("f32[2]",),
        "add.float32.T",
        "",
    )
    calls = read_calls([before, failed])
    seen = observe(Run("a.py", calls, error="RuntimeError: [mm] ..."))
    assert (seen.operators[1].misses, seen.operators[1].hits) == (0, 0)
    assert [f.sentence for f in stage(seen, "aten").finer if f.id == "dispatch"] == [
        "1 kernel call"
    ]
    assert "1 refused" in stage(seen, "aten").finer[0].sentence
    assert "RuntimeError: [mm] ..." in stage(seen, "python_code").sentence
    assert seen.way_down.stages[-1].sentence == "mm(f32[2, 3], f32[4, 5]) was refused"


def test_other_modes_are_counted_from_trace_records():
    with trace.collect() as records:
        trace.emit("dynamo", "f", start_ns=0, end_ns=70)
        trace.emit("guards", "f", "x.dtype is float32")
        trace.emit("fx_graph", "f", "add(x, y)")
        trace.emit("cpp_openmp", "kernel_0", "void f();")
    run = Run("f.py", Calls(), records, mode="compile", wall_ns=100)
    seen = observe(run)
    assert stage(seen, "dynamo").taken and stage(seen, "dynamo").ns == 70
    assert [f.id for f in stage(seen, "dynamo").finer] == ["guards"]
    assert stage(seen, "cpp_openmp").count == 1
    assert stage(seen, "aten").reason == "path.mode_not_taken"
    assert not stage(seen, "inductor").taken
    step = next(s for s in seen.steps if (s.source, s.target) == ("dynamo", "fx_graph"))
    assert step.taken and step.count == 1


def test_what_compiled_graphs_left_to_libraries_is_told_on_both_devices(calls):
    for device, where in (("cpu", "aten_cpu"), ("gpu", "aten_cuda")):
        run = Run("f.py", Calls(), (), "compile", device, wall_ns=100)
        run.calls.inside = calls
        seen = stage(observe(run), where)
        assert seen.taken and seen.count == 7 and "2 calls of 1 library routine" in seen.sentence


def test_a_gpu_tells_what_was_queued_and_how_often_the_host_waited(calls):
    with trace.collect() as records:
        trace.emit("launch", "5 generated, 2 copy", generated=5, copy=2)
        trace.emit("synchronise", "item", ms=0.5, at="a.py:3")
    run = Run("f.py", Calls(), records, "compile", "gpu", wall_ns=100)
    told = stage(observe(run), "nvidia_gpu")
    assert told.count == 7
    assert told.sentence == (
        "5 generated kernels, 2 copies queued; the host waited 1 time, 500 us in all."
    )
    assert {f.id: f.count for f in told.finer} == {"launch": 1, "synchronise": 1}


def test_refusals_are_distinct_with_counts(run):
    (refusal,) = observe(run).refusals
    assert (refusal.id, refusal.count) == ("eager.operand_copied", 3)
    assert refusal.where == "/app/encoder.py:12 in forward"


def test_way_down_of_a_named_operator(run):
    way = observe(run, "linear").way_down
    (addmm,) = way.parts
    assert addmm.chain == ["linear", "addmm"]
    mm = next(part for part in addmm.parts if part.operator == "mm")
    assert mm.chain == ["linear", "addmm", "mm", "onednn sgemm"]
    assert [s.stage for s in mm.stages] == [
        "validate", "promote", "plan", "allocate", "dispatch", "library"]  # fmt: skip
    assert mm.stages[2].sentence.startswith("found")
    assert mm.where == "/app/encoder.py:12 in forward"
    with pytest.raises(KeyError):
        observe(run, "conv2d")


def test_json_holds_everything(run):
    data = json.loads(json.dumps(observe(run).to_json()))
    assert data["schema"] == 3 and data["documented"]["version"] == path.load().facts["version"]
    assert len(data["stages"]) == len(path.load().stages)
    assert len(data["steps"]) == len(path.load().steps)
    assert data["tree"][0]["children"][0]["operator"] == "addmm"


def test_a_second_run_says_its_mode_and_time(calls):
    def observed(mode, wall):
        return observe(Run("a.py", calls, (), mode, wall_ns=wall))

    first = observed("eager", 5)
    merge(first, observed("compile", 7))
    assert first.wall_ns == 5
    assert first.facts["also"] == [{"mode": "compile", "device": "cpu", "wall_ns": 7}]
