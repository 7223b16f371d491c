"""The profiler under PyTorch's names: events, sums, schedule, traces."""

import json

import pytest

import rushlight as rl
from rushlight import profiler
from rushlight.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def work():
    x = rl.ones(16, 8)
    w = rl.ones(4, 8, requires_grad=True)
    rl.nn.functional.linear(x, w).relu().sum().backward()


def test_events_nest_as_they_happened_on_the_first_call_and_later():
    for _ in range(2):
        with profile() as prof:
            rl.nn.functional.linear(rl.ones(16, 8), rl.ones(4, 8))
        linear = next(e for e in prof.events() if e.name == "linear")
        inner = linear.children[-1]
        while inner.children:
            inner = inner.children[-1]
        assert inner.category == "kernel" and "gemm" in inner.name or "matmul" in inner.name
        assert inner.start >= linear.start and inner.end <= linear.end
        own = linear.self_cpu_time_total + sum(c.cpu_time_total for c in linear.children)
        assert own == pytest.approx(linear.cpu_time_total)


def test_own_times_add_up_to_the_outermost():
    with profile() as prof, record_function("all"):
        work()
    outermost = [e for e in prof.events() if e.parent is None]
    assert [e.name for e in outermost] == ["all"]
    total = sum(e.cpu_time_total for e in outermost)
    assert prof.events().self_cpu_time_total == pytest.approx(total)


def test_averages_sum_by_name_and_by_shape():
    with profile(record_shapes=True) as prof:
        for n in (2, 2, 3):
            rl.relu(rl.ones(n))
    relu = next(a for a in prof.key_averages() if a.key == "relu")
    assert relu.count == 3 and relu.cpu_time == pytest.approx(relu.cpu_time_total / 3)
    by_shape = [a for a in prof.key_averages(group_by_input_shape=True) if a.key == "relu"]
    assert {(str(a.input_shapes), a.count) for a in by_shape} == {("[[2]]", 2), ("[[3]]", 1)}


def test_an_operator_inside_itself_counts_once():
    with profile() as prof, record_function("f"), record_function("f"):
        rl.ones(3) + 1
    f = next(a for a in prof.key_averages() if a.key == "f")
    assert f.count == 2
    outer = next(e for e in prof.events() if e.name == "f" and e.parent is None)
    assert f.cpu_time_total == pytest.approx(outer.cpu_time_total)


def test_table_sorts_cuts_and_refuses():
    with profile(profile_memory=True, record_shapes=True) as prof:
        work()
    text = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    lines = text.splitlines()
    for word in ("Name", "Category", "Layer", "Self CPU %", "CPU total", "# of Calls", "CPU Mem"):
        assert word in lines[1]
    assert "more rows" in text and len(lines) == 3 + 3 + 3
    with pytest.raises(ValueError, match="sort_by 'speed'"):
        prof.key_averages().table(sort_by="speed")


def test_memory_is_that_of_results():
    with profile(profile_memory=True) as prof:
        rl.ones(256) + 1
    add = next(e for e in prof.events() if e.name == "add")
    assert add.memory == 1024


def test_schedule_and_steps():
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
    words = [plan(i).name for i in range(7)]
    assert words == ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE"]
    with pytest.raises(ValueError, match="at least one active"):
        schedule(wait=0, warmup=0, active=0)
    seen = []
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append(p.events())) as prof:
        for i in range(7):
            rl.ones(i + 1) + 1
            prof.step()
    (events,) = seen
    sizes = [e.name for e in events if e.name.startswith("ProfilerStep")]
    assert sizes == ["ProfilerStep#3", "ProfilerStep#4"]
    assert sum(e.name == "add" for e in events) == 2


def test_repeated_cycles_each_give_a_trace(tmp_path):
    handler = profiler.tensorboard_trace_handler(str(tmp_path / "traces"))
    plan = schedule(wait=0, warmup=0, active=1, repeat=3)
    with profile(schedule=plan, on_trace_ready=handler) as prof:
        for _ in range(3):
            rl.ones(2) + 1
            prof.step()
    assert len(list((tmp_path / "traces").iterdir())) == 3


def test_a_trace_loads_and_nests(tmp_path):
    with profile(with_stack=True) as prof, record_function("step"):
        work()
    file = tmp_path / "trace.json"
    prof.export_chrome_trace(str(file))
    rows = [r for r in json.loads(file.read_text())["traceEvents"] if r["ph"] == "X"]
    assert {"op", "kernel", "user_annotation"} <= {r["cat"] for r in rows}
    step = next(r for r in rows if r["name"] == "step")
    for r in rows:
        assert r["ts"] >= step["ts"] and r["ts"] + r["dur"] <= step["ts"] + step["dur"] + 0.01
    assert any("test_profiler.py" in r.get("args", {}).get("at", "") for r in rows)


def test_compiled_code_shows_its_graphs_and_kernels():
    f = rl.compile(lambda x: (rl.gelu(x) * 2).sum(-1))
    x = rl.randn(8, 16)
    f(x)
    with profile() as prof:
        f(x)
    kinds = {(e.category, e.parent.category if e.parent else None) for e in prof.events()}
    assert ("runtime", None) in kinds and ("kernel", "runtime") in kinds


def test_profiles_nest_and_leave_recording_off():
    assert not rl._core.record(False)
    with profile() as outer:
        rl.ones(2) + 1
        with profile() as inner:
            rl.ones(2) * 2
    assert [e.name for e in inner.events() if e.name in ("add", "mul")] == ["mul"]
    assert [e.name for e in outer.events() if e.name in ("add", "mul")] == ["add", "mul"]
    assert not rl._core.record(False)


def test_an_error_inside_ends_the_profile():
    with pytest.raises(RuntimeError), profile() as prof:
        rl.ones(2, 3) @ rl.ones(2, 3)
    assert not rl._core.record(False) and len(prof.events()) >= 1


def test_bad_use():
    with pytest.raises(ValueError, match="no ProfilerActivity"):
        profile(activities=["cpu"])
    with pytest.raises(RuntimeError, match="before the profile has ended"):
        profile(activities=[ProfilerActivity.CPU]).events()
    assert ProfilerAction.NONE.value == 0


def test_record_function_decorates():
    @record_function("named")
    def f(x):
        """Doc."""
        return x + 1

    assert f.__name__ == "f" and f.__doc__ == "Doc."
    with profile() as prof:
        f(rl.ones(2))
    assert any(e.name == "named" and e.children for e in prof.events())
