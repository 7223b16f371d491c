"""Recurrent layers and single steps as functions of all weights, as ATen has them:
`rushlight.lstm`, `rushlight.gru_cell` and their like.
"""

from rushlight import eager
from rushlight.nn import recurrent
from rushlight.nn.functional.shared import kernel

_linear = kernel("linear")


def _layers(mode, args):
    """`f(input, hx, params, ...)` of padded sequences, or `f(data, batch_sizes, hx, params, ...)`
    of packed ones: (results, last states).
    """
    from rushlight.nn.rnn import run_layers

    packed = isinstance(args[1 if mode == "LSTM" else 2], eager.Tensor)
    if packed:
        data, batch_sizes, hx, params, biased, layers, dropout, train, bidirectional = args
        sizes = batch_sizes.tolist()
    else:
        input, hx, params, biased, layers, dropout, train, bidirectional, batch_first = args
        if input.dim() != 3:
            raise RuntimeError(f"[{mode.lower()}] expected 3D input, got {list(input.shape)}")
        steps = input.transpose(0, 1) if batch_first else input
        length, batch, width = steps.shape
        sizes, data = [batch] * length, steps.reshape(length * batch, width)
    count = layers * (2 if bidirectional else 1)
    if len(params) % count or len(params) // count not in ((4, 5) if biased else (2, 3)):
        raise RuntimeError(
            f"[{mode.lower()}] got an incorrect number of parameters: {len(params)} for {layers} "
            "layers"
        )
    each = len(params) // count
    weights = [list(params[i * each : (i + 1) * each]) for i in range(count)]
    firsts = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    dropout = dropout if train else 0.0
    out, lasts = run_layers(mode, data, sizes, firsts, weights, biased, bidirectional, dropout)
    if not packed:
        out = out.view(length, batch, out.shape[1])
        out = out.transpose(0, 1) if batch_first else out
    return (out, *lasts)


def lstm(*args):
    """(results, last h, last c): lstm(input, (h, c), params, has_biases, num_layers, dropout,
    train, bidirectional, batch_first), or lstm(data, batch_sizes, (h, c), params, has_biases,
    num_layers, dropout, train, bidirectional) of a packed sequence.
    """
    return _layers("LSTM", args)


def gru(*args):
    """(results, last h); arguments as those of `lstm`, with one state."""
    return _layers("GRU", args)


def rnn_tanh(*args):
    """(results, last h); arguments as those of `lstm`, with one state."""
    return _layers("RNN_TANH", args)


def rnn_relu(*args):
    """(results, last h); arguments as those of `lstm`, with one state."""
    return _layers("RNN_RELU", args)


def _products(input, h, w_ih, w_hh, b_ih, b_hh):
    return _linear(input, w_ih, b_ih), _linear(h, w_hh, b_hh)


def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """(h', c') of one step from hx = (h, c)."""
    h, c = hx
    x, y = _products(input, h, w_ih, w_hh, b_ih, b_hh)
    return recurrent.lstm_states(x + y, c)


def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """h' of one step."""
    x, h = _products(input, hx, w_ih, w_hh, b_ih, b_hh)
    return recurrent._gru_gates(*recurrent._columns(x, 3), *recurrent._columns(h, 3), hx)


def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """h' of one step."""
    x, h = _products(input, hx, w_ih, w_hh, b_ih, b_hh)
    return eager.tanh(x + h)  # type: ignore[attr-defined]


def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """h' of one step."""
    x, h = _products(input, hx, w_ih, w_hh, b_ih, b_hh)
    return eager.relu(x + h)  # type: ignore[attr-defined]
