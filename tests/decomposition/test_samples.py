"""Every operator's samples, decomposed: it verifies, parses back, and runs to eager's bits."""

import pytest

from rushlight import fx
from rushlight.decomposition import decompose
from rushlight.decomposition.opset import PRIMITIVE, vocabulary
from rushlight.fx.passes import changed

from ..graphs import OPERATORS, expected, name, same, samples, traced


@pytest.mark.parametrize("to", ["operator", "primitive"])
@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_decomposed_equals_eager(op, to):
    with changed(verify=True):
        graph = decompose(traced(op), to)
    assert fx.parse(graph.print()) == graph
    kinds = {n.op.kind for n in graph.calls}
    assert "composition" not in kinds
    if to == "primitive":
        assert not [
            n for n in graph.calls if vocabulary(n) != PRIMITIVE and not n.op.layout.loops_only
        ]
        if any(n.op.name in ("positions", "element") for n in graph.calls):
            pytest.skip("a place in a row has no kernel of its own")
    exact = to == "operator" or op.kind in ("scalar", "view", "library", "assemble")
    same(graph(*samples(op).inputs), expected(op), exact=exact)
