"""How far each generated kernel is from its floor: the time of copying as many bytes.

    python -m benchmarks.floors W1 W2 W5

compiles the workloads, calls every kernel by itself on operands of its layouts, and prints, for
each, its best time, the best time of a copy that reads and writes the same number of bytes, and
their quotient; below 70% also the reason, as the kernel's loops show it. All in one thread, which
other work on the machine disturbs least.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

LOW = 0.7  # of the floor: below, a reason is named
CALL_US = 2.0  # what a call costs by itself


def compilations(torch: Any, name: str) -> list[Any]:
    """The lowered graphs of a workload, compiled by its first call."""
    from benchmarks.workloads import GROUPS
    from rushlight.inductor import pipeline

    found: list[Any] = []
    made = pipeline.CompiledGraph.__init__

    def kept(self: Any, c: Any) -> None:
        found.append(c)
        made(self, c)

    pipeline.CompiledGraph.__init__ = kept  # type: ignore[method-assign]
    try:
        for _, step in GROUPS[name].cases(torch):
            torch.compile(step)()
    finally:
        pipeline.CompiledGraph.__init__ = made  # type: ignore[method-assign]
    return found


def operand(torch: Any, read: Any) -> Any:
    from rushlight import sym
    from rushlight.runtime import native

    layout = read.var.layout
    shape, strides = (tuple(map(sym.hint, v)) for v in (layout.shape, layout.strides))
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    flat = torch.rand(max(span, 1)) if "float" in layout.dtype else torch.zeros(max(span, 1))
    x = flat.to(native.dtype(layout.dtype)).as_strided(shape, strides)
    if read.shape is None:
        return x
    if read.strides is None:
        return x.expand(tuple(map(sym.hint, read.shape)))
    return x.as_strided(*(tuple(map(sym.hint, v)) for v in read[2:]))


def result(torch: Any, layout: Any) -> Any:
    """Memory for a result that lies in a whole."""
    shape, strides = layout.shape, layout.strides
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    from rushlight.runtime import native

    return torch.zeros(span).to(native.dtype(layout.dtype)).as_strided(shape, strides)


def touched(layout: Any) -> int:
    """Bytes behind a layout, each once."""
    from rushlight import dtypes, sym

    elements = math.prod(sym.hint(n) for n, s in zip(layout.shape, layout.strides) if s != 0)
    return elements * dtypes.TABLE[layout.dtype].itemsize


def best(call: Any, seconds: float = 0.15) -> float:
    """Microseconds of the fastest call."""
    call()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    return 1e6 * least


COPIES: dict[int, float] = {}


def floor(torch: Any, total: int) -> float:
    n = max(total // 8, 1)
    if n not in COPIES:
        x, y = torch.rand(n), torch.rand(n)
        COPIES[n] = best(lambda: y.copy_(x))
    return COPIES[n]


def reason(kernel: Any, us: float) -> str:
    from rushlight.loops.cpp import addressed
    from rushlight.loops.expr import Apply, postorder
    from rushlight.loops.nest import COSTLY

    if us < 2 * CALL_US:
        return "the call itself"
    words: dict[str, int] = {}
    for section in kernel.sections:
        for e in postorder([v for _, v in section.lets] + [v for _, _, v in section.folds]):
            if isinstance(e, Apply) and e.word in COSTLY | {"div", "sqrt"}:
                words[e.word] = words.get(e.word, 0) + 1
    passes = sum(s.over == "elements" for s in kernel.sections)
    told = []
    if words:
        told.append("arithmetic: " + ", ".join(f"{n} {w}" for w, n in words.items()))
    if passes > 1:
        told.append(f"{passes} passes over a row")
    if addressed(kernel):
        told.append("fetches at indices")
    return "; ".join(told) or "strides"


def main() -> int:
    torch = importlib.import_module("rushlight")
    importlib.import_module("rushlight.nn")
    importlib.import_module("rushlight.optim")
    torch.set_num_threads(1)
    print("| workload | kernel | us | floor, us | of the floor | why below 70% |")
    print("| --- | --- | ---: | ---: | ---: | --- |")
    for name in sys.argv[1:]:
        seen = set()
        for c in compilations(torch, name):
            for i, (low, kernel) in c.kernels.items():
                if (c.graph.name, c.symbols[i]) in seen or low.sizes:
                    continue
                seen.add((c.graph.name, c.symbols[i]))
                given = [operand(torch, r) for r in low.reads]
                placed = c.plan.steps[i].placed
                if placed:
                    into = [placed.get(o) for o in low.results]
                    given += [x if x is None else result(torch, x) for x in into]
                with torch.no_grad():
                    us = best(lambda kernel=kernel, given=given: kernel(*given))
                read = {(r.var, str(r.layout.strides)): touched(r.layout) for r in low.reads}
                total = sum(read.values()) + sum(touched(o.layout) for o in low.results)
                least = floor(torch, total)
                why = reason(low.kernel, us) if least < LOW * us else ""
                share = f"{least / us:.0%}"
                print(f"| {name} | {low.kernel.name} | {us:.1f} | {least:.1f} | {share} | {why} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
