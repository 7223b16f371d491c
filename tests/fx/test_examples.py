"""What graphs promise, on whole networks: they print as Python that parses back, verify, know where
every node comes from, and come through rules, passes and dead-code removal."""

from dataclasses import replace

import pytest

import rushlight as rl
from rushlight import dynamo, fx
from rushlight.aot_autograd.functional import functionalise
from rushlight.decomposition import decompose
from rushlight.errors import CompilerBug
from rushlight.fx import passes
from rushlight.fx.rewrite import Rule, apply_rules, hole, pattern, remove_dead_code
from rushlight.ops.layouts import Layout
from tests.dynamo import models

MODELS = models.make()


@pytest.fixture(scope="module", params=MODELS)
def graph(request):
    """The operators of one network, after capture."""
    model, args = MODELS[request.param]()
    model.eval()
    found = []

    def backend(module, examples):
        layouts = [n.meta["layout"] for n in module.graph.placeholders]
        assert all(isinstance(x, Layout) for x in layouts)
        found.append(functionalise(module, layouts).graph)
        return module.forward

    dynamo.reset()
    with rl.no_grad():
        rl.compile(model, backend=backend, fullgraph=True)(*args)
    return found[0]


def test_prints_and_parses_back(graph):
    read = fx.parse(str(graph))
    assert str(read) == str(graph)
    read.verify()


def test_verify_sees_a_missing_call(graph):
    graph.verify()
    calls = list(graph.calls)
    with pytest.raises(CompilerBug):
        graph.with_calls(calls[: len(calls) // 2] + calls[len(calls) // 2 + 1 :]).verify()


def test_every_node_knows_where_it_comes_from(graph):
    for one in (graph, decompose(graph)):
        for node in one.calls:
            assert node.origins and node.where, node


def test_dead_calls_go(graph):
    assert remove_dead_code(graph) is graph
    middle = graph.calls[len(graph.calls) // 2]
    ends = replace(graph.nodes[-1], arguments=middle.outs[:1])
    shorter = graph.with_nodes([*graph.nodes[:-1], ends])
    made = remove_dead_code(shorter).verify()
    assert middle in made.calls and len(made.calls) <= len(graph.calls) // 2 + 1


def test_rules_apply_and_keep_the_layouts(graph):
    a, b = hole("a"), hole("b")
    rules = (Rule("swap_sides", pattern("add", a, b), pattern("sub", a, pattern("neg", b))),)
    names = [n.op.name for n in graph.calls]
    made = apply_rules(graph, rules)
    made.verify()
    assert [o.layout for o in made.outputs] == [o.layout for o in graph.outputs]
    assert [n.op.name for n in made.calls].count("add") < max(names.count("add"), 1)


def test_passes_are_named_timed_and_left_out(graph):
    with passes.changed() as now:  # verifies after each
        made = decompose(graph)
    assert made.made_by and made.milliseconds >= 0 and now.ran
    with passes.changed(disabled=now.ran) as none:
        same = decompose(graph)
    assert not none.ran and len(same.calls) == len(graph.calls)
