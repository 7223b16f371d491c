"""`torch.__version__` as programs compare it: a text that is ordered as a version is.

`TorchVersion("2.13.0") > "2.9"` and `>= (2, 0)`, which a plain text gets wrong or refuses. What
reads as no version is compared as text.
"""

from __future__ import annotations

import re
from typing import Any

PARTS = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<kind>a|b|rc|c|alpha|beta|pre|preview)[-_.]?(?P<pre>\d*))?"
    r"(?:-(?P<short>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<of>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
KINDS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def key(text: str) -> tuple[Any, ...] | None:
    """What Python's versions are ordered by (PEP 440); None for a text that is none."""
    found = PARTS.fullmatch(text.strip())
    if found is None:
        return None
    part = found.groupdict()
    release = [int(n) for n in part["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    post = part["short"] or (part["number"] or "0" if part["post"] else None)
    dev = int(part["of"] or 0) if part["dev"] else float("inf")
    if part["kind"]:
        kind = part["kind"].lower()
        before = KINDS.get(kind, kind), int(part["pre"] or 0)
    else:  # a development version alone stands before all, a release after its candidates
        before = ("" if part["dev"] and post is None else "~"), 0
    words = re.split(r"[-_.]", (part["local"] or "").lower())
    local = [(1, int(w), "") if w.isdigit() else (0, 0, w) for w in words if w]
    order = -1 if post is None else int(post)
    return int(part["epoch"] or 0), release, before, order, dev, local


class TorchVersion(str):
    """A version's text. It is compared with texts, `packaging`'s versions, and tuples or lists of
    their parts."""

    __slots__ = ()

    def compared(self, other: Any) -> tuple[Any, Any]:
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        elif not isinstance(other, str) and type(other).__name__ != "Version":
            raise ValueError(f"[version] {other!r} is no version to compare {self} with")
        mine, its = key(str(self)), key(str(other))
        return (str(self), str(other)) if mine is None or its is None else (mine, its)

    def __lt__(self, other: Any) -> bool:
        a, b = self.compared(other)
        return bool(a < b)

    def __le__(self, other: Any) -> bool:
        a, b = self.compared(other)
        return bool(a <= b)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (str, tuple, list)) and type(other).__name__ != "Version":
            return False
        a, b = self.compared(other)
        return bool(a == b)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
