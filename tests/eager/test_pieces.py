"""Splits, stacks, grids, reductions of several signatures, factories: values, dtypes and strides as
the oracle's."""

import numpy as np
import pytest

import rushlight as rl

from .both import both_do, counted, numpy_of, randn, same, same_layout

CALLS = {
    "split": lambda lib, x: x.split(3, 1),
    "split sizes": lambda lib, x: lib.split(x, [1, 3], 0),
    "split_with_sizes": lambda lib, x: x.split_with_sizes([2, 4], 1),
    "bad split": lambda lib, x: x.split([1, 1], 0),
    "chunk": lambda lib, x: x.chunk(4, 1),
    "chunk none": lambda lib, x: x[:0].chunk(3),
    "tensor_split": lambda lib, x: x.tensor_split(4, 1),
    "tensor_split at": lambda lib, x: lib.tensor_split(x, (1, 4), dim=1),
    "tensor_split past": lambda lib, x: lib.tensor_split(x, (3, 9, 2), dim=1),
    "hsplit": lambda lib, x: lib.hsplit(x, 2),
    "hsplit one dim": lambda lib, x: lib.hsplit(x[0], [2, 3]),
    "bad hsplit": lambda lib, x: lib.hsplit(x, 4),
    "vsplit": lambda lib, x: x.vsplit(2),
    "bad vsplit": lambda lib, x: x[0].vsplit(2),
    "dsplit": lambda lib, x: x.reshape(2, 2, 6).dsplit(3),
    "unbind": lambda lib, x: lib.unbind(x, 1),
    "hstack": lambda lib, x: lib.hstack([x, x[:, :1]]),
    "hstack vectors": lambda lib, x: lib.hstack((x[0], x[1], lib.tensor(5.0))),
    "vstack": lambda lib, x: lib.vstack((x[0], x)),
    "row_stack": lambda lib, x: lib.row_stack((x[0], x)),
    "dstack": lambda lib, x: lib.dstack((x, x)),
    "column_stack": lambda lib, x: lib.column_stack((x[:, 0], x)),
    "concat": lambda lib, x: lib.concat((x, x), dim=1),
    "concatenate": lambda lib, x: lib.concatenate((x, x)),
    "nothing to stack": lambda lib, x: lib.hstack([]),
    "atleast_1d": lambda lib, x: lib.atleast_1d(lib.tensor(2.0)),
    "atleast_2d": lambda lib, x: lib.atleast_2d(x[0], lib.tensor(2.0)),
    "atleast_3d": lambda lib, x: lib.atleast_3d(x[0], x, lib.tensor(2.0)),
    "broadcast_tensors": lambda lib, x: lib.broadcast_tensors(x[:, :1], x[:1]),
    "broadcast_to": lambda lib, x: lib.broadcast_to(x, (2, 4, 6)),
    "meshgrid": lambda lib, x: lib.meshgrid(x[0], x[:, 0], indexing="ij"),
    "meshgrid xy": lambda lib, x: lib.meshgrid(x[0], x[:, 0], x[0, :2], indexing="xy"),
    "cartesian_prod": lambda lib, x: lib.cartesian_prod(x[0], x[0, :2]),
    "block_diag": lambda lib, x: lib.block_diag(x, x[0], lib.tensor(3.0)),
    "movedim": lambda lib, x: x.reshape(2, 2, 6).movedim((0, 1), (2, 0)),
    "moveaxis": lambda lib, x: lib.moveaxis(x.reshape(2, 2, 6), 0, -1),
    "swapaxes": lambda lib, x: lib.swapaxes(x, axis0=0, axis1=1),
    "ravel": lambda lib, x: x.t().ravel(),
    "unflatten": lambda lib, x: x.unflatten(1, (2, -1)),
    "bad unflatten": lambda lib, x: x.unflatten(1, (4, 2)),
    "diagonal": lambda lib, x: x.diagonal(1),
    "linalg diagonal": lambda lib, x: lib.linalg.diagonal(x.reshape(2, 2, 6)),
    "unfold": lambda lib, x: x.unfold(1, 3, 2),
    "bad unfold": lambda lib, x: x.unfold(1, 9, 2),
    "as_strided": lambda lib, x: x.as_strided((2, 2), (1, 6), 2),
    "as_strided outside": lambda lib, x: x.as_strided((9, 9), (6, 1)),
    "squeeze two": lambda lib, x: x[None, :, None].squeeze((0, 2)),
    "narrow": lambda lib, x: x.narrow(1, -3, 2),
    "bad narrow": lambda lib, x: x.narrow(1, 4, 3),
    "narrow out": lambda lib, x: x.narrow(1, 7, 0),
    "H": lambda lib, x: x.H,
    "adjoint": lambda lib, x: x.adjoint(),
    "view int32": lambda lib, x: x.view(lib.int32),
    "view bytes": lambda lib, x: x.view(lib.uint8),
    "view wide": lambda lib, x: x.view(lib.float64),
    "bad view": lambda lib, x: x[:, :3].view(lib.float64),
    "repeat": lambda lib, x: x.repeat(2, 1, 2),
    "tile": lambda lib, x: x.tile((2,)),
    "roll": lambda lib, x: lib.roll(x, 2, 1),
    "roll flat": lambda lib, x: x.roll(-3),
    "flip": lambda lib, x: x.flip(0, 1),
    "fliplr": lambda lib, x: lib.fliplr(x),
    "flipud": lambda lib, x: x.flipud(),
    "rot90": lambda lib, x: x.rot90(1, [0, 1]),
    "triu of t": lambda lib, x: x.t().triu(1),
    "trace": lambda lib, x: lib.trace(x),
    "diag": lambda lib, x: lib.diag(x[0], -1),
    "diagflat": lambda lib, x: lib.diagflat(x[:2, :2]),
    "diag_embed": lambda lib, x: lib.diag_embed(x, 1, 0, 2),
    "cdist": lambda lib, x: lib.cdist(x, x[:2]),
    "dist": lambda lib, x: lib.dist(x, x[:1], 3),
    "std_mean": lambda lib, x: lib.std_mean(x, 1, keepdim=True),
    "var_mean": lambda lib, x: lib.var_mean(x, correction=0),
    "var flag": lambda lib, x: x.var(False),
    "var of two": lambda lib, x: lib.var(x, (0, 1), correction=2),
    "aminmax": lambda lib, x: lib.aminmax(x, dim=1),
    "max of two": lambda lib, x: lib.max(x, other=x.flip(0)),
    "norm": lambda lib, x: lib.norm(x, p=3, dim=1),
    "norm inf": lambda lib, x: x.norm(float("-inf"), 0),
    "vector_norm": lambda lib, x: lib.linalg.vector_norm(x, 1, dim=1, keepdim=True),
    "linalg norm": lambda lib, x: lib.linalg.norm(x),
    "matrix norm 1": lambda lib, x: lib.linalg.norm(x, 1),
    "matrix norm inf": lambda lib, x: lib.linalg.matrix_norm(x, -float("inf")),
    "expit": lambda lib, x: lib.special.expit(x),
    "polygamma": lambda lib, x: lib.special.polygamma(1, x.abs() + 1),
    "logit": lambda lib, x: lib.special.logit(x / 30, eps=0.1),
    "special logsumexp": lambda lib, x: lib.special.logsumexp(x, 1),
    "count_nonzero": lambda lib, x: lib.count_nonzero(x, dim=0),
    "all uint8": lambda lib, x: x.to(lib.uint8).all(1),
    "any dims": lambda lib, x: lib.any(x, (0, 1)),
    "renorm": lambda lib, x: x.renorm(2, 0, 5.0),
    "nansum": lambda lib, x: lib.nansum(x / x, 1),
    "nanmean": lambda lib, x: lib.nanmean(x / x),
    "isreal": lambda lib, x: lib.isreal(x),
    "new_full": lambda lib, x: x.new_full((2, 3), 7, dtype=lib.int32),
    "new_tensor": lambda lib, x: x.new_tensor([1, 2]),
    "zeros_like": lambda lib, x: lib.zeros_like(x.t(), dtype=lib.int64),
    "full_like": lambda lib, x: lib.full_like(x.t(), 2.5),
    "linspace": lambda lib, x: lib.linspace(-1, 2, 7),
    "linspace one": lambda lib, x: lib.linspace(3, 9, 1),
    "linspace ints": lambda lib, x: lib.linspace(0, 10, 4, dtype=lib.int64),
    "eye": lambda lib, x: lib.eye(2, 3, dtype=lib.int32),
    "tril_indices": lambda lib, x: lib.tril_indices(3, 4, 1),
    "triu_indices": lambda lib, x: lib.triu_indices(3, 4, -1),
    "arange out": lambda lib, x: lib.arange(3, out=lib.empty(0, dtype=lib.int64)),
    "tuple of zeros": lambda lib, x: lib.zeros((2, 3), out=lib.empty(0)),
    "floordiv": lambda lib, x: (x // 4, 25 // (x + 1), x % 5, 7 % (x + 1)),
    "int floordiv": lambda lib, x: (x.long() // 4, -x.long() // 4, x.long() % -5),
    "by zero": lambda lib, x: x.long() // 0,
    "rest by zero": lambda lib, x: x.long() % x.long(),
    "shifts": lambda lib, x: (x.long() << 2, x.long() >> 1, 1 << x.long(), ~x.long()),
    "bits": lambda lib, x: (x.long() & 5, x.long() | 8, x.long() ^ 7),
    "powers": lambda lib, x: (x**2, 2**x, x.long() ** 2, 2 ** x.long(), x**x, x.long() ** x.long()),
    "negative power": lambda lib, x: x.long() ** -1,
    "rounding": lambda lib, x: lib.div(x, 4, rounding_mode="floor"),
    "bad rounding": lambda lib, x: lib.div(x, 4, rounding_mode="up"),
    "clamp nothing": lambda lib, x: x.clamp(),
}  # fmt: skip


def listed(v):
    return v if isinstance(v, (tuple, list)) else (v,)


def alike(a, b, context):
    a, b = listed(a), listed(b)
    assert len(a) == len(b), context
    for x, y in zip(a, b):
        same_layout(x, y, context)
        assert str(x.dtype).rpartition(".")[2] == str(y.dtype).rpartition(".")[2], context
        np.testing.assert_allclose(numpy_of(x), numpy_of(y), rtol=2e-6, atol=1e-6, err_msg=context)


@pytest.mark.parametrize("what", CALLS)
def test_as_the_oracle(what, oracle):
    ours, theirs = counted(oracle, 4, 6, dtype="float32")
    both_do(lambda lib, x: CALLS[what](lib, x), (rl, ours), (oracle, theirs), alike, what)


@pytest.mark.parametrize("name", ["floor_divide_", "remainder_", "pow_", "fmod_"])
def test_in_place_slots(name, oracle):
    ours, theirs = counted(oracle, 5, dtype="int64")
    for x in (ours, theirs):
        x += 3
        x //= 2
        x *= 3
        x %= 7
        x **= 2
        x <<= 2
        x |= 1
        x ^= 5
        x &= 127
        x >>= 1
        getattr(x, name)(2)
    same(ours, theirs, name)


@pytest.mark.parametrize("dim", [0, 1])
def test_windows_add_their_gradients_up(dim, oracle):
    for size, step in ((3, 1), (2, 2), (2, 3), (4, 2)):
        ours, theirs = randn(oracle, 7, 6, requires_grad=True)
        for x in (ours, theirs):
            y = x.unfold(dim, size, step)
            (y * y).sum().backward()
        np.testing.assert_allclose(numpy_of(ours.grad), numpy_of(theirs.grad), rtol=1e-5)


def test_writes_through_diagonals_reach_the_tape(oracle):
    ours, theirs = randn(oracle, 3, 3, requires_grad=True)
    for x in (ours, theirs):
        y = x * 2
        y.diagonal().mul_(5)
        y.narrow(0, 1, 2).add_(1)
        (y * y).sum().backward()
    np.testing.assert_allclose(numpy_of(ours.grad), numpy_of(theirs.grad), rtol=1e-5)


def test_views_in_place_change_the_tensor(oracle):
    for step in (
        lambda x: x.unsqueeze_(1), lambda x: x.t_(), lambda x: x.transpose_(0, 1),
        lambda x: x[:, :1].squeeze_(1), lambda x: x.swapaxes_(0, 1),
    ):  # fmt: skip
        ours, theirs = counted(oracle, 3, 4, dtype="float32")
        a, b = step(ours), step(theirs)
        same_layout(a, b)
        same(a, b)
    with pytest.raises(RuntimeError, match="leaf"):
        rl.ones(2, 3, requires_grad=True).t_()


def test_products_of_rows_with_zeros(oracle):
    rows = [[1.0, 2.0, 3.0], [1.0, 0.0, 3.0], [0.0, 0.0, 3.0]]
    ours, theirs = (lib.tensor(rows, requires_grad=True) for lib in (rl, oracle))
    for x in (ours, theirs):
        x.prod(1).sum().backward()
    same(ours.grad, theirs.grad)


def test_norms_at_zero_have_no_slope(oracle):
    for p in (0.5, 1, 2, 3, float("inf")):
        ours, theirs = (lib.zeros(3, requires_grad=True) for lib in (rl, oracle))
        for x in (ours, theirs):
            x.norm(p).backward()
        assert np.isfinite(numpy_of(ours.grad)).all(), p
        np.testing.assert_allclose(numpy_of(ours.grad), numpy_of(theirs.grad), err_msg=str(p))
