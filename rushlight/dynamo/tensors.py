"""Attributes and native methods of tensors: what a capture answers from the layout, what becomes a
node, and what breaks the graph."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

from rushlight import _core, dtypes, eager
from rushlight.eager import formats

from .breaks import data_dependent, served, unsupported
from .variables.numbers import SymInt, lift
from .variables.objects import Method
from .variables.tensor import TensorVar


class TensorMethod:
    """A native method of a tensor, bound."""

    __slots__ = ("name", "var")

    def __init__(self, var: TensorVar, name: str) -> None:
        self.var, self.name = var, name


def find(cls: type, name: str) -> Any:
    for c in cls.__mro__:
        if name in c.__dict__:
            return c.__dict__[name]
    return None


def type_name(cls: type) -> str:
    """As CPython's messages have it."""
    return TensorVar.__name__ if cls is _core.Tensor else cls.__name__


def load_tensor_attribute(frame: Any, x: TensorVar, name: str) -> Any:
    state = frame.state
    getter = GETTERS.get(name)
    if getter is not None:
        return getter(frame, x)
    found = find(x.cls, name)
    kind = type(found)
    if kind is types.FunctionType:
        return Method(state, found, x)
    if kind is property:
        return frame.call(found.fget, (x,), {})
    if found is not None and (kind is _core.Operator or callable(found)):
        return TensorMethod(x, name)
    if found is not None:
        raise unsupported(f"attribute {name} of a tensor", "it is not modelled")
    if name in x.fields:
        return x.fields[name]
    source = state.sources.get(id(x))
    own = getattr(x.example, "__dict__", None) if x.example is not None else None
    if own and name in own and source is not None:
        return state.wrap(own[name], source.child("dict_attr", name))
    if source is not None and own is not None:
        state.guard("absent", source.child("attr", "__dict__"), name)
    kind = type_name(x.cls)
    error = AttributeError(f"'{kind}' object has no attribute '{name}'", name=name)
    raise state.raised(error)


def store_tensor_attribute(frame: Any, x: TensorVar, name: str, value: Any) -> None:
    state = frame.state
    if name == "grad" and id(x) in state.sources and fits_grad(x, value):
        x.fields["grad"] = value
        state.effects[:] = [e for e in state.effects if e[0] != "grad" or e[1] is not x]
        state.effects.append(("grad", x))
        return
    if name == "data":
        from .tape import assign_data

        assign_data(frame, x, value)
        return
    raise unsupported(
        f"assignment to attribute {name} of a tensor", "it changes the tensor outside the graph"
    )


def call_tensor_method(frame: Any, method: TensorMethod, args: tuple, kwargs: dict) -> Any:
    state, x, name = frame.state, method.var, method.name
    handler = NATIVE.get(name)
    if handler is not None:
        return served(handler, frame, x, *args, **kwargs)
    found = find(x.cls, name)
    if type(found) is _core.Operator:
        return state.call_operator(found, (x, *args), kwargs)
    if name.startswith("__"):
        return state.native(getattr(x, name), *args, **kwargs)
    raise unsupported(f"Tensor.{name}", "it is not modelled")


# ---- attributes


def shape(frame: Any, x: TensorVar) -> Any:
    return tuple.__new__(eager.Size, map(lift, x.layout.shape))


def fits_grad(x: TensorVar, value: Any) -> bool:
    """Whether the assignment is sure to be taken."""
    return value is None or (
        type(value) is TensorVar
        and x.leaf is True
        and value.layout.dtype == x.layout.dtype
        and value.layout.shape == x.layout.shape
    )


def grad(frame: Any, x: TensorVar) -> Any:
    state = frame.state
    if "grad" in x.fields:
        return x.fields["grad"]
    source = state.sources.get(id(x))
    if source is None or x.example is None:
        raise unsupported("the gradient of a tensor made in the frame", "it is not modelled")
    return state.wrap(x.example.grad, source.child("grad"))


def requires_grad(frame: Any, x: TensorVar) -> bool:
    if x.requires_grad is None:
        raise unsupported("requires_grad of a tensor", "it depends on writes to shared memory")
    return x.requires_grad


def is_leaf(frame: Any, x: TensorVar) -> bool:
    if x.leaf is None:
        raise unsupported("is_leaf of a tensor", "it depends on writes to shared memory")
    return x.leaf


def grad_fn(frame: Any, x: TensorVar) -> Any:
    if x.leaf:
        return None
    raise unsupported("grad_fn of a tensor", "the tape exists only when the graph runs")


def data(frame: Any, x: TensorVar) -> Any:
    node = frame.state.record("call_function", getattr, (x, "data"), name="data")
    out = frame.state.result(node, x.layout, [x], differentiable=False, view=True)
    return out


def base(frame: Any, x: TensorVar) -> Any:
    raise unsupported("_base or _version of a tensor", "they are known only when the graph runs")


def device(frame: Any, x: TensorVar) -> Any:
    if x.example is not None:
        return x.example.device
    return _core.resolve_device(x.layout.device)


GETTERS: dict[str, Any] = {
    "shape": shape,
    "dtype": lambda f, x: getattr(_core, x.layout.dtype),
    "device": device,
    "ndim": lambda f, x: x.layout.rank,
    "requires_grad": requires_grad,
    "grad": grad,
    "is_leaf": is_leaf,
    "grad_fn": grad_fn,
    "data": data,
    "_version": base,
    "_base": base,
    "output_nr": base,
    "retains_grad": base,
    "layout_id": base,
    "__class__": lambda f, x: x.cls,
}


# ---- methods


def dim_of(state: Any, x: TensorVar, dim: Any) -> int:
    rank = x.layout.rank
    d = dim.fix() if isinstance(dim, SymInt) else dim
    if not isinstance(d, int) or not -max(rank, 1) <= d < max(rank, 1) or not rank:
        raise unsupported("a size of a tensor", f"dim {dim!r} of {rank} dims")
    return d % rank


def size(frame: Any, x: TensorVar, dim: Any = None) -> Any:
    if dim is None:
        return shape(frame, x)
    return lift(x.layout.shape[dim_of(frame.state, x, dim)])


def stride(frame: Any, x: TensorVar, dim: Any = None) -> Any:
    if dim is None:
        return tuple(map(lift, x.layout.strides))
    return lift(x.layout.strides[dim_of(frame.state, x, dim)])


def numel(frame: Any, x: TensorVar) -> Any:
    total: Any = 1
    for n in x.layout.shape:
        total = total * n
    return lift(total)


def detach(frame: Any, x: TensorVar) -> Any:
    node = frame.state.record("call_method", "detach", (x,))
    return frame.state.result(node, x.layout, [x], differentiable=False, view=True)


def requires_grad_(frame: Any, x: TensorVar, requires_grad: bool = True) -> Any:
    state = frame.state
    if x.leaf is not True or not dtypes.is_floating(x.layout.dtype):
        raise unsupported("requires_grad_", "eager mode may refuse it; it decides itself")
    x.family.writer = state.record("call_method", "requires_grad_", (x, bool(requires_grad)))
    state.graph.effects = True
    if id(x) in state.sources:
        state.graph.writes_inputs = True
    x.requires_grad = bool(requires_grad)
    return x


def is_contiguous(frame: Any, x: TensorVar, memory_format: Any = None) -> bool:
    if memory_format is None or memory_format == "contiguous":
        return bool(x.layout.contiguous)
    if memory_format not in formats.RANKS:
        raise unsupported("is_contiguous with a memory format", "eager mode tells what it takes")
    if x.layout.rank != formats.RANKS[memory_format]:
        return False
    there, _ = formats.inside(x.layout.rank)
    shape, strides = (tuple(p[d] for d in there) for p in (x.layout.shape, x.layout.strides))
    return bool(replace(x.layout, shape=shape, strides=strides).contiguous)


def element_size(frame: Any, x: TensorVar) -> int:
    return getattr(_core, x.layout.dtype).itemsize


def reads(what: str, hint: str = "") -> Any:
    def handler(frame: Any, x: TensorVar, *args: Any, **kwargs: Any) -> Any:
        raise data_dependent(what, hint)

    return handler


def refuses(what: str, why: str) -> Any:
    def handler(frame: Any, x: TensorVar, *args: Any, **kwargs: Any) -> Any:
        raise unsupported(what, why)

    return handler


def length(frame: Any, x: TensorVar) -> Any:
    if not x.layout.rank:
        raise frame.state.raised(TypeError("len() of a 0-d tensor"))
    return lift(x.layout.shape[0])


NATIVE: dict[str, Any] = {
    "size": size,
    "stride": stride,
    "dim": lambda f, x: x.layout.rank,
    "numel": numel,
    "nelement": numel,
    "detach": detach,
    "requires_grad_": requires_grad_,
    "is_contiguous": is_contiguous,
    "is_floating_point": lambda f, x: dtypes.is_floating(x.layout.dtype),
    "element_size": element_size,
    "__len__": length,
    "__hash__": lambda f, x: refuse_hash(),
    "item": reads("Tensor.item()", "Keep the value in a tensor, or read it outside."),
    "tolist": reads("Tensor.tolist()"),
    "numpy": reads("Tensor.numpy()"),
    "data_ptr": refuses("Tensor.data_ptr()", "memory is known only when the graph runs"),
    "storage_offset": refuses("Tensor.storage_offset()", "it is known only when the graph runs"),
    "backward": refuses("Tensor.backward()", "it runs the tape, which is outside the graph"),
    "detach_": refuses("Tensor.detach_()", "it changes the tape of the run"),
}


def refuse_hash() -> Any:
    raise unsupported("hash of a tensor", "its address is known only when the graph runs")
