"""Eager mode: native operators made from the declarations, the hooks that plan their calls, and
what PyTorch puts beside them.

Importing this room makes every operator; `rushlight` hands its names on.
"""

from rushlight import _core

from . import (
    contractions,
    dispatching,
    factories,
    functions,
    methods,
    modes,
    operators,
    pieces,
    randomness,
    reducing,
    sampling,
    selection,
)
from .factories import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    get_default_dtype,
    linspace,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from .formats import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from .functions import Function
from .methods import Size, device
from .modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .randomness import (
    Generator,
    dropout,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

# Plain calls are answered natively; the functions above take all others.
empty, zeros, ones, arange, empty_like, zeros_like, ones_like = (
    _core.Factory(f.__name__, f)
    for f in (empty, zeros, ones, arange, empty_like, zeros_like, ones_like)
)
Tensor, dtype = _core.Tensor, _core.dtype
from_numpy, from_dlpack = _core.from_numpy, _core.from_dlpack
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


def at_first_use(hook, module, name):
    """A hook of core that loads its module when it is first needed and then stands aside."""

    def first(*args):
        from importlib import import_module

        found = getattr(import_module(f"rushlight.eager.{module}"), name)
        _core.set_hooks(**{hook: found})
        return found(*args)

    return first


def install():
    _core.set_hooks(
        dispatch=dispatching.dispatch,
        **{
            hook: at_first_use(hook, module, name)
            for hook, module, name in (
                ("make_plan", "plan", "make_plan"),
                ("make_backward", "backward", "make_backward"),
                ("make_part", "program", "part"),
                ("index", "indexing", "index"),
                ("format", "printing", "text"),
                ("open_device", "accelerator", "open_device"),
            )
        },
    )
    operators.install()
    methods.install()


install()
for _name in DTYPES:
    globals()[_name] = getattr(_core, _name)
for _name, _op in operators.TABLE.items():
    if _op.function:
        globals().setdefault(_name, _op.native)
for _alias, _name in operators.ALIASES.items():
    globals().setdefault(_alias, operators.TABLE[_name].native)
cross_entropy_loss, mse_loss = (
    operators.TABLE["cross_entropy_loss"].native,
    operators.TABLE["mse_loss"].native,
)


def method_function(name):
    """`f(x, ...)` for a method that is no operator."""
    method = methods.METHODS[name]

    def function(input, *args, **kwargs):
        return method(input, *args, **kwargs)

    function.__name__, function.__doc__ = name, method.__doc__
    return function


METHOD_FUNCTIONS = (
    "max",
    "min",
    "aminmax",
    "norm",
    "equal",
    "allclose",
    "split",
    "split_with_sizes",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "chunk",
    "unbind",
)
globals().update(contractions.FUNCTIONS)
FUNCTIONS = {**factories.FUNCTIONS, **pieces.FUNCTIONS, **sampling.FUNCTIONS}
globals().update(FUNCTIONS)
globals().update(selection.FUNCTIONS)  # named tuples, overloads, what counts first
module_attributes = _core.module_attributes  # nn: native look-up of parameters and submodules
get_num_threads, set_num_threads = _core.num_threads, _core.set_num_threads
for _name in METHOD_FUNCTIONS:
    globals()[_name] = method_function(_name)

PUBLIC = [
    "Function",
    "Generator",
    "Size",
    "Tensor",
    "arange",
    "as_tensor",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "memory_format",
    "preserve_format",
    "device",
    "dropout",
    "dtype",
    "empty",
    "empty_like",
    "enable_grad",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "get_default_dtype",
    "get_rng_state",
    "inference_mode",
    "initial_seed",
    "is_grad_enabled",
    "linspace",
    "manual_seed",
    "no_grad",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_grad_enabled",
    "set_rng_state",
    "tensor",
    "zeros",
    "zeros_like",
    "get_num_threads",
    "set_num_threads",
    *DTYPES,
    *METHOD_FUNCTIONS,
    *operators.ALIASES,
    *[n for n, o in operators.TABLE.items() if o.function],
    *contractions.FUNCTIONS,
    *FUNCTIONS,
    *selection.FUNCTIONS,
]
__all__ = ["ALIASES", "DTYPES", "PUBLIC", "factories", "functions", *PUBLIC]
