// Operands of the routine `product` -> one primitive with post-ops, or the product and its steps
// one after the other. And the routine that packs a right operand.
#include "product.h"

#include <string>

#include "error.h"
#include "libraries.h"
#include "packing.h"
#include "routines.h"
#include "threads.h"

namespace rl {
namespace {

struct Kept {
  int threads = 0;
  std::shared_ptr<ProductPrimitive> primitive;  // null: oneDNN refuses
};

// x y + bias without oneDNN.
void plain_product(const Product2d& p, const void* x, const void* y, const void* bias, void* out) {
  Gemm g = {};
  g.b = 1, g.m = p.m, g.n = p.n, g.k = p.k;
  g.x[1] = p.k, g.x[2] = 1, g.y[1] = p.y[0], g.y[2] = p.y[1], g.out[1] = p.n, g.out[2] = 1;
  g.bias[2] = 1;
  g.dtype = g.out_dtype = p.dtype;
  g.has_bias = p.bias;
  g.threads = p.threads;
  const bool single = p.dtype == DType::Float32 || p.dtype == DType::Float64;
  if (!single || !p.k || !openblas_available() || !openblas_takes(g))
    return plain_run(g, x, y, bias, out, 1, 1);
  if (bias) finish_run(g, nullptr, bias, out, 1, 1);
  openblas_run(g, x, y, out, 1, bias ? 1 : 0);
}

// ints: whether the weight is [n, k], is packed beside, has a bias; then the steps.
void run(const RoutineCall& call) {
  const bool turned = call.ints[0], packed = call.ints[1];
  Product2d g = {};
  g.m = call.in[0].layout->dims[0], g.k = call.in[0].layout->dims[1];
  g.n = call.out[0].layout->dims[1];
  g.y[0] = turned ? 1 : g.n, g.y[1] = turned ? g.k : 1;
  g.dtype = call.in[0].layout->dtype;
  g.packed = packed, g.bias = call.ints[2];
  g.threads = thread_limit();
  Epilogue& e = g.epilogue;
  int next = 2 + packed;
  const void* bias = g.bias ? call.in[next++].data : nullptr;
  const void* extras[kExtras] = {};
  for (int i = 3; i < call.nints; ++i) {
    const Step step = static_cast<Step>(call.ints[i]);
    if (e.count == kSteps || (takes_operand(step) && e.extras == kExtras))
      fail(ErrorKind::NotImplemented, "[%s] at most %d steps with %d operands", call.op, kSteps,
           kExtras);
    e.steps[e.count++] = step;
    if (!takes_operand(step)) continue;
    e.whole[e.extras] = call.in[next].layout->ndim == 2;
    extras[e.extras++] = call.in[next++].data;
  }
  void* out = call.out[0].data;
  if (g.m == 0 || g.n == 0) return;
  std::shared_ptr<Kept> kept;
  {
    const std::lock_guard<std::mutex> hold(call.memo->lock);
    kept = std::static_pointer_cast<Kept>(call.memo->value);
    if (!kept || kept->threads != g.threads) {
      kept = std::make_shared<Kept>();
      kept->threads = g.threads;
      if (g.k) kept->primitive = onednn_product(g);
      call.memo->value = kept;
    }
  }
  const void* y = call.in[1].data;
  if (kept->primitive && onednn_product_run(kept->primitive.get(), call.in[0].data,
                                            packed ? call.in[2].data : y, bias, extras, out))
    return;
  plain_product(g, call.in[0].data, y, bias, out);
  epilogue_run(e, g.dtype, g.m, g.n, 1, extras, out);
}

// ints: whether the weight is [n, k].
void run_pack(const RoutineCall& call) {
  const Layout* w = call.in[0].layout;
  const bool turned = call.ints[0];
  const int64_t k = w->dims[turned], n = w->dims[!turned];
  if (packed_bytes(w->dtype, k, n) > call.out[0].layout->numel ||
      !pack(w->dtype, k, n, turned ? 1 : n, turned ? k : 1, call.in[0].data, call.out[0].data))
    fail(ErrorKind::NotImplemented, "[%s] the library has no order of its own for %s", call.op,
         shape_text(w->ndim, w->dims).c_str());
}

RL_ROUTINE(product, run)
RL_ROUTINE(pack_weight, run_pack)

}  // namespace
}  // namespace rl
