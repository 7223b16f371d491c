"""The terminal report, word for word."""

from rushlight.report import terminal
from rushlight.report.observe import observe
from rushlight.report.records import Calls, read_calls
from rushlight.report.stages import Run


def text(renderable, width=100):
    return terminal.to_text(lambda: renderable, width)


def test_report(run, golden):
    golden("report.txt", text(terminal.report(observe(run), "rushlight explain embed.py")))


def test_way_down(run, golden):
    golden("way_down.txt", text(terminal.way_down(observe(run, "linear").way_down)))


def test_kernel(run, golden):
    source = "void gelu(const float* x, float* y, long n) {\n  y[0] = x[0];\n}\n"
    (row,) = [row for row in observe(run).kernels if row.key.startswith("gelu")]
    views = [
        ("Declared at a.py:1", "python", "def gelu(x):\n    return x\n", None),
        ("Generated C++", "cpp", source, {2: ("a.py:1",)}),
    ]
    golden("kernel.txt", text(terminal.kernel(row, row.key, views)))


def test_nothing_is_read_as_markup_and_long_text_wraps():
    name = "[bold red]<b>evil[/]" + "x" * 300
    call = (0, None, 0, name, "scalar", True, 0, 5, ("f32[2]",), ("f32[2]",), name, "[link]a.py:1")
    shown = text(terminal.report(observe(Run(name, read_calls([call])))), 80)
    assert "[bold red]<b>evil[/]" in shown and "[link]a.py:1" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_long_table_says_what_it_left_out():
    records = [
        (i, None, 0, f"op{i}", "scalar", True, i, i + 1, (), (), f"op{i}.float32.T", f"a.py:{i}")
        for i in range(40)
    ]
    shown = text(terminal.report(observe(Run("a.py", read_calls(records))), rows=5))
    assert "and 35 more operators" in shown and "and 35 more lines" in shown


def test_a_run_without_operators_is_a_short_report():
    shown = text(terminal.report(observe(Run("a.py", Calls(), error="ValueError: no"))))
    assert "The program stopped with ValueError: no" in shown
    assert "Operators" not in shown
