"""The same elements in other places: compositions of views, copies and `cat`."""
from . import promotion
from .assembly import cat, constant_pad_nd, diag_embed
from .declare import ALL, composition, library
from .layouts import like_operands, positive, shaped
from .pointwise import clone
from .reductions import sum
from .samples import call, t
from .views import (
    diagonal,
    expand,
    narrow,
    reshape,
    transpose,
    unsqueeze,
    view,
    wrapped,
)


@library("flip(Tensor self, int[] dims) -> Tensor", routine="flip", strided=True, domain=ALL,
         layout=shaped(lambda x, dims: like_operands([x.layout], x.shape, x.dtype, x.device)),
         samples=(call(t(2, 3), (0,)), call(t(2, 3), (0, 1)), call(t(4, 3, order=(1, 0)), (-1,)), call(t(3, dtype="int64"), (0,)),
                  call(t(0, 3), (0,)), call(t(5, step=2), (0,)), call(t(2, 3, 4), (0, 2)), call(t(3, 5, dtype="bfloat16"), (1,)),
                  call(t(4, dtype="bool"), (0,)), call(t(), ()), call(t(3, 4), ())))
def flip(x, dims):
    """The order of elements along dims reversed."""
    mask = 0
    for d in positive(dims, x.rank) if dims else ():
        mask |= 1 << d
    return (mask,)


@flip.derivative
def _(g, dims):
    return flip(g, dims)


@composition("roll(Tensor self, SymInt[1] shifts, int[1]? dims=[]) -> Tensor", structural=("shifts",),
             samples=(call(t(2, 3), (1,)), call(t(2, 3), (1,), (1,)), call(t(4, 3), (1, -2), (0, 1)), call(t(5), (7,), (0,)), call(t(0, 3), (1,), (0,))))
def roll(x, shifts, dims):
    """Elements moved along dims; what leaves at one end enters at the other. Without dims, along the flattened tensor."""
    shifts, dims = ((v,) if isinstance(v, int) else tuple(v or ()) for v in (shifts, dims))
    if not dims:
        if len(shifts) != 1:
            raise RuntimeError(f"[roll] shifts and dimensions must align. shifts: {len(shifts)}, dims: 0")
        return reshape(roll(reshape(x, (x.numel(),)), shifts, (0,)), x.shape)
    if len(shifts) != len(dims):
        raise RuntimeError(f"[roll] shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(dims)}")
    if x.numel() == 0:
        return clone(x)
    for shift, dim in zip(shifts, dims):
        dim = wrapped(dim, x.rank)
        n = x.shape[dim]
        at = -shift % n
        x = cat([narrow(x, dim, at, n - at), narrow(x, dim, 0, at)], dim) if at else clone(x, memory_format="contiguous")
    return x


@composition("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
             samples=(call(t(2, 3)), call(t(2, 3), 2), call(t(2, 3), -1), call(t(2, 3, 4), 1, (1, 2)), call(t(2, 3), 4)))
def rot90(x, k, dims):
    """A quarter turn, k times, from the first of two dims towards the second."""
    if len(dims) != 2 or wrapped(dims[0], x.rank) == wrapped(dims[1], x.rank):
        raise RuntimeError(f"[rot90] expected two different rotation dims, but got dims = {list(dims)}")
    i, j = dims
    if k % 4 == 1:
        return transpose(flip(x, (j,)), i, j)
    if k % 4 == 2:
        return flip(x, (i, j))
    return transpose(flip(x, (i,)), i, j) if k % 4 == 3 else clone(x, memory_format="contiguous")


@composition("repeat(Tensor self, SymInt[] repeats) -> Tensor", function=False,
             samples=(call(t(2, 3), (2, 3)), call(t(3), (2, 1, 2)), call(t(2, 3), (1, 0)), call(t(), (2, 2)), call(t(), ())))
def repeat(x, repeats):
    """The whole tensor repeated along each dim, as a copy."""
    lead = len(repeats) - x.rank
    if lead < 0:
        raise RuntimeError("[repeat] takes at least as many numbers as there are dims")
    if any(isinstance(n, int) and n < 0 for n in repeats):
        raise RuntimeError(f"[repeat] Trying to create tensor with negative dimension in {list(repeats)}")
    shape = (1,) * lead + tuple(x.shape)
    split = [n for size in shape for n in (1, size)]
    full = [n for r, size in zip(repeats, shape) for n in (r, size)]
    copies = clone(expand(reshape(x, tuple(split)), tuple(full)), memory_format="contiguous")
    return view(copies, tuple(r * n for r, n in zip(repeats, shape)))


@composition("tile(Tensor self, SymInt[] dims) -> Tensor", samples=(call(t(2, 3), (2,)), call(t(3), (2, 2)), call(t(2, 3), (2, 1))))
def tile(x, dims):
    """`repeat`, with the numbers aligned to the last dims."""
    return repeat(x, (1,) * max(x.rank - len(dims), 0) + tuple(dims))


@composition("repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None) -> Tensor", name="repeat_each", method=False,
             function=False, structural=("repeats",), samples=(call(t(2, 3), 2), call(t(2, 3), 3, 1), call(t(2, 3), 2, 0), call(t(2, 3), 0, 0)))
def repeat_each(x, repeats, dim):
    """Each element repeated, one after another, along a dim or along the flattened tensor."""
    if repeats < 0:
        raise RuntimeError(f"[repeat_interleave] repeats can not be negative, got {repeats}")
    if dim is None:
        x, dim = reshape(x, (x.numel(),)), 0
    dim = wrapped(dim, x.rank)
    shape = tuple(x.shape)
    full = expand(unsqueeze(x, dim + 1), (*shape[:dim + 1], repeats, *shape[dim + 1:]))
    return view(clone(full, memory_format="contiguous"), (*shape[:dim], shape[dim] * repeats, *shape[dim + 1:]))


@composition("pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor", method=False, function=False,
             structural=("pad", "value"), autocast=lambda x, pad, mode, value: "float32" if mode in ("reflect", "replicate") else None, samples=(
                 call(t(2, 3), (1, 2)), call(t(2, 3), (1, 2, 0, 1), "constant", 1.5), call(t(2, 3, 5), (2, 1), "reflect"),
                 call(t(2, 3, 5), (2, 1), "replicate"), call(t(2, 3, 5), (2, 1), "circular"),
                 call(t(1, 2, 4, 5), (1, 2, 3, 1), "reflect"), call(t(1, 2, 4, 5), (1, 2, 0, 1), "replicate"),
                 call(t(1, 2, 4, 5), (1, 2, 3, 1), "circular"), call(t(2, 3, 5), (-1, 2), "replicate")))
def pad(x, pad, mode, value):
    """(before, after) pairs from the last dim on: filled with `value` (0), or with what "reflect", "replicate" or "circular"
    finds inside."""
    if len(pad) % 2:
        raise RuntimeError(f"[pad] Padding length must be divisible by 2, got {list(pad)}")
    if mode == "constant":
        return constant_pad_nd(x, pad, 0 if value is None else value)
    if mode not in AROUND:
        raise NotImplementedError(f"[pad] Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ValueError(f'[pad] Padding mode "{mode}" doesn\'t take in value argument')
    if len(pad) // 2 not in (x.rank - 1, x.rank - 2) or len(pad) > 6:
        raise NotImplementedError(
            f"[pad] a mode other than 'constant' pads the last dims of 2 to 5, got {len(pad)} numbers for {x.rank} "
            "dims"
        )
    if mode != "circular":
        promotion.accept("pad", x.dtype, 1)
    for i in range(len(pad) // 2):
        x = AROUND[mode](x, x.rank - 1 - i, pad[2 * i], pad[2 * i + 1])
    return x


def cut(x, dim, before, after):
    """Negative padding first."""
    less = max(-before, 0), max(-after, 0)
    n = x.shape[dim]
    x = narrow(x, dim, less[0], n - less[0] - less[1]) if any(less) else x
    return x, max(before, 0), max(after, 0)


def joined(x, parts, dim):
    parts = [p for p in parts if p is not None]
    return cat(parts, dim) if len(parts) > 1 else clone(x, memory_format="contiguous")


def reflect(x, dim, before, after):
    n = x.shape[dim]
    if before >= n or after >= n:
        raise RuntimeError(
            f"[pad] reflecting {before} and {after} values needs more than that many: dim {dim} of {list(x.shape)}"
        )
    x, before, after = cut(x, dim, before, after)
    n = x.shape[dim]
    return joined(x, [flip(narrow(x, dim, 1, before), (dim,)) if before else None, x,
                      flip(narrow(x, dim, n - 1 - after, after), (dim,)) if after else None], dim)


def replicate(x, dim, before, after):
    x, before, after = cut(x, dim, before, after)
    n = x.shape[dim]
    edge = lambda at, count: expand(narrow(x, dim, at, 1), (*x.shape[:dim], count, *x.shape[dim + 1:])) if count else None
    return joined(x, [edge(0, before), x, edge(n - 1, after)], dim)


def circular(x, dim, before, after):
    n = x.shape[dim]
    if before > n or after > n:
        raise RuntimeError(f"[pad] ({before}, {after}) would go round dim {dim} of {list(x.shape)} more than once")
    x, before, after = cut(x, dim, before, after)
    n = x.shape[dim]
    return joined(x, [narrow(x, dim, n - before, before) if before else None, x, narrow(x, dim, 0, after) if after else None], dim)


AROUND = {"reflect": reflect, "replicate": replicate, "circular": circular}


@composition("diag(Tensor self, int diagonal=0) -> Tensor", samples=(call(t(3)), call(t(3, 4)), call(t(3, 4), 1), call(t(3), -1)))
def diag(x, offset):
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector (a copy)."""
    if x.rank == 1:
        return diag_embed(x, offset, 0, 1)
    if x.rank != 2:
        raise RuntimeError(f"[diag] takes a vector or a matrix, got {x.rank} dims")
    return clone(diagonal(x, offset, 0, 1))


@composition("diagflat(Tensor self, int offset=0) -> Tensor", samples=(call(t(3)), call(t(2, 2), 1)))
def diagflat(x, offset):
    return diag_embed(reshape(x, (x.numel(),)), offset, 0, 1)


@composition("trace(Tensor self) -> Tensor", function=False, autocast="float32", samples=(call(t(3, 3)), call(t(2, 4)), call(t(3, 3, dtype="int32"))))
def trace(x):
    if x.rank != 2:
        raise RuntimeError(f"[trace] takes a matrix, got {x.rank} dims")
    promotion.accept("trace", x.dtype, 1)
    return sum(diagonal(x, 0, 0, 1))


@composition("fliplr(Tensor self) -> Tensor", samples=(call(t(2, 3)),))
def fliplr(x):
    if x.rank < 2:
        raise RuntimeError("[fliplr] Input must be >= 2-d.")
    return flip(x, (1,))


@composition("flipud(Tensor self) -> Tensor", samples=(call(t(2, 3)),))
def flipud(x):
    if x.rank < 1:
        raise RuntimeError("[flipud] Input must be >= 1-d.")
    return flip(x, (0,))
