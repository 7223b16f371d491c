// Convolutions: y = x * w, and the two products that its derivatives are, which differentiate into each other:
//
//   Forward  x, w -> y        Data  y, w -> x        Weights  x, y -> w
//
// A transposed convolution is Data. Internal to rt: routines of the same names are the way in.
#pragma once
#include <cstdint>
#include <memory>

#include "dtype.h"
#include "epilogue.h"
#include "routines.h"

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
  // Of Forward, with one group: what follows; its whole operands lie as y does. And whether w is packed, as the library wants it
  // for a batch of `hint`.
  Epilogue epilogue;
  bool packed;
  int64_t hint;
};

// oneDNN: float32, bfloat16, float16. A primitive is made once a description and shared; null where
// the library refuses.
struct ConvPrimitive;
std::shared_ptr<ConvPrimitive> onednn_convolution(const Convolution&);
// The operands and the result in the order of Product's comment. False: nothing was done.
bool onednn_convolution_run(ConvPrimitive*, const void* a, const void* b, const void* bias,
                            void* out, const void* const* extras = nullptr);
// w packed, in at most `room` bytes. False: nothing was done.
bool onednn_convolution_pack(const Convolution&, const void* w, void* to, int64_t room);

// im2col and matrix products: float32 and float64, dense or not, libraries or not.
void plain_convolution(const Convolution&, const void* a, const void* b, const void* bias,
                       void* out);

// Row by row: forward, of few products. False: nothing was done.
bool direct_convolution(const Convolution&, const void* a, const void* b, const void* bias,
                        void* out);

// What the routine `convolution` is told and given, and the routine.
Convolution convolution_of(const RoutineCall&);
void convolution_run(const RoutineCall&);

}  // namespace rl
