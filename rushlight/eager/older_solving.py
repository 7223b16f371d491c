"""What `rushlight` and tensors have of `rushlight.linalg`, some of it as PyTorch had it before."""

from . import solving
from .results import result_class
from .solving import (  # noqa: F401
    cholesky_inverse,
    cholesky_solve,
    det,
    given,
    logdet,
    lu_unpack,
    matrix_exp,
    matrix_power,
    op,
    slogdet,
    solve_triangular,
)

inverse, pinverse = solving.inv, solving.pinv

triangular_result = result_class("triangular_solve", "solution", "cloned_coefficient")
svd_result = result_class("svd", "U", "S", "V")
lu_infos = result_class("_lu_with_info", "LU", "pivots", "info")


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False, *, out=None):
    """(X with A X = b, A): PyTorch's older form of `solve_triangular`."""
    matrix, above = (A.mT, not upper) if transpose else (A, upper)
    x = solve_triangular(matrix, b, upper=above, unitriangular=unitriangular)
    return given(out, triangular_result(x, A.expand(*x.shape[:-2], *A.shape[-2:]).clone()))


def svd(input, some=True, compute_uv=True, *, out=None):
    """(U, S, V): input = U diag(S) V.T; some: as many columns as singular values."""
    if not compute_uv:
        rows, width = input.shape[-2:]
        batch = tuple(input.shape[:-2])
        zeros = (input.new_zeros((*batch, n, n)) for n in (rows, width))
        return given(out, svd_result(next(zeros), solving.svdvals(input), next(zeros)))
    U, S, Vh = solving.svd(input, not some)
    return given(out, svd_result(U, S, Vh.mT))


def qr(input, some=True, *, out=None):
    """(Q, R): PyTorch's older form of `linalg.qr`."""
    return given(out, solving.qr(input, "reduced" if some else "complete"))


def lu_solve(b, LU_data, LU_pivots, *, out=None):
    """X with A X = b from A's factors: PyTorch's older form of `linalg.lu_solve`."""
    return given(out, solving.lu_solve(LU_data, LU_pivots, b))


def cholesky(input, upper=False, *, out=None):
    """PyTorch's older form of `linalg.cholesky`."""
    return given(out, solving.cholesky(input, upper=upper))


def lu(A, pivot=True, get_infos=False, out=None):
    """(factors, pivots), with get_infos an info too: PyTorch's older form of `linalg.lu_factor`."""
    if not pivot:
        raise RuntimeError(
            "[lu] pivot=False is for GPUs: there is no such factorization on the CPU"
        )
    found = solving.lu_factor_ex(A)
    if not get_infos and bool((found.info != 0).any()):
        raise RuntimeError(f"[lu] U[{int(found.info.max())},...] is zero and using it divides by 0")
    return given(out, lu_infos(*found) if get_infos else tuple(found[:2]))


def frobenius_norm(input, dim=(), keepdim=False, *, out=None):
    """The 2-norm over the given dims: of a matrix, PyTorch's older form of `linalg.norm`."""
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"[frobenius_norm] expected at most 2 dims, got {list(dims)}")
    return given(out, op("linalg_vector_norm")(input, 2, dims or None, keepdim))


def nuclear_norm(input, dim=None, keepdim=False, *, out=None):
    """The sum of the singular values of matrices in two dims: PyTorch's older form of
    `linalg.matrix_norm(input, "nuc")`.
    """
    if dim is None:
        if input.dim() != 2:
            raise RuntimeError(
                f"[nuclear_norm] expected a tensor of 2 dims, got one of {input.dim()}"
            )
        dim = (0, 1)
    values = solving.svdvals(input.movedim(tuple(dim), (-2, -1))).sum(-1)
    if keepdim:
        for d in sorted(d % input.dim() for d in dim):
            values = values.unsqueeze(d)
    return given(out, values)


def norm_except_dim(v, pow=2, dim=0):
    """The p-norm over all dims but one, dims kept; dim -1: over all, without dims."""
    if dim == -1:
        return v.norm(pow)
    return op("linalg_vector_norm")(v, pow, tuple(d for d in range(v.dim()) if d != dim), True)
