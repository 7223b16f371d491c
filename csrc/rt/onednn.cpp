// A product's description -> a oneDNN primitive, made once and shared; a primitive and pointers ->
// the product.
// Invariant: a primitive runs with as many threads as it was made for, one call at a time, on
// scratch memory of ours.
#include "libraries.h"

#if __has_include("oneapi/dnnl/dnnl.h")
#include <dlfcn.h>
#include <omp.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "onednn.h"
#include "threads.h"

namespace rl {

const OneDnn& onednn_library() {
  static const OneDnn one = [] {
    OneDnn l;
    const char* path = onednn_path();
    void* handle = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) return l;
    bool complete = true;
#define RL_LOAD(name)                                                 \
  l.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  complete = complete && l.name;
    RL_DNNL_FUNCTIONS(RL_LOAD)
#undef RL_LOAD
    if (!complete || l.dnnl_engine_create(&l.engine, dnnl_cpu, 0) != dnnl_success)
      l.engine = nullptr;
    if (l.engine) l.dnnl_set_primitive_cache_capacity(0);  // we keep them ourselves
    return l;
  }();
  return one;
}

void* onednn_scratch(size_t bytes) {
  struct Block {
    void* data = nullptr;
    size_t size = 0;
    ~Block() { std::free(data); }
  };
  thread_local Block block;
  if (bytes > block.size) {
    std::free(block.data);
    block.size = 0;
    if (posix_memalign(&block.data, 64, bytes) != 0) block.data = nullptr;
    if (block.data) block.size = bytes;
  }
  return block.data;
}

// oneDNN asks OpenMP, whose number belongs to each OS thread, and to others in it too (torch): it is
// put back.
OneDnnThreads::OneDnnThreads(int threads) : before_(omp_get_max_threads()), threads_(threads) {
  if (before_ != threads_) omp_set_num_threads(threads_);
}
OneDnnThreads::~OneDnnThreads() {
  if (before_ != threads_) omp_set_num_threads(before_);
}

bool onednn_primitive(const OneDnn& l, const_dnnl_primitive_desc_t pd, Primitive& primitive,
                      Stream& stream) {
  return l.dnnl_primitive_create(&primitive, pd) == dnnl_success &&
         l.dnnl_stream_create(&stream, l.engine, dnnl_stream_default_flags) == dnnl_success;
}

bool onednn_moves_stack(const OneDnn& l, const_dnnl_primitive_desc_t pd) {
  const char* name = nullptr;
  return l.dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
         !name || std::strstr(name, "gemm:jit");  // "gemm:jit:f32" of matmul, "x64:gemm:jit" of convolution
}

HeldSignals::HeldSignals(bool hold, int threads) : hold_(hold) {
  if (!hold_) return;
  static const sigset_t all = [] {
    sigset_t set;
    sigfillset(&set);
    for (int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&set, raised);
    return set;
  }();
  pthread_sigmask(SIG_BLOCK, &all, &before_);  // threads that OpenMP starts from here on inherit it
  if (threads == 1 || omp_in_parallel()) return;
#pragma omp parallel num_threads(threads)
  {
    thread_local bool held = false;
    if (omp_get_thread_num() && !held) {
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      held = true;
    }
  }
}
HeldSignals::~HeldSignals() {
  if (hold_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool onednn_attributes(const OneDnn& l, Attributes& attr) {
  return l.dnnl_primitive_attr_create(&attr) == dnnl_success &&
         l.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
}

bool onednn_scratch_memory(const OneDnn& l, const_dnnl_primitive_desc_t pd, Memory& memory,
                           size_t* bytes) {
  const_dnnl_memory_desc_t need = l.dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  *bytes = need ? l.dnnl_memory_desc_get_size(need) : 0;
  return !*bytes ||
         l.dnnl_memory_create(&memory, need, l.engine, DNNL_MEMORY_NONE) == dnnl_success;
}

struct Matmul {
  enum { kX, kY, kBias, kOut, kScratch, kArguments };
  Primitive primitive;
  Stream stream;
  Memory memory[kArguments];
  size_t scratch_bytes = 0;
  int threads = 1;
  bool moves_stack = false;
  std::mutex lock;
};

namespace {

// "gemm:jit" against OpenBLAS, for batches of strided matrices: from here on 5 to 25 percent faster, below level or up to
// twice as slow.
constexpr int64_t kStrided = 1 << 20;  // multiply-adds of one matrix

// Size-1 and repeated dims are described as dims of size 1: oneDNN broadcasts those and wants no
// stride 0.
bool describe(const OneDnn& l, dnnl_memory_desc_t* out, DType type, const int64_t* sizes,
              const int64_t* strides, int batched) {
  const int ndim = 2 + batched;
  dnnl_dims_t dims, steps;
  for (int d = 0; d < ndim; ++d) {
    const int from = d + 1 - batched;
    dims[d] = strides[from] == 0 ? 1 : sizes[from];
    steps[d] = strides[from];
  }
  for (int d = ndim - 1; d >= 0; --d)
    if (steps[d] == 0) steps[d] = d + 1 < ndim ? dims[d + 1] * steps[d + 1] : 1;
  return l.dnnl_memory_desc_create_with_strides(out, ndim, dims, onednn_type(type), steps) ==
         dnnl_success;
}

std::shared_ptr<Matmul> make(const OneDnn& l, const Gemm& g) {
  const int batched = g.b > 1;
  const int64_t xs[3] = {g.b, g.m, g.k}, ys[3] = {g.b, g.k, g.n}, os[3] = {g.b, g.m, g.n};
  MemoryDesc md[4];
  Attributes attr;
  PrimitiveDesc pd;
  PostOpsMade sum;
  std::shared_ptr<Matmul> p = std::make_shared<Matmul>();
  p->threads = g.threads;
  bool ok =
      describe(l, &md[0], g.dtype, xs, g.x, batched) &&
      (g.packed ? static_cast<bool>(md[1] = onednn_packed(l, g.dtype, g.k, g.n))
                : describe(l, &md[1], g.dtype, ys, g.y, batched)) &&
      (!g.has_bias || describe(l, &md[2], g.dtype, os, g.bias, batched)) &&
      describe(l, &md[3], g.out_dtype, os, g.out, batched) &&
      onednn_attributes(l, attr) &&
      (!g.accumulate ||
       (l.dnnl_post_ops_create(&sum) == dnnl_success &&
        l.dnnl_post_ops_append_sum(sum, 1.0f, 0, dnnl_data_type_undef) == dnnl_success &&
        l.dnnl_primitive_attr_set_post_ops(attr, sum) == dnnl_success)) &&
      l.dnnl_matmul_primitive_desc_create(&pd, l.engine, md[0], md[1], md[2], md[3], attr) ==
          dnnl_success &&
      onednn_primitive(l, pd, p->primitive, p->stream);
  p->moves_stack = ok && onednn_moves_stack(l, pd);
  for (int i = 0; i < 4 && ok; ++i)
    if (md[i])
      ok = l.dnnl_memory_create(&p->memory[i], md[i], l.engine, DNNL_MEMORY_NONE) == dnnl_success;
  ok = ok && onednn_scratch_memory(l, pd, p->memory[Matmul::kScratch], &p->scratch_bytes);
  return ok ? p : nullptr;
}

// What distinguishes one primitive from another, as bytes.
std::string key_of(const Gemm& g) {
  const int64_t numbers[] = {
      g.b,
      g.m,
      g.n,
      g.k,
      g.x[0],
      g.x[1],
      g.x[2],
      g.y[0],
      g.y[1],
      g.y[2],
      g.out[0],
      g.out[1],
      g.out[2],
      g.has_bias ? g.bias[0] : -1,
      g.has_bias ? g.bias[1] : -1,
      g.has_bias ? g.bias[2] : -1,
      g.accumulate | g.packed << 1 | static_cast<int64_t>(g.slot) << 2,
      static_cast<int64_t>(g.dtype) << 32 | static_cast<int64_t>(g.out_dtype) << 24 | g.threads};
  return std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
}

PrimitiveTable<Matmul>& table() {
  static auto* one = new PrimitiveTable<Matmul>;  // plans hold primitives after static destructors
  return *one;
}

}  // namespace

bool onednn_available() { return onednn_library().engine != nullptr; }

std::shared_ptr<Matmul> onednn_matmul(const Gemm& g) {
  const OneDnn& l = onednn_library();
  if (!l.engine) return nullptr;
  return table().find(key_of(g), [&] {
    const OneDnnThreads scope(g.threads);
    return make(l, g);
  });
}

// Products whose rows have gaps inside a batch take the library's older kernels, all of which it
// writes when the first runs: 20 ms. One of each form is run here.
void onednn_prepare(bool gaps) {
  if (!onednn_available() || !gaps) return;
  constexpr int64_t kRows = 128, kCols = 64, kRow = 4 * kCols;
  const std::vector<float> zeros(kRows * kRow), dense(2 * kRows * kRows);
  std::vector<float> out(2 * kRows * kRows);
  Gemm g = {};
  g.b = 2;
  g.dtype = g.out_dtype = DType::Float32;
  g.threads = 1;
  const auto set = [](int64_t* strides, int64_t batch, int64_t row, int64_t col) {
    strides[0] = batch, strides[1] = row, strides[2] = col;
  };
  const auto run = [&](const std::vector<float>& x, const std::vector<float>& y) {
    const std::shared_ptr<Matmul> p = onednn_matmul(g);
    if (p) onednn_run(p.get(), x.data(), y.data(), nullptr, out.data());
  };
  g.m = g.n = kRows, g.k = kCols;
  set(g.x, kCols, kRow, 1), set(g.y, kCols, 1, kRow), set(g.out, kRows * kRows, kRows, 1);
  run(zeros, zeros);
  g.n = kCols, g.k = kRows;
  set(g.x, kRows * kRows, kRows, 1), set(g.y, kCols, kRow, 1), set(g.out, kRows * kCols, kCols, 1);
  run(dense, zeros);
}

bool onednn_run(Matmul* p, const void* x, const void* y, const void* bias, void* out) {
  static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                              DNNL_ARG_SCRATCHPAD};
  const OneDnn& l = onednn_library();
  const std::lock_guard<std::mutex> hold(p->lock);
  void* data[] = {const_cast<void*>(x), const_cast<void*>(y), const_cast<void*>(bias), out,
                  onednn_scratch(p->scratch_bytes)};
  dnnl_exec_arg_t arguments[Matmul::kArguments];
  int count = 0;
  for (int i = 0; i < Matmul::kArguments; ++i) {
    if (!p->memory[i]) continue;
    l.dnnl_memory_set_data_handle(p->memory[i], data[i]);
    arguments[count++] = {names[i], p->memory[i]};
  }
  if (p->scratch_bytes && !data[Matmul::kScratch]) return false;
  const OneDnnThreads scope(p->threads);
  const HeldSignals held(p->moves_stack, p->threads);
  return l.dnnl_primitive_execute(p->primitive, p->stream, count, arguments) == dnnl_success;
}

}  // namespace rl

#else
namespace rl {

struct Matmul {};
bool onednn_available() { return false; }
void onednn_prepare(bool) {}
std::shared_ptr<Matmul> onednn_matmul(const Gemm&) { return nullptr; }
bool onednn_run(Matmul*, const void*, const void*, const void*, void*) { return false; }

}  // namespace rl
#endif
