// Random numbers.
#ifndef RUSHLIGHT_PRELUDE_RANDOM_H
#define RUSHLIGHT_PRELUDE_RANDOM_H

// Philox4x32-10 (Salmon et al., 2011). The key is the seed, the counter (counter low, counter high,
// lane, 0). One block an element: element e of a call that reserved counters from `offset` on uses
// counter offset + e, whatever its type; float32 takes the first word (normal: two), float64 the
// first two (normal: four). Sharing a block among four elements would need loops that know of it.
// `lane` separates several draws for one element.

struct rl_block { rl_u32 a, b, c, d; };

RL_FN rl_block rl_philox(rl_u64 seed, rl_u64 counter, rl_u32 lane) {
    rl_u32 a = (rl_u32)counter, b = (rl_u32)(counter >> 32), c = lane, d = 0;
    rl_u32 k = (rl_u32)seed, l = (rl_u32)(seed >> 32);
#define RL_ROUND                                                                                   \
    {                                                                                              \
        rl_u64 p = (rl_u64)a * 0xD2511F53u, q = (rl_u64)c * 0xCD9E8D57u;                           \
        a = (rl_u32)(q >> 32) ^ b ^ k;                                                             \
        c = (rl_u32)(p >> 32) ^ d ^ l;                                                             \
        b = (rl_u32)q;                                                                             \
        d = (rl_u32)p;                                                                             \
        k += 0x9E3779B9u;                                                                          \
        l += 0xBB67AE85u;                                                                          \
    }
    RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND RL_ROUND
#undef RL_ROUND
    rl_block out = {a, b, c, d};
    return out;
}

RL_FN float rl_unit_f32(rl_u32 w) { return (float)(rl_i32)(w >> 8) * 5.9604644775390625e-8f; }
RL_FN double rl_unit_f64(rl_u32 v, rl_u32 w) {
    return ((double)(rl_i32)(v >> 5) * 67108864.0
           + (double)(rl_i32)(w >> 6)) * 1.1102230246251565e-16;
}
RL_FN float rl_uniform_f32(rl_u64 seed, rl_u64 counter) {
    return rl_unit_f32(rl_philox(seed, counter, 0).a);
}
RL_FN double rl_uniform_f64(rl_u64 seed, rl_u64 counter) {
    rl_block w = rl_philox(seed, counter, 0);
    return rl_unit_f64(w.a, w.b);
}
RL_FN rl_u64 rl_random_u64(rl_u64 seed, rl_u64 counter) {
    rl_block w = rl_philox(seed, counter, 0);
    return w.a | (rl_u64)w.b << 32;
}

// Box-Muller, its cosine half: sqrt(-2 log u) cos(2 pi v), u in (0, 1], v in [0, 1). In quarter
// turns the reduction of the angle is exact. The largest value is 5.77 (float64: 8.57).
RL_FN float rl_normal_f32(rl_u64 seed, rl_u64 counter) {
    rl_block w = rl_philox(seed, counter, 0);
    float u = rl_unit_f32(w.a) + 5.9604644775390625e-8f, q = rl_unit_f32(w.b) * 4.0f;
    float t = q + RL_MAGIC_F32, r = (q - (t - RL_MAGIC_F32)) * 1.57079633f, z = r * r;
    rl_u32 n = rl_bits_f32(t) + 1u;
    float s = r + r * z * RL_P2(z, -0.16666654f, 0.008332119f, -0.00019510568f);
    float c = 1.0f + z * (-0.5f + z * RL_P2(z, 0.041666646f, -0.0013887311f, 2.4432498e-05f));
    float y = (n & 1u) ? c : s;
    y = rl_make_f32(rl_bits_f32(y) ^ (n & 2u) << 30);
    return __builtin_sqrtf(-2.0f * rl_log_f32(u)) * y;
}
RL_FN double rl_normal_f64(rl_u64 seed, rl_u64 counter) {
    rl_block w = rl_philox(seed, counter, 0);
    double u = rl_unit_f64(w.a, w.b) + 1.1102230246251565e-16, q = rl_unit_f64(w.c, w.d) * 4.0;
    double t = q + RL_MAGIC_F64, r = (q - (t - RL_MAGIC_F64)) * 1.5707963267948966;
    rl_u64 n = rl_bits_f64(t) + 1;
    double s = rl_sin_core_f64(r, 0.0), c = rl_cos_core_f64(r, 0.0), y = (n & 1) ? c : s;
    y = rl_make_f64(rl_bits_f64(y) ^ ((n & 2) << 62));
    return __builtin_sqrt(-2.0 * rl_log_f64(u)) * y;
}

#endif
