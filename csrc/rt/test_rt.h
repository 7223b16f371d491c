// What the tests of the runtime share: checks, layouts by hand, walks over shapes.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "error.h"
#include "layout.h"

using namespace rl;
typedef std::vector<int64_t> Ints;

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)

inline void throws(ErrorKind kind, const char* text, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    if (e.kind == kind && std::strstr(e.what(), text)) return;
    std::printf("wrong error: %s (expected ...%s...)\n", e.what(), text);
    std::exit(1);
  }
  std::printf("no error, expected: %s\n", text);
  std::exit(1);
}

inline uint64_t seed = 1;
inline int64_t random_below(int64_t n) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<int64_t>((seed >> 33) % static_cast<uint64_t>(n));
}

inline Layout* dense(const Ints& shape, DType d = DType::Float32) {
  return layout_dense(d, Device::CPU, static_cast<int>(shape.size()), shape.data());
}
inline Layout* strided(const Ints& shape, const Ints& strides, DType d = DType::Float32) {
  return layout_intern(d, Device::CPU, static_cast<int>(shape.size()), shape.data(),
                       strides.data());
}
inline Ints strides_of(const Layout* x) { return Ints(x->strides(), x->strides() + x->ndim); }
inline Ints shape_of(const Layout* x) { return Ints(x->shape(), x->shape() + x->ndim); }

// Walks a shape in C order.
inline void each(const Ints& shape, const std::function<void(const Ints&)>& body) {
  int64_t numel = 1;
  for (int64_t s : shape) numel *= s;
  Ints at(shape.size());
  for (int64_t i = 0; i < numel; ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
    body(at);
  }
}
inline int64_t place(const Layout* x, const Ints& at) {  // right-aligned, broadcast
  int64_t sum = 0;
  const size_t shift = at.size() - x->ndim;
  for (int d = 0; d < x->ndim; ++d) sum += x->shape()[d] == 1 ? 0 : at[d + shift] * x->strides()[d];
  return sum;
}

void test_loops();
void test_gemm();
void test_convolution();
void test_pooling();
