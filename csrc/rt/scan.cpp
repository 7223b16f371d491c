// Scans along a dim: each element of the output folds the row's elements up to it. Floats are summed in float64.
#include <cmath>
#include <limits>

#include "typed.h"

namespace rl {
namespace {

// f(first element's offset, columns) for slabs of neighbouring rows, so that memory is walked in order where inner > 1.
template <class F>
void slabs(const Rows& r, F f) {
  const int64_t width = 32, groups = (r.inner + width - 1) / width;
  if (r.n == 0) return;
  parallel(r.outer * groups, grain_of(r.n * std::min(r.inner, width) * 2), [&](int64_t a, int64_t b) {
    for (int64_t k = a; k < b; k++) {
      const int64_t first = k % groups * width;
      f(k / groups * r.n * r.inner + first, std::min(width, r.inner - first));
    }
  });
}

template <class T>
struct Sum {
  typedef std::conditional_t<std::is_floating_point_v<T>, double, T> State;
  static State start() { return 0; }
  static State step(State s, T v) { return plus<State>(s, v); }
  static State join(State s, State t) { return plus<State>(s, t); }
  static T give(State s) { return static_cast<T>(s); }
};

template <class T>
struct Product {
  typedef std::conditional_t<std::is_floating_point_v<T>, double, T> State;
  static State start() { return 1; }
  static State step(State s, T v) { return times<State>(s, v); }
  static State join(State s, State t) { return times<State>(s, t); }
  static T give(State s) { return static_cast<T>(s); }
};

template <class T>
struct LogSumExp {
  struct State { double top, sum; };     // log(sum) + top
  static State start() { return {-std::numeric_limits<double>::infinity(), 0}; }
  static State step(State s, T v) {
    const double x = v;
    if (x != x || s.top != s.top) return {std::numeric_limits<double>::quiet_NaN(), 1};
    if (x <= s.top) return {s.top, std::isinf(s.top) ? s.sum : s.sum + std::exp(x - s.top)};
    if (std::isinf(x)) return {x, 1};
    return {x, s.sum * std::exp(s.top - x) + 1};
  }
  static T give(State s) { return static_cast<T>(std::isinf(s.top) ? s.top : s.top + std::log(s.sum)); }
};

template <class Fold, class T>
void scan(const Rows& r, bool reverse, const T* x, T* y) {
  slabs(r, [&](int64_t base, int64_t width) {
    typename Fold::State state[32];
    for (int64_t i = 0; i < width; i++) state[i] = Fold::start();
    for (int64_t j = 0; j < r.n; j++) {
      const int64_t at = base + (reverse ? r.n - 1 - j : j) * r.inner;
      for (int64_t i = 0; i < width; i++) y[at + i] = Fold::give(state[i] = Fold::step(state[i], x[at + i]));
    }
  });
}

// One row at a time, eight elements a step: only one operation in eight waits for the one before.
template <class Fold, class T>
void scan_rows(const Rows& r, const T* x, T* y) {
  typedef typename Fold::State State;
  parallel(r.outer, grain_of(r.n * 2), [&](int64_t a, int64_t b) {
    for (int64_t row = a; row < b; row++) {
      const T* from = x + row * r.n;
      T* to = y + row * r.n;
      State s = Fold::start();
      int64_t j = 0;
      for (; j + 8 <= r.n; j += 8) {
        State p[8];
        p[0] = Fold::step(Fold::start(), from[j]);
        for (int k = 1; k < 8; k++) p[k] = Fold::step(p[k - 1], from[j + k]);
        for (int k = 0; k < 8; k++) to[j + k] = Fold::give(Fold::join(s, p[k]));
        s = Fold::join(s, p[7]);
      }
      for (; j < r.n; j++) to[j] = Fold::give(s = Fold::step(s, from[j]));
    }
  });
}

template <template <class> class Fold>
void run_scan(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  if (c.out[0].layout->numel == 0) return;
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    if (r.inner == 1 && !c.ints[1]) return scan_rows<Fold<T>>(r, c.in[0].as<T>(), c.out[0].as<T>());
    scan<Fold<T>>(r, c.ints[1], c.in[0].as<T>(), c.out[0].as<T>());
  });
}

void run_logcumsumexp(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  if (c.out[0].layout->numel == 0) return;
  with_floats(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    scan<LogSumExp<T>>(r, false, c.in[0].as<T>(), c.out[0].as<T>());
  });
}

// Whether v takes the place of the best: of several equal ones the latest; NaN stays.
template <bool Least, class T>
bool takes(T v, T best) {
  const bool better = Least ? v <= best : v >= best;
  return better | is_nan(v);
}

// A row of memory, eight elements a step: where none of them takes the best one's place, nothing waits for the one before.
template <bool Least, class T>
void extreme_row(int64_t n, const T* __restrict x, T* __restrict y, int64_t* __restrict indices) {
  T best = x[0];
  int64_t at = 0, j = 0;
  for (; j + 8 <= n; j += 8) {
    bool any = false;
    for (int k = 0; k < 8; k++) any |= takes<Least>(x[j + k], best);
    if (!any) {
      for (int k = 0; k < 8; k++) y[j + k] = best;
      for (int k = 0; k < 8; k++) indices[j + k] = at;
      continue;
    }
    for (int64_t k = j; k < j + 8; k++) {
      if (takes<Least>(x[k], best)) best = x[k], at = k;
      y[k] = best;
      indices[k] = at;
    }
  }
  for (; j < n; j++) {
    if (takes<Least>(x[j], best)) best = x[j], at = j;
    y[j] = best;
    indices[j] = at;
  }
}

// `width` neighbouring rows, memory in order.
template <bool Least, class T>
void extreme_rows(const Rows& r, int64_t width, const T* __restrict x, T* __restrict y, int64_t* __restrict indices) {
  T best[32];
  int64_t at[32];
  for (int64_t i = 0; i < width; i++) best[i] = x[i], at[i] = 0;
  for (int64_t j = 0; j < r.n; j++, x += r.inner, y += r.inner, indices += r.inner) {
    for (int64_t i = 0; i < width; i++) {
      const bool more = takes<Least>(x[i], best[i]);
      best[i] = more ? x[i] : best[i];
      at[i] = more ? j : at[i];
      y[i] = best[i];
      indices[i] = at[i];
    }
  }
}

template <bool Least, class T>
void extreme(const Rows& r, const T* x, T* y, int64_t* indices) {
  if (r.inner == 1)
    return parallel(r.outer, grain_of(r.n * 2), [&](int64_t a, int64_t b) {
      for (int64_t row = a; row < b; row++)
        extreme_row<Least>(r.n, x + row * r.n, y + row * r.n, indices + row * r.n);
    });
  slabs(r, [&](int64_t base, int64_t width) {
    extreme_rows<Least>(r, width, x + base, y + base, indices + base);
  });
}

// cumulative_extreme(self; dim, least) -> values, indices
void run_extreme(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  if (c.out[0].layout->numel == 0) return;
  const bool least = c.ints[1];
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    T* y = c.out[0].as<T>();
    int64_t* indices = c.out[1].as<int64_t>();
    least ? extreme<true>(r, x, y, indices) : extreme<false>(r, x, y, indices);
  });
}

// linear_scan(coefficient, increment; dim, reverse): y[j] = increment[j] + coefficient[j] * y[j - 1], from 0.
void run_linear_scan(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  if (c.out[0].layout->numel == 0) return;
  const bool reverse = c.ints[1];
  with_floats(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T *coefficient = c.in[0].as<T>(), *increment = c.in[1].as<T>();
    T* y = c.out[0].as<T>();
    slabs(r, [&](int64_t base, int64_t width) {
      double state[32] = {};
      for (int64_t j = 0; j < r.n; j++) {
        const int64_t at = base + (reverse ? r.n - 1 - j : j) * r.inner;
        for (int64_t i = 0; i < width; i++) {
          state[i] = j ? increment[at + i] + coefficient[at + i] * state[i] : increment[at + i];
          y[at + i] = static_cast<T>(state[i]);
        }
      }
    });
  });
}

}  // namespace

RL_ROUTINE(linear_scan, run_linear_scan)
RL_ROUTINE(cumsum, run_scan<Sum>)
RL_ROUTINE(cumprod, run_scan<Product>)
RL_ROUTINE(logcumsumexp, run_logcumsumexp)
RL_ROUTINE(cumulative_extreme, run_extreme)

}  // namespace rl
