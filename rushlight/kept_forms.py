"""Forms found again: what a captured graph became is kept in the artifact cache, so that the next
process need neither functionalise it nor derive and cut its gradients.

Takes a captured graph with the kind of its inputs; gives a form, found or none. The key has the
graph as capture leaves it (calls, arguments, layouts, names, lines), which inputs require a
gradient, the modes of the thread, and all that the key of a program has (inductor/recall.py). Kept
are the facts that a form needs at each call and the names of its programs, which lie beside it.
The functional graph itself is made when somebody asks for it.

Not kept: graphs of which no program is kept (symbolic sizes, constants), and those that call what
the package does not declare.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rushlight import _core, eager, trace  # type: ignore[attr-defined]
from rushlight.aot_autograd.functional import Functionalised, Given, Own, ViewOf
from rushlight.eager import casting
from rushlight.eager.inquiry import set_default_dtype
from rushlight.errors import Unsupported
from rushlight.forms import Facts, Form, Inference, Training, ends_of, lower, settled
from rushlight.fx.captured import CallGraph, CallNode
from rushlight.inductor import recall
from rushlight.inductor.recall import NONSENSE, PLAIN, NotKept
from rushlight.inductor.wrapper import Ends
from rushlight.ops.layouts import Layout
from rushlight.ops.values import TABLE
from rushlight.runtime import cache

if TYPE_CHECKING:
    from rushlight.compiled import Compiled

FORMAT = 1  # goes up where kept forms change meaning
EXACT = PLAIN | {bytes, complex, type(...)}
WORDS = (eager.memory_format, eager.formats.layout)
OF_PYTHON = ("_operator", "builtins", "rushlight._core")  # modules whose functions are named
ROOMS = ("ops", "eager", "nn", "amp")  # of the package's functions that a graph may call


# ---- the key


def name_of(c: Compiled, mask: int, examples: Sequence[Any]) -> str | None:
    """The name of the form that the graph has for these inputs; None where it has none."""
    graph = getattr(c.gm, "graph", None)
    if not isinstance(graph, CallGraph) or graph.constants or c.check or recall.watched():
        return None
    try:
        device, rows = described(graph)
        given = [layout(x) if type(x) is Layout else plain(x) for x in examples]
        whole = (FORMAT, c.name, c.given, mask, given, modes(), rows)
        return recall.hashed("form", device, marshal.dumps(whole, recall.NO_SHARING))
    except (NotKept, Unsupported, ValueError):  # ValueError: marshal does not know a type
        return None


def modes() -> tuple:
    """What decides besides the graph how its calls are recorded."""
    state = casting.state
    cast = sorted((device, dtype.name) for device, dtype in state.dtypes.items())
    return (_core.mode(), state.cache_enabled, state.depth > 0, state.cuda, cast)


class Modes:
    """The modes of now; as a context it brings them back."""

    def __init__(self) -> None:
        self.word, self.default = _core.mode(), _core.get_default_dtype()
        self.state = {**vars(casting.state), "dtypes": dict(casting.state.dtypes), "cache": {}}

    def switch(self) -> None:
        _core.set_mode(self.word)
        set_default_dtype(self.default)
        vars(casting.state).update(self.state)

    @contextmanager
    def again(self) -> Iterator[None]:
        now = Modes()
        now.state = dict(vars(casting.state))
        self.switch()
        try:
            yield
        finally:
            now.switch()


def described(graph: CallGraph) -> tuple[str, list]:
    """(the device of its tensors, the graph in plain values that tell any two apart)."""
    devices: set[str] = set()
    lines: dict[str, tuple[int, str]] = {}
    rows: list[Any] = []
    for n in graph.nodes:
        where = n.meta.get("where", "")
        if where not in lines:
            lines[where] = (len(lines), trace.short_place(where))
        made = n.meta.get("layout")
        if made is not None:
            devices.add(made.device)
        rows.append(
            (n.op, n.name, callee(n), plain(n.args), plain(n.kwargs), made and layout(made),
             lines[where][0])
        )  # fmt: skip
    devices.discard("cpu")
    if len(devices) > 1:
        raise NotKept
    flags = (graph.effects, graph.random, graph.writes_inputs)
    return "".join(devices) or "cpu", [graph.name, flags, list(lines.items()), rows]


def layout(x: Layout) -> tuple:
    return (x.shape, x.strides, x.dtype, x.offset, x.device)


def plain(v: Any) -> Any:
    """An argument as plain values; what is none in a tuple that says what it is."""
    kind = type(v)
    if kind in EXACT:
        return v
    if kind is CallNode:
        return ("node", v.name)
    if kind is list:
        return [*map(plain, v)]
    if kind is tuple:
        return ("tuple", *map(plain, v))
    if kind is dict:
        return ("dict", *((plain(k), plain(x)) for k, x in v.items())) if v else ()
    if kind is slice:
        return ("slice", plain(v.start), plain(v.stop), plain(v.step))
    if kind is _core.dtype:
        return ("dtype", v.name)
    if kind is eager.device:
        return ("device", str(v))
    if kind in WORDS:
        return ("word", kind.__name__, str(v))
    if kind is eager.Size:
        return ("size", *map(plain, v))
    raise NotKept


def callee(n: CallNode) -> Any:
    """What a node calls, by the name under which the package or Python has it."""
    f: Any = n.target
    if n.op != "call_function":
        if n.op in ("get_attr", "call_module"):
            raise NotKept
        return f
    if type(f) is _core.Operator:
        op = f.declaration
        if f is not op.native and f is not op.native.inplace:
            raise NotKept
        return ("operator", f is op.native, *recall.declared(op))
    home, called = getattr(f, "__module__", None) or "", getattr(f, "__name__", "")
    if not (home in OF_PYTHON or home.startswith(ALLOWED)) or getattr(f, "__closure__", None):
        raise NotKept
    if getattr(sys.modules.get(home), called, None) is not f:
        raise NotKept
    return ("function", home, called)


ALLOWED = tuple(f"rushlight.{room}." for room in ROOMS)


# ---- kept


OUTPUTS = Facts._fields.index("outputs")  # the facts before it are plain, those after it empty


def keep(name: str, form: Form) -> None:
    """Keeps the form under its name where it can be said in plain values."""
    folder = cache.trusted_folder()
    if folder is None or form.asked or form.facts.captured or form.facts.places:
        return
    try:
        told = (*form.facts[:OUTPUTS], shown(form.facts.outputs))
        content = marshal.dumps((FORMAT, form.leaves, told, *programs(form)))
    except (NotKept, ValueError):
        return
    cache.keep(folder, name, content, form.facts.name)


def programs(form: Form) -> tuple:
    """The kind of the form, and what is made of it beside its facts."""
    if isinstance(form, Inference):
        if form.compiled.kept_as is None:
            raise NotKept
        return ("inference", form.compiled.kept_as)
    assert isinstance(form, Training)
    if form.lost:
        raise NotKept
    late = recall.name_of(form.pair.backward, None, False) if form.active else ""
    if form.forward.kept_as is None or late is None:
        raise NotKept
    return ("training", (form.forward.kept_as, late), form.wanted, form.active, form.rebased)


def shown(o: Any) -> Any:
    """A result as plain values."""
    kind = type(o)
    if kind is Own:
        return ("own", o.index)
    if kind is Given:
        return ("given", o.index)
    if kind is ViewOf:
        views = [(*recall.declared(op), recall.literal(rest)) for op, rest in o.views]
        if any(len(v) != 2 for v in views):
            raise NotKept
        return ("view", shown(o.base), views)
    if kind is tuple:
        return ("tuple", [*map(shown, o)])
    return ("value", recall.literal(o))


def read(o: tuple) -> Any:
    """The result again."""
    match o:
        case ("own", at):
            return Own(at)
        case ("given", at):
            return Given(at)
        case ("view", base, views):
            return ViewOf(read(base), tuple((TABLE[name], rest) for name, rest in views))
        case ("tuple", items):
            return tuple(map(read, items))
        case ("value", v):
            return v
    raise ValueError(o)


# ---- found


def find(name: str, c: Compiled, functional: Callable[[], Functionalised]) -> Form | None:
    """The form of that name, or None. `functional` makes its functional graph, given the modes of
    now."""
    folder = cache.trusted_folder()
    content = cache.kept(folder, name) if folder is not None else None
    if content is None:
        return None
    modes = Modes()

    def whole() -> Functionalised:
        with modes.again():
            return functional()

    try:
        kept, leaves, told, kind, *rest = marshal.loads(content)
        if kept != FORMAT:
            return None
        facts = Facts._make((*told[:OUTPUTS], read(told[OUTPUTS]), (), {}))
        with settled():
            form = MADE[kind](c, facts, whole, *rest)
    except NONSENSE:
        return None  # nothing that this version understands: made anew
    if form is not None:
        form.leaves = leaves
    return form


def inference(
    c: Compiled, facts: Facts, whole: Callable[[], Functionalised], program: str
) -> Inference | None:
    found = recall.find(program, facts.name, lambda: lower(form.made.graph, ends_of(facts), True))
    if found is None:
        return None
    form = Inference(c, facts, whole, found)
    return form


def training(
    c: Compiled,
    facts: Facts,
    whole: Callable[[], Functionalised],
    programs: tuple[str, str],
    wanted: tuple[int, ...],
    active: tuple[int, ...],
    rebased: tuple[bool, ...],
) -> Training | None:
    """Both programs are there, or there is no form: a backward that is derived again need not take
    what this forward saves."""
    (forward, backward), ends = programs, Ends(facts.own, facts.written)
    first = recall.find(forward, facts.name, lambda: lower(form.pair.forward, ends))
    second = None
    if backward:
        called = facts.name + "_backward"
        second = recall.find(backward, called, lambda: lower(form.pair.backward))
    if first is None or (backward and second is None):
        return None
    form = Training(c, facts, whole, wanted, active, rebased, forward=first, backward=second)
    return form


MADE: dict[str, Callable] = {"inference": inference, "training": training}
__all__ = ["find", "keep", "name_of"]
