"""Numbers in words: nanoseconds, bytes and counts -> short text, the same in every report."""

from __future__ import annotations

import re

from rushlight import trace


def ns(value: float) -> str:
    """Three significant digits with a unit: 850 ns, 12.3 us, 4.07 ms, 1.20 s."""
    for unit, size in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if value < size * 999.5:
            return f"{round(value)} ns" if unit == "ns" else f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e9)} s"


def bytes_(value: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if value < 999.5:
            return f"{round(value)} bytes" if unit == "bytes" else f"{_three(value)} {unit}"
        value /= 1000
    return f"{_three(value)} GB"


def rate(amount: float, nanoseconds: float, unit: str) -> str:
    """Amount per second in thousand millions: 12.3 GB/s."""
    return f"{_three(amount / nanoseconds)} G{unit}/s" if nanoseconds else ""


def count(n: int, word: str) -> str:
    if n != 1:
        word = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{n:,} {word}"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def short_path(where: str) -> str:
    """A place as all reports name it: the file by its short name (trace.short_path) and the line,
    `model.py:12`, whatever function it is in."""
    found = re.match(r".*?:\d+(?= in |$)", where.partition("\n")[0])
    return trace.short_place(found[0]) if found else where
