// A product of any dtype and strides -> the same, by blocked loops: for integers, and where no
// library is.
// Invariant: each sum runs over k in order; halves are summed in float32, integers wrap.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "error.h"
#include "halves.h"
#include "libraries.h"
#include "row_loops.h"
#include "threads.h"

namespace rl {
// Integers are summed modulo 2^32 or 2^64, which narrows to the same bits.
template <class T>
static uint32_t widen_small(T v) {
  return static_cast<uint32_t>(v);
}
static uint32_t widen(uint8_t v) { return widen_small(v); }
static uint32_t widen(int8_t v) { return widen_small(v); }
static uint32_t widen(int16_t v) { return widen_small(v); }
static uint32_t widen(int32_t v) { return widen_small(v); }
static uint64_t widen(int64_t v) { return static_cast<uint64_t>(v); }
template <class A, class T>
static void narrow(A v, T* out) {
  *out = static_cast<T>(v);
}

namespace {

template <class A>
A number(double v) {
  return static_cast<A>(v);
}
template <>
uint32_t number<uint32_t>(double v) {
  return static_cast<uint32_t>(static_cast<int64_t>(v));
}
template <>
uint64_t number<uint64_t>(double v) {
  return static_cast<uint64_t>(static_cast<int64_t>(v));
}

// ---- the loop

constexpr int kRows = 64, kDeep = 128;
constexpr int kCols = ProductShape::kCols, kStrip = ProductShape::kStrip, kQuad = ProductShape::kQuad;

struct Call {
  const Gemm* gemm;
  const void *x, *y, *bias;
  void* out;
  double alpha, beta;
  int64_t row_blocks, col_blocks;
};

template <class T, class A>
void finish(const Gemm& g, const A* acc, int64_t batch, int64_t i, int64_t j, int64_t count,
            const void* bias, void* out, double alpha, double beta) {
  T* to = static_cast<T*>(out) + batch * g.out[0] + i * g.out[1] + j * g.out[2];
  const T* add =
      bias ? static_cast<const T*>(bias) + batch * g.bias[0] + i * g.bias[1] + j * g.bias[2]
           : nullptr;
  const A scale = number<A>(alpha), scale_bias = number<A>(beta);
  for (int64_t q = 0; q < count; ++q) {
    A v = acc ? acc[q] : A(0);
    if (scale != A(1)) v *= scale;
    if (add) v += scale_bias * widen(add[q * g.bias[2]]);
    narrow(v, to + q * g.out[2]);
  }
}

// f(stride), a constant where it is one, so that the loop runs on.
template <class F>
void strided(int64_t stride, F f) {
  if (stride == 1) f(std::integral_constant<int64_t, 1>());
  else f(stride);
}

template <class T, class A>
void blocks(void* context, int64_t begin, int64_t end) {
  const Call& call = *static_cast<const Call*>(context);
  const Gemm& g = *call.gemm;
  const ProductLoop<A> micro = product_loop<A>();
  static thread_local A a[kRows * kDeep], b[kDeep * kCols], c[kRows * kCols];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t batch = block / (call.row_blocks * call.col_blocks),
                  rest = block % (call.row_blocks * call.col_blocks);
    const int64_t i0 = rest / call.col_blocks * kRows, j0 = rest % call.col_blocks * kCols;
    const int64_t rows = std::min<int64_t>(kRows, g.m - i0),
                  cols = std::min<int64_t>(kCols, g.n - j0);
    const int64_t quads = (rows + kQuad - 1) / kQuad, strips = (cols + kStrip - 1) / kStrip;
    const T* x = static_cast<const T*>(call.x) + batch * g.x[0] + i0 * g.x[1];
    const T* y = static_cast<const T*>(call.y) + batch * g.y[0] + j0 * g.y[2];
    std::fill(c, c + quads * kQuad * kCols, A(0));
    for (int64_t p0 = 0; p0 < g.k; p0 += kDeep) {
      const int64_t depth = std::min<int64_t>(kDeep, g.k - p0);
      for (int64_t i = 0; i < quads * kQuad; ++i) {
        A* to = a + i / kQuad * depth * kQuad + i % kQuad;
        const T* from = x + i * g.x[1] + p0 * g.x[2];
        if (i < rows) strided(g.x[2], [&](auto step) {
          for (int64_t p = 0; p < depth; ++p) to[p * kQuad] = widen(from[p * step]);
        });
        else for (int64_t p = 0; p < depth; ++p) to[p * kQuad] = A(0);
      }
      for (int64_t p = 0; p < depth; ++p) {
        const T* from = y + (p0 + p) * g.y[1];
        strided(g.y[2], [&](auto step) {
          for (int64_t j = 0; j < cols; ++j) b[p * kCols + j] = widen(from[j * step]);
        });
        for (int64_t j = cols; j < strips * kStrip; ++j) b[p * kCols + j] = A(0);
      }
      for (int64_t s = 0; s < strips; ++s)
        for (int64_t q = 0; q < quads; ++q)
          micro(depth, a + q * depth * kQuad, b + s * kStrip, c + q * kQuad * kCols + s * kStrip);
    }
    for (int64_t i = 0; i < rows; ++i)
      finish<T, A>(g, c + i * kCols, batch, i0 + i, j0, cols, call.bias, call.out, call.alpha,
                   call.beta);
  }
}

template <class T, class A>
void run(Call& call) {
  const Gemm& g = *call.gemm;
  call.row_blocks = (g.m + kRows - 1) / kRows;
  call.col_blocks = (g.n + kCols - 1) / kCols;
  const int64_t work =
      std::min<int64_t>(g.m, kRows) * std::min<int64_t>(g.n, kCols) * std::max<int64_t>(g.k, 1);
  parallel_for(g.b * call.row_blocks * call.col_blocks, 1 + 100000 / work, blocks<T, A>, &call);
}

}  // namespace

void plain_run(const Gemm& g, const void* x, const void* y, const void* bias, void* out,
               double alpha, double beta) {
  Call call{&g, x, y, bias, out, alpha, beta, 0, 0};
  switch (g.dtype) {
    case DType::Bool:
    case DType::UInt8: return run<uint8_t, uint32_t>(call);
    case DType::Int8: return run<int8_t, uint32_t>(call);
    case DType::Int16: return run<int16_t, uint32_t>(call);
    case DType::Int32: return run<int32_t, uint32_t>(call);
    case DType::Int64: return run<int64_t, uint64_t>(call);
    case DType::Float16: return run<Float16, float>(call);
    case DType::BFloat16: return run<BFloat16, float>(call);
    case DType::Float32: return run<float, float>(call);
    case DType::Float64: return run<double, double>(call);
    case DType::Complex64:
    case DType::Complex128: break;  // those products are made of real ones
  }
  fail(ErrorKind::Runtime, "[matmul] no loop multiplies complex matrices");
}

void finish_run(const Gemm& g, const float* acc, const void* bias, void* out, double alpha,
                double beta) {
  for (int64_t batch = 0; batch < g.b; ++batch)
    for (int64_t i = 0; i < g.m; ++i) {
      const float* row = acc ? acc + (batch * g.m + i) * g.n : nullptr;
      switch (g.dtype) {
        case DType::Float16:
          finish<Float16, float>(g, row, batch, i, 0, g.n, bias, out, alpha, beta);
          break;
        case DType::BFloat16:
          finish<BFloat16, float>(g, row, batch, i, 0, g.n, bias, out, alpha, beta);
          break;
        case DType::Float32:
          finish<float, float>(g, row, batch, i, 0, g.n, bias, out, alpha, beta);
          break;
        default:
          finish<double, double>(g, nullptr, batch, i, 0, g.n, bias, out, alpha, beta);
          break;
      }
    }
}

}  // namespace rl
