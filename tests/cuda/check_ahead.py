"""What a process pays for once on a GPU: cuBLASLt is opened beside the program, and its choices of
algorithms are found again by the next process.
"""
# settings: RUSHLIGHT_CUDA_AHEAD=1

import os
import subprocess
import sys
import tempfile
import time

import stand_in

import rushlight as rl
from rushlight import _core

HERE = """
import ctypes, os, sys, time
import stand_in
import rushlight as rl
from rushlight import _core
stand_in.install()
def seen(name):
    return ctypes.c_long.in_dll(ctypes.CDLL(os.environ["RUSHLIGHT_CUBLASLT"]), name).value
"""


def program(code, **settings):
    """What a program says."""
    done = subprocess.run(
        [sys.executable, "-c", HERE + code],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def check_the_first_matrix_begins_it_and_the_first_product_waits_for_no_second_handle():
    told = program(
        """
rl.ones(8, device="cuda"), rl.ones(4, 4, dtype=rl.int64, device="cuda"), rl.ones(4, 4)
before = seen("fake_handles")
x = rl.ones(4, 4, device="cuda")
begun = time.perf_counter()
y = x + x
ours = time.perf_counter() - begun
total = (y @ x).sum().item()
print(before, ours < 0.2, total, seen("fake_handles"), *_core.cuda_ahead(0, True))
""",
        RUSHLIGHT_FAKE_BLAS_SLOW="300",
    )
    assert told == "0 True 128.0 1 True True", told


def check_it_can_be_turned_off():
    code = """
x = rl.ones(4, 4, device="cuda")
_core.cuda_ahead(0, True)
handles = seen("fake_handles")
print(handles, (x @ x).sum().item(), seen("fake_handles"))
"""
    assert program(code, RUSHLIGHT_CUDA_AHEAD="0") == "0 64.0 1"


def check_what_goes_wrong_is_told_where_a_product_is_asked_for():
    code = """
x = rl.ones(4, 4, device="cuda")
begun, over, refusal = _core.cuda_ahead(0, True)
print(refusal)
print((x + x).sum().item())
try:
    print((x @ x).sum().item())
except RuntimeError as error:
    print(error)
print((x @ x).sum().item())
"""
    told = program(code, RUSHLIGHT_FAKE_BLAS_REFUSES="2").splitlines()
    assert "cublasLtCreate" in told[0] and told[1] == "32.0", told
    assert "refuses: status 3 (cublasLtCreate)" in told[2] and told[3] == "64.0", told
    told = program(code, RUSHLIGHT_CUBLASLT="/nowhere/libcublasLt.so").splitlines()
    assert "cuBLASLt cannot be opened (/nowhere" in told[0], told
    assert told[2:] == ["64.0", "64.0"], told  # on the host


def check_a_process_ends_while_it_is_under_way():
    begun = time.perf_counter()
    code = 'x = rl.ones(4, 4, device="cuda"); print(seen("fake_handles"))'
    assert program(code, RUSHLIGHT_FAKE_BLAS_SLOW="400") == "0"
    assert time.perf_counter() - begun < 30


def check_a_fork_waits_and_its_child_does_without():
    told = program(
        """
x = rl.ones(4, 4, device="cuda")
from rushlight.runtime.cuda import libraries
time.sleep(0.1)
child = os.fork()
if not child:  # no lock is held there
    print(rl.ones(3, 3).sum().item(), repr(libraries.missing("cublaslt")), end=" ", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print((x @ x).sum().item(), seen("fake_handles"))
""",
        RUSHLIGHT_FAKE_BLAS_SLOW="400",
    )
    assert told == "9.0 '' 64.0 1", told


CHOICES = """
from rushlight import nn
stand_in.install_compiler()
from rushlight.runtime.cuda import choices
net = nn.Sequential(*(nn.Linear(*s) for s in ((8, 16), (16, 8)) * 2)).cuda()
x = rl.ones(4, 8, device="cuda")
with rl.no_grad():
    got = rl.compile(net)(x)
    assert rl.allclose(got.cpu(), net.cpu()(x.cpu()), rtol=1e-4, atol=1e-5)
print(seen("fake_questions"), seen("fake_products"))
"""


def check_a_second_process_asks_for_no_heuristics():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        run = lambda code=CHOICES, **s: program(code, RUSHLIGHT_CACHE_DIR=folder, **s)
        assert run() == "2 4"  # equal products are asked for once
        assert run() == "0 4"
        assert run(RUSHLIGHT_FAKE_BLAS_VERSION="130200") == "2 4"  # another library's choices
        (kept,) = [f for f in os.listdir(folder) if f.endswith(".program") and choices(folder, f)]
        assert os.path.getsize(os.path.join(folder, kept)) > 4 * (31 * 8 + 72)  # those of both


def choices(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return b"choices of cuBLASLt" in file.read()


def check_eager_products_leave_nothing():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        code = """
x = rl.ones(4, 4, device="cuda")
q = rl.ones(1, 1, 16, 16, device="cuda", dtype=rl.bfloat16)
print((x @ x).sum().item(), rl.nn.functional.scaled_dot_product_attention(q, q, q).sum().item())
print(*(name for name in sys.modules if "triton" in name))
"""
        assert program(code, RUSHLIGHT_CACHE_DIR=folder) == "64.0 256.0"
        assert os.listdir(folder) == []


def check_bytes_that_are_none():
    stand_in.install()
    assert _core.cuda_product_choices(0, b"12345") is False
    assert _core.cuda_product_choices(0, b"") is True
    assert _core.cuda_product_choices(0) == (b"", 0)
    x = rl.ones(2, 2, device="cuda")
    x @ x
    told, asked = _core.cuda_product_choices(0)
    assert asked == 1 and _core.cuda_product_choices(0, told) is True
    assert _core.cuda_product_choices(0) == (told, 1)


stand_in.main(globals())
