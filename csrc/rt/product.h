// A matrix product with what follows it, in one call: out = epilogue(x y + bias). Internal to rt; the routine `product` is the
// way in.
#pragma once
#include <cstdint>
#include <memory>

#include "dtype.h"
#include "epilogue.h"

namespace rl {

struct Product2d {
  int64_t m, n, k;
  int64_t y[2];  // strides of y[k, n]
  DType dtype;
  bool bias;     // [n]
  bool packed;   // y is packed (packing.h)
  int threads;
  Epilogue epilogue;
};

// x, extras and out are dense. Null where oneDNN refuses or is not there.
struct ProductPrimitive;
std::shared_ptr<ProductPrimitive> onednn_product(const Product2d&);
bool onednn_product_run(ProductPrimitive*, const void* x, const void* y, const void* bias, const void* const* extras, void* out);

}  // namespace rl
