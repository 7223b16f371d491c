// float32 and float64 products -> OpenBLAS, one call a thread, on our threads.
// Invariant: OpenBLAS starts no threads. Products are cut up here; routines that ask for threads
// inside (LAPACK) get ours through the callback.
#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <climits>
#include <thread>
#include <vector>

#include "libraries.h"
#include "threads.h"

namespace rl {
namespace {

typedef void (*Job)(int thread, void* jobs, int data);
typedef void (*Callback)(int sync, Job job, int count, size_t size, void* jobs, int data);
template <class T>
using GemmFn = void (*)(int order, int ta, int tb, int m, int n, int k, T alpha, const T* a,
                        int lda, const T* b, int ldb, T beta, T* c, int ldc);
enum { kRowMajor = 101, kNo = 111, kYes = 112 };

struct OpenBlas {
  GemmFn<float> sgemm = nullptr;
  GemmFn<double> dgemm = nullptr;
  void (*set_threads)(int) = nullptr;
  void* handle = nullptr;
};

// Jobs wait for one another, so all of them must run at the same time.
void run_jobs(int, Job job, int count, size_t size, void* jobs, int data) {
  char* first = static_cast<char*>(jobs);
  if (count == 1) return job(0, first, data);
  if (omp_in_parallel() || thread_limit() < count) {
    // Not enough of ours (the number was lowered meanwhile): still, all at the same time.
    std::vector<std::thread> extra;
    for (int i = 1; i < count; ++i)
      extra.emplace_back(job, i, first + static_cast<size_t>(i) * size, data);
    job(0, first, data);
    for (std::thread& t : extra) t.join();
    return;
  }
#pragma omp parallel num_threads(count)
  {
    const int i = omp_get_thread_num();
    job(i, first + static_cast<size_t>(i) * size, data);
  }
}

const OpenBlas& library() {
  static const OpenBlas one = [] {
    OpenBlas l;
    const char* path = openblas_path();
    void* handle = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) return l;
    const auto set_callback = reinterpret_cast<void (*)(Callback)>(
        dlsym(handle, "scipy_openblas_set_threads_callback_function"));
    l.set_threads =
        reinterpret_cast<void (*)(int)>(dlsym(handle, "scipy_openblas_set_num_threads"));
    l.dgemm = reinterpret_cast<GemmFn<double>>(dlsym(handle, "scipy_cblas_dgemm"));
    l.sgemm = reinterpret_cast<GemmFn<float>>(dlsym(handle, "scipy_cblas_sgemm"));
    if (!set_callback || !l.set_threads || !l.dgemm) {
      l.sgemm = nullptr;
    } else {
      set_callback(run_jobs);
      l.set_threads(1);
      l.handle = handle;
    }
    return l;
  }();
  return one;
}

// The output cut into down x across blocks, each a product of its own on one thread. OpenBLAS's own
// threads wait for one another inside a product, spinning: where a core is busy with something
// else, 0.2 ms became 50.
struct Call {
  const OpenBlas* library;
  const Gemm* gemm;
  const char *x, *y;
  char* out;
  double alpha, beta;
  int64_t down, across, rows, cols;  // blocks, and the size of one
};

template <class T>
void run_block(const Call& c, GemmFn<T> gemm, int64_t item) {
  const Gemm& g = *c.gemm;
  const int64_t batch = item / (c.down * c.across), block = item % (c.down * c.across);
  const int64_t i = block / c.across * c.rows, j = block % c.across * c.cols;
  const int64_t m = std::min(c.rows, g.m - i), n = std::min(c.cols, g.n - j);
  if (m <= 0 || n <= 0) return;
  Leading x, y, out;
  leading(g.m, g.k, g.x[1], g.x[2], &x);
  leading(g.k, g.n, g.y[1], g.y[2], &y);
  leading(g.m, g.n, g.out[1], g.out[2], &out);
  gemm(kRowMajor, x.transposed ? kYes : kNo, y.transposed ? kYes : kNo, static_cast<int>(m),
       static_cast<int>(n), static_cast<int>(g.k), static_cast<T>(c.alpha),
       reinterpret_cast<const T*>(c.x) + batch * g.x[0] + i * g.x[1], static_cast<int>(x.ld),
       reinterpret_cast<const T*>(c.y) + batch * g.y[0] + j * g.y[2], static_cast<int>(y.ld),
       static_cast<T>(c.beta), reinterpret_cast<T*>(c.out) + batch * g.out[0] + i * g.out[1] + j,
       static_cast<int>(out.ld));
}

void run_blocks(void* context, int64_t begin, int64_t end) {
  const Call& c = *static_cast<const Call*>(context);
  for (int64_t i = begin; i < end; ++i) {
    if (c.gemm->dtype == DType::Float32)
      run_block<float>(c, c.library->sgemm, i);
    else
      run_block<double>(c, c.library->dgemm, i);
  }
}

}  // namespace

bool openblas_available() { return library().sgemm != nullptr; }

void* openblas_symbol(const char* name) {
  return library().handle ? dlsym(library().handle, name) : nullptr;
}

bool openblas_takes(const Gemm& g) {
  Leading x, y, out;
  return leading(g.m, g.k, g.x[1], g.x[2], &x) && leading(g.k, g.n, g.y[1], g.y[2], &y) &&
         leading(g.m, g.n, g.out[1], g.out[2], &out) && g.m <= INT_MAX && g.n <= INT_MAX &&
         g.k <= INT_MAX && x.ld <= INT_MAX && y.ld <= INT_MAX && out.ld <= INT_MAX;
}

void openblas_run(const Gemm& g, const void* x, const void* y, void* out, double alpha,
                  double beta) {
  constexpr int64_t kLeast = 1 << 18;  // multiply-adds worth a thread
  constexpr int64_t kEdge = 16;        // blocks are whole tiles of the library's kernels
  Call c{&library(),
         &g,
         static_cast<const char*>(x),
         static_cast<const char*>(y),
         static_cast<char*>(out),
         alpha,
         beta,
         1,
         1,
         g.m,
         g.n};
  const int64_t work = g.m * g.n * g.k, threads = thread_limit();
  if (g.b < threads && g.b * work >= 2 * kLeast) {
    // As many blocks as threads, as square as can be: what all blocks read together is least then.
    const int64_t wanted = (threads + g.b - 1) / g.b;
    double least = 1e300;
    for (int64_t down = 1; down <= wanted; ++down) {
      const int64_t across = wanted / down;
      if (down * across < wanted && down != wanted) continue;
      const double rows = static_cast<double>(g.m) / static_cast<double>(down);
      const double cols = static_cast<double>(g.n) / static_cast<double>(across);
      if (rows + cols >= least || (down > 1 && rows < kEdge) || (across > 1 && cols < kEdge))
        continue;
      least = rows + cols;
      c.down = down;
      c.across = across;
    }
    c.rows = ((g.m + c.down - 1) / c.down + kEdge - 1) / kEdge * kEdge;
    c.cols = ((g.n + c.across - 1) / c.across + kEdge - 1) / kEdge * kEdge;
  }
  const int64_t items = g.b * c.down * c.across;
  parallel_for(items, 1 + kLeast / std::max<int64_t>(1, g.b * work / items), run_blocks, &c);
}

}  // namespace rl
