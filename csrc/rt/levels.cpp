// The loops of row_loops.cpp for the best instruction set that the processor has.
#include "row_loops.h"
#include "threads.h"

namespace rl {

#define RL_LEVEL_HAS(level)                            \
  namespace level {                                    \
  extern const RowLoops<float> floats;                 \
  extern const RowLoops<double> doubles;               \
  extern const ProductLoop<uint32_t> product_words;    \
  extern const ProductLoop<uint64_t> product_longs;    \
  extern const ProductLoop<float> product_floats;      \
  extern const ProductLoop<double> product_doubles;    \
  }
RL_LEVEL_HAS(v2)
#ifdef RL_LEVELS
RL_LEVEL_HAS(v3)
RL_LEVEL_HAS(v4)
#define RL_BEST(name) level == '4' ? v4::name : level == '3' ? v3::name : v2::name
#else
#define RL_BEST(name) v2::name
#endif

namespace {
[[maybe_unused]] char best() {
  static const char level = cpu_isa()[1];
  return level;
}
}  // namespace

#define RL_CHOOSE(Type, function, name)              \
  template <>                                        \
  Type function() {                                  \
    [[maybe_unused]] const char level = best();      \
    return RL_BEST(name);                            \
  }
RL_CHOOSE(const RowLoops<float>&, row_loops<float>, floats)
RL_CHOOSE(const RowLoops<double>&, row_loops<double>, doubles)
RL_CHOOSE(ProductLoop<uint32_t>, product_loop<uint32_t>, product_words)
RL_CHOOSE(ProductLoop<uint64_t>, product_loop<uint64_t>, product_longs)
RL_CHOOSE(ProductLoop<float>, product_loop<float>, product_floats)
RL_CHOOSE(ProductLoop<double>, product_loop<double>, product_doubles)

}  // namespace rl
