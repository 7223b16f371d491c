"""Machine code of what is loaded: precompiled kernels, our routines, and those of the libraries.

Takes the name under which a call was recorded (`sum.float32.T`, `max_pool`, `openblas sgemm`,
`onednn matmul`); gives a listing by objdump, or what is known where there is none. Kernels and our
routines are found by their addresses; OpenBLAS's inner loop by its symbol for this processor;
oneDNN generates its code while the program runs, so `Generated` has it write that into a dump, from
which each function is read with the moment it was made: the call around that moment asked for it.
Invariant: the bytes shown are those that ran, and nothing of the program's is touched.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rushlight.kernel_sources import View

ROWS = 1200  # of a listing


def machine_code(name: str, route: str, generated: Sequence[Function] = ()) -> View:
    """The machine code of a kernel (`route` "eager kernel") or a library routine, or one sentence
    that says why there is none. `generated`: what oneDNN made for it."""
    if shutil.which("objdump") is None:
        return View("Machine code", "text", "There is no objdump on this machine to show it.\n")
    if generated:
        made, own = of_onednn(name, generated), of_routine(name)
        return made if own is None else made._replace(text=f"{made.text}\n{own.text}")
    if name.startswith("onednn "):
        return View("Machine code", "text", NOT_GENERATED)
    if name.startswith("openblas "):
        found = of_openblas(name)
    elif route == "eager kernel":
        found = disassembled_kernel(name)
    else:
        found = of_routine(name)
    return found or View("Machine code", "text", f"The machine code of {name} was not found.\n")


NOT_GENERATED = """\
oneDNN generates this code when a product of these shapes is first asked for, and keeps it in memory
only. None was generated while this run was recorded: it was there before.
"""


def disassembled_kernel(key: str) -> View | None:
    """The machine code of a precompiled kernel, from its entry to the next kernel's, where the
    machine has objdump."""
    from rushlight import _core  # type: ignore[attr-defined]
    from rushlight.report import machine_code

    found = _core.kernel_find(key)
    place = found and mapped(found["pointer"])
    if not place:
        return None
    file, base = place
    known = pointers()
    at = bisect.bisect_right(known, found["pointer"])
    after = known[at] if at < len(known) else 1 << 62
    end = min(after, found["pointer"] + machine_code.KERNEL_BYTES)
    rows = between(file, found["pointer"] - base, end - base)
    if not rows:
        return None
    return View("Machine code", "asm", cut(machine_code.alone(rows, key, found["pointer"] - base)))


@functools.lru_cache(1)
def pointers() -> list[int]:
    """Where each precompiled kernel begins, in order."""
    from rushlight import _core  # type: ignore[attr-defined]

    return sorted(_core.kernel_find(key)["pointer"] for key in _core.kernel_keys())


def cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= ROWS:
        return text
    return "\n".join([*lines[:ROWS], f"    ... {len(lines) - ROWS} more instructions"]) + "\n"


def between(file: str, start: int, end: int) -> list[str]:
    from rushlight.report import machine_code

    return machine_code.disassembled(
        file, f"--start-address={start:#x}", f"--stop-address={end:#x}", "-C"
    )


def mapped(pointer: int) -> tuple[str, int] | None:
    """(file, address that it is loaded at) of what lies at a pointer."""
    try:
        with open("/proc/self/maps") as file:
            rows = [row.split(maxsplit=5) for row in file]
    except OSError:
        return None
    bases: dict[str, int] = {}
    for row in rows:
        if len(row) < 6:
            continue
        (low, high), name = (int(n, 16) for n in row[0].split("-")), row[5].strip()
        bases.setdefault(name, low - int(row[2], 16))
        if low <= pointer < high:
            return name, bases[name]
    return None


# ---- routines, of ours and of OpenBLAS


class Symbol(NamedTuple):
    start: int
    size: int
    name: str  # demangled


@functools.lru_cache(4)
def symbols(file: str) -> tuple[Symbol, ...]:
    """The functions of a shared object by their addresses; few where its symbols were stripped."""
    tool = shutil.which("nm")
    if tool is None:
        return ()
    done = subprocess.run(
        [tool, "-S", "-C", "--defined-only", file], capture_output=True, text=True
    )
    found = []
    for row in done.stdout.splitlines():
        parts = row.split(maxsplit=3)
        if len(parts) == 4 and parts[2] in "tTwW":
            found.append(Symbol(int(parts[0], 16), int(parts[1], 16), parts[3]))
    return tuple(sorted(set(found)))


NAMED = {  # what has no entry among the routines: the file, and words of the functions' names
    "rushlight gemm": (
        "lib/librushlight_rt.so",
        ("rl::small_run(", "run<float>(rl::Gemm", "rl::plain_run("),
    ),
    "assembly": ("", ("assembly_execute(", "assembly_run(", "assembly_piece(")),
}
ALSO = {"convolution": ("direct_convolution(", "run_plain<float>(")}  # what such a routine calls


def of_routine(name: str) -> View | None:
    """A routine of the native runtime (csrc/rt): the function that a plan calls, and the parts that
    it hands to threads, those for float first."""
    if name in NAMED:
        return by_words(*NAMED[name])
    pointer = routine_pointer(name)
    place = mapped(pointer) if pointer else None
    if place is None:
        return None
    file, base = place
    start = pointer - base
    known = symbols(file)
    mine = next((s for s in known if s.start == start and s.size), None)
    if mine is None:
        from rushlight.report import machine_code

        rows = between(file, start, start + machine_code.KERNEL_BYTES)
        text = machine_code.alone(rows[: last_row(rows) + 1], name, start)
        return View("Machine code", "asm", cut(text))
    words = (mine.name.rpartition("::")[2].partition("(")[0] + "(", *ALSO.get(name, ()))
    parts = [s for s in known if s.size and any(w in s.name for w in words)]
    return listed(file, [mine, *sorted(parts, key=float_first), *called(file, mine)])


def float_first(s: Symbol) -> tuple[bool, bool, int]:
    return "float" not in s.name, "[clone" in s.name, -s.size


def called(file: str, function: Symbol) -> list[Symbol]:
    """What a function calls or jumps to in its own file, and what that calls, those for float
    first."""
    known = {s.start: s for s in symbols(file) if s.size}
    found: dict[Symbol, None] = {}
    waiting = [function]
    while waiting and len(found) < FOLLOWED:
        one = waiting.pop(0)
        rows = between(file, one.start, one.start + one.size)
        targets = (re.search(r"\s(?:call|jmp)\s+([0-9a-f]+) <", row) for row in rows)
        next_ = {s for t in targets if t and (s := known.get(int(t[1], 16)))} - found.keys()
        next_ = {s for s in next_ if "rl::" in s.name and "Error" not in s.name}
        found |= dict.fromkeys(sorted(next_, key=float_first))
        waiting += [s for s in sorted(next_, key=float_first) if "float" in s.name]
    found.pop(function, None)
    return list(found)


FOLLOWED = 12  # functions


def last_row(rows: Sequence[str]) -> int:
    """Where a function without a size ends: at a return or jump that no code follows, and behind
    which no jump before it goes on (loops are padded too)."""
    furthest = 0
    for i, row in enumerate(rows):
        if (jump := JUMP.search(row)) and (ahead := int(jump[1], 16)) < place(row) + NEAR:
            furthest = max(furthest, ahead)
        if LAST.search(row) and not CODE.search(rows[i + 1] if i + 1 < len(rows) else ""):
            if furthest <= place(row):
                return i
    return len(rows)


def place(row: str) -> int:
    """The address of an instruction."""
    return int(row.partition(":")[0], 16)


NEAR = 1 << 14  # bytes: a jump further on leaves the function
JUMP = re.compile(r":\s+j\w+\s+([0-9a-f]+)\b")
LAST = re.compile(r":\s+(repz )?(ret|jmp)")  # what a function can end with
CODE = re.compile(r":\s+(?!nop|cs nop|data16|xchg +%ax,%ax|int3)\w")  # other than padding


def by_words(name: str, words: Sequence[str]) -> View | None:
    import rushlight
    from rushlight import _core  # type: ignore[attr-defined]

    file = os.path.join(rushlight.__path__[0], name) if name else str(_core.__file__)
    found = [s for w in words for s in symbols(file) if w in s.name and s.size]
    return listed(file, sorted(found, key=float_first)) if found else None


def listed(file: str, functions: Sequence[Symbol]) -> View:
    from rushlight.report import machine_code

    lines: list[str] = []
    for s in dict.fromkeys(functions):
        rows = between(file, s.start, s.start + s.size)
        left = ROWS - len(lines)
        if left < 40 or not rows:
            break
        told = machine_code.alone(rows, s.name, s.start).splitlines()
        more = [f"    ... {len(told) - left} more instructions"] if len(told) > left else []
        lines += [*told[:left], *more, ""]
    return View("Machine code", "asm", "\n".join(lines))


def routine_pointer(name: str) -> int:
    """The function of a routine by its name; 0 where there is none."""
    import rushlight

    file = os.path.join(rushlight.__path__[0], "lib", "librushlight_rt.so")
    try:
        find = ctypes.CDLL(file)._ZN2rl12routine_findEPKc
    except (OSError, AttributeError):
        return 0
    find.restype = ctypes.POINTER(ctypes.c_void_p)
    row = find(ctypes.c_char_p(name.encode()))
    return int(row[1] or 0) if row else 0


def of_openblas(name: str) -> View | None:
    """The loop in which OpenBLAS's products of this type spend their time, for the processor that
    it found: `sgemm_kernel_SKYLAKEX`."""
    from importlib.util import find_spec

    spec = find_spec("scipy_openblas32")
    folder = os.path.join(os.path.dirname(spec.origin), "lib") if spec and spec.origin else ""
    file = os.path.join(folder, "libscipy_openblas.so")
    try:
        core = ctypes.CDLL(file).scipy_openblas_get_corename
    except (OSError, AttributeError):
        return None
    core.restype = ctypes.c_char_p
    kind = name.split()[1]
    wanted = f"{kind}_kernel_{(core() or b'').decode().upper()}"
    mine = next((s for s in symbols(file) if s.name == wanted), None)
    if mine is None:
        return View("Machine code", "text", f"OpenBLAS has no symbol {wanted} to find it by.\n")
    later = (s.start for s in symbols(file) if s.start > mine.start)
    size = mine.size or next(later, mine.start + 4096) - mine.start
    made = listed(file, [mine._replace(size=size)])
    head = f"{wanted} of {os.path.basename(file)}: the inner loop of every {kind} here\n"
    return made._replace(text=head + made.text)


# ---- what oneDNN generates


class Function(NamedTuple):
    time_ns: int  # when it was made, on the clock of calls
    name: str
    code: bytes


def of_onednn(name: str, generated: Sequence[Function]) -> View:
    """What oneDNN generated for a routine, the largest first, each different code once."""
    different = list({f.code: f for f in generated}.values())
    different.sort(key=lambda f: -len(f.code))
    many = "1 function" if len(different) == 1 else f"{len(different)} different functions"
    lines = [f"oneDNN generated {many} for {name} in this run, the largest first:"]
    lines += [f"  {f.name}, {len(f.code):,} bytes" for f in different]
    for f in different:
        if (left := ROWS - len(lines)) < 40:
            break
        lines += ["", f"{f.name}:", *disassembled_bytes(f.code)[: left - 2]]
    return View("Machine code", "asm", "\n".join(lines) + "\n")


def disassembled_bytes(code: bytes) -> list[str]:
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        kind = ("-b", "binary", "-m", "i386:x86-64")
        command = ["objdump", "-D", "--no-show-raw-insn", *kind, file.name]
        done = subprocess.run(command, capture_output=True, text=True)
    return [row.expandtabs(4) for row in done.stdout.splitlines()[7:]]


class Generated:
    """Keeps what oneDNN generates between `start` and `stop`: `functions` afterwards. oneDNN opens
    one dump a process, so that all recordings read the same file, each from where it began."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.library: Any = None
        self.begun = 0

    def start(self) -> None:
        global _folder
        if "ONEDNN_JIT_PROFILE" in os.environ:
            return  # somebody else asked for it
        self.library = onednn()
        if self.library is None:
            return
        if not _folder:
            _folder = tempfile.mkdtemp(prefix="rushlight-")
            import atexit

            atexit.register(shutil.rmtree, _folder, True)
            self.library.dnnl_set_jit_profiling_jitdumpdir(_folder.encode())
        _asking.append(self)
        self.library.dnnl_set_jit_profiling_flags(JITDUMP)
        self.begun = sum(os.path.getsize(file) for file in dumps())

    def stop(self) -> None:
        if self.library is not None:
            _asking.remove(self)
            if not _asking:  # recordings nest
                self.library.dnnl_set_jit_profiling_flags(DEFAULT)
            for file in dumps():
                self.functions += read_dump(file, self.begun)

    def __bool__(self) -> bool:
        return self.library is not None


_folder = ""
_asking: list[Generated] = []
JITDUMP, DEFAULT = 4, 1  # dnnl_jit_profile_t: a dump as perf reads it; VTune's, which it has on


def onednn() -> Any:
    """oneDNN, where it is built in and can write its dump."""
    import rushlight

    file = os.path.join(rushlight.__path__[0], "lib", "libdnnl.so.3")
    if not (sys.platform.startswith("linux") and os.path.exists(file)):
        return None
    try:
        library = ctypes.CDLL(file)
        library.dnnl_set_jit_profiling_flags, library.dnnl_set_jit_profiling_jitdumpdir  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library


def dumps() -> list[str]:
    return [
        os.path.join(at, name)
        for at, _, names in os.walk(_folder)
        for name in names
        if name.endswith(".dump")
    ]


def read_dump(file: str, begun: int = 0) -> Iterator[Function]:
    """The functions of a jitdump (the format of Linux's perf), from an offset on."""
    with open(file, "rb") as opened:
        content = opened.read()
    if len(content) < 40:
        return
    at = struct.unpack_from("<I", content, 8)[0]  # the header's size
    while at + 16 <= len(content):
        kind, size, made = struct.unpack_from("<IIQ", content, at)
        if size < 16:
            return
        if kind == 0 and at >= begun and at + size <= len(content):
            length = struct.unpack_from("<Q", content, at + 40)[0]
            end = content.index(b"\0", at + 56)
            name = content[at + 56 : end].decode(errors="replace")
            yield Function(made, name, content[end + 1 : end + 1 + length])
        at += size
