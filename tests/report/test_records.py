"""The adapter of native records, and the tables counted from them."""

import pytest

from rushlight.report import table, words
from rushlight.report.records import (
    Call,
    Layout,
    operations,
    read_calls,
    read_layouts,
    read_where,
    without_compiling,
)

F = Layout("float32", (2, 3))


@pytest.mark.parametrize(
    "given",
    [
        "float32[2, 3]",
        "f32[2,3]",
        "rushlight.float32[2, 3]",
        ("float32[2, 3]",),
        ["f32[2, 3]"],
        (("float32", (2, 3)),),
        ("float32", (2, 3)),
        F,
        (F,),
    ],
)
def test_layouts_in_any_form(given):
    assert read_layouts(given) == (F,)


def test_layouts_with_strides_and_of_objects():
    strided = Layout("float32", (2, 3), (1, 2))
    assert read_layouts("float32[2, 3] strides (1, 2)") == (strided,)
    assert read_layouts("float32[2, 3] (1, 2), int64[]") == (strided, Layout("int64", ()))
    assert read_layouts((("f32", (2, 3), (1, 2)),)) == (strided,)

    class Tensor:
        dtype, shape = "rushlight.float32", (2, 3)

        def strides(self):
            return (1, 2)

    assert read_layouts([Tensor()]) == (strided,)
    assert read_layouts(None) == read_layouts(()) == read_layouts("nothing here") == ()
    assert str(strided) == "f32[2, 3] strides (1, 2)" and str(F) == "f32[2, 3]"
    assert not strided.contiguous and F.contiguous and Layout("f32", (1, 3), (9, 1)).contiguous
    assert F.nbytes == 24


def test_records_of_another_length():
    full = (
        1,
        None,
        0,
        "add",
        "scalar",
        True,
        10,
        30,
        (F,),
        (F,),
        "add.float32.TT",
        "a.py:1",
        0,
        "new",
    )
    (call,) = read_calls([full])
    assert call == Call(
        1, None, 0, "add", "scalar", True, 10, 30, (F,), (F,), full[10], "a.py:1", 0, False,
        "kernel",
    )  # fmt: skip
    (short,) = read_calls([(7, None, 0, "add")])
    assert (short.id, short.operator, short.ns, short.route) == (7, "add", 0, "none")
    assert read_where(("a.py", 3, "f")) == "a.py:3" and read_where(None) == ""


def test_a_parent_that_was_not_recorded_is_none():
    (call,) = read_calls([(5, 4, 1, "mm", "library", True, 0, 1)])
    assert call.parent is None


@pytest.mark.parametrize(
    "kind, ran, route",
    [
        ("scalar", "add.float32.TT", "kernel"),
        ("rows", "_softmax.float32.T, copied", "kernel"),
        ("library", "onednn sgemm", "library"),
        ("view", "select", "view"),
        ("composition", "program", "program"),
        ("scalar", "program, copied", "program"),
        ("scalar", "", "none"),
    ],
)
def test_route(kind, ran, route):
    (call,) = read_calls([(0, None, 0, "x", kind, None, 0, 1, (), (), ran, "")])
    assert call.route == route and call.copied == ran.endswith(", copied")


def test_self_times_add_up(calls):
    own = calls.own
    assert sum(own.values()) == sum(call.ns for call in calls if call.parent is None)
    rows = table.operators(calls)
    assert sum(row.self_ns for row in rows) == sum(own.values())
    assert [row.operator for row in rows][:3] == ["mm", "gelu", "add"]
    assert rows[0].hits == rows[0].misses == 1 and rows[0].ran == {"onednn sgemm": 2}


def test_an_operator_inside_itself_counts_once():
    outer = (0, None, 0, "f", "composition", True, 0, 100, (), (), "program", "")
    inner = (1, 0, 1, "f", "scalar", True, 10, 60, (), (), "f.float32.T", "")
    (row,) = table.operators(read_calls([inner, outer]))
    assert (row.calls, row.total_ns, row.self_ns) == (2, 100, 100)


def test_tree_nests_also_on_plan_hits(calls):
    linear = next(node for node in table.tree(calls) if node.operator == "linear")
    (addmm,) = linear.children
    assert addmm.operator == "addmm" and addmm.calls == 2 and (addmm.hits, addmm.misses) == (1, 1)
    assert [child.operator for child in addmm.children] == ["mm", "transpose"]
    assert addmm.children[0].ran == {"onednn sgemm": 2}


def test_numbers_in_words():
    assert [words.ns(n) for n in (0, 850, 12_340, 4_070_000, 1.2e9, 999_600)] == [
        "0 ns", "850 ns", "12.3 us", "4.07 ms", "1.20 s", "1.00 ms"]  # fmt: skip
    assert [words.bytes_(n) for n in (7, 98_304, 2.5e9)] == ["7 bytes", "98.3 kB", "2.50 GB"]
    assert words.rate(98_304, 4_000, "B") == "24.6 GB/s" and words.rate(1, 0, "B") == ""
    assert words.count(1, "call") == "1 call" and words.count(1234, "call") == "1,234 calls"


def test_arithmetic_of_convolutions_is_counted():
    """PyTorch's FlopCounterMode: 2 * n * co * h * w * ci / groups * kh * kw, in each direction."""
    x, w, y = "float32[2, 4, 8, 8]", "float32[6, 4, 3, 3]", "float32[2, 6, 8, 8]"
    each = 2 * (2 * 6 * 8 * 8) * 4 * 3 * 3
    for name, given, made in (
        ("convolution", (x, w), y), ("convolution_forward", (x, w), y),
        ("convolution_data", (y, w), x), ("convolution_weights", (x, y), w),
        ("convolution", (y, w), x),
    ):  # fmt: skip
        assert operations(name, read_layouts(given), read_layouts((made,))) == each, name


def test_a_call_is_warm_only_if_nothing_that_it_called_captured():
    def made(id, parent, name, hit, end):
        return Call(id, parent, 0, name, "compiled", hit, 0, end, (), (), "", "m.py:3")

    piece = "f, after the break at line 2"
    calls = read_calls([
        made(0, None, "f", True, 900), made(1, 0, piece, True, 800), made(2, 1, "g", False, 700),
        made(3, None, "f", True, 30), made(4, 3, piece, True, 20), made(5, 4, "g", True, 10),
    ])  # fmt: skip
    rows = {r.function: (r.calls, r.misses, r.hit_ns) for r in table.functions(calls)}
    assert rows == {"f": (2, 1, 30), piece: (2, 1, 20), "g": (2, 1, 10)}


def test_calls_of_a_compiler_are_left_out_and_what_surrounds_them_stays():
    def made(id, parent, kind, start, end, device_ns=0):
        return Call(id, parent, 0, "view", kind, True, start, end, (F,), (F,), "view", "m.py:3",
                    device_ns)  # fmt: skip

    calls = read_calls([
        made(0, None, "compiled", 0, 100), made(1, 0, "view", 12, 14), made(2, 1, "view", 13, 14),
        made(3, 0, "view", 60, 61), made(4, None, "view", 200, 210),
        made(5, 0, "scalar", 15, 16, 9),
    ])  # fmt: skip
    rest = without_compiling(calls, [(11, 20), (10, 50), (195, 205)])
    assert [c.id for c in rest.everything] == [0, 5, 3, 4] and [c.id for c in rest] == [5, 3, 4]
