"""Settings: one typed table, read once from the environment.

Takes the environment; gives `flags`, one object with a typed attribute a setting, and `describe()`,
the same as text. Invariant: nothing else in the package reads `os.environ` for its behaviour, and a
setting that changes generated code says so (`changes_code`), which puts it into the key of the
artifact cache through `code_key()`.

    from rushlight import config
    if config.flags.compile_debug: ...
    with config.changed(logs="plans"): ...
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


def flag(
    env: str, default: Any, doc: str, *, changes_code: bool = False, native: bool = False
) -> Any:
    """A setting: environment variable, default, one sentence. `native`: the native runtime reads
    the variable itself while it loads, so that changing the attribute later has no effect."""
    facts = {"env": env, "doc": doc, "changes_code": changes_code, "native": native}
    return dataclasses.field(default=default, metadata=facts)


@dataclass(slots=True)
class Flags:
    logs: str = flag(
        "RUSHLIGHT_LOGS",
        "",
        "Comma-separated names of what to log to stderr; 'help' lists the names.",
    )
    compile_debug: bool = flag(
        "RUSHLIGHT_COMPILE_DEBUG",
        False,
        "Write every artifact of every stage to a folder (see debug_dir).",
    )
    debug_dir: str = flag(
        "RUSHLIGHT_DEBUG_DIR",
        "rushlight_debug",
        "Where compile_debug puts its folders, one a process.",
    )
    strict: bool = flag(
        "RUSHLIGHT_STRICT",
        False,
        "Raise where a stage, artifact kind or reason id is not in its registry.",
    )
    cache_dir: str = flag(
        "RUSHLIGHT_CACHE_DIR", "", "Folder of compiled artifacts; empty: ~/.cache/rushlight."
    )
    isa: str = flag(
        "RUSHLIGHT_ISA",
        "",
        "Instruction set of the precompiled kernels; empty: the best this CPU has.",
        changes_code=True,
        native=True,
    )


def read(environ: Mapping[str, str]) -> Flags:
    """The settings that an environment asks for. Raises ValueError where a value has the wrong
    form."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Flags):
        env = field.metadata["env"]
        if env in environ:
            values[field.name] = _parse(env, environ[env], type(field.default))
    return Flags(**values)


def _parse(env: str, text: str, kind: type) -> Any:
    if kind is str:
        return text.strip()
    if kind is bool:
        word = text.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError(
            f"{env}: expected 1 or 0 (also true, false, yes, no, on, off), got {text!r}"
        )
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{env}: expected {kind.__name__}, got {text!r}") from None


flags = read(os.environ)


@contextmanager
def changed(**values: Any) -> Iterator[Flags]:
    """Settings changed for the length of a `with` block; raises AttributeError for an unknown
    name."""
    before = {name: getattr(flags, name) for name in values}
    for name, value in values.items():
        setattr(flags, name, value)
    try:
        yield flags
    finally:
        for name, value in before.items():
            setattr(flags, name, value)


def code_key() -> tuple[tuple[str, Any], ...]:
    """The settings that change generated code, for the key of the artifact cache."""
    fields = dataclasses.fields(Flags)
    return tuple((f.name, getattr(flags, f.name)) for f in fields if f.metadata["changes_code"])


def describe() -> str:
    """Every setting: its value now, its default, its environment variable, what it does."""
    lines = []
    for field in dataclasses.fields(Flags):
        value, facts = getattr(flags, field.name), field.metadata
        mark = "" if value == field.default else f"   (default {field.default!r})"
        lines.append(f"{field.name} = {value!r}{mark}")
        lines.append(f"    {facts['env']}: {facts['doc']}")
        if facts["native"]:
            lines.append("    Read by the native runtime when it loads.")
        if facts["changes_code"]:
            lines.append("    Part of the artifact cache's key.")
    return "\n".join(lines)
