"""Generators of the program: frames that are left at a `yield` and entered again.

They answer Python's own protocol, so that builtins (`list(g)`, `zip(g, h)`) drive them.
"""

from __future__ import annotations

from typing import Any

from .breaks import Bug, unsupported
from .bytecode import VERSION, Instruction
from .interpreter import RETURN, Frame


class Generator:
    """A generator that the program made. `call` is how: (function, args, kwargs)."""

    def __init__(self, frame: Frame, call: tuple | None) -> None:
        self.frame, self.call, self.state = frame, call, frame.state
        self.started = self.finished = self.running = False
        self.current: Any = None  # the exception handled inside, while it waits

    def resume(self, value: Any = None, error: BaseException | None = None) -> Any:
        """Run to the next yield. StopIteration with the result at the end."""
        frame, state = self.frame, self.state
        if self.running:
            raise state.raised(ValueError("generator already executing"))
        if self.finished:
            if error is not None:
                raise state.raised(error)
            raise state.raised(StopIteration())
        if not self.started and value is not None:
            text = "can't send non-None value to a just-started generator"
            raise state.raised(TypeError(text))
        if not self.started and error is not None:
            self.started = self.finished = True
            raise state.raised(error)
        outer, state.current = state.current, self.current or state.current
        self.running = True
        began, self.started = self.started, True
        try:
            if error is None:
                frame.push(value)
            else:
                inner = self.delegate() if began else None
                if inner is not None:
                    delegated, found = self.throw_on(inner, error)
                    if delegated:
                        return found
                else:
                    frame.push(None)
                    self.throw_in(error)
            kind, found = frame.run()
        except (Exception, GeneratorExit) as failure:
            self.finished = True
            if not state.is_raised(failure):
                raise Bug(failure) from failure
            if isinstance(failure, StopIteration):
                made = RuntimeError("generator raised StopIteration")
                made.__cause__ = made.__context__ = failure
                raise state.raised(made) from failure
            raise
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
            inner, state.current = state.current, outer
            self.current = inner if inner is not outer else None
        if kind == RETURN:
            self.finished = True
            raise state.raised(StopIteration(found) if found is not None else StopIteration())
        return found

    def delegate(self) -> Any:
        """What a `yield from` waits for; None where the generator waits at a yield of its own."""
        frame = self.frame
        after = frame.listing[frame.at]
        if after.name != "RESUME" or (after.arg or 0) & 3 != 2:
            return None
        if not isinstance(frame.stack[-1], Generator):
            if hasattr(type(frame.stack[-1]), "throw"):
                raise unsupported("throw() through `yield from`", "the inner one is no generator")
            return None
        return frame.stack[-1]

    def throw_on(self, inner: Generator, error: BaseException) -> tuple[bool, Any]:
        """The exception goes to the generator that this one waits for: (True, what that yields), or
        (False, None) with this frame ready to go on."""
        frame, state = self.frame, self.state
        try:
            if isinstance(error, GeneratorExit):
                inner.close()
            else:
                return True, inner.resume(error=error)
        except StopIteration as stop:
            if not state.is_raised(stop):
                raise
            send = frame.listing[frame.at - 2]
            if VERSION == (3, 11):
                frame.pop()
            frame.push(stop.value)
            frame.at = send.target or 0
            return False, None
        except Exception as failure:
            if not state.is_raised(failure):
                raise
            error = failure
        frame.push(None)
        self.throw_in(error)
        return False, None

    def throw_in(self, error: BaseException) -> None:
        """The exception as if the yield had raised it."""
        frame = self.frame
        i = frame.listing[frame.at - 1]
        frame.now = i
        self.state.raised(error)
        frame.pop()
        if i.handler is None:
            raise error
        frame.enter_handler(error, i)

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.resume()

    def send(self, value: Any) -> Any:
        return self.resume(value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        if isinstance(error, type):
            error = error() if value is None else value
        if not isinstance(error, Exception):
            raise unsupported("throw() into a generator", "it is no ordinary exception")
        return self.resume(error=error)

    def close(self) -> None:
        """Raises GeneratorExit at the yield, as CPython does."""
        if self.finished or not self.started:
            self.finished = True
            return
        try:
            self.resume(error=GeneratorExit())
        except (GeneratorExit, StopIteration) as error:
            if not self.state.is_raised(error):
                raise
            return
        raise self.state.raised(RuntimeError("generator ignored GeneratorExit"))

    @property
    def guarded(self) -> bool:
        """Whether it waits inside a try- or with-block, whose end runs when it is dropped."""
        if not self.started or self.finished:
            return False
        return self.is_guarded(self.frame.listing[self.frame.at - 1])

    @property
    def has_end(self) -> bool:
        """Whether it may wait inside a try- or with-block."""
        return any(i.name == "YIELD_VALUE" and self.is_guarded(i) for i in self.frame.listing)

    def is_guarded(self, i: Instruction) -> bool:
        if i.handler is None:
            return False
        first = self.frame.listing[i.handler.target]  # of 3.12's handler around every generator
        return not (first.name == "CALL_INTRINSIC_1" and first.arg == 3)


def begin_generator(frame: Frame) -> Generator:
    made = Generator(frame, frame.function)
    frame.state.note_made(made)
    frame.state.generators.append(made)
    return made
