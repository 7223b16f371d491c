"""Code objects -> instructions that read the same on CPython 3.11, 3.12 and 3.13.

An `Instruction` has its name, its raw `arg`, its `value` (a name, a constant, a comparison, ...),
the position of its jump target and of its exception handler. Positions count real instructions:
caches and argument extensions are left out, as they are in the assembler's list of the same code,
so that one position names one instruction in both.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

VERSION = sys.version_info[:2]
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)


class Handler(NamedTuple):
    """Where an exception goes: the stack is cut to `depth`, the position is pushed if `lasti`."""

    target: int
    depth: int
    lasti: bool


class Instruction:
    __slots__ = ("arg", "handler", "line", "name", "position", "run", "target", "value")

    def __init__(
        self,
        position: int,
        name: str,
        arg: int | None,
        value: Any,
        target: int | None,
        line: int | None,
        handler: Handler | None,
    ) -> None:
        self.position, self.name, self.arg, self.value = position, name, arg, value
        self.target, self.line, self.handler = target, line, handler
        self.run: Any = None  # the interpreter's function of this instruction

    def __repr__(self) -> str:
        to = f" -> {self.target}" if self.target is not None else ""
        value = "" if self.value is None and self.arg is None else f" {self.value!r}"
        return f"{self.position:4} {self.name}{value}{to}"


# What an argument of an instruction is.
NUMBER, CONST, NAME, LOCAL, TWO_LOCALS, COMPARED, FORWARD, BACKWARD, FORMAT, CONVERSION = range(10)
CONVERSIONS = (None, str, repr, ascii)


def kind_of(op: int, name: str) -> int:
    if op in dis.hasjrel:
        return BACKWARD if "BACKWARD" in name else FORWARD
    if is_double(name):
        return TWO_LOCALS
    found = {"COMPARE_OP": COMPARED, "FORMAT_VALUE": FORMAT, "CONVERT_VALUE": CONVERSION}.get(name)
    if found is not None:
        return found
    of = ((CONST, dis.hasconst), (NAME, dis.hasname), (LOCAL, (*dis.haslocal, *dis.hasfree)))
    return next((kind for kind, those in of if op in those), NUMBER)


def flags_of(name: str) -> int:
    """How many bits of a name's argument stand under its number."""
    return {
        "LOAD_GLOBAL": 1,
        "LOAD_ATTR": int(VERSION >= (3, 12)),
        "LOAD_SUPER_ATTR": 2,
    }.get(name, 0)


@lru_cache(maxsize=1024)
def instructions(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of a code object, in order."""
    content, consts, names, local = code.co_code, code.co_consts, code.co_names, local_names(code)
    raw: list[tuple[int, int, int]] = []  # (operation, argument, offset behind its caches)
    position: dict[int, int] = {}
    extended = 0
    for offset in range(0, len(content), 2):
        op = content[offset]
        if op == CACHE:
            raw[-1] = (*raw[-1][:2], offset + 2)
            continue
        position[offset] = len(raw)  # a jump may aim at the EXTENDED_ARG before an instruction
        argument = content[offset + 1] | extended
        extended = argument << 8 if op == EXTENDED_ARG else 0
        if op != EXTENDED_ARG:
            raw.append((op, argument, offset + 2))
    table = handlers(code, position)
    lines = lines_of(code, position)
    found: list[Instruction] = []
    for n, (op, argument, behind) in enumerate(raw):
        name, kind, takes, shift = OPERATIONS[op]
        value: Any = argument
        target = None
        if not takes:
            found.append(Instruction(n, name, None, None, None, lines[n], table.get(n)))
            continue
        if kind == LOCAL:
            value = local[argument]
        elif kind == NAME:
            value = names[argument >> shift]
        elif kind == CONST:
            value = consts[argument]
        elif kind in (FORWARD, BACKWARD):
            value = behind + 2 * (argument if kind == FORWARD else -argument)
            target = position[value]
        elif kind == COMPARED:
            value = dis.cmp_op[argument >> COMPARE_SHIFT]
        elif kind == TWO_LOCALS:
            value = local[argument >> 4], local[argument & 15]
        elif kind == FORMAT:
            value = CONVERSIONS[argument & 3], bool(argument & 4)
        elif kind == CONVERSION:
            value = CONVERSIONS[argument]
        found.append(Instruction(n, name, argument, value, target, lines[n], table.get(n)))
    return tuple(found)


def local_names(code: CodeType) -> list[str]:
    """The names of a frame's slots: variables, cells of them, free variables."""
    cells = [n for n in code.co_cellvars if n not in code.co_varnames]
    return [*code.co_varnames, *cells, *code.co_freevars]


def lines_of(code: CodeType, position: dict[int, int]) -> list[int]:
    """The line of each instruction; one without has that of the one before it."""
    found = [0] * (max(position.values(), default=-1) + 1)
    line = code.co_firstlineno
    ranges = code.co_lines()
    end = -1
    for offset, n in position.items():
        while offset >= end:
            _, end, known = next(ranges)
            line = line if known is None else known
        found[n] = line
    return found


def handlers(code: CodeType, position: dict[int, int]) -> dict[int, Handler]:
    """position -> its handler, from the exception table."""
    table = {}
    for start, end, target, depth, lasti in exception_table(code):
        handler = Handler(position[target], depth, lasti)
        for offset in range(start, end, 2):
            if offset in position:
                table[position[offset]] = handler
    return table


def exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, lasti) in bytes; end is exclusive."""
    data = iter(code.co_exceptiontable)

    def number() -> int:
        byte = next(data)
        value = byte & 63
        while byte & 64:
            byte = next(data)
            value = value << 6 | byte & 63
        return value

    while True:
        try:
            start = number() * 2
        except StopIteration:
            return
        length, target, last = number() * 2, number() * 2, number()
        yield start, start + length, target, last >> 1, bool(last & 1)


def with_whole_regions(code: CodeType) -> CodeType:
    """The code with regions that begin or end between an EXTENDED_ARG and what it belongs to made
    whole: the assembler places them there, and drops them when it reads such code again."""
    extended = {n for n in range(0, len(code.co_code), 2) if code.co_code[n] == EXTENDED_ARG}

    def before(offset: int) -> int:
        while offset - 2 in extended:
            offset -= 2
        return offset

    entries = list(exception_table(code))
    moved = [(before(start), before(end), *rest) for start, end, *rest in entries]
    if moved == entries:
        return code
    return code.replace(co_exceptiontable=encoded(moved))



def encoded(entries: Iterable[Any]) -> bytes:
    """The exception table of entries as `exception_table` gives them."""
    out = bytearray()

    def number(value: int) -> None:
        shift = 6 * ((max(value, 1).bit_length() - 1) // 6)
        while shift:
            out.append(64 | value >> shift & 63)
            shift -= 6
        out.append(value & 63)

    for start, end, target, depth, lasti in entries:
        if start == end:
            continue
        first = len(out)
        number(start // 2)
        out[first] |= 128  # an entry begins
        number((end - start) // 2)
        number(target // 2)
        number(depth << 1 | lasti)
    return bytes(out)


def is_double(name: str) -> bool:
    """`STORE_FAST_LOAD_FAST` and its like."""
    return name.count("_FAST") == 2 and name.endswith("_FAST")


CACHE, EXTENDED_ARG = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]
TAKING = getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256))
OPERATIONS = [  # (name, what its argument is, whether it has one, bits under a name's number)
    (name, kind_of(op, name), op in TAKING, flags_of(name))
    for op, name in enumerate(dis.opname[:256])
]
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")


def successors(i: Instruction, handlers_too: bool = True) -> list[int]:
    """The positions that may run after it."""
    found = []
    if i.name not in ENDS and i.name not in ALWAYS:
        found.append(i.position + 1)
    if i.target is not None:
        found.append(i.target)
    if handlers_too and i.handler is not None:
        found.append(i.handler.target)
    return found


READS = ("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST", "LOAD_CLOSURE", "LOAD_FAST_AND_CLEAR")


def touched(i: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(local variables read, written) by an instruction; a read comes before a write."""
    if i.name in READS:
        return (i.value,), ()
    if i.name == "STORE_FAST":
        return (), (i.value,)
    if i.name == "LOAD_FAST_LOAD_FAST":
        return tuple(i.value), ()
    if i.name == "STORE_FAST_STORE_FAST":
        return (), tuple(i.value)
    if i.name == "STORE_FAST_LOAD_FAST":
        return (i.value[1],) if i.value[0] != i.value[1] else (), (i.value[0],)
    return (), ()


def bare_super(listed: tuple[Instruction, ...], n: int) -> bool:
    """Whether `super()` without arguments begins there: it reads the frame's first variable and its
    `__class__`, though no instruction says so."""
    i = listed[n]
    loaded = (bool((i.arg or 0) & 1), i.value)
    return i.name == "LOAD_GLOBAL" and calls_super(loaded, listed[n + 1])


def calls_super(loaded: Any, after: Any) -> bool:
    """Of (whether it will be called, name) of a global that is loaded, and the instruction after
    it in our form or the assembler's."""
    return loaded == (True, "super") and after.name in ("PRECALL", "CALL") and after.arg == 0


@lru_cache(maxsize=1024)
def liveness(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each position the local variables that may be read from there on."""
    listed = instructions(code)
    live: list[frozenset[str]] = [frozenset()] * len(listed)
    supers = {n for n in range(len(listed)) if bare_super(listed, n)}
    reached = True
    while reached:
        reached = False
        for i in reversed(listed):
            after: set[str] = set()
            read, written = touched(i)
            if i.position in supers:
                read = code.co_varnames[:1]
            for s in successors(i, not written):  # a store raises nothing
                if s < len(listed):
                    after |= live[s]
            after.difference_update(written)
            now = frozenset(after.union(read))
            if now != live[i.position]:
                live[i.position] = now
                reached = True
    return tuple(live)


def parameters(code: CodeType) -> tuple[str, ...]:
    """The names that a call binds: positional, keyword-only, *args, **kwargs."""
    n = code.co_argcount + code.co_kwonlyargcount
    n += bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:n]


def is_generator(code: CodeType) -> bool:
    return bool(code.co_flags & 0x20)


def is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & (0x80 | 0x200))
