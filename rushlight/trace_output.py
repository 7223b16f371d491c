"""Outputs of records: the log on stderr and the debug folder.

Takes the settings `logs` and `compile_debug`; adds listeners to `trace`. A log is chosen by name;
each name stands for stages (with what nests in them) or for reasons. Invariant: an output never
stops the program: an unknown name or a folder that cannot be written is one sentence on stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rushlight import config, trace


class Log(NamedTuple):
    name: str
    stages: tuple[str, ...]  # empty: every stage
    what: str
    reasons_only: bool = False


# fmt: off
LOGS: dict[str, Log] = {log.name: log for log in (
    Log("ops",
        ("dispatch", "validate", "promote", "allocate", "view"), "Operator calls as they run."),
    Log("plans", ("plan",), "Plans made and dropped, with what they were made for."),
    Log("kernels", ("kernel", "aten_cpu", "aten_cuda"), "Kernels found, with their source."),
    Log("libraries", ("library",), "Library routines chosen, copies made for them."),
    Log("autograd", ("tape", "backward"), "What is saved for gradients, derivative programs."),
    Log("dynamo", ("dynamo", "frame_hook"), "Capture: frames, guards, breaks, recompiles."),
    Log("guards", ("guards",), "What captures assumed."),
    Log("graph_breaks", ("graph_break",), "Code that ran in Python between graphs, and why."),
    Log("recompiles", ("recompile",), "Which assumption failed, and what changed."),
    Log("graphs", ("fx_graph",), "Graphs after capture and after each rewrite."),
    Log("inductor", ("inductor",), "Loops, fusion, schedule, memory plan, wrapper."),
    Log("fusion", ("fusion",), "What was fused, what was not and why."),
    Log("code", ("wrapper", "cpp_openmp", "triton_kernels"), "Generated code."),
    Log("cache", ("artifact_cache",), "Artifacts found on disk, or missed and why."),
    Log("gpu", ("nvidia_gpu",), "Launches, copies, waits, CUDA graphs."),
    Log("reasons", (), "Everything that was refused, in whatever stage.", reasons_only=True),
    Log("all", (), "Everything."),
)}
# fmt: on


def start(flags: config.Flags) -> None:
    """Adds the outputs that the settings ask for."""
    if flags.logs:
        start_logs(flags.logs)
    if flags.compile_debug:
        trace.add_listener(DebugFolder(flags.debug_dir))


_log: LogWriter | None = None


def start_logs(names: str) -> None:
    """Replaces the log by one of these names."""
    global _log
    if _log is not None:
        trace.remove_listener(_log)
        _log = None
    chosen = parse_logs(names)
    if chosen:
        _log = LogWriter(chosen)
        trace.add_listener(_log)


def parse_logs(names: str) -> list[Log]:
    """The logs named; says on stderr which names are unknown, or all of them for 'help'."""
    words = [w.strip() for w in names.split(",") if w.strip()]
    if "help" in words:
        print(describe_logs(), file=sys.stderr)
        words.remove("help")
    unknown = [w for w in words if w not in LOGS]
    if unknown:
        said = ", ".join(repr(w) for w in unknown)
        print(
            f"rushlight: RUSHLIGHT_LOGS: unknown {said}; known are {', '.join(LOGS)}, help",
            file=sys.stderr,
        )
    return [LOGS[w] for w in words if w in LOGS]


def describe_logs() -> str:
    width = max(map(len, LOGS))
    lines = [f"  {log.name:{width}}  {log.what}" for log in LOGS.values()]
    return "RUSHLIGHT_LOGS takes a comma-separated list of\n" + "\n".join(lines)


class LogWriter:
    """Writes the records of its logs to stderr, each under the first log that takes it."""

    def __init__(self, logs: list[Log]) -> None:
        self.logs = logs

    def __call__(self, record: trace.Record) -> None:
        chain = trace.within(record.stage)
        for log in self.logs:
            if log.reasons_only and record.kind != "reason":
                continue
            if not log.stages or any(stage in log.stages for stage in chain):
                print(format_record(record, log.name), file=sys.stderr)
                return


def format_record(record: trace.Record, log: str) -> str:
    """`[log] stage name fact=value` and the text below it, indented when it has several lines."""
    if record.kind == "reason":
        return f"[{log}] {record.text}"
    head = f"[{log}] {record.stage} {record.name}"
    facts = " ".join(f"{k}={_short(v)}" for k, v in record.facts.items())
    if facts:
        head += f"  {facts}"
    lines = record.text.splitlines()
    if len(lines) == 1:
        return f"{head}  {lines[0]}"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def _short(value: Any, limit: int = 120) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class DebugFolder:
    """Writes `FOLDER/<date>-<process>/<stage>/<number>-<name>.<extension>` for every record that
    has a text, and one line of `index.jsonl` for every record."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}")
        self.count = 0
        self.failed = False

    def __call__(self, record: trace.Record) -> None:
        if self.failed:
            return
        try:
            self._write(record)
        except OSError as error:
            self.failed = True
            print(
                f"rushlight: RUSHLIGHT_COMPILE_DEBUG: cannot write {self.folder}: {error}",
                file=sys.stderr,
            )

    def _write(self, record: trace.Record) -> None:
        self.count += 1
        os.makedirs(self.folder, exist_ok=True)
        file = None
        if record.text:
            stage = os.path.join(*(_file_name(s) for s in reversed(trace.within(record.stage))))
            os.makedirs(os.path.join(self.folder, stage), exist_ok=True)
            kind = trace.KINDS.get(record.kind, trace.KINDS["text"])
            file = os.path.join(
                stage, f"{self.count:04d}-{_file_name(record.name)}.{kind.extension}"
            )
            with open(
                os.path.join(self.folder, file), "w", encoding="utf-8", errors="replace"
            ) as out:
                out.write(record.text if record.text.endswith("\n") else record.text + "\n")
        line = {
            "number": self.count,
            "stage": record.stage,
            "name": record.name,
            "kind": record.kind,
            "file": file,
            "time_ns": record.time_ns,
            "facts": _plain(record.facts),
        }
        if record.sourcemap:
            line["sourcemap"] = {str(k): list(v) for k, v in record.sourcemap.items()}
        with open(os.path.join(self.folder, "index.jsonl"), "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _file_name(name: str) -> str:
    """A name that is one component of a path on every system: no separators, no leading dot, at
    most 80 characters."""
    return re.sub(r"[^\w.,=+-]+", "_", name)[:80].lstrip(".") or "_"


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: v if isinstance(v, (int, float, bool, str, type(None))) else str(v)
        for k, v in facts.items()
    }
