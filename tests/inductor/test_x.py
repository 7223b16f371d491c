from ..ops.materialize import CASES


def test_a():
    assert CASES
