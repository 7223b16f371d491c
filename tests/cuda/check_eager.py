"""Eager programs on the stand-in: modules, training, devices in factories and calls, mixed
precision, saving and loading, and the examples.
"""

import io
import os
import sys
import tempfile
import warnings
from pathlib import Path

import stand_in

import rushlight as rl
from rushlight import _core, cuda, nn
from rushlight.runtime.cuda import kernels
from rushlight.runtime.cuda.pack import write

stand_in.install()
EXAMPLES = Path(__file__).parents[2] / "examples"


def model():
    rl.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 5),
    )  # fmt: skip


def trained(device, make_optimizer, steps=3):
    net = model().to(device)
    optimizer = make_optimizer(net.parameters())
    rl.manual_seed(1)
    x, y = rl.randn(6, 1, 8, 8).to(device), rl.arange(6).to(device) % 5
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss)
    return [v.item() for v in losses], net


def check_training_gives_the_numbers_of_the_cpu():
    for make in (
        lambda p: rl.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: rl.optim.AdamW(p, lr=0.01),
    ):
        want, _ = trained("cpu", make)
        got, net = trained("cuda", make)
        assert all(abs(a - b) < 1e-4 for a, b in zip(got, want)), (got, want)
        assert all(p.is_cuda and p.grad.is_cuda for p in net.parameters())


def check_a_warm_step_asks_the_driver_for_nothing_but_launches():
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).to("cuda")
    optimizer = rl.optim.AdamW(net.parameters(), lr=0.01)
    x = rl.randn(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    stand_in.calls()
    with cuda.sync_debug("error"):
        step()
    kinds = {c.split()[0] for c in stand_in.calls()}
    assert kinds <= {"launch", "set", "copy"}, kinds


def check_new_tensors_go_where_they_are_told():
    for made in (
        rl.zeros(3, device="cuda"), rl.ones(2, 2, device="cuda:0"), rl.full((2,), 7, device=0),
        rl.arange(4, device="cuda"), rl.rand(3, device="cuda"), rl.eye(3, device="cuda"),
        rl.tensor([1, 2], device="cuda"), rl.randint(0, 5, (3,), device="cuda"),
        rl.linspace(0, 1, 5, device="cuda"), rl.randn(2).cuda().new_zeros(3),
        rl.zeros_like(rl.ones(2).cuda()), rl.randperm(5, device="cuda"),
    ):  # fmt: skip
        assert made.device == rl.device("cuda", 0) and made.is_cuda, made
    with rl.device("cuda"):
        assert rl.zeros(2).is_cuda
    assert rl.zeros(2).device.type == "cpu"
    rl.manual_seed(3)
    ours = rl.rand(5, device="cuda")
    rl.manual_seed(3)
    assert ours.tolist() == rl.rand(5).tolist(), "one stream of random numbers for every device"


def check_two_devices_in_one_call():
    x, y = rl.ones(3, device="cuda"), rl.ones(3)
    told = stand_in.raises(RuntimeError, "one device", lambda: x + y)
    assert "cuda:0" in told and "cpu" in told
    assert (x * rl.tensor(2.0)).tolist() == [2, 2, 2], "numbers on the host are numbers"
    stand_in.raises(RuntimeError, "device", lambda: x.add_(y))
    stand_in.raises(RuntimeError, "device", lambda: nn.Linear(3, 2)(x))


def check_mixed_precision():
    net, x = nn.Linear(8, 4).cuda(), rl.randn(2, 8, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with rl.autocast("cuda", dtype=rl.bfloat16):
            assert net(x).dtype is rl.bfloat16 and rl.is_autocast_enabled("cuda")
        scaler = rl.amp.GradScaler("cuda", init_scale=4.0)
    assert not rl.is_autocast_enabled("cuda") and net(x).dtype is rl.float32
    optimizer = rl.optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(x).sum()).backward()
    cuda.take_waits()
    scaler.step(optimizer)
    assert len([w for w in cuda.take_waits() if w.what != "synchronize"]) <= 1
    scaler.update()
    net.weight.grad.fill_(float("inf"))
    before = net.weight.tolist()
    scaler.scale(net(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert net.weight.tolist() == before and scaler.get_scale() == 2.0


def check_saving_and_loading():
    net = nn.Linear(3, 2).cuda()
    file = io.BytesIO()
    rl.save(net.state_dict(), file)
    file.seek(0)
    there = rl.load(file)
    assert there["weight"].is_cuda and there["weight"].tolist() == net.weight.tolist()
    file.seek(0)
    here = rl.load(file, map_location="cpu")
    assert not here["weight"].is_cuda
    other = nn.Linear(3, 2).cuda()
    other.load_state_dict(here)
    assert other.weight.is_cuda and other.weight.tolist() == net.weight.tolist()


def check_an_operator_that_fails_leaves_the_device_usable():
    x = rl.ones(3, device="cuda")
    stand_in.raises(RuntimeError, "do not broadcast", lambda: x + rl.ones(4, device="cuda"))
    stand_in.raises(TypeError, "cpu()", x.numpy)
    assert (x + 1).tolist() == [2, 2, 2]


def check_memory_is_shared_through_dlpack():
    x = rl.arange(4.0).cuda()
    assert x.__dlpack_device__() == (2, 0)
    y = rl.from_dlpack(x)
    assert y.is_cuda and y.data_ptr() == x.data_ptr()
    y += 1
    assert x.tolist() == [1, 2, 3, 4]
    side = cuda.Stream()
    with cuda.stream(side):
        z = rl.from_dlpack(x)
        z.record_stream(side)
    del x, y, z


def check_a_training_step_from_a_pack_compiles_nothing():
    asked = []
    with tempfile.TemporaryDirectory() as folder:
        records = (stand_in.record(key) for key in _core.kernel_keys())
        write(os.path.join(folder, "kernels_sm90.pack"), 90, records)
        os.environ["RUSHLIGHT_CUDA_KERNELS"] = folder
        kernels.set_builder(lambda key, capability: asked.append(key))
        _core.plan_clear()
        try:
            losses, net = trained("cuda", lambda p: rl.optim.AdamW(p, lr=0.01))
            assert asked == [] and cuda.get_arch_list() == ["sm_90"]
            assert net[0].weight.is_cuda and losses[-1] < losses[0]
            (net(rl.randn(6, 1, 8, 8, device="cuda")).double() + 1).sum()
            assert asked == []
        finally:
            del os.environ["RUSHLIGHT_CUDA_KERNELS"]
            kernels.set_builder(stand_in.build)
            _core.plan_clear()


def check_a_forked_process_is_told_that_it_cannot():
    x = rl.ones(3, device="cuda")
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            x = None  # its memory is not ours to give back
            assert not cuda.is_available() and (rl.ones(2) + 1).tolist() == [2, 2]
            rl.ones(3, device="cuda")
        except RuntimeError as error:
            os.write(theirs, str(error).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    assert b"forked" in os.read(ours, 1000)
    os.close(ours)
    assert (x + 1).tolist() == [2, 2, 2]


def check_examples():
    sys.path.insert(0, str(EXAMPLES))
    import loss_aggregation

    losses, counts = loss_aggregation.reports(20, "cuda")
    cuda.take_waits()
    a = loss_aggregation.mean_by_branching(losses, counts)
    waits = cuda.take_waits()
    assert len(waits) == 20 + 16 and {w.what for w in waits} == {"bool(tensor)"}
    assert len({w.line for w in waits}) == 2 and all("loss_aggregation.py" in w.line for w in waits)
    with cuda.sync_debug("error"):
        b = loss_aggregation.mean_by_masking(losses, counts)
    assert cuda.take_waits() == [] and abs(a.item() - b.item()) < 1e-5
    loss_aggregation.main(["--device", "cuda", "--ranks", "10", "--strict"])
    loss_aggregation.main(["--device", "cpu", "--ranks", "10"])


stand_in.main(globals())
