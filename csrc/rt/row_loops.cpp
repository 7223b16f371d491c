// The loops of row_loops.h for one instruction set, RL_LEVEL (v2 where nobody says). No header with code is included: what this
// file instantiates could otherwise be the copy that the whole library uses.
#include <cstdint>

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

}  // namespace

extern const RowLoops<float> floats = {larger<float>, add<float>, add_scaled<float>, scale<float>,
                                       divide<float>};
extern const RowLoops<double> doubles = {larger<double>, add<double>, add_scaled<double>, scale<double>,
                                         divide<double>};

}  // namespace RL_LEVEL
}  // namespace rl
