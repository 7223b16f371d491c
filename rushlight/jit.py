"""`rushlight.jit`: programs written for TorchScript run as the Python that they are.

`script` and `trace` give back what they were given: TorchScript means the same program without
Python, and here `compile` does that work. Archives of TorchScript are neither written nor read.
"""

import functools
import os

from rushlight.nn.module import Module
from rushlight.reasons import refuse


class ScriptModule(Module):
    """The base of hand-written script modules. What `script` and `trace` give is none."""


class TracerWarning(Warning):
    """What a tracer says of a branch that it cannot record. Nothing here gives one."""


class ScriptFunction:
    """What TorchScript makes of a function. Nothing here is one."""


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """A function, a class or a module, as it is. TypeError for anything else."""
    if not callable(obj):
        raise TypeError(f"[jit.script] expected a function, class or module, got {type(obj)}")
    return obj


def trace(
    func,
    example_inputs=None,
    optimize=None,
    check_trace=True,
    check_inputs=None,
    check_tolerance=1e-5,
    strict=True,
    *,
    example_kwarg_inputs=None,
    **private,
):
    """A function or a module, as it is, after one call with the example inputs: so that what does
    not take them fails here. Branches on values stay branches."""
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("[jit.trace] example_inputs or example_kwarg_inputs is needed")
    given = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    given = () if example_inputs is None else given
    func(*given, **(example_kwarg_inputs or {}))
    return func


def trace_module(mod, inputs, *args, **kwargs):
    """The module, after one call of each method that `inputs` names."""
    for name, given in inputs.items():
        method = mod if name == "forward" else getattr(mod, name)
        method(*(given if isinstance(given, (tuple, list)) else (given,)))
    return mod


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """A module in evaluation mode, as it is; RuntimeError for one that trains."""
    if getattr(mod, "training", False):
        raise RuntimeError("[jit.freeze] the module must be in evaluation mode")
    return mod


def optimize_for_inference(mod, other_methods=None):
    return mod


def _archive(what, f):
    where = os.fspath(f) if isinstance(f, (str, os.PathLike)) else type(f).__name__
    refuse("jit.archive", f"{what}({where})", "archives of TorchScript hold its bytecode")
    raise NotImplementedError(
        f"[{what}] archives of TorchScript are not supported: keep the state_dict with "
        f"torch.save and torch.load instead"
    )


def save(m, f, _extra_files=None):
    _archive("jit.save", f)


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    _archive("jit.load", f)


def is_scripting():
    """False: Python runs."""
    return False


def is_tracing():
    return False


def _as_it_is(drop_or_fn=None, **kwargs):
    """A decorator, with or without arguments, that changes nothing."""
    return drop_or_fn if callable(drop_or_fn) else lambda fn: fn


def ignore(drop=False, **kwargs):
    return _as_it_is(drop, **kwargs)


def unused(fn):
    return fn


def export(fn):
    return fn


def script_method(fn):
    return fn


def interface(obj):
    return obj


def annotate(the_type, the_value):
    return the_value


def isinstance_(obj, target_type):
    """Whether obj is of a type, or of one of several; types like List[int] look at the origin."""
    if isinstance(target_type, tuple):
        return any(isinstance_(obj, one) for one in target_type)
    return isinstance(obj, getattr(target_type, "__origin__", target_type))


class Attribute:
    """A value and its type; on a module it is the value."""

    def __new__(cls, value, type=None):
        return value


def fork(func, *args, **kwargs):
    """The call, made at once; `wait` gives its result."""
    return functools.partial(lambda made: made, func(*args, **kwargs))


def wait(future):
    return future()


class optimized_execution:
    """A context that changes nothing."""

    def __init__(self, should_optimize):
        self.should_optimize = should_optimize

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


fuser = optimized_execution


def __getattr__(name):
    if name == "isinstance":
        return isinstance_
    if name == "Final":
        from typing import Final

        return Final
    raise AttributeError(f"module 'rushlight.jit' has no attribute {name!r}")
