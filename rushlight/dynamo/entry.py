"""`compile` and what stands beside it: functions, methods and modules made into compiled ones."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from rushlight import _core, config
from rushlight.eager.modes import is_compiling
from rushlight.nn.module import Module

from . import convert
from .backends import resolve
from .calls import FORBIDDEN
from .leaves import LEAVES


def compile(  # noqa: A001  PyTorch's name
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
) -> Any:
    """`fn` (a function, method or module) captured as graphs that `backend` compiles. Without `fn`
    a decorator.

    fullgraph: raise GraphBreakError where a graph would break. dynamic: True makes sizes symbolic
    at once, False never; None once they were seen to vary. ValueError for an unknown backend.
    """
    if fn is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if disable or config.flags.compile_disable:
        return fn
    if not callable(fn):
        raise TypeError(f"[compile] expected a function or a module, got {type(fn).__name__}")
    resolve(backend)
    settings = convert.Options(backend, fullgraph, dynamic, mode, options)
    if isinstance(fn, Module):
        return OptimizedModule(fn, settings)
    if isinstance(fn, types.MethodType):
        return types.MethodType(compiled(fn.__func__, settings), fn.__self__)
    if isinstance(fn, types.FunctionType):
        return compiled(fn, settings)
    method: Any = inspect.getattr_static(type(fn), "__call__", None)
    if isinstance(method, types.FunctionType):
        return types.MethodType(compiled(method, settings), fn)

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return compiled(call, settings)


def compiled(function: Any, settings: convert.Options) -> Any:
    return convert.compile_callable(function, settings)


class OptimizedModule(Module):
    """A module whose calls are compiled. It is its only child, `_orig_mod`, so names in its
    state_dict() begin with that; attributes are the module's own."""

    def __init__(self, module: Module, settings: convert.Options) -> None:
        super().__init__()
        self.__dict__["_modules"]["_orig_mod"] = module
        self._settle(settings)

    def _settle(self, settings: convert.Options) -> None:
        kind, own = type(self.__dict__["_modules"]["_orig_mod"]), self.__dict__
        own["_settings"] = settings
        own["_forward"] = compiled(plain(kind.forward), settings)
        own["_whole"] = compiled(plain(kind.__call__), settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if hooked(self.__dict__):
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self.__dict__["_modules"]["_orig_mod"]
        own, kind = module.__dict__, type(module)
        if kind.__call__ is Module.__call__ and "forward" not in own and not hooked(own):
            return self.__dict__["_forward"](module, *args, **kwargs)
        return self.__dict__["_whole"](module, *args, **kwargs)

    @property
    def training(self) -> bool:
        return self._orig_mod.training

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:  # while it is copied
            raise AttributeError(name)
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __getstate__(self) -> dict:
        state, s = dict(self.__dict__), self.__dict__["_settings"]
        del state["_forward"], state["_whole"]
        state["_settings"] = (s.backend, s.fullgraph, s.dynamic, s.mode, s.options)
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._settle(convert.Options(*state["_settings"]))

    def __repr__(self) -> str:
        return f"OptimizedModule({self._orig_mod!r})"


def hooked(own: dict) -> bool:
    """Whether a module with these fields has hooks of its calls."""
    return bool(
        own.get("_forward_hooks")
        or own.get("_forward_pre_hooks")
        or own.get("_backward_hooks")
        or own.get("_backward_pre_hooks")
    )


def plain(function: Any) -> Any:
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"[compile] {function!r} is not written in Python")
    return function


# ---- beside it


def graph_break() -> None:
    """Inside a compiled function the graph ends here and another begins."""


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function is never captured: a call of it breaks the graph. `recursive`: nor are those
    that it calls; without it they are left alone as well, which changes no result."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        hook, before = _core.set_frame_hook(None), _core.compile_disabled(True)
        try:
            return fn(*args, **kwargs)
        finally:
            _core.compile_disabled(before)
            _core.set_frame_hook(hook)

    _core.frame_skip(run)
    run.__dict__["__rushlight_disabled__"] = reason or "it is marked by disable()"
    return run


def allow_in_graph(fn: Any) -> Any:
    """Calls of `fn` become one node of the graph: it must compute tensors from its arguments and
    nothing else. Its layouts are found by running it on fakes. A class, or a list of functions,
    comes back as it is: modules of a class are captured as ever, to the same results."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]
    if isinstance(fn, type):
        return fn
    if not isinstance(fn, types.FunctionType):
        raise TypeError(f"[allow_in_graph] expected a function, got {type(fn).__name__}")

    def leaf(f: Any, *args: Any, **kwargs: Any) -> Any:
        return f.state.opaque_call(fn, args, kwargs)

    LEAVES[fn] = leaf
    return fn


def reset() -> None:
    """Forget every capture."""
    convert.forget()


FORBIDDEN[graph_break] = ("graph_break()", "the program asks for it")
LEAVES[is_compiling] = lambda f: True
