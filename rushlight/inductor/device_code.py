"""Lowered groups -> machine code of a GPU, through Triton. What `codegen` and the C++ compiler are
on the CPU.

A kernel whose sizes and strides are known has them as constants, in one form chosen for them. Where
some vary, it gets the form that suits the sizes first seen, and one that takes anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.errors import CompilerBug
from rushlight.loops import triton_forms
from rushlight.reasons import refuse
from rushlight.runtime import triton

from . import device_loops
from .groups import Group
from .lowering import Lowered


class DeviceCode(NamedTuple):
    """A kernel record of docs/gpu.md, without images, and the source of each of its launches."""

    record: dict
    sources: list[Any]


def write(group: Group, low: Lowered) -> DeviceCode:
    """Raises NotImplementedError for what cannot be said in Triton."""
    numbers = device_loops.numbers_of(group, low)
    facts = {"key": low.kernel.name, "cost": low.cost, "origin": low.origin}
    if numbers is None:
        return DeviceCode(*triton_forms.record(low.kernel, **facts))
    if numbers.known:
        return DeviceCode(*triton_forms.record(low.kernel, numbers.values, **facts))
    return DeviceCode(*triton_forms.record(low.kernel, likely=numbers.values, **facts))


class Built(NamedTuple):
    """The different codes, and (record, images) of each group that has a kernel, by its index."""

    codes: list[DeviceCode]
    kernels: dict[int, tuple[dict, list[bytes]]]


def write_groups(
    groups: list[tuple[Group, Lowered]],
) -> tuple[list[DeviceCode], dict[int, int]]:
    """(the different codes, which of them a group runs). Groups that share their loops and their
    numbers share their code; a group that has none is left out, with the reason."""
    codes: list[DeviceCode] = []
    places: dict[tuple, int | None] = {}
    chosen = {}
    for group, low in groups:
        numbers = device_loops.numbers_of(group, low)
        same = (id(low.kernel), None if numbers is None else (*numbers.values, numbers.known))
        if same not in places:
            places[same] = None
            try:
                code = write(group, low)
            except NotImplementedError as error:
                refuse("fallback.no_definition", group.name, str(error))
            else:
                places[same] = len(codes)
                codes.append(code)
        place = places[same]
        if place is not None:
            chosen[group.index] = place
    return codes, chosen


def build_groups(groups: list[tuple[Group, Lowered]], capability: int) -> Built:
    """Raises NoTriton; what Triton refuses is left out, with the reason."""
    codes, chosen = write_groups(groups)
    try:
        built: list[Any] = triton.build_all([(c.record, c.sources) for c in codes], capability)
    except CompilerBug:  # one of them: find out which, the others are kept
        built = [alone(code, capability) for code in codes]
    return Built(codes, {i: built[k] for i, k in chosen.items() if built[k] is not None})


def alone(code: DeviceCode, capability: int) -> tuple[dict, list[bytes]] | None:
    try:
        return triton.build(*code, capability)
    except CompilerBug:
        return None
