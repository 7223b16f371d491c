"""Factorisations of low rank by random projections (Halko, Martinsson and Tropp, 2009).

Draws decide the last digits, so results agree with another run as far as the rank is right.
"""

from rushlight import eager
from rushlight.eager.solving import qr, svd


def get_approximate_basis(A, q, niter=2, M=None):
    """(..., m, q): orthonormal columns that nearly span the range of A - M, (..., m, n)."""
    A = A if M is None else A - M
    draws = eager.randn((A.shape[-1], q), dtype=A.dtype, device=A.device)
    basis = qr(A @ draws).Q
    for _ in range(niter):
        basis = qr(A @ qr(A.mH @ basis).Q).Q
    return basis


def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) of the q largest singular values of A - M, (..., m, n): A is near
    U @ diag(S) @ V.mH."""
    m, n = A.shape[-2:]
    q = 6 if q is None else q
    A = A if M is None else A - M
    wide = m < n
    A = A.mH if wide else A
    basis = get_approximate_basis(A, q, niter)
    U, S, Vh = svd(basis.mH @ A, full_matrices=False)
    U, V = basis @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V) of the q (6, or fewer) principal components of the rows of A, (..., m, n), whose
    columns' means are subtracted first unless center=False. ValueError for other q or niter."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"[pca_lowrank] q must be from 0 to {min(m, n)}, got {q}")
    if niter < 0:
        raise ValueError(f"[pca_lowrank] niter must not be negative, got {niter}")
    if center:
        A = A - A.mean(dim=-2, keepdim=True)
    return svd_lowrank(A, q, niter)
