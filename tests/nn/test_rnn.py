"""Recurrent layers and cells: against the oracle on the same weights, and against themselves (fast
form and composed form, packed and one by one).
"""

import numpy
import pytest

import rushlight
from rushlight import nn
from rushlight.nn.utils import rnn

LAYERS = {
    "nn.RNN(4, 5)": {},
    "nn.RNN(4, 5, 2, 'relu', bidirectional=True)": {},
    "nn.GRU(4, 5)": {},
    "nn.GRU(4, 5, num_layers=2, bias=False, batch_first=True)": {},
    "nn.GRU(4, 5, num_layers=2, bidirectional=True, dtype={0}.float64)": {},
    "nn.LSTM(4, 5)": {},
    "nn.LSTM(4, 5, bias=False)": {},
    "nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)": {},
    "nn.LSTM(4, 5, proj_size=3, num_layers=2, bidirectional=True)": {},
    "nn.LSTM(4, 5, dtype={0}.float64)": {},
}


def build(pair, expression):
    theirs = eval(expression.replace("{0}", "lib"), {"nn": pair.oracle.nn, "lib": pair.oracle})
    ours = eval(expression.replace("{0}", "lib"), {"nn": nn, "lib": rushlight})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    state = {}
    for i, (key, tensor) in enumerate(theirs.state_dict().items()):
        dtype = str(tensor.dtype).split(".")[1]
        state[key], value = pair.make(*tensor.shape, seed=i, dtype=dtype)
        tensor.copy_(value)
    ours.load_state_dict(state)
    return ours, theirs


def flat(result):
    out, last = result
    return (out, *last) if isinstance(last, tuple) else (out, last)


def weighted(results):
    """One number from all results, each element with another weight."""
    total = 0
    for i, x in enumerate(results):
        wave = x.reshape(-1) * (0.3 + 0.1 * i)
        total = total + (wave * wave * wave).sum() + wave.sum()
    return total


def states_of(pair, layer, batch, dtype):
    directions = layer.num_layers * (2 if layer.bidirectional else 1)
    widths = [getattr(layer, "proj_size", 0) or layer.hidden_size]
    if layer.mode == "LSTM":
        widths.append(layer.hidden_size)
    made = [
        pair.make(
            *((directions, batch, w) if batch else (directions, w)),
            seed=40 + i,
            dtype=dtype,
            requires_grad=True,
        )
        for i, w in enumerate(widths)
    ]
    both = [tuple(m[i] for m in made) if len(made) > 1 else made[0][i] for i in range(2)]
    return made, both


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "given"])
@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("expression", LAYERS)
def test_layer(pair, expression, batch, given):
    ours, theirs = build(pair, expression)
    dtype = "float64" if "float64" in expression else "float32"
    shape = (6, batch, 4) if batch else (6, 4)
    if batch and ours.batch_first:
        shape = (batch, 6, 4)
    x = pair.make(*shape, seed=9, dtype=dtype, requires_grad=True)
    inputs, states = [x], ((), ())
    if given:
        made, both = states_of(pair, ours, batch, dtype)
        inputs += made
        states = tuple((b,) for b in both)
    a, b = flat(ours(x[0], *states[0])), flat(theirs(x[1], *states[1]))
    for mine, other in zip(a, b, strict=True):
        pair.assert_same(mine, other, 2e-6)
    weighted(a).backward()
    weighted(b).backward()
    for mine, other in [*inputs, *zip(ours.parameters(), theirs.parameters(), strict=True)]:
        pair.assert_same(mine.grad, other.grad, 2e-5)


@pytest.mark.parametrize(
    "expression",
    ["nn.RNN(4, 5)", "nn.GRU(4, 5, 2, bidirectional=True)", "nn.LSTM(4, 5, 2, bidirectional=True)"],
)
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed(pair, expression, enforce_sorted):
    ours, theirs = build(pair, expression)
    lengths = [6, 4, 4, 1] if enforce_sorted else [4, 1, 6, 4]
    x = pair.make(6, 4, 4, seed=3, requires_grad=True)
    made, both = states_of(pair, ours, 4, "float32")
    results, layouts = [], []
    for library, layer, i in ((rushlight, ours, 0), (pair.oracle, theirs, 1)):
        tools = library.nn.utils.rnn
        packed = tools.pack_padded_sequence(x[i], lengths, enforce_sorted=enforce_sorted)
        out, last = layer(packed, both[i])
        padded, told = tools.pad_packed_sequence(out, total_length=8, padding_value=-1.0)
        assert told.tolist() == lengths
        first, _ = tools.pad_packed_sequence(out, batch_first=True)
        strides = [t.stride() for t in (first, *flat((padded, last)))]
        results.append(flat((padded, last)))
        layouts.append(strides)
    assert layouts[0] == layouts[1]
    for mine, other in zip(*results, strict=True):
        pair.assert_same(mine, other, 2e-6)
    for result in results:
        weighted(result).backward()
    for mine, other in [x, *made, *zip(ours.parameters(), theirs.parameters(), strict=True)]:
        pair.assert_same(mine.grad, other.grad, 2e-5)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [[3, 3, 3], [3, 2, 2, 1], [2]])
def test_both_forms_of_a_layer_agree(kind, reverse, sizes):
    """Values, gradients, and gradients of gradients, in float64 and without the oracle."""
    from rushlight.nn import recurrent

    layer = {"RNN": recurrent.TanhRNN, "GRU": recurrent.GRU, "LSTM": recurrent.LSTM}[kind]
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind] * 5
    rushlight.manual_seed(3)
    shapes = [(sum(sizes), 4), (sizes[0], 5), (gates, 4), (gates, 5), (gates,), (gates,)]
    if kind == "LSTM":
        shapes.insert(1, (sizes[0], 5))
    xs = [rushlight.randn(*s, dtype=rushlight.float64).requires_grad_() for s in shapes]
    walk = recurrent.Walk(sizes, reverse)
    found = []
    for fast in (True, False):
        outs = layer.call(walk, *xs, fast=fast)
        with rushlight.no_grad():
            quiet = layer.call(walk, *xs, fast=fast)
        first = rushlight.autograd.grad(weighted(outs), xs, create_graph=True)
        plain = rushlight.autograd.grad(weighted(layer.call(walk, *xs, fast=fast)), xs)
        second = rushlight.autograd.grad(sum((g * g).sum() for g in first), xs)
        found.append([*outs, *quiet, *first, *plain, *second])
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-10)
    for a, b in zip(found[0][2 * len(outs) :], found[0][2 * len(outs) + len(xs) :], strict=False):
        assert a.shape == b.shape


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("steps, batch, hidden", [(6, 19, 128), (5, 2, 160), (3, 9, 128)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sequence_in_one_call_is_its_steps(monkeypatch, threads, steps, batch, hidden, dtype):
    """Threads that share out the batch, a batch too small for them, products by either library."""
    from rushlight.nn import recurrent

    rushlight.manual_seed(steps)
    kind, gates = getattr(rushlight, dtype), 4 * hidden
    shapes = [(steps * batch, 12), (batch, hidden), (batch, hidden)]
    shapes += [(gates, 12), (gates, hidden), (gates,), (gates,)]
    xs = [(rushlight.randn(*s, dtype=kind) * 0.3).requires_grad_() for s in shapes]
    before, found = rushlight.get_num_threads(), []
    rushlight.set_num_threads(threads)
    try:
        for whole in (True, False):
            monkeypatch.setattr(recurrent.Walk, "whole", whole)
            for reverse in (False, True):
                walk = recurrent.Walk([batch] * steps, reverse)
                outs = recurrent.LSTM.call(walk, *xs)
                with rushlight.no_grad():
                    quiet = recurrent.LSTM.call(walk, *xs)
                grads = rushlight.autograd.grad(weighted(outs), xs)
                found.append([x.detach().numpy() for x in (*outs, *quiet, *grads)])
    finally:
        rushlight.set_num_threads(before)
    for once, stepwise in zip(found[:2], found[2:], strict=True):
        for a, b in zip(once, stepwise, strict=True):
            scale = 1 + abs(b).max(initial=0)
            limit = 1e-5 if dtype == "float32" else 1e-13
            numpy.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=limit)


def test_no_sequences():
    layer = nn.LSTM(3, 4)
    x = rushlight.randn(5, 0, 3, requires_grad=True)
    out, (h, c) = layer(x)
    assert out.shape == (5, 0, 4) and h.shape == c.shape == (1, 0, 4)
    (out.sum() + h.sum()).backward()
    assert x.grad.shape == (5, 0, 3) and layer.weight_hh_l0.grad.abs().max().item() == 0


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_gradients_of_some_of_the_results(unused):
    """Each result alone leads back; the others' gradients are not there."""
    layer = nn.LSTM(3, 4, dtype=rushlight.float64)
    x = rushlight.randn(5, 2, 3, dtype=rushlight.float64).requires_grad_()
    slow = rushlight.randn(5, 2, 3)  # noqa: F841  draws, so that the seeds of the cases differ
    results = flat(layer(x))
    (g,) = rushlight.autograd.grad(results[unused].sum(), [x])
    h = 1e-6
    d = rushlight.randn(5, 2, 3, dtype=rushlight.float64)
    with rushlight.no_grad():
        up, down = (flat(layer(x + d * s))[unused].sum().item() for s in (h, -h))
    assert (g * d).sum().item() == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
@pytest.mark.parametrize("batch", [0, 3])
def test_cells(pair, kind, options, batch):
    ours, theirs = build(pair, f"nn.{kind}(4, 5, **{options})")
    lead = (batch,) if batch else ()
    x = pair.make(*lead, 4, seed=1, requires_grad=True)
    h = pair.make(*lead, 5, seed=2, requires_grad=True)
    c = pair.make(*lead, 5, seed=3, requires_grad=True)
    inputs = [x, h, *zip(ours.parameters(), theirs.parameters(), strict=True)]
    if kind == "LSTMCell":
        inputs.append(c)
    results = []
    for i, cell in enumerate((ours, theirs)):
        state = (h[i], c[i]) if kind == "LSTMCell" else h[i]
        out = cell(x[i], state)
        fresh = cell(x[i])
        results.append([*out, *fresh] if kind == "LSTMCell" else [out, fresh])
    for mine, other in zip(*results, strict=True):
        pair.assert_same(mine, other, 2e-6)
    for result in results:
        weighted(result).backward()
    for mine, other in inputs:
        pair.assert_same(mine.grad, other.grad, 2e-5)


def test_relu_cell(pair):
    ours, theirs = build(pair, "nn.RNNCell(4, 5, nonlinearity='relu')")
    x = pair.make(3, 4)
    pair.assert_same(ours(x[0]), theirs(x[1]), 2e-6)


def test_half_types_go_through_single_precision():
    layer = nn.GRU(4, 5).to(rushlight.bfloat16)
    x = rushlight.randn(3, 2, 4, dtype=rushlight.bfloat16).requires_grad_()
    out, last = layer(x)
    assert out.dtype == last.dtype == rushlight.bfloat16
    out.sum().backward()
    assert x.grad.dtype == rushlight.bfloat16


def test_dropout_between_layers():
    rushlight.manual_seed(0)
    layer = nn.LSTM(4, 50, num_layers=2, dropout=0.5)
    x = rushlight.randn(3, 2, 4)
    assert layer(x)[0].tolist() != layer(x)[0].tolist()
    layer.eval()
    assert layer(x)[0].tolist() == layer(x)[0].tolist()


def test_starting_values():
    layer = nn.LSTM(3, 16, num_layers=2)
    for weight in layer.parameters():
        values = weight.reshape(-1).tolist()
        assert max(map(abs, values)) <= 0.25 and max(values) > 0.15 and min(values) < -0.15


MISTAKES = [
    "nn.LSTM(4, 5, dropout=2.0)",
    "nn.LSTM(4, 5, dropout='a')",
    "nn.GRU(4.0, 5)",
    "nn.GRU(4, 0)",
    "nn.GRU(4, 5, num_layers=0)",
    "nn.GRU(4, 5, proj_size=2)",
    "nn.LSTM(4, 5, proj_size=-1)",
    "nn.LSTM(4, 5, proj_size=5)",
    "nn.RNN(4, 5, nonlinearity='gelu')",
    "nn.GRU(4, 5, bias=1)",
    "nn.GRU(4, 5)(lib.ones(4))",
    "nn.RNN(4, 5)(lib.ones(1, 2, 3, 4))",
    "nn.LSTM(4, 5)(lib.ones(3, 2, 5))",
    "nn.LSTM(4, 5)(lib.ones(3, 2, 4), (lib.ones(1, 3, 5), lib.ones(1, 2, 5)))",
    "nn.LSTM(4, 5)(lib.ones(3, 2, 4), (lib.ones(1, 2, 5), lib.ones(1, 2, 4)))",
    "nn.LSTM(4, 5)(lib.ones(3, 2, 4), (lib.ones(2, 5), lib.ones(2, 5)))",
    "nn.GRU(4, 5)(lib.ones(3, 2, 4), lib.ones(2, 5))",
    "nn.GRU(4, 5)(lib.ones(3, 4), lib.ones(1, 2, 5))",
    "nn.GRU(4, 5)(lib.ones(3, 2, 4), lib.ones(2, 2, 5))",
    "nn.GRUCell(4, 5)(lib.ones(2, 3, 4))",
    "nn.LSTMCell(4, 5)(lib.ones(2, 4), (lib.ones(1, 2, 5), lib.ones(2, 5)))",
    "nn.GRU(4, 5)(lib.ones(0, 2, 4))",
]


@pytest.mark.parametrize("expression", MISTAKES)
def test_mistakes(oracle, assert_same_failure, expression):
    assert_same_failure(
        lambda: eval(expression, {"nn": nn, "lib": rushlight}),
        lambda: eval(expression, {"nn": oracle.nn, "lib": oracle}),
    )


def test_padding_and_packing():
    a, b, c = (rushlight.arange(n).to(rushlight.float32) + 10 * n for n in (3, 1, 2))
    assert rnn.pad_sequence([a, b, c]).tolist() == [[30, 10, 20], [31, 0, 21], [32, 0, 0]]
    left = rnn.pad_sequence([a, b], batch_first=True, padding_value=9.0, padding_side="left")
    assert left.tolist() == [[30, 31, 32], [9, 9, 10]]
    packed = rnn.pack_sequence([a, b, c], enforce_sorted=False)
    assert packed.data.tolist() == [30, 20, 10, 31, 21, 32]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [0, 2, 1]
    assert [x.tolist() for x in rnn.unpack_sequence(packed)] == [a.tolist(), b.tolist(), c.tolist()]
    assert packed.to(rushlight.float64).data.dtype == rushlight.float64
    assert packed.double().batch_sizes.dtype == rushlight.int64
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        rnn.pack_sequence([b, a])
    with pytest.raises(RuntimeError, match="a sequence is empty"):
        rnn.pack_padded_sequence(rushlight.ones(3, 2), [3, 0])
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(packed, total_length=2)
