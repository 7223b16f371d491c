"""What each documented stage did in a PyTorch program, in words, and whose stage it was.

Takes a `Run` of what torch_observe gathered; `describe(run, stage, mode)` is what `report.observe`
asks in place of Rushlight's own words. Invariant: a number is counted from torch's records, and a
stage that torch did is called PyTorch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rushlight.report import stages, table
from rushlight.report.records import Calls, nbytes
from rushlight.report.stages import Finer, Run, Told
from rushlight.report.words import bytes_, count, ns

PYTORCH, RUSHLIGHT = "PyTorch", "Rushlight"
# Those that are a backend's work, and so Rushlight's under torch.compile(backend="rushlight").
BACKEND = ("inductor", "cpp_openmp", "triton_kernels", "triton_compiler", "llvm_ir", "ptx")


def describe(run: Run, stage: str, mode: str) -> Told:
    found = _DESCRIBE[mode].get(stage) or _DESCRIBE["both"].get(stage)
    told = found(run) if found is not None else _NOTHING
    return told if told.count or stage in BACKEND else _NOTHING


_NOTHING = Told("", 0, None, [])


def _aten(run: Run) -> Told:
    calls = Calls(c for c in run.calls if c.kind != "backward")
    if not calls:
        return _NOTHING
    names = {call.operator for call in calls}
    nested = sum(1 for call in calls if call.parent is not None)
    text = f"{count(len(calls), 'call')} of {count(len(names), 'operator')}"
    text += f", {nested} of them made inside other operators" if nested else ""
    routes = Counter(call.route for call in calls)
    words = (("kernel", "kernel call"), ("view", "view"), ("program", "composition"))
    finer = [
        Finer("dispatch", "", len(calls), None,
              ", ".join(count(routes[r], word) for r, word in words if routes[r]))
    ]  # fmt: skip
    backward = [c for c in run.calls if c.kind == "backward"]
    if backward:
        spent = sum(c.ns for c in backward)
        kinds = count(len({c.operator for c in backward}), "derivative")
        text_ = f"{count(len(backward), 'node')} of the tape ran, of {kinds}"
        finer.append(Finer("backward", "", len(backward), spent, text_))
    return Told(text + ".", len(calls), None, finer)


def _kernels_of(calls: Calls) -> Told:
    rows = table.ran(calls, "kernel", {})
    if not rows:
        return _NOTHING
    n, spent = sum(row.calls for row in rows), sum(row.ns for row in rows)
    text = f"{count(n, 'call')} of {count(len(rows), 'operator')} that compute took {ns(spent)}"
    text += f"; most in {rows[0].key} ({ns(rows[0].ns)})"
    return Told(text + ".", n, spent, [])


def _kernels(run: Run) -> Told:
    return _kernels_of(run.calls)


def _kernels_in_graphs(run: Run) -> Told:
    return _kernels_of(run.calls.inside)


def _hardware(run: Run, calls: Calls) -> Told:
    rows = [call for call in calls if call.route == "kernel"]
    spent = sum(calls.own[call.id] for call in rows)
    moved = sum(nbytes(call.inputs) + nbytes(call.outputs) for call in rows)
    text = f"{ns(spent)} in operators that compute, on {bytes_(moved)} of operands and results"
    threads = run.facts.get("threads")
    text += f"; {count(int(threads), 'thread')}" if threads else ""
    return Told(text + ".", len(rows), spent, _reads(run))


def _reads(run: Run) -> list[Finer]:
    waits = run.facts.get("waits") or run.facts.get("reads") or []
    if not waits:
        return []
    times = sum(row["count"] for row in waits)
    would = "waits" if run.device == "gpu" else "would wait on a GPU"
    text = f"{count(times, 'read')} of a tensor's value at {count(len(waits), 'line')}: {would}"
    return [Finer("synchronise", "", times, None, text)]


def _cpu(run: Run) -> Told:
    return _hardware(run, run.calls)


def _cpu_compiled(run: Run) -> Told:
    calls = run.calls.inside
    graphs = run.calls.of_graphs
    told = _hardware(run, calls)
    spent = sum(call.ns for call in graphs)
    if graphs:
        text = f"{count(len(graphs), 'call')} of compiled graphs took {ns(spent)}"
        told = Told(f"{text}. {told.sentence}", len(graphs), spent, told.finer)
    return told


def _gpu(run: Run) -> Told:
    kernels = run.facts.get("gpu_kernels") or []
    if not kernels:
        return _NOTHING
    n, spent = sum(k["calls"] for k in kernels), sum(k["ns"] for k in kernels)
    text = f"{count(n, 'kernel')} of {count(len(kernels), 'kind')} took {ns(spent)}"
    text += f"; most in {kernels[0]['name']}"
    return Told(text + ".", n, spent, _reads(run))


def _inductor(run: Run) -> Told:
    """Whichever backend: Inductor says so by its code, Rushlight by its reports."""
    ours = run.facts.get("rushlight_backend")
    if ours:
        nodes, left = sum(r["ours"] for r in ours), Counter[str]()
        for report in ours:
            left.update(report["left"])
        text = f"{count(len(ours), 'graph')} handed to the backend rushlight: "
        text += f"{count(nodes, 'node')} became its operators, {sum(left.values())} stayed torch's"
        return Told(text + ".", len(ours), None, [])
    graphs = [g for c in run.captures for g in c.graphs if _is_inductors(g)]
    if not graphs:
        return Told(_other_backend(run), 0, None, [])
    steps = [step for graph in graphs for step in graph.steps]
    made = [step for step in steps if step.generated]
    text = (
        f"{count(len(graphs), 'graph')} lowered to {count(len(steps), 'step')}: "
        f"{count(len(made), 'generated kernel')} for "
        f"{count(sum(len(s.operators) for s in made), 'operator')}, "
        f"{count(len(steps) - len(made), 'call')} of what is there"
    )
    spent = sum(ms for c in run.captures for name, ms in c.stage_ms.items() if _of_inductor(name))
    text += f"; {ns(spent * 1e6)} to compile" if spent else ""
    found = sum(g.cache == "found" for g in graphs)
    finer = [
        Finer("artifact_cache", "", found, None, f"{found} found, {len(graphs) - found} compiled")
    ]
    return Told(text + ".", len(graphs), round(spent * 1e6) or None, finer)


def _other_backend(run: Run) -> str:
    names = [name for name in run.facts.get("backends", ()) if name != "inductor"]
    return f"The graphs went to another backend: {', '.join(names)}." if names else ""


def _is_inductors(graph: stages.GraphRun) -> bool:
    return any(artifact.stage == "wrapper" for artifact in graph.artifacts)


def _of_inductor(name: str) -> bool:
    return name in ("Inductor", "code generation and its compiler")


def _texts(stage: str, word: str) -> Callable[[Run], Told]:
    """A stage that is there where a text of it is."""

    def told(run: Run) -> Told:
        graphs = [graph for capture in run.captures for graph in capture.graphs]
        found = [a for graph in graphs for a in graph.artifacts if a.stage == stage]
        if not found:
            return Told(_other_backend(run), 0, None, [])
        names = ", ".join(dict.fromkeys(a.title for a in found[:3]))
        return Told(f"{count(len(found), word)}: {names}.", len(found), None, [])

    return told


def _own(mode: str, stage: str) -> Callable[[Run], Told]:
    """Words that hold for PyTorch as they hold for Rushlight: counted from calls and captures."""
    return lambda run: stages.describe_own(run, stage, mode)


_DESCRIBE: dict[str, dict[str, Callable[[Run], Told]]] = {
    "eager": {
        "python_code": _own("eager", "python_code"),
        "cpython": _own("eager", "cpython"),
        "aten": _aten,
        "aten_cpu": _kernels,
        "aten_cuda": _kernels,
        "cpu": _cpu,
    },
    "compile": {
        "python_code": _own("compile", "python_code"),
        "cpython": _own("compile", "cpython"),
        "dynamo": _own("compile", "dynamo"),
        "fx_graph": _own("compile", "fx_graph"),
        "inductor": _inductor,
        "aten_cpu": _kernels_in_graphs,
        "aten_cuda": _kernels_in_graphs,
        "cpu": _cpu_compiled,
    },
    "both": {
        "cpp_openmp": _texts("cpp_openmp", "generated C++ kernel"),
        "triton_kernels": _texts("triton_kernels", "Triton kernel"),
        "triton_compiler": _texts("ttgir", "kernel"),
        "llvm_ir": _texts("llvm_ir", "kernel"),
        "ptx": _texts("ptx", "kernel"),
        "nvidia_gpu": _gpu,
    },
}
