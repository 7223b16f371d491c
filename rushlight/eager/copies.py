"""Copies of what views would be: `permute_copy`, `unbind_copy` and their like, one for each view,
and pieces that PyTorch calls unsafe because nobody checks that they are not written together.
"""

from rushlight import _core
from rushlight.ops import TABLE

from . import factories, pieces

SEVERAL = ("split", "split_with_sizes", "unbind")  # these give several views
METHODS = ("t",)


def op(name):
    return TABLE[name].native


def view_named(name):
    """The view of that name as a function of tensors, or None."""
    if name in SEVERAL:
        return getattr(pieces, name)
    if name in METHODS:
        return getattr(_core.Tensor, name)
    found = TABLE.get(name)
    return found.native if found is not None and found.kind == "view" else None


def copy_form(name):
    """`permute_copy` of "permute_copy": the view, copied; None where there is no such view."""
    view = view_named(name.removesuffix("_copy"))
    if view is None or not name.endswith("_copy"):
        return None
    dense = op("clone")

    def function(input, *args, out=None, **kwargs):
        found = view(input, *args, **kwargs)
        if isinstance(found, (tuple, list)):
            made = tuple(dense(x, memory_format="contiguous") for x in found)
            if out is None:
                return made
            for x, to in zip(made, out, strict=True):
                dense(x, out=to)
            return None
        if out is not None:
            return dense(found, out=out)
        return dense(found, memory_format="contiguous")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name.removesuffix('_copy')}`, in memory of its own."
    return function


def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of input with `src` where `as_strided(size, stride, storage_offset)` looks."""
    made = op("clone")(input)
    if tuple(made.stride()) != tuple(input.stride()):  # places are those in input's memory
        made = factories.empty_like(input).copy_(input)
    place = made.as_strided(size, stride, storage_offset)
    if tuple(place.shape) != tuple(src.shape):
        raise RuntimeError(
            f"[as_strided_scatter] src has shape {list(src.shape)}, the place that it goes to "
            f"{list(place.shape)}"
        )
    place.copy_(src)
    return made


def as_strided_(input, size, stride, storage_offset=None):
    """The same tensor under other sizes and strides of its memory."""
    input.data = input.detach().as_strided(size, stride, storage_offset)
    return input


def unsafe_chunk(input, chunks, dim=0):
    """`chunk`."""
    return pieces.chunk(input, chunks, dim)


def unsafe_split(input, split_size, dim=0):
    """`split`."""
    return pieces.split(input, split_size, dim)


def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """`split_with_sizes`."""
    return pieces.split_with_sizes(input, split_sizes, dim)
