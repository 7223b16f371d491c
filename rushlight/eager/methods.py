"""What `Tensor` offers besides operators: conversions, copies, and the names PyTorch's users reach
for.
"""

import warnings

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.values import METHODS as VALUE_METHODS
from rushlight.ops.values import Value

from . import factories, formats, pieces, reducing, sampling, selection, storage, traits

Tensor, DTYPE = _core.Tensor, _core.dtype


def op(name):
    return TABLE[name].native


class Size(tuple):
    """A shape: a tuple that prints as PyTorch's and knows its number of elements."""

    __slots__ = ()

    def numel(self):
        total = 1
        for n in self:
            total *= n
        return total

    def __repr__(self):
        return f"rushlight.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))


TYPES = ("cpu", "cuda", "meta")


class device:
    """A device: `device("cpu")`, `device("cuda", 0)`, `device("cuda:0")`, `device("meta")` (shapes
    and no data). `with device("meta"):` makes it the device of tensors that are created inside.
    """

    __slots__ = ("type", "index", "before")

    def __init__(self, type, index=None):
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(
                f"device(): argument 'type' (position 1) must be str, not {type.__class__.__name__}"
            )
        if index is not None and not isinstance(index, int):
            raise TypeError(
                "device(): argument 'index' (position 2) must be int, not "
                f"{index.__class__.__name__}"
            )
        self.type, colon, number = type.partition(":")
        if self.type not in TYPES:
            raise RuntimeError(
                f"Expected one of cpu, cuda, meta device type at start of device string: {type}"
            )
        if colon and (not number.isdecimal() or number != str(int(number)) or int(number) > 255):
            raise RuntimeError(f"[device] {type!r} names no device")
        if colon and index is not None:
            raise RuntimeError(
                f"[device] {type!r} has an index of its own, and another was passed explicitly"
            )
        self.index = int(number) if colon else index
        if self.index is not None and self.index < 0:
            raise RuntimeError(f"[device] an index is not negative, got {self.index}")
        self.before = None

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        return f"device(type={self.type!r}" + (
            ")" if self.index is None else f", index={self.index})"
        )

    def __eq__(self, other):
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __reduce__(self):
        return (device, (self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self):
        before = _core.set_creation_device(self)
        self.before = (before, self.before)  # one object may be entered again
        return self

    def __exit__(self, *_):
        before, self.before = self.before
        _core.set_creation_device(before)
        return False


_core.set_hooks(device=device)
CPU = factories.CPU = _core.resolve_device("cpu")  # the one that tensors there answer


def to(
    self, given=None, /, *args,
    dtype=None, device=None, non_blocking=False, copy=False, memory_format=None,
):  # fmt: skip
    """The same values in another dtype or on another device; itself where nothing changes and
    `copy` is False. NotImplementedError for the data of meta tensors, which have none.
    """
    if type(given) is DTYPE and type(self) is Tensor and not args:  # the commonest
        now = self.dtype
        if given is not now and not now.is_complex and not copy:
            if dtype is None and device is None and memory_format is None:
                return TABLE["to"].native(self, dtype=given)
    for v in args if given is None else (given, *args):
        if isinstance(v, _core.dtype):
            dtype = v
        elif isinstance(v, type):
            dtype = factories.dtype_of(v)
        elif isinstance(v, Tensor):
            dtype, device = v.dtype, v.device
        elif isinstance(v, Value):
            dtype = v.dtype
        elif not isinstance(v, bool):
            device = v
    dtype = factories.dtype_of(dtype)
    if device is not None:
        device = factories.device_of(device)
        if isinstance(self, Tensor) and self.device is not device:
            return sent(self, device, dtype, memory_format, non_blocking)
    dtype = getattr(_core, dtype) if isinstance(dtype, str) else dtype  # a recorded value's
    if dtype is None or dtype.name == getattr(self.dtype, "name", self.dtype):
        if memory_format is not None:
            return formats.laid(self, memory_format, "to", copy)
        return op("clone")(self) if copy else self
    if discards(self.dtype, dtype):
        warnings.warn(
            "[to] the imaginary part of complex values is lost in a real dtype",
            UserWarning,
            stacklevel=2,
        )
    out = op("to")(self, dtype=dtype)
    return out if memory_format is None else formats.laid(out, memory_format, "to")


def discards(source, target):
    return getattr(source, "is_complex", False) and not target.is_complex and target.name != "bool"


def sent(self, device, dtype, memory_format, non_blocking=False):
    """A copy on another device, cast before or after: where the fewer bytes travel."""
    first = dtype is not None and dtype.itemsize < self.dtype.itemsize
    here = to(self, dtype, memory_format=memory_format) if first else self
    made = factories.moved(here, device, non_blocking)
    return made if first else to(made, dtype=dtype, memory_format=memory_format)


def cpu(self, memory_format=None):
    """The same values on the CPU."""
    return to(self, device=CPU, memory_format=memory_format)


def cuda(self, device=None, non_blocking=False, memory_format=None):
    """The same values on a CUDA device: the current one, or that of a number or a name."""
    device = "cuda" if device is None else device
    return to(self, device=device, non_blocking=non_blocking, memory_format=memory_format)


def get_device(self):
    """The index of its CUDA device; -1 elsewhere."""
    return -1 if self.device.index is None else self.device.index


def contiguous(self, memory_format=None):
    """Itself, or its elements copied into C order or another memory format."""
    if memory_format is not None:
        return formats.laid(self, memory_format)
    return self if self.is_contiguous() else op("clone")(self, memory_format="contiguous")


def converter(name):
    def convert(self, memory_format=None):
        return to(self, getattr(_core, name), memory_format=memory_format)

    convert.__doc__ = f"`self.to({name})`"
    return convert


def copy_(self, src, non_blocking=False):
    """Overwrite with `src`, converted and broadcast."""
    return op("copy").inplace(
        self, src if isinstance(src, Tensor) else _core.tensor(src, self.dtype, CPU), non_blocking
    )


def fill_(self, value):
    value = value.item() if isinstance(value, Tensor) else value
    value = factories.fitting("fill_", value, self.dtype)
    return op("fill").inplace(self, value)


def zero_(self):
    return op("fill").inplace(self, 0)


def formatted(self, spec):
    return format(self.item() if self.dim() == 0 else str(self), spec)


def contains(self, element):
    """Whether some element equals a number, or is equal to its place in a tensor that is broadcast:
    `x in t`.
    """
    if not isinstance(element, (Tensor, Value, bool, int, float, complex)):
        raise RuntimeError(
            f"[Tensor.__contains__] looks for a Tensor or scalar, got {type(element)}"
        )
    return bool(op("any")(op("eq")(self, element)).item())


METHODS = {
    "__contains__": contains,
    **factories.METHODS,
    **pieces.METHODS,
    **reducing.METHODS,
    **sampling.METHODS,
    "to": to,
    "contiguous": contiguous,
    "copy_": copy_,
    "fill_": fill_,
    "zero_": zero_,
    **storage.METHODS,
    **traits.METHODS,
    **selection.METHODS,
    "__format__": formatted,
    **{
        short: converter(name)
        for short, name in (
            ("float", "float32"),
            ("double", "float64"),
            ("half", "float16"),
            ("bfloat16", "bfloat16"),
            ("int", "int32"),
            ("long", "int64"),
            ("short", "int16"),
            ("char", "int8"),
            ("byte", "uint8"),
            ("bool", "bool"),
            ("cfloat", "complex64"),
            ("cdouble", "complex128"),
        )
    },
    "cpu": cpu,
    "cuda": cuda,
    "get_device": get_device,
    "is_cpu": property(lambda self: self.device.type == "cpu"),
    "is_cuda": property(lambda self: self.device.type == "cuda"),
    "is_meta": property(lambda self: self.device.type == "meta"),
    "type_as": lambda self, other: to(self, other),
    "layout": property(lambda self: formats.strided),
    "nbytes": property(lambda self: self.numel() * self.element_size()),
}


def install():
    VALUE_METHODS.update({k: m for k, m in METHODS.items() if k not in ("layout", "nbytes")})
    for name, value in METHODS.items():
        _core.set_method(name, value)
    _core.set_type("Size", Size)
