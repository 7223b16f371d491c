"""Where kernels come from: a kernel's key -> its declaration, its loops, its C++, and what is known
of it.

Sources are trace records of a run, or what the package was built with: then the declaration is
lowered again, only as far as the kernel that is asked for. Invariant: the C++ shown is what was
compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rushlight import trace


class View(NamedTuple):
    """One form of a kernel. `origins`: line -> where it came from."""

    title: str
    language: str
    text: str
    origins: Mapping[int, tuple[str, ...]] | None = None


class Sources:
    """Sources and facts of kernels: from trace records of this run, else from what the package was
    built with."""

    def __init__(self, records: list[trace.Record]) -> None:
        self._records = {r.name: r for r in records if r.kind == "cpp" and r.text}

    def find(self, key: str) -> list[View]:
        """How a kernel came about: declaration, loops, C++. KeyError where neither a record nor the
        package has it."""
        record = self._records.get(key)
        if record is not None:
            return [View("Generated C++", "cpp", record.text, record.sourcemap)]
        import inspect

        from rushlight.loops import cpp
        from rushlight.loops.expr import show
        from rushlight.report.origins import split_origins

        op, kernel = _precompiled(key)
        declared = op.source or op
        how = (
            f"Derived from the declaration at {op.where}"
            if op.source
            else f"Declared at {op.where}"
        )
        return [
            View(how, "python", inspect.getsource(declared.body)),
            View("Its loops", "python", show(kernel)),
            View(
                "The C++ generated from them", "cpp", *split_origins(cpp.function(kernel, "kernel"))
            ),
        ]

    def facts(self, key: str) -> dict[str, Any]:
        from rushlight import _core  # type: ignore[attr-defined]

        record = self._records.get(key)
        if record is not None:
            return dict(record.facts)
        entry = _core.kernel_find(key)
        return _kernel_facts(entry) if entry is not None else {}


def _precompiled(key: str) -> tuple[Any, Any]:
    """Declaration and loop IR of a kernel of the library, which is lowered only as far as needed.
    KeyError where there is none."""
    global _lowering
    if _lowering is None:
        from rushlight.loops import library

        _lowering = library.kernels()
    while key not in _lowered:
        op, kernel = next(_lowering, (None, None))
        if kernel is None:
            raise KeyError(key)
        _lowered[kernel.name] = (op, kernel)
    return _lowered[key]


_lowering: Iterator[Any] | None = None
_lowered: dict[str, tuple[Any, Any]] = {}


def _kernel_facts(entry: Any) -> dict[str, Any]:
    names = ("origin", "outer", "inner", "cost")
    if isinstance(entry, Mapping):
        return {name: entry[name] for name in names if name in entry}
    return {name: getattr(entry, name) for name in names if hasattr(entry, name)}


def declarations() -> list[tuple[str, str, str, str, str]]:
    """Every declared operator: name, kind of definition, derivative, where it stands, schema."""
    import rushlight.ops  # noqa: F401  (declares them)
    from rushlight.ops.values import TABLE

    rows = []
    for name, op in sorted(TABLE.items()):
        rule = op.rule if isinstance(op.rule, str) else "none" if op.rule is None else "written"
        rows.append((name, op.kind, rule, op.where, op.schema.text))
    return rows
