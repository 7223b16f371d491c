"""Signals while a library multiplies: their frames land where its code has the stack pointer."""

import subprocess
import sys

# Operands that lie as attention's do. Its own process: the defect ends it, and the test runner's
# fault handler gives the thread a signal stack of its own, which hides the defect.
SCRIPT = """
import signal
import time

import rushlight as torch

torch.manual_seed(0)
weights, values = torch.randn(12, 128, 128), torch.randn(128, 3, 12, 64)[:, 2].transpose(0, 1)
for _ in range(3):
    wanted = (weights @ values).tolist()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
end = time.monotonic() + 1
while time.monotonic() < end:
    for _ in range(50):
        got = weights @ values
signal.setitimer(signal.ITIMER_REAL, 0)
assert got.tolist() == wanted
"""


def test_a_timer_ticks_during_products_of_transposed_operands():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
