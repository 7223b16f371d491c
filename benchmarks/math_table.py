"""Measure the prelude's float functions and write docs/math.md.

    python benchmarks/math_table.py [--seconds S]

Accuracy: the largest distance from libm's long double over some two million arguments (random bit
patterns, random magnitudes, the function's own range, special values). Speed: the median of many
runs over an array that stays in cache, on one core, for each instruction set that
this processor runs.
"""

import argparse
import importlib.util
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location(
    "math_harness", ROOT / "tests" / "loops" / "math_harness.py"
)
harness = importlib.util.module_from_spec(spec)
spec.loader.exec_module(harness)

# The arguments that speed is measured on; everything but the remainders takes the same time on all.
POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "pow"}
UNIT = {"asin", "acos", "atanh"}
FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh"
    " acosh atanh erf erfc lgamma sigmoid pow sqrt rsqrt reciprocal fmod remainder floor_div"
    " nextafter"
).split()
OTHERS = (
    "uniform_f32 normal_f32 uniform_f64 normal_f64 f16_to_f32 f32_to_f16 bf16_to_f32 f32_to_bf16"
    " f32_to_i32 f32_to_i64 f64_to_i64"
).split()
SIZE = 4096

HEAD = """\
# Scalar math

What `rushlight/loops/prelude*.h` compute, how far from exact, how fast. The same
bits on x86-64-v2, v3 and v4. Written by `benchmarks/math_table.py`; `tests/loops/test_prelude.py`
holds the bounds.

Every float function is within 2 ulp of the exact value over its whole range, denormals and huge
arguments included, and has C's special values. The exception is float64 `lgamma`: 4 ulp for
positive arguments; for negative ones, which have roots between the poles, 2e-15 of the larger of 1
and the result. `fmod`, `remainder` and `floor_div` are exact in their integers (a loop, which does
not vectorise; its time grows with the quotient's bits) and follow torch in signs and zero divisors.
Integers wrap; a zero divisor gives 0 and is the caller's to detect.

The float32 exponentials, logarithms, `tanh`, `sigmoid` and `erf` use fma. v2 has none and gets the
same bits by way of double, at some twenty times the cost; everything else is as fast there as its
vectors allow.

Random numbers are Philox4x32-10, one block an element: key = seed, counter = offset + element.

"""


def arguments(name):
    function, _, _ = name.rpartition("_")
    random = np.random.default_rng(0)
    if name.startswith(("uniform", "normal")):
        return np.full(SIZE, 7, np.uint64), np.arange(SIZE, dtype=np.uint64)
    if "16_to" in name:
        return (random.integers(0, 0x7000, SIZE, np.uint16),)
    lo, hi = (0.01, 10) if function in POSITIVE else (-1, 1) if function in UNIT else (-10, 10)
    if function == "acosh":
        lo = 1
    _, kinds = harness.TABLE[name]
    return tuple(random.uniform(lo, hi, SIZE).astype(harness.DTYPES[k]) for k in kinds)


def nanoseconds(library, name, seconds):
    given = arguments(name)
    out = library(name, *given)
    call = library.bound(name, *given, out=out)
    empty = library.bound(name, *(a[:0] for a in given), out=out[:0])

    def once(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    # What the call from Python itself costs is taken off.
    runs, end = [], time.perf_counter() + seconds
    while len(runs) < 51 or time.perf_counter() < end:
        runs.append(once(call) - once(empty))
    return statistics.median(runs) / out.size * 1e9


def accuracy(library, reference, name):
    worst = 0.0
    for seed in range(2):
        given = harness.samples(name, 1_000_000, seed)
        if name == "lgamma_f64":
            given = (given[0][~(given[0] < 0)],)
        worst = max(worst, reference.worst(name, given, library(name, *given))[0])
    return worst


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.02, help="for each number")
    seconds = parser.parse_args().seconds
    names = [f"{f}_{k}" for f in FUNCTIONS for k in harness.FLOATS] + OTHERS
    with tempfile.TemporaryDirectory() as folder:
        levels = [level for level in harness.SETS if harness.runs(level)]
        libraries = [harness.Library(folder, level, names).load() for level in levels]
        reference = harness.Reference(folder)
        speed = {n: [nanoseconds(lib, n, seconds) for lib in libraries] for n in names}
        ulp = {n: accuracy(libraries[-1], reference, n) for n in names if n not in OTHERS}

    def row(n):
        return [f"{v:.2f}" for v in speed[n]]

    columns = [f"{k} {c}" for k in harness.FLOATS for c in ("max ulp", *levels)]
    lines = [HEAD, f"Nanoseconds an element, one core of {processor()}, arrays in cache.\n"]
    lines.append("| function | " + " | ".join(columns) + " |")
    lines.append("| --- |" + " ---: |" * len(columns))
    for f in FUNCTIONS:
        cells = [c for k in harness.FLOATS for c in (f"{ulp[f'{f}_{k}']:.2f}", *row(f"{f}_{k}"))]
        lines.append(f"| {f} | " + " | ".join(cells) + " |")
    lines += ["", "| random, half, casts | " + " | ".join(levels) + " |"]
    lines.append("| --- |" + " ---: |" * len(levels))
    lines += [f"| {n} | " + " | ".join(row(n)) + " |" for n in OTHERS]
    (ROOT / "docs" / "math.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
