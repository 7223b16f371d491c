"""Tracing, printing, parsing, verifying: what a user sees, and what is refused."""

from dataclasses import replace

import pytest

import rushlight as rl
from rushlight import fx
from rushlight.errors import CompilerBug, Unsupported
from rushlight.fx.graph import Node, Var
from rushlight.ops.layouts import dense
from rushlight.reasons import Reason
from rushlight.sym import ShapeEnv
from rushlight.trace import collect


def model(x, b):
    h = rl.gelu(x + b)
    return h.sum(1), h[0, 1:]


def graph():
    return fx.trace(model, dense((3, 4), "float32"), dense((4,), "float32"))


def test_prints_as_python_with_the_users_lines():
    line = model.__code__.co_firstlineno + 1
    rows = graph().print().splitlines()
    assert rows[0] == "def model(x: f32[3, 4], b: f32[4]):"
    assert rows[1] == f"    add: f32[3, 4] = ops.add(x, b)  # test_graph.py:{line}"
    assert rows[-1] == "    return (sum, slice)"
    compile(graph().print(), "graph", "exec")


def test_runs_as_the_function_does():
    x, b = rl.randn(3, 4), rl.randn(4)
    for got, want in zip(graph()(x, b), model(x, b)):
        assert (got == want).to(rl.float32).sum().item() == got.numel()


def test_runs_on_fakes():
    from rushlight.fake import fake

    total, part = graph()(fake((3, 4)), fake(4))
    assert total.shape == (3,) and part.shape == (3,)


def test_symbolic_sizes_print_with_their_hints_and_guards():
    env = ShapeEnv()
    s = env.size("s0", 5)
    g = fx.trace(lambda x: x[0] + x.reshape(-1, 2).sum(), dense((s, 4), "float32"), name="f")
    text = g.verify().print()
    assert text.startswith("# s0 = 5\n") and "x: f32[s0, 4]" in text
    again = fx.parse(text)
    assert again == g and again.print() == text


def test_strides_are_printed_where_they_are_not_c_order():
    g = fx.trace(lambda x: x.t() + 1, dense((3, 4), "float32"))
    assert "f32[4, 3].strides(1, 4)" in g.print()
    assert fx.parse(g.print()) == g


def test_tensors_that_a_function_closes_over_are_constants():
    w = rl.randn(4)
    g = fx.trace(lambda x: x * w, dense((3, 4), "float32"), name="scaled").verify()
    assert "constant_0: f32[4] = constants.constant_0" in g.print()
    x = rl.randn(3, 4)
    assert (g(x) == x * w).to(rl.float32).sum().item() == 12
    assert fx.parse(g.print(), g.constants) == g


@pytest.mark.parametrize(
    "asks", [bool, int, float, lambda x: x.item(), lambda x: 1 if x > 0 else 2]
)
def test_a_value_asked_for_is_refused_with_a_reason(asks):
    with collect() as records, pytest.raises(Unsupported, match="known only when the graph runs"):
        fx.trace(lambda x: asks(x.sum()), dense((3,), "float32"))
    reasons = [r.facts["reason"] for r in records if r.kind == "reason"]
    assert [r.id for r in reasons] == ["capture.data_dependent"]
    assert (
        isinstance(reasons[0], Reason)
        and reasons[0].hint
        and "test_graph.py" in str(reasons[0].where)
    )


def test_a_result_that_was_not_traced_is_refused():
    with pytest.raises(TypeError, match="returns int"):
        fx.trace(lambda x: 3, dense((3,), "float32"))
    with pytest.raises(TypeError, match="expected a tensor, a fake or a layout"):
        fx.trace(lambda x: x, 3.0)


def broken(change):
    g = graph()
    nodes = list(g.nodes)
    change(nodes)
    return g.with_nodes(nodes)


def swap(nodes):
    nodes[2], nodes[3] = nodes[3], nodes[2]


def retype(nodes):
    nodes[2] = replace(nodes[2], outs=(Var("add", dense((3, 4), "float64")),))


def rename(nodes):
    nodes[3] = replace(nodes[3], outs=(Var("add", nodes[3].outs[0].layout),))


def forget(nodes):
    del nodes[-1]


def shorten(nodes):
    nodes[2] = replace(nodes[2], arguments=nodes[2].arguments[:2])


def misname(nodes):
    nodes[2] = Node("call_method", "add", (), ())


@pytest.mark.parametrize(
    "change, says",
    [
        (swap, "gelu reads add, which is not made before it"),
        (retype, "its rule says f32"),
        (rename, "makes add again"),
        (forget, "has no output"),
        (shorten, "gives 2 of 3 arguments"),
        (misname, "is of kind 'call_method'"),
    ],
)
def test_verify_finds_what_is_broken(change, says):
    with pytest.raises(CompilerBug, match=says):
        broken(change).verify()


@pytest.mark.parametrize(
    "text, says",
    [
        ("x = ", "not the text of a graph"),
        (
            "def f(x: f32[3]):\n    y: f32[3] = ops.nothing(x)\n    return y\n",
            "there is no operator 'nothing'",
        ),
        ("def f(x: f32[3]):\n    y: f32[4] = ops.neg(x)\n    return y\n", "gives f32\\[3\\]"),
        ("def f(x: f32[3]):\n    y = 3\n    return y\n", "expected `name: layout"),
    ],
)
def test_parse_says_what_it_cannot_read(text, says):
    with pytest.raises(ValueError, match=says):
        fx.parse(text)


def add_in_place(x):
    x += 1
    return x


def set_item(x):
    x[0] = 1
    return x


@pytest.mark.parametrize("writes", [add_in_place, set_item, lambda x: x.mul_(2)])
def test_writing_in_place_is_refused_with_a_reason(writes):
    with collect() as records, pytest.raises(Unsupported, match="written to in place"):
        fx.trace(writes, dense((3,), "float32"))
    assert [r.name for r in records if r.kind == "reason"] == ["capture.unsupported"]
