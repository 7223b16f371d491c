"""Compiled code of several peers, side by side in one run: first calls, steady time, whole process.

    python -m benchmarks.compiled [WORKLOADS] [--peers ...] [--jax PYTHON] [--quick]

Each peer and workload runs in two fresh processes: cold (an empty cache folder of its own), then
warm (that folder again). Reported are the first call of each (compiling or loading, and the call),
the steady time of a call in the warm process, peak memory, and the whole process from its start to
its first result. Peers take turns; times are medians over the repeats; results are compared.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import machine, wait_for_quiet
from benchmarks.table import agree, number
from benchmarks.workloads import GROUPS

HERE = Path(__file__).resolve().parent
WORKLOADS = ["W1", "W1v", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9"]
PEERS = (
    "rushlight,rushlight-compile,torch,torch-compile,torch-compile:max-autotune,"
    "torch-compile:freezing"
)
CACHES = {
    "RUSHLIGHT_CACHE_DIR": "rushlight",
    "TORCHINDUCTOR_CACHE_DIR": "torch",
    "TRITON_CACHE_DIR": "triton",
    "JAX_COMPILATION_CACHE_DIR": "jax",
}
NOT_COMPARED = {("jax", name) for name in ("W4", "W5", "W6", "W7", "W8")}  # weights of its own


def run(python: str, peer: str, name: str, factor: float, folder: str) -> dict:
    caches = {key: os.path.join(folder, name) for key, name in CACHES.items()}
    for place in caches.values():
        os.makedirs(place, mode=0o700, exist_ok=True)
    extra = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [python, "-P", str(HERE / "compiled_child.py"), peer, name, str(factor)]
    # Installed packages bring their bytecode; a source tree must be allowed to keep its own.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=900,
            env={**inherited, **caches, **extra},
        )
    except subprocess.TimeoutExpired:
        return {
            "peer": peer,
            "benchmark": name,
            "case": name,
            "error": "15 minutes were not enough",
        }
    wall = time.perf_counter() - begun
    rows = [json.loads(x[5:]) for x in done.stdout.splitlines() if x.startswith("CASE ")]
    if not rows:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"peer": peer, "benchmark": name, "case": name, "error": tail}
    row = {**rows[0], "process_s": wall}
    if "us" in row:
        row["compile_s"] = max(0.0, row["first_s"] - row["us"] / 1e6)
    return row


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help=f"workloads (default: {' '.join(WORKLOADS)})")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument(
        "--jax", metavar="PYTHON", help="an interpreter that has jax: adds that peer"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one repeat, a fifth of the time")
    parser.add_argument(
        "--wait", type=float, default=15, help="seconds to wait for a quiet machine"
    )
    parser.add_argument("--out", type=Path, help="JSON lines")
    arguments = parser.parse_args()
    unknown = [n for n in arguments.names if n not in GROUPS]
    if unknown:
        parser.error(f"no workload named {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    return arguments


def main() -> int:
    arguments = parse()
    repeats, factor = (1, 0.2) if arguments.quick else (arguments.repeats, 1.0)
    peers = arguments.peers.split(",") + (["jax"] if arguments.jax else [])
    rows: list[dict] = []
    out = arguments.out or HERE / "results" / time.strftime("compiled-%Y%m%d-%H%M%S.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as file:
        for name in arguments.names or WORKLOADS:
            for repeat in range(repeats):
                for peer in peers if repeat % 2 == 0 else peers[::-1]:
                    folder = tempfile.mkdtemp(prefix="benchmark-cache-")
                    python = arguments.jax if peer == "jax" else sys.executable
                    try:
                        for phase in ("cold", "warm") if compiles(peer) else ("warm",):
                            where = {**machine(), "busy": wait_for_quiet(arguments.wait)}
                            print(f"\r{name} {peer} {phase}".ljust(60), end="", file=sys.stderr)
                            row = run(python, peer, name, factor, folder)
                            rows.append({**row, "phase": phase, "machine": where})
                            file.write(json.dumps(rows[-1]) + "\n")
                            file.flush()
                    finally:
                        shutil.rmtree(folder, ignore_errors=True)
    print("\r".ljust(61) + "\r", end="", file=sys.stderr)
    busy = statistics.median(r["machine"]["busy"] for r in rows)
    here = f"{where['cpu']}, {where['cores']} cores, Python {where['python']}"
    print(f"{here}; {repeats} runs; raw: {out}")
    print(f"other work on this machine: {busy:.0%} of its cores before a process (median)\n")
    print(render(rows, peers))
    return 1 if any("error" in r for r in rows) else 0


def compiles(peer: str) -> bool:
    return peer == "jax" or "-compile" in peer


def render(rows: list[dict], peers: list[str]) -> str:
    """Four tables: steady time, first calls, whole process, memory."""
    names = list(dict.fromkeys(r["benchmark"] for r in rows))

    def value(peer: str, name: str, phase: str, field: str) -> float | None:
        found = [
            r[field] for r in rows
            if (r["peer"], r["benchmark"], r["phase"]) == (peer, name, phase) and field in r
        ]  # fmt: skip
        return statistics.median(found) if found else None

    parts = ["## A call, steady, us", "", steady(names, peers, value), ""]
    compiled = [p for p in peers if compiles(p)]
    for title, field in (
        ("First call, ms (cold, warm)", "first_s"),
        ("First call less a steady one, ms (cold, warm)", "compile_s"),
        ("Process to its first result, s (cold, warm)", "until_result_s"),
    ):
        scale = 1 if field == "until_result_s" else 1e3
        parts += [f"## {title}", "", "| | " + " | ".join(compiled) + " |"]
        parts.append("| --- |" + " ---: |" * len(compiled))
        for name in names:
            cells = []
            for peer in compiled:
                pair = [value(peer, name, phase, field) for phase in ("cold", "warm")]
                cells.append(", ".join(number(v * scale) for v in pair if v is not None))
            parts.append(f"| {name} | " + " | ".join(cells) + " |")
        parts.append("")
    parts += ["## Peak memory of the process, MB", "", "| | " + " | ".join(peers) + " |"]
    parts.append("| --- |" + " ---: |" * len(peers))
    for name in names:
        cells = [number(value(p, name, "warm", "peak_mb")) for p in peers]
        parts.append(f"| {name} | " + " | ".join(cells) + " |")
    notes = sorted({f"{r['peer']} {r['benchmark']}: {r['error']}" for r in rows if "error" in r})
    notes += differences(rows)
    return "\n".join([*parts, "", *notes])


def steady(names: list[str], peers: list[str], value) -> str:
    mine, others = "rushlight-compile", [p for p in peers if not p.startswith("rushlight")]
    lines = ["| | " + " | ".join(peers) + " | ours to the best other |"]
    lines.append("| --- |" + " ---: |" * (len(peers) + 1))
    ratios = []
    for name in names:
        times = {p: value(p, name, "warm", "us") for p in peers}
        best = min((t for p in others if (t := times[p])), default=None)
        ratio = times[mine] / best if times.get(mine) and best else None
        if ratio:
            ratios.append(ratio)
        lines.append(
            f"| {name} | " + " | ".join(number(times[p]) for p in peers) + f" | {number(ratio)} |"
        )
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines.append(
            f"\ngeometric mean of the last column: {number(mean)}, worst {number(max(ratios))}"
        )
    return "\n".join(lines)


def differences(rows: list[dict]) -> list[str]:
    notes = []
    for name in dict.fromkeys(r["benchmark"] for r in rows):
        here = [r for r in rows if r["benchmark"] == name and r.get("fingerprint")]
        base = next((r for r in here if r["peer"] == "torch"), here[0] if here else None)
        for r in here:
            skip = (r["peer"], name) in NOT_COMPARED
            if not skip and not agree(
                r["fingerprint"], base["fingerprint"], GROUPS[name].check or 1e-3
            ):
                notes.append(
                    f"RESULTS DIFFER: {name}, {r['peer']} {r['phase']} from {base['peer']}"
                )
    return sorted(set(notes))


if __name__ == "__main__":
    sys.exit(main())
