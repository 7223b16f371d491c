"""Inductor's generated code, read: the wrapper that calls kernels in order, and each kernel.

Takes the text of a generated module and its path; gives artifacts and the steps of the graph.
torch itself keeps which of the module's lines come from which of the user's (for its tracebacks);
where it no longer does, the comments above the calls say which operators they are of.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight.interop.torch_watch import LIBRARY, OWN, kind_of_file
from rushlight.report.captures import Artifact, Ran

_CPP = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(.*?, r?'''\n(.*?)^'''\)", re.S | re.M)
_TRITON = re.compile(r"^(\w+) = async_compile\.triton\('\w+', r?'''\n(.*?)^''', ", re.S | re.M)
_NODES = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_EXTERN = re.compile(r"(?:extern_kernels\.(\w+)|torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?)\(")


class Code(NamedTuple):
    artifacts: list[Artifact]
    steps: list[Ran]


def read_code(
    text: str,
    path: str,
    new_id: Callable[[], str],
    keep: Callable[[str], str],
    known: Sequence[Ran],
) -> Code:
    """`keep(file)` makes a file of the user's known and gives its name; `known`: the operators of
    the graph that was compiled, with their lines."""
    wrapper = Artifact(new_id(), "wrapper", "Inductor's module", "python", text)
    kernels: list[Artifact] = []
    generated: set[str] = set()
    for pattern, stage, language in (
        (_CPP, "cpp_openmp", "cpp"), (_TRITON, "triton_kernels", "python"),
    ):  # fmt: skip
        for found in pattern.finditer(text):
            name, body = found[1], found[2]
            generated.add(name)
            lines = len(body.splitlines())
            made = Artifact(new_id(), stage, name, language, body, spans=[(1, lines, name)])
            kernels.append(made)
            first = text.count("\n", 0, found.start()) + 1
            wrapper.spans.append((first, first + found[0].count("\n"), name))
    steps: list[Ran] = []
    rows = text.splitlines()
    start = next((i for i, row in enumerate(rows) if re.match(r"\s*def call\(", row)), len(rows))
    nodes = ""
    for number in range(start, len(rows)):
        row = rows[number]
        if number > start and row and not row.startswith((" ", "#")):
            break
        said = _NODES.search(row)
        if said:
            nodes = said[2]
            continue
        name = _called(row, generated)
        if not name:
            continue
        lines_of = _user_lines(path, number + 1, keep)
        operators = [one.strip().replace("aten.", "aten::") for one in nodes.split(",") if one]
        nodes = ""
        if not operators:
            operators = fused(name, known) if name in generated else [name]
        of = [one for step in known if step.name in operators for one in step.lines]
        lines_of = list(dict.fromkeys([*lines_of, *of])) if name in generated else lines_of
        made_by_us = name in generated
        steps.append(Ran(name, made_by_us, operators, [], list(lines_of), list(lines_of)))
        if lines_of:
            wrapper.origins[number + 1] = tuple(lines_of[:1])
    return Code([wrapper, *kernels], _merged(steps))


def _called(row: str, generated: set[str]) -> str:
    """What a line of the wrapper calls: a kernel's name, or 'aten::addmm'; else empty."""
    found = re.match(r"\s*(\w+)(?:\.run)?\(", row)
    if found and found[1] in generated:
        return found[1]
    other = _EXTERN.search(row)
    if other is None or "=" not in row and "(" not in row:
        return ""
    return f"aten::{other[1]}" if other[1] else f"{other[2]}::{other[3]}"


def _user_lines(path: str, line: int, keep: Callable[[str], str]) -> list[str]:
    """Where a line of the generated module comes from: the line that called the operator, and the
    user's innermost one where that is a library's. torch keeps the stack of calls."""
    found: dict[int, str] = {}  # whose code -> its innermost line
    with contextlib.suppress(Exception):
        from torch._inductor.codecache import PyCodeCache

        for frame in PyCodeCache.stack_frames_for_code(path, line) or []:
            kind = kind_of_file(frame["filename"])
            if kind == OWN and OWN not in found or kind == LIBRARY and not found:
                found[kind] = f"{keep(frame['filename'])}:{frame['line']}"
    return list(dict.fromkeys(found.values()))


def fused(name: str, known: Sequence[Ran]) -> list[str]:
    """Of the graph's operators, those that a kernel's name lists: 'cpp_fused_add_mul_sin_0'."""
    found = re.match(r"(?:cpp|triton_\w+?)_fused_(.*?)(?:_\d+)?$", name)
    if found is None:
        return [name]
    rest, listed = f"_{found[1]}_", []
    for step in sorted(known, key=lambda s: -len(s.name)):
        word = f"_{step.name.partition('::')[2]}_"
        if word in rest:
            rest = rest.replace(word, "__", 1)
            listed.append(step.name)
    return listed or [name]


def _merged(steps: list[Ran]) -> list[Ran]:
    """Calls of one name as one step: the profiler does not tell them apart."""
    found: dict[str, Ran] = {}
    for step in steps:
        first = found.setdefault(step.name, step)
        if first is not step:
            for name in ("operators", "origins", "lines"):
                kept = getattr(first, name)
                kept += [one for one in getattr(step, name) if one not in kept]
    return list(found.values())
