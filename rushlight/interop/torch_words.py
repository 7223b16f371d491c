"""Names of PyTorch's operators, for the page's model graph.

Takes the texts of printed graphs; gives, for each operator as it is written there, whether it is in
Core ATen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_OPERATOR = re.compile(r"torch\.ops\.([a-z_]+)\.(\w+)\.(\w+)")


def vocabulary(texts: Iterable[str]) -> dict[str, str]:
    """'torch.ops.aten.addmm.default' -> 'core'. What has no tag is left out."""
    import torch

    found = {match for text in texts for match in _OPERATOR.findall(text)}
    made: dict[str, str] = {}
    for space, name, overload in found:
        packet = getattr(getattr(torch.ops, space, None), name, None)
        operator = getattr(packet, overload, None)
        if operator is not None and torch.Tag.core in getattr(operator, "tags", ()):
            made[f"torch.ops.{space}.{name}.{overload}"] = "core"
    return made
