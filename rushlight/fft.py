"""`rushlight.fft`: discrete Fourier transforms and their helpers, under PyTorch's names.

Inputs of any dtype but the half ones; integers become the default float. float32 and complex64
are transformed in single precision where numpy is 2.0 or later. `norm`: "backward" (the default)
divides inverse transforms by the number of elements, "forward" the others, "ortho" both by its
root.
"""

from rushlight import eager
from rushlight.eager import factories, transforms
from rushlight.eager.solving import given
from rushlight.ops.views import wrapped

HALVES = ("float16", "bfloat16")


def operand(name, x, real=False):
    """The input in a dtype that is transformed."""
    if x.dtype.name in HALVES:
        raise RuntimeError(f"[{name}] Unsupported dtype {x.dtype.name}")
    if real and x.dtype.is_complex:
        raise RuntimeError(f"[{name}] expects a real input tensor, but got {x.dtype.name}")
    if x.dtype.is_complex or x.dtype.is_floating_point:
        return x
    return x.to(eager.get_default_dtype())


def one(name, x, dim):
    if not x.dim():
        raise IndexError(f"[{name}] a tensor of no dimensions has no dim {dim}")
    return wrapped(dim, x.dim())


def length(name, n):
    if n < 1:
        raise RuntimeError(f"[{name}] Invalid number of data points ({n}) specified")
    return n


def places(name, x, s, dim, last=True):
    """(dims, sizes along them) of a transform over several dims."""
    rank = x.dim()
    s = (s,) if isinstance(s, int) else s
    dim = (dim,) if isinstance(dim, int) else dim
    if dim is not None:
        dims = tuple(one(name, x, d) for d in dim)
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"[{name}] FFT dims must be unique, got {list(dim)}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(
                f"[{name}] dim and s are of one length, got {list(dim)} and {list(s)}"
            )
    elif s is not None:
        if len(s) > rank:
            raise RuntimeError(f"[{name}] s has {len(s)} values for a tensor of {rank} dims")
        dims = tuple(range(rank - len(s), rank))
    else:
        dims = tuple(range(rank))
    sizes = [x.shape[d] for d in dims] if s is None else list(s)
    sizes = [x.shape[d] if n == -1 else n for d, n in zip(dims, sizes)]
    if last:
        for n in sizes:
            length(name, n)
    return dims, sizes


def product(sizes):
    count = 1
    for n in sizes:
        count *= n
    return count


def complex_1d(name, onward):
    def function(input, n=None, dim=-1, norm=None, *, out=None):
        x = operand(name, input)
        dim = one(name, x, dim)
        n = length(name, x.shape[dim] if n is None else n)
        made = transforms.whole(transforms.resized(x, dim, n), (dim,), onward)
        return given(out, transforms.scaled(made, norm, n, onward, name))

    return called(function, name, "along one dim, complex")


def complex_nd(name, onward, default):
    def function(input, s=None, dim=default, norm=None, *, out=None):
        x = operand(name, input)
        dims, sizes = places(name, x, s, dim)
        for d, n in zip(dims, sizes):
            x = transforms.resized(x, d, n)
        made = transforms.whole(x, dims, onward)
        return given(out, transforms.scaled(made, norm, product(sizes), onward, name))

    return called(function, name, "along several dims, complex")


def real_1d(name, onward):
    """rfft, and ihfft, which is its conjugate."""

    def function(input, n=None, dim=-1, norm=None, *, out=None):
        x = operand(name, input, True)
        dim = one(name, x, dim)
        n = length(name, x.shape[dim] if n is None else n)
        made = transforms.half(transforms.resized(x, dim, n), dim)
        made = transforms.scaled(made, norm, n, onward, name)
        return given(out, made if onward else made.conj())

    return called(function, name, "of real numbers along one dim: the first half of the spectrum")


def real_nd(name, onward, default):
    def function(input, s=None, dim=default, norm=None, *, out=None):
        x = operand(name, input, True)
        dims, sizes = places(name, x, s, dim)
        if not dims:
            raise RuntimeError(f"[{name}] must transform at least one axis")
        for d, n in zip(dims, sizes):
            x = transforms.resized(x, d, n)
        made = transforms.half(x, dims[-1])
        made = transforms.whole(made if onward else made.conj(), dims[:-1], onward)
        return given(out, transforms.scaled(made, norm, product(sizes), onward, name))

    return called(function, name, "of real numbers along several dims: half along the last")


def hermitian_1d(name, onward):
    """irfft, and hfft, whose input is the conjugate."""

    def function(input, n=None, dim=-1, norm=None, *, out=None):
        x = operand(name, input)
        dim = one(name, x, dim)
        n = length(name, 2 * (x.shape[dim] - 1) if n is None else n)
        x = transforms.resized(x, dim, n // 2 + 1)
        made = transforms.back(x.conj() if onward else x, dim, n)
        return given(out, transforms.scaled(made, norm, n, onward, name))

    return called(function, name, "from the first half of a spectrum to n real numbers")


def hermitian_nd(name, onward, default):
    def function(input, s=None, dim=default, norm=None, *, out=None):
        x = operand(name, input)
        dims, sizes = places(name, x, s, dim, False)
        if not dims:
            raise RuntimeError(f"[{name}] must transform at least one axis")
        if s is None or (s[-1] if not isinstance(s, int) else s) == -1:
            sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
        for n in sizes:
            length(name, n)
        for d, n in zip(dims, [*sizes[:-1], sizes[-1] // 2 + 1]):
            x = transforms.resized(x, d, n)
        x = transforms.whole(x, dims[:-1], onward)
        made = transforms.back(x.conj() if onward else x, dims[-1], sizes[-1])
        return given(out, transforms.scaled(made, norm, product(sizes), onward, name))

    return called(function, name, "from half a spectrum along the last dim to real numbers")


def called(function, name, what):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name}`: the transform {what}."
    return function


PAIR = (-2, -1)
fft, ifft = complex_1d("fft", True), complex_1d("ifft", False)
fft2, ifft2 = complex_nd("fft2", True, PAIR), complex_nd("ifft2", False, PAIR)
fftn, ifftn = complex_nd("fftn", True, None), complex_nd("ifftn", False, None)
rfft, ihfft = real_1d("rfft", True), real_1d("ihfft", False)
rfft2, ihfft2 = real_nd("rfft2", True, PAIR), real_nd("ihfft2", False, PAIR)
rfftn, ihfftn = real_nd("rfftn", True, None), real_nd("ihfftn", False, None)
irfft, hfft = hermitian_1d("irfft", False), hermitian_1d("hfft", True)
irfft2, hfft2 = hermitian_nd("irfft2", False, PAIR), hermitian_nd("hfft2", True, PAIR)
irfftn, hfftn = hermitian_nd("irfftn", False, None), hermitian_nd("hfftn", True, None)


# ---- helpers


def frequencies(name, count, n, d, out, options):
    dtype = factories.dtype_of(options.pop("dtype", None)) or eager.get_default_dtype()
    requires_grad = options.pop("requires_grad", False)
    device = options.pop("device", None)
    at = factories.arange(count, dtype=dtype, device=device)
    if name == "fftfreq":
        at = eager.where(at < (n + 1) // 2, at, at - n)  # type: ignore[attr-defined]
    made = given(out, at * (1.0 / (n * d) if n * d else float("inf")))
    return made.requires_grad_() if requires_grad else made


def fftfreq(
    n, d=1.0, *, out=None, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    """The frequencies of a transform of n samples that are d apart: 0, 1, ..., -2, -1 over n d."""
    more = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return frequencies("fftfreq", n, n, d, out, more)


def rfftfreq(
    n, d=1.0, *, out=None, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    """The frequencies of the first half of a spectrum: 0, 1, ..., n // 2 over n d."""
    more = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return frequencies("rfftfreq", n // 2 + 1, n, d, out, more)


def turned(x, dim, by):
    dims = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = tuple(wrapped(d, x.dim()) for d in dims)
    if not dims:
        return x.clone()
    return x.roll(tuple(by(x.shape[d]) for d in dims), dims)


def fftshift(input, dim=None):
    """The frequency 0 in the middle, along dim (all of them)."""
    return turned(input, dim, lambda n: n // 2)


def ifftshift(input, dim=None):
    """The inverse of `fftshift`."""
    return turned(input, dim, lambda n: (n + 1) // 2)
