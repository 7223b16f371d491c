// The right operand of products that come again and again, kept in the order in which the library reads it: tiles of 64
// columns on AVX-512. Where oneDNN has no order of its own for it, nothing is packed. Internal to rt.
#pragma once
#include <cstdint>

#include "dtype.h"

namespace rl {

// Bytes of y[k, n] packed; 0: the library takes it as it lies; -1: there is no library. The form depends on k, n, the dtype and the processor alone, so
// products with any number of rows share it.
int64_t packed_bytes(DType, int64_t k, int64_t n);
// y, whose element (i, j) lies at i * rows + j * cols, packed. `to` is 64-byte aligned. False: nothing was done.
bool pack(DType, int64_t k, int64_t n, int64_t rows, int64_t cols, const void* y, void* to);

}  // namespace rl
