"""Machine code under the kernels' own names: what objdump says of a shared object, put in order.

Takes a library and the symbol of each kernel; gives a listing with one part a kernel: its entry
first, then what the compiler made of it apart (`kernel_2_entry...constprop.0`), each headed by the
kernel's name. Jumps name the kernel too. Invariant: every kernel's part begins with its header, and
no kernel's code stands in another's part. Without objdump there is no listing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from rushlight.report.captures import Artifact

ROWS = 6000  # of a library; where it has more, its longest functions are cut
KERNEL_BYTES = 16384  # of a precompiled kernel

_HEAD = re.compile(r"[0-9a-f]+ <(.+)>:$")
_NAMED = re.compile(r"<([^<>+]+)(\+0x[0-9a-f]+)?>")
_PADDING = re.compile(r"\s+[0-9a-f]+:\s+(data16 |cs |nop|xchg +%ax,%ax)")
_SYMBOL = re.compile(r"(?<![a-z0-9_])(?:_ZL?\d+)?(kernel_\d+)(?!\d)")

Spans = list[tuple[int, int, str]]


def add_machine_code(observed: Any) -> None:
    """The disassembly of each graph's shared object, as an artifact of the graph."""
    for graph in (g for c in observed.captures for g in c.graphs):
        if not (graph.symbols and os.path.exists(graph.library)):
            continue
        if any(a.language == "asm" for a in graph.artifacts):
            continue
        text, spans = listing(disassembled(graph.library), graph.symbols)
        if text:
            made = Artifact(f"asm {graph.label}", "cpu", "machine code", "asm", text)
            made.spans = spans
            graph.artifacts.append(made)


def disassembled(library: str, *options: str) -> list[str]:
    """Rows of objdump, from the first function on; [] where the machine has none."""
    tool = shutil.which("objdump")
    if tool is None:
        return []
    command = [tool, "-d", "--no-show-raw-insn", "-j", ".text", *options, library]
    done = subprocess.run(command, capture_output=True, text=True)
    return [row.expandtabs(4) for row in done.stdout.splitlines()[6:]]


def listing(rows: list[str], symbols: Mapping[str, str]) -> tuple[str, Spans]:
    """(text, (first line, last line, kernel) of each kernel's part). `symbols`: kernel -> function;
    of kernels with the same function the first one's name stands in the text."""
    names: dict[str, list[str]] = {}  # function -> kernels
    for kernel, symbol in symbols.items():
        names.setdefault(symbol, []).append(kernel)
    parts: dict[str, list[list[str]]] = {symbol: [] for symbol in names}
    others: list[list[str]] = []
    part: list[str] = []
    for row in rows:
        if head := _HEAD.match(row):
            part = [row]
            found = _SYMBOL.match(head[1])
            parts.get(found[1] if found else "", others).append(part)
        elif part and row.strip():
            part.append(row)
    functions = [(symbol, sorted(list_, key=_entry_last)) for symbol, list_ in parts.items()]
    room = _room([len(f) for _, list_ in functions for f in list_])
    lines: list[str] = []
    spans: Spans = []
    for symbol, list_ in functions:
        begun = len(lines) + 1
        for function in list_:
            lines += [_named(row, names) for row in _cut(function, room)]
        if list_:
            spans.append((begun, len(lines), names[symbol][0]))
    for function in others:
        lines += [_named(row, names) for row in _cut(function, room)]
    return "\n".join(lines[: 2 * ROWS]), spans


def alone(rows: list[str], name: str, start: int) -> str:
    """The listing of one function without a symbol, which begins at `start` in its file: jumps
    inside it are told as `<name+0x12>`."""
    inside = {int(row.split(":")[0], 16) for row in rows if re.match(r"\s+[0-9a-f]+:", row)}

    def told(found: re.Match[str]) -> str:
        at = int(found[1], 16)
        return f"{found[1]} <{name}+{at - start:#x}>" if at in inside else found[0]

    body = [re.sub(r"\b([0-9a-f]+) <[^<>]*>", told, row) for row in rows if not _HEAD.match(row)]
    return "\n".join([f"{name}:", *(row for row in body if row.strip())]) + "\n"


def _entry_last(function: list[str]) -> tuple[bool, str]:
    """The exported function, which is called, stands before the parts that it was split into."""
    found = _HEAD.match(function[0])
    symbol = found[1] if found else ""
    return _SYMBOL.fullmatch(symbol) is None, symbol


def _named(row: str, names: Mapping[str, list[str]]) -> str:
    head = _HEAD.match(row)
    if head is not None:
        return f"{_kernel(head[1], names)}:"
    return _NAMED.sub(lambda m: f"<{_kernel(m[1], names)}{m[2] or ''}>", row)


def _kernel(symbol: str, names: Mapping[str, list[str]]) -> str:
    found = _SYMBOL.match(symbol)
    if found is None or found[1] not in names:
        return symbol
    name, rest = names[found[1]][0], symbol[found.end() :]
    if not rest:
        return name
    split = re.search(r"\.(\w+(?:\.\d+)?)$", rest)  # constprop.0, isra.0: how the compiler made it
    return f"{name}.{split[1]}" if split else f"{name}{rest}"


def _room(lengths: list[int]) -> int:
    """How many rows a function may have, so that all fit into ROWS: short ones stay whole."""
    left, waiting = ROWS, len(lengths)
    for length in sorted(lengths):
        if length > left // max(1, waiting):
            return max(40, left // waiting)
        left, waiting = left - length, waiting - 1
    return max(lengths, default=0)


def _cut(function: list[str], room: int) -> list[str]:
    while _PADDING.match(function[-1]):
        function = function[:-1]
    if len(function) <= room:
        return function
    return [*function[: room - 1], f"    ... {len(function) - room + 1} more instructions"]
