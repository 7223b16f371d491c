"""The runner of passes: names, times, verifies and records each, and can leave them out.

A pass is `verb_noun(graph) -> Graph`: pure, and named for what it does. A room's passes stand in
order in its `pipeline.py`, as a tuple that `run_passes` reads from left to right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from rushlight import trace
from rushlight.errors import CompilerBug

from .graph import Graph
from .printing import source_map

Pass = Callable[[Graph], Graph]


class Settings:
    """What the runner leaves out and checks. `limit`: how many passes run at all, counted over
    everything since it was set; the others are left out (for bisecting). `instead`: what a lowering
    calls with (graph, ends, frozen), and gives back, where no graph is to be lowered. `also`: what
    it calls with (graph, label) once that is compiled."""

    def __init__(self) -> None:
        self.disabled: frozenset[str] = frozenset()
        self.limit: int | None = None
        self.verify = False
        self.instead: Callable | None = None
        self.also: Callable | None = None
        self.ran: list[str] = []

    def takes(self, name: str) -> bool:
        if name in self.disabled or self.limit is not None and len(self.ran) >= self.limit:
            return False
        self.ran.append(name)
        return True


settings = Settings()


@contextmanager
def changed(
    disabled: Iterable[str] = (),
    limit: int | None = None,
    verify: bool = True,
    instead: Callable | None = None,
    also: Callable | None = None,
) -> Iterator[Settings]:
    """Other settings for the length of a `with` block."""
    global settings
    before, settings = settings, Settings()
    settings.disabled, settings.limit, settings.verify = frozenset(disabled), limit, verify
    settings.instead, settings.also = instead, also
    try:
        yield settings
    finally:
        settings = before


def left_out(name: str) -> bool:
    """Whether a step that is no pass (of a lowering) is switched off."""
    return name in settings.disabled


def run_passes(graph: Graph, passes: Iterable[Pass], stage: str = "pass") -> Graph:
    """Each pass in turn. In a `changed(verify=True)` block every result is verified, and a
    failure names its pass."""
    for one in passes:
        name = one.__name__
        if not settings.takes(name):
            continue
        trace.doing(name)
        start = time.perf_counter()
        made = one(graph)
        took = 1e3 * (time.perf_counter() - start)
        if made is not graph or not graph.made_by:
            graph = replace(made, made_by=name, milliseconds=took)
        if settings.verify:
            try:
                graph.verify()
            except CompilerBug as error:
                error.add_note(f"after the pass {name}")
                raise
        record(graph, stage, name, took)
    return graph


def record(graph: Graph, stage: str, name: str, took: float = 0.0) -> None:
    if trace.listeners:
        trace.emit(
            stage,
            name,
            graph.print,
            partial(source_map, graph),
            kind="graph",
            ms=round(took, 3),
            nodes=len(graph.calls),
        )


def bisect(compile: Callable[[], object], fails: Callable[[object], bool]) -> str | None:
    """The pass that brings a failure in: `compile()` is run under growing limits,
    `fails(result)` judges. None where nothing fails with all passes on. Raises ValueError where
    it fails without any."""

    def broken(limit: int | None) -> bool:
        with changed(limit=limit, verify=False) as now:
            result = fails(compile())
            names[:] = now.ran
            return result

    names: list[str] = []
    if not broken(None):
        return None
    all_names, low = list(names), 0
    if broken(0):
        raise ValueError("[fx.bisect] it fails with every pass left out")
    high = len(all_names)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if broken(middle) else (middle, high)
    return all_names[high - 1]
