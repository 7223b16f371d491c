// Layouts of a matrix product -> a plan; a plan and pointers -> the product, by the library that is
// fastest there.
// Invariant: a plan's product is normalised: out is row-major (else everything is transposed), dims
// of size 1 have the strides that a dense matrix would have, and a batch that is one tall matrix is
// one.
#include "gemm.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "error.h"
#include "libraries.h"
#include "threads.h"

namespace rl {

struct GemmPlan {
  Gemm gemm;
  bool swapped;  // out^T = y^T x^T
  bool small;    // done before a library has begun
  double work;   // multiply-adds
  std::mutex lock;                       // guards what follows
  int threads = 0;                       // that the primitives were made for
  // wide: halves in, float32 out, for alpha and beta; added: onto what out holds
  std::shared_ptr<Matmul> direct, wide, added;
};

namespace {

std::string& path(int which) {
  static std::string* paths = new std::string[2];
  return paths[which];
}

std::atomic<const char*> last_library{"none"};

enum class Route { Plain, OpenBlas, OneDnn };

bool half(DType d) { return d == DType::Float16 || d == DType::BFloat16; }

const char* const kNames[3][kDTypes] = {
    {"rushlight gemm", "rushlight gemm", "rushlight gemm", "rushlight gemm", "rushlight gemm",
     "rushlight gemm", "rushlight gemm", "rushlight gemm", "rushlight gemm", "rushlight gemm"},
    {"", "", "", "", "", "", "", "", "openblas sgemm", "openblas dgemm"},
    {"", "", "", "", "", "", "onednn matmul", "onednn matmul", "onednn matmul", ""},
};

// The rules, from measurements (time_rt gemm). A shape has one library, from its first run on and in compiled graphs too, so that
// its bits do not change.
// - float32 takes oneDNN. A primitive takes 0.1 to 0.2 ms to make: as much as OpenBLAS's first touch of such operands where
// rows are long, 0.06 ms more for 256 x 256;
// - below kSmall multiply-adds OpenBLAS stays: its call costs 0.05 microseconds against 0.46, and
// they draw level at 64^3.
//   Matrix times vector draws level later;
// - without OpenBLAS, below kTiny our own loop is done before oneDNN has started.
constexpr double kSmall = 1 << 18, kSmallVector = 1 << 19, kTiny = 512;

Route route(const GemmPlan* plan) {
  const Gemm& g = plan->gemm;
  if (half(g.dtype)) return onednn_available() ? Route::OneDnn : Route::Plain;
  if (g.dtype != DType::Float32 && g.dtype != DType::Float64) return Route::Plain;
  const bool small = plan->work < (std::min(g.m, g.n) <= 2 ? kSmallVector : kSmall);
  if (g.dtype == DType::Float32 && !small && onednn_available())
    return Route::OneDnn;  // without opening OpenBLAS, whose threads begin by spinning
  const bool blas = openblas_available() && openblas_takes(g);
  if (blas) return Route::OpenBlas;
  if (g.dtype == DType::Float32 && onednn_available() && plan->work >= kTiny) return Route::OneDnn;
  return Route::Plain;
}

// The primitive for these threads; null where oneDNN refuses.
enum class Form { Direct, Wide, Added };
std::shared_ptr<Matmul> primitive(GemmPlan* plan, Form form) {
  const std::lock_guard<std::mutex> hold(plan->lock);
  const int threads = thread_limit();
  if (plan->threads != threads) {
    plan->direct = plan->wide = plan->added = nullptr;
    plan->threads = threads;
  }
  std::shared_ptr<Matmul>& kept = form == Form::Wide    ? plan->wide
                                  : form == Form::Added ? plan->added
                                                        : plan->direct;
  if (!kept) {
    Gemm g = plan->gemm;
    g.threads = threads;
    g.accumulate = form == Form::Added;
    if (form == Form::Added) g.has_bias = false;
    if (form == Form::Wide) {
      g.out_dtype = DType::Float32;
      g.has_bias = false;
      g.out[0] = g.m * g.n;
      g.out[1] = g.n;
    }
    kept = onednn_matmul(g);
  }
  return kept;
}

// out = beta bias; nothing where they are one.
void start_from(const Gemm& g, const void* bias, void* out, double beta) {
  const bool same = bias == out && beta == 1 && g.bias[0] == g.out[0] && g.bias[1] == g.out[1] &&
                    g.bias[2] == g.out[2];
  if (!same) finish_run(g, nullptr, bias, out, 1, beta);
}

bool run_onednn(GemmPlan* plan, const void* x, const void* y, const void* bias, void* out,
                double alpha, double beta) {
  const Gemm& g = plan->gemm;
  // oneDNN reads a bias as if it were dense (it ignores the stride of a [1, n] one): only rows [n]
  // and single numbers.
  const bool plain_bias = g.bias[0] == 0 && g.bias[1] == 0 && g.bias[2] <= 1;
  if (alpha == 1 && (bias ? beta == 1 && plain_bias : !g.has_bias)) {
    const std::shared_ptr<Matmul> p = primitive(plan, Form::Direct);
    if (p) return onednn_run(p.get(), x, y, bias, out);
  }
  if (!half(g.dtype)) {
    if (alpha != 1 || !bias) return false;
    const std::shared_ptr<Matmul> p = primitive(plan, Form::Added);
    if (!p) return false;
    start_from(g, bias, out, beta);
    return onednn_run(p.get(), x, y, nullptr, out);
  }
  const std::shared_ptr<Matmul> p = primitive(plan, Form::Wide);
  float* acc =
      p ? static_cast<float*>(std::malloc(static_cast<size_t>(g.b * g.m * g.n) * sizeof(float)))
        : nullptr;
  const bool done = acc && onednn_run(p.get(), x, y, nullptr, acc);
  if (done) finish_run(g, acc, bias, out, alpha, beta);
  std::free(acc);
  return done;
}

void dims_of(const Layout* x, int64_t* sizes, int64_t* strides) {
  const int shift = 3 - x->ndim;
  for (int d = 0; d < 3; ++d) {
    sizes[d] = d < shift ? 1 : x->shape()[d - shift];
    strides[d] = d < shift || sizes[d] == 1 ? 0 : x->strides()[d - shift];
  }
}

}  // namespace

const char* openblas_path() { return path(0).c_str(); }
const char* onednn_path() { return path(1).c_str(); }

bool leading(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, Leading* out) {
  if ((col_stride == 1 || cols == 1) && (rows == 1 || row_stride >= cols)) {
    *out = {false, rows == 1 ? std::max<int64_t>(cols, 1) : row_stride};
    return true;
  }
  if ((row_stride == 1 || rows == 1) && (cols == 1 || col_stride >= rows)) {
    *out = {true, cols == 1 ? std::max<int64_t>(rows, 1) : col_stride};
    return true;
  }
  return false;
}

void libraries_set(const char* openblas, const char* onednn) {
  if (openblas) path(0) = openblas;
  if (onednn) path(1) = onednn;
}

const char* library_of_last_gemm() { return last_library; }

bool gemm_takes(const Layout* x) {
  if (x->ndim != 2 && x->ndim != 3) return false;
  if (x->numel == 0) return true;
  const int64_t* sizes = x->shape() + x->ndim - 2;
  const int64_t* strides = x->strides() + x->ndim - 2;
  Leading unused;
  return leading(sizes[0], sizes[1], strides[0], strides[1], &unused) &&
         (x->ndim == 2 || x->strides()[0] >= 0);
}

GemmPlan* gemm_plan(const char* op, const Layout* x, const Layout* y, const Layout* bias,
                    const Layout* out) {
  const auto text = [](const Layout* l) { return shape_text(l->ndim, l->shape()); };
  for (const Layout* l : {x, y, out})
    if (l->ndim != 2 && l->ndim != 3)
      fail(ErrorKind::Runtime, "[%s] expected matrices or batches of matrices, got %s and %s", op,
           text(x).c_str(), text(y).c_str());
  Gemm g = {};
  int64_t xs[3], ys[3], os[3];
  dims_of(x, xs, g.x);
  dims_of(y, ys, g.y);
  dims_of(out, os, g.out);
  if (xs[2] != ys[1])
    fail(ErrorKind::Runtime,
         "[%s] expected x.shape[-1] == y.shape[-2], got %lld and %lld: shapes %s and %s", op,
         static_cast<long long>(xs[2]), static_cast<long long>(ys[1]), text(x).c_str(),
         text(y).c_str());
  if ((xs[0] != os[0] && xs[0] != 1) || (ys[0] != os[0] && ys[0] != 1) || os[1] != xs[1] ||
      os[2] != ys[2])
    fail(ErrorKind::Runtime, "[%s] %s and %s do not make an output of %s", op, text(x).c_str(),
         text(y).c_str(), text(out).c_str());
  if (x->dtype != y->dtype || x->dtype != out->dtype || (bias && bias->dtype != x->dtype))
    fail(ErrorKind::Runtime, "[%s] expected one dtype, got %s and %s (output %s)", op,
         dtype_name(x->dtype), dtype_name(y->dtype), dtype_name(out->dtype));
  if (x->dtype == DType::Bool)
    fail(ErrorKind::NotImplemented, "[%s] not implemented for 'Bool'", op);
  for (const Layout* l : {x, y, out})
    if (!gemm_takes(l))
      fail(ErrorKind::NotImplemented,
           "[%s] strides %s of shape %s have no unit stride: make the operand contiguous", op,
           shape_text(l->ndim, l->strides()).c_str(), text(l).c_str());
  g.b = os[0], g.m = os[1], g.n = os[2], g.k = xs[2];
  g.dtype = g.out_dtype = x->dtype;
  if (bias) {
    int64_t bs[3] = {};
    if (bias->ndim > 3)
      fail(ErrorKind::Runtime, "[%s] bias %s has too many dimensions", op, text(bias).c_str());
    dims_of(bias, bs, g.bias);
    for (int d = 0; d < 3; ++d)
      if (bs[d] != os[d] && bs[d] != 1)
        fail(ErrorKind::Runtime, "[%s] bias %s does not broadcast to %s", op, text(bias).c_str(),
             text(out).c_str());
    g.has_bias = true;
  }

  bool swapped = false;
  if (g.b && g.m && g.n) {
    // A batch whose rows run on, times one matrix, is one tall matrix.
    Leading xl, ol;
    leading(g.m, g.k, g.x[1], g.x[2], &xl);
    leading(g.m, g.n, g.out[1], g.out[2], &ol);
    if (g.b > 1 && g.y[0] == 0 && !xl.transposed && !ol.transposed && g.x[0] == g.m * xl.ld &&
        g.out[0] == g.m * ol.ld &&
        (g.bias[1] == 0 ? g.bias[0] == 0 : g.bias[0] == g.m * g.bias[1])) {
      g.x[1] = xl.ld;
      g.out[1] = ol.ld;
      g.m *= g.b;
      g.b = 1;
      g.x[0] = g.out[0] = g.bias[0] = 0;
    }
    leading(g.m, g.n, g.out[1], g.out[2], &ol);
    if (ol.transposed) {
      swapped = true;
      std::swap(g.x, g.y);
      std::swap(g.m, g.n);
      for (int64_t* strides : {g.x, g.y, g.out, g.bias}) std::swap(strides[1], strides[2]);
    }
    const auto settle = [](int64_t rows, int64_t cols, int64_t* strides) {
      Leading l;
      leading(rows, cols, strides[1], strides[2], &l);
      strides[1] = l.transposed ? 1 : l.ld;
      strides[2] = l.transposed ? l.ld : 1;
    };
    if (g.k) {
      settle(g.m, g.k, g.x);
      settle(g.k, g.n, g.y);
    }
    settle(g.m, g.n, g.out);
  }
  GemmPlan* plan = new GemmPlan;
  plan->gemm = g;
  plan->swapped = swapped;
  plan->small = g.b && g.m && g.n && g.k && small_takes(g);
  plan->work = static_cast<double>(g.b) * static_cast<double>(g.m) * static_cast<double>(g.n) *
               static_cast<double>(g.k);
  return plan;
}

void gemm_run(GemmPlan* plan, void* x, void* y, void* bias, void* out, double alpha, double beta) {
  const Gemm& g = plan->gemm;
  if (g.b == 0 || g.m == 0 || g.n == 0) return;
  if (plan->swapped) std::swap(x, y);
  if (!g.has_bias || beta == 0) bias = nullptr;  // beta 0 ignores NaN in the bias
  if (plan->small) {
    last_library = kNames[0][static_cast<int>(g.dtype)];
    return small_run(g, x, y, bias, out, alpha, beta);
  }
  Route to = g.k == 0 ? Route::Plain : route(plan);
  if (to == Route::OneDnn && !run_onednn(plan, x, y, bias, out, alpha, beta))
    to = g.dtype == DType::Float32 && openblas_available() && openblas_takes(g) ? Route::OpenBlas
                                                                                : Route::Plain;
  if (to == Route::OpenBlas) {
    if (bias) start_from(g, bias, out, beta);
    openblas_run(g, x, y, out, alpha, bias ? 1 : 0);
  }
  if (to == Route::Plain) plain_run(g, x, y, bias, out, alpha, beta);
  last_library = kNames[static_cast<int>(to)][static_cast<int>(g.dtype)];
}

void gemm_free(GemmPlan* plan) { delete plan; }

bool gemm_release(const GemmPlan* plan) {
  // Multiply-adds a nanosecond: a floor of what one thread of each route does.
  const DType d = plan->gemm.dtype;
  const double rate = d == DType::Float32 || half(d) ? 30 : d == DType::Float64 ? 15 : 1;
  return plan->work / rate > 20e3;
}

const char* gemm_library(const GemmPlan* plan) {
  const Route to = plan->small ? Route::Plain : route(plan);
  return kNames[static_cast<int>(to)][static_cast<int>(plan->gemm.dtype)];
}

}  // namespace rl
