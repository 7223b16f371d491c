// Resampling: planes -> planes of other sizes, each element a weighted sum of its neighbours; and the
// transpose. im2col and col2im: patches of an image as columns, and columns added into an image.
//
// A mode is, for each spatial dim, at most four taps an output position: places and weights, worked out
// once a call. So nearest, linear and cubic are the same to the loops, which combine whole input rows
// (or, where channels are innermost, whole channels) and then the columns of the row that came of it.
// Invariant: sums run over the taps in order, outer dims first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "error.h"
#include "parallel.h"
#include "planes.h"
#include "row_loops.h"

namespace rl {
namespace {

constexpr int64_t kGrain = 4096;  // elements worth a thread

enum Mode : int64_t { kNearest, kNearestExact, kLinear, kCubic };

template <class T>
struct Tap {
  int count;
  int64_t at[4];
  T weight[4];
};

// ints: nd, mode, align_corners, then for each dim the bits of the scale that was given (0: none).
struct Told {
  int nd;
  Mode mode;
  bool aligned;
  double scale[3] = {0, 0, 0};
  explicit Told(const RoutineCall& call)
      : nd(static_cast<int>(call.ints[0])), mode(static_cast<Mode>(call.ints[1])), aligned(call.ints[2]) {
    for (int d = 0; d < nd; ++d) std::memcpy(&scale[3 - nd + d], call.ints + 3 + d, sizeof(double));
  }
};

// Input elements for one output element.
template <class T>
T step_of(int64_t in, int64_t out, bool aligned, double scale) {
  if (aligned) return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
  return scale > 0 ? static_cast<T>(1.0 / scale) : static_cast<T>(in) / static_cast<T>(out);
}

template <class T>
Tap<T> tap_of(Mode mode, bool aligned, int64_t o, int64_t in, int64_t out, double scale) {
  Tap<T> tap = {};
  if (mode == kNearest || mode == kNearestExact) {  // places are worked out in float32 for every dtype
    const float step = step_of<float>(in, out, false, scale);
    const float place = (static_cast<float>(o) + (mode == kNearestExact ? 0.5f : 0.0f)) * step;
    tap.count = 1;
    tap.at[0] = std::min(static_cast<int64_t>(std::floor(place)), in - 1);
    if (mode == kNearest && in == out) tap.at[0] = o;
    tap.weight[0] = 1;
    return tap;
  }
  const T step = step_of<T>(in, out, aligned, scale);
  T place = aligned ? step * static_cast<T>(o) : step * (static_cast<T>(o) + T(0.5)) - T(0.5);
  if (mode == kLinear) {
    if (place < 0) place = 0;
    int64_t low = std::min(static_cast<int64_t>(place), in - 1);
    const T far = in == out ? T(0) : std::min(std::max(place - static_cast<T>(low), T(0)), T(1));
    if (in == out) low = o;
    tap.count = 2;
    tap.at[0] = low, tap.at[1] = std::min(low + 1, in - 1);
    tap.weight[0] = 1 - far, tap.weight[1] = far;
    return tap;
  }
  // Keys' cubic convolution with a = -0.75.
  const T a = T(-0.75);
  const T floor = std::floor(place), t = place - floor;
  const auto near = [&](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [&](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  const T weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  tap.count = 4;
  for (int i = 0; i < 4; ++i) {
    tap.at[i] = std::min(std::max(static_cast<int64_t>(floor) - 1 + i, int64_t{0}), in - 1);
    tap.weight[i] = weights[i];
  }
  return tap;
}

template <class T>
struct Taps {
  std::vector<Tap<T>> of[3];
  Taps(const Told& told, const Planes& x, const Planes& y) {
    for (int d = 0; d < 3; ++d)
      for (int64_t o = 0; o < y.sizes[d]; ++o)
        of[d].push_back(d < 3 - told.nd ? Tap<T>{1, {0}, {1}}
                                        : tap_of<T>(told.mode, told.aligned, o, x.sizes[d], y.sizes[d], told.scale[d]));
  }
  const Tap<T>& at(int d, int64_t o) const { return of[d][static_cast<size_t>(o)]; }
};

// f(first column of an input row, its weight) for the rows that output row `row` is made of.
template <class T, class F>
void lines(const Taps<T>& taps, const Planes& x, const Planes& y, int64_t row, const F& f) {
  const Tap<T>&a = taps.at(0, row / y.sizes[1]), &b = taps.at(1, row % y.sizes[1]);
  for (int i = 0; i < a.count; ++i)
    for (int j = 0; j < b.count; ++j)
      f((a.at[i] * x.sizes[1] + b.at[j]) * x.sizes[2], a.weight[i] * b.weight[j]);
}

template <class T>
void forward(const RoutineCall& call) {
  const Told told(call);
  const Planes x = planes_of(call.in[0], told.nd, true), y = planes_of(call.out[0], told.nd, false);
  const Taps<T> taps(told, x, y);
  const RowLoops<T>& loops = row_loops<T>();
  const int64_t width = y.sizes[2], rows = y.area / width;
  if (x.channels_inside() && y.channels_inside()) {
    parallel(y.n * rows, 1 + kGrain / (width * y.c), [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const T* from = static_cast<const T*>(x.data) + item / rows * x.image;
        T* to = static_cast<T*>(y.data) + item / rows * y.image + item % rows * width * y.step;
        for (int64_t c = 0; c < width; ++c, to += y.step) {
          const Tap<T>& tap = taps.at(2, c);
          bool first = true;
          lines(taps, x, y, item % rows, [&](int64_t line, T weight) {
            for (int i = 0; i < tap.count; ++i, first = false)
              (first ? loops.scale : loops.add_scaled)(to, from + (line + tap.at[i]) * x.step,
                                                       weight * tap.weight[i], y.c);
          });
        }
      }
    });
    return;
  }
  parallel(y.n * y.c * rows, 1 + kGrain / (width * 4), [&](int64_t begin, int64_t end) {
    std::vector<T> memory(static_cast<size_t>(2 * x.sizes[2]));
    T *line = memory.data(), *packed = line + x.sizes[2];
    for (int64_t item = begin; item < end; ++item) {
      const T* from = x.plane<T>(item / rows);
      T* to = y.plane<T>(item / rows) + item % rows * width * y.step;
      bool first = true;
      lines(taps, x, y, item % rows, [&](int64_t start, T weight) {
        const T* row = from + start * x.step;
        if (x.step != 1) {
          for (int64_t c = 0; c < x.sizes[2]; ++c) packed[c] = row[c * x.step];
          row = packed;
        }
        (first ? loops.scale : loops.add_scaled)(line, row, weight, x.sizes[2]);
        first = false;
      });
      for (int64_t c = 0; c < width; ++c) {
        const Tap<T>& tap = taps.at(2, c);
        T sum = line[tap.at[0]] * tap.weight[0];
        for (int i = 1; i < tap.count; ++i) sum += line[tap.at[i]] * tap.weight[i];
        to[c * y.step] = sum;
      }
    }
  });
}

template <class T>
void backward(const RoutineCall& call) {
  const Told told(call);
  const Planes y = planes_of(call.in[0], told.nd, true), x = planes_of(call.out[0], told.nd, false);
  const Taps<T> taps(told, x, y);
  const RowLoops<T>& loops = row_loops<T>();
  const int64_t width = y.sizes[2], rows = y.area / std::max<int64_t>(width, 1);
  parallel(x.n * x.c, 1 + kGrain / x.area, [&](int64_t begin, int64_t end) {
    std::vector<T> memory(static_cast<size_t>(x.sizes[2]));
    T* line = memory.data();
    for (int64_t plane = begin; plane < end; ++plane) {
      T* to = x.plane<T>(plane);
      const T* from = y.plane<T>(plane);
      for (int64_t i = 0; i < x.area; ++i) to[i * x.step] = T();
      for (int64_t row = 0; row < rows; ++row) {
        std::fill(line, line + x.sizes[2], T());
        for (int64_t c = 0; c < width; ++c) {
          const Tap<T>& tap = taps.at(2, c);
          const T g = from[(row * width + c) * y.step];
          for (int i = 0; i < tap.count; ++i) line[tap.at[i]] += g * tap.weight[i];
        }
        lines(taps, x, y, row, [&](int64_t start, T weight) {
          if (x.step == 1)
            loops.add_scaled(to + start, line, weight, x.sizes[2]);
          else
            for (int64_t c = 0; c < x.sizes[2]; ++c) to[(start + c) * x.step] += line[c] * weight;
        });
      }
    }
  });
}

// ---- patches: ints are kernel, dilation, padding, stride of two dims, and the places of a patch down and across

struct Patches {
  int64_t kernel[2], dilation[2], padding[2], stride[2], places[2];
  explicit Patches(const RoutineCall& call) {
    int64_t* to[] = {kernel, dilation, padding, stride, places};
    for (int i = 0; i < 10; ++i) to[i / 2][i % 2] = call.ints[i];
  }
  // f(pixel of the plane, column) for one position in the kernel; pixels outside are left out.
  template <class F>
  void each(const Planes& x, int64_t position, const F& f) const {
    const int64_t down = position / kernel[1] * dilation[0] - padding[0],
                  across = position % kernel[1] * dilation[1] - padding[1];
    for (int64_t i = 0; i < places[0]; ++i) {
      const int64_t h = i * stride[0] + down;
      if (h < 0 || h >= x.sizes[1]) continue;
      for (int64_t j = 0; j < places[1]; ++j) {
        const int64_t w = j * stride[1] + across;
        if (w >= 0 && w < x.sizes[2]) f((h * x.sizes[1 + 1] + w) * x.step, i * places[1] + j);
      }
    }
  }
};

// in: an image [n, c, h, w]; out: columns [n, c * kernel, places], C order.
template <class T>
void to_columns(const RoutineCall& call) {
  const Planes x = planes_of(call.in[0], 2, true);
  const Patches p(call);
  const int64_t positions = p.kernel[0] * p.kernel[1], length = p.places[0] * p.places[1];
  T* out = call.out[0].as<T>();
  parallel(x.n * x.c * positions, 1 + kGrain / length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = out + row * length;
      std::fill(to, to + length, T());
      const T* from = x.plane<T>(row / positions);
      p.each(x, row % positions, [&](int64_t pixel, int64_t column) { to[column] = from[pixel]; });
    }
  });
}

// in: columns in C order; out: an image.
template <class T>
void from_columns(const RoutineCall& call) {
  const Planes x = planes_of(call.out[0], 2, false);
  const Patches p(call);
  const int64_t positions = p.kernel[0] * p.kernel[1], length = p.places[0] * p.places[1];
  const T* in = call.in[0].as<T>();
  parallel(x.n * x.c, 1 + kGrain / x.area, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      T* to = x.plane<T>(plane);
      for (int64_t i = 0; i < x.area; ++i) to[i * x.step] = T();
      for (int64_t position = 0; position < positions; ++position) {
        const T* from = in + (plane * positions + position) * length;
        p.each(x, position, [&](int64_t pixel, int64_t column) { to[pixel] += from[column]; });
      }
    }
  });
}

#define RL_RESAMPLING(name, function)                       \
  void run_##name(const RoutineCall& call) {                \
    if (call.out[0].layout->numel == 0) return;             \
    if (call.out[0].layout->dtype == DType::Float64)        \
      function<double>(call);                               \
    else                                                    \
      function<float>(call);                                \
  }                                                         \
  RL_ROUTINE(name, run_##name)

RL_RESAMPLING(resample, forward)
RL_RESAMPLING(resample_backward, backward)
RL_RESAMPLING(im2col, to_columns)
RL_RESAMPLING(col2im, from_columns)

}  // namespace
}  // namespace rl
