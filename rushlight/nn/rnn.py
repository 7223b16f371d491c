"""RNN, LSTM and GRU over sequences, and their cells for single steps.

Layers take (length, batch, features), (batch, length, features) with batch_first, one sequence
(length, features), or a PackedSequence; they return the last layer's states in the same form and
the last state of every layer and direction.
"""

import math
import warnings

from rushlight import eager
from rushlight.eager import casting
from rushlight.eager.sampling import place
from rushlight.nn import functional as F
from rushlight.nn import init, recurrent
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.rnn import PackedSequence

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _check_type(name, value, kind):
    if not isinstance(value, kind):
        raise TypeError(f"[RNN] {name} is of type {kind.__name__}, got {type(value).__name__}")


class RNNBase(Module):
    """Weights of every layer and direction: ``weight_ih_l{k}{_reverse}`` (gates * hidden, input),
    ``weight_hh_l{k}`` (gates * hidden, state), ``bias_ih_l{k}``, ``bias_hh_l{k}`` and, with
    proj_size, ``weight_hr_l{k}`` (proj, hidden). They start uniform in +-1/sqrt(hidden_size).

    dropout: between layers, while training.
    """

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        rate = float(dropout)
        if not 0 <= rate <= 1 or isinstance(dropout, bool):
            raise ValueError(
                f"[{type(self).__name__}] dropout is a probability, a number in [0, 1], got "
                f"{dropout!r}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"[RNN] dropout={dropout} acts between layers, and num_layers={num_layers} leaves "
                "none between",
                stacklevel=3,
            )
        _check_type("bias", bias, bool)
        _check_type("batch_first", batch_first, bool)
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            _check_type(name, size, int)
            if size <= 0:
                raise ValueError(f"[RNN] {name} is positive")
        if num_layers <= 0:
            raise ValueError("[RNN] num_layers is positive")
        if proj_size < 0:
            raise ValueError("[RNN] proj_size is not negative")
        if proj_size >= hidden_size:
            raise ValueError("[RNN] proj_size is below hidden_size")
        if mode not in GATES:
            raise ValueError("[RNN] no such mode: " + mode)
        self.mode = mode
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = rate, bidirectional, proj_size
        directions = 2 if bidirectional else 1
        gates, state = GATES[mode] * hidden_size, proj_size or hidden_size
        self._all_weights = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else state * directions
            shapes = {"weight_ih": (gates, width), "weight_hh": (gates, state)}
            if bias:
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for suffix in ("", "_reverse")[:directions]:
                names = {f"{name}_l{layer}{suffix}": shape for name, shape in shapes.items()}
                for name, shape in names.items():
                    setattr(self, name, Parameter(eager.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(list(names))
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do: weights need not lie together."""

    @property
    def all_weights(self):
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self):
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        return text

    # ---- checks, with PyTorch's texts

    def check_input(self, input, batch_sizes):
        own = self._flat_weights[0].dtype
        if input.dtype != own and not casting.enabled():
            raise ValueError(
                f"[{type(self).__name__}] the input is {input.dtype}, the weights {own}: "
                f"input.to({own}) or model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"[RNN] the input has {expected} dims, got {input.dim()}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(
                f"[{type(self).__name__}] the last dim holds input_size={self.input_size} "
                f"features, got {input.shape[-1]}"
            )

    def _state_shape(self, batch, width):
        return (self.num_layers * (2 if self.bidirectional else 1), batch, width)

    def check_hidden_size(self, hx, expected, message="Expected hidden size {}, got {}"):
        if tuple(hx.shape) != tuple(expected):
            raise RuntimeError(message.format(tuple(expected), list(hx.shape)))

    # ---- running

    def _first_states(self, batch, like):
        """Zeros for each kind of state."""
        widths = [self.proj_size or self.hidden_size]
        if self.mode == "LSTM":
            widths.append(self.hidden_size)
        there = {"dtype": like.dtype, "device": place(like)}
        return [eager.zeros(self._state_shape(batch, w), **there) for w in widths]

    def _run(self, data, sizes, firsts):
        """Rows of all steps through all layers: (rows, [last states of each kind])."""
        dropout = self.dropout if self.training else 0.0
        return run_layers(
            self.mode, data, sizes, firsts, self.all_weights, self.bias, self.bidirectional, dropout
        )

    def _call(self, input, hx, name, states_of):
        """forward of all kinds. states_of(hx, batched, batch): its states as (layers, batch,
        width) tensors, checked."""
        if isinstance(input, PackedSequence):
            data, batch_sizes, sorted_indices, unsorted_indices = input
            sizes = batch_sizes.tolist()
            batched = True
            self.check_input(data, batch_sizes)
        else:
            sorted_indices = unsorted_indices = None
            if input.dim() not in (2, 3):
                kind = "D tensor instead" if name == "RNN" else "D instead"
                raise ValueError(f"[{name}] takes 2 dims, or 3 in a batch, got {input.dim()}{kind}")
            batched = input.dim() == 3
            if not batched:
                input = input.unsqueeze(1)
            elif self.batch_first:
                input = input.transpose(0, 1)
            self.check_input(input, None)
            length, batch, width = input.shape
            if length == 0:
                raise RuntimeError("[RNN] an empty sequence")
            sizes, data = [batch] * length, input.reshape(length * batch, width)
        if hx is None:
            firsts = self._first_states(sizes[0], data)
        else:
            firsts = states_of(hx, batched, sizes[0])
            if sorted_indices is not None:
                firsts = [s.index_select(1, sorted_indices) for s in firsts]
        out, lasts = self._run(data, sizes, firsts)
        if isinstance(input, PackedSequence):
            if unsorted_indices is not None:
                lasts = [s.index_select(1, unsorted_indices) for s in lasts]
            return PackedSequence(out, batch_sizes, sorted_indices, unsorted_indices), lasts
        out = out.view(length, batch, out.shape[1])
        if not batched:
            return out.squeeze(1), [s.squeeze(1) for s in lasts]
        return (out.transpose(0, 1) if self.batch_first else out), lasts


def run_layers(mode, data, sizes, firsts, weights, biased, bidirectional, dropout):
    """Rows of all steps through all layers: (rows, [last states of each kind]).

    sizes: the rows of each step. firsts: the first states of each kind. weights: a list for each
    layer and direction; dropout: between layers.
    """
    directions = 2 if bidirectional else 1
    layers = len(weights) // directions
    lasts = [[] for _ in firsts]
    for layer in range(layers):
        outs = []
        for direction in range(directions):
            at = layer * directions + direction
            w_ih, w_hh, *rest = weights[at]
            biases, projection = (rest[:2], rest[2:]) if biased else ([None, None], rest)
            states = [first[at] for first in firsts]
            out, *last = recurrent.recurrent_layer(
                mode, sizes, direction == 1, data, *states, w_ih, w_hh, *biases, *projection,
                fast=not projection,
            )  # fmt: skip
            outs.append(out)
            for kind, state in zip(lasts, last, strict=True):
                kind.append(state)
        data = outs[0] if directions == 1 else eager.cat(outs, 1)
        if dropout and layer < layers - 1:
            data = F.dropout(data, dropout, True)
    return data, [eager.stack(kind) for kind in lasts]


class _OneState(RNNBase):
    def _states(self, hx, batched, batch):
        if hx.dim() != (3 if batched else 2):
            kind = "batched 3" if batched else "unbatched 2"
            raise RuntimeError(
                f"[RNN] a {kind}-D input goes with hx of {kind[-1]} dims, got {hx.dim()}"
            )
        hx = hx if batched else hx.unsqueeze(1)
        self.check_hidden_size(hx, self._state_shape(batch, self.hidden_size))
        return [hx]

    def forward(self, input, hx=None):
        """(states of the last layer, last states (layers * directions, batch, hidden))."""
        name = "GRU" if self.mode == "GRU" else "RNN"
        out, (last,) = self._call(input, hx, name, self._states)
        return out, last


def _no_projection(options):
    if "proj_size" in options:
        raise ValueError("[RNN] proj_size is the LSTM's: it is not supported here")


class RNN(_OneState):
    """h' = act(W_ih x + b_ih + W_hh h + b_hh), act 'tanh' or 'relu' (nonlinearity).

    RNN(input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True, batch_first=False,
    dropout=0.0, bidirectional=False).
    """

    def __init__(self, *args, **kwargs):
        _no_projection(kwargs)
        if len(args) > 3:
            nonlinearity, args = args[3], args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"[RNN] nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(_OneState):
    """r, z = sigmoid(W x + b + U h + c);  n = tanh(W x + b + r (U h + c));  h' = (1 - z) n + z h
    (Cho et al., 2014).

    GRU(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False).
    """

    def __init__(self, *args, **kwargs):
        _no_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """i, f, o = sigmoid(W x + b + U h + c);  g = tanh(...);  c' = f c + i g;  h' = o tanh(c')
    (Hochreiter and Schmidhuber, 1997); h' projected to proj_size if given.

    LSTM(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, proj_size=0).
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def _states(self, hx, batched, batch):
        h, c = hx
        if h.dim() != (3 if batched else 2) or c.dim() != h.dim():
            kind = "batched 3" if batched else "unbatched 2"
            raise RuntimeError(
                f"[LSTM] a {kind}-D input goes with hx and cx of {kind[-1]} dims, got {h.dim()} "
                f"and {c.dim()}"
            )
        if not batched:
            h, c = h.unsqueeze(1), c.unsqueeze(1)
        self.check_hidden_size(
            h,
            self._state_shape(batch, self.proj_size or self.hidden_size),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            c, self._state_shape(batch, self.hidden_size), "Expected hidden[1] size {}, got {}"
        )
        return [h, c]

    def forward(self, input, hx=None):
        """(states of the last layer, (last h, last c)); hx: (h, c)."""
        out, (h, c) = self._call(input, hx, "LSTM", self._states)
        return out, (h, c)


# ---- single steps


class RNNCellBase(Module):
    """weight_ih (gates * hidden, input), weight_hh (gates * hidden, hidden), bias_ih, bias_hh."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size

        def weight(*shape):
            return Parameter(eager.empty(shape, device=device, dtype=dtype))

        self.weight_ih, self.weight_hh = weight(rows, input_size), weight(rows, hidden_size)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, weight(rows) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _checked(self, input, hx):
        """(input, state) as matrices, and whether they were."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"[{name}] the input has 1 or 2 dims, got {input.dim()}")
        if hx is not None and hx.dim() not in (1, 2):
            raise ValueError(f"[{name}] the hidden state has 1 or 2 dims, got {hx.dim()}")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            there = {"dtype": input.dtype, "device": place(input)}
            hx = eager.zeros(input.shape[0], self.hidden_size, **there)
        else:
            hx = hx if batched else hx.unsqueeze(0)
        return input, hx, batched

    def _products(self, input, h):
        return (
            F.linear(input, self.weight_ih, self.bias_ih),
            F.linear(h, self.weight_hh, self.bias_hh),
        )


class RNNCell(RNNCellBase):
    """One step of RNN: (batch, input), (batch, hidden) -> (batch, hidden); or without batch."""

    def __init__(
        self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None
    ):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        input, hx, batched = self._checked(input, hx)
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(
                f"[RNNCell] nonlinearity is 'tanh' or 'relu', got {self.nonlinearity!r}"
            )
        x, h = self._products(input, hx)
        out = F.tanh(x + h) if self.nonlinearity == "tanh" else F.relu(x + h)
        return out if batched else out.squeeze(0)


class GRUCell(RNNCellBase):
    """One step of GRU: (batch, input), (batch, hidden) -> (batch, hidden); or without batch."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        input, hx, batched = self._checked(input, hx)
        x, h = self._products(input, hx)
        out = recurrent._gru_gates(*recurrent._columns(x, 3), *recurrent._columns(h, 3), hx)
        return out if batched else out.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of LSTM: (batch, input), (h, c) -> (h', c'), each (batch, hidden); or without
    batch.
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        if input.dim() not in (1, 2):
            raise ValueError(f"[LSTMCell] the input has 1 or 2 dims, got {input.dim()}")
        for i, state in enumerate(hx or ()):
            if state.dim() not in (1, 2):
                raise ValueError(f"[LSTMCell] hx[{i}] has 1 or 2 dims, got {state.dim()}")
        h, c = hx or (None, None)
        input, h, batched = self._checked(input, h)
        if c is None:
            c = eager.zeros(h.shape, dtype=h.dtype, device=place(h))
        elif not batched:
            c = c.unsqueeze(0)
        x, y = self._products(input, h)
        h, c = recurrent.lstm_states(x + y, c)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
