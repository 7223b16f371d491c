"""Functions that make tensors from sizes, numbers and other libraries' arrays. Shapes are ints or
one sequence of them.
"""

from math import ceil, isfinite

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.declare import FACTORIES
from rushlight.sym import Sym

from . import randomness

DEFAULT = [_core.float32]


def get_default_dtype():
    return DEFAULT[0]


def device_of(device):
    if device is not None and str(device).split(":")[0] not in ("cpu", "meta"):
        raise RuntimeError(
            f"device {str(device)!r} is not available: this build runs on the CPU only so far"
        )


def sizes(args):
    """One tuple of ints from `f(2, 3)` or `f((2, 3))`; raises as PyTorch does for negative
    sizes.
    """
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    shape = tuple(n if isinstance(n, Sym) else int(n) for n in shape)
    for n in shape:
        if isinstance(n, int) and n < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n}: {list(shape)}"
            )
    return shape


def finished(out, requires_grad):
    return out.requires_grad_() if requires_grad else out


def empty(
    *size,
    dtype=None,
    device=None,
    requires_grad=False,
    memory_format=None,
    out=None,
    pin_memory=False,
    layout=None,
):
    """Memory as it is found. Default dtype float32."""
    device_of(device)
    if FACTORIES:  # a graph is being recorded: a value of the graph's own
        return zeros(*size, dtype=dtype, requires_grad=requires_grad)
    return finished(_core.empty(sizes(size), dtype or DEFAULT[0]), requires_grad)


LARGEST = {
    "uint8": 2**8 - 1,
    "int8": 2**7 - 1,
    "int16": 2**15 - 1,
    "int32": 2**31 - 1,
    "int64": 2**63 - 1,
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"),
}


def check_range(operator, value, dtype):
    """A number must not wrap around, nor a finite one become an infinity; negative integers
    to uint8 do wrap.
    """
    limit = LARGEST.get(dtype.name)
    low = -1 if dtype.name == "uint8" and isinstance(value, float) else -limit if limit else None
    if limit is None or low <= value <= limit:
        return
    if dtype.is_floating_point and not isfinite(value):
        return
    if dtype.is_signed and value == -limit - 1 and not dtype.is_floating_point:
        return
    raise RuntimeError(
        f"[{operator}] value cannot be converted to type {dtype.name} without overflow: {value}"
    )


def full(size, fill_value, *, dtype=None, device=None, requires_grad=False, out=None, layout=None):
    """Every element is `fill_value`; dtype by its type where none is given."""
    device_of(device)
    if isinstance(fill_value, _core.Tensor):
        dtype, fill_value = dtype or fill_value.dtype, fill_value.item()
    if dtype is None:
        dtype = (
            _core.bool
            if isinstance(fill_value, bool)
            else _core.int64
            if isinstance(fill_value, int)
            else DEFAULT[0]
        )
    if isinstance(dtype, str):  # a recorded value names its dtype
        dtype = getattr(_core, dtype)
    check_range("full", fill_value, dtype)
    shape = sizes((size,)) if not isinstance(size, int) else (size,)
    return finished(TABLE["full"].native(shape, fill_value, dtype=dtype), requires_grad)


def zeros(*size, dtype=None, device=None, requires_grad=False, out=None, layout=None):
    return full(
        sizes(size), 0, dtype=dtype or DEFAULT[0], device=device, requires_grad=requires_grad
    )


def ones(*size, dtype=None, device=None, requires_grad=False, out=None, layout=None):
    return full(
        sizes(size), 1, dtype=dtype or DEFAULT[0], device=device, requires_grad=requires_grad
    )


def empty_like(input, *, dtype=None, device=None, requires_grad=False, memory_format=None):
    return empty(
        tuple(input.shape), dtype=dtype or input.dtype, device=device, requires_grad=requires_grad
    )


def full_like(
    input, fill_value, *, dtype=None, device=None, requires_grad=False, memory_format=None
):
    return full(
        tuple(input.shape),
        fill_value,
        dtype=dtype or input.dtype,
        device=device,
        requires_grad=requires_grad,
    )


def zeros_like(input, *, dtype=None, device=None, requires_grad=False, memory_format=None):
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(input, *, dtype=None, device=None, requires_grad=False, memory_format=None):
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def arange(start, end=None, step=1, *, dtype=None, device=None, requires_grad=False, out=None):
    """start, start + step, ... below end. int64 for ints, float32 otherwise."""
    device_of(device)
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, _core.Tensor) else v for v in (start, end, step))
    if step == 0:
        raise RuntimeError("[arange] step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            "[arange] upper bound and lower bound inconsistent with step sign: "
            f"{start}, {end}, {step}"
        )
    if dtype is None:
        dtype = _core.int64 if all(isinstance(v, int) for v in (start, end, step)) else DEFAULT[0]
    count = (
        ceil((end - start) / step)
        if not all(isinstance(v, int) for v in (start, end, step))
        else -(-(end - start) // step)
    )
    return finished(TABLE["steps"].native((count,), start, step, dtype=dtype), requires_grad)


def rand(*size, dtype=None, device=None, generator=None, requires_grad=False, out=None):
    """Uniform on [0, 1)."""
    return finished(
        randomness.filled("uniform", empty(*size, dtype=dtype, device=device), generator),
        requires_grad,
    )


def randn(*size, dtype=None, device=None, generator=None, requires_grad=False, out=None):
    """Standard normal."""
    return finished(
        randomness.filled("normal", empty(*size, dtype=dtype, device=device), generator),
        requires_grad,
    )


def rand_like(input, *, dtype=None, requires_grad=False):
    return rand(tuple(input.shape), dtype=dtype or input.dtype, requires_grad=requires_grad)


def randn_like(input, *, dtype=None, requires_grad=False):
    return randn(tuple(input.shape), dtype=dtype or input.dtype, requires_grad=requires_grad)


def randint(
    low, high=None, size=None, *, dtype=None, device=None, generator=None, requires_grad=False
):
    """Integers on [low, high)."""
    if size is None:
        low, high, size = 0, low, high
    if high <= low:
        raise RuntimeError(f"[randint] expects 'low' < 'high', got low={low} and high={high}")
    drawn = rand(size, dtype=_core.float64, generator=generator)
    return (drawn * float(high - low)).to(_core.int64).add(low).to(dtype or _core.int64)


def randperm(n, *, dtype=None, device=None, generator=None, requires_grad=False):
    """A random order of 0 .. n - 1."""
    keys = rand(n, dtype=_core.float64, generator=generator).tolist()
    return tensor(sorted(range(n), key=keys.__getitem__), dtype=dtype or _core.int64)


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A copy of numbers, nested sequences, an array or a tensor. dtype is inferred as PyTorch
    does.
    """
    device_of(device)
    if isinstance(data, _core.Tensor):
        out = data.detach().clone()
        out = out if dtype is None else out.to(dtype)
    elif hasattr(data, "__array_interface__") or hasattr(data, "__array__"):
        out = from_numpy_copy(data)
        out = out if dtype is None else out.to(dtype)
    else:
        out = _core.tensor(data, dtype)
    return finished(out, requires_grad)


def from_numpy_copy(data):
    import numpy

    array = numpy.array(data, order="C")
    return _core.from_numpy(array if array.ndim else array.reshape(1)).reshape(array.shape)


def as_tensor(data, dtype=None, device=None):
    """Like `tensor`, without a copy where the memory can be shared."""
    device_of(device)
    if isinstance(data, _core.Tensor):
        return data if dtype is None else data.to(dtype)
    if hasattr(data, "__array_interface__") and hasattr(data, "__setitem__"):  # no numpy scalar
        out = _core.from_numpy(data)
        return out if dtype is None else out.to(dtype)
    return tensor(data, dtype=dtype)


def eye(n, m=None, *, dtype=None, device=None, requires_grad=False):
    m = n if m is None else m
    on = arange(n).unsqueeze(1).eq(arange(m))
    return finished(on.to(dtype or DEFAULT[0]), requires_grad)


def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False):
    """`steps` numbers from start to end, both included."""
    if steps == 1:
        return full((1,), float(start), dtype=dtype or DEFAULT[0], requires_grad=requires_grad)
    step = (end - start) / (steps - 1)
    return finished(
        TABLE["steps"].native((steps,), float(start), float(step), dtype=dtype or DEFAULT[0]),
        requires_grad,
    )


__all__ = [n for n in dir() if n not in ("TABLE", "ceil", "prod", "randomness", "DEFAULT")]
