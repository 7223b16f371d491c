"""Memory formats: in which order of dims a tensor's elements lie.

`contiguous_format` is C order; `channels_last` is [n, c, h, w] lying as n, h, w, c, and
`channels_last_3d` the same with a depth; `preserve_format` keeps what is there.
"""

from rushlight import _core
from rushlight.ops import TABLE


class memory_format(str):
    """One of the four formats below. Equal to its name, which is what operators take."""

    __slots__ = ()

    def __repr__(self):
        return f"rushlight.{NAMES[str(self)]}"

    def __reduce__(self):
        return (memory_format, (str(self),))


class layout(str):
    """How a tensor stores its elements. All tensors here are `strided`; the other names are for
    programs that ask.
    """

    __slots__ = ()

    def __repr__(self):
        return f"rushlight.{str(self)}"

    def __reduce__(self):
        return (layout, (str(self),))


LAYOUTS = {
    name: layout(name)
    for name in ("strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged".split())
}
globals().update(LAYOUTS)
strided = LAYOUTS["strided"]
NAMES = {
    "contiguous": "contiguous_format",
    "preserve": "preserve_format",
    "channels_last": "channels_last",
    "channels_last_3d": "channels_last_3d",
}
contiguous_format, preserve_format = memory_format("contiguous"), memory_format("preserve")
legacy_contiguous_format = contiguous_format
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
RANKS = {"channels_last": 4, "channels_last_3d": 5}


def check(operator, rank, wanted):
    """The format, or an error where it is none or fits another number of dims."""
    if wanted not in NAMES:
        raise TypeError(f"[{operator}] memory_format must be a memory format, got {wanted!r}")
    if RANKS.get(wanted, rank) != rank:
        raise RuntimeError(
            f"[{operator}] required rank {RANKS[wanted]} tensor to use {wanted} format, got one of "
            f"{rank} dimensions"
        )
    return wanted


def inside(rank):
    """The order of dims with the channels innermost, and the way back."""
    return (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))


def strides(shape, wanted):
    """Of a dense tensor in a format with the channels innermost."""
    order, _ = inside(len(shape))
    check("empty_like", len(shape), wanted)
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        found[d], step = step, step * (shape[d] or 1)
    return tuple(found)


def laid(x, wanted, operator="contiguous", copy=False):
    """x's elements in the format, as a copy unless they lie so already."""
    wanted = check(operator, len(x.shape), "contiguous" if wanted is None else wanted)
    if wanted == "preserve":
        if operator == "contiguous":
            raise RuntimeError("[contiguous] preserve memory format is unsupported")
        return TABLE["clone"].native(x) if copy else x
    if wanted == "contiguous":
        there = not copy and x.is_contiguous()
        return x if there else TABLE["clone"].native(x, memory_format="contiguous")
    if not copy and x.is_contiguous(memory_format=wanted):
        return x
    there, back = inside(len(x.shape))
    permute, clone = TABLE["permute"].native, TABLE["clone"].native
    return permute(clone(permute(x, there), memory_format="contiguous"), back)


def empty(sizes, dtype, wanted, device=None):
    """Memory as it is found, in the format."""
    if wanted is None or check("empty", len(sizes), wanted) in ("contiguous", "preserve"):
        return _core.empty(sizes, dtype, device)
    there, back = inside(len(sizes))
    made = _core.empty(tuple(sizes[d] for d in there), dtype, device)
    return TABLE["permute"].native(made, back)
