"""What an operator asks of the driver in steady state, and the thread that hands launches over."""

import ctypes

import stand_in

import rushlight as rl
from rushlight import _core, cuda
from rushlight.nn.functional import linear

stand_in.install()
quiet = ctypes.c_long.in_dll(stand_in.driver, "fake_quiet_calls")


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


def check_an_address_that_goes_out_ends_it():  # the last: it is for good
    _core.cuda_launch_thread(1)
    rl.ones(3).data_ptr()
    assert _core.cuda_launch_thread()
    rl.ones(3, device="cuda").data_ptr()
    assert not _core.cuda_launch_thread() and not _core.cuda_launch_thread(1)
    assert not _core.cuda_launch_thread()


stand_in.main(globals())
