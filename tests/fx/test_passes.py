"""The runner, and rewriting by rules."""

import pytest

import rushlight as rl
from rushlight import fx
from rushlight.errors import CompilerBug
from rushlight.fx.passes import bisect, changed, run_passes
from rushlight.fx.rewrite import (
    ANY,
    Rule,
    apply_rules,
    hole,
    merge_equal_calls,
    pattern,
    remove_dead_code,
)
from rushlight.ops.layouts import dense
from rushlight.trace import collect


def graph(fn=lambda x: rl.exp(x.neg().neg()) + rl.exp(x), name="f"):
    return fx.trace(fn, dense((3,), "float32"), name=name)


def names(g):
    return [n.op.name for n in g.calls]


x = hole("x")
NEG = Rule("neg_neg", pattern("neg", pattern("neg", x)), x)


def fold_negations(g):
    return apply_rules(g, [NEG])


def test_rules_and_common_subexpressions():
    g = apply_rules(graph(), [NEG])
    assert names(g) == ["exp", "exp", "add"]
    assert names(merge_equal_calls(g)) == ["exp", "add"]
    values = rl.randn(3)
    assert (merge_equal_calls(g)(values) == graph()(values)).to(rl.float32).sum().item() == 3


def test_a_rule_can_call_operators_and_has_a_condition():
    rule = Rule(
        "exp_of_neg",
        pattern("exp", pattern("neg", x)),
        pattern("reciprocal", pattern("exp", x)),
        lambda found: found.out.dtype == "float32",
    )
    g = apply_rules(graph(lambda x: rl.exp(-x)), [rule]).verify()
    assert names(g) == ["exp", "reciprocal"]
    assert g.calls[1].origins == graph(lambda x: rl.exp(-x)).calls[1].origins or g.calls[1].where
    double = fx.trace(lambda x: rl.exp(-x), dense((3,), "float64"))
    assert names(apply_rules(double, [rule])) == ["neg", "exp"]


def test_equal_holes_must_be_equal_values():
    rule = Rule("minus_itself", pattern("sub", x, x, ANY), pattern("mul", x, 0))
    assert names(apply_rules(graph(lambda x: x - x), [rule])) == ["mul"]
    assert names(apply_rules(graph(lambda x: x - (x + 1)), [rule])) == ["add", "sub"]


def test_dead_code():
    assert names(remove_dead_code(graph(lambda x: (rl.exp(x), x + 1)[1]))) == ["add"]


def test_the_runner_names_times_and_records():
    with collect("pass") as records:
        g = run_passes(graph(), (fold_negations, merge_equal_calls))
    assert [r.name for r in records] == ["fold_negations", "merge_equal_calls"]
    assert g.print().startswith("# merge_equal_calls, ") and " ms\n" in g.print()
    assert "test_passes.py" in str(records[0].sourcemap)
    assert all(r.facts["ms"] >= 0 for r in records)


def test_passes_can_be_left_out():
    with changed(disabled={"fold_negations"}):
        assert "neg" in names(run_passes(graph(), (fold_negations,)))


def lose_a_call(g):
    return g.with_calls(g.calls[1:])


def test_a_wrong_pass_is_named():
    with changed(verify=True), pytest.raises(CompilerBug) as error:
        run_passes(graph(), (fold_negations, lose_a_call, merge_equal_calls))
    assert "after the pass lose_a_call" in error.value.__notes__


def test_bisection_finds_the_pass():
    def compile():
        return run_passes(
            graph(), (merge_equal_calls, fold_negations, lose_a_call, remove_dead_code)
        )

    def fails(g):
        try:
            g.verify()
        except CompilerBug:
            return True
        return False

    assert bisect(compile, fails) == "lose_a_call"
    assert bisect(compile, lambda g: False) is None
