"""torch.compile's own records as captures: breaks, recompiles, guards, graphs, generated code.

Takes what torch writes for TORCH_TRACE (its structured trace, which tlparse reads), caught by a
handler of its logger, and the bytecode that Dynamo hands its hooks; gives `Capture`s, one for each
compile id ('0/0': the first function's first capture). Invariant: texts are torch's own, unchanged;
a record that is unknown, or another version writes otherwise, is left out and nothing raises.
"""

from __future__ import annotations

import contextlib
import dis
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rushlight import trace
from rushlight.interop.torch_code import read_code
from rushlight.interop.torch_watch import LIBRARY, OWN, RESUMED, kind_of_file, place
from rushlight.report.captures import (
    Artifact,
    Capture,
    GraphRun,
    Ran,
    Refused,
    bytecode_lines,
    recompiled,
)
from rushlight.report.records import Calls, nbytes

_COMMENT = re.compile(r"^\s*# File: (.+?):(\d+) in (.*?), code: (.*)$")
_NODE = re.compile(r"^\s+(\w+)(?:: \"[^\"]*\")? = (.+)$")
_TARGET = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?\(")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in (.*)$')
_BREAK = re.compile(r"^Graph [Bb]reak in user code at (.+):(\d+)\s*$")
_INSIDE = re.compile(r"#\s*(\S+\.py):(\d+) in ")
_PLACE = re.compile(r"#\s*(\S+\.py):(\d+)(?: in ([^#]*))?$")
GRAPH_STAGES = {
    "aot_joint_graph": ("aot_autograd", "joint"),
    "aot_forward_graph": ("forward_graph", "forward"),
    "aot_backward_graph": ("backward_graph", "backward"),
    "aot_inference_graph": ("forward_graph", "inference"),
}


class Entry(NamedTuple):
    name: str
    metadata: dict[str, Any]
    payload: str


class Trace:
    """Collects for the length of a `with`."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.bytecode: list[tuple[str, Any, str]] = []  # compile id, code, called at
        self._handler: Any = None
        self._hook: Any = None

    def __enter__(self) -> Trace:
        entries = self.entries

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                metadata = getattr(record, "metadata", None)
                if isinstance(metadata, dict) and metadata:
                    name = next(iter(metadata))
                    given = metadata[name]
                    if name == "artifact" and isinstance(given, dict):
                        name = str(given.get("name", name))
                    if name != "chromium_event":
                        payload = getattr(record, "payload", None)
                        entries.append(Entry(name, metadata, payload or ""))

        self._handler = Handler(logging.DEBUG)
        logger = logging.getLogger("torch.__trace")
        logger.addHandler(self._handler)
        return self

    def watch_bytecode(self) -> None:
        """From now on, the code that Dynamo captures is kept. It loads torch._dynamo, so this waits
        until a program has done so."""
        if self._hook is not None:
            return
        with contextlib.suppress(Exception):
            from torch._dynamo.convert_frame import register_bytecode_hook
            from torch._guards import CompileContext

            def hook(code: Any, new_code: Any) -> Any:
                number = CompileContext.current_compile_id()
                self.bytecode.append((str(number), code, place(sys._getframe(1)).own))

            self._hook = register_bytecode_hook(hook)

    def __exit__(self, *error: Any) -> None:
        logging.getLogger("torch.__trace").removeHandler(self._handler)
        if self._hook is not None:
            self._hook.remove()


class Reader:
    """Entries -> `captures` in the order of their compiling, `functions` ('0/0' -> name) and
    `graph_labels` (the cache key of an Inductor graph -> its label)."""

    def __init__(self, seen: Trace) -> None:
        self.captures: dict[str, Capture] = {}
        self.functions: dict[str, str] = {}
        self.graph_labels: dict[str, str] = {}
        self.module_paths: dict[str, str] = {}  # label -> file of the generated module
        self.in_graph_reads: list[tuple[str, str, str]] = []  # label, line, operator
        self.failures: list[Refused] = []  # frames that torch gave up on
        self._files: dict[int, str] = {}
        self._attempts: dict[str, int] = {}
        self.called_at: dict[str, str] = {}  # '0/0' -> line of its first call
        self._waiting: dict[str, list[Artifact]] = {}
        self._last_graph: dict[str, GraphRun] = {}
        self._paths: set[str] = set()  # of files that are known; torch prints the end of one
        self._known_files()
        for entry in seen.entries:
            with contextlib.suppress(Exception):
                self._read(entry)
        for number, code, called_at in seen.bytecode:
            with contextlib.suppress(Exception):
                self._bytecode(number, code, called_at)
        for capture in self.captures.values():
            capture.guards = [(text, self._full(at)) for text, at in capture.guards]
            for made in capture.artifacts:
                if made.stage == "guards":
                    full = {n: self._full(chain[0]) for n, chain in made.origins.items()}
                    kept = {n: at for n, at in full.items() if os.path.isabs(at)}
                    made.origins = {n: (trace.short_place(at),) for n, at in kept.items()}
        self._link_recompiles()

    def _known_files(self) -> None:
        with contextlib.suppress(Exception):
            from torch._logging.structured import INTERN_TABLE

            self._files = {number: name for name, number in INTERN_TABLE.items()}

    def _read(self, entry: Entry) -> None:
        name, metadata = entry.name, entry.metadata
        if name == "str":
            text, number = metadata["str"]
            self._files[number] = text
            return
        if "frame_id" not in metadata:
            return
        number = f"{metadata['frame_id']}/{metadata['frame_compile_id']}"
        if name == "recompile_reasons":
            self._recompile(self._capture(number), entry)
            return
        capture = self._capture(number)
        attempt = metadata.get("attempt", 0)
        if attempt > self._attempts.get(number, 0):  # it starts again: what it had is void
            self._attempts[number] = attempt
            capture.artifacts.clear()
            capture.graphs.clear()
            capture.nodes = 0
        if name == "dynamo_start":
            self._start(capture, number, metadata["dynamo_start"].get("stack") or [])
        elif name == "dynamo_graph_break_reason":
            self._break(capture, entry.payload)
        elif name == "dynamo_output_graph":
            made = self._graph_text(capture, "fx_graph", "captured", entry.payload)
            found = (_NODE.match(row) for row in made.text.splitlines())
            capture.nodes += sum(not m[2].isidentifier() for m in found if m)  # no inputs' names
            capture.artifacts.append(made)
        elif name == "dynamo_cpp_guards_str":
            self._guards(capture, entry.payload)
        elif name == "create_symbol":
            self._symbol(capture, metadata["create_symbol"])
        elif name in GRAPH_STAGES:
            self._aot(capture, number, name, entry.payload)
        elif name in ("after_joint_graph", "inductor_post_grad_graph"):
            title = "after Inductor's passes" if "post" in name else "joint, after passes"
            made = self._graph_text(capture, "pass", title, entry.payload)
            self._waiting.setdefault(number, []).append(made)
        elif name == "inductor_output_code":
            self._code(capture, number, metadata["inductor_output_code"], entry.payload)
        elif name.startswith("fx_graph_cache_"):
            self._cache(number, name, json.loads(entry.payload))
        elif name == "compilation_metrics":
            self._metrics(capture, metadata["compilation_metrics"])

    # ---- one compile id

    def _capture(self, number: str) -> Capture:
        if number not in self.captures:
            self.captures[number] = Capture(number, number, [])
        return self.captures[number]

    def _start(self, capture: Capture, number: str, stack: Sequence[Any]) -> None:
        frames = [self._frame(frame) for frame in stack]
        if not frames:
            return
        file, line, name = frames[-1]
        function = re.sub(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$", r"\1, from line \2 on", name)
        capture.function, capture.unit = function, f"{function} [{number}]"
        capture.first_line = line
        self._keep(capture, file)
        self.functions[number] = function
        self.called_at[number] = _user(frames[:-1])

    def _frame(self, frame: dict[str, Any]) -> tuple[str, int, str]:
        file = frame.get("filename", "")
        file = self._files.get(file, "") if isinstance(file, int) else str(file)
        return file, int(frame.get("line", 0)), str(frame.get("name", ""))

    def _keep(self, capture: Capture, file: str) -> str:
        """A file of the user's: known by its last name from now on."""
        if file and os.path.exists(file):
            capture.files.setdefault(trace.short_path(file), file)
            self._paths.add(file)
        return trace.short_path(file)

    def _full(self, at: str) -> str:
        """'mp/t.py:3', as torch shortens it in guards -> 'the/path/t.py:3'."""
        name, _, line = at.rpartition(":")
        found = [path for path in self._paths if name and path.endswith(name)]
        return f"{found[0]}:{line}" if len(found) == 1 else at

    def _graph_text(self, capture: Capture, stage: str, title: str, text: str) -> Artifact:
        """A printed graph, each of its lines with the user's line that torch prints above it."""
        made = Artifact(self._id(), stage, title, "graph", text)
        chain: tuple[str, ...] = ()
        for number, row in enumerate(text.splitlines(), 1):
            found = _COMMENT.match(row)
            if found and kind_of_file(found[1]) not in (OWN, LIBRARY):
                chain = ()
            elif found:
                chain = (f"{self._keep(capture, found[1])}:{found[2]}",)
            elif not row.strip() or row.lstrip().startswith(("return", "def ")):
                chain = ()
            if chain and (found or _NODE.match(row)):
                made.origins[number] = chain
        return made

    _ids = 0

    def _id(self) -> str:
        self._ids += 1
        return f"t{self._ids}"

    def _break(self, capture: Capture, text: str) -> None:
        told = graph_break(text)
        same = [b for b in capture.breaks if (b.what, b.where) == (told.what, told.where)]
        if not same:
            capture.breaks.append(told)
            file = told.where.partition(" in ")[0].rpartition(":")[0]
            self._keep(capture, file)

    def _recompile(self, capture: Capture, entry: Entry) -> None:
        reasons: Any = entry.payload
        if reasons.startswith("["):
            reasons = json.loads(reasons)
        for reason in [reasons] if isinstance(reasons, str) else reasons:
            failed, _, why = str(reason).partition(": ")
            what = f"an assumption of capture {failed}"
            why, at = guard_failure(why)
            if not any(told.why == why for told in capture.recompiles):
                capture.recompiles.append(Refused("pytorch.recompile", what, why, "", at))

    def _link_recompiles(self) -> None:
        """Where the value that changed was read: the guard of the earlier capture says it."""
        for number, capture in self.captures.items():
            for told in capture.recompiles:
                earlier = self.captures.get(told.what.rpartition(" ")[2])
                read = self._full(told.where) if told.where else ""
                read = read or _guard_line(told.why, earlier.guards if earlier else [])
                called = self.called_at.get(number, "")
                own = os.path.isabs(read) and kind_of_file(read.rpartition(":")[0]) == OWN
                if not own and read and called:  # a library read it, for this line of the user's
                    told.why += f" (read at {trace.short_place(read)})"
                told.where = read if own or not called else called
                told.why = changed(told.why)
                if own and called:
                    told.why += f" (called at {called.partition(' in ')[0]})"
                if not told.where:
                    told.where = next(iter(capture.files.values()), "")
                    told.where += f":{capture.first_line}" if told.where else ""
            capture.recompiled = recompiled(capture.recompiles)

    def _guards(self, capture: Capture, text: str) -> None:
        text = text.lstrip("\n")
        made = Artifact(self._id(), "guards", "guards", "guards", text)
        for number, row in enumerate(made.text.splitlines(), 1):
            _, mark, guard = row.partition("+- ")
            if not mark or re.match(r"\w*(Manager|GuardManager)\b", guard) or ": " not in guard:
                continue
            at = _PLACE.search(guard)
            place = f"{at[1]}:{at[2]}" if at else ""
            if place.startswith(("_dynamo/", "_inductor/")):
                place = ""
            capture.guards.append((re.split(r"\s+# ", guard)[0].strip(), place))
            if place:
                made.origins[number] = (place,)
        if len(made.text) > SHOWN:
            made.text = made.text[: made.text.rfind("\n", 0, SHOWN) + 1]
            made.title = "guards, the first ones"
        capture.artifacts.append(made)

    def _symbol(self, capture: Capture, told: dict[str, Any]) -> None:
        frames = [self._frame(f) for f in told.get("user_stack") or []]
        at = _user(frames)
        row = f"{told['symbol']} = {told.get('val')} in {told.get('vr')}: {told.get('source')}"
        made = next((a for a in capture.artifacts if a.stage == "symbolic_shapes"), None)
        if made is None:
            made = Artifact(self._id(), "symbolic_shapes", "sizes that vary", "text", "")
            capture.artifacts.append(made)
        if row not in made.text:
            made.text += row + "\n"
            if at:
                made.origins[made.text.count("\n")] = (trace.short_place(at.partition(" in ")[0]),)

    def _bytecode(self, number: str, code: Any, called_at: str) -> None:
        capture = self.captures.get(number)
        if capture is None:
            return
        if called_at:
            self.called_at[number] = called_at
        if "_resume_in_" not in code.co_name and capture.function == code.co_name:
            capture.function = code.co_qualname.replace("<locals>.", "")
            if called_at and kind_of_file(code.co_filename) not in (OWN, LIBRARY):
                at = called_at.partition(" in ")[0]  # a module of torch's, with its own forward
                capture.function = f"the module at {trace.short_place(at)}"
            capture.unit = f"{capture.function} [{number}]"
            self.functions[number] = capture.function
        file = io.StringIO()
        dis.dis(code, file=file, depth=0)
        name = f"{capture.function}, as compiled from the source"
        made = Artifact(self._id(), "dynamo", name, "bytecode", file.getvalue().lstrip("\n"))
        made.origins = bytecode_lines(made.text, trace.short_path(code.co_filename))
        self._keep(capture, code.co_filename)
        capture.artifacts.insert(0, made)

    def _metrics(self, capture: Capture, told: dict[str, Any]) -> None:
        def ms(name: str) -> float:
            return float(told.get(name) or 0.0) * 1000

        if told.get("fail_type"):
            where = ""
            if told.get("fail_user_frame_filename"):
                where = f"{told['fail_user_frame_filename']}:{told['fail_user_frame_lineno']}"
            where = where or f"{told.get('co_filename')}:{told.get('co_firstlineno')}"
            said = graph_break(str(told.get("fail_reason") or ""))
            name = RESUMED.sub(_NAME, str(told.get("co_name")))
            what = f"{name} was left to eager mode: {told['fail_type']}"
            why = said.what if said.why.startswith(said.what) else f"{said.what}. {said.why}"
            self.failures.append(Refused("pytorch.not_compiled", what, why, said.hint, where))
        frame, backend = ms("entire_frame_compile_time_s"), ms("backend_compile_time_s")
        inductor, code = ms("inductor_compile_time_s"), ms("code_gen_time_s")
        spent = {
            "backend, before Inductor": max(0.0, backend - inductor),
            "Inductor": max(0.0, inductor - code),
            "code generation and its compiler": code,
        }
        capture.capture_ms += max(0.0, frame - max(backend, inductor))
        for name, took in spent.items():
            if took:
                capture.stage_ms[name] = capture.stage_ms.get(name, 0.0) + took

    # ---- its graphs

    def _aot(self, capture: Capture, number: str, name: str, text: str) -> None:
        stage, kind = GRAPH_STAGES[name]
        made = self._graph_text(capture, stage, kind, text)
        if kind == "joint":
            capture.artifacts.append(made)
            return
        graph = self._graph(capture, number, kind)
        graph.artifacts.insert(0, made)
        graph.steps = steps_of(made)
        for row, chain in made.origins.items():
            target = _TARGET.search(made.text.splitlines()[row - 1])
            if target and target[2] in _READS:
                line = capture.files.get(chain[0].rpartition(":")[0], "")
                line = f"{line}:{chain[0].rpartition(':')[2]}"
                self.in_graph_reads.append((graph.label, line, target[2]))

    def _graph(self, capture: Capture, number: str, kind: str) -> GraphRun:
        label = f"{kind} {number}"
        for graph in capture.graphs:
            if graph.label == label:
                return graph
        graph = GraphRun(label, kind if kind != "backward" else f"{capture.function}_backward")
        capture.graphs.append(graph)
        return graph

    def _code(self, capture: Capture, number: str, told: dict[str, Any], text: str) -> None:
        kind = "inference"
        for one in ("forward", "backward", "inference"):
            if re.search(rf"AOT ID: \[.*_{one}'", text[:200]):
                kind = one
        graph = self._graph(capture, number, kind)
        self._last_graph[number] = graph
        graph.artifacts += self._waiting.pop(number, [])
        path = str(told.get("file_path") or told.get("filename") or "")
        self.module_paths[graph.label] = path
        nodes = [a for a in graph.artifacts if a.language == "graph"]
        known = steps_of(nodes[-1]) if nodes else []
        read = read_code(text, path, self._id, lambda file: self._keep(capture, file), known)
        graph.artifacts += read.artifacts
        graph.steps = read.steps
        graph.library = ""

    def _cache(self, number: str, name: str, told: dict[str, Any]) -> None:
        graph = self._last_graph.get(number)
        if graph is None:
            return
        state = name.removeprefix("fx_graph_cache_")
        graph.cache = {"hit": "found", "miss": "not found, so compiled"}.get(state, state)
        if told.get("cache_bypass_reason"):
            graph.cache += f": {told['cache_bypass_reason']}"
        if told.get("key"):
            self.graph_labels[str(told["key"])] = graph.label


SHOWN = 150_000  # characters of the guards' text that are kept; the table of guards has them all
_PREFACES = ("Encountered graph break", "Graph break", "Failed to handle graph break")
_NAME = r"\1"
_READS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "item")


def steps_of(graph: Artifact) -> list[Ran]:
    """The operators of a printed ATen graph: one step for each, with the lines of its nodes."""
    rows = graph.text.splitlines()
    found: dict[str, Ran] = {}
    for number, row in enumerate(rows, 1):
        target = _TARGET.search(row) if _NODE.match(row) else None
        if target is None:
            continue
        name = f"{target[1]}::{target[2]}"
        step = found.setdefault(name, Ran(name, False, [], [], [], []))
        step.operators.append(name)
        for line in graph.origins.get(number, ())[:1]:
            if line not in step.lines:
                step.lines.append(line)
                step.origins.append(line)
    return list(found.values())


def graph_break(text: str) -> Refused:
    """torch's message of a graph break, taken apart."""
    head = text.split("\nTraceback (most recent call last)")[0]
    found = next((m for row in head.splitlines() if (m := _BREAK.match(row))), None)
    frames = [(m[1], int(m[2]), m[3]) for row in head.splitlines() if (m := _FRAME.match(row))]
    where = f"{found[1]}:{found[2]}" if found else ""
    inner = next((f for f in reversed(frames) if kind_of_file(f[0]) in (OWN, LIBRARY)), None)
    own = _user(frames)
    if inner is not None:
        where = f"{inner[0]}:{inner[1]} in {inner[2]}"
    via = ""
    if own and where and own.partition(" in ")[0] != where.partition(" in ")[0]:
        name = where.partition(" in ")[0]
        via = f" It broke at {'/'.join(name.split('/')[-2:])}, called from here."
        where = own
    body = head.partition("Graph Break Reason:")[2] or head
    parts = re.split(r"^\s*(Explanation|Hint|Developer debug context): ", body, flags=re.M)
    what = [row.strip() for row in parts[0].strip().splitlines() if row.strip()]
    what = [row for row in what if not row.startswith(_PREFACES)]
    said: dict[str, list[str]] = {}
    for name, value in zip(parts[1::2], parts[2::2], strict=False):
        value = re.split(r"\n\s*For more details|\nUser code traceback", value)[0]
        said.setdefault(name, []).append(" ".join(value.split()))
    link = re.search(r"/gb/(gb\d+)", head)
    why = " ".join(said.get("Explanation", [])) or " ".join(what)
    return Refused(
        f"pytorch.{link[1]}" if link else "pytorch.graph_break",
        what[0].rstrip(".") if what else "graph break",
        why + via,
        " ".join(said.get("Hint", [])),
        where,
    )


def _user(frames: Iterable[tuple[str, int, str]]) -> str:
    """The innermost frame in the user's own files, else in a library."""
    found = ""
    for wanted in (OWN, LIBRARY):
        for file, line, name in frames:
            if kind_of_file(file) == wanted:
                found = f"{file}:{line} in {RESUMED.sub(_NAME, name)}"
        if found:
            return found
    return found


def guard_failure(why: str) -> tuple[str, str]:
    """torch's message of a guard that failed -> what failed, and the place it names (may be empty).
    Messages of tensors name none; a condition stands before the code that it came from."""
    row = why.strip().splitlines()[0] if why.strip() else ""
    at = _INSIDE.search(row)
    condition, mark, _ = row.partition("  # ")
    if not mark and at is None:
        return row, ""
    hint = re.search(r"\(HINT: (.*?)\)", row)
    said = f"{condition.strip()} does not hold any more"
    return (f"{said} ({hint[1]})" if hint else said), f"{at[1]}:{at[2]}" if at else ""


_MISMATCH = re.compile(
    r"tensor '(.+?)' (size|stride|rank|dtype|requires_grad) mismatch(?: at index (\d+))?\."
    r" expected (?:\w+=)?(\S+?), actual (\S+)"
)


def changed(why: str) -> str:
    """What torch says of a tensor that differs, as `x.shape[0] was 3, now 4`; other messages as
    they are."""
    found = _MISMATCH.match(why)
    if found is None:
        return why
    name, what, index, was, now = found.groups()
    fact = {"size": "shape", "rank": "dim()", "stride": "stride()"}.get(what, what)
    at = f"[{index}]" if index else ""
    return f"{name}.{fact}{at} was {was}, now {now}{why[found.end():]}"


def _guard_line(why: str, guards: Sequence[tuple[str, str]]) -> str:
    """Of the guards of an earlier capture, the place of the one that failed: it speaks of the same
    value."""
    named = re.search(r"tensor '([^']+)'|([LG]\[[^\s=<>!]+)", why)
    if named is None:
        return ""
    name = named[1] or named[2]
    for text, at in guards:
        if at and (why.startswith(text) or why in text):
            return at
    sources = (f"L['{name}']", f"G['{name}']", name)
    for kind in ("TENSOR_MATCH", ""):
        for text, at in guards:
            if at and text.startswith(kind) and any(source in text for source in sources):
                return at
    return ""


def add_calls(captures: Iterable[Capture], calls: Calls, on_device: Mapping[int, int]) -> None:
    """How often and how long each graph ran, and the operators in it: of those that ran on a GPU
    (`on_device`: call id -> nanoseconds), how long there."""
    graphs = {graph.label: graph for capture in captures for graph in capture.graphs}
    for capture in captures:
        number = capture.unit.rpartition("[")[2].rstrip("]")
        own = [g for g in capture.graphs if not g.label.startswith("backward")]
        if own:  # of a backend that makes no Inductor graph, the profiler shows operators only
            graphs.setdefault(f"graph {number}", own[0])
    for call in calls.of_graphs:
        graph = graphs.get(call.operator)
        if graph is None:
            continue
        graph.calls += 1
        graph.ns += call.ns
        by_name = {step.name: step for step in graph.steps}
        for part in calls.everything.children.get(call.id, ()):
            graph.inside_ns += part.ns
            step = by_name.get(part.operator)
            if step is not None:
                step.calls += 1
                step.ns += on_device.get(part.id, part.ns)
                step.library = part.ran if part.route == "kernel" else step.library
                if part.route == "kernel":
                    step.moved_bytes += nbytes(part.inputs) + nbytes(part.outputs)
    for graph in {id(g): g for g in graphs.values()}.values():
        for step in graph.steps:
            if (
                step.generated and not step.calls
            ):  # it is in its graph's time; the profiler does not see it apart
                step.calls = graph.calls
