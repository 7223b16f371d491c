"""Runs each native_*.py in a process of its own, where core stands alone with the harness's
hooks.
"""

import glob
import os
import subprocess
import sys

import pytest

core = pytest.importorskip(
    "rushlight._core", reason="the native core is not built", exc_type=ImportError
)
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize(
    "name", sorted(os.path.basename(f) for f in glob.glob(os.path.join(HERE, "native_*.py")))
)
def test_native(name):
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            "--import-mode=prepend",  # they import harness.py, which lies beside them
            os.path.join(HERE, name),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={"RUSHLIGHT_CORE": core.__file__, **os.environ},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
