"""cuBLASLt's choices of algorithms, kept beside the programs of the artifact cache: a second
process that computes the same products asks the library's heuristics for nothing.

One file a kind of GPU: its name, capability and processors (a part of a card has fewer). The
library's version is in each choice's question; those of another version answer nothing.
"""

from __future__ import annotations

import atexit
from typing import Any

from rushlight import _core
from rushlight.runtime import cache

FORMAT = 1  # goes up where the bytes change meaning (csrc/rt/cublas_choices.h)
learned: dict[int, int] = {}  # device -> choices that this process had made when it last kept them


def name_of(device: int) -> str:
    told: dict[str, Any] = _core.cuda_properties(device)
    card = [told[k] for k in ("name", "major", "minor", "multi_processor_count")]
    return cache.digest(repr(("choices of cuBLASLt", FORMAT, *card)))[:40]


def learn(device: int) -> None:
    """Once a process, for a device whose programs are kept: what earlier processes found out. What
    this one finds out is kept when it ends."""
    if device in learned:
        return
    if not learned:
        atexit.register(keep)
    learned[device] = 0
    folder = cache.trusted_folder()
    content = cache.kept(folder, name_of(device)) if folder is not None else None
    if content is not None:
        _core.cuda_product_choices(device, content)


def keep() -> None:
    """Where this process asked for choices. Those that others have kept since are kept, too."""
    for device, before in learned.items():
        _, asked = _core.cuda_product_choices(device)
        folder = cache.trusted_folder() if asked > before else None
        if folder is None:
            continue
        learned[device] = asked
        name = name_of(device)
        if (others := cache.kept(folder, name)) is not None:
            _core.cuda_product_choices(device, others)
        content, _ = _core.cuda_product_choices(device)
        cache.keep(folder, name, content, "choices of cuBLASLt")
