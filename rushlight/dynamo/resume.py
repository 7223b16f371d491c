"""The replacement of a frame's code, and the functions that go on after a break.

    target                                     resume function of a position
    ------                                     -----------------------------
    prefix of the original                     arguments: stack, locals, cells
    graph(inputs) -> temporaries               push the stack again
    make values, replay mutations              jump to the position
    no break:  return the result               the original body
    break:     restore locals and stack,
               jump to the instruction
    the original body, where every position
    behind the broken instruction hands the
    stack and the locals to a resume function

The broken instruction thus runs inside the original body, under its own exception table: whatever
try- or with-block it stands in catches what it raises. A handler that was entered clears a flag,
and from then on the body runs to its end as it is. So does the whole function, from its start, when
the graph itself raises and has written nothing: eager mode then raises it again, at its own line.
"""

from __future__ import annotations

import dis
import types
from copy import copy
from functools import lru_cache
from typing import Any

from bytecode import Bytecode, CellVar, FreeVar, Instr, Label, TryBegin, TryEnd
from bytecode.instr import InstrLocation, SetLineno

from rushlight import _core
from rushlight.eager.randomness import default_generator

from . import runtime
from .breaks import Bug, Skip, unsupported
from .bytecode import (
    VERSION,
    Instruction,
    bare_super,
    instructions,
    is_double,
    liveness,
    parameters,
    touched,
    with_whole_regions,
)
from .codegen import Codegen
from .emit import call_instructions, call_of, const, load_attr, push_null
from .fetching import fetched_call, is_given, planned
from .interpreter import NULL, Previous
from .iteration import END
from .own_frame import with_super
from .sources import branching
from .variables.objects import MISSING, Cell

FLAG, STREAM, ERROR = ".straight", ".stream", ".error"  # locals that no program can name
PREFIX = ("MAKE_CELL", "COPY_FREE_VARS", "RESUME")
PAST_END = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)


class Resume:
    """What is known of a resume function: the code it continues, where its positions stand in
    that code, which arguments are cells, and at which line the break was."""

    def __init__(
        self, origin: Any, positions: dict[int, int], cells: frozenset[str], line: int
    ) -> None:
        self.origin, self.positions, self.cells, self.line = origin, positions, cells, line


AFTER = ", after the break at line "  # in the names of resume functions
RESUMES: dict[Any, Resume] = {}  # code of a resume function -> what is known of it
MADE: dict[tuple, Any] = {}  # key -> resume function


class Body:
    """The assembler's list of a code object, addressable by position. Lists are read once a code
    object (`body_of`): what a target needs besides goes into `before`."""

    def __init__(self, code: Any) -> None:
        self.code = code
        self.bytecode = Bytecode.from_code(code)
        self.second: set[int] = set()  # ids of the second halves of what was one instruction
        self.items = self.taken_apart(i for i in self.bytecode if not isinstance(i, SetLineno))
        self.restore_depths()
        self.at: list[int] = [n for n, i in enumerate(self.items) if self.begins(i)]
        self.before: dict[int, list] = {}  # position -> what is put in front of it

    def taken_apart(self, items: Any) -> list:
        """3.13's instructions on two variables as two: the assembler cannot number their variables
        above 15."""
        out: list[Any] = []
        item: Any
        for item in items:
            if isinstance(item, Instr) and is_double(item.name):
                first, second = (n.strip("_") + "_FAST" for n in item.name.split("_FAST")[:2])
                pair: Any = item.arg
                a, b = pair
                out.append(Instr(first, a, location=item.location))
                out.append(Instr(second, b, location=item.location))
                self.second.add(id(out[-1]))
            else:
                out.append(item)
        return out

    def begins(self, item: Any) -> bool:
        """Whether it is the first (or only) part of an instruction."""
        return isinstance(item, Instr) and id(item) not in self.second

    def restore_depths(self) -> None:
        """The assembler forgets the stack depths of handlers, which the exception table has, and
        marks regions that hold nothing."""
        listed = instructions(self.code)
        position = 0
        waiting: list[TryBegin] = []
        empty: set[int] = set()
        for item in self.items:
            if isinstance(item, TryBegin):
                waiting.append(item)
            elif isinstance(item, TryEnd):
                if item.entry in waiting:
                    waiting.remove(item.entry)
                    empty |= {id(item), id(item.entry)}
            elif self.begins(item):
                for begin in waiting:
                    handler = listed[position].handler
                    assert handler is not None
                    begin.stack_depth = handler.depth
                waiting.clear()
                position += 1
        self.items = [i for i in self.items if id(i) not in empty]

    def label(self, position: int) -> Label:
        """A label in front of a position (and of what was put there before)."""
        made = Label()
        self.before.setdefault(position, []).insert(0, made)
        return made

    def insert(self, position: int, items: list) -> None:
        self.before.setdefault(position, []).extend(items)

    def listing(self, start: int = 0) -> list:
        """The items from a position on, with the insertions."""
        out: list[Any] = []
        index = self.at[start] if start < len(self.at) else len(self.items)
        # Labels and try-marks directly in front of the first instruction belong to it.
        while index and not isinstance(self.items[index - 1], Instr):
            index -= 1
        position = start
        for item in self.items[index:]:
            if self.begins(item):
                out += self.before.get(position, ())
                position += 1
            out.append(item)
        return out


@lru_cache(maxsize=64)
def read(code: Any) -> Body:
    return Body(code)


def body_of(code: Any) -> Body:
    """A body without insertions; its items are shared, and nobody changes them."""
    body = copy(read(code))
    body.before = {}
    return body


def prefix_length(code: Any) -> int:
    """How many instructions stand in front of the body: cells and RESUME."""
    listed = instructions(code)
    n = 0
    while n < len(listed) and listed[n].name in PREFIX:
        n += 1
        if listed[n - 1].name == "RESUME":
            break
    return n


# ---- depths


def pushed(i: Instruction) -> int:
    """How many new values it leaves on top of what it left alone."""
    if is_double(i.name):
        return i.name.count("LOAD_FAST")
    if i.name == "UNPACK_SEQUENCE":
        return i.arg or 0
    if i.name == "UNPACK_EX":
        return ((i.arg or 0) & 255) + ((i.arg or 0) >> 8) + 1
    if i.name == "BEFORE_WITH":
        return 2
    if i.name.startswith(("STORE", "DELETE", "POP_JUMP", "JUMP", "LIST_", "SET_", "MAP_", "DICT_")):
        return 0
    return 1


def opens_call(i: Instruction) -> bool:
    """Whether it pushes a pair for a call to come, which holds no value to hand over."""
    if i.name == "LOAD_METHOD":
        return True
    if i.name == "LOAD_GLOBAL":
        return bool((i.arg or 0) & 1)
    if VERSION >= (3, 12) and i.name in ("LOAD_ATTR", "LOAD_SUPER_ATTR"):
        return bool((i.arg or 0) & 1)
    return False


def first_of(code: Any, at: int) -> int:
    """Where an instruction begins: a call with what prepares it."""
    listed = instructions(code)
    if listed[at].name == "CALL":
        while listed[at - 1].name in ("PRECALL", "KW_NAMES"):
            at -= 1
    return at


def last_of(code: Any, at: int) -> int:
    listed = instructions(code)
    while listed[at].name in ("PRECALL", "KW_NAMES"):
        at += 1
    return at


def effect(i: Instruction, jump: bool) -> int:
    if VERSION == (3, 11):  # there the arguments are counted as gone before the call
        if i.name == "PRECALL":
            return 0
        if i.name == "CALL":
            return -1 - (i.arg or 0)
    opcode = dis.opmap[i.name]
    arg = i.arg if opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(opcode, arg, jump=jump)


def continuations(code: Any, at: int, depth: int) -> list[tuple[int, int, int]]:
    """(position, stack depth, new values on top) of where a frame goes on after the instruction
    `at` ran with `depth` values on the stack."""
    listed = instructions(code)
    at = last_of(code, at)
    i = listed[at]
    if opens_call(i):
        wanted = depth + (1 if i.name == "LOAD_GLOBAL" else 0)
        if i.name == "LOAD_SUPER_ATTR":
            wanted = depth - 2
        now = depth + effect(i, False)
        for j in listed[at + 1 :]:
            if now <= wanted and j.name != "CALL":
                return [(j.position, now, 1)]
            now += effect(j, False)
            if j.name in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE"):
                break
        raise Skip(unsupported("a method call", "where it ends is not found"))
    if i.name == "FOR_ITER":
        end = (i.target or 0) + PAST_END
        return [(at + 1, depth + 1, 1), (end, depth - 1, 0)]
    if i.name in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "RETURN_CONST"):
        return []
    found = []
    if i.target is None or i.name not in ("JUMP_FORWARD", "JUMP_BACKWARD"):
        found.append((at + 1, depth + effect(i, False), pushed(i)))
    if i.target is not None:
        found.append((i.target, depth + effect(i, True), 0))
    return found


# ---- resume functions


def resume_function(
    code: Any, namespace: dict, at: int, nulls: tuple, local: tuple, line: int
) -> Any:
    """The function that goes on at a position of a code object: its arguments are the stack (but
    for NULLs), the locals, and the cells of the frame. `line`: of the break, which its name
    tells."""
    known = RESUMES.get(code)
    if known is not None:
        if at not in known.positions:
            raise Skip(unsupported("a break", "inside what the assembler took apart"))
        origin, at = known.origin, known.positions[at]
        cells = tuple(sorted(known.cells))
    else:
        origin = code
        cells = tuple(sorted({*code.co_cellvars, *code.co_freevars}))
    key = (origin, id(namespace), at, nulls, local, cells)
    made = MADE.get(key)
    if made is None:
        made = MADE[key] = build_resume(origin, namespace, at, nulls, local, cells, line)
    return made


def build_resume(
    origin: Any, namespace: dict, at: int, nulls: tuple, local: tuple, cells: tuple, line: int
) -> Any:
    body = body_of(origin)
    entry = body.label(at)
    start = prefix_length(origin)
    stack = [f".stack{i}" for i, null in enumerate(nulls) if not null]
    names = [*stack, *local, *cells]
    out: list[Any] = [Instr("RESUME", 0, location=at_line(origin.co_firstlineno))]
    given = iter(stack)
    for null in nulls:
        out.append(push_null() if null else Instr("LOAD_FAST", next(given)))
    out.append(Instr("JUMP_FORWARD", entry))
    listing = body.listing(start)
    first = sum(isinstance(i, Instr) for i in out)
    out += with_super(map(as_cell, listing), origin)
    made = Bytecode(on_line(instructions(origin)[at].line or origin.co_firstlineno, out))
    made.argcount, made.argnames = len(names), names
    made.cellvars = list(cells)
    made.name, made.qualname = f"{origin.co_name}", origin.co_qualname
    made.filename, made.first_lineno = origin.co_filename, origin.co_firstlineno
    made.flags = 3
    code = with_whole_regions(
        made.to_code(
            stacksize=origin.co_stacksize + len(nulls) + 4, compute_exception_stack_depths=False
        )
    )
    RESUMES[code] = Resume(
        origin, corresponding(code, first, origin, start), frozenset(cells), line
    )
    function = types.FunctionType(code, namespace, origin.co_name)
    function.__qualname__ = f"{origin.co_qualname}{AFTER}{line}"
    return function


def corresponding(code: Any, first: int, origin: Any, start: int) -> dict[int, int]:
    """Positions of a resume function -> positions of its origin."""
    found = {}
    here, there = instructions(code), instructions(origin)
    at = first
    for i in there[start:]:
        found[at] = i.position
        at += 2 if is_double(i.name) else 1
        if bare_super(there, i.position):
            at += 2  # what `with_super` put there
    assert at == len(here), "a resume function differs from its origin"
    return found


def as_cell(item: Any) -> Any:
    """Free variables are cells that the caller hands over."""
    if isinstance(item, Instr) and isinstance(item.arg, FreeVar):
        return Instr(item.name, CellVar(item.arg.name), location=item.location)
    return item


# ---- the target


def build_target(state: Any, frame: Any, result: Any, graph_call: Any) -> Any:
    """Code that replaces the frame's: `result` is ("return", value) or ("break", None).

    `graph_call(outputs)` compiles the graph and gives (callable, input sources, whether a failure
    may run the function again), or None when there is nothing to run."""
    code = frame.code
    cells = set(code.co_cellvars) & set(parameters(code))
    if code in RESUMES:
        cells = set(RESUMES[code].cells)
    gen = Codegen(state, frame, cells, code in RESUMES)
    from .side_effects import guard_identities, prepare_effects

    kind, value = result
    live: tuple[str, ...] = ()
    if kind == "break":
        at = frame.at = first_of(code, frame.at)
        stack = list(frame.stack)
        if any(n in code.co_cellvars for n in frame.cleared):
            why = "its slot may hold a plain value now, and its cell stands on the stack"
            raise Skip(unsupported("a break in a comprehension over a cell", why))
        if any(type(v) is Previous for v in stack):
            raise Skip(unsupported("a break inside an exception handler", "it is not modelled"))
        alive = liveness(code)[at]
        live = tuple(n for n in frame.locals if n in alive)
        roots = [*stack, *(frame.locals[n] for n in live)]
    else:
        roots = [value]
    if kind == "break":
        for c in frame.cells.values():
            if c.name is None and c.real is None:
                gen.cannot(c, "the variable of a comprehension")
    for v in roots:
        gen.prepare(v)
    own_cells = [c for c in frame.cells.values() if c.name is not None]
    if kind == "return":
        own_cells = []  # those that closures keep are prepared with them
    guard_identities(state)
    for c in own_cells:
        if c.content is not MISSING:
            gen.prepare(c.content)
    actions = prepare_effects(gen, state)
    if kind == "return":
        own_cells = list(gen.own_cells)
    for fill in gen.take_fills():
        fill()
    for c in own_cells:
        write_own_cell(gen, c, code)
    for action in actions:
        action()
    for finish in gen.late:
        finish()
    made = gen.code
    called = graph_call(gen.outputs)
    if kind == "return":
        gen.load(value)
        gen.emit(Instr("RETURN_VALUE"))
        return assemble(frame, gen, called, made, None, ())
    restore = [gen.temp() for _ in live]
    for n, name in zip(live, restore):
        gen.load(frame.locals[n])
        gen.emit(Instr("STORE_FAST", name))
    for n, name in zip(live, restore):
        gen.emit(Instr("LOAD_FAST", name), Instr("STORE_FAST", n))
    for n in parameters(code):
        if n not in frame.locals and n not in frame.cells and n in liveness(code)[at]:
            gen.emit(Instr("DELETE_FAST", n))
    for v in frame.stack:
        gen.load(v)
    return assemble(frame, gen, called, made, at, live)


def write_own_cell(gen: Codegen, cell: Cell, code: Any) -> None:
    assert cell.name is not None
    if cell.content is not MISSING:
        gen.load(cell.content)
        gen.emit(Instr("STORE_DEREF", CellVar(cell.name)))
    elif cell.name in parameters(code):
        gen.emit(Instr("DELETE_DEREF", CellVar(cell.name)))


def assemble(frame: Any, gen: Codegen, called: Any, made: list, at: int | None, live: tuple) -> Any:
    code = frame.code
    body = body_of(code)
    start = prefix_length(code)
    straight = at is not None
    rerun = Label()
    out: list[Any] = list(body.items[: body.at[start]])
    while out and not isinstance(out[-1], Instr):
        out.pop()
    again = False
    if called is not None:
        function, inputs, again, mode, random = called
        call = graph_instructions(gen, function, inputs)
        if again and random:
            out += [*call_of(default_generator.position), Instr("STORE_FAST", STREAM)]
        if again:
            begin = TryBegin(rerun, push_lasti=False, stack_depth=0)
            out += [begin, *call, TryEnd(begin)]
        else:
            out += call
        names = [name for name, _ in gen.outputs]
        if len(names) == 1:
            out += [const(0), Instr("BINARY_SUBSCR"), Instr("STORE_FAST", names[0])]
        elif names:
            out.append(Instr("UNPACK_SEQUENCE", len(names)))
            out += [Instr("STORE_FAST", n) for n in names]
        else:
            out.append(Instr("POP_TOP"))
    out += made
    tail: list[Any] = []
    if straight:
        assert at is not None
        out += [const(True), Instr("STORE_FAST", FLAG)]
        out += set_hook(gen.state.options.hook_of_frames)
        out.append(Instr("JUMP_FORWARD", body.label(at)))
        if not gen.state.last:
            clear_in_handlers(body, code)
            tail = stubs(frame, body, at, live)
    entry = Label()
    if again:
        tail += rerun_instructions(rerun, entry, mode, straight, random)
    if straight or again:
        out.append(entry)
        out += body.listing(start)
    out += tail
    result = Bytecode(on_line(frame.line, out))
    copy_signature(result, code, body.bytecode)
    depth = code.co_stacksize + len(gen.outputs) + 64 + (len(called[1]) if called else 0)
    depth += largest(made)
    return with_whole_regions(result.to_code(stacksize=depth, compute_exception_stack_depths=False))


NOWHERE = InstrLocation(None, None, None, None)


def at_line(line: int) -> InstrLocation:
    return InstrLocation(line, line, None, None)


def on_line(line: int, items: list) -> list:
    """Instructions that were made stand on the line where the frame goes on or returns: so trace
    functions and tracebacks see lines of the program only."""
    for item in items:
        if isinstance(item, Instr) and item.location is None:
            item.location = at_line(line)
    return items


def largest(items: list) -> int:
    return max(
        (i.arg for i in items if i.name.startswith("BUILD_") and isinstance(i.arg, int)), default=0
    )


def graph_instructions(gen: Codegen, function: Any, inputs: list) -> list:
    """Pushes function(*inputs)."""
    saved, gen.code = gen.code, []
    temps, gen.source_temps = gen.source_temps, {}
    gen.state.fetch = fetch = planned(gen.frame.code, inputs, gen.cell_names)
    if fetch is None:
        gen.function(function)
        gen.shared = branching(s[1] if isinstance(s, tuple) else s for s in inputs)
        load_inputs(gen, inputs)
        gen.emit(*call_instructions(len(inputs)))
        made = gen.code
    else:
        load_inputs(gen, [*fetch.anchors, *filter(is_given, inputs)])
        made = fetched_call(fetch, gen.frame.code, gen.code, function)
    gen.code, gen.source_temps, gen.shared = saved, temps, set()
    return made


def load_inputs(gen: Codegen, inputs: list) -> None:
    for s in inputs:
        if isinstance(s, tuple):  # a symbol: a size of a tensor, or an int
            kind, source, *dim = s
            gen.load_source(source)
            if kind == "size":
                gen.emit(*shape_instructions(dim[0]))
        else:
            gen.load_source(s)


def shape_instructions(dim: int) -> list:
    return [load_attr("shape"), const(dim), Instr("BINARY_SUBSCR")]


def rerun_instructions(
    rerun: Label, entry: Label, mode: int | None, straight: bool, random: bool
) -> list:
    """An ordinary exception of the graph is dropped, and the original body runs from its start."""
    other = Label()
    out: list[Any] = [
        rerun,
        Instr("PUSH_EXC_INFO"),
        const(Exception),
        Instr("CHECK_EXC_MATCH"),
        Instr("POP_JUMP_FORWARD_IF_FALSE" if VERSION == (3, 11) else "POP_JUMP_IF_FALSE", other),
        Instr("STORE_FAST", ERROR),
        Instr("POP_EXCEPT"),
        *call_of(runtime.graph_failed, Instr("LOAD_FAST", ERROR)),
        Instr("POP_TOP"),
        const(None),
        Instr("STORE_FAST", ERROR),
    ]
    if mode is not None:
        out += [*call_of(_core.set_mode, const(mode)), Instr("POP_TOP")]
    if random:
        position = Instr("LOAD_FAST", STREAM)
        out += [*call_of(default_generator.move_to, position), Instr("POP_TOP")]
    if straight:
        out += [const(False), Instr("STORE_FAST", FLAG)]
    backward = "JUMP_BACKWARD"
    out += [
        Instr(backward, entry),
        other,
        Instr("SWAP", 2),
        Instr("POP_EXCEPT"),
        Instr("RERAISE", 0),
    ]
    return out


def clear_in_handlers(body: Body, code: Any) -> None:
    """Behind an exception the frame runs on as it is."""
    for target in {i.handler.target for i in instructions(code) if i.handler is not None}:
        clear = [const(False), Instr("STORE_FAST", FLAG)]
        for item in clear:
            item.location = NOWHERE
        body.insert(target, clear)


def stubs(frame: Any, body: Body, at: int, live: tuple) -> list:
    """Where a frame goes on after the broken instruction, its state goes to a resume function."""
    from .convert import compiled_resume

    code = frame.code
    alive = liveness(code)
    out: list[Any] = []
    known = RESUMES.get(code)
    cells = tuple(sorted(known.cells if known else {*code.co_cellvars, *code.co_freevars}))
    line = instructions(code)[at].line or code.co_firstlineno
    for position, depth, new in continuations(code, at, len(frame.stack)):
        kept = depth - new
        if not 0 <= kept <= len(frame.stack):
            i = instructions(code)[last_of(code, at)]
            raise Bug(AssertionError(f"{i} leaves {kept} of {len(frame.stack)} values and {new}"))
        nulls = tuple(v is NULL for v in frame.stack[:kept]) + (False,) * new
        bound = {*frame.locals, *touched(instructions(code)[at])[1]}
        if opens_call(instructions(code)[last_of(code, at)]):
            bound |= stored_between(code, at, position)  # arguments run before the call
        local = tuple(sorted(n for n in alive[position] if n in bound and n not in cells))
        function = resume_function(code, frame.namespace, position, nulls, local, line)
        stub = Label()
        jump = "POP_JUMP_FORWARD_IF_TRUE" if VERSION == (3, 11) else "POP_JUMP_IF_TRUE"
        body.insert(position, [Instr("LOAD_FAST", FLAG), Instr(jump, stub)])
        out.append(stub)
        names = [f".keep{i}" for i, null in enumerate(nulls) if not null]
        pending = list(names)
        passed = 0  # NULLs cannot be popped: they stay, and values are swapped out from under them
        for null in reversed(nulls):
            if null:
                passed += 1
                continue
            if passed:
                out.append(Instr("SWAP", passed + 1))
            out.append(Instr("STORE_FAST", pending.pop()))
        target = compiled_resume(function, frame.state.options).tail
        out += set_hook(None)
        if VERSION >= (3, 13):
            out += [const(target), push_null()]
        else:
            out += [push_null(), const(target)]
        out += [Instr("LOAD_FAST", n) for n in (*names, *local)]
        for c in cells:
            closure = "LOAD_FAST" if VERSION >= (3, 13) else "LOAD_CLOSURE"
            free = c in code.co_freevars
            out.append(Instr(closure, FreeVar(c) if free else CellVar(c)))
        out += call_instructions(len(names) + len(local) + len(cells))
        out.append(Instr("RETURN_VALUE"))
    return out


def set_hook(hook: Any) -> list:
    """Frames called from here on are captured; None: no longer."""
    return [*call_of(_core.set_frame_hook, const(hook)), Instr("POP_TOP")]


def stored_between(code: Any, first: int, last: int) -> set[str]:
    listed = instructions(code)
    if last <= first:
        return set()
    return {n for i in listed[first:last] for n in touched(i)[1]}


def copy_signature(made: Bytecode, code: Any, original: Bytecode) -> None:
    made.argcount = code.co_argcount
    made.posonlyargcount = code.co_posonlyargcount
    made.kwonlyargcount = code.co_kwonlyargcount
    made.argnames = list(original.argnames)
    made.cellvars, made.freevars = list(original.cellvars), list(original.freevars)
    made.name, made.qualname = code.co_name, code.co_qualname
    made.filename, made.first_lineno = code.co_filename, code.co_firstlineno
    made.flags = original.flags
    made.docstring = original.docstring


__all__ = ["END", "build_target"]
