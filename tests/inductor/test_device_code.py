"""Graphs on a GPU that need not be there: loops as the runtime finds them, machine code of every
kernel, and their results in Triton's interpreter."""

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rushlight as rl
from rushlight import fx, trace
from rushlight.decomposition import decompose
from rushlight.inductor import device_code, device_loops
from rushlight.inductor.pipeline import callable_kernel, compile_graph
from rushlight.ops.layouts import Layout
from rushlight.runtime import native
from rushlight.runtime import triton as compiler
from rushlight.sym import ShapeEnv

from .triton_graphs import CASES, groups_of, inputs_of, on_gpu

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
Kernel = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p
)


def called_with(low, tensors):
    """The numbers that the runtime hands to a kernel of these loops."""
    k = low.kernel
    count = (len(k.outer) + len(k.inner)) * (2 + len(k.buffers)) + 1
    seen = []

    def body(pointers, numbers, scalars):
        seen.append([numbers[i] for i in range(count)])
        return 0

    code = Kernel(body)
    fused = callable_kernel(low, ctypes.cast(code, ctypes.c_void_p).value, code)
    before = rl.get_num_threads()
    rl.set_num_threads(1)
    try:
        fused(*tensors)
    finally:
        rl.set_num_threads(before)
    return seen


LOOPS = {
    "dense": (lambda x, y: x * y, (3, 4, 5), (3, 4, 5)),
    "broadcast": (lambda x, y: x * y, (3, 4, 5), (4, 1)),
    "broadcast first": (lambda x, y: x * y, (4, 1), (3, 4, 5)),
    "transposed": (lambda x, y: x.t() * y, (6, 7), (7, 6)),
    "permuted": (lambda x, y: x.permute(2, 0, 1) * y, (3, 4, 5), (5, 3, 4)),
    "both permuted": (lambda x, y: x.permute(2, 0, 1) * y.permute(2, 0, 1), (3, 4, 5), (3, 4, 5)),
    "ones": (lambda x, y: x * y, (1, 4, 1, 5), (2, 4, 1, 1)),
    "slices": (lambda x, y: x[:, 1:3] * y[::2, :2], (3, 4), (6, 5)),
    "five dims": (lambda x, y: x.permute(4, 2, 0, 3, 1) + y, (2, 3, 4, 5, 2), (2, 4, 2, 5, 3)),
    "rows": (lambda x, y: (x + y).sum(-1), (3, 4, 5), (4, 5)),
    "rows first": (lambda x, y: (x + y).sum(0), (3, 4, 5), (4, 5)),
    "rows kept": (lambda x, y: (x + y) - x.sum(1, True), (3, 4, 5), (4, 5)),
    "two rows": (lambda x, y: (x + y).sum((0, 2)), (3, 4, 5), (4, 1)),
    "all": (lambda x, y: (x * 2).sum(), (3, 4, 5), (1,)),
    "softmax": (lambda x, y: rl.softmax(x.transpose(0, 1) + y, -1), (3, 4, 5), (5,)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_those_of_the_runtime(name):
    function, *shapes = LOOPS[name]
    tensors = [rl.randn(*shape) for shape in shapes]
    plan, groups = groups_of(fx.trace(function, *tensors))
    values = dict(zip(plan.graph.inputs, tensors))
    for group, low in groups:
        assert {plan.base(r.var) for r in low.reads} <= set(values), "one kernel is enough here"
        reads = []
        for r in low.reads:
            x = values[plan.base(r.var)]
            for node in plan.chain(r.var):
                x = node.op.native(x, *node.arguments[1:])
            reads.append(x)
        (seen,) = called_with(low, reads)
        predicted = device_loops.numbers_of(group, low)
        assert predicted.known and predicted.values == seen, low.kernel.name


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_of_graphs_become_machine_code(capability):
    """One kernel a graph but where said; nothing lies in local memory."""
    for name in CASES:
        _, groups = on_gpu(name)
        assert len(groups) == (2 if name == "cross entropy" else 1), name
        built = device_code.build_groups(groups, capability)
        assert len(built.kernels) == len(groups), name
        for record, images in built.kernels.values():
            assert len(record["variants"]) == 1 and images
            for image in images:
                assert compiler.resources(image)["local"] == 0, name


@needs_triton
def test_large_rows_and_chains_read_whole_vectors_without_masks():
    def layout_of(*shape, dtype="float32"):
        step, strides = 1, []
        for n in reversed(shape):
            strides.insert(0, step)
            step *= n
        return Layout(shape, tuple(strides), dtype, 0, "cuda:0")

    for function, inputs in (
        (lambda x, b: rl.relu(x + b) * 2, (layout_of(8192, 8192), layout_of(8192, 8192))),
        (lambda x, b: x + b, (layout_of(4096, 4096, dtype="bfloat16"),) * 2),
        (lambda x: rl.softmax(x, -1), (layout_of(16384, 4096),)),
    ):
        _, groups = groups_of(fx.trace(function, *inputs))
        ((group, low),) = groups
        code = device_code.write(group, low)
        (source,) = code.sources
        assert "mask" not in source.text
        with trace.collect("ptx") as records:
            device_code.build_groups(groups, 90)
        (ptx,) = [r.text for r in records if r.stage == "ptx"]
        moved = re.findall(r"\b(?:ld|st)\.global\S*", ptx)
        assert moved and all(".v4." in m for m in moved), moved


def kernels_of(function, *shapes):
    """The names of the groups on a GPU, inputs of these shapes."""
    layouts = []
    for shape in shapes:
        strides = [1]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * n)
        layouts.append(Layout(shape, tuple(strides), "float32", 0, "cuda:0"))
    plan, groups = groups_of(fx.trace(function, *layouts))
    return [group.name.rsplit("_", 1)[0] for group, _ in groups], plan


def test_few_long_rows_stay_such_that_they_are_folded_in_pieces():
    big = (1 << 22,)
    names, plan = kernels_of(lambda x: (x * 2, (x * 2).sum()), big)
    assert names == ["fused_mul", "fused_sum"]
    assert any(r.id == "fusion.reduction" and "pieces" in r.why for r in plan.reasons)
    names, _ = kernels_of(lambda x: (x * x + 1).sum(), big)
    assert names == ["fused_mul_add_sum"]
    names, _ = kernels_of(lambda x: (x - x.mean()).abs().sum(), big)
    assert names == ["fused_mean", "fused_sub_abs_sum"]
    names, _ = kernels_of(lambda g: (g * 2, (g * 2).sum(0)), (8192, 1024))
    assert names == ["fused_mul", "fused_sum"]
    names, _ = kernels_of(lambda x: x * 2 - x.sum(1, True), (16384, 1024))
    assert len(names) == 1  # many rows: nothing to gain


def test_a_source_names_operators_and_the_users_lines():
    _, ((group, low),) = on_gpu("bias")
    (source,) = device_code.write(group, low).sources
    assert "add" in source.name and "gelu" in source.name
    assert re.search(r"# triton_graphs.py:\d+ > add ops/pointwise.py:\d+", source.text)


def test_lines_of_the_program_do_not_decide_the_code():
    def one(x):
        return rl.exp(x) * 2

    def other(x):
        return rl.exp(x) * 2

    texts = []
    for function in (one, other):
        x = Layout((8, 8), (8, 1), "float32", 0, "cuda:0")
        _, ((group, low),) = groups_of(fx.trace(function, x))
        texts.append(device_code.write(group, low).sources[0])
    assert texts[0].text != texts[1].text and texts[0].code == texts[1].code


def test_sizes_that_vary_get_two_variants():
    env = ShapeEnv()
    n = env.size("n", 64)
    x = Layout((n, 256), (256, 1), "float32", 0, "cuda:0")
    _, ((group, low),) = groups_of(fx.trace(lambda a: rl.softmax(a, -1), x))
    record = device_code.write(group, low).record
    assert len(record["variants"]) == 2 and record["variants"][1]["when"] == []


def test_a_kernel_that_triton_refuses_leaves_its_operators(monkeypatch):
    """The group runs as its operators, with the reason; the others keep their kernels."""
    monkeypatch.setattr(native, "capability", lambda device: 90)
    monkeypatch.setattr(device_code, "write", refused)
    x = Layout((8, 8), (8, 1), "float32", 0, "cuda:0")
    with trace.collect() as records:
        c = compile_graph(fx.trace(lambda a: rl.exp(a) * 2, x))
    assert c.kernels == ()
    assert any("cannot be said" in r.text for r in records)
    assert "exp(" in c.text and "mul(" in c.text


def refused(group, low):
    raise NotImplementedError("it cannot be said in Triton")


@needs_triton
def test_the_program_of_a_graph_calls_kernels_and_libraries(monkeypatch):
    """One kernel for each group, the matrix product by its operator; equal layers share code."""
    made = []
    monkeypatch.setattr(native, "capability", lambda device: 90)
    monkeypatch.setattr(native, "device_kernel", lambda record, images: made.append(record))
    monkeypatch.setattr(native, "kernel", lambda code, name, *rest: lambda *tensors: None)

    def layers(x, w, b):
        for _ in range(3):
            x = rl.gelu(x @ w + b) + x
        return x

    x, w, b = (Layout(s, t, "bfloat16", 0, "cuda:0") for s, t in SHAPES)
    with trace.collect("wrapper", "triton_kernels") as records:
        c = compile_graph(fx.trace(layers, x, w, b))
    assert c.text.count("matmul(") == 3 and c.text.count("fused_") == 3, c.text
    assert len({id(record) for record in made}) == len(c.codes) == 1
    assert "tl.load" in c.source and [r.stage for r in records].count("triton_kernels") == 1


SHAPES = (((64, 32), (32, 1)), ((32, 32), (32, 1)), ((32,), (1,)))


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_compiled_graphs_on_the_device(name):
    if not getattr(rl.cuda, "is_available", bool)():
        pytest.skip("no GPU")
    function, tensors = inputs_of(name)
    there = [x.cuda() for x in tensors]
    results = compile_graph(decompose(fx.trace(function, *there)))(*there)
    results = results if isinstance(results, tuple) else (results,)
    expected = function(*tensors)
    expected = expected if isinstance(expected, tuple) else (expected,)
    bound = 1e-2 if tensors[0].dtype is rl.bfloat16 else 1e-5
    for a, b in zip(results, expected):
        assert a.device.type == "cuda"
        assert rl.allclose(a.cpu().to(rl.float64), b.to(rl.float64), rtol=bound, atol=bound)


@needs_triton
@pytest.mark.slow
def test_interpreted_graphs_give_what_eager_mode_gives():
    script = Path(__file__).with_name("triton_graphs.py")
    done = subprocess.run(
        [sys.executable, str(script), *CASES],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["name"] for r in results] == list(CASES), done.stderr[-2000:]
    for r in results:
        function, tensors = inputs_of(r["name"])
        bound = 1e-2 if tensors[0].dtype is rl.bfloat16 else 1e-5
        assert r.get("off", 1.0) <= bound, r
