"""Complex tensors: made, shown, taken to pieces and computed with as in PyTorch, with gradients.
What is not there is refused with the operator's name: nothing is silently wrong.
"""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops import TABLE
from rushlight.ops.samples import t

from ..ops.materialize import arguments, array, call, many, oracle_call

# What PyTorch has for complex numbers and this build does not.
NOT_THERE = {
    "col2im", "cummax", "cummin", "embedding", "im2col", "index_reduce", "logaddexp",
    "logcumsumexp", "logsumexp", "scatter_reduce", "linalg_cholesky_ex", "linalg_lu_solve",
    "linalg_qr", "linalg_solve_triangular", "linalg_svdvals",
}  # fmt: skip
MORE = {"convolution"}  # what it has and ATen's operator alone does not


def complex_array(x, seed):
    """The sample's numbers with imaginary parts, where it is of float32."""
    if x.dtype != "float32":
        return array(x, seed)
    return np.asarray(array(x, seed) + 1j * array(x, seed + 5000), "complex64")


def mine(x, seed):
    return rl.from_numpy(complex_array(x, seed))


def has_float32(values):
    return any(
        isinstance(v, t) and v.dtype == "float32"
        for a in values
        for v in (a if isinstance(a, list) else (a,))
    )


OPERATORS = [
    op
    for op in TABLE.values()
    if any(has_float32((*s.args, *s.kwargs.values())) for s in op.samples)
]


@pytest.mark.oracle
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_every_operator_is_right_or_refuses(op, oracle):
    theirs = lambda x, seed: oracle.from_numpy(complex_array(x, seed))
    for sample in op.samples:
        if not has_float32((*sample.args, *sample.kwargs.values())):
            continue
        if "bfloat16" in str(sample):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = oracle_call(oracle, op, arguments(op, sample, theirs))
        except Exception:
            want = "refused"
        if want is None:
            continue
        try:
            got = call(op, arguments(op, sample, mine))
        except (NotImplementedError, RuntimeError, TypeError) as error:
            assert f"[{op.name}" in str(error) or "[" in str(error)
            cast = "dtype" in sample.kwargs  # to a real dtype
            assert want == "refused" or op.name in NOT_THERE or cast, (sample, error)
            continue
        assert op.name not in NOT_THERE
        if isinstance(want, str):
            assert op.name in MORE, f"PyTorch refuses {op.name}({sample})"
            continue
        for x, y in zip(many(got), many(want), strict=True):
            y = y.resolve_conj()
            assert (x.dtype.name, tuple(x.shape)) == (str(y.dtype).split(".")[1], tuple(y.shape))
            x, y = x.detach().numpy(), y.detach().numpy()
            assert np.allclose(x, y, rtol=2e-4, atol=2e-4, equal_nan=True), sample


def operands(lib):
    rng = np.random.default_rng(5)
    make = lambda *shape: rng.uniform(-1.5, 1.5, (*shape, 2)) @ np.array([1, 1j])
    x, y, m = (make(*s).astype("complex64") for s in ((3, 4), (3, 4), (4, 5)))
    w = make(4)
    r = rng.uniform(-1.5, 1.5, (3, 4)).astype("float32")
    tensor = lib.from_numpy
    leaves = [tensor(a).requires_grad_() for a in (x, y, m, r, w)]
    return (*leaves, tensor(r > 0), tensor(np.array([0, 2])))


CALLS = {
    "add": lambda L, x, y, m, r, w, mask, i: x + y - r + 1 - 2j,
    "mul": lambda L, x, y, m, r, w, mask, i: x * y * 2,
    "real times complex": lambda L, x, y, m, r, w, mask, i: r * x + r * (1 - 2j),
    "complex number": lambda L, x, y, m, r, w, mask, i: (1 - 2j) * x - (3j - x),
    "div": lambda L, x, y, m, r, w, mask, i: x / y + x / 2 + 1 / y + r / x,
    "abs": lambda L, x, y, m, r, w, mask, i: abs(x) + L.abs(y),
    "abs at 0": lambda L, x, y, m, r, w, mask, i: (x * 0).abs(),
    "angle": lambda L, x, y, m, r, w, mask, i: L.angle(x) + L.angle(r),
    "conj": lambda L, x, y, m, r, w, mask, i: x.conj() * y + L.conj(r),
    "exp log": lambda L, x, y, m, r, w, mask, i: x.exp() + y.log(),
    "roots": lambda L, x, y, m, r, w, mask, i: x.sqrt() + y.rsqrt() + x.reciprocal(),
    "sin": lambda L, x, y, m, r, w, mask, i: x.sin() + y.cos() + x.tan(),
    "sinh": lambda L, x, y, m, r, w, mask, i: x.sinh() + y.cosh() + x.tanh(),
    "sigmoid": lambda L, x, y, m, r, w, mask, i: x.sigmoid(),
    "powers": lambda L, x, y, m, r, w, mask, i: x**2 + y**3 + x**0.5 + y**1.5 + 2**x,
    "complex powers": lambda L, x, y, m, r, w, mask, i: x**y + x ** (1 + 1j) + r.abs() ** x,
    "sums": lambda L, x, y, m, r, w, mask, i: x.sum(0) + y.mean(0) + x.sum() + x.cumsum(0)[1],
    "norms": lambda L, x, y, m, r, w, mask, i: x.norm() + x.norm(dim=1).sum() + y.var() + x.std(),
    "products": lambda L, x, y, m, r, w, mask, i: x @ m,
    "vectors": lambda L, x, y, m, r, w, mask, i: L.vdot(x[0], y[0]) + L.dot(x[1], y[2]),
    "batches": lambda L, x, y, m, r, w, mask, i: x.expand(2, 3, 4) @ m.expand(2, 4, 5),
    "addmm": lambda L, x, y, m, r, w, mask, i: L.addmm(x[:, :1], x, m, beta=2, alpha=1j),
    "linear": lambda L, x, y, m, r, w, mask, i: L.nn.functional.linear(x, m.t()),
    "einsum": lambda L, x, y, m, r, w, mask, i: L.einsum("ij,jk->ik", x, m),
    "adjoint": lambda L, x, y, m, r, w, mask, i: x.mH @ y + y.H @ x,
    "where": lambda L, x, y, m, r, w, mask, i: L.where(mask, x, y) + L.where(mask, x, 0.0),
    "masked_fill": lambda L, x, y, m, r, w, mask, i: x.masked_fill(mask, 0.5j),
    "cat": lambda L, x, y, m, r, w, mask, i: L.cat([x, y, r]),
    "stack": lambda L, x, y, m, r, w, mask, i: L.stack([x, y], -1),
    "index": lambda L, x, y, m, r, w, mask, i: x[i] + y.index_select(0, i) + x[[0, 1]],
    "mask": lambda L, x, y, m, r, w, mask, i: x[mask],
    "gather": lambda L, x, y, m, r, w, mask, i: x.gather(0, i[:, None].expand(2, 4)),
    "views": lambda L, x, y, m, r, w, mask, i: x[1:, ::2].t() + y[:2, 1:3].t().contiguous(),
    "moves": lambda L, x, y, m, r, w, mask, i: x.flip(0) + y.roll(1, 0) + x.tril() + y.triu(),
    "repeat": lambda L, x, y, m, r, w, mask, i: x.repeat(2, 1) + y.tile((2, 1)),
    "pad": lambda L, x, y, m, r, w, mask, i: L.nn.functional.pad(x, (1, 1)),
    "wider": lambda L, x, y, m, r, w, mask, i: x + w,
    "to": lambda L, x, y, m, r, w, mask, i: x.to(L.complex128) + r.to(L.complex64),
    "real": lambda L, x, y, m, r, w, mask, i: x.real * y.imag,
    "views of parts": lambda L, x, y, m, r, w, mask, i: L.view_as_real(x) + L.view_as_real(y),
    "view_as_complex": lambda L, x, y, m, r, w, mask, i: L.view_as_complex(L.stack([r, r], -1)),
    "complex": lambda L, x, y, m, r, w, mask, i: L.complex(r, r[0]) + L.polar(r.abs(), r),
    "addcmul": lambda L, x, y, m, r, w, mask, i: L.addcmul(x, x, y, value=2),
    "lerp": lambda L, x, y, m, r, w, mask, i: L.lerp(x, y, 0.3) + L.lerp(x, y, 0.7),
    "sgn": lambda L, x, y, m, r, w, mask, i: L.sgn(x) + L.sgn(r.detach()),
    "integers": lambda L, x, y, m, r, w, mask, i: x * L.arange(4) + L.tensor([True]),
    "scalar tensor": lambda L, x, y, m, r, w, mask, i: r * w[0] + x * w[1],
    "conv": lambda L, x, y, m, r, w, mask, i: L.nn.functional.conv1d(x[None, :1], y[None, :1, :2]),
    "in place": lambda L, x, y, m, r, w, mask, i: (x * 1).add_(y).mul_(r).sub_(1j).div_(y),
    "copies": lambda L, x, y, m, r, w, mask, i: (x * 1).copy_(r) + (x * 1).fill_(2j),
    "assignment": lambda L, x, y, m, r, w, mask, i: assigned(x * 1, y),
    "parts written": lambda L, x, y, m, r, w, mask, i: parts_written(x * 1, r),
    "loss": lambda L, x, y, m, r, w, mask, i: ((x - y).abs() ** 2).mean(),
}


def assigned(x, y):
    x[0] = y[0]
    x[1, 2] = 3j
    x[2] = 1.5
    return x


def parts_written(x, r):
    x.real.mul_(r)
    x.imag.copy_(r)
    return x


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name, oracle):
    found = []
    for lib in (rl, oracle):
        given = operands(lib)
        out = CALLS[name](lib, *given)
        facts = str(out.dtype).split(".")[1], tuple(out.shape), out.requires_grad
        plain = out.detach().conj() if out.is_complex() else out.detach()
        loss = (out * plain).sum()
        (loss.real if loss.is_complex() else loss).backward()
        grads = [g.grad for g in given[:5]]
        whole = [None if g is None else np.asarray(g.resolve_conj().numpy()) for g in grads]
        found.append((facts, out.detach().resolve_conj().numpy(), whole))
    (facts, out, grads), (want_facts, want, want_grads) = found
    assert facts == want_facts
    assert np.allclose(out, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    for g, h in zip(grads, want_grads, strict=True):
        assert (g is None) == (h is None)
        if g is not None:
            assert g.dtype == h.dtype and np.allclose(g, h, rtol=1e-3, atol=1e-4)


def test_gradients_of_gradients(oracle):
    found = []
    for lib in (rl, oracle):
        x = lib.tensor([1 + 2j, -0.5 + 1j], dtype=lib.complex128, requires_grad=True)
        (g,) = lib.autograd.grad((x * x * x).abs().sum(), x, create_graph=True)
        (h,) = lib.autograd.grad((g * g.conj()).real.sum(), x)
        found.append((g.detach().resolve_conj().numpy(), h.resolve_conj().numpy()))
    for a, b in zip(*found, strict=True):
        assert np.allclose(a, b)


def test_making_and_reading(oracle):
    for lib in (rl, oracle):
        made = [
            lib.tensor([1 + 2j, 3]),
            lib.tensor(1j),
            lib.tensor([1, 2], dtype=lib.complex64),
            lib.tensor([1.5], dtype=complex),
            lib.full((2,), 1 - 1j),
            lib.zeros(2, dtype=lib.complex64),
            lib.ones(2, 1, dtype=lib.complex128),
            lib.eye(2, dtype=lib.complex64),
            lib.zeros_like(lib.tensor([1j])),
            lib.full_like(lib.tensor([1j]), 2j),
            lib.scalar_tensor(1j, dtype=lib.complex64),
            lib.as_tensor(np.array([1j, 2])),
        ]
        facts = [(str(x.dtype).split(".")[1], tuple(x.shape), x.tolist()) for x in made]
        x = made[0]
        facts.append((x.is_complex(), x.dtype.is_complex, x.dtype.is_floating_point, x.itemsize))
        facts.append((x[0].item(), complex(x[0]), x.element_size(), lib.is_complex(x)))
        facts.append((x.real.tolist(), x.imag.tolist(), (x == x).tolist(), (x != 3).tolist()))
        facts.append((float(lib.tensor(2 + 0j)), int(lib.tensor(2 + 0j)), bool(lib.tensor(1j))))
        facts.append([str(lib.promote_types(a, b)).split(".")[1] for a, b in (
            (lib.complex64, lib.float64), (lib.int64, lib.complex64), (lib.float16, lib.complex64),
            (lib.complex64, lib.complex128))])  # fmt: skip
        facts.append(str(lib.result_type(lib.ones(2, dtype=lib.float64), 1j)).split(".")[1])
        names = lib.complex64.to_real(), lib.float64.to_complex(), lib.cfloat, lib.cdouble
        facts.append([str(d).split(".")[1] for d in names])
        if lib is rl:
            mine = facts
    assert mine == facts


def test_random_numbers():
    rl.manual_seed(0)
    x = rl.randn(20000, dtype=rl.complex64)
    assert abs(float((x.abs() ** 2).mean()) - 1) < 0.05 and abs(complex(x.mean())) < 0.03
    u = rl.rand(1000, dtype=rl.complex128)
    assert 0 <= float(u.real.min()) and float(u.imag.max()) < 1 and u.dtype is rl.complex128
    assert rl.randn_like(x).dtype is rl.complex64


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.tensor([1 + 2j, 3 - 0.5j]),
        lambda lib: lib.tensor(1j),
        lambda lib: lib.tensor([[1.5 + 1e-5j, 1e6 + 2j], [0, 1j]], dtype=lib.complex128),
        lambda lib: lib.zeros(2, dtype=lib.complex64),
        lambda lib: lib.tensor([float("nan") + 1j, complex("inf")]),
        lambda lib: lib.empty(0, dtype=lib.complex64),
        lambda lib: lib.tensor([1 + 2j], requires_grad=True),
        lambda lib: lib.arange(20) * 1j,
        lambda lib: lib.arange(3000) * (1 + 1j),
    ],
)
def test_printing(make, oracle):
    assert repr(make(rl)) == repr(make(oracle)).replace("torch.", "rushlight.")


def test_borders(tmp_path, oracle):
    x = rl.tensor([[1 + 2j, 3], [4j, 5 - 1j]])
    shared = x.numpy()
    shared[0, 0] = 7j
    assert shared.dtype == np.complex64 and x[0, 0].item() == 7j
    assert rl.from_numpy(shared).data_ptr() == x.data_ptr()
    assert np.asarray(x.t()).tolist() == x.t().tolist()
    assert oracle.from_dlpack(x).tolist() == x.tolist()
    assert rl.from_dlpack(oracle.from_dlpack(x)).dtype is rl.complex64
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert again.tolist() == x.tolist() and again.dtype is x.dtype
    for dtype in ("complex64", "complex128"):
        mine, theirs = io.BytesIO(), tmp_path / dtype
        rl.save({"x": x.to(getattr(rl, dtype))}, mine)
        mine.seek(0)
        assert oracle.load(mine)["x"].tolist() == x.tolist()
        oracle.save({"x": oracle.tensor(x.tolist(), dtype=getattr(oracle, dtype))}, theirs)
        back = rl.load(theirs)["x"]
        assert back.tolist() == x.tolist() and back.dtype is getattr(rl, dtype)


def test_what_views_share():
    x = rl.zeros(3, dtype=rl.complex64)
    x.real[1] = 2
    x.imag = rl.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [1j, 2 + 2j, 3j]
    pairs = rl.view_as_real(x)
    assert pairs.data_ptr() == x.data_ptr() and pairs.dtype is rl.float32
    pairs[0, 0] = 5
    assert x[0].item() == 5 + 1j and rl.view_as_complex(pairs).data_ptr() == x.data_ptr()
    assert x.view(rl.float32).tolist() == [5.0, 1.0, 2.0, 2.0, 0.0, 3.0]
    assert x._version == pairs._version > 0


WRONG = {
    "imag of a real": lambda lib: lib.ones(2).imag,
    "view_as_real of a real": lambda lib: lib.view_as_real(lib.ones(2)),
    "view_as_complex of three": lambda lib: lib.view_as_complex(lib.ones(3)),
    "view_as_complex of ints": lambda lib: lib.view_as_complex(lib.ones(2, dtype=lib.int64)),
    "view_as_complex of columns": lambda lib: lib.view_as_complex(lib.ones(2, 3).t()),
    "complex of two dtypes": lambda lib: lib.complex(lib.ones(2), lib.ones(2, dtype=lib.float64)),
    "polar of two dtypes": lambda lib: lib.polar(lib.ones(2), lib.ones(2, dtype=lib.float64)),
    "order": lambda lib: lib.tensor([1j]) < lib.tensor([2j]),
    "sort": lambda lib: lib.tensor([1j, 2]).sort(),
    "max": lambda lib: lib.tensor([1j, 2]).max(),
    "floor": lambda lib: lib.tensor([1j]).floor(),
    "sign": lambda lib: lib.tensor([1j]).sign(),
    "float of complex": lambda lib: float(lib.tensor(1j)),
    "int of complex": lambda lib: int(lib.tensor(1j)),
    "real in place": lambda lib: lib.ones(2).add_(1j),
    "real out": lambda lib: lib.add(lib.ones(2), 1j, out=lib.ones(2)),
    "fill a real": lambda lib: lib.ones(2).fill_(1j),
    "backward of a complex": lambda lib: lib.tensor(1j, requires_grad=True).mul(2).backward(),
    "mm of two dtypes": lambda lib: lib.ones(2, 2, dtype=lib.complex64) @ lib.ones(2, 2),
    "index": lambda lib: [1, 2][lib.tensor(1j)],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name, oracle):
    with pytest.raises(Exception) as theirs:
        WRONG[name](oracle)
    kind = next(k for k in (TypeError, ValueError, RuntimeError) if issubclass(theirs.type, k))
    with pytest.raises(kind):
        WRONG[name](rl)


def test_a_cast_that_loses_the_imaginary_part_warns():
    x = rl.tensor([1 + 2j])
    with pytest.warns(UserWarning, match="imaginary part"):
        assert x.to(rl.float32).tolist() == [1.0]
    assert x.bool().tolist() == [True] and rl.tensor([0j]).bool().tolist() == [False]


def test_on_the_meta_device():
    x = rl.empty(3, 4, dtype=rl.complex64, device="meta", requires_grad=True)
    out = (x * x.conj() / (x + 1j)).exp().sum(1)
    assert out.dtype is rl.complex64 and tuple(out.shape) == (3,)
    assert x.abs().dtype is rl.float32 and (x @ x.mT).dtype is rl.complex64
    out.abs().sum().backward()
    assert x.grad.dtype is rl.complex64 and x.grad.device.type == "meta"


def test_compiled_functions_leave_complex_tensors_to_eager_mode():
    def f(x):
        y = (x * 2).relu()
        return rl.complex(y, y + 1) * 1j, y.sum()

    x = rl.tensor([1.0, -2.0])
    for got, want in zip(rl.compile(f)(x), f(x), strict=True):
        assert got.tolist() == want.tolist()
    assert rl.compile(lambda z: z * z)(rl.tensor([1j])).tolist() == [-1 + 0j]
    with pytest.raises(Exception, match="complex tensor"):
        rl.compile(lambda z: z * z, fullgraph=True)(rl.tensor([1j]))


def test_complex_numbers_into_real_tensors():
    """They are refused, never half taken: writes along an index once called themselves for ever."""
    x, at = rl.ones(3), rl.tensor([1])
    for call_ in (
        lambda: x.index_fill(0, at, 2j),
        lambda: rl.tensor([True, False]).index_fill(0, at, 2j),
        lambda: rl.tensor([1, 2]).scatter(0, at, 2j),
        lambda: x.index_add(0, at, rl.ones(1), alpha=2j),
        lambda: x.index_copy(0, at, rl.ones(1, dtype=rl.complex64)),
        lambda: x.scatter(0, at, rl.ones(1, dtype=rl.complex64)),
        lambda: x.fill_(2j),
        lambda: x.masked_fill(x > 0, 2j),
        lambda: rl.full((2,), 1j, dtype=rl.int64),
    ):
        with pytest.raises(RuntimeError, match="fit"):
            call_()
    assert rl.ones(2).fill_(2 + 0j).tolist() == [2.0, 2.0]
    assert rl.full((2,), 1j, dtype=rl.bool).tolist() == [True, True]
    assert rl.tensor([False]).fill_(1j).tolist() == [True]


@pytest.mark.parametrize("values", [[1.0, 2.0], [1, 2], [True, True]])
def test_real_tensors_with_complex_numbers(oracle, values):
    z = 0.5 + 1j
    for f in (
        lambda x: x == z,
        lambda x: x != z,
        lambda x: x == 1 + 0j,
        lambda x: x**z,
        lambda x: z**x,
        lambda x: x / z,
        lambda x: z / x,
    ):
        ours, theirs = f(rl.tensor(values)), f(oracle.tensor(values))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
