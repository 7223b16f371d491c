"""Functions that make tensors from sizes, numbers and other libraries' arrays. Shapes are ints or
one sequence of them.
"""

from math import ceil, isfinite
from typing import Any

from rushlight import _core
from rushlight.errors import Unsupported
from rushlight.ops import TABLE
from rushlight.ops.declare import FACTORIES
from rushlight.ops.values import Array
from rushlight.sym import Sym

from . import formats, randomness
from .modes import is_compiling

DEFAULT = [_core.float32]
CPU: Any = None  # the device; `methods` makes it


def get_default_dtype():
    return DEFAULT[0]


PYTHON_TYPES = {
    float: _core.float64,
    int: _core.int64,
    bool: _core.bool,
    complex: _core.complex128,
}


def dtype_of(dtype):
    """`dtype=float` means float64, int int64, bool bool."""
    if not isinstance(dtype, type):
        return dtype
    if dtype not in PYTHON_TYPES:
        raise TypeError(f"[factory] dtype is a rushlight.dtype, got {dtype.__name__}")
    return PYTHON_TYPES[dtype]


def device_of(device):
    """The device itself (None where none is given); RuntimeError where it is not available."""
    if device is None or device is CPU:
        return device
    if not isinstance(device, (str, int)) and not hasattr(device, "index"):
        raise TypeError(
            f"argument 'device' must be rushlight.device, not {type(device).__name__}"
        )
    device = _core.resolve_device(device)
    if FACTORIES and device is not CPU:
        raise Unsupported(
            "compile",
            f"a tensor made on {str(device)!r} inside a graph",
            "Make it outside and hand it in.",
        )
    return device


def creating(device):
    """Whether new tensors go elsewhere than to the CPU: to `device`, or where none is given to this
    thread's default.
    """
    return (_core.creation_device() if device is None else device) is not CPU


def created(operator, device, *args, **options):
    """A call of an operator without operands, whose output goes to `device`."""
    native = TABLE[operator].native
    if device is None or device is _core.creation_device():
        return native(*args, **options)
    before = _core.set_creation_device(device)
    try:
        return native(*args, **options)
    finally:
        _core.set_creation_device(before)


def moved(x, device, non_blocking=False):
    """x on `device` (None: this thread's default): itself where it is there."""
    device = _core.creation_device() if device is None else device
    if x.device is device:
        return x
    made = _core.empty_strided(tuple(x.shape), dense_strides(x), x.dtype, device)
    return TABLE["copy"].native.inplace(made, x, non_blocking)


def dense_strides(x):
    """Those of a dense copy of a tensor, which lies in memory as the tensor does."""
    strides = strides_like(x, None)
    if strides is None:
        strides, step = [], 1
        for n in reversed(x.shape):
            strides.insert(0, step)
            step *= max(n, 1)
    return tuple(strides)


def sizes(args):
    """One tuple of ints from `f(2, 3)` or `f((2, 3))`; raises as PyTorch does for negative
    sizes.
    """
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    shape = tuple(n if isinstance(n, Sym) else int(n) for n in shape)
    for n in shape:
        if isinstance(n, int) and n < 0:
            raise RuntimeError(
                f"[factory] a size is negative, {n} of {list(shape)}"
            )
    return shape


def finished(made, requires_grad, out=None):
    """What a factory gives: `made`, written to `out` where that is given."""
    if out is not None:
        made = TABLE["clone"].native(made, out=out)
    return made.requires_grad_() if requires_grad else made


def shape_of(shape, size):
    """The sizes that a factory was given: one after the other, as one sequence, or by name."""
    if size is None:
        return shape
    if shape:
        raise TypeError("the sizes are given twice: positionally and as 'size'")
    return (size,)


def empty(
    *shape,
    size=None,
    dtype=None,
    device=None,
    requires_grad=False,
    memory_format=None,
    out=None,
    pin_memory=False,
    layout=None,
):
    """Memory as it is found. Default dtype float32."""
    size = shape_of(shape, size)
    device = device_of(device)
    dtype = dtype_of(dtype)
    if FACTORIES:  # a graph is being recorded: a value of the graph's own
        return zeros(*size, dtype=dtype, requires_grad=requires_grad)
    dtype = dtype or DEFAULT[0]
    if memory_format is not None:
        made = formats.empty(sizes(size), dtype, memory_format, device)
        return finished(made, requires_grad, out)
    return finished(_core.empty(sizes(size), dtype, device), requires_grad, out)


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
    if isinstance(value, complex):
        if value.imag and not dtype.is_complex:
            raise RuntimeError(
                f"[{operator}] {value} does not fit {dtype.name}"
            )
        return
    low = -1 if dtype.name == "uint8" and isinstance(value, float) else -limit if limit else None
    if limit is None or low <= value <= limit:
        return
    if dtype.is_floating_point and not isfinite(value):
        return
    if dtype.is_signed and value == -limit - 1 and not dtype.is_floating_point:
        return
    raise RuntimeError(
        f"[{operator}] {value} does not fit {dtype.name}"
    )


def fitting(operator, value, dtype):
    """`value` as tensors of `dtype` take it: of a complex number its truth, or its real part."""
    if isinstance(value, complex) and dtype.name == "bool":
        return bool(value)
    check_range(operator, value, dtype)
    return value.real if isinstance(value, complex) and not dtype.is_complex else value


def full(size, fill_value, *, dtype=None, device=None, requires_grad=False, out=None, layout=None):
    """Every element is `fill_value`; dtype by its type where none is given."""
    device = device_of(device)
    dtype = dtype_of(dtype)
    if isinstance(fill_value, _core.Tensor):
        dtype, fill_value = dtype or fill_value.dtype, fill_value.item()
    if dtype is None:
        dtype = (
            _core.bool
            if isinstance(fill_value, bool)
            else _core.int64
            if isinstance(fill_value, int)
            else DEFAULT[0].to_complex()
            if isinstance(fill_value, complex)
            else DEFAULT[0]
        )
    if isinstance(dtype, str):  # a recorded value names its dtype
        dtype = getattr(_core, dtype)
    fill_value = fitting("full", fill_value, dtype)
    shape = sizes((size,)) if not isinstance(size, int) else (size,)
    made = created("full", device, shape, fill_value, dtype=dtype)
    return finished(made, requires_grad, out)


def zeros(
    *shape, size=None, dtype=None, device=None, requires_grad=False, out=None, layout=None,
    pin_memory=False,
):  # fmt: skip
    size = shape_of(shape, size)
    dtype = dtype or (DEFAULT[0] if out is None else out.dtype)
    return full(sizes(size), 0, dtype=dtype, device=device, requires_grad=requires_grad, out=out)


def ones(
    *shape, size=None, dtype=None, device=None, requires_grad=False, out=None, layout=None,
    pin_memory=False,
):  # fmt: skip
    size = shape_of(shape, size)
    dtype = dtype or (DEFAULT[0] if out is None else out.dtype)
    return full(sizes(size), 1, dtype=dtype, device=device, requires_grad=requires_grad, out=out)


def strides_like(input, memory_format):
    """Those of a dense tensor that lies in memory as `input` does; None for C order."""
    if memory_format in formats.RANKS:
        return formats.strides(tuple(input.shape), memory_format)
    if memory_format is not None and "preserve" not in str(memory_format):
        return None
    traced = isinstance(input, Array)
    if not isinstance(input, _core.Tensor) and not traced:
        return None
    if input.layout.contiguous if traced else input.is_contiguous():
        return None
    from rushlight.ops.layouts import Layout, like_operands

    shape = tuple(input.shape)
    if traced:
        return like_operands([input.layout], shape, input.dtype, "cpu").strides
    layout = Layout(shape, tuple(input.stride()), input.dtype.name)
    return like_operands([layout], shape, input.dtype.name, "cpu").strides


def in_order(shape, strides, make):
    """What `make` gives of a shape in C order, its dims in the order of the strides: for values of
    a trace, which lie in no memory yet."""
    order = sorted(range(len(shape)), key=lambda d: (-int(strides[d]), shape[d] == 1))
    made = make(tuple(shape[d] for d in order))
    return TABLE["permute"].native(made, tuple(order.index(d) for d in range(len(shape))))


def device_like(input, device):
    if device is not None or not isinstance(input, _core.Tensor):
        return device_of(device)
    return input.device


def empty_like(
    input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None,
    pin_memory=False,
):  # fmt: skip
    """Memory as it is found, of the shape, dtype and order of dims of `input`."""
    dtype, strides = dtype_of(dtype) or input.dtype, strides_like(input, memory_format)
    device = device_like(input, device)
    if strides is None:
        return empty(tuple(input.shape), dtype=dtype, device=device, requires_grad=requires_grad)
    if isinstance(input, Array):
        return in_order(input.shape, strides, lambda shape: empty(shape, dtype=dtype))
    if is_compiling():  # a graph has the order of dims as a view
        made = in_order(
            input.shape, strides, lambda shape: empty(shape, dtype=dtype, device=device)
        )
        return finished(made, requires_grad)
    made = _core.empty_strided(tuple(input.shape), strides, dtype, device)
    return finished(made, requires_grad)


def empty_strided(
    size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Memory as it is found, of the given sizes and strides."""
    device, dtype = device_of(device), dtype_of(dtype)
    made = _core.empty_strided(tuple(size), tuple(stride), dtype or DEFAULT[0], device)
    return finished(made, requires_grad)


def full_like(
    input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False,
    memory_format=None,
):  # fmt: skip
    dtype = dtype_of(dtype) or input.dtype
    device = device_like(input, device)
    strides = strides_like(input, memory_format)
    if strides is not None and isinstance(input, Array):
        return in_order(input.shape, strides, lambda shape: full(shape, fill_value, dtype=dtype))
    if strides is None:
        shape = tuple(input.shape)
        return full(shape, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)
    fill_value = fitting("full_like", fill_value, dtype)
    made = empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    return finished(TABLE["fill"].native.inplace(made, fill_value), requires_grad)


def zeros_like(input, **options):
    """Every element is 0; options as those of `full_like`."""
    return full_like(input, 0, **options)


def ones_like(input, **options):
    """Every element is 1; options as those of `full_like`."""
    return full_like(input, 1, **options)


def arange(
    start, end=None, step=1, *, dtype=None, device=None, requires_grad=False, out=None, layout=None,
    pin_memory=False,
):  # fmt: skip
    """start, start + step, ... below end. int64 for ints, float32 otherwise."""
    device = device_of(device)
    dtype = dtype_of(dtype)
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, _core.Tensor) else v for v in (start, end, step))
    if step == 0:
        raise RuntimeError("[arange] step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"[arange] from {start} one cannot get to {end} in steps of {step}"
        )
    if dtype is None:
        dtype = _core.int64 if all(isinstance(v, int) for v in (start, end, step)) else DEFAULT[0]
    count = (
        ceil((end - start) / step)
        if not all(isinstance(v, int) for v in (start, end, step))
        else -(-(end - start) // step)
    )
    made = created("steps", device, (count,), start, step, dtype=dtype)
    return finished(made, requires_grad, out)


def drawn_into(operator, made, generator):
    """`made`, overwritten. The parts of complex normal numbers have half the variance each."""
    if not getattr(made.dtype, "is_complex", False):
        return randomness.filled(operator, made, generator)
    reals = randomness.filled(operator, TABLE["view_as_real"].native(made), generator)
    if operator == "normal":
        TABLE["mul"].native.inplace(reals, 0.5**0.5)
    return made.data  # as if it had never been written


def drawn(operator, size, dtype, device, generator, requires_grad, out):
    if out is not None:
        dtype = dtype or out.dtype
    made = drawn_into(operator, empty(*size, dtype=dtype, device=device), generator)
    return finished(made, requires_grad, out)


def rand(
    *shape, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
):  # fmt: skip
    """Uniform on [0, 1)."""
    return drawn("uniform", shape_of(shape, size), dtype, device, generator, requires_grad, out)


def randn(
    *shape, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
):  # fmt: skip
    """Standard normal."""
    return drawn("normal", shape_of(shape, size), dtype, device, generator, requires_grad, out)


def rand_like(input, *, generator=None, requires_grad=False, **options):
    made = empty_like(input, **options)
    return finished(drawn_into("uniform", made, generator), requires_grad)


def randn_like(input, *, generator=None, requires_grad=False, **options):
    made = empty_like(input, **options)
    return finished(drawn_into("normal", made, generator), requires_grad)


def randint(
    low, high=None, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False,
):  # fmt: skip
    """Integers on [low, high), int64 where no dtype is given."""
    from .sampling import integers

    if size is None:
        low, high, size = 0, low, high
    if isinstance(high, (tuple, list)):  # randint(high, size)
        low, high, size = 0, low, high
    if high <= low:
        raise RuntimeError(f"[randint] expects 'low' < 'high', got low={low} and high={high}")
    device, dtype = device_of(device), dtype_of(dtype)
    made = integers(sizes((size,)), low, high, generator, device)
    dtype = dtype or (_core.int64 if out is None else out.dtype)
    return finished(made.to(dtype), requires_grad, out)


def randint_like(input, low, high=None, *, generator=None, dtype=None, **options):
    """Integers on [low, high), of the shape, dtype and order of dims of `input`."""
    low, high = (0, low) if high is None else (low, high)
    made = empty_like(input, dtype=dtype, **options)
    return made.random_(low, high, generator=generator)


def randperm(
    n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False
):
    """A random order of 0 .. n - 1."""
    device = device_of(device)
    if n < 0:
        raise RuntimeError(f"[randperm] n must be non-negative, got {n}")
    keys = rand(n, dtype=_core.float64, generator=generator, device=device)
    made = TABLE["argsort"].native(keys, stable=True)
    dtype = dtype or (_core.int64 if out is None else out.dtype)
    return finished(made.to(dtype), requires_grad, out)


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A copy of numbers, nested sequences, an array or a tensor. dtype is inferred as PyTorch
    does.
    """
    device, dtype = device_of(device), dtype_of(dtype)
    if isinstance(data, _core.Tensor):
        out = data.detach().clone()
        out = out if dtype is None else out.to(dtype)
        device = out.device if device is None and not creating(None) else device
    elif hasattr(data, "__array_interface__") or hasattr(data, "__array__"):
        out = from_numpy_copy(data)
        out = out if dtype is None else out.to(dtype)
    else:
        there = _core.creation_device() if device is None else device
        return finished(_core.tensor(data, dtype, there), requires_grad)
    return finished(moved(out, device) if creating(device) else out, requires_grad)


def from_numpy_copy(data):
    import numpy

    array = numpy.array(data, order="C")
    if array.ndim:
        return _core.from_numpy(array)
    return _core.from_numpy(array.reshape(1)).reshape(()).data  # the root of its own views


def as_tensor(data, dtype=None, device=None):
    """Like `tensor`, without a copy where the memory can be shared."""
    device, dtype = device_of(device), dtype_of(dtype)
    if isinstance(data, _core.Tensor):
        out = data if dtype is None else data.to(dtype)
        return out if device is None and not creating(None) else moved(out, device)
    if hasattr(data, "__array_interface__") and hasattr(data, "__setitem__"):  # no numpy scalar
        out = _core.from_numpy(data)
        out = out if dtype is None else out.to(dtype)
        return moved(out, device) if creating(device) else out
    return tensor(data, dtype=dtype, device=device)


def eye(
    n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False
):  # fmt: skip
    """Ones on the diagonal, zeros elsewhere."""
    m = n if m is None else m
    if n < 0 or m < 0:
        raise RuntimeError(f"[eye] sizes are not negative, got n={n} and m={m}")
    device, dtype = device_of(device), dtype_of(dtype)
    dtype = dtype or (DEFAULT[0] if out is None else out.dtype)
    if FACTORIES:  # a graph is being recorded: no writes
        made = arange(n).unsqueeze(1).eq(arange(m)).to(dtype)
    else:
        made = zeros(n, m, dtype=dtype, device=device)
        TABLE["fill"].native.inplace(made.diagonal(), 1)
        made = made.data  # as if it had never been written
    return finished(made, requires_grad, out)


def linspace(
    start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False
):
    """`steps` numbers from start to end, both included: counted from the nearer end."""
    device, dtype = device_of(device), dtype_of(dtype)
    start, end = (v.item() if isinstance(v, _core.Tensor) else v for v in (start, end))
    if steps < 0:
        raise RuntimeError(f"[linspace] number of steps must be non-negative, got {steps}")
    dtype = dtype or (DEFAULT[0] if out is None else out.dtype)
    wide = dtype if dtype.is_floating_point and dtype.itemsize > 2 else _core.float64
    if steps == 1:
        made = full((1,), start, dtype=dtype, device=device)
    else:
        step = (float(end) - float(start)) / max(steps - 1, 1)
        numbers = float(start), float(end), step, steps
        made = created("spaced", device, (steps,), *numbers, dtype=wide)
        made = made.to(dtype)
    return finished(made, requires_grad, out)


def logspace(
    start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None,
    requires_grad=False,
):  # fmt: skip
    """`base` to the power of `steps` numbers from start to end."""
    dtype = dtype or (DEFAULT[0] if out is None else out.dtype)
    wide = dtype if dtype.is_floating_point and dtype.itemsize > 2 else _core.float64
    exponents = linspace(start, end, steps, dtype=wide, device=device)
    made = TABLE["pow"].native(float(base), exponents).to(dtype)
    return finished(made, requires_grad, out)


def triangle_indices(row, col, offset, keep, dtype, device):
    """The places (row, column) of a [row, col] table that `keep(column - row, offset)` is true of,
    row by row: [2, count].
    """
    if row < 0 or col < 0:
        raise RuntimeError(f"[tril_indices] row and col must be non-negative, got {row} and {col}")
    if FACTORIES:  # a graph is being recorded: a constant of it, for its size hangs on values
        at = [(i, j) for i in range(row) for j in range(col) if keep(j - i, offset)]
        made = _core.tensor([i for i, _ in at] + [j for _, j in at], _core.int64, CPU)
        made = made.reshape(2, len(at))
    else:
        gap = arange(col, device=CPU) - arange(row, device=CPU).unsqueeze(1)
        made = TABLE["transpose"].native(keep(gap, offset).nonzero(), 0, 1).contiguous()
        made = moved(made, device) if creating(device) else made
    return made if dtype is None else made.to(dtype)


def tril_indices(row, col, offset=0, *, dtype=None, device=None, layout=None):
    """Rows and columns of the elements on and below a diagonal."""
    device = device_of(device)
    return triangle_indices(row, col, offset, lambda gap, offset: gap <= offset, dtype, device)


def triu_indices(row, col, offset=0, *, dtype=None, device=None, layout=None):
    """Rows and columns of the elements on and above a diagonal."""
    device = device_of(device)
    return triangle_indices(row, col, offset, lambda gap, offset: gap >= offset, dtype, device)


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False, layout=None):
    """A number as a tensor without dims; float32 where no dtype is given."""
    return full((), s, dtype=dtype or DEFAULT[0], device=device, requires_grad=requires_grad)


def new(self, factory, size, dtype, options):
    options.pop("layout", None)
    if options.get("device") is None and isinstance(self, _core.Tensor):
        options["device"] = self.device
    return factory(*size, dtype=dtype or self.dtype, **options)


METHODS = {
    "new_zeros": lambda self, *size, dtype=None, **options: new(self, zeros, size, dtype, options),
    "new_ones": lambda self, *size, dtype=None, **options: new(self, ones, size, dtype, options),
    "new_empty": lambda self, *size, dtype=None, **options: new(self, empty, size, dtype, options),
    "new_full": lambda self, size, fill_value, dtype=None, **options: new(
        self, full, (size, fill_value), dtype, options
    ),
    "new_tensor": lambda self, data, dtype=None, **options: new(
        self, tensor, (data,), dtype, options
    ),
    "new_empty_strided": lambda self, size, stride, dtype=None, **options: new(
        self, empty_strided, (size, stride), dtype, options
    ),
}
FUNCTIONS = {
    f.__name__: f
    for f in (*(empty_strided, logspace, randint_like, scalar_tensor, tril_indices, triu_indices),)
}
__all__ = [n for n in dir() if n not in ("TABLE", "ceil", "prod", "randomness", "DEFAULT")]
