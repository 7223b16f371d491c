"""What operators of several results return: named tuples under the names of PyTorch's
`return_types`, which pickle finds again in `rushlight.return_types`.
"""

from collections import namedtuple

CLASSES: dict[str, type] = {}  # by name; more once the modules that make them are loaded


def text(self):
    """As PyTorch prints them: a line a field."""
    fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"rushlight.return_types.{type(self).__name__}(\n{fields})"


def result_class(name, *fields):
    """The named tuple's class of this name; one class a name."""
    made = namedtuple(name, fields, module="rushlight.return_types")
    made.__repr__ = text
    return CLASSES.setdefault(name, made)
