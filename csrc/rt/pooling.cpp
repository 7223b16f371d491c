// Pooling: windows over planes -> their largest element and where it lies, or their mean; the ways back.
//
// A window is a range of each spatial dim. They are worked out once a call, so that windows that slide
// and windows that adapt to the output's size are the same to the loops. Two orders of loops: a plane
// at a time, and, where channels are innermost, a pixel at a time with the channels inside.
// Invariant: of equal elements the first is taken; NaN is larger than everything, the last one is taken.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "error.h"
#include "parallel.h"
#include "planes.h"
#include "row_loops.h"
#include "scratch.h"

namespace rl {
namespace {

constexpr int64_t kGrain = 4096;  // elements worth a thread
constexpr int64_t kChannels = 16;  // a block of them
constexpr int64_t kNarrow = 8;  // windows in a row from which on rows are taken at once

struct Window {
  int64_t begin, end, step;  // within the plane
  int64_t extent;            // with the padding that counts
};
typedef Scratch<Window, 16> Windows;

// ints: nd, adaptive, kernel, stride, padding, dilation of each.
struct Geometry {
  Windows at[3];

  Geometry(const RoutineCall& call, const Planes& x, const Planes& y) {
    const int nd = static_cast<int>(call.ints[0]);
    const bool adaptive = call.ints[1];
    for (int d = 0; d < 3; ++d) {
      const int from = d - (3 - nd);
      const int64_t in = x.sizes[d], out = y.sizes[d];
      at[d].resize(out);
      for (int64_t o = 0; o < out; ++o) {
        Window& w = at[d][o];
        if (from < 0) {
          w = {0, 1, 1, 1};
        } else if (adaptive) {
          w = {o * in / out, ((o + 1) * in + out - 1) / out, 1, 0};
          w.extent = w.end - w.begin;
        } else {
          const int64_t *p = call.ints + 2 + from, kernel = p[0], stride = p[nd], pad = p[2 * nd],
                        dilation = p[3 * nd];
          const int64_t begin = o * stride - pad;
          w.end = std::min(begin + (kernel - 1) * dilation + 1, in);
          w.begin = begin < 0 ? begin + (-begin + dilation - 1) / dilation * dilation : begin;
          w.step = dilation;
          w.extent = std::min(begin + kernel, in + pad) - begin;
        }
      }
    }
  }
  int64_t area() const {
    return at[0].size() * at[1].size() * at[2].size();
  }
};

// f(output pixel, window of each dim) over all output pixels in [begin, end).
template <class F>
void pixels(const Geometry& g, int64_t begin, int64_t end, const F& f) {
  const int64_t h = g.at[1].size(), w = g.at[2].size();
  int64_t i = 0, j = 0, k = 0;
  if (begin) i = begin / (h * w), j = begin / w % h, k = begin % w;
  for (int64_t o = begin; o < end; ++o) {
    f(o, g.at[0][i], g.at[1][j], g.at[2][k]);
    if (++k < w) continue;
    k = 0;
    if (++j == h) j = 0, ++i;
  }
}

// f(input pixel) over a window.
template <class F>
inline void elements(const Planes& x, const Window& a, const Window& b, const Window& c, const F& f) {
  for (int64_t i = a.begin; i < a.end; i += a.step)
    for (int64_t j = b.begin; j < b.end; j += b.step)
      for (int64_t k = c.begin, row = (i * x.sizes[1] + j) * x.sizes[2]; k < c.end; k += c.step)
        f(row + k);
}

// ---- rows: windows that slide, over planes in C order

// One kernel position of a row of windows: output columns [from, to) read the columns q, q + 1, ... of the input's phase p,
// which is every stride-th column from p on.
struct Tap {
  int64_t from, to, phase, first;
};

struct Taps {
  int64_t stride = 1, longest = 0;  // of the phases
  Scratch<Tap, 16> taps;
  int64_t count = 0;

  Taps(const RoutineCall& call, int64_t in, int64_t out) {
    const int64_t nd = call.ints[0], *last = call.ints + 2 + nd - 1;
    const int64_t kernel = last[0], pad = last[2 * nd], dilation = last[3 * nd];
    stride = last[nd];
    longest = (in + stride - 1) / stride;
    taps.resize(kernel);
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = k * dilation - pad;  // of output column 0
      Tap t;
      t.from = at < 0 ? (-at + stride - 1) / stride : 0;
      t.to = std::min(out, in > at ? (in - 1 - at) / stride + 1 : 0);
      t.phase = ((at % stride) + stride) % stride;
      t.first = (at - t.phase) / stride + t.from;
      if (t.from < t.to) taps[count++] = t;
    }
  }
  int64_t scratch() const { return stride > 1 ? stride * longest : 0; }

  // f(tap, the row of its phase) for one input row of `in` columns.
  template <class T, class F>
  void each(const T* row, int64_t in, T* scratch, const F& f) const {
    if (stride > 1)
      for (int64_t p = 0; p < stride; ++p)
        for (int64_t c = p, to = p * longest; c < in; c += stride) scratch[to++] = row[c];
    for (int64_t k = 0; k < count; ++k) {
      const Tap& t = taps[k];
      f(t, (stride > 1 ? scratch + t.phase * longest : row) + t.first);
    }
  }
};

bool plain(const Planes& p) { return p.step == 1; }
bool slides(const RoutineCall& call) { return !call.ints[1]; }

// f(plane, output row, windows of its outer dims) for a range of all output rows.
template <class F>
void rows(const Geometry& g, int64_t begin, int64_t end, const F& f) {
  const int64_t h = g.at[1].size(), a = g.at[0].size() * h;
  for (; begin < end; ++begin)
    f(begin / a, begin % a, g.at[0][begin % a / h], g.at[1][begin % h]);
}

// f(first column of each input row) of a row of windows.
template <class F>
void lines(const Planes& x, const Window& a, const Window& b, const F& f) {
  for (int64_t i = a.begin; i < a.end; i += a.step)
    for (int64_t j = b.begin; j < b.end; j += b.step) f((i * x.sizes[1] + j) * x.sizes[2]);
}

// ---- the largest

template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;

template <class T>
constexpr T lowest() {
  return kFloating<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
}

template <class T>
void max_rows(const RoutineCall& call, const Geometry& g, const Planes& x, const Planes& y, int64_t* indices) {
  const RowLoops<T>& loops = row_loops<T>();
  const int64_t width = y.sizes[2], count = y.n * y.c * g.area() / width;
  const Taps taps(call, x.sizes[2], width);
  const int32_t stride = static_cast<int32_t>(taps.stride);
  parallel(count, 1 + kGrain / (width * 4), [&](int64_t begin, int64_t end) {
    Scratch<T, 256> scratch(taps.scratch());
    Scratch<int32_t, 256> places(width);
    int32_t* at = places.data();
    rows(g, begin, end, [&](int64_t plane, int64_t row, const Window& a, const Window& b) {
      T* to = y.plane<T>(plane) + row * width;
      const int64_t first = (a.begin * x.sizes[1] + b.begin) * x.sizes[2];
      for (int64_t c = 0; c < width; ++c) {
        to[c] = lowest<T>();
        at[c] = static_cast<int32_t>(first + g.at[2][c].begin);
      }
      lines(x, a, b, [&](int64_t line) {
        taps.each(x.plane<const T>(plane) + line, x.sizes[2], scratch.data(), [&](const Tap& t, const T* from) {
          const int64_t start = line + t.first * stride + t.phase;
          loops.larger(to + t.from, at + t.from, from, t.to - t.from, static_cast<int32_t>(start), stride);
        });
      });
      int64_t* out = indices + plane / y.c * y.image + plane % y.c * y.channel + row * width;
      for (int64_t c = 0; c < width; ++c) out[c] = at[c];
    });
  });
}

template <class T>
void max_channels(const Geometry& g, const Planes& x, const Planes& y, int64_t* indices) {
  const RowLoops<T>& loops = row_loops<T>();
  const int64_t area = g.area(), channels = y.c;
  parallel(y.n * area, 1 + kGrain / channels, [&](int64_t begin, int64_t end) {
    Scratch<int32_t, 256> places(channels);
    int32_t* at = places.data();
    for (int64_t p = begin; p < end; ++p)
      pixels(g, p % area, p % area + 1, [&](int64_t o, const Window& a, const Window& b, const Window& c) {
        const T* from = static_cast<const T*>(x.data) + p / area * x.image;
        T* to = static_cast<T*>(y.data) + p / area * y.image + o * y.step;
        const int64_t first = (a.begin * x.sizes[1] + b.begin) * x.sizes[2] + c.begin;
        std::fill(to, to + channels, lowest<T>());
        std::fill(at, at + channels, static_cast<int32_t>(first));
        elements(x, a, b, c, [&](int64_t i) {
          loops.larger(to, at, from + i * x.step, channels, static_cast<int32_t>(i), 0);
        });
        int64_t* out = indices + p / area * y.image + o * y.step;
        for (int64_t k = 0; k < channels; ++k) out[k] = at[k];
      });
  });
}

template <class T>
void max_plane(const Geometry& g, const Planes& x, const T* from, T* to, int64_t step, int64_t* at) {
  pixels(g, 0, g.area(), [&](int64_t o, const Window& a, const Window& b, const Window& c) {
    const int64_t first = (a.begin * x.sizes[1] + b.begin) * x.sizes[2] + c.begin;
    T best = lowest<T>(), all = 0;
    int64_t where = first;
    elements(x, a, b, c, [&](int64_t i) {
      const T v = from[i * x.step];
      if constexpr (kFloating<T>) all += v;
      where = v > best ? i : where;  // no branch: nobody can guess which is the largest
      best = v > best ? v : best;
    });
    if (all != all) {  // a NaN, or both infinities
      best = lowest<T>(), where = first;
      elements(x, a, b, c, [&](int64_t i) {
        const T v = from[i * x.step];
        if (v > best || v != v) best = v, where = i;
      });
    }
    to[o * step] = best;
    at[o * step] = where;
  });
}

template <class T>
void max_forward(const RoutineCall& call) {
  const int nd = static_cast<int>(call.ints[0]);
  const Planes x = planes_of(call.in[0], nd, true), y = planes_of(call.out[0], nd, false);
  const Geometry g(call, x, y);
  int64_t* indices = call.out[1].as<int64_t>();  // in y's layout
  if constexpr (kFloating<T>) {
    const bool small = x.area < INT32_MAX && x.c < INT32_MAX;
    if (small && x.channels_inside() && y.channels_inside()) return max_channels<T>(g, x, y, indices);
    if (small && slides(call) && plain(x) && plain(y) && y.sizes[2] >= kNarrow)
      return max_rows<T>(call, g, x, y, indices);
  }
  parallel(y.n * y.c, 1 + kGrain / std::max(x.area, y.area), [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin)
      max_plane(g, x, x.plane<T>(begin), y.plane<T>(begin), y.step,
                indices + begin / y.c * y.image + begin % y.c * y.channel);
  });
}

// ---- by indices: ints are nd and whether equal places add up; [n, c, area] at indices into planes, and back

struct Blocks {  // what a thread takes: the pixels of one plane, or of a few channels of one image
  int64_t images, groups, width;
  Blocks(const Planes& p, bool inside)
      : images(p.n), groups(inside ? (p.c + kChannels - 1) / kChannels : p.c),
        width(inside ? kChannels : 1) {}
};

template <class T, class F>
void by_index(const Planes& small, const Planes& large, const int64_t* indices, const Planes& places,
              const F& f) {
  const Blocks b(large, large.channels_inside());
  parallel(b.images * b.groups, 1 + kGrain / (small.area * b.width), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t image = item / b.groups, first = item % b.groups * b.width;
      const int64_t last = std::min(first + b.width, large.c);
      T* s = static_cast<T*>(small.data) + image * small.image;
      T* l = static_cast<T*>(large.data) + image * large.image;
      const int64_t* at = indices + image * places.image;
      for (int64_t o = 0; o < small.area; ++o)
        for (int64_t c = first; c < last; ++c)
          f(s[o * small.step + c * small.channel],
            l[at[o * places.step + c * places.channel] * large.step + c * large.channel]);
    }
  });
}

void check_indices(const RoutineCall& call, const Planes& places, int64_t area) {
  const int64_t* at = static_cast<const int64_t*>(places.data);
  for (int64_t n = 0; n < places.n; ++n)
    for (int64_t c = 0; c < places.c; ++c)
      for (int64_t o = 0; o < places.area; ++o) {
        const int64_t i = at[n * places.image + c * places.channel + o * places.step];
        if (i < 0 || i >= area)
          fail(ErrorKind::Runtime, "[%s] found an invalid max index: %lld (output volumes are of size %lld)",
               call.op, static_cast<long long>(i), static_cast<long long>(area));
      }
}

template <class T>
void scatter(const RoutineCall& call) {
  const int nd = static_cast<int>(call.ints[0]);
  const bool adds = call.ints[1];
  const Planes g = planes_of(call.in[0], nd, true), at = planes_of(call.in[1], nd, true);
  const Planes x = planes_of(call.out[0], nd, false);
  if (!adds) check_indices(call, at, x.area);  // else they are a forward's own
  T* out = static_cast<T*>(x.data);
  parallel(x.n * x.c * x.area, 1 << 16,
           [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, T()); });
  if (g.area == 0) return;
  const int64_t* indices = static_cast<const int64_t*>(at.data);
  if (adds)
    by_index<T>(g, x, indices, at, [](T& small, T& large) { large += small; });
  else
    by_index<T>(g, x, indices, at, [](T& small, T& large) { large = small; });
}

template <class T>
void gather(const RoutineCall& call) {
  const int nd = static_cast<int>(call.ints[0]);
  const Planes x = planes_of(call.in[0], nd, true), at = planes_of(call.in[1], nd, true);
  const Planes y = planes_of(call.out[0], nd, false);
  by_index<T>(y, x, static_cast<const int64_t*>(at.data), at,
              [](T& small, T& large) { small = large; });
}

// ---- the mean: after the geometry's ints, count_include_pad and the divisor (0: the window's size)

struct Divisor {
  bool padded;
  int64_t fixed;
  explicit Divisor(const RoutineCall& call)
      : padded(call.ints[2 + 4 * call.ints[0]]), fixed(call.ints[3 + 4 * call.ints[0]]) {}
  int64_t of(const Window& a, const Window& b, const Window& c) const {
    if (fixed) return fixed;
    if (padded) return a.extent * b.extent * c.extent;
    return (a.end - a.begin) * (b.end - b.begin) * (c.end - c.begin);
  }
};

// The divisors of a row of windows.
template <class T>
void divisors(const Geometry& g, const Divisor& divisor, const Window& a, const Window& b, T* out) {
  for (const Window& c : g.at[2]) *out++ = static_cast<T>(divisor.of(a, b, c));
}

template <class T>
void mean_rows(const RoutineCall& call, const Geometry& g, const Planes& x, const Planes& y) {
  const RowLoops<T>& loops = row_loops<T>();
  const Divisor divisor(call);
  const int64_t width = y.sizes[2], count = y.n * y.c * g.area() / width;
  const Taps taps(call, x.sizes[2], width);
  parallel(count, 1 + kGrain / (width * 4), [&](int64_t begin, int64_t end) {
    Scratch<T, 256> scratch(taps.scratch() + width);
    T* by = scratch.data() + taps.scratch();
    rows(g, begin, end, [&](int64_t plane, int64_t row, const Window& a, const Window& b) {
      T* to = y.plane<T>(plane) + row * width;
      std::fill(to, to + width, T());
      lines(x, a, b, [&](int64_t line) {
        taps.each(x.plane<const T>(plane) + line, x.sizes[2], scratch.data(), [&](const Tap& t, const T* from) {
          loops.add(to + t.from, from, t.to - t.from);
        });
      });
      divisors(g, divisor, a, b, by);
      for (int64_t c = 0; c < width; ++c) to[c] /= by[c];
    });
  });
}

template <class T>
void mean_channels(const Geometry& g, const Divisor& divisor, const Planes& x, const Planes& y) {
  const RowLoops<T>& loops = row_loops<T>();
  const int64_t area = g.area(), channels = y.c;
  parallel(y.n * area, 1 + kGrain / channels, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      pixels(g, p % area, p % area + 1, [&](int64_t o, const Window& a, const Window& b, const Window& c) {
        const T* from = static_cast<const T*>(x.data) + p / area * x.image;
        T* to = static_cast<T*>(y.data) + p / area * y.image + o * y.step;
        std::fill(to, to + channels, T());
        elements(x, a, b, c, [&](int64_t i) { loops.add(to, from + i * x.step, channels); });
        loops.divide(to, static_cast<T>(divisor.of(a, b, c)), channels);
      });
  });
}

template <class T>
void mean_forward(const RoutineCall& call) {
  const int nd = static_cast<int>(call.ints[0]);
  const Planes x = planes_of(call.in[0], nd, true), y = planes_of(call.out[0], nd, false);
  const Geometry g(call, x, y);
  const Divisor divisor(call);
  if constexpr (kFloating<T>) {
    if (x.channels_inside() && y.channels_inside()) return mean_channels<T>(g, divisor, x, y);
    if (slides(call) && plain(x) && plain(y)) return mean_rows<T>(call, g, x, y);
  }
  parallel(y.n * y.c, 1 + kGrain / std::max(y.area, x.area), [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) {
      const T* from = x.plane<T>(begin);
      T* to = y.plane<T>(begin);
      pixels(g, 0, g.area(), [&](int64_t o, const Window& a, const Window& b, const Window& c) {
        std::conditional_t<kFloating<T>, T, uint64_t> sum = 0;  // which wraps around
        elements(x, a, b, c, [&](int64_t i) { sum += from[i * x.step]; });
        to[o * y.step] = static_cast<T>(sum) / static_cast<T>(divisor.of(a, b, c));
      });
    }
  });
}

template <class T>
void mean_rows_backward(const RoutineCall& call, const Geometry& g, const Planes& x, const Planes& y) {
  const RowLoops<T>& loops = row_loops<T>();
  const Divisor divisor(call);
  const int64_t width = y.sizes[2], each = g.area() / width;
  const Taps taps(call, x.sizes[2], width);
  parallel(x.n * x.c, 1 + kGrain / x.area, [&](int64_t begin, int64_t end) {
    Scratch<T, 256> scratch(width);
    T* part = scratch.data();
    for (int64_t plane = begin; plane < end; ++plane)
      std::fill(x.plane<T>(plane), x.plane<T>(plane) + x.area, T());
    rows(g, begin * each, end * each, [&](int64_t plane, int64_t row, const Window& a, const Window& b) {
      const T* from = y.plane<T>(plane) + row * width * y.step;
      divisors(g, divisor, a, b, part);
      for (int64_t c = 0; c < width; ++c) part[c] = from[c * y.step] / part[c];
      lines(x, a, b, [&](int64_t line) {
        for (int64_t k = 0; k < taps.count; ++k) {
          const Tap& t = taps.taps[k];
          T* to = x.plane<T>(plane) + line + t.first * taps.stride + t.phase;
          if (taps.stride == 1)
            loops.add(to, part + t.from, t.to - t.from);
          else
            for (int64_t c = t.from; c < t.to; ++c, to += taps.stride) *to += part[c];
        }
      });
    });
  });
}

template <class T>
void mean_backward(const RoutineCall& call) {
  const int nd = static_cast<int>(call.ints[0]);
  const Planes y = planes_of(call.in[0], nd, true), x = planes_of(call.out[0], nd, false);
  const Geometry g(call, x, y);
  if (slides(call) && plain(x)) return mean_rows_backward<T>(call, g, x, y);
  const Divisor divisor(call);
  const Blocks blocks(x, x.channels_inside());
  parallel(blocks.images * blocks.groups, 1 + kGrain / (x.area * blocks.width), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t image = item / blocks.groups, first = item % blocks.groups * blocks.width;
      const int64_t width = std::min(first + blocks.width, x.c) - first;
      T* to = static_cast<T*>(x.data) + image * x.image + first * x.channel;
      const T* from = static_cast<const T*>(y.data) + image * y.image + first * y.channel;
      for (int64_t i = 0; i < x.area; ++i)
        for (int64_t k = 0; k < width; ++k) to[i * x.step + k * x.channel] = T();
      pixels(g, 0, g.area(), [&](int64_t o, const Window& a, const Window& b, const Window& c) {
        const T by = static_cast<T>(divisor.of(a, b, c));
        if (width == 1) {
          const T one = from[o * y.step] / by;
          return elements(x, a, b, c, [&](int64_t i) { to[i * x.step] += one; });
        }
        T part[kChannels];
        for (int64_t k = 0; k < width; ++k) part[k] = from[o * y.step + k * y.channel] / by;
        elements(x, a, b, c, [&](int64_t i) {
          T* row = to + i * x.step;
          for (int64_t k = 0; k < width; ++k) row[k * x.channel] += part[k];
        });
      });
    }
  });
}

// f(T()) for the call's dtype; kWhole: int64 too.
template <bool kWhole, class F>
void of_dtype(const RoutineCall& call, const F& f) {
  if (call.out[0].layout->numel == 0) return;
  const DType dtype = call.out[0].layout->dtype;
  if constexpr (kWhole)
    if (dtype == DType::Int64) return f(int64_t());
  if (dtype == DType::Float64)
    f(double());
  else
    f(float());
}

#define RL_POOL(name, function, whole)                                                   \
  void run_##name(const RoutineCall& call) {                                             \
    of_dtype<whole>(call, [&](auto zero) { function<decltype(zero)>(call); });           \
  }                                                                                      \
  RL_ROUTINE(name, run_##name)

RL_POOL(max_pool, max_forward, true)
RL_POOL(pool_scatter, scatter, false)
RL_POOL(pool_gather, gather, false)
RL_POOL(avg_pool, mean_forward, true)
RL_POOL(avg_pool_backward, mean_backward, false)

}  // namespace
}  // namespace rl
