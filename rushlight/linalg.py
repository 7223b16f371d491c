"""`rushlight.linalg`: norms, products, linear systems, factorisations and eigenvalues.

Systems and factorisations stand in `rushlight/eager/solving.py`.
"""

from rushlight import eager
from rushlight.eager.reducing import linalg_norm as norm
from rushlight.eager.reducing import matrix_norm, vector_norm
from rushlight.eager.solving import (
    LinAlgError,
    cholesky,
    cholesky_ex,
    cond,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    inv_ex,
    lstsq,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    matrix_exp,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    svd,
    svdvals,
    tensorinv,
    tensorsolve,
)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices: a view."""
    return A.diagonal(offset, dim1, dim2)


def multi_dot(tensors, *, out=None):
    """The product of matrices in the order that costs least; the first and the last may be
    vectors.
    """
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError("[linalg.multi_dot] expected at least 2 tensors")
    for i, x in enumerate(tensors):
        if x.dim() != 2 and not (x.dim() == 1 and i in (0, len(tensors) - 1)):
            raise RuntimeError(f"[linalg.multi_dot] tensor {i} must be 2D, got {x.dim()}D")
    row, column = tensors[0].dim() == 1, tensors[-1].dim() == 1
    tensors[0] = tensors[0].unsqueeze(0) if row else tensors[0]
    tensors[-1] = tensors[-1].unsqueeze(1) if column else tensors[-1]
    made = eager.chain_matmul(*tensors)  # type: ignore[attr-defined]
    made = made.squeeze(1) if column else made
    made = made.squeeze(0) if row else made
    return made if out is None else made.clone(out=out)


def vecdot(x, y, *, dim=-1, out=None):
    """The sum of products along a dim."""
    made = (x * y).sum(dim)
    if not (made.is_floating_point() or made.is_complex()):
        raise RuntimeError(f"[linalg.vecdot] takes floating or complex tensors, got {made.dtype}")
    return made if out is None else made.clone(out=out)


def __getattr__(name):
    if name == "matmul":
        return eager.matmul  # type: ignore[attr-defined]
    if name in ("cross", "vander"):
        from rushlight.eager import series

        return series.linalg_cross if name == "cross" else series.linalg_vander
    raise AttributeError(f"module 'rushlight.linalg' has no attribute {name!r}")


__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vecdot",
    "vector_norm",
]
