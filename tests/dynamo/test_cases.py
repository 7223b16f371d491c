"""Public bug reports: each comes out as in eager mode, and few need a break."""

import pytest

import rushlight as rl
from rushlight import config, dynamo
from rushlight.dynamo import convert

from . import cases

ALL = cases.CASES + cases.EXTRA
BROKEN = {  # cases that run with a break, and why that is right
    "extra_04_zip_strict": "the exception leaves the function",
    "extra_24_complex_broadcast": "graphs hold real tensors only",
    "extra_08_backward_hook_added_later": "hooks of modules tap the run's tape",
}


@pytest.mark.parametrize(("name", "build"), ALL, ids=[name for name, _ in ALL])
def test_case(name, build):
    expected = cases.run_case(build, rl)
    assert {"raised": "AttributeError"} not in expected, "eager mode lacks a name of this case"
    dynamo.reset()
    with config.changed(strict=True):
        found = cases.run_case(build, rl, lambda f: rl.compile(f, backend="eager"))
    assert cases.same(expected, found, cases.META[name]["tol"]), f"\n{expected}\n{found}"
    assert bool(convert.BREAKS) <= (name in BROKEN), [str(b[1]) for b in convert.BREAKS.values()]


def test_at_most_one_case_in_four_breaks():
    assert len(BROKEN) * 4 <= len(ALL)
