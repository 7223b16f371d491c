"""`rushlight explain --torch`: a PyTorch program, observed as it is.

Takes the run of a program (`with TorchRecording(name) as recording:`); `recording.run()` gives a
`report.stages.Run` in the records of our own programs, with PyTorch as their vendor. What is
gathered: torch.compile's structured trace (`torch_trace`), operator calls with their lines and
reads of values (`torch_watch`), and torch.profiler's events (`torch_events`).

Invariant: the program runs as without us; whatever of torch is not as expected is left out, and
said in `facts["not_observed"]`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import platform
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

from rushlight import trace
from rushlight.errors import Unsupported, lines_of
from rushlight.interop.torch_events import Device, calls
from rushlight.interop.torch_stages import BACKEND, PYTORCH, RUSHLIGHT, describe
from rushlight.interop.torch_trace import Reader, Trace, add_calls
from rushlight.interop.torch_watch import LIMIT, Watch
from rushlight.report.captures import Artifact, Capture, Refused
from rushlight.report.records import Calls, without_graphs
from rushlight.report.stages import Run


def need_torch() -> None:
    """Unsupported, with one sentence, where torch is not installed or cannot be loaded."""
    if importlib.util.find_spec("torch") is None:
        raise Unsupported(
            "explain", "--torch observes a PyTorch program, and torch is not installed here"
        )
    # Kineto, torch's profiler, says on stderr when it starts and ends unless it is told not to.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    try:
        import torch  # noqa: F401
    except Exception as error:
        raise Unsupported(
            "explain", f"torch is installed here and cannot be loaded: {error}"
        ) from error


@contextlib.contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """`eager`: torch.compile gives back what it was given. Empty: as the program says."""
    if mode != "eager":
        yield
        return
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


class TorchRecording:
    """Observes what this thread runs for the length of a `with`."""

    def __init__(self, program: str) -> None:
        need_torch()
        self.program = program
        self.error: BaseException | None = None
        self.stopped_at: list[str] = []  # the user's lines that it went through, innermost first
        self.wall_ns = 0
        self.records: list[trace.Record] = []  # Rushlight's own, where it is the backend
        self.missing: list[str] = []  # what could not be observed, a sentence each
        self._trace = Trace()
        self._watch = Watch(self._full)
        self._profiler: Any = None
        self._events: Any = None
        self._profiling = False
        self._restore: list[Any] = []
        self._reports_before = 0
        self._reset: Any = None  # torch._dynamo.reset, once it is watched
        self._backends: list[str] = []  # of torch.compile, by name

    def __enter__(self) -> TorchRecording:
        import torch

        self._listener = self.records.append
        trace.add_listener(self._listener)
        backend = sys.modules.get("rushlight.interop.torch_backend")
        self._reports_before = len(backend.REPORTS) if backend is not None else 0
        self._trace.__enter__()
        self._watch_compile()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        try:
            options: dict[str, Any] = {"activities": activities}
            if "acc_events" in inspect.signature(torch.profiler.profile).parameters:
                options["acc_events"] = True  # without it, some versions warn
            self._profiler = torch.profiler.profile(**options)
            self._profiler.start()
            self._profiling = True
            self._give_way()
        except Exception as error:  # noqa: BLE001  (a profiler that cannot start: the rest is there)
            self._profiler = None
            self.missing.append(f"torch.profiler did not start: {error}")
        self._watch.__enter__()
        if not self._watch.sees_operators:
            self.missing.append(
                f"torch {torch.__version__} has no dispatch mode that torch.compile ignores, so "
                "operators have no line, and reads are seen only of numpy, cpu, tolist and print"
            )
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.wall_ns = time.perf_counter_ns() - self._start
        self.error = error
        if error is not None:
            _without_our_frames(error)
            stopped = () if isinstance(error, SystemExit) else lines_of(error)
            self.stopped_at = [str(where) for where in stopped]
        self._watch.__exit__(None, None, None)
        self._stop_profiler()
        for restore in self._restore:
            restore()
        self._trace.__exit__(None, None, None)
        trace.remove_listener(self._listener)

    # ---- torch's profiler

    def _give_way(self) -> None:
        """torch has one profiler at a time: a program that starts its own gets it."""
        from torch.autograd import profiler

        plain = profiler.profile.__enter__
        prepare = getattr(profiler.profile, "_prepare_trace", None)

        def stopped(function: Any) -> Any:
            def run(other: Any, *args: Any, **kwargs: Any) -> Any:
                if self._profiling and other is not getattr(self._profiler, "profiler", None):
                    self._stop_profiler()
                    self.missing.append(
                        "the program starts torch's profiler itself, so operator calls and times "
                        "are those before that"
                    )
                return function(other, *args, **kwargs)

            return run

        profiler.profile.__enter__ = stopped(plain)
        self._restore.append(lambda: setattr(profiler.profile, "__enter__", plain))
        if prepare is not None:
            profiler.profile._prepare_trace = stopped(prepare)
            self._restore.append(lambda: setattr(profiler.profile, "_prepare_trace", prepare))

    def _full(self) -> None:
        self._stop_profiler()
        self.missing.append(
            f"the program called more than {LIMIT:,} operators: calls, times and lines are those "
            "of the first ones"
        )

    def _stop_profiler(self) -> None:
        if not self._profiling:
            return
        self._profiling = False
        try:
            self._profiler.stop()
            self._events = self._profiler.events()
        except Exception as error:  # noqa: BLE001
            self.missing.append(f"torch.profiler gave no events: {error}")

    def _watch_compile(self) -> None:
        """Which backends torch.compile was asked for. torch._dynamo is large, and a program without
        torch.compile does not load it, so its bytecode is watched from the first call on."""
        import torch

        plain = torch.compile

        @functools.wraps(plain)
        def compile(*args: Any, **kwargs: Any) -> Any:
            backend = kwargs.get("backend", "inductor")
            name = backend if isinstance(backend, str) else getattr(backend, "__name__", "")
            name = name or type(backend).__name__
            if name not in self._backends:
                self._backends.append(name)
            self._trace.watch_bytecode()
            self._watch_tracing()
            return plain(*args, **kwargs)

        torch.compile = compile
        self._restore.append(lambda: setattr(torch, "compile", plain))

    def _watch_tracing(self) -> None:
        """Dynamo sees torch.Tensor's methods as they are: what wraps them is taken off while it
        traces. `torch._dynamo.reset` forgets such callbacks."""
        try:
            import torch._dynamo
            from torch._dynamo.callback import callback_handler
        except ImportError:
            return
        self._watch.hide_from_dynamo()
        pairs = (
            (callback_handler.start_callbacks, self._watch.unwrap_methods),
            (callback_handler.end_callbacks, self._watch.wrap_methods),
        )
        for registered, ours in pairs:
            if ours not in registered:
                registered.append(ours)
        if self._reset is None:
            self._reset = plain = torch._dynamo.reset

            @functools.wraps(plain)
            def reset(*args: Any, **kwargs: Any) -> Any:
                result = plain(*args, **kwargs)
                self._watch_tracing()
                return result

            def restore() -> None:
                torch._dynamo.reset = plain
                for registered, ours in pairs:
                    if ours in registered:
                        registered.remove(ours)

            torch._dynamo.reset = reset
            self._restore.append(restore)

    # ---- what was seen

    def run(self) -> Run:
        """What was observed, in the records that Rushlight's programs leave."""
        import torch

        reader = Reader(self._trace)
        device = Device()
        seen = without_graphs(Calls())
        if self._events is not None:
            try:
                seen, device = calls(
                    self._events,
                    self._watch.ops,
                    reader.graph_labels,
                    reader.functions,
                    reader.called_at,
                )
            except Exception as error:  # noqa: BLE001
                self.missing.append(f"torch.profiler's events are not as expected: {error!r}")
        captured = [c for c in reader.captures.values() if c.function != c.unit or c.artifacts]
        add_calls(captured, seen, device.spent)
        for capture in captured:
            _add_gpu_code(capture, reader.module_paths)
        uses_gpu = bool(device.kernels) or self._watch.used_gpu
        facts: dict[str, Any] = {
            "vendor": PYTORCH,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.is_available(),
        }
        facts.update(self._waits(uses_gpu, reader, captured))
        facts.update(_counters())
        if self.stopped_at:
            facts["stopped_at"] = self.stopped_at
        if self._backends:
            facts["backends"] = self._backends
        if device.kernels:
            kernels = sorted(device.kernels.items(), key=lambda item: -item[1][1])
            facts["gpu_kernels"] = [{"name": k, "calls": n, "ns": t} for k, (n, t) in kernels]
        reports = self._backend_reports()
        if reports:
            facts["rushlight_backend"] = reports
        if self.missing:
            facts["not_observed"] = list(self.missing)
        records = [*self.records, *map(_record, reader.failures)]
        vendors = dict.fromkeys(BACKEND, RUSHLIGHT) if reports else {}
        return Run(
            self.program, seen, records, "compile" if captured else "eager",
            "gpu" if uses_gpu else "cpu", wall_ns=self.wall_ns, error=_one_line(self.error),
            facts=facts, captures=captured, vendor=PYTORCH, vendors=vendors, describe=describe,
        )  # fmt: skip

    def _waits(self, gpu: bool, reader: Reader, captured: list[Capture]) -> dict[str, Any]:
        """Reads of values by line: `waits` where the program used a GPU, so that Python waited for
        it; else `reads`, which would wait for one."""
        rows: dict[tuple[str, str], list[int]] = {}
        for read in self._watch.reads:
            if read.gpu or not gpu:
                row = rows.setdefault((read.where, read.what), [0, 0])
                row[0] += 1
                row[1] += read.ns
        runs = {graph.label: graph.calls for capture in captured for graph in capture.graphs}
        for label, line, operator in reader.in_graph_reads:
            row = rows.setdefault((line, f"{operator}, inside the compiled graph"), [0, 0])
            row[0] += max(1, runs.get(label, 1))
        made = [
            {"line": line, "what": what, "count": n, "ns": spent}
            for (line, what), (n, spent) in rows.items()
        ]
        if not made:
            return {}
        order, name = ("ns", "waits") if gpu else ("count", "reads")
        return {name: sorted(made, key=lambda row: -row[order])}

    def _backend_reports(self) -> list[dict[str, Any]]:
        backend = sys.modules.get("rushlight.interop.torch_backend")
        reports = backend.REPORTS[self._reports_before :] if backend is not None else []
        return [report._asdict() for report in reports]


def _counters() -> dict[str, Any]:
    """torch._dynamo's own counts, where it was used."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    if not counters:
        return {}
    kept = ("stats", "frames", "graph_break", "aot_autograd", "inductor")
    return {"dynamo_counters": {k: dict(counters[k]) for k in kept if counters.get(k)}}


def _record(told: Refused) -> trace.Record:
    """A frame that torch left to eager mode, as a record of what was not done."""
    return trace.Record(0, 0, 0, "dynamo", told.what, "reason", told.why, None, {"reason": told})


def _one_line(error: BaseException | None) -> str:
    if error is None or isinstance(error, SystemExit) and not error.code:
        return ""
    text = [row for row in str(error).splitlines() if row.strip()]
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _without_our_frames(error: BaseException) -> None:
    """Takes the dispatch mode's frames, and torch's around them, out of an error's traceback."""
    entries: list[types.TracebackType] = []
    walk = error.__traceback__
    while walk is not None:
        entries.append(walk)
        walk = walk.tb_next
    files = [entry.tb_frame.f_code.co_filename.replace(os.sep, "/") for entry in entries]
    drop: set[int] = set()
    for i, file in enumerate(files):
        if not file.endswith("rushlight/interop/torch_watch.py"):
            continue
        drop.add(i)
        before = i - 1
        while before >= 0 and files[before].endswith(
            ("_dynamo/eval_frame.py", "torch/_compile.py")
        ):
            drop.add(before)
            before -= 1
        if i + 1 < len(files) and files[i + 1].endswith("torch/_ops.py"):
            drop.add(i + 1)
    if drop:
        made: types.TracebackType | None = None
        for i in reversed(range(len(entries))):
            if i not in drop:
                entry = entries[i]
                made = types.TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        error.__traceback__ = made


_GPU_CODE = (
    ("ttir", "ttir", "ttir"), ("ttgir", "ttgir", "ttgir"), ("llir", "llvm_ir", "llvm"),
    ("ptx", "ptx", "ptx"),
)  # fmt: skip


def _add_gpu_code(capture: Capture, paths: dict[str, str]) -> None:
    """Triton's IRs and the PTX of a graph's kernels, which the loaded module keeps."""
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache is None:
        return
    loaded = {getattr(m, "__file__", ""): m for m in codecache.PyCodeCache.modules}
    for graph in capture.graphs:
        module = loaded.get(paths.get(graph.label, ""))
        for step in graph.steps if module is not None else ():
            with contextlib.suppress(Exception):
                texts = _triton_texts(getattr(module, step.name), step.name)
                for form, stage, language in _GPU_CODE:
                    text = texts.get(form)
                    if text:
                        made = Artifact(f"{graph.label} {step.name} {form}", stage, step.name,
                                        language, str(text))  # fmt: skip
                        made.spans = [(1, len(made.text.splitlines()), step.name)]
                        graph.artifacts.append(made)


def _triton_texts(kernel: Any, name: str) -> dict[str, str]:
    """Form -> text: of the loaded binary, or where Triton's cache has it."""
    launcher = kernel.launchers[0]
    asm = getattr(getattr(launcher, "bin", None), "asm", None)
    if asm:
        return {form: str(asm[form]) for form, _, _ in _GPU_CODE if form in asm}
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    folder = os.environ.get("TRITON_CACHE_DIR") or triton_cache_dir(kernel.device_props.index)
    found = {}
    for form, _, _ in _GPU_CODE:
        file = os.path.join(folder, launcher.cache_hash, f"{name}.{form}")
        with contextlib.suppress(OSError), open(file, encoding="utf-8") as stream:
            found[form] = stream.read()
    return found
