"""Python functions of Rushlight that are nodes of the graph, not entered: what draws random
numbers, what reads or sets modes."""

from __future__ import annotations

import inspect
import operator
from dataclasses import replace
from typing import Any

from rushlight import _core, eager
from rushlight.eager import casting, factories, indexing, randomness
from rushlight.nn import recurrent
from rushlight.nn.functional import attention
from rushlight.nn.module import Module
from rushlight.ops.layouts import dense
from rushlight.ops.values import TABLE, Fake

from .breaks import data_dependent, unsupported
from .variables.numbers import SymInt
from .variables.objects import Instance, Opaque
from .variables.tensor import TensorVar


def dropout(f: Any, input: Any, p: Any = 0.5, train: Any = True) -> Any:
    """Recorded as called: the graph reserves the counters when it runs."""
    state = f.state
    if type(input) is not TensorVar or type(p) not in (int, float) or not 0 <= p <= 1:
        raise unsupported("dropout", "its arguments are left to eager mode")
    if not state.truth(train) or p == 0:
        return input
    node = state.record("call_function", randomness.dropout, (input, p, True), name="dropout")
    state.graph.effects = state.graph.random = True
    layout = state.infer(_operator("mul"), (input, 1.0), {})[0]
    return state.result(node, layout, [input])


def dropped_attention(f: Any, *args: Any) -> Any:
    """Attention with dropout, whose counters are reserved when the graph runs, too."""
    state = f.state
    args = tuple(state.whole(a) for a in args)
    layout = state.infer(_operator("attention_with_dropout"), (*args, 0, 0), {})[0]
    node = state.record("call_function", attention.dropped_attention, args, name="attention")
    state.graph.effects = state.graph.random = True
    return state.result(node, layout, [a for a in args if type(a) is TensorVar])


def stream(f: Any, *args: Any, **kwargs: Any) -> Any:
    raise unsupported(
        "the state of a generator of random numbers", "the graph draws only when it runs"
    )


def _operator(name: str) -> Any:
    from rushlight.ops import TABLE

    return TABLE[name].native


def filled(f: Any, native: Any, out: Any, generator: Any = None) -> Any:
    state = f.state
    if type(out) is not TensorVar:
        raise unsupported("random numbers", "their destination is no tensor")
    args = (native, out) if generator is None else (native, out, generator_of(generator))
    state.record("call_function", randomness.filled, args, None, out.layout, native)
    state.graph.random = True
    state.wrote(out, [out])
    return out


def generator_of(value: Any) -> Any:
    if type(value) in (Instance, Opaque):
        raise unsupported("a generator of random numbers as a value", "only the default one is")
    return value


def manual_seed(f: Any, seed: Any) -> Any:
    raise unsupported("manual_seed", "it gives the generator itself")


def randperm(f: Any, n: Any, **kwargs: Any) -> Any:
    state = f.state
    if kwargs or type(n) not in (int, SymInt):
        raise unsupported("randperm", "its arguments are left to eager mode")
    layout = dense((state.lower(n),), "int64")
    node = state.record("call_function", eager.randperm, (n,), layout=layout)
    state.graph.effects = state.graph.random = True
    return state.result(node, layout, [], False)


def changed(f: Any, module: Any) -> None:
    """A module's change is stamped after the graph, when its new attributes are written."""
    if module.fresh:
        module.fields.setdefault("_changed_at", 0)
    if not any(e[0] == "changed" and e[1] is module for e in f.state.effects):
        f.state.effects.append(("changed", module))


def set_grad_enabled(f: Any, on: Any) -> None:
    on = f.state.truth(on)
    set_mode_word(f, f.state.mode | 1 if on else f.state.mode & ~1)


def set_mode(f: Any, word: Any) -> None:
    set_mode_word(f, word)


def set_mode_word(f: Any, word: Any) -> None:
    state = f.state
    if type(word) is not int:
        raise unsupported("set_mode", "the mode is no constant")
    if word == state.mode:
        return
    changed_bits = word ^ state.mode
    if changed_bits == 1:
        node = state.graph.add("call_function", _core.set_grad_enabled, (bool(word & 1),))
    else:
        node = state.graph.add("call_function", _core.set_mode, (word,))
    state.locate(node)
    state.mode = word
    state.mode_touched = True
    state.graph.effects = True


ELSEWHERE = 64  # of the mode word: new tensors do not go to the CPU


def creation_device(f: Any) -> Any:
    if f.state.mode & ELSEWHERE:
        raise unsupported(
            "a tensor made on a default device that is not the CPU", "graphs make tensors there"
        )
    return _core.resolve_device("cpu")


def resolve_device(f: Any, device: Any) -> Any:
    if device is None:
        return creation_device(f)
    found = f.state.native(_core.resolve_device, device)
    if found.type != "cpu" and str(found) != f.state.device:
        raise unsupported(f"a move to {str(device)!r}", ONE_DEVICE)
    return found


def made_on_cpu(state: Any) -> None:
    state.made_on_cpu = True
    if state.device != "cpu":
        raise unsupported("a tensor made on the CPU among others on a GPU", ONE_DEVICE)


ONE_DEVICE = "graphs stay on one device"


def created(f: Any, operator: Any, device: Any, *args: Any, **options: Any) -> Any:
    """A tensor made from nothing: on the device of the graph's inputs, or on the CPU."""
    state, native = f.state, TABLE[operator].native
    device = resolve_device(f, device)
    if device.type == "cpu":
        made_on_cpu(state)
        return state.call_operator(native, args, options)
    args, options = state.whole(args), {k: state.whole(v) for k, v in options.items()}
    layout = replace(state.infer(native, args, options)[0], device=str(device))
    target = factories.created
    node = state.record("call_function", target, (operator, device, *args), options, layout)
    return state.result(node, layout, [], False)


def empty(f: Any, shape: Any, dtype: Any = None, device: Any = None) -> Any:
    state = f.state
    dtype = dtype or default_dtype(f)
    sizes = state.lower(tuple(shape) if isinstance(shape, (list, tuple)) else (shape,))
    device = resolve_device(f, device)
    there = (device,) if device.type != "cpu" else ()
    if not there:
        made_on_cpu(state)
    layout = dense(sizes, dtype.name, None, str(device))
    node = state.record("call_function", _core.empty, (tuple(shape), dtype, *there), layout=layout)
    return state.result(node, layout, [], False)


def tensor(f: Any, data: Any, dtype: Any = None, device: Any = "cpu") -> Any:
    """A tensor of constants: made anew in each run."""
    state = f.state
    device = resolve_device(f, device)
    state.realize_all(data)
    plain = state.native(constants, data)
    example = state.native(_core.tensor, plain, dtype)
    return tensor_of(state, plain, dtype, device, tuple(example.shape), example.dtype.name)


def tensor_of(state: Any, plain: Any, dtype: Any, device: Any, shape: tuple, name: str) -> Any:
    there = (device,) if device.type != "cpu" else ()
    layout = dense(shape, name, None, str(device))
    node = state.record("call_function", _core.tensor, (plain, dtype, *there), layout=layout)
    return state.result(node, layout, [], False)


def moved(f: Any, x: Any, device: Any, non_blocking: Any = False) -> Any:
    """A tensor of constants that nobody wrote to is made where it is wanted."""
    device = resolve_device(f, device)
    if type(x) is not TensorVar or x.layout.device == str(device):
        return x
    made = x.node is not None and x.node.target is _core.tensor and x.family.writer is None
    if not made or x.layout.device != "cpu" or x.requires_grad:
        raise unsupported(f"a move to {str(device)!r}", ONE_DEVICE)
    plain, dtype = x.node.args[:2]
    return tensor_of(f.state, plain, dtype, device, x.layout.shape, x.layout.dtype)


def constants(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [constants(v) for v in data]
    if type(data) is TensorVar:
        raise unsupported("a tensor made of tensors", "their values are known in the run only")
    return data.fix() if hasattr(data, "fix") else data


def count_of(f: Any, mask: Any) -> Any:
    raise data_dependent(
        "a result with as many elements as a mask has set",
        "Keep the shape: where(mask, x, 0), masked_fill, or nonzero_static.",
    )


def recurrent_layer(
    f: Any, mode: Any, sizes: Any, reverse: Any, *tensors: Any, fast: Any = True
) -> Any:
    """All steps of a layer are one node: eager mode's own kernels and backward."""
    state = f.state
    args = tuple(state.whole(a) for a in (mode, sizes, reverse, *tensors))
    given = [t for t in args[3:] if t is not None]
    if state.mode & casting.AUTOCAST:
        raise unsupported("a recurrent layer under autocast", "what is cast is decided in the run")
    if len({t.layout.dtype if type(t) is TensorVar else None for t in given}) != 1:
        raise unsupported("a recurrent layer of several dtypes", "eager mode decides itself")
    data, firsts = given[0], given[1 : 3 if mode == "LSTM" else 2]
    node = state.record("call_function", recurrent.recurrent_layer, args, {"fast": fast}, name=mode)
    shapes = [(data.layout.shape[0], firsts[0].layout.shape[1]), *(s.layout.shape for s in firsts)]
    outs = []
    for i, shape in enumerate(shapes):
        part = state.graph.add("call_function", operator.getitem, (node, i))
        part.meta["where"] = node.meta["where"]
        outs.append(state.result(part, dense(shape, data.layout.dtype), given))
    return tuple(outs)


def is_generator_function(f: Any, function: Any) -> bool:
    code = getattr(function, "code", None) or getattr(function, "__code__", None)
    if code is None:
        raise unsupported("inspect.isgeneratorfunction", "of what is no function")
    return bool(code.co_flags & inspect.CO_GENERATOR)


def lowered(f: Any, x: Any, dtype: Any) -> Any:
    """autocast's cast, which finds the same cast of a weight again."""
    state = f.state
    layout = Fake(x.layout).to(dtype).layout
    node = state.record("call_function", casting.lowered, (x, dtype), layout=layout)
    return state.result(node, layout, [x])


class Region:
    """An autocast region in the graph: made, entered and left by nodes."""

    def __init__(self, state: Any, node: Any, dtype: Any, bits: int) -> None:
        self.state, self.node, self.dtype, self.bits = state, node, dtype, bits
        self.outer: list[tuple] = []

    def enter(self, f: Any) -> Any:
        state = self.state
        self.outer.append((state.mode, state.cast_dtype))
        self.note("__enter__", ())
        state.mode = state.mode & ~(casting.AUTOCAST | casting.HALF) | self.bits
        state.cast_dtype = self.dtype
        return self

    def leave(self, f: Any, *_: Any) -> bool:
        mask = casting.AUTOCAST | casting.HALF
        self.note("__exit__", (None, None, None))
        mode, self.state.cast_dtype = self.outer.pop()
        self.state.mode = self.state.mode & ~mask | mode & mask
        return False

    def note(self, name: str, args: tuple) -> None:
        graph = self.state.graph
        node = graph.add("call_method", name, (self.node, *args))
        self.state.locate(node)
        graph.effects = self.state.mode_touched = True


def region(f: Any, device_type: Any, dtype: Any = None, enabled: Any = True, *rest: Any) -> Any:
    """`autocast(...)` of constants."""
    state = f.state
    if device_type != "cpu" or rest or type(enabled) is not bool:
        raise unsupported("autocast", "of another device, or with more arguments")
    if dtype is None:
        dtype = autocast_dtype(f, "cpu")
    if enabled and dtype not in casting.DTYPES:
        raise unsupported("autocast", "it warns that the dtype is not supported")
    node = state.graph.add("call_function", casting.autocast, ("cpu", dtype, enabled))
    half = casting.HALF if dtype is _core.float16 else 0
    bits = casting.AUTOCAST | half if enabled else 0
    return state.note_made(Region(state, node, dtype, bits))


def ambient(f: Any, function: Any, argument: Any) -> Any:
    """What the function says of this thread, guarded."""
    found = function(argument)
    f.state.guard("is", f.state.roots.const(argument).child("call", function), found)
    return found


def autocast_dtype(f: Any, device_type: Any) -> Any:
    """That of the region around the call, or the thread's."""
    inside = f.state.cast_dtype
    if device_type == "cpu" and inside is not None:
        return inside
    return ambient(f, casting.get_autocast_dtype, device_type)


def autocast_enabled(f: Any, device_type: Any = "cuda") -> bool:
    casting.known(device_type)  # refuses what is no device
    on_cuda = f.state.cast_dtype is None and ambient(f, casting.is_autocast_enabled, "cuda")
    if device_type != "cpu":
        return on_cuda
    return bool(f.state.mode & casting.AUTOCAST) and not on_cuda


LEAVES: dict[Any, Any] = {
    casting.lowered: lowered,
    casting.get_autocast_dtype: autocast_dtype,
    casting.is_autocast_enabled: autocast_enabled,
    indexing.count_of: count_of,
    inspect.isgeneratorfunction: is_generator_function,
    randomness.dropout: dropout,
    randomness.filled: filled,
    randomness.manual_seed: manual_seed,
    eager.randperm: randperm,
    factories.created: created,
    factories.moved: moved,
    recurrent.recurrent_layer: recurrent_layer,
    attention.dropped_attention: dropped_attention,
    Module._changed: changed,
    **{
        getattr(randomness.Generator, name): stream
        for name in ("reserve", "position", "move_to", "get_state", "set_state", "initial_seed")
    },
}


def default_dtype(f: Any) -> Any:
    found = _core.get_default_dtype()
    source = f.state.roots.const(None).child("call", current_default_dtype)
    f.state.guard("is", source, found)
    return found


def current_default_dtype(_: Any) -> Any:
    return _core.get_default_dtype()


NATIVE_LEAVES: dict[Any, Any] = {
    _core.set_grad_enabled: set_grad_enabled,
    _core.set_mode: set_mode,
    _core.is_grad_enabled: lambda f: bool(f.state.mode & 1),
    _core.mode: lambda f: f.state.mode,
    _core.creation_device: creation_device,
    _core.resolve_device: resolve_device,
    _core.empty: empty,
    _core.tensor: tensor,
    _core.can_cast: lambda f, a, b: _core.can_cast(a, b),
    _core.get_default_dtype: default_dtype,
    _core.num_threads: lambda f: _core.num_threads(),
}
