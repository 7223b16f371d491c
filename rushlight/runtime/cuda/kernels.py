"""Kernel key and device -> a kernel of the GPU: from a pack, or built on the spot by whoever
registered as builder.

A key is that of the CPU's kernel library. What a pack lacks is built once a process and kept; what
cannot be built is None, with a reason, and its operator runs on the host.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from rushlight import _core
from rushlight.reasons import refuse

from .pack import BadPack, Pack

PACKAGE = "rushlight_kernels_cuda"  # beside the main one

# (key, capability as 90) -> (record, images), or None; raises Unsupported without a compiler.
Builder = Callable[[str, int], "tuple[dict, list[bytes]] | None"]

builder: Builder | None = None
packs: dict[int, list[Pack]] = {}  # by capability
kernels: dict[tuple[str, int], Any] = {}


def set_builder(build: Builder | None) -> None:
    """What makes a kernel that no pack has. Forgets what was found so far."""
    global builder
    builder = build
    forget()


def forget() -> None:
    kernels.clear()
    packs.clear()
    _core.cuda_set_finder(find)


def find(key: str, device: int) -> Any:
    """A `_core.DeviceKernel`, or None where there is none."""
    told = _core.cuda_properties(device)
    capability = 10 * told["major"] + told["minor"]
    place = (key, capability)
    if place not in kernels:
        kernels[place] = made(key, capability)
    return kernels[place]


def made(key: str, capability: int) -> Any:
    for pack in available(capability):
        if key in pack:
            return _core.DeviceKernel(*pack[key])
    if builder is None:
        return None
    built = builder(key, capability)
    return None if built is None else _core.DeviceKernel(*built)


def available(capability: int) -> list[Pack]:
    """The packs whose kernels run there: the same major version, none newer; the closest first."""
    if capability not in packs:
        found = []
        for path in paths(capability):
            try:
                found.append(Pack(path))
            except (BadPack, OSError) as error:
                refuse("cuda.bad_pack", path, str(error), "Write it anew: rushlight prebuild.")
        packs[capability] = sorted(found, key=lambda p: -p.target)
    return packs[capability]


def paths(capability: int) -> list[str]:
    folders = [f for f in os.environ.get("RUSHLIGHT_CUDA_KERNELS", "").split(os.pathsep) if f]
    spec = importlib.util.find_spec(PACKAGE)
    if spec:
        folders += spec.submodule_search_locations or ()
    folders.append(os.path.join(os.path.dirname(_core.__file__), "lib"))
    major = capability // 10
    names = [f"kernels_sm{major}{minor}.pack" for minor in range(capability % 10, -1, -1)]
    found = []
    for folder in folders:
        tried = [folder] if os.path.isfile(folder) else [os.path.join(folder, n) for n in names]
        found += [path for path in tried if os.path.exists(path)]
    return found
