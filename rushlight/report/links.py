"""What became of each node of a captured graph: the kernels that it reaches, or why there are none.

A node is followed by the line that called it and the operator that was called there: both stand in
the origins of whatever it becomes, while its name is lost where operators are rewritten. Invariant:
every node of a capture that compiled graphs came of either reaches a step of one of them or has a
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rushlight.report.captures import Artifact, Capture

Key = tuple[str, str]  # the user's line, the operator called there

_CAPTURED = re.compile(r"\s+\w+(?:: \"[^\"]*\")? = (?:\w+\.)*_?(\w+?)(?:_\d+)?\(")
_OPERATOR = re.compile(r"\s+\w+: [^=]+ = ops\.(\w+)\(")


def eliminated(capture: Capture) -> dict[str, str]:
    """Node -> why no kernel and no library routine is behind it."""
    if not capture.graphs:
        return {}
    reached = {key for g in capture.graphs for s in g.steps for key in map(key_of, s.origins)}
    absorbed = {key_of(a.origins): a.why for g in capture.graphs for a in g.absorbed}
    later = [(a.title, keys) for a in graphs_of(capture) if (keys := set(operators_of(a)))]
    known = set().union(*(keys for _, keys in later))
    found = {}
    for name, line, operator in captured_nodes(capture):
        key = (line, operator)
        if key not in known:  # it has another name further down, or none
            if any(line == at for at, _ in reached):
                continue
            told = (why for (at, _), why in absorbed.items() if at == line)
            found[name] = next(told, "it is no operator: a number, a size or a mode")
        elif key not in reached:
            found[name] = absorbed.get(key) or gone(key, later)
    return found


def gone(key: Key, later: Sequence[tuple[str, set[Key]]]) -> str:
    last = max(i for i, (_, keys) in enumerate(later) if key in keys)
    after = later[last + 1][0].split(", ")[0] if last + 1 < len(later) else "the last pass"
    return f"gone in {after}: no result needs it, or another operator gives the same"


def key_of(chain: str | Sequence[str]) -> Key:
    """Of `model.py:8 > linear ops/matrix.py:47 > addmm ops/matrix.py:90`: the line and `linear`."""
    links = chain.split(" > ") if isinstance(chain, str) else list(chain)
    operator = links[1].rpartition(" ")[0] if len(links) > 1 else ""
    return links[0], operator


def graphs_of(capture: Capture) -> list[Artifact]:
    """Every graph of operators that it went through, in order."""
    made = [*capture.artifacts, *(a for g in capture.graphs for a in g.artifacts)]
    return sorted((a for a in made if a.language == "graph"), key=lambda a: int(a.id[1:]))


def operators_of(artifact: Artifact) -> Iterator[Key]:
    for number, row in enumerate(artifact.text.splitlines(), 1):
        made, chain = _OPERATOR.match(row), artifact.origins.get(number, ())
        if made and chain:
            yield (chain[0], made[1]) if len(chain) == 1 else key_of(chain)


def captured_nodes(capture: Capture) -> Iterator[tuple[str, str, str]]:
    """(node, the user's line, operator) of each call of the captured graph."""
    for artifact in capture.artifacts:
        if artifact.stage != "fx_graph" or "ops." in artifact.text:
            continue
        for number, row in enumerate(artifact.text.splitlines(), 1):
            called, chain = _CAPTURED.match(row), artifact.origins.get(number, ())
            for name in artifact.makes.get(number, ()) if called and chain else ():
                yield name, chain[0], called[1]  # type: ignore[index]


