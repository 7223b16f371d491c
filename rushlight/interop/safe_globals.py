"""Classes and functions that the user allows in checkpoints, beyond what tensors need."""

from .unpickler import Global

_allowed = {}  # "module.name" -> object


def add_safe_globals(safe_globals):
    """Allows these in checkpoints read with weights_only=True: classes or functions, or pairs
    (class or function, "module.name" under which files name it). Their constructors and
    __setstate__ run with what the file gives them.
    """
    for entry in safe_globals:
        if isinstance(entry, tuple):
            if len(entry) != 2 or not isinstance(entry[1], str):
                raise ValueError(f"[add_safe_globals] expected (object, name), got {entry!r}")
            _allowed[entry[1]] = entry[0]
        elif callable(entry):
            _allowed[f"{entry.__module__}.{entry.__qualname__}"] = entry
        else:
            raise TypeError(f"[add_safe_globals] expected classes or functions, got {entry!r}")


def get_safe_globals():
    """What is allowed, as a list."""
    return list(_allowed.values())


def clear_safe_globals():
    """Allows nothing any more beyond what tensors need."""
    _allowed.clear()


class safe_globals:
    """`with safe_globals([Config]): load(path)`: allowed inside only."""

    def __init__(self, safe_globals):
        self.added = list(safe_globals)

    def __enter__(self):
        self.before = dict(_allowed)
        add_safe_globals(self.added)

    def __exit__(self, *_):
        _allowed.clear()
        _allowed.update(self.before)


def known_global(module, name):
    """The Global of an allowed name, or None."""
    found = _allowed.get(f"{module}.{name}")
    if found is None:
        return None
    new = (lambda *args, **named: found.__new__(found, *args, **named)) if is_class(found) else None
    return Global(f"{module}.{name}", found, found, new)


def is_class(x):
    return isinstance(x, type)


def may_build(target, state):
    """Whether target is an instance of an allowed class; it then takes the state as in pickle."""
    if is_class(target) or not any(type(target) is x for x in _allowed.values() if is_class(x)):
        return False
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return True
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for key, value in (slots or {}).items():
        setattr(target, key, value)
    return True
