"""`testing.assert_close` and `backends`, against the oracle's."""

import numpy as np
import pytest

import rushlight as rl

CLOSE = {
    "equal": lambda lib: (lib.ones(2), lib.ones(2), {}),
    "within float32": lambda lib: (lib.ones(2), lib.ones(2) + 1e-6, {}),
    "within bfloat16": lambda lib: (lib.ones(2).bfloat16(), lib.ones(2).bfloat16() + 0.01, {}),
    "without float32": lambda lib: (lib.ones(2), lib.ones(2) + 1e-4, {}),
    "tolerant": lambda lib: (lib.ones(2), lib.ones(2) + 1e-4, {"rtol": 0, "atol": 1e-3}),
    "shapes": lambda lib: (lib.ones(2), lib.ones(3), {}),
    "dtypes": lambda lib: (lib.ones(2), lib.ones(2).double(), {}),
    "dtypes unasked": lambda lib: (lib.ones(2), lib.ones(2).double(), {"check_dtype": False}),
    "integers": lambda lib: (lib.arange(3), lib.arange(3), {}),
    "other integers": lambda lib: (lib.arange(3), lib.arange(3) + 1, {}),
    "nan": lambda lib: (lib.tensor(float("nan")), lib.tensor(float("nan")), {}),
    "nan allowed": lambda lib: (
        lib.tensor([float("nan")]),
        lib.tensor([float("nan")]),
        {"equal_nan": True},
    ),
    "infinities": lambda lib: (lib.tensor([float("inf")]), lib.tensor([float("inf")]), {}),
    "numbers": lambda lib: (1.0, 1.0 + 1e-9, {}),
    "other numbers": lambda lib: (1.0, 1.1, {}),
    "number types": lambda lib: (1, 1.0, {}),
    "lists": lambda lib: ([lib.ones(1), 2], [lib.ones(1), 2], {}),
    "lists that differ": lambda lib: ([lib.ones(1), 2], [lib.ones(1), 3], {}),
    "lengths": lambda lib: ([1], [1, 2], {}),
    "dicts": lambda lib: ({"a": lib.ones(1)}, {"a": lib.ones(1)}, {}),
    "keys": lambda lib: ({"a": 1}, {"b": 1}, {}),
    "one tolerance": lambda lib: (1.0, 1.0, {"rtol": 1.0}),
    "strides": lambda lib: (lib.ones(2, 3), lib.ones(3, 2).t(), {"check_stride": True}),
    "requires grad": lambda lib: (lib.ones(2, requires_grad=True), lib.ones(2), {}),
    "nothing": lambda lib: (lib.ones(0), lib.ones(0), {}),
    "words": lambda lib: ("a", "a", {}),
}


def outcome(lib, name):
    actual, expected, options = CLOSE[name](lib)
    try:
        lib.testing.assert_close(actual, expected, **options)
    except (AssertionError, ValueError, TypeError) as error:
        return type(error), str(error).replace("rushlight", "torch")
    return None


@pytest.mark.parametrize("name", CLOSE)
def test_assert_close(name, oracle):
    ours, theirs = outcome(rl, name), outcome(oracle, name)
    assert (ours is None) == (theirs is None), (ours, theirs)
    if ours is not None:
        assert ours[0] is theirs[0]
        if "Mismatched" in theirs[1]:
            assert ours[1].split("\n")[:3] == theirs[1].split("\n")[:3]


def test_a_message_of_ones_own():
    with pytest.raises(AssertionError, match="^mine$"):
        rl.testing.assert_close(rl.ones(1), rl.zeros(1), msg="mine")
    with pytest.raises(AssertionError, match="^mine: Tensor"):
        rl.testing.assert_close(rl.ones(1), rl.zeros(1), msg=lambda said: "mine: " + said)


def test_flags_of_back_ends():
    import rushlight.backends.cudnn as cudnn

    assert cudnn is rl.backends.cudnn and not cudnn.is_available()
    cudnn.benchmark, before = True, cudnn.benchmark
    assert rl.backends.cudnn.benchmark is True
    cudnn.benchmark = before
    rl.backends.cuda.matmul.allow_tf32 = True
    assert not rl.backends.mps.is_available() and rl.backends.mkldnn.is_available()
    with pytest.raises(AttributeError, match="benchmrk"):
        cudnn.benchmrk = True


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_powers_of_matrices(n, oracle):
    for shape in ((3, 3), (2, 3, 3)):
        found = []
        for lib in (rl, oracle):
            a = (lib.arange(float(np.prod(shape))) / 9).view(shape)
            a.requires_grad_()
            made = lib.linalg.matrix_power(a, n)
            if n:
                made.sum().backward()
            found.append([made.detach().numpy(), *([a.grad.numpy()] if n else [])])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_products_of_several(oracle):
    for first, last in (((2, 3), (4, 1)), ((3,), (4, 1)), ((2, 3), (4,)), ((3,), (4,))):
        shapes = (first, (3, 5), (5, 4), last)
        ours, theirs = (lib.linalg.multi_dot([lib.ones(s) for s in shapes]) for lib in (rl, oracle))
        assert ours.tolist() == theirs.tolist()
    a = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
    ours, theirs = (lib.linalg.cross(lib.tensor(a), lib.tensor(a).flip(0)) for lib in (rl, oracle))
    assert ours.tolist() == theirs.tolist()
    ours, theirs = (lib.linalg.vander(lib.tensor(a), N=4) for lib in (rl, oracle))
    assert ours.tolist() == theirs.tolist()


def test_make_tensor(oracle):
    """Shapes, strides, dtypes and bounds; the numbers are drawn."""
    for lib in (rl, oracle):
        make = lib.testing.make_tensor
        for name in ("bool", "uint8", "int32", "float16", "float32", "complex64"):
            dtype = getattr(lib, name)
            x = make(3, 4, dtype=dtype, device="cpu")
            assert tuple(x.shape) == (3, 4) and x.dtype is dtype
            if name != "bool" and not x.is_complex():
                assert x.min() >= (0 if name == "uint8" else -9) and x.max() <= 9
        x = make((2, 3), dtype=lib.float32, device="cpu", low=1, high=2, requires_grad=True)
        assert x.requires_grad and x.min() >= 1 and x.max() <= 2
        x = make(4, 3, dtype=lib.float32, device="cpu", noncontiguous=True)
        assert tuple(x.shape) == (4, 3) and not x.is_contiguous()
        x = make(50, dtype=lib.int64, device="cpu", low=0, high=2, exclude_zero=True)
        assert x.min() == 1
        with pytest.raises(ValueError, match="less than|is below high"):
            make(2, dtype=lib.int64, device="cpu", low=3, high=3)
