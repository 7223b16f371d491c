"""What a Tensor says of itself under names of PyTorch's past and of its other devices: always
dense, never complex or quantized. And the words that change one in place without
an operator: `resize_`, `fill_diagonal_`, `apply_`, `map_`.
"""

from math import pi, prod

from rushlight import _core
from rushlight.ops import TABLE

from .storage import placed, storage_of

Tensor = _core.Tensor
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


def op(name):
    return TABLE[name].native


# Legacy names of tensor types: what `x.type()` says, and callables of the package.
TYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "BoolTensor": "bool",
}
NAMES = {dtype: name for name, dtype in TYPES.items()}


class TensorType(type):
    """`isinstance(x, LongTensor)` asks for the dtype."""

    def __instancecheck__(cls, x):
        return isinstance(x, Tensor) and x.dtype is cls.dtype

    def __call__(cls, *args):
        """`LongTensor(2, 3)`: memory as it is found; `LongTensor([1, 2])`: those numbers."""
        return legacy(cls.dtype, args)


def legacy(dtype, args):
    """PyTorch's oldest constructor: sizes as ints or a `Size`, or data."""
    from .factories import empty, tensor
    from .methods import Size

    if not args:
        return empty(0, dtype=dtype)
    if isinstance(args[0], (int, Size)):
        return empty(*args, dtype=dtype)
    if len(args) > 1:
        raise TypeError(f"new(): data must be a sequence (got {type(args[0]).__name__})")
    if isinstance(args[0], Tensor):
        if args[0].dtype is not dtype:
            raise TypeError(f"expected {NAMES[dtype.name]} (got {NAMES[args[0].dtype.name]})")
        return args[0].detach()
    return tensor(args[0], dtype=dtype)


def tensor_type(name):
    """The legacy type of that name, e.g. "LongTensor"."""
    return TensorType(name, (), {"dtype": getattr(_core, TYPES[name]), "__module__": "rushlight"})


def type_(self, dtype=None, non_blocking=False):
    """The name of its type ("torch.FloatTensor"); with a dtype, a type or its name: converted."""
    if dtype is None:
        return "torch." + NAMES[self.dtype.name]
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        if name not in TYPES:
            raise ValueError(f"invalid type: {dtype!r}")
        dtype = getattr(_core, TYPES[name])
    return self.to(dtype if isinstance(dtype, _core.dtype) else dtype.dtype)


def pin_memory(self, device=None):
    """A copy in page-locked memory, from which copies to a GPU are asynchronous; itself where it
    lies there.
    """
    if not _core.cuda_available()[0]:
        raise RuntimeError("[pin_memory] no accelerator is available here")
    if self.is_cuda:
        raise RuntimeError(f"[pin_memory] pins dense tensors on the CPU, not a '{self.type()}'")
    if is_pinned(self):
        return self
    _core.resolve_device("cuda")
    return _core.cuda_pinned(self.detach())


def is_pinned(self, device=None):
    return not self.is_cuda and _core.cuda_is_pinned(self)


def record_stream(self, stream):
    """Its memory is not used again before what is queued on `stream` by then is done."""
    _core.cuda_record_stream(self, stream.handle)


def resize_(self, *sizes, memory_format=None):
    """The same memory under other sizes, in C order; where it is too small, more of it, whose new
    elements are as they are found. Not for tensors that require a gradient.
    """
    sizes = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if self.requires_grad:
        raise RuntimeError("[resize_] what requires grad cannot be resized")
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"[resize_] negative size in {list(sizes)}")
    sizes, count = tuple(sizes), prod(sizes)
    strides = tuple(prod(sizes[d + 1 :]) for d in range(len(sizes)))
    memory = storage_of(self)
    room = memory.nbytes() // self.element_size() - self.storage_offset()
    if count <= room:
        whole = memory.tensor(self.dtype, 0, (memory.nbytes() // self.element_size(),), (1,))
        self.data = placed(whole, sizes, strides, self.storage_offset()).data
        return self
    more = _core.empty((count,), self.dtype, self.device)
    if room > 0:
        old = memory.tensor(self.dtype, self.storage_offset(), (room,), (1,))
        more[:room].copy_(old)
    self.data = more.view(sizes)
    return self


def fill_diagonal_(self, fill_value, wrap=False):
    """The main diagonal of a matrix (or of a cube) overwritten; `wrap`: in tall matrices again
    below.
    """
    if self.dim() < 2:
        raise RuntimeError("[fill_diagonal_] takes at least 2 dims")
    rows, columns = self.shape[0], self.shape[-1]
    if self.dim() > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("[fill_diagonal_] beyond 2 dims all have to be of one length")
    if self.dim() > 2:
        step, count = sum(self.stride()), rows
        self.as_strided((count,), (step,), self.storage_offset()).fill_(fill_value)
        return self
    start = 0
    while start < rows:
        self[start:].diagonal().fill_(fill_value)
        start += columns + 1
        if not wrap:
            break
    return self


def apply_(self, callable):
    """Every element replaced by `callable(element)`: slow, in Python."""
    if self.requires_grad:
        raise RuntimeError(
            "[apply_] would be lost on the gradient of a tensor that requires grad: detach() first"
        )
    made = _core.tensor([callable(v) for v in self.reshape(-1).tolist()], self.dtype, "cpu")
    return self.copy_(made.view(tuple(self.shape)))


def map_(self, tensor, callable):
    """Every element replaced by `callable(element, element of tensor)`: slow, in Python."""
    if self.requires_grad or tensor.requires_grad:
        raise RuntimeError(
            "[map_] would be lost on the gradient of a tensor that requires grad: detach() first"
        )
    other = tensor.expand(tuple(self.shape)).reshape(-1).tolist()
    pairs = zip(self.reshape(-1).tolist(), other, strict=True)
    made = _core.tensor([callable(a, b) for a, b in pairs], self.dtype, "cpu")
    return self.copy_(made.view(tuple(self.shape)))


def new(self, *args, **options):
    return legacy(self.dtype, args)


def sum_to_size(self, *size):
    """Summed over the dims that a tensor of `size` would be broadcast along."""
    size = tuple(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    lead = self.dim() - len(size)
    if lead < 0 or any(n not in (1, m) for n, m in zip(size, self.shape[lead:], strict=True)):
        raise RuntimeError(f"[expand] {list(self.shape)} cannot become {list(size)}")
    dims = [d for d in range(lead)]
    dims += [lead + d for d, n in enumerate(size) if n == 1 and self.shape[lead + d] != 1]
    return self.sum(tuple(dims), keepdim=True).view(size) if dims else self


def array_wrap(self, array, context=None, return_scalar=False):
    """What NumPy's functions of a tensor give: a tensor again."""
    from .factories import tensor

    return tensor(array.astype("uint8") if array.dtype == bool else array)


def loaded(module, name):
    """A method that stands in a module of this room which is loaded when it is first called."""

    def method(self, *args, **kwargs):
        import importlib

        module_ = importlib.import_module(f"rushlight.eager.{module}")
        return getattr(module_, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


# Linear systems and factorisations: on tensors and in `rushlight` alike.
SOLVED = (
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "inverse",
    "logdet",
    "lu_solve",
    "matrix_exp",
    "matrix_power",
    "pinverse",
    "qr",
    "slogdet",
    "svd",
    "triangular_solve",
)


def always(value):
    return property(lambda self: value)


def says(value):
    def method(self):
        return value

    return method


def itself(self):
    return self


def is_complex(x):
    return getattr(x.dtype, "is_complex", False)


def real(input):
    """The real part, as a view; real numbers are their own."""
    if not is_complex(input):
        return input
    return op("select")(op("view_as_real")(input), -1, 0)


def imag(input):
    """The imaginary part, as a view. RuntimeError for real tensors."""
    if not is_complex(input):
        raise RuntimeError(f"[imag] only complex tensors have an imaginary part, got {input.dtype}")
    return op("select")(op("view_as_real")(input), -1, 1)


def conj(input):
    """The conjugate: a new tensor where the dtype is complex (PyTorch negates later)."""
    return op("conj_physical")(input) if is_complex(input) else input


def angle(input):
    """The angle of complex numbers; of real ones 0, or pi below 0."""
    if is_complex(input):
        return op("atan2")(imag(input), real(input))
    if input.dtype.name in INTEGERS or input.dtype is _core.bool:
        input = op("to")(input, dtype=_core.get_default_dtype())
    turned = op("where")(op("lt")(input, 0), pi, op("fill")(input, 0.0))
    return op("where")(op("ne")(input, input), input, turned)


def polar(abs, angle, *, out=None):
    """Complex numbers from their sizes and angles."""
    if abs.dtype is not angle.dtype:
        raise RuntimeError(
            f"[polar] abs and angle have one dtype, got {abs.dtype.name} and {angle.dtype.name}"
        )
    if not abs.dtype.is_floating_point:
        raise RuntimeError(
            f"[polar] Expected both inputs to be floating, got {abs.dtype.name} and "
            f"{angle.dtype.name}"
        )
    made = op("complex")(op("mul")(abs, op("cos")(angle)), op("mul")(abs, op("sin")(angle)))
    return made if out is None else op("clone")(made, out=out)


METHODS = {
    **dict.fromkeys(
        "is_sparse is_quantized is_mkldnn is_mps is_xpu is_sparse_csr is_nested".split(),
        always(False),
    ),
    "is_conj": says(False),
    "is_neg": says(False),
    "is_pinned": is_pinned,
    "is_signed": lambda self: self.dtype.is_signed,
    "is_nonzero": lambda self: bool(self),
    "is_same_size": lambda self, other: tuple(self.shape) == tuple(other.shape),
    "itemsize": property(lambda self: self.element_size()),
    "ndimension": lambda self: self.dim(),
    "real": property(real, lambda self, value: real(self).copy_(value)),
    "imag": property(imag, lambda self, value: imag(self).copy_(value)),
    "conj": conj,
    "conj_physical": conj,
    "conj_physical_": lambda self: self.copy_(conj(self)) if is_complex(self) else self,
    "angle": angle,
    "resolve_conj": itself,
    "resolve_neg": itself,
    "pin_memory": pin_memory,
    "record_stream": record_stream,
    "type": type_,
    "new": new,
    "resize_": resize_,
    "resize_as_": lambda self, other, memory_format=None: resize_(self, *other.shape),
    "fill_diagonal_": fill_diagonal_,
    "apply_": apply_,
    "map_": map_,
    "sum_to_size": sum_to_size,
    **{n: loaded("series", n) for n in ("corrcoef", "cov", "cross", "diagonal_scatter")},
    **{n: loaded("copies", n) for n in ("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes")},
    "narrow_copy": lambda self, dim, start, length: self.narrow(dim, start, length).clone(),
    **{n: loaded("shared", n) for n in ("is_shared", "share_memory_")},
    **{
        n: loaded("sampled", n)
        for n in ("frexp", "gcd", "gcd_", "histogram", "lcm", "lcm_")
    },
    **{n: loaded("spectra", n) for n in ("istft", "stft")},
    **{n: loaded("older_solving", n) for n in (*SOLVED, "lu")},
    "__array_wrap__": array_wrap,
}


def written(name):
    """`exp_(x, ...)`: the method `exp_` as a function."""

    def function(input, *args, **kwargs):
        return getattr(input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`input.{name}(...)`"
    return function


# In-place methods that PyTorch has as functions too; the package makes them when asked.
WRITTEN = frozenset(
    """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_
    asinh_ atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ erf_ erfc_ exp_
    exp2_ expm1_ fill_ fix_ floor_ frac_ index_put_ ldexp_ log_ log10_ log1p_ log2_ logit_
    nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_
    sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_ detach detach_ resize_as_ is_same_size is_signed
    get_device is_conj is_neg conj conj_physical_ resolve_conj resolve_neg
    """.split()
)


def fill(input, value):
    """A tensor like `input`, of `value`."""
    return TABLE["fill"].native(input, value.item() if isinstance(value, Tensor) else value)
