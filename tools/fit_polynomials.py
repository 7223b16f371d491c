"""Fit the polynomials of rushlight/loops/prelude_f32.h and prelude_f64.h.

    python tools/fit_polynomials.py [NAME ...]

prints, for each fit, its coefficients from degree 0 up, as C literals, and the largest weighted
error it leaves; without names also the tables of 2/pi. The method: least squares on points of
Chebyshev density (within a small factor of minimax), solved in 80-digit decimals so that
conditioning never matters, one coefficient at a time from degree 0: each is rounded to the target
format and the rest refitted around it, so the low coefficients' rounding is absorbed by the high.
"""

import struct
import sys
from decimal import Decimal as D
from decimal import getcontext
from functools import lru_cache

getcontext().prec = 80
EPS = D(10) ** -75


def to_f32(x):
    return D(struct.unpack("f", struct.pack("f", float(x)))[0])


def to_f64(x):
    return D(float(x))


def literal(x, rounding):
    if rounding is to_f64:
        return repr(float(x))
    for digits in range(6, 11):  # the shortest decimal that reads back as the same float
        s = f"{float(x):.{digits}g}"
        if to_f32(D(s)) == x:
            break
    return s + ("" if "." in s or "e" in s else ".0") + "f"


def series(first, step):
    """Sum first + first*step(1) + ... until the terms no longer count."""
    total, term, n = first, first, 1
    while abs(term) > EPS * (abs(total) + EPS) and n < 3000:
        term = term * step(n)
        total += term
        n += 1
    return total


def sin(x):
    return series(x, lambda n: -x * x / ((2 * n) * (2 * n + 1)))


def cos(x):
    return series(D(1), lambda n: -x * x / ((2 * n - 1) * (2 * n)))


def atan(x):
    for _ in range(3):  # halve the angle three times, then the series is short
        x = x / (1 + (1 + x * x).sqrt())
    total, power, n = D(0), x, 1
    while abs(power) > EPS * abs(x) and power:
        total += power / n if n % 4 == 1 else -power / n
        power *= x * x
        n += 2
    return total * 8


def asin(x):
    return 2 * atan(x / (1 + (1 - x * x).sqrt()))


PI = 4 * atan(D(1))
LN2 = D(2).ln()


def erf(x):
    scale = 2 / PI.sqrt()
    term, total, n = x, x, 0  # all terms positive: exp(-x^2) times the confluent series
    while term > EPS * total:
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
        total += term
    return scale * total * (-x * x).exp()


@lru_cache(None)
def erfc(x):
    if x < 3:
        return 1 - erf(x)
    tail, n = D(0), 700  # continued fraction, from its far end
    for k in range(n, 0, -1):
        tail = D(k) / 2 / (x + tail)
    return (-x * x).exp() / PI.sqrt() / (x + tail)


@lru_cache(None)
def bernoulli():
    out = [D(1)]
    for m in range(1, 61):
        c, total = D(1), D(0)
        for k in range(m):
            total += c * out[k]
            c = c * (m + 1 - k) / (k + 1)
        out.append(-total / (m + 1))
    return out


def stirling(z):
    """lgamma(z) - ((z - 1/2) ln z - z + ln(2 pi)/2)."""
    return sum(bernoulli()[2 * k] / (2 * k * (2 * k - 1) * z ** (2 * k - 1)) for k in range(1, 30))


@lru_cache(None)
def lgamma(x):
    shift, z = D(0), x
    while z < 60:
        shift += z.ln()
        z += 1
    return (z - D("0.5")) * z.ln() - z + (2 * PI).ln() / 2 + stirling(z) - shift


def solve(a, b):
    n = len(b)
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[p], b[i], b[p] = a[p], a[i], b[p], b[i]
        for r in range(i + 1, n):
            m = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= m * a[i][c]
            b[r] -= m * b[i]
    for i in reversed(range(n)):
        b[i] = (b[i] - sum(a[i][c] * b[c] for c in range(i + 1, n))) / a[i][i]
    return b


def fit(f, lo, hi, degree, rounding, weight=lambda t: 1):
    """Coefficients of p with weight(t) * (p(t) - f(t)) small over [lo, hi], and the largest such error."""
    lo, hi = D(lo), D(hi)
    count = 3 * degree + 12
    nodes = [
        (lo + hi) / 2 + (hi - lo) / 2 * cos(PI * (2 * i + 1) / (2 * count)) for i in range(count)
    ]
    nodes = [t if abs(t) > D(10) ** -30 else D(10) ** -12 for t in nodes]
    w = [D(weight(t)) for t in nodes]
    rest = [f(t) for t in nodes]
    values = list(rest)
    powers = [[t**k for k in range(degree + 1)] for t in nodes]
    chosen = []
    while len(chosen) <= degree:
        first = len(chosen)
        rows = [[w[i] * powers[i][k] for k in range(first, degree + 1)] for i in range(count)]
        size = degree + 1 - first
        normal = [[sum(r[a] * r[b] for r in rows) for b in range(size)] for a in range(size)]
        right = [sum(rows[i][a] * w[i] * rest[i] for i in range(count)) for a in range(size)]
        c = rounding(solve(normal, right)[0])
        chosen.append(c)
        rest = [rest[i] - c * powers[i][first] for i in range(count)]
    worst = max(
        abs(w[i] * (sum(c * p for c, p in zip(chosen, powers[i])) - values[i]))
        for i in range(count)
    )
    return chosen, worst


H = LN2 / 2 + D("0.0001")
R2 = D(2).sqrt()


def tail(f, terms):
    """f minus the given leading terms, over the next power: what a polynomial after exact terms must follow."""

    def g(t):
        return (f(t) - sum(D(c) * t**k for k, c in enumerate(terms))) / t ** len(terms)

    return g


def log1p(t):
    return (1 + t).ln()


def exp2(t):
    return (t * LN2).exp()


def tanh(x):
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


def half_expm1(x):
    return ((2 * x).exp() - 1) / 2


def sinh(x):
    return (x.exp() - (-x).exp()) / 2


def atanh(x):
    return ((1 + x) / (1 - x)).ln() / 2


def over(f):
    """f(s)/s as a function of t = s*s, for an odd f."""
    return lambda t: f(t.sqrt()) / t.sqrt()


def even(f):
    """f(s) as a function of t = s*s."""
    return lambda t: f(t.sqrt())


def scaled_erfc(u):
    """exp(a^2) erfc a, where u = (a - 2)/(a + 2)."""
    a = 2 * (1 + u) / (1 - u)
    return erfc(a) * (a * a).exp()


def even_erfc(u):
    """The same times a + 2: between 2 and 0.56, so the polynomial's rounding stays relative."""
    return scaled_erfc(u) * 4 / (1 - u)


FITS = {}


def add(name, *args, **kw):
    FITS[name] = (args, kw)


# ---- float32 ----
# e^r = 1 + r + r^2 p(r)
add("exp_f32", tail(D.exp, [1, 1]), -H, H, 4, to_f32, weight=lambda t: t * t)
add("expm1_f32", tail(D.exp, [1, 1]), -H, H, 5, to_f32, weight=lambda t: t * t)
# 2^r = 1 + r p(r)
add("exp2_f32", tail(exp2, [1]), -0.5, 0.5, 5, to_f32, weight=lambda t: t)
# ln(1 + f) = f - f^2/2 + f^3 p(f)
add(
    "log_f32",
    tail(log1p, [0, 1, D("-0.5")]),
    1 / R2 - 1,
    R2 - 1,
    7,
    to_f32,
    weight=lambda t: abs(t**3 / log1p(t)),
)
# erf a = a + a p(a^2) below 1; 1 - p(a - 2.5) from 1 to 4
add("erf_f32_small", lambda t: erf(t.sqrt()) / t.sqrt() - 1, 0, 1, 6, to_f32)
add("erf_f32_large", lambda t: erfc(t + D("2.5")), -1.5, 1.5, 14, to_f32)
# expm1(2 r)/2 = r + r^2 p(r), for tanh; 1/d by a parabola, for sigmoid and tanh
add("tanh_f32", tail(half_expm1, [0, 1]), -H / 2, H / 2, 4, to_f32, weight=lambda t: t)
add("inverse_f32", lambda d: 1 / d, 1, 2, 2, to_f32, weight=lambda d: d)
add("inverse_f32_half", lambda d: 1 / d, D("0.5"), 1, 2, to_f32, weight=lambda d: d)
# sin r = r + r^3 p(r^2), cos r = 1 - r^2/2 + r^4 p(r^2), for Box-Muller
add("sin_turn_f32", tail(over(sin), [1]), 0, 0.62, 2, to_f32, weight=lambda t: t)
add("cos_turn_f32", tail(even(cos), [1, D("-0.5")]), 0, 0.62, 2, to_f32, weight=lambda t: t * t)

# ---- double kernels that serve float32: some 2^-34 ----
add("sin_f32d", over(sin), 0, 0.62, 4, to_f64)
add("cos_f32d", even(cos), 0, 0.62, 5, to_f64)
add("log2_f32d", lambda t: 2 * over(atanh)(t) / LN2, 0, 0.0296, 5, to_f64)
add("exp2_f32d", exp2, -0.5, 0.5, 7, to_f64)
add("erfc_f32d", scaled_erfc, -1, 0.67, 12, to_f64, weight=lambda u: 1 / scaled_erfc(u))
add("atan_f32d", over(atan), 0, 1, 12, to_f64)
add("asin_f32d", over(asin), 0, 0.25, 8, to_f64)
add("sinh_f32d", over(sinh), 0, 0.25, 4, to_f64)

# ---- float64 ----
add("exp_f64", tail(D.exp, [1, 1]), -H, H, 9, to_f64, weight=lambda t: t * t)
add("expm1_f64", tail(D.exp, [1, 1]), -H, H, 10, to_f64, weight=lambda t: t * t)
# 2 atanh s = 2 s + s^3 p(s^2), s = f/(2 + f); for pow 2 s + s^3 (2/3 + s^2 p(s^2))
add("log_f64", tail(lambda t: 2 * over(atanh)(t), [2]), 0, 0.02945, 6, to_f64, weight=lambda t: t)
add(
    "pow_f64",
    tail(lambda t: 2 * over(atanh)(t), [2, D(2) / 3]),
    0,
    0.02945,
    8,
    to_f64,
    weight=lambda t: t * t,
)
add("sin_f64", tail(over(sin), [1]), 0, 0.62, 5, to_f64, weight=lambda t: t)
add("cos_f64", tail(even(cos), [1, D("-0.5")]), 0, 0.62, 5, to_f64, weight=lambda t: t * t)
add("tanh_f64", tail(over(tanh), [1]), 0, 0.31, 9, to_f64, weight=lambda t: t)
add("sinh_f64", tail(over(sinh), [1]), 0, 1, 7, to_f64, weight=lambda t: t)
add("atan_f64", tail(over(atan), [1]), 0, 0.1717, 10, to_f64, weight=lambda t: t)
add("asin_f64", tail(over(asin), [1]), 0, 0.25, 12, to_f64, weight=lambda t: t)
add("erf_f64_small", lambda t: erf(t.sqrt()) / t.sqrt() - 1, 0, 1, 11, to_f64)
add("erfc_f64", even_erfc, -1, 0.8665, 25, to_f64, weight=lambda u: 1 / even_erfc(u))
add("lgamma_f64", lambda t: lgamma(t + 2) / t, -0.75, 0.5, 21, to_f64)
add("stirling_f64", lambda t: stirling(1 / t.sqrt()) / t.sqrt(), 0, D(1) / 72, 6, to_f64)


def turns_f32():
    """2/pi modulo 4/2^i in two parts, for each amount i by which an exponent passes 23."""
    high, low = [], []
    for i in range(106):
        t = (2 / PI * 2**i) % 4
        top = D(int(t * 2**27)) / 2**27
        high.append(repr(float(top / 2**i)))
        low.append(repr(float((t - top) / 2**i)))
    return high, low


def turns_f64():
    """2/pi in signed digits of 25 bits, the first of weight 1; by integers (Machin's formula)."""
    bits = 1300

    def atan_inverse(n):
        term = total = (1 << bits) // n
        k = 1
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k // 2 % 2 else term // k
        return total

    pi = 4 * (4 * atan_inverse(5) - atan_inverse(239))
    rest = (2 << 2 * bits) // pi
    digits = []
    for _ in range(48):
        digit = (rest + (1 << bits - 1)) >> bits
        digits.append(digit)
        rest = (rest - (digit << bits)) << 25
    return digits


def main(names):
    for name in names or FITS:
        args, kw = FITS[name]
        coefficients, worst = fit(*args, **kw)
        print(f"{name}: error 2^{float(worst.ln() / LN2):.1f}")
        print("   ", ", ".join(literal(c, args[4]) for c in coefficients))
    if not names:
        high, low = turns_f32()
        print("rl_two_over_pi_hi:", ", ".join(high))
        print("rl_two_over_pi_lo:", ", ".join(low))
        print("rl_two_over_pi_digits:", ", ".join(map(str, turns_f64())))


if __name__ == "__main__":
    main(sys.argv[1:])
