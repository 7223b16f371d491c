// Loops over rows of floats that routines are made of, compiled once per instruction set; the best that the processor has is
// taken. Their numbers are the same on all: nothing is contracted, each element has its own sum.
#pragma once
#include <cstdint>

namespace rl {

template <class T>
struct RowLoops {
  // Where row[i] is larger than to[i], or NaN, it is taken, and at[i] becomes first + i * step.
  void (*larger)(T* to, int32_t* at, const T* row, int64_t n, int32_t first, int32_t step);
  void (*add)(T* to, const T* row, int64_t n);
  void (*add_scaled)(T* to, const T* row, T scale, int64_t n);
  void (*scale)(T* to, const T* row, T scale, int64_t n);
  void (*divide)(T* to, T by, int64_t n);
  // to[i] = start + the sum of weights[t] * from[offsets[t] + i]; up to a vector is read beyond what is needed.
  void (*window)(T* to, int64_t n, const T* from, const int64_t* offsets, const T* weights, int64_t taps, T start);
};

template <class T>
const RowLoops<T>& row_loops();  // float, double

// Of products: c[4, 16] += a[4, depth] b[depth, 16], each sum in order of depth; a packed in fours, rows of b and c 64 apart.
// Integers wrap.
struct ProductShape {
  static constexpr int kQuad = 4, kStrip = 16, kCols = 64;
};
template <class A>
using ProductLoop = void (*)(int64_t depth, const A* a, const A* b, A* c);

template <class A>
ProductLoop<A> product_loop();  // uint32_t, uint64_t, float, double

}  // namespace rl
