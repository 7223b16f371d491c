// Pointwise steps on a stored result: what oneDNN's post-ops do in registers, for where it does not.
#include "epilogue.h"

#include <algorithm>
#include <cmath>

#include "halves.h"
#include "parallel.h"

namespace rl {
namespace {

template <class W>
W step(Step s, W x, W y) {
  switch (s) {
    case Step::Relu: return x > 0 || x != x ? x : W(0);
    case Step::GeluTanh:
      return W(0.5) * x *
             (1 + std::tanh(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x)));
    case Step::Silu: return x / (1 + std::exp(-x));
    case Step::Sigmoid: return 1 / (1 + std::exp(-x));
    case Step::Tanh: return std::tanh(x);
    case Step::Add: return x + y;
    case Step::Multiply: return x * y;
  }
  return x;
}

constexpr int64_t kPiece = 256;  // elements that go through all steps before the next ones

template <class T>
void run(const Epilogue& e, int64_t rows, int64_t columns, int64_t inner,
         const void* const* extras, T* out) {
  typedef decltype(widen(T())) W;
  // Lines along which the column is the same, or whole rows of columns.
  const int64_t length = inner > 1 ? inner : columns, lines = inner > 1 ? rows * columns : rows;
  parallel(lines, 1 + 4096 / (1 + length), [&](int64_t begin, int64_t end) {
    W v[kPiece], other[kPiece];
    for (int64_t line = begin; line < end; ++line)
      for (int64_t at = 0; at < length; at += kPiece) {
        const int64_t count = std::min(kPiece, length - at);
        T* to = out + line * length + at;
        for (int64_t i = 0; i < count; ++i) v[i] = widen(to[i]);
        int next = 0;
        for (int k = 0; k < e.count; ++k) {
          if (takes_operand(e.steps[k])) {
            const T* from = static_cast<const T*>(extras[next]);
            if (e.whole[next])
              for (int64_t i = 0; i < count; ++i) other[i] = widen(from[line * length + at + i]);
            else if (inner > 1)
              std::fill(other, other + count, widen(from[line % columns]));
            else
              for (int64_t i = 0; i < count; ++i) other[i] = widen(from[at + i]);
            ++next;
          }
          for (int64_t i = 0; i < count; ++i) v[i] = step(e.steps[k], v[i], other[i]);
        }
        for (int64_t i = 0; i < count; ++i) narrow(v[i], &to[i]);
      }
  });
}

}  // namespace

void epilogue_run(const Epilogue& e, DType dtype, int64_t rows, int64_t columns, int64_t inner,
                  const void* const* extras, void* out) {
  switch (dtype) {
    case DType::Float64: return run(e, rows, columns, inner, extras, static_cast<double*>(out));
    case DType::BFloat16: return run(e, rows, columns, inner, extras, static_cast<BFloat16*>(out));
    case DType::Float16: return run(e, rows, columns, inner, extras, static_cast<Float16*>(out));
    default: return run(e, rows, columns, inner, extras, static_cast<float*>(out));
  }
}

}  // namespace rl
