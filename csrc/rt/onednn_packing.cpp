// A matrix -> the same in the order in which oneDNN's product reads its right operand.
// Invariant: as in onednn.cpp.
#include "packing.h"

#if __has_include("oneapi/dnnl/dnnl.h")
#include <mutex>
#include <string>

#include "onednn.h"
#include "threads.h"

namespace rl {

struct Packer {
  Reorder reorder;
  std::mutex lock;
};

bool Reorder::make(const OneDnn& l, const_dnnl_memory_desc_t given,
                   const_dnnl_memory_desc_t wanted) {
  PrimitiveDesc pd;
  return l.dnnl_reorder_primitive_desc_create(&pd, given, l.engine, wanted, l.engine, nullptr) ==
             dnnl_success &&
         onednn_primitive(l, pd, primitive, stream) &&
         l.dnnl_memory_create(&from, given, l.engine, DNNL_MEMORY_NONE) == dnnl_success &&
         l.dnnl_memory_create(&to, wanted, l.engine, DNNL_MEMORY_NONE) == dnnl_success;
}

bool Reorder::run(const OneDnn& l, const void* given, void* wanted) {
  l.dnnl_memory_set_data_handle(from, const_cast<void*>(given));
  l.dnnl_memory_set_data_handle(to, wanted);
  return onednn_reorder(l, primitive, stream, from, to);
}

MemoryDesc onednn_weights(const OneDnn& l, const_dnnl_primitive_desc_t pd) {
  MemoryDesc found;
  const bool ok =
      l.dnnl_memory_desc_clone(&found, l.dnnl_primitive_desc_query_md(
                                           pd, dnnl_query_weights_md, 0)) == dnnl_success;
  return ok ? std::move(found) : MemoryDesc();
}

bool onednn_reorder(const OneDnn& l, dnnl_primitive_t what, dnnl_stream_t stream,
                    dnnl_memory_t from, dnnl_memory_t to) {
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  return l.dnnl_primitive_execute(what, stream, 2, arguments) == dnnl_success;
}

namespace {

// Null: the library refuses.
MemoryDesc strided(const OneDnn& l, DType dtype, int64_t rows, int64_t cols, int64_t row_stride,
                   int64_t col_stride) {
  const dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
  MemoryDesc md;
  const bool ok = l.dnnl_memory_desc_create_with_strides(&md, 2, dims, onednn_type(dtype),
                                                         strides) == dnnl_success;
  return ok ? std::move(md) : MemoryDesc();
}

std::shared_ptr<Packer> make(const OneDnn& l, DType dtype, int64_t k, int64_t n, int64_t rows,
                             int64_t cols) {
  std::shared_ptr<Packer> p = std::make_shared<Packer>();
  const MemoryDesc from = strided(l, dtype, k, n, rows, cols), to = onednn_packed(l, dtype, k, n);
  return from && to && p->reorder.make(l, from, to) ? p : nullptr;
}

PrimitiveTable<Packer>& table() {
  static auto* one = new PrimitiveTable<Packer>;
  return *one;
}

struct Size {
  int64_t bytes;
};

}  // namespace

MemoryDesc onednn_packed(const OneDnn& l, DType dtype, int64_t k, int64_t n) {
  constexpr int64_t kRows = 64;  // any number: the form is the same (test_gemm.cpp)
  const dnnl_data_type_t type = onednn_type(dtype);
  const dnnl_dims_t ys = {k, n};
  const MemoryDesc x = strided(l, dtype, kRows, k, k, 1), out = strided(l, dtype, kRows, n, n, 1);
  MemoryDesc y;
  PrimitiveDesc pd;
  const bool ok =
      x && out &&
      l.dnnl_memory_desc_create_with_tag(&y, 2, ys, type, dnnl_format_tag_any) == dnnl_success &&
      l.dnnl_matmul_primitive_desc_create(&pd, l.engine, x, y, nullptr, out, nullptr) ==
          dnnl_success;
  return ok ? onednn_weights(l, pd) : MemoryDesc();
}

int64_t packed_bytes(DType dtype, int64_t k, int64_t n) {
  const OneDnn& l = onednn_library();
  if (!l.engine) return -1;
  if (k < 1 || n < 1 || !is_floating(dtype) || dtype == DType::Float64) return 0;
  static auto* sizes = new PrimitiveTable<Size>;
  const int64_t numbers[] = {static_cast<int64_t>(dtype), k, n};
  const std::string key(reinterpret_cast<const char*>(numbers), sizeof numbers);
  return sizes
      ->find(key,
             [&] {
               const MemoryDesc packed = onednn_packed(l, dtype, k, n);
               const MemoryDesc plain = strided(l, dtype, k, n, n, 1);
               const bool own = packed && plain && !l.dnnl_memory_desc_equal(packed, plain);
               const auto bytes =
                   own ? static_cast<int64_t>(l.dnnl_memory_desc_get_size(packed)) : 0;
               return std::make_shared<Size>(Size{bytes});
             })
      ->bytes;
}

bool pack(DType dtype, int64_t k, int64_t n, int64_t rows, int64_t cols, const void* y, void* to) {
  const OneDnn& l = onednn_library();
  if (packed_bytes(dtype, k, n) <= 0) return false;
  const int threads = thread_limit();
  const int64_t numbers[] = {static_cast<int64_t>(dtype), k, n, rows, cols, threads};
  const std::string key(reinterpret_cast<const char*>(numbers), sizeof numbers);
  const std::shared_ptr<Packer> p = table().find(key, [&] {
    const OneDnnThreads scope(threads);
    return make(l, dtype, k, n, rows, cols);
  });
  if (!p) return false;
  const std::lock_guard<std::mutex> hold(p->lock);
  const OneDnnThreads scope(threads);
  return p->reorder.run(l, y, to);
}

}  // namespace rl

#else
namespace rl {

int64_t packed_bytes(DType, int64_t, int64_t) { return -1; }
bool pack(DType, int64_t, int64_t, int64_t, int64_t, const void*, void*) { return false; }

}  // namespace rl
#endif
