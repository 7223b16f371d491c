"""The matrix product's family and attention, against the oracle and by hand."""

import math

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F

from .both import both, both_do, close, randn

EQUATIONS = (
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhij,bhjd->bihd", (2, 3, 4, 6), (2, 3, 6, 5)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (4,), (4,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->j", (2, 3), (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("ijkj->ik", (2, 3, 4, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ba", (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (6, 3, 4)),
    ("i...,i...->...", (3, 2), (3, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ij,jk,kl->", (2, 3), (3, 4), (4, 2)),
    ("a,b,c->cab", (2,), (3,), (4,)),
    ("ij,kj->ki", (2, 1), (4, 3)),
    ("bi,bj->ij", (1, 2), (5, 3)),
    ("bi,bj->bij", (1, 2), (5, 3)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("bnd,btd,bd->bnt", (2, 3, 4), (2, 5, 4), (2, 4)),
    (",ij->ij", (), (2, 3)),
    ("Ij,jK->IK", (2, 3), (3, 4)),
)
WRONG = (
    ("ij,jk->ik", (2, 3)),
    ("ij", (2, 3, 4)),
    ("ijk", (2, 3)),
    ("ij,jk->iz", (2, 3), (3, 4)),
    ("ij,jk->ii", (2, 3), (3, 4)),
    ("ij,jk->ik", (2, 3), (4, 4)),
    ("i1->i", (2, 3)),
    ("ii->i", (2, 3)),
)


@pytest.mark.parametrize("case", EQUATIONS + WRONG, ids=str)
def test_einsum(case, oracle):
    equation, *shapes = case
    pairs = [randn(oracle, *s, seed=i, dtype="float64") for i, s in enumerate(shapes)]
    ours, theirs = ([p[k].requires_grad_() for p in pairs] for k in (0, 1))
    both_do(lambda *x: rl.einsum(equation, *x) if isinstance(x[0], rl.Tensor) else
            oracle.einsum(equation, *x), ours, theirs, close)  # fmt: skip
    if case in EQUATIONS:
        for lib, xs in ((rl, ours), (oracle, theirs)):
            y = lib.einsum(equation, *xs)
            (y * y).sum().backward()
        for a, b in zip(ours, theirs):
            close(a.grad, b.grad)


def test_einsum_of_lists(oracle):
    x, y = randn(oracle, 2, 3), randn(oracle, 3, 4)
    for lib, a, b in ((rl, x[0], y[0]), (oracle, x[1], y[1])):
        found = lib.einsum(a, [0, 1], b, [1, 2], [0, 2]), lib.einsum(a, [..., 7], b, [7, 9])
        assert [tuple(f.shape) for f in found] == [(2, 4), (2, 4)]
        assert float((found[0] - a @ b).abs().max()) < 1e-5
    close(rl.einsum("ij,jk", [x[0], y[0]]), oracle.einsum("ij,jk", x[1], y[1]))


@pytest.mark.parametrize("dims", (0, 1, 2, ([1, 2], [1, 0]), ([2], [0])))
def test_tensordot(dims, oracle):
    x, y = randn(oracle, 2, 3, 4), randn(oracle, 4, 3, 5)
    if dims == 2:
        y = randn(oracle, 3, 4, 5)
    f = lambda a, b: (rl if isinstance(a, rl.Tensor) else oracle).tensordot(a, b, dims)
    both_do(f, (x[0], y[0]), (x[1], y[1]), close)


def test_the_family(oracle):
    m, n, v, w = (randn(oracle, *s) for s in ((3, 4), (4, 5), (4,), (3,)))
    a, b, s = (randn(oracle, *s) for s in ((2, 3, 4), (2, 4, 5), (3, 5)))
    every = [p[0] for p in (m, n, v, w, a, b, s)], [p[1] for p in (m, n, v, w, a, b, s)]
    for f in (
        lambda m, n, v, w, a, b, s: m.mv(v),
        lambda m, n, v, w, a, b, s: v.dot(v),
        lambda m, n, v, w, a, b, s: v.dot(w),
        lambda m, n, v, w, a, b, s: m.inner(v),
        lambda m, n, v, w, a, b, s: v.outer(w),
        lambda m, n, v, w, a, b, s: w.addmv(m, v, beta=0.5, alpha=2),
        lambda m, n, v, w, a, b, s: m.addr(w, v, alpha=3),
        lambda m, n, v, w, a, b, s: s.baddbmm(a, b, beta=0.5),
        lambda m, n, v, w, a, b, s: s.addbmm(a, b, alpha=2),
        lambda m, n, v, w, a, b, s: (s * math.nan).addbmm(a, b, beta=0),
        lambda m, n, v, w, a, b, s: m.kron(n),
        lambda m, n, v, w, a, b, s: m.mv(w),
        lambda m, n, v, w, a, b, s: m.double().mv(v),
    ):
        both_do(f, *every, close)
    found = rl.chain_matmul(every[0][0], every[0][1], rl.ones(5, 1))
    close(found, oracle.linalg.multi_dot([every[1][0], every[1][1], oracle.ones(5, 1)]))


# ---- attention


def attention_case(oracle, q, k, v, **options):
    pairs = [randn(oracle, *s, seed=i, requires_grad=True) for i, s in enumerate((q, k, v))]
    f = lambda *x: (F if isinstance(x[0], rl.Tensor) else
                    oracle.nn.functional).scaled_dot_product_attention(*x[:3], **options.get(
                        "ours" if isinstance(x[0], rl.Tensor) else "theirs", options))  # fmt: skip
    ours, theirs = ([p[i] for p in pairs] for i in (0, 1))
    a, b = f(*ours), f(*theirs)
    close(a, b, 1e-4, 1e-5)
    (a * a).sum().backward()
    (b * b).sum().backward()
    for x, y in zip(ours, theirs):
        close(x.grad, y.grad, 1e-3, 1e-4)


def test_attention(oracle):
    attention_case(oracle, (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4))
    attention_case(oracle, (2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8), is_causal=True)
    attention_case(oracle, (2, 5, 8), (2, 7, 8), (2, 7, 8), is_causal=True)  # rectangular
    attention_case(oracle, (2, 7, 8), (2, 5, 8), (2, 5, 8), is_causal=True, scale=0.2)
    grouped = (2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)
    attention_case(oracle, *grouped, enable_gqa=True)
    attention_case(oracle, *grouped, enable_gqa=True, is_causal=True)


@pytest.mark.parametrize("shape", ((5, 7), (2, 1, 5, 7), (2, 1, 1, 7), (1, 3, 5, 7)))
def test_attention_masks(shape, oracle):
    mask = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0, :] = False  # a row that sees nothing
    shapes = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)
    for values in (mask, np.where(mask, 0.5, -np.inf).astype("float32")):
        ours, theirs = both(oracle, values)
        attention_case(oracle, *shapes, ours={"attn_mask": ours}, theirs={"attn_mask": theirs})


def test_a_row_that_sees_nothing_is_zero():
    q = rl.randn(1, 2, 4, requires_grad=True)
    mask = rl.tensor([[True, True], [False, False]])
    out = F.scaled_dot_product_attention(q, q, q, mask)
    assert out[0, 1].tolist() == [0, 0, 0, 0]
    out.sum().backward()
    assert not any(math.isnan(g) for g in q.grad.reshape(-1).tolist())


def test_attention_dropout_keeps_the_mean_and_repeats_with_the_seed():
    rl.manual_seed(3)
    q, v = rl.randn(2, 4, 64, 8), rl.ones(2, 4, 64, 8)
    after = []
    for _ in range(2):
        rl.manual_seed(7)
        after.append(F.scaled_dot_product_attention(q, q, v, dropout_p=0.5, is_causal=True))
    assert (after[0] - after[1]).abs().max().item() < 1e-5
    assert abs(after[0].mean().item() - 1) < 0.05
    assert (after[0] - 1).abs().mean().item() > 0.01
    with pytest.raises(ValueError):
        F.scaled_dot_product_attention(q, q, v, dropout_p=1.5)


def test_attention_refuses():
    q = rl.randn(2, 3, 4)
    mask = rl.ones(3, 3, dtype=rl.bool)
    for wrong in (
        lambda: F.scaled_dot_product_attention(q, q.double(), q),
        lambda: F.scaled_dot_product_attention(q, q, q, mask, is_causal=True),
        lambda: F.scaled_dot_product_attention(q, q, q, mask.long()),
        lambda: F.scaled_dot_product_attention(q[0, 0], q[0, 0], q[0, 0]),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "m, n, k", [(1, 1, 1), (2, 3, 4), (4, 4, 4), (1, 9, 7), (8, 8, 8), (5, 1, 6)]
)
def test_products_of_a_few_elements(m, n, k, dtype):
    """Every order of the operands in memory, biases of every shape, several of them."""
    random = np.random.default_rng(m * n * k)
    x, y = random.normal(0, 1, (m, k)).astype(dtype), random.normal(0, 1, (k, n)).astype(dtype)
    want = np.einsum("ik,kj->ij", x, y)
    orders = (lambda a: rl.from_numpy(a), lambda a: rl.from_numpy(np.ascontiguousarray(a.T)).t())
    biases = [random.normal(0, 1, s).astype(dtype) for s in ((n,), (1, n), (m, 1), (m, n), ())]
    for a in orders:
        for b in orders:
            np.testing.assert_allclose(rl.mm(a(x), b(y)).numpy(), want, 1e-5, 1e-5)
            for bias in biases:
                found = rl.addmm(rl.from_numpy(bias), a(x), b(y), beta=0.5, alpha=-2.0)
                np.testing.assert_allclose(found.numpy(), 0.5 * bias - 2 * want, 1e-5, 1e-5)
    wide = rl.zeros(k, 3 * n, dtype=getattr(rl, dtype))
    wide[:, n : 2 * n] = rl.from_numpy(y)
    out = rl.zeros(n, m, dtype=getattr(rl, dtype)).t()
    rl.mm(rl.from_numpy(x), wide[:, n : 2 * n], out=out)
    np.testing.assert_allclose(out.numpy(), want, 1e-5, 1e-5)
    several = rl.bmm(rl.from_numpy(np.stack([x, -x])), rl.from_numpy(np.stack([y, y])))
    np.testing.assert_allclose(several.numpy(), np.stack([want, -want]), 1e-5, 1e-5)
    nan = rl.full((n,), float("nan"), dtype=getattr(rl, dtype))
    nothing = rl.addmm(nan, rl.from_numpy(x), rl.from_numpy(y), beta=0)
    np.testing.assert_allclose(nothing.numpy(), want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "name, x, y",
    [
        ("linear", (64, 100), (64, 100)),
        ("matmul", (16, 128), (128, 96)),
        ("matmul", (3, 64, 200), (3, 200, 100)),
    ],
)
def test_a_shape_has_the_same_bits_in_every_call(name, x, y):
    """The first one, later ones, and those of a compiled graph take one library."""
    function = F.linear if name == "linear" else rl.matmul
    x, y = rl.randn(*x), rl.randn(*y)
    compiled = rl.compile(lambda x, y: function(x, y))
    first, second = function(x, y).tolist(), function(x, y).tolist()
    assert first == second == compiled(x, y).tolist() == compiled(x, y).tolist()
