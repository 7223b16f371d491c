"""Rushlight and torch in one process, by turns: for machines that others use too.

    python -m benchmarks.interleaved sweep-1M common --threads 1 --only softmax

Each row of a benchmark is timed in short blocks, one peer after the other; the table gives the
medians. With one thread the clock is that thread's processor time, which waiting does not count.
"""

import argparse
import importlib
import math
import statistics
import time
from collections.abc import Callable

from benchmarks.workloads import GROUPS

BLOCK = 0.005  # seconds


def rows(name: str, threads: int, rounds: int, only: str):
    """(row, microseconds of rushlight, of torch) of a benchmark."""
    peers = [importlib.import_module(p) for p in ("rushlight", "torch")]
    for peer in peers:
        peer.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for (row, ours), (_, theirs) in zip(*(GROUPS[name].cases(p) for p in peers), strict=True):
        if only in row:
            yield row, *by_turns(ours, theirs, clock, rounds)


def by_turns(ours: Callable, theirs: Callable, clock: Callable, rounds: int) -> list[float]:
    def block(step: Callable, n: int) -> float:
        start = clock()
        for _ in range(n):
            step()
        return (clock() - start) / n

    counts = []
    for step in ours, theirs:
        for _ in range(3):
            step()
        counts.append(max(1, int(BLOCK / max(block(step, 3), 1e-8))))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for k, step in enumerate((ours, theirs)):
            times[k].append(block(step, counts[k]))
    return [statistics.median(t) * 1e6 for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="+", choices=GROUPS, metavar="BENCHMARK")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    print("| | rushlight, us | torch, us | ratio |\n| --- | ---: | ---: | ---: |")
    for name in given.benchmarks:
        ratios = []
        for row, ours, theirs in rows(name, given.threads, given.rounds, given.only):
            ratios.append(ours / theirs)
            print(f"| {row} | {ours:.4g} | {theirs:.4g} | {ratios[-1]:.3f} |", flush=True)
        mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
        worst = max(ratios, default=math.nan)
        print(f"| {name}: geometric mean, worst | | | {mean:.3f}, {worst:.3f} |", flush=True)


if __name__ == "__main__":
    main()
