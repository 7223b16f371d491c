"""What PyTorch has as functions over other operators: statistics of variables, integrals by
trapezoids, windows, products of vectors, and places as coordinates. Derivatives are those of the
parts.
"""

import math

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.views import wrapped

from . import factories
from .sampling import place

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


# ---- vectors


def cross(input, other, dim=None, *, out=None):
    """The vector product along a dim of size 3 (the first such dim where none is given)."""
    if dim is None:
        dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("[cross] no dim has size 3")
    return linalg_cross(input, other, dim=dim, out=out)


def linalg_cross(input, other, *, dim=-1, out=None):
    """The vector product along `dim`, whose size must be 3."""
    if input.dim() != other.dim():
        raise RuntimeError(
            f"[cross] the operands have the same number of dims, got {input.dim()} and "
            f"{other.dim()}"
        )
    dim = wrapped(dim, input.dim())
    if not input.shape[dim] == other.shape[dim] == 3:
        raise RuntimeError(
            f"[cross] dim {dim} has size 3 in both operands, got {input.shape[dim]} and "
            f"{other.shape[dim]}"
        )
    turned = lambda x, by: op("roll")(x, by, dim)
    made = turned(input, -1) * turned(other, 1) - turned(input, 1) * turned(other, -1)
    return made if out is None else op("clone")(made, out=out)


# ---- statistics of variables, one a row


def cov(self, *, correction=1, fweights=None, aweights=None):
    """The covariances of the rows of a matrix; how often (fweights, ints) and how much (aweights)
    each column counts.
    """
    if self.dim() > 2:
        raise RuntimeError(f"[cov] takes at most 2 dims, got {self.dim()}")
    if self.dtype is _core.bool:
        raise RuntimeError("[cov] does not take bool")
    x = self.reshape(1, -1) if self.dim() < 2 else self
    x = x if x.is_floating_point() else x.to(factories.get_default_dtype())
    weights = None
    for name, given, whole in (("fweights", fweights, True), ("aweights", aweights, False)):
        if given is None:
            continue
        if given.dim() > 1 or given.numel() != x.shape[1]:
            raise RuntimeError(
                f"[cov] expected {name} to have one number a column ({x.shape[1]}), got "
                f"{list(given.shape)}"
            )
        if given.is_floating_point() == whole:
            raise RuntimeError(f"[cov] expected {name} to be {'integral' if whole else 'floating'}")
        if bool((given < 0).any()):
            raise RuntimeError(f"[cov] {name} cannot be negative")
        weights = given if weights is None else weights * given
    if weights is None:
        total = x.shape[1]
        centred = x - x.mean(1, keepdim=True)
        product = centred @ centred.t()
        norm = max(total - correction, 0)
        return (product / norm if norm else product * math.inf).squeeze()
    total = weights.sum()
    centred = x - (x * weights).sum(1, keepdim=True) / total
    norm = total - correction
    if aweights is not None and correction:
        norm = total - correction * (weights * aweights).sum() / total
    product = (centred * weights) @ centred.t()
    return (product / op("clamp_min")(norm.to(x.dtype), 0)).squeeze()


def corrcoef(self):
    """Pearson's correlations of the rows of a matrix."""
    if self.dim() > 2:
        raise RuntimeError(f"[corrcoef] takes at most 2 dims, got {self.dim()}")
    c = cov(self)
    if c.dim() == 0:
        return c / c
    spread = c.diagonal().sqrt()
    return (c / spread.unsqueeze(1) / spread.unsqueeze(0)).clamp(-1, 1)


# ---- integrals


def steps_of(y, x, dx, dim):
    """Widths between neighbours along the last dim, to be multiplied with y's."""
    if x is None:
        return dx
    if x.dim() == 1 and x.shape[0] != y.shape[dim]:
        raise RuntimeError(f"[trapezoid] x gives {x.shape[0]} places for {y.shape[dim]} values")
    x = x if x.dim() == 1 else x.movedim(dim, -1)
    return x[..., 1:] - x[..., :-1]


def parts(y, x, dx, dim):
    if y.dim() == 0:
        raise IndexError("[trapezoid] a tensor of no dimensions has no dim -1")
    if y.dtype is _core.bool:
        raise RuntimeError("[trapezoid] y cannot be bool")
    y_last = y.movedim(dim, -1)
    return (y_last[..., 1:] + y_last[..., :-1]) * steps_of(y, x, dx, dim) / 2.0


def no_bools(name, y, x):
    for which, v in (("y", y), ("x", x)):
        if v is not None and v.dtype is _core.bool:
            raise RuntimeError(f"[{name}] received a bool input for `{which}`, not supported")


def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral along `dim` by trapezoids: of width dx, or between the places x."""
    no_bools("trapezoid", y, x)
    if x is None:
        dim = wrapped(dim, y.dim())
        if not y.dim():
            raise IndexError(f"[trapezoid] a tensor of no dimensions has no dim {dim}")
        if not y.shape[dim]:
            return y.sum(dim)
        ends = y.select(dim, 0) + y.select(dim, -1)
        return (y.sum(dim) - ends * 0.5) * dx
    return parts(y, x, dx, wrapped(dim, y.dim())).sum(-1)


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integrals up to every place but the first."""
    no_bools("cumulative_trapezoid", y, x)
    dim = wrapped(dim, y.dim())
    return parts(y, x, dx, dim).cumsum(-1).movedim(-1, dim)


# ---- windows


def window(name, formula):
    def function(
        window_length, *more, periodic=True, dtype=None, layout=None, device=None,
        requires_grad=False, pin_memory=False, **options,
    ):  # fmt: skip
        if more and isinstance(more[0], bool):
            periodic, more = more[0], more[1:]
        dtype = factories.dtype_of(dtype) or factories.get_default_dtype()
        if window_length < 0:
            raise RuntimeError(f"[{name}] requires non-negative window_length, got {window_length}")
        if not dtype.is_floating_point:
            raise RuntimeError(f"[{name}] expects floating point dtypes, got: {dtype!r}")
        if window_length <= 1:
            made = factories.ones((window_length,), dtype=dtype, device=device)
        else:
            n = window_length + periodic
            at = factories.arange(n, dtype=_core.float64, device=device) * (2 * math.pi / (n - 1))
            made = formula(at, *more, **options)[:window_length].to(dtype)
        return made.requires_grad_() if requires_grad else made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name.partition('_')[0]} window: {formula.__doc__}"
    return function


def hamming(at, alpha=0.54, beta=0.46):
    """alpha - beta cos(2 pi i / n); periodic, for spectra, or symmetric, for filters."""
    return alpha - beta * at.cos()


def hann(at):
    """(1 - cos(2 pi i / n)) / 2; periodic, for spectra, or symmetric, for filters."""
    return 0.5 - 0.5 * at.cos()


def blackman(at):
    """0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)."""
    return 0.42 - 0.5 * at.cos() + 0.08 * (at * 2).cos()


def bartlett(at):
    """A triangle from 0 up to 1 and down to 0."""
    return 1 - (at / math.pi - 1).abs()


def kaiser(at, beta=12.0):
    """i0(beta sqrt(1 - x^2)) / i0(beta), x from -1 to 1."""
    x = at / math.pi - 1
    top = op("i0")(_core.tensor(float(beta), _core.float64, at.device))
    return op("i0")(op("clamp_min")(1 - x * x, 0).sqrt() * beta) / top


hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window = (
    window(f.__name__ + "_window", f) for f in (hann, hamming, blackman, bartlett, kaiser)
)


# ---- places and choices


def unravel_index(indices, shape):
    """Flat places as coordinates in a tensor of `shape`: one tensor a dim."""
    if indices.is_floating_point() or indices.dtype is _core.bool:
        raise TypeError(f"[unravel_index] indices are integers, got {indices.dtype!r}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"[unravel_index] a shape has no negative sizes, got {shape}")
    found = []
    for n in reversed(shape):
        found.append(indices % n)
        indices = op("floor_divide")(indices, n)
    return tuple(reversed(found))


def combinations(input, r=2, with_replacement=False):
    """Every choice of r elements of a vector, in order: one a row."""
    from itertools import combinations, combinations_with_replacement

    if input.dim() != 1:
        raise RuntimeError(f"[combinations] expects a 1D vector, got {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"[combinations] expects a non-negative number, got {r}")
    if r == 0:
        return factories.empty(0, dtype=input.dtype, device=input.device)
    choose = combinations_with_replacement if with_replacement else combinations
    rows = list(choose(range(input.shape[0]), r))
    flat = _core.tensor([i for row in rows for i in row], _core.int64, input.device)
    return input[flat].view(len(rows), r)


def vander(x, N=None, *, increasing=False):
    """Powers of the elements of a vector, one element a row: N of them."""
    if x.dim() != 1:
        raise RuntimeError(f"[vander] x must be a one-dimensional tensor, got {list(x.shape)}")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError(f"[vander] N must be non-negative, got {n}")
    dtype = x.dtype if x.dtype.is_floating_point else _core.int64
    powers = x.to(dtype).unsqueeze(1) ** factories.arange(n, device=place(x))
    return powers if increasing else powers.flip(1)


def linalg_vander(x, *, N=None):
    """Powers from 0 up of the elements along the last dim, in a new last dim."""
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"[linalg.vander] N must be greater than 1, got {n}")
    dtype = x.dtype if x.dtype.is_floating_point else _core.int64
    return x.to(dtype).unsqueeze(-1) ** factories.arange(n, device=place(x))


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of input with `src` on a diagonal."""
    made = op("clone")(input)
    place = made.diagonal(offset, dim1, dim2)
    if tuple(place.shape) != tuple(src.shape):
        raise RuntimeError(
            f"[diagonal_scatter] expected src to have the size {list(place.shape)} of the diagonal,"
            f" got {list(src.shape)}"
        )
    place.copy_(src)
    return made


def pdist(input, p=2.0):
    """The p-norm of the difference of every pair of rows of a matrix, in order."""
    if input.dim() != 2:
        raise RuntimeError(f"[pdist] takes a matrix, one point a row, got {input.dim()} dims")
    if p < 0:
        raise RuntimeError("[pdist] p is not negative")
    first, second = factories.triu_indices(input.shape[0], input.shape[0], 1)
    return op("linalg_vector_norm")(input[first] - input[second], p, 1, False)


# ---- data of other libraries


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """A tensor of obj's elements, sharing its memory where that can be and `copy` is not True."""
    made = factories.tensor(obj) if copy else factories.as_tensor(obj, device=device)
    wanted = factories.dtype_of(dtype)
    if copy is False and (wanted not in (None, made.dtype) or isinstance(obj, (list, tuple))):
        raise ValueError("can't alias the data without a copy")
    made = made if wanted is None else made.to(wanted)
    return made.requires_grad_() if requires_grad else made


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A one-dimensional tensor on the memory of a buffer object."""
    dtype = factories.dtype_of(dtype)
    length = memoryview(buffer).nbytes
    if length == 0:
        raise ValueError(
            f"[frombuffer] nothing can be read: a buffer of {length} bytes, a count of {count}"
        )
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and below {length}")
    if count < 0:
        if (length - offset) % dtype.itemsize:
            raise ValueError(f"buffer length ({length - offset}) must be a multiple of the element")
        count = (length - offset) // dtype.itemsize
    if count == 0 or offset + count * dtype.itemsize > length:
        raise ValueError(f"requested {count} elements from {offset}, the buffer has {length} bytes")
    made = _core.from_buffer(buffer, dtype, (count,), offset)
    return made.requires_grad_() if requires_grad else made


trapz = trapezoid
