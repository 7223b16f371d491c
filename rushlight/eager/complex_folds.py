"""Products of complex elements along dims, by elementwise ones: no kernel folds pairs of numbers.

Takes an operator's arguments as symbols within a recorder; gives the result's symbol.
"""

from rushlight import dtypes
from rushlight.ops import TABLE
from rushlight.ops.recording import Symbol
from rushlight.ops.views import wrapped


def as_real(v, dtype):
    """Complex elements in a dtype that keeps their real part alone."""
    if not isinstance(v, Symbol) or not dtypes.is_complex(v.dtype):
        return v
    return TABLE["select"](TABLE["view_as_real"](v), -1, 0).to(dtype)


def row_product(op, a, best):
    """Products along dims by halves: log2(n) elementwise ones."""
    x = a["self"]
    if not dtypes.is_complex(best):
        return op(*a.map(lambda name, v: as_real(v, best)).values)
    x, rank = x.to(best), x.rank
    dim, keep = a["dim"], a["keepdim"]
    dims = range(rank) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    dims = sorted({d % rank for d in dims}) if rank else []
    for d in dims:
        x = halved(x, d)
    shape = [n for d, n in enumerate(x.shape) if keep or d not in dims]
    return TABLE["reshape"](x, tuple(shape))


def part(x, dim, start, end):
    return TABLE["slice"](x, dim, start, end, 1)


def halved(x, dim):
    """The product along a dim, which stays with one element."""
    if not x.shape[dim]:
        shape = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
        return TABLE["full"](shape, 1, dtype=x.dtype)
    while (n := x.shape[dim]) > 1:
        half = n // 2
        made = part(x, dim, 0, half) * part(x, dim, half, 2 * half)
        x = TABLE["cat"]([made, part(x, dim, n - 1, n)], dim) if n % 2 else made
    return x


def running_product(op, a, best):
    """Products up to each element, each step over twice the distance of the one before."""
    x = a["self"]
    if not dtypes.is_complex(best):
        return op(*a.map(lambda name, v: as_real(v, best)).values)
    x = x.to(best)
    dim = wrapped(a["dim"], x.rank)
    step = 1
    while x.rank and step < x.shape[dim]:
        n = x.shape[dim]
        later = part(x, dim, step, n) * part(x, dim, 0, n - step)
        x = TABLE["cat"]([part(x, dim, 0, step), later], dim)
        step *= 2
    return x
