"""JSON lines -> a table in Markdown: medians over the repeats, and rushlight's share of torch's."""

import json
import math
import statistics
from pathlib import Path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def median(rows: list[dict], field: str) -> float | None:
    values = [r[field] for r in rows if r.get(field) is not None]
    return statistics.median(values) if values else None


def number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3}f}"


def agree(a: list[float], b: list[float], tolerance: float) -> bool:
    """Relative to the size of the results: their root mean square, and each element compared."""
    if len(a) != len(b):
        return False
    scale = max([1e-6, *map(abs, b)])
    return all(
        math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance * scale)
        for x, y in zip(a, b, strict=True)
    )


def render(rows: list[dict], tolerances: dict[str, float]) -> str:
    peers = sorted({r["peer"] for r in rows})  # rushlight before torch
    both = len(peers) == 2
    keys = list(
        dict.fromkeys((r["benchmark"], r["case"]) for r in rows if "us" in r or "error" in r)
    )
    lines = [
        "| | " + " | ".join(f"{p}, us" for p in peers) + (" | ratio | |" if both else " | |"),
        "| --- |" + " ---: |" * (len(peers) + both) + " --- |",
    ]
    ratios: dict[str, list[float]] = {}
    for benchmark, case in keys:
        here = {
            p: [
                r
                for r in rows
                if r["peer"] == p and (r["benchmark"], r["case"]) == (benchmark, case)
            ]
            for p in peers
        }
        times = {p: median(here[p], "us") for p in peers}
        cells, notes = [case, *(number(times[p]) for p in peers)], []
        if both:
            one, two = times[peers[0]], times[peers[1]]
            cells.append(number(one / two) if one and two else "")
            if one and two:
                ratios.setdefault(benchmark, []).append(one / two)
            marks = [
                next((r["fingerprint"] for r in here[p] if r.get("fingerprint")), None)
                for p in peers
            ]
            tolerance = tolerances.get(benchmark, 0)
            if all(marks) and tolerance and not agree(*marks, tolerance):
                notes.append("RESULTS DIFFER")
        notes += sorted({f"{p}: {r['error']}" for p in peers for r in here[p] if "error" in r})
        grown = {p: median(here[p], "grown_mb") for p in peers}
        notes += [
            f"{p} grew {grown[p]:.0f} MB"
            for p in peers
            if (grown[p] or 0) > 8 and benchmark == "growing"
        ]
        lines.append("| " + " | ".join([*cells, "; ".join(notes)]) + " |")
    if ratios:
        lines += [
            "",
            "| benchmark | geometric mean of ratios | worst | cases |",
            "| --- | ---: | ---: | ---: |",
        ]
        for benchmark, values in ratios.items():
            mean = math.exp(statistics.fmean(map(math.log, values)))
            lines.append(
                f"| {benchmark} | {number(mean)} | {number(max(values))} | {len(values)} |"
            )
    lines += ["", *footprint(rows, peers)]
    return "\n".join(lines)


def footprint(rows: list[dict], peers: list[str]) -> list[str]:
    lines = ["| | " + " | ".join(peers) + " |", "| --- |" + " ---: |" * len(peers)]
    for field, title in (
        ("import_s", "import, s"),
        ("installed_mb", "installed with dependencies, MB"),
    ):
        values = [median([r for r in rows if r["peer"] == p], field) for p in peers]
        if any(v is not None for v in values):
            lines.append(f"| {title} | " + " | ".join(map(number, values)) + " |")
    for benchmark in dict.fromkeys(r["benchmark"] for r in rows if "peak_mb" in r):
        of = {
            p: [
                r for r in rows if r["peer"] == p and r["benchmark"] == benchmark and "peak_mb" in r
            ]
            for p in peers
        }
        peaks = [max((r["peak_mb"] for r in of[p]), default=None) for p in peers]
        lines.append(f"| peak memory of {benchmark}, MB | " + " | ".join(map(number, peaks)) + " |")
    return lines
