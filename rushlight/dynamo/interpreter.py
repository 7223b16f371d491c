"""The symbolic frame: runs the instructions of one Python function on the values of a capture.

Stack, locals and cells hold constants, containers and the stand-ins of `variables/`. An exception
of the program travels as itself, marked by `Capture.raised`; anything else that the handlers raise
is a bug of the interpreter. The handlers of instructions stand in the files `instructions_*.py`.
"""

from __future__ import annotations

import builtins
from types import CodeType
from typing import Any

from .breaks import Break, Bug, Restart, unsupported
from .bytecode import Instruction, instructions
from .variables.objects import MISSING, Cell, Lazy

NULL: Any = type("Null", (), {"__repr__": lambda self: "NULL"})()
HANDLERS: dict[str, Any] = {}
DEEPEST = 60  # inlined calls: each takes some frames of the interpreter's own stack
RETURN, YIELD = "return", "yield"


class Position:
    """The position pushed for a handler that wants it."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class Previous:
    """The exception that was handled before, on the stack under the current one."""

    __slots__ = ("error", "mine")

    def __init__(self, error: Any, mine: Any) -> None:
        self.error, self.mine = error, mine


def handler(*names: str) -> Any:
    """Registers a function as the meaning of instructions."""

    def register(function: Any) -> Any:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


def unknown(frame: Frame, i: Instruction) -> Any:
    raise unsupported(f"instruction {i.name}", "it is not modelled")


def listing(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of a code object, each with its handler."""
    found = instructions(code)
    if found and found[0].run is None:
        for i in found:
            i.run = HANDLERS.get(i.name, unknown)
    return found


class Frame:
    """One function being interpreted. `outer` is the frame that called it."""

    outermost = False

    def __init__(
        self,
        state: Any,
        code: CodeType,
        namespace: dict,
        local: dict[str, Any],
        cells: dict[str, Cell],
        function: Any = None,
    ) -> None:
        self.state, self.code, self.namespace, self.function = state, code, namespace, function
        self.locals, self.cells = local, cells
        self.listing = listing(code)
        self.at = 0  # the position of the next instruction
        self.now: Instruction = self.listing[0]
        self.stack: list[Any] = []
        self.file, self.name = code.co_filename, code.co_qualname
        self.keywords: tuple = ()  # of KW_NAMES
        self.cleared: set[str] = set()  # variables that a comprehension has for itself now
        self.class_namespace: Any = None  # of a class body
        self.trusted = str(namespace.get("__name__", "")).startswith("rushlight.")
        self.builtins = namespace.get("__builtins__", builtins)
        if not isinstance(self.builtins, dict):
            self.builtins = self.builtins.__dict__

    @property
    def line(self) -> int:
        return self.now.line or self.code.co_firstlineno

    # ---- running

    def run(self) -> tuple[str, Any]:
        """Until it returns or yields."""
        state = self.state
        if len(state.frames) > DEEPEST:
            raise unsupported(
                "a deep chain of calls", f"more than {DEEPEST} functions are inside one another"
            )
        state.frames.append(self)
        try:
            return self.loop()
        except Break as reason:
            if not reason.stack:
                reason.stack = state.stack()
            raise
        finally:
            state.frames.pop()

    def loop(self) -> tuple[str, Any]:
        code = self.listing
        reached = self.state.inlined.setdefault(self.code, bytearray(len(code)))
        while True:
            i = self.now = code[self.at]
            reached[self.at] = 1
            self.at += 1
            try:
                done = i.run(self, i)
            except (Exception, GeneratorExit) as error:
                self.handle(error, i)
                continue
            if done is not None:
                return done

    def handle(self, error: BaseException, i: Instruction) -> None:
        """Go to the handler of an exception of the program, or let it pass."""
        if isinstance(error, RecursionError) and not self.state.is_raised(error):
            raise unsupported("deep recursion", "the interpreter's own stack is full") from None
        if not self.state.is_raised(error):
            raise Bug(error) from error
        self.state.restore_story(error)
        if i.handler is None:
            raise error
        self.enter_handler(error, i)

    def enter_handler(self, error: BaseException, i: Instruction) -> None:
        h = i.handler
        assert h is not None
        del self.stack[h.depth :]
        if h.lasti:
            self.stack.append(Position(i.position))
        self.stack.append(error)
        self.at = h.target

    # ---- the stack

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def take(self, n: int) -> list[Any]:
        if not n:
            return []
        found = self.stack[-n:]
        del self.stack[-n:]
        return found

    # ---- services

    def realize(self, value: Any) -> Any:
        if type(value) is Lazy:
            return self.state.wrap(value.value, value.source)
        return value

    def call(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """`calls.call`, which takes this place when that file is imported."""
        from .calls import call

        return call(self, function, args, kwargs)

    def raised(self, error: BaseException) -> BaseException:
        return self.state.raised(error)

    def cell_content(self, cell: Cell, name: str) -> Any:
        """What a cell holds; MISSING contents raise as CPython does."""
        if cell.content is MISSING and cell.real is not None and not cell.written:
            cell.content = self.read_cell(cell)
        if cell.content is MISSING:
            if name in self.code.co_freevars:
                text = (
                    f"cannot access free variable '{name}' where it is not associated with a "
                    "value in enclosing scope"
                )
                raise self.raised(NameError(text))
            text = f"cannot access local variable '{name}' where it is not associated with a value"
            raise self.raised(UnboundLocalError(text))
        cell.content = self.realize(cell.content)
        return cell.content

    def read_cell(self, cell: Cell) -> Any:
        try:
            value = cell.real.cell_contents
        except ValueError:
            raise unsupported("an empty cell", "its variable has no value yet") from None
        source = self.state.sources[id(cell)]
        if source.op == "closure":
            return self.state.wrap(value, source)
        return self.state.wrap(value, source.child("attr", "cell_contents"))

    def write_cell(self, cell: Cell, value: Any) -> None:
        cell.content, cell.written = value, True


class Outermost(Frame):
    """The frame that is replaced: it counts steps and stops where the capture is to break."""

    outermost = True

    def loop(self) -> tuple[str, Any]:
        code, state = self.listing, self.state
        stop = state.stop_at
        raised_at = self.raised_at = [0]
        while True:
            i = self.now = code[self.at]
            if state.steps == stop:
                return "break", None
            state.steps += 1
            state.captured[self.at] = 1
            self.at += 1
            try:
                done = i.run(self, i)
            except Break as found:
                raise self.restart(found) from None
            except (Exception, GeneratorExit) as error:
                if state.is_raised(error) and i.handler is None:
                    raise self.restart(
                        unsupported(
                            f"an exception that leaves the function: {type(error).__name__}",
                            str(error) or "it is raised in plain Python",
                            "Without it the function is captured whole.",
                        )
                    ) from None
                if not self.handling():
                    raised_at[0] = state.steps - 1
                try:
                    self.handle(error, i)
                except Break as found:
                    raise self.restart(found) from None
                continue
            if done is not None:
                return done

    def restart(self, reason: Break) -> Restart:
        """While an exception is handled, its whole story runs as plain Python."""
        if not reason.stack:
            reason.stack = self.state.stack()
        step = self.raised_at[0] if self.handling() else self.state.steps - 1
        return Restart(step, reason)

    def handling(self) -> bool:
        """Whether an exception is being handled in this frame."""
        return any(type(v) is Previous for v in self.stack)
