"""Rushlight eager against torch eager, side by side in one run.

Each benchmark runs in fresh processes, one a peer, the peers taking turns, several times over. Raw
results are JSON lines; the table shows medians over the repeats.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import footprint, table
from benchmarks.workloads import GROUPS

HERE = Path(__file__).resolve().parent


def machine() -> dict:
    with open("/proc/cpuinfo") as file:
        model = next((x.split(":", 1)[1].strip() for x in file if x.startswith("model name")), "?")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def busy_share(seconds: float = 0.3) -> float:
    """How much of all cores is in use now."""

    def read() -> tuple[int, int]:
        with open("/proc/stat") as file:
            ticks = list(map(int, file.readline().split()[1:9]))
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)

    before = read()
    time.sleep(seconds)
    after = read()
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def wait_for_quiet(limit: float) -> float:
    """Waits until the machine is nearly idle, at most `limit` seconds; returns the busy share."""
    end = time.monotonic() + limit
    while (share := busy_share()) > 0.1 and time.monotonic() < end:
        time.sleep(0.5)
    return share


def usable(peer: str) -> bool:
    """Whether a child would find the peer: rushlight's bare sources, not built, do not count."""
    code = f"import sys; sys.path.append({str(HERE.parent)!r}); import {peer}; {peer}.from_numpy"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{peer} is left out: {why}", file=sys.stderr)
    return done.returncode == 0


def run_child(peer: str, name: str, factor: float) -> list[dict]:
    command = [sys.executable, "-P", str(HERE / "child.py"), peer, name, str(factor)]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [json.loads(x[5:]) for x in done.stdout.splitlines() if x.startswith("CASE ")]
    if done.returncode:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        rows.append(
            {
                "peer": peer,
                "benchmark": name,
                "case": name,
                "error": f"process ended with {done.returncode}: {tail}",
            }
        )
    return rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{b.name:10} {b.about}" for b in GROUPS.values()),
    )
    parser.add_argument("names", nargs="*", help="benchmarks (default: all, and the footprint)")
    parser.add_argument("--peers", default="rushlight,torch")
    parser.add_argument("--repeats", type=int, default=3, help="processes a peer and benchmark")
    parser.add_argument("--quick", action="store_true", help="one repeat, a fifth of the time")
    parser.add_argument(
        "--wait",
        type=float,
        default=15,
        help="seconds to wait for an idle machine before a process",
    )
    parser.add_argument(
        "--out", type=Path, help="JSON lines (default: benchmarks/results/TIME.jsonl)"
    )
    parser.add_argument("--table", type=Path, help="only print the table of a file of JSON lines")
    arguments = parser.parse_args()
    unknown = [n for n in arguments.names if n not in GROUPS and n != "footprint"]
    if unknown:
        parser.error(
            f"no benchmark named {', '.join(unknown)}; there are {', '.join(GROUPS)}, footprint"
        )
    return arguments


def main() -> int:
    arguments = parse()
    tolerances = {b.name: b.check for b in GROUPS.values()}
    if arguments.table:
        print(table.render(table.read(arguments.table), tolerances))
        return 0
    repeats, factor = (1, 0.2) if arguments.quick else (arguments.repeats, 1.0)
    peers = [peer for peer in arguments.peers.split(",") if usable(peer)]
    if not peers:
        return 1
    out = arguments.out or HERE / "results" / time.strftime("%Y%m%d-%H%M%S.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    names = arguments.names or [*GROUPS, "footprint"]
    rows: list[dict] = []
    with out.open("w") as file:

        def keep(row: dict) -> None:
            rows.append({**row, "repeat": repeat, "machine": where})
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()

        for name in names:
            for repeat in range(repeats):
                for peer in peers if repeat % 2 == 0 else peers[::-1]:
                    where = {**machine(), "busy": wait_for_quiet(arguments.wait)}
                    print(
                        f"\r{name} {repeat + 1}/{repeats} {peer}".ljust(60), end="", file=sys.stderr
                    )
                    if name == "footprint":
                        footprint_rows(peer, keep)
                    else:
                        for row in run_child(peer, name, factor):
                            keep(row)
    busy = statistics.median(r["machine"]["busy"] for r in rows)
    print("\r".ljust(61) + "\r", end="", file=sys.stderr)
    print(
        f"{where['cpu']}, {where['cores']} cores, Python {where['python']}; "
        f"{repeats} processes a row and peer; raw: {out}\n"
        f"other work on this machine: {busy:.0%} of its cores before a process (median)\n"
        + ("THE MACHINE WAS BUSY: these ratios prove nothing\n" if busy > 0.2 else "")
    )
    print(table.render(rows, tolerances))
    return 1 if any("error" in r for r in rows) else 0


def footprint_rows(peer: str, keep) -> None:
    base = {"peer": peer, "benchmark": "footprint", "case": "footprint"}
    try:
        footprint.import_seconds(peer)  # fills the page cache
        for _ in range(3):
            keep({**base, "import_s": footprint.import_seconds(peer)})
        megabytes, counted = footprint.installed_mb(peer)
        keep({**base, "installed_mb": megabytes, "counted": counted})
    except RuntimeError as error:
        keep({**base, "error": str(error)})


if __name__ == "__main__":
    sys.exit(main())
