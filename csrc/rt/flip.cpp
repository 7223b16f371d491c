// flip: the order of elements along dims reversed. ints: a mask of the dims.
// The operand comes as it lies, the output is dense in the operand's order of dims.
#include "typed.h"

namespace rl {
namespace {

struct Loops {
  int n = 0;
  int64_t size[kMaxDims], from[kMaxDims], to[kMaxDims];
};

template <class T>
void copy_row(T* to, const T* from, int64_t n, int64_t step_to, int64_t step_from) {
  if (step_to == 1 && step_from == 1) std::memcpy(to, from, n * sizeof(T));
  else if (step_to == 1 && step_from == -1)
    for (int64_t i = 0; i < n; i++) to[i] = from[-i];
  else
    for (int64_t i = 0; i < n; i++) to[i * step_to] = from[i * step_from];
}

void run_flip(const RoutineCall& c) {
  const Layout *x = c.in[0].layout, *y = c.out[0].layout;
  if (!x->numel) return;
  int order[kMaxDims];
  for (int d = 0; d < x->ndim; d++) order[d] = d;
  std::stable_sort(order, order + x->ndim,
      [&](int a, int b) { return y->strides()[a] > y->strides()[b]; });
  Loops l;
  int64_t start = 0;
  for (int k = 0; k < x->ndim; k++) {
    const int d = order[k];
    if (x->dims[d] == 1) continue;
    const bool turned = c.ints[0] >> d & 1;
    const int64_t step = turned ? -x->strides()[d] : x->strides()[d];
    if (turned) start += (x->dims[d] - 1) * x->strides()[d];
    const int last = l.n - 1;
    if (last >= 0 && l.to[last] == y->strides()[d] * x->dims[d] &&
        l.from[last] == step * x->dims[d]) {         // folds into the loop outside
      l.size[last] *= x->dims[d];
      l.from[last] = step;
      l.to[last] = y->strides()[d];
      continue;
    }
    l.size[l.n] = x->dims[d];
    l.from[l.n] = step;
    l.to[l.n++] = y->strides()[d];
  }
  if (!l.n) {
    l.n = 1;
    l.size[0] = 1;
    l.from[0] = l.to[0] = 1;
  }
  int64_t rows = 1;
  for (int k = 0; k + 1 < l.n; k++) rows *= l.size[k];
  const int64_t n = l.size[l.n - 1], step_to = l.to[l.n - 1], step_from = l.from[l.n - 1];
  with_size(x->dtype, [&](auto one) {
    using T = decltype(one);
    const T* from = c.in[0].as<const T>() + start;
    T* to = c.out[0].as<T>();
    parallel(rows, grain_of(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, a = 0, b = 0;
        for (int k = l.n - 2; k >= 0; k--) {
          const int64_t at = rest % l.size[k];
          rest /= l.size[k];
          a += at * l.from[k];
          b += at * l.to[k];
        }
        copy_row(to + b, from + a, n, step_to, step_from);
      }
    });
  });
}

RL_ROUTINE(flip, run_flip)

}  // namespace
}  // namespace rl
