"""The three kinds of error, and the user's line.

Takes an operator or stage and a sentence; gives exceptions that say whose fault it is. Invariant: a
message starts with `[operator]` or `[stage]` and quotes the shapes or values at fault; the user's
line stands in a note below it, so that a deep stack still names it.

    UserError     the call was wrong; PyTorch would refuse it too
    Unsupported   the call is right; Rushlight cannot do it (yet)
    CompilerBug   Rushlight is wrong
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = re.compile(r"/(site|dist)-packages/")


class Where(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place} in {self.function}" if self.function else place

    def source(self) -> str:
        """The text of the line, stripped; empty when the file cannot be read."""
        import linecache

        return linecache.getline(self.file, self.line).strip()


def user_line(frame: FrameType | None = None) -> Where | None:
    """The innermost frame of the user's code (from `frame`, or from the caller on), where there is
    none the innermost one outside the package; None where all are inside."""
    if frame is None:
        frame = sys._getframe(1)
    library = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<graph ")):
            if of_user(file):
                return Where(file, frame.f_lineno, frame.f_code.co_qualname)
            if library is None:
                library = Where(file, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back
    return library


def lines_of(error: BaseException | None) -> list[Where]:
    """The user's lines that an exception went through, the innermost first."""
    found = []
    walk = None if error is None else error.__traceback__
    while walk is not None:
        code = walk.tb_frame.f_code
        if of_user(code.co_filename):
            found.append(Where(code.co_filename, walk.tb_lineno, code.co_qualname))
        walk = walk.tb_next
    return found[::-1]


@lru_cache(maxsize=4096)
def of_user(file: str) -> bool:
    """Whether a file is the user's: neither the package's nor an installed library's, nor made by
    either."""
    if file.startswith((_PACKAGE, _LIBRARY, "<frozen ", "<graph ")):
        return False
    return _INSTALLED.search(file) is None


class UserError(Exception):
    """The call was wrong. It is also an instance of the built-in class that PyTorch raises in its
    place (`kind`).

    Fails:  rl.ones(2, 3) @ rl.ones(4, 5)
            UserError (a RuntimeError): [matmul] expected x.shape[-1] == y.shape[-2], got 3 and 4
    Mend:   give operands whose inner sizes agree: rl.ones(2, 3) @ rl.ones(3, 5)
    """

    op: str
    where: Where | None

    def __new__(
        cls, op: str, text: str, *, kind: type[Exception] = RuntimeError, where: Where | None = None
    ) -> UserError:
        return Exception.__new__(_user_error_of(kind), op, text)

    def __init__(
        self,
        op: str,
        text: str,
        *,
        kind: type[Exception] = RuntimeError,
        where: Where | None = None,
    ) -> None:
        _begin(self, op, text, where)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_user_error, (self.op, self.text, self.kind, self.where)


class Unsupported(NotImplementedError):
    """The call is right, and Rushlight cannot do it. The message says what to do instead.

    Fails:  rl.empty(3, device="cuda") inside a compiled function
            Unsupported: [compile] a tensor made on 'cuda' inside a graph. Make it outside and
            hand it in.
    Mend:   follow the hint, or run that part elsewhere and hand the result over with rl.from_numpy.
    """

    def __init__(self, op: str, text: str, hint: str = "", *, where: Where | None = None) -> None:
        _begin(self, op, f"{text}. {hint}" if hint else text, where)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.op, self.text), {"where": self.where})


class CompilerBug(RuntimeError):
    """Rushlight is wrong: a stage met something that an earlier one promised not to give. Quotes
    the IR near it.

    Fails:  CompilerBug: [fusion] node 'mul_3' is scheduled before its operand 'add_2'
                add_2 = add(x, y)
                mul_3 = mul(add_2, 2)      <- here
    Mend:   nothing in your program. RUSHLIGHT_COMPILE_DEBUG=1 writes what to attach to a report.
    """

    def __init__(self, stage: str, text: str, ir: str = "", *, where: Where | None = None) -> None:
        near = "".join(f"\n    {line}" for line in ir.splitlines())
        _begin(self, stage, text + near, where)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.op, self.text), {"where": self.where})


class OutOfMemoryError(RuntimeError, MemoryError):
    """A device has no memory left for a tensor. The message says what was asked, held and free.

    Fails:  rl.empty(10**12, device="cuda")
    Mend:   free tensors, take smaller batches; rl.cuda.memory_summary() tells who holds what. The
            program can go on.
    """


def near(ir: str, mark: str, lines: int = 3) -> str:
    """The lines of printed IR around the first one that contains `mark`, which gets an arrow; for
    CompilerBug."""
    rows = ir.splitlines()
    for i, row in enumerate(rows):
        if mark in row:
            around = rows[max(0, i - lines) : i + lines + 1]
            return "\n".join(f"{r}      <- here" if r is row else r for r in around)
    return "\n".join(rows[: 2 * lines + 1])


def _begin(error: Any, op: str, text: str, where: Where | None) -> None:
    """What the three constructors share: the message, its parts, and the user's line as a note."""
    error.args = (f"[{op}] {text}",)
    error.op, error.text = op, text
    error.where = user_line(sys._getframe(2)) if where is None else where
    if error.where is not None:
        error.add_note(f"at {error.where}")


_of_kind: dict[type[Exception], type[UserError]] = {}


def _user_error_of(kind: type[Exception]) -> type[UserError]:
    """UserError and `kind` in one class, made once a kind. It prints under the name that PyTorch's
    users know."""
    made = _of_kind.get(kind)
    if made is None:
        names = {"__module__": "rushlight.errors", "__qualname__": f"UserError[{kind.__name__}]"}
        made = _of_kind[kind] = type(f"UserError[{kind.__name__}]", (UserError, kind), names)
    return made


def _rebuild_user_error(
    op: str, text: str, kind: type[Exception], where: Where | None
) -> UserError:
    return UserError(op, text, kind=kind, where=where)


def _rebuild(cls: type[Exception], args: tuple[Any, ...], names: dict[str, Any]) -> Exception:
    return cls(*args, **names)
