"""Machine code under the kernels' own names, in order."""

import os
import shutil
import struct

import pytest

import rushlight as rl
from rushlight import loaded_code, machine
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
    view = loaded_code.disassembled_kernel(row.key)
    lines = view.text.splitlines()
    assert lines[0] == f"{row.key}:" and len(lines) > 3
    assert any(f"<{row.key}+0x" in line for line in lines[1:]) and "cxa_finalize" not in view.text


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads machine code")
def test_machine_code_of_routines_is_that_of_their_functions():
    text = loaded_code.machine_code("sort", "library routine").text
    assert text.splitlines()[0].endswith(":") and "ret" in text and len(text) > 500
    missing = loaded_code.machine_code("no_such_routine", "library routine")
    assert missing.language == "text" and "no_such_routine" in missing.text


def test_a_function_ends_where_padding_follows_a_return():
    rows = [
        "  10:   push   %rbp",
        "  11:   ret",
        "  12:   mov    %rax,%rbx",
        "  15:   jmp    10 <x>",
    ]
    assert loaded_code.last_row([*rows, "  17:   nopw   0x0(%rax)", "  20:   push   %rax"]) == 3
    assert loaded_code.last_row(rows[:1]) == 1
    loop = ["  10:   je     20 <x+0x10>", "  12:   jmp    18 <x+0x8>", "  14:   nopw   0x0(%rax)"]
    assert loaded_code.last_row([*loop, "  18:   mov    %rax,%rbx", "  20:   ret"]) == 4


def jitdump(*functions):
    made = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)
    for time_ns, name, code in functions:
        body = struct.pack("<IIQQQQ", 1, 1, 0, 0, len(code), 0) + name.encode() + b"\0" + code
        made += struct.pack("<IIQ", 0, 16 + len(body), time_ns) + body
        made += struct.pack("<IIQ", 2, 16 + 8, time_ns) + bytes(8)  # debug information
    return made


def test_generated_functions_are_read_from_a_dump(tmp_path):
    file = tmp_path / "jit-1.dump"
    first = jitdump((10, "jit_a", b"\xc3"))
    file.write_bytes(first)
    assert [f[:3] for f in loaded_code.read_dump(file)] == [(10, "jit_a", b"\xc3")]
    file.write_bytes(jitdump((10, "jit_a", b"\xc3"), (20, "jit_b", b"\x90\xc3")) + b"\0\0")
    assert [f.name for f in loaded_code.read_dump(file)] == ["jit_a", "jit_b"]
    assert [f.name for f in loaded_code.read_dump(file, len(first))] == ["jit_b"]
    file.write_bytes(b"short")
    assert not list(loaded_code.read_dump(file))


def test_code_comes_before_the_list_of_it(monkeypatch):
    monkeypatch.setattr(loaded_code, "disassembled_bytes", lambda code: [f"  {len(code)}"])
    made = [("jit_a", b"1", "f32[2]"), ("jit_b", b"22", ""), ("jit_a", b"1", "f32[3]")]
    view = loaded_code.of_onednn("product", [loaded_code.Function(0, *m) for m in made])
    lines = view.text.splitlines()
    assert lines[1:6] == ["jit_b:", "  2", "", "jit_a, for f32[2]; f32[3]:", "  1"]
    assert lines[-2:] == ["  2 bytes: jit_b", "  1 bytes: jit_a, for f32[2]; f32[3]"]
    assert len(lines[0]) < 60 and "oneDNN" in lines[0]


def test_what_onednn_generates_is_shown_for_the_call_that_asked():
    generated = loaded_code.Generated()
    if loaded_code.onednn() is None or shutil.which("objdump") is None:
        pytest.skip("needs oneDNN and objdump")
    generated.start()  # around the others, which end before it does
    if not generated:
        pytest.skip("ONEDNN_JIT_PROFILE is set")
    shape = 96, 272, 144  # which no other test multiplies
    x, y = rl.randn(*shape[:2]), rl.randn(*shape[1:])
    explained = rl.explain(lambda: [x @ y for _ in range(3)])()
    code = explained._generated_code["onednn matmul"]
    view = loaded_code.machine_code("onednn matmul", "library routine", code)
    lines = view.text.splitlines()
    head = next(line for line in lines[:2] if line.startswith("jit_"))
    assert view.language == "asm" and "ret" in view.text and "oneDNN" in view.title
    assert head.endswith("for f32[96, 272] x f32[272, 144]:")
    assert rl.explain(lambda: x @ y)()._generated_code == {}
    assert "there before" in loaded_code.machine_code("onednn matmul", "library routine").text
    code = len(code)
    x, y = rl.randn(80, 304), rl.randn(304, 112)
    for _ in range(3):
        x @ y
    generated.stop()
    assert len(generated.functions) > code


def test_limits_are_the_best_that_was_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("rushlight.runtime.cache.place", lambda: str(tmp_path / "cache"))
    fast = {"bytes_per_ns": 80.0, "operations_per_ns": 100.0}
    slow = {"bytes_per_ns": 30.0, "operations_per_ns": 120.0}
    first = machine._kept(fast)
    assert first.items() >= fast.items() and first["measured"]
    assert machine._kept(slow) == {**first, "operations_per_ns": 120.0}
    (tmp_path / "cache" / machine.LIMITS).write_text("[1, 2")
    assert machine._kept(slow)["bytes_per_ns"] == 30.0


def test_limits_that_cannot_be_kept_leave_no_file(tmp_path, monkeypatch):
    def full(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        machine._write(str(tmp_path / machine.LIMITS), "{}")
    assert not list(tmp_path.iterdir())
