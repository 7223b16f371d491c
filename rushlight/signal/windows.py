"""`rushlight.signal.windows`: windows of M samples, each symmetric (`sym`, for filters) or one
period of a repeated one (for spectra).

Computed in float64 and rounded to the dtype asked for (default: the default dtype).
"""

import math
from collections.abc import Iterable

from rushlight import eager
from rushlight.eager import factories
from rushlight.eager.series import op


def window(body):
    """A function of (M, ..., sym, dtype, layout, device, requires_grad) from one of sample numbers
    0 .. n and n + 1 samples.
    """
    name = body.__name__

    def function(
        M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False, **options
    ):
        dtype = factories.dtype_of(dtype) or eager.get_default_dtype()
        if M < 0:
            raise ValueError(f"[{name}] a length is non-negative, got M={M}")
        if dtype.name not in ("float32", "float64"):
            raise ValueError(f"[{name}] gives float32 or float64, not {dtype!r}")
        check = CHECKS.get(name)
        if check:
            check(name, sym=sym, **options)
        if M < 2:
            made = factories.ones(M, dtype=dtype, device=device)
        else:
            n = M - 1 if sym else M
            at = factories.arange(M, dtype=eager.float64, device=device)  # type: ignore[attr-defined]
            made = body(at, n, **options).to(dtype)
        return made.requires_grad_() if requires_grad else made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = body.__doc__
    return function


def cosines(at, n, weights):
    """Sum of (-1)^k a[k] cos(2 pi k i / n)."""
    made = at * 0.0
    for k, a in enumerate(weights):
        made = made + (-1) ** k * a * (at * (2 * math.pi * k / n)).cos()
    return made


@window
def bartlett(at, n):
    """A triangle from 0 up to 1 and down to 0."""
    return 1 - (at * (2 / n) - 1).abs()


@window
def blackman(at, n):
    """Three cosines: 0.42, 0.5, 0.08."""
    return cosines(at, n, (0.42, 0.5, 0.08))


@window
def cosine(at, n):
    """Half a wave: sin(pi (i + 1/2) / (n + 1))."""
    return ((at + 0.5) * (math.pi / (n + 1))).sin()


@window
def exponential(at, n, center=None, tau=1.0):
    """exp(-|i - center| / tau), around the middle where no center is given."""
    middle = n / 2 if center is None else center
    return (-(at - middle).abs() / tau).exp()


@window
def gaussian(at, n, std=1.0):
    """exp(-((i - middle) / std)^2 / 2)."""
    return (-(((at - n / 2) / std) ** 2) / 2).exp()


@window
def general_cosine(at, n, a):
    """Sum of (-1)^k a[k] cos(2 pi k i / n)."""
    return cosines(at, n, tuple(a))


@window
def general_hamming(at, n, alpha=0.54):
    """alpha - (1 - alpha) cos(2 pi i / n)."""
    return cosines(at, n, (alpha, 1.0 - alpha))


@window
def hamming(at, n):
    """0.54 - 0.46 cos(2 pi i / n)."""
    return cosines(at, n, (0.54, 0.46))


@window
def hann(at, n):
    """(1 - cos(2 pi i / n)) / 2."""
    return cosines(at, n, (0.5, 0.5))


@window
def kaiser(at, n, beta=12.0):
    """i0(beta sqrt(1 - x^2)) / i0(beta), x from -1 to 1."""
    x = at * (2 / n) - 1
    top = op("i0")(eager.tensor(float(beta), dtype=at.dtype))
    return op("i0")((1 - x * x).clamp_min(0).sqrt() * beta) / top


@window
def nuttall(at, n):
    """Four cosines that leave least on the sides (Nuttall, 1981)."""
    return cosines(at, n, (0.3635819, 0.4891775, 0.1365995, 0.0106411))


def check_exponential(name, sym, center=None, tau=1.0):
    if tau <= 0:
        raise ValueError(f"[exponential] tau is positive, got {tau}")
    if sym and center is not None:
        raise ValueError(
            "[exponential] a symmetric window has its center in the middle: leave it out"
        )


def check_gaussian(name, sym, std=1.0):
    if std <= 0:
        raise ValueError(f"[gaussian] std is positive, got {std}")


def check_cosines(name, sym, a):
    if not isinstance(a, Iterable):
        raise TypeError("[general_cosine] coefficients are a list or a tuple")
    if not tuple(a):
        raise ValueError("[general_cosine] coefficients are empty, they cannot be empty")


CHECKS = {
    "exponential": check_exponential,
    "gaussian": check_gaussian,
    "general_cosine": check_cosines,
}
__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]
