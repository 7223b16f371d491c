"""What a compiled function became: its graphs, guards, breaks and bytecode, as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import convert
from .entry import compile


class Explanation:
    """Of one run: `graphs`, `breaks` (reason and count), `guards`, `result`; printed, all of it."""

    def __init__(self, records: list, breaks: list, result: Any) -> None:
        self.records, self.breaks, self.result = records, breaks, result

    @property
    def entries(self) -> list[tuple[Any, Any]]:
        """(record, entry) of every capture, in order."""
        return [(r, e) for r in self.records for e in r.entries]

    @property
    def graphs(self) -> list[Any]:
        return [e.module for _, e in self.entries if e.module is not None]

    @property
    def guards(self) -> list[Any]:
        return [g for _, e in self.entries for g in e.guards]

    def __str__(self) -> str:
        operators = sum(len(g.graph.calls) for g in self.graphs)
        rows = [
            f"{len(self.graphs)} graphs, {operators} operator calls, {len(self.breaks)} breaks, "
            f"{len(self.guards)} guards"
        ]
        for count, reason in self.breaks:
            rows.append(f"break ({count} times): {reason} [{reason.id}]")
            rows += [f"    at {place}" for place in reversed(reason.stack)]
            if reason.hint:
                rows.append(f"    hint: {reason.hint}")
        for record, entry in self.entries:
            rows += ["", f"---- {record.function.__qualname__}"]
            rows.append(convert.listing(record.function.__code__, entry))
            rows += [f"guard: {g!r}" for g in entry.guards]
            if entry.module is not None:
                rows.append(entry.module.code)
        return "\n".join(rows)

    __repr__ = __str__


def explain(fn: Callable[..., Any], **options: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` compiles and runs fn anew, and tells what became of it."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        before = set(convert.COMPILED)
        told = {k: v[0] for k, v in convert.BREAKS.items()}
        compiled = compile(fn, backend="eager", **options)
        result = compiled(*args, **kwargs)
        records = [r for k, r in sorted(convert.COMPILED.items()) if k not in before]
        records.sort(key=lambda r: r.number)
        breaks = [
            (count - told.get(k, 0), reason)
            for k, (count, reason) in convert.BREAKS.items()
            if count > told.get(k, 0)
        ]
        return Explanation(records, breaks, result)

    return run
