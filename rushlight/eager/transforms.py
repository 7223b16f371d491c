"""Discrete Fourier transforms, by numpy's pocketfft: what `rushlight.fft` and `stft` stand on.

Three linear maps, each a Function whose derivative is another of them, so that they differentiate
as often as one likes: complex to complex, real to the half spectrum that says all, and back from
it. Invariant: they are unscaled, and the caller multiplies by one number. numpy loads at the first
transform. Tensors on a GPU are transformed on the host, with a recorded reason; meta tensors give
their layout.
"""

from rushlight import _core
from rushlight.ops import TABLE
from rushlight.reasons import refuse

from . import factories
from .functions import Function

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


def library():
    try:
        import numpy.fft
    except ImportError:
        raise ImportError(
            "[fft] Fourier transforms are numpy's: install numpy (pip install numpy)"
        ) from None
    return numpy


def worked(x, shape, dtype, work):
    """work(x as an array) as a tensor of x's device."""
    if x.device.type == "meta" or not x.numel() or 0 in shape:
        return factories.empty(shape, dtype=dtype, device=x.device)
    if x.is_cuda:
        refuse("eager.host_fallback", "fft", f"{list(x.shape)} {x.dtype}")
    np = library()
    made = work(np, x.detach().cpu().numpy())
    made = np.ascontiguousarray(made.astype(dtype.name, copy=False))
    made = _core.from_numpy(made)
    return made.to(x.device) if x.is_cuda else made


def complex_of(dtype):
    return _core.complex128 if dtype in (_core.float64, _core.complex128) else _core.complex64


def real_of(dtype):
    return _core.float64 if dtype in (_core.float64, _core.complex128) else _core.float32


class Whole(Function):
    """Complex [*] -> complex [*] along dims: sum of x[j] exp(-2 pi i j k / n), or with + where
    not `forward`.
    """

    @staticmethod
    def forward(ctx, x, dims, onward):
        ctx.told = dims, onward

        def work(np, a):
            if onward:
                return np.fft.fftn(a, axes=dims)
            return np.fft.ifftn(a, axes=dims, norm="forward")

        return worked(x, tuple(x.shape), complex_of(x.dtype), work)

    @staticmethod
    def backward(ctx, g):
        dims, onward = ctx.told
        return Whole.apply(as_complex(g), dims, not onward), None, None


class Half(Function):
    """Real [.. n ..] -> complex [.. n // 2 + 1 ..]: the first half of the spectrum along dim."""

    @staticmethod
    def forward(ctx, x, dim):
        ctx.told = dim, x.shape[dim]
        shape = list(x.shape)
        shape[dim] = shape[dim] // 2 + 1
        return worked(
            x, tuple(shape), complex_of(x.dtype), lambda np, a: np.fft.rfft(a, axis=dim)
        )

    @staticmethod
    def backward(ctx, g):
        dim, n = ctx.told
        g = resized(as_complex(g), dim, n)
        return op("select")(op("view_as_real")(Whole.apply(g, (dim,), False)), -1, 0), None


class Back(Function):
    """Complex [.. n // 2 + 1 ..] -> real [.. n ..]: the inverse of Half, times n."""

    @staticmethod
    def forward(ctx, x, dim, n):
        ctx.told = dim, n
        shape = list(x.shape)
        shape[dim] = n
        return worked(
            x, tuple(shape), real_of(x.dtype),
            lambda np, a: np.fft.irfft(a, n, axis=dim, norm="forward"),
        )  # fmt: skip

    @staticmethod
    def backward(ctx, g):
        dim, n = ctx.told
        spectrum = Half.apply(g, dim)
        twice = [1.0 + (0 < k < n - k) for k in range(n // 2 + 1)]  # those with a partner
        weights = _core.tensor(twice, g.dtype, g.device)
        weights = weights.reshape([-1 if d == dim else 1 for d in range(g.dim())])
        return spectrum * weights, None, None


def as_complex(x):
    return x if x.dtype.is_complex else x.to(complex_of(x.dtype))


def resized(x, dim, n):
    """x cut or filled up with zeros to n elements along dim."""
    now = x.shape[dim]
    if n < now:
        return op("narrow")(x, dim, 0, n)
    if n > now:
        return op("constant_pad_nd")(x, (0, 0) * (x.dim() - 1 - dim) + (0, n - now), 0.0)
    return x


def scaled(made, norm, count, onward, name):
    """The result under one of the conventions: which direction is divided by the count."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'[{name}] Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return made * count**-0.5
    divided = norm == "forward" if onward else norm in (None, "backward")
    return made * (1.0 / count) if divided and count else made


def whole(x, dims, onward):
    return Whole.apply(as_complex(x), tuple(dims), onward) if dims else as_complex(x)


def half(x, dim):
    return Half.apply(x, dim)


def back(x, dim, n):
    return Back.apply(as_complex(x), dim, n)
