"""Matrix products: library calls, and the compositions that lead to them."""
import math

from .assembly import cat
from .creation import full
from .declare import composition, library
from .layouts import ShapeError, broadcast_shape
from .layouts import matmul as product
from .reductions import sum
from .samples import call, t
from .views import expand, reshape, slice, transpose, unsqueeze


def folded(x, kept):
    """x as a batch of what its last `kept` dims are: one dim in the place of all before them."""
    ends = tuple(x.shape[x.rank - kept:])
    if any(n == 0 for n in ends):                       # -1 would say nothing
        return reshape(x, (math.prod(x.shape[: x.rank - kept]), *ends))
    return reshape(x, (-1, *ends))


@library("mm(Tensor self, Tensor mat2) -> Tensor", layout=product(),
         autocast="lower", samples=(call(t(2, 3), t(3, 4)), call(t(2, 3), t(3, 4, order=(1, 0))), call(t(0, 3), t(3, 4)), call(t(2, 0), t(0, 4)),
                  call(t(3, 40, dtype="bfloat16"), t(40, 4, dtype="bfloat16")), call(t(2, 3, dtype="int64"), t(3, 4, dtype="int64"))))
def mm(x, y):
    """x[m, k] @ y[k, n]."""


@mm.derivative
def _(g, x, y):
    return mm(g, transpose(y, 0, 1)), mm(transpose(x, 0, 1), g)


@library("bmm(Tensor self, Tensor mat2) -> Tensor", layout=product(), autocast="lower", samples=(call(t(2, 3, 4), t(2, 4, 5)),))
def bmm(x, y):
    """x[b, m, k] @ y[b, k, n]."""


@bmm.derivative
def _(g, x, y):
    return bmm(g, transpose(y, 1, 2)), bmm(transpose(x, 1, 2), g)


@library("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", layout=product(),
         autocast="lower", samples=(call(t(4), t(2, 3), t(3, 4)), call(t(2, 4), t(2, 3), t(3, 4), beta=0.5, alpha=2),
                  call(t(2, 1), t(2, 3), t(3, 4))))
def addmm(bias, x, y, beta, alpha):
    """beta * bias + alpha * (x[m, k] @ y[k, n])."""


@addmm.derivative
def _(g, x, y, beta, alpha):
    return g * beta, mm(g, transpose(y, 0, 1)) * alpha, mm(transpose(x, 0, 1), g) * alpha


@composition("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", method=False,
             autocast="lower", samples=(call(t(2, 3), t(4, 3), t(4)), call(t(2, 3), t(4, 3)), call(t(2, 5, 3), t(4, 3), t(4)), call(t(3), t(4, 3), t(4)), call(t(2, 5, 0), t(4, 0), t(4))))
def linear(x, weight, bias):
    if not x.shape[-1] == weight.shape[-1]:
        rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
        raise ShapeError(
            f"[linear] input {x.layout} and weight {weight.layout} ({rows}x{columns} and "
            f"{weight.shape[1]}x{weight.shape[0]}) cannot be multiplied: expected input.shape[-1] == "
            f"weight.shape[1], got {x.shape[-1]} and {weight.shape[-1]}"
        )
    flat = x if x.rank == 2 else folded(x, 1)
    y = transpose(weight, 0, 1)
    out = mm(flat, y) if bias is None else addmm(bias, flat, y)
    return out if x.rank == 2 else reshape(out, (*x.shape[:-1], weight.shape[0]))


@linear.derivative
def _(g, x, weight, bias):
    rows = g if g.rank == 2 else folded(g, 1)
    flat = x if x.rank == 2 else folded(x, 1)
    dx = mm(rows, weight)
    return (dx if x.rank == 2 else reshape(dx, x.shape), mm(transpose(rows, 0, 1), flat),
            None if bias is None else sum(rows, (0,)))


@composition("in_projection(Tensor input, Tensor weight, Tensor? bias=None) -> (Tensor, Tensor, Tensor)", method=False,
             function=False, autocast="lower", samples=(call(t(2, 5, 3), t(6, 3), t(6)), call(t(4, 3), t(9, 3))))
def in_projection(x, weight, bias):
    """Queries, keys and values of one input: thirds of one product."""
    y = linear(x, weight, bias)
    width = weight.shape[0] // 3
    return tuple(slice(y, -1, i * width, (i + 1) * width) for i in range(3))


@in_projection.derivative           # the parts side by side again: one product each
def _(gs, x, weight, bias):
    width = weight.shape[0] // 3
    zeros = lambda: full((*x.shape[:-1], width), 0, dtype=x.dtype)
    g = cat([zeros() if part is None else part for part in gs], -1)
    rows, flat = folded(g, 1), folded(x, 1)
    return (reshape(mm(rows, weight), x.shape), mm(transpose(rows, 0, 1), flat), None if bias is None else sum(rows, (0,)))


@composition("matmul(Tensor self, Tensor other) -> Tensor",
             autocast="lower", samples=(call(t(2, 3), t(3, 4)), call(t(3), t(3)), call(t(2, 3), t(3)), call(t(3), t(3, 4)),
                      call(t(2, 4, 3), t(3, 5)), call(t(2, 4, 3), t(2, 3, 5)), call(t(2, 1, 4, 3), t(5, 3, 2)), call(t(2, 3, 0), t(0, 4)), call(t(2, 0, 0), t(2, 0, 3))))
def matmul(x, y):
    if x.rank == 0 or y.rank == 0:
        raise ShapeError(f"[matmul] both arguments need at least 1 dimension, got {x.layout} and {y.layout}")
    if not x.shape[-1] == y.shape[-2 if y.rank > 1 else -1]:
        raise ShapeError(f"[matmul] expected x.shape[-1] == y.shape[{-2 if y.rank > 1 else -1}], got {x.shape[-1]} and "
                         f"{y.shape[-2 if y.rank > 1 else -1]}: {x.layout} and {y.layout}")
    if x.rank == 1 or y.rank == 1:
        left = unsqueeze(x, 0) if x.rank == 1 else x
        right = unsqueeze(y, 1) if y.rank == 1 else y
        out = matmul(left, right)
        shape = list(out.shape)
        if y.rank == 1:
            shape.pop()
        if x.rank == 1:
            shape.pop(-1 if y.rank == 1 else -2)
        return reshape(out, tuple(shape))
    if x.rank == 2 and y.rank == 2:
        return mm(x, y)
    if y.rank == 2:
        return reshape(mm(folded(x, 1), y), (*x.shape[:-1], y.shape[-1]))
    batch = broadcast_shape((x.shape[:-2], y.shape[:-2]), "matmul")
    flat = lambda v: folded(v if tuple(v.shape[:-2]) == tuple(batch) else expand(v, (*batch, *v.shape[-2:])), 2)
    return reshape(bmm(flat(x), flat(y)), (*batch, x.shape[-2], y.shape[-1]))
