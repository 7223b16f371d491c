// Convolutions: y = x * w, and the two products that its derivatives are, which differentiate into each other:
//
//   Forward  x, w -> y        Data  y, w -> x        Weights  x, y -> w
//
// A transposed convolution is Data. Internal to rt: routines of the same names are the way in.
#pragma once
#include <cstdint>
#include <memory>

#include "dtype.h"

namespace rl {

enum class Product : int { Forward, Data, Weights };

// Strides in elements, of (n, c, space...) for x and y and (co, ci / groups, space...) for w.
struct Convolution {
  Product product;
  int nd;  // spatial dims, 1 to 3
  int64_t n, groups, ci, co;
  int64_t in[3], kernel[3], out[3];
  int64_t stride[3], before[3], after[3], dilation[3];
  int64_t x[5], w[5], y[5];
  DType dtype;
  bool bias;  // of Forward: one number a channel of y
  int threads;
};

// oneDNN: float32, bfloat16, float16. A primitive is made once a description and shared; null where
// the library refuses.
struct ConvPrimitive;
std::shared_ptr<ConvPrimitive> onednn_convolution(const Convolution&);
// The operands and the result in the order of Product's comment. False: nothing was done.
bool onednn_convolution_run(ConvPrimitive*, const void* a, const void* b, const void* bias,
                            void* out);

// im2col and matrix products: float32 and float64, dense or not, libraries or not.
void plain_convolution(const Convolution&, const void* a, const void* b, const void* bias,
                       void* out);

}  // namespace rl
