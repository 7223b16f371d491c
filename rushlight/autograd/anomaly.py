"""Anomaly detection: each node of the tape remembers the lines that made it, and a gradient that is
NaN raises an error that names them.
"""

import traceback
import warnings

from rushlight.eager.functions import watch_nodes

PACKAGE = __name__.partition(".")[0]
state = {"enabled": False, "check_nan": True}


def is_anomaly_enabled():
    """Whether nodes remember where they were made."""
    return state["enabled"]


def is_anomaly_check_nan_enabled():
    """Whether, beside that, gradients are searched for NaN."""
    return state["check_nan"]


def set_anomaly_enabled(enabled, check_nan=True):
    """Anomaly detection on or off, from the next recorded operation on."""
    state.update(enabled=bool(enabled), check_nan=bool(check_nan))
    watch_nodes(remember if enabled else None)


def remember(node):
    """Called by core with every node that is recorded."""
    if "traceback_" in node.metadata:
        return
    lines = traceback.format_stack()[:-1]
    node.metadata["traceback_"] = lines
    if state["check_nan"]:
        node.register_hook(checker(node.name(), lines))


def checker(name, lines):
    """A hook of a node that refuses NaN among the gradients that it gives."""

    def check(grad_inputs, grad_outputs):
        if not state["enabled"]:
            return
        for i, g in enumerate(grad_inputs):
            if g is None or not (g.is_floating_point() or g.is_complex()):
                continue
            with_nan = g.detach()
            if bool((with_nan != with_nan).any()):
                warnings.warn(
                    f"{name} gave NaN. The forward call that it belongs to was made here:\n"
                    + "".join(lines),
                    UserWarning,
                    stacklevel=2,
                )
                error = RuntimeError(f"Function '{name}' returned nan values in its {i}th output.")
                error.add_note("recorded here:\n" + "".join(outside(lines)))
                raise error

    return check


def outside(lines):
    """The innermost line of a traceback that is no part of the package."""
    others = [line for line in lines if f"/{PACKAGE}/" not in line.split("\n", 1)[0]]
    return (others or lines)[-1:]


class set_detect_anomaly:
    """Anomaly detection on or off at once; as a context manager for a block."""

    def __init__(self, mode, check_nan=True):
        self.before = state["enabled"], state["check_nan"]
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        return None

    def __exit__(self, *_):
        set_anomaly_enabled(*self.before)


class detect_anomaly:
    """A block whose operations remember where they were called: an error of a NaN gradient names
    the forward call.
    """

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        self.before = state["enabled"], state["check_nan"]
        warnings.warn(
            "[detect_anomaly] every backward step is checked from here on, which is slow: leave "
            "it off unless you search for an error",
            stacklevel=2,
        )

    def __enter__(self):
        self.before = state["enabled"], state["check_nan"]
        set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *_):
        set_anomaly_enabled(*self.before)
