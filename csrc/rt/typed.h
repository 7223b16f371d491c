// What routines share: code for one element type chosen by a dtype, rows of a dim, threads for lambdas, checked indices.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "error.h"
#include "halves.h"
#include "parallel.h"
#include "routines.h"

namespace rl {

// f(T()) with the C++ type of a dtype; bools come as bytes.
template <class F>
void with_numbers(const char* op, DType d, F f) {
  switch (d) {
    case DType::Bool:
    case DType::UInt8: return f(uint8_t());
    case DType::Int8: return f(int8_t());
    case DType::Int16: return f(int16_t());
    case DType::Int32: return f(int32_t());
    case DType::Int64: return f(int64_t());
    case DType::Float32: return f(float());
    case DType::Float64: return f(double());
    default: fail(ErrorKind::NotImplemented, "[%s] \"%s\" not implemented for '%s'", op, op, dtype_name(static_cast<DType>(static_cast<int>(d) % kDTypes)));
  }
}

template <class F>
void with_any(const char* op, DType d, F f) {      // half types too
  if (d == DType::BFloat16) return f(BFloat16());
  if (d == DType::Float16) return f(Float16());
  with_numbers(op, d, f);
}

template <class F>
void with_floats(const char* op, DType d, F f) {
  if (d == DType::Float32) return f(float());
  if (d == DType::Float64) return f(double());
  fail(ErrorKind::NotImplemented, "[%s] \"%s\" not implemented for '%s'", op, op, dtype_name(static_cast<DType>(static_cast<int>(d) % kDTypes)));
}

// An unsigned type of the element's size: for moving elements.
template <class F>
void with_size(DType d, F f) {
  switch (itemsize(d)) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    default: return f(uint64_t());
  }
}

inline int64_t grain_of(int64_t work_each, int64_t least = 32768) {
  return std::max<int64_t>(1, least / std::max<int64_t>(work_each, 1));
}

// A C-ordered tensor seen as rows along `dim`: element j of row (o, i) lies at (o * n + j) * inner + i.
struct Rows {
  int64_t outer = 1, n = 1, inner = 1;
  Rows(const Layout* l, int64_t dim) {
    for (int d = 0; d < l->ndim; d++) (d < dim ? outer : d == dim ? n : inner) *= l->dims[d];
  }
  int64_t rows() const { return outer * inner; }
  int64_t start(int64_t row) const { return row / inner * n * inner + row % inner; }
};

// Whether all of `count` indices are from `low` (0 or -size) to size - 1: a sign bit in what is left to either side, with
// nothing to compare, which runs in vectors on every instruction set.
inline bool within(const int64_t* index, int64_t count, int64_t low, int64_t size) {
  uint64_t outside = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint64_t v = static_cast<uint64_t>(index[i]);
    outside |= (v - static_cast<uint64_t>(low)) | (static_cast<uint64_t>(size) - 1 - v);
  }
  return !(outside >> 63);
}

// Indices of a dim of `size` elements, negative ones counted from the end, are all within it; or an error of `kind`.
inline void check_indices(const char* op, ErrorKind kind, const int64_t* index, int64_t count, int64_t size, int64_t dim,
                          bool negative) {
  const int64_t low = negative ? -size : 0;
  std::atomic<int64_t> wrong{-1};
  parallel(count, 65536, [&](int64_t a, int64_t b) {
    if (within(index + a, b - a, low, size)) return;
    int64_t at = a;
    while (index[at] >= low && index[at] < size) at++;
    int64_t seen = wrong.load();
    while ((seen < 0 || at < seen) && !wrong.compare_exchange_weak(seen, at)) {}
  });
  if (wrong >= 0)
    fail(kind, "[%s] index %lld is out of bounds: dim %lld has size %lld", op,
         static_cast<long long>(index[wrong]), static_cast<long long>(dim), static_cast<long long>(size));
}

template <class T>
constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// f(a, b) computed in float32 for half types.
template <class T, class F>
T computed(T a, T b, F f) {
  if constexpr (is_half<T>) {
    T out;
    narrow(f(widen(a), widen(b)), &out);
    return out;
  } else {
    return f(a, b);
  }
}

// Integers wrap around.
template <class T>
T plus(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else if constexpr (is_half<T>) return computed(a, b, [](float x, float y) { return x + y; });
  else return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class T>
T times(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  else if constexpr (is_half<T>) return computed(a, b, [](float x, float y) { return x * y; });
  else return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
bool is_nan(T v) {
  if constexpr (is_half<T>) return widen(v) != widen(v);
  else if constexpr (std::is_floating_point_v<T>) return v != v;
  else return false;
}
template <class T>
bool below(T a, T b) {
  if constexpr (is_half<T>) return widen(a) < widen(b);
  else return a < b;
}

// How a value is put where another one is.
enum class Put : int64_t { Assign, Add, Multiply, Max, Min };
template <class T>
void put(Put how, bool boolean, T* at, T v) {
  switch (how) {
    case Put::Assign: *at = v; break;
    case Put::Add:
      *at = plus(*at, v);
      if constexpr (std::is_same_v<T, uint8_t>) *at = boolean ? *at != 0 : *at;
      break;
    case Put::Multiply: *at = times(*at, v); break;
    case Put::Max: if (is_nan(v) || below(*at, v)) *at = v; break;
    case Put::Min: if (is_nan(v) || below(v, *at)) *at = v; break;
  }
}

// What the routines that put are told: start from zeros and take no self; the value is the run-time number; negative indices
// are wrong; what stands where something is put does not count; divide by how many were put.
enum PutFlags : int64_t { kFromZeros = 1, kNumber = 2, kNoNegative = 4, kWithoutSelf = 8, kMean = 16 };

template <class T>
T identity(Put how) {
  if constexpr (is_half<T>) {
    T out;
    narrow(identity<float>(how), &out);
    return out;
  } else {
    typedef std::numeric_limits<T> limits;
    switch (how) {
      case Put::Multiply: return T(1);
      case Put::Max: return limits::has_infinity ? static_cast<T>(-limits::infinity()) : limits::lowest();
      case Put::Min: return limits::has_infinity ? limits::infinity() : limits::max();
      default: return T(0);
    }
  }
}

template <class T>
void divide_by_counts(T* y, const int64_t* counts, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (counts[i] <= 1) continue;
    if constexpr (is_half<T>) narrow(widen(y[i]) / static_cast<float>(counts[i]), y + i);
    else if constexpr (std::is_floating_point_v<T>) y[i] /= static_cast<T>(counts[i]);
    else y[i] = static_cast<T>(y[i] / counts[i] - (y[i] % counts[i] < 0));
  }
}

template <class T>
T number_as(DType d, Number n) {
  if constexpr (is_half<T>) {
    T out;
    narrow(static_cast<float>(n.f), &out);
    return out;
  } else {
    return is_floating(d) ? static_cast<T>(n.f) : d == DType::Bool ? static_cast<T>(n.i != 0) : static_cast<T>(n.i);
  }
}

}  // namespace rl
