"""`rushlight.linalg`: what there is of it: norms, and products along a dim."""

from rushlight import eager
from rushlight.eager.reducing import linalg_norm as norm
from rushlight.eager.reducing import matrix_norm, vector_norm


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices: a view."""
    return A.diagonal(offset, dim1, dim2)


def vecdot(x, y, *, dim=-1, out=None):
    """The sum of products along a dim."""
    made = (x * y).sum(dim)
    return made if out is None else made.clone(out=out)


def __getattr__(name):
    if name == "matmul":
        return eager.matmul  # type: ignore[attr-defined]
    raise AttributeError(f"module 'rushlight.linalg' has no attribute {name!r}")


__all__ = ["diagonal", "matrix_norm", "norm", "vecdot", "vector_norm"]
