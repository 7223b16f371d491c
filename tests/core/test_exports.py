"""What our native files show to other libraries in the process."""

import os
import re
import shutil
import subprocess

import pytest

import rushlight
from rushlight import _core

OURS = re.compile(r"_Z(T[ISVHW]|GV)?NK?2rl|rl_|rushlight_|PyInit__core$")


def files() -> list[str]:
    library = os.path.join(os.path.dirname(rushlight.__file__), "lib")
    named = ("librushlight_rt", "libkernels_")
    return [_core.__file__] + sorted(
        os.path.join(library, f) for f in os.listdir(library) if f.startswith(named)
    )


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm of binutils")
@pytest.mark.skipif("RUSHLIGHT_CORE" in os.environ, reason="a build for the sanitizers")
@pytest.mark.parametrize("file", files(), ids=os.path.basename)
def test_a_native_file_shows_only_its_own_names(file):
    """Names of the C++ library that we showed took part of the locale of a libstdc++ opened after
    us, wherever ours was linked statically: cuDNN crashed at the first number it printed."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True
    ).stdout
    names = [row.split()[-1] for row in listed.splitlines()]
    assert names
    assert not [name for name in names if not OURS.match(name)]
