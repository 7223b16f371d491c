"""Copies of views, pieces called unsafe, memory in a given order: the oracle's values and strides,
in memory of their own; storages; layouts."""

import pytest

import rushlight as rl

from .both import close, counted, kind, same, same_layout

COPIES = [
    "alias_copy(x.t())",
    "as_strided_copy(x, (2, 2), (1, 2), 1)",
    "detach_copy(x.t())",
    "diagonal_copy(x, 1)",
    "expand_copy(x[:1], (3, 4))",
    "narrow_copy(x, 1, 0, 2)",
    "permute_copy(x, (1, 0))",
    "select_copy(x, 1, -1)",
    "slice_copy(x, 1, 0, 4, 2)",
    "split_copy(x, 2, 1)",
    "split_with_sizes_copy(x, (1, 2))",
    "squeeze_copy(x[:1].t())",
    "t_copy(x)",
    "transpose_copy(x, 0, 1)",
    "unbind_copy(x, 1)",
    "unfold_copy(x, 1, 2, 1)",
    "unsqueeze_copy(x, 1)",
    "view_as_real_copy(lib.view_as_complex(x.view(3, 2, 2)))",
    "view_copy(x, (4, 3))",
]
PIECES = ["unsafe_chunk(x, 2)", "unsafe_split(x, 2, 1)", "unsafe_split_with_sizes(x, (1, 3), 1)"]


def results(call, libs, pair):
    found = [eval(f"lib.{call}", {"lib": lib, "x": x}) for lib, x in zip(libs, pair, strict=True)]
    assert isinstance(found[0], tuple) == isinstance(found[1], tuple)
    if isinstance(found[0], tuple):
        assert len(found[0]) == len(found[1])
        return list(zip(*found, strict=True))
    return [tuple(found)]


@pytest.mark.parametrize("call", COPIES + PIECES)
def test_values_and_strides(oracle, call):
    x = counted(oracle, 3, 4)
    for ours, theirs in results(call, (rl, oracle), x):
        same(ours, theirs)
        same_layout(ours, theirs) if call in COPIES else None
        shares = ours.untyped_storage().data_ptr() == x[0].untyped_storage().data_ptr()
        assert shares == (call in PIECES)


@pytest.mark.parametrize("call", [c for c in COPIES + PIECES if "complex" not in c])
def test_in_one_graph(call):
    x = rl.arange(12.0).view(3, 4)
    function = eval(f"lambda x: lib.{call}", {"lib": rl})
    made, plain = rl.compile(function, backend="eager", fullgraph=True)(x), function(x)
    for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (made, plain)), strict=True):
        assert a.tolist() == b.tolist()


def test_gradients_and_out():
    x = rl.arange(6.0).view(2, 3).requires_grad_()
    (rl.permute_copy(x, (1, 0)) * rl.arange(6.0).view(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]
    out = rl.empty(3, 2)
    assert rl.t_copy(x.detach(), out=out) is out and out.tolist() == [[0, 3], [1, 4], [2, 5]]
    several = rl.empty(3), rl.empty(3)
    rl.unbind_copy(x.detach(), out=several)
    assert several[1].tolist() == [3, 4, 5]
    with pytest.raises(AttributeError):
        getattr(rl, "relu_copy")  # noqa: B009


def test_as_strided_scatter(oracle):
    x, y = counted(oracle, 3, 4), counted(oracle, 2, 2)
    same(*(lib.as_strided_scatter(a, b, (2, 2), (4, 1), 5) for lib, a, b in
           zip((rl, oracle), x, y, strict=True)))  # fmt: skip
    with pytest.raises(RuntimeError, match="src"):
        rl.as_strided_scatter(x[0], y[0], (2, 3), (4, 1))
    moved = rl.as_strided_(x[0], (2, 3), (1, 4), 1)
    assert moved is x[0] and moved.tolist() == [[1, 5, 9], [2, 6, 10]]


RANGES = ["0, 4", "0, 1, 0.25", "1, 4, dtype=lib.int64", "0, 5, 2", "5, 0, -2", "4, 0", "0, 4, 0"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", RANGES)
def test_range(oracle, arguments):
    found = []
    for lib in (rl, oracle):
        try:
            found.append(eval(f"lib.range({arguments})", {"lib": lib}))
        except Exception as error:
            found.append(kind(type(error)))
    if isinstance(found[1], type):
        assert found[0] is found[1]
    else:
        same(*found)


def test_range_warns():
    with pytest.warns(UserWarning, match="Use rushlight.arange"):
        rl.range(0, 2)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 1, 2)])
def test_empty_permuted(oracle, order):
    same_layout(*(lib.empty_permuted((2, 3, 4), order) for lib in (rl, oracle)))
    with pytest.raises(RuntimeError, match="permutation"):
        rl.empty_permuted((2, 3), (0, 0))


NORMS = [
    "norm_except_dim(x, 2, 0)",
    "norm_except_dim(x, 1, 1)",
    "norm_except_dim(x, 2, -1)",
    "frobenius_norm(x, 1)",
    "frobenius_norm(x, (0, 1), True)",
    "nuclear_norm(x)",
    "nuclear_norm(x.view(1, 3, 4), (1, 2), True)",
    "lu(x[:, :3] + lib.eye(3))[0]",
    "lu(x[:, :3] + lib.eye(3), get_infos=True)[2]",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", NORMS)
def test_norms_of_the_past(oracle, call):
    x = counted(oracle, 3, 4, dtype="float64")
    lapack = oracle.linalg.lu_factor_ex
    libs = [rl, oracle]
    if call.startswith("lu"):  # the oracle has lost it
        theirs = lapack(x[1][:, :3] + oracle.eye(3, dtype=oracle.float64))
        ours = eval(f"lib.{call}", {"lib": rl, "x": x[0]})
        close(ours, theirs[2] if "infos" in call else theirs[0])
        return
    close(*(eval(f"lib.{call}", {"lib": lib, "x": t}) for lib, t in zip(libs, x, strict=True)))


def test_layouts():
    x = rl.ones(2)
    assert x.layout is rl.strided and repr(x.layout) == "rushlight.strided"
    assert isinstance(rl.sparse_coo, rl.layout) and x.layout != rl.sparse_coo
    chosen = rl.compile(lambda x: x * 2 if x.layout == rl.strided else x, fullgraph=True)
    assert chosen(x).tolist() == [2, 2]


def test_typed_storage():
    x = rl.arange(6, dtype=rl.float32).view(2, 3)
    storage = x[1].storage()
    assert storage.size() == len(storage) == 6 and storage[4] == 4.0 and storage.nbytes() == 24
    assert storage.dtype is rl.float32 and storage.data_ptr() == x.data_ptr()
    assert isinstance(storage, rl.FloatStorage) and not isinstance(storage, rl.LongStorage)
    storage[0] = 9
    assert x[0, 0] == 9 and storage.tolist() == [9, 1, 2, 3, 4, 5]
    assert storage == x.storage() and storage.untyped() is x.untyped_storage()
    made = rl.LongStorage([1, 2, 3])
    assert made.tolist() == [1, 2, 3] and made.dtype is rl.int64 and made.element_size() == 8
    assert rl.TypedStorage(4, dtype=rl.int32).size() == 4 and made.fill_(7).tolist() == [7] * 3
    copy = made.clone()
    copy[0] = 1
    assert made[0] == 7 and "LongStorage" in made.type()
    with pytest.raises(RuntimeError):
        storage[0:2]


@pytest.mark.parametrize("memory", ["channels_last", "contiguous_format"])
def test_memory_formats_in_graphs(memory):
    wanted = getattr(rl, memory)
    x = rl.randn(2, 3, 4, 5)
    for function in (
        lambda x: x.contiguous(memory_format=wanted) * 2,
        lambda x: x.to(memory_format=wanted) + 1,
        lambda x: rl.empty_like(x, memory_format=wanted) * 0,
        lambda x: rl.zeros_like(x[:, :1]),
    ):
        for y in (x, x.contiguous(memory_format=rl.channels_last), x[:, :2]):
            made, plain = rl.compile(function, fullgraph=True)(y), function(y)
            assert made.stride() == plain.stride() and made.shape == plain.shape
    tells = rl.compile(lambda x: x.is_contiguous(memory_format=wanted), backend="eager")
    assert tells(x) == x.is_contiguous(memory_format=wanted)
