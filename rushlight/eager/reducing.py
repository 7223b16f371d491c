"""Reductions whose PyTorch name stands for several signatures: max and min, norms, comparisons of
whole tensors.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.values import Value

from .indexing import data_of
from .operators import named
from .results import result_class

Tensor = _core.Tensor
INF = float("inf")


def op(name):
    return TABLE[name].native


def reduce_pair(value, elementwise):
    """max and min: of all elements, along a dim (values and positions), or of two tensors."""
    name = value[1:]
    along = named(f"{name}_dim", name)

    def method(
        self, dim=None, keepdim=False, *, other=None, out=None, axis=None, keepdims=False
    ):
        if type(dim) is int and out is None:
            return along(self, dim, keepdim or keepdims)
        dim = next((d for d in (dim, other, axis) if d is not None), None)
        keepdim = keepdim or keepdims
        if dim is None:
            return op(value)(self) if out is None else op(value)(self, out=out)
        if isinstance(dim, (Tensor, Value)):
            return (
                op(elementwise)(self, dim) if out is None else op(elementwise)(self, dim, out=out)
            )
        if out is not None:
            return along(self, dim, keepdim, out=tuple(out))
        return along(self, dim, keepdim)

    method.__doc__ = (
        f"The {name}imum of all elements; along `dim`, (values, indices); or, with a tensor, "
        "element by element."
    )
    return method


def aminmax(self, *, dim=None, keepdim=False):
    """(min, max) of all elements or along a dim."""
    return aminmax_result(*op("aminmax_pair")(self, dim=dim, keepdim=keepdim))


aminmax_result = result_class("aminmax", "min", "max")


def norm(self, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The p-norm over `dim` (all dims where None)."""
    if not self.is_floating_point() and not self.is_complex() and dtype is None:
        raise RuntimeError(
            f"[norm] takes a floating or complex tensor, got {self.dtype!r}"
        )
    if p == "nuc":
        from .older_solving import nuclear_norm

        return nuclear_norm(self if dtype is None else self.to(dtype), dim, keepdim, out=out)
    p = 2 if p in ("fro", None) else p
    more = {} if out is None else {"out": out}
    return op("linalg_vector_norm")(self, p, dim, keepdim, dtype=dtype, **more)


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """The vector norm of order `ord` (a number, inf or -inf) over `dim`, all dims where None."""
    more = {} if out is None else {"out": out}
    return op("linalg_vector_norm")(x, ord, dim, keepdim, dtype=dtype, **more)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """Norms of matrices over two dims: "fro", 1, -1, inf, -inf; by singular values 2, -2,
    "nuc".
    """
    if len(dim) != 2:
        raise RuntimeError(f"[linalg.matrix_norm] dim is a pair, got {dim}")
    if ord == "fro":
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if ord in (2, -2, "nuc"):
        from .solving import norm_by_values

        made = norm_by_values(A if dtype is None else A.to(dtype), ord, dim, keepdim)
        return made if out is None else op("clone")(made, out=out)
    if ord not in (1, -1, INF, -INF):
        raise RuntimeError(f"[linalg.matrix_norm] Order {ord!r} not supported")
    rows, columns = (d % A.dim() for d in dim)
    along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = vector_norm(A, 1, along, True, dtype=dtype)
    made = op("amax" if ord > 0 else "amin")(sums, (across,), True)
    made = made if keepdim else made.squeeze(tuple(dim))
    return made if out is None else op("clone")(made, out=out)


def linalg_norm(A, ord=None, dim=None, keepdim=False, *, out=None, dtype=None):
    """A vector norm where `dim` is one dim or nothing is said, a matrix norm where it is two."""
    if isinstance(dim, (tuple, list)) and len(dim) == 2 and ord is not None:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype, out=out)
    if ord is not None and dim is None and A.dim() == 2:
        return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype, out=out)
    if ord is not None and dim is None and A.dim() != 1:
        raise RuntimeError(
            "[linalg.norm] with ord and without dim the input is a vector or a matrix, got "
            f"{A.dim()} dims"
        )
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype, out=out)


def equal(self, other):
    """Whether shapes and all elements are equal: a Python bool."""
    data_of("equal", self)
    return tuple(self.shape) == tuple(other.shape) and bool(op("all")(op("eq")(self, other)).item())


def allclose(self, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |self - other| <= atol + rtol * |other| everywhere: a Python bool."""
    return bool(op("all")(op("isclose")(self, other, rtol, atol, equal_nan)).item())


METHODS = {
    "max": reduce_pair("amax", "maximum"),
    "min": reduce_pair("amin", "minimum"),
    "aminmax": aminmax,
    "norm": norm,
    "equal": equal,
    "allclose": allclose,
}
