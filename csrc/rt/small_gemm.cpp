// A product of a few elements -> the same, at once: a library's call costs more than all of it.
// Invariant: as in plain_gemm.cpp each sum runs over k in order, the product and the sum each rounded.
#include <algorithm>

#include "libraries.h"

namespace rl {
namespace {

constexpr int kLanes = 4;

template <class T>
void run(const Gemm& g, const T* x, const T* y, const T* bias, T* out, T alpha, T beta) {
  typedef T V __attribute__((vector_size(kLanes * sizeof(T)), aligned(alignof(T)), may_alias));
  T turned[kSmallProduct];  // y with unit strides along its rows
  const bool turn = g.y[2] != 1 && g.n > 1;
  const int64_t row = turn ? g.n : g.y[1];
  for (int64_t b = 0; b < g.b; ++b) {
    const T* from = y + b * g.y[0];
    if (turn) {
      for (int64_t p = 0; p < g.k; ++p)
        for (int64_t j = 0; j < g.n; ++j) turned[p * g.n + j] = from[p * g.y[1] + j * g.y[2]];
      from = turned;
    }
    for (int64_t i = 0; i < g.m; ++i) {
      const T* a = x + b * g.x[0] + i * g.x[1];
      const T* add = bias ? bias + b * g.bias[0] + i * g.bias[1] : nullptr;
      T* to = out + b * g.out[0] + i * g.out[1];
      int64_t j = 0;
      for (; j + kLanes <= g.n; j += kLanes) {
        V sum = {};
        for (int64_t p = 0; p < g.k; ++p) sum += a[p * g.x[2]] * *reinterpret_cast<const V*>(from + p * row + j);
        if (alpha != 1) sum *= alpha;
        if (add && g.bias[2] == 1) sum += beta * *reinterpret_cast<const V*>(add + j);
        else if (add) for (int64_t q = 0; q < kLanes; ++q) sum[q] += beta * add[(j + q) * g.bias[2]];
        *reinterpret_cast<V*>(to + j) = sum;
      }
      for (; j < g.n; ++j) {
        T sum = 0;
        for (int64_t p = 0; p < g.k; ++p) sum += a[p * g.x[2]] * from[p * row + j];
        if (alpha != 1) sum *= alpha;
        if (add) sum += beta * add[j * g.bias[2]];
        to[j] = sum;
      }
    }
  }
}

}  // namespace

bool small_takes(const Gemm& g) {
  return (g.dtype == DType::Float32 || g.dtype == DType::Float64) && g.b * g.m * g.n * g.k <= kSmallProduct &&
         g.k * g.n <= kSmallProduct && (g.out[2] == 1 || g.n == 1);
}

void small_run(const Gemm& g, const void* x, const void* y, const void* bias, void* out, double alpha, double beta) {
  if (g.dtype == DType::Float32)
    run(g, static_cast<const float*>(x), static_cast<const float*>(y), static_cast<const float*>(bias),
        static_cast<float*>(out), static_cast<float>(alpha), static_cast<float>(beta));
  else
    run(g, static_cast<const double*>(x), static_cast<const double*>(y), static_cast<const double*>(bias),
        static_cast<double*>(out), alpha, beta);
}

}  // namespace rl
