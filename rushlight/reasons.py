"""Reasons: why something was not done, as values under stable ids.

Takes an id of the registry below and what is known at the spot; gives a `Reason`, already recorded
through `trace`. Invariant: nothing in the package refuses, breaks, misses or falls back with a bare
False; it returns a Reason (and None where nothing stood against it), made by `refuse`:

    def why_not_fuse(a, b) -> Reason | None:
        if a.space != b.space:
            why = f"loops {a.space} and {b.space} differ"
            return refuse("fusion.space", f"{a.name} with {b.name}", why)
        return None
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight import config, trace
from rushlight.errors import Where, user_line


class Id(NamedTuple):
    id: str
    stage: str  # the trace stage it is recorded under
    what: str  # one sentence


# fmt: off
IDS: dict[str, Id] = {i.id: i for i in (
    Id("eager.composition", "dispatch",
        "No precompiled kernel has this operator with these dtypes, so it ran as the operators "
        "that define it."),
    Id("eager.compiled_kernel", "dispatch",
        "No pack of precompiled GPU kernels has this kernel, so it was compiled on first use."),
    Id("eager.host_fallback", "fallback",
        "The GPU has no kernel and no library routine for this call, so it ran on the host: its "
        "operands were copied there and its results back."),
    Id("cuda.bad_pack", "dispatch",
        "A file of precompiled GPU kernels could not be read."),
    Id("eager.no_kernel", "dispatch",
        "An operator has neither a precompiled kernel nor a definition for these dtypes."),
    Id("eager.operand_copied", "library",
        "A library routine does not take this operand's strides, so a contiguous copy was made "
        "first."),
    Id("eager.temporary", "allocate",
        "The result could not be written straight into its destination, so it went through a "
        "temporary."),
    Id("eager.library_missing", "library",
        "A library that would have run this operator is not installed or did not load."),
    Id("interop.setting", "dynamo",
        "A setting of torch's compiler was changed that means nothing here; it is kept."),
    Id("interop.dtype", "fallback",
        "A program asked for a data type that only PyTorch has: its name is there to be compared, "
        "and no tensor can be made of it."),
    Id("jit.archive", "fallback",
        "An archive of TorchScript was to be written or read; it holds bytecode of TorchScript."),
    Id("eager.plan_evicted", "plan",
        "More different calls were made than the plan cache keeps, so an old plan was dropped."),
    Id("eager.not_differentiable", "tape",
        "An operand requires a gradient, and the operator has no derivative for it."),
    Id("capture.unsupported", "graph_break",
        "Something was used that cannot be recorded in a graph."),
    Id("capture.data_dependent", "graph_break",
        "Python needed a value that is known only when the graph runs."),
    Id("capture.guard_failed", "recompile",
        "An assumption of an earlier capture did not hold for this call."),
    Id("capture.graph_failed", "dynamo",
        "A captured graph raised, so its function ran again in eager mode, which raises at the "
        "user's line."),
    Id("capture.recompile_limit", "recompile",
        "A function was captured as often as the limit allows; other calls of it run in eager "
        "mode."),
    Id("fusion.space", "fusion", "Two loops go over different index spaces."),
    Id("fusion.dependency", "fusion",
        "Fusing would read a value before all of it is written, or make a cycle."),
    Id("fusion.reduction", "fusion", "One loop needs a reduction that the other has not finished."),
    Id("fusion.layout", "fusion",
        "A result of the fused loop would lie in memory in another order than declared."),
    Id("fusion.library", "fusion", "One side is a library call, which has no loop to fuse with."),
    Id("epilogue.step", "fusion",
        "A pointwise operator after a library call is no step that the library takes along."),
    Id("packing.stays", "fusion",
        "A weight is not packed ahead, or a convolution is not turned channels last."),
    Id("fusion.size", "fusion",
        "The fused kernel would take more operands or temporaries than a kernel may."),
    Id("fusion.overlap", "fusion",
        "A result could take memory that its kernel reads, but not at the element's own place."),
    Id("fallback.no_definition", "fallback",
        "No loops can be generated for this operator, so the graph calls its eager kernel."),
    Id("fallback.graph", "fallback",
        "A captured graph cannot be compiled, so its calls run one by one in eager mode."),
    Id("fallback.aliasing", "fallback",
        "An input that a compiled graph writes to shares memory with another one, so the call runs "
        "in eager mode."),
    Id("fallback.recurrent", "fallback",
        "A recurrent layer runs by its own kernels, between the compiled parts of its graph."),
    Id("fallback.tape", "fallback",
        "An autograd.Function or a hook runs between the compiled parts of its graph."),
    Id("fallback.sizes", "fallback",
        "The sizes of a call compare otherwise than those that its graph was compiled for."),
    Id("fallback.number", "fallback",
        "A float that varies decides what is computed, so each of its values gets a graph."),
    Id("fallback.library", "fallback",
        "A library does this operator better than generated loops would."),
    Id("cache.miss", "artifact_cache", "No compiled artifact on disk has this key."),
    Id("cache.refused", "artifact_cache",
        "An artifact on disk was not trusted: owner, mode or content are not what they should "
        "be."),
    Id("cache.unwritable", "artifact_cache",
        "The artifact folder cannot be written, so nothing is kept for the next process."),
    Id("toolchain.missing", "cpp_openmp",
        "No C++ compiler was found, so nothing can be generated for the CPU."),
    Id("toolchain.failed", "cpp_openmp", "The C++ compiler refused generated code."),
    Id("profiler.no_nvtx", "cpython", "The tool that profiles this process gave no ranges."),
    Id("profiler.no_cupti", "nvidia_gpu",
        "CUPTI cannot be used, so a GPU's times are those between events."),
    Id("device.no_gpu", "nvidia_gpu", "No NVIDIA GPU or driver was found."),
    Id("path.mode_not_taken", "aten", "The program ran in the other mode."),
    Id("path.device_not_used", "aten", "The path of this program does not lead over that device."),
    Id("path.nothing_recorded", "aten",
        "The stage belongs to the path, and the run left no record of it."),
)}
# fmt: on


class Reason(NamedTuple):
    """`what` was refused, `why`, a `hint` what to do about it (may be empty), and `where` in the
    user's source."""

    id: str
    what: str
    why: str
    hint: str = ""
    where: Where | str | None = None

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.why} [{self.id}]"]
        if self.hint:
            lines.append(f"    hint: {self.hint}")
        if self.where is not None:
            lines.append(f"    at {self.where}")
        return "\n".join(lines)


def refuse(
    id: str, what: str, why: str, hint: str = "", where: Where | str | None = None
) -> Reason:
    """Makes a Reason and records it. `where` defaults to the user's line if somebody listens, else
    to None."""
    if config.flags.strict and id not in IDS:
        raise KeyError(f"unknown reason id {id!r}; add it to rushlight/reasons.py with a sentence")
    if not trace.listeners:
        return Reason(id, what, why, hint, where)
    reason = Reason(id, what, why, hint, user_line() if where is None else where)
    entry = IDS.get(id)
    stage = entry.stage if entry is not None else "aten"
    trace.emit(stage, id, lambda: str(reason), kind="reason", reason=reason)
    return reason


def markdown() -> str:
    """The registry as docs/reasons.md."""
    lines = [
        "# Reasons",
        "",
        "Whatever Rushlight does not do for you, it says why under one of these ids: in logs"
        " (`RUSHLIGHT_LOGS=reasons`), in `rushlight explain`, and in error messages.",
        "This page is made from `rushlight/reasons.py` by"
        " `python -m rushlight.reasons > docs/reasons.md`;"
        " a test holds the two together.",
        "",
        "| id | recorded in stage | meaning |",
        "| --- | --- | --- |",
    ]
    for entry in IDS.values():
        path = " > ".join(reversed(trace.within(entry.stage)))
        lines.append(f"| `{entry.id}` | {path} | {entry.what} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
