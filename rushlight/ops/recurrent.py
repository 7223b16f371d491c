"""One step of a recurrent cell, after its matrix products: the gates, which are one kernel forward and one backward.

`*_cell` is the differentiable operator. `*_step` is the same for a layer that walks a sequence: it leaves the activated gates
for `*_step_backward`, which takes them instead of computing them anew. Layers write all of these into views of one buffer.
"""
from .declare import derived, library, none, scalar
from .layouts import shaped
from .pointwise import sigmoid, tanh
from .samples import call, t

WIDE = ("float32", "float64")       # half types through float32
GATES = "Tensor i, Tensor f, Tensor u, Tensor o"      # u, the update: `g` in a rule is the incoming gradient
LSTM = call(*(t(3, 5) for _ in range(5)))
GRU = call(*(t(3, 5) for _ in range(7)))


def lstm(i, f, u, o, c):
    """Gates before their activations and the state before -> (h, c, the gates activated)."""
    i, f, u, o = sigmoid(i), sigmoid(f), tanh(u), sigmoid(o)
    c = f * c + i * u
    return o * tanh(c), c, i, f, u, o


def lstm_gradients(dh, dc, i, f, u, o, c, new):
    """Of activated gates: (gradients of the four before their activations, of the state before)."""
    y = tanh(new)
    dc = dc + dh * o * (1 - y * y)
    return dc * u * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - u * u), dh * y * o * (1 - o), dc * f


@scalar(f"lstm_cell_gates({GATES}, Tensor c) -> (Tensor, Tensor)", domain=WIDE, method=False, function=False, cost=50, samples=(LSTM,))
def lstm_cell_gates(i, f, u, o, c):
    return lstm(i, f, u, o, c)[:2]


@lstm_cell_gates.derivative
def _(gs, i, f, u, o, c):
    dh, dc = (0 * c if x is None else x for x in gs)
    return lstm_cell_gates_backward(dh, dc, i, f, u, o, c)


@scalar(f"lstm_cell_gates_backward(Tensor dh, Tensor dc, {GATES}, Tensor c) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        domain=WIDE, derivative=derived, method=False, function=False, cost=60,
        samples=(call(*(t(3, 5) for _ in range(7))),))
def lstm_cell_gates_backward(dh, dc, i, f, u, o, c):
    _, new, i, f, u, o = lstm(i, f, u, o, c)
    return lstm_gradients(dh, dc, i, f, u, o, c, new)


@scalar(f"lstm_step({GATES}, Tensor c) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)", domain=WIDE, derivative=none,
        method=False, function=False, cost=50, samples=(LSTM,))
def lstm_step(i, f, u, o, c):
    return lstm(i, f, u, o, c)


@scalar(f"lstm_step_backward(Tensor dh, Tensor dc, {GATES}, Tensor c, Tensor new) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        domain=WIDE, derivative=none, method=False, function=False, cost=20, samples=(call(*(t(3, 5) for _ in range(8))),))
def lstm_step_backward(dh, dc, i, f, u, o, c, new):
    return lstm_gradients(dh, dc, i, f, u, o, c, new)


# ---- whole sequences of one length: csrc/rt/recurrent.cpp walks through them, with the steps' kernels above

def rows_of(steps, state):
    return steps * state.shape[0], state.shape[1]


@library("lstm_sequence(Tensor gates, Tensor h, Tensor c, Tensor weight, int steps, bool reverse, bool keep) -> (Tensor, Tensor, Tensor)",
         layout=shaped(lambda gates, h, c, weight, steps, reverse, keep: [gates.shape, rows_of(steps, h), rows_of(steps, c)]),
         routine="lstm_sequence", writes="gates", domain=WIDE, derivative=none, method=False, function=False,
         samples=(call(t(12, 20), t(3, 5), t(3, 5), t(20, 5), 4, False, True), call(t(6, 12), t(3, 3), t(3, 3), t(12, 3), 2, True, False)))
def lstm_sequence(gates, h, c, weight, steps, reverse, keep):
    """(gates, activated where they are kept; h of all steps, c of all steps): gates[steps * batch, 4 * hidden] begins as what the
    input gives, the state adds h @ weight.T."""
    return steps, reverse, keep


@library("lstm_sequence_backward(Tensor gates, Tensor states, Tensor c, Tensor weight, Tensor? grad, Tensor? grad_h, Tensor? grad_c,"
         " int steps, bool reverse) -> (Tensor, Tensor, Tensor)",
         layout=shaped(lambda gates, states, c, *_: [gates.shape, c.shape, c.shape]),
         routine="lstm_sequence_backward", domain=WIDE, derivative=none, method=False, function=False,
         samples=(call(t(12, 20), t(12, 5), t(3, 5), t(20, 5), t(12, 5), t(3, 5), t(3, 5), 4, False),
                  call(t(6, 12), t(6, 3), t(3, 3), t(12, 3), None, t(3, 3), None, 2, True)))
def lstm_sequence_backward(gates, states, c, weight, grad, grad_h, grad_c, steps, reverse):
    """Of activated gates and the gradients of all h, of the last h and c: (of the gates before their activations, of the first
    h and c)."""
    return steps, reverse, grad is not None, grad_h is not None, grad_c is not None


def gru(ir, iz, inew, hr, hz, hn, h):
    """Products with the input and with the state -> (the next state, the gates activated)."""
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    n = tanh(inew + r * hn)
    return n + z * (h - n), r, z, n


def gru_gradients(dh, r, z, n, hn, h):
    """Of activated gates: (of both products of r, of both of z, of the input's of n, of the state's of n, of the state)."""
    dn = dh * (1 - z) * (1 - n * n)
    return dn * hn * r * (1 - r), dh * (h - n) * z * (1 - z), dn, dn * r, dh * z


@scalar("gru_cell_gates(Tensor ir, Tensor iz, Tensor inew, Tensor hr, Tensor hz, Tensor hn, Tensor h) -> Tensor", domain=WIDE,
        method=False, function=False, cost=40, samples=(GRU,))
def gru_cell_gates(ir, iz, inew, hr, hz, hn, h):
    return gru(ir, iz, inew, hr, hz, hn, h)[0]


@gru_cell_gates.derivative
def _(g, ir, iz, inew, hr, hz, hn, h):
    dr, dz, dn, dhn, dh = gru_cell_gates_backward(g, ir, iz, inew, hr, hz, hn, h)
    return dr, dz, dn, dr, dz, dhn, dh


@scalar("gru_cell_gates_backward(Tensor dh, Tensor ir, Tensor iz, Tensor inew, Tensor hr, Tensor hz, Tensor hn, Tensor h)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)", domain=WIDE, derivative=derived, method=False, function=False, cost=50,
        samples=(call(*(t(3, 5) for _ in range(8))),))
def gru_cell_gates_backward(dh, ir, iz, inew, hr, hz, hn, h):
    _, r, z, n = gru(ir, iz, inew, hr, hz, hn, h)
    return gru_gradients(dh, r, z, n, hn, h)


@scalar("gru_step(Tensor ir, Tensor iz, Tensor inew, Tensor hr, Tensor hz, Tensor hn, Tensor h) -> (Tensor, Tensor, Tensor, Tensor)",
        domain=WIDE, derivative=none, method=False, function=False, cost=40, samples=(GRU,))
def gru_step(ir, iz, inew, hr, hz, hn, h):
    return gru(ir, iz, inew, hr, hz, hn, h)


@scalar("gru_step_backward(Tensor dh, Tensor r, Tensor z, Tensor n, Tensor hn, Tensor h)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)", domain=WIDE, derivative=none, method=False, function=False, cost=15,
        samples=(call(*(t(3, 5) for _ in range(6))),))
def gru_step_backward(dh, r, z, n, hn, h):
    return gru_gradients(dh, r, z, n, hn, h)
