"""Graphs whose kernels are made for a GPU, and, run as a program, their kernels in Triton's
interpreter against eager mode.

`TRITON_INTERPRET=1 python tests/inductor/triton_graphs.py NAME...` prints one JSON line a graph.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "loops"))
    import triton_interpreted  # sets the interpreter up before Triton is imported

import rushlight as rl
from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.inductor import device_code, device_loops, lowering, scheduler
from rushlight.nn import functional as F
from rushlight.ops import TABLE
from rushlight.ops.layouts import Layout


def f32(*shape):
    return "float32", shape


def bf16(*shape):
    return "bfloat16", shape


def i64(*shape):
    return "int64", shape


def cross_entropy(a, t):
    return TABLE["cross_entropy_loss"].native(a, t, 1)


def layer_norm_backward(g, x, mean, rstd, w):
    return TABLE["layer_norm_backward"].native(g, x, mean, rstd, w)


# name -> (function, its inputs)
CASES = {
    "chain": (lambda x, b: rl.relu(x + b) * 2, f32(300, 40), f32(300, 40)),
    "bias": (lambda x, b: rl.gelu(x + b), f32(50, 96), f32(96)),
    "channels": (lambda x, b: rl.tanh(x * b.view(6, 1, 1)), f32(3, 6, 5, 7), f32(6)),
    "transposed": (lambda x, y: x.t() + y, f32(70, 90), f32(90, 70)),
    "heads": (lambda x: x.view(2, 10, 4, 16).transpose(1, 2).contiguous(), bf16(2, 10, 64)),
    "norm": (
        lambda x, w, b: F.gelu(F.layer_norm(x, (96,), w, b)),
        bf16(30, 96),
        bf16(96),
        bf16(96),
    ),
    "softmax": (lambda x: rl.softmax(x * 0.5, -1), f32(20, 200)),
    "softmax of columns": (lambda x: rl.softmax(x, 0), f32(200, 24)),
    "norm of rows that are long": (lambda x: F.layer_norm(x, (20000,)), f32(3, 20000)),
    "sum of all": (lambda x: (x * 2).sum(), f32(170, 200)),
    "sum of columns": (lambda x: (x * 2).sum(0), f32(600, 48)),
    "means and maxima": (lambda x: (x.mean(1), x.amax(1), x - x.mean(1, True)), f32(33, 70)),
    "two row dims": (lambda x: x.sum((0, 2)), f32(4, 6, 10)),
    "cross entropy": (lambda x, t: cross_entropy(x + 1, t), f32(20, 50), i64(20)),
    "integers": (
        lambda x, y: rl.where(x > y, rl.floor_divide(x - 9, y + 1), rl.remainder(x, y + 3)),
        i64(30, 20),
        i64(30, 20),
    ),
    "one number": (lambda x: x.exp().sum(), f32(5)),
}


def inputs_of(name, seed=0):
    """The case's function and CPU tensors."""
    function, *described = CASES[name]
    rl.manual_seed(seed)
    made = []
    for dtype, shape in described:
        if dtype == "int64":
            made.append(rl.randint(0, 20, shape))
        else:
            made.append(rl.randn(*shape).to(getattr(rl, dtype)))
    return function, made


def groups_of(graph):
    """(schedule, its groups lowered for a GPU)"""
    plan = scheduler.schedule(decompose(graph))
    steps = [s for s in plan.steps if isinstance(s, scheduler.Group)]
    return plan, [(s, lowering.lower_group(plan, s, True)) for s in steps]


def on_gpu(name):
    """The case's groups, on a device that need not be there."""
    function, tensors = inputs_of(name)
    layouts = [
        Layout(tuple(x.shape), tuple(x.stride()), x.dtype.name, 0, "cuda:0") for x in tensors
    ]
    return groups_of(fx.trace(function, *layouts))


def interpreted(name):
    """The largest difference between the results in the interpreter and eager mode's, relative."""
    function, tensors = inputs_of(name)
    plan, groups = groups_of(fx.trace(function, *tensors))
    values = dict(zip(plan.graph.inputs, tensors))
    for step in plan.steps:
        if not isinstance(step, scheduler.Group):
            raise AssertionError(f"{step} is no group")
        low = next(low for group, low in groups if group is step)
        code = device_code.write(step, low)
        numbers = device_loops.numbers_of(step, low)
        reads = [view(plan, values, r.var) for r in low.reads]
        made = [
            rl.empty_strided(o.layout.shape, o.layout.strides, dtype=getattr(rl, o.dtype))
            for o in low.results
        ]
        pointers = [x.data_ptr() for x in (*reads, *made)]
        for variant in code.record["variants"]:
            held = [
                triton_interpreted.evaluate(w, numbers.values, pointers) for w in variant["when"]
            ]
            assert all(held), (name, variant["when"], held)
            error = triton_interpreted.launch(
                variant, code.sources, numbers.values, pointers, list(low.sizes)
            )
            assert error == 0, (name, error)
        values.update(zip(low.results, made))
    expected = function(*tensors)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = plan.graph.outputs
    return max(off(view(plan, values, v), e) for v, e in zip(results, expected))


def view(plan, values, x):
    """A value, through the views of the graph that it is behind."""
    made = values[plan.base(x)]
    for node in plan.chain(x):
        made = node.op.native(made, *node.arguments[1:])
    return made


def off(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
    if not a.dtype.is_floating_point:
        return 0.0 if (a == b).all() else 1.0
    a, b = a.to(rl.float64), b.to(rl.float64)
    return float(((a - b).abs() / (b.abs() + 1)).max())


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        try:
            print(json.dumps({"name": asked, "off": interpreted(asked)}), flush=True)
        except Exception as problem:
            told = f"{type(problem).__name__}: {problem}"[:600]
            print(json.dumps({"name": asked, "error": told}), flush=True)
