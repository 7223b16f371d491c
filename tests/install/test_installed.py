"""What an installed (or in-place) build consists of; it does not depend on where it lies."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

core = pytest.importorskip(
    "rushlight._core", reason="the native core is not built", exc_type=ImportError
)
PACKAGE = Path(core.__file__).parent
LIB = PACKAGE / "lib"
# Children import this very package, not one in the folder where they start.
HERE = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
NATIVE = [Path(core.__file__), *sorted(LIB.glob("*.so*"))]


def test_the_runtime_and_a_kernel_library_are_there():
    assert (LIB / "librushlight_rt.so").exists()
    assert list(LIB.glob("libkernels_v[234].so"))


def test_a_library_that_travels_has_its_licence():
    if (LIB / "libdnnl.so.3").exists():
        assert (LIB / "licenses" / "onednn" / "LICENSE").exists()


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not here")
@pytest.mark.parametrize("path", NATIVE, ids=[p.name for p in NATIVE])
def test_libraries_are_found_beside_one_another(path: Path):
    dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
    runpaths = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "PATH)" in line]
    assert all(p.startswith("$ORIGIN") for found in runpaths for p in found.split(":"))


PROGRAM = """
import hashlib, sys
import rushlight as torch
from rushlight.nn import functional as F
x = torch.arange(70000, dtype=torch.float32).reshape(70, 1000) * 0.001 - 35.0
digest = hashlib.sha256()
for y in (x + 1.5, torch.exp(x), torch.tanh(x), F.gelu(x), x.sum(-1), torch.softmax(x, -1),
          F.layer_norm(x, (1000,))):
    digest.update(y.numpy().tobytes())
print(digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits():
    """Pointwise code, folds and row bodies; what this build and this processor have."""
    digests = {}
    for library in sorted(LIB.glob("libkernels_v[234].so")):
        isa = library.stem.split("_")[1]
        if isa > core.isa():
            continue
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            env={**HERE, "RUSHLIGHT_ISA": isa},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{isa}: {done.stderr}"
        digests[isa] = done.stdout.strip()
        assert len(digests[isa]) == hashlib.sha256().digest_size * 2
    assert len(set(digests.values())) == 1, digests


def test_an_unknown_instruction_set_is_refused_with_its_name():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import rushlight; rushlight.ones(2) + 1"],
        env={**HERE, "RUSHLIGHT_ISA": "v9"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "v9" in done.stderr
