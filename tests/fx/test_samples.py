"""Every operator's samples as a graph: it verifies, parses back, and runs to eager's bits."""

import pytest

from rushlight import fx
from rushlight.fx.passes import changed

from ..graphs import OPERATORS, expected, name, same, samples, traced


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_prints_and_parses_back(op):
    graph = traced(op).verify()
    again = fx.parse(graph.print())
    assert again == graph
    assert again.print() == graph.print()


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_runs_as_eager_does(op):
    same(traced(op)(*samples(op).inputs), expected(op))


@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_retraced_is_the_same_graph(op):
    with changed(verify=True):
        assert fx.retrace(traced(op)).print() == traced(op).print()
