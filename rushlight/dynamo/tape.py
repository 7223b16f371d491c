"""What a graph holds of the tape: `autograd.Function`, hooks of tensors, `x.data = y`.

A Function's forward is interpreted in place, without gradients as in eager mode; behind it stands
one node that makes its results those of a node of the tape, whose derivative is the user's own
`backward`. A hook is registered by a node on the spot, empty; the program's function, which may
close over what the frame makes, is put into it after the graph, before any backward can run.
"""

from __future__ import annotations

import operator
from typing import Any

from rushlight import _core, dtypes
from rushlight.eager.functions import Context, Function
from rushlight.errors import Unsupported

from .attributes import LOADERS, TYPES, load_attr
from .breaks import unsupported
from .leaves import LEAVES, set_mode_word
from .operators import tensors_in
from .tensors import NATIVE
from .variables.objects import Instance
from .variables.tensor import TensorVar

RemovableHandle = _core.RemovableHandle


# ---- autograd.Function


class Recorded:
    """The target of a node: results of `function.forward` become those of a node of the tape.
    Arguments of `forward` that are no tensors are None here."""

    of_tape = True  # no compiled graph holds it

    def __init__(self, function: Any) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, args: tuple, result: Any, fields: dict) -> Any:
        if not all(isinstance(a, (_core.Tensor, type(None))) for a in args):
            raise Unsupported("compile", f"{self.__name__} in a graph", "Its backward is Python.")
        context = Context()
        context.__dict__.update(fields)
        return self.function.recorded(context, args, result)


def apply(f: Any, cls: Any, *args: Any) -> Any:
    """`Function.apply`: what eager mode's does, on the values of the capture."""
    state = f.state
    args = tuple(map(f.realize, args))
    given = [a if type(a) is TensorVar else None for a in args]
    if any(x is not None and x.requires_grad is None for x in given):
        raise unsupported(f"{cls.__name__}.apply", "it depends on writes to shared memory")
    context = f.call(Context, (), {})
    needs = tuple(x is not None and bool(x.requires_grad) for x in given)
    context.fields["needs_input_grad"] = needs
    before = state.mode
    set_mode_word(f, before & ~1)
    try:
        forward = load_attr(f, cls, "forward")
        setup = load_attr(f, cls, "setup_context")
        if setup is not Function.setup_context:
            result = f.call(forward, args, {})
            f.call(setup, (context, args, result), {})
        else:
            result = f.call(forward, (context, *args), {})
    finally:
        set_mode_word(f, before)
    return record(f, cls, context, given, result) if before & 1 and any(needs) else result


def record(f: Any, cls: Any, context: Instance, given: list, result: Any) -> Any:
    state = f.state
    if cls in state.made_classes:
        raise unsupported(f"{cls.__name__}.apply", "the class is made in the frame")
    several = type(result) in (tuple, list)
    outs = list(map(f.realize, result)) if several else [f.realize(result)]
    if len({id(o) for o in outs if type(o) is TensorVar}) != sum(
        type(o) is TensorVar for o in outs
    ):
        raise unsupported(f"{cls.__name__}.apply", "one tensor is several results")
    dirty = [*context.fields.get("_dirty", ())]
    without = [*context.fields.get("_without", ())]
    fields = {k: v for k, v in context.fields.items() if k not in ("_saved", "_node")}
    shown = [o if type(o) is TensorVar else None for o in outs]
    args = (tuple(given), shown if several else shown[0], fields)
    where = state.where()
    node = state.record("call_function", Recorded(cls), args, name=cls.__name__)
    state.graph.effects = True
    inputs = tensors_in(given)
    for i, out in enumerate(outs):
        if type(out) is not TensorVar:
            continue
        part = node
        if several:
            part = state.graph.add("call_function", operator.getitem, (node, i))
            part.meta["where"] = where
        if any(out is x for x in given) and not any(out is x for x in dirty):
            part.meta["layout"] = out.layout
            outs[i] = out = state.note_made(
                TensorVar(state, out.layout, part, out.cls, False, True, out.family)
            )
        learns = dtypes.is_floating(out.layout.dtype) and not any(out is x for x in without)
        part.meta["layout"] = out.layout
        out.node = part
        if any(out is x for x in dirty):
            state.wrote(out, inputs)
        if learns:
            out.requires_grad, out.leaf = True, False
    return tuple(outs) if several else outs[0]


# ---- hooks of tensors


class LateHook:
    """A hook that a node has registered; its function comes after the graph."""

    def __init__(self, x: Any, register: str) -> None:
        self.function: Any = None
        self.handle = getattr(x, register)(self)

    def __call__(self, gradient: Any) -> Any:
        return self.function(gradient)

    def remove(self) -> None:
        self.handle.remove()


def hook_of(x: Any, register: str) -> LateHook:
    real(x, "a hook of a tensor")
    return LateHook(x, register)


def retained(x: Any) -> None:
    real(x, "retain_grad()")
    x.retain_grad()


hook_of.of_tape = retained.of_tape = True  # type: ignore[attr-defined]


def real(x: Any, what: str) -> None:
    if not isinstance(x, _core.Tensor):
        raise Unsupported("compile", f"{what} in a graph", "It belongs to the tape of the run.")


class HookHandle:
    """The handle of a hook: `node` gives the LateHook, `function` is the program's."""

    __slots__ = ("function", "node", "state")

    def __init__(self, state: Any, node: Any, function: Any) -> None:
        self.state, self.node, self.function = state, node, function


class HandleMethod:
    """`handle.remove`."""

    __slots__ = ("handle",)

    def __init__(self, handle: HookHandle) -> None:
        self.handle = handle

    def run(self, f: Any) -> None:
        node = f.state.graph.add("call_method", "remove", (self.handle.node,))
        node.meta["where"] = f.state.where()


def load_handle(frame: Any, value: HookHandle, name: str) -> Any:
    if name == "remove":
        return HandleMethod(value)
    raise unsupported(f"attribute {name} of a hook's handle", "it is not modelled")


def needs_gradient(x: TensorVar, what: str, leaf: bool = False) -> None:
    if x.requires_grad is not True or leaf and x.leaf is not True:
        raise unsupported(what, "eager mode may refuse it; it decides itself")


def registers(method: str, leaf: bool = False) -> Any:
    def handler(frame: Any, x: TensorVar, hook: Any) -> HookHandle:
        state = frame.state
        needs_gradient(x, f"Tensor.{method}()", leaf)
        node = state.record("call_function", hook_of, (x, method), name="hook")
        touched(state, x)
        place(state, x, node)
        handle = state.note_made(HookHandle(state, node, hook))
        state.effects.append(("hook", handle))
        return handle

    return handler


def retain_grad(frame: Any, x: TensorVar) -> None:
    needs_gradient(x, "Tensor.retain_grad()")
    if not x.leaf:
        node = frame.state.record("call_function", retained, (x,), name="retain_grad")
        touched(frame.state, x)
        place(frame.state, x, node)


def place(state: Any, x: TensorVar, node: Any) -> None:
    """Right behind what made the tensor as it is: a graph that is compiled in parts around this
    node must not have used the tensor in the same part."""
    if id(x) in state.sources:
        return
    nodes = state.graph.nodes
    nodes.remove(node)
    last = nodes.index(x.node)
    if x.family.writer is not None:
        last = max(last, nodes.index(x.family.writer))
    nodes.insert(last + 1, node)


def touched(state: Any, x: TensorVar) -> None:
    """A graph that has changed a tensor from outside cannot run again."""
    state.graph.effects = True
    if id(x) in state.sources:
        state.graph.writes_inputs = True


# ---- x.data = y


def assign_data(frame: Any, x: TensorVar, value: Any) -> None:
    """`x` shows the memory of `value`; a tensor from outside does so after the graph."""
    state = frame.state
    if type(value) is not TensorVar or x.requires_grad is not False:
        raise unsupported("assignment to Tensor.data", "of a tensor on the tape, or of no tensor")
    if value.layout.dtype != x.layout.dtype:
        raise unsupported("assignment to Tensor.data", "it changes the dtype")
    node = state.record("call_function", getattr, (value, "data"), None, value.layout, "data")
    x.node, x.layout = node, value.layout
    if all(m is not x for m in value.family.members):
        x.family = value.family
        x.family.members.append(x)
    if id(x) in state.sources:
        state.effects[:] = [e for e in state.effects if e[0] != "data" or e[1][0] is not x]
        shown = state.result(node, x.layout, [value], differentiable=False, view=True)
        state.effects.append(("data", (x, shown)))


NATIVE |= {
    "register_hook": registers("register_hook"),
    "register_post_accumulate_grad_hook": registers("register_post_accumulate_grad_hook", True),
    "retain_grad": retain_grad,
}
LEAVES[Function.__dict__["apply"].__func__] = apply
LOADERS[HookHandle] = load_handle
TYPES[HookHandle] = RemovableHandle
__all__ = ["HandleMethod", "HookHandle", "LateHook", "assign_data"]
