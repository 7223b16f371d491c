// Element types. Takes nothing; the ids are shared with rushlight/dtypes.py and never change.
#pragma once
#include <cstdint>
#include "device.h"

namespace rl {

// Ordered by promotion within a category: bool < integers < floats < complex.
enum class DType : uint8_t {
  Bool = 0, UInt8 = 1, Int8 = 2, Int16 = 3, Int32 = 4, Int64 = 5,
  Float16 = 6, BFloat16 = 7, Float32 = 8, Float64 = 9, Complex64 = 10, Complex128 = 11,
};
constexpr int kDTypes = 12;

constexpr int itemsize(DType d) {
  constexpr int bytes[kDTypes] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return bytes[static_cast<int>(d)];
}
constexpr const char* dtype_name(DType d) {
  constexpr const char* names[kDTypes] = {"bool", "uint8", "int8", "int16", "int32", "int64",
                                          "float16", "bfloat16", "float32", "float64",
                                          "complex64", "complex128"};
  return names[static_cast<int>(d)];
}
constexpr bool is_floating(DType d) { return d >= DType::Float16 && d <= DType::Float64; }
constexpr bool is_complex(DType d) { return d >= DType::Complex64; }
constexpr bool is_differentiable(DType d) { return d >= DType::Float16; }
constexpr DType real_of(DType d) {                     // of the parts of a complex number
  return d == DType::Complex64 ? DType::Float32 : d == DType::Complex128 ? DType::Float64 : d;
}

// A run-time number handed to a kernel: `f` where the kernel computes in floating point, `i` elsewhere.
union Number { double f; int64_t i; };

}  // namespace rl
