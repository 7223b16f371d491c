"""The caching allocator: reuse, splitting, statistics, streams, limits, running out; pinned memory;
copies.
"""
# settings: RUSHLIGHT_FAKE_DEVICES=2 RUSHLIGHT_FAKE_MEMORY=268435456

import gc
import os
import subprocess
import sys

import stand_in

import rushlight as rl
from rushlight import cuda

stand_in.install()
MB = 1 << 20


def check_freed_memory_is_used_again_without_the_driver():
    x = rl.empty(1000, device="cuda")
    stand_in.calls()
    for _ in range(100):
        x = rl.empty(1000, device="cuda")
    assert stand_in.calls() == []
    assert cuda.memory_allocated() == 4096  # 4,000 bytes in pieces of 512
    assert cuda.memory_stats()["requested_bytes.all.current"] == 4000
    del x
    assert cuda.memory_allocated() == 0 and cuda.memory_reserved() == 2 * MB


def check_a_block_is_cut_and_joined_again():
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0
    parts = [rl.empty(MB, dtype=rl.uint8, device="cuda") for _ in range(2)]
    assert cuda.memory_reserved() == 2 * MB and parts[1].data_ptr() - parts[0].data_ptr() == MB
    assert cuda.memory_stats()["inactive_split.all.current"] == 0
    first = parts[0].data_ptr()
    parts.clear()
    whole = [rl.empty(512, dtype=rl.uint8, device="cuda") for _ in range(4096)]
    assert cuda.memory_reserved() == 2 * MB
    assert {x.data_ptr() for x in whole} == set(range(first, first + 2 * MB, 512))
    (segment,) = cuda.memory_snapshot()
    assert len(segment["blocks"]) == 4096 and segment["segment_type"] == "small"
    del whole, segment
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0 and cuda.memory_snapshot() == []


def check_large_requests_have_segments_of_their_own():
    x = rl.empty(3 * MB, dtype=rl.uint8, device="cuda")
    assert cuda.memory_reserved() == 20 * MB
    y = rl.empty(11 * MB + 1, dtype=rl.uint8, device="cuda")
    assert cuda.memory_reserved() == 20 * MB, "what is left of the first segment holds it"
    z = rl.empty(11 * MB + 1, dtype=rl.uint8, device="cuda")
    assert cuda.memory_reserved() == 32 * MB
    assert len({x.data_ptr(), y.data_ptr(), z.data_ptr()}) == 3


def check_peaks_and_totals():
    gc.collect()
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    x = rl.empty(MB, dtype=rl.uint8, device="cuda")
    del x
    assert cuda.max_memory_allocated() == before + MB and cuda.memory_allocated() == before
    assert "MB" in repr(cuda.get_device_properties())
    assert "in tensors" in cuda.memory_summary()


def check_running_out_says_what_is_held_and_the_program_goes_on():
    cuda.empty_cache()
    kept = [rl.empty(60 * MB, dtype=rl.uint8, device="cuda") for _ in range(4)]
    told = stand_in.raises(
        cuda.OutOfMemoryError,
        "Tried to allocate 60.00 MiB",
        lambda: rl.empty(60 * MB, dtype=rl.uint8, device="cuda"),
    )
    assert "total of 256.00 MiB, of which 16.00 MiB is free" in told, told
    assert "holds 240.00 MiB: 240.00 MiB in tensors" in told, told
    assert (
        isinstance(cuda.OutOfMemoryError("x"), RuntimeError)
        and cuda.memory_stats()["num_ooms"] == 1
    )
    kept.pop()
    x = rl.zeros(60 * MB, dtype=rl.uint8, device="cuda")
    assert x[-1].item() == 0


def check_cached_memory_makes_room_for_other_sizes():
    cuda.empty_cache()
    x = rl.empty(200 * MB, dtype=rl.uint8, device="cuda")
    del x
    retries = cuda.memory_stats()["num_alloc_retries"]
    y = rl.empty(210 * MB, dtype=rl.uint8, device="cuda")
    assert cuda.memory_stats()["num_alloc_retries"] == retries + 1
    assert cuda.memory_reserved() == y.numel()


UNCACHED = """
import stand_in
import rushlight as rl
from rushlight import cuda
stand_in.install()
x = rl.ones(7, device="cuda")
for _ in range(50):
    x = x + 1  # what it was before is given back: only after the launch that reads it
y = rl.empty(0, device="cuda")
print(x.tolist() == [51.0] * 7, cuda.memory_reserved(), "free" in stand_in.calls())
del x, y
print(cuda.memory_reserved())
"""


def check_without_the_cache_every_tensor_has_memory_of_its_own():
    told = subprocess.run(
        [sys.executable, "-c", UNCACHED],
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.stdout.splitlines() == ["True 29 True", "0"], told


def check_a_limit_of_this_process():
    cuda.empty_cache()
    cuda.set_per_process_memory_fraction(0.25)
    told = stand_in.raises(
        cuda.OutOfMemoryError,
        "limit of this process",
        lambda: rl.empty(80 * MB, dtype=rl.uint8, device="cuda"),
    )
    assert "64.00 MiB" in told and cuda.get_per_process_memory_fraction() == 0.25
    cuda.set_per_process_memory_fraction(1.0)
    rl.empty(80 * MB, dtype=rl.uint8, device="cuda")
    stand_in.raises(ValueError, "fraction", lambda: cuda.set_per_process_memory_fraction(1.5))
    stand_in.raises(TypeError, "float", lambda: cuda.set_per_process_memory_fraction(1))


def check_a_block_stays_with_its_stream():
    cuda.empty_cache()
    side = cuda.Stream()
    x = rl.empty(1000, device="cuda")
    place = x.data_ptr()
    del x
    with cuda.stream(side):
        y = rl.empty(1000, device="cuda")
    assert y.data_ptr() != place, "another stream may still be at work there"
    assert rl.empty(1000, device="cuda").data_ptr() == place


def check_memory_used_on_another_stream_waits_for_it():
    cuda.synchronize()
    side = cuda.Stream()
    x = rl.ones(1000, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    place = x.data_ptr()
    del x
    z = rl.zeros(1000, device="cuda")
    assert z.data_ptr() != place, "the other stream has not read it yet"
    cuda.synchronize()
    assert y.sum().item() == 2000
    assert rl.empty(1000, device="cuda").data_ptr() == place, "now it has"


def check_each_device_has_its_own():
    before = cuda.memory_allocated(0)
    x = rl.ones(1000, device="cuda:1")
    assert cuda.memory_allocated(1) == 4096 and cuda.memory_allocated(0) == before
    with cuda.device(1):
        assert rl.ones(3, device="cuda").device.index == 1
    y = x.to("cuda:0") + rl.ones(1000, device="cuda:0")
    assert y.device.index == 0 and y.sum().item() == 2000
    told = stand_in.raises(RuntimeError, "one device", lambda: x + y)
    assert "cuda:0" in told and "cuda:1" in told
    stand_in.raises(RuntimeError, "invalid device ordinal", lambda: rl.ones(2, device="cuda:5"))


def check_pinned_memory():
    x = rl.arange(1000.0)
    assert not x.is_pinned()
    p = x.pin_memory()
    assert p.is_pinned() and p.tolist() == x.tolist() and p.pin_memory() is p
    stand_in.calls()
    y = p.to("cuda", non_blocking=True)
    assert "synchronize stream" not in stand_in.calls()
    p[0] = 7.0  # before the copy has run: it reads what is there then
    assert y[0].item() == 7.0
    back = rl.empty(1000).pin_memory()
    stand_in.calls()
    back.copy_(y * 2, non_blocking=True)
    assert "synchronize stream" not in stand_in.calls()
    cuda.synchronize()
    assert back[-1].item() == 1998.0
    place = p.data_ptr()
    y = p.to("cuda", non_blocking=True)
    del p
    assert x.pin_memory().data_ptr() != place, "a copy from there is still queued"
    cuda.synchronize()
    stand_in.raises(RuntimeError, "[pin_memory]", lambda: y.pin_memory())


def check_copies_of_every_kind():
    base = rl.arange(24.0).reshape(2, 3, 4)
    for view in (
        base,
        base.transpose(0, 2),
        base[:, ::2],
        base[:, :, 1:],
        base[1],
        base.expand(2, 2, 3, 4),
    ):
        there = view.to("cuda")
        assert there.tolist() == view.tolist()
        assert there.to(rl.int64).cpu().tolist() == view.to(rl.int64).tolist()
        assert there.to("cpu", rl.float64).dtype is rl.float64
    x = rl.zeros(4, 6, device="cuda")
    x.t()[1:3] = rl.ones(4)  # from the host into a view with gaps
    x[:, 0] = 5
    x[0, ::3] = rl.tensor([8.0, 9.0], device="cuda")
    want = rl.zeros(4, 6)
    want.t()[1:3] = rl.ones(4)
    want[:, 0] = 5
    want[0, ::3] = rl.tensor([8.0, 9.0])
    assert x.tolist() == want.tolist()
    half = rl.tensor([1.5, 2.5], dtype=rl.bfloat16, device="cuda")
    assert half.cpu().tolist() == [1.5, 2.5] and half.float().tolist() == [1.5, 2.5]
    assert rl.empty(0, 3, device="cuda").cpu().shape == (0, 3)


stand_in.main(globals())
