"""`rushlight.return_types`: the classes of what operators of several results return."""

from rushlight.eager import results


def _all():
    from rushlight.eager import older_solving, sampled  # noqa: F401  (they are loaded late)

    return results.CLASSES


def __getattr__(name):
    found = None if name.startswith("__") else _all().get(name)
    if found is None:
        raise AttributeError(f"module 'rushlight.return_types' has no attribute {name!r}")
    return found


def __dir__():
    return sorted(_all())
