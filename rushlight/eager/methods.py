"""What `Tensor` offers besides operators: conversions, copies, and the names PyTorch's users reach
for.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.values import METHODS as VALUE_METHODS
from rushlight.ops.values import Value

from . import factories, formats, pieces, reducing, sampling, selection, storage, traits

Tensor = _core.Tensor


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


class device:
    """Where a tensor lives: `device("cpu")`, `device("cuda", 0)`."""

    __slots__ = ("type", "index")

    def __init__(self, type, index=None):
        text = str(type)
        self.type = text.split(":")[0]
        self.index = int(text.split(":")[1]) if ":" in text else index
        if self.type not in ("cpu", "cuda", "meta"):
            raise RuntimeError(
                f"Expected one of cpu, cuda, meta device type at start of device string: {text}"
            )

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


def to(self, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
    """The same values in another dtype or on another device; itself where nothing changes and
    `copy` is False.
    """
    for v in args:
        if isinstance(v, _core.dtype):
            dtype = v
        elif isinstance(v, type):
            dtype = factories.dtype_of(v)
        elif isinstance(v, (Tensor, Value)):
            dtype = v.dtype
        elif not isinstance(v, bool):
            device = v
    factories.device_of(device)
    dtype = factories.dtype_of(dtype)
    dtype = getattr(_core, dtype) if isinstance(dtype, str) else dtype  # a recorded value's
    if dtype is None or dtype.name == getattr(self.dtype, "name", self.dtype):
        if memory_format is not None:
            return formats.laid(self, memory_format, "to", copy)
        return op("clone")(self) if copy else self
    out = op("to")(self, dtype=dtype)
    return out if memory_format is None else formats.laid(out, memory_format, "to")


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
        self, src if isinstance(src, Tensor) else _core.tensor(src, self.dtype)
    )


def fill_(self, value):
    value = value.item() if isinstance(value, Tensor) else value
    factories.check_range("fill_", value, self.dtype)
    return op("fill").inplace(self, value)


def zero_(self):
    return op("fill").inplace(self, 0)


def numbered(self, spec):
    return format(self.item() if self.dim() == 0 else str(self), spec)


METHODS = {
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
    "__format__": numbered,
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
        )
    },
    "cpu": lambda self: self,
    "type_as": lambda self, other: to(self, other.dtype),
    "is_cuda": property(lambda self: False),
    "layout": property(lambda self: "strided"),
    "nbytes": property(lambda self: self.numel() * self.element_size()),
}


def install():
    VALUE_METHODS.update({k: m for k, m in METHODS.items() if k not in ("layout", "nbytes")})
    for name, value in METHODS.items():
        _core.set_method(name, value)
    _core.set_type("Size", Size)
