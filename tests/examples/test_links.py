"""Links of `explain` on the examples: every node of a captured graph reaches a kernel, or says why
there is none, and every generated kernel comes from lines of the example."""

import pytest

import rushlight
from rushlight import dynamo
from rushlight.report.links import captured_nodes

from .test_compiled import cnn, gpt, gpt_dropout, lstm, mlp, sentences


@pytest.mark.parametrize(
    "run", [gpt, gpt_dropout, lstm, cnn, mlp, sentences], ids=lambda run: run.__name__
)
def test_nodes_reach_kernels_and_kernels_reach_lines(run):
    dynamo.reset()
    seen = rushlight.explain(lambda: run(rushlight.compile, 1))().observed
    dynamo.reset()
    assert seen.captures
    for capture in seen.captures:
        steps = [s for g in capture.graphs for s in g.steps]
        lines = {line for s in steps for line in s.lines}
        nodes = list(captured_nodes(capture))
        assert nodes and capture.graphs
        for name, line, operator in nodes:
            assert line in lines or capture.eliminated.get(name), (name, line, operator)
        gone = {n: why for n, why in capture.eliminated.items() if "gone in" in why}
        assert len(gone) < 0.1 * len(nodes), gone
        for s in steps:
            places = [line.rpartition(":") for line in s.lines]
            assert places and all(capture.files[file] for file, _, _ in places), s
