// Rushlight's scalar math: integers, float32, half storage, casts, random numbers. prelude_f64.h adds float64.
//
// Generated kernels are this text followed by one loop; there is no #include and nothing to link, not even libm.
// Every function is branch-free (selects only), so that the compiler vectorises the loop it stands in, and gives
// the same bits on every x86-64 instruction set: only IEEE add, sub, mul, div, sqrt, conversions and integer
// operations, each rounded once, in the order written. There is no fma, because x86-64-v2 has none; where a
// product must be exact its factors are short enough to be (Cody-Waite), or the work is done in double.
// Compile with -ffp-contract=off -fno-math-errno -fno-trapping-math, and never with -ffast-math.
// Polynomials: tools/fit_polynomials.py. Bounds and speeds: docs/math.md.
#ifndef RUSHLIGHT_PRELUDE_H
#define RUSHLIGHT_PRELUDE_H

typedef signed char rl_i8;
typedef short rl_i16;
typedef int rl_i32;
typedef long long rl_i64;
typedef unsigned char rl_u8;
typedef unsigned short rl_u16;
typedef unsigned int rl_u32;
typedef unsigned long long rl_u64;

#define RL_FN static inline __attribute__((always_inline, unused))
#define RL_INF_F32 __builtin_inff()
#define RL_NAN_F32 __builtin_nanf("")
#define RL_INF_F64 __builtin_inf()
#define RL_NAN_F64 __builtin_nan("")

RL_FN rl_u32 rl_bits_f32(float x) { rl_u32 b; __builtin_memcpy(&b, &x, 4); return b; }
RL_FN float rl_make_f32(rl_u32 b) { float x; __builtin_memcpy(&x, &b, 4); return x; }
RL_FN rl_u64 rl_bits_f64(double x) { rl_u64 b; __builtin_memcpy(&b, &x, 8); return b; }
RL_FN double rl_make_f64(rl_u64 b) { double x; __builtin_memcpy(&x, &b, 8); return x; }

// Adding this to a small number rounds it to the nearest integer (ties to even) and leaves that integer in the low
// bits: an integer conversion without one, which is undefined for NaN and missing for 64 bits before AVX-512.
#define RL_MAGIC_F32 12582912.0f        /* 1.5 * 2^23 */
#define RL_MAGIC_F64 6755399441055744.0 /* 1.5 * 2^52 */

// Horner's rule from the highest coefficient down; written out so that every loop around it stays flat.
#define RL_P1(x, a, b) ((a) + (x) * (b))
#define RL_P2(x, a, ...) ((a) + (x) * RL_P1(x, __VA_ARGS__))
#define RL_P3(x, a, ...) ((a) + (x) * RL_P2(x, __VA_ARGS__))
#define RL_P4(x, a, ...) ((a) + (x) * RL_P3(x, __VA_ARGS__))
#define RL_P5(x, a, ...) ((a) + (x) * RL_P4(x, __VA_ARGS__))
#define RL_P6(x, a, ...) ((a) + (x) * RL_P5(x, __VA_ARGS__))
#define RL_P7(x, a, ...) ((a) + (x) * RL_P6(x, __VA_ARGS__))
#define RL_P8(x, a, ...) ((a) + (x) * RL_P7(x, __VA_ARGS__))
#define RL_P9(x, a, ...) ((a) + (x) * RL_P8(x, __VA_ARGS__))
#define RL_P10(x, a, ...) ((a) + (x) * RL_P9(x, __VA_ARGS__))
#define RL_P11(x, a, ...) ((a) + (x) * RL_P10(x, __VA_ARGS__))
#define RL_P12(x, a, ...) ((a) + (x) * RL_P11(x, __VA_ARGS__))
#define RL_P13(x, a, ...) ((a) + (x) * RL_P12(x, __VA_ARGS__))
#define RL_P14(x, a, ...) ((a) + (x) * RL_P13(x, __VA_ARGS__))

// ---- float32: exact operations -------------------------------------------------------------------------------

RL_FN float rl_abs_f32(float x) { return __builtin_fabsf(x); }
RL_FN float rl_sqrt_f32(float x) { return __builtin_sqrtf(x); }
RL_FN float rl_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
RL_FN float rl_reciprocal_f32(float x) { return 1.0f / x; }
RL_FN float rl_floor_f32(float x) { return __builtin_floorf(x); }
RL_FN float rl_ceil_f32(float x) { return __builtin_ceilf(x); }
RL_FN float rl_trunc_f32(float x) { return __builtin_truncf(x); }
RL_FN float rl_round_f32(float x) { return __builtin_rintf(x); } // half to even
RL_FN float rl_copysign_f32(float x, float s) { return __builtin_copysignf(x, s); }
RL_FN bool rl_isnan_f32(float x) { return x != x; }
RL_FN bool rl_isinf_f32(float x) { return __builtin_fabsf(x) == RL_INF_F32; }
RL_FN bool rl_isfinite_f32(float x) { return __builtin_fabsf(x) < RL_INF_F32; }
RL_FN bool rl_signbit_f32(float x) { return rl_bits_f32(x) >> 31; }
// NaN wins in minimum and maximum and loses in fmin and fmax; of equal zeros the second argument is returned.
RL_FN float rl_minimum_f32(float a, float b) { float m = a < b ? a : b; return a != a ? a : m; }
RL_FN float rl_maximum_f32(float a, float b) { float m = a > b ? a : b; return a != a ? a : m; }
RL_FN float rl_fmin_f32(float a, float b) { float m = a < b ? a : b; return b != b ? a : m; }
RL_FN float rl_fmax_f32(float a, float b) { float m = a > b ? a : b; return b != b ? a : m; }
// As torch: the sign of either zero is +0, and of NaN is 0.
RL_FN float rl_sign_f32(float x) { return (float)((x > 0) - (x < 0)); }

// ---- float32: exponentials -----------------------------------------------------------------------------------

// 2^n * p for |n| <= 252, in two steps so that a denormal result is rounded once, at the end.
RL_FN float rl_scale_f32(float p, rl_i32 n) {
    rl_i32 a = n >> 1, b = n - a;
    return p * rl_make_f32((rl_u32)(a + 127) << 23) * rl_make_f32((rl_u32)(b + 127) << 23);
}

// The integer that adding RL_MAGIC_F32 left in the low bits; the mask keeps NaN within what rl_scale_f32 takes.
RL_FN rl_i32 rl_low_bits_f32(float t) { return (rl_i32)((rl_bits_f32(t) & 0x3ff) ^ 0x200) - 0x200; }

// x - n ln2 as two parts: n ln2_hi is exact, ln2_hi having 9 bits.
#define RL_LN2_HI_F32 0.693359375f
#define RL_LN2_LO_F32 -2.12194440e-4f

RL_FN float rl_exp_f32(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    float t = c * 1.44269504f + RL_MAGIC_F32, n = t - RL_MAGIC_F32;
    float r = (c - n * RL_LN2_HI_F32) - n * RL_LN2_LO_F32;
    float p = RL_P4(r, 0.5f, 0.16666515f, 0.041666456f, 0.008369232f, 0.0013935764f);
    return rl_scale_f32(1.0f + (r + r * r * p), rl_low_bits_f32(t));
}

RL_FN float rl_expm1_f32(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -18.0f ? -18.0f : c;
    float t = c * 1.44269504f + RL_MAGIC_F32, n = t - RL_MAGIC_F32;
    float a = c - n * RL_LN2_HI_F32, b = n * RL_LN2_LO_F32, r = a - b, low = (a - r) - b;
    float p = RL_P5(r, 0.5f, 0.16666667f, 0.041666456f, 0.008333198f, 0.0013935764f, 0.00019953403f);
    float tail = r * r * p + low * (1.0f + r), e = r + tail, e_low = (r - e) + tail;
    // 2^n (1 + e) - 1, at half scale so that n = 128 does not overflow early, with the rounding error of the sum.
    rl_i32 k = rl_low_bits_f32(t);
    float s = rl_make_f32((rl_u32)(k + 126) << 23), u = s - 0.5f, v = s * e, w = u + v, d = w - u;
    float lost = (u - (w - d)) + (v - d);
    float y = 2.0f * (w + (lost + s * e_low));
    return n == 0.0f ? (x == 0.0f ? x : e) : y;
}

// With exp of minus |x| nothing overflows and the left tail keeps its denormals. The exponential carries the low
// part of its argument, and what 1 + e loses is put back through a line that stands for 1/(1 + e) within 4%.
RL_FN float rl_sigmoid_f32(float x) {
    float c = -__builtin_fabsf(x);
    c = c < -104.0f ? -104.0f : c;
    float t = c * 1.44269504f + RL_MAGIC_F32, n = t - RL_MAGIC_F32;
    float a = c - n * RL_LN2_HI_F32, b = n * RL_LN2_LO_F32, r = a - b, low = (a - r) - b;
    float p = RL_P4(r, 0.5f, 0.16666515f, 0.041666456f, 0.008369232f, 0.0013935764f);
    float e = rl_scale_f32(1.0f + (r + (r * r * p + low)), rl_low_bits_f32(t));
    float d = 1.0f + e, lost = (1.0f - d) + e, y = (x < 0.0f ? e : 1.0f) / d;
    return y - y * lost * (1.457f - 0.5f * d);
}

RL_FN float rl_tanh_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x;
    float p = RL_P5(z, -0.3333333f, 0.13333218f, -0.053947542f, 0.021702338f, -0.008176675f, 0.0021389292f);
    float small = x + x * z * p, large = 1.0f - 2.0f / (rl_exp_f32(2.0f * a) + 1.0f);
    return __builtin_copysignf(a < 0.625f ? small : large, x);
}

// ---- float32: logarithms -------------------------------------------------------------------------------------

// x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); y is log(1 + f) - f. For x positive and normal.
RL_FN float rl_log_tail_f32(float f) {
    float z = f * f;
    float p = RL_P8(f, 0.3333331f, -0.25000015f, 0.20002227f, -0.16667727f, 0.14217563f, -0.12409747f, 0.11905413f,
                    -0.11655146f, 0.06684156f);
    return f * z * p - 0.5f * z;
}

RL_FN float rl_log_ends_f32(float x, float y) { // what every logarithm does with 0, infinity, NaN, negatives
    y = x == RL_INF_F32 ? x : y;
    y = x == 0.0f ? -RL_INF_F32 : y;
    y = x < 0.0f ? RL_NAN_F32 : y;
    return x != x ? x : y;
}

RL_FN float rl_log_f32(float x) {
    bool tiny = x < 1.17549435e-38f;
    rl_u32 b = rl_bits_f32(tiny ? x * 8388608.0f : x);
    rl_i32 k = (rl_i32)(b - 0x3f3504f3u) >> 23;
    float f = rl_make_f32(b - ((rl_u32)k << 23)) - 1.0f, n = (float)(k - (tiny ? 23 : 0));
    float y = rl_log_tail_f32(f) + n * RL_LN2_LO_F32;
    return rl_log_ends_f32(x, (f + y) + n * RL_LN2_HI_F32);
}

RL_FN float rl_log1p_f32(float x) {
    float u = 1.0f + x;
    rl_i32 k = (rl_i32)(rl_bits_f32(u) - 0x3f3504f3u) >> 23;
    float m = rl_make_f32(rl_bits_f32(u) - ((rl_u32)k << 23)), n = (float)k;
    // What 1 + x lost. Where k is 0, x itself is the argument and nothing is lost.
    float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    float f = k == 0 ? x : m - 1.0f, c = k == 0 ? 0.0f : lost / u;
    float y = rl_log_tail_f32(f) + (n * RL_LN2_LO_F32 + c);
    float r = (f + y) + n * RL_LN2_HI_F32;
    r = x == RL_INF_F32 ? x : r;
    r = x == -1.0f ? -RL_INF_F32 : r;
    r = x < -1.0f ? RL_NAN_F32 : r;
    return (x == 0.0f) | (x != x) ? x : r;
}

// ---- float32: error function ---------------------------------------------------------------------------------

RL_FN float rl_erf_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x, t = a - 2.465f;
    float p = RL_P6(z, 0.12837917f, -0.3761263f, 0.11283618f, -0.026855124f, 0.005190726f, -0.0008030654f,
                    7.919902e-05f);
    float q = RL_P14(t,
                    0.00049023423f, -0.0025916211f, 0.006388529f, -0.009635914f, 0.009745152f, -0.0067114704f,
                    0.0029212963f, -0.000473663f, -0.00034316123f, 0.00029610566f, -7.666215e-05f,
                    -2.3795197e-05f, 1.7140008e-05f, -1.5129939e-07f, -1.0679591e-06f);
    q = a > 3.93f ? 0.0f : q;
    float y = a < 1.0f ? x + x * p : __builtin_copysignf(1.0f - q, x);
    return x != x ? x : y;
}

// ---- float32 by way of double --------------------------------------------------------------------------------
// Half the lanes, but 29 spare bits: no compensation, correct rounding but for one case in some thousands, and
// arguments of any size.

// 2^y for |y| < 1000, to 2^-34.
RL_FN double rl_exp2_short(double y) {
    double t = y + RL_MAGIC_F64, r = y - (t - RL_MAGIC_F64);
    double p = RL_P7(r, 0.9999999999595482, 0.6931471805459305, 0.24022651213595278, 0.055504109412154126,
                     0.009618025602952121, 0.0013333450560412074, 0.0001546973197833081, 1.5310081137407198e-05);
    return rl_make_f64(rl_bits_f64(p) + (rl_bits_f64(t) << 52));
}

// log2 of a positive normal double, to 2^-40.
RL_FN double rl_log2_short(double x) {
    rl_u64 b = rl_bits_f64(x) - 0x3fe6a09e00000000ull + 0x3ff0000000000000ull; // exponent counted from sqrt(1/2)
    double n = rl_make_f64((b >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    double m = rl_make_f64((b & 0xfffffffffffffull) + 0x3fe6a09e00000000ull);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    return n + s * RL_P5(z,
                        2.8853900817778477, 0.9617966941182823, 0.5770779407763541, 0.41220942612034367,
                        0.3198980850475415, 0.2830152541430632);
}

RL_FN float rl_erfc_f32(float x) {
    float a = __builtin_fabsf(x);
    double d = a > 10.3f ? 10.3f : a, u = (d - 2.0) / (d + 2.0);
    double p = RL_P12(u, 0.25539567632552496, -0.4271858476022228, 0.24165819245997563, -0.07897857014591503,
                      0.0037329278813231065, 0.006997299714091859, -0.0008474346321483982, -0.000980982842866178,
                      4.487524943340785e-05, 0.0001714559835754662, 2.3951658855284757e-05, -2.3683895220027554e-05,
                      -8.517816063886473e-06);
    double y = p * rl_exp2_short(d * d * -1.4426950408889634);
    return x != x ? x : (float)(x < 0.0f ? 2.0 - y : y);
}

// 2/pi modulo 4/2^i, for i the amount by which an argument's exponent passes 23: in such an argument every multiple
// of 4/2^i quarter turns is a number of whole turns. The first part has 29 bits, so its product with a float is
// exact in a double; the second has 53 more. The float nearest to a multiple of pi/2 leaves 2^-29, so 2^-56
// absolute is enough.
static const double rl_two_over_pi_hi[106] = {
    0.6366197690367699, 0.6366197690367699, 0.636619770899415, 0.1366197718307376,
    0.13661977229639888, 0.011619772296398878, 0.011619772296398878, 0.011619772354606539,
    0.011619772354606539, 0.003807272354606539, 0.0038072723618824966, 0.0018541473655204754,
    0.0008775848673394648, 0.00038930361733946484, 0.00014516299233946484, 2.309268006683851e-05,
    2.309268006683851e-05, 2.309268006683851e-05, 7.833891004338511e-06, 2.0449648729936598e-07,
    2.0449648729936598e-07, 2.0449648729936598e-07, 2.0449648729936598e-07, 2.0449648729936598e-07,
    2.0449648729936598e-07, 8.528719797062934e-08, 2.568255319523871e-08, 2.5682553250749862e-08,
    1.0781392056902206e-08, 3.3308114738561656e-09, 3.3308114738561656e-09, 1.4681663246252086e-09,
    5.368437517444535e-10, 7.118246443671428e-11, 7.118246487039515e-11, 7.118246487039515e-11,
    1.2974803956927738e-11, 1.2974804011137847e-11, 1.2974804038242901e-11, 5.698846437612003e-12,
    2.0608676372965533e-12, 2.418782371388286e-13, 2.418782388328945e-13, 2.4187823967992744e-13,
    1.450456423669538e-14, 1.450456423669538e-14, 1.450456423669538e-14, 1.450456423669538e-14,
    2.937095479631555e-16, 2.937095479631555e-16, 2.937095479631555e-16, 2.9370955127187795e-16,
    2.9370955292623917e-16, 2.937095537534198e-16, 7.166494882838848e-17, 7.166494903518363e-17,
    1.6153797803925804e-17, 1.6153797855624593e-17, 2.276010047810136e-18, 2.276010060734833e-18,
    2.2760100671971816e-18, 5.412865944515488e-19, 5.412865960671359e-19, 1.0760572788072771e-19,
    1.0760572788072771e-19, 1.076057280826761e-19, 5.339561945840088e-20, 2.6290565146263268e-20,
    1.2738037990194463e-20, 5.961774424781835e-21, 2.5736426420755207e-21, 8.795767507223637e-22,
    3.254380504578513e-23, 3.2543805834646035e-23, 3.2543805834646035e-23, 3.254380603186126e-23,
    3.254380603186126e-23, 6.074026479468182e-24, 6.074026479468182e-24, 6.074026479468182e-24,
    2.765304035419047e-24, 1.1109428133944797e-24, 2.83762200841452e-25, 2.8376220161182397e-25,
    7.696704847356705e-26, 7.696704847356705e-26, 2.526826028529932e-26, 2.5268260333447567e-26,
    1.234356326230651e-26, 5.8812147387730434e-27, 2.65004047700631e-27, 1.0344533461229435e-27,
    2.2665977917662736e-28, 2.2665977992894375e-28, 2.4711388568522918e-29, 2.4711388756602014e-29,
    2.4711388756602014e-29, 2.4711388756602014e-29, 1.2089614273065826e-29, 5.778727031297731e-30,
    2.623283410413684e-30, 1.0455615999716603e-30, 2.5670069622001645e-31, 2.5670069695470042e-31,
    5.948547064944747e-32, 5.948547083311846e-32
};
static const double rl_two_over_pi_lo[106] = {
    3.330811476132176e-09, 3.330811476132176e-09, 1.4681663269012186e-09, 5.368437522857402e-10,
    7.118246497800087e-11, 7.118246497800087e-11, 7.118246497800087e-11, 1.2974804064533467e-11,
    1.2974804064533467e-11, 1.2974804064533467e-11, 5.6988464503500404e-12, 2.060867643258328e-12,
    2.418782397124712e-13, 2.418782397124712e-13, 2.418782397124712e-13, 1.4504564269239186e-14,
    1.4504564269239186e-14, 1.4504564269239186e-14, 1.4504564269239186e-14, 2.93709554037182e-16,
    2.93709554037182e-16, 2.93709554037182e-16, 2.93709554037182e-16, 2.93709554037182e-16,
    2.93709554037182e-16, 7.166494911215068e-17, 7.166494911215068e-17, 1.6153797880892852e-17,
    1.6153797880892852e-17, 2.276010073078396e-18, 2.276010073078396e-18, 2.276010073078396e-18,
    5.412865971015893e-19, 5.412865971015893e-19, 1.0760572810738749e-19, 1.0760572810738749e-19,
    1.0760572810738749e-19, 5.339561948311227e-20, 2.6290565170974656e-20, 1.2738038014905852e-20,
    5.961774436871449e-21, 2.573642647854248e-21, 8.79576753345647e-22, 3.254380609134673e-23,
    3.254380609134673e-23, 3.254380609134673e-23, 3.254380609134673e-23, 3.254380609134673e-23,
    6.074026489649846e-24, 6.074026489649846e-24, 6.074026489649846e-24, 2.7653040394377357e-24,
    1.1109428143316804e-24, 2.8376220177865265e-25, 2.8376220177865265e-25, 7.696704864039572e-26,
    7.696704864039572e-26, 2.52682603558315e-26, 2.52682603558315e-26, 1.234356328469044e-26,
    5.881214749119912e-27, 2.6500404813346476e-27, 1.0344533474420156e-27, 2.2665978049569947e-28,
    2.2665978049569947e-28, 2.471138875912043e-29, 2.471138875912043e-29, 2.471138875912043e-29,
    2.471138875912043e-29, 1.2089614275584243e-29, 5.778727033816148e-30, 2.6232834129321014e-30,
    1.0455616024900778e-30, 2.567006972690659e-31, 2.567006972690659e-31, 5.948547096381295e-32,
    5.948547096381295e-32, 1.018166438749971e-32, 1.018166438749971e-32, 1.018166438749971e-32,
    4.018688565460554e-33, 9.372006544409767e-34, 9.372006544409767e-34, 1.668286766860824e-34,
    1.668286766860824e-34, 1.668286766860824e-34, 7.053217946672059e-35, 2.2383930857039694e-35,
    2.2383930857039694e-35, 1.0346868704619472e-35, 4.328337628409359e-36, 1.319072090304303e-36,
    1.319072090304303e-36, 5.667557057780389e-37, 1.9059751351490696e-37, 2.5184173833409495e-39,
    2.5184173833409495e-39, 2.5184173833409495e-39, 2.5184173833409495e-39, 2.5184173833409495e-39,
    2.5184173833409495e-39, 2.5184173833409495e-39, 1.0490494448130901e-39, 3.1436547554916045e-40,
    3.1436547554916045e-40, 1.3069448323317805e-40
};

struct rl_turn { double r; rl_u64 quadrant; };

// x = quadrant * pi/2 + r, |r| <= pi/4, for every finite x.
RL_FN rl_turn rl_reduce_f32(float x) {
    rl_i32 i = (rl_i32)(rl_bits_f32(x) >> 23 & 255) - 150;
    rl_i64 at = i < 0 ? 0 : i; // a 64-bit index, or g++ 12 makes no gather of it
    double q = x * rl_two_over_pi_hi[at], low = x * rl_two_over_pi_lo[at];
    double t = (q + low) + RL_MAGIC_F64, n = t - RL_MAGIC_F64;
    rl_turn out = {((q - n) + low) * 1.5707963267948966, rl_bits_f64(t)};
    return out;
}
RL_FN double rl_sin_short(double r) {
    return r * RL_P4(r * r, 0.9999999999955661, -0.16666666630893798, 0.008333328714446147,
                     -0.0001983918160682924, 2.7171547598804165e-06);
}
RL_FN double rl_cos_short(double r) {
    return RL_P5(r * r, 0.9999999999999427, -0.49999999999334727, 0.04166666654143459, -0.0013888880265419104,
                 2.4798902031219482e-05, -2.717150689811525e-07);
}
RL_FN float rl_sincos_f32(float x, rl_u64 quarter) { // quarter: 0 for the sine, 1 for the cosine
    rl_turn a = rl_reduce_f32(x);
    rl_u64 q = a.quadrant + quarter;
    double s = rl_sin_short(a.r), c = rl_cos_short(a.r), y = (q & 1) ? c : s;
    return (float)rl_make_f64(rl_bits_f64(y) ^ ((q & 2) << 62));
}
RL_FN float rl_sin_f32(float x) { return rl_sincos_f32(x, 0); }
RL_FN float rl_cos_f32(float x) { return rl_sincos_f32(x, 1); }
RL_FN float rl_tan_f32(float x) {
    rl_turn a = rl_reduce_f32(x);
    double s = rl_sin_short(a.r), c = rl_cos_short(a.r);
    bool odd = a.quadrant & 1;
    return (float)((odd ? -c : s) / (odd ? s : c));
}

// C's table of special cases, whole: the last two selects make pow(1, y) = pow(x, 0) = 1 even of NaN.
RL_FN float rl_pow_f32(float x, float y) {
    float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    double e = y * rl_log2_short(a);
    e = e > 300.0 ? 300.0 : e;
    e = e < -300.0 ? -300.0 : e;
    double p = rl_exp2_short(e);
    // An integer is odd when its half is not one; from 2^24 on every float is even.
    bool whole = __builtin_floorf(y) == y, odd = whole & (__builtin_floorf(y * 0.5f) != y * 0.5f);
    // 0 and infinity as base; 1 and less or more than 1 under an infinite exponent.
    bool grows = (a > 1.0f) == (y > 0.0f);
    p = (a == 0.0f) | (a == RL_INF_F32) | (b == RL_INF_F32) ? (grows ? RL_INF_F64 : 0.0) : p;
    p = (a == 1.0f) ? 1.0 : p;
    p = odd & (rl_bits_f32(x) >> 31) ? -p : p;
    p = (x < 0.0f) & (x > -RL_INF_F32) & !whole ? RL_NAN_F64 : p;
    p = (x != x) | (y != y) ? RL_NAN_F64 : p;
    return (x == 1.0f) | (y == 0.0f) ? 1.0f : (float)p;
}

#endif
