"""`_check` and its kind: conditions that a program states, under PyTorch's names.

Each raises its error, with `message()` where a message is given, unless the condition holds.
"""

from rushlight import eager


def _assert(condition, message):
    """AssertionError unless the condition (a bool, or a tensor of one) holds."""
    if not condition:
        raise AssertionError(message)


def _checked(name, error):
    def check(cond, message=None):
        if not isinstance(cond, bool):
            raise TypeError(f"[{name}] expected a bool, got {type(cond).__name__}")
        if not cond:
            raise error(_said(name, message))

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"{error.__name__} unless `cond` holds."
    return check


def _said(name, message):
    if message is None:
        return f"[{name}] cond is False"
    if not callable(message):
        raise TypeError(f"[{name}] message must be a callable, got {type(message).__name__}")
    return str(message())


_check = _checked("_check", RuntimeError)
_check_index = _checked("_check_index", IndexError)
_check_value = _checked("_check_value", ValueError)
_check_type = _checked("_check_type", TypeError)
_check_not_implemented = _checked("_check_not_implemented", NotImplementedError)


def _check_is_size(i, message=None, *, max=None):
    """RuntimeError unless 0 <= i (<= max)."""
    _check(bool(i >= 0), message)
    if max is not None:
        _check(bool(i <= max), message)


def _check_tensor_all(cond, message=None):
    """RuntimeError unless all of a bool tensor holds."""
    if not isinstance(cond, eager.Tensor) or cond.dtype is not eager.bool:
        raise TypeError(f"[_check_tensor_all] expected a bool tensor, got {cond!r}")
    _check(bool(cond.all()), message)
