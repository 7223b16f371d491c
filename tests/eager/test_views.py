"""Views and strides: layouts as the oracle's, writes through views, overlaps, `out=`."""

import numpy as np
import pytest

import rushlight as rl
from rushlight import _core

from .both import both, both_do, counted, raises, randn, same, same_layout

VIEWS = {
    "int": lambda x: x[1],
    "negative int": lambda x: x[-1],
    "slice": lambda x: x[1:3],
    "step": lambda x: x[::2],
    "offset step": lambda x: x[1::3],
    "negative bounds": lambda x: x[-3:-1],
    "past the end": lambda x: x[2:100],
    "empty": lambda x: x[3:1],
    "none": lambda x: x[None],
    "inner none": lambda x: x[:, None, 1:],
    "ellipsis": lambda x: x[..., 1],
    "ellipsis none": lambda x: x[..., None],
    "all": lambda x: x[...],
    "mixed": lambda x: x[1, ..., ::2],
    "t": lambda x: x.transpose(0, 1),
    "t negative": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute negative": lambda x: x.permute(-1, 0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unsqueeze last": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze dim": lambda x: x[:, :1].squeeze(1),
    "squeeze other": lambda x: x.squeeze(0),
    "expand": lambda x: x[:, :, :1].expand(-1, -1, 7),
    "expand lead": lambda x: x.expand(2, *x.shape),
    "view": lambda x: x.view(-1, 5),
    "view flat": lambda x: x.view(-1),
    "view of t": lambda x: x.transpose(0, 1).view(-1),
    "view of step": lambda x: x[:, :, ::2].view(4, -1),
    "reshape of t": lambda x: x.transpose(0, 1).reshape(-1),
    "reshape of t, split": lambda x: x.transpose(1, 2).reshape(2, 2, 5, 3),
    "reshape of expand": lambda x: x[:, :1].expand(4, 6, 5).reshape(24, 5),
    "flatten": lambda x: x.flatten(1),
    "flatten t": lambda x: x.transpose(0, 2).flatten(0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(3)[-1],
    "unbind": lambda x: x.unbind(1)[2],
    "mT": lambda x: x.mT,
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "clone keeps strides": lambda x: x.permute(2, 0, 1).clone(),
    "clone of expand": lambda x: x[:, :1].expand(4, 6, 5).clone(),
    "clone of step": lambda x: x[:, ::2].clone(),
    "add keeps strides": lambda x: x.permute(2, 0, 1) + 1,
    "add of mixed": lambda x: x.permute(2, 0, 1) + x.permute(2, 0, 1).contiguous(),
    "add broadcast permuted": lambda x: x.permute(1, 2, 0) * x.permute(1, 2, 0)[:1],
    "neg of step": lambda x: -x[:, :, ::2],
    "neg of expand": lambda x: -(x[:, :1].expand(4, 6, 5)),
    "to keeps strides": lambda x: x.permute(2, 0, 1).double(),
    "sum keeps order": lambda x: x.permute(2, 0, 1).sum(0),
    "sum keepdim": lambda x: x.permute(2, 0, 1).sum((0, 2), keepdim=True),
    "detach": lambda x: x.permute(2, 0, 1).detach(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_layouts_are_the_oracles(name, oracle):
    ours, theirs = counted(oracle, 4, 3, 5)

    def check(a, b, context):
        same_layout(a, b, context)
        same(a, b, context)

    both_do(VIEWS[name], (ours,), (theirs,), check, name)


SHAPES = [(), (1,), (0,), (1, 1), (0, 3), (3, 0), (1, 3, 1), (2, 0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes(shape, oracle):
    ours, theirs = counted(oracle, *shape)
    programs = {
        "flat": lambda x: x.reshape(-1) if x.numel() else x.reshape(x.numel()),
        "flatten": lambda x: x.flatten(),
        "unsqueeze": lambda x: x.unsqueeze(0),
        "squeeze": lambda x: x.squeeze(),
        "add": lambda x: x + 1,
        "add self": lambda x: x + x,
        "sum": lambda x: x.sum(),
        "sum keepdim": lambda x: x.sum(tuple(range(x.dim())), keepdim=True),
        "sum last": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(),
        "amax": lambda x: x.amax(),
        "softmax": lambda x: x.softmax(-1),
        "first": lambda x: x[0],
        "item": lambda x: x.sum().exp(),
        "t": lambda x: x.t(),
        "transpose": lambda x: x.transpose(0, -1),
        "none": lambda x: x[None, ...],
        "expand": lambda x: x.expand(3, *x.shape),
        "minus one": lambda x: x.reshape(-1, 0),
        "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.contiguous(),
        "in place": lambda x: x.clone().add_(1),
    }
    for name, program in programs.items():
        both_do(program, (ours,), (theirs,), context=(name, shape))


def test_broadcasting_shapes(oracle):
    shapes = [
        (),
        (1,),
        (3,),
        (1, 3),
        (2, 1),
        (2, 3),
        (4, 1, 3),
        (4, 2, 1),
        (0,),
        (0, 3),
        (1, 0),
        (5,),
    ]
    for s in shapes:
        for t in shapes:
            x, y = randn(oracle, *s), randn(oracle, *t, seed=1)
            both_do(lambda a, b: a + b, (x[0], y[0]), (x[1], y[1]), context=(s, t))
            both_do(lambda a, b: a * b > 0, (x[0], y[0]), (x[1], y[1]), context=(s, t))
            both_do(lambda a, b: a.clone().add_(b), (x[0], y[0]), (x[1], y[1]), context=(s, t))


def test_expanded_operands(oracle):
    x, y = counted(oracle, 3, 1), counted(oracle, 1, 4)
    for f in (
        lambda a, b: a.expand(3, 4) + b.expand(3, 4),
        lambda a, b: a.expand(3, 4).sum(1),
        lambda a, b: a.expand(3, 4).t().softmax(0),
        lambda a, b: a.expand(3, 4) @ b.expand(2, 4).t(),
        lambda a, b: a.expand(2, 3, 4).mean((0, 2)),
        lambda a, b: (a.expand(3, 4) == b.expand(3, 4)).any(),
        lambda a, b: a.expand(3, 4)[:, ::2].contiguous(),
    ):
        both_do(f, (x[0], y[0]), (x[1], y[1]))


WRITES = {
    "row": lambda x: x[1].fill_(7),
    "step": lambda x: x[::2].mul_(-1),
    "column": lambda x: x[:, 1].add_(10),
    "t": lambda x: x.t().add_(1),
    "view": lambda x: x.view(-1)[3:7].zero_(),
    "assign number": lambda x: x.__setitem__((slice(None), 2), 5),
    "assign tensor": lambda x: x.__setitem__(1, x[0]),
    "assign broadcast": lambda x: x.__setitem__(slice(1, 3), x[0]),
    "assign column": lambda x: x.__setitem__((slice(None), slice(0, 2)), x[:, 2:4]),
    "assign dim 1": lambda x: x.__setitem__(0, x[1:2].squeeze(0)),
    "assign leading ones": lambda x: x.__setitem__(0, x[1:2]),
    "assign ellipsis": lambda x: x.__setitem__(..., 3),
    "assign other dtype": lambda x: x.__setitem__(0, x[1].double() + 0.5),
    "assign misfit": lambda x: x.__setitem__(0, x[:, 0]),
    "assign list": lambda x: x.__setitem__(0, 1.5),
    "shift down": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "shift up": lambda x: x.__setitem__(slice(None, -1), x[1:]),
    "shift, clone": lambda x: x.__setitem__(slice(1, None), x[:-1].clone()),
    "flat": lambda x: x.view(-1).copy_(x.t().reshape(-1)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_through_views(name, oracle):
    ours, theirs = counted(oracle, 3, 4)

    def run(x):
        WRITES[name](x)
        return x

    if name.startswith("shift ") and "clone" not in name:
        # the oracle refuses or copies forward; ours is as if the source were copied first
        want = np.arange(12.0, dtype="float32").reshape(3, 4)
        a = want.copy()
        if name == "shift down":
            a[1:] = want[:-1]
        else:
            a[:-1] = want[1:]
        run(ours)
        assert np.array_equal(ours.numpy(), a)
        return
    both_do(run, (ours,), (theirs,), context=name)
    same(ours, theirs, name)


def test_add_transpose_in_place_is_as_if_copied():
    x = rl.arange(9.0).reshape(3, 3)
    want = x.numpy() + x.numpy().T
    x.add_(x.t())
    assert np.array_equal(x.numpy(), want)


def test_large_add_transpose_in_place_is_as_if_copied():
    x = rl.arange(300.0 * 300).reshape(300, 300)
    want = x.numpy() + x.numpy().T
    x.add_(x.t())
    assert np.array_equal(x.numpy(), want)


def test_shifted_in_place_arithmetic():
    x = rl.arange(2000.0)
    want = x.numpy().copy()
    want[1:] = want[1:] + want[:-1]
    x[1:] += x[:-1]
    assert np.array_equal(x.numpy(), want)


@pytest.mark.parametrize(
    "write",
    [
        lambda e: e.add_(1),
        lambda e: e.fill_(1),
        lambda e: e.copy_(rl.ones(3, 4)),
        lambda e: e.mul_(2),
        lambda e: e.__setitem__(0, 1),
        lambda e: rl.add(rl.ones(3, 4), 1, out=e),
    ],
)
def test_writing_to_an_expanded_tensor_is_refused(write):
    x = rl.arange(3.0).reshape(3, 1)
    e = x.expand(3, 4)
    with raises(RuntimeError, match="single memory location"):
        write(e)
    assert x.tolist() == [[0.0], [1.0], [2.0]]
    assert x._version == 0


# ---- out=


def test_out_is_returned_and_written(oracle):
    for lib in (rl, oracle):
        out = lib.empty(3)
        got = lib.add(lib.ones(3), 2, out=out)
        assert got is out and out.tolist() == [3.0] * 3


def test_out_resizes_an_empty_tensor(oracle):
    for lib in (rl, oracle):
        out = lib.empty(0)
        lib.add(lib.ones(2, 3), 1, out=out)
        assert tuple(out.shape) == (2, 3) and out.sum().item() == 12


def test_out_of_a_wrong_shape():
    out = rl.zeros(4)
    with pytest.raises(RuntimeError):
        rl.add(rl.ones(2, 3), 1, out=out)
    assert out.tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", rl.DTYPES)
def test_out_casts_as_the_oracle(dtype, oracle):
    for source in ("float32", "int64", "bool", "int8", "float64"):

        def run(lib):
            x = lib.ones(3, dtype=getattr(lib, source))
            out = lib.zeros(3, dtype=getattr(lib, dtype))
            return lib.add(x, x, out=out)

        both_do(run, (rl,), (oracle,), context=(source, dtype))


def test_out_aliases_an_operand(oracle):
    for lib in (rl, oracle):
        x = lib.arange(6.0).reshape(2, 3)
        lib.mul(x, x, out=x)
        assert x.tolist() == [[0, 1, 4], [9, 16, 25]]
        lib.exp(x * 0, out=x)
        assert x.sum().item() == 6
    x = rl.arange(9.0).reshape(3, 3)
    want = x.numpy() * 2 + x.numpy().T
    rl.add(x * 2, x.t(), out=x)
    assert np.array_equal(x.numpy(), want)
    x = rl.arange(6.0)
    rl.sum(x, 0, out=x[0])
    assert x.tolist() == [15, 1, 2, 3, 4, 5]
    y = rl.arange(4.0).reshape(2, 2)
    want = y.numpy() @ y.numpy()
    rl.mm(y, y, out=y)
    assert np.array_equal(y.numpy(), want)
    s = rl.arange(6.0).reshape(2, 3)
    want = s.softmax(1).tolist()
    rl.softmax(s, 1, out=s)
    assert s.tolist() == want


def test_out_strided(oracle):
    def run(lib):
        base = lib.zeros(4, 6)
        lib.add(lib.ones(4, 3), 1, out=base[:, ::2])
        lib.mul(lib.ones(6, 4), 3, out=base.t())
        lib.sum(base.clone(), 1, out=base[:, 1])
        lib.mm(lib.ones(3, 2), lib.ones(2, 4), out=base[:, 3:].t())
        return base

    both_do(run, (rl,), (oracle,))


def test_out_with_gradients_is_refused(oracle):
    for lib in (rl, oracle):
        x = lib.ones(3, requires_grad=True)
        out = lib.zeros(3)
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            lib.add(x, 1, out=out)
        with lib.no_grad():
            lib.add(x, 1, out=out)
        assert out.tolist() == [2.0] * 3


# ---- dtypes of in-place results


@pytest.mark.parametrize("dtype", rl.DTYPES)
def test_in_place_casts_as_the_oracle(dtype, oracle):
    for other in (True, 2, 1.5, *rl.DTYPES):
        for name in ("add_", "mul_", "sub_", "div_", "copy_", "eq_"):

            def run(lib):
                x = lib.ones(3, dtype=getattr(lib, dtype))
                y = lib.ones(3, dtype=getattr(lib, other)) if isinstance(other, str) else other
                if name == "copy_" and not isinstance(other, str):
                    y = lib.tensor(other)
                return getattr(x, name)(y)

            both_do(run, (rl,), (oracle,), context=(dtype, other, name))


def test_in_place_never_changes_shape(oracle):
    ours, theirs = counted(oracle, 3), counted(oracle, 2, 3)
    for _lib, x, y in ((rl, ours[0], theirs[0]), (oracle, ours[1], theirs[1])):
        with pytest.raises(RuntimeError):
            x.add_(y)
        assert x.tolist() == [0, 1, 2] and x._version == 0


def test_size_one_strides_do_not_matter():
    x = _core.empty_strided((1, 4), (1, 1), rl.float32)
    assert x.is_contiguous()
    assert x.view(4).shape == (4,)
    y = _core.empty_strided((4, 1), (1, 77), rl.float32)
    assert y.is_contiguous() and y.view(2, 2).shape == (2, 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
def test_permuted_results_have_the_oracles_strides(order, oracle):
    x, y = counted(oracle, 3, 4, 5), counted(oracle, 3, 4, 5)
    for f in (
        lambda a, b: a.permute(order) + b.permute(order),
        lambda a, b: a.permute(order) + b.permute(order)[:, :1],
        lambda a, b: a.permute(order)[:, :1] + b.permute(order),
        lambda a, b: a.permute(order) > b.permute(order).contiguous(),
        lambda a, b: a.permute(order)[::2] * 2.5,
        lambda a, b: a.permute(order).exp(),
        lambda a, b: a.permute(order).softmax(1),
        lambda a, b: a.permute(order).sum(1),
        lambda a, b: a.permute(order).sum((0, 2), True),
        lambda a, b: a.permute(order).amax(1),
        lambda a, b: a.permute(order).int(),
        lambda a, b: a.permute(order).where_(b) if hasattr(a, "where_") else a + b,
    ):
        both_do(
            f, (x[0], y[0]), (x[1], y[1]), lambda a, b, context: same_layout(a, b, context), order
        )


def test_views_share_and_copies_do_not(oracle):
    x = rl.arange(12.0).reshape(3, 4)
    where = x.untyped_storage_ptr()
    for v in (
        x[1],
        x.t(),
        x.view(12),
        x.detach(),
        x.data,
        x.reshape(4, 3),
        x.contiguous(),
        x.to(rl.float32),
    ):
        assert v.untyped_storage_ptr() == where
    for c in (
        x.clone(),
        x.t().reshape(12),
        x.t().contiguous(),
        x.double(),
        x.to(rl.float32, copy=True),
    ):
        assert c.untyped_storage_ptr() != where


def test_both_orders_of_a_step_write(oracle):
    x = both(oracle, np.zeros((5, 7)), "int32")
    for lib in x:
        lib[1::2, ::3] = 1
        lib[::2][1:, 1::2] += 4
    same(*x)
