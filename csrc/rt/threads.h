// One thread pool: libgomp's. After fork the child runs on one thread (an OpenMP call there would hang).
#pragma once
#include <cstdint>

namespace rl {

int num_threads();
void set_num_threads(int n);            // throws Value for n < 1
int thread_limit();                     // threads a parallel region would use now (1 inside one, 1 after fork)

// fn(context, begin, end) over [0, n), at most one call a thread, in chunks of at least `grain`.
void parallel_for(int64_t n, int64_t grain, void (*fn)(void* context, int64_t begin, int64_t end), void* context);

const char* cpu_isa();                  // "v2", "v3" or "v4": the best of x86-64-v2/v3/v4 that this CPU runs

}  // namespace rl
