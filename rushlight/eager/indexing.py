"""Indices that are no affine view: an integer tensor along the first dim (rows of a table), for
now.
"""

from rushlight import _core
from rushlight.ops import TABLE

from . import factories


def index(x, key, *value):
    """x[key], or x[key] = value, where core found no native view."""
    if value:
        return assign(x, key, value[0])
    if isinstance(key, (float, str)):
        raise (IndexError if isinstance(key, float) else TypeError)(
            "[index] only integers, slices (`:`), ellipsis (`...`), None and integer or bool "
            f"tensors are valid indices, got {key!r}"
        )
    if isinstance(key, list):
        key = factories.tensor(key)
    if (
        isinstance(key, _core.Tensor)
        and key.dtype.name in ("int64", "int32", "int16", "int8", "uint8")
        and x.dim()
    ):
        flat = x.reshape(x.shape[0], -1)
        n = x.shape[0]
        key = key.to(_core.int64)
        return (
            TABLE["embedding"]
            .native(flat, TABLE["where"].native(key.lt(0), key.add(n), key))
            .reshape(*key.shape, *x.shape[1:])
        )
    raise NotImplementedError(
        f"[index] indexing {list(x.shape)} with {describe(key)} is not supported yet: "
        "integers, slices, "
        "None, Ellipsis, and one integer tensor along the first dim are"
    )


def assign(x, key, value):
    if (
        isinstance(key, _core.Tensor)
        and key.dtype.name == "bool"
        and not isinstance(value, _core.Tensor)
    ):
        extra = x.dim() - key.dim()
        return TABLE["masked_fill"].native.inplace(x, key.reshape(*key.shape, *(1,) * extra), value)
    raise NotImplementedError(
        f"[index_put] assigning to {list(x.shape)} at {describe(key)} is not supported yet"
    )


def describe(key):
    one = lambda k: (
        f"a {k.dtype.name} tensor of shape {list(k.shape)}"
        if isinstance(k, _core.Tensor)
        else repr(k)
    )
    return ", ".join(map(one, key)) if isinstance(key, tuple) else one(key)
