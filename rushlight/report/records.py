"""Native call records, given names.

Takes what `_core.records()` hands over (docs/native.md, "Records"): one tuple an operator call,

    (id, parent, depth, operator, kind, plan hit, start ns, end ns, in layouts, out layouts, what
    ran, user file:line)

and gives `Call`s. Invariant: a record that is shorter or longer than expected, or whose layouts are
text, tuples or objects, is read as far as it goes; nothing here raises on a record that a newer
core wrote.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from rushlight.report.activities import (
    CUPTI,
    EVENTS,
    Activity,
    DeviceTimes,
    merge_times,
    read_activity,
    sums,
)

ITEMSIZE = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64",
    "complex128": "c128",
}  # fmt: skip
_LONG = {short: long for long, short in _SHORT.items()}
_LAYOUT = re.compile(  # float32[2, 3], then strides in (...) or [...] where they are given
    r"(?:rushlight\.|torch\.)?([a-z]+\d*)\[([\d, ]*)\]"
    r"(?:\s*(?:strides?)?\s*[(\[]([-\d, ]*)[)\]])?"
)


class Layout(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def __str__(self) -> str:
        text = f"{_SHORT.get(self.dtype, self.dtype)}[{', '.join(map(str, self.shape))}]"
        return text if self.contiguous else f"{text} strides {self.strides}"

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * ITEMSIZE.get(self.dtype, 0)

    @property
    def contiguous(self) -> bool:
        """C order; True where strides were not recorded."""
        if self.strides is None or self.numel == 0:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=False):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


class Call(NamedTuple):
    """One operator call. Times are nanoseconds; `parent` is None for a call that Python made."""

    id: int
    parent: int | None
    depth: int
    operator: str
    kind: str
    hit: bool | None  # its plan was found; None where it needed none or was refused
    start: int
    end: int
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    ran: str  # kernel key, library routine, 'program' or the view's rule
    where: str
    device_ns: int = 0  # on a GPU, calls inside included: see DeviceTimes
    copied: bool = False  # the result went through a temporary
    route: str = "none"  # see route_of
    activities: tuple[Activity, ...] = ()  # what it launched itself, where CUPTI told

    @property
    def ns(self) -> int:
        return max(0, self.end - self.start)

    @property
    def spent(self) -> int:
        """On the device where that is known, else on the host."""
        return self.device_ns or self.ns

    @property
    def failed(self) -> bool:
        """It raised before anything ran."""
        return self.end < self.start or not (self.outputs or self.ran)


class Calls(list[Call]):
    """Calls of operators in the order in which they began, with what every table needs of them,
    made once. `everything` has those inside compiled graphs too, and the calls of graphs and of
    compiled functions themselves."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        super().__init__(calls)
        self.everything = self
        self.device_times = DeviceTimes()
        self.step_of: dict[int, tuple[str, int]] = {}  # call of a graph -> its graph and step

    @property
    def of_graphs(self) -> list[Call]:
        return [call for call in self.everything if call.kind == "graph"]

    @property
    def of_functions(self) -> list[Call]:
        return [call for call in self.everything if call.kind == "compiled"]

    @property
    def of_reads(self) -> list[Call]:
        """Where Python read numbers of a tensor: item, tolist, float(), a condition."""
        return [call for call in self.everything if call.kind == "read"]

    def on_host(self, call: Call) -> bool:
        """It ran on the CPU, in a run whose times of a GPU are known."""
        return bool(self.device_times.by) and not call.device_ns

    @cached_property
    def inside(self) -> Calls:
        """The operators and kernels that compiled graphs called."""
        mine = {call.id for call in self}
        rest = [c for c in self.everything if c.id not in mine and c.kind not in SCOPES]
        graphs = {call.id for call in self.of_graphs}
        return Calls(c._replace(parent=None) if c.parent in graphs else c for c in rest)

    @cached_property
    def by_id(self) -> dict[int, Call]:
        return {call.id: call for call in self}

    @cached_property
    def children(self) -> dict[int | None, list[Call]]:
        """id -> the calls that it made; None -> those that Python made."""
        found: dict[int | None, list[Call]] = {None: []}
        for call in self:
            found.setdefault(call.parent, []).append(call)
        return found

    @cached_property
    def own_spent(self) -> dict[int, int]:
        """The same of `spent`: on the device where that is known."""
        own = {call.id: call.spent for call in self}
        for call in self:
            if call.parent is not None:
                on_device = self.by_id[call.parent].device_ns
                own[call.parent] -= call.device_ns if on_device else call.ns
        return {id: max(0, spent) for id, spent in own.items()}

    @cached_property
    def own(self) -> dict[int, int]:
        """id -> nanoseconds of the call less those of the calls it made."""
        own = {call.id: call.ns for call in self}
        for call in self:
            if call.parent is not None:
                own[call.parent] -= call.ns
        return {id: max(0, spent) for id, spent in own.items()}

    @property
    def roots(self) -> list[Call]:
        return self.children[None]


SCOPES = ("compiled", "graph", "read")  # no operators
NO_PLAN = ("view", "graph", "fused", "read")


def without_graphs(everything: Calls) -> Calls:
    """The calls that were made one at a time: not by a compiled graph. What a compiled function
    called between its graphs, Python called."""
    inside: set[int] = set()
    outer: set[int] = set()
    kept = Calls()
    for call in everything:
        if call.parent in inside or call.kind == "graph":
            inside.add(call.id)
        elif call.kind == "compiled":
            outer.add(call.id)
        elif call.kind != "read":
            kept.append(call._replace(parent=None) if call.parent in outer else call)
    kept.everything = everything
    kept.device_times = everything.device_times
    return kept


def without_compiling(calls: Calls, times: Iterable[tuple[int, int]]) -> Calls:
    """Without what a compiler called in these times (start, end) to find layouts or constants: no
    line of the user's asked for that. What ran on a GPU stays."""
    spans = sorted(times)
    starts = [start for start, _ in spans]
    until = list(accumulate((end for _, end in spans), max))

    def kept(call: Call) -> bool:
        at = bisect_right(starts, call.start)
        within = at > 0 and max(call.start, call.end) <= until[at - 1]
        return not within or bool(call.device_ns or call.activities)

    rest = Calls(filter(kept, calls.everything))
    known = {call.id for call in rest}
    made = Calls(c if c.parent in known else c._replace(parent=None) for c in rest)
    made.device_times = calls.device_times
    return without_graphs(made)


@lru_cache(4096)
def route_of(kind: str, ran: str) -> str:
    """What a call became: 'kernel', 'library', 'view', 'program' (other operators) or, where the
    record does not say, 'none'."""
    if kind == "view":
        return "view"
    if kind == "fused":
        return "kernel"
    if kind in SCOPES:
        return "none"
    if not ran:
        return "none"
    if ran in ("view", "program"):
        return ran
    parts = ran.split(".")
    return "kernel" if any(part in ITEMSIZE for part in parts[1:]) else "library"


@lru_cache(65536)
def nbytes(layouts: tuple[Layout, ...]) -> int:
    return sum(layout.nbytes for layout in layouts)


@lru_cache(65536)
def operations(operator: str, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> int:
    """Multiplications and additions of a matrix product, a convolution or a recurrent layer's
    steps; 0 of what is none."""
    name = operator.rstrip("_")
    if name in CONVOLUTIONS and outputs and len(inputs) >= 2:
        return _of_convolution(name, inputs, outputs[0])
    if name in RECURRENT and len(inputs) > 3:  # gates of all steps, ..., the states' weights
        return 2 * inputs[0].numel * inputs[3].shape[-1]
    if name not in PRODUCTS or not outputs:
        return 0
    made = outputs[0]
    for x in inputs:  # the left operand shares the result's rows; its last dim is summed over
        if len(x.shape) >= 2 and x.shape[-2:-1] == made.shape[-2:-1] and x.shape != made.shape:
            return 2 * made.numel * x.shape[-1]
    square = [x for x in inputs if x.shape == made.shape and len(x.shape) >= 2]
    return 2 * made.numel * square[-1].shape[-1] if square else 0


def _of_convolution(name: str, inputs: tuple[Layout, ...], made: Layout) -> int:
    """Each position of the convolved side (the result of a forward one, the operand of the other
    direction) meets the weights of one channel."""
    if name == "convolution_weights":
        side, weight = inputs[1], made
    elif name == "convolution_data":
        side, weight = inputs[0], inputs[1]
    else:
        side, weight = made, inputs[1]
        forward, transposed = (weight.shape[:1] == x.shape[1:2] for x in (made, inputs[0]))
        if transposed and (not forward or inputs[0].numel < made.numel):
            side = inputs[0]
    return 2 * side.numel * math.prod(weight.shape[1:])


CONVOLUTIONS = ("convolution", "convolution_forward", "convolution_data", "convolution_weights")
RECURRENT = ("lstm_sequence", "lstm_sequence_backward")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "product", "matmul")


def read_calls(records: Iterable[Any]) -> Calls:
    """Records as Calls, in the order in which the calls began."""
    calls = [_read_call(i, record) for i, record in enumerate(records)]
    calls.sort(key=lambda call: (call.start, call.depth, call.id))
    known = {call.id for call in calls}
    return without_graphs(
        Calls(
            c if c.parent in known or c.parent is None else c._replace(parent=None) for c in calls
        )
    )


_COPIED = ", copied"


def _read_call(index: int, record: Any) -> Call:
    if isinstance(record, Call):
        return record
    empty: tuple[Any, ...] = (index, None, 0, "?", "", None, 0, 0, (), (), "", "", 0)
    values = tuple(record)[: len(empty)]
    values += empty[len(values) :]
    id, parent, depth, operator, kind, hit, start, end, *rest = values
    inputs, outputs, ran, where, on_device = rest
    ran, kind = "" if ran is None else str(ran), "" if kind is None else str(kind)
    copied = ran.endswith(_COPIED)
    ran = ran.removesuffix(_COPIED)
    return Call(
        int(id),
        None if parent is None or parent == id else int(parent),
        int(depth or 0),
        str(operator),
        kind,
        None if hit is None or kind in NO_PLAN or not (outputs or ran) else bool(hit),
        int(start or 0),
        int(end or 0),
        read_layouts(inputs),
        read_layouts(outputs),
        ran,
        read_where(where),
        int(on_device or 0),
        copied,
        route_of(kind, ran),
    )


def read_batches(batches: Iterable[Iterable[Any]]) -> Calls:
    """Several lists of records, each with ids of its own, as one list of Calls, with what they
    launched on a GPU."""
    calls = Calls()
    times = []
    for batch in batches:
        first = 1 + max((call.id for call in calls), default=-1)
        read, told = _with_activities(batch, read_calls(batch).everything, first)
        times.append(told)
        for call in read:
            parent = None if call.parent is None else call.parent + first
            calls.append(call._replace(id=call.id + first, parent=parent))
    calls.device_times = merge_times(times)
    return without_graphs(calls)


def _with_activities(
    batch: Iterable[Any], calls: Calls, first: int
) -> tuple[Iterable[Call], DeviceTimes]:
    """Calls of one batch with the activities that CUPTI told of; each call's time on a device is
    that of all it launched, calls inside included. `first`: what ids will be raised by."""
    by, why = getattr(batch, "by", ""), getattr(batch, "why", "")
    if by != CUPTI:
        used = any(call.device_ns for call in calls)
        return calls, DeviceTimes(EVENTS if used else "", why)
    known = {call.id for call in calls}
    owned: dict[int, list[Activity]] = {}
    loose = []
    for told in getattr(batch, "activities", ()):
        activity = read_activity(told)
        if activity.owner in known:
            mine = owned.setdefault(activity.owner, [])  # type: ignore[arg-type]
            mine.append(activity._replace(owner=activity.owner + first))  # type: ignore[operator]
        else:
            loose.append(activity._replace(owner=None))
    spent = {id: sum(a.ns for a in mine) for id, mine in owned.items()}
    for call in reversed(calls):  # those inside come later than the one that called them
        if call.parent is not None and call.id in spent:
            spent[call.parent] = spent.get(call.parent, 0) + spent[call.id]
    made = (
        call._replace(device_ns=spent.get(call.id, 0), activities=tuple(owned.get(call.id, ())))
        for call in calls
    )
    return made, DeviceTimes(CUPTI, "", getattr(batch, "lost", 0), tuple(loose))


def gpu_facts(
    calls: Calls, properties: Callable[[int], Mapping[str, Any]]
) -> dict[str, Any]:
    """{"gpu_times": where times of a GPU are from, "gpu_work": what it did, the longest first}; {}
    where none was used. `properties`: of a device, as `_core.cuda_properties` gives them."""
    times = calls.device_times
    if not times.by:
        return {}
    facts: dict[str, Any] = {"gpu_times": {"by": times.by, "why": times.why, "lost": times.lost}}
    if done := activities_of(calls):
        devices = {device: properties(device) for device in {a.device for a in done}}
        launched = {a.owner: launched_by(calls, a.owner) for a in done}
        facts["gpu_work"] = sums(done, launched, devices)
    return facts


def activities_of(calls: Calls) -> list[Activity]:
    """All that CUPTI told of, in the order of its start."""
    done = [a for call in calls.everything for a in call.activities]
    return sorted([*done, *calls.device_times.loose], key=lambda a: a.start)


def launched_by(calls: Calls, id: int | None) -> tuple[str, str]:
    """(what the call ran, the user's line) of a call among `everything`; empty where there is
    none."""
    by_id = calls.everything.by_id
    call = above = by_id.get(id)  # type: ignore[arg-type]
    if call is None or above is None:
        return "", ""
    while not above.where and above.parent is not None:
        above = by_id[above.parent]
    named = call.kind in ("fused", *SCOPES) or call.route not in ("kernel", "library")
    return call.operator if named else call.ran, above.where


def read_layouts(value: Any) -> tuple[Layout, ...]:
    """Layouts from any form in which a record may hold them."""
    try:
        return _read_layouts_once(value)
    except TypeError:  # not hashable
        return _read_layouts(value)


def _read_layouts(value: Any) -> tuple[Layout, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(_from_match(match) for match in _LAYOUT.finditer(value))
    if isinstance(value, Layout) or not isinstance(value, Sequence):
        value = (value,)
    if len(value) in (2, 3) and _is_dtype(value[0]):
        value = (value,)
    found: list[Layout] = []
    for item in value:
        if isinstance(item, Layout):
            found.append(item)
        elif isinstance(item, str):
            found += read_layouts(item)
        elif hasattr(item, "shape") and hasattr(item, "dtype"):
            strides = getattr(item, "strides", None)
            strides = strides() if callable(strides) else strides
            found.append(_layout(item.dtype, item.shape, strides))
        elif isinstance(item, Sequence) and len(item) in (2, 3) and _is_dtype(item[0]):
            found.append(_layout(*item))
    return tuple(found)


_read_layouts_once = lru_cache(16384)(_read_layouts)


def _is_dtype(value: Any) -> bool:
    return (isinstance(value, str) or hasattr(value, "itemsize")) and _dtype_name(value) in ITEMSIZE


def _dtype_name(value: Any) -> str:
    name = str(value).rpartition(".")[2]
    return _LONG.get(name, name)


def _layout(dtype: Any, shape: Iterable[int], strides: Iterable[int] | None = None) -> Layout:
    plain = None if strides is None else tuple(int(s) for s in strides)
    return Layout(_dtype_name(dtype), tuple(int(s) for s in shape), plain)


def _from_match(match: re.Match[str]) -> Layout:
    dtype, shape, strides = match.groups()

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(n) for n in text.replace(",", " ").split())

    return _layout(dtype, numbers(shape), None if strides is None else numbers(strides))


def read_where(value: Any) -> str:
    """'file:line' from text or a (file, line, ...) tuple."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and len(value) >= 2:
        return f"{value[0]}:{value[1]}"
    return "" if value is None else str(value)
