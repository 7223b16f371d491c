"""The scalar math of GPU kernels, as Triton functions. Takes and gives blocks or scalars of one dtype.

What networks spend their time in (exponentials, logarithms, tanh, erf, random numbers) is prelude_f32.h's own float32
arithmetic, in the same order with the same fused multiply-adds: the bits are the CPU's. Sums and quotients are rounded once.
What prelude_f32.h computes by way of double comes from the vendor's libdevice here: within 4 ulp instead (docs/gpu.md).

Imported by generated kernels as `rl`; importing it loads Triton.
"""
# mypy: ignore-errors
import triton
import triton.language as tl
from triton.language.extra import libdevice

# ---- bits


@triton.jit
def bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def unsigned(x):
    return x.to(tl.uint32, bitcast=True)


@triton.jit
def made(b):
    return b.to(tl.float32, bitcast=True)


@triton.jit
def at_most(x, limit: tl.constexpr):            # limit > 0; NaN is lost
    return made(tl.minimum(bits(x), bits(tl.full([], limit, tl.float32))))


@triton.jit
def at_least(x, limit: tl.constexpr):           # limit < 0
    return made(tl.minimum(unsigned(x), unsigned(tl.full([], limit, tl.float32))))


@triton.jit
def minus_abs(x):
    return made(bits(x) | -2147483648)


@triton.jit
def copysign_f32(x, s):
    return made((bits(x) & 2147483647) | (bits(s) & -2147483648))


@triton.jit
def copysign_f64(x, s):
    a, b = x.to(tl.int64, bitcast=True), s.to(tl.int64, bitcast=True)
    return ((a & 9223372036854775807) | (b & -9223372036854775808)).to(tl.float64, bitcast=True)


@triton.jit
def signbit_f32(x):
    return bits(x) < 0


@triton.jit
def signbit_f64(x):
    return x.to(tl.int64, bitcast=True) < 0


# ---- float32: exponentials


@triton.jit
def scaled(p, t):
    b = bits(t)
    return p * made((b << 22) & 0x7f800000) * made(((b + 1) << 22) & 0x7f800000)


@triton.jit
def exp_within(x):
    t = tl.fma(x, 1.44269504, 12583166.0)
    n = t - 12583166.0
    r = tl.fma(n, 2.12194440e-4, tl.fma(n, -0.693359375, x))
    p = tl.fma(r, tl.fma(r, tl.fma(r, tl.fma(r, 0.0013935764, 0.008369232), 0.041666456), 0.16666515), 0.5)
    return scaled(1.0 + tl.fma(r * r, p, r), t)


@triton.jit
def exp_f32(x):
    return tl.where(x != x, x, exp_within(at_least(at_most(x, 89.0), -104.0)))


@triton.jit
def exp2_f32(x):
    c = at_least(at_most(x, 129.0), -152.0)
    t = c + 12583166.0
    r = c - (t - 12583166.0)
    p = tl.fma(r, tl.fma(r, tl.fma(r, 0.00015456358, 0.0013391643), 0.009618077), 0.05550358)
    p = tl.fma(r, tl.fma(r, tl.fma(r, p, 0.2402265), 0.6931472), 1.0)
    return tl.where(x != x, x, scaled(p, t))


@triton.jit
def expm1_f32(x):
    c = at_least(at_most(x, 89.0), -18.0)
    t = tl.fma(c, 1.44269504, 12583038.0)
    n = t - 12583038.0
    a = tl.fma(n, -0.693359375, c)
    r = tl.fma(n, 2.12194440e-4, a)
    low = tl.fma(n, 2.12194440e-4, a - r)
    p = tl.fma(r, tl.fma(r, tl.fma(r, 0.00019953403, 0.0013935764), 0.008333198), 0.041666456)
    p = tl.fma(r, tl.fma(r, p, 0.16666667), 0.5)
    tail = tl.fma(low, 1.0 + r, r * r * p)
    e = r + tail
    e_low = (r - e) + tail
    s = made(bits(t) << 23)
    w = tl.fma(s, e, s - 0.5)
    lost = tl.fma(s, e, (s - 0.5) - w)
    y = 2.0 * (w + tl.fma(s, e_low, lost))
    y = tl.where(n == 0.0, e, y)
    return tl.where((x == 0.0) | (x != x), x, y)


@triton.jit
def inverse(d, y):
    h = tl.fma(-d, y, 1.0)
    return tl.fma(y, tl.fma(h, h, h), y)


@triton.jit
def sigmoid_f32(x):
    e = exp_within(at_least(minus_abs(x), -104.0))
    d = 1.0 + e
    y = inverse(d, tl.fma(d, tl.fma(d, 0.31367895, -1.4250212), 2.09951))
    a = tl.where(x < 0.0, e, 1.0)
    z = a * y
    z = tl.fma(y, tl.fma(-e, z, a - z), z)
    return tl.where(x != x, x, z)


@triton.jit
def tanh_f32(x):
    c = at_least(minus_abs(x), -10.0)
    t = tl.fma(c, 2.88539008, 12583039.0)
    n = t - 12583039.0
    r = tl.fma(n, 1.06097220e-4, tl.fma(n, -0.3466796875, c))
    p = tl.fma(r, tl.fma(r, tl.fma(r, tl.fma(r, 0.04458783, 0.1338692), 0.33333182), 0.6666616), 1.0)
    q = tl.fma(r * r, p, r)
    s = made(bits(t) << 23)
    g = tl.fma(-s, q, tl.fma(-0.5, s, 0.5))
    d = 1.0 - g
    y = inverse(d, tl.fma(d, tl.fma(d, 2.5094316, -5.7000847), 4.19902))
    z = g * y
    z = tl.fma(y, tl.fma(g, z, g - z), z)
    return tl.where(x != x, x, copysign_f32(z, x))


# ---- float32: logarithms


@triton.jit
def log_tail(f, small):
    p = tl.fma(f, tl.fma(f, tl.fma(f, -0.07353803, 0.12615187), -0.13203458), 0.142281)
    p = tl.fma(f, tl.fma(f, tl.fma(f, p, -0.16621315), 0.19999766), -0.25000852)
    p = tl.fma(f, tl.fma(f, p, 0.33333355), -0.5)
    return tl.fma(f * f, p, small)


@triton.jit
def log_f32(x):
    tiny = x < 1.17549435e-38
    b = bits(x * tl.where(tiny, 8388608.0, 1.0))
    k = (b - 0x3f3504f3) >> 23
    f = made(b - (k << 23)) - 1.0
    n = k.to(tl.float32) - tl.where(tiny, 23.0, 0.0)
    y = f + log_tail(f, n * -2.12194440e-4)
    y = tl.fma(n, 0.693359375, y)
    y = tl.where(x == float("inf"), x, y)
    y = tl.where(x == 0.0, float("-inf"), y)
    return tl.where(x >= 0.0, y, float("nan"))


@triton.jit
def log1p_f32(x):
    u = 1.0 + x
    k = (bits(u) - 0x3f3504f3) >> 23
    m = made(bits(u) - (k << 23))
    n = k.to(tl.float32)
    lost = tl.where(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    f = tl.where(k == 0, x, m - 1.0)
    c = tl.where(k == 0, 0.0, tl.div_rn(lost, u))
    y = f + log_tail(f, tl.fma(n, -2.12194440e-4, c))
    r = tl.fma(n, 0.693359375, y)
    r = tl.where(x == float("inf"), x, r)
    r = tl.where(x == -1.0, float("-inf"), r)
    r = tl.where(x < -1.0, float("nan"), r)
    return tl.where((x == 0.0) | (x != x), x, r)


# ---- float32: error function


@triton.jit
def erf_f32(x):
    a = tl.abs(x)
    z = x * x
    t = at_most(a, 4.0) - 2.5
    p = tl.fma(z, tl.fma(z, tl.fma(z, 7.919902e-05, -0.0008030654), 0.005190726), -0.026855124)
    p = tl.fma(z, tl.fma(z, tl.fma(z, p, 0.11283618), -0.3761263), 0.12837917)
    q = tl.fma(t, tl.fma(t, tl.fma(t, -8.902305e-07, -4.9852787e-07), 1.5720007e-05), -1.7760463e-05)
    q = tl.fma(t, tl.fma(t, tl.fma(t, q, -8.110275e-05), 0.0002706186), -0.00025872662)
    q = tl.fma(t, tl.fma(t, tl.fma(t, q, -0.0005603602), 0.002797552), -0.00610911)
    q = tl.fma(t, tl.fma(t, tl.fma(t, q, 0.008622605), -0.008351769), 0.0054456885)
    q = tl.fma(t, tl.fma(t, q, -0.0021781847), 0.00040695237)
    y = tl.where(a >= 1.0, 1.0 - q, tl.fma(a, p, a))
    return copysign_f32(y, x)


# ---- rounding, remainders, neighbours


@triton.jit
def round_f32(x):                               # half to even
    a = tl.abs(x)
    return tl.where(a < 8388608.0, copysign_f32((a + 8388608.0) - 8388608.0, x), x)


@triton.jit
def round_f64(x):
    a = tl.abs(x)
    big = tl.full([], 4503599627370496.0, tl.float64)
    return tl.where(a < big, copysign_f64((a + big) - big, x), x)


@triton.jit
def truncated(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def sign_float(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def fmod_float(x, y):
    return libdevice.fmod(x, y)


@triton.jit
def remainder_float(x, y):
    r = libdevice.fmod(x, y)
    return tl.where((r != 0) & ((y < 0) != (r < 0)), r + y, r)


@triton.jit
def floor_div_float(x, y):
    r = libdevice.fmod(x, y)
    q = tl.div_rn(x - r, y) if x.dtype == tl.float32 else (x - r) / y
    plain = tl.div_rn(x, y) if x.dtype == tl.float32 else x / y
    q = tl.where((r != 0) & ((y < 0) != (r < 0)), q - 1, q)
    f = tl.floor(q)
    f = tl.where(q - f > 0.5, f + 1, f)
    f = tl.where(q == 0, plain * 0, f)          # a zero with the quotient's sign
    return tl.where(y == 0, plain, f)


@triton.jit
def nextafter_f32(x, y):
    b = bits(x)
    away = tl.where((y > x) == (x > 0.0), 1, -1)
    n = made(tl.where(x == 0.0, (bits(y) & -2147483648) | 1, b + away))
    n = tl.where(x == y, y, n)
    return tl.where((x != x) | (y != y), float("nan"), n)


@triton.jit
def nextafter_f64(x, y):
    b = x.to(tl.int64, bitcast=True)
    away = tl.where((y > x) == (x > 0.0), 1, -1).to(tl.int64)
    first = (y.to(tl.int64, bitcast=True) & -9223372036854775808) | 1
    n = tl.where(x == 0.0, first, b + away).to(tl.float64, bitcast=True)
    n = tl.where(x == y, y, n)
    return tl.where((x != x) | (y != y), x + y, n)


# ---- integers


@triton.jit
def trunc_div_int(a, b):
    d = tl.where((b == 0) | (b == -1), 1, b).to(a.dtype)
    return tl.where(b == -1, -a, tl.where(b == 0, 0, a // d)).to(a.dtype)


@triton.jit
def fmod_int(a, b):
    d = tl.where((b == 0) | (b == -1), 1, b).to(a.dtype)
    return (a % d).to(a.dtype)


@triton.jit
def floor_div_int(a, b):
    q, r = trunc_div_int(a, b), fmod_int(a, b)
    return (q - ((r != 0) & ((r < 0) != (b < 0))).to(a.dtype)).to(a.dtype)


@triton.jit
def remainder_int(a, b):
    r = fmod_int(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r).to(a.dtype)


@triton.jit
def trunc_div_unsigned(a, b):
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b).to(a.dtype)).to(a.dtype)


@triton.jit
def fmod_unsigned(a, b):
    return (a % tl.where(b == 0, 1, b).to(a.dtype)).to(a.dtype)


@triton.jit
def shl_int(a, b, BITS: tl.constexpr):
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a << tl.where(inside, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def shr_int(a, b, BITS: tl.constexpr):
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a >> tl.where(inside, b, 0).to(a.dtype), tl.where(a < 0, -1, 0)).to(a.dtype)


@triton.jit
def ipow_int(a, b, BITS: tl.constexpr):
    left = tl.where(b > 0, b, 0).to(a.dtype)
    square = a + (left - left)
    power = square - square + 1
    for _ in range(BITS):
        power = tl.where((left & 1) != 0, power * square, power).to(a.dtype)
        square = (square * square).to(a.dtype)
        left = (left >> 1).to(a.dtype)
    negative = tl.where(a == 1, 1, tl.where(a == -1, tl.where((b & 1) != 0, -1, 1), 0)).to(a.dtype)
    return tl.where(b < 0, negative, power).to(a.dtype)


@triton.jit
def ipow_unsigned(a, b, BITS: tl.constexpr):
    left = b + (a - a)
    square = a + (left - left)
    power = square - square + 1
    for _ in range(BITS):
        power = tl.where((left & 1) != 0, power * square, power).to(a.dtype)
        square = (square * square).to(a.dtype)
        left = (left >> 1).to(a.dtype)
    return power


# ---- random numbers: Philox4x32-10, the same words as prelude_random.h


@triton.jit
def philox(seed, counter):
    a, b = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    c, d = a ^ a, a ^ a
    k, m = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        high, low = tl.umulhi(c, 0xCD9E8D57), c * 0xCD9E8D57
        up, down = tl.umulhi(a, 0xD2511F53), a * 0xD2511F53
        a, c = high ^ b ^ k, up ^ d ^ m
        b, d = low, down
        k, m = k + 0x9E3779B9, m + 0xBB67AE85
    return a, b, c, d


@triton.jit
def unit_f32(w):
    return (w >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-8


@triton.jit
def unit_f64(v, w):
    high, low = (v >> 5).to(tl.int32).to(tl.float64), (w >> 6).to(tl.int32).to(tl.float64)
    return (high * 67108864.0 + low) * tl.full([], 1.1102230246251565e-16, tl.float64)


@triton.jit
def uniform_f32(seed, counter):
    a, b, c, d = philox(seed, counter)
    return unit_f32(a)


@triton.jit
def uniform_f64(seed, counter):
    a, b, c, d = philox(seed, counter)
    return unit_f64(a, b)


@triton.jit
def normal_f32(seed, counter):
    a, b, c, d = philox(seed, counter)
    u = unit_f32(a) + 5.9604644775390625e-8
    q = unit_f32(b) * 4.0
    t = q + 12582912.0
    r = (q - (t - 12582912.0)) * 1.57079633
    z = r * r
    n = bits(t) + 1
    sine = r + r * z * (-0.16666654 + z * (0.008332119 + z * -0.00019510568))
    cosine = 1.0 + z * (-0.5 + z * (0.041666646 + z * (-0.0013887311 + z * 2.4432498e-05)))
    y = made(bits(tl.where((n & 1) != 0, cosine, sine)) ^ ((n & 2) << 30))
    return tl.sqrt_rn(-2.0 * log_f32(u)) * y


@triton.jit
def normal_f64(seed, counter):
    a, b, c, d = philox(seed, counter)
    u = unit_f64(a, b) + tl.full([], 1.1102230246251565e-16, tl.float64)
    turn = unit_f64(c, d) * tl.full([], 6.283185307179586, tl.float64)
    return tl.sqrt(-2.0 * tl.log(u)) * tl.cos(turn)


# ---- folds: NaN wins in the larger and the smaller


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def product(a, b):
    return a * b
