// Half types as bits, and what widens them to float32 and narrows them again, to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

namespace rl {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline uint32_t bits_of(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
inline float float_of(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

inline float widen(float v) { return v; }
inline double widen(double v) { return v; }
inline float widen(BFloat16 v) { return float_of(static_cast<uint32_t>(v.bits) << 16); }
inline float widen(Float16 v) {
  const uint32_t sign = (v.bits & 0x8000u) << 16, rest = v.bits & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);  // inf, nan
  if (rest >= 0x400u) return float_of(sign | ((rest << 13) + (112u << 23)));
  return float_of(sign | bits_of(static_cast<float>(rest) * 0x1p-24f));  // subnormal
}

inline void narrow(float v, float* out) { *out = v; }
inline void narrow(double v, double* out) { *out = v; }
inline void narrow(float v, BFloat16* out) {  // to nearest even
  const uint32_t u = bits_of(v);
  out->bits = v != v ? static_cast<uint16_t>(u >> 16 | 0x40u)
                     : static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
inline void narrow(float v, Float16* out) {
  const uint32_t u = bits_of(v), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
  uint32_t half;
  if (rest > 0x7f800000u)
    half = 0x7e00u;  // nan
  else if (rest >= 0x477ff000u)
    half = 0x7c00u;  // rounds to inf
  else if (rest < 0x38800000u)
    half = bits_of(float_of(rest) + 0.5f) - 0x3f000000u;  // subnormal: the adder rounds
  else
    half = (rest + 0xfffu + (rest >> 13 & 1u) - (112u << 23)) >> 13;
  out->bits = static_cast<uint16_t>(sign | half);
}

}  // namespace rl
