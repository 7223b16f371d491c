"""Where the lines of an artifact come from, read off their text.

An origin is a chain of links, the user's line first: `model.py:8`, `gelu ops/pointwise.py:480`.
Emitters write the chain behind the line, after `//` or `#`; here it is taken off again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rushlight import trace

Origins = dict[int, tuple[str, ...]]

_LINK = r"(?:[\w ]+ )?[^\s>]+\.py:\d+"
_CHAIN = re.compile(rf"\s*(?://|#) ({_LINK}(?: > {_LINK})*)$")
_PLACE = re.compile(r"[^\s>]+:\d+")
_USER = re.compile(r"[^\s>]+:\d+|/.*:\d+")  # a whole path may have spaces
_MADE = re.compile(r"\s+(\w+(?:, \w+)*)(?:: [^=]+)? = ")


def split_origins(text: str) -> tuple[str, Origins]:
    """Lines that end in `// add ops/pointwise.py:21` -> the text without these, and the origins by
    line."""
    lines: list[str] = []
    origins: Origins = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _CHAIN.search(line)
        if found and not line.lstrip().startswith(("//", "#")):
            origins[number] = tuple(found[1].split(" > "))
            line = line[: found.start()]
        lines.append(line)
    return "\n".join(lines) + "\n", origins


def short(chain: Iterable[str]) -> tuple[str, ...]:
    """The chain with the user's file by its short name."""
    links = tuple(chain)
    first = links[:1] if links and _USER.fullmatch(links[0]) else ()
    return (*map(trace.short_place, first), *links[len(first) :])


def user_lines(chain: Sequence[str]) -> list[str]:
    """The first link, where it is a place and nothing else: `model.py:8`, not `gelu
    ops/pointwise.py:480`."""
    return [link for link in chain[:1] if _PLACE.fullmatch(link)]


def variables(kind: str, text: str) -> dict[int, list[str]]:
    """Line of a printed graph or wrapper -> the variables that it makes."""
    if kind not in ("graph", "python"):
        return {}
    found = {}
    for number, row in enumerate(text.splitlines(), 1):
        made = _MADE.match(row)
        if made:
            found[number] = made[1].split(", ")
    return found


def spans(text: str, starts: dict[str, str]) -> list[tuple[int, int, str]]:
    """(first line, last line, name) of each part of a file. `starts`: a text that a part's first
    line holds -> its name."""
    found: list[tuple[int, int, str]] = []
    rows = text.splitlines()
    for number, row in enumerate(rows, 1):
        name = next((n for start, n in starts.items() if _holds(row, start)), None)
        if name is not None and (not found or found[-1][2] != name):
            if found:
                found[-1] = (found[-1][0], number - 1, found[-1][2])
            found.append((number, len(rows), name))
    return found


def _holds(row: str, start: str) -> bool:
    """`fused_add_1` stands in the row as a whole name, not as the beginning of `fused_add_12`."""
    at = row.find(start)
    after = row[at + len(start) : at + len(start) + 1]
    return at >= 0 and not (after.isalnum() or after == "_")
