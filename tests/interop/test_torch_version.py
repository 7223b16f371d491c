"""Versions are ordered as versions, not as text."""

import pytest

from rushlight.interop.torch_version import TorchVersion, key

IN_ORDER = (
    "2.0.dev3 2.0a1 2.0b2 2.0rc1.dev1 2.0rc1 2.0 2.0+cpu 2.0+1 2.0.post1 2.0.1 2.9 2.10 1!1.0"
).split()


def test_the_order_is_that_of_packaging():
    version = pytest.importorskip("packaging.version")
    assert sorted(IN_ORDER, key=version.parse) == IN_ORDER
    assert sorted(IN_ORDER, key=key) == IN_ORDER
    assert TorchVersion("2.13.0") >= version.parse("2.9")


def test_comparisons_with_texts_and_tuples():
    v = TorchVersion("2.13.0+rushlight")
    assert v > "2.9" and v >= (2, 0) and v < [3] and not v <= "2.2" and "1.10" < v
    assert v == "2.13+rushlight" and v != "2.13.0" and v != None  # noqa: E711
    assert v.startswith("2.13") and isinstance(v, str) and {v: 1}["2.13.0+rushlight"] == 1
    assert v > "1.x is no version" and not v > "nightly"  # as text
    with pytest.raises(ValueError, match="no version to compare"):
        v < 2  # noqa: B015
