"""Functions of integers and of the bits of floats, slopes of sampled functions, histograms: over
other operators, and so are their derivatives.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.layouts import broadcast_shape
from rushlight.ops.views import wrapped

from . import factories
from .results import result_class
from .sampling import place
from .solving import given

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


# ---- common divisors


def integers(name, x, y):
    """Both in their common dtype and shape, which must be of integers."""
    from .inquiry import result_type

    dtype = result_type(x, y)
    if dtype.is_floating_point or dtype.is_complex or dtype is _core.bool:
        raise NotImplementedError(f"[{name}] \"{name}\" not implemented for '{dtype.name}'")
    shape = broadcast_shape((tuple(x.shape), tuple(y.shape)), name)
    return tuple(op("expand")(v.to(dtype), shape) for v in (x, y))


def gcd(input, other, *, out=None):
    """The greatest common divisor, element by element; 0 of 0 and 0."""
    a, b = (op("abs")(v) for v in integers("gcd", input, other))
    while bool((b != 0).any()):  # Euclid's steps, until the last pair is done
        left = b != 0
        rest = op("remainder")(a, op("where")(left, b, 1))
        a, b = op("where")(left, b, a), op("where")(left, rest, 0)
    return given(out, op("clone")(a))


def lcm(input, other, *, out=None):
    """The least common multiple, element by element; 0 where one is 0."""
    a, b = integers("lcm", input, other)
    common = gcd(a, b)
    share = op("floor_divide")(a, op("where")(common == 0, 1, common))
    return given(out, op("abs")(share * b))


def gcd_(self, other):
    return self.copy_(gcd(self, other))


def lcm_(self, other):
    return self.copy_(lcm(self, other))


# ---- mantissa and exponent

frexp_result = result_class("frexp", "mantissa", "exponent")
BITS = {"float32": ("int32", 23, 255, 126), "float64": ("int64", 52, 2047, 1022)}


def frexp(input, *, out=None):
    """(mantissa in [1/2, 1), exponent int32): input = mantissa 2^exponent. 0, infinities and NaN
    are their own mantissa, with exponent 0.
    """
    if not input.is_floating_point():
        raise RuntimeError(
            f"[frexp] torch.frexp() only supports floating-point dtypes, got {input.dtype.name}"
        )
    wide = input if input.dtype.name in BITS else input.to(_core.float32)
    whole, shift, mask, bias = BITS[wide.dtype.name]
    x = wide.detach()
    tiny = op("abs")(x) < 2.0 ** (1 - bias)
    scale = 64
    bits = op("where")(tiny, x * 2.0**scale, x).view(getattr(_core, whole))
    found = op("bitwise_and")(op("bitwise_right_shift")(bits, shift), mask)
    exponent = found - bias - op("where")(tiny, scale, 0)
    plain = op("logical_and")(op("isfinite")(x), x != 0)
    exponent = op("where")(plain, exponent, 0)
    first = op("floor_divide")(exponent, 2)
    power = lambda e: op("exp2")(-e.to(wide.dtype))
    mantissa = wide * power(first) * power(exponent - first)
    return given(out, frexp_result(mantissa.to(input.dtype), exponent.to(_core.int32)))


# ---- slopes


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Slopes of a sampled function along each dim: central differences inside, one-sided ones of
    order `edge_order` at the ends. spacing: a width, one a dim, or the places of the samples.
    """
    x = input
    if edge_order not in (1, 2):
        raise RuntimeError("[gradient] edge_order is 1 or 2")
    dims = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = [wrapped(d, x.dim()) for d in dims]
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"[gradient] a dim stands twice in {dims}")
    if isinstance(spacing, Tensor):
        raise RuntimeError("[gradient] expected spacing to be a number or a list, got a tensor")
    given_one = isinstance(spacing, (int, float, complex))
    steps = [spacing] * len(dims) if given_one else list(spacing)
    if len(steps) != len(dims):
        raise RuntimeError(
            f"[gradient] spacing is left out, one number or a list of {len(dims)}, got {len(steps)}"
        )
    if x.dtype is _core.bool:
        raise RuntimeError("[gradient] subtraction with bool tensors is not supported")
    if not x.is_floating_point() and not x.is_complex():
        x = x.to(factories.get_default_dtype())
    return tuple([slope(x, d, h, edge_order) for d, h in zip(dims, steps)])


def slope(x, dim, h, order):
    n = x.shape[dim]
    if n < order + 1:
        raise RuntimeError(
            f"[gradient] a dim of size {n} is too short for edge_order={order}: it needs one more "
            "than that"
        )
    at = lambda begin, end: op("narrow")(x, dim, begin, end - begin)
    if isinstance(h, Tensor):
        if h.dim() != 1 or h.shape[0] != n:
            raise RuntimeError(
                f"[gradient] expected spacing to have one place for each of {n} samples, got "
                f"{list(h.shape)}"
            )
        gaps = (h[1:] - h[:-1]).to(x.dtype)
        gaps = gaps.view([-1 if d == dim else 1 for d in range(x.dim())])
    else:
        shape = [n - 1 if d == dim else 1 for d in range(x.dim())]
        gaps = factories.full(shape, h, dtype=x.dtype, device=place(x))
    gap = lambda begin, end: op("narrow")(gaps, dim, begin, end - begin)
    parts = []
    if order == 1:
        first = (at(1, 2) - at(0, 1)) / gap(0, 1)
        last = (at(n - 1, n) - at(n - 2, n - 1)) / gap(n - 2, n - 1)
    else:
        a, b = gap(0, 1), gap(1, 2)
        first = one_sided(at(0, 1), at(1, 2), at(2, 3), a, b)
        a, b = gap(n - 2, n - 1), gap(n - 3, n - 2)
        last = -one_sided(at(n - 1, n), at(n - 2, n - 1), at(n - 3, n - 2), a, b)
    parts.append(first)
    if n > 2:
        a, b = gap(0, n - 2), gap(1, n - 1)
        low, middle, high = at(0, n - 2), at(1, n - 1), at(2, n)
        if isinstance(h, Tensor):
            ends = high * (a / (b * (a + b))) - low * (b / (a * (a + b)))
            parts.append(ends + middle * ((b - a) / (a * b)))
        else:
            parts.append((high - low) / (2 * h))
    parts.append(last)
    return op("cat")(parts, dim)


def one_sided(y0, y1, y2, a, b):
    """The slope at the first of three samples, a and b apart."""
    return y1 * ((a + b) / (a * b)) - y0 * ((2 * a + b) / (a * (a + b))) - y2 * (a / (b * (a + b)))


# ---- histograms

histogram_result = result_class("histogram", "hist", "bin_edges")
histogramdd_result = result_class("histogramdd", "hist", "bin_edges")


def edges_of(name, x, bins, low, high):
    """The edges of bins over [low, high], over the elements where both are None."""
    if isinstance(bins, Tensor):
        if bins.dim() != 1 or not bins.numel():
            raise RuntimeError(f"[{name}] bins tensor should be 1-D, got {list(bins.shape)}")
        if bins.dtype is not x.dtype:
            raise RuntimeError(
                f"[{name}] input tensor and bins tensors should have the same dtype, got "
                f"{x.dtype.name} and {bins.dtype.name}"
            )
        return bins
    if bins < 1:
        raise RuntimeError(f"[{name}] bins must be > 0, but got {bins}")
    if low is None:
        low, high = (x.min().item(), x.max().item()) if x.numel() else (0.0, 1.0)
        low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
    if not high >= low:
        raise RuntimeError(f"[{name}] max must not be less than min, got [{low}, {high}]")
    if high == low:
        low, high = low - 0.5, high + 0.5
    return factories.linspace(low, high, bins + 1, dtype=x.dtype, device=place(x))


def counts(name, rows, edges, weight, density):
    """Weights (ones) of the rows [n, d] summed in the cells between the edges of each column."""
    sizes = [e.shape[0] - 1 for e in edges]
    flat, inside = None, None
    for column, e, n in zip(rows, edges, sizes):
        at = op("searchsorted")(e, column.contiguous(), right=True) - 1
        at = op("where")(column == e[-1], n - 1, at)
        fits = (column >= e[0]) & (column <= e[-1])
        flat = at if flat is None else flat * n + at
        inside = fits if inside is None else inside & fits
    total = 1
    for n in sizes:
        total *= n
    weight = factories.ones(rows[0].shape, dtype=rows[0].dtype) if weight is None else weight
    weight = op("where")(inside, weight.reshape(-1).to(rows[0].dtype), 0)
    zeros = factories.zeros(total, dtype=rows[0].dtype, device=place(rows[0]))
    made = op("index_add")(zeros, 0, op("where")(inside, flat, 0), weight).view(sizes)
    if density:
        made = made / made.sum()
        for d, e in enumerate(edges):
            made = made / (e[1:] - e[:-1]).view([-1 if k == d else 1 for k in range(len(sizes))])
    return made


def checked(name, input):
    if input.dtype.name not in ("float32", "float64"):
        raise NotImplementedError(f"[{name}] \"{name}\" not implemented for '{input.dtype.name}'")
    if input.requires_grad:
        input = input.detach()
    return input


def histogram(input, bins, *, range=None, weight=None, density=False, out=None):
    """(counts, edges) of bins: a number of them over `range` (that of the elements), or the edges.
    The last bin holds its upper edge. weight: what each element counts; density: over the bin's
    width and the total.
    """
    x = checked("histogram", input).reshape(-1)
    if weight is not None and tuple(weight.shape) != tuple(input.shape):
        raise RuntimeError(
            f"[histogram] weight has shape {list(weight.shape)}, the input {list(input.shape)}: "
            "they have to be equal"
        )
    low, high = (None, None) if range is None else range
    edges = edges_of("histogram", x, bins, low, high)
    return given(out, histogram_result(counts("histogram", [x], [edges], weight, density), edges))


def histogramdd(input, bins, range=None, weight=None, density=False):
    """(counts [*bins], edges a column) of points [..., d]: bins a number, or one a column, or edges
    a column; range: (low, high) a column, one after another.
    """
    x = checked("histogramdd", input)
    if x.dim() < 2:
        raise RuntimeError(
            "[histogramdd] takes at least 2 dimensions, the last one holding coordinates, got "
            f"{list(x.shape)}"
        )
    columns = [x[..., i].reshape(-1) for i in _range(x.shape[-1])]
    bins = [bins] * len(columns) if isinstance(bins, int) else list(bins)
    if len(bins) != len(columns):
        raise RuntimeError(
            f"[histogramdd] expected {len(columns)} sequences of bin edges or numbers, got "
            f"{len(bins)}"
        )
    ends = [None] * 2 * len(columns) if range is None else list(range)
    if len(ends) != 2 * len(columns):
        raise RuntimeError(f"[histogramdd] range has to be {2 * len(columns)} numbers, got {ends}")
    edges = [
        edges_of("histogramdd", c, b, *ends[2 * i : 2 * i + 2])
        for i, (c, b) in enumerate(zip(columns, bins))
    ]
    made = counts("histogramdd", columns, edges, weight, density)
    return histogramdd_result(made, tuple(edges))


_range = range
