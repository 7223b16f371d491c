"""Small public functions: what a type can hold, what combines to what, defaults, and switches that
PyTorch's scripts touch.
"""

import warnings
from dataclasses import dataclass
from typing import Any

from rushlight import _core, dtypes
from rushlight.ops.promotion import rank_of

from . import factories
from .storage import UntypedStorage

Tensor = _core.Tensor


def native(name):
    return getattr(_core, name)


# ---- the limits of a type

# name -> (bits of the exponent, of the fraction, decimal digits that are always right)
FLOATING = {
    "float16": (5, 10, 3),
    "bfloat16": (8, 7, 2),
    "float32": (8, 23, 6),
    "float64": (11, 52, 15),
}


def type_of(given):
    dtype = native(dtypes.DEFAULT) if given is None else given
    if not isinstance(dtype, _core.dtype):
        raise TypeError(f"expected a dtype, got {type(given).__name__}")
    return dtype


@dataclass(frozen=True, init=False, repr=False)
class finfo:
    """The limits of a floating type: eps (of 1), max, min, tiny (smallest_normal: the least normal
    number), resolution, bits. TypeError for other types.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    tiny: float
    resolution: float
    dtype: str

    def __init__(self, type=None):
        known = getattr(type, "floating_limits", None)  # a type that only torch has
        if known is not None:
            for field, value in known.items():
                object.__setattr__(self, field, value)
            return
        name = dtypes.real_of(type_of(type).name)
        if name not in FLOATING:
            raise TypeError(f"[finfo] describes floating dtypes, got {name!r}: see rushlight.iinfo")
        exponent, fraction, digits = FLOATING[name]
        bias = 2 ** (exponent - 1) - 1
        largest = (2.0 - 2.0**-fraction) * 2.0**bias
        tiny = 2.0 ** (1 - bias)
        for field, value in (
            ("bits", 1 + exponent + fraction),
            ("eps", 2.0**-fraction),
            ("max", largest),
            ("min", -largest),
            ("smallest_normal", tiny),
            ("tiny", tiny),
            ("resolution", float(f"1e-{digits}")),
            ("dtype", name),
        ):
            object.__setattr__(self, field, value)

    def __repr__(self):
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        text = ", ".join(f"{n}={getattr(self, n):.6g}" for n in names)
        return f"finfo({text}, dtype={self.dtype})"


@dataclass(frozen=True, init=False, repr=False)
class iinfo:
    """The limits of an integer type: min, max, bits. TypeError for other types."""

    bits: int
    min: int
    max: int
    dtype: str

    def __init__(self, type):
        known = getattr(type, "integer_limits", None)
        dtype = type_of(type) if known is None else known
        if dtype.name not in dtypes.INTEGERS and known is None:
            hint = " Use rushlight.finfo." if dtype.is_floating_point else ""
            raise TypeError(f"rushlight.iinfo() does not take {dtype.name}.{hint}")
        bits = 8 * dtype.itemsize
        low, high = (
            (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed else (0, 2**bits - 1)
        )
        for field, value in (("bits", bits), ("min", low), ("max", high), ("dtype", dtype.name)):
            object.__setattr__(self, field, value)

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


# ---- types that meet


def promote_types(type1, type2):
    """The smallest dtype that holds both."""
    return native(dtypes.promote(type_of(type1).name, type_of(type2).name))


def can_cast(from_, to):
    """Whether values of one dtype may be written to the other, by PyTorch's rules."""
    return dtypes.can_cast(type_of(from_).name, type_of(to).name)


def result_type(tensor1, tensor2):
    """The dtype of an operation on two tensors or numbers: tensors with dims decide, then those
    without, then numbers; a lower rank decides only by a higher category.
    """
    levels: list[Any] = [None, None, None]  # numbers, tensors without dims, tensors
    for x in (tensor1, tensor2):
        if isinstance(x, Tensor):
            level, name = (2 if x.dim() else 1), x.dtype.name
        elif isinstance(x, (bool, int, float, complex)):
            level, name = rank_of(x)
        else:
            raise TypeError(f"[result_type] expected a Tensor or a number, got {type(x).__name__}")
        levels[level] = name if levels[level] is None else dtypes.promote(levels[level], name)
    numbers, scalars, best = levels
    for lower in (scalars, numbers):
        if lower is None:
            continue
        if best is None or dtypes.category(lower) > dtypes.category(best):
            inexact = best is not None and dtypes.is_floating(best)
            best = dtypes.complex_of(best) if inexact else lower
    return native(best)


# ---- what something is


def is_tensor(obj):
    return isinstance(obj, Tensor)


def is_storage(obj):
    return isinstance(obj, UntypedStorage)


def is_floating_point(input):
    return input.is_floating_point()


def is_complex(input):
    """Whether the dtype is a complex one."""
    return input.dtype.is_complex


def is_nonzero(input):
    """The truth of a tensor of one element; RuntimeError for others, TypeError for what is none."""
    if not is_tensor(input):
        raise TypeError("[is_nonzero] takes a tensor, got " + type(input).__name__)
    if input.numel() != 1:
        raise RuntimeError(
            "Boolean value of Tensor with "
            + ("no values" if input.numel() == 0 else "more than one value")
            + " is ambiguous"
        )
    return bool(input)


def numel(input):
    """The number of elements."""
    return input.numel()


TYPE_NAMES = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def typename(obj):
    """`rushlight.FloatTensor` and its like for tensors, the dotted name of the type for others."""
    if isinstance(obj, Tensor):
        return f"rushlight.{TYPE_NAMES[obj.dtype.name]}Tensor"
    cls = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(cls, "__module__", "") or ""
    return cls.__qualname__ if module in ("builtins", "") else f"{module}.{cls.__qualname__}"


# ---- defaults


def set_default_dtype(d):
    """The dtype of Python floats, of factories without a dtype and of integers made floating:
    float32 or float64, or a half type. TypeError for others.
    """
    if not isinstance(d, _core.dtype) or not d.is_floating_point:
        raise TypeError(f"[set_default_dtype] the default is a floating-point dtype, got {d!r}")
    if d is factories.DEFAULT[0]:
        return
    _core.set_default_dtype(d)
    factories.DEFAULT[0] = d
    dtypes.DEFAULT = d.name
    _core.plan_clear()  # plans were made under the other default


def set_default_device(device):
    """Where tensors are created whose calls give no device; None: the CPU."""
    _core.set_creation_device(device)


def get_default_device():
    """Where tensors are created whose calls give no device."""
    return _core.creation_device()


# ---- switches

_switches = {"deterministic": False, "warn_only": False, "precision": "highest", "warn": False}


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Accepted: every algorithm here gives the same bits for the same input and thread count."""
    _switches["deterministic"], _switches["warn_only"] = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled():
    return _switches["deterministic"]


def is_deterministic_algorithms_warn_only_enabled():
    return _switches["warn_only"]


def set_float32_matmul_precision(precision):
    """Other than "highest": float32 products on a GPU may use TF32. On the CPU they never do."""
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            "[set_float32_matmul_precision] knows 'highest', 'high' and 'medium', not "
            f"{precision!r}: nothing is changed",
            stacklevel=2,
        )
        return
    _switches["precision"] = precision
    _core.cuda_tf32("matmul", int(precision != "highest"))


def get_float32_matmul_precision():
    return _switches["precision"]


def get_num_interop_threads():
    """1: operators run one after another."""
    return 1


def set_num_interop_threads(count):
    """Accepted; operators run one after another."""
    if not isinstance(count, int) or count < 1:
        raise RuntimeError("[set_num_interop_threads] takes a positive integer")


def set_flush_denormal(mode):
    """False: denormal numbers are always kept."""
    return False


def is_inference_mode_enabled():
    from .modes import INFERENCE

    return bool(_core.mode() & INFERENCE)


DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode):
    """0 or "default", 1 or "warn", 2 or "error": `use_deterministic_algorithms` by one word."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(
            f"[set_deterministic_debug_mode] takes a str or an int, got {type(debug_mode)}"
        )
    if debug_mode not in (*DEBUG_MODES, 0, 1, 2):
        raise RuntimeError(
            f"[set_deterministic_debug_mode] knows `default`, `warn` and `error`, not {debug_mode}"
        )
    level = DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode():
    """0: default, 1: warn, 2: error."""
    return int(_switches["deterministic"]) * (1 if _switches["warn_only"] else 2)


def set_default_tensor_type(t):
    """PyTorch's older form of `set_default_dtype` (and `set_default_device`, for types of CUDA
    tensors). TypeError for types that are not floating.
    """
    from .traits import TYPES

    name = t if isinstance(t, str) else getattr(t, "__name__", "")
    parts = name.split(".")
    if parts[-1] not in TYPES:
        raise TypeError(f"invalid type object: {t!r}")
    dtype = native(TYPES[parts[-1]])
    if not dtype.is_floating_point:
        raise TypeError("[set_default_tensor_type] the default is a floating-point dtype")
    set_default_dtype(dtype)
    set_default_device("cuda" if "cuda" in parts else None)


def set_warn_always(b):
    """Accepted: what is told once a process is told by Python's own filters."""
    _switches["warn"] = bool(b)


def is_warn_always_enabled():
    return _switches["warn"]


def get_device_module(device=None):
    """The package's module for a kind of device: `rushlight.cuda` or `rushlight.cpu`."""
    import importlib

    if device is None:
        kind = "cuda" if _core.cuda_available()[0] else "cpu"
    else:
        kind = _core.resolve_device(device).type if device != "cuda" else "cuda"
    return importlib.import_module(f"rushlight.{kind}")
