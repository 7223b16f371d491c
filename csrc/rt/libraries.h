// Adapters to the matrix libraries, opened with dlopen at first use. Internal to rt: gemm.h is the
// way in.
#pragma once
#include <cstdint>
#include <memory>

#include "dtype.h"

namespace rl {

// One product, normalised: out is row-major. Strides are (batch, row, column) in elements; 0
// repeats.
struct Gemm {
  int64_t b, m, n, k;
  int64_t x[3], y[3], out[3], bias[3];
  DType dtype, out_dtype;  // out_dtype differs only where halves are kept in float32
  bool has_bias;
  bool accumulate;  // oneDNN: added to what out holds
  int threads;
  bool packed;  // oneDNN: y is packed (packing.h)
  int slot;     // oneDNN: products that run at the same time are different ones
};

// Where the row starts next: the leading dimension of a matrix with one unit stride. Returns false
// where neither is.
struct Leading {
  bool transposed;
  int64_t ld;
};
bool leading(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, Leading* out);

// ---- OpenBLAS: float32 and float64, no bias; out = alpha x y + beta out.
bool openblas_available();
void* openblas_symbol(const char* name);  // of the library that products use; null: there is none
bool openblas_takes(const Gemm&);  // sizes fit its 32-bit integers
void openblas_run(const Gemm&, const void* x, const void* y, void* out, double alpha, double beta);

// ---- oneDNN: float32, bfloat16, float16; a primitive is made once a description and shared.
struct Matmul;
bool onednn_available();
std::shared_ptr<Matmul> onednn_matmul(const Gemm&);  // null where the library refuses
bool onednn_run(Matmul*, const void* x, const void* y, const void* bias,
                void* out);  // false: nothing was done

// ---- a few elements: float32 and float64, no call and no thread.
constexpr int kSmallProduct = 512;  // multiply-adds
bool small_takes(const Gemm&);
void small_run(const Gemm&, const void* x, const void* y, const void* bias, void* out, double alpha,
               double beta);

// ---- our own loop: every dtype but bool, any strides.
void plain_run(const Gemm&, const void* x, const void* y, const void* bias, void* out, double alpha,
               double beta);
// out = alpha acc + beta bias, acc [b, m, n] dense float32 (null: nothing is added).
void finish_run(const Gemm&, const float* acc, const void* bias, void* out, double alpha,
                double beta);

const char* openblas_path();
const char* onednn_path();

}  // namespace rl
