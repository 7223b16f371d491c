"""One operator call on its way down: validate, promote, plan, allocate, dispatch, then what ran.

Takes the calls and optionally an operator's name; gives `WayDown` for a long call of that operator
(or of the one with the largest self time), each stage with the values it had. Invariant: a sentence
says only what the record holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rushlight.report import table
from rushlight.report.records import Call, Calls, Layout
from rushlight.report.words import bytes_, ns, rate

_DEVICES = {"cpu": "CPU", "gpu": "NVIDIA GPU"}


@dataclass(slots=True)
class Descent:
    stage: str  # id of rushlight/trace.py
    sentence: str


@dataclass(slots=True)
class WayDown:
    operator: str
    chain: list[str]  # the operators that led to it, outermost first, and what ran last
    where: str
    ns: int
    calls: int  # of this operator in the run; of a part: in the call it is part of
    stages: list[Descent]
    parts: list[WayDown]  # of a composition: the calls it made, one of each operator


def way_down(
    calls: Calls, device: str, operator: str | None = None, stopped: bool = False
) -> WayDown | None:
    """None when there are no calls; KeyError for an operator that was not called. With `stopped`,
    the last call if it was refused."""
    if not calls:
        if operator is not None:
            raise KeyError(operator)
        return None
    if operator is None and stopped and calls[-1].failed:
        return _descend(calls[-1], 1, calls, device)
    if operator is None:
        operator = table.operators(calls)[0].operator
    same = [call for call in calls if call.operator == operator]
    if not same:
        raise KeyError(operator)
    return _descend(_typical(same), len(same), calls, device)


def _typical(same: Sequence[Call]) -> Call:
    """The longest call whose plan was found, so that its time is not that of making a plan; else
    the longest."""
    return max(same, key=lambda call: (call.hit is not False and not call.failed, call.ns))


def _descend(call: Call, times: int, calls: Calls, device: str) -> WayDown:
    by_id = calls.by_id
    chain, above = [call.operator], call.parent
    while above is not None:
        chain.insert(0, by_id[above].operator)
        above = by_id[above].parent
    if call.ran and call.route in ("kernel", "library"):
        chain.append(call.ran)
    parts: dict[str, list[Call]] = {}
    for child in calls.children.get(call.id, ()):
        parts.setdefault(child.operator, []).append(child)
    return WayDown(
        call.operator,
        chain,
        _where(call, by_id),
        call.ns,
        times,
        _stages(call, device),
        [_descend(_typical(same), len(same), calls, device) for same in parts.values()],
    )


def _where(call: Call, by_id: dict[int, Call]) -> str:
    while not call.where and call.parent is not None:
        call = by_id[call.parent]
    return call.where


def _stages(call: Call, device: str) -> list[Descent]:
    route = call.route
    stages = [Descent("validate", _validate(call))]
    if call.failed:
        return stages
    stages.append(Descent("promote", _promote(call)))
    if call.hit is not None:
        found = "found: it had been called with these layouts before"
        made = "made: the first call with these layouts, so the declaration was asked"
        stages.append(Descent("plan", found if call.hit else made))
    stages.append(Descent("allocate", _allocate(call)))
    where = _DEVICES.get(device, device)
    if route == "kernel":
        operands = _dtypes(call.inputs) or "no operand"
        stages.append(Descent("dispatch", f"{where}, {operands} -> a kernel"))
        stages.append(Descent("kernel", f"{call.ran} {_speed(call)}"))
    elif route == "library":
        stages.append(Descent("dispatch", f"{where}, {_dtypes(call.inputs)} -> a library routine"))
        stages.append(Descent("library", f"{call.ran} {_speed(call)}"))
    elif route == "view":
        stages.append(Descent("view", f"a new layout over the operand's memory, in {ns(call.ns)}"))
    elif route == "program":
        sentence = f"no kernel of its own: the operators below, in {ns(call.ns)}"
        stages.append(Descent("dispatch", sentence))
    return stages


def _validate(call: Call) -> str:
    text = f"{call.operator}({', '.join(map(str, call.inputs))})"
    if call.failed:
        return f"{text} was refused"
    shapes = {x.shape for x in call.inputs}
    if len(call.inputs) < 2:
        return f"{text} accepted"
    if len(shapes) == 1:
        return f"{text} accepted: the shapes agree"
    return f"{text} accepted: the shapes fit together"


def _promote(call: Call) -> str:
    inputs, outputs = _dtypes(call.inputs), _dtypes(call.outputs)
    if not inputs:
        return f"no tensor operand; the result is {outputs}"
    if inputs == outputs:
        return f"{inputs} throughout"
    return f"{inputs} -> {outputs}"


def _allocate(call: Call) -> str:
    if call.route == "view":
        return "nothing: the result shares the operand's memory"
    if not call.outputs:
        return "no result was recorded"
    total = sum(x.nbytes for x in call.outputs)
    copied = ", by way of a temporary" if call.copied else ""
    return f"{', '.join(map(str, call.outputs))}: {bytes_(total)}{copied}"


def _dtypes(layouts: Sequence[Layout]) -> str:
    return " and ".join(dict.fromkeys(x.dtype for x in layouts))


def _speed(call: Call) -> str:
    """Time, and bytes or arithmetic a second: what to compare with the machine's limits."""
    text = f"in {ns(call.ns)}"
    if not call.ns:
        return text
    matrices = [x for x in call.inputs if len(x.shape) >= 2]
    if call.route == "library" and len(matrices) == 2 and call.outputs:
        work = 2 * call.outputs[0].numel * matrices[0].shape[-1]
        return f"{text}, {rate(work, call.ns, 'FLOP')}"
    moved = sum(x.nbytes for x in (*call.inputs, *call.outputs))
    return f"{text}, {bytes_(moved)} moved, {rate(moved, call.ns, 'B')}"
