"""Linear systems, factorisations and what is worked out with them, for matrices in the last two
dims and a batch before them: the functions of `rushlight.linalg`, and those that stand in
`rushlight` and on tensors.

LAPACK does the work (csrc/rt/lapack.cpp), float32 and float64. What cannot be solved raises
`LinAlgError`, a RuntimeError, as PyTorch does.
"""

from math import ceil, log2

from rushlight import _core
from rushlight.dtypes import EPSILON
from rushlight.ops import TABLE
from rushlight.ops.layouts import broadcast_shape

from . import factories
from .results import result_class


class LinAlgError(RuntimeError):
    """A matrix has no inverse, a system no solution, an algorithm did not converge.

    Fails:  rl.linalg.inv(rl.zeros(2, 2))
    Mend:   test `rl.linalg.inv_ex(x).info`, or use `rl.linalg.pinv`
    """


_core.set_type("LinAlgError", LinAlgError)
INF = float("inf")


def result(name, *fields):
    return result_class(f"linalg_{name}", *fields)


inverse_result = result("inv_ex", "inverse", "info")
solve_result = result("solve_ex", "result", "info")
slogdet_result = result("slogdet", "sign", "logabsdet")
cholesky_result = result("cholesky_ex", "L", "info")
qr_result = result("qr", "Q", "R")
svd_result = result("svd", "U", "S", "Vh")
eigh_result = result("eigh", "eigenvalues", "eigenvectors")
eig_result = result("eig", "eigenvalues", "eigenvectors")
factor_result = result("lu_factor", "LU", "pivots")
factor_ex_result = result("lu_factor_ex", "LU", "pivots", "info")
lu_result = result("lu", "P", "L", "U")
lu_unpack_result = result_class("lu_unpack", "P", "L", "U")
lstsq_result = result("lstsq", "solution", "residuals", "rank", "singular_values")


def op(name):
    return TABLE[name].native


def given(out, made):
    """The results, written to `out` where one is given."""
    if out is None:
        return made
    if isinstance(made, tuple):
        return type(made)(*(op("clone")(value, out=to) for value, to in zip(made, out)))
    return op("clone")(made, out=out)


def matrices(name, x, square=False, argument="A"):
    """Refuses what is no batch of real matrices."""
    if x.dim() < 2:
        raise RuntimeError(
            f"[{name}] {argument} is a matrix or a batch of them (at least 2 dimensions), got "
            f"shape {list(x.shape)}"
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"[{name}] {argument} is made of square matrices, but they are {x.shape[-2]} by "
            f"{x.shape[-1]}"
        )
    dtype = x.dtype
    if dtype.is_complex:
        raise NotImplementedError(f"[{name}] complex matrices are not supported yet")
    if not dtype.is_floating_point:
        raise RuntimeError(f"[{name}] takes floating or complex matrices, got {dtype}")


def together(name, a, b, of_b=2):
    """Both with the same batch dims; of_b: how many dims of b are no batch."""
    if a.dtype is not b.dtype:
        raise RuntimeError(f"[{name}] A and B have the same dtype, got {a.dtype} and {b.dtype}")
    ends = tuple(b.shape[b.dim() - of_b :])
    batch = broadcast_shape((tuple(a.shape[:-2]), tuple(b.shape[: b.dim() - of_b])), name)
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *ends)


def fitting(name, A, B, left):
    """Refuses a B that is not what square A times something (something times A) can give."""
    if B.dim() < 2 or B.shape[-2 if left else -1] != A.shape[-1]:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"[{name}] Incompatible shapes in {equation}: A is {A.shape[-2]}x{A.shape[-1]}, B "
            f"{'x'.join(str(n) for n in B.shape[-2:])}"
        )


def unit(like, n):
    """The unit matrix [*, n, n] with the batch of `like`."""
    return op("diag_embed")(like.new_ones((*like.shape[:-2], n)))


# ---- systems


def system(A, B, left):
    """(A, B with columns, whether B is vectors) of one batch, or an error."""
    matrices("linalg.solve", A, True)
    batch = tuple(A.shape[:-2])
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and tuple(B.shape) == (*batch, A.shape[-1]))
    if vector and not left:
        raise RuntimeError(
            "[linalg.solve] left=False takes B as matrices: for a vector of right-hand sides "
            "write B / A.squeeze(-1)"
        )
    right = B.unsqueeze(-1) if vector else B
    fitting("linalg.solve", A, right, left)
    A, right = together("linalg.solve", A, right)
    return A, right, vector


def solve_ex(A, B, *, left=True, check_errors=False, out=None):
    """(X, info): X with A X = B, or X A = B where not `left`; info is 0 where there is one.

    A [*, n, n]; B [*, n, k], or vectors: [n], or [*, n] with the batch of A.
    """
    A, right, vector = system(A, B, left)
    lu, pivots, info = op("lu_factors")(A, 1 if check_errors else 0)
    made = op("linalg_lu_solve")(lu, pivots, right, left=left)
    return given(out, solve_result(made.squeeze(-1) if vector else made, info))


def solve(A, B, *, left=True, out=None):
    """X with A X = B (X A = B where not `left`). LinAlgError where A is singular."""
    A, right, vector = system(A, B, left)
    made = op("linalg_solution")(A, right, left=left)
    return given(out, made.squeeze(-1) if vector else made)


def inv_ex(A, *, check_errors=False, out=None):
    """(the inverse, info): info is 0 where there is one."""
    matrices("linalg.inv", A, True)
    lu, pivots, info = op("lu_factors")(A, 2 if check_errors else 0)
    inverse = op("linalg_lu_solve")(lu, pivots, unit(A, A.shape[-1]))
    return given(out, inverse_result(inverse, info))


def inv(A, *, out=None):
    """The inverse of A [*, n, n]. LinAlgError where there is none."""
    matrices("linalg.inv", A, True)
    return given(out, op("linalg_inverse")(A))


def det(A, *, out=None):
    """The determinant of A [*, n, n]: [*]."""
    matrices("linalg.det", A, True)
    return given(out, op("linalg_determinant")(A))


def slogdet(A, *, out=None):
    """(sign, logarithm of the magnitude) of the determinant: 0 and -inf where it is 0."""
    matrices("linalg.slogdet", A, True)
    return given(out, slogdet_result(*op("linalg_log_determinant")(A)))


def logdet(input):
    """The logarithm of the determinant; NaN where that is negative."""
    sign, size = slogdet(input)
    return op("where")(sign == -1, float("nan"), size)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False, out=None):
    """X with A X = B (X A = B where not `left`), of A's one triangle; unitriangular: its diagonal
    counts as ones.
    """
    matrices("linalg.solve_triangular", A, True)
    matrices("linalg.solve_triangular", B, argument="B")
    fitting("linalg.solve_triangular", A, B, left)
    A, B = together("linalg.solve_triangular", A, B)
    made = op("linalg_solve_triangular")(A, B, upper=upper, left=left, unitriangular=unitriangular)
    return given(out, made)


def lstsq(A, B, rcond=None, *, driver=None):
    """(X, residuals, rank, singular values): the X of least norm among those with the least
    |A X - B|.

    A [*, m, n]; B [*, m, k], or vectors as in `solve`. rcond: singular values below this share of
    the largest count as 0 (default: epsilon * max(m, n)). Residuals [*, k] with a driver other
    than "gelsy" (the default) where m > n and all ranks are n; singular values with "gelsd" and
    "gelss". All drivers run LAPACK's gelsy.
    """
    drivers = ("gels", "gelsy", "gelsd", "gelss")
    if driver not in (None, *drivers):
        raise RuntimeError(f"[linalg.lstsq] the drivers are {', '.join(drivers)}, not {driver}")
    matrices("linalg.lstsq", A)
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1]))
    right = B.unsqueeze(-1) if vector else B
    if right.dim() < 2 or right.shape[-2] != A.shape[-2]:
        raise RuntimeError(
            f"[linalg.lstsq] A and B have as many rows as each other, got {list(A.shape)} and "
            f"{list(B.shape)}"
        )
    A, right = together("linalg.lstsq", A, right)
    rows, width = A.shape[-2], A.shape[-1]
    if rcond is None:
        rcond = EPSILON[A.dtype.name] * max(rows, width)
    x, rank = op("linalg_least_squares")(A, right, float(rcond))
    empty = A.detach().new_empty(0)
    residuals = empty
    if driver not in (None, "gelsy") and rows > width and bool((rank == width).all()):
        residuals = ((op("matmul")(A, x) - right) ** 2).sum(-2)
    values = op("linalg_svdvals")(A) if driver in ("gelsd", "gelss") else empty
    rank = empty.to(rank.dtype) if driver == "gels" else rank
    return lstsq_result(x.squeeze(-1) if vector else x, residuals, rank, values)


# ---- factorisations


def lu_factor_ex(A, *, pivot=True, check_errors=False, out=None):
    """(L below the diagonal and U in one, exchanges of rows from 1, info) of A [*, m, n]."""
    matrices("linalg.lu_factor", A)
    made = op("lu_factor_parts")(A, pivot=pivot, check_errors=check_errors)
    return given(out, factor_ex_result(*made))


def lu_factor(A, *, pivot=True, out=None):
    """(LU, pivots) for `lu_solve`; RuntimeError where a pivot is 0."""
    return given(out, factor_result(*lu_factor_ex(A, pivot=pivot, check_errors=True)[:2]))


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True, *, out=None):
    """(P, L, U) with A = P L U, from what `lu_factor` gives; None for what is not asked for."""
    rows, width = LU_data.shape[-2:]
    least = min(rows, width)
    P = L = U = None
    if unpack_pivots:
        order = op("row_order")(LU_pivots, rows)
        places = order.unsqueeze(-2)
        counts = factories.arange(rows, device=LU_data.device).unsqueeze(-1)
        P = (places == counts).to(LU_data.dtype)
    if unpack_data:
        one = unit(LU_data, least)
        low = op("tril")(LU_data[..., :, :least], -1)
        L = low + (one if rows == least else op("constant_pad_nd")(one, (0, 0, 0, rows - least)))
        U = op("triu")(LU_data[..., :least, :])
    return given(out, lu_unpack_result(P, L, U))


def lu(A, *, pivot=True, out=None):
    """(P, L, U) with A = P L U."""
    return given(out, lu_result(*lu_unpack(*lu_factor_ex(A, pivot=pivot)[:2])))


def lu_solve(LU, pivots, B, *, left=True, adjoint=False, out=None):
    """X with A X = B (A.T X = B with `adjoint`; X A = B where not `left`), from A's factors."""
    matrices("linalg.lu_solve", LU, True, "LU")
    fitting("linalg.lu_solve", LU, B, left)
    LU, B = together("linalg.lu_solve", LU, B)
    pivots = pivots.expand(*LU.shape[:-2], pivots.shape[-1])
    return given(out, op("linalg_lu_solve")(LU, pivots, B, left=left, adjoint=adjoint))


def cholesky_ex(A, *, upper=False, check_errors=False, out=None):
    """(L, info): A = L L.T, or U.T U; info is 0 where A is positive-definite."""
    matrices("linalg.cholesky", A, True)
    made = op("linalg_cholesky_ex")(A, upper=upper, check_errors=check_errors)
    return given(out, cholesky_result(*made))


def cholesky(A, *, upper=False, out=None):
    """L with A = L L.T (U with A = U.T U where `upper`). LinAlgError where A is not
    positive-definite.
    """
    return given(out, cholesky_ex(A, upper=upper, check_errors=True).L)


def cholesky_solve(B, L, upper=False, *, out=None):
    """X with A X = B, A = L L.T (or U.T U)."""
    first = solve_triangular(L.mT if upper else L, B, upper=False)
    return given(out, solve_triangular(L if upper else L.mT, first, upper=True))


def cholesky_inverse(L, upper=False, *, out=None):
    """The inverse of L L.T (or U.T U)."""
    matrices("cholesky_inverse", L, True, "L")
    return given(out, cholesky_solve(unit(L, L.shape[-1]), L, upper))


def qr(A, mode="reduced", *, out=None):
    """(Q, R): A = Q R. "complete": Q is square; "r": Q is empty."""
    matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"[linalg.qr] unrecognized mode {mode!r}: there are 'reduced', 'complete' and 'r'"
        )
    return given(out, qr_result(*op("linalg_qr")(A, mode)))


def svd(A, full_matrices=True, *, driver=None, out=None):
    """(U, S, Vh): A = U diag(S) Vh, S from the largest on."""
    matrices("linalg.svd", A)
    if driver is not None:
        raise RuntimeError(
            "[linalg.svd] driver= chooses among cuSOLVER's routines: CUDA inputs only"
        )
    return given(out, svd_result(*op("linalg_svd_parts")(A, full_matrices)))


def svdvals(A, *, driver=None, out=None):
    """Singular values of A [*, m, n], from the largest on: [*, min(m, n)]."""
    matrices("linalg.svd", A)
    return given(out, op("linalg_svdvals")(A))


def checked_triangle(UPLO):
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"[linalg.eigh] UPLO is 'L' or 'U', got {UPLO}")
    return UPLO.upper()


def eigh(A, UPLO="L", *, out=None):
    """(eigenvalues from the least on, eigenvectors in columns) of symmetric A, of which one
    triangle is read.
    """
    matrices("linalg.eigh", A, True)
    return given(out, eigh_result(*op("linalg_eigh_parts")(A, checked_triangle(UPLO))))


def eigvalsh(A, UPLO="L", *, out=None):
    """Eigenvalues of symmetric A, from the least on."""
    matrices("linalg.eigh", A, True)
    return given(out, op("linalg_eigh_values")(A, checked_triangle(UPLO)))


def eig(A, *, out=None):
    """(eigenvalues, eigenvectors in columns) of any square A, complex. Backward raises: there is
    no derivative yet.
    """
    matrices("linalg.eig", A, True)
    return given(out, eig_result(*op("linalg_eig_parts")(A)))


def eigvals(A, *, out=None):
    """Eigenvalues of any square A, complex. Backward raises: there is no derivative yet."""
    matrices("linalg.eigvals", A, True)
    return given(out, op("linalg_eig_values")(A))


# ---- what is worked out with them


def tolerances(values, A, atol, rtol):
    """Singular values that count as 0, for each matrix: up to max(atol, rtol * the largest)."""
    if rtol is None:
        known = atol is not None and not (isinstance(atol, (int, float)) and atol == 0)
        rtol = 0.0 if known else EPSILON[A.dtype.name] * max(A.shape[-2:])
    top = values[..., :1].sum(-1)
    made = top * rtol
    if atol is None:
        return made
    return op("maximum")(made, atol) if isinstance(atol, _core.Tensor) else made.clamp(min=atol)


def matrix_rank(A, *, atol=None, rtol=None, hermitian=False, tol=None, out=None):
    """How many singular values are above max(atol, rtol * the largest): [*], int64."""
    matrices("linalg.matrix_rank", A, hermitian)
    A = A.detach()
    values = abs(eigvalsh(A)).sort(-1, True)[0] if hermitian else svdvals(A)
    atol = atol if tol is None else tol
    rtol = 0.0 if tol is not None else rtol
    least = tolerances(values, A, atol, rtol)
    return given(out, (values > least.unsqueeze(-1)).sum(-1))


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """Moore and Penrose's inverse of A [*, m, n]: [*, n, m]."""
    matrices("linalg.pinv", A, hermitian)
    if A.numel() == 0:
        return given(out, A.mT.clone())
    least = tolerances(op("linalg_svdvals")(A.detach()), A, atol, rtol if rcond is None else rcond)
    return given(out, op("linalg_pseudo_inverse")(A, least))


def norm_by_values(A, ord, dim, keepdim):
    """Matrix norms by singular values: 2, -2, "nuc"."""
    values = svdvals(A.movedim(tuple(dim), (-2, -1)))
    if ord == "nuc" or not values.shape[-1]:
        made = values.sum(-1)
    else:
        made = op("amax" if ord > 0 else "amin")(values, (-1,))
    if keepdim:
        for d in sorted(d % A.dim() for d in dim):
            made = made.unsqueeze(d)
    return made


def cond(A, p=None, *, out=None):
    """The condition number with a matrix norm (None: by singular values)."""
    from .reducing import matrix_norm

    matrices("linalg.cond", A, p not in (None, 2, -2))
    if A.numel() == 0:
        return given(out, A.new_zeros(tuple(A.shape[:-2])))
    if p in (None, 2, -2):
        values = svdvals(A)
        first, last = values[..., 0], values[..., -1]
        return given(out, last / first if p == -2 else first / last)
    inverse, info = inv_ex(A)
    made = matrix_norm(A, p) * matrix_norm(inverse, p)
    return given(out, op("where")(info == 0, made, INF))


def matrix_power(A, n, *, out=None):
    """A times itself, n times, by squaring; the identity for 0, powers of the inverse below."""
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"[linalg.matrix_power] expected square matrices, got {list(A.shape)}")
    if n < 0:
        A, n = inv(A), -n
    made = None
    if n == 0:
        made = (A * 0 + factories.eye(A.shape[-1], dtype=A.dtype)).detach()
    while n:
        if n % 2:
            made = A if made is None else made @ A
        n //= 2
        A = A @ A if n else A
    return op("clone")(made) if out is None else op("clone")(made, out=out)


def matrix_exp(A):
    """The exponential of A [*, n, n]: the series to its 18th term of A / 2^s, squared s times, with
    s so large that no norm is above 1 (the same s for the batch).
    """
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"[linalg.matrix_exp] A must be batches of square matrices, got {list(A.shape)}"
        )
    if not A.is_floating_point() and not A.is_complex():
        raise RuntimeError(f"[linalg.matrix_exp] takes floating or complex matrices, got {A.dtype}")
    if not A.numel():
        return op("clone")(A)
    largest = abs(A.detach()).sum(-2).amax().item()
    halvings = max(0, ceil(log2(largest))) if 0 < largest < INF else 0
    x = A * 2.0**-halvings
    one = factories.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    made = x / 18 + one
    for k in range(17, 0, -1):
        made = (x @ made) / k + one
    for _ in range(halvings):
        made = made @ made
    return made


def tensorinv(A, ind=2, *, out=None):
    """The inverse of A for products over its first `ind` dims."""
    if ind <= 0:
        raise RuntimeError("[linalg.tensorinv] Expected a strictly positive integer for 'ind'")
    first, last = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    rows = 1
    for n in last:
        rows *= n
    return given(out, inv(A.reshape(-1, rows)).reshape(*last, *first))


def tensorsolve(A, B, dims=None, *, out=None):
    """X with tensordot(A, X, X.dim()) = B; `dims` of A move to its end first."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.dim() - len(dims), A.dim())))
    ends = tuple(A.shape[B.dim() :])
    return given(out, solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(*ends))
