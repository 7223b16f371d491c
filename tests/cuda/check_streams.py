"""Streams, events and the host's waits. What is queued runs in the stand-in only when somebody
waits for it.
"""

import threading
import warnings

import stand_in

import rushlight as rl
from rushlight import cuda

stand_in.install()


def check_the_host_does_not_wait_for_operators():
    x = rl.ones(100, device="cuda")
    stand_in.calls()
    y = (x * 2 + 1).relu().sum()
    x.requires_grad_()
    (x * x).sum().backward()
    rl.optim.SGD([x], lr=0.1).step()
    assert not [c for c in stand_in.calls() if "synchronize" in c or "host" in c]
    assert not cuda.current_stream().query()
    assert y.item() == 300 and cuda.current_stream().query()


def check_another_stream_waits_by_events():
    side = cuda.Stream(priority=-1)
    x = rl.ones(100, device="cuda")
    done = cuda.Event()
    y = x + 1
    done.record()
    with cuda.stream(side):
        assert cuda.current_stream() == side
        side.wait_event(done)
        z = y * 3
    assert cuda.current_stream() == cuda.default_stream()
    side.synchronize()
    assert z.sum().item() == 600
    assert done.query()


def check_events_keep_time():
    a, b = (cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    rl.ones(10, device="cuda") + 1
    b.record()
    assert not b.query()
    b.synchronize()
    assert b.query() and a.elapsed_time(b) > 0
    stand_in.raises(ValueError, "enable_timing", lambda: cuda.Event().elapsed_time(b))
    assert cuda.Event().query()


def check_each_thread_has_its_own_current_stream():
    side, seen = cuda.Stream(), []

    def ask():
        seen.append(cuda.current_stream())

    with cuda.stream(side):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert seen == [cuda.default_stream()]


def check_waits_name_the_call_and_the_line():
    x = rl.ones(3, device="cuda")
    cuda.take_waits()
    x.sum().item()
    bool(x[0] > 0)
    x.tolist()
    repr(x)
    x.cpu()
    cuda.synchronize()
    x.sort()
    waits = cuda.take_waits()
    assert [w.what for w in waits] == [
        "item",
        "bool(tensor)",
        "tolist",
        "print",
        "copy to host",
        "synchronize",
        "sort",
    ], waits
    assert all("check_streams.py" in w.line for w in waits), waits
    first = int(waits[0].line.split(":")[1].split()[0])
    assert int(waits[1].line.split(":")[1].split()[0]) == first + 1
    assert cuda.take_waits() == []


def check_waits_can_be_refused():
    x = rl.ones(3, device="cuda")
    with cuda.sync_debug("error"):
        y = x * 2
        told = stand_in.raises(RuntimeError, "[item]", lambda: y.sum().item())
        assert "check_streams.py" in told
        stand_in.raises(RuntimeError, "[copy to host]", x.cpu)
    assert cuda.get_sync_debug_mode() == 0
    with cuda.sync_debug("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert y.sum().item() == 6
    assert len(seen) == 1 and "[item]" in str(seen[0].message)
    cuda.set_sync_debug_mode("default")
    stand_in.raises(RuntimeError, "knows default, warn", lambda: cuda.set_sync_debug_mode("loud"))


def branching(x):
    y = (x + 1).relu()
    return y * 2 if y.sum() > 0 else y


def check_explain_names_the_lines_that_wait():
    found = rl.explain(branching)(rl.ones(3, device="cuda"))
    assert found.result.tolist() == [4, 4, 4]
    (wait,) = found.observed.facts["waits"]
    assert wait["what"] == "bool(tensor)" and wait["count"] == 1
    assert "check_streams.py" in wait["line"]
    assert "reads" not in found.observed.facts  # the same, told once
    assert found.observed.device == "gpu"
    text = str(found)
    assert "Where Python waited for the GPU" in text and "eager mode on an NVIDIA GPU" in text
    calm = rl.explain(lambda x: x + 1)(rl.ones(3, device="cuda"))
    assert "waits" not in calm.observed.facts
    here = rl.explain(lambda x: x + 1)(rl.ones(3))
    assert here.observed.device == "cpu"


def check_printing():
    x = rl.arange(3.0).cuda()
    assert repr(x) == "tensor([0., 1., 2.], device='cuda:0')"
    large = rl.arange(20000).reshape(100, 200)
    assert repr(large.cuda()).replace(", device='cuda:0'", "") == repr(large)
    assert repr(rl.zeros(0, 2, device="cuda")) == "tensor([], device='cuda:0', size=(0, 2))"


def check_memory_outlives_the_stream_that_used_it():
    x, side = rl.ones(1 << 20, device="cuda"), cuda.Stream()
    x.record_stream(side)
    handle = side.cuda_stream
    del side
    stand_in.calls()
    del x  # its block waits for what is queued on the stream
    cuda.synchronize()
    assert not any("Destroy" in call for call in stand_in.calls())
    assert cuda.Stream().cuda_stream == handle  # handed out again


stand_in.main(globals())
