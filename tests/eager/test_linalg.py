"""rushlight.linalg: its definitions, the oracle, and gradients against differences."""

import pytest

import rushlight as rl
from rushlight.autograd import gradcheck

EPS = 1e-9
SHAPES = [(3, 3), (2, 3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4)]
SQUARE = [s for s in SHAPES if s[-1] == s[-2]]
EMPTY = [(0, 3, 3), (2, 0, 0), (0, 0)]


@pytest.fixture(autouse=True)
def seeded():
    rl.manual_seed(0)


def random(*shape, grad=False):
    return rl.randn(*shape, dtype=rl.float64).requires_grad_(grad)


def positive(*shape):
    a = random(*shape)
    return a @ a.mT + rl.eye(shape[-1], dtype=rl.float64)


def close(a, b):
    assert tuple(a.shape) == tuple(b.shape)
    assert rl.allclose(a, b, rtol=1e-9, atol=1e-9), (a, b)


def test_definitions():
    for shape in SHAPES:
        a = random(*shape)
        q, r = rl.linalg.qr(a)
        close(q @ r, a)
        u, s, v = rl.linalg.svd(a, full_matrices=False)
        close((u * s.unsqueeze(-2)) @ v, a)
        close(rl.linalg.svdvals(a), s)
        p, lower, upper = rl.linalg.lu(a)
        close(p @ lower @ upper, a)
        inverse = rl.linalg.pinv(a)
        close(a @ inverse @ a, a)
        assert rl.linalg.matrix_rank(a).max().item() == min(shape[-2:])
    for shape in SQUARE:
        a, b = random(*shape), random(*shape)[..., :2]
        close(a @ rl.linalg.solve(a, b), b)
        close(rl.linalg.inv(a) @ a, rl.eye(3, dtype=rl.float64).expand(*shape))
        sign, size = rl.linalg.slogdet(a)
        close(sign * size.exp(), rl.linalg.det(a))
        whole = positive(*shape)
        close(rl.linalg.cholesky(whole) @ rl.linalg.cholesky(whole).mT, whole)
        w, v = rl.linalg.eigh(whole)
        close((v * w.unsqueeze(-2)) @ v.mT, whole)
        close(rl.linalg.eigvalsh(whole, "U"), w)
        close(rl.cholesky_inverse(rl.linalg.cholesky(whole)), rl.linalg.inv(whole))
        w, v = rl.linalg.eig(a)
        assert w.dtype is rl.complex128
        close(rl.view_as_real(a.to(rl.complex128) @ v), rl.view_as_real(v * w.unsqueeze(-2)))


def test_vectors_and_sides():
    a, b = random(2, 3, 3), random(2, 3)
    x = rl.linalg.solve(a, b)
    close((a @ x.unsqueeze(-1)).squeeze(-1), b)
    right = random(4, 3)
    close(rl.linalg.solve(a[0], right, left=False) @ a[0], right)
    close(rl.linalg.solve_triangular(a[0], right, upper=True, left=False) @ a[0].triu(), right)
    lu, pivots = rl.linalg.lu_factor(a)
    close(a.mT @ rl.linalg.lu_solve(lu, pivots, b.unsqueeze(-1), adjoint=True), b.unsqueeze(-1))


@pytest.mark.parametrize("shape", EMPTY)
def test_empty(shape):
    a = random(*shape, grad=True)
    batch = shape[:-2]
    assert tuple(rl.linalg.inv(a).shape) == shape
    assert tuple(rl.linalg.det(a).shape) == batch and bool((rl.linalg.det(a) == 1).all())
    (rl.linalg.inv(a).sum() + rl.linalg.svdvals(a).sum() + rl.linalg.pinv(a).sum()).backward()
    assert tuple(a.grad.shape) == shape


FUNCTIONS = {
    "inv": lambda a: rl.linalg.inv(a),
    "det": lambda a: rl.linalg.det(a),
    "slogdet": lambda a: rl.linalg.slogdet(a)[1],
    "lu_factor": lambda a: rl.linalg.lu_factor(a)[0],
    "cholesky": lambda a: rl.linalg.cholesky(symmetric(a)),
    "eigh": lambda a: rl.linalg.eigh(symmetric(a))[0],
    "projection": lambda a: outer(rl.linalg.eigh(symmetric(a))[1]),
    "eigvalsh": lambda a: rl.linalg.eigvalsh(symmetric(a)),
}
ANY = {
    "qr": lambda a: rl.linalg.qr(a),
    "qr r": lambda a: rl.linalg.qr(a, "r")[1],
    "svd": lambda a: rl.linalg.svd(a, full_matrices=False)[1],
    "projections": lambda a: [
        outer(x) for x in (rl.linalg.svd(a, False)[0], rl.linalg.svd(a, False)[2].mT)
    ],
    "svdvals": lambda a: rl.linalg.svdvals(a),
    "pinv": lambda a: rl.linalg.pinv(a),
}


def symmetric(a):
    return (a @ a.mT + rl.eye(a.shape[-1], dtype=a.dtype)) / 2


def outer(v):
    """What of vectors in columns does not depend on their signs."""
    return v[..., :, :1] @ v[..., :, :1].mT


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    for shape in SQUARE:
        assert gradcheck(FUNCTIONS[name], (random(*shape, grad=True),))


@pytest.mark.parametrize("name", ANY)
def test_gradients_of_any_shape(name):
    for shape in SHAPES:
        a = random(*shape, grad=True)
        made = lambda x: tuple(made_) if isinstance(made_ := ANY[name](x), list | tuple) else made_
        assert gradcheck(made, (a,))


def test_gradients_of_solutions():
    for shape in SQUARE:
        a, b = random(*shape, grad=True), random(*shape, grad=True)
        assert gradcheck(rl.linalg.solve, (a, b))
        assert gradcheck(lambda a, b: rl.linalg.solve(a, b.mT, left=False), (a, b))
        for upper in (True, False):
            for left in (True, False):
                solve = lambda a, b: rl.linalg.solve_triangular(a, b, upper=upper, left=left)
                assert gradcheck(solve, (a, b))
        for adjoint in (True, False):
            solve = lambda a, b: rl.linalg.lu_solve(*rl.linalg.lu_factor(a), b, adjoint=adjoint)
            assert gradcheck(solve, (a, b))
    for shape in ((5, 3), (3, 5), (2, 4, 3)):
        a, b = random(*shape, grad=True), random(*shape, grad=True)
        assert gradcheck(lambda a, b: rl.linalg.lstsq(a, b).solution, (a, b))


def test_singular_matrices():
    a = rl.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=rl.float64, requires_grad=True)
    rl.linalg.det(a).backward()
    close(a.grad, rl.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=rl.float64))  # cofactors
    assert rl.linalg.inv_ex(a).info.item() == 2
    assert rl.linalg.matrix_rank(a).item() == 1
    with pytest.raises(rl.linalg.LinAlgError, match="diagonal element 2 is zero"):
        rl.linalg.inv(a)
    with pytest.raises(rl.linalg.LinAlgError, match="Batch element 1"):
        rl.linalg.solve(rl.stack([rl.eye(2), rl.zeros(2, 2)]), rl.ones(2, 2, 1))
    with pytest.raises(RuntimeError, match=r"leading minor of order 1"):
        rl.linalg.cholesky(-rl.eye(2))
    with pytest.raises(rl.linalg.LinAlgError, match="NaN"):
        rl.linalg.svd(rl.full((2, 2), float("nan")))


def test_equal_values():
    """Equal singular values and eigenvalues have gradients, though their vectors have none."""
    for f in (
        lambda a: rl.linalg.svd(a)[1].sum(),
        lambda a: rl.linalg.eigh(a)[0].sum(),
        lambda a: rl.linalg.pinv(a).trace().neg(),
    ):
        a = rl.eye(3, dtype=rl.float64, requires_grad=True)
        f(a).backward()
        close(a.grad, rl.eye(3, dtype=rl.float64))


def test_one_triangle_is_read():
    a = positive(3, 3)
    w, v = rl.linalg.eigh(a)
    nan = float("nan")
    for uplo, other in (("L", rl.ones(3, 3).triu(1)), ("U", rl.ones(3, 3).tril(-1))):
        half = rl.where(other > 0, nan, a)
        close(rl.linalg.eigvalsh(half, uplo), w)
        close(abs(rl.linalg.eigh(half, uplo)[1]), abs(v))
        close(rl.linalg.cholesky(half, upper=uplo == "U"), rl.linalg.cholesky(a, upper=uplo == "U"))


def test_refusals():
    with pytest.raises(RuntimeError, match="Low precision"):
        rl.linalg.lstsq(rl.ones(2, 2, dtype=rl.float16), rl.ones(2, 2, dtype=rl.float16))
    with pytest.raises(RuntimeError, match="square matrices, but they are 2 by 3"):
        rl.linalg.inv(rl.ones(2, 3))
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        rl.linalg.det(rl.ones(2))
    with pytest.raises(RuntimeError, match="floating or complex"):
        rl.linalg.inv(rl.ones(2, 2, dtype=rl.int64))
    with pytest.raises(RuntimeError, match="Low precision"):
        rl.linalg.inv(rl.ones(2, 2, dtype=rl.float16))
    with pytest.raises(RuntimeError, match=r"Incompatible shapes.*2x2.* 3x1"):
        rl.linalg.solve(rl.ones(2, 2), rl.ones(3))
    with pytest.raises(RuntimeError, match="unrecognized mode"):
        rl.linalg.qr(rl.ones(2, 2), "x")
    with pytest.raises(RuntimeError, match="Pivots given to lu_solve"):
        rl.linalg.lu_solve(rl.eye(2), rl.zeros(2, dtype=rl.int32), rl.ones(2, 1))
    for loss in (
        lambda a: rl.linalg.qr(a, "complete")[0].sum(),
        lambda a: rl.linalg.lu_factor(a)[0].sum(),
        lambda a: rl.linalg.eigvals(a[:2]).real.sum(),
    ):
        made = loss(random(3, 2, grad=True))
        with pytest.raises((RuntimeError, NotImplementedError), match="derivative|differentiable"):
            made.backward()


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_like_the_oracle(oracle, shape):
    """Values, dtypes and strides of what is unique, whatever signs the vectors have."""
    a = random(*shape)
    names = ["svdvals", "pinv", "matrix_rank", "cond"]
    if shape[-1] == shape[-2]:
        names += ["inv", "det", "slogdet", "lu_factor", "inv_ex", "lu"]
    for name in names:
        made = getattr(rl.linalg, name)(a)
        expected = getattr(oracle.linalg, name)(oracle.from_numpy(a.numpy()))
        made, expected = ((x,) if not isinstance(x, tuple) else x for x in (made, expected))
        for x, y in zip(made, expected):
            assert str(x.dtype).split(".")[1] == str(y.dtype).split(".")[1], name
            assert tuple(x.shape) == tuple(y.shape), name
            assert oracle.allclose(oracle.from_numpy(x.numpy()), y, rtol=1e-9, atol=1e-12), name
            if y.numel() > 1 and name not in ("pinv", "lu"):
                assert x.stride() == y.stride(), name


@pytest.mark.oracle
def test_gradients_like_the_oracle_s(oracle):
    """Of functions that read one triangle, which differences do not see."""
    for name in ("cholesky", "eigvalsh"):
        a = positive(2, 3, 3)
        x, y = a.clone().requires_grad_(), oracle.from_numpy(a.numpy().copy()).requires_grad_()
        for value, module in ((x, rl), (y, oracle)):
            getattr(module.linalg, name)(value).cos().sum().backward()
        assert oracle.allclose(oracle.from_numpy(x.grad.numpy()), y.grad, atol=1e-12)


def test_compiled():
    a, b = positive(3, 3), random(3, 2)
    f = lambda a, b: rl.linalg.solve(a, b).sin() @ b.mT + rl.linalg.inv(a) * rl.linalg.det(a)
    made = rl.compile(f)
    close(made(a, b), f(a, b))
    x, y = a.clone().requires_grad_(), a.clone().requires_grad_()
    made(x, b).sum().backward()
    f(y, b).sum().backward()
    close(x.grad, y.grad)
