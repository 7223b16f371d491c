"""Signals of a capture: why it stops, and from where it starts again.

They are BaseExceptions, so that no `except Exception` of code that runs on the way swallows them.
"""

from __future__ import annotations

from typing import Any

from rushlight import dtypes


class Break(BaseException):
    """What was attempted cannot be captured: the instruction runs as plain Python."""

    def __init__(self, id: str, what: str, why: str, hint: str = "") -> None:
        super().__init__(id, what, why, hint)
        self.id, self.what, self.why, self.hint = id, what, why, hint
        self.stack: tuple = ()  # the user's frames, outermost first

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Restart(BaseException):
    """Capture again, and stop before the given step of the outermost frame. `last`: and what comes
    behind runs to its end as it is."""

    def __init__(self, step: int, reason: Break, last: bool = False) -> None:
        super().__init__(step, reason)
        self.step, self.reason, self.last = step, reason, last


class Skip(BaseException):
    """The frame is not captured at all."""

    def __init__(self, reason: Break) -> None:
        super().__init__(reason)
        self.reason = reason


class Bug(BaseException):
    """The interpreter itself failed; `cause` says how."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(repr(cause))
        self.cause = cause


class BackendError(RuntimeError):
    """A backend raised, or gave what is no function of the graph's results."""


class GraphBreakError(RuntimeError):
    """`fullgraph=True` met a break.

    Fails:  compile(lambda x: x * x.sum().item(), fullgraph=True)(ones(2))
    Mend:   follow the hint; or leave out fullgraph=True, and that line runs in plain Python.
    """

    def __init__(self, reason: Any) -> None:
        super().__init__(str(reason))
        self.reason = reason


APART = "Move it out of the compiled function, or into one under torch.compiler.disable."


def unsupported(what: str, why: str, hint: str = APART) -> Break:
    return Break("capture.unsupported", what, why, hint)


def served(handler: Any, *args: Any, **kwargs: Any) -> Any:
    """What the model of a builtin gives. Arguments that the model has no place for are left to the
    builtin, which refuses them in its own words."""
    try:
        return handler(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise unsupported("a call", "the arguments do not fit") from None
        raise


def refuse_complex(layout: Any) -> None:
    """Graphs hold real tensors only: eager mode computes complex ones on their parts."""
    if layout is not None and dtypes.is_complex(layout.dtype):
        raise unsupported(
            "a complex tensor",
            "compiled code has kernels for real numbers only",
            "Compile what works on view_as_real(x), or leave this part to eager mode.",
        )


def data_dependent(what: str, hint: str = "") -> Break:
    return Break(
        "capture.data_dependent",
        what,
        "the value is known only when the graph runs",
        hint or "Use torch.where(), or keep the value in a tensor.",
    )
