// What follows a product before its result is stored: pointwise steps on float32 sums. Internal to rt.
#pragma once
#include <cstdint>

#include "dtype.h"

namespace rl {

// The numbers are shared with rushlight/ops/fused.py. Add and Multiply take the next extra operand.
enum class Step : int64_t { Relu, GeluTanh, Silu, Sigmoid, Tanh, Add, Multiply };
inline bool takes_operand(Step s) { return s >= Step::Add; }

constexpr int kSteps = 8, kExtras = 4;

struct Epilogue {
  int count = 0, extras = 0;
  Step steps[kSteps] = {};
  bool whole[kExtras] = {};  // of each extra operand: as large as the result; else one number a column (channel)
};

// The steps on a dense result [rows, columns, inner] that holds the sums: where no library takes them along.
void epilogue_run(const Epilogue&, DType, int64_t rows, int64_t columns, int64_t inner, const void* const* extras, void* out);

}  // namespace rl
