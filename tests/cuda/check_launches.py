"""What an operator asks of the driver in steady state, and the thread that hands launches over."""
# settings: RUSHLIGHT_CUDA_LAUNCH_THREAD=0

import ctypes
import os
import subprocess
import sys
import threading
import time

import stand_in

import rushlight as rl
from rushlight import _core, cuda
from rushlight.nn.functional import linear

stand_in.install()
quiet = ctypes.c_long.in_dll(stand_in.driver, "fake_quiet_calls")


QUEUED = """
import os, sys
import stand_in
import rushlight as rl
from rushlight import _core, cuda
stand_in.install()
x = rl.ones(3, device="cuda")
for _ in range(400):
    x = x + 1
"""


def program(code, before="", **settings):
    """What a program says that queued 400 launches and goes on as `code` does."""
    done = subprocess.run(
        [sys.executable, "-c", before + QUEUED + code],
        env={**os.environ, "RUSHLIGHT_CUDA_LAUNCH_THREAD": "2", **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def asked(call):
    """The driver calls of one call of `call`, after two to warm up; quiet ones as 'quiet'."""
    for _ in range(2):
        call()
    stand_in.calls()
    before = quiet.value
    call()
    return [line.split()[0] for line in stand_in.calls()] + ["quiet"] * (quiet.value - before)


def check_an_operator_is_one_call_and_memory_is_none():
    x, w = rl.ones(32, device="cuda"), rl.ones(32, device="cuda", requires_grad=True)
    a, b = rl.ones(64, 64, device="cuda"), rl.ones(64, device="cuda")
    assert asked(lambda: x + x) == ["launch"]
    assert asked(lambda: x + 1.0) == ["launch"]
    assert asked(lambda: rl.relu(x)) == ["launch"]
    assert asked(lambda: x.sum()) == ["launch"]
    assert asked(lambda: rl.softmax(x, 0)) == ["launch"]
    assert asked(lambda: w + x) == ["launch"]
    assert asked(lambda: x.view(4, 8)) == []
    assert asked(lambda: linear(a, a, b)) == []  # the library's own call
    assert asked(lambda: rl.empty(32, device="cuda")) == []
    assert asked(lambda: rl.empty(1 << 21, device="cuda")) == []


def check_a_factory_makes_what_python_would():
    made = rl.empty(2, 3, device="cuda", dtype=rl.float16)
    assert made.shape == (2, 3) and made.dtype is rl.float16 and made.device == rl.device("cuda:0")
    for device in ("cuda:0", rl.device("cuda"), rl.device("cuda", 0), 0):
        assert rl.empty(4, device=device).device == made.device
    assert rl.empty(4, device="meta").device.type == "meta"
    assert rl.empty(4, device="cpu").device.type == "cpu"
    assert rl.empty(4, device="cuda", requires_grad=True).requires_grad
    with rl.device("cuda"):
        assert rl.empty(4).device == made.device and rl.empty(4, device="cpu").device.type == "cpu"
        assert rl.empty_like(rl.empty(4, device="cpu")).device.type == "cpu"
    stand_in.raises(RuntimeError, "device type", lambda: rl.empty(4, device="gpu"))
    stand_in.raises(RuntimeError, "invalid device", lambda: rl.empty(4, device="cuda:7"))
    stand_in.raises(RuntimeError, "negative", lambda: rl.empty(-4, device="cuda"))


def threaded(check):
    """`check`, with launches handed over by the thread."""

    def run():
        assert not _core.cuda_launch_thread(2)
        try:
            check()
        finally:
            _core.cuda_launch_thread(0)

    return run


@threaded
def check_more_launches_than_there_is_room_for_keep_their_order():
    x = rl.zeros(3, device="cuda")
    cuda.synchronize()  # the log has one writer
    stand_in.calls()
    for _ in range(5000):
        x = x * 0.5 + 1
    assert x.tolist() == [2.0, 2.0, 2.0]
    assert sum(line.startswith("launch") for line in stand_in.calls()) == 10000


@threaded
def check_memory_that_is_freed_and_taken_again_in_between():
    x = rl.arange(100.0).cuda()
    total = rl.zeros(100, device="cuda")
    for i in range(300):
        part = x * i  # its memory is the next one's
        total += part
    assert total.tolist() == [300 * 299 / 2 * v for v in range(100)]


@threaded
def check_products_and_fills_wait_their_turn():
    a, b = rl.eye(16).cuda(), rl.ones(16, device="cuda")
    x = rl.ones(4, 16, device="cuda")
    for _ in range(100):
        x = linear(x, a, b)
    assert x.tolist() == [[101.0] * 16] * 4
    index = rl.tensor([0, 2, 2]).cuda()
    table = rl.ones(4, 5, device="cuda", requires_grad=True)
    for _ in range(20):
        rl.nn.functional.embedding(index, table).sum().backward()
    assert table.grad.sum(1).tolist() == [100, 0, 200, 0]


@threaded
def check_events_and_streams_come_after_what_was_queued_before():
    side, done = cuda.Stream(), cuda.Event()
    x = rl.ones(100, device="cuda")
    for _ in range(50):
        x = x + 1
    done.record()
    assert not done.query()
    with cuda.stream(side):
        side.wait_event(done)
        y = x * 2
        for _ in range(50):
            y = y + 1
    side.synchronize()
    assert done.query() and y.tolist() == [152.0] * 100


@threaded
def check_a_refused_launch_is_told_where_the_host_waits():
    record, images = stand_in.record("add.float32.TT")
    record["variants"][0]["launches"][0]["entry"] = "refused"
    recipe = _core.FusedKernel(
        _core.DeviceKernel(record, images),
        *("sum_of_two", "broadcast", 0, "FF", "S", (_core.float32,), ""),
    )
    x = rl.ones(6, device="cuda")
    recipe(x, x)
    text = stand_in.raises(RuntimeError, "invalid argument", cuda.synchronize)
    assert "add.float32.TT" in text and text.startswith("["), text
    assert (x + 1).tolist() == [2.0] * 6


@threaded
def check_convolutions_wait_their_turn():
    from rushlight.nn.functional import conv2d

    x, w, b = rl.ones(1, 1, 6, 6, device="cuda"), rl.ones(1, 1, 3, 3).cuda(), rl.ones(1).cuda()
    want = rl.ones(1, 1, 6, 6)
    dnn = ctypes.CDLL(os.environ["RUSHLIGHT_CUDNN"])
    for _ in range(5):
        x = conv2d(x * 0.5, w, b, padding=1).relu()
        # cuDNN's handle stays with who asks
        assert ctypes.c_long.in_dll(dnn, "fake_last_thread").value == threading.get_native_id()
        want = conv2d(want * 0.5, w.cpu(), b.cpu(), padding=1).relu()
    assert rl.allclose(x.cpu(), want)


@threaded
def check_threads_that_launch_and_wait_at_once():
    def work(i):
        side = cuda.Stream()
        with cuda.stream(side):
            for _ in range(20):
                x = rl.full((50,), float(i)).cuda()
                for _ in range(30):
                    x = x + 1
                found.append(x.tolist() == [i + 30.0] * 50)

    found = []
    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert found == [True] * 60


@threaded
def check_running_out_of_memory_in_between():
    x = rl.zeros(4, device="cuda")
    for _ in range(3):
        for _ in range(50):
            x = x + 1
        stand_in.raises(
            cuda.OutOfMemoryError, "Tried to allocate", lambda: rl.empty(1 << 31, device="cuda")
        )
    assert x.tolist() == [150.0] * 4


def check_launches_in_a_row_wake_it_and_it_sleeps_again():
    _core.cuda_launch_thread(1)
    try:
        x = rl.zeros(5, device="cuda")
        for round_ in range(30):
            for _ in range(60):
                x = x + 1
            if round_ % 3 == 0:
                time.sleep(0.002)  # it falls asleep
            if round_ % 5 == 0:
                assert x.tolist() == [60.0 * (round_ + 1)] * 5
        assert x.tolist() == [1800.0] * 5
    finally:
        _core.cuda_launch_thread(0)


def check_programs_end_and_fork_with_launches_in_hand():
    # Driver and libraries go at exit: all are handed over before.
    counted = "\nimport atexit\natexit.register(lambda: print(_core.cuda_launch_thread()))"
    assert program(counted) == "True"
    before = "import atexit\natexit.register(lambda: print(_core.cuda_launch_thread()))"
    assert program("", before) == "False", "what comes later launches by itself"
    child = """
pid = os.fork()
if not pid:
    try:
        x + 1
    except RuntimeError as error:
        assert "forked" in str(error), error
        x.data_ptr()
        del x
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(x.tolist())
"""
    assert program(child) == "[401.0, 401.0, 401.0]"


def check_settings_of_the_environment():
    told = "\nprint(_core.cuda_launch_thread())"
    assert program(told) == "True"
    assert program(told, RUSHLIGHT_CUDA_LAUNCH_THREAD="0") == "False"
    # On by default, where it has a core to itself.
    several = len(os.sched_getaffinity(0)) > 1
    assert program(told, RUSHLIGHT_CUDA_LAUNCH_THREAD="") == str(several)
    alone = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    assert program(told, alone, RUSHLIGHT_CUDA_LAUNCH_THREAD="") == "False"
    assert program(told, CUDA_LAUNCH_BLOCKING="1") == "False"
    handle = "\ncuda.Stream().cuda_stream\nprint(_core.cuda_launch_thread())"
    assert program(handle) == "False"
    saved = "\nrl.save(x, os.devnull)\nprint(_core.cuda_launch_thread())"
    assert program(saved) == "True"


def check_an_address_that_goes_out_ends_it():  # the last: it is for good
    _core.cuda_launch_thread(1)
    rl.ones(3).data_ptr()
    assert _core.cuda_launch_thread()
    rl.ones(3, device="cuda").data_ptr()
    assert not _core.cuda_launch_thread() and not _core.cuda_launch_thread(1)
    assert not _core.cuda_launch_thread()


stand_in.main(globals())
