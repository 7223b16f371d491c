"""What a library makes when it is first used, made on another core while a graph is captured.

Takes the products that a capture meets. A library is opened once a process, and what the first call
would wait for (milliseconds, up to 30; on a GPU the loading of a large library) is over when the
graph runs. Nothing is computed here: whatever fails is left to that first call.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from rushlight import _core  # type: ignore[attr-defined]

LEAST = 1 << 18  # multiply-adds: smaller products do not go to this library (csrc/rt/gemm.cpp)
BATCHED = frozenset(("bmm", "baddbmm", "matmul", "scaled_dot_product_attention"))
PRODUCTS = BATCHED | {"mm", "addmm", "linear", "convolution", "conv1d", "conv2d", "conv3d"}
DTYPES = ("float32", "bfloat16", "float16")
begun: dict[bool, threading.Thread] = {}  # with gaps or without -> who prepares for that


def notice(name: str, operands: Any, work: int) -> None:
    """A product of `work` multiply-adds on operands of these layouts was captured."""
    if operands[0].device.startswith("cuda"):
        if "conv" not in name and work:
            prepare_gpu(operands[0].device)
        return
    if work < LEAST or not all(x.device == "cpu" and x.dtype in DTYPES for x in operands):
        return
    gaps = name in BATCHED and operands[0].dtype == "float32" and any(map(has_gaps, operands))
    prepare(gaps)


def has_gaps(x: Any) -> bool:
    """Whether it is one batch of matrices that do not lie one after the other. Batches within
    batches are copied before a product."""
    if not all(type(n) is int for n in (*x.shape, *x.strides)):
        return False  # comparing symbolic sizes would leave guards
    batches = [n for n in x.shape[:-2] if n != 1]
    return len(batches) == 1 and not x.contiguous


def prepare(gaps: bool) -> None:
    """Begins once a process; with one processor there is nobody to do it beside."""
    if gaps in begun or (not gaps and begun) or len(os.sched_getaffinity(0)) < 2:
        return

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # left to the first call, which says it better
            _core.library_prepare(gaps)

    begun[gaps] = threading.Thread(target=run, name="rushlight-ahead")
    begun[gaps].start()


def prepare_gpu(device: str) -> None:
    """cuBLASLt is opened and its handle made, where the first matrix there did not begin it."""
    _core.cuda_ahead(int(device.partition(":")[2] or 0))


def wait() -> None:
    """A fork would keep locks that the thread holds."""
    for thread in begun.values():
        thread.join()


os.register_at_fork(before=wait)
