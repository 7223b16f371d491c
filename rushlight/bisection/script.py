"""`rushlight bisect SCRIPT`: the script in processes of its own, and what their answers say.

    eager     compile() gives back what it got; the results of its calls are written down
    staged    graphs are captured and run as they stand; each is looked into at its first calls
              (stages.py). Results that differ from eager mode's: capture is wrong
    whole     as the script is. Results that differ though each graph is right: what is kept between
              calls is wrong

Every run starts from the same seeds. A process that is killed tells which step it was in, and the
run is repeated with the earliest stages first. Invariant: a difference is believed only where two
eager runs agree.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import rushlight as rl
from rushlight import _core, compiled, pipeline, trace  # type: ignore[attr-defined]
from rushlight.dtypes import is_floating
from rushlight.dynamo import convert, entry
from rushlight.dynamo.calls import call_function
from rushlight.dynamo.leaves import LEAVES
from rushlight.scripts import execute, in_mode

from . import reproduction
from .shrinking import shrink
from .stages import STAGES, Finding, examine
from .values import copies, near, tensors_in, told

CALLS = 3  # of each graph and kind of inputs that are looked into
RECORDED, BYTES = 200, 1 << 28  # calls whose results are written down, and how much
FAR = 0.02  # of the largest number: how far a whole run may be from eager mode's


# ---- in the script's process


class Session:
    """One run of the script. `folder` gets `status` (the step that begins), `results`, `found`."""

    def __init__(self, kind: str, folder: str, calls: int, careful: bool) -> None:
        self.kind, self.folder, self.budget, self.careful = kind, folder, calls, careful
        self.place: tuple[str, list[str], str, str] = ("", [], "", "")  # what `child` was given
        self.calls: list[dict[str, Any]] = []
        self.chosen = False  # whether a graph compared floats so far
        self.bytes, self.depth, self.count = 0, 0, 0
        self.running = ""
        self.asked: dict[tuple, int] = {}
        self.finding: Finding | None = None
        self.fallbacks: dict[str, str] = {}

    def say(self, step: str, graph: str) -> None:
        with open(os.path.join(self.folder, "status"), "w") as out:
            json.dump([step, graph, self.running, self.count], out)

    @contextmanager
    def installed(self) -> Iterator[None]:
        plain = entry.compiled

        def compiled_here(function: Any, settings: convert.Options) -> Any:
            if self.kind == "eager":
                return self.recorded(function, function)
            if self.kind == "staged" and ours(settings.backend):
                settings = convert.Options(
                    self.backend, settings.fullgraph, settings.dynamic, settings.mode,
                    settings.options,
                )  # fmt: skip
            return self.recorded(plain(function, settings), function)

        entry.compiled = compiled_here
        try:
            with trace.listen(self.listen):
                yield
        finally:
            entry.compiled = plain

    def listen(self, record: trace.Record) -> None:
        reason = record.facts.get("reason")
        if reason is not None and reason.id in ("fallback.graph", "capture.skipped"):
            self.fallbacks[reason.what] = reason.why

    def recorded(self, called: Callable, function: Any) -> Callable:
        """`called`, its outermost calls written down; inside a capture it is `function`."""
        name = getattr(function, "__qualname__", "f")

        def run(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return called(*args, **kwargs)
            self.depth += 1
            self.count += 1
            self.running = name
            try:
                made = called(*args, **kwargs)
            except Exception as error:
                self.keep(name, [], told(error))
                raise
            finally:
                self.depth -= 1
            self.keep(name, [made, args, kwargs], "")
            return made

        _core.frame_skip(run)
        LEAVES[run] = lambda f, *args, **kwargs: call_function(f, function, args, kwargs)
        run.__name__ = run.__qualname__ = name
        run.__dict__["__rushlight_original__"] = function
        return run

    def keep(self, name: str, values: list, error: str) -> None:
        found = [x.detach() for x in tensors_in(values)]
        self.bytes += sum(x.numel() * x.element_size() for x in found)
        full = len(self.calls) >= RECORDED or self.bytes > BYTES
        self.calls.append(
            {"function": name, "error": error, "kept": not full,
             "values": [] if full else [x.cpu() for x in copies(found)],
             "plain": [] if full else plain_values(values[:1]), "chosen": self.chosen}
        )  # fmt: skip

    def backend(self, gm: Callable, example_inputs: Any) -> Callable:
        return compiled.compiled(gm, example_inputs, 0, partial(Examined, session=self))

    def end(self, code: int) -> None:
        rl.save({"calls": self.calls, "code": code}, os.path.join(self.folder, "results"))
        with open(os.path.join(self.folder, "notes"), "w") as out:
            json.dump(self.fallbacks, out)


class Examined:
    """A captured graph that runs as it stands; its first calls are looked into."""

    trusted = True

    def __init__(
        self, gm: Callable, example_inputs: Any, check: int = 0, *, session: Session
    ) -> None:
        self.gm, self.examples, self.session = gm, list(example_inputs), session

    def __call__(self, *inputs: Any) -> Any:
        session = self.session
        session.chosen = session.chosen or chooses(self.gm)
        key = (id(self), _core.mode(), *map(kind_of, inputs))
        asked = session.asked.get(key, 0)
        if asked < session.budget and session.finding is None:
            session.asked[key] = asked + 1
            graph = getattr(getattr(self.gm, "graph", None), "name", "graph")
            say = lambda step: session.say(step, graph)
            found = examine(self.gm, self.examples, inputs, say, session.careful)
            if found is not None:
                self.tell(found)
        return self.gm(*inputs)

    def tell(self, found: Finding) -> None:
        session = self.session
        found.function, found.call = session.running, session.count
        session.finding = shrink(found)
        write_finding(session, session.finding)


def write_finding(session: Session, found: Finding) -> None:
    script, args, mode, file = session.place
    files = reproduction.write(found, file, script, args, mode)
    told = {k: getattr(found, k) for k in ("stage", "step", "what", "node", "function", "call")}
    with open(os.path.join(session.folder, "found"), "w") as out:
        json.dump(told | {"title": found.title, "files": files}, out)


def chooses(gm: Callable) -> bool:
    """Whether a graph makes integers or bools of floats, as `argmax` and comparisons do."""
    floats = set()  # nodes, among them tuples that hold such tensors
    for node in gm.graph.nodes:  # type: ignore[attr-defined]
        layout = node.meta.get("layout")
        of_floats = any(read in floats for read in node.reads)
        if layout is None and of_floats or layout is not None and is_floating(layout.dtype):
            floats.add(node)
        elif layout is not None and of_floats:
            return True
    return False


def ours(backend: Any) -> bool:
    function = getattr(backend, "func", backend)
    return backend == "inductor" or function is pipeline.compile_fx


def kind_of(x: Any) -> Any:
    if hasattr(x, "data_ptr"):
        return (x.dtype.name, tuple(x.shape), tuple(x.stride()), x.requires_grad)
    return (type(x).__name__, x if isinstance(x, (bool, str)) else None)


def plain_values(v: Any) -> list:
    """The numbers and texts of a result, in order."""
    if isinstance(v, dict):
        v = tuple(v.values())
    if isinstance(v, (tuple, list)):
        return [x for y in v for x in plain_values(y)]
    return [v] if isinstance(v, (bool, int, float, str, type(None))) else []


def child(words: list[str]) -> int:
    """`python -m rushlight.bisection KIND FOLDER CALLS CAREFUL MODE REPRODUCTION SCRIPT ARGS...`"""
    kind, folder, calls, careful, mode, file, script, *args = words
    session = Session(kind, folder, int(calls), careful == "1")
    session.place = (script, args, mode, file)
    seed()
    with in_mode(mode), session.installed():
        code = execute(script, args)
    session.end(code)
    return code


def seed() -> None:
    rl.manual_seed(0)
    random.seed(0)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(0)


# ---- beside it


@dataclass
class Ran:
    """One run of the script. `killed`: the signal that ended it; `status`: the step it was in."""

    code: int
    killed: int = 0
    calls: list = field(default_factory=list)
    found: dict | None = None
    status: list = field(default_factory=list)
    notes: dict = field(default_factory=dict)
    output: str = ""


@dataclass
class Verdict:
    """`code`: 0 nothing is wrong, 1 a stage is, 2 it cannot be said. `lines`: what is said."""

    code: int
    lines: list[str]
    stage: str = ""
    step: str = ""
    files: list[str] = field(default_factory=list)


class Runs:
    def __init__(self, script: str, args: list[str], mode: str, calls: int, file: str) -> None:
        self.script, self.args, self.mode, self.calls, self.file = script, args, mode, calls, file

    def run(self, kind: str, careful: bool = False, show: bool = False) -> Ran:
        with tempfile.TemporaryDirectory(prefix="rushlight-bisect-") as folder:
            command = [
                sys.executable, "-m", "rushlight.bisection", kind, folder, str(self.calls),
                str(int(careful)), self.mode, self.file, self.script, *self.args,
            ]  # fmt: skip
            done = subprocess.run(
                command, env=environment(), text=True, errors="replace",
                stdout=None if show else subprocess.PIPE, stderr=None if show else subprocess.PIPE,
            )  # fmt: skip
            made = Ran(done.returncode, max(0, -done.returncode), output=done.stderr or "")
            results = os.path.join(folder, "results")
            if os.path.exists(results):
                made.calls = rl.load(results)["calls"]
            made.found = read(folder, "found")
            made.status = read(folder, "status") or []
            made.notes = read(folder, "notes") or {}
            return made


def read(folder: str, name: str) -> Any:
    file = os.path.join(folder, name)
    if not os.path.exists(file):
        return None
    with open(file) as stream:
        return json.load(stream)


def environment() -> dict[str, str]:
    """Of the script's process: it finds this package, and its sets are in one order."""
    import rushlight

    made = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    place = os.path.dirname(os.path.dirname(os.path.abspath(rushlight.__file__)))
    if os.path.basename(place) != "site-packages":
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [place, made.get("PYTHONPATH", "")]))
    return made


def bisect_script(
    script: str, args: list[str], mode: str = "", calls: int = CALLS, file: str = ""
) -> Verdict:
    """Which stage makes an answer of the script wrong; the reproduction goes to `file`."""
    file = file or f"bisect_{os.path.splitext(os.path.basename(script))[0]}.py"
    runs = Runs(script, args, mode, calls, file)
    eager = runs.run("eager", show=True)
    if eager.killed:
        text = f"the script is killed by {name_of(eager.killed)} in eager mode: there is no answer"
        return Verdict(2, [text, "to compare with."])
    if not eager.calls:
        return Verdict(
            2, ["the script calls nothing that is compiled." + ("" if mode else " With --mode "
                "compile, the outermost calls of its modules are.")],
        )  # fmt: skip
    staged = runs.run("staged")
    if staged.killed:
        careful = runs.run("staged", careful=True)
        return crashed(careful if careful.killed else staged, runs)
    wrong = first_difference(eager.calls, staged.calls)
    if wrong is not None:
        return believed(wrong, "capture", runs, eager)
    if staged.found is not None:
        return said(staged.found)
    whole = runs.run("whole")
    if whole.killed:
        return crashed(whole, runs)
    unjudged: list[str] = []
    wrong = first_difference(eager.calls, whole.calls, FAR, staged.calls, unjudged)
    if wrong is not None:
        return believed(wrong, "guards", runs, eager)
    lines = [f"nothing is wrong: {len(eager.calls)} compiled calls give what eager mode gives,"]
    lines.append("and so does each of their graphs, stage by stage.")
    unseen = sum(not call["kept"] for call in eager.calls)
    if unseen:
        lines.append(f"The results of {unseen} of the calls were too many to compare.")
    if unjudged:
        lines.append(f"Not judged: {len(unjudged)} tensors of integers or bools that differ, which "
                     f"may come from floats that were compared; first: {unjudged[0]}")  # fmt: skip
    lines += [f"{what} ran in eager mode: {why}" for what, why in whole.notes.items()]
    return Verdict(0, lines)


def first_difference(
    eager: list, other: list, far: float = 0.0, staged: list | None = None,
    unjudged: list[str] | None = None,
) -> tuple | None:  # fmt: skip
    """(call number from 1, function, sentence) of the first call that gives something else.

    `far`: how far floats may be apart, of the largest of a tensor; integers, bools and texts are
    the same or differ. But a tensor of integers can be chosen by comparing floats (`argmax`) that
    are a little apart: after such floats, or once a graph compares floats (the calls of `staged`
    say so), one that differs goes to `unjudged`."""
    apart = False
    for i, (a, b) in enumerate(zip(eager, other), 1):
        if a["function"] != b["function"]:
            return i, a["function"], f"{b['function']} is called instead"
        if a["error"].split(":")[0] != b["error"].split(":")[0]:
            told = b["error"] or "nothing"
            return i, a["function"], f"it raises {told}, in eager mode {a['error'] or 'nothing'}"
        if not (a["kept"] and b["kept"]):
            apart = True
            continue
        if len(a["values"]) != len(b["values"]):
            many, few = len(b["values"]), len(a["values"])
            return i, a["function"], f"it gives {many} tensors, in eager mode {few}"
        chosen = staged is not None and (i > len(staged) or staged[i - 1]["chosen"])
        for k, (x, y) in enumerate(zip(a["values"], b["values"])):
            if far and same_kind(x, y) and is_floating(x.dtype.name):
                apart = apart or not bool((x == y).all())
            found = near(f"tensor {k} of result and arguments", y, x)
            if found is None or far and close(x, y, far):
                continue
            if far and unjudged is not None and (apart or chosen) and whole_numbers(x, y):
                unjudged.append(f"in call {i} of {a['function']}, {found}")
                continue
            return i, a["function"], str(found)
        if not same_plain(a["plain"], b["plain"], far):
            return i, a["function"], f"it gives {b['plain']}, in eager mode {a['plain']}"
    if len(eager) != len(other):
        many = f"{len(other)} compiled calls are made, in eager mode {len(eager)}"
        last = (eager if len(eager) > len(other) else other)[min(len(eager), len(other))]
        return min(len(eager), len(other)) + 1, last["function"], many
    return None


def same_kind(x: Any, y: Any) -> bool:
    return tuple(x.shape) == tuple(y.shape) and x.dtype is y.dtype


def whole_numbers(x: Any, y: Any) -> bool:
    return same_kind(x, y) and not is_floating(x.dtype.name)


def close(x: Any, y: Any, far: float) -> bool:
    """Whether floats are near enough for a run in which small differences grow."""
    if not same_kind(x, y) or not is_floating(x.dtype.name):
        return False
    if bool((x.isnan() != y.isnan()).any()):
        return False
    x, y = x.nan_to_num(), y.nan_to_num()
    return float((x - y).abs().max()) <= far * max(float(x.abs().max()), 1e-30)


def same_plain(a: list, b: list, far: float) -> bool:
    """Whether numbers and texts are the same; floats up to `far`."""
    if not far or len(a) != len(b):
        return repr(a) == repr(b)
    return all(
        repr(x) == repr(y) or type(x) is type(y) is float and abs(x - y) <= far * max(abs(x), 1e-30)
        for x, y in zip(a, b)
    )


def believed(wrong: tuple, stage: str, runs: Runs, eager: Ran) -> Verdict:
    """A difference between two runs, unless eager mode differs from itself."""
    call, function, what = wrong
    again = first_difference(eager.calls, runs.run("eager").calls)
    if again is not None and again[0] <= call:
        return Verdict(
            2, [f"two runs in eager mode differ: call {again[0]}, {again[1]}: {again[2]}.",
                "Whether compiled code is right cannot be said: let the script set its seeds."]
        )  # fmt: skip
    found = Finding(stage, "", what, function=function, call=call)
    files = reproduction.write(found, runs.file, runs.script, runs.args, runs.mode)
    named = {"stage": stage, "step": "", "what": what, "node": "", "function": function}
    return said(named | {"call": call, "title": found.title, "files": files})


def said(found: dict) -> Verdict:
    lines = [f"wrong: {found['title']}", f"  {found['what']}"]
    lines.append(f"  in call {found['call']} of {found['function'] or 'the program'}")
    if found["node"]:
        lines.append(f"  first wrong: {found['node']}")
    if found["files"]:
        lines.append(f"  reproduction: {', '.join(found['files'])}")
    return Verdict(1, lines, found["stage"], found["step"], found["files"])


def crashed(ran: Ran, runs: Runs) -> Verdict:
    step, graph, function, call = ran.status or ["", "", "", 0]
    stage = step if step in STAGES else "pass" if step else "guards"
    found = Finding(stage, step, f"the process is killed by {name_of(ran.killed)}",
                    function=function, call=call)  # fmt: skip
    files = reproduction.write(found, runs.file, runs.script, runs.args, runs.mode)
    verdict = said({"title": found.title, "what": found.what, "call": call, "function": function,
                    "node": f"in graph {graph}" if graph else "", "stage": stage, "step": step,
                    "files": files})  # fmt: skip
    return verdict


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def compare_text(text: str, args: list[str], kind: str, mode: str) -> int:
    """For reproductions: a script's text in eager mode and in another kind of run; 1 where they
    differ."""
    with tempfile.TemporaryDirectory(prefix="rushlight-bisect-") as folder:
        script = os.path.join(folder, "script.py")
        with open(script, "w", encoding="utf-8") as out:
            out.write(text)
        runs = Runs(script, args, mode, 0, os.path.join(folder, "again.py"))
        eager, other = runs.run("eager"), runs.run(kind)
        staged = other if kind == "staged" else runs.run("staged")
    if other.killed:
        print(f"killed by {name_of(other.killed)}")
        return 1
    far = 0.0 if kind == "staged" else FAR
    wrong = first_difference(eager.calls, other.calls, far, staged.calls, [])
    print(f"call {wrong[0]} of {wrong[1]}: {wrong[2]}" if wrong else "they agree")
    return int(wrong is not None)
