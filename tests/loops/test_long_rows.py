"""One long row on several threads: the bits of one thread."""

import numpy as np
import pytest

import rushlight
from rushlight import _core

# From what one thread keeps to itself, over whole blocks, to blocks and lanes cut short.
LENGTHS = (5_000, 1 << 20, (1 << 20) + 1, 3_000_017)
CALLS = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "amax": lambda x: rushlight.amax(x, 0),
}


@pytest.fixture
def threads():
    before = _core.num_threads()
    yield _core.set_num_threads
    _core.set_num_threads(before)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("name", CALLS)
def test_bits_do_not_depend_on_threads(threads, name, dtype, length):
    if name == "mean" and dtype == "int64":
        pytest.skip("the mean of integers is not defined")
    numbers = np.random.default_rng(0).normal(0, 100, length).astype(dtype)
    found = set()
    for count in 1, 2, 3, 7:
        threads(count)
        _core.plan_clear()
        found.add(CALLS[name](rushlight.from_numpy(numbers)).numpy().tobytes())
    assert len(found) == 1


def test_nan_is_found_in_every_block(threads):
    threads(2)
    for at in 0, 1_000_000, 1_999_999:
        numbers = np.zeros(2_000_000, np.float32)
        numbers[at] = np.nan
        assert np.isnan(rushlight.amax(rushlight.from_numpy(numbers), 0).item())
