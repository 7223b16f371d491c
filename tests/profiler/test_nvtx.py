"""Ranges of NVTX, taken by a tool of the test's own: a library as Nsight Systems injects one."""

import ctypes
import shutil
import subprocess
import threading

import pytest

import rushlight as rl
from rushlight.profiler import nvtx, profile, record_function

TOOL = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color;
  int32_t payload_type, reserved; int64_t payload; int32_t message_type;
  const char* message; } Event;
typedef void (*Function)(void);
typedef struct { size_t size; int (*get)(int, Function***, unsigned*); } Callbacks;
static char seen[1 << 16];
static void add(const char* text) { strncat(seen, text, sizeof seen - strlen(seen) - 1); }
static int push(const Event* e) {
  char line[400];
  snprintf(line, sizeof line, "push %s %u %d %d\n", e->message, e->category,
           e->version == 3 && e->size == 48 && e->message_type == 1, e->payload != 0);
  add(line);
  return 0;
}
static int push_named(const char* name) { add("push "); add(name); add("\n"); return 0; }
static int pop(void) { add("pop\n"); return 0; }
static void mark(const char* name) { add("mark "); add(name); add("\n"); }
int InitializeInjectionNvtx2(const void* (*table)(uint32_t)) {
  const Callbacks* c = table(1);
  Function** f;
  unsigned n;
  if (!c || !c->get(1, &f, &n) || n != 16 || c->get(5, &f, &n)) return 0;
  c->get(1, &f, &n);
  *f[2] = (Function)mark;
  *f[8] = (Function)push;
  *f[9] = (Function)push_named;
  *f[11] = (Function)pop;
  return 1;
}
const char* take(void) { static char copy[1 << 16]; strcpy(copy, seen); seen[0] = 0; return copy; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler builds the tool")
    folder = tmp_path_factory.mktemp("tool")
    (folder / "tool.c").write_text(TOOL)
    made = folder / "tool.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, folder / "tool.c"], check=True)
    return str(made)


@pytest.fixture
def seen(library, monkeypatch):
    monkeypatch.setenv(nvtx.VARIABLE, library)
    monkeypatch.setattr(nvtx, "_tool", [])
    take = ctypes.CDLL(library).take
    take.restype = ctypes.c_char_p
    take()
    yield lambda: take().decode().splitlines()
    nvtx._tool.clear()


def names(lines):
    return [line.split()[1] for line in lines if line.startswith("push")]


def test_operators_are_ranges_that_nest(seen):
    x = rl.ones(3, 4)
    with nvtx.emit_nvtx() as taken, record_function("step"):
        rl.nn.functional.linear(x, rl.ones(2, 4))
    assert taken
    lines = seen()
    assert names(lines)[0] == "step" and "linear" in names(lines)
    assert lines[-1] == "pop" and lines.count("pop") == len(names(lines))
    assert all(line.endswith(" 4 1 1") for line in lines if "linear" in line)
    rl.relu(x)
    assert seen() == []


def test_compiled_code_has_its_steps_graphs_and_kernels(seen):
    def f(x):
        return rl.sin(x) * 2 + 1

    g, x = rl.compile(f), rl.ones(3, 4)
    with nvtx.emit_nvtx():
        g(x)
        first = seen()
        g(x)
    again = names(seen())
    steps = [line for line in first if line.startswith("push compile: ")]
    assert steps[0] == "push compile: capture" and "push compile: build_code" in steps
    assert first.count("pop") == sum(line.startswith("push") for line in first)
    called, graph, kernel = again
    assert called.endswith("f") and graph.startswith(f"{called}#") and "fused" in kernel


def test_each_thread_has_ranges_of_its_own(seen):
    x = rl.ones(3)

    def work():
        x + 1
        with nvtx.emit_nvtx():
            x * 2
            nvtx.step("capture")
        nvtx.step("capture")

    def run():
        other = threading.Thread(target=work)
        other.start(), other.join()
        return seen()

    alone = run()
    assert names(alone) == ["mul", "compile:"] and alone.count("pop") == 2
    with nvtx.emit_nvtx():
        nvtx.step("aot")
        seen()
        assert run() == alone
        x - 1
    assert names(lines := seen()) == ["sub"] and lines.count("pop") == 2


def test_names_are_those_of_records_which_are_kept_as_ever(seen):
    x = rl.ones(3, 4)
    with nvtx.emit_nvtx(), profile() as prof:
        (x + 1).sum()
    kinds = [e.name for e in prof.events() if e.category == "op"]
    assert [n for n in names(seen()) if n in kinds] == kinds
    with profile() as prof:
        x + 1
    assert seen() == [] and [e.name for e in prof.events() if e.category == "op"] == ["add"]


def test_ranges_and_marks_of_the_program(seen):
    with pytest.raises(ValueError), nvtx.range("load"):
        nvtx.mark("here")
        raise ValueError
    assert seen() == ["push load", "mark here", "pop"]


def test_without_a_tool_nothing_happens(monkeypatch, tmp_path):
    monkeypatch.setattr(nvtx, "_tool", [])
    monkeypatch.delenv(nvtx.VARIABLE, raising=False)
    with nvtx.emit_nvtx() as taken:
        rl.ones(2) + 1
    assert not taken
    nvtx.range_push("x"), nvtx.range_pop()
    monkeypatch.setattr(nvtx, "_tool", [])
    monkeypatch.setenv(nvtx.VARIABLE, str(tmp_path / "none.so"))
    with rl.trace.collect() as records:
        assert nvtx.tool() is None
    assert [r.facts["reason"].id for r in records] == ["profiler.no_nvtx"]
