"""Sorting and its kin, gather and scatter, masks and sets: against the oracle where it is there,
and by their own rules where it is not.
"""

import numpy as np
import pytest

import rushlight as rl

from .both import both, both_do, close, outcome, raises, randn, same

NAN = float("nan")


def integers(torch, low, high, *shape, seed=0):
    return both(torch, np.random.default_rng([seed, *shape]).integers(low, high, shape))


def named(function, check=same):
    """A check of tuples (values, indices), element by element."""

    def compare(ours, theirs, context=""):
        assert type(ours)._fields == ("values", "indices")
        for a, b in zip(ours, theirs):
            check(a, b, context=context)

    return function, compare


# ---- order


@pytest.mark.parametrize("shape", ((7,), (3, 5), (2, 4, 3), (1, 3000), (2, 5000), (0, 3), ()))
@pytest.mark.parametrize("descending", (False, True))
def test_sort(shape, descending, oracle):
    ours, theirs = integers(oracle, -9, 9, *shape)
    for dim in range(-len(shape), max(len(shape), 1)):
        for dtype in ("float32", "float64", "int64", "int16", "uint8", "bool", "bfloat16"):
            pair = ours.to(getattr(rl, dtype)), theirs.to(getattr(oracle, dtype))
            f, check = named(lambda x, d=dim: x.sort(dim=d, descending=descending, stable=True))
            both_do(f, (pair[0],), (pair[1],), check, (shape, dim, dtype))


def test_order_of_special_values(oracle):
    values = [1.0, NAN, -0.0, 0.0, float("inf"), -float("inf"), NAN, -1.0, 2.0]
    ours, theirs = both(oracle, values, "float32")
    for descending in (False, True):
        f, check = named(lambda x, d=descending: x.sort(descending=d, stable=True))
        both_do(f, (ours,), (theirs,), check)
    both_do(lambda x: x.topk(4)[0], (ours,), (theirs,))
    both_do(lambda x: x.topk(2, largest=False)[0], (ours,), (theirs,))
    both_do(lambda x: x.median(), (ours,), (theirs,), close)  # of 0 and -0 either
    both_do(lambda x: x.nanmedian(), (ours,), (theirs,), close)
    both_do(lambda x: x.kthvalue(2)[0], (ours,), (theirs,), close)


def test_wide_integers_sort_by_all_bits():
    x = rl.tensor([2**62, -(2**63), 5, 2**63 - 1, -1] * 400)
    values, indices = x.sort()
    assert values.tolist() == sorted(x.tolist())
    assert x[indices].tolist() == values.tolist()
    near = rl.tensor([2**62 + (i * 7919) % 3001 for i in range(3001)])
    assert near.sort()[0].tolist() == sorted(near.tolist())


@pytest.mark.parametrize("k", (0, 1, 3, 40, 700, 1000))
def test_topk(k, oracle):
    ours, theirs = randn(oracle, 3, 1000)
    for largest in (True, False):
        f, check = named(lambda x, e=largest: x.topk(k, largest=e))
        both_do(f, (ours,), (theirs,), check)
    found = ours.topk(k, sorted=False)
    assert sorted(found[0][0].tolist()) == sorted(theirs.topk(k)[0][0].tolist())
    with pytest.raises(RuntimeError):
        ours.topk(1001)


@pytest.mark.parametrize("dtype", ("float32", "float64", "int64", "uint8"))
def test_topk_of_long_rows(dtype, oracle):
    """Rows long enough for a bound: ties, NaN everywhere and nowhere, infinities, either dim."""
    random = np.random.default_rng(0)
    many = np.full((6, 300), 7.0)
    many[1] = random.integers(0, 4, 300)
    many[2:] = random.integers(0, 200, (4, 300))
    if dtype.startswith("float"):
        many[3, 10:280] = np.nan
        many[4, ::7] = np.inf
        many[4, 3::7] = -np.inf
        many[5] = np.nan
    ours, theirs = both(oracle, many.tolist(), dtype)
    for dim, pair in ((1, (ours, theirs)), (0, (ours.t(), theirs.t()))):
        for k in (1, 5, 70):
            for largest in (True, False):
                found = pair[0].topk(k, dim, largest)
                expected = pair[1].topk(k, dim, largest)[0]
                np.testing.assert_array_equal(found[0].numpy(), expected.numpy())
                taken = pair[0].gather(dim, found[1])
                np.testing.assert_array_equal(taken.numpy(), found[0].numpy())


def test_one_element_a_row(oracle):
    for shape in ((9,), (4, 5), (3, 4, 6)):
        ours, theirs = randn(oracle, *shape)
        ints = integers(oracle, 0, 3, *shape)
        for dim in range(len(shape)):
            for keep in (False, True):
                for name in ("median", "nanmedian"):
                    f, check = named(lambda x, n=name, d=dim, e=keep: getattr(x, n)(d, keepdim=e))
                    both_do(f, (ours,), (theirs,), check)
                f, check = named(lambda x, d=dim, e=keep: x.kthvalue(2, d, keepdim=e))
                both_do(f, (ours,), (theirs,), check)
                f, check = named(lambda x, d=dim, e=keep: x.mode(d, keepdim=e))
                both_do(f, ints[:1], ints[1:], check)
    both_do(lambda x: x.median(), (ours,), (theirs,))


@pytest.mark.parametrize("how", ("linear", "lower", "higher", "midpoint", "nearest"))
def test_quantiles(how, oracle):
    ours, theirs = randn(oracle, 3, 8)
    gaps = (rl.where(ours > 1, NAN, ours), oracle.where(theirs > 1, NAN, theirs))
    for q in (0.0, 0.25, 0.37, 0.5, 1.0):
        for dim in (None, 0, 1, -1):
            for keep in (False, True):
                f = lambda x, d=dim, e=keep, q=q: x.quantile(q, d, e, interpolation=how)
                both_do(f, (ours,), (theirs,), close)
                f = lambda x, d=dim, e=keep, q=q: x.nanquantile(q, d, e, interpolation=how)
                both_do(f, gaps[:1], gaps[1:], close)
    several = both(oracle, [0.1, 0.5, 0.9], "float32")
    for dim in (None, 0, 1):
        f = lambda x, q, d=dim: x.quantile(q, d, True)
        both_do(f, (ours, several[0]), (theirs, several[1]), close)
    both_do(lambda x: x.quantile(1.5), (ours,), (theirs,))


# ---- gather and scatter


@pytest.mark.filterwarnings("ignore")
def test_scatter_and_its_overloads(oracle):
    ours, theirs = randn(oracle, 4, 5)
    index = both(oracle, [[0, 2, 1], [3, 0, 2]])
    source = randn(oracle, 3, 4, seed=1)
    arguments = ((ours, index[0], source[0]), (theirs, index[1], source[1]))
    for f in (
        lambda x, i, s: x.scatter(0, i, s),
        lambda x, i, s: x.scatter(0, i, 2.5),
        lambda x, i, s: x.scatter(0, i, value=2),
        lambda x, i, s: x.scatter(1, i, s, reduce="add"),
        lambda x, i, s: x.scatter(0, i, 3.0, reduce="multiply"),
        lambda x, i, s: x.clone().scatter_(0, i, s),
        lambda x, i, s: x.clone().scatter_add_(0, i, s),
        lambda x, i, s: x.scatter_add(1, i, s),
        lambda x, i, s: x.gather(0, i),
        lambda x, i, s: x.gather(1, i + 9),
        lambda x, i, s: x.gather(0, i[0]),
        lambda x, i, s: x.scatter(0, i, s.double()),
    ):
        both_do(f, *arguments)
    for reduce in ("sum", "prod", "mean", "amax", "amin", "bad"):
        for self in (True, False):
            f = lambda x, i, s, r=reduce, e=self: x.scatter_reduce(0, i, s, r, include_self=e)
            both_do(f, *arguments, close)
            both_do(lambda x, i, s, f=f: f((x * 3).long(), i, (s * 3).long()), *arguments)


def test_gather_outside_tells_index_dim_and_size():
    with raises(RuntimeError, "index 7", "dim 1", "size 3"):
        rl.zeros(2, 3).gather(1, rl.tensor([[0], [7]]))
    x = rl.zeros(2, 3)
    with pytest.raises(RuntimeError):
        x.scatter_(1, rl.tensor([[0, 3]]), 1.0)
    assert x.sum().item() == 0  # nothing was written


@pytest.mark.filterwarnings("ignore")
def test_along_one_dim(oracle):
    ours, theirs = randn(oracle, 4, 5)
    index = both(oracle, [0, 2, 2])
    source = randn(oracle, 3, 5, seed=1)
    arguments = ((ours, index[0], source[0]), (theirs, index[1], source[1]))
    for f in (
        lambda x, i, s: x.index_select(0, i),
        lambda x, i, s: x.index_select(1, i.int()),
        lambda x, i, s: x.index_add(0, i, s, alpha=2),
        lambda x, i, s: x.clone().index_add_(0, i, s),
        lambda x, i, s: x.index_copy(0, i[:2], s[:2]),
        lambda x, i, s: x.index_fill(1, i, 7),
        lambda x, i, s: x.clone().index_fill_(0, i, -1.0),
        lambda x, i, s: x.index_reduce(0, i, s, "amax"),
        lambda x, i, s: x.index_reduce(0, i, s, "mean", include_self=False),
        lambda x, i, s: x.index_add(0, i, s[:2]),
        lambda x, i, s: x.index_select(0, i + 9),
        lambda x, i, s: x.index_select(0, i.double()),
        lambda x, i, s: x.take(i * 3),
        lambda x, i, s: x.t().take(i - 3),
        lambda x, i, s: x.clone().put_(i[:2], s[0, :2]),
        lambda x, i, s: x.clone().t().put_(i, s[0, :3], accumulate=True),
        lambda x, i, s: x.take_along_dim(i[:, None], 1) if len(x) == 3 else x,
    ):
        both_do(f, *arguments, lambda a, b, context="": close(a, b, context=context))


# ---- masks, positions, sets


def test_nonzero_and_where(oracle):
    for shape in ((), (5,), (3, 4), (2, 3, 4), (0, 2)):
        ours, theirs = integers(oracle, 0, 2, *shape)
        both_do(lambda x: x.nonzero(), (ours,), (theirs,))
        both_do(lambda x: x.float().argwhere(), (ours,), (theirs,))
        for a, b in zip(ours.nonzero(as_tuple=True), theirs.nonzero(as_tuple=True), strict=True):
            same(a, b)
        for a, b in zip(rl.where(ours > 0), oracle.where(theirs > 0), strict=True):
            same(a, b)
        for size in (0, 2, 9):
            both_do(lambda x, n=size: x.nonzero_static(size=n), (ours,), (theirs,))


def test_masked(oracle):
    ours, theirs = randn(oracle, 3, 4)
    mask = both(oracle, [[True], [False], [True]])
    source = randn(oracle, 20, seed=3)
    arguments = ((ours, mask[0], source[0]), (theirs, mask[1], source[1]))
    for f in (
        lambda x, m, s: x.masked_select(m),
        lambda x, m, s: x.masked_select(x > 0),
        lambda x, m, s: x.masked_scatter(m, s),
        lambda x, m, s: x.clone().masked_scatter_(x > 0, s),
        lambda x, m, s: x.masked_scatter(m, s[:2]),
    ):
        both_do(f, *arguments)


def test_unique(oracle):
    ours, theirs = integers(oracle, 0, 4, 6, 3)
    for options in ({}, {"return_inverse": True}, {"return_counts": True},
                    {"return_inverse": True, "return_counts": True}):  # fmt: skip
        for dim in (None, 0, 1):
            for name in ("unique", "unique_consecutive"):
                a = getattr(rl, name)(ours, dim=dim, **options)
                b = getattr(oracle, name)(theirs, dim=dim, **options)
                a, b = (v if isinstance(v, tuple) else (v,) for v in (a, b))
                for x, y in zip(a, b, strict=True):
                    same(x, y, (name, dim, options))
    assert rl.unique(rl.tensor([NAN, 1.0, NAN])).numel() == 3  # NaN equals nothing
    assert rl.unique(rl.zeros(0), return_counts=True)[1].tolist() == []


def test_counting(oracle):
    ours, theirs = integers(oracle, 0, 5, 20)
    weights = randn(oracle, 20)
    both_do(lambda x: x.bincount(), (ours,), (theirs,))
    both_do(lambda x: x.bincount(minlength=9), (ours,), (theirs,))
    both_do(lambda x, w: x.bincount(w), (ours, weights[0]), (theirs, weights[1]), close)
    both_do(lambda x: (x - 3).bincount(), (ours,), (theirs,))
    both_do(lambda x: x.histc(7), weights[:1], weights[1:])
    both_do(lambda x: x.histc(4, -1, 1), weights[:1], weights[1:])
    for repeats in (0, 2, [2] * 20):
        r = both(oracle, repeats)
        both_do(lambda x, r: x.repeat_interleave(r), (ours, r[0]), (theirs, r[1]))
    both_do(lambda x: x[:4].repeat_interleave(3), (ours,), (theirs,))
    both_do(lambda x: x.reshape(4, 5).repeat_interleave(2, dim=1), (ours,), (theirs,))


def test_search(oracle):
    edges = both(oracle, [-1.0, 0.0, 0.0, 2.0], "float32")
    values = both(oracle, [[-2.0, 0.0, 1.0], [2.0, 3.0, NAN]], "float32")
    for right in (False, True):
        for f in (
            lambda lib, e, v: lib.searchsorted(e, v, right=right),
            lambda lib, e, v: lib.bucketize(v, e, right=right, out_int32=True),
            lambda lib, e, v: lib.searchsorted(lib.stack([e, e * 2]), v, right=right),
            lambda lib, e, v: lib.searchsorted(e, 0.5, right=right),
        ):
            a, b = outcome(f, rl, edges[0], values[0]), outcome(f, oracle, edges[1], values[1])
            assert a[0] == b[0] == "ok", (a, b)
            same(a[1], b[1])
    ours, theirs = integers(oracle, 0, 9, 4, 5)
    for f in (
        lambda lib, x: lib.isin(x, lib.tensor([1, 5])),
        lambda lib, x: lib.isin(x, 3, invert=True),
        lambda lib, x: lib.isin(x, lib.tensor([], dtype=lib.int64)),
    ):
        same(f(rl, ours), f(oracle, theirs))


# ---- scans


@pytest.mark.parametrize("name", ("cummax", "cummin"))
def test_long_runs_of_extremes(oracle, name):
    """Rows longer than a step, with equal ones and NaN, along the memory and across it."""
    generator = np.random.default_rng(5)
    for dtype in ("float32", "int64", "int8"):
        x = generator.integers(-9, 9, (5, 70)).astype(dtype)
        if dtype == "float32":
            x[2, 30], x[3, 68] = NAN, NAN
        for dim in (0, 1):
            ours, theirs = (getattr(t, name)(t.from_numpy(x), dim) for t in (rl, oracle))
            for a, b in zip(ours, theirs):
                same(a, b)


@pytest.mark.parametrize("name", ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"))
def test_scans(name, oracle):
    for shape in ((9,), (3, 20), (4, 3, 40), (0, 2)):
        ours, theirs = randn(oracle, *shape)
        for dim in range(len(shape)):
            f = lambda x, d=dim: getattr(x, name)(d)
            if name in ("cummax", "cummin"):
                if shape[dim]:
                    f, check = named(f)
                    both_do(f, (ours,), (theirs,), check)
                continue
            both_do(f, (ours,), (theirs,), close, (name, shape, dim))
            both_do(lambda x, f=f: f(x.half()), (ours,), (theirs,),
                    lambda a, b, context="": close(a, b, 4e-3, 4e-3))  # fmt: skip
            if name != "logcumsumexp":
                both_do(lambda x, f=f: f((x * 3).int()), (ours,), (theirs,))
    special = both(oracle, [-float("inf"), 1.0, NAN, 2.0, float("inf"), 0.0], "float32")
    both_do(lambda x: getattr(x, name)(0) if name[:4] != "cumm" or name == "cumprod" else
            getattr(x, name)(0)[0], special[:1], special[1:], close)  # fmt: skip


def test_products_of_zeros_have_gradients(oracle):
    ours, theirs = both(oracle, [[2.0, 0.0, 3.0, 0.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0]], "float64")
    for x in (ours, theirs):
        x.requires_grad_()
        (x.cumprod(1) * x.detach().cumsum(1)).sum().backward()
    close(ours.grad, theirs.grad)


def test_diff(oracle):
    ours, theirs = randn(oracle, 3, 6)
    for n in (0, 1, 2, 9):
        for dim in (0, -1):
            both_do(lambda x, n=n, d=dim: x.diff(n, d), (ours,), (theirs,), close)
    both_do(lambda x: x.diff(prepend=x[:, :2], append=x), (ours,), (theirs,), close)


def test_gradients_of_choices(oracle):
    for f in (
        lambda x: x.sort(descending=True)[0],
        lambda x: x.topk(2, 0)[0],
        lambda x: x.kthvalue(3)[0],
        lambda x: x.median(0, keepdim=True)[0],
        lambda x: x.quantile(0.3, 1),
        lambda x: x.cummax(1)[0],
        lambda x: x.masked_select(x > 0),
        lambda x: x[x > 0],
    ):
        ours, theirs = randn(oracle, 4, 5, requires_grad=True)
        for x in (ours, theirs):
            y = f(x)
            (y * y).sum().backward()
        close(ours.grad, theirs.grad)


def test_out_of_sort():
    x = rl.tensor([3.0, 1.0, 2.0])
    values, indices = rl.zeros(3), rl.zeros(3, dtype=rl.int64)
    rl.sort(x, out=(values, indices))
    assert values.tolist() == [1, 2, 3] and indices.tolist() == [1, 2, 0]


def test_distances_of_many_rows_need_no_table_of_differences(oracle):
    """From 26 rows on distances are made of products; equal rows have slope 0."""
    array = np.random.default_rng(3).standard_normal((40, 5)).astype(np.float32)
    grads = []
    for lib in (rl, oracle):
        x = lib.tensor(array, requires_grad=True)
        d = lib.cdist(x, x * 1.5)
        (d * d.detach().cos()).sum().backward()
        grads.append((d, x.grad))
        y = lib.tensor(array, requires_grad=True)
        lib.cdist(y, y.detach()).sum().backward()
        assert bool(y.grad.isfinite().all())
        with pytest.raises(ValueError, match="compute_mode"):
            lib.cdist(x, x, compute_mode="never")
    for ours, theirs in zip(*grads):
        close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), ()])
def test_flip_of_every_choice_of_dims(dims, oracle):
    for dtype in ("bool", "int16", "float32", "float64"):
        ours, theirs = both(oracle, np.arange(24).reshape(2, 3, 4) % 7 > 2, "bool")
        both_do(lambda x: x.to(getattr(type_lib(x), dtype)).flip(dims), (ours,), (theirs,))
    ours, theirs = randn(oracle, 2, 3, 4)
    both_do(lambda x: x.transpose(0, 2).flip(dims), (ours,), (theirs,))
    both_do(lambda x: x.transpose(0, 2).flip(dims).contiguous(), (ours,), (theirs,))


def type_lib(x):
    import sys

    return sys.modules[type(x).__module__.partition(".")[0]]


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (0, 3), (3, 0), (1, 1)])
@pytest.mark.parametrize("offset", [-5, -1, 0, 2, 5])
def test_places_of_triangles(shape, offset, oracle):
    for name in ("tril_indices", "triu_indices"):
        ours, theirs = (getattr(lib, name)(*shape, offset) for lib in (rl, oracle))
        same(ours, theirs)
        assert ours.is_contiguous()
    same(rl.eye(*shape), oracle.eye(*shape))
    assert rl.eye(3)._version == 0


def test_a_permutation_holds_every_number_once():
    rl.manual_seed(4)
    a, b = rl.randperm(1000), rl.randperm(1000)
    assert sorted(a.tolist()) == sorted(b.tolist()) == list(range(1000))
    assert a.tolist() != b.tolist()
    assert rl.randperm(0).tolist() == [] and rl.randperm(5, dtype=rl.int32).dtype is rl.int32


def test_results_have_names():
    x = rl.arange(6.0).reshape(2, 3)
    calls = {
        "max": lambda: x.max(1),
        "min": lambda: rl.min(x, 1, True),
        "topk": lambda: x.topk(2),
        "sort": lambda: x.sort(),
        "kthvalue": lambda: x.kthvalue(1),
        "cummax": lambda: rl.cummax(x, 1),
        "median": lambda: x.median(1),
        "mode": lambda: x.mode(),
    }
    for name, call in calls.items():
        found = call()
        assert type(found).__name__ == name and isinstance(found, tuple)
        assert found.values is found[0] and found.indices is found[1]
        assert found._fields == ("values", "indices")
    outs = rl.empty(2), rl.empty(2, dtype=rl.int64)
    written = rl.max(x, 1, out=outs)
    assert written.values is outs[0] and written.indices is outs[1]
    assert x.topk(k=1, axis=0).values.tolist() == [[3.0, 4.0, 5.0]]
    with pytest.raises(TypeError, match="named tuple"):
        type(rl.topk).result.__set__(rl.topk, int)
