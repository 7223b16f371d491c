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
  dnnl_primitive_t reorder = nullptr;
  dnnl_stream_t stream = nullptr;
  dnnl_memory_t given = nullptr, packed = nullptr;
  std::mutex lock;

  ~Packer() {
    const OneDnn& l = onednn_library();
    if (given) l.dnnl_memory_destroy(given);
    if (packed) l.dnnl_memory_destroy(packed);
    if (reorder) l.dnnl_primitive_destroy(reorder);
    if (stream) l.dnnl_stream_destroy(stream);
  }
};

namespace {

dnnl_memory_desc_t strided(const OneDnn& l, DType dtype, int64_t rows, int64_t cols,
                           int64_t row_stride, int64_t col_stride) {
  const dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
  dnnl_memory_desc_t md = nullptr;
  return l.dnnl_memory_desc_create_with_strides(&md, 2, dims, onednn_type(dtype), strides) ==
                 dnnl_success
             ? md
             : nullptr;
}

std::shared_ptr<Packer> make(const OneDnn& l, DType dtype, int64_t k, int64_t n, int64_t rows,
                             int64_t cols) {
  std::shared_ptr<Packer> p = std::make_shared<Packer>();
  const dnnl_memory_desc_t from = strided(l, dtype, k, n, rows, cols);
  const dnnl_memory_desc_t to = onednn_packed(l, dtype, k, n);
  dnnl_primitive_desc_t pd = nullptr;
  const bool ok =
      from && to &&
      l.dnnl_reorder_primitive_desc_create(&pd, from, l.engine, to, l.engine, nullptr) ==
          dnnl_success &&
      l.dnnl_primitive_create(&p->reorder, pd) == dnnl_success &&
      l.dnnl_stream_create(&p->stream, l.engine, dnnl_stream_default_flags) == dnnl_success &&
      l.dnnl_memory_create(&p->given, from, l.engine, DNNL_MEMORY_NONE) == dnnl_success &&
      l.dnnl_memory_create(&p->packed, to, l.engine, DNNL_MEMORY_NONE) == dnnl_success;
  if (pd) l.dnnl_primitive_desc_destroy(pd);
  if (from) l.dnnl_memory_desc_destroy(from);
  if (to) l.dnnl_memory_desc_destroy(to);
  return ok ? p : nullptr;
}

PrimitiveTable<Packer>& table() {
  static auto* one = new PrimitiveTable<Packer>;
  return *one;
}

struct Size {
  int64_t bytes;
};

}  // namespace

dnnl_memory_desc_t onednn_packed(const OneDnn& l, DType dtype, int64_t k, int64_t n) {
  constexpr int64_t kRows = 64;  // any number: the form is the same (test_gemm.cpp)
  const dnnl_data_type_t type = onednn_type(dtype);
  const dnnl_dims_t ys = {k, n};
  const dnnl_memory_desc_t x = strided(l, dtype, kRows, k, k, 1);
  const dnnl_memory_desc_t out = strided(l, dtype, kRows, n, n, 1);
  dnnl_memory_desc_t y = nullptr, found = nullptr;
  dnnl_primitive_desc_t pd = nullptr;
  if (x && out &&
      l.dnnl_memory_desc_create_with_tag(&y, 2, ys, type, dnnl_format_tag_any) == dnnl_success &&
      l.dnnl_matmul_primitive_desc_create(&pd, l.engine, x, y, nullptr, out, nullptr) ==
          dnnl_success &&
      l.dnnl_memory_desc_clone(
          &found, l.dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0)) != dnnl_success)
    found = nullptr;
  if (pd) l.dnnl_primitive_desc_destroy(pd);
  for (const dnnl_memory_desc_t md : {x, y, out})
    if (md) l.dnnl_memory_desc_destroy(md);
  return found;
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
               const dnnl_memory_desc_t packed = onednn_packed(l, dtype, k, n);
               const dnnl_memory_desc_t plain = strided(l, dtype, k, n, n, 1);
               const bool own = packed && plain && !l.dnnl_memory_desc_equal(packed, plain);
               const auto bytes =
                   own ? static_cast<int64_t>(l.dnnl_memory_desc_get_size(packed)) : 0;
               if (packed) l.dnnl_memory_desc_destroy(packed);
               if (plain) l.dnnl_memory_desc_destroy(plain);
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
    onednn_threads(threads);
    return make(l, dtype, k, n, rows, cols);
  });
  if (!p) return false;
  const std::lock_guard<std::mutex> hold(p->lock);
  onednn_threads(threads);
  l.dnnl_memory_set_data_handle(p->given, const_cast<void*>(y));
  l.dnnl_memory_set_data_handle(p->packed, to);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, p->given}, {DNNL_ARG_TO, p->packed}};
  return l.dnnl_primitive_execute(p->reorder, p->stream, 2, arguments) == dnnl_success;
}

}  // namespace rl

#else
namespace rl {

int64_t packed_bytes(DType, int64_t, int64_t) { return -1; }
bool pack(DType, int64_t, int64_t, int64_t, int64_t, const void*, void*) { return false; }

}  // namespace rl
#endif
