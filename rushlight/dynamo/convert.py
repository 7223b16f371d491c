"""The entry: a call whose guards all fail comes here, is captured, and gets an entry of the cache.

`Record` is what is known of one compiled function across its captures: options, which sizes and
numbers were seen to vary, and the entries with their guards.
"""

from __future__ import annotations

import itertools
import os
import re
import sysconfig
import time
import types
import warnings
import weakref
from typing import Any

from rushlight import _core, config, reasons, trace
from rushlight.errors import CompilerBug, of_user
from rushlight.fx.captured import origins_of_lines
from rushlight.fx.pausing import paused_collector

from . import instructions_flow, instructions_operators, instructions_values
from .backends import build
from .breaks import Break, Bug, GraphBreakError, Restart, Skip, unsupported
from .bytecode import instructions, is_coroutine, is_generator, parameters
from .calls import CALL_OF_MODULES
from .capture import Capture
from .fetching import with_guards
from .graph_module import GraphModule
from .guards import Guard, compile_guards
from .interpreter import Outermost
from .own_frame import what_looks
from .resume import MADE, RESUMES, build_target, prefix_length
from .tape import HookHandle
from .variables.objects import Cell, Lazy
from .wrapping import SIZES_VARY, TENSORS

# Importing them registers the handlers.
HANDLERS = (instructions_flow, instructions_operators, instructions_values)
ATTEMPTS = 200
NUMBERS = itertools.count()


class Options:
    """How a function is compiled."""

    def __init__(
        self, backend: Any, fullgraph: bool, dynamic: bool | None, mode: Any, options: Any
    ) -> None:
        self.backend, self.fullgraph, self.dynamic = backend, fullgraph, dynamic
        self.mode, self.options = mode, options
        self.inner: Options | None = None
        self.hook_of_frames = self.hook  # one object: answers are kept for each hook

    @property
    def nested(self) -> Options:
        """The same for what runs between graphs: breaks are allowed there."""
        if self.inner is None:
            self.inner = (
                Options(self.backend, False, self.dynamic, self.mode, self.options)
                if self.fullgraph
                else self
            )
        return self.inner

    def hook(self, code: Any, function: Any) -> Any:
        """The frame hook: the compiled function of a frame that starts between graphs, or None."""
        if not wanted(code, function):
            return None
        return compile_callable(function, self.nested)


class Entry:
    """One capture: its guards in the order of the checks, the graph, the break that ended it, the
    target, the instructions that were captured, and the user's lines captured in functions that it
    called."""

    def __init__(
        self, guards: list[Guard], module: Any, target: Any, reason: Any, captured: bytes, at: int
    ) -> None:
        self.guards, self.module, self.target, self.reason = guards, module, target, reason
        self.captured, self.broken_at = captured, at
        self.inlined: list[str] = []


class Record:
    """Everything that outlives a capture of one function."""

    def __init__(self, function: Any, options: Options) -> None:
        self.function, self.options = function, options
        self.dynamic: dict[str, dict] = {}
        self.entries: list[Entry] = []
        self.by_guards: dict[int, Entry] = {}
        self.stopped: str = ""  # why no more captures are made
        self.number = next(NUMBERS)
        self.compiled: Any = None  # weak reference to the compiled function

    @property
    def line(self) -> int:
        """Of the break that this is a piece after; 0 where it is a function of the user's."""
        known = RESUMES.get(self.function.__code__)
        return 0 if known is None else known.line

    # ---- a call that no entry serves

    def miss(self, compiled: Any, args: tuple, kwargs: dict, failures: Any) -> Any:
        if not self.stopped:
            self.learn(failures)
            if len(self.entries) >= config.flags.recompile_limit:
                self.stop(failures)
            elif self.convert(compiled, compiled.bind(*args, **kwargs)):
                return _core.RETRY
        return _core.RUN_ORIGINAL

    def learn(self, failures: Any) -> None:
        """What failed because it varies becomes symbolic."""
        self.dynamic.pop(SIZES_VARY, None)
        for entry, index, seen in failures or ():
            known = self.by_guards.get(id(entry[0]))
            if known is None or not 0 <= index < len(known.guards):
                continue
            guard = known.guards[index]
            told = explain_failure(guard, seen, self.line)
            reasons.refuse(
                "capture.guard_failed",
                f"recompiling {self.function.__qualname__}",
                told,
                # No line reads a mode: what changed it stands around the call.
                where=(guard.where if guard.kind != "mode" else "") or None,
            )
            self.notice(guard, seen)

    def notice(self, guard: Guard, seen: Any) -> None:
        if guard.source is None:
            return
        state = self.dynamic.setdefault(guard.source.name, {})
        if guard.kind == "tensor" and type(seen) in TENSORS:
            sizes = guard.payload[4]
            if len(sizes) == seen.dim():
                varied = {
                    d for d, (n, m) in enumerate(zip(sizes, seen.shape)) if n is not None and n != m
                }
                state.setdefault("dims", set()).update(varied)
                if varied:
                    self.dynamic[SIZES_VARY] = {"now": True}
        elif guard.kind == "eq" and type(seen) is type(guard.payload):
            if type(seen) in (int, float):
                state["number"] = True

    def stop(self, failures: Any) -> None:
        told: dict[str, list[str]] = {}  # what varies -> how it failed each capture's guard
        for entry, index, seen in failures or ():
            known = self.by_guards.get(id(entry[0]))
            if known is not None and 0 <= index < len(known.guards):
                guard = known.guards[index]
                name = guard.source.name if guard.source is not None else guard.kind
                told.setdefault(name, []).append(explain_failure(guard, seen, self.line))
        what = max(told.values(), key=len)[-1] if told else "its inputs vary"
        self.stopped = (
            f"{self.function.__qualname__} was captured {len(self.entries)} times; {what}"
        )
        reasons.refuse("capture.recompile_limit", self.function.__qualname__, self.stopped)
        warnings.warn(
            f"[compile] {self.stopped}. From now on calls that fit none of the captures run in "
            "eager mode (config.flags.recompile_limit).",
            stacklevel=4,
        )

    def convert(self, compiled: Any, arguments: tuple) -> bool:
        """Captures the call; whether there is an entry for it now."""
        trace.start_outputs()  # else the first capture of a process is told of to nobody
        with paused_collector(), trace.unit(trace.numbered(self.function.__qualname__)):
            return self.convert_here(compiled, arguments)

    def convert_here(self, compiled: Any, arguments: tuple) -> bool:
        start = time.perf_counter_ns()
        trace.doing("capture")
        try:
            made = capture(self, compiled.callable, arguments)
        except Skip as skip:
            told = self.report_break(skip.reason)
            if self.options.fullgraph:
                raise GraphBreakError(told) from None
            self.stopped = str(skip.reason)
            return False
        finally:
            trace.doing("")
        guards, entry = made
        self.entries.append(entry)
        self.by_guards[id(guards)] = entry
        compiled.add_entry(guards, entry.target)
        if trace.listeners:
            emit_records(self, entry, time.perf_counter_ns() - start)
        return True

    def report_break(self, reason: Break) -> Any:
        # It is kept; the frames that it came through hold the whole capture and the call's inputs.
        reason.__traceback__ = reason.__context__ = reason.__cause__ = None
        where = reason.stack[-1] if reason.stack else None
        BREAKS.setdefault((reason.id, reason.what, where), [0, reason])[0] += 1
        place = "\n    in ".join(reversed(reason.stack)) or None
        return reasons.refuse(reason.id, reason.what, reason.why, reason.hint, place)


BREAKS: dict[tuple, list] = {}  # (id, what, where) -> [count, reason]


def readable(text: str, line: int) -> str:
    """Guards' names with the values that a piece after a break took over from the stack, which
    have none in the source. `line`: of the break."""
    told = f"(what line {line} computed)"
    return re.sub(r"\(\.stack\d+\)|(?<!\w)\.stack\d+", told, text)


def explain_failure(guard: Guard, seen: Any, line: int = 0) -> str:
    """What was assumed, and what came instead: `x.shape[0] was 3, now 4`. `line`: see
    `readable`."""
    name, p = guard.source.name if guard.source is not None else "", guard.payload
    name = readable(name, line)
    if type(seen) in TENSORS and guard.kind == "tensor":
        if changes := tensor_changes(name, p, seen):
            return ", ".join(changes)
    now = told(seen)
    if guard.kind == "eq":
        return f"{name} was {p!r:.80}, now {now}"
    if guard.kind in ("is", "none") and isinstance(p, (bool, type(None))):
        return f"{name} was {p}, now {now}"
    if guard.kind == "mode" and type(seen) is int:
        return ", ".join(mode_changes(p, seen)) or "nothing that has a name changed"
    if guard.kind == "len" and hasattr(seen, "__len__"):
        return f"len({name}) was {p}, now {len(seen)}"
    return f"expected {readable(guard.text, line)}, got {now}"


def mode_changes(before: int, now: int) -> list[str]:
    """Each mode of two words (`_core.mode()`) that differs."""
    found = []
    for what, states in MODES.items():
        a, b = (next(s for mask, bits, s in states if w & mask == bits) for w in (before, now))
        if a != b:
            found.append(f"{what} was {a}, now {b}")
    return found


# What a mode is called -> (mask, bits, state), the first that fits (csrc/core/core.h, `Mode`).
MODES = {
    "grad mode": ((1, 1, "on"), (0, 0, "off")),
    "inference mode": ((16, 16, "on"), (0, 0, "off")),
    "autocast": ((34, 34, "to float16"), (2, 2, "to bfloat16"), (0, 0, "off")),
    "the default device": ((64, 64, "a GPU"), (0, 0, "the CPU")),
    "a mode of dispatch": ((8, 8, "on"), (0, 0, "off")),
}


def told(value: Any, deep: int = 0) -> str:
    """A value in a few words: of tensors what they are, not their numbers; of what holds itself
    the outer part."""
    if type(value) in TENSORS:
        grad = ", requires_grad" if value.requires_grad else ""
        return f"{type(value).__name__} {value.dtype.name}{list(value.shape)}{grad}"
    if isinstance(value, type):
        return value.__name__
    if type(value) in (tuple, list):
        shown = value[:LONGEST] if deep < DEEPEST else ()
        parts = [told(v, deep + 1) for v in shown] + ["..."] * (len(value) > len(shown))
        if type(value) is list:
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)}{',' * (len(value) == 1)})"
    if isinstance(value, (int, float, complex, str, bytes, bool, type(None))):
        return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
    return f"another {type(value).__name__}"


LONGEST, DEEPEST = 6, 3  # of a sequence's items, and of sequences in sequences, in a reason


def tensor_changes(name: str, expected: tuple, seen: Any) -> list[str]:
    """Each fact of a tensor that is another now; [] where only what has no name differs."""
    cls, dtype, _, grad, sizes, strides, _, device = expected
    facts = [
        (f"type({name})", cls.__name__, type(seen).__name__),
        (f"{name}.dtype", dtype.name, seen.dtype.name),
        (f"{name}.dim()", len(sizes), seen.dim()),
        (f"{name}.device", str(device), str(seen.device)),
        (f"{name}.requires_grad", bool(grad), seen.requires_grad),
    ]
    changes = [f"{what} was {a}, now {b}" for what, a, b in facts if a != b]
    if len(sizes) == seen.dim():
        varied = [
            f"{name}.shape[{d}] was {n}, now {m}"
            for d, (n, m) in enumerate(zip(sizes, seen.shape))
            if n is not None and n != m
        ]
        stride = tuple(seen.stride())
        if strides is not None and not varied and tuple(strides) != stride:
            varied = [f"{name}.stride() was {tuple(strides)}, now {stride}"]
        changes += varied
    return changes


def capture(record: Record, function: Any, arguments: tuple) -> tuple[Any, Entry]:
    """(guards, entry) of one call. Skip if the function is not to be captured."""
    code = function.__code__
    if is_generator(code) or is_coroutine(code) or code.co_flags & 0x200:
        raise Skip(unsupported(f"{function.__qualname__}", "generators run as they are"))
    stop: int | None = None
    reason: Break | None = None
    last = False
    for _ in range(ATTEMPTS):
        state = Capture(record.dynamic, stop, record.options.dynamic)
        state.last = last
        try:
            return attempt(record, state, function, arguments, reason)
        except Restart as restart:
            if record.options.fullgraph:
                raise GraphBreakError(record.report_break(restart.reason)) from None
            if stop is not None and restart.step >= stop:
                raise Skip(restart.reason) from None
            if restart.step < first_step(code):
                raise Skip(restart.reason) from None
            if (what := what_looks(code, function.__globals__)) is not None:
                looks = unsupported(what, "it looks at its frame, which a break would cut in two")
                looks.stack = restart.reason.stack
                raise Skip(looks) from None
            stop, reason, last = restart.step, restart.reason, restart.last
        except Break as found:  # while values were made again for the code after the graph
            found.stack = found.stack or state.stack()
            raise Skip(found) from None
        except Bug as bug:
            if config.flags.strict:
                raise CompilerBug(
                    "dynamo", f"{function.__qualname__}: {bug.cause!r}"
                ) from bug.cause
            raise Skip(
                unsupported(function.__qualname__, f"the interpreter failed: {bug.cause!r}")
            ) from bug.cause
    raise Skip(unsupported(function.__qualname__, "too many restarts"))


def first_step(code: Any) -> int:
    return prefix_length(code)


def attempt(
    record: Record, state: Capture, function: Any, arguments: tuple, reason: Any
) -> tuple[Any, Entry]:
    frame = outermost(state, function, arguments)
    state.captured = bytearray(len(frame.listing))
    kind, value = frame.run()
    for generator in state.generators:
        if generator.guarded:
            reason = unsupported(
                "a generator left inside a try- or with-block", "its end runs when it is dropped"
            )
            reason.stack = state.stack()
            raise Restart(state.made.get(id(generator), 0), reason, True)
    state.frames.append(frame)  # for the user's place in what follows
    if kind == "break" and reason is not None:
        record.report_break(reason)
    modules: list[Any] = []

    def graph_call(outputs: list) -> Any:
        return compile_graph(record, state, outputs, modules)

    state.options = record.options
    target_code = build_target(state, frame, (kind, value), graph_call)
    for relation, left, right, answer in state.env.relations:
        text = f"{left} {relation} {right}" if answer else f"not {left} {relation} {right}"
        state.guards["shape", text] = Guard(
            "shape", None, (text, relation, left, right, answer), ""
        )
    guards, listed, index = compile_guards(list(state.guards.values()), state.symbols, state.env)
    target_code = with_guards(target_code, state.fetch, guards, index)
    target = types.FunctionType(
        target_code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    target.__kwdefaults__ = function.__kwdefaults__
    target.__qualname__ = function.__qualname__
    at = frame.at if kind == "break" else -1
    module = modules[0] if modules else None
    entry = Entry(listed, module, target, reason, bytes(state.captured), at)
    if trace.listeners:
        entry.inlined = inlined_lines(state)
    return guards, entry


def inlined_lines(state: Capture) -> list[str]:
    """The user's lines, as file.py:12, that were captured in functions called by the outermost."""
    found: dict[str, None] = {}
    for code, reached in state.inlined.items():
        for i in instructions(code) if of_user(code.co_filename) else ():
            if reached[i.position] and i.name not in NO_CODE and i.line:
                found[trace.short_place(f"{code.co_filename}:{i.line}")] = None
    return list(found)


NO_CODE = ("RESUME", "NOP", "COPY_FREE_VARS", "MAKE_CELL")


def outermost(state: Capture, function: Any, arguments: tuple) -> Outermost:
    """The frame to interpret, its parameters not yet read."""
    code = function.__code__
    known = RESUMES.get(code)
    local: dict[str, Any] = {}
    cells: dict[str, Cell] = {}
    for i, name in enumerate(parameters(code)):
        source = state.roots.arg(i, name)
        if known is not None and name in known.cells:
            cells[name] = state.cell_of(arguments[i], source)
        else:
            local[name] = Lazy(arguments[i], source)
    if code is CALL_OF_MODULES.__code__:
        name_arguments(state, arguments)
    for i, (name, real) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
        cells[name] = state.cell_of(real, state.roots.free(i, name))
    return Outermost(state, code, function.__globals__, local, cells, None)


def name_arguments(state: Capture, arguments: tuple) -> None:
    """What `Module.__call__` hands on is called as `forward` calls it: `x`, not `args[0]`."""
    module, args, kwargs = arguments
    forward = getattr(type(module), "forward", None)
    if not isinstance(forward, types.FunctionType) or "forward" in vars(module):
        return
    code = forward.__code__
    for i, name in enumerate(code.co_varnames[1 : code.co_argcount][: len(args)]):
        state.roots.arg(1, "args").child("index", i).spelled = name
    for name in kwargs:
        if name in parameters(code):
            state.roots.arg(2, "kwargs").child("item", name).spelled = name


def compile_graph(record: Record, state: Capture, outputs: list, modules: list) -> Any:
    """(callable, sources of its inputs, whether a failure may run the function again, the mode to
    set before that, whether random numbers are drawn)."""
    graph = state.graph
    nodes = tuple(node_of_output(state, v) for _, v in outputs)
    if not graph.calls and not outputs:
        return None
    graph.output(nodes)
    graph.verify()
    module = GraphModule(graph)
    modules.append(module)
    inputs = [source for _, source in state.inputs]
    examples = tuple(n.meta.pop("example", None) for n, _ in state.inputs)  # the graph keeps none
    function = build(record.options.backend, module, examples)
    again = not graph.writes_inputs
    mode = state.initial_mode if state.mode_touched else None
    return function, inputs, again, mode, graph.random


def node_of_output(state: Capture, value: Any) -> Any:
    from .variables.tensor import TensorVar

    if type(value) is HookHandle:
        return value.node
    return state.node_of(value) if type(value) is TensorVar else state.number_node(value)


# ---- compiled functions


def compile_callable(function: Any, options: Options) -> Any:
    """The compiled function object of a plain Python function."""
    record = Record(function, options)
    made = _core.CompiledFunction(function, function.__code__, record.miss, options.hook_of_frames)
    record.compiled = weakref.ref(made)
    COMPILED[record.number] = record
    return made


COMPILED: Any = weakref.WeakValueDictionary()  # number -> record
_resumes: dict[Any, Any] = {}


def compiled_resume(function: Any, options: Options) -> Any:
    """The compiled object of a resume function, one each."""
    options = options.nested
    key = (function, options)
    found = _resumes.get(key)
    if found is None:
        found = _resumes[key] = compile_callable(function, options)
    return found


PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARIES = tuple(
    {os.path.dirname(os.__file__) + os.sep, *(p + os.sep for p in sysconfig.get_paths().values())}
)
OURS = tuple(PACKAGE + room + os.sep for room in ("nn", "optim"))


def wanted(code: Any, function: Any) -> bool:
    """Whether a frame between graphs is worth a capture: the user's code, modules, optimisers."""
    file = code.co_filename
    if file.startswith(OURS):
        return True
    if file.startswith((PACKAGE, "<")) or file.startswith(LIBRARIES):
        return False
    return function is not None and "__rushlight_disabled__" not in function.__dict__


# ---- records


def emit_records(record: Record, entry: Entry, nanoseconds: int) -> None:
    name = record.function.__qualname__
    code = record.function.__code__
    trace.emit(
        "dynamo", name, listing(code, entry), kind="bytecode", file=code.co_filename,
        first_line=code.co_firstlineno, inlined=entry.inlined,
    )  # fmt: skip
    if entry.module is not None:
        graph = entry.module.graph
        places = [str(n.meta.get("where", "")).rpartition(":")[0] for n in graph.nodes]
        files = {trace.short_path(file): file for file in reversed(places) if file}
        text = entry.module.code
        origins = origins_of_lines(text)
        modules = {n.name: n.meta["module"] for n in graph.nodes if "module" in n.meta}
        trace.emit(
            "fx_graph", name, text, origins, "graph", files=files, nodes=len(graph.nodes),
            modules=modules,
        )  # fmt: skip
    line = record.line
    trace.emit(
        "guards",
        name,
        lambda: "\n".join(readable(repr(guard), line) for guard in entry.guards),
        kind="guards",
        read_by=[guard.where for guard in entry.guards],
    )
    trace.emit("dynamo", f"{name} captured", "", kind="text", milliseconds=nanoseconds / 1e6)


def listing(code: Any, entry: Entry) -> str:
    """The bytecode, `>` in front of captured instructions and `*` where the graph broke."""
    rows, line = [], None
    for i in instructions(code):
        mark = ">" if i.position < len(entry.captured) and entry.captured[i.position] else " "
        mark = "*" if i.position == entry.broken_at else mark
        rows.append(f"{'' if i.line == line else i.line:>5} {mark} {i!r}")
        line = i.line
    return "\n".join(rows)


def forget() -> None:
    """Drop every entry of every compiled function, and what is known of resume functions."""
    for record in list(COMPILED.values()):
        record.entries.clear()
        record.by_guards.clear()
        record.dynamic.clear()
        record.stopped = ""
        made = record.compiled() if record.compiled is not None else None
        if made is not None:
            made.clear()
    _resumes.clear()
    RESUMES.clear()
    MADE.clear()
    BREAKS.clear()
    _core.frame_cache_clear()
