"""The same tensors on both sides, and comparisons across them: values, bits, strides, errors."""

import numpy as np
import pytest

import rushlight as rl

DTYPES = rl.DTYPES if hasattr(rl, "DTYPES") else ()
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def numpy_of(x):
    """The values of either library's tensor as an array; bfloat16 as float32 (exactly)."""
    x = x.detach()
    if str(x.dtype).endswith("bfloat16"):
        x = x.float()
    return np.array(x.numpy())


def dtype_name(x):
    return str(x.dtype).rpartition(".")[2]


def both(torch, values, dtype=None, requires_grad=False):
    """(ours, theirs) of nested numbers or an array."""
    array = np.asarray(values)
    pair = []
    for lib in (rl, torch):
        x = lib.tensor(array.tolist(), dtype=getattr(lib, dtype or array.dtype.name))
        x = x.reshape(array.shape)
        pair.append(x.requires_grad_() if requires_grad else x)
    return tuple(pair)


def randn(torch, *shape, seed=0, requires_grad=False, dtype="float32"):
    array = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return both(torch, array, dtype, requires_grad)


def counted(torch, *shape, dtype="float32"):
    """0, 1, 2, ... in the given shape."""
    return both(torch, np.arange(int(np.prod(shape))).reshape(shape), dtype)


def same(ours, theirs, context=""):
    """Shape, dtype, values and the sign of zeros, bit by bit; NaN equals NaN."""
    assert tuple(ours.shape) == tuple(theirs.shape), context
    assert dtype_name(ours) == dtype_name(theirs), context
    a, b = numpy_of(ours), numpy_of(theirs)
    np.testing.assert_array_equal(a, b, err_msg=str(context))
    if a.dtype.kind == "f":
        number = ~np.isnan(a)
        np.testing.assert_array_equal(
            np.signbit(a)[number], np.signbit(b)[number], err_msg=f"signs {context}"
        )


def close(ours, theirs, rtol=1e-5, atol=1e-6, context=""):
    assert tuple(ours.shape) == tuple(theirs.shape), context
    assert dtype_name(ours) == dtype_name(theirs), context
    np.testing.assert_allclose(
        numpy_of(ours), numpy_of(theirs), rtol=rtol, atol=atol, err_msg=str(context)
    )


def same_layout(ours, theirs, context=""):
    """Sizes, strides (of dims that have any meaning) and offset."""
    assert tuple(ours.shape) == tuple(theirs.shape), context
    if ours.numel():
        assert tuple(ours.stride()) == tuple(theirs.stride()), context
        assert ours.storage_offset() == theirs.storage_offset(), context
    assert ours.is_contiguous() == theirs.is_contiguous(), context


def outcome(function, *args, **kwargs):
    """("ok", value) or ("error", type)."""
    try:
        return "ok", function(*args, **kwargs)
    except AssertionError:
        raise
    except Exception as error:
        return "error", type(error)


KINDS = (TypeError, IndexError, ValueError, NotImplementedError, MemoryError, RuntimeError)


def kind(error):
    """The built-in type that a caught exception counts as."""
    return next((k for k in KINDS if issubclass(error, k)), error)


def both_do(function, ours, theirs, check=same, context=""):
    """Runs function(lib tensors...) on both; the same value, or the same kind of error."""
    a, b = outcome(function, *ours), outcome(function, *theirs)
    assert a[0] == b[0], f"{context}: ours {a}, theirs {b}"
    if a[0] == "error":
        assert issubclass(a[1], kind(b[1])), f"{context}: ours {a}, theirs {b}"
    elif a[1] is not None:
        check(a[1], b[1], context=context)


def note_of(error):
    return "\n".join(getattr(error, "__notes__", ()))


def raises(kind, *words, match=None):
    """pytest.raises that also looks for words in the message."""
    return _Raises(kind, words, match)


class _Raises:
    def __init__(self, kind, words, match):
        self.words, self.inner = words, pytest.raises(kind, match=match)

    def __enter__(self):
        self.caught = self.inner.__enter__()
        return self.caught

    def __exit__(self, *info):
        done = self.inner.__exit__(*info)
        for word in self.words:
            assert word in str(self.caught.value), f"{word!r} not in {self.caught.value}"
        return done
