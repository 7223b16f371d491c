// parallel_for with any callable: parallel(n, grain, [&](int64_t begin, int64_t end) { ... }).
#pragma once
#include <cstdint>

#include "threads.h"

namespace rl {

template <class F>
void parallel(int64_t n, int64_t grain, const F& f) {
  parallel_for(
      n, grain,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<const F*>(context))(begin, end);
      },
      const_cast<F*>(&f));
}

}  // namespace rl
