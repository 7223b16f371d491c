"""Kernels -> one C++ file without headers: Rushlight's scalar math, each kernel, and one
exported entry a kernel. Each kernel is a unit that the compiler may be given apart from the others.

Only the parts of the scalar math that the kernels reach are written, which halves the compiler's
time for small kernels.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from rushlight.loops import cpp, phases, tiles
from rushlight.loops.expr import Kernel, show
from rushlight.loops.words import PRELUDE_FILES
from rushlight.runtime import toolchain

ENTRY = (
    'extern "C" __attribute__((visibility("default"))) rl_i64 {symbol}(void* const* p, '
    "const rl_i64* n, const rl_number* s) {{ return {symbol}_entry(p, n, s); }}\n"
)


def generate(kernels: list[tuple[str, Kernel, tuple | None]]) -> str:
    """The C++ of (symbol, kernel, known strides) triples."""
    bodies = []
    for symbol, kernel, known in kernels:
        bodies.append(toolchain.UNIT + cpp.function(kernel, f"{symbol}_entry", known))
        bodies.append(ENTRY.format(symbol=symbol))
        if is_long(known):
            bodies.append(phases.phased(kernel, part_symbol(symbol))[0])
    turns = [tiles.TURN] if any("rl_turn(" in body for body in bodies) else []
    code = "\n".join([cpp.HELPERS, *turns, *bodies])
    return "\n".join([needed_math(code), code])


def is_long(known: tuple | None) -> bool:
    """Whether a known form is one long row that threads share."""
    return known is not None and len(known) > 3 and known[3]


def part_symbol(symbol: str) -> str:
    return f"{symbol}_part"


def described(function: tuple[str, Kernel, tuple | None]) -> str:
    """What of a function decides its code, as text."""
    symbol, kernel, known = function
    facts = (symbol, known, kernel.buffers, kernel.outer, kernel.inner, kernel.numbers)
    return f"{facts!r} {kernel.locals!r}\n{show(kernel)}"


@cache
def emitter() -> str:
    """The digest of what turns loops into C++: the emitter's own files and the scalar math."""
    here, loops = Path(__file__), Path(cpp.__file__).parent
    files = [here, *(loops / name for name in EMITTER)]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


EMITTER = (
    "cpp.py",
    "expr.py",
    "nest.py",
    "phases.py",
    "row_forms.py",
    "short_rows.py",
    "tiles.py",
    "words.py",
    *PRELUDE_FILES,
)


def needed_math(code: str) -> str:
    """The prelude's definitions that the code reaches, in the prelude's order."""
    pieces, by_name = prelude()
    words = set(re.findall(r"\b(?:rl|RL)_\w+", code))
    found: set[int] = set()
    while words:
        new = {by_name[w] for w in words if w in by_name} - found
        found |= new
        texts = [spelled(pieces[i], pieces, by_name) for i in new]
        words = {w for text in texts for w in re.findall(r"\b(?:rl|RL)_\w+", text)}
    return "\n".join(
        pieces[i]
        for i in sorted(found | {i for i, p in enumerate(pieces) if p.startswith("typedef")})
    )


@cache
def prelude() -> tuple[list[str], dict[str, int]]:
    """The prelude cut into definitions, comments left out, and which piece defines a name."""
    folder = Path(cpp.__file__).parent
    pieces: list[str] = []
    by_name: dict[str, int] = {}
    for name in PRELUDE_FILES:
        for piece in cut((folder / name).read_text(encoding="utf-8")):
            for made in names(piece, pieces, by_name):
                by_name.setdefault(made, len(pieces))
            pieces.append(piece)
    return pieces, by_name


def names(piece: str, pieces: list[str], by_name: dict[str, int]) -> list[str]:
    """What a piece defines; a macro's call defines what the macro spells with its arguments."""
    called = re.match(r"(RL_\w+)\(([^)]*)\)$", piece)
    if called and called[1] in by_name:
        macro = pieces[by_name[called[1]]]
        head = re.match(r"#define\s+\w+\(([^)]*)\)", macro)
        given = dict(
            zip(re.split(r"\s*,\s*", head[1] if head else ""), re.split(r"\s*,\s*", called[2]))
        )
        inside = [  # macros that this one calls
            f"{name}({', '.join(given.get(part.strip(), part) for part in arguments.split(','))})"
            for name, arguments in re.findall(r"^ *(RL_(?!FN)\w+)\(([^)]*)\)", macro, re.M)
        ]
        return [
            "".join(given.get(part, part) for part in name.split("##"))
            for name in re.findall(r"RL_FN \S+ (rl_[\w#]+)\(", macro)
        ] + [made for call in inside for made in names(call, pieces, by_name)]
    found = (
        re.match(r"#define\s+(\w+)", piece)
        or re.match(r"struct\s+(\w+)", piece)
        or re.search(r"\b(rl_\w+)\s*(?:\(|\[|=)", piece)
    )
    return [found[1]] if found else []


def spelled(piece: str, pieces: list[str], by_name: dict[str, int]) -> str:
    """A piece's text; with a macro's call, what the macro spells with its arguments."""
    called = re.match(r"(RL_\w+)\(([^)]*)\)$", piece)
    if not called or called[1] not in by_name:
        return piece
    macro = pieces[by_name[called[1]]]
    head = re.match(r"#define\s+\w+\(([^)]*)\)", macro)
    given = dict(zip(re.split(r"\s*,\s*", head[1] if head else ""), called[2].split(", ")))
    pasted = re.sub(
        r"\w+(?:##\w+)+", lambda m: "".join(given.get(p, p) for p in m[0].split("##")), macro
    )
    return f"{piece}\n{pasted}"


def cut(text: str) -> list[str]:
    """Top-level definitions: macros with their continuation lines, typedefs, functions, tables."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    rows = [re.sub(r"\s*//.*", "", row) for row in text.splitlines()]
    pieces: list[str] = []
    at = 0
    while at < len(rows):
        start, row = at, rows[at]
        at += 1
        if not row.strip() or re.match(r"#(ifndef|define) RUSHLIGHT_|#(endif|undef)", row):
            continue
        if row.startswith("#"):
            while rows[at - 1].endswith("\\"):
                at += 1
        elif not re.match(r"RL_(?!FN)\w+\(", row):
            depth = row.count("{") - row.count("}")
            while depth > 0 or not rows[at - 1].rstrip().endswith(("}", ";")):
                depth += rows[at].count("{") - rows[at].count("}")
                at += 1
        pieces.append("\n".join(rows[start:at]))
    return pieces
