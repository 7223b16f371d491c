"""Runs generated Triton kernels in Triton's interpreter and the CPU library's kernels on the same
memory, and compares.

A process of its own: `TRITON_INTERPRET=1 python tests/loops/triton_interpreted.py KEY...` prints
one JSON line a key. Every
variant of a kernel whose conditions hold for one of the layouts below runs; the line says which
did.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
# last: an installed package goes before a tree that may not be built
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402
from triton.runtime.interpreter import TensorHandle  # noqa: E402

from rushlight import _core  # noqa: E402
from rushlight.loops import library, triton_forms  # noqa: E402
from rushlight.runtime import triton as compiler  # noqa: E402

OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "cdiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
NUMPY = {"bool": np.uint8, "float16": np.float16, "bfloat16": np.uint16}
SCALARS = {"f32": tl.float32, "f64": tl.float64, "i32": tl.int32, "i64": tl.int64}

# The interpreter makes numbers arrays of one element, which numpy 2.4 no longer takes for loop
# bounds.
patch_tensor = interpreter._patch_lang_tensor


def patch_index(tensor, scope):
    patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patch_index


def evaluate(words, n, p):
    stack = []
    for word in words.split():
        if word in OPERATIONS:
            b, a = stack.pop(), stack.pop()
            stack.append(int(OPERATIONS[word](a, b)))
        elif word[0] == "n":
            stack.append(n[int(word[1:])])
        else:
            stack.append(p[int(word[1:])] if word[0] == "p" else int(word))
    return stack[0]


def numpy_type(dtype):
    return NUMPY[dtype] if dtype in NUMPY else np.dtype(dtype)


class Memory:
    """Buffers that begin at multiples of 64 bytes."""

    def __init__(self):
        self.held = []

    def make(self, count, dtype):
        size = np.dtype(dtype).itemsize
        raw = np.zeros(count * size + 64, np.uint8)
        self.held.append(raw)
        start = -raw.ctypes.data % 64
        return raw[start : start + count * size].view(dtype)


def number(value, kind):
    return tl.tensor(
        TensorHandle(
            np.array(
                value,
                {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}[kind],
            ),
            SCALARS[kind],
        ),
        SCALARS[kind],
    )


def pointer(address, kind):
    kind = tl.pointer_type(tl.str_to_ty(kind[1:], None))
    return tl.tensor(TensorHandle(np.array([address], np.uint64), kind), kind)


def launch(variant, sources, n, p, numbers):
    """Runs the launches of a variant in the interpreter; gives the error word."""
    memory = Memory()
    error = memory.make(1, np.int64)
    work = [memory.make(evaluate(size, n, p), np.uint8).ctypes.data for size, _ in variant["work"]]
    for one in variant["launches"]:
        source = sources[one["cubin"]]
        arguments = []
        for _, kind, word, _ in source.params:
            if kind[0] == "*":
                where = (
                    error.ctypes.data
                    if word == "err"
                    else work[int(word[1:])]
                    if word[0] == "w"
                    else p[int(word[1:])]
                )
                arguments.append(pointer(where, kind))
            elif word[0] == "s":
                arguments.append(
                    number(numbers[int(word[1:].partition(":")[0])], word.partition(":")[2])
                )
            else:
                told, _, kind = word.rpartition(":")
                told = told[2:-1] if told[0] == "e" else told
                arguments.append(number(evaluate(told, n, p), kind))
        grid = evaluate(one["grid"][0], n, p)
        compiler.loaded(source)[(grid,)](*arguments)
    return int(error[0])


# ---- calls: sizes of the axes, and how each buffer lies


def dense(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return strides


def scalar_calls(kernel):
    """(name, sizes of the last three axes, strides of each buffer)"""
    count = len(kernel.buffers)
    yield "dense", (1, 1, 700), [[0, 0, 1]] * count
    first = [[0, 256, 1]] + [[0, 0, 1]] * (count - 2) + [[0, 256, 1]]
    yield "rows", (1, 3, 256), first[-count:]
    if count == 2:  # out of rows with room behind them, or into them: both begin at odd places
        yield "odd rows", (2, 2, 4105), [[9000, 4112, 1], [8210, 4105, 1]]
    odd = [dense((2, 5, 7)), [1, 14, 2], [70, 14, 2]]
    yield "strided", (2, 5, 7), [*(odd[i % 3] for i in range(count - 1)), dense((2, 5, 7))]


def row_calls(kernel):
    """(name, sizes of i2, i3, k0, k1, strides of each buffer)"""
    for name, sizes, order in (
        ("block", (3, 5, 1, 48), (0, 1, 2, 3)),
        ("middle", (1, 3, 1, 336), (0, 1, 2, 3)),
        ("loop", (1, 2, 1, 2400), (0, 1, 2, 3)),
        ("columns", (1, 48, 1, 70), (0, 2, 3, 1)),
        ("split", (1, 2, 1, 16496), (0, 1, 2, 3)),
        ("split columns", (1, 40, 1, 300), (0, 2, 3, 1)),
        ("two dims", (2, 3, 4, 9), (0, 2, 1, 3)),
    ):
        steps = dict(zip(order, dense([sizes[a] for a in order])))
        full = [steps[a] for a in range(4)]
        lying = name.endswith("columns")
        strides = []
        for b in kernel.buffers:
            if b.per_row:
                strides.append([sizes[1], 1, 0, 0])
            elif b.across:
                strides.append([0, 0, 9 if name == "two dims" else 0, 1])
            else:
                strides.append(full)
        yield name, sizes, strides, lying


def fill(array, dtype, rng, limit):
    if dtype == "bool":
        array[:] = rng.integers(0, 2, array.size)
    elif dtype == "bfloat16":
        array[:] = (
            rng.standard_normal(array.size).astype(np.float32).view(np.uint32) >> 16
        ).astype(np.uint16)
    elif np.issubdtype(array.dtype, np.integer):
        array[:] = rng.integers(0 if dtype == "uint8" else 1, limit or 50, array.size)
    else:
        array[:] = rng.standard_normal(array.size) * (1 if limit else 1)


def wide(array, dtype):
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-4, "float64": 1e-12}


def compare(key):
    """What ran, and the largest difference relative to the tolerance."""
    op, kernel = next((o, k) for o, k in library.kernels("cuda") if k.name == key)
    cpu = _core.kernel_find(key)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        cpu["pointer"]
    )
    record, sources = triton_forms.record(kernel)
    rng = np.random.default_rng(0)
    rows = bool(kernel.inner)
    ran, worst = set(), 0.0
    for call in (row_calls if rows else scalar_calls)(kernel):
        name, sizes, strides = call[:3]
        outer = len(kernel.outer)
        lead = outer - (2 if rows else 3)
        axes = outer + len(kernel.inner)
        n = [1] * lead + list(sizes)
        for s in strides:
            n += [0] * lead + list(s)
        counter = dense(sizes)
        n += [0] * lead + counter + [7]
        skip = cpu["outer"] + cpu["inner"]
        groups = [
            n[i * axes : (i + 1) * axes][axes - skip :] for i in range(len(kernel.buffers) + 2)
        ]
        flat = [v for g in groups for v in g] + [7]
        memory, mine, theirs = Memory(), [], []
        for b, s in zip(kernel.buffers, strides):
            count = 1 + sum((size - 1) * abs(step) for size, step in zip(sizes, s))
            array = memory.make(count, numpy_type(b.dtype))
            if not b.written:
                fill(array, b.dtype, rng, sizes[-1] if rows else 0)
            other = memory.make(count, numpy_type(b.dtype))
            other[:] = array
            mine.append(array)
            theirs.append(other)
        numbers = [1.5 if kind == "f" else 2 for _, kind in kernel.numbers]
        packed = (ctypes.c_int64 * max(1, len(numbers)))()
        for i, (v, (_, kind)) in enumerate(zip(numbers, kernel.numbers)):
            packed[i] = int(np.array([v], np.float64).view(np.int64)[0]) if kind == "f" else v
        at = (ctypes.c_void_p * len(theirs))(*(a.ctypes.data for a in theirs))
        told = (ctypes.c_int64 * len(flat))(*flat)
        with np.errstate(all="ignore"):
            code = function(at, told, packed)
            p = [a.ctypes.data for a in mine]
            taken = False  # the one that a launch takes runs, and those that have not run yet
            for i, variant in enumerate(record["variants"]):
                if not all(evaluate(w, n, p) for w in variant["when"]) or (taken and i in ran):
                    continue
                taken = True
                for a, b in zip(mine, kernel.buffers):
                    if b.written:
                        a[:] = 0
                error = launch(variant, sources, n, p, numbers)
                ran.add(i)
                assert bool(error) == bool(code), (key, name, i, "error", error, code)
                if code:
                    continue
                for a, c, b in zip(mine, theirs, kernel.buffers):
                    if b.written:
                        worst = max(
                            worst, difference(a, c, b.dtype, f"{key} {name} variant {i} {b.name}")
                        )
    return {"key": key, "ran": sorted(ran), "variants": len(record["variants"]), "worst": worst}


def difference(a, c, dtype, where):
    if not TOLERANCE.get(dtype):
        assert (a == c).all(), (where, a[:8], c[:8])
        return 0.0
    x, y = wide(a, dtype), wide(c, dtype)
    assert (np.isnan(x) == np.isnan(y)).all(), (where, "NaN", x[:8], y[:8])
    with np.errstate(all="ignore"):
        off = np.abs(x - y) / (
            np.maximum(np.abs(y), 1e-1 if TOLERANCE[dtype] > 1e-3 else 1) * TOLERANCE[dtype]
        )
    off = np.where((x == y) | np.isnan(x), 0, off)
    worst = float(off.max(initial=0))
    at = int(off.argmax()) if off.size else 0
    assert worst <= 1, (where, worst, at, x[at], y[at])
    return worst


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        try:
            print(json.dumps(compare(asked)), flush=True)
        except Exception as problem:
            print(
                json.dumps({"key": asked, "error": f"{type(problem).__name__}: {problem}"[:600]}),
                flush=True,
            )
