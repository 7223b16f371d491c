"""Kernel records: parameters, variants, grids, workspaces, unaligned addresses, errors found by
kernels, images that do not load; and compiled programs of kernels.
"""
# settings: RUSHLIGHT_CUDA_LAUNCH_THREAD=0

import stand_in

import rushlight as rl
from rushlight import _core, cuda
from rushlight.ops import TABLE

stand_in.install()
ADD = "add.float32.TT"


def fused(record, images, **changes):
    kernel = _core.DeviceKernel({**record, **changes}, images)
    recipe = _core.FusedKernel(
        kernel, "sum_of_two", "broadcast", 0, "FF", "S", (_core.float32,), ""
    )
    return kernel, recipe


def two():
    return rl.arange(6.0).cuda(), rl.ones(6, device="cuda")


def check_a_record_is_what_the_launch_gets():
    record, images = stand_in.record(ADD)
    launch = record["variants"][0]["launches"][0]
    launch.update(warps=8, shared=1024, entry="sum_of_two", grid=["n2 4 cdiv", "n0 n1 * 1 +", "1"])
    kernel, recipe = fused(record, images)
    x, y = two()
    stand_in.calls()
    assert recipe(x, y).tolist() == [1, 2, 3, 4, 5, 6]
    assert "launch sum_of_two grid=2,2,1 block=256 shared=1024" in stand_in.calls()
    assert kernel.launches == 1 and kernel.key == ADD
    (facts,) = kernel.facts(0)
    assert facts == {
        "entry": "sum_of_two",
        "registers": 24,
        "local_bytes": 0,
        "shared": 1024,
        "warps": 8,
    }


def check_much_shared_memory_is_asked_for():
    record, images = stand_in.record(ADD, shared=100000)
    _, recipe = fused(record, images)
    stand_in.calls()
    recipe(*two())
    assert any(c.startswith("attribute 8=100000") for c in stand_in.calls())


def check_the_first_variant_that_holds_is_taken():
    record, images = stand_in.record(ADD)
    (only,) = record["variants"]
    named = lambda name, when: {
        **only, "when": when, "launches": [{**only["launches"][0], "entry": name}],
    }  # fmt: skip
    record["variants"] = [
        named("large", ["n2 100 >"]),
        named("aligned", ["p0 16 % 0 ==", "n2 4 % 0 == n2 6 == or"]),
        named("any", []),
    ]
    _, recipe = fused(record, images)
    x, y = two()
    stand_in.calls()
    recipe(x, y)
    recipe(x[1:], y[1:])
    recipe(rl.ones(101, device="cuda"), rl.ones(101, device="cuda"))
    launched = [c.split()[1] for c in stand_in.calls() if c.startswith("launch")]
    assert [n for n in launched if n in ("large", "aligned", "any")] == ["aligned", "any", "large"]


def check_unaligned_operands_and_outputs_go_through_memory_that_is():
    record, images = stand_in.record(ADD)
    record["variants"][0]["when"] = [f"p{b} 16 % 0 ==" for b in range(3)]
    _, recipe = fused(record, images)
    x, out = rl.arange(24.0).cuda(), rl.zeros(9, 3, device="cuda")
    part = x[1:].as_strided((4, 2), (5, 2))
    into = out[1:].as_strided((4, 2), (3, 2))
    recipe(part, part, into)
    want = rl.zeros(9, 3)
    want[1:].as_strided((4, 2), (3, 2)).copy_(2 * rl.arange(24.0)[1:].as_strided((4, 2), (5, 2)))
    assert out.tolist() == want.tolist()
    record["variants"][0]["when"] = ["n2 1000 =="]
    _, never = fused(record, images)
    stand_in.raises(NotImplementedError, "no variant", lambda: never(*two()))


def check_several_launches_share_workspaces():
    record, images = stand_in.record(ADD)
    (variant,) = record["variants"]
    first, last = dict(variant["launches"][0]), dict(variant["launches"][0])
    first["params"] = ["p0", "p1", "w0", *first["params"][3:]]  # x + y into the workspace
    last["params"] = ["w0", "w1", "p2", *last["params"][3:]]  # and that + zeros into the output
    variant["work"], variant["launches"] = [["n2 4 *", False], ["n2 4 *", True]], [first, last]
    _, recipe = fused(record, images)
    x, y = two()
    before = cuda.memory_allocated()
    stand_in.calls()
    assert recipe(x, y).tolist() == [1, 2, 3, 4, 5, 6]
    assert stand_in.calls().count("set") == 1 and cuda.memory_allocated() == before


def check_loops_beyond_the_kernel_s_are_walked():
    x = rl.arange(2.0 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6)
    y = x[:, ::2, ::2, ::2, ::2]
    assert (y.cuda() + 1).tolist() == (y + 1).tolist()
    base = x.cuda()[:, ::2, ::2, ::2, ::2]  # five loops; the kernel has three
    stand_in.calls()
    out = base.clone()
    assert sum("clone" in c for c in stand_in.calls()) == 4
    assert out.tolist() == y.tolist()


def check_records_are_checked():
    record, images = stand_in.record(ADD)
    launch = record["variants"][0]["launches"][0]
    wrong = {
        "no parameter 'q0'": {"params": ["q0"]},
        "no parameter 's0:f32'": {"params": ["s0:f32"]},
        "no word 'n99'": {"grid": ["n99"]},
        "leaves 2 values": {"grid": ["n0 n1"]},
        "leaves 0 values": {"grid": ["n0 *"]},
        "image 1 of 1": {"cubin": 1},
        "0 warps": {"warps": 0},
    }
    for text, change in wrong.items():
        bad = {**record, "variants": [{"launches": [{**launch, **change}]}]}
        stand_in.raises(ValueError, text, lambda bad=bad: _core.DeviceKernel(bad, images))
    stand_in.raises(
        ValueError, "no variant", lambda: _core.DeviceKernel({**record, "variants": []}, images)
    )
    stand_in.raises(ValueError, "lacks 'outer'", lambda: _core.DeviceKernel({"key": "x"}, images))
    stand_in.raises(TypeError, "dict", lambda: _core.DeviceKernel([], images))
    kernel = _core.DeviceKernel(record, images)
    stand_in.raises(
        ValueError, "takes 2 operands",
        lambda: _core.FusedKernel(kernel, "f", "broadcast", 0, "F", "S", (_core.float32,), ""),
    )  # fmt: skip


def check_a_kernel_that_does_not_load_is_named():
    record, images = stand_in.record(ADD, image="no image at all")
    _, recipe = fused(record, images)
    told = stand_in.raises(RuntimeError, "does not load on cuda:0", lambda: recipe(*two()))
    assert "sum_of_two" in told or ADD in told
    assert "sm_90" in told and "no kernel image is available" in told
    record, images = stand_in.record(ADD)
    record["variants"][0]["launches"][0]["entry"] = "missing"
    stand_in.raises(RuntimeError, "symbol not found", lambda: fused(record, images)[1](*two()))
    record["variants"][0]["launches"][0]["entry"] = "refused"
    stand_in.raises(RuntimeError, "cuLaunchKernel", lambda: fused(record, images)[1](*two()))
    record["variants"][0]["launches"][0].update(entry="wide", grid=["1", "70000", "1"])
    stand_in.raises(RuntimeError, "grid", lambda: fused(record, images)[1](*two()))


def check_kernels_take_operands_of_one_gpu():
    _, recipe = fused(*stand_in.record(ADD))
    x, y = two()
    stand_in.raises(RuntimeError, "one CUDA device", lambda: recipe(x.cpu(), y.cpu()))
    stand_in.raises(RuntimeError, "one CUDA device", lambda: recipe(x, y.cpu()))
    cpu = _core.Recipe(ADD, "broadcast", 0, "FF", "S", (_core.float32,))
    stand_in.raises(RuntimeError, "kernel of the CPU", lambda: cpu(x, y))


def check_an_index_out_of_range_is_told_of_where_the_host_waits():
    table = rl.arange(12.0).reshape(4, 3).cuda()
    good = rl.nn.functional.embedding(rl.tensor([1, 3]).cuda(), table)
    bad = rl.nn.functional.embedding(rl.tensor([1, 9]).cuda(), table)  # this line
    told = stand_in.raises(IndexError, "[embedding] index 9 is out of range", cuda.synchronize)
    assert "check_kernels.py" in told
    cuda.synchronize()
    assert good.tolist() == [[3, 4, 5], [9, 10, 11]] and bad.shape == (2, 3)
    rl.nn.functional.embedding(rl.tensor([-5]).cuda(), table)
    stand_in.raises(IndexError, "index -5", lambda: table.sum().item())
    rl.tensor([1, 2]).cuda() // rl.tensor([1, 0]).cuda()
    stand_in.raises(RuntimeError, "ZeroDivisionError", cuda.synchronize)
    for _ in range(5000):  # more than there is room for
        rl.nn.functional.embedding(rl.tensor([1, 3]).cuda(), table)
    cuda.synchronize()


def check_a_program_of_kernels_is_one_call():
    add = fused(*stand_in.record(ADD))[1]
    x, y = two()
    mul = TABLE["mul"].native
    instructions = [
        (add, (("r", 0), ("r", 1)), (2,)),
        (mul, (("r", 2), ("r", 2)), (3,)),
        (add, (("r", 3), ("r", 1)), (4,)),
    ]
    program = _core.Program(2, instructions, (("r", 4),))
    (first,) = program(x, y)
    stand_in.calls()
    (out,) = program(x, y)
    kinds = [c.split()[0] for c in stand_in.calls()]
    assert kinds == ["launch"] * 3, "no memory is asked for, nothing is waited for"
    assert out.tolist() == first.tolist() == [2, 5, 10, 17, 26, 37]


def check_dead_kernels_are_unloaded_when_nothing_runs():
    import gc

    kernel, recipe = fused(*stand_in.record(ADD))
    recipe(*two())
    del kernel, recipe
    gc.collect()
    stand_in.calls()
    rl.ones(2, device="cuda") + 1
    assert "unload module" not in stand_in.calls()
    cuda.synchronize()
    assert "unload module" in stand_in.calls()


stand_in.main(globals())
