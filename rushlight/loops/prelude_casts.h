// Half storage, and casts to integers.
#ifndef RUSHLIGHT_PRELUDE_CASTS_H
#define RUSHLIGHT_PRELUDE_CASTS_H

// ---- half storage -------------------------------------------------------------------------------
// Round to nearest even; NaN keeps its sign and the top of its payload and is made quiet, as the
// hardware's conversions do.

RL_FN float rl_f16_to_f32(rl_u16 h) {
    // A denormal is its fraction's integer times 2^-24; float32 denormals would be slow.
    rl_u32 a = (rl_u32)(h & 0x7fff) << 13;
    rl_u32 small = rl_bits_f32((float)(rl_i32)(h & 0x3ff) * 5.9604644775390625e-8f);
    rl_u32 b = a < 0x00800000u ? small : a + 0x38000000u;
    b = a >= 0x0f800000u ? a + 0x70000000u : b;
    b = a > 0x0f800000u ? b | 0x00400000u : b;
    return rl_make_f32(b | (rl_u32)(h & 0x8000) << 16);
}
RL_FN rl_u16 rl_f32_to_f16(float x) {
    rl_u32 b = rl_bits_f32(x), a = b & 0x7fffffffu;
    rl_u32 normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;
    // Adding 1/2, whose last bit is the least half denormal, rounds a small number to a multiple of
    // that.
    rl_u32 small = rl_bits_f32(rl_make_f32(a) + 0.5f) - 0x3f000000u;
    rl_u32 h = a < 0x38800000u ? small : normal;
    h = a >= 0x477ff000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x3ffu) : h;
    return (rl_u16)(h | (b >> 16 & 0x8000u));
}
RL_FN float rl_bf16_to_f32(rl_u16 h) { return rl_make_f32((rl_u32)h << 16); }
RL_FN rl_u16 rl_f32_to_bf16(float x) {
    rl_u32 b = rl_bits_f32(x), rounded = (b + 0x7fffu + (b >> 16 & 1)) >> 16;
    return (rl_u16)(x != x ? (b >> 16 | 0x40u) : rounded);
}

// ---- casts to integers --------------------------------------------------------------------------
// What PyTorch gives on x86-64: truncation where it fits; otherwise the processor's least integer.
// Widths below 32 take the low bits of the 32-bit result; unsigned 32, and unsigned 8 of a double,
// those of the 64-bit one.

#define RL_CASTS(F, T, X)                                                                          \
    RL_FN rl_i32 rl_##F##_to_i32(T x) {                                                            \
        bool fits = (__builtin_trunc##X(x) >= (T)-2147483648.0) & (x < (T)2147483648.0);           \
        rl_i32 i = (rl_i32)(fits ? x : (T)0);                                                      \
        return fits ? i : (rl_i32)0x80000000u;                                                     \
    }                                                                                              \
    RL_FN rl_i64 rl_##F##_to_i64(T x) {                                                            \
        bool fits = (x >= (T)-9223372036854775808.0) & (x < (T)9223372036854775808.0);             \
        rl_i64 i = (rl_i64)(fits ? x : (T)0);                                                      \
        return fits ? i : (rl_i64)0x8000000000000000ull;                                           \
    }                                                                                              \
    RL_FN rl_u64 rl_##F##_to_u64(T x) {                                                            \
        bool big = x >= (T)9223372036854775808.0;                                                  \
        rl_u64 i = (rl_u64)rl_##F##_to_i64(big ? x - (T)9223372036854775808.0 : x);                \
        return big ? i ^ 0x8000000000000000ull : i;                                                \
    }                                                                                              \
    RL_FN rl_i16 rl_##F##_to_i16(T x) { return (rl_i16)rl_##F##_to_i32(x); }                       \
    RL_FN rl_i8 rl_##F##_to_i8(T x) { return (rl_i8)rl_##F##_to_i32(x); }                          \
    RL_FN rl_u32 rl_##F##_to_u32(T x) { return (rl_u32)rl_##F##_to_i64(x); }                       \
    RL_FN rl_u16 rl_##F##_to_u16(T x) { return (rl_u16)rl_##F##_to_i32(x); }                       \
    RL_FN bool rl_##F##_to_bool(T x) { return x != (T)0; }
RL_CASTS(f32, float, f)
RL_CASTS(f64, double, )
RL_FN rl_u8 rl_f32_to_u8(float x) { return (rl_u8)rl_f32_to_i32(x); }
RL_FN rl_u8 rl_f64_to_u8(double x) { return (rl_u8)rl_f64_to_i64(x); }

#endif
