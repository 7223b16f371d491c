"""Triangles of matrices: maps over rows, which compare a row's number with the place in the row."""
from . import promotion
from .creation import steps
from .declare import composition, rows
from .layouts import same_rows
from .pointwise import add, ge, le, where
from .reductions import positions
from .samples import call, t

TRIANGLES = (call(t(3, 4)), call(t(4, 3), 1), call(t(2, 3, 3), -1), call(t(3, 3, dtype="bool")), call(t(3, 3, dtype="int64"), -2),
             call(t(4, 3, order=(1, 0))), call(t(3, 5, dtype="float16"), 1), call(t(0, 3)), call(t(3, 3, dtype="uint8")),
             call(t(3, 70), 20))


def triangle(body):
    """Row i keeps what `body` says of the places in it: the number of the row, moved by the diagonal, is an operand."""
    name = body.__name__
    return rows(f"{name}(Tensor self, Tensor row, int dim, SymInt diagonal) -> Tensor", layout=same_rows(per_row=("row",), out="C"),
                promote=promotion.numeric.of("self"), others={"row": "int64"}, domain=("bool", "int64", "float32", "float64"),
                method=False, function=False, samples=(call(t(3, 4), t(3, 1, dtype="int64", low=0, high=3), 1, 1),))(body)


@triangle
def lower_rows(x, row, dim, diagonal):
    return where(le(positions(x, dim), add(row, diagonal)), x, 0)


@lower_rows.derivative
def _(g, row, dim, diagonal):
    return lower_rows(g, row, dim, diagonal), None


@triangle
def upper_rows(x, row, dim, diagonal):
    return where(ge(positions(x, dim), add(row, diagonal)), x, 0)


@upper_rows.derivative
def _(g, row, dim, diagonal):
    return upper_rows(g, row, dim, diagonal), None


def numbered(x, name):
    if x.rank < 2:
        raise RuntimeError(f"[{name}] takes at least 2 dimensions, got {x.layout}")
    return steps((1,) * (x.rank - 2) + (x.shape[-2], 1), 0, 1, dtype="int64")


@composition("tril(Tensor self, SymInt diagonal=0) -> Tensor", samples=TRIANGLES)
def tril(x, diagonal):
    """The elements on and below a diagonal; 0 above."""
    return lower_rows(x, numbered(x, "tril"), -1, diagonal)


@composition("triu(Tensor self, SymInt diagonal=0) -> Tensor", samples=TRIANGLES)
def triu(x, diagonal):
    """The elements on and above a diagonal; 0 below."""
    return upper_rows(x, numbered(x, "triu"), -1, diagonal)
