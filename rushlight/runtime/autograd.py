"""A compiled graph with gradients: one node of the tape.

    call = Recorded(forward, backward, ...)
    outs = call(inputs, numbers)

`forward` gives (*own, *written, *saved); what is saved is held as the tape holds operands, with its
version. `backward()` is made at the first backward pass: (*saved, *cotangents) -> gradients. Under
`create_graph` another function of the inputs and the cotangents gives them (`again()`), itself on
the tape: so compiled code differentiates as often as eager mode does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight import _core  # type: ignore[attr-defined]


class Roles(NamedTuple):
    """Which of forward's results are what. `active`: positions among (*own, *written) that depend
    on a wanted input, with the input for a written one; `wanted`: inputs that get a gradient."""

    own: int
    written: tuple[int, ...]  # inputs written to, in the order of the results
    rebased: tuple[bool, ...]  # for each of those: whether its place on the tape moves
    active: tuple[int, ...]
    wanted: tuple[int, ...]
    reach: Callable[[], tuple[frozenset[int], ...]]  # which of `active` depend on each of `wanted`


class Recorded:
    def __init__(
        self,
        name: str,
        forward: Callable,
        backward: Callable[[], Callable],
        again: Callable[[], Callable],
        roles: Roles,
    ) -> None:
        self.name, self.forward, self.roles = name, forward, roles
        self.make_backward, self.make_again = backward, again
        self.backward: Callable | None = None
        self.reach: tuple | None = None
        self.again: Callable | None = None  # (*inputs, *cotangents, *numbers) -> gradients

    def __call__(self, inputs: tuple, numbers: tuple, sizes: tuple = ()) -> list:
        """The own results, on the tape; inputs are written to. `sizes`: what backward computes with
        beside what is saved."""
        r = self.roles
        for i, moves in zip(r.written, r.rebased):
            x = inputs[i]
            if moves and x.requires_grad and x.is_leaf:
                raise RuntimeError(
                    "[write] a leaf that requires grad cannot be written to in place: use no_grad()"
                )
        before = _core.mode()
        _core.set_grad_enabled(False)
        try:
            results = self.forward(*inputs, *numbers)
            versions = [x._version for x in inputs]
            own, new = list(results[: r.own]), results[r.own : r.own + len(r.written)]
            kept = results[r.own + len(r.written) :]
            late = {}  # views whose base moves on the tape, too: written to behind the node
            for k, i in enumerate(r.written):
                if r.rebased[k] and inputs[i]._base is not None:
                    late[i] = new[k].detach()
                else:
                    inputs[i].copy_(new[k])
        finally:
            _core.set_mode(before)
        if not r.active:
            return own
        number = {}
        outs, place = [], {}
        for at in r.active:
            if at < r.own:
                out = own[at]
            else:
                i = r.written[at - r.own]
                out = late[i] if i in late else inputs[i]
            number[id(out)] = len(outs)
            outs.append(out)
            if at < r.own:
                place[len(outs) - 1] = at
        saved = tuple(_core.SavedTensor(x, number.get(id(x), -1)) for x in kept)
        moved = not any(inputs[i]._version != versions[i] for i in r.wanted)
        step = Step(self, saved, inputs if moved else None, numbers, sizes)
        wanted = tuple(inputs[i] for i in r.wanted)
        _core.set_grad_enabled(True)  # the graph may have turned gradients on itself
        try:
            made = _core.python_node(wanted, step.run, tuple(outs), self.name, saved, 2)
            for i, value in late.items():
                inputs[i].copy_(value)
        finally:
            _core.set_mode(before)
        for k, at in place.items():
            own[at] = made[k]
        return own


class Step:
    """One call of a Recorded, until its backward."""

    __slots__ = ("call", "inputs", "numbers", "saved", "sizes")

    def __init__(
        self, call: Recorded, saved: tuple, inputs: Any, numbers: tuple, sizes: tuple
    ) -> None:
        self.call, self.saved, self.numbers, self.sizes = call, saved, numbers, sizes
        self.inputs = (
            None if inputs is None else tuple((x, x._version) for x in inputs)
        )  # for derivatives of the gradients

    def run(self, absent: tuple, *grads: Any) -> Any:
        """The gradients. `absent`: the places of cotangents that are zeros because none came."""
        found = self.gradients(grads)
        if not absent:
            return found
        call = self.call
        if call.reach is None:
            call.reach = call.roles.reach()
        came = {k for k in range(len(grads)) if k not in absent}
        return tuple(g if came & outs else None for g, outs in zip(found, call.reach))

    def gradients(self, grads: tuple) -> tuple:
        call = self.call
        grads = tuple(map(in_c_order, grads))  # as compiled for
        if _core.is_grad_enabled():
            return self.on_tape(grads)
        if call.backward is None:
            call.backward = call.make_backward()
        saved = [s.unpack() for s in self.saved]
        return tuple(call.backward(*saved, *grads, *self.numbers, *self.sizes))

    def on_tape(self, grads: tuple) -> tuple:
        if self.inputs is None or any(x._version != v for x, v in self.inputs):
            raise RuntimeError(
                f"[{self.call.name}] derivatives of gradients need the inputs of the compiled "
                "function as they were, and one was written to since"
            )
        call = self.call
        if call.again is None:
            call.again = call.make_again()
        return call.again(*(x for x, _ in self.inputs), *grads, *self.numbers)


def in_c_order(g: Any) -> Any:
    """The cotangent with C order's strides, of dims of size 1 too: rules of layouts read those."""
    if not g.is_contiguous():
        return g.contiguous()
    shape = g.shape
    if 1 not in shape:
        return g
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n or 1
    strides.reverse()
    return g if g.stride() == tuple(strides) else g.as_strided(shape, strides, g.storage_offset())


__all__ = ["Recorded", "Roles"]
