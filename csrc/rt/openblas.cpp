// float32 and float64 products -> OpenBLAS, its jobs run on our threads.
// Invariant: OpenBLAS asks for no more threads than the caller may have: its jobs wait for one another, so that all of
// them must run at the same time.
#include <dlfcn.h>
#include <omp.h>

#include <climits>
#include <mutex>
#include <thread>
#include <vector>

#include "libraries.h"
#include "threads.h"

namespace rl {
namespace {

typedef void (*Job)(int thread, void* jobs, int data);
typedef void (*Callback)(int sync, Job job, int count, size_t size, void* jobs, int data);
template <class T>
using GemmFn = void (*)(int order, int ta, int tb, int m, int n, int k, T alpha, const T* a, int lda, const T* b, int ldb,
                        T beta, T* c, int ldc);
enum { kRowMajor = 101, kNo = 111, kYes = 112 };

struct OpenBlas {
  GemmFn<float> sgemm = nullptr;
  GemmFn<double> dgemm = nullptr;
  void (*set_threads)(int) = nullptr;
};

void run_jobs(int, Job job, int count, size_t size, void* jobs, int data) {
  char* first = static_cast<char*>(jobs);
  if (count == 1) return job(0, first, data);
  if (omp_in_parallel() || thread_limit() < count) {
    // Not enough of ours (the number was lowered meanwhile): still, all at the same time.
    std::vector<std::thread> extra;
    for (int i = 1; i < count; ++i) extra.emplace_back(job, i, first + static_cast<size_t>(i) * size, data);
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
    const auto set_callback =
        reinterpret_cast<void (*)(Callback)>(dlsym(handle, "scipy_openblas_set_threads_callback_function"));
    l.set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "scipy_openblas_set_num_threads"));
    l.dgemm = reinterpret_cast<GemmFn<double>>(dlsym(handle, "scipy_cblas_dgemm"));
    l.sgemm = reinterpret_cast<GemmFn<float>>(dlsym(handle, "scipy_cblas_sgemm"));
    if (!set_callback || !l.set_threads || !l.dgemm)
      l.sgemm = nullptr;
    else
      set_callback(run_jobs);
    return l;
  }();
  return one;
}

// OpenBLAS keeps one number of threads for the process.
void set_threads(const OpenBlas& l, int n) {
  static std::mutex lock;
  static int now = 0;
  const std::lock_guard<std::mutex> hold(lock);
  if (n != now) l.set_threads(now = n);
}

struct Call {
  const OpenBlas* library;
  const Gemm* gemm;
  const char *x, *y;
  char* out;
  double alpha, beta;
};

template <class T>
void run_one(const Call& c, GemmFn<T> gemm, int64_t batch) {
  const Gemm& g = *c.gemm;
  Leading x, y, out;
  leading(g.m, g.k, g.x[1], g.x[2], &x);
  leading(g.k, g.n, g.y[1], g.y[2], &y);
  leading(g.m, g.n, g.out[1], g.out[2], &out);
  gemm(kRowMajor, x.transposed ? kYes : kNo, y.transposed ? kYes : kNo, static_cast<int>(g.m), static_cast<int>(g.n),
       static_cast<int>(g.k), static_cast<T>(c.alpha), reinterpret_cast<const T*>(c.x) + batch * g.x[0],
       static_cast<int>(x.ld), reinterpret_cast<const T*>(c.y) + batch * g.y[0], static_cast<int>(y.ld),
       static_cast<T>(c.beta), reinterpret_cast<T*>(c.out) + batch * g.out[0], static_cast<int>(out.ld));
}

void run_batches(void* context, int64_t begin, int64_t end) {
  const Call& c = *static_cast<const Call*>(context);
  for (int64_t i = begin; i < end; ++i) {
    if (c.gemm->dtype == DType::Float32)
      run_one<float>(c, c.library->sgemm, i);
    else
      run_one<double>(c, c.library->dgemm, i);
  }
}

}  // namespace

bool openblas_available() { return library().sgemm != nullptr; }

bool openblas_takes(const Gemm& g) {
  Leading x, y, out;
  return leading(g.m, g.k, g.x[1], g.x[2], &x) && leading(g.k, g.n, g.y[1], g.y[2], &y) &&
         leading(g.m, g.n, g.out[1], g.out[2], &out) && g.m <= INT_MAX && g.n <= INT_MAX && g.k <= INT_MAX &&
         x.ld <= INT_MAX && y.ld <= INT_MAX && out.ld <= INT_MAX;
}

void openblas_run(const Gemm& g, const void* x, const void* y, void* out, double alpha, double beta) {
  const OpenBlas& l = library();
  Call call{&l, &g, static_cast<const char*>(x), static_cast<const char*>(y), static_cast<char*>(out), alpha, beta};
  // Small matrices of a batch: each on one thread, several at a time. Large ones: one at a time on all threads.
  const int threads = thread_limit();
  const bool over_batch = g.b >= threads && g.m * g.n * g.k < (int64_t{1} << 24);
  set_threads(l, over_batch ? 1 : threads);
  const int64_t grain = 1 + 100000 / (g.m * g.n * g.k);
  if (over_batch)
    parallel_for(g.b, grain, run_batches, &call);
  else
    run_batches(&call, 0, g.b);
}

}  // namespace rl
