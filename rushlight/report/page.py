"""The page: one self-contained HTML file, of the documented paths alone or with a run laid over.

Takes an `Observed` (or None) with the texts that belong to it; gives the file's content. Everything
is in it: style, code, data, the layout library (vendor/dagre.min.js). Invariant: text of the user's
program stands in the data as JSON, and the page's code writes it as text only, never as markup.
"""

from __future__ import annotations

import json
import linecache
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rushlight import trace
from rushlight.report import path
from rushlight.report.captures import PACKAGE
from rushlight.report.observe import Observed
from rushlight.report.records import Call, Calls, activities_of, launched_by
from rushlight.report.timeline import timeline

FOLDER = os.path.dirname(os.path.abspath(__file__))
PARTS = "tables path lines why time timeline sequence model short find rest".split()
SCRIPTS = ("page.js", *(f"page_{part}.js" for part in PARTS))  # in order; the last one starts it


def html(data: Mapping[str, Any]) -> str:
    """The page of `data(...)`."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    # What could end the script element, or start a comment in it, is spelt otherwise in JSON.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {
        "STYLE": _read("page.css"),
        "LAYOUT": _read("vendor/dagre.min.js"),
        "CODE": "".join(map(_read, SCRIPTS)),
        "DATA": safe,
    }
    made = _read("page.html")
    for name, content in parts.items():
        before, mark, after = made.partition(f"@@{name}@@")
        assert mark, name
        made = before + content + after
    return made


def _read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def data(
    observed: Observed | None = None,
    calls: Calls | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the page's code reads: the documented paths, the run in the form of `--json`, and for a
    run its source files, a timeline, and `extra` (kernels' sources, machine code, limits,
    vocabulary)."""
    made: dict[str, Any] = {"documented": dict(path.load().facts), "observed": None}
    made["selections"] = [
        {
            "mode": mode,
            "device": device,
            "status": path.load().status(mode, device),
            "stages": [s.id for s in path.load().select(mode, device)[0]],
            "steps": [s.id for s in path.load().select(mode, device)[1]],
        }
        for mode, device in path.load().selections()
    ]
    if observed is not None:
        made["observed"] = observed.to_json()
        made["files"] = sources(observed)
        made["package"] = PACKAGE
        if not (extra and "timeline" in extra):
            mine = Calls() if calls is None else calls
            made["timeline"] = timeline(mine, (), 0, observed.wall_ns, observed.program)
        if calls is not None and observed.device == "gpu":
            made["device_events"], made["device_left_out"] = launches(calls)
            made["device_work"], made["device_work_left_out"] = device_work(calls)
        made.update(extra or {})
    return made


def sources(observed: Observed) -> list[dict[str, str]]:
    """The user's files that anything came from: name, path, text."""
    paths: dict[str, None] = {}
    for capture in observed.captures:
        paths.update(dict.fromkeys(capture.files.values()))
    for row in observed.lines:
        paths.setdefault(row.where.partition(" in ")[0].rpartition(":")[0])
    for function in observed.functions:
        for where in function.where:
            paths.setdefault(where.partition(" in ")[0].rpartition(":")[0])
    found: list[dict[str, str]] = []
    for file in paths:
        if any(trace.short_path(file) == known["name"] for known in found):
            continue  # once by its name, once by its path
        text = "".join(linecache.getlines(file)) if file else ""
        if text:
            found.append({"name": trace.short_path(file), "path": file, "text": text})
    return found


LAUNCHES = 400  # of the sequence


def launches(calls: Calls) -> tuple[list[dict[str, Any]], int]:
    """What the host gave to the device, in order, with the line that called it; and how many are
    left out in the middle. Times are the host's; `device_work` has the device's own. `call`: that
    of compiled code which a launch was made in."""
    everything = calls.everything
    ran = [c for c in everything if _gives_work(c, everything)]
    begun = ran[0].start if ran else 0
    left_out = max(0, len(ran) - LAUNCHES)
    if left_out:
        ran = ran[: LAUNCHES // 2] + ran[-LAUNCHES // 2 :]
    by_id = everything.by_id
    rows, seen, nth = [], Counter[str](), {}
    for call in everything:
        if call.kind in ("compiled", "graph"):
            seen[call.operator] += 1
            nth[call.id] = f"{call.operator}, call {seen[call.operator]}"
    for call in ran:
        above = call
        while not above.where and above.parent is not None:
            above = by_id[above.parent]
        kind = "reads" if call.kind == "read" else "launches"
        name = call.operator if call.kind in ("fused", "read") else call.ran
        inside = _call_of(call, everything, nth)
        rows.append({"kind": kind, "name": name, "where": above.where, "ns": call.ns,
                     "at": call.start - begun, "call": inside})  # fmt: skip
    return rows, left_out


def _call_of(call: Call, everything: Calls, nth: Mapping[int, str]) -> str:
    """The outermost call of compiled code that it was made in, "" outside all."""
    found, above = "", call
    while True:
        found = nth.get(above.id, found)
        if above.parent is None:
            return found
        above = everything.by_id[above.parent]


def _gives_work(call: Call, everything: Calls) -> bool:
    """Not what ran on the CPU, in a run whose times of a GPU are known."""
    worked = call.route in ("kernel", "library") and not everything.on_host(call)
    return call.kind == "read" or worked


def device_work(calls: Calls) -> tuple[list[dict[str, Any]], int]:
    """What the device did, in order, as CUPTI tells it; and how many are left out in the middle.
    `at` as in `launches`; `queued`: from the launch to the start."""
    done = activities_of(calls)
    everything = calls.everything
    begun = next((c.start for c in everything if _gives_work(c, everything)), 0)
    left_out = max(0, len(done) - LAUNCHES)
    if left_out:
        done = done[: LAUNCHES // 2] + done[-LAUNCHES // 2 :]
    rows = []
    for a in done:
        by, where = launched_by(calls, a.owner)
        row = {"name": a.title, "from": by, "where": where, "at": a.start - begun, "ns": a.ns,
               "place": f"cuda:{a.device}, {a.stream}", "graph": bool(a.graph),
               "queued": max(0, a.start - a.launched) if a.launched else None}  # fmt: skip
        rows.append(row | ({"bytes": a.bytes} if a.bytes else {}))
    return rows, left_out


def kernel_views(key: str, views: Iterable[Any], lines: Iterable[str]) -> dict[str, Any]:
    """A precompiled kernel for the page: its declaration, loops and C++, and the user's lines that
    called it."""
    return {
        "key": key,
        "lines": [trace.short_place(line.partition(" in ")[0]) for line in lines],
        "views": [
            {
                "title": view.title,
                "language": view.language,
                "text": view.text,
                "origins": {n: list(chain) for n, chain in (view.origins or {}).items()},
            }
            for view in views
        ],
    }
