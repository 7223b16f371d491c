"""Exception regions of replaced code that is long: jumps then take argument extensions, which stand
at the ends of regions."""

import dis

import pytest

import rushlight as rl
from rushlight import dynamo
from rushlight.dynamo.bytecode import EXTENDED_ARG, encoded, exception_table, with_whole_regions

SOURCE = """
def program(x, y, log):
    try:
        try:
            print(end="")
        finally:
            try:
                for t in (y + 1, x):
                    t = {long}
                    try:
                        {{}}['no']
                    except KeyError:
                        pass
                raise KeyError('k')
            finally:
                pass
    finally:
        log.append('end')
        x.mul_(0.5)
"""


@pytest.mark.parametrize("length", [1, 6, 12, 14, 18, 40])
def test_finally_runs_however_long_the_code_is(length):
    space = {"rl": rl}
    exec(SOURCE.format(long=" + ".join(["rl.add(t, 1)"] * length)), space)
    dynamo.reset()
    for f in (space["program"], rl.compile(space["program"], backend="eager")):
        for _ in range(2):
            x, log = rl.ones(2), []
            with pytest.raises(KeyError, match="k"):
                f(x, rl.ones(2), log)
            assert x.tolist() == [0.5, 0.5] and log == ["end"]


def test_tables_are_written_as_they_are_read():
    space = {}
    exec(SOURCE.format(long=" + ".join(["t"] * 200)), space)
    code = space["program"].__code__
    table = list(exception_table(code))
    assert len(table) > 5 and encoded(table) == code.co_exceptiontable
    assert with_whole_regions(code) is code


def test_a_region_takes_the_extensions_of_its_first_instruction():
    space = {}
    exec(SOURCE.format(long=" + ".join(["t"] * 400)), space)
    code = space["program"].__code__
    table = list(exception_table(code))
    extended = [n for n in range(0, len(code.co_code), 2) if code.co_code[n] == EXTENDED_ARG]
    starts = {start for start, *_ in table}
    found = [n for n in extended if n in starts]
    if not found:
        pytest.skip(f"{dis.__name__} shows no region that begins so")
    cut = [(s + 2, e, *rest) if s == found[0] else (s, e, *rest) for s, e, *rest in table]
    mended = with_whole_regions(code.replace(co_exceptiontable=encoded(cut)))
    assert list(exception_table(mended)) == table
