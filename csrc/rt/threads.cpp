// A range and a function -> the function over the range, on libgomp's threads.
// Invariant: no parallel region is entered inside another one, nor in a forked child.
#include "threads.h"

#include <omp.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>

#include "error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rl {
namespace {

bool forked = false;
int threads = omp_get_max_threads();  // OMP_NUM_THREADS, else the processors of the affinity mask

void in_child() {
  forked = true;
  omp_set_num_threads(1);  // for libraries that open regions of their own
}

// The pool of the parent does not exist in a child, and libgomp would wait for it forever.
const int at_fork = pthread_atfork(nullptr, nullptr, in_child);

#if defined(__x86_64__)
// The level (2, 3, 4) of x86-64 that the processor has and the system saves the registers of.
int detect_level() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 2;
  const unsigned needed =
      1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;  // fma movbe osxsave avx f16c
  if ((c & needed) != needed) return 2;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x6) != 0x6) return 2;                                           // xmm, ymm
  if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(c & 1u << 5)) return 2;  // lzcnt
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 2;
  const unsigned v3 = 1u << 3 | 1u << 5 | 1u << 8;  // bmi1 avx2 bmi2
  if ((b & v3) != v3) return 2;
  const unsigned v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // avx512 f dq cd bw vl
  return (b & v4) == v4 && (low & 0xe6) == 0xe6 ? 4 : 3;                     // opmask, zmm
}
#endif

}  // namespace

int num_threads() { return forked ? 1 : threads; }

void set_num_threads(int n) {
  if (n < 1) fail(ErrorKind::Value, "[set_num_threads] expected a positive number, got %d", n);
  threads = n;
  if (!forked) omp_set_num_threads(n);
}

int thread_limit() { return forked || omp_in_parallel() ? 1 : num_threads(); }

void parallel_for(int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* context) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  const int64_t pieces = (n + grain - 1) / grain;
  const int limit = pieces > 1 ? thread_limit() : 1;
  const int want = pieces < limit ? static_cast<int>(pieces) : limit;
  if (want <= 1) {
    fn(context, 0, n);
    return;
  }
#pragma omp parallel num_threads(want)
  {
    // Equal shares of the team that was really given.
    const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t share = n / team, more = n % team;
    const int64_t begin = me * share + (me < more ? me : more);
    const int64_t end = begin + share + (me < more ? 1 : 0);
    if (begin < end) fn(context, begin, end);
  }
}

const char* cpu_isa() {
#if defined(__x86_64__)
  static const char* const names[] = {"v2", "v3", "v4"};
  static const int best = detect_level();
  const char* wanted = std::getenv("RUSHLIGHT_ISA");
  if (!wanted || !*wanted) return names[best - 2];
  for (int level = 2; level <= 4; ++level)  // never above what the processor runs
    if (!std::strcmp(wanted, names[level - 2])) return names[(level < best ? level : best) - 2];
  fail(ErrorKind::Value, "RUSHLIGHT_ISA is v2, v3 or v4, got \"%s\"", wanted);
#else
  return "v2";
#endif
}

}  // namespace rl
