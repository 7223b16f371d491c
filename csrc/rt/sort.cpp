// Order within rows: sort, topk, k-th values, medians, modes, and the order of whole rows.
//
// An element becomes an unsigned key whose order is the elements': NaN after everything, -0 equal to 0, inverted for descending.
// Up to 32 bits, key and position share one 64-bit word, so that comparing words is a stable comparison.
#include <cmath>
#include <functional>
#include <limits>

#include "scratch.h"
#include "typed.h"

namespace rl {
namespace {

template <class T>
auto key_of(T v) {
  if constexpr (std::is_same_v<T, float>) {
    if (v != v) return ~0u;
    if (v == 0) v = 0;
    uint32_t u;
    std::memcpy(&u, &v, 4);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
  } else if constexpr (std::is_same_v<T, double>) {
    if (v != v) return ~uint64_t(0);
    if (v == 0) v = 0;
    uint64_t u;
    std::memcpy(&u, &v, 8);
    return u >> 63 ? ~u : u | uint64_t(1) << 63;
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<uint64_t>(v) ^ uint64_t(1) << 63;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<uint32_t>(static_cast<int32_t>(v)) ^ 0x80000000u;
  } else {
    return static_cast<uint32_t>(v);
  }
}

struct Wide {
  uint64_t key, at;
  bool operator<(const Wide& o) const { return key != o.key ? key < o.key : at < o.at; }
};

template <class T>
struct Word {                            // key and position of one element
  static constexpr bool wide = sizeof(T) == 8;
  typedef std::conditional_t<wide, Wide, uint64_t> type;
  static type make(T v, int64_t at, bool descending) {
    auto key = key_of(v);
    if (descending) key = ~key;
    if constexpr (wide) return {key, static_cast<uint64_t>(at)};
    else return static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(at);
  }
  static int64_t at(const type& w) {
    if constexpr (wide) return static_cast<int64_t>(w.at);
    else return static_cast<int64_t>(w & 0xffffffffu);
  }
  static uint64_t key(const type& w) {
    if constexpr (wide) return w.key;
    else return w >> 32;
  }
};

// Least significant digit first, digits of 11 bits; digits that all keys share are skipped. The words are in order of position.
template <class T>
void radix_sort(typename Word<T>::type* words, typename Word<T>::type* spare, int64_t n) {
  constexpr int bits = Word<T>::wide ? 64 : 32, digit = 11, passes = (bits + digit - 1) / digit, buckets = 1 << digit;
  std::vector<uint32_t> counts(passes * buckets, 0);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t key = Word<T>::key(words[i]);
    for (int p = 0; p < passes; p++) counts[p * buckets + (key >> p * digit & (buckets - 1))]++;
  }
  auto *from = words, *to = spare;
  for (int p = 0; p < passes; p++) {
    uint32_t* count = &counts[p * buckets];
    if (count[Word<T>::key(from[0]) >> p * digit & (buckets - 1)] == n) continue;
    uint32_t total = 0;
    for (int b = 0; b < buckets; b++) {
      const uint32_t mine = count[b];
      count[b] = total;
      total += mine;
    }
    for (int64_t i = 0; i < n; i++) to[count[Word<T>::key(from[i]) >> p * digit & (buckets - 1)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::copy(from, from + n, words);
}

template <class T>
using Words = Scratch<typename Word<T>::type, 64>;

template <class T>
void sort_words(Words<T>& words, Words<T>& spare, int64_t n) {
  if (n < 1024) return std::sort(words.begin(), words.begin() + n);
  if constexpr (Word<T>::wide) {                     // keys within 32 bits of each other fit one word with their positions
    uint64_t low = words[0].key, high = low;
    for (int64_t i = 1; i < n; i++) {
      low = std::min(low, words[i].key);
      high = std::max(high, words[i].key);
    }
    if (high - low < uint64_t(1) << 32) {
      std::vector<uint64_t> narrow(n), more(n);
      for (int64_t i = 0; i < n; i++) narrow[i] = (words[i].key - low) << 32 | words[i].at;
      radix_sort<uint32_t>(narrow.data(), more.data(), n);
      for (int64_t i = 0; i < n; i++) words[i] = {(narrow[i] >> 32) + low, narrow[i] & 0xffffffffu};
      return;
    }
  }
  spare.resize(n);
  radix_sort<T>(words.data(), spare.data(), n);
}

void check_length(const RoutineCall& c, int64_t n) {
  if (n >= int64_t(1) << 32)
    fail(ErrorKind::Runtime, "[%s] rows of up to 2^32 - 1 elements, got %lld", c.op, static_cast<long long>(n));
}

// f(row, buffer of words) for all rows on threads.
template <class T, class F>
void each_row(const Rows& r, double cost, F f) {
  parallel(r.rows(), grain_of(static_cast<int64_t>(r.n * cost)), [&](int64_t a, int64_t b) {
    Words<T> words(r.n), spare;
    for (int64_t row = a; row < b; row++) f(row, words, spare);
  });
}

template <class T>
void load(Words<T>& words, const T* x, const Rows& r, bool descending) {
  for (int64_t j = 0; j < r.n; j++) words[j] = Word<T>::make(x[j * r.inner], j, descending);
}

// sort(self; dim, descending) -> values, indices
void run_sort(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  check_length(c, r.n);
  if (c.in[0].layout->numel == 0) return;
  const bool descending = c.ints[1];
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    each_row<T>(r, 20, [&](int64_t row, Words<T>& words, Words<T>& spare) {
      const T* x = c.in[0].as<T>() + r.start(row);
      T* values = c.out[0].as<T>() + r.start(row);
      int64_t* indices = c.out[1].as<int64_t>() + r.start(row);
      load(words, x, r, descending);
      sort_words<T>(words, spare, r.n);
      for (int64_t j = 0; j < r.n; j++) {
        const int64_t at = Word<T>::at(words[j]);
        values[j * r.inner] = x[at * r.inner];
        indices[j * r.inner] = at;
      }
    });
  });
}

// The least that the k largest elements of a row can be (or, the other way round, the most that the k least can): the row is
// dealt out to `lanes` lanes, and k lanes hold an element of this size. NaN is passed over.
template <class T, class Before>
T bound_of(std::vector<T>& best, const T* x, int64_t n, int64_t k, int64_t lanes, T start, Before before) {
  best.assign(lanes, start);
  T* to = best.data();
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    for (int64_t l = 0; l < lanes; l++) to[l] = before(x[j + l], to[l]) ? x[j + l] : to[l];
  for (int64_t l = 0; j < n; l++, j++) to[l] = before(x[j], to[l]) ? x[j] : to[l];
  std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), before);
  return best[k - 1];
}

// The k least words of a row, in any order, at the front: only of the elements that the bound lets through.
template <class T, class Before>
void least(Words<T>& words, std::vector<T>& best, const T* x, int64_t n, int64_t k, bool largest, T start, Before before) {
  const T bound = bound_of(best, x, n, k, (2 * k + 63) / 64 * 64, start, before);
  constexpr int64_t block = 16;
  int64_t held = 0;
  for (int64_t j = 0; j < n; j += block) {
    const int64_t stop = std::min(n, j + block);
    int any = 0;
    for (int64_t i = j; i < stop; i++) any |= !before(bound, x[i]);
    if (!any) continue;
    for (int64_t i = j; i < stop; i++)
      if (!before(bound, x[i])) words[held++] = Word<T>::make(x[i], i, largest);
  }
  if (held > k) std::nth_element(words.begin(), words.begin() + (k - 1), words.begin() + held);
}

// topk(self; dim, k, largest, sorted) -> values, indices
void run_topk(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  check_length(c, r.n);
  const int64_t k = c.ints[1];
  const bool largest = c.ints[2], sorted = c.ints[3];
  if (c.out[0].layout->numel == 0) return;
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    each_row<T>(r, 2, [&](int64_t row, Words<T>& words, Words<T>& spare) {
      typedef std::numeric_limits<T> limits;
      constexpr T top = limits::has_infinity ? limits::infinity() : limits::max();
      constexpr T low = limits::has_infinity ? -limits::infinity() : limits::lowest();
      const T* x = c.in[0].as<T>() + r.start(row);
      const int64_t to = row / r.inner * k * r.inner + row % r.inner;
      if (k * 4 >= r.n || r.n < 128) {
        load(words, x, r, largest);
        if (sorted) sort_words<T>(words, spare, r.n);
        else if (k < r.n) std::nth_element(words.begin(), words.begin() + (k - 1), words.begin() + r.n);
      } else {
        static thread_local std::vector<T> best, together;
        const T* line = x;
        if (r.inner != 1) {
          together.resize(r.n);
          for (int64_t j = 0; j < r.n; j++) together[j] = x[j * r.inner];
          line = together.data();
        }
        if (largest) least(words, best, line, r.n, k, true, low, std::greater<T>());
        else least(words, best, line, r.n, k, false, top, std::less<T>());
        if (sorted) std::sort(words.begin(), words.begin() + k);
      }
      for (int64_t j = 0; j < k; j++) {
        const int64_t at = Word<T>::at(words[j]);
        c.out[0].as<T>()[to + j * r.inner] = x[at * r.inner];
        c.out[1].as<int64_t>()[to + j * r.inner] = at;
      }
    });
  });
}

// kth(self; dim, how, k) -> value, index, one a row. how: 0 the k-th least (from 1), 1 the median (NaN where there is one),
// 2 the median of what is no NaN.
void run_kth(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  check_length(c, r.n);
  const int64_t how = c.ints[1];
  if (c.out[0].layout->numel == 0 || r.n == 0) return;
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    each_row<T>(r, 8, [&](int64_t row, Words<T>& words, Words<T>&) {
      const T* x = c.in[0].as<T>() + r.start(row);
      int64_t k = how ? (r.n - 1) / 2 : c.ints[2] - 1, at = -1, numbers = 0;
      if (how)
        for (int64_t j = 0; j < r.n; j++) {
          if (!is_nan(x[j * r.inner])) numbers++;
          else if (how == 1 && at < 0) at = j;
        }
      if (how == 2) k = numbers ? (numbers - 1) / 2 : 0;
      if (at < 0) {
        load(words, x, r, false);
        std::nth_element(words.begin(), words.begin() + k, words.begin() + r.n);
        at = Word<T>::at(words[k]);
      }
      c.out[0].as<T>()[row] = x[at * r.inner];
      c.out[1].as<int64_t>()[row] = at;
    });
  });
}

// mode(self; dim) -> value, index: the most frequent element, the least of several, and where it stands last.
void run_mode(const RoutineCall& c) {
  const Rows r(c.in[0].layout, c.ints[0]);
  check_length(c, r.n);
  if (c.out[0].layout->numel == 0 || r.n == 0) return;
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    each_row<T>(r, 20, [&](int64_t row, Words<T>& words, Words<T>& spare) {
      const T* x = c.in[0].as<T>() + r.start(row);
      load(words, x, r, false);
      sort_words<T>(words, spare, r.n);
      int64_t best = 0, at = 0, run = 0;
      for (int64_t j = 0; j < r.n; j++) {
        run = j && Word<T>::key(words[j]) == Word<T>::key(words[j - 1]) && !is_nan(x[Word<T>::at(words[j]) * r.inner]) ? run + 1 : 1;
        if (run > best) best = run, at = Word<T>::at(words[j]);
      }
      c.out[0].as<T>()[row] = x[at * r.inner];
      c.out[1].as<int64_t>()[row] = at;
    });
  });
}

// order_rows(self[n, m]) -> [n]: positions of the rows in lexicographic order, stable.
void run_order_rows(const RoutineCall& c) {
  const int64_t n = c.in[0].layout->dims[0], m = n ? c.in[0].layout->numel / n : 0;
  int64_t* order = c.out[0].as<int64_t>();
  for (int64_t i = 0; i < n; i++) order[i] = i;
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    std::stable_sort(order, order + n, [&](int64_t a, int64_t b) {
      for (int64_t k = 0; k < m; k++) {
        const auto p = key_of(x[a * m + k]), q = key_of(x[b * m + k]);
        if (p != q) return p < q;
      }
      return false;
    });
  });
}

// row_runs(self[n, m]) -> [n]: the number of the run of equal neighbouring rows that each row belongs to, from 0.
void run_row_runs(const RoutineCall& c) {
  const int64_t n = c.in[0].layout->dims[0], m = n ? c.in[0].layout->numel / n : 0;
  int64_t* out = c.out[0].as<int64_t>();
  with_numbers(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    int64_t run = 0;
    for (int64_t i = 0; i < n; i++) {
      if (i)
        for (int64_t k = 0; k < m; k++)
          if (x[i * m + k] != x[(i - 1) * m + k]) {
            run++;
            break;
          }
      out[i] = run;
    }
  });
}

// run_starts(runs[n]; count) -> [count]: where each run begins.
void run_run_starts(const RoutineCall& c) {
  const int64_t n = c.in[0].layout->numel, count = c.out[0].layout->numel;
  const int64_t* runs = c.in[0].as<int64_t>();
  int64_t* out = c.out[0].as<int64_t>();
  if (n && runs[n - 1] + 1 != count)
    fail(ErrorKind::Runtime, "[%s] there are %lld runs, the call says %lld", c.op, static_cast<long long>(runs[n - 1] + 1),
         static_cast<long long>(count));
  for (int64_t i = 0; i < n; i++)
    if (!i || runs[i] != runs[i - 1]) out[runs[i]] = i;
}

// ---- search in sorted rows

// searchsorted(sorted, values[, sorter]; right, one sequence for all) -> positions
void run_searchsorted(const RoutineCall& c) {
  const RoutineOperand &sorted = c.in[0], &values = c.in[1], &out = c.out[0];
  const bool right = c.ints[0];
  const int64_t* sorter = c.nin > 2 ? c.in[2].as<int64_t>() : nullptr;
  const Layout* l = sorted.layout;
  const int64_t n = l->dims[l->ndim - 1], total = values.layout->numel;
  if (total == 0) return;
  if (sorter) check_indices(c.op, ErrorKind::Index, sorter, l->numel, n, l->ndim - 1, false);
  const int64_t each = l->ndim == 1 ? total : values.layout->dims[values.layout->ndim - 1];
  with_numbers(c.op, l->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    parallel(total, grain_of(64), [&](int64_t a, int64_t b) {
      for (int64_t i = a; i < b; i++) {
        const int64_t row = l->ndim == 1 ? 0 : i / each * n;
        const T* s = sorted.as<T>() + row;
        const auto v = key_of(values.as<T>()[i]);
        int64_t low = 0, high = n;
        while (low < high) {
          const int64_t mid = (low + high) / 2;
          const auto k = key_of(s[sorter ? sorter[row + mid] : mid]);
          if (right ? k <= v : k < v) low = mid + 1;
          else high = mid;
        }
        if (out.layout->dtype == DType::Int32) out.as<int32_t>()[i] = static_cast<int32_t>(low);
        else out.as<int64_t>()[i] = low;
      }
    });
  });
}

// isin(elements, test; invert) -> bool
void run_isin(const RoutineCall& c) {
  const RoutineOperand &x = c.in[0], &test = c.in[1];
  const bool invert = c.ints[0];
  uint8_t* out = c.out[0].as<uint8_t>();
  with_numbers(c.op, x.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    std::vector<T> set;
    for (int64_t i = 0; i < test.layout->numel; i++)
      if (!is_nan(test.as<T>()[i])) set.push_back(test.as<T>()[i]);
    std::sort(set.begin(), set.end());
    parallel(x.layout->numel, 1024, [&](int64_t a, int64_t b) {
      for (int64_t i = a; i < b; i++) {
        const T v = x.as<T>()[i];
        out[i] = (!is_nan(v) && std::binary_search(set.begin(), set.end(), v)) != invert;
      }
    });
  });
}

// bincount(self[, weights]) -> counts or sums, of the output's dtype
void run_bincount(const RoutineCall& c) {
  const int64_t *x = c.in[0].as<int64_t>(), n = c.in[0].layout->numel;
  const RoutineOperand& out = c.out[0];
  std::memset(out.data, 0, out.layout->numel * itemsize(out.layout->dtype));
  for (int64_t i = 0; i < n; i++)
    if (x[i] < 0 || x[i] >= out.layout->numel)
      fail(ErrorKind::Runtime, "[%s] value %lld is outside the %lld bins", c.op, static_cast<long long>(x[i]),
           static_cast<long long>(out.layout->numel));
  with_numbers(c.op, out.layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    T* y = out.as<T>();
    if (c.nin > 1)
      for (int64_t i = 0; i < n; i++) y[x[i]] += c.in[1].as<T>()[i];
    else
      for (int64_t i = 0; i < n; i++) y[x[i]] += 1;
  });
}

// histc(self; ; low, high) -> counts in equal bins, what lies outside or is NaN left out
void run_histc(const RoutineCall& c) {
  const int64_t n = c.in[0].layout->numel, bins = c.out[0].layout->numel;
  with_floats(c.op, c.in[0].layout->dtype, [&](auto unit) {
    typedef decltype(unit) T;
    const T* x = c.in[0].as<T>();
    T* y = c.out[0].as<T>();
    std::fill(y, y + bins, T(0));
    T low = static_cast<T>(c.numbers[0].f), high = static_cast<T>(c.numbers[1].f);
    if (low == high && n) {
      low = *std::min_element(x, x + n);
      high = *std::max_element(x, x + n);
    }
    if (low == high) low -= 1, high += 1;
    if (!std::isfinite(low) || !std::isfinite(high))
      fail(ErrorKind::Runtime, "[%s] range of [%g, %g] is not finite", c.op, static_cast<double>(low), static_cast<double>(high));
    if (high < low) fail(ErrorKind::Runtime, "[%s] max must be larger than min, got %g and %g", c.op, static_cast<double>(high),
                         static_cast<double>(low));
    for (int64_t i = 0; i < n; i++)
      if (x[i] >= low && x[i] <= high)
        y[std::min<int64_t>(bins - 1, static_cast<int64_t>((x[i] - low) / (high - low) * static_cast<T>(bins)))] += 1;
  });
}

// repeat_places(repeats[n]; total) -> [total]: position i as often as repeats[i] says
void run_repeat_places(const RoutineCall& c) {
  const int64_t *repeats = c.in[0].as<int64_t>(), n = c.in[0].layout->numel, total = c.out[0].layout->numel;
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    if (repeats[i] < 0) fail(ErrorKind::Runtime, "[%s] repeats can not be negative, got %lld", c.op, static_cast<long long>(repeats[i]));
    sum += repeats[i];
  }
  if (sum != total)
    fail(ErrorKind::Runtime, "[%s] output_size is %lld, the repeats add up to %lld", c.op, static_cast<long long>(total),
         static_cast<long long>(sum));
  int64_t* out = c.out[0].as<int64_t>();
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < repeats[i]; k++) *out++ = i;
}

}  // namespace

RL_ROUTINE(sort, run_sort)
RL_ROUTINE(topk, run_topk)
RL_ROUTINE(kth, run_kth)
RL_ROUTINE(mode, run_mode)
RL_ROUTINE(order_rows, run_order_rows)
RL_ROUTINE(row_runs, run_row_runs)
RL_ROUTINE(run_starts, run_run_starts)
RL_ROUTINE(searchsorted, run_searchsorted)
RL_ROUTINE(isin, run_isin)
RL_ROUTINE(bincount, run_bincount)
RL_ROUTINE(histc, run_histc)
RL_ROUTINE(repeat_places, run_repeat_places)

}  // namespace rl
