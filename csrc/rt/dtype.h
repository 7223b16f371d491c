// Element types. Takes nothing; the ids are shared with rushlight/dtypes.py and never change.
#pragma once
#include <cstdint>
#include "device.h"

namespace rl {

// Ordered by promotion within a category: bool < integers < floats. Complex keeps its place (10, 11).
enum class DType : uint8_t {
  Bool = 0, UInt8 = 1, Int8 = 2, Int16 = 3, Int32 = 4, Int64 = 5,
  Float16 = 6, BFloat16 = 7, Float32 = 8, Float64 = 9,
};
constexpr int kDTypes = 10;

constexpr int itemsize(DType d) {
  constexpr int bytes[kDTypes] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return bytes[static_cast<int>(d)];
}
constexpr const char* dtype_name(DType d) {
  constexpr const char* names[kDTypes] = {"bool", "uint8", "int8", "int16", "int32", "int64",
                                          "float16", "bfloat16", "float32", "float64"};
  return names[static_cast<int>(d)];
}
constexpr bool is_floating(DType d) { return d >= DType::Float16; }

// A run-time number handed to a kernel: `f` where the kernel computes in floating point, `i` elsewhere.
union Number { double f; int64_t i; };

}  // namespace rl
