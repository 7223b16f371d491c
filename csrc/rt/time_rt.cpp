// Measurements behind the runtime's constants: `time_rt [--openblas <file>] [--onednn <file>] [gemm
// | loops | all]`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gemm.h"
#include "kernels.h"
#include "layout.h"
#include "libraries.h"
#include "storage.h"
#include "threads.h"

using namespace rl;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Best of many, in microseconds; about 0.4 s.
template <class Body>
static double best(Body body) {
  body();
  double least = 1e9;
  const double end = now() + 0.4;
  for (int i = 0; i < 5 || now() < end; ++i) {
    int repeat = least < 20e-6 ? 20 : 1;
    const double t = now();
    for (int r = 0; r < repeat; ++r) body();
    least = std::min(least, (now() - t) / repeat);
  }
  return least * 1e6;
}

static void time_gemm() {
  struct Shape {
    const char* name;
    int64_t b, m, k, n;
    bool transposed;
  };
  const Shape shapes[] = {{"4x4x4", 1, 4, 4, 4, false},
                          {"8x8x8", 1, 8, 8, 8, false},
                          {"16x16x16", 1, 16, 16, 16, false},
                          {"20x20x20", 1, 20, 20, 20, false},
                          {"32x32x32", 1, 32, 32, 32, false},
                          {"64x64x64", 1, 64, 64, 64, false},
                          {"128x128x128", 1, 128, 128, 128, false},
                          {"256^3", 1, 256, 256, 256, false},
                          {"1x384x384", 1, 1, 384, 384, false},
                          {"1x384x384 t", 1, 1, 384, 384, true},
                          {"1x4096x4096 t", 1, 1, 4096, 4096, true},
                          {"1x128x128 t", 1, 1, 128, 128, true},
                          {"1x1024x1024", 1, 1, 1024, 1024, false},
                          {"1x1024x1024 t", 1, 1, 1024, 1024, true},
                          {"1x2048x2048 t", 1, 1, 2048, 2048, true},
                          {"2x384x384 t", 1, 2, 384, 384, true},
                          {"4x384x384 t", 1, 4, 384, 384, true},
                          {"384x384x1", 1, 384, 384, 1, false},
                          {"1024x1024x1", 1, 1024, 1024, 1, false},
                          {"4096x4096x1", 1, 4096, 4096, 1, false},
                          {"32x384x384", 1, 32, 384, 384, false},
                          {"32x384x384 t", 1, 32, 384, 384, true},
                          {"16x768x768", 1, 16, 768, 768, false},
                          {"64x1024x1024", 1, 64, 1024, 1024, false},
                          {"64x1024x1024 t", 1, 64, 1024, 1024, true},
                          {"1024^3", 1, 1024, 1024, 1024, false},
                          {"1024^3 t", 1, 1024, 1024, 1024, true},
                          {"4096x384x1536", 1, 4096, 384, 1536, false},
                          {"4096x64x4096", 1, 4096, 64, 4096, false},
                          {"12 x 128x32x128", 12, 128, 32, 128, false},
                          {"12 x 128x32x128 t", 12, 128, 32, 128, true},
                          {"12 x 128x128x32", 12, 128, 128, 32, false},
                          {"96 x 16x16x16", 96, 16, 16, 16, false},
                          {"64 x 4x4x4", 64, 4, 4, 4, false}};
  std::printf("%-22s %10s %10s %10s %10s   microseconds, f32, %d threads\n", "b x m x k x n",
              "plain", "openblas", "onednn", "create", num_threads());
  for (const Shape& s : shapes) {
    Gemm g = {};
    g.b = s.b, g.m = s.m, g.n = s.n, g.k = s.k;
    g.dtype = g.out_dtype = DType::Float32;
    g.threads = num_threads();
    const int64_t xs[3] = {s.m * s.k, s.k, 1}, os[3] = {s.m * s.n, s.n, 1};
    const int64_t ys[3] = {s.k * s.n, s.transposed ? 1 : s.n, s.transposed ? s.k : 1};
    for (int d = 0; d < 3; ++d) g.x[d] = xs[d], g.y[d] = ys[d], g.out[d] = os[d];
    std::vector<float> x(static_cast<size_t>(s.b * s.m * s.k), 0.5f),
        y(static_cast<size_t>(s.b * s.k * s.n), 0.25f), o(static_cast<size_t>(s.b * s.m * s.n));
    const double plain = s.b * s.m * s.n * s.k > 200000000 ? 0 : best([&] {
      plain_run(g, x.data(), y.data(), nullptr, o.data(), 1, 0);
    });
    const double blas = openblas_available()
                            ? best([&] { openblas_run(g, x.data(), y.data(), o.data(), 1, 0); })
                            : 0;
    const double t = now();
    std::shared_ptr<Matmul> p = onednn_matmul(g);
    const double create = (now() - t) * 1e6;
    const double one =
        p ? best([&] { onednn_run(p.get(), x.data(), y.data(), nullptr, o.data()); }) : 0;
    std::printf("%-22s %10.2f %10.2f %10.2f %10.0f\n", s.name, plain, blas, one, create);
  }
}

static int64_t copy_kernel(void* const* p, const int64_t* n, const Number*) {
  const int64_t *a = n + 3, *c = n + 6;
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j) {
      const float* from = static_cast<float*>(p[0]) + i * a[0] + j * a[1];
      float* to = static_cast<float*>(p[1]) + i * c[0] + j * c[1];
      for (int64_t k = 0; k < n[2]; ++k) to[k * c[2]] = from[k * a[2]];
    }
  return 0;
}
static const KernelEntry kCopy = {"copy", copy_kernel, 3, 0, 1, 1, 0, 0, 1, ""};

static void time_loops() {
  Recipe r = {};
  r.kernel = &kCopy;
  r.rule = Rule::Broadcast;
  r.ninputs = r.noutputs = 1;
  r.out_dtype[0] = DType::Float32;
  r.out[0] = Output::Contiguous;
  for (const int64_t n : {4, 200, 500, 1000, 1024, 2048, 3000, 4096}) {
    const int64_t shape[] = {n, n}, t[] = {1, n};
    Layout* in = layout_intern(DType::Float32, Device::CPU, 2, shape, t);
    Layout* out;
    LoopPlan* plan = loop_plan("copy", r, &in, nullptr, nullptr, 0, &out);
    Storage *a = storage_alloc(n * n * 4), *b = storage_alloc(n * n * 4);
    std::memset(a->data, 0, static_cast<size_t>(n * n * 4));
    void* p[] = {a->data, b->data};
    const double naive = best([&] { copy_kernel(p, plan->n, nullptr); });
    const int split = plan->split, tile = plan->tile[0];
    const double both = best([&] { loop_run(plan, p, nullptr); });
    plan->split = -1;
    const double tiled = best([&] { loop_run(plan, p, nullptr); });
    plan->split = split;
    plan->tile[0] = -1;
    const double threads = best([&] { loop_run(plan, p, nullptr); });
    std::printf(
        "transpose %5lld: naive %10.2f, tiled %10.2f, split %10.2f, both %10.2f  (split %d tile "
        "%d)\n",
        static_cast<long long>(n), naive, tiled, threads, both, split, tile);
    std::free(plan);
    decref(in), decref(out), decref(a), decref(b);
  }
  const double alloc = best([&] {
    for (int i = 0; i < 1000; ++i) decref(storage_alloc(4096));
  });
  std::printf("storage_alloc + free, warm: %.1f ns\n", alloc);
  const int64_t shape[] = {32, 128, 768};
  Layout* l = layout_dense(DType::Float32, Device::CPU, 3, shape);
  const double intern = best([&] {
    for (int i = 0; i < 1000; ++i) decref(layout_dense(DType::Float32, Device::CPU, 3, shape));
  });
  std::printf("layout_dense, present: %.1f ns\n", intern);
  decref(l);
  const int64_t square[] = {64, 64};
  Layout* in = layout_dense(DType::Float32, Device::CPU, 2, square);
  const double plan = best([&] {
    Layout* out;
    std::free(loop_plan("copy", r, &in, nullptr, nullptr, 0, &out));
    decref(out);
  });
  std::printf("loop_plan: %.2f us\n", plan);
  decref(in);
  const double fork_join =
      best([&] { parallel_for(2, 1, [](void*, int64_t, int64_t) {}, nullptr); });
  std::printf("parallel region, empty: %.2f us\n", fork_join);
}

int main(int argc, char** argv) {
  std::string what = "all";
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && !std::strcmp(argv[i], "--openblas"))
      libraries_set(argv[++i], nullptr);
    else if (i + 1 < argc && !std::strcmp(argv[i], "--onednn"))
      libraries_set(nullptr, argv[++i]);
    else
      what = argv[i];
  }
  if (what != "gemm") time_loops();
  if (what != "loops") time_gemm();
}
