// Remainders and floor division of floats, exact for every pair.
#ifndef RUSHLIGHT_PRELUDE_REMAINDERS_H
#define RUSHLIGHT_PRELUDE_REMAINDERS_H

// Two ways. rl_fmod takes every pair, by long division of the mantissas: a loop of data-dependent
// length, which does not vectorise. rl_fmod_near is for pairs that are not rl_far, and vectorises:
// loops ask for a block of elements first, and take the second where none is far.

RL_FN double rl_fmod_f64(double x, double y) {
    rl_u64 a = rl_bits_f64(x) & 0x7fffffffffffffffull, b = rl_bits_f64(y) & 0x7fffffffffffffffull;
    if (b == 0 || b > 0x7ff0000000000000ull || a >= 0x7ff0000000000000ull) return RL_NAN_F64;
    if (a < b) return x;
    rl_i32 ea = (rl_i32)(a >> 52), eb = (rl_i32)(b >> 52);
    rl_u64 m = a & 0xfffffffffffffull, d = b & 0xfffffffffffffull;
    if (ea) m |= 0x10000000000000ull; else ea = 1;
    if (eb) d |= 0x10000000000000ull; else eb = 1;
    m %= d;
    for (rl_i32 left = ea - eb; left > 0 && m;) {
        rl_i32 step = left < 11 ? left : 11;
        m = (m << step) % d;
        left -= step;
    }
    // m 2^(eb - 1075), below 2^53: the integer conversion is exact, and so is either scaling, whose
    // result is a multiple of the least bit of y.
    double r = (double)(rl_i64)m;
    double scale = rl_make_f64((rl_u64)(eb > 52 ? eb - 52 : eb + 485) << 52);
    r = r * (eb > 52 ? 1.0 : rl_make_f64((rl_u64)(1023 - 537) << 52)) * scale;
    return __builtin_copysign(r, x);
}
RL_FN float rl_fmod_f32(float x, float y) { return (float)rl_fmod_f64(x, y); }

// Far: the quotient may pass 2^20 or 2^28, a product the largest number, or something is 0, infinite
// or NaN that a quotient does not stand.
RL_FN bool rl_far_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    return !((a < b * 1048576.0) & (a < 4.49423283715579e307) & (b < RL_INF_F64));
}
RL_FN bool rl_far_f32(float x, float y) {
    double a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    return !((a < b * 268435456.0) & (b < RL_INF_F64));
}
// x - q y for the quotient q nearest to x/y, or next to it: y in two halves makes both products
// exact, and both differences are multiples of y's last bit and less than y. Then one y more where
// that has not the sign of x.
RL_FN double rl_fmod_near_f64(double x, double y) {
    double q = __builtin_rint(x / y);
    double high = rl_make_f64(rl_bits_f64(y) & ~0x7ffffffull), low = y - high;
    double r = (x - q * high) - q * low;
    double up = __builtin_copysign(y, x);
    r = r * __builtin_copysign(1.0, x) < 0.0 ? r + up : r;
    return __builtin_copysign(r, x);
}
// In double the cut quotient is exact: where x/y is no integer it is 2^-24 from one at least, which
// is more than half the last bit of any quotient below 2^28. So are the product and the difference.
RL_FN float rl_fmod_near_f32(float x, float y) {
    double d = x, q = __builtin_trunc(d / y);
    return __builtin_copysignf((float)(d - q * y), x);
}

// From r = fmod(x, y). The remainder has the sign of y, as Python's % and torch.remainder; a zero
// keeps the sign of x, as there.
#define RL_FROM_FMOD(S, T, F)                                                                      \
    RL_FN T rl_remainder_of_##S(T r, T y) {                                                        \
        return ((r != (T)0) & ((y < (T)0) != (r < (T)0))) ? r + y : r;                             \
    }                                                                                              \
    RL_FN T rl_floor_div_of_##S(T r, T x, T y) {                                                   \
        T q = (x - r) / y;                                                                         \
        q = ((r != (T)0) & ((y < (T)0) != (r < (T)0))) ? q - (T)1 : q;                             \
        T f = __builtin_floor##F(q);                                                               \
        f = q - f > (T)0.5 ? f + (T)1 : f;                                                         \
        f = q == (T)0 ? __builtin_copysign##F((T)0, x / y) : f;                                    \
        return y == (T)0 ? x / y : f;                                                              \
    }                                                                                              \
    RL_FN T rl_remainder_##S(T x, T y) { return rl_remainder_of_##S(rl_fmod_##S(x, y), y); }       \
    RL_FN T rl_floor_div_##S(T x, T y) { return rl_floor_div_of_##S(rl_fmod_##S(x, y), x, y); }    \
    RL_FN T rl_remainder_near_##S(T x, T y) {                                                      \
        return rl_remainder_of_##S(rl_fmod_near_##S(x, y), y);                                     \
    }                                                                                              \
    RL_FN T rl_floor_div_near_##S(T x, T y) {                                                      \
        return rl_floor_div_of_##S(rl_fmod_near_##S(x, y), x, y);                                  \
    }
RL_FROM_FMOD(f32, float, f)
RL_FROM_FMOD(f64, double, )

#endif
