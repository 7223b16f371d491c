// Rushlight's scalar math for float64, and what float32 takes from it. The rules of prelude.h
// hold.
#ifndef RUSHLIGHT_PRELUDE_F64_H
#define RUSHLIGHT_PRELUDE_F64_H

#define RL_P15(x, a, ...) ((a) + (x) * RL_P14(x, __VA_ARGS__))
#define RL_P16(x, a, ...) ((a) + (x) * RL_P15(x, __VA_ARGS__))
#define RL_P17(x, a, ...) ((a) + (x) * RL_P16(x, __VA_ARGS__))
#define RL_P18(x, a, ...) ((a) + (x) * RL_P17(x, __VA_ARGS__))
#define RL_P19(x, a, ...) ((a) + (x) * RL_P18(x, __VA_ARGS__))
#define RL_P20(x, a, ...) ((a) + (x) * RL_P19(x, __VA_ARGS__))
#define RL_P21(x, a, ...) ((a) + (x) * RL_P20(x, __VA_ARGS__))
#define RL_P22(x, a, ...) ((a) + (x) * RL_P21(x, __VA_ARGS__))
#define RL_P23(x, a, ...) ((a) + (x) * RL_P22(x, __VA_ARGS__))
#define RL_P24(x, a, ...) ((a) + (x) * RL_P23(x, __VA_ARGS__))
#define RL_P25(x, a, ...) ((a) + (x) * RL_P24(x, __VA_ARGS__))
#define RL_P26(x, a, ...) ((a) + (x) * RL_P25(x, __VA_ARGS__))

// ---- exact operations ---------------------------------------------------------------------------

RL_FN double rl_abs_f64(double x) { return __builtin_fabs(x); }
RL_FN double rl_sqrt_f64(double x) { return __builtin_sqrt(x); }
RL_FN double rl_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
RL_FN double rl_reciprocal_f64(double x) { return 1.0 / x; }
RL_FN double rl_floor_f64(double x) { return __builtin_floor(x); }
RL_FN double rl_ceil_f64(double x) { return __builtin_ceil(x); }
RL_FN double rl_trunc_f64(double x) { return __builtin_trunc(x); }
RL_FN double rl_round_f64(double x) { return __builtin_rint(x); }
RL_FN double rl_copysign_f64(double x, double s) { return __builtin_copysign(x, s); }
RL_FN bool rl_isnan_f64(double x) { return x != x; }
RL_FN bool rl_isinf_f64(double x) { return __builtin_fabs(x) == RL_INF_F64; }
RL_FN bool rl_isfinite_f64(double x) { return __builtin_fabs(x) < RL_INF_F64; }
RL_FN bool rl_signbit_f64(double x) { return rl_bits_f64(x) >> 63; }
RL_FN double rl_minimum_f64(double a, double b) {
    double m = a < b ? a : b;
    return rl_make_f64(rl_bits_f64(m) | -(rl_u64)(a != a));
}
RL_FN double rl_maximum_f64(double a, double b) {
    double m = a > b ? a : b;
    return rl_make_f64(rl_bits_f64(m) | -(rl_u64)(a != a));
}
RL_FN double rl_fmin_f64(double a, double b) { double m = a < b ? a : b; return b != b ? a : m; }
RL_FN double rl_fmax_f64(double a, double b) { double m = a > b ? a : b; return b != b ? a : m; }
RL_FN double rl_sign_f64(double x) { return (double)((x > 0) - (x < 0)); }
RL_FN double rl_nextafter_f64(double x, double y) {
    rl_u64 b = rl_bits_f64(x), away = (y > x) == (x > 0.0) ? 1ull : ~0ull;
    double n = rl_make_f64(x == 0.0 ? (rl_bits_f64(y) & 0x8000000000000000ull) | 1ull : b + away);
    n = x == y ? y : n;
    return ((x != x) | (y != y)) ? RL_NAN_F64 : n;
}

// ---- numbers in two parts -----------------------------------------------------------------------

struct rl_two { double high, low; };

RL_FN double rl_top_f64(double x) { // the upper 26 bits: the product of two such numbers is exact
    return rl_make_f64(rl_bits_f64(x) & 0xfffffffff8000000ull);
}
RL_FN rl_two rl_sum_f64(double a, double b) { // a + b exactly (Knuth)
    double s = a + b, d = s - a;
    rl_two out = {s, (a - (s - d)) + (b - d)};
    return out;
}
// a * b exactly (Dekker), while nothing leaves the range
RL_FN rl_two rl_product_f64(double a, double b) {
    double ah = rl_top_f64(a), al = a - ah, bh = rl_top_f64(b), bl = b - bh, p = a * b;
    rl_two out = {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
    return out;
}

// ---- exponentials -------------------------------------------------------------------------------

#define RL_LN2_HI_F64 0.6931471805598903 /* 42 bits: n ln2_hi is exact */
#define RL_LN2_LO_F64 5.497923018708371e-14

// n from the low bits that RL_MAGIC_F64 left, made positive: n + 2048. An arithmetic shift of 64
// bits is missing before AVX-512, so 2^n is built from positive halves.
RL_FN double rl_scale_f64(double p, double t, rl_u64 less) { // p * 2^(n - less)
    rl_u64 k = ((rl_bits_f64(t) + 2048) & 0xfff) - less, a = k >> 1, b = k - a;
    return p * rl_make_f64((a - 1) << 52) * rl_make_f64((b - 1) << 52);
}

// exp(x + low) = 2^n (high + rest), n still in t, for |x| < 1400, |low| far below x's last bits.
struct rl_exp_parts { double high, rest, t; };

RL_FN rl_exp_parts rl_exp_split_f64(double x, double low) {
    double t = x * 1.4426950408889634 + RL_MAGIC_F64, n = t - RL_MAGIC_F64;
    double a = x - n * RL_LN2_HI_F64, b = n * RL_LN2_LO_F64 - low, r = a - b, rest = (a - r) - b;
    double p = RL_P9(r, 0.5000000000000013, 0.16666666666666685, 0.04166666666651151,
                     0.008333333333315946, 0.001388888894789399, 0.0001984126989869244,
                     2.480148913400071e-05, 2.755723283072246e-06, 2.763154279179563e-07,
                     2.5112672367320198e-08);
    double tail = r + (r * r * p + rest), e = 1.0 + tail;
    rl_exp_parts out = {e, (1.0 - e) + tail, t};
    return out;
}
RL_FN double rl_exp_core_f64(double x, double low, rl_u64 less) { // exp(x + low) / 2^less
    rl_exp_parts e = rl_exp_split_f64(x, low);
    return rl_scale_f64(e.high, e.t, less);
}
RL_FN double rl_clamp_exp_f64(double x) {
    double c = x > 710.0 ? 710.0 : x;
    return c < -746.0 ? -746.0 : c;
}
RL_FN double rl_exp_f64(double x) { return rl_exp_core_f64(rl_clamp_exp_f64(x), 0.0, 0); }

RL_FN double rl_exp2_f64(double x) {
    double c = x > 1025.0 ? 1025.0 : x;
    c = c < -1076.0 ? -1076.0 : c;
    double t = c + RL_MAGIC_F64, f = c - (t - RL_MAGIC_F64);
    double fh = rl_top_f64(f), a = fh * 0.6931471675634384;
    double b = (f - fh) * 0.6931471675634384 + f * 1.2996506893889889e-08;
    double r = a + b, rest = (a - r) + b;
    double p = RL_P9(r, 0.5000000000000013, 0.16666666666666685, 0.04166666666651151,
                     0.008333333333315946, 0.001388888894789399, 0.0001984126989869244,
                     2.480148913400071e-05, 2.755723283072246e-06, 2.763154279179563e-07,
                     2.5112672367320198e-08);
    return rl_scale_f64(1.0 + (r + (r * r * p + rest)), t, 0);
}

RL_FN double rl_expm1_f64(double x) {
    double c = x > 710.0 ? 710.0 : x;
    c = c < -38.0 ? -38.0 : c;
    double t = c * 1.4426950408889634 + RL_MAGIC_F64, n = t - RL_MAGIC_F64;
    double a = c - n * RL_LN2_HI_F64, b = n * RL_LN2_LO_F64, r = a - b, rest = (a - r) - b;
    double p = RL_P10(r, 0.5, 0.16666666666666685, 0.041666666666666685, 0.008333333333315946,
                      0.0013888888888873314, 0.0001984126989869244, 2.480158734908577e-05,
                      2.755723283072246e-06, 2.755725196139764e-07, 2.5112672367320198e-08,
                      2.0921714529269077e-09);
    double tail = r * r * p + rest * (1.0 + r), e = r + tail, e_low = (r - e) + tail;
    // At half scale, as in float32: 2^(n - 1).
    double s = rl_make_f64((rl_bits_f64(t) + 1022) << 52), u = s - 0.5, v = s * e;
    rl_two w = rl_sum_f64(u, v);
    double y = 2.0 * (w.high + (w.low + s * e_low));
    return n == 0.0 ? (x == 0.0 ? x : e) : y;
}

RL_FN double rl_sigmoid_f64(double x) {
    double e = rl_exp_f64(-__builtin_fabs(x));
    double d = 1.0 + e, lost = (1.0 - d) + e, y = (x < 0.0 ? e : 1.0) / d;
    return y - y * lost * (1.457 - 0.5 * d);
}

RL_FN double rl_sinh_small_f64(double a) {
    double z = a * a;
    return a + a * z * RL_P7(z, 0.16666666666666666, 0.008333333333333519, 0.0001984126984113355,
                             2.7557319273633615e-06, 2.5052098436572166e-08, 1.6060161067945112e-10,
                             7.581135625977607e-13, 4.420998513320708e-15);
}
RL_FN double rl_sinh_f64(double x) {
    double a = __builtin_fabs(x), h = rl_exp_core_f64(a > 712.0 ? 712.0 : a, 0.0, 1); // e^a / 2
    double y = a < 1.0 ? rl_sinh_small_f64(a) : h - 0.25 / h;
    return x != x ? x : __builtin_copysign(y, x);
}
RL_FN double rl_cosh_f64(double x) {
    double a = __builtin_fabs(x), h = rl_exp_core_f64(a > 712.0 ? 712.0 : a, 0.0, 1);
    return x != x ? x : h + 0.25 / h;
}
RL_FN double rl_tanh_f64(double x) {
    double a = __builtin_fabs(x), z = a * a;
    double small = a + a * z * RL_P9(z, -0.3333333333333202, 0.13333333333128894,
                                     -0.053968253857114366, 0.02186948553025608,
                                     -0.008863188609226065, 0.0035916725560477683,
                                     -0.0014529849909981373, 0.000578452004150776,
                                     -0.00020918621305517017, 5.025124787469341e-05);
    double large = 1.0 - 2.0 / (rl_exp_core_f64(a > 300.0 ? 600.0 : 2.0 * a, 0.0, 0) + 1.0);
    return x != x ? x : __builtin_copysign(a < 0.55 ? small : large, x);
}

// ---- logarithms ---------------------------------------------------------------------------------

RL_FN double rl_log_ends_f64(double x, double y) {
    y = x == RL_INF_F64 ? x : y;
    y = x == 0.0 ? -RL_INF_F64 : y;
    y = x < 0.0 ? RL_NAN_F64 : y;
    return x != x ? x : y;
}

// x = 2^n (1 + f); log(1 + f) = f - (square - bend), with bend = s (square + z p(z)), s = f/(2 +
// f), z = s^2, square = f^2/2.
struct rl_log_parts { double n, f, square, bend; };

RL_FN void rl_log_polynomial_f64(rl_log_parts &out) {
    double f = out.f, s = f / (2.0 + f), z = s * s;
    out.square = 0.5 * f * f;
    out.bend = s * (out.square + z * RL_P6(z, 0.6666666666666736, 0.39999999999405034,
                                           0.2857142874423165, 0.22222198403083,
                                           0.18183572504150583, 0.1531385313789698,
                                           0.14797840067142343));
}
RL_FN rl_log_parts rl_log_split_f64(double x) { // only n and f
    bool tiny = x < 2.2250738585072014e-308;
    rl_u64 b = rl_bits_f64(tiny ? x * 18014398509481984.0 : x)
               + (0x3ff0000000000000ull - 0x3fe6a09e00000000ull);
    double n = rl_make_f64((b >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    double m = rl_make_f64((b & 0xfffffffffffffull) + 0x3fe6a09e00000000ull);
    rl_log_parts out = {tiny ? n - 54.0 : n, m - 1.0, 0.0, 0.0};
    return out;
}

RL_FN double rl_log_f64(double x) {
    rl_log_parts l = rl_log_split_f64(x);
    rl_log_polynomial_f64(l);
    double y = l.n * RL_LN2_HI_F64 + (l.f - (l.square - (l.bend + l.n * RL_LN2_LO_F64)));
    return rl_log_ends_f64(x, y);
}
RL_FN double rl_log1p_f64(double x) {
    double u = 1.0 + x, lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
    rl_log_parts l = rl_log_split_f64(u);
    double c = l.n == 0.0 ? 0.0 : lost / u;
    l.f = l.n == 0.0 ? x : l.f;
    rl_log_polynomial_f64(l);
    double y = l.n * RL_LN2_HI_F64 + (l.f - (l.square - (l.bend + (l.n * RL_LN2_LO_F64 + c))));
    y = x == RL_INF_F64 ? x : y;
    y = x == -1.0 ? -RL_INF_F64 : y;
    y = x < -1.0 ? RL_NAN_F64 : y;
    return ((x == 0.0) | (x != x)) ? x : y;
}
// log(1 + f) in two parts, times the two parts of 1/log(base); n log_base(2) likewise.
RL_FN double rl_log_base_f64(double x, double high, double low, double two_high, double two_low) {
    rl_log_parts l = rl_log_split_f64(x);
    rl_log_polynomial_f64(l);
    double h = rl_top_f64(l.f - l.square), t = ((l.f - h) - l.square) + l.bend;
    rl_two sum = rl_sum_f64(l.n * two_high, h * high);
    double rest = (t + h) * low + t * high + l.n * two_low;
    return rl_log_ends_f64(x, sum.high + (sum.low + rest));
}
RL_FN double rl_log2_f64(double x) {
    return rl_log_base_f64(x, 1.4426950216293335, 1.9259629911266175e-08, 1.0, 0.0);
}
RL_FN double rl_log10_f64(double x) {
    return rl_log_base_f64(x, 0.4342944771051407, 4.798111141615973e-09, 0.30102999566395283,
           2.8363394551044964e-14);
}

RL_FN double rl_asinh_f64(double x) {
    double a = __builtin_fabs(x), z = a * a;
    bool big = a > 268435456.0;
    double y = rl_log1p_f64(big ? a - 1.0 : a + z / (1.0 + __builtin_sqrt(1.0 + z)));
    y = big ? y + 0.6931471805599453 : y;
    return ((x == 0.0) | (x != x)) ? x : __builtin_copysign(y, x);
}
RL_FN double rl_acosh_f64(double x) {
    // log1p(t + sqrt(2 t + t^2)), t = x - 1, with the rounding of the root and of the sum put back.
    bool big = x > 268435456.0;
    double t = x - 1.0, w = 2.0 * t + t * t, s = __builtin_sqrt(w);
    rl_two square = rl_product_f64(s, s), u = rl_sum_f64(t, s);
    double low = (s > 0.0 ? ((w - square.high) - square.low) / (2.0 * s) : 0.0) + u.low;
    double y = rl_log1p_f64(big ? t : u.high);
    y = big ? y + 0.6931471805599453 : y + low / (1.0 + u.high);
    return x < 1.0 ? RL_NAN_F64 : y;
}
RL_FN double rl_atanh_f64(double x) {
    double a = __builtin_fabs(x), y = 0.5 * rl_log1p_f64(2.0 * a / (1.0 - a));
    y = a < 1e-9 ? a : y; // also the least denormal, half of whose double would not come back
    y = a > 1.0 ? RL_NAN_F64 : y;
    return x != x ? x : __builtin_copysign(y, x);
}

// ---- power --------------------------------------------------------------------------------------
// exp(y log x) with the logarithm to some 66 bits: it is multiplied by up to 745 before the
// exponential.

RL_FN rl_two rl_log_two_f64(double x) {
    rl_log_parts l = rl_log_split_f64(x);
    double f = l.f;
    rl_two d = rl_sum_f64(2.0, f);
    double s = f / d.high;
    rl_two back = rl_product_f64(s, d.high);
    double s_low = (((f - back.high) - back.low) - s * d.low) / d.high;
    // 2 s + s^3 (2/3 + z p), s^3 * 2/3 in two parts.
    rl_two z = rl_product_f64(s, s);
    double z_low = z.low + 2.0 * s * s_low;
    rl_two q = rl_sum_f64(0.6666666666666666, z.high * RL_P8(z.high, 0.4, 0.2857142857142709,
                                                             0.22222222222620702,
                                                             0.18181818124364202,
                                                             0.15384620342875024,
                                                             0.1333306581115873,
                                                             0.11773759436631623,
                                                             0.10341343170254279,
                                                             0.11567467361890085));
    double q_low = q.low + 3.700743415417188e-17;
    rl_two c = rl_product_f64(z.high, q.high);
    double c_low = c.low + (z.high * q_low + z_low * q.high);
    rl_two e = rl_product_f64(s, c.high);
    double e_low = e.low + (s * c_low + s_low * c.high);
    rl_two a = rl_sum_f64(l.n * RL_LN2_HI_F64, 2.0 * s), b = rl_sum_f64(a.high, e.high);
    double rest = a.low + b.low + (2.0 * s_low + e_low + l.n * RL_LN2_LO_F64);
    rl_two out = {b.high + rest, 0.0};
    out.low = (b.high - out.high) + rest;
    return out;
}

RL_FN double rl_pow_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    rl_two l = rl_log_two_f64(a);
    double bounded = b > 1e300 ? __builtin_copysign(1e300, y) : y; // Dekker's product stays finite
    rl_two e = rl_product_f64(bounded, l.high);
    double low = e.low + bounded * l.low, high = e.high > 720.0 ? 720.0 : e.high;
    high = high < -760.0 ? -760.0 : high;
    low = high == e.high ? low : 0.0;
    double p = rl_exp_core_f64(high, low, 0);
    bool whole = __builtin_floor(y) == y, odd = whole & (__builtin_floor(y * 0.5) != y * 0.5);
    bool grows = (a > 1.0) == (y > 0.0);
    p = ((a == 0.0) | (a == RL_INF_F64) | (b == RL_INF_F64)) ? (grows ? RL_INF_F64 : 0.0) : p;
    p = (a == 1.0) ? 1.0 : p;
    p = (odd & (bool)(rl_bits_f64(x) >> 63)) ? -p : p;
    p = ((x < 0.0) & (x > -RL_INF_F64) & !whole) ? RL_NAN_F64 : p;
    p = ((x != x) | (y != y)) ? RL_NAN_F64 : p;
    return ((x == 1.0) | (y == 0.0)) ? 1.0 : p;
}

// ---- trigonometry -------------------------------------------------------------------------------
// 2/pi in signed digits of 25 bits. An argument whose last bit is worth 2^(25 j) or more multiplies
// the digits before j to whole turns, so the product starts at digit j. Split into 28 and 25 bits,
// the argument times a digit is exact, and so is the sum of the two products of one weight. Six
// digits hold the double nearest to a multiple of pi/2 (2^-62 away) with two to spare, for every
// exponent alike: no branch.
static const double rl_two_over_pi_digits[48] = {
    1, -12193017, -4638448, 11096033, 7699743, 10918840, 3594405, 13409826, -7323138, 10667864,
    -8720618, -15877853, 14918693, -4563967, -7189573, -16455479, 1900062, -2737822, 10919164,
    -12316240, -11342924, 9477428, -14939731, 3129121, -13004330, 7538342, 15192690, 2292830,
    -2125180, -10223853, -2175, 13371384, -13692533, 11801818, 8238298, -624322, 11574133,
    -1521683, -5793797, -15287660, -4536340, -3415306, 15998184, -4435307, -13719872, -9701852,
    -1878206, 2818456
};

struct rl_turn_f64 { double r, low; rl_u64 quadrant; };

RL_FN double rl_mod4_f64(double x) { return x - 4.0 * __builtin_rint(x * 0.25); }

RL_FN rl_turn_f64 rl_reduce_f64(double x) {
    rl_u64 e = rl_bits_f64(x) >> 52 & 0x7ff;
    // (e - 1075)/25 by multiplication, in 32 bits' range; 0 for arguments below 2^53.
    rl_u64 over = e > 1075 ? e - 1075 : 0, j = over * 5243 >> 17;
    const double *digit = rl_two_over_pi_digits;
    double v = x * rl_make_f64((1023 - 25 * j) << 52);
    double h = rl_make_f64(rl_bits_f64(v) & 0xfffffffffe000000ull), l = v - h; // 28 and 25 bits
    double d0 = digit[j], d1 = digit[j + 1] * 0x1p-25, d2 = digit[j + 2] * 0x1p-50;
    double d3 = digit[j + 3] * 0x1p-75;
    double d4 = digit[j + 4] * 0x1p-100, d5 = digit[j + 5] * 0x1p-125, d6 = digit[j + 6] * 0x1p-150;
    double d7 = digit[j + 7] * 0x1p-175;
    double p0 = rl_mod4_f64(h * d0), p1 = rl_mod4_f64(h * d1 + l * d0);
    double p2 = rl_mod4_f64(h * d2 + l * d1);
    double p3 = rl_mod4_f64(h * d3 + l * d2), p4 = h * d4 + l * d3, p5 = h * d5 + l * d4;
    double p6 = h * d6 + l * d5, p7 = h * d7 + l * d6;
    rl_two a = rl_sum_f64(p0, p1), b = rl_sum_f64(a.high, p2), c = rl_sum_f64(b.high, p3);
    double t = (c.high + p4) + RL_MAGIC_F64, n = t - RL_MAGIC_F64;
    rl_two s = rl_sum_f64(c.high - n, p4), u = rl_sum_f64(s.high, a.low + b.low + c.low);
    rl_two w = rl_sum_f64(u.high, p5);
    double low = s.low + u.low + w.low + (p6 + p7);
    // Times pi/2, in two parts.
    double q = w.high, qh = rl_top_f64(q);
    double big = qh * 1.5707963109016418;
    double rest = (q - qh) * 1.5707963109016418 + q * 1.5893254773528196e-08
                  + low * 1.5707963267948966;
    double r = big + rest;
    rl_turn_f64 out = {r, (big - r) + rest, rl_bits_f64(t)};
    return out;
}
RL_FN double rl_sin_core_f64(double r, double low) {
    double z = r * r;
    return r + (r * z * RL_P5(z, -0.1666666666666663, 0.008333333333321894, -0.00019841269829419753,
                              2.755731356256736e-06, -2.5050738337308127e-08,
                              1.5895664943617217e-10) + low * (1.0 - 0.5 * z));
}
RL_FN double rl_cos_core_f64(double r, double low) {
    double z = r * r, half = 0.5 * z, w = 1.0 - half;
    double p = RL_P5(z, 0.041666666666666595, -0.001388888888887339, 2.4801587289041504e-05,
                     -2.755731422829501e-07, 2.087570669777651e-09, -1.1358798905706606e-11);
    return w + (((1.0 - w) - half) + (z * z * p - r * low));
}
RL_FN double rl_sincos_f64(double x, rl_u64 quarter) {
    rl_turn_f64 a = rl_reduce_f64(x);
    rl_u64 q = a.quadrant + quarter;
    double s = rl_sin_core_f64(a.r, a.low), c = rl_cos_core_f64(a.r, a.low), y = (q & 1) ? c : s;
    return rl_make_f64(rl_bits_f64(y) ^ ((q & 2) << 62));
}
RL_FN double rl_sin_f64(double x) {
    // Below 1e-9 the sine is x, and the split would lose a denormal's low bits. Blended by mask: a
    // select here becomes a branch around the table's loads, and the loop stays scalar.
    rl_u64 keep = __builtin_fabs(x) < 1e-9 ? ~0ull : 0ull;
    return rl_make_f64((rl_bits_f64(x) & keep) | (rl_bits_f64(rl_sincos_f64(x, 0)) & ~keep));
}
RL_FN double rl_cos_f64(double x) { return rl_sincos_f64(x, 1); }
RL_FN double rl_tan_f64(double x) {
    rl_turn_f64 a = rl_reduce_f64(x);
    double s = rl_sin_core_f64(a.r, a.low), z = a.r * a.r, half = 0.5 * z, w = 1.0 - half;
    // Both once more, as what the rounding of their last sum lost; then a quotient with its
    // remainder.
    double s_tail = a.r * z * RL_P5(z, -0.1666666666666663, 0.008333333333321894,
                                    -0.00019841269829419753, 2.755731356256736e-06,
                                    -2.5050738337308127e-08, 1.5895664943617217e-10) + a.low * (1.0
                                    - half);
    double s_low = (a.r - s) + s_tail;
    double p = RL_P5(z, 0.041666666666666595, -0.001388888888887339, 2.4801587289041504e-05,
                     -2.755731422829501e-07, 2.087570669777651e-09, -1.1358798905706606e-11);
    double c_tail = ((1.0 - w) - half) + (z * z * p - a.r * a.low), c = w + c_tail;
    double c_low = (w - c) + c_tail;
    bool odd = a.quadrant & 1;
    double top = odd ? -c : s, top_low = odd ? -c_low : s_low, under = odd ? s : c;
    double under_low = odd ? s_low : c_low;
    double inverse = 1.0 / under, q = top * inverse;
    rl_two back = rl_product_f64(q, under);
    double y = q + (((top - back.high) - back.low) + (top_low - q * under_low)) * inverse;
    rl_u64 keep = __builtin_fabs(x) < 1e-9 ? ~0ull : 0ull; // as in the sine
    return rl_make_f64((rl_bits_f64(x) & keep) | (rl_bits_f64(y) & ~keep));
}

RL_FN double rl_atan2_f64(double y, double x) {
    double a = __builtin_fabs(y), b = __builtin_fabs(x);
    double low = a < b ? a : b, high = a < b ? b : a;
    double shrink = high > 1e300 ? 0.25 : 1.0, grow = high < 1e-290 ? 18014398509481984.0 : 1.0;
    low = low * shrink * grow;
    high = high * shrink * grow;
    high = high == 0.0 ? 1.0 : high;
    bool infinite = high == RL_INF_F64; // then 0 or, both infinite, pi/4
    low = infinite ? (low == high ? 1.0 : 0.0) : low;
    high = infinite ? 1.0 : high;
    // Past tan(pi/8): pi/4 + atan((low - high)/(low + high)).
    bool past = low > 0.41421356237309503 * high;
    double t = (past ? low - high : low) / (past ? low + high : high);
    double z = t * t;
    double u = t * z * RL_P10(z, -0.33333333333333187, 0.1999999999995112, -0.14285714279979833,
                              0.11111110773716085, -0.0909089750092345, 0.07692055972548287,
                              -0.06663058821345194, 0.05847578276129919, -0.05037972046979429,
                              0.03803220434462914, -0.017873209395127123);
    // c + sign (t + u), c one of 0, pi/4, pi/2, 3 pi/4, pi, in two parts.
    bool steep = a > b, back = rl_bits_f64(x) >> 63;
    double c = past ? 0.7853981633974483 : 0.0, c_low = past ? 3.061616997868383e-17 : 0.0;
    c = steep ? 1.5707963267948966 - c : c;
    c_low = steep ? 6.123233995736766e-17 - c_low : c_low;
    c = back ? 3.141592653589793 - c : c;
    c_low = back ? 1.2246467991473532e-16 - c_low : c_low;
    double sign = steep != back ? -1.0 : 1.0, v = c + sign * t, rest = (c - v) + sign * t;
    rest = c == 0.0 ? 0.0 : rest;
    double angle = v + (sign * u + (c_low + rest));
    angle = c == 0.0 ? t + u : angle;
    return ((x != x) | (y != y)) ? RL_NAN_F64 : __builtin_copysign(angle, y);
}
RL_FN double rl_atan_f64(double x) { return rl_atan2_f64(x, 1.0); }

RL_FN double rl_asin_f64(double x) {
    double a = __builtin_fabs(x);
    bool far = a > 0.5;
    double z = far ? (1.0 - a) * 0.5 : a * a, s = far ? __builtin_sqrt(z) : a;
    double p = s * z * RL_P12(z, 0.1666666666666676, 0.07499999999971095, 0.044642857174224136,
                              0.03038194272950777, 0.022372214318213676, 0.017351624732641444,
                              0.013980662389073067, 0.011400238094136402, 0.01077270078341017,
                              0.0037352343200085705, 0.021636856974466507, -0.020898809490814328,
                              0.03256583927490458);
    // sqrt(z) = top + left
    double top = rl_top_f64(s), left = s > 0.0 ? (z - top * top) / (s + top) : 0.0;
    double w = 1.5707963267948966 - 2.0 * top, rest = (1.5707963267948966 - w) - 2.0 * top;
    double y = far ? w + (rest - (2.0 * (p + left) - 6.123233995736766e-17)) : a + p;
    return x != x ? x : __builtin_copysign(y, x);
}
RL_FN double rl_acos_f64(double x) {
    double a = __builtin_fabs(x);
    bool far = a > 0.5;
    double z = far ? (1.0 - a) * 0.5 : a * a, s = far ? __builtin_sqrt(z) : x;
    double p = s * z * RL_P12(z, 0.1666666666666676, 0.07499999999971095, 0.044642857174224136,
                              0.03038194272950777, 0.022372214318213676, 0.017351624732641444,
                              0.013980662389073067, 0.011400238094136402, 0.01077270078341017,
                              0.0037352343200085705, 0.021636856974466507, -0.020898809490814328,
                              0.03256583927490458);
    double top = rl_top_f64(s), left = s > 0.0 ? (z - top * top) / (s + top) : 0.0;
    double near = 1.5707963267948966 - (x + (p - 6.123233995736766e-17));
    double right = 2.0 * (top + (p + left));
    double w = 3.141592653589793 - 2.0 * top, rest = (3.141592653589793 - w) - 2.0 * top;
    double back = w + (rest - (2.0 * (p + left) - 1.2246467991473532e-16));
    double y = far ? (x < 0.0 ? back : right) : near;
    return a > 1.0 ? RL_NAN_F64 : x != x ? x : y;
}

// ---- error function, gamma ----------------------------------------------------------------------

// erfc a = exp(-a^2) p(u)/d, d = a + 2, u = (a - 2)/d, for 0 <= a <= 28. Every factor's rounding
// error is kept and put back at the end as one first-order term, before the scaling, which may
// round to a denormal.
RL_FN double rl_erfc_core_f64(double a) {
    double d = a + 2.0, d_low = a > 2.0 ? (a - d) + 2.0 : (2.0 - d) + a;
    double inverse = 1.0 / d, u = (a - 2.0) / d;
    double t = u * RL_P24(u, -0.6871606844138107, 0.2794720925560516, -0.03644223150686165,
                          -0.021510661889332525, 0.006479185067076758, 0.0030906120559057206,
                          -0.0008372960505910387, -0.0006630734668770123, 3.437131547093667e-05,
                          0.00014447046812330708, 3.414965458815173e-05, -2.169482490664285e-05,
                          -1.6123995317725995e-05, -1.1305592127549553e-06, 3.6519917431957478e-06,
                          2.014946902833658e-06, -1.2141586044526318e-08, -5.952902841618416e-07,
                          -3.0921171745012245e-07, 2.689950307306526e-08, 1.0176083409358192e-07,
                          3.35606189709666e-08, -9.402021008601604e-09, -7.926158383232553e-09,
                          -1.2954504669583902e-09);
    double p = 1.021582705242023 + t, p_low = (1.021582705242023 - p) + t;
    rl_two square = rl_product_f64(a, a);
    rl_exp_parts e = rl_exp_split_f64(-square.high, -square.low);
    rl_two n = rl_product_f64(p, e.high);
    double q = n.high * inverse;
    rl_two back = rl_product_f64(q, d);
    double lost = ((n.high - back.high) - back.low) + (n.low + p_low * e.high
                  + p * e.rest - q * d_low);
    return rl_scale_f64(q + lost * inverse, e.t, 0);
}
RL_FN double rl_erf_small_f64(double x) { // for |x| <= 1: erf x - x
    return x * RL_P11(x * x, 0.12837916709551256, -0.3761263890318347, 0.11283791670943219,
                      -0.026866170643026575, 0.005223977605729029, -0.000854832591965114,
                      0.0001205529346521502, -1.4924712509522804e-05, 1.6447154868122808e-06,
                      -1.6206608356867929e-07, 1.3712628814674872e-08, -7.783072047256754e-10);
}
RL_FN double rl_erf_f64(double x) {
    double a = __builtin_fabs(x), c = rl_erfc_core_f64(a > 7.0 ? 7.0 : a);
    return x != x ? x : a < 1.0 ? x + rl_erf_small_f64(x) : __builtin_copysign(1.0 - c, x);
}
RL_FN double rl_erfc_f64(double x) {
    double a = __builtin_fabs(x), c = rl_erfc_core_f64(a > 28.0 ? 28.0 : a);
    double y = x < 0.0 ? 2.0 - c : c;
    double small = rl_erf_small_f64(x); // 1 - erf x, from the half where that is nearer
    y = a < 0.625 ? (x < 0.25 ? 1.0 - (x + small) : 0.5 - ((x - 0.5) + small)) : y;
    return x != x ? x : y;
}

// Up to 8.5 the recurrence leads to [1.25, 2.5], where (x - 2) p(x - 2) keeps the root at 2, and
// the logarithm of x the root at 1. Above, Stirling. Below 0 the reflection, whose roots between
// the poles have only absolute accuracy.
RL_FN double rl_lgamma_f64(double x) {
    double a = __builtin_fabs(x), z = a > 8.5 ? 2.0 : a, product = 1.0;
    bool less = z < 1.25, least = z < 0.25;
    product = less ? z * (least ? z + 1.0 : 1.0) : product;
    z = less ? (least ? z + 2.0 : z + 1.0) : z;
#define RL_DOWN                                     \
    {                                               \
        bool step = z > 2.5;                        \
        z = step ? z - 1.0 : z;                     \
        product = step ? product * z : product;     \
    }
    RL_DOWN RL_DOWN RL_DOWN RL_DOWN RL_DOWN RL_DOWN
#undef RL_DOWN
    double t = less ? (least ? a : a - 1.0) : z - 2.0; // exact, as z itself may not be
    double p = t * RL_P21(t, 0.42278433509846713, 0.3224670334241132, -0.06735230105319709,
                          0.020580808427788973, -0.007385551028733133, 0.0028905103304221512,
                          -0.0011927539102266798, 0.0005096695347236693, -0.00022315477492348404,
                          9.945734800891714e-05, -4.492619737591542e-05, 2.0508773994859345e-05,
                          -9.438548214297163e-06, 4.3662486921441005e-06, -2.049845634887546e-06,
                          9.811155797802458e-07, -3.9940392545496415e-07, 1.8099601949467924e-07,
                          -2.136115140463512e-07, 2.2682816198008506e-08, 7.737957574702144e-08,
                          8.513138304773843e-08);
    bool high = a > 8.5;
    double l = rl_log_f64(high ? a : product), w = 1.0 / a;
    double tail = w * RL_P6(w * w, 0.08333333333333333, -0.002777777777767089,
                            0.0007936507863801739, -0.0005952358805430728, 0.000841398953557228,
                            -0.0018869505918651564, 0.005002588071884225);
    double stirling = (a - 0.5) * (l - 1.0) + (0.41893853320467274 + tail);
    double y = high ? stirling : less ? p - l : p + l;
    // Near 0 the product is a, and the reflection would take the logarithm of its square.
    y = a < 1e-20 ? -l : y;
    // log(pi / |x sin(pi x)|) - lgamma(-x)
    double q = __builtin_fabs(a - __builtin_rint(a));
    double by_sin = rl_sin_core_f64(q * 3.141592653589793, 0.0);
    double by_cos = rl_cos_core_f64((0.5 - q) * 3.141592653589793, 0.0);
    double s = q > 0.25 ? by_cos : by_sin;
    double mirrored = 1.1447298858494002 - rl_log_f64(a * s) - y;
    mirrored = q == 0.0 ? RL_INF_F64 : mirrored;
    y = ((x < 0.0) & (a >= 1e-20)) ? mirrored : y;
    y = ((a == RL_INF_F64) | ((a > 2.5563481638716906e305) & (x > 0.0))) ? RL_INF_F64 : y;
    return x != x ? x : y;
}
RL_FN float rl_lgamma_f32(float x) { return (float)rl_lgamma_f64(x); }

#endif
