"""The machine: what it offers, what is installed on it, and what it can do at most.

Takes nothing; gives plain facts. The limits, which shares of the page are shares of, are measured
with a few copies and matrix products and kept in the cache's folder, the best that was ever seen:
a measurement can be disturbed by whatever else runs, but only downwards. Invariant: limits of one
machine, instruction set and number of threads are never compared with another's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rushlight import config


def limits() -> dict[str, Any]:
    """What this machine can do: `bytes_per_ns`, of the best of a few copies of 64 MB, read and
    written, and `operations_per_ns`, of the best of a few products of float32 matrices; `measured`:
    the day of the first measurement, "" where none could be kept, and `kept`: the file with them.
    Measured once a process, in about 0.2 s; the best of all processes counts."""
    global _limits
    if _limits is None:
        _limits = _kept(_measured())
    return _limits


_limits: dict[str, Any] | None = None
SIDE, SIDES = 768, 4  # of the matrices that are multiplied for it, and how often


def _measured() -> dict[str, float]:
    import rushlight as rl

    x = rl.ones(1 << 24)
    y = rl.empty_like(x)
    a = rl.ones(SIDE, SIDE)
    moved = least(lambda: y.copy_(x), 6)
    return {
        "bytes_per_ns": 8 * (1 << 24) / moved,
        "operations_per_ns": 2 * SIDE**3 / least(lambda: rl.mm(a, a), 2 * SIDES),
    }


def least(run: Callable[[], Any], times: int) -> float:
    """Nanoseconds of the shortest of some calls."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter_ns()
        run()
        best = min(best, time.perf_counter_ns() - start)
    return best


def processor_time() -> tuple[int, int]:
    """Nanoseconds that this process's threads ran, and that they were ready to run but other work
    had the processors (Linux's schedstat); zeros where the system does not tell."""
    ran = waited = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                mine, others = file.read().split()[:2]
            ran, waited = ran + int(mine), waited + int(others)
    except (OSError, ValueError):
        return 0, 0
    return ran, waited


def _kept(found: dict[str, float]) -> dict[str, Any]:
    """The best of what was found now and what other processes found, which is kept."""
    from rushlight.runtime.cache import trusted_folder

    folder = trusted_folder()
    if folder is None:
        return {**found, "measured": "", "kept": ""}
    file, facts = os.path.join(folder, LIMITS), machine()
    name = f"{processor()}, {facts.get('isa', '')}, {facts.get('threads', '')} threads"
    known: dict[str, Any] = {}
    try:
        with open(file, encoding="utf-8") as opened_:
            known = json.load(opened_)
        before = known[name]
        better = {key: max(n, float(before[key])) for key, n in found.items()}
        day = str(before["measured"])
    except (OSError, ValueError, KeyError, TypeError):
        before, better, day = None, found, time.strftime("%Y-%m-%d")
    best = {**better, "measured": day}
    if best != before:
        known = known if isinstance(known, dict) else {}
        try:
            _write(file, json.dumps({**known, name: best}, indent=1) + "\n")
        except OSError:
            return {**best, "measured": "", "kept": ""}
    return {**best, "kept": file}


LIMITS = "limits.json"  # in the cache's folder


def _write(file: str, text: str) -> None:
    """Under a name of its own first, so that others see all of it or nothing."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=os.path.dirname(file), prefix=LIMITS)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as made:
            made.write(text)
        os.replace(name, file)
    except OSError:
        os.remove(name)
        raise


def processor() -> str:
    """The processor's name, as Linux tells it; else the kind of machine."""
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8") as rows:
            for row in rows:
                if row.startswith("model name"):
                    return row.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def limits_of_gpu() -> dict[str, float] | None:
    """{"bytes_per_ns": ...} of the current GPU, by copies of 64 MB between two events; None where
    it has no room for them."""
    import rushlight as rl

    begun, ended = (rl.cuda.Event(enable_timing=True) for _ in range(2))
    try:
        x = rl.ones(1 << 24, device="cuda")
        y, best = rl.empty_like(x), float("inf")
        for _ in range(5):
            begun.record()
            y.copy_(x)
            ended.record()
            ended.synchronize()
            best = min(best, begun.elapsed_time(ended) * 1e6)
    except RuntimeError:
        return None
    return {"bytes_per_ns": 8 * (1 << 24) / best} if best else None


def opened() -> Any:
    """The native core where a GPU was opened; else None."""
    opening = sys.modules.get("rushlight.runtime.cuda.opening")
    return opening._core if opening is not None and opening.opened else None


def take_waits() -> list[tuple[str, int, str]]:
    """Where Python waited for a GPU since the last time this was asked: (what, ns, line)."""
    return opened().cuda_waits() if opened() else []


def gpu_counts() -> dict[str, int]:
    """How many GPU kernels of each kind ran so far; {} where no GPU was used."""
    return opened().cuda_counts() if opened() else {}


def machine() -> dict[str, Any]:
    """Versions and what this machine offers, as far as the native core says."""
    import platform

    import rushlight
    from rushlight import _core  # type: ignore[attr-defined]

    facts = {
        "rushlight": getattr(rushlight, "__version__", ""),
        "python": platform.python_version(),
    }
    for name, function in _NATIVE_FACTS.items():
        if hasattr(_core, function):
            facts[name] = getattr(_core, function)()
    return {**facts, "gpu": os.path.exists("/proc/driver/nvidia/version")}


_NATIVE_FACTS = {"isa": "isa", "threads": "num_threads", "kernels": "kernel_count"}


def libraries() -> dict[str, str]:
    """The libraries that operators call, each with its version, or that it was not found."""
    from importlib import metadata

    import rushlight

    found = {}
    for name, distribution in (("OpenBLAS", "scipy-openblas32"), ("numpy", "numpy")):
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = f"not found (pip install {distribution})"
    folder = os.path.join(rushlight.__path__[0], "lib")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    onednn = sorted(name for name in names if name.startswith("libdnnl"))
    found["oneDNN"] = ", ".join(onednn) or "not built in"
    return found


def cache_facts() -> dict[str, str]:
    """Where compiled artifacts are kept, and how much lies there."""
    from rushlight.report.words import bytes_, count

    folder = config.flags.cache_dir or os.path.expanduser("~/.cache/rushlight")
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    size = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    return {"cache": f"{folder} ({count(len(files), 'file')}, {bytes_(size)})"}
