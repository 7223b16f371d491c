// The loops of row_loops.h for one instruction set, RL_LEVEL (v2 where nobody says). No header with code is included: what this
// file instantiates could otherwise be the copy that the whole library uses.
#include <cstdint>
#include <type_traits>

#include "row_loops.h"

#ifndef RL_LEVEL
#define RL_LEVEL v2
#endif

namespace rl {
namespace RL_LEVEL {
namespace {

template <class T>
void larger(T* __restrict to, int32_t* __restrict at, const T* __restrict row, int64_t n, int32_t first,
            int32_t step) {
  const int32_t length = static_cast<int32_t>(n);
  for (int32_t i = 0; i < length; ++i) {
    const T v = row[i], best = to[i];
    const bool more = (v > best) | (v != v);
    to[i] = more ? v : best;
    at[i] = more ? first + i * step : at[i];
  }
}

template <class T>
void add(T* __restrict to, const T* __restrict row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += row[i];
}

template <class T>
void add_scaled(T* __restrict to, const T* __restrict row, T by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += row[i] * by;
}

template <class T>
void scale(T* __restrict to, const T* __restrict row, T by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = row[i] * by;
}

template <class T>
void divide(T* __restrict to, T by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] /= by;
}

#if defined(__AVX512F__)
constexpr int kVector = 64;
#elif defined(__AVX__)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif

template <class T, int Count>
inline void window_part(T* to, int64_t n, const T* from, const int64_t* offsets, const T* weights, int64_t taps, T start) {
  typedef T Vector __attribute__((vector_size(kVector), aligned(alignof(T)), may_alias));
  constexpr int lanes = kVector / sizeof(T);
  Vector sum[Count];
#pragma GCC unroll 4
  for (int v = 0; v < Count; ++v) sum[v] = start - Vector{};
  for (int64_t t = 0; t < taps; ++t) {
    const T* row = from + offsets[t];
#pragma GCC unroll 4
    for (int v = 0; v < Count; ++v) sum[v] += weights[t] * *reinterpret_cast<const Vector*>(row + v * lanes);
  }
  if (n >= Count * lanes) {
#pragma GCC unroll 4
    for (int v = 0; v < Count; ++v) *reinterpret_cast<Vector*>(to + v * lanes) = sum[v];
  } else {
    T whole[Count * lanes];
#pragma GCC unroll 4
    for (int v = 0; v < Count; ++v) *reinterpret_cast<Vector*>(whole + v * lanes) = sum[v];
    for (int64_t i = 0; i < n; ++i) to[i] = whole[i];
  }
}

template <class T>
void window(T* __restrict to, int64_t n, const T* from, const int64_t* offsets, const T* weights, int64_t taps, T start) {
  constexpr int lanes = kVector / sizeof(T);
  int64_t i = 0;
  for (; n - i > 3 * lanes; i += 4 * lanes) window_part<T, 4>(to + i, n - i, from + i, offsets, weights, taps, start);
  if (n - i > 2 * lanes) window_part<T, 3>(to + i, n - i, from + i, offsets, weights, taps, start);
  else if (n - i > lanes) window_part<T, 2>(to + i, n - i, from + i, offsets, weights, taps, start);
  else if (n > i) window_part<T, 1>(to + i, n - i, from + i, offsets, weights, taps, start);
}

// In registers: four rows of at most two vectors. SSE's products of 64-bit integers, from parts, are slower than scalar ones.
template <class A>
void product(int64_t depth, const A* a, const A* b, A* c) {
  constexpr bool scalar = std::is_same_v<A, uint64_t> && kVector == 16;
  constexpr int size = scalar ? sizeof(A) : kVector;
  typedef A Vector __attribute__((vector_size(size), aligned(alignof(A)), may_alias));
  constexpr int quad = ProductShape::kQuad, strip = ProductShape::kStrip, cols = ProductShape::kCols;
  constexpr int lanes = size / sizeof(A), wide = strip / lanes < 2 ? 1 : 2;
  for (int j = 0; j < strip; j += wide * lanes) {
    Vector sum[quad][wide];
#pragma GCC unroll 4
    for (int i = 0; i < quad; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < wide; ++v)
        sum[i][v] = *reinterpret_cast<const Vector*>(c + i * cols + j + v * lanes);
    for (int64_t p = 0; p < depth; ++p) {
#pragma GCC unroll 4
      for (int i = 0; i < quad; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < wide; ++v)
          sum[i][v] += a[p * quad + i] * *reinterpret_cast<const Vector*>(b + p * cols + j + v * lanes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < quad; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < wide; ++v)
        *reinterpret_cast<Vector*>(c + i * cols + j + v * lanes) = sum[i][v];
  }
}

}  // namespace

extern const ProductLoop<uint32_t> product_words = product<uint32_t>;
extern const ProductLoop<uint64_t> product_longs = product<uint64_t>;
extern const ProductLoop<float> product_floats = product<float>;
extern const ProductLoop<double> product_doubles = product<double>;
extern const RowLoops<float> floats = {larger<float>, add<float>, add_scaled<float>, scale<float>,
                                       divide<float>, window<float>};
extern const RowLoops<double> doubles = {larger<double>, add<double>, add_scaled<double>, scale<double>,
                                         divide<double>, window<double>};

}  // namespace RL_LEVEL
}  // namespace rl
