// float32: exponentials, logarithms, powers, trigonometry. The rules of prelude.h hold.
#ifndef RUSHLIGHT_PRELUDE_F32_H
#define RUSHLIGHT_PRELUDE_F32_H

// ---- float32: exponentials ----------------------------------------------------------------------

// One-sided clamps as integers, one instruction where a comparison of floats and a select are two.
// They lose NaN, which whoever calls them puts back at the end.
RL_FN float rl_at_most_f32(float x, float limit) { // limit > 0
    rl_i32 a = (rl_i32)rl_bits_f32(x), b = (rl_i32)rl_bits_f32(limit);
    return rl_make_f32((rl_u32)(a < b ? a : b));
}
RL_FN float rl_at_least_f32(float x, float limit) { // limit < 0: negative numbers order downwards
    rl_u32 a = rl_bits_f32(x), b = rl_bits_f32(limit);
    return rl_make_f32(a < b ? a : b);
}

RL_FN float rl_minus_abs_f32(float x) { return rl_make_f32(rl_bits_f32(x) | 0x80000000u); }

// x - n ln2 as two parts: n ln2_hi is exact, ln2_hi having 9 bits.
#define RL_LN2_HI_F32 0.693359375f
#define RL_LN2_LO_F32 -2.12194440e-4f

// Magic numbers with a bias: the low bits are the exponent field of 2^n itself, or, where |n| may
// be larger, the sum of the fields of two halves of n.
#define RL_MAGIC_POWER_F32 12583039.0f  /* RL_MAGIC_F32 + 127 */
#define RL_MAGIC_HALVES_F32 12583166.0f /* RL_MAGIC_F32 + 254 */

// p 2^n for |n| <= 252 and t = RL_MAGIC_HALVES_F32 + n, in two steps so that a denormal result is
// rounded once, at the end.
RL_FN float rl_scale_f32(float p, float t) {
    rl_u32 b = rl_bits_f32(t);
    return p * rl_make_f32(b << 22 & 0x7f800000u) * rl_make_f32((b + 1) << 22 & 0x7f800000u);
}

// e^x for -104 <= x <= 89: beyond, the result is infinite or 0 as at the limits.
RL_FN float rl_exp_within_f32(float x) {
    float t = rl_fma_f32(x, 1.44269504f, RL_MAGIC_HALVES_F32), n = t - RL_MAGIC_HALVES_F32;
    float r = rl_fma_f32(n, -RL_LN2_LO_F32, rl_fma_f32(n, -RL_LN2_HI_F32, x));
    float p = RL_F4(r, 0.5f, 0.16666515f, 0.041666456f, 0.008369232f, 0.0013935764f);
    return rl_scale_f32(1.0f + rl_fma_f32(r * r, p, r), t);
}

// e^x for x <= 0: 2^64 times it is never denormal, so the exponent is added as an integer, and one
// product rounds.
RL_FN float rl_exp_of_minus_f32(float x) {
    float c = rl_at_least_f32(x, -104.0f), t = rl_fma_f32(c, 1.44269504f, RL_MAGIC_F32 + 64.0f);
    float n = t - (RL_MAGIC_F32 + 64.0f);
    float r = rl_fma_f32(n, -RL_LN2_LO_F32, rl_fma_f32(n, -RL_LN2_HI_F32, c));
    float p = RL_F4(r, 0.5f, 0.16666515f, 0.041666456f, 0.008369232f, 0.0013935764f);
    p = 1.0f + rl_fma_f32(r * r, p, r);
    return rl_make_f32(rl_bits_f32(p) + (rl_bits_f32(t) << 23)) * 5.421010862427522e-20f; // 2^-64
}

RL_FN float rl_exp_f32(float x) {
    float y = rl_exp_within_f32(rl_at_least_f32(rl_at_most_f32(x, 89.0f), -104.0f));
    return x != x ? x : y;
}

RL_FN float rl_expm1_f32(float x) {
    float c = rl_at_least_f32(rl_at_most_f32(x, 89.0f), -18.0f);
    float t = rl_fma_f32(c, 1.44269504f, RL_MAGIC_POWER_F32 - 1.0f);
    float n = t - (RL_MAGIC_POWER_F32 - 1.0f), a = rl_fma_f32(n, -RL_LN2_HI_F32, c);
    float r = rl_fma_f32(n, -RL_LN2_LO_F32, a), low = rl_fma_f32(n, -RL_LN2_LO_F32, a - r);
    float p = RL_F5(r, 0.5f, 0.16666667f, 0.041666456f, 0.008333198f, 0.0013935764f,
                    0.00019953403f);
    float tail = rl_fma_f32(low, 1.0f + r, r * r * p), e = r + tail, e_low = (r - e) + tail;
    // 2^n (1 + e) - 1, at half scale so that n = 128 does not overflow early; the first sum has
    // 24 bits or its rounding does not count.
    float s = rl_make_f32(rl_bits_f32(t) << 23), w = rl_fma_f32(s, e, s - 0.5f);
    float lost = rl_fma_f32(s, e, (s - 0.5f) - w);
    float y = 2.0f * (w + rl_fma_f32(s, e_low, lost));
    y = n == 0.0f ? e : y;
    return ((x == 0.0f) | (x != x)) ? x : y;
}

// 1/d from a parabola that comes within 2^-6.4, by a step of third order: to 2^-18. Cheaper than a
// division, and what divides by it ends in a step of its own.
RL_FN float rl_inverse_f32(float d, float y) {
    float h = rl_fma_f32(-d, y, 1.0f);
    return rl_fma_f32(y, rl_fma_f32(h, h, h), y);
}

// With e = exp of minus |x| nothing overflows and the left tail keeps its denormals: 1/(1 + e) or
// e/(1 + e). The last step takes e as it is, not as rounded in 1 + e.
RL_FN float rl_sigmoid_f32(float x) {
    float e = rl_exp_of_minus_f32(rl_minus_abs_f32(x));
    float d = 1.0f + e, y = rl_inverse_f32(d, RL_F2(d, 2.09951f, -1.4250212f, 0.31367895f));
    float a = x < 0.0f ? e : 1.0f, z = a * y;
    z = rl_fma_f32(y, rl_fma_f32(-e, z, a - z), z);
    return x != x ? x : z;
}

// g/(1 - g) with g = -expm1(-2 |x|)/2: no select between a series and an exponential. The quotient
// is corrected once, by a remainder without error.
RL_FN float rl_tanh_f32(float x) {
    float c = rl_at_least_f32(rl_minus_abs_f32(x), -10.0f);
    float t = rl_fma_f32(c, 2.88539008f, RL_MAGIC_POWER_F32), n = t - RL_MAGIC_POWER_F32;
    float r = rl_fma_f32(n, -0.5f * RL_LN2_LO_F32, rl_fma_f32(n, -0.5f * RL_LN2_HI_F32, c));
    float p = RL_F4(r, 1.0f, 0.6666616f, 0.33333182f, 0.1338692f, 0.04458783f);
    float q = rl_fma_f32(r * r, p, r), s = rl_make_f32(rl_bits_f32(t) << 23);
    float g = rl_fma_f32(-s, q, rl_fma_f32(-0.5f, s, 0.5f)), d = 1.0f - g;
    float y = rl_inverse_f32(d, RL_F2(d, 4.19902f, -5.7000847f, 2.5094316f)), z = g * y;
    z = rl_fma_f32(y, rl_fma_f32(g, z, g - z), z);
    return x != x ? x : __builtin_copysignf(z, x);
}

// ---- float32: logarithms ------------------------------------------------------------------------

// x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); y is log(1 + f) - f, plus a small number. For x
// positive and normal.
RL_FN float rl_log_tail_f32(float f, float small) {
    float p = RL_F8(f, -0.5f, 0.33333355f, -0.25000852f, 0.19999766f, -0.16621315f, 0.142281f,
                    -0.13203458f, 0.12615187f, -0.07353803f);
    return rl_fma_f32(f * f, p, small);
}

// what every logarithm does with 0, infinity, NaN, negatives
RL_FN float rl_log_ends_f32(float x, float y) {
    y = x == RL_INF_F32 ? x : y;
    y = x == 0.0f ? -RL_INF_F32 : y;
    return x >= 0.0f ? y : RL_NAN_F32;
}

RL_FN float rl_log_f32(float x) {
    bool tiny = x < 1.17549435e-38f;
    rl_u32 b = rl_bits_f32(x * (tiny ? 8388608.0f : 1.0f));
    rl_i32 k = (rl_i32)(b - 0x3f3504f3u) >> 23;
    float f = rl_make_f32(b - ((rl_u32)k << 23)) - 1.0f, n = (float)k - (tiny ? 23.0f : 0.0f);
    float y = f + rl_log_tail_f32(f, n * RL_LN2_LO_F32);
    return rl_log_ends_f32(x, rl_fma_f32(n, RL_LN2_HI_F32, y));
}

RL_FN float rl_log1p_f32(float x) {
    float u = 1.0f + x;
    rl_i32 k = (rl_i32)(rl_bits_f32(u) - 0x3f3504f3u) >> 23;
    float m = rl_make_f32(rl_bits_f32(u) - ((rl_u32)k << 23)), n = (float)k;
    // What 1 + x lost. Where k is 0, x itself is the argument and nothing is lost.
    float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    float f = k == 0 ? x : m - 1.0f, c = k == 0 ? 0.0f : lost / u;
    float y = f + rl_log_tail_f32(f, rl_fma_f32(n, RL_LN2_LO_F32, c));
    float r = rl_fma_f32(n, RL_LN2_HI_F32, y);
    r = x == RL_INF_F32 ? x : r;
    r = x == -1.0f ? -RL_INF_F32 : r;
    r = x < -1.0f ? RL_NAN_F32 : r;
    return ((x == 0.0f) | (x != x)) ? x : r;
}

// ---- float32: error function --------------------------------------------------------------------

// Beyond 4 the result is 1.
RL_FN float rl_erf_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x, t = rl_at_most_f32(a, 4.0f) - 2.5f;
    float p = RL_F6(z, 0.12837917f, -0.3761263f, 0.11283618f, -0.026855124f, 0.005190726f,
                    -0.0008030654f, 7.919902e-05f);
    float q = RL_F14(t, 0.00040695237f, -0.0021781847f, 0.0054456885f, -0.008351769f, 0.008622605f,
                     -0.00610911f, 0.002797552f, -0.0005603602f, -0.00025872662f, 0.0002706186f,
                     -8.110275e-05f, -1.7760463e-05f, 1.5720007e-05f, -4.9852787e-07f,
                     -8.902305e-07f);
    float y = a >= 1.0f ? 1.0f - q : rl_fma_f32(a, p, a); // NaN goes by way of the second
    return __builtin_copysignf(y, x);
}

// ---- float32 by way of double -------------------------------------------------------------------
// Half the lanes, but 29 spare bits: no compensation, correct rounding but for one case in some
// thousands, and arguments of any size.

// 2^y for |y| < 1000, to 2^-34.
RL_FN double rl_exp2_short(double y) {
    double t = y + RL_MAGIC_F64, r = y - (t - RL_MAGIC_F64);
    double p = RL_P7(r, 0.9999999999595482, 0.6931471805459305, 0.24022651213595278,
                     0.055504109412154126, 0.009618025602952121, 0.0013333450560412074,
                     0.0001546973197833081, 1.5310081137407198e-05);
    return rl_make_f64(rl_bits_f64(p) + (rl_bits_f64(t) << 52));
}

// log2 of a positive normal double, to 2^-40.
RL_FN double rl_log2_short(double x) {
    // exponent counted from sqrt(1/2)
    rl_u64 b = rl_bits_f64(x) - 0x3fe6a09e00000000ull + 0x3ff0000000000000ull;
    double n = rl_make_f64((b >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    double m = rl_make_f64((b & 0xfffffffffffffull) + 0x3fe6a09e00000000ull);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    return n + s * RL_P5(z, 2.8853900817778477, 0.9617966941182823, 0.5770779407763541,
                         0.41220942612034367, 0.3198980850475415, 0.2830152541430632);
}

RL_FN float rl_erfc_f32(float x) {
    float a = __builtin_fabsf(x);
    double d = a > 10.3f ? 10.3f : a, u = (d - 2.0) / (d + 2.0);
    double p = RL_P12(u, 0.25539567632552496, -0.4271858476022228, 0.24165819245997563,
                      -0.07897857014591503, 0.0037329278813231065, 0.006997299714091859,
                      -0.0008474346321483982, -0.000980982842866178, 4.487524943340785e-05,
                      0.0001714559835754662, 2.3951658855284757e-05, -2.3683895220027554e-05,
                      -8.517816063886473e-06);
    double y = p * rl_exp2_short(d * d * -1.4426950408889634);
    return x != x ? x : (float)(x < 0.0f ? 2.0 - y : y);
}

// 2/pi modulo 4/2^i, for i the amount by which an argument's exponent passes 23: in such an
// argument every multiple of 4/2^i quarter turns is a number of whole turns. The first part has 29
// bits, so its product with a float is exact in a double; the second has 53 more. The float nearest
// to a multiple of pi/2 leaves 2^-29, so 2^-56 absolute is enough.
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
    return RL_P5(r * r, 0.9999999999999427, -0.49999999999334727, 0.04166666654143459,
                 -0.0013888880265419104, 2.4798902031219482e-05, -2.717150689811525e-07);
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

// C's table of special cases, whole: the last two selects make pow(1, y) = pow(x, 0) = 1 even of
// NaN.
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
    p = ((a == 0.0f) | (a == RL_INF_F32) | (b == RL_INF_F32)) ? (grows ? RL_INF_F64 : 0.0) : p;
    p = (a == 1.0f) ? 1.0 : p;
    p = (odd & (rl_bits_f32(x) >> 31)) ? -p : p;
    p = ((x < 0.0f) & (x > -RL_INF_F32) & !whole) ? RL_NAN_F64 : p;
    p = ((x != x) | (y != y)) ? RL_NAN_F64 : p;
    return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : (float)p;
}

// ---- float32, the rest --------------------------------------------------------------------------

RL_FN float rl_exp2_f32(float x) {
    float c = rl_at_least_f32(rl_at_most_f32(x, 129.0f), -152.0f);
    float t = c + RL_MAGIC_HALVES_F32, r = c - (t - RL_MAGIC_HALVES_F32);
    float p = RL_F6(r, 1.0f, 0.6931472f, 0.2402265f, 0.05550358f, 0.009618077f, 0.0013391643f,
                    0.00015456358f);
    return x != x ? x : rl_scale_f32(p, t);
}

RL_FN float rl_log2_f32(float x) { return rl_log_ends_f32(x, (float)rl_log2_short(x)); }
RL_FN float rl_log10_f32(float x) {
    return rl_log_ends_f32(x, (float)(rl_log2_short(x) * 0.3010299956639812));
}

RL_FN double rl_atan_short(double t) { // for |t| <= 1
    return t * RL_P12(t * t, 0.9999999999902917, -0.3333333299505203, 0.19999980353726132,
                      -0.1428526249315547, 0.11105656195773819, -0.09051137284771305,
                      0.07502231483075551, -0.06038548717568802, 0.043902872837492515,
                      -0.02627157888028383, 0.011602326209154768, -0.0032614871502009046,
                      0.0004301649777464705);
}
RL_FN float rl_atan_f32(float x) {
    double d = __builtin_fabs((double)x);
    double a = rl_atan_short(d > 1.0 ? 1.0 / d : d);
    a = d > 1.0 ? 1.5707963267948966 - a : a;
    return x != x ? x : __builtin_copysignf((float)a, x);
}
RL_FN float rl_atan2_f32(float y, float x) {
    double a = __builtin_fabsf(y), b = __builtin_fabsf(x);
    double low = a < b ? a : b, high = a < b ? b : a;
    double t = low / high;
    t = low == high ? 1.0 : t; // both infinite
    t = high == 0.0 ? 0.0 : t;
    t = rl_atan_short(t);
    t = a > b ? 1.5707963267948966 - t : t;
    t = rl_bits_f32(x) >> 31 ? 3.141592653589793 - t : t;
    return ((x != x) | (y != y)) ? RL_NAN_F32 : __builtin_copysignf((float)t, y);
}

// asin a below 1/2; above, pi/2 - 2 asin(sqrt((1 - a)/2)).
RL_FN double rl_asin_short(double a) {
    bool far = a > 0.5;
    double z = far ? (1.0 - a) * 0.5 : a * a, s = far ? __builtin_sqrt(z) : a;
    double p = s * RL_P8(z, 1.000000000000879, 0.16666666610469333, 0.07500005894435696,
                         0.04464048765267565, 0.030429338558733716, 0.021845271599277766,
                         0.02073108638165211, 0.0017925734675036142, 0.03308111634532171);
    return far ? 1.5707963267948966 - 2.0 * p : p;
}
RL_FN float rl_asin_f32(float x) {
    return x != x ? x : __builtin_copysignf((float)rl_asin_short(__builtin_fabs((double)x)), x);
}
RL_FN float rl_acos_f32(float x) {
    double a = __builtin_fabs((double)x), z = (1.0 - a) * 0.5, s = __builtin_sqrt(z);
    bool far = a > 0.5;
    double w = far ? s : (double)x;
    double p = w * RL_P8(w * w, 1.000000000000879, 0.16666666610469333, 0.07500005894435696,
                         0.04464048765267565, 0.030429338558733716, 0.021845271599277766,
                         0.02073108638165211, 0.0017925734675036142, 0.03308111634532171);
    double y = far ? (x < 0.0f ? 3.141592653589793 - 2.0 * p : 2.0 * p) : 1.5707963267948966 - p;
    return a > 1.0 ? RL_NAN_F32 : x != x ? x : (float)y;
}

RL_FN float rl_sinh_f32(float x) {
    double a = __builtin_fabs((double)x), z = a * a;
    double e = rl_exp2_short((a > 200.0 ? 200.0 : a) * 1.4426950408889634);
    double y = a < 0.5 ? a * RL_P4(z, 1.000000000000048, 0.16666666665707128, 0.008333333640335318,
                                   0.0001984092613566055, 2.771430720430082e-06) : 0.5 * (e - 1.0 /
                                   e);
    return x != x ? x : __builtin_copysignf((float)y, x);
}
RL_FN float rl_cosh_f32(float x) {
    double a = __builtin_fabs((double)x);
    double e = rl_exp2_short((a > 200.0 ? 200.0 : a) * 1.4426950408889634);
    return x != x ? x : (float)(0.5 * (e + 1.0 / e));
}

// Near 0 the logarithms of the inverse hyperbolics lose the argument's bits, and three terms of the
// series do.
RL_FN float rl_asinh_f32(float x) {
    double a = __builtin_fabs((double)x), z = a * a;
    double far = rl_log2_short(a + __builtin_sqrt(z + 1.0)) * 0.6931471805599453;
    double near = a * (1.0 + z * (-1.0 / 6 + z * (3.0 / 40 - z * (15.0 / 336))));
    double y = a < 0.0625 ? near : far;
    y = a == RL_INF_F64 ? a : y;
    return x != x ? x : __builtin_copysignf((float)y, x);
}
RL_FN float rl_acosh_f32(float x) {
    double d = x;
    float y = (float)(rl_log2_short(d + __builtin_sqrt(d * d - 1.0)) * 0.6931471805599453);
    y = x == RL_INF_F32 ? x : y;
    return x < 1.0f ? RL_NAN_F32 : x != x ? x : y;
}
RL_FN float rl_atanh_f32(float x) {
    double a = __builtin_fabs((double)x), z = a * a;
    double far = rl_log2_short((1.0 + a) / (1.0 - a)) * 0.34657359027997264;
    double near = a * (1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7))));
    double y = a < 0.0625 ? near : far;
    y = a == 1.0 ? RL_INF_F64 : y;
    y = a > 1.0 ? RL_NAN_F64 : y;
    return x != x ? x : __builtin_copysignf((float)y, x);
}

RL_FN float rl_nextafter_f32(float x, float y) {
    rl_u32 b = rl_bits_f32(x), away = (y > x) == (x > 0.0f) ? 1u : ~0u;
    float n = rl_make_f32(x == 0.0f ? (rl_bits_f32(y) & 0x80000000u) | 1u : b + away);
    n = x == y ? y : n;
    return ((x != x) | (y != y)) ? RL_NAN_F32 : n;
}

#endif
