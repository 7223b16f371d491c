"""How a step is timed, and what else of a process is measured.

Takes a callable; returns plain numbers. Times are in microseconds, memory in MB (2**20 bytes).
"""

import gc
import time
from collections.abc import Callable

clock = time.perf_counter


def per_call(step: Callable[[], object], seconds: float, block: float = 0.002) -> dict:
    """Median, tenth and ninetieth percentile of the time a call takes.

    Calls are timed in blocks of at least `block` seconds, so that the clock costs nothing against
    operators of a few hundred nanoseconds. The first call is reported by itself; warm-up follows.
    """
    began = clock()
    step()
    first = clock() - began

    began, n = clock(), 1  # warm up, and find the calls in a block
    while True:
        start = clock()
        for _ in range(n):
            step()
        took = clock() - start
        if took >= block and clock() - began >= min(0.2, seconds / 2):
            break
        if took < block:
            n = max(n + 1, min(n * 10, int(n * block / max(took, 1e-9)) + 1))

    times = []
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()  # as timeit does; trees of nodes are freed by counts
    try:
        end = clock() + seconds
        while clock() < end or len(times) < 5:
            start = clock()
            for _ in range(n):
                step()
            times.append((clock() - start) / n)
    finally:
        if enabled:
            gc.enable()
    times.sort()
    at = [times[round(q * (len(times) - 1))] * 1e6 for q in (0.5, 0.1, 0.9)]
    return {
        "us": at[0],
        "p10_us": at[1],
        "p90_us": at[2],
        "first_us": first * 1e6,
        "calls": n * len(times),
    }


def status(field: str) -> float:
    """A field of /proc/self/status in MB: VmHWM is the peak, VmRSS the present resident size."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return float("nan")


def fingerprint(result) -> list[float]:
    """Numbers by which peers' results are compared: mean, mean of squares, some elements."""
    while isinstance(result, (tuple, list)):
        result = result[0]
    if hasattr(result, "detach"):
        result = result.detach()
        if str(result.dtype).endswith("bfloat16"):  # numpy has none
            result = result.float()
        array = result.numpy()
    elif hasattr(result, "shape"):
        import numpy as np

        array = np.asarray(result)
    else:
        return [float(result)]
    flat = array.astype("float64").reshape(-1)
    if flat.size == 0:
        return []
    picked = flat[:: max(1, flat.size // 5)][:5]
    return [float(flat.mean()), float((flat * flat).mean()), *map(float, picked)]
