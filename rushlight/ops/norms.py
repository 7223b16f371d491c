"""Norms and distances: compositions of one-kernel reductions, with the slopes that PyTorch takes where there is none."""
from rushlight import dtypes

from .clamping import clamp_min
from .declare import composition
from .layouts import broadcast_shape
from .matrix import matmul
from .pointwise import abs, eq, fill, gt, ne, power, sign, sqrt, where
from .promotion import accept
from .reductions import amax, amin, euclidean_norm, sum
from .samples import call, t
from .views import expand, transpose, unsqueeze, wrapped

INF = float("inf")
NORMS = (call(t(3, 4)), call(t(3, 4), 1, 1), call(t(3, 4), 3, 0, True), call(t(3, 4), INF, 1), call(t(3, 4), -INF), call(t(3, 4), 0, 1),
         call(t(2, 3, 4), 2.5, (0, 2)), call(t(3, 40, dtype="float16"), 2, 1), call(t(3, 4, low=0.5), -1.5, 1), call(t(3, 4), 0.5, 1),
         call(t(3, 0), 2, 1), call(t(3, 4), 2, 1, dtype="float64"))


@composition("linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
             method=False, function=False, structural=("ord",), samples=NORMS)
def linalg_vector_norm(x, ord, dim, keepdim, dtype):
    """The sum of |x|^ord, to the power 1 / ord; the largest (inf) or least (-inf) |x|; how many are not 0 (0)."""
    if dtypes.category(x.dtype) < 2:
        raise RuntimeError(f"[linalg.vector_norm] takes a floating or complex tensor, got {x.dtype}")
    if dtypes.is_complex(x.dtype) and dtype is not None and not dtypes.is_complex(dtype):
        raise RuntimeError(f"[linalg.vector_norm] dtype should be complex for complex inputs, but got {dtype}")
    x = x if dtype is None else x.to(dtype)
    x = abs(x) if dtypes.is_complex(x.dtype) else x
    if ord == 2:
        return euclidean_norm(x, dim, keepdim)
    if ord == 1:
        return sum(abs(x), dim, keepdim)
    if ord == 0:
        return sum(where(ne(x, 0), fill(x, 1), 0.0), dim, keepdim)          # with a slope, of 0
    if ord in (INF, -INF):
        return (amax if ord > 0 else amin)(abs(x), () if dim is None else dim, keepdim)
    if ord < 0 and x.extent(dim) == 0:
        raise RuntimeError(f"[linalg.vector_norm] a norm of order {ord} of no elements has no identity, got shape {list(x.shape)}")
    return power_norm(x, float(ord), dim, keepdim)


@composition("power_norm(Tensor self, float ord, int[1]? dim=None, bool keepdim=False) -> Tensor", method=False, function=False,
             structural=("ord",), samples=(call(t(3, 4), 3.0), call(t(3, 4), 0.5, 1)))
def power_norm(x, ord, dim, keepdim):
    return power(sum(power(abs(wide(x)), ord), dim, keepdim), 1.0 / ord).to(x.dtype)


def wide(x):
    """Halves as float32: a power of theirs soon leaves their range."""
    return x.to("float32") if x.dtype in dtypes.HALVES else x


@power_norm.derivative              # 0 at 0
def _(g, x, out, ord, dim, keepdim):
    dtype, x, out, g = x.dtype, wide(x), wide(out), wide(g)
    size = where(eq(x, 0), 1.0, abs(x))
    slope = where(eq(out, 0), 0.0, g * power(where(eq(out, 0), 1.0, out), 1.0 - ord)).spread(x, dim, keepdim)
    return where(eq(x, 0), 0.0, slope * sign(x) * power(size, ord - 1.0)).to(dtype)


@composition("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", structural=("p",),
             samples=(call(t(2, 3), t(3)), call(t(2, 3), t(2, 3), 1), call(t(2, 3), t(2, 3), 3.5)))
def dist(x, other, p):
    """The p-norm of the difference."""
    return linalg_vector_norm(x - other, p)


@composition("pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor", method=False,
             structural=("p", "eps"), samples=(call(t(2, 3), t(2, 3)), call(t(2, 3), t(3), 1.0), call(t(2, 3), t(2, 3), 2.0, 1e-6, True)))
def pairwise_distance(x1, x2, p, eps, keepdim):
    """The p-norm of x1 - x2 + eps along the last dim."""
    d = x1 - x2 + eps
    return linalg_vector_norm(d, p, d.rank - 1, keepdim)


@composition("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor", method=False, structural=("eps",),
             samples=(call(t(2, 3), t(2, 3)), call(t(2, 3), t(2, 3), 0), call(t(2, 1, 3), t(4, 3), -1)))
def cosine_similarity(x1, x2, dim, eps):
    """The product of x1 and x2 along a dim, over the product of their lengths (at least eps each)."""
    unit = lambda x: x / clamp_min(euclidean_norm(x, dim, True), eps)
    both = x1 * x2                                      # tells of shapes that do not fit
    accept("cosine_similarity", both.dtype, 2)
    return sum(unit(x1.viewed((1,) * (both.rank - x1.rank) + tuple(x1.shape))) *
               unit(x2.viewed((1,) * (both.rank - x2.rank) + tuple(x2.shape))), dim, False)


@composition("cdist(Tensor x1, Tensor x2, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary') -> Tensor", method=False, structural=("p",), autocast="float32",
             samples=(call(t(3, 4), t(2, 4)), call(t(2, 3, 4), t(2, 5, 4)), call(t(3, 4), t(2, 4), 1.0), call(t(3, 4), t(2, 4), INF),
                      call(t(2, 1, 3, 4), t(30, 4, step=2))))
def cdist(x1, x2, p, compute_mode):
    """The p-norm of every difference between a row of x1 and a row of x2."""
    if x1.rank < 2 or x2.rank < 2:
        raise RuntimeError(f"[cdist] takes matrices of points or batches of them, got {x1.layout} and {x2.layout}")
    if not x1.shape[-1] == x2.shape[-1]:
        raise RuntimeError(f"[cdist] points of {x1.shape[-1]} and of {x2.shape[-1]} coordinates")
    if p < 0:
        raise RuntimeError(f"[cdist] only supports non-negative p values, got {p}")
    if compute_mode not in MODES:
        raise ValueError(f"[cdist] there is no compute_mode {compute_mode}")
    if p == 2 and by_products(x1.shape[-2], x2.shape[-2], compute_mode):
        batch = broadcast_shape([x1.shape[:-2], x2.shape[:-2]], "cdist")
        return euclidean_distances(*(expand(x, (*batch, *x.shape[-2:])) for x in (x1, x2)))
    d = unsqueeze(x1, -2) - unsqueeze(x2, -3)
    return linalg_vector_norm(d, p, d.rank - 1, False)


MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def by_products(n, m, mode):
    """Whether distances are made of products of rows: without a table of all differences, but distances of close rows lose
    digits. The first mode: from 26 rows on."""
    return mode == MODES[1] or mode == MODES[0] and (n > 25 or m > 25)


@composition("euclidean_distances(Tensor x1, Tensor x2) -> Tensor", autocast="float32", method=False, function=False,
             samples=(call(t(3, 4), t(2, 4, step=2)), call(t(2, 3, 4), t(2, 5, 4))))
def euclidean_distances(x1, x2):
    """Distances between the rows of x1[..., n, d] and x2[..., m, d]: |a|^2 - 2 a b + |b|^2 under the root."""
    lengths = lambda x: sum(x * x, -1, True)
    squares = matmul(x1 * -2, transpose(x2, -2, -1)) + lengths(x1) + transpose(lengths(x2), -2, -1)
    return sqrt(clamp_min(squares, 0))


@euclidean_distances.derivative                     # rows that are equal push nowhere
def _(g, x1, x2, out):
    ratio = where(eq(out, 0), 0, g / out)
    across = transpose(ratio, -2, -1)
    return (x1 * sum(ratio, -1, True) - matmul(ratio, x2), x2 * sum(across, -1, True) - matmul(across, x1))


@composition("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", structural=("p",),
             samples=(call(t(3, 4), 2, 0, 1.0), call(t(2, 3, 4), 1, -1, 2.5), call(t(2, 3, 4), 3.0, 1, 100.0)))
def renorm(x, p, dim, maxnorm):
    """Slices along `dim` scaled down to a p-norm of at most maxnorm."""
    if x.rank < 2:
        raise RuntimeError(f"[renorm] takes at least 2 dims, got {x.rank}")
    dim = wrapped(dim, x.rank)
    n = linalg_vector_norm(x, p, tuple(d for d in range(x.rank) if d != dim), True)
    return x * where(gt(n, maxnorm), maxnorm / (n + 1e-7), 1.0)


