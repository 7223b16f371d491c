"""Generators of the program: frames that are left at a `yield` and entered again.

They answer Python's own protocol, so that builtins (`list(g)`, `zip(g, h)`) drive them.
"""

from __future__ import annotations

from typing import Any

from .breaks import Bug, unsupported
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
        self.started = True
        frame.push(value)
        try:
            if error is not None:
                frame.pop()
                frame.push(None)
                self.throw_in(error)
            kind, found = frame.run()
        except Exception as failure:
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
        if self.finished or not self.started:
            self.finished = True
            return
        if any(i.handler is not None for i in self.frame.listing[1:] if has_user_handler(i)):
            raise unsupported("close() of a generator", "it has code to run at its end")
        self.finished = True


def has_user_handler(i: Any) -> bool:
    return i.name == "YIELD_VALUE" and i.handler.depth > 0


def begin_generator(frame: Frame) -> Generator:
    made = Generator(frame, frame.function)
    frame.state.note_made(made)
    return made
