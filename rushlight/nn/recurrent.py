"""Recurrent layers over whole sequences: what RNN, LSTM and GRU run for each layer and direction.

Takes rows (total, features) that hold the steps one after another, a ``Walk`` (how many rows each
step has, in which order) and the layer's weights; returns the states of all steps as rows, and the
last state of each sequence. Invariant: a layer's input meets its weight in one
matrix product for all steps; a step is one product and one kernel, whose results are written into
place; backward likewise, and the weights' gradients are again one product each. Where this does not
apply (projections, half types, values that are no tensors, a second derivative) the same steps are
made of operators that differentiate themselves.
"""

import functools

from rushlight import eager
from rushlight.eager import casting
from rushlight.eager.sampling import place as home
from rushlight.ops import TABLE

Tensor = eager.Tensor
addmm, mm, cat, tanh, relu = eager.addmm, eager.mm, eager.cat, eager.tanh, eager.relu  # type: ignore[attr-defined]
FAST = (eager.float32, eager.float64)  # type: ignore[attr-defined]


def _kernel(name):
    return TABLE[name].native


_lstm_gates, _gru_gates = _kernel("lstm_cell_gates"), _kernel("gru_cell_gates")
_lstm_step, _lstm_back = _kernel("lstm_step"), _kernel("lstm_step_backward")
_lstm_walk, _lstm_walk_back = _kernel("lstm_sequence"), _kernel("lstm_sequence_backward")
_gru_step, _gru_back = _kernel("gru_step"), _kernel("gru_step_backward")


class Walk:
    """The steps of a batch of sequences: ``steps`` is [(first row, rows)] in the order they are
    taken. Sequences are sorted by length, so rows fall from step to step (forward) or rise.
    """

    def __init__(self, sizes, reverse):
        self.steps, start = [], 0
        for n in sizes:
            self.steps.append((start, n))
            start += n
        self.total, self.batch, self.even = start, sizes[0], sizes[0] == sizes[-1]
        self.reverse = reverse
        if reverse:
            self.steps.reverse()

    @property
    def whole(self):
        """Whether all sequences take all steps, more than one: then one routine walks the walk."""
        return self.even and len(self.steps) > 1

    def rows_after(self, k):
        return self.steps[k + 1][1] if k + 1 < len(self.steps) else 0

    def rows_before(self, k):
        return self.steps[k - 1][1] if k else 0

    def before(self, k, out, first):
        """The state that step k starts from: rows of the step before, and of the first state."""
        start, n = self.steps[k]
        m = self.rows_before(k)
        if not m:
            return first if n == self.batch else first[:n]
        start = self.steps[k - 1][0]
        if m >= n:
            return out[start : start + n]
        return cat([out[start : start + m], first[m:n]])

    def last(self, out):
        """The state after each sequence's last step."""
        if not self.batch:
            return out
        parts = []
        for k, (start, n) in enumerate(self.steps):
            m = self.rows_after(k)
            if m < n:
                parts.append(out[start + m : start + n])
        return parts[0] if len(parts) == 1 else cat(parts[::-1])

    def carried(self, k, carry, last):
        """The gradient of the state after step k: from the steps after it, and of the last state
        where a sequence ends here. None: zeros.
        """
        n, m = self.steps[k][1], self.rows_after(k)
        if m >= n:
            return carry[:n] if m > n else carry
        ends = None if last is None else last[m:n]
        if not m:
            return ends
        if ends is None:
            ends = eager.zeros(n - m, carry.shape[1], dtype=carry.dtype, device=home(carry))
        return cat([carry, ends])

    def against_states(self, grads, out, first):
        """grads^T states: one product of all steps' gradients with the states they started from."""
        n, total = self.batch, self.total
        if not self.even:
            order = range(len(self.steps))
            order = reversed(order) if self.reverse else order
            return mm(grads.t(), cat([self.before(k, out, first) for k in order]))
        if self.reverse:
            begun, rest, states = grads[total - n :], grads[: total - n], out[n:]
        else:
            begun, rest, states = grads[:n], grads[n:], out[: total - n]
        found = mm(begun.t(), first)
        return found if total == n else addmm(found, rest.t(), states, out=found)


@functools.lru_cache(maxsize=16)
def walk_of(sizes, reverse):
    """The walk of these sizes (a tuple): batches of one shape share it."""
    return Walk(sizes, reverse)


class Starts:
    """The gradient of the first state, from the steps at which sequences begin."""

    def __init__(self, walk):
        self.walk, self.parts = walk, []

    def begins(self, k):
        return self.walk.rows_before(k) < self.walk.steps[k][1]

    def add(self, k, carry):
        self.parts.append(carry[self.walk.rows_before(k) :])

    def whole(self):
        return self.parts[0] if len(self.parts) == 1 else cat(self.parts[::-1])


def _bias(b_ih, b_hh):
    return None if b_ih is None else b_ih + b_hh


def _inputs(data, weight, bias):
    return eager.linear(data, weight, bias)  # type: ignore[attr-defined]


def _add(a, b):
    return b if a is None else a if b is None else a + b


def _fast(*tensors):
    dtype = tensors[0].dtype
    return dtype in FAST and all(
        t is None or (isinstance(t, Tensor) and t.dtype is dtype) for t in tensors
    )


def _columns(buffer, count):
    """A buffer of gates side by side as one view a gate."""
    width = buffer.shape[1] // count
    return [buffer[:, i * width : (i + 1) * width] for i in range(count)]


class Layer(eager.Function):
    """A layer's steps with a backward of its own. Subclasses: ``compose`` by operators that
    differentiate themselves, ``run`` and ``gradients_of`` in place.
    """

    @classmethod
    def forward(cls, ctx, walk, *tensors):
        outs, kept = cls.run(walk, tensors, any(ctx.needs_input_grad))
        ctx.walk, ctx.count = walk, len(tensors)
        ctx.save_for_backward(*tensors, *kept)
        ctx.set_materialize_grads(False)
        return outs

    @classmethod
    def backward(cls, ctx, *grads):
        saved = ctx.saved_tensors
        tensors, kept = saved[: ctx.count], saved[ctx.count :]
        needs = ctx.needs_input_grad[1:]
        if all(g is None for g in grads):
            return (None,) * (1 + ctx.count)
        if eager.is_grad_enabled():  # the result is differentiated again
            return (None, *cls.composed_gradients(ctx.walk, tensors, grads, needs))
        return (None, *cls.gradients_of(ctx.walk, tensors, kept, grads, needs))

    @classmethod
    def composed_gradients(cls, walk, tensors, grads, needs):
        outs = cls.compose(walk, *tensors)
        given = [(o, g) for o, g in zip(outs, grads, strict=True) if g is not None]
        wanted = [x for x, need in zip(tensors, needs, strict=True) if need]
        found = iter(
            eager.functions.grad(
                [o for o, _ in given],
                wanted,
                [g for _, g in given],
                create_graph=True,
                allow_unused=True,
            )
        )
        return [next(found) if need else None for need in needs]

    @classmethod
    def call(cls, walk, *tensors, fast=True):
        """fast: False where only ``compose`` will do. Under autocast a layer is one operator of
        lower precision; GRU, whose states keep their dtype, is its products.
        """
        if casting.enabled():
            if cls is not GRU:
                return casting.casts("lower")(cls.call)(walk, *tensors, fast=fast)
            fast = False
        if not (fast and _fast(*tensors)):
            return cls.compose(walk, *tensors)
        wanted = eager.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        return cls.apply(walk, *tensors) if wanted else cls.run(walk, tensors, False)[0]


def lstm_states(gates, c):
    """(h, c) after one step. The kernel gives half types' second result in float32."""
    h, c = _lstm_gates(*_columns(gates, 4), c)
    return h, c.to(h.dtype)


def _gathered(walk, states):
    """Each step's states as rows, in the order of the rows."""
    return cat(states[::-1] if walk.reverse else states)


def _next_of(walk, k, state, first):
    """The state that step k starts from, of the one before as a value of its own."""
    n, m = walk.steps[k][1], walk.rows_before(k)
    if not m:
        return first if n == walk.batch else first[:n]
    return state if m == n else state[:n] if m > n else cat([state, first[m:n]])


class LSTM(Layer):
    """(rows of states, last h, last c); tensors: data, h, c, w_ih, w_hh, b_ih, b_hh, w_hr."""

    @staticmethod
    def compose(walk, data, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr=None):
        gx, wt = _inputs(data, w_ih, _bias(b_ih, b_hh)), w_hh.t()
        h, c, hs, cs = h0, c0, [], []
        for k, (start, n) in enumerate(walk.steps):
            h, c = _next_of(walk, k, h, h0), _next_of(walk, k, c, c0)
            gates = addmm(gx[start : start + n], h, wt)
            h, c = lstm_states(gates, c)
            h = h if w_hr is None else mm(h, w_hr.t())
            hs.append(h)
            cs.append(c)
        out = _gathered(walk, hs)
        return out, walk.last(out), walk.last(_gathered(walk, cs))

    @staticmethod
    def run(walk, tensors, keep):
        data, h0, c0, w_ih, w_hh, b_ih, b_hh = tensors
        gates, wt = _inputs(data, w_ih, _bias(b_ih, b_hh)), w_hh.t()
        out = eager.empty(walk.total, h0.shape[1], dtype=data.dtype, device=home(data))
        states = eager.empty(walk.total, c0.shape[1], dtype=data.dtype, device=home(data))
        if walk.whole and data.device.type == "cpu":
            made = gates, out, states
            _lstm_walk(gates, h0, c0, w_hh, len(walk.steps), walk.reverse, keep, out=made)
            outs = out, walk.last(out).clone(), walk.last(states).clone()
            return outs, (out, states, gates) if keep else ()
        columns = _columns(gates, 4)
        for k, (start, n) in enumerate(walk.steps):
            end = start + n
            rows = gates[start:end]
            addmm(rows, walk.before(k, out, h0), wt, out=rows)
            each = [column[start:end] for column in columns]
            made = (out[start:end], states[start:end])
            c = walk.before(k, states, c0)
            if keep:
                _lstm_step(*each, c, out=(*made, *each))
            else:
                _lstm_gates(*each, c, out=made)
        outs = out, walk.last(out).clone(), walk.last(states).clone()
        return outs, (out, states, gates) if keep else ()

    @staticmethod
    def gradients_of(walk, tensors, kept, grads, needs):
        _, _, c0, _, w_hh, *_ = tensors
        out, states, gates = kept
        gout, gh, gc = grads
        if walk.whole and gates.device.type == "cpu":
            steps, reverse = len(walk.steps), walk.reverse
            dgates, dh, dc = _lstm_walk_back(gates, states, c0, w_hh, gout, gh, gc, steps, reverse)
            return LSTM.through_gates(walk, tensors, out, dgates, dh, dc, needs)
        dgates = eager.empty(gates.shape, dtype=gates.dtype, device=home(gates))
        columns, dcolumns = _columns(gates, 4), _columns(dgates, 4)
        dh0, dc0 = Starts(walk), Starts(walk)
        dnext = dc = None
        gout = None if gout is None else gout.clone()  # added into, step by step
        for k in reversed(range(len(walk.steps))):
            start, n = walk.steps[k]
            end = start + n
            g = None if gout is None else gout[start:end]
            if dnext is not None and g is not None and walk.rows_after(k) == n:
                dh = addmm(g, dnext, w_hh, out=g)
            else:
                dh = _add(g, walk.carried(k, None if dnext is None else mm(dnext, w_hh), gh))
            dc = walk.carried(k, dc, gc)
            zeros = None
            if dh is None or dc is None:
                zeros = eager.zeros(n, c0.shape[1], dtype=gates.dtype, device=home(gates))
                dh, dc = zeros if dh is None else dh, zeros if dc is None else dc
            each = [column[start:end] for column in columns]
            before, after = walk.before(k, states, c0), states[start:end]
            place = eager.empty(after.shape, dtype=gates.dtype, device=home(gates))
            made = [column[start:end] for column in dcolumns]
            _lstm_back(dh, dc, *each, before, after, out=(*made, place))
            dnext, dc = dgates[start:end], place
            if dh0.begins(k):
                dc0.add(k, dc)
                if needs[1]:
                    dh0.add(k, mm(dnext, w_hh))
        dh = dh0.whole() if needs[1] else None
        return LSTM.through_gates(walk, tensors, out, dgates, dh, dc0.whole(), needs)

    @staticmethod
    def through_gates(walk, tensors, out, dgates, dh, dc, needs):
        """The gradients of all tensors, from those of the gates and of the first states."""
        data, h0, _, w_ih, _, b_ih, _ = tensors
        bias = dgates.sum(0) if b_ih is not None else None
        return (
            mm(dgates, w_ih) if needs[0] else None,
            dh if needs[1] else None,
            dc if needs[2] else None,
            mm(dgates.t(), data) if needs[3] else None,
            walk.against_states(dgates, out, h0) if needs[4] else None,
            bias,
            None if bias is None else bias.clone(),
        )


class GRU(Layer):
    """(rows of states, last h); tensors: data, h, w_ih, w_hh, b_ih, b_hh."""

    @staticmethod
    def compose(walk, data, h0, w_ih, w_hh, b_ih, b_hh):
        gx = _inputs(data, w_ih, b_ih)
        h, hs = h0, []
        for k, (start, n) in enumerate(walk.steps):
            h = _next_of(walk, k, h, h0)
            products = _inputs(h, w_hh, b_hh)
            h = _gru_gates(*_columns(gx[start : start + n], 3), *_columns(products, 3), h)
            hs.append(h)
        out = _gathered(walk, hs)
        return out, walk.last(out)

    @staticmethod
    def run(walk, tensors, keep):
        data, h0, w_ih, w_hh, b_ih, b_hh = tensors
        gates, wt = _inputs(data, w_ih, b_ih), w_hh.t()
        products = eager.empty(
            walk.total if keep else walk.batch,
            gates.shape[1],
            dtype=gates.dtype,
            device=home(gates),
        )
        out = eager.empty(walk.total, h0.shape[1], dtype=data.dtype, device=home(data))
        columns, pcolumns = _columns(gates, 3), _columns(products, 3)
        for k, (start, n) in enumerate(walk.steps):
            end = start + n
            place = slice(start, end) if keep else slice(n)
            h = walk.before(k, out, h0)
            if b_hh is None:
                mm(h, wt, out=products[place])
            else:
                addmm(b_hh, h, wt, out=products[place])
            each = [column[start:end] for column in columns]
            with_state = [column[place] for column in pcolumns]
            if keep:
                _gru_step(*each, *with_state, h, out=(out[start:end], *each))
            else:
                _gru_gates(*each, *with_state, h, out=out[start:end])
        outs = out, walk.last(out).clone()
        return outs, (out, gates, products) if keep else ()

    @staticmethod
    def gradients_of(walk, tensors, kept, grads, needs):
        data, h0, w_ih, w_hh, b_ih, _ = tensors
        out, gates, products = kept
        gout, gh = grads
        width = h0.shape[1]
        # n's gradient stands first and last, so that the gradients of the input's products (n, r,
        # z) and of the state's (r, z, n) are both dense columns of one buffer.
        every = eager.empty(walk.total, 4 * width, dtype=gates.dtype, device=home(gates))
        with_input, with_state = every[:, : 3 * width], every[:, width:]
        columns, hn = _columns(gates, 3), products[:, 2 * width :]
        n_in, r, z, n_state = _columns(every, 4)
        dh0 = Starts(walk)
        carry = None
        for k in reversed(range(len(walk.steps))):
            start, n = walk.steps[k]
            end = start + n
            dh = walk.carried(k, carry, gh)
            dh = _add(None if gout is None else gout[start:end], dh)
            if dh is None:
                dh = eager.zeros(n, width, dtype=gates.dtype, device=home(gates))
            each = [column[start:end] for column in columns]
            made = [column[start:end] for column in (r, z, n_in, n_state)]
            carry = eager.empty(dh.shape, dtype=gates.dtype, device=home(gates))
            before = walk.before(k, out, h0)
            _gru_back(dh, *each, hn[start:end], before, out=(*made, carry))
            addmm(carry, with_state[start:end], w_hh, out=carry)
            if dh0.begins(k):
                dh0.add(k, carry)
        turn = lambda x: cat([x[width:], x[:width]])  # (n, r, z) -> (r, z, n)
        back = lambda x: cat([x[2 * width :], x[: 2 * width]])
        sums = every.sum(0) if b_ih is not None else None
        return (
            mm(with_input, back(w_ih)) if needs[0] else None,
            dh0.whole() if needs[1] else None,
            turn(mm(with_input.t(), data)) if needs[2] else None,
            walk.against_states(with_state, out, h0) if needs[3] else None,
            None if sums is None else turn(sums[: 3 * width]),
            None if sums is None else sums[width:].clone(),
        )


class RNN(Layer):
    """(rows of states, last h); tensors: data, h, w_ih, w_hh, b_ih, b_hh. h = act(products)."""

    @classmethod
    def compose(cls, walk, data, h0, w_ih, w_hh, b_ih, b_hh):
        gx, wt = _inputs(data, w_ih, _bias(b_ih, b_hh)), w_hh.t()
        h, hs = h0, []
        for k, (start, n) in enumerate(walk.steps):
            h = cls.act(addmm(gx[start : start + n], _next_of(walk, k, h, h0), wt))
            hs.append(h)
        out = _gathered(walk, hs)
        return out, walk.last(out)

    @classmethod
    def run(cls, walk, tensors, keep):
        data, h0, w_ih, w_hh, b_ih, b_hh = tensors
        out, wt = _inputs(data, w_ih, _bias(b_ih, b_hh)), w_hh.t()
        for k, (start, n) in enumerate(walk.steps):
            rows = out[start : start + n]
            addmm(rows, walk.before(k, out, h0), wt, out=rows)
            cls.act(rows, out=rows)
        return (out, walk.last(out).clone()), (out,) if keep else ()

    @classmethod
    def gradients_of(cls, walk, tensors, kept, grads, needs):
        data, h0, w_ih, w_hh, b_ih, _ = tensors
        (out,), (gout, gh) = kept, grads
        dgates = eager.empty(out.shape, dtype=out.dtype, device=home(out))
        slopes = cls.slope(out)
        dh0 = Starts(walk)
        dnext = None
        for k in reversed(range(len(walk.steps))):
            start, n = walk.steps[k]
            end = start + n
            g = None if gout is None else gout[start:end]
            if dnext is not None and g is not None and walk.rows_after(k) == n:
                dh = addmm(g, dnext, w_hh)
            else:
                dh = _add(g, walk.carried(k, None if dnext is None else mm(dnext, w_hh), gh))
            if dh is None:
                dh = eager.zeros(n, out.shape[1], dtype=out.dtype, device=home(out))
            dnext = dgates[start:end]
            eager.mul(dh, slopes[start:end], out=dnext)  # type: ignore[attr-defined]
            if needs[1] and dh0.begins(k):
                dh0.add(k, mm(dnext, w_hh))
        bias = dgates.sum(0) if b_ih is not None else None
        return (
            mm(dgates, w_ih) if needs[0] else None,
            dh0.whole() if needs[1] else None,
            mm(dgates.t(), data) if needs[2] else None,
            walk.against_states(dgates, out, h0) if needs[3] else None,
            bias,
            None if bias is None else bias.clone(),
        )


class TanhRNN(RNN):
    act = staticmethod(tanh)

    @staticmethod
    def slope(h):
        return 1 - h * h


class ReluRNN(RNN):
    act = staticmethod(relu)

    @staticmethod
    def slope(h):
        return (h > 0).to(h.dtype)


KINDS = {"LSTM": LSTM, "GRU": GRU, "RNN_TANH": TanhRNN, "RNN_RELU": ReluRNN}


def recurrent_layer(mode, sizes, reverse, *tensors, fast=True):
    """One layer in one direction over steps of these sizes. A node of its own in captured graphs,
    with eager mode's backward; a tracer takes it apart, because its values are no tensors.
    """
    return KINDS[mode].call(walk_of(tuple(sizes), reverse), *tensors, fast=fast)
