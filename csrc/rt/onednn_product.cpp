// A product with an epilogue -> a oneDNN primitive with post-ops, made once and shared.
// Invariant: as in onednn.cpp.
#include "product.h"

#if __has_include("oneapi/dnnl/dnnl.h")
#include <cstring>
#include <mutex>
#include <string>

#include "onednn.h"

namespace rl {

struct ProductPrimitive {
  enum { kX, kY, kBias, kOut, kScratch, kFirstExtra, kArguments = kFirstExtra + kSteps };
  Primitive primitive;
  Stream stream;
  Memory memory[kArguments];
  int names[kArguments] = {}, extra[kSteps] = {};
  size_t scratch_bytes = 0;
  int threads = 1;
  bool moves_stack = false;
  std::mutex lock;
};

namespace {

std::shared_ptr<ProductPrimitive> make(const OneDnn& l, const Product2d& g) {
  typedef ProductPrimitive P;
  const dnnl_data_type_t type = onednn_type(g.dtype);
  const int64_t sizes[2] = {g.m, g.n}, dense[2] = {g.n, 1};
  const auto matrix = [&](dnnl_memory_desc_t* md, int64_t rows, int64_t cols, int64_t row,
                          int64_t col) {
    const dnnl_dims_t dims = {rows, cols}, strides = {row, col};
    return l.dnnl_memory_desc_create_with_strides(md, 2, dims, type, strides) == dnnl_success;
  };
  std::shared_ptr<P> p = std::make_shared<P>();
  p->threads = g.threads;
  MemoryDesc md[P::kFirstExtra];
  Attributes attr;
  PostOps steps;
  PrimitiveDesc pd;
  bool ok =
      matrix(&md[P::kX], g.m, g.k, g.k, 1) && matrix(&md[P::kOut], g.m, g.n, g.n, 1) &&
      (g.packed ? static_cast<bool>(md[P::kY] = onednn_packed(l, g.dtype, g.k, g.n))
                : matrix(&md[P::kY], g.k, g.n, g.y[0], g.y[1])) &&
      (!g.bias || matrix(&md[P::kBias], 1, g.n, g.n, 1)) &&
      onednn_epilogue(l, g.epilogue, g.dtype, 2, sizes, dense, 1, &steps) &&
      onednn_attributes(l, attr) &&
      l.dnnl_primitive_attr_set_post_ops(attr, steps.made) == dnnl_success &&
      l.dnnl_matmul_primitive_desc_create(&pd, l.engine, md[P::kX], md[P::kY], md[P::kBias],
                                          md[P::kOut], attr) == dnnl_success &&
      onednn_primitive(l, pd, p->primitive, p->stream);
  p->moves_stack = ok && onednn_moves_stack(l, pd);
  const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                       DNNL_ARG_SCRATCHPAD};
  for (int i = 0; i < P::kArguments && ok; ++i) {
    const int k = i - P::kFirstExtra;
    p->names[i] = k < 0 ? names[i] : steps.names[k];
    if (k >= 0) p->extra[k] = steps.extra[k];
    const_dnnl_memory_desc_t d = k < 0 ? md[i] : steps.operands[k];
    if (d) ok = l.dnnl_memory_create(&p->memory[i], d, l.engine, DNNL_MEMORY_NONE) == dnnl_success;
  }
  ok = ok && onednn_scratch_memory(l, pd, p->memory[P::kScratch], &p->scratch_bytes);
  return ok ? p : nullptr;
}

PrimitiveTable<ProductPrimitive>& table() {
  static auto* one = new PrimitiveTable<ProductPrimitive>;
  return *one;
}

std::string key_of(const Product2d& g) {
  int64_t numbers[9 + kSteps + kExtras] = {g.m,    g.n,      g.k,       g.y[0],           g.y[1],
                                           g.bias, g.packed, g.threads, g.epilogue.count};
  for (int i = 0; i < g.epilogue.count; ++i)
    numbers[9 + i] = 1 + static_cast<int64_t>(g.epilogue.steps[i]);
  for (int i = 0; i < g.epilogue.extras; ++i) numbers[9 + kSteps + i] = g.epilogue.whole[i];
  return std::string(reinterpret_cast<const char*>(numbers), sizeof numbers) +
         static_cast<char>(g.dtype);
}

}  // namespace

// Steps that lose NaN are no steps: oneDNN's relu is max(x, 0), which is 0 for NaN, and its gelu by
// erf clamps. So relu is x > 0 ? x : 0 x, plus 0 against -0. It makes NaN of minus infinity.
bool onednn_epilogue(const OneDnn& l, const Epilogue& e, DType dtype, int rank,
                     const int64_t* sizes, const int64_t* strides, int column, PostOps* p) {
  if (l.dnnl_post_ops_create(&p->made) != dnnl_success) return false;
  int at = 0, next = 0;
  bool ok = true;
  const auto pointwise = [&](dnnl_alg_kind_t kind, float alpha) {
    ok = ok && l.dnnl_post_ops_append_eltwise(p->made, kind, alpha, 0) == dnnl_success;
    ++at;
  };
  for (int i = 0; i < e.count && ok; ++i) {
    switch (e.steps[i]) {
      case Step::GeluTanh: pointwise(dnnl_eltwise_gelu_tanh, 0); break;
      case Step::Silu: pointwise(dnnl_eltwise_swish, 1); break;
      case Step::Sigmoid: pointwise(dnnl_eltwise_logistic, 0); break;
      case Step::Tanh: pointwise(dnnl_eltwise_tanh, 0); break;
      case Step::Relu: {
        const dnnl_dims_t one = {1}, step = {1};
        ok = l.dnnl_post_ops_append_prelu(p->made, 0) == dnnl_success &&
             l.dnnl_memory_desc_create_with_strides(&p->operands[p->count], 1, one, dnnl_f32,
                                                    step) == dnnl_success;
        p->names[p->count] = DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_WEIGHTS;
        p->extra[p->count++] = -1;
        ++at;
        pointwise(dnnl_eltwise_linear, 1);
        break;
      }
      default: {
        dnnl_dims_t dims, steps;
        for (int d = 0; d < rank; ++d) {
          dims[d] = e.whole[next] || d == column ? sizes[d] : 1;
          steps[d] = e.whole[next] ? strides[d] : d < column ? sizes[column] : 1;
        }
        dnnl_memory_desc_t* md = &p->operands[p->count];
        ok = l.dnnl_memory_desc_create_with_strides(md, rank, dims, onednn_type(dtype), steps) ==
                 dnnl_success &&
             l.dnnl_post_ops_append_binary(
                 p->made, e.steps[i] == Step::Add ? dnnl_binary_add : dnnl_binary_mul, *md) ==
                 dnnl_success;
        p->names[p->count] = DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_SRC_1;
        p->extra[p->count++] = next++;
        ++at;
      }
    }
  }
  return ok;
}

void* onednn_post_operand(const int* extra, int i, const void* const* extras) {
  static float zero[16] = {};
  return extra[i] < 0 ? zero : const_cast<void*>(extras[extra[i]]);
}

std::shared_ptr<ProductPrimitive> onednn_product(const Product2d& g) {
  const OneDnn& l = onednn_library();
  if (!l.engine || g.dtype == DType::Float64) return nullptr;
  return table().find(key_of(g), [&] {
    const OneDnnThreads scope(g.threads);
    return make(l, g);
  });
}

bool onednn_product_run(ProductPrimitive* p, const void* x, const void* y, const void* bias,
                        const void* const* extras, void* out) {
  typedef ProductPrimitive P;
  const OneDnn& l = onednn_library();
  const std::lock_guard<std::mutex> hold(p->lock);
  void* scratch = onednn_scratch(p->scratch_bytes);
  if (p->scratch_bytes && !scratch) return false;
  const OneDnnThreads scope(p->threads);
  const void* data[P::kFirstExtra] = {x, y, bias, out, scratch};
  dnnl_exec_arg_t arguments[P::kArguments];
  int count = 0;
  for (int i = 0; i < P::kArguments; ++i) {
    if (!p->memory[i]) continue;
    l.dnnl_memory_set_data_handle(
        p->memory[i], i < P::kFirstExtra
                          ? const_cast<void*>(data[i])
                          : onednn_post_operand(p->extra, i - P::kFirstExtra, extras));
    arguments[count++] = {p->names[i], p->memory[i]};
  }
  const HeldSignals held(p->moves_stack, p->threads);
  return l.dnnl_primitive_execute(p->primitive, p->stream, count, arguments) == dnnl_success;
}

}  // namespace rl

#else
namespace rl {

struct ProductPrimitive {};
std::shared_ptr<ProductPrimitive> onednn_product(const Product2d&) { return nullptr; }
bool onednn_product_run(ProductPrimitive*, const void*, const void*, const void*,
                        const void* const*, void*) {
  return false;
}

}  // namespace rl
#endif
