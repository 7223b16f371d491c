"""`rushlight.testing`: `assert_close`, `make_tensor`."""

from collections.abc import Mapping, Sequence

from rushlight import eager

Tensor = eager.Tensor
TOLERANCES = {  # (relative, absolute), by dtype; equality for all others
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def _tolerances(actual, expected, rtol, atol):
    if rtol is None:
        found = [TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
        return max(r for r, _ in found), max(a for _, a in found)
    return rtol, atol


def make_tensor(
    *shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False,
    exclude_zero=False, memory_format=None,
):  # fmt: skip
    """A tensor of random numbers in [low, high): by default bools, integers of -9 to 9 (0 to 9
    unsigned), floats of -9 to 9. noncontiguous: every other element of a larger one. exclude_zero:
    1, or the least normal number of a floating dtype, where it is 0.
    """
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    shape = tuple(shape)
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"[make_tensor] noncontiguous={noncontiguous!r} and memory_format={memory_format!r} "
            "exclude each other"
        )
    whole = not (dtype.is_floating_point or dtype.is_complex)
    if dtype is eager.bool:  # type: ignore[attr-defined]
        low, high = 0 if low is None else low, 2 if high is None else high
    elif whole:
        low = (-9 if dtype.is_signed else 0) if low is None else low
        high = 10 if high is None else high
    else:
        low, high = -9 if low is None else low, 9 if high is None else high
    if low != low or high != high:
        raise ValueError(f"`low` and `high` must not be NaN, got low={low} and high={high}")
    if low > high or whole and low == high:
        raise ValueError(f"[make_tensor] low is below high, got {low} and {high}")
    drawn = (*shape[:-1], 2 * shape[-1]) if noncontiguous and shape else shape
    if whole:
        made = eager.randint(int(low), int(-(-high // 1)), drawn, device=device).to(dtype)
    else:
        wide = dtype.name in ("float64", "complex128")
        real = eager.float64 if wide else eager.float32  # type: ignore[attr-defined]
        part = lambda: eager.rand(drawn, dtype=real, device=device) * (high - low) + low
        made = eager.complex(part(), part()) if dtype.is_complex else part()  # type: ignore[attr-defined]
        made = made.to(dtype)
    if noncontiguous and made.numel() > 1:
        made = made[..., ::2] if shape else made
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        least = 1 if whole else LEAST[dtype.name]
        made = made.masked_fill_(made == 0, least)
    return made.requires_grad_() if requires_grad else made


LEAST = {
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
    "complex64": 2.0**-126,
    "complex128": 2.0**-1022,
}


def assert_close(
    actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False,
    check_device=True, check_dtype=True, check_layout=True, check_stride=False, msg=None,
):  # fmt: skip
    """AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere, and shapes
    and dtypes are the same. Tensors, numbers, and sequences and mappings of them; tolerances follow
    the dtype where they are not given.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("[assert_close] give rtol and atol both, or neither")
    options = (rtol, atol, equal_nan, check_dtype, check_stride)
    said = _differ(actual, expected, options, "")
    if said is not None:
        raise AssertionError(msg(said) if callable(msg) else msg or said)


def _differ(actual, expected, options, where):
    """What is said of two values that are not close; None of those that are."""
    both = (actual, expected)
    if all(isinstance(v, Mapping) for v in both):
        if actual.keys() != expected.keys():
            keys = f"{set(actual)} != {set(expected)}"
            return f"The two mappings have other keys: {keys}.{where}"
        pairs = [(actual[k], expected[k], k) for k in expected]
    elif all(isinstance(v, Sequence) and not isinstance(v, str) for v in both):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{where}"
        pairs = [(a, b, i) for i, (a, b) in enumerate(zip(actual, expected, strict=True))]
    else:
        return _unlike(actual, expected, options, where)
    for a, b, key in pairs:
        said = _differ(a, b, options, f"\n\nThe failure occurred for item [{key}]{where}")
        if said is not None:
            return said
    return None


def _unlike(actual, expected, options, where):
    rtol, atol, equal_nan, check_dtype, check_stride = options
    if actual is None and expected is None:
        return None
    what = "Scalars"
    if isinstance(actual, Tensor) or isinstance(expected, Tensor):
        what = "Tensor-likes"
        if not (isinstance(actual, Tensor) and isinstance(expected, Tensor)):
            raise TypeError(
                f"Values of {type(actual)} and {type(expected)} cannot be compared.{where}"
            )
    elif not all(isinstance(v, (bool, int, float, complex)) for v in (actual, expected)):
        raise TypeError(f"Values of {type(actual)} and {type(expected)} cannot be compared.{where}")
    else:
        if check_dtype and type(actual) is not type(expected):
            return f"The (d)types do not match: {type(actual)} != {type(expected)}.{where}"
        kind = complex if complex in (type(actual), type(expected)) else float
        actual, expected = (eager.tensor(v, dtype=kind) for v in (actual, expected))
    if tuple(actual.shape) != tuple(expected.shape):
        return f"The shapes differ: {actual.shape} != {expected.shape}.{where}"
    if check_stride and actual.stride() != expected.stride():
        return (
            "The values for attribute 'stride()' do not match: "
            f"{actual.stride()} != {expected.stride()}.{where}"
        )
    if check_dtype and actual.dtype is not expected.dtype:
        return (
            "The values for attribute 'dtype' do not match: "
            f"{actual.dtype} != {expected.dtype}.{where}"
        )
    rtol, atol = _tolerances(actual, expected, rtol, atol)
    return _far(actual.detach(), expected.detach(), rtol, atol, equal_nan, what, where)


def _far(actual, expected, rtol, atol, equal_nan, what, where):
    a, b = actual, expected
    wide = eager.complex128 if a.is_complex() or b.is_complex() else eager.float64
    whole = not any(x.is_floating_point() or x.is_complex() for x in (a, b))
    if not whole or a.dtype is not b.dtype or rtol or atol:
        a, b = a.to(wide), b.to(wide)
        near = a.isclose(b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    else:
        near = a == b
    if bool(near.all()):
        return None
    gap = (a.to(wide) - b.to(wide)).abs().masked_fill(near, 0.0)
    part = (gap / b.to(wide).abs()).masked_fill(near, 0.0)
    wrong, count = int((~near).sum()), near.numel()
    kind = "close" if rtol or atol else "equal"
    greatest = []
    for name, values, limit in (("absolute", gap, atol), ("relative", part, rtol)):
        flat = values.reshape(-1)
        at = int(flat.argmax())
        place = tuple(int(i) for i in _place(at, values.shape))
        allowed = f" (up to {limit} allowed)" if rtol or atol else ""
        index = f" at index {place}" if values.dim() else ""
        value = flat[at].item()
        greatest.append(f"Greatest {name} difference: {value}{index}{allowed}")
    head = f"{what} are not {kind}!"
    share = f"{wrong} / {count} ({100 * wrong / count:.1f}%)"
    counted = f"\n\nMismatched elements: {share}" if near.dim() else ""
    return head + counted + "\n" + "\n".join(greatest) + where


def _place(flat, shape):
    found = []
    for n in reversed(tuple(shape)):
        found.append(flat % n)
        flat //= n
    return reversed(found)
