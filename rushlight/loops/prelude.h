// Rushlight's scalar math: types, bits, fma, exact float32 operations, integers. The other parts, in
// the order that they need: prelude_casts.h, prelude_remainders.h, prelude_f32.h, prelude_f64.h,
// prelude_random.h.
//
// Generated kernels are this text followed by one loop; there is no #include and nothing to link,
// not even libm. Every function is branch-free (selects only), so that the compiler vectorises the
// loop it stands in, and gives the same bits on every x86-64 instruction set: only IEEE add, sub,
// mul, fma, div, sqrt, conversions and integer operations, each rounded once, in the order written.
// float32 says fma where it means it; x86-64-v2, which has none, gets the same bits by a detour
// that costs some 25 operations each. float64 has no fma at all: there a detour would cost far
// more. Compile with -ffp-contract=off -fno-math-errno -fno-trapping-math, and never with
// -ffast-math. Polynomials: tools/fit_polynomials.py. Bounds and speeds: docs/math.md.
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

// Adding this to a small number rounds it to the nearest integer (ties to even) and leaves that
// integer in the low bits: an integer conversion without one, which is undefined for NaN and
// missing for 64 bits before AVX-512.
#define RL_MAGIC_F32 12582912.0f        /* 1.5 * 2^23 */
#define RL_MAGIC_F64 6755399441055744.0 /* 1.5 * 2^52 */

// Horner's rule from the highest coefficient down; written out so that every loop around it stays
// flat.
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

// a * b + c, rounded once.
#ifdef __FMA__
RL_FN float rl_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
// The product is exact in double. The sum is rounded to odd there: cut towards zero, its last bit
// set where something was lost. Rounding that to float, 29 bits shorter, is as if nothing was.
RL_FN float rl_fma_f32(float a, float b, float c) {
    double p = (double)a * b, d = c, s = p + d, t = s - p;
    double lost = (p - (s - t)) + (d - t);                           // what rounding s took away
    rl_u64 inexact = (lost < 0.0) | (lost > 0.0);                    // not of infinities and NaN
    rl_u64 away = (rl_bits_f64(s) ^ rl_bits_f64(lost)) >> 63 & inexact; // |s| grew by rounding
    return (float)rl_make_f64((rl_bits_f64(s) - away) | inexact);
}
#endif

// Horner's rule by fma.
#define RL_F1(x, a, b) rl_fma_f32(x, b, a)
#define RL_F2(x, a, ...) rl_fma_f32(x, RL_F1(x, __VA_ARGS__), a)
#define RL_F3(x, a, ...) rl_fma_f32(x, RL_F2(x, __VA_ARGS__), a)
#define RL_F4(x, a, ...) rl_fma_f32(x, RL_F3(x, __VA_ARGS__), a)
#define RL_F5(x, a, ...) rl_fma_f32(x, RL_F4(x, __VA_ARGS__), a)
#define RL_F6(x, a, ...) rl_fma_f32(x, RL_F5(x, __VA_ARGS__), a)
#define RL_F7(x, a, ...) rl_fma_f32(x, RL_F6(x, __VA_ARGS__), a)
#define RL_F8(x, a, ...) rl_fma_f32(x, RL_F7(x, __VA_ARGS__), a)
#define RL_F9(x, a, ...) rl_fma_f32(x, RL_F8(x, __VA_ARGS__), a)
#define RL_F10(x, a, ...) rl_fma_f32(x, RL_F9(x, __VA_ARGS__), a)
#define RL_F11(x, a, ...) rl_fma_f32(x, RL_F10(x, __VA_ARGS__), a)
#define RL_F12(x, a, ...) rl_fma_f32(x, RL_F11(x, __VA_ARGS__), a)
#define RL_F13(x, a, ...) rl_fma_f32(x, RL_F12(x, __VA_ARGS__), a)
#define RL_F14(x, a, ...) rl_fma_f32(x, RL_F13(x, __VA_ARGS__), a)

// ---- float32: exact operations ------------------------------------------------------------------

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
// NaN wins in minimum and maximum and loses in fmin and fmax; of equal zeros the second argument is
// returned. The comparisons give b where either is NaN, and all bits set are NaN: a select of a
// itself is turned into branches and back, at twice the time.
RL_FN float rl_minimum_f32(float a, float b) {
    float m = a < b ? a : b;
    return rl_make_f32(rl_bits_f32(m) | -(rl_u32)(a != a));
}
RL_FN float rl_maximum_f32(float a, float b) {
    float m = a > b ? a : b;
    return rl_make_f32(rl_bits_f32(m) | -(rl_u32)(a != a));
}
RL_FN float rl_fmin_f32(float a, float b) { float m = a < b ? a : b; return b != b ? a : m; }
RL_FN float rl_fmax_f32(float a, float b) { float m = a > b ? a : b; return b != b ? a : m; }
// The larger of a magnitude and that of x, as bits: their order is that of numbers, NaN above all.
RL_FN rl_i32 rl_larger_magnitude_f32(rl_i32 top, float x) {
    rl_i32 b = (rl_i32)(rl_bits_f32(x) & 0x7fffffffu);
    return b > top ? b : top;
}
RL_FN rl_i64 rl_larger_magnitude_f64(rl_i64 top, double x) {
    rl_i64 b = (rl_i64)(rl_bits_f64(x) & 0x7fffffffffffffffull);
    return b > top ? b : top;
}
// As torch: the sign of either zero is +0, and of NaN is 0.
RL_FN float rl_sign_f32(float x) { return (float)((x > 0) - (x < 0)); }

// ---- integers -----------------------------------------------------------------------------------
// Arithmetic wraps, in the unsigned type of at least int's width, where wrapping is defined. A zero
// divisor gives 0 (its detection is the caller's), the least integer over -1 gives itself. Shifts
// by less than 0 or by the width or more empty the number of its bits; a negative power is 0 but
// for the bases 1 and -1.

#define RL_INT_COMMON(S, T, U, BITS)                                                               \
    RL_FN T rl_add_##S(T a, T b) { return (T)((U)a + (U)b); }                                      \
    RL_FN T rl_sub_##S(T a, T b) { return (T)((U)a - (U)b); }                                      \
    RL_FN T rl_mul_##S(T a, T b) { return (T)((U)a * (U)b); }                                      \
    RL_FN T rl_neg_##S(T a) { return (T)(0 - (U)a); }                                              \
    RL_FN T rl_minimum_##S(T a, T b) { return a < b ? a : b; }                                     \
    RL_FN T rl_maximum_##S(T a, T b) { return a > b ? a : b; }                                     \
    RL_FN T rl_shl_##S(T a, T b) {                                                                 \
        bool in = (b >= 0) & (b < BITS);                                                           \
        return in ? (T)((U)a << (in ? b : 0)) : (T)0;                                              \
    }                                                                                              \
    RL_FN T rl_shr_##S(T a, T b) {                                                                 \
        bool in = (b >= 0) & (b < BITS);                                                           \
        return in ? (T)(a >> (in ? b : 0)) : (T)(a < 0 ? -1 : 0);                                  \
    }                                                                                              \
    RL_FN T rl_ipow_##S(T a, T b) {                                                                \
        U power = 1, square = (U)a;                                                                \
        for (U left = b > 0 ? (U)b : 0; left; left >>= 1) {                                        \
            power *= (left & 1) ? square : 1;                                                      \
            square *= square;                                                                      \
        }                                                                                          \
        T negative = a == 1 ? (T)1 : a == (T)-1 ? (b & 1 ? (T)-1 : (T)1) : (T)0;                   \
        return b < 0 ? negative : (T)power;                                                        \
    }

#define RL_INT_SIGNED(S, T, U, BITS)                                                               \
    RL_INT_COMMON(S, T, U, BITS)                                                                   \
    RL_FN T rl_abs_##S(T a) { return a < 0 ? rl_neg_##S(a) : a; }                                  \
    RL_FN T rl_sign_##S(T a) { return (T)((a > 0) - (a < 0)); }                                    \
    RL_FN T rl_trunc_div_##S(T a, T b) {                                                           \
        T d = ((b == 0) | (b == -1)) ? (T)1 : b, q = (T)(a / d);                                   \
        return b == -1 ? rl_neg_##S(a) : b == 0 ? (T)0 : q;                                        \
    }                                                                                              \
    RL_FN T rl_fmod_##S(T a, T b) {                                                                \
        T d = ((b == 0) | (b == -1)) ? (T)1 : b;                                                   \
        return (T)(a % d);                                                                         \
    }                                                                                              \
    RL_FN T rl_floor_div_##S(T a, T b) {                                                           \
        T q = rl_trunc_div_##S(a, b), r = rl_fmod_##S(a, b);                                       \
        return (T)(q - ((r != 0) & ((r < 0) != (b < 0))));                                         \
    }                                                                                              \
    RL_FN T rl_remainder_##S(T a, T b) {                                                           \
        T r = rl_fmod_##S(a, b);                                                                   \
        return (T)(r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0));                               \
    }

#define RL_INT_UNSIGNED(S, T, U, BITS)                                                             \
    RL_INT_COMMON(S, T, U, BITS)                                                                   \
    RL_FN T rl_abs_##S(T a) { return a; }                                                          \
    RL_FN T rl_sign_##S(T a) { return a != 0; }                                                    \
    RL_FN T rl_trunc_div_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a / (b == 0 ? (T)1 : b)); }    \
    RL_FN T rl_fmod_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a % (b == 0 ? (T)1 : b)); }         \
    RL_FN T rl_floor_div_##S(T a, T b) { return rl_trunc_div_##S(a, b); }                          \
    RL_FN T rl_remainder_##S(T a, T b) { return rl_fmod_##S(a, b); }

RL_INT_SIGNED(i8, rl_i8, rl_u32, 8)
RL_INT_SIGNED(i16, rl_i16, rl_u32, 16)
RL_INT_SIGNED(i32, rl_i32, rl_u32, 32)
RL_INT_SIGNED(i64, rl_i64, rl_u64, 64)
RL_INT_UNSIGNED(u8, rl_u8, rl_u32, 8)
RL_INT_UNSIGNED(u16, rl_u16, rl_u32, 16)
RL_INT_UNSIGNED(u32, rl_u32, rl_u32, 32)
RL_INT_UNSIGNED(u64, rl_u64, rl_u64, 64)

#endif
