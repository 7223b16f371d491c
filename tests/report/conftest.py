"""A synthetic run: what the native core would record of a small encoder layer, with round times.

`run` is a Run made of it; `golden(name, text)` compares with tests/report/golden/NAME, or writes it
when the environment has REFRESH_GOLDEN=1.
"""

import os
from pathlib import Path

import pytest

from rushlight import reasons, trace
from rushlight.errors import Where
from rushlight.report.records import read_calls
from rushlight.report.stages import Run

GOLDEN = Path(__file__).parent / "golden"

X, W, B, Y = "float32[64, 384]", "float32[384, 384]", "float32[384]", "float32[64, 384]"
ROW = "float32[64, 1]"
KERNELS = {
    "add.float32.TT": {"origin": "ops/pointwise.py:41", "outer": 1, "inner": 1},
    "gelu.float32.T": {"origin": "ops/pointwise.py:88", "outer": 1, "inner": 1},
}


def native_records():
    """Tuples as docs/native.md describes them, in the order in which calls end."""
    made = []
    clock = 1_000_000
    for layer in range(2):
        hit, first = layer > 0, 10 * layer
        made += [
            (first + 2, first + 1, 2, "transpose", "view", True, clock + 2_000, clock + 2_500,
             (W,), ("float32[384, 384] (1, 384)",), "transpose", ""),
            (first + 3, first + 1, 2, "mm", "library", hit, clock + 3_000, clock + 203_000,
             (X, "float32[384, 384] (1, 384)"), (Y,), "onednn sgemm", ""),
            (first + 1, first, 1, "addmm", "composition", hit, clock + 1_000, clock + 210_000,
             (B, X, W), (Y,), "program", ""),
            (first, None, 0, "linear", "composition", hit, clock, clock + 212_000,
             (X, W, B), (Y,), "program", "/app/encoder.py:12 in forward"),
            (first + 4, None, 0, "gelu", "scalar", hit, clock + 300_000, clock + 340_000,
             (Y,), (Y,), "gelu.float32.T", "/app/encoder.py:13 in forward"),
            (first + 5, None, 0, "add", "scalar", hit, clock + 400_000, clock + 412_000,
             (X, Y), (Y,), "add.float32.TT", "/app/encoder.py:14 in forward"),
        ]  # fmt: skip
        clock += 1_000_000
    made.append(
        (99, None, 0, "to", "scalar", False, clock, clock + 5_000,
         ("int64[64]",), ("float32[64]",), "to.int64.float32.T", "/app/embed.py:3")
    )  # fmt: skip
    return made


@pytest.fixture
def calls():
    return read_calls(native_records())


@pytest.fixture
def run(calls):
    with trace.collect() as records:
        where = Where("/app/encoder.py", 12, "forward")
        for _ in range(3):
            reasons.refuse(
                "eager.operand_copied", "mm", "y has strides (1, 384)",
                hint="Keep the weight transposed.", where=where,
            )  # fmt: skip
    facts = {"rushlight": "0.1.0", "python": "3.11.7", "isa": "avx512", "threads": 2, "gpu": False}
    return Run("embed.py", calls, records, wall_ns=3_000_000, facts=facts, kernels=KERNELS)


@pytest.fixture
def golden():
    def compare(name, text):
        file = GOLDEN / name
        if os.environ.get("REFRESH_GOLDEN") == "1":
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text)
        assert text == file.read_text(), "REFRESH_GOLDEN=1 pytest tests/report"

    return compare
