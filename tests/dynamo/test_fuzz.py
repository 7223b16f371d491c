"""Three hundred random programs, eager against compiled (fuzz.py says how they are made)."""

import pytest

from rushlight import config

from . import fuzz

CHUNK = 20


@pytest.mark.parametrize("first", range(0, 300, CHUNK))
def test_programs(first):
    with config.changed(strict=True):
        for seed in range(first, first + CHUNK):
            difference = fuzz.run(seed)
            assert difference is None, f"seed {seed}: {difference}"


def test_a_difference_is_seen():
    """The fuzzer can fail: a program that looks at whether it is captured."""
    text = (
        "def program(x, y, n, items, table, box, w):\n"
        "    from rushlight import compiler\n"
        "    return compiler.is_compiling()\n"
    )
    assert "eager" in fuzz.run(0, text)
