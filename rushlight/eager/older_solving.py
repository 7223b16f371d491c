"""What `rushlight` and tensors have of `rushlight.linalg`, some of it as PyTorch had it before."""

from collections import namedtuple

from . import solving
from .solving import (  # noqa: F401
    cholesky_inverse,
    cholesky_solve,
    det,
    given,
    logdet,
    lu_unpack,
    slogdet,
    solve_triangular,
)

inverse, pinverse = solving.inv, solving.pinv

triangular_result = namedtuple(  # type: ignore[name-match]
    "triangular_solve", ("solution", "cloned_coefficient")
)
svd_result = namedtuple("svd", ("U", "S", "V"))  # type: ignore[name-match]


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
