"""Calls: what happens when the program calls a value.

Functions written in Python are interpreted in place, operators become nodes, builtins run on the
values of the capture where they are known to do nothing else, and the rest breaks the graph.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from rushlight import _core
from rushlight.nn.module import Module

from .attributes import NOT_FOUND, class_attribute, load_attr, type_of
from .breaks import unsupported
from .bytecode import is_coroutine, is_generator
from .containers import DictMethod
from .interpreter import Frame
from .leaves import LEAVES, Region
from .tape import HandleMethod
from .tensors import TensorMethod, call_tensor_method
from .variables.objects import MISSING, Cell, Function, Instance, Lazy, Method, Opaque, Reenter
from .variables.tensor import TensorVar

# Modules whose functions talk to the world, or whose meaning lies outside Python's bytecode.
OUTSIDE = (
    "threading", "logging", "warnings", "time", "os", "posixpath", "io", "random", "inspect",
    "importlib", "pickle", "subprocess", "socket", "traceback", "linecache", "tempfile",
    "pathlib", "asyncio", "multiprocessing", "concurrent", "signal", "gc", "weakref", "numpy",
    "rushlight.dynamo", "rushlight.fx", "rushlight.trace", "rushlight.report", "pytest", "_pytest",
    "unittest", "torch", "rushlight.autograd",
)  # fmt: skip
FORBIDDEN: dict[Any, tuple[str, str]] = {}  # functions that break, with what and why


def call(f: Frame, function: Any, args: tuple, kwargs: dict) -> Any:
    """function(*args, **kwargs)."""
    cls = type(function)
    if cls is types.FunctionType:
        return call_function(f, function, args, kwargs)
    if cls is Method:
        return call(f, function.function, (function.object, *args), kwargs)
    if cls is Function:
        local, cells = bind(f, function, args, kwargs)
        return inline(f, function.code, function.namespace, local, cells, (function, args, kwargs))
    if cls is TensorMethod:
        args = tuple(map(f.realize, args))
        return call_tensor_method(f, function, args, kwargs)
    if cls is _core.Operator:
        return f.state.call_operator(function, args, kwargs)
    if isinstance(function, type):
        from .classes import call_class

        return call_class(f, function, args, kwargs)
    if cls is Instance:
        found = class_attribute(f.state, function.cls, "__call__")
        if found is NOT_FOUND:
            raise f.raised(TypeError(f"'{function.cls.__name__}' object is not callable"))
        if found is CALL_OF_MODULES:
            return call_module(f, function, args, kwargs)
        return call(f, found, (function, *args), kwargs)
    if cls is functools.partial and type(getattr(function.func, "__self__", None)) is Region:
        return function(*args)  # __exit__ of a region of autocast
    if cls is functools.partial:
        merged = {**function.keywords, **kwargs}
        return call(f, f.state.plain(function.func), (*function.args, *args), merged)
    if cls is Reenter:
        return call(f, function.function, args, kwargs)
    if cls is _core.Factory:
        return call(f, function.__wrapped__, args, kwargs)
    if cls is _core.CompiledFunction:
        return call(f, function.callable, args, kwargs)
    if cls is DictMethod or cls is HandleMethod:
        return function.run(f, *args, **kwargs)
    if cls is Opaque:
        inner = getattr(function.value, "__rushlight_original__", None)
        if inner is not None:
            return call(f, f.state.wrap(inner, f.state.roots.const(inner)), args, kwargs)
        raise unsupported(
            f"a call of a {type(function.value).__name__}", "its behaviour is not modelled"
        )
    from .builtins import call_builtin

    return call_builtin(f, function, args, kwargs)


def call_function(f: Frame, function: Any, args: tuple, kwargs: dict) -> Any:
    """Of a function from outside."""
    leaf = LEAVES.get(function)
    if leaf is not None:
        return leaf(f, *args, **kwargs)
    refuse(function)
    local, cells = bind(f, function, args, kwargs)
    code = function.__code__
    record = (function, args, kwargs)
    return inline(f, code, function.__globals__, local, cells, record)


CALL_OF_MODULES = Module.__call__
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def call_module(f: Frame, module: Instance, args: tuple, kwargs: dict) -> Any:
    """`Module.__call__` without a frame of its own, which every layer of a model would take: no
    hooks, and forward."""
    for name in HOOKS:
        if f.state.truth(load_attr(f, module, name)):
            return call(f, CALL_OF_MODULES, (module, *args), kwargs)
    return call(f, load_attr(f, module, "forward"), tuple(map(f.realize, args)), kwargs)


def refuse(function: Any) -> None:
    """Raises Break for functions that are not entered."""
    entry = FORBIDDEN.get(function)
    if entry is not None:
        raise unsupported(*entry)
    if "__rushlight_disabled__" in function.__dict__:
        why = function.__dict__["__rushlight_disabled__"] or "it is marked by disable()"
        raise unsupported(f"a call of {function.__qualname__}", why)
    module = function.__module__ or ""
    if module.startswith(OUTSIDE) and any(
        module == m or module.startswith(m + ".") for m in OUTSIDE
    ):
        raise unsupported(
            f"a call of {module}.{function.__qualname__}", "its effects are not modelled"
        )


def inline(f: Frame, code: Any, namespace: dict, local: dict, cells: dict, record: tuple) -> Any:
    if is_coroutine(code):
        raise unsupported(f"a call of {code.co_qualname}", "coroutines are not modelled")
    made = Frame(f.state, code, namespace, local, cells, record)
    return made.run()[1]


def bind(f: Frame, function: Any, args: tuple, kwargs: dict) -> tuple[dict, dict]:
    """The locals and cells with which a call starts."""
    state = f.state
    if type(function) is Function:
        code, defaults, kwdefaults = function.code, function.defaults, function.kwdefaults
        closure: Any = function.closure
    else:
        code, defaults, kwdefaults = outside_defaults(state, function)
        closure = outside_closure(state, function)
    local = bind_arguments(f, function, code, defaults or (), kwdefaults or {}, args, kwargs)
    return local, dict(zip(code.co_freevars, closure))


def outside_defaults(state: Any, function: Any) -> tuple:
    code, source = function.__code__, state.sources.get(id(function))
    defaults, kwdefaults = function.__defaults__, function.__kwdefaults__
    if source is None:
        source = state.roots.const(function)
    if defaults:
        defaults = tuple(Lazy(v, source.child("default", i)) for i, v in enumerate(defaults))
    if kwdefaults:
        kwdefaults = {k: Lazy(v, source.child("kwdefault", k)) for k, v in kwdefaults.items()}
    return code, defaults, kwdefaults


def outside_closure(state: Any, function: Any) -> list[Cell]:
    source = state.sources.get(id(function))
    if source is None:
        source = state.roots.const(function)
    cells = function.__closure__ or ()
    base = source.child("attr", "__closure__")
    return [state.cell_of(c, base.child("index", i)) for i, c in enumerate(cells)]


def bind_arguments(
    f: Frame, function: Any, code: Any, defaults: tuple, kwdefaults: dict, args: tuple, kwargs: dict
) -> dict[str, Any]:
    names = code.co_varnames
    n, k = code.co_argcount, code.co_kwonlyargcount
    flags = code.co_flags
    local: dict[str, Any] = dict(zip(names[:n], args))
    if flags & 4:
        local[names[n + k]] = tuple(args[n:])
    elif len(args) > n:
        raise wrong_call(f, function, args, kwargs)
    extra: Any = None
    if flags & 8:
        extra = f.state.note_made({})
        local[names[n + k + bool(flags & 4)]] = extra
    only = names[: code.co_posonlyargcount]
    for name, value in kwargs.items():
        if name in names[: n + k] and name not in only:
            if name in local:
                raise wrong_call(f, function, args, kwargs)
            local[name] = value
        elif extra is not None:
            extra[name] = value
        else:
            raise wrong_call(f, function, args, kwargs)
    first = n - len(defaults)
    for i in range(len(args), n):
        if names[i] not in local:
            if i < first:
                raise wrong_call(f, function, args, kwargs)
            local[names[i]] = defaults[i - first]
    for name in names[n : n + k]:
        if name not in local:
            if name not in kwdefaults:
                raise wrong_call(f, function, args, kwargs)
            local[name] = kwdefaults[name]
    return local


def wrong_call(f: Frame, function: Any, args: tuple, kwargs: dict) -> BaseException:
    """CPython's own TypeError for these arguments."""
    stub: Any = function
    if type(function) is Function:
        stub = types.FunctionType(plain_code(function.code), {}, function.name, function.defaults)
        stub.__qualname__ = function.qualname
        stub.__kwdefaults__ = function.kwdefaults
    else:
        stub = types.FunctionType(
            plain_code(function.__code__), {}, function.__name__, function.__defaults__
        )
        stub.__qualname__ = function.__qualname__
        stub.__kwdefaults__ = function.__kwdefaults__
    try:
        stub(*args, **kwargs)
    except TypeError as error:
        return f.raised(error.with_traceback(None))
    return unsupported(f"a call of {function!r}", "its arguments could not be bound")


def plain_code(code: Any) -> Any:
    """A code object of the same signature without free variables."""
    stub = (lambda: None).__code__
    return stub.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_nlocals=len(code.co_varnames),
        co_varnames=code.co_varnames,
        co_flags=code.co_flags & 0xF,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )


Frame.call = call  # type: ignore[method-assign]
__all__ = ["MISSING", "TensorVar", "call", "is_generator", "type_of"]
