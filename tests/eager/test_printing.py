"""`repr` and `str` of tensors, character by character as the oracle's."""

import numpy as np
import pytest

import rushlight as rl

NAN, INF = float("nan"), float("inf")


def text(x):
    """The repr without the library's name; where it ends in a dtype, without its line breaks: the
    names are not equally long."""
    written = repr(x).replace("torch.", "").replace("rushlight.", "")
    return " ".join(written.split()) if "dtype=" in written else written


VALUES = {
    "scalar": 1.0, "scalar int": 3, "scalar bool": True, "scalar nan": NAN, "scalar tiny": 1e-10,
    "scalar big": 1e10, "scalar 0.1": 0.1, "scalar -0": -0.0, "scalar 1e5": 123456.789,
    "scalar 1e8": 1e8, "scalar 1e9": 1e9, "scalar inf": INF,
    "ints": [1, 2, 3], "negative ints": [-1, 20, 300], "big ints": [10**12, 1],
    "bools": [True, False], "floats": [1.0, 2.5, -3.25], "whole": [1.0, 2.0, 3.0],
    "whole and nan": [1.0, NAN, 3.0], "whole and inf": [1.0, INF, -INF], "nan": [NAN, NAN],
    "inf": [INF, -INF, 1.5], "wide": [1.0, 1000.5, 0.001], "wider": [1.5, 123456.0, 0.0001],
    "scientific": [1e-5, 1.0, 2.0], "large": [1e9, 1.5], "large whole": [1e9, 1.0],
    "large whole equal": [1e9, 1e9], "whole 1e7": [1e7, 1.0], "whole 1e8": [1e8, 1.0],
    "whole, ratio": [100000.0, 1.0], "tiny": [1e-20, 3e-20], "small": [0.0001, 0.0002],
    "smaller": [0.00001, 0.00002], "zeros": [0.0, 0.0], "-0": [-0.0, 0.0, 1.5],
    "ratio 1000": [0.5, 499.0], "ratio 1001": [0.5, 501.5], "rounding": [0.99999, 9.99999],
    "rounding up": [99999.99999, 0.5], "denormal": [1e-45, 1.0], "max": [3.4e38, 1.0],
    "2-D": [[1.0, 2.0], [3.0, 4.5]], "3-D": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    "4-D": np.arange(16).reshape(2, 2, 2, 2).tolist(), "1x1": [[1.5]], "nested empty": [[], []],
    "empty": [], "long": list(range(60)), "long floats": [i / 7 for i in range(60)],
    "999": list(range(999)), "1001": list(range(1001)), "1001 floats": [i / 3 for i in range(1001)],
    "1000": list(range(1000)), "column": [[float(i)] for i in range(5)],
    "wide rows": np.arange(60).reshape(2, 30).tolist(),
    "mixed signs": [[-1.5, 2.25], [1000.125, -0.5]],
    "minus whole": [-1.0, -200.0], "one large nan": [NAN, 1e10, -1.0],
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name, oracle):
    ours, theirs = (lib.tensor(VALUES[name]) for lib in (rl, oracle))
    assert text(ours) == text(theirs)
    assert str(ours).replace("rushlight.", "torch.") == str(theirs)


@pytest.mark.parametrize("dtype", rl.DTYPES)
@pytest.mark.parametrize("name", ["scalar", "ints", "floats", "2-D", "empty", "wider", "1001"])
def test_dtypes(name, dtype, oracle):
    ours, theirs = (
        lib.tensor(VALUES[name], dtype=lib.float64).to(getattr(lib, dtype)) for lib in (rl, oracle)
    )
    assert text(ours) == text(theirs)


SHAPES = [
    (0,), (0, 3), (3, 0), (2, 0, 4), (1,), (1, 1, 1), (5,), (1001,), (40, 40), (7, 200), (200, 7),
    (3, 4, 100), (11, 11, 11), (2, 2, 2, 2, 2), (1, 2000), (2000, 1), (10, 1, 101), (8, 8, 16),
    (1, 30), (30, 30), (3, 1000, 2),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, oracle):
    array = np.random.default_rng(3).standard_normal(shape).astype("float32") * 10
    for kind in ("float32", "int64", "float64", "int32", "bool", "float16"):
        a = array.astype(kind)
        assert text(rl.from_numpy(a.copy())) == text(oracle.from_numpy(a.copy())), kind


def test_random_values(oracle):
    rng = np.random.default_rng(0)
    for trial in range(300):
        shape = tuple(rng.integers(1, 6, rng.integers(0, 4)))
        a = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 10, shape or None)
        if trial % 3 == 0:
            a = np.round(a)
        if trial % 5 == 0:
            a = a * (rng.random(shape) > 0.3)
        if trial % 7 == 0:
            a = np.where(rng.random(shape) > 0.8, np.nan, a)
        a = np.asarray(a).astype("float32" if trial % 2 else "float64")
        ours, theirs = (
            lib.tensor(a.tolist(), dtype=getattr(lib, a.dtype.name)) for lib in (rl, oracle)
        )
        assert text(ours) == text(theirs), a


def test_strided(oracle):
    for lib in (rl, oracle):
        x = lib.arange(24.0).reshape(4, 6)
        assert "0.,  6." in str(x.t()[:2])
    for f in (
        lambda x: x.t(),
        lambda x: x[::2, 1::2],
        lambda x: x[:, :1].expand(4, 3),
        lambda x: x[1],
        lambda x: x[1, 2],
        lambda x: x[:0],
        lambda x: x.permute(1, 0)[None],
    ):
        ours, theirs = (f(lib.arange(24.0).reshape(4, 6)) for lib in (rl, oracle))
        assert text(ours) == text(theirs)


def test_gradients_are_told(oracle):
    for f in (
        lambda x: x,
        lambda x: x + 1,
        lambda x: x.exp().transpose(0, 1),
        lambda x: (x * 2).sum(),
        lambda x: x.double() if False else x.sigmoid(),
        lambda x: x.detach(),
        lambda x: (x @ x.t())[0],
        lambda x: x.expand(5, 2, 3)[0],
        lambda x: x[:0],
    ):
        ours, theirs = (f(lib.ones(2, 3, requires_grad=True)) for lib in (rl, oracle))
        assert text(ours) == text(theirs)
    ours, theirs = (lib.ones(2, 3, dtype=lib.float64, requires_grad=True) for lib in (rl, oracle))
    assert text(ours) == text(theirs)
    ours, theirs = (
        lib.ones(2, 8, 16, dtype=lib.float64, requires_grad=True) * 1.5 for lib in (rl, oracle)
    )
    assert text(ours) == text(theirs)


def test_parameters(oracle):
    ours, theirs = (lib.nn.Parameter(lib.arange(3.0)) for lib in (rl, oracle))
    assert text(ours) == text(theirs)


def test_other_things(oracle):
    for f in (
        lambda lib: lib.ones(2, 3).shape,
        lambda lib: lib.ones(2).dtype,
        lambda lib: lib.device("cpu"),
        lambda lib: lib.ones(2).device,
        lambda lib: lib.ones(2, 3).size(),
        lambda lib: lib.ones(2, 3).shape[:1],
        lambda lib: f"{lib.tensor(1.5):.3f} {lib.tensor(3)} {lib.tensor([1.0])}",
        lambda lib: f"{lib.tensor(7):5d}|",
        lambda lib: f"{lib.tensor([1, 2])}",
    ):
        assert text(f(rl)) == text(f(oracle))


def test_printing_disturbs_nothing():
    x = rl.ones(3, requires_grad=True)
    y = x * 2
    nodes = rl._core.plan_stats()["nodes"]
    repr(y)
    assert rl._core.plan_stats()["nodes"] == nodes and y._version == 0
    with rl.no_grad():
        repr(y)
    z = rl.ones(3) * 3
    assert repr(z) == repr(z)
