"""What `Tensor` offers besides operators: conversions, copies, and the names PyTorch's users reach
for.
"""

from collections import namedtuple

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.ops.values import METHODS as VALUE_METHODS
from rushlight.ops.values import Value

from . import factories, randomness, selection, storage

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
        elif isinstance(v, (Tensor, Value)):
            dtype = v.dtype
        elif not isinstance(v, bool):
            device = v
    factories.device_of(device)
    dtype = getattr(_core, dtype) if isinstance(dtype, str) else dtype  # a recorded value's
    if dtype is None or dtype.name == getattr(self.dtype, "name", self.dtype):
        return op("clone")(self) if copy else self
    return op("to")(self, dtype=dtype)


def contiguous(self, memory_format=None):
    return self if self.is_contiguous() else op("clone")(self, memory_format="contiguous")


def converter(name):
    def convert(self):
        return to(self, getattr(_core, name))

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


def uniform_(self, a=0.0, b=1.0, generator=None):
    """Overwrite with numbers uniform on [a, b)."""
    randomness.filled("uniform", self, generator)
    return self if (a, b) == (0, 1) else op("mul").inplace(self, b - a).add_(a)


def normal_(self, mean=0.0, std=1.0, generator=None):
    randomness.filled("normal", self, generator)
    return self if (mean, std) == (0, 1) else op("mul").inplace(self, std).add_(mean)


def bernoulli_(self, p=0.5, generator=None):
    """Overwrite with 1 with probability p, else 0."""
    drawn = factories.rand(tuple(self.shape), generator=generator)
    return copy_(self, drawn.lt(p))


def reduce_pair(value, elementwise):
    """max and min: of all elements, along a dim (values and positions), or of two tensors."""

    def method(self, dim=None, keepdim=False):
        if dim is None:
            return op(value)(self)
        if isinstance(dim, (Tensor, Value)):
            return op(elementwise)(self, dim)
        return found(*op(f"{value[1:]}_dim")(self, dim, keepdim))

    found = namedtuple(value[1:], ("values", "indices"))
    return method


def all_(self, dim=None, keepdim=False):
    """Whether no element is 0 (of no elements: True); uint8 gives uint8, as PyTorch has it."""
    return truth(self, "amin", dim, keepdim)


def any_(self, dim=None, keepdim=False):
    """Whether some element is not 0 (of no elements: False)."""
    return truth(self, "amax", dim, keepdim)


def truth(self, fold, dim, keepdim):
    if self.numel():
        out = op(fold)(to(self, _core.bool), () if dim is None else dim, keepdim)
    else:  # folds of nothing are refused, counts of nothing are 0
        counted = op("sum")(to(self, _core.bool), dim, keepdim)
        out = op("eq" if fold == "amin" else "ne")(counted, 0)
    return to(out, _core.uint8) if self.dtype is _core.uint8 else out


def norm(self, p=2, dim=None, keepdim=False):
    """The p-norm over `dim` (all dims where None); p 1, 2, inf."""
    if not self.is_floating_point():
        raise RuntimeError(
            f"[norm] Expected a floating point or complex tensor as input. Got {self.dtype!r}"
        )
    if p in (2, "fro"):
        return op("euclidean_norm")(self, dim, keepdim)
    if p == 1:
        return op("sum")(op("abs")(self), dim, keepdim)
    if p == float("inf"):
        return op("amax")(op("abs")(self), () if dim is None else dim, keepdim)
    return op("pow")(op("sum")(op("pow")(op("abs")(self), p), dim, keepdim), 1.0 / p)


def equal(self, other):
    """Whether shapes and all elements are equal: a Python bool."""
    return tuple(self.shape) == tuple(other.shape) and bool(
        all_(op("eq")(self, other)).item() if self.numel() else True
    )


def allclose(self, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |self - other| <= atol + rtol * |other| everywhere: a Python bool."""
    near = op("bitwise_or")(
        op("le")(op("abs")(self - other), op("abs")(other) * rtol + atol), op("eq")(self, other)
    )
    if equal_nan:
        near = op("bitwise_or")(
            near, op("bitwise_and")(op("ne")(self, self), op("ne")(other, other))
        )
    return bool(all_(near).item()) if near.numel() else True


def split(self, split_size_or_sections, dim=0):
    """Views of consecutive pieces along `dim`."""
    n = self.size(dim)
    k = split_size_or_sections
    if isinstance(k, int) and (k < 0 or k == 0 and n):
        raise RuntimeError(f"[split] split_size must be positive, got {k} for a dim of size {n}")
    pieces = [min(k, n - i) for i in range(0, n, k)] or [0] if isinstance(k, int) else list(k)
    if sum(pieces) != n:
        raise RuntimeError(
            f"[split] split_with_sizes expects split_sizes to sum exactly to {n} "
            "(input tensor's size at "
            f"dimension {dim}), but got split_sizes={pieces}"
        )
    out, start = [], 0
    for piece in pieces:
        out.append(op("slice")(self, dim, start, start + piece))
        start += piece
    return tuple(out)


def chunk(self, chunks, dim=0):
    if chunks < 1:
        raise RuntimeError(f"[chunk] expects `chunks` to be greater than 0, got: {chunks}")
    n = self.size(dim)
    return split(self, max(-(-n // chunks), 1), dim)


def unbind(self, dim=0):
    return tuple(op("select")(self, dim, i) for i in range(self.size(dim)))


def numbered(self, spec):
    return format(self.item() if self.dim() == 0 else str(self), spec)


METHODS = {
    "to": to,
    "contiguous": contiguous,
    "copy_": copy_,
    "fill_": fill_,
    "zero_": zero_,
    "uniform_": uniform_,
    "normal_": normal_,
    "bernoulli_": bernoulli_,
    "max": reduce_pair("amax", "maximum"),
    "min": reduce_pair("amin", "minimum"),
    "all": all_,
    "any": any_,
    "norm": norm,
    "equal": equal,
    "allclose": allclose,
    "split": split,
    "chunk": chunk,
    "unbind": unbind,
    **storage.METHODS,
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
    "view_as": lambda self, other: op("view")(self, other.shape),
    "reshape_as": lambda self, other: op("reshape")(self, other.shape),
    "expand_as": lambda self, other: op("expand")(self, other.shape),
    "new_zeros": lambda self, *size, dtype=None: factories.zeros(*size, dtype=dtype or self.dtype),
    "new_ones": lambda self, *size, dtype=None: factories.ones(*size, dtype=dtype or self.dtype),
    "new_empty": lambda self, *size, dtype=None: factories.empty(*size, dtype=dtype or self.dtype),
    "new_full": lambda self, size, value, dtype=None: factories.full(
        size, value, dtype=dtype or self.dtype
    ),
    "new_tensor": lambda self, data, dtype=None: factories.tensor(data, dtype=dtype or self.dtype),
    "square": lambda self: op("pow")(self, 2),
    "T": property(lambda self: op("permute")(self, tuple(reversed(range(self.dim()))))),
    "mT": property(lambda self: op("transpose")(self, -2, -1)),
    "H": property(lambda self: op("transpose")(self, 0, 1)),
    "is_cuda": property(lambda self: False),
    "layout": property(lambda self: "strided"),
    "nbytes": property(lambda self: self.numel() * self.element_size()),
}


def install():
    VALUE_METHODS.update({k: m for k, m in METHODS.items() if k not in ("layout", "nbytes")})
    for name, value in METHODS.items():
        _core.set_method(name, value)
    _core.set_type("Size", Size)
