"""What a GPU did, as CUPTI tells it: owners, times on our clock, copies, graphs, lost records."""

import ctypes
import json
import os
import re
import tempfile
import threading

import stand_in

import rushlight as rl
from rushlight import _core, profiler
from rushlight.profiler import ProfilerActivity, profile, record_function
from rushlight.report.activities import CUPTI, Activity, occupancy

cupti = ctypes.CDLL(os.environ["RUSHLIGHT_CUPTI"])
cupti.fake_cupti_pushes = ctypes.c_long.in_dll(cupti, "fake_cupti_pushes")
cupti.fake_cupti_pops = ctypes.c_long.in_dll(cupti, "fake_cupti_pops")
cupti.fake_cupti_buffers = ctypes.c_long.in_dll(cupti, "fake_cupti_buffers")
ENABLED = (ctypes.c_int * 64).in_dll(cupti, "fake_cupti_enabled")
ON_DEVICE = ("gpu_kernel", "gpu_memcpy", "gpu_memset")


def on_device(prof):
    return [e for e in prof.events() if e.category in ON_DEVICE]


def check_a_gpu_that_is_opened_inside_a_profile_is_seen():  # the first: nothing is open yet
    assert not rl.cuda.is_initialized()
    with profile() as prof:
        assert not any(ENABLED)
        stand_in.install()
        rl.ones(100, device="cuda")
        assert ENABLED[10] and ENABLED[1] and ENABLED[2]
    assert not any(ENABLED) and prof.events().device_times.by == CUPTI
    assert [e.category for e in on_device(prof)] == ["gpu_kernel"]


def check_kernels_and_copies_belong_to_what_launched_them():
    x = rl.ones(100, device="cuda")
    with profile() as prof, record_function("all"):
        y = x * 2
        y.sum().item()
        rl.ones(3).cuda()
        y.cpu()
    found = on_device(prof)
    owners = [(e.name, e.parent.category, (e.parent.parent or e.parent).name) for e in found]
    assert owners[:3] == [
        ("mul.float32.TN", "kernel", "mul"),
        ("sum.float32.T", "kernel", "sum"),
        ("copy device to host", "op", "all"),
    ]
    assert [e.name for e in found[3:]] == ["copy host to device", "copy device to host"]
    assert found[2].parent.name == "item" and found[4].activity.bytes == 400
    assert all(e.cpu_time_total == 0 and e.device_time_total > 0 for e in found)
    mul = next(e for e in prof.events() if e.name == "mul")
    assert mul.device_time_total == found[0].device_time_total and mul.on_device
    kernel = found[0].activity
    assert (kernel.registers, kernel.block, kernel.static_shared) == (24, (128, 1, 1), 128)
    total = sum(e.device_time_total for e in found)
    assert abs(sum(e.self_device_time_total for e in prof.events()) - total) < 1e-6
    whole = next(e for e in prof.events() if e.name == "all")
    assert abs(whole.device_time_total - total) < 1e-6
    # their clock was mapped to ours: all of it lies within the profile, each after its launch
    for e in found:
        assert whole.start <= e.activity.launched <= e.start <= e.end <= whole.end + 10**9
        assert e.parent.start <= e.activity.launched <= e.parent.end
    table = prof.key_averages().table(sort_by="self_cuda_time_total")
    assert "CUDA times: of each kernel, copy and fill, by CUPTI" in table
    rows = {a.category: a for a in prof.key_averages() if a.key == "mul.float32.TN"}
    assert rows["gpu_kernel"].device_time_total == rows["kernel"].device_time_total > 0


def check_a_library_s_kernels_are_the_call_s_by_their_name_in_cpp():
    x = rl.ones(4, 8, device="cuda")
    with profile() as prof:
        x @ x.T
    (kernel,) = (e for e in on_device(prof) if "gemm" in e.name)
    assert kernel.name == "void fake_gemm<float>(float const*)"
    assert kernel.parent.name == "cublasLt matmul" and kernel.device_time_total == 1.0


def check_no_events_are_queued_meanwhile():
    x = rl.ones(100, device="cuda")
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x * 2
    assert prof.events().device_times.by == "events" and not on_device(prof)
    told = prof.key_averages().table()
    assert "CUDA times: between events on the stream" in told and "not asked for" in told
    waits = [c for c in stand_in.calls() if c == "synchronize event"]
    assert waits
    with profile() as prof:
        x * 2
    assert "synchronize event" not in stand_in.calls() and on_device(prof)


def check_compiled_kernels_and_nested_ranges():
    f = rl.compile(lambda x: rl.nn.functional.linear(x, w).relu())
    w = rl.ones(4, 8, device="cuda")
    x = rl.ones(16, 8, device="cuda")
    f(x)
    with profile() as prof, record_function("outer"), record_function("inner"):
        f(x)
    found = on_device(prof)
    assert found
    for e in found:
        above = []
        while e.parent is not None:
            e = e.parent
            above.append((e.category, e.name))
        assert ("user_annotation", "inner") in above and above[-1] == ("user_annotation", "outer")
        assert any(category == "runtime" for category, _ in above)


def check_a_graph_s_kernels_belong_to_the_call_that_launched_it():
    @rl.compiler.disable
    def launch():
        cupti.fake_launch_graph(3)

    def program(x):
        y = x + 1
        launch()
        return y * 2

    f = rl.compile(program)
    x = rl.ones(8, device="cuda")
    f(x)
    with profile() as prof:
        f(x)
    mine = [e for e in on_device(prof) if e.name == "in_a_graph"]
    assert [e.activity.node for e in mine] == [900, 901, 902]
    assert {e.activity.graph for e in mine} == {5}
    assert len({e.activity.correlation for e in mine}) == 1
    assert {e.parent.category for e in mine} == {"runtime"}
    assert [round(e.device_time_total) for e in mine] == [1, 2, 3]


def check_what_nobody_launched_is_there_without_an_owner():
    with profile() as prof:
        thread = threading.Thread(target=cupti.fake_launch_graph, args=(1,))
        thread.start()
        thread.join()
    (alone,) = on_device(prof)
    assert alone.parent is None and alone.activity.owner is None
    assert prof.events().device_times.loose == (alone.activity,)


def check_many_buffers_and_both_versions():
    x = rl.ones(8, device="cuda")
    for version in ("12", "13"):
        os.environ["RUSHLIGHT_FAKE_CUPTI_VERSION"] = version
        os.environ["RUSHLIGHT_FAKE_CUPTI_RECORDS"] = "5"
        before = cupti.fake_cupti_buffers.value
        with profile() as prof:
            for _ in range(20):
                x = x + 1
            x.cpu()
            x.zero_()
        assert cupti.fake_cupti_buffers.value > before + 8
        names = [e.category for e in on_device(prof)]
        assert names.count("gpu_kernel") >= 20 and "gpu_memcpy" in names
        assert all(e.parent is not None for e in on_device(prof))
    del os.environ["RUSHLIGHT_FAKE_CUPTI_VERSION"], os.environ["RUSHLIGHT_FAKE_CUPTI_RECORDS"]


def check_launches_are_the_thread_s_own_meanwhile():
    was = _core.cuda_launch_thread(2)
    x = rl.ones(8, device="cuda")
    x + 1
    with profile() as prof:
        x * 2
        x - 1
    _core.cuda_launch_thread(int(was))
    owners = [(e.name.split(".")[0], e.parent and e.parent.category) for e in on_device(prof)]
    assert owners == [("mul", "kernel"), ("sub", "kernel")]


def check_a_buffer_that_another_thread_holds_up_comes_at_the_end():
    x = rl.ones(8, device="cuda")
    os.environ["RUSHLIGHT_FAKE_CUPTI_HOLD"] = "1"
    with profile() as outer:
        x + 1
        with profile() as inner:
            x * 2
    del os.environ["RUSHLIGHT_FAKE_CUPTI_HOLD"]
    assert not on_device(inner)
    assert [e.name.split(".")[0] for e in on_device(outer)] == ["add", "mul"]


def check_lost_records_are_told():
    x = rl.ones(8, device="cuda")
    os.environ["RUSHLIGHT_FAKE_CUPTI_DROP"] = "7"
    with profile() as prof:
        x + 1
    del os.environ["RUSHLIGHT_FAKE_CUPTI_DROP"]
    assert prof.events().device_times.lost == 7
    assert "7 records were lost" in prof.key_averages().table()


def check_profiles_inside_each_other_and_what_is_left_after():
    x = rl.ones(8, device="cuda")
    with profile() as outer:
        x + 1
        with profile() as inner:
            x * 2
        x - 1
    assert [e.name.split(".")[0] for e in on_device(inner)] == ["mul"]
    assert [e.name.split(".")[0] for e in on_device(outer)] == ["add", "mul", "sub"]
    assert not any(ENABLED) and cupti.fake_cupti_pushes.value == cupti.fake_cupti_pops.value
    pushes = cupti.fake_cupti_pushes.value
    x + 1
    with profile(activities=[ProfilerActivity.CPU]):
        x + 1
    assert cupti.fake_cupti_pushes.value == pushes  # off, nothing is asked of it


def check_an_error_inside_leaves_the_ids_in_order():
    x = rl.ones(2, 3, device="cuda")
    with profile() as prof:
        stand_in.raises(RuntimeError, "", lambda: x @ x)
        x + 1
    (add,) = on_device(prof)
    assert add.parent.parent.name == "add"
    assert cupti.fake_cupti_pushes.value == cupti.fake_cupti_pops.value


def check_schedules_record_each_active_step():
    x = rl.ones(8, device="cuda")
    seen = []
    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append(on_device(p))) as prof:
        for _ in range(5):
            x + 1
            prof.step()
    assert [len(found) for found in seen] == [2]


def check_a_trace_has_a_row_a_stream_and_arrows():
    side = rl.cuda.Stream()
    x = rl.ones(100, device="cuda")
    rl.cuda.synchronize()
    with profile() as prof:
        x * 2
        with rl.cuda.stream(side):
            x + 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        prof.export_chrome_trace(path)
        with open(path) as file:
            trace = json.load(file)
    rows = trace["traceEvents"]
    assert trace["deviceTimes"] == "of each kernel, copy and fill, by CUPTI"
    kernels = [r for r in rows if r.get("cat") == "gpu_kernel"]
    assert {(r["pid"], r["tid"]) for r in kernels} == {(0, 7), (0, 8)}
    heads = [r for r in rows if "name" in r.get("args", {})]
    names = {(r["pid"], r.get("tid")): r["args"]["name"] for r in heads}
    assert names[0, None] == "GPU 0" and names[0, 7] == "stream 7"
    assert kernels[0]["args"]["registers per thread"] == 24
    begins = {r["id"]: r for r in rows if r["ph"] == "s"}
    ends = {r["id"]: r for r in rows if r["ph"] == "f"}
    assert len(begins) == 2 and begins.keys() == ends.keys()
    for id, end in ends.items():
        assert end["cat"] == begins[id]["cat"] == "ac2g" and end["bp"] == "e"
        kernel = next(r for r in kernels if r["ts"] == end["ts"] and r["tid"] == end["tid"])
        at = begins[id]["ts"]
        assert any(
            r["ts"] <= at <= r["ts"] + r["dur"] + 0.01 and r["name"] == kernel["name"]
            for r in rows
            if r.get("cat") == "kernel"
        )


def check_explain_has_what_the_gpu_did():
    def program():
        x = rl.ones(100, device="cuda")
        return (x * 2).sum().item()

    explained = rl.explain(program)()
    facts = explained.observed.facts
    assert facts["gpu_times"] == {"by": "cupti", "why": "", "lost": 0}
    work = {row["from"]: row for row in facts["gpu_work"]}
    mul = work["mul.float32.TN"]
    line = program.__code__.co_firstlineno + 2
    assert mul["count"] == 1 and f"check_activities.py:{line}" in mul["lines"][0]
    assert mul["registers"] == 24 and mul["occupancy"] > 0 and mul["waves"] > 0
    assert work["item"]["bytes"] == 4 and work["item"]["kind"] == "copy"
    kernel = next(row for row in explained.observed.kernels if row.key == "mul.float32.TN")
    assert kernel.ns == mul["ns"]
    text = str(explained)
    assert "What the GPU did" in text and "by CUPTI" in text
    found = re.search(r'id="data">(.*?)</script>', explained.page(), re.S)
    data = json.loads(found[1])
    rows = data["device_work"]
    assert [r["from"] for r in rows][-1] == "item" and all(r["queued"] is not None for r in rows)
    assert data["limits"].keys() == {"bytes_per_ns"}


def check_occupancy_by_each_limit():
    h200 = dict(major=9, minor=0, warp_size=32, max_threads_per_multi_processor=2048,
                regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=233472,
                multi_processor_count=132)  # fmt: skip

    def of(threads, registers=32, shared=0, grid=1320):
        launched = Activity(
            1, "kernel", "k", 0, 1, 0, 0, 0, 0, registers=registers, static_shared=shared,
            grid=(grid, 1, 1), block=(threads, 1, 1),
        )  # fmt: skip
        return occupancy(launched, h200)

    assert of(256) == (1.0, 1320 / (8 * 132))
    assert of(32)[0] == 0.5  # 32 blocks at once
    assert of(256, registers=128)[0] == 0.25  # 16 warps' worth of registers
    assert of(256, registers=168)[0] == 0.125
    assert of(128, shared=100 << 10)[0] == 2 * 128 / 2048  # two blocks' shared memory
    assert occupancy(Activity(1, "copy", "", 0, 1, 0, 0, 0, 0), h200) == (0.0, 0.0)


def check_refusals_fall_back_to_events_and_say_so():
    x = rl.ones(8, device="cuda")
    for error, words in (
        ("39", "another profiler of this process has CUPTI"),
        ("35", "this user may not profile the GPU"),
        ("999", "CUPTI refuses (CUPTI_ERROR_OF_THE_STAND_IN)"),
    ):
        os.environ["RUSHLIGHT_FAKE_CUPTI_ERROR"] = error
        kept = rl.trace.Kept()
        rl.trace.add_listener(kept)
        with profile() as prof:
            x * 2
        rl.trace.remove_listener(kept)
        assert not any(ENABLED) and not on_device(prof)
        times = prof.events().device_times
        assert times.by == "events" and words in times.why
        assert words in prof.key_averages().table()
        assert prof.events()[0].device_time_total > 0
        reasons = [r.facts["reason"].id for r in kept if r.kind == "reason"]
        assert reasons == ["profiler.no_cupti"]
    os.environ["RUSHLIGHT_FAKE_CUPTI_ERROR"] = "0"
    with profile() as prof:
        x * 2
    assert on_device(prof)
    assert _core.cuda_take_activities(True) == ([], 0)


stand_in.main(globals())
