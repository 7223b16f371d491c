"""Settings: one typed table, read once from the environment.

Takes the environment; gives `flags`, one object with a typed attribute a setting, and `describe()`,
the same as text. Only what says where tools and libraries lie is read elsewhere, by what looks for
them (docs/settings.md). Invariant: a setting that changes generated code says so (`changes_code`),
which puts it into the key of the artifact cache through `code_key()`.

    from rushlight import config
    if config.flags.compile_debug: ...
    with config.changed(logs="plans"): ...
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """`native`: the native runtime reads the variable itself while it loads, so that changing the
    attribute later has no effect."""

    name: str
    env: str
    default: Any  # its type is the setting's
    doc: str
    changes_code: bool = False
    native: bool = False


# fmt: off
SETTINGS = (
    Setting("logs", "RUSHLIGHT_LOGS", "",
        "Comma-separated names of what to log to stderr; 'help' lists the names."),
    Setting("compile_debug", "RUSHLIGHT_COMPILE_DEBUG", False,
        "Write every artifact of every stage to a folder (see debug_dir)."),
    Setting("debug_dir", "RUSHLIGHT_DEBUG_DIR", "rushlight_debug",
        "Where compile_debug puts its folders, one a process."),
    Setting("nvtx", "RUSHLIGHT_NVTX", False,
        "Ranges of NVTX for the thread that imports Rushlight (see docs/nsight.md)."),
    Setting("strict", "RUSHLIGHT_STRICT", False,
        "Raise where a stage, artifact kind or reason id is not in its registry."),
    Setting("cache_dir", "RUSHLIGHT_CACHE_DIR", "",
        "Folder of compiled artifacts; empty: ~/.cache/rushlight."),
    Setting("recompile_limit", "RUSHLIGHT_RECOMPILE_LIMIT", 8,
        "How many captures of one function are kept before its calls run in eager mode."),
    Setting("compile_disable", "RUSHLIGHT_COMPILE_DISABLE", False,
        "compile() gives back what it was given, so that the program runs in eager mode."),
    Setting("isa", "RUSHLIGHT_ISA", "",
        "Instruction set of the precompiled kernels: v2, v3 or v4; empty: the best this CPU has.",
        changes_code=True, native=True),
)
# fmt: on


class Flags:
    """One attribute a setting, as SETTINGS lists them."""

    __slots__ = (
        "logs", "compile_debug", "debug_dir", "nvtx", "strict", "cache_dir", "recompile_limit",
        "compile_disable", "isa",
    )  # fmt: skip
    logs: str
    compile_debug: bool
    debug_dir: str
    nvtx: bool
    strict: bool
    cache_dir: str
    recompile_limit: int
    compile_disable: bool
    isa: str

    def __init__(self, **values: Any) -> None:
        for setting in SETTINGS:
            setattr(self, setting.name, values.get(setting.name, setting.default))


def read(environ: Mapping[str, str]) -> Flags:
    """The settings that an environment asks for. Raises ValueError where a value has the wrong
    form."""
    given = [s for s in SETTINGS if s.env in environ]
    return Flags(**{s.name: _parse(s.env, environ[s.env], type(s.default)) for s in given})


_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


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
    return tuple((s.name, getattr(flags, s.name)) for s in SETTINGS if s.changes_code)


def describe() -> str:
    """Every setting: its value now, its default, its environment variable, what it does."""
    lines = []
    for setting in SETTINGS:
        value = getattr(flags, setting.name)
        mark = "" if value == setting.default else f"   (default {setting.default!r})"
        lines.append(f"{setting.name} = {value!r}{mark}")
        lines.append(f"    {setting.env}: {setting.doc}")
        if setting.native:
            lines.append("    Read by the native runtime when it loads.")
        if setting.changes_code:
            lines.append("    Part of the artifact cache's key.")
    return "\n".join(lines)
