"""Factorisations of matrices, by LAPACK: LU, Cholesky, QR, singular values, eigenvalues; and what is solved with them.

Matrices are the last two dims, those before are a batch. `rushlight/eager/solving.py` is the way in: it checks dtypes, broadcasts
batches and gives results their names. Results lie in memory by columns, as LAPACK's do and PyTorch's. Real numbers only.
"""
from dataclasses import dataclass

from rushlight.dtypes import EPSILON, complex_of

from . import promotion
from .assembly import cat, diag_embed
from .creation import full, steps
from .declare import composition, library, none
from .layouts import dense, shaped
from .matrix import matmul
from .ordering import argsort
from .pointwise import abs, add, eq, log, lt, mul, ne, reciprocal, sign, sub, where
from .reductions import amax, sum
from .rounding import remainder
from .samples import call, t
from .scattering import gather
from .statistics import prod
from .triangles import tril, triu
from .views import diagonal, expand, slice, transpose, unsqueeze

WIDE = ("float32", "float64")
SQUARE = (call(t(3, 3)), call(t(2, 4, 4, dtype="float64")), call(t(3, 3, order=(1, 0))), call(t(0, 3, 3)), call(t(2, 0, 0)))
ANY = SQUARE + (call(t(4, 3)), call(t(2, 3, 5)), call(t(0, 3)))
SINGLE = (call(t(1, 1, low=0.5, high=2.0)), call(t(3, 1, 1, low=0.5, high=2.0, dtype="float64")), call(t(0, 2, 2)), call(t(2, 0, 0)))


@dataclass(frozen=True)
class Real(promotion.Promotion):
    """LAPACK has float32 and float64; half types are refused, as PyTorch does, except under autocast."""
    def __call__(self, a):
        best, result = super().__call__(a)
        if best in ("float16", "bfloat16"):
            raise RuntimeError(f"[{a.op_name.replace('linalg_', 'linalg.')}] Low precision dtypes not supported. Got {best}")
        return best, result


def hidden(declare, schema, **how):
    """An operator that is reached by `rushlight.linalg` alone."""
    return declare(schema, **{"domain": WIDE, "promote": Real(), "autocast": "float32", "method": False, "function": False, **how})


def by_lapack(schema, routine, shapes, dtypes_=None, **how):
    return hidden(library, schema, routine=f"lapack_{routine}", layout=shaped(shapes, dtypes=dtypes_), **{"strided": True, **how})


def columns(x, *shape):
    """A matrix of this shape, or a batch of them, by columns."""
    rank = len(shape)
    return dense(shape, x.dtype, (*range(rank - 2), rank - 1, rank - 2), x.layout.device)


def batch(x):
    return tuple(x.shape[:-2])


def turned(x):
    return transpose(x, -2, -1)


def least(x):
    return min(x.shape[-2], x.shape[-1])


def identity(x, n):
    return diag_embed(full((*batch(x), n), 1, dtype=x.dtype))


def symmetric(x):
    return (x + turned(x)) * 0.5


@by_lapack("not_differentiable(Tensor self, int why) -> Tensor", "refusal", lambda x, why: columns(x, *x.shape), ("self",), derivative=none,
           samples=(call(t(0, 3), 0),))
def not_differentiable(x, why):
    """In the place of a gradient that does not exist: raises when backward comes to it, unless it is empty."""
    return (why,)


QR_COMPLETE, LU_RECTANGULAR, EIG = range(3)            # csrc/rt/lapack.cpp says what each means


# ---- LU: solutions, inverses, determinants

@by_lapack("lu_factors(Tensor A, int check) -> (Tensor, Tensor, Tensor)", "lu",
           lambda x, *_: [columns(x, *x.shape), (*batch(x), least(x)), batch(x)], ("A", "int32", "int32"), samples=tuple(
               call(*c.args, 0) for c in SQUARE))
def lu_factors(x, check):
    """(L below the diagonal and U, which row each one changed places with from 1, the first pivot that is 0 from 1). check: what is an
    error then (0: nothing, 1: there is no solution, 2: no inverse, 3: nothing to solve with).
    """
    return (check,)


@lu_factors.derivative
def _(gs, x, outs):
    rows = x.shape[-2]
    if rows != x.shape[-1]:
        return not_differentiable(x, LU_RECTANGULAR)
    both, pivots, _ = outs
    lower, g = tril(both, -1) + identity(x, rows), gs[0]
    inner = tril(matmul(turned(lower), tril(g, -1)), -1) + triu(matmul(triu(g), turned(triu(both))))
    left = linalg_solve_triangular(turned(lower), inner, upper=True, left=True, unitriangular=True)
    right = linalg_solve_triangular(turned(triu(both)), left, upper=False, left=False, unitriangular=False)
    return rows_of(right, argsort(row_order(pivots, rows), -1))


@by_lapack("row_order(Tensor pivots, int rows) -> Tensor", "row_order", lambda pivots, rows: (*pivots.shape[:-1], rows), ("int64",),
           domain=("int32",), strided=False, derivative=none, samples=(call(t(3, dtype="int32", low=3, high=4), 3),))
def row_order(pivots, rows):
    """The order of rows after the exchanges of an LU factorisation: A[order] = L U."""
    return ()


def rows_of(x, order):
    """The rows of matrices in another order."""
    return gather(x, x.rank - 2, expand(unsqueeze(order, -1), x.shape))


@hidden(composition, "lu_factor_parts(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor, Tensor, Tensor)", samples=SQUARE)
def lu_factor_parts(x, pivot, check_errors):
    """(L below the diagonal and U, exchanges of rows from 1, the first pivot that is 0 from 1)."""
    if not pivot:
        raise RuntimeError("[linalg.lu_factor] pivot=False is for GPUs: there is no such factorization on the CPU")
    return lu_factors(x, 3 if check_errors else 0)


@by_lapack("lu_solution(Tensor LU, Tensor pivots, Tensor B, bool adjoint) -> Tensor", "lu_solve",
           lambda lu, pivots, b, adjoint: columns(lu, *b.shape), ("LU",), promote=Real(names=("LU", "B")),
           samples=(call(t(3, 3), t(3, dtype="int32", low=3, high=4), t(3, 2), False), call(t(3, 3), t(3, dtype="int32", low=3, high=4), t(3, 2), True)))
def lu_solution(lu, pivots, b, adjoint):
    """The X of A X = B (of A.T X = B) from A's factors."""
    return (int(adjoint),)


@lu_solution.derivative
def _(g, lu, pivots, out, adjoint):
    # -change is the gradient of A[order] = L U; through the product to L and to U
    n = lu.shape[-1]
    lower, upper, order = tril(lu, -1) + identity(lu, n), triu(lu), row_order(pivots, n)
    gb = lu_solution(lu, pivots, g, not adjoint)
    change = matmul(rows_of(out, order), turned(gb)) if adjoint else matmul(rows_of(gb, order), turned(out))
    return -(tril(matmul(change, turned(upper)), -1) + triu(matmul(turned(lower), change))), None, gb


@hidden(composition, "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
        samples=(call(t(3, 3), t(3, dtype="int32", low=3, high=4), t(3, 2)),
                 call(t(3, 3), t(3, dtype="int32", low=3, high=4), t(2, 3), left=False)))
def linalg_lu_solve(lu, pivots, b, left, adjoint):
    if left:
        return lu_solution(lu, pivots, b, adjoint)
    return turned(lu_solution(lu, pivots, turned(b), not adjoint))


@hidden(composition, "linalg_solution(Tensor A, Tensor B, *, bool left=True) -> Tensor", samples=(
    call(t(3, 3), t(3, 2)), call(t(2, 3, 3), t(2, 2, 3), left=False), call(t(0, 0), t(0, 2))))
def linalg_solution(a, b, left):
    """The X of A X = B, or of X A = B; an error where there is none."""
    lu, pivots, _ = lu_factors(a, 1)
    return linalg_lu_solve(lu, pivots, b, left=left)


@linalg_solution.derivative
def _(g, a, out, left):
    gb = linalg_solution(turned(a), g, left=left)
    return -matmul(gb, turned(out)) if left else -matmul(turned(out), gb), gb


@hidden(composition, "linalg_inverse(Tensor A) -> Tensor", samples=SQUARE)
def linalg_inverse(x):
    lu, pivots, _ = lu_factors(x, 2)
    return lu_solution(lu, pivots, identity(x, x.shape[-1]), False)


@linalg_inverse.derivative
def _(g, out):
    return -matmul(matmul(turned(out), g), turned(out))


def parity(pivots, like):
    """1 where the rows were exchanged an even number of times, -1 elsewhere; of `like`'s dtype."""
    n = pivots.shape[-1]
    odd = remainder(sum(ne(pivots, steps((n,), 1, 1, dtype="int32")), (-1,)), 2)
    return where(eq(odd, 1), full((), -1.0, dtype=like.dtype), full((), 1.0, dtype=like.dtype))


@hidden(composition, "linalg_determinant(Tensor A) -> Tensor", samples=SQUARE)
def linalg_determinant(x):
    lu, pivots, _ = lu_factors(x, 0)
    return mul(prod(diagonal(lu, 0, -2, -1), (-1,)), parity(pivots, x))


@linalg_determinant.derivative
def _(g, x):
    # The transposed cofactors. Of a singular matrix they are those of one that is close by.
    if not x.shape[-1]:
        return mul(x, 0)
    lu, pivots, _ = lu_factors(x, 0)
    pivot = diagonal(lu, 0, -2, -1)
    tiny = EPSILON[x.dtype] * add(amax(abs(pivot), (-1,), True), 1e-37)
    mended = where(eq(pivot, 0), tiny, pivot)
    scale = mul(g, mul(prod(mended, (-1,)), parity(pivots, x)))
    right = diag_embed(expand(unsqueeze(scale, -1), x.shape[:-1]))
    return lu_solution(add(lu, diag_embed(sub(mended, pivot))), pivots, right, True)


@hidden(composition, "linalg_log_determinant(Tensor A) -> (Tensor, Tensor)", samples=SQUARE)
def linalg_log_determinant(x):
    """(Sign of the determinant, logarithm of its magnitude)."""
    lu, pivots, _ = lu_factors(x, 0)
    pivot = diagonal(lu, 0, -2, -1)
    return mul(prod(sign(pivot), (-1,)), parity(pivots, x)), sum(log(abs(pivot)), (-1,))


@linalg_log_determinant.derivative
def _(gs, x):
    if gs[1] is None:
        return mul(x, 0)
    lu, pivots, _ = lu_factors(x, 0)
    return lu_solution(lu, pivots, diag_embed(expand(unsqueeze(gs[1], -1), x.shape[:-1])), True)


# ---- triangles

TRIANGULAR = (call(t(3, 3, low=1.0, high=2.0), t(3, 2), upper=True), call(t(3, 3, low=1.0, high=2.0), t(2, 3), upper=False, left=False),
              call(t(2, 3, 3), t(2, 3, 4), upper=False, unitriangular=True), call(t(0, 0), t(0, 2), upper=True))


@by_lapack("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor", "triangular",
           lambda a, b, *_: columns(a, *b.shape), ("self",), samples=TRIANGULAR)
def linalg_solve_triangular(a, b, upper, left, unitriangular):
    """The X of A X = B, or of X A = B; of A one triangle is read."""
    return int(upper), int(unitriangular), int(left)


@linalg_solve_triangular.derivative
def _(g, a, out, upper, left, unitriangular):
    gb = linalg_solve_triangular(turned(a), g, upper=not upper, left=left, unitriangular=unitriangular)
    ga = -matmul(gb, turned(out)) if left else -matmul(turned(out), gb)
    return triu(ga, int(unitriangular)) if upper else tril(ga, -int(unitriangular)), gb


# ---- Cholesky

@by_lapack("linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor, Tensor)", "cholesky",
           lambda x, *_: [columns(x, *x.shape), batch(x)], ("self", "int32"), samples=SINGLE)
def linalg_cholesky_ex(x, upper, check_errors):
    """(L of x = L L.T, or U of x = U.T U; the order of the first leading minor that is not positive). One triangle of x is read."""
    return int(upper), int(check_errors)


@linalg_cholesky_ex.derivative
def _(gs, outs, upper):
    lower, g = (turned(outs[0]), turned(gs[0])) if upper else (outs[0], gs[0])
    inner = tril(matmul(turned(lower), g))
    inner = inner - diag_embed(diagonal(inner, 0, -2, -1)) * 0.5
    inner = linalg_solve_triangular(turned(lower), inner, upper=True)
    return symmetric(linalg_solve_triangular(lower, inner, upper=False, left=False))


# ---- QR

def q_columns(x, mode):
    return {"reduced": least(x), "complete": x.shape[-2], "r": 0}[mode]


def qr_shapes(x, mode):
    rows = x.shape[-2] if mode == "complete" else least(x)
    q = columns(x, *batch(x), x.shape[-2], q_columns(x, mode)) if mode != "r" else (0,)
    return [q, columns(x, *batch(x), rows, x.shape[-1])]


@by_lapack("linalg_qr(Tensor A, str mode='reduced') -> (Tensor, Tensor)", "qr", qr_shapes, ("A", "A"),
           samples=ANY)
def linalg_qr(x, mode):
    """(Q with orthonormal columns, R above its diagonal): x = Q R. "complete": Q is square; "r": R alone."""
    return (q_columns(x, mode),)


def qr_square(gq, gr, q, r):
    """Of as many rows as columns, or more."""
    inner = 0
    if gr is not None:
        inner = matmul(r, turned(gr))
    if gq is not None:
        inner = inner - matmul(turned(gq), q)
    below = tril(inner, -1)
    inner = tril(inner) + turned(below)
    right = matmul(q, inner) if gq is None else gq + matmul(q, inner)
    return linalg_solve_triangular(turned(r), right, upper=False, left=False)


@linalg_qr.derivative
def _(gs, x, outs, mode):
    rows, width = x.shape[-2], x.shape[-1]
    if mode == "complete" and rows > width:
        return not_differentiable(x, QR_COMPLETE)
    (gq, gr), (q, r) = gs, outs
    if mode == "r":
        gq, q = None, linalg_qr(x, "reduced")[0]
    if rows >= width:
        return qr_square(gq, gr, q, r)
    # x = [left, right], R = [U, V]: left = Q U, right = Q V
    left = lambda v: slice(v, -1, 0, rows)
    right = slice(x, -1, rows, width)
    if gr is None:
        first = qr_square(gq, None, q, left(r))
        return cat([first, mul(right, 0)], -1)
    moved = matmul(right, turned(slice(gr, -1, rows, width)))
    first = qr_square(moved if gq is None else gq + moved, left(gr), q, left(r))
    return cat([first, matmul(q, slice(gr, -1, rows, width))], -1)


# ---- singular values

def svd_shapes(x, full_matrices):
    rows, width, k = x.shape[-2], x.shape[-1], least(x)
    left, right = (rows, width) if full_matrices else (k, k)
    return [columns(x, *batch(x), rows, left), (*batch(x), k), columns(x, *batch(x), right, width)]


@by_lapack("linalg_svd_parts(Tensor A, bool full_matrices) -> (Tensor, Tensor, Tensor)", "svd", svd_shapes, ("A",) * 3,
           samples=tuple(call(*c.args, False) for c in ANY) + (call(t(3, 3), True),))
def linalg_svd_parts(x, full_matrices):
    """(U, S from the largest on, V.T): x = U diag(S) V.T; without full_matrices as many columns of U and V as there are values."""
    return (int(full_matrices),)


def apart(values):
    """v_j - v_i, and 1 on the diagonal: what eigenvectors' gradients are divided by."""
    n = values.shape[-1]
    return unsqueeze(values, -2) - unsqueeze(values, -1) + diag_embed(full((*values.shape[:-1], n), 1, dtype=values.dtype))


def turned_over(change, gap):
    """The rotation that a change of vectors is: 0 where nothing turns, also between equal values."""
    change = change - turned(change)
    return where(eq(change, 0), 0.0, change / where(eq(change, 0), 1.0, gap))


@linalg_svd_parts.derivative
def _(gs, x, outs, full_matrices):
    (gu, gvalues, gv), (u, values, v) = gs, outs
    rows, width, k = x.shape[-2], x.shape[-1], values.shape[-1]
    if full_matrices:               # vectors beyond the singular values are arbitrary: they have no gradient
        u, v = slice(u, -1, 0, k), slice(v, -2, 0, k)
        gu, gv = None if gu is None else slice(gu, -1, 0, k), None if gv is None else slice(gv, -2, 0, k)
    inner = None if gvalues is None else diag_embed(gvalues)
    row, column = unsqueeze(values, -2), unsqueeze(values, -1)
    if gu is not None or gv is not None:
        gap = apart(values * values)
        plus = lambda more: more if inner is None else inner + more
        if gu is not None:
            inner = plus(turned_over(matmul(turned(u), gu), gap) * row)
        if gv is not None:
            inner = plus(column * turned_over(matmul(v, turned(gv)), gap))
    made = matmul(matmul(u, inner), v)
    if gu is not None and rows > k:                     # what leaves the space that U spans
        part = gu / row
        made = made + matmul(part - matmul(u, matmul(turned(u), part)), v)
    if gv is not None and width > k:
        part = gv / column
        made = made + matmul(u, part - matmul(matmul(part, turned(v)), v))
    return made


@by_lapack("linalg_svdvals(Tensor A) -> Tensor", "svd", lambda x: (*batch(x), least(x)), ("A",), samples=ANY)
def linalg_svdvals(x):
    """Singular values, from the largest on."""
    return (0,)


@linalg_svdvals.derivative
def _(g, x):
    u, _, v = linalg_svd_parts(x, False)
    return matmul(u * unsqueeze(g, -2), v)


@hidden(composition, "linalg_pseudo_inverse(Tensor A, Tensor tolerance) -> Tensor",
        samples=(call(t(4, 3), t(low=0.0, high=0.0)), call(t(2, 3, 5), t(2, low=0.0, high=0.0)), call(t(3, 3), t(low=0.0, high=0.0))))
def linalg_pseudo_inverse(x, tolerance):
    """Moore and Penrose's: singular values at most `tolerance` (one for each matrix) count as 0."""
    u, values, v = linalg_svd_parts(x, False)
    kept = where(lt(unsqueeze(tolerance, -1), values), reciprocal(values), 0)
    return matmul(turned(v) * unsqueeze(kept, -2), turned(u))


def through_pseudo_inverse(g, x, inverse):
    """The gradient of x from that of its pseudo-inverse (of a rank that does not change)."""
    g, turn, k = turned(g), turned(inverse), None
    if x.shape[-2] <= x.shape[-1]:
        k = matmul(g, inverse)
        kp = matmul(k, turn)
        return (kp - turned(matmul(inverse, k)) - matmul(matmul(x, inverse), kp)
                + matmul(matmul(turn, inverse), g - matmul(k, x)))
    k = matmul(inverse, g)
    pk = matmul(turn, k)
    return (pk - turned(matmul(k, inverse)) + matmul(matmul(g - matmul(x, k), inverse), turn) - matmul(matmul(pk, inverse), x))


@linalg_pseudo_inverse.derivative
def _(g, x, out):
    return through_pseudo_inverse(g, x, out), None


# ---- eigenvalues

@by_lapack("linalg_eigh_parts(Tensor A, str UPLO) -> (Tensor, Tensor)", "eigh",
           lambda x, *_: [(*batch(x), x.shape[-1]), columns(x, *x.shape)], ("A", "A"), samples=tuple(call(*c.args, "L") for c in SINGLE))
def linalg_eigh_parts(x, uplo):
    """(Eigenvalues from the least on, eigenvectors in columns) of symmetric x, of which one triangle is read."""
    return (int(uplo == "U"),)


@linalg_eigh_parts.derivative
def _(gs, outs):
    (g, gv), (values, v) = gs, outs
    inner = None if g is None else diag_embed(g)
    if gv is not None:
        turn = turned_over(matmul(turned(v), gv), apart(values)) * 0.5
        inner = turn if inner is None else inner + turn
    return matmul(matmul(v, inner), turned(v))


@by_lapack("linalg_eigh_values(Tensor A, str UPLO) -> Tensor", "eigh", lambda x, *_: (*batch(x), x.shape[-1]), ("A",),
           samples=tuple(call(*c.args, "U") for c in SINGLE))
def linalg_eigh_values(x, uplo):
    return (int(uplo == "U"),)


@linalg_eigh_values.derivative
def _(g, x, uplo):
    _, v = linalg_eigh_parts(x, uplo)
    return matmul(v * unsqueeze(g, -2), turned(v))


class complex_columns(shaped):
    """Eigenvalues, and eigenvectors where they are wanted: complex."""
    def __init__(self, vectors):
        super().__init__(lambda x: [(*batch(x), x.shape[-1]), tuple(x.shape)][: 1 + vectors])

    def dtypes(self, a, best, result):
        return [complex_of(best)] * a.op.outputs

    def infer(self, a, dtypes_):
        made = super().infer(a, dtypes_)
        return [made[0], *(dense(v.shape, v.dtype, (*range(v.rank - 2), v.rank - 1, v.rank - 2), v.device) for v in made[1:])]


def by_eig(schema, vectors):
    return hidden(library, schema, routine="lapack_eig", strided=True, layout=complex_columns(vectors), samples=SINGLE)


@by_eig("linalg_eig_parts(Tensor A) -> (Tensor, Tensor)", True)
def linalg_eig_parts(x):
    """(Eigenvalues, eigenvectors in columns) of any square matrix: complex."""
    return ()


@by_eig("linalg_eig_values(Tensor A) -> Tensor", False)
def linalg_eig_values(x):
    return ()


linalg_eig_parts.derivative(lambda gs, x: not_differentiable(x, EIG))
linalg_eig_values.derivative(lambda g, x: not_differentiable(x, EIG))


# ---- least squares

@by_lapack("linalg_least_squares(Tensor A, Tensor B, float rcond) -> (Tensor, Tensor)", "least_squares",
           lambda a, b, rcond: [columns(a, *batch(a), a.shape[-1], b.shape[-1]), batch(a)], ("A", "int64"),
           samples=(call(t(4, 3), t(4, 2), 1e-6), call(t(2, 3, 4), t(2, 3, 2), 1e-6)))
def linalg_least_squares(a, b, rcond):
    """(The X of least norm among those with the least |A X - B|, A's rank)."""
    return ()


@linalg_least_squares.derivative
def _(gs, a, b, rcond):
    inverse = linalg_pseudo_inverse(a, amax(linalg_svdvals(a), (-1,)) * rcond)
    return through_pseudo_inverse(matmul(gs[0], turned(b)), a, inverse), matmul(turned(inverse), gs[0])
