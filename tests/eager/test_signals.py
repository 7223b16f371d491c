"""Signals while a library computes: their frames land where its code has the stack pointer."""

import subprocess
import sys

import pytest

# Their own processes: the defect ends them, and the test runner's fault handler gives the thread a
# signal stack of its own, which hides the defect.
SCRIPT = """
import signal
import time

import rushlight as torch

torch.manual_seed(0)
{operands}
for _ in range(3):
    wanted = ({call}).tolist()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
end = time.monotonic() + 1
while time.monotonic() < end:
    for _ in range(10):
        got = {call}
signal.setitimer(signal.ITIMER_REAL, 0)
assert got.tolist() == wanted
"""

CALLS = {
    # Operands that lie as attention's do.
    "product": (
        "weights = torch.randn(12, 128, 128)\n"
        "values = torch.randn(128, 3, 12, 64)[:, 2].transpose(0, 1)",
        "weights @ values",
    ),
    # More than 84 output channels a group, an odd number of groups.
    "convolution": (
        "w, y = torch.randn(360, 9, 3, 3), torch.randn(2, 360, 18, 18)",
        "torch.nn.functional.conv_transpose2d(y, w, groups=3)",
    ),
}


def run(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("name", CALLS)
def test_a_timer_ticks_during(name):
    operands, call = CALLS[name]
    run(SCRIPT.format(operands=operands, call=call))
