// Convolutions of channels that each have a kernel of their own, and those of so few products that a
// library's call costs more than they do. On one thread of an AVX-512 machine, beside torch: depthwise
// 3 x 3 on 56 x 56 from 1.77 to 1.34 of its time, conv2d on a few elements from 0.50 to 0.22; planes
// of 14 x 14 and below are slower than torch's (1.6 to 2.5), and were not tried with the library.
// The limits below were not measured one by one.
//
// A group's planes are laid into scratch memory with their padding, columns apart by their place in
// the stride, so that what one tap of the kernel adds to a row of the result is a row there. Data is
// the same on y, spread by the stride, with the kernel turned round; Weights multiplies the rows.
// Invariant: an element of Forward and Data sums the group's channels, then the kernel's taps, in
// order; one of Weights sums in lanes over images and rows, then over the lanes.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "convolution.h"
#include "error.h"
#include "parallel.h"
#include "row_loops.h"

namespace rl {
namespace {

constexpr int64_t kSmall = 4096;       // products of a convolution that is quicker than a call
constexpr int64_t kScratch = 1 << 18;  // elements of a group's planes, at most
constexpr int64_t kTaps = 4096;        // of a group
constexpr int64_t kGrain = 1 << 15;    // products worth a thread
template <class T>
constexpr int64_t kLanes = RowLoops<T>::kLanes;
constexpr int64_t kBeyond = 64;        // elements that the last vector of a row may read too many

// Both products as one: `in` planes are read, each result is a sum over `ins` of them.
struct Geometry {
  int64_t n, groups, ins, outs;        // planes of a group
  int64_t in[3], out[3], kernel[3], step[3], spread[3], before[3], dilation[3];
  int64_t xs[5], ys[5], ws[5];         // of images, channels, space; ws: of outs, ins, space
  bool turned;
  int64_t rows[3], phase, width, plane;  // of the scratch: a padded plane is rows x phases x width

  explicit Geometry(const Convolution& c) {
    const bool back = c.product == Product::Data;
    n = c.n, groups = c.groups, turned = back;
    ins = (back ? c.co : c.ci) / groups, outs = (back ? c.ci : c.co) / groups;
    const int64_t *x = back ? c.y : c.x, *y = back ? c.x : c.y;
    for (int d = 0; d < 2; ++d) xs[d] = x[d], ys[d] = y[d];
    ws[0] = c.w[back], ws[1] = c.w[!back];
    group_step = c.co / groups * c.w[0];
    for (int d = 0; d < 3; ++d) {
      const int from = d - (3 - c.nd);
      in[d] = out[d] = kernel[d] = step[d] = spread[d] = dilation[d] = 1;
      before[d] = xs[2 + d] = ys[2 + d] = ws[2 + d] = 0;
      if (from < 0) continue;
      in[d] = back ? c.out[from] : c.in[from];
      out[d] = back ? c.in[from] : c.out[from];
      kernel[d] = c.kernel[from], dilation[d] = c.dilation[from];
      (back ? spread : step)[d] = c.stride[from];
      before[d] = back ? (kernel[d] - 1) * dilation[d] - c.before[from] : c.before[from];
      xs[2 + d] = x[2 + from], ys[2 + d] = y[2 + from], ws[2 + d] = c.w[2 + from];
    }
    for (int d = 0; d < 3; ++d) rows[d] = (out[d] - 1) * step[d] + (kernel[d] - 1) * dilation[d] + 1;
    phase = step[2], width = (rows[2] - 1) / phase + 1;
    plane = rows[0] * rows[1] * phase * width;
  }
  int64_t group_step;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t products() const { return n * groups * outs * ins * taps() * out[0] * out[1] * out[2]; }
  int64_t column(int64_t at) const { return at % phase * width + at / phase; }
};

template <class T>
struct Direct {
  const Geometry& g;
  T* scratch;
  int64_t* offsets;
  T* weights;

  // What lies between is zero already: every image is laid onto the same places.
  void lay(const T* x) const {
    for (int64_t k = 0; k < g.ins; ++k)
      for (int64_t a = 0; a < g.in[0]; ++a)
        for (int64_t b = 0; b < g.in[1]; ++b) {
          const int64_t ra = a * g.spread[0] + g.before[0], rb = b * g.spread[1] + g.before[1];
          if (ra < 0 || ra >= g.rows[0] || rb < 0 || rb >= g.rows[1]) continue;
          const T* from = x + k * g.xs[1] + a * g.xs[2] + b * g.xs[3];
          T* to = scratch + k * g.plane + (ra * g.rows[1] + rb) * g.phase * g.width;
          row(from, to);
        }
  }

  void row(const T* from, T* to) const {
    const int64_t spread = g.spread[2], before = g.before[2];
    int64_t first = before < 0 ? (-before + spread - 1) / spread : 0, last = g.in[2];
    while (last > first && (last - 1) * spread + before >= g.rows[2]) --last;
    if (last == first) return;
    if (g.phase == 1) {
      T* at = to + first * spread + before;
      if (spread == 1 && g.xs[4] == 1)
        std::memcpy(at, from + first, static_cast<size_t>(last - first) * sizeof(T));
      else
        for (int64_t e = first; e < last; ++e, at += spread) *at = from[e * g.xs[4]];
      return;
    }
    for (int64_t e = first; e < last && e < first + g.phase; ++e) {  // phases have no spread
      T* at = to + g.column(e + before);
      for (int64_t i = e; i < last; i += g.phase) *at++ = from[i * g.xs[4]];
    }
  }

  void read(const T* w) const {
    int64_t at = 0;
    for (int64_t k = 0; k < g.ins; ++k)
      for (int64_t a = 0; a < g.kernel[0]; ++a)
        for (int64_t b = 0; b < g.kernel[1]; ++b)
          for (int64_t e = 0; e < g.kernel[2]; ++e) {
            const int64_t p[3] = {g.turned ? g.kernel[0] - 1 - a : a,
                                  g.turned ? g.kernel[1] - 1 - b : b,
                                  g.turned ? g.kernel[2] - 1 - e : e};
            weights[at++] = w[k * g.ws[1] + p[0] * g.ws[2] + p[1] * g.ws[3] + p[2] * g.ws[4]];
          }
  }

  void place() const {  // of the taps, from a row's first element
    int64_t at = 0;
    for (int64_t k = 0; k < g.ins; ++k)
      for (int64_t a = 0; a < g.kernel[0]; ++a)
        for (int64_t b = 0; b < g.kernel[1]; ++b)
          for (int64_t e = 0; e < g.kernel[2]; ++e)
            offsets[at++] = k * g.plane +
                            (a * g.dilation[0] * g.rows[1] + b * g.dilation[1]) * g.phase * g.width +
                            g.column(e * g.dilation[2]);
  }

  // The row of the scratch from which row (a, b) of the result is read.
  const T* source(int64_t a, int64_t b) const {
    return scratch + (a * g.step[0] * g.rows[1] + b * g.step[1]) * g.phase * g.width;
  }

  // Adds what one image gives each tap to its lanes; y's rows are laid with zeros behind them.
  void correlate(const T* x, const T* y, T* row, T* lanes) const {
    const RowLoops<T>& loops = row_loops<T>();
    const int64_t taps = g.ins * g.taps(), n = g.out[2];
    lay(x);
    for (int64_t o = 0; o < g.outs; ++o)
      for (int64_t a = 0; a < g.out[0]; ++a)
        for (int64_t b = 0; b < g.out[1]; ++b) {
          const T* from = y + o * g.ys[1] + a * g.ys[2] + b * g.ys[3];
          for (int64_t e = 0; e < n; ++e) row[e] = from[e * g.ys[4]];
          loops.correlate(lanes + o * taps * kLanes<T>, row, n, source(a, b), offsets, taps);
        }
  }

  void fold(const T* lanes, T* w) const {
    for (int64_t o = 0; o < g.outs; ++o) {
      int64_t at = o * g.ins * g.taps();
      for (int64_t k = 0; k < g.ins; ++k)
        for (int64_t a = 0; a < g.kernel[0]; ++a)
          for (int64_t b = 0; b < g.kernel[1]; ++b)
            for (int64_t e = 0; e < g.kernel[2]; ++e, ++at) {
              T all[kLanes<T>];
              std::memcpy(all, lanes + at * kLanes<T>, sizeof all);
              for (int64_t half = kLanes<T> / 2; half; half /= 2)
                for (int64_t l = 0; l < half; ++l) all[l] += all[l + half];
              w[o * g.ws[0] + k * g.ws[1] + a * g.ws[2] + b * g.ws[3] + e * g.ws[4]] = all[0];
            }
    }
  }

  void run(const T* x, const T* w, const T* bias, T* y) const {
    const RowLoops<T>& loops = row_loops<T>();
    lay(x);
    for (int64_t o = 0; o < g.outs; ++o) {
      read(w + o * g.ws[0]);
      for (int64_t a = 0; a < g.out[0]; ++a)
        for (int64_t b = 0; b < g.out[1]; ++b)
          loops.window(y + o * g.ys[1] + a * g.ys[2] + b * g.ys[3], g.out[2],
                       source(a, b), offsets, weights, g.ins * g.taps(), bias ? bias[o] : T());
    }
  }
};

// Scratch memory of one thread.
template <class T>
struct Scratch {
  std::unique_ptr<char, void (*)(void*)> memory{nullptr, std::free};
  T *planes, *weights, *row, *lanes;
  int64_t* offsets;

  explicit Scratch(const Geometry& g) {
    const int64_t taps = g.ins * g.taps(), room = g.ins * g.plane + kBeyond;
    const int64_t across = g.out[2] + kLanes<T>;
    const auto elements = static_cast<size_t>(room + taps + across + g.outs * taps * kLanes<T>);
    const size_t bytes = static_cast<size_t>(taps) * sizeof(int64_t) + elements * sizeof(T);
    memory.reset(static_cast<char*>(std::calloc(bytes, 1)));
    if (!memory) fail(ErrorKind::Memory, "[convolution] cannot allocate %zu bytes", bytes);
    offsets = reinterpret_cast<int64_t*>(memory.get());
    planes = reinterpret_cast<T*>(offsets + taps);
    weights = planes + room;
    row = weights + taps;
    lanes = row + across;
  }
};

template <class T>
void run_all(const Geometry& g, const void* a, const void* b, const void* bias, void* out) {
  const int64_t per_group = g.products() / (g.n * g.groups);
  parallel(g.n * g.groups, 1 + kGrain / per_group, [&](int64_t begin, int64_t end) {
    const Scratch<T> s(g);
    const Direct<T> d = {g, s.planes, s.offsets, s.weights};
    d.place();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / g.groups, group = i % g.groups;
      d.run(static_cast<const T*>(a) + image * g.xs[0] + group * g.ins * g.xs[1],
            static_cast<const T*>(b) + group * g.group_step,
            bias ? static_cast<const T*>(bias) + group * g.outs : nullptr,
            static_cast<T*>(out) + image * g.ys[0] + group * g.outs * g.ys[1]);
    }
  });
}

// x, y -> w: a group's taps are summed over all images by one thread.
template <class T>
void run_weights(const Geometry& g, const void* a, const void* b, void* out) {
  parallel(g.groups, 1 + kGrain / (g.products() / g.groups), [&](int64_t begin, int64_t end) {
    const Scratch<T> s(g);
    const Direct<T> d = {g, s.planes, s.offsets, s.weights};
    d.place();
    for (int64_t group = begin; group < end; ++group) {
      std::memset(s.lanes, 0, static_cast<size_t>(g.outs * g.ins * g.taps() * kLanes<T>) * sizeof(T));
      for (int64_t image = 0; image < g.n; ++image)
        d.correlate(static_cast<const T*>(a) + image * g.xs[0] + group * g.ins * g.xs[1],
                    static_cast<const T*>(b) + image * g.ys[0] + group * g.outs * g.ys[1], s.row,
                    s.lanes);
      d.fold(s.lanes, static_cast<T*>(out) + group * g.group_step);
    }
  });
}

}  // namespace

bool direct_convolution(const Convolution& c, const void* a, const void* b, const void* bias,
                        void* out) {
  if (c.epilogue.count || c.packed) return false;
  if (c.dtype != DType::Float32 && c.dtype != DType::Float64) return false;
  const Geometry g(c);
  const bool apart = c.groups > 1 && c.ci == c.groups;
  if (!apart && g.products() > kSmall) return false;
  if (g.out[2] > 1 && (g.ys[4] != 1 || (g.in[2] > 1 && g.xs[4] > 1))) return false;  // channels last: the library's kernel is as quick
  if (g.ins * g.taps() > kTaps || g.ins * g.plane > kScratch) return false;
  if (c.product == Product::Weights)
    c.dtype == DType::Float64 ? run_weights<double>(g, a, b, out) : run_weights<float>(g, a, b, out);
  else if (c.dtype == DType::Float64)
    run_all<double>(g, a, b, bias, out);
  else
    run_all<float>(g, a, b, bias, out);
  return true;
}

}  // namespace rl
