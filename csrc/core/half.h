// float16 and bfloat16 as bits, with conversions rounded to nearest even. Takes any arithmetic
// value.
#pragma once
#include <cstdint>
#include <cstring>

namespace core {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float bits_to_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}
inline uint32_t float_to_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}

inline float half_to_float(Half h) {
  uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31,
           fraction = h.bits & 1023;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = static_cast<float>(fraction) * (1.0f / 16777216.0f);  // fraction * 2^-24
  return sign ? -tiny : tiny;
}

inline Half half_from_float(float f) {
  uint32_t u = float_to_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude >= 0x7f800000)
    return {static_cast<uint16_t>(
        sign | 0x7c00 | (magnitude > 0x7f800000 ? 0x200 | (magnitude >> 13 & 0x1ff) : 0))};
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds to infinity
  if (magnitude < 0x38800000) {  // subnormal: a sum does the rounding
    float shifted = bits_to_float(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (float_to_bits(shifted) - 0x3f000000))};
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13)};
}

inline float bfloat16_to_float(BFloat16 b) {
  return bits_to_float(static_cast<uint32_t>(b.bits) << 16);
}

inline BFloat16 bfloat16_from_float(float f) {
  uint32_t u = float_to_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(u >> 16 | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

template <class T>
Half half_from(T v) {
  return half_from_float(static_cast<float>(v));
}
template <class T>
BFloat16 bfloat16_from(T v) {
  return bfloat16_from_float(static_cast<float>(v));
}

}  // namespace core
