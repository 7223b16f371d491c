"""The timeline of a run: everything that took time, on one axis from its beginning to its end.

Takes the calls of a run and its trace records; gives events, plain data for the page. The program
itself is the lowest event: what nothing stands on was Python (imports, files, the program's own
code). On it stand captures, compilations (of backward graphs too, which happen inside `backward`),
the C++ compiler, compiled functions, graphs, operators, kernels. Invariant: no time is left out:
calls too short to be told apart are one event together, with their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rushlight import trace
from rushlight.report.records import Calls

EVENTS = 6000  # of the timeline, at most


class Event(NamedTuple):
    """`missed`: this call was compiled, or made its plan. `count`: how many calls it stands for."""

    start: int
    end: int
    kind: str
    name: str
    place: str = ""
    missed: bool = False
    count: int = 1


def compilations(records: Iterable[trace.Record]) -> list[Event]:
    """When graphs were captured and compiled, and when the C++ compiler ran: each such record was
    made at the end of what it tells of."""
    found = []
    for record in records:
        facts, stage = record.facts, record.stage
        unit = str(facts.get("unit", ""))
        if stage == "dynamo" and "milliseconds" in facts:
            spent, kind, name = facts["milliseconds"], "capture", unit
        elif stage == "inductor" and "stages" in facts:
            stages = facts["stages"]
            spent = stages.get("all") or sum(stages.values())
            kind = "compile"
            name = f"{unit} backward" if record.name.endswith(" backward") else unit
        elif stage == "cpp_openmp" and "compiler" in facts and "ms" in facts:
            spent, kind, name = facts["ms"], "build", str(facts["compiler"]).split(" ")[0]
        else:
            continue
        found.append(Event(record.time_ns - int(1e6 * spent), record.time_ns, kind, name))
    return found


def timeline(
    calls: Calls, compiled: Sequence[Event] = (), begun: int = 0, wall: int = 0, program: str = ""
) -> dict[str, Any]:
    """Events as (start, end, depth, kind, name, place, missed, count), nanoseconds from `begun` (0:
    from the first event); `name` and `place` count in `names` and `places` (-1: none)."""
    made = [
        Event(c.start, max(c.start, c.end), _kind(c.kind, c.route), c.operator, c.where,
              c.hit is False)
        for c in calls.everything
    ]  # fmt: skip
    made += compiled
    first = min((e.start for e in made), default=0)
    begun = begun if 0 < begun <= first else first
    wall = max([wall, *(e.end - begun for e in made)])
    whole = Event(begun, begun + wall, "script", program)
    rows = _merged(_nested([whole, *made]))
    names: dict[str, int] = {}
    places: dict[str, int] = {"": -1}
    events = [
        (e.start - begun, e.end - begun, depth, e.kind, names.setdefault(e.name, len(names)),
         places.setdefault(e.place, len(places) - 1), int(e.missed), e.count)
        for e, depth in rows
    ]  # fmt: skip
    return {"events": events, "names": list(names), "places": list(places)[1:], "wall": wall}


Nested = list[tuple[Event, int, int]]  # event, depth, index of the one around it (-1: none)


def _nested(events: Iterable[Event]) -> Nested:
    """In the order of their starts, each with the innermost one that it began in."""
    found: Nested = []
    around: list[int] = []
    for e in sorted(events, key=lambda e: (e.start, -e.end)):
        while around and found[around[-1]][0].end <= e.start and len(around) > 1:
            around.pop()
        found.append((e, len(around), around[-1] if around else -1))
        around.append(len(found) - 1)
    return found


def _merged(rows: Nested) -> list[tuple[Event, int]]:
    """At most EVENTS: short ones that follow each other inside one event become one, and what they
    called is part of them."""
    if len(rows) <= EVENTS:
        return [(e, depth) for e, depth, _ in rows]
    lengths = sorted((e.end - e.start for e, _, _ in rows), reverse=True)
    least = max(1, lengths[EVENTS // 2])
    while True:
        found = _merged_below(rows, least)
        if len(found) <= EVENTS:
            return found
        least *= 2


def _merged_below(rows: Nested, least: int) -> list[tuple[Event, int]]:
    kept: list[tuple[Event, int]] = []
    short = [e.end - e.start < least for e, _, _ in rows]
    last: dict[int, int] = {}  # event around -> place in `kept` of the run that is going on in it
    kinds: dict[int, Counter[str]] = {}
    for i, (e, depth, around) in enumerate(rows):
        if not short[i]:
            last.pop(around, None)
            kept.append((e, depth))
            continue
        if around >= 0 and short[around]:
            continue
        at = last.get(around)
        if at is not None and e.start - kept[at][0].end <= least:
            run = kept[at][0]
            kinds[at][e.kind] += e.end - e.start + 1
            kept[at] = (run._replace(end=max(run.end, e.end), count=run.count + 1,
                                     kind=kinds[at].most_common(1)[0][0]), depth)  # fmt: skip
        else:
            last[around] = len(kept)
            kinds[len(kept)] = Counter({e.kind: e.end - e.start + 1})
            kept.append((e, depth))
    return kept


def _kind(kind: str, route: str) -> str:
    return kind if kind in ("compiled", "graph", "fused") else route
