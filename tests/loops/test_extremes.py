"""Largest and least of rows: NaN wherever it stands, and one NaN; the same bits in both forms."""

import numpy as np
import pytest

import rushlight as rl

SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0)


@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 70, 4097])
def test_special_values_at_every_place(name, dtype, length):
    places = range(length) if length < 100 else (0, 1, 15, 16, 4095, 4096)
    rows = []
    for value in SPECIAL:
        for at in places:
            row = np.random.default_rng(at).normal(0, 1, length)
            row[at] = value
            rows.append(row)
    for value in SPECIAL:
        rows.append(np.full(length, value))
    x = np.array(rows).astype(dtype)
    found = getattr(rl, name)(rl.from_numpy(x), 1).numpy()
    np.testing.assert_array_equal(found, getattr(np, name[1:])(x, 1))  # NaN equals NaN here
    across = getattr(rl, name)(rl.from_numpy(np.ascontiguousarray(x.T)), 0).numpy()
    assert found.tobytes() == across.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maximum_and_minimum_of_special_values(dtype):
    ends = np.array([*SPECIAL, 1.5, -1.5], dtype)
    a, b = (v.ravel() for v in np.meshgrid(ends, ends))
    x, y = rl.from_numpy(a), rl.from_numpy(b)
    for name in "maximum", "minimum":
        found = getattr(rl, name)(x, y).numpy()
        np.testing.assert_array_equal(found, getattr(np, name)(a, b))
        equal = (a == 0) & (b == 0)  # of equal zeros the second
        assert (np.signbit(found) == np.signbit(b))[equal].all()
