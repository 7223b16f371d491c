// The routine `convolution`: layouts -> a description, a description -> oneDNN's primitive, kept
// with the plan, or the plain way.
//
// The plain way cuts an image's output pixels into blocks; a block's patches are the columns of a
// matrix (im2col), and each of the three products is a matrix product with it.
// Invariant: sums run over images, then blocks, in order.
#include "convolution.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "error.h"
#include "halves.h"
#include "libraries.h"
#include "parallel.h"
#include "routines.h"
#include "threads.h"

namespace rl {
namespace {

constexpr int64_t kBlock = 1 << 18;  // elements of a block of patches
constexpr int64_t kGrain = 4096;     // elements worth a thread
constexpr int64_t kShared = 1 << 17;  // products below which threads cost more than they do

// Memory that is not initialised.
struct Buffer {
  void* data = nullptr;
  explicit Buffer(int64_t bytes) {
    if (posix_memalign(&data, 64, static_cast<size_t>(std::max<int64_t>(bytes, 64))) != 0)
      fail(ErrorKind::Memory, "[convolution] cannot allocate %lld bytes",
           static_cast<long long>(bytes));
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  void operator=(const Buffer&) = delete;
};

// out = x y + beta out
void product(Gemm g, const void* x, const void* y, void* out, double beta) {
  g.has_bias = beta != 0;
  g.bias[1] = g.out[1], g.bias[2] = 1;
  if (openblas_available() && openblas_takes(g))
    openblas_run(g, x, y, out, 1, beta);
  else
    plain_run(g, x, y, beta ? out : nullptr, out, 1, beta);
}

template <class T>
struct Plain {
  const Convolution& c;
  int64_t area = 1, taps = 1;     // output pixels, kernel positions
  int64_t ci, co, depth, block;   // of a group; depth = ci * taps; pixels of a block
  int64_t in[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, before[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t xs[3] = {0, 0, 0}, ws[3] = {0, 0, 0}, ys[3] = {0, 0, 0};

  explicit Plain(const Convolution& given) : c(given) {
    for (int d = 0; d < c.nd; ++d) {
      const int to = 3 - c.nd + d;
      in[to] = c.in[d], kernel[to] = c.kernel[d], out[to] = c.out[d], stride[to] = c.stride[d];
      before[to] = c.before[d], dilation[to] = c.dilation[d];
      xs[to] = c.x[2 + d], ws[to] = c.w[2 + d], ys[to] = c.y[2 + d];
      area *= c.out[d];
      taps *= c.kernel[d];
    }
    ci = c.ci / c.groups, co = c.co / c.groups, depth = ci * taps;
    block = std::max<int64_t>(1, std::min(area, kBlock / std::max<int64_t>(1, depth)));
  }

  // f(input element or -1, column) for the pixels [begin, begin + count) at one kernel position.
  template <class F>
  void walk(int64_t tap, int64_t begin, int64_t count, F f) const {
    const int64_t k[3] = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1],
                          tap % kernel[2]};
    for (int64_t p = 0; p < count; ++p) {
      const int64_t at = begin + p;
      const int64_t o[3] = {at / (out[1] * out[2]), at / out[2] % out[1], at % out[2]};
      int64_t place = 0;
      for (int d = 0; d < 3; ++d) {
        const int64_t i = o[d] * stride[d] - before[d] + k[d] * dilation[d];
        if (i < 0 || i >= in[d]) {
          place = -1;
          break;
        }
        place += i * xs[d];
      }
      f(place, p);
    }
  }

  // col[depth, count] from the channels of one group of one image, or added back to them.
  void patches(T* x, int64_t begin, int64_t count, T* col, bool back) const {
    parallel(ci, 1 + kGrain / std::max<int64_t>(1, taps * count), [&](int64_t first, int64_t last) {
      for (int64_t channel = first; channel < last; ++channel)
        for (int64_t tap = 0; tap < taps; ++tap) {
          T *row = col + (channel * taps + tap) * count, *from = x + channel * c.x[1];
          if (back)
            walk(tap, begin, count, [&](int64_t i, int64_t p) { i < 0 ? T() : from[i] += row[p]; });
          else
            walk(tap, begin, count,
                 [&](int64_t i, int64_t p) { row[p] = i < 0 ? T() : from[i]; });
        }
    });
  }

  // w as [co, depth] in C order.
  void weights(T* w, T* flat, int64_t group, bool back) const {
    for (int64_t o = 0; o < co; ++o)
      for (int64_t i = 0; i < ci; ++i)
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t k[3] = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1],
                                tap % kernel[2]};
          T* at = w + (group * co + o) * c.w[0] + i * c.w[1];
          for (int d = 0; d < 3; ++d) at += k[d] * ws[d];
          T* to = flat + (o * ci + i) * taps + tap;
          back ? *at = *to : *to = *at;
        }
  }

  // y of one group of one image as [co, count] in C order.
  void pixels(T* y, int64_t begin, int64_t count, T* flat, const T* bias, bool back) const {
    parallel(co, 1 + kGrain / count, [&](int64_t first, int64_t last) {
      for (int64_t o = first; o < last; ++o)
        for (int64_t p = 0; p < count; ++p) {
          const int64_t at = begin + p;
          T* place = y + o * c.y[1] + at / (out[1] * out[2]) * ys[0] +
                     at / out[2] % out[1] * ys[1] + at % out[2] * ys[2];
          T* to = flat + o * count + p;
          if (back)
            *place = *to + (bias ? bias[o] : T());
          else
            *to = *place;
        }
    });
  }

  Gemm gemm(int64_t m, int64_t n, int64_t k) const {
    Gemm g = {};
    g.b = 1, g.m = m, g.n = n, g.k = k;
    g.x[1] = k, g.x[2] = 1, g.y[1] = n, g.y[2] = 1, g.out[1] = n, g.out[2] = 1;
    g.dtype = g.out_dtype = sizeof(T) == 4 ? DType::Float32 : DType::Float64;
    g.threads = c.threads;
    return g;
  }

  void clear(T* x) const {  // Data adds into its result
    parallel(c.n * c.ci, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        T* plane = x + i / c.ci * c.x[0] + i % c.ci * c.x[1];
        for (int64_t a = 0; a < in[0]; ++a)
          for (int64_t b = 0; b < in[1]; ++b)
            for (int64_t e = 0; e < in[2]; ++e) plane[a * xs[0] + b * xs[1] + e * xs[2]] = T();
      }
    });
  }

  void run(T* x, T* w, T* y, const T* bias) const {
    const auto bytes = static_cast<int64_t>(sizeof(T));
    Buffer col(bytes * depth * block), flat(bytes * co * depth), pix(bytes * co * block);
    T *columns = static_cast<T*>(col.data), *matrix = static_cast<T*>(flat.data),
      *rows = static_cast<T*>(pix.data);
    if (c.product == Product::Data) clear(x);
    for (int64_t group = 0; group < c.groups; ++group) {
      if (c.product == Product::Weights)
        std::fill(matrix, matrix + co * depth, T());
      else
        weights(w, matrix, group, false);
      for (int64_t image = 0; image < c.n; ++image) {
        T *xi = x + image * c.x[0] + group * ci * c.x[1],
          *yi = y + image * c.y[0] + group * co * c.y[1];
        for (int64_t begin = 0; begin < area; begin += block) {
          const int64_t count = std::min(block, area - begin);
          if (c.product == Product::Forward) {
            patches(xi, begin, count, columns, false);
            product(gemm(co, count, depth), matrix, columns, rows, 0);
            pixels(yi, begin, count, rows, bias ? bias + group * co : nullptr, true);
          } else if (c.product == Product::Data) {
            pixels(yi, begin, count, rows, nullptr, false);
            Gemm g = gemm(depth, count, co);
            g.x[1] = 1, g.x[2] = depth;
            product(g, matrix, rows, columns, 0);
            patches(xi, begin, count, columns, true);
          } else {
            patches(xi, begin, count, columns, false);
            pixels(yi, begin, count, rows, nullptr, false);
            Gemm g = gemm(co, depth, count);
            g.y[1] = 1, g.y[2] = count;
            product(g, rows, columns, matrix, 1);
          }
        }
      }
      if (c.product == Product::Weights) weights(w, matrix, group, true);
    }
  }
};

template <class T>
void run_plain(const Convolution& c, const void* a, const void* b, const void* bias, void* out) {
  T *first = static_cast<T*>(const_cast<void*>(a)), *second = static_cast<T*>(const_cast<void*>(b)),
    *result = static_cast<T*>(out);
  T *x = c.product == Product::Data ? result : first,
    *w = c.product == Product::Weights ? result : second,
    *y = c.product == Product::Forward ? result : c.product == Product::Data ? first : second;
  Plain<T>(c).run(x, w, y, static_cast<const T*>(bias));
}

// ---- operands in other memory: dense copies, and float32 for halves

struct Dense {
  int rank;
  int64_t sizes[5], strides[5];  // of the operand; the copy is in C order

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
  int64_t place(int64_t i) const {
    int64_t at = 0;
    for (int d = rank - 1; d >= 0; --d) at += i % sizes[d] * strides[d], i /= sizes[d];
    return at;
  }
  void retarget(int64_t* to) const {
    int64_t step = 1;
    for (int d = rank - 1; d >= 0; --d) to[d] = step, step *= sizes[d];
  }
};

template <class From, class To>
void copy(const Dense& d, const void* from, void* to, bool back) {
  const From* f = static_cast<const From*>(from);
  To* t = static_cast<To*>(to);
  parallel(d.numel(), kGrain, [&](int64_t first, int64_t last) {
    const int64_t length = d.sizes[d.rank - 1], step = d.strides[d.rank - 1];
    for (int64_t i = first; i < last;) {  // a row at a time
      const int64_t run = std::min(length - i % length, last - i);
      for (int64_t at = d.place(i), end = i + run; i < end; ++i, at += step)
        narrow(widen(f[back ? i : at]), &t[back ? at : i]);
    }
  });
}

void gather(const Dense& d, DType dtype, const void* from, void* to) {
  if (dtype == DType::Float64)
    copy<double, double>(d, from, to, false);
  else if (dtype == DType::Float32)
    copy<float, float>(d, from, to, false);
  else if (dtype == DType::BFloat16)
    copy<BFloat16, float>(d, from, to, false);
  else
    copy<Float16, float>(d, from, to, false);
}

bool repeats(const Dense& d) {
  for (int i = 0; i < d.rank; ++i)
    if (d.sizes[i] > 1 && d.strides[i] == 0) return true;
  return false;
}

// ---- calls

// ints: the product, spatial dims, groups, then stride, padding before and dilation of each.
Convolution describe(const RoutineCall& call) {
  Convolution c = {};
  const Product product = static_cast<Product>(call.ints[0]);
  c.product = product;
  c.nd = static_cast<int>(call.ints[1]);
  c.groups = call.ints[2];
  const int nd = c.nd;
  const Layout* layouts[] = {call.in[0].layout, call.in[1].layout, call.out[0].layout};
  const Layout* x = product == Product::Data ? layouts[2] : layouts[0];
  const Layout* w = product == Product::Weights ? layouts[2] : layouts[1];
  const Layout* y = product == Product::Forward ? layouts[2]
                    : product == Product::Data  ? layouts[0]
                                                : layouts[1];
  c.n = x->shape()[0], c.ci = x->shape()[1], c.co = y->shape()[1];
  for (int d = 0; d < nd; ++d) {
    c.in[d] = x->shape()[2 + d], c.kernel[d] = w->shape()[2 + d], c.out[d] = y->shape()[2 + d];
    c.stride[d] = call.ints[3 + d], c.before[d] = call.ints[3 + nd + d];
    c.dilation[d] = call.ints[3 + 2 * nd + d];
    c.after[d] = (c.out[d] - 1) * c.stride[d] + (c.kernel[d] - 1) * c.dilation[d] + 1 - c.in[d] -
                 c.before[d];  // what is read, and no more
  }
  for (int d = 0; d < nd + 2; ++d)
    c.x[d] = x->strides()[d], c.w[d] = w->strides()[d], c.y[d] = y->strides()[d];
  c.dtype = x->dtype;
  c.bias = call.nin > 2 && product == Product::Forward;
  int64_t products = c.n * c.co * (c.ci / c.groups);
  for (int d = 0; d < nd; ++d) products *= c.out[d] * c.kernel[d];
  c.threads = products < kShared ? 1 : thread_limit();
  return c;
}

Dense dense_of(const Layout* l) {
  Dense d;
  d.rank = l->ndim;
  std::copy(l->shape(), l->shape() + l->ndim, d.sizes);
  std::copy(l->strides(), l->strides() + l->ndim, d.strides);
  return d;
}

// Nothing to sum over: zeros, or the bias.
void fill(const RoutineCall& call, const Convolution& c) {
  const Dense d = dense_of(call.out[0].layout);
  const int64_t size = itemsize(c.dtype), area = d.numel() / (d.sizes[0] * d.sizes[1]);
  char* out = call.out[0].as<char>();
  const char* bias = c.bias ? call.in[2].as<char>() : nullptr;
  for (int64_t i = 0; i < d.numel(); ++i) {
    if (bias)
      std::memcpy(out + d.place(i) * size, bias + i / area % c.co * size, static_cast<size_t>(size));
    else
      std::memset(out + d.place(i) * size, 0, static_cast<size_t>(size));
  }
}

struct Kept {
  int threads;
  std::shared_ptr<ConvPrimitive> primitive;
};

std::shared_ptr<Kept> primitive(const RoutineCall& call, const Convolution& c) {
  const std::lock_guard<std::mutex> hold(call.memo->lock);
  auto kept = std::static_pointer_cast<Kept>(call.memo->value);
  if (!kept || kept->threads != c.threads) {
    kept = std::make_shared<Kept>(Kept{c.threads, onednn_convolution(c)});
    call.memo->value = kept;
  }
  return kept;
}

void convolve(const RoutineCall& call) {
  Convolution c = describe(call);
  const Product product = c.product;
  const Layout* out = call.out[0].layout;
  if (out->numel == 0) return;
  if (call.in[0].layout->numel == 0 || call.in[1].layout->numel == 0) return fill(call, c);  // Data's bias comes later
  // Operands that repeat elements are made dense; halves too, where they become float32.
  const void* data[2] = {call.in[0].data, call.in[1].data};
  int64_t* strides[2] = {product == Product::Data ? c.y : c.x,
                         product == Product::Weights ? c.y : c.w};
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto densify = [&](int i) {
    const Dense d = dense_of(call.in[i].layout);
    buffers.emplace_back(new Buffer(d.numel() * (c.dtype == DType::Float64 ? 8 : 4)));
    gather(d, c.dtype, data[i], buffers.back()->data);
    data[i] = buffers.back()->data;
    d.retarget(strides[i]);
  };
  const bool half = c.dtype == DType::Float16 || c.dtype == DType::BFloat16;
  bool odd[2];
  for (int i = 0; i < 2; ++i) odd[i] = repeats(dense_of(call.in[i].layout));
  if (!half || !(odd[0] || odd[1])) {
    for (int i = 0; i < 2; ++i)
      if (odd[i]) densify(i);
    const void* bias = c.bias ? call.in[2].data : nullptr;
    if (direct_convolution(c, data[0], data[1], bias, call.out[0].data)) return;
    const std::shared_ptr<Kept> kept = primitive(call, c);
    if (kept->primitive &&
        onednn_convolution_run(kept->primitive.get(), data[0], data[1], bias, call.out[0].data))
      return;
    if (!half) return plain_convolution(c, data[0], data[1], bias, call.out[0].data);
  }
  const DType dtype = c.dtype;
  densify(0);
  densify(1);
  const Dense d = dense_of(out);
  Buffer result(d.numel() * 4), bias(c.bias ? c.co * 4 : 0);
  if (c.bias) gather(dense_of(call.in[2].layout), dtype, call.in[2].data, bias.data);
  c.dtype = DType::Float32;
  d.retarget(product == Product::Forward ? c.y : product == Product::Data ? c.x : c.w);
  const std::shared_ptr<Kept> kept = primitive(call, c);
  const void* b = c.bias ? bias.data : nullptr;
  if (!kept->primitive ||
      !onednn_convolution_run(kept->primitive.get(), data[0], data[1], b, result.data))
    plain_convolution(c, data[0], data[1], b, result.data);
  if (dtype == DType::BFloat16)
    copy<float, BFloat16>(d, result.data, call.out[0].data, true);
  else
    copy<float, Float16>(d, result.data, call.out[0].data, true);
}

// A transposed convolution: what Data gives, and one number a channel.
template <class T>
void add_bias(const RoutineCall& call) {
  const Dense d = dense_of(call.out[0].layout);
  const int64_t channels = d.sizes[1], area = d.numel() / (d.sizes[0] * channels);
  T* out = call.out[0].as<T>();
  const T* bias = call.in[2].as<T>();
  const bool planes = d.strides[1] >= area;  // else channels are innermost
  parallel(planes ? d.sizes[0] * channels : d.sizes[0] * area, 1 + kGrain / (planes ? area : channels),
           [&](int64_t first, int64_t last) {
             for (int64_t i = first; i < last; ++i) {
               T* row = out + i * (planes ? area : channels);
               for (int64_t k = 0; k < (planes ? area : channels); ++k)
                 narrow(widen(row[k]) + widen(bias[planes ? i % channels : k]), &row[k]);
             }
           });
}

void run(const RoutineCall& call) {
  convolve(call);
  if (call.nin < 3 || static_cast<Product>(call.ints[0]) != Product::Data ||
      call.out[0].layout->numel == 0)
    return;
  switch (call.out[0].layout->dtype) {
    case DType::Float64: return add_bias<double>(call);
    case DType::BFloat16: return add_bias<BFloat16>(call);
    case DType::Float16: return add_bias<Float16>(call);
    default: return add_bias<float>(call);
  }
}

RL_ROUTINE(convolution, run)

}  // namespace

Convolution convolution_of(const RoutineCall& call) { return describe(call); }
void convolution_run(const RoutineCall& call) { run(call); }

void plain_convolution(const Convolution& c, const void* a, const void* b, const void* bias,
                       void* out) {
  if (c.dtype == DType::Float64)
    run_plain<double>(c, a, b, bias, out);
  else
    run_plain<float>(c, a, b, bias, out);
}

}  // namespace rl
