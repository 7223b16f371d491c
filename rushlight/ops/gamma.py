"""The gamma function's logarithm and its derivatives, and the inverse of erf: scalar bodies."""
import math

from . import promotion
from .declare import composition, derived, scalar
from .elementary import UNIT, WIDE, copysign, erfc, tan
from .pointwise import abs, eq, exp, le, log, lt, sin, sqrt, where
from .rounding import floor
from .samples import call, t
from .values import word

APART = (call(t(2, 3, low=0.2, high=6.0)), call(t(4, 3, order=(1, 0), low=-0.9, high=-0.1)), call(t(5, step=2, low=1.0, high=40.0)))
SHIFT = 8                           # the series hold from here on


@scalar("lgamma(Tensor self) -> Tensor", promote=promotion.floating, domain=WIDE, cost=30, samples=APART)
def lgamma(x):
    """log |gamma(x)|."""
    return word.lgamma(x)


@lgamma.derivative
def _(g, x):
    return g * digamma(x)


@scalar("digamma(Tensor self) -> Tensor", promote=promotion.floating, domain=WIDE, cost=30, samples=APART)
def digamma(x):
    """The derivative of lgamma: an asymptotic series behind a recurrence; below 1/2 the reflection."""
    low = lt(x, 0.5)
    y = where(low, 1 - x, x)
    found = 0.0
    for k in range(SHIFT):
        found = found - 1 / (y + k)
    y = y + SHIFT
    z = 1 / (y * y)
    tail = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z * (1 / 12)))))))
    found = found + (log(y) - 0.5 / y - tail)
    found = where(low, found - math.pi / tan(math.pi * (x - floor(x))), found)
    found = where(eq(x, 0), -1 / x, where(le(x, 0), where(eq(x, floor(x)), 0 * found, found), found))
    return where(eq(x, float("inf")), x, found)


@digamma.derivative
def _(g, x):
    return g * trigamma(x)


@scalar("trigamma(Tensor self) -> Tensor", promote=promotion.floating, domain=WIDE, cost=30, method=False, function=False,
        derivative=derived, samples=APART)
def trigamma(x):
    """The derivative of digamma, by the same means."""
    low = lt(x, 0.5)
    y = where(low, 1 - x, x)
    found = 0.0
    for k in range(SHIFT):
        found = found + 1 / ((y + k) * (y + k))
    y = y + SHIFT
    z = 1 / (y * y)
    tail = z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * (5 / 66 - z * (691 / 2730 - z * (7 / 6)))))))
    found = found + (1 + 0.5 / y + tail) / y
    s = sin(math.pi * (x - floor(x)))
    return where(low, math.pi * math.pi / (s * s) - found, found)


CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
          0.246640727, 1.50140941)
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682)     # M. Giles, Approximating the erfinv function, 2010


@scalar("erfinv(Tensor self) -> Tensor", promote=promotion.floating, domain=WIDE, cost=60, samples=UNIT)
def erfinv(x):
    """The number whose erf is x: a polynomial, brought to full precision by Newton's steps on erfc."""
    a = abs(x)
    w = -log((1 - a) * (1 + a))
    near, far = w - 2.5, sqrt(w) - 3
    p, q = CENTRE[0], TAIL[0]
    for c, d in zip(CENTRE[1:], TAIL[1:]):
        p, q = c + p * near, d + q * far
    y = where(lt(w, 5), p, q) * a
    for _ in range(2):
        y = y + (erfc(y) - (1 - a)) / (2 / math.sqrt(math.pi) * exp(-(y * y)))
    return copysign(where(eq(a, 1), float("inf"), y), x)            # beyond 1 the logarithm is NaN


@erfinv.derivative
def _(g, out):
    return g * (math.sqrt(math.pi) / 2) * exp(out * out)


@composition("polygamma(int n, Tensor self) -> Tensor", method=False, samples=(call(0, t(3, low=0.5, high=4.0)), call(1, t(3, low=0.5, high=4.0))))
def polygamma(n, x):
    """The n-th derivative of digamma, for n 0 and 1."""
    if n < 0:
        raise RuntimeError(f"[polygamma] does not support negative n, got {n}")
    if n not in (0, 1):
        raise NotImplementedError(f"[polygamma] orders 0 and 1 are there, got {n}")
    return trigamma(x) if n else digamma(x)
