"""Machine code under the kernels' own names, in order."""

import shutil

import pytest

import rushlight as rl
from rushlight import observation
from rushlight.report import machine_code
from rushlight.report.origins import spans

ROWS = """\
0000000000001000 <_ZL15kernel_10_entryPKPvPKxPK9rl_number.constprop.0>:
    1000:   push   %rbp
    1001:   jle    1000 <_ZL15kernel_10_entryPKPvPKxPK9rl_number.constprop.0>

0000000000001010 <_ZL14kernel_1_entryPKPvPKxPK9rl_number.constprop.0>:
    1010:   jne    1012 <_ZL14kernel_1_entryPKPvPKxPK9rl_number.constprop.0+0x2>
    1012:   ret

0000000000001020 <kernel_1>:
    1020:   jmp    1010 <_ZL14kernel_1_entryPKPvPKxPK9rl_number.constprop.0>
    1025:   nopl   0x0(%rax)

0000000000001030 <kernel_10>:
    1030:   jmp    1000 <_ZL15kernel_10_entryPKPvPKxPK9rl_number.constprop.0>

0000000000001040 <helper>:
    1040:   ret""".splitlines()


def test_each_kernel_has_its_part_under_its_name():
    symbols = {"fused_add_1": "kernel_1", "fused_add_12": "kernel_10", "fused_add_13": "kernel_10"}
    text, found = machine_code.listing(ROWS, symbols)
    lines = text.splitlines()
    assert found == [(1, 5, "fused_add_1"), (6, 10, "fused_add_12")]
    assert lines[0] == "fused_add_1:" and "<fused_add_1.constprop.0>" in lines[1]
    assert lines[2] == "fused_add_1.constprop.0:"
    assert lines[3].endswith("<fused_add_1.constprop.0+0x2>")
    assert lines[5] == "fused_add_12:" and lines[10] == "helper:"
    assert "_ZL" not in text and len(lines) == 12


def test_long_functions_are_cut_and_short_ones_stay(monkeypatch):
    monkeypatch.setattr(machine_code, "ROWS", 100)
    rows = ["00 <kernel_0>:", *["  1: ret"] * 500, "00 <kernel_1>:", *["  2: ret"] * 9]
    text, found = machine_code.listing(rows, {"long": "kernel_0", "short": "kernel_1"})
    assert [name for _, _, name in found] == ["long", "short"]
    assert text.count("2: ret") == 9 and text.count("1: ret") == 88
    assert "... 412 more instructions" in text and len(text.splitlines()) == 100


def test_a_span_begins_at_the_whole_name():
    text = "// fused_add_12\nx\n// fused_add_1\ny\n"
    starts = {f"// {name}": name for name in ("fused_add_1", "fused_add_12")}
    assert spans(text, starts) == [(1, 2, "fused_add_12"), (3, 4, "fused_add_1")]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads machine code")
def test_a_precompiled_kernel_is_listed_under_its_key():
    explained = rl.explain(rl.relu)(rl.randn(8))
    (row,) = [k for k in explained.observed.kernels if k.key.startswith("relu")]
    view = observation.disassembled_kernel(row.key)
    lines = view.text.splitlines()
    assert lines[0] == f"{row.key}:" and len(lines) > 3
    assert any(f"<{row.key}+0x" in line for line in lines[1:]) and "cxa_finalize" not in view.text
