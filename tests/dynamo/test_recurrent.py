"""Recurrent layers are one node a layer and direction, with eager mode's own backward."""

import pytest

import rushlight as rl
from rushlight import config, dynamo, nn, trace
from rushlight.dynamo import convert
from rushlight.nn import recurrent

from .both import graphs

LAYERS = {
    "lstm": lambda: nn.LSTM(4, 5, 2, dropout=0.3),
    "projected": lambda: nn.LSTM(4, 5, 2, proj_size=3),
    "gru": lambda: nn.GRU(4, 5, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(4, 5, nonlinearity="relu", bias=False),
    "double": lambda: nn.LSTM(4, 5, dtype=rl.float64),
    "half": lambda: nn.GRU(4, 5, dtype=rl.bfloat16),
}


def flat(value):
    return [t for v in value for t in flat(v)] if isinstance(value, (tuple, list)) else [value]


def run(call, x, parameters):
    rl.manual_seed(0)
    outs = flat(call(x))
    grads = []
    if rl.is_grad_enabled():
        total = sum((o * o).sum() for o in outs)
        grads = rl.autograd.grad(total, [x, *parameters], create_graph=False)
    return [(tuple(o.shape), o.stride(), o.dtype, o.tolist()) for o in [*outs, *grads]]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, grad):
    layer = LAYERS[name]()
    parameters = list(layer.parameters())
    dynamo.reset()
    with config.changed(strict=True), rl.set_grad_enabled(grad):
        compiled = rl.compile(layer, backend="eager")
        for shape in ((7, 3, 4), (7, 2, 4), (7, 6, 4), (5, 4)):
            x = rl.randn(*shape, dtype=parameters[0].dtype, requires_grad=grad)
            run(layer, x, parameters)
            assert run(layer, x, parameters) == run(compiled, x, parameters)
    assert not convert.BREAKS, [str(b[1]) for b in convert.BREAKS.values()]
    nodes = [n for n in graphs()[0].graph.calls if n.target is recurrent.recurrent_layer]
    assert len(nodes) == layer.num_layers * (2 if layer.bidirectional else 1)


def test_the_default_backend_keeps_the_layers_own_kernels():
    """Its graph runs as it stands: eager mode's numbers to the bit, backward too."""
    layer, x = nn.LSTM(4, 5, 2), rl.randn(7, 3, 4, requires_grad=True)
    dynamo.reset()
    compiled = rl.compile(layer, fullgraph=True)
    run(layer, x, list(layer.parameters()))
    expected = run(layer, x, list(layer.parameters()))
    with trace.collect("fallback") as records:
        assert run(compiled, x, list(layer.parameters())) == expected
    assert any(r.name == "fallback.recurrent" for r in records)


def test_under_autocast_it_is_eager_mode():
    layer, x = nn.LSTM(4, 5), rl.randn(7, 3, 4)

    def fn(x):
        with rl.autocast("cpu", dtype=rl.bfloat16):
            return layer(x + 1)[0] * 2

    dynamo.reset()
    found = rl.compile(fn, backend="eager")(x)
    expected = fn(x)
    assert found.dtype is expected.dtype and found.tolist() == expected.tolist()
    assert convert.BREAKS


def test_what_does_not_fit_raises_as_in_eager_mode():
    layer = nn.LSTM(4, 5)
    dynamo.reset()
    compiled = rl.compile(layer, backend="eager")
    for bad in (rl.ones(7, 3, 3), rl.ones(7, 3, 4, dtype=rl.float64)):
        with pytest.raises(Exception) as expected:
            layer(bad)
        with pytest.raises(type(expected.value)) as found:
            compiled(bad)
        assert str(found.value) == str(expected.value)
