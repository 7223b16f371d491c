// What the oneDNN adapters share: the opened library, and a bounded table of primitives. Internal to rt; included only where
// the headers are.
//
// Only types are taken from the headers (3.2): the functions come from the opened library, so that nothing links to it.
#pragma once
#include <csignal>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "dtype.h"
#include "epilogue.h"
#include "oneapi/dnnl/dnnl.h"

namespace rl {

// clang-format off
#define RL_DNNL_FUNCTIONS(F)                                                             \
  F(dnnl_engine_create) F(dnnl_stream_create) F(dnnl_stream_destroy)                     \
  F(dnnl_memory_desc_create_with_strides) F(dnnl_memory_desc_create_with_tag)            \
  F(dnnl_memory_desc_destroy) F(dnnl_memory_desc_get_size) F(dnnl_memory_desc_equal)     \
  F(dnnl_memory_desc_clone)                                                              \
  F(dnnl_memory_create) F(dnnl_memory_destroy) F(dnnl_memory_set_data_handle)            \
  F(dnnl_primitive_attr_create) F(dnnl_primitive_attr_destroy)                           \
  F(dnnl_primitive_attr_set_scratchpad_mode) F(dnnl_primitive_desc_query_md)             \
  F(dnnl_primitive_desc_query)                                                           \
  F(dnnl_primitive_attr_set_post_ops) F(dnnl_post_ops_create) F(dnnl_post_ops_destroy)   \
  F(dnnl_post_ops_append_sum) F(dnnl_post_ops_append_eltwise)                            \
  F(dnnl_post_ops_append_binary) F(dnnl_post_ops_append_prelu)                           \
  F(dnnl_primitive_desc_destroy) F(dnnl_primitive_create) F(dnnl_primitive_destroy)      \
  F(dnnl_primitive_execute) F(dnnl_set_primitive_cache_capacity)                         \
  F(dnnl_matmul_primitive_desc_create) F(dnnl_reorder_primitive_desc_create)             \
  F(dnnl_convolution_forward_primitive_desc_create)                                      \
  F(dnnl_convolution_backward_data_primitive_desc_create)                                \
  F(dnnl_convolution_backward_weights_primitive_desc_create)
// clang-format on

struct OneDnn {
#define RL_DECLARE(name) decltype(&::name) name = nullptr;
  RL_DNNL_FUNCTIONS(RL_DECLARE)
#undef RL_DECLARE
  dnnl_engine_t engine = nullptr;  // null: not available
};

const OneDnn& onednn_library();

// An object of the library's that frees itself; `&` is where the library writes a new one.
template <class T, auto Destroy>
class OneDnnOwned {
 public:
  OneDnnOwned() = default;
  explicit OneDnnOwned(T it) : it_(it) {}
  OneDnnOwned(OneDnnOwned&& o) noexcept : it_(o.it_) { o.it_ = nullptr; }
  OneDnnOwned& operator=(OneDnnOwned&& o) noexcept {
    std::swap(it_, o.it_);
    return *this;
  }
  ~OneDnnOwned() {
    if (it_) (onednn_library().*Destroy)(it_);
  }
  operator T() const { return it_; }
  T* operator&() { return &it_; }

 private:
  T it_ = nullptr;
};
typedef OneDnnOwned<dnnl_memory_desc_t, &OneDnn::dnnl_memory_desc_destroy> MemoryDesc;
typedef OneDnnOwned<dnnl_memory_t, &OneDnn::dnnl_memory_destroy> Memory;
typedef OneDnnOwned<dnnl_primitive_attr_t, &OneDnn::dnnl_primitive_attr_destroy> Attributes;
typedef OneDnnOwned<dnnl_primitive_desc_t, &OneDnn::dnnl_primitive_desc_destroy> PrimitiveDesc;
typedef OneDnnOwned<dnnl_primitive_t, &OneDnn::dnnl_primitive_destroy> Primitive;
typedef OneDnnOwned<dnnl_stream_t, &OneDnn::dnnl_stream_destroy> Stream;
typedef OneDnnOwned<dnnl_post_ops_t, &OneDnn::dnnl_post_ops_destroy> PostOpsMade;

// A primitive of this description and a stream for it. False: the library refuses.
bool onednn_primitive(const OneDnn&, const_dnnl_primitive_desc_t, Primitive&, Stream&);
// Does its code put the stack pointer elsewhere? The float32 kernels behind "gemm:jit" keep their workspace, which lies in
// the heap, at it: a signal that arrives meanwhile has its frame, a few KiB, written below that (unless the thread has a
// signal stack of its own). They run under HeldSignals.
bool onednn_moves_stack(const OneDnn&, const_dnnl_primitive_desc_t);

// While it lives (and `hold`), signals of this thread wait, except those that an instruction raises. OpenMP's other
// threads, which handlers have no business on, keep them away for good from the first time on.
class HeldSignals {
 public:
  HeldSignals(bool hold, int threads);
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;

 private:
  bool hold_;
  sigset_t before_;
};
// Attributes of a primitive that works on scratch memory of ours. False: the library refuses.
bool onednn_attributes(const OneDnn&, Attributes&);
// How much scratch memory it needs, and the object for it (none for 0 bytes). False: the library refuses.
bool onednn_scratch_memory(const OneDnn&, const_dnnl_primitive_desc_t, Memory&, size_t* bytes);

inline dnnl_data_type_t onednn_type(DType d) {
  return d == DType::Float16 ? dnnl_f16 : d == DType::BFloat16 ? dnnl_bf16 : dnnl_f32;
}

// How it wants its weights. Null: the library refuses.
MemoryDesc onednn_weights(const OneDnn&, const_dnnl_primitive_desc_t);
// The description of a packed right operand [k, n]. Null: the library refuses.
MemoryDesc onednn_packed(const OneDnn&, DType, int64_t k, int64_t n);

// The epilogue of a primitive whose result has these sizes; extra operands lie as `strides` (whole ones) or as one number a
// column, dim `column`. False: the library refuses.
struct PostOps {
  PostOpsMade made;
  int count = 0;                             // operands: descriptions, where they go, and which extra operand (-1: one zero)
  MemoryDesc operands[kSteps];
  int names[kSteps] = {}, extra[kSteps] = {};
};
bool onednn_epilogue(const OneDnn&, const Epilogue&, DType, int rank, const int64_t* sizes, const int64_t* strides, int column, PostOps*);
// The operand `i` of a call with these extra operands.
void* onednn_post_operand(const int* extra, int i, const void* const* extras);

// From one description to another.
struct Reorder {
  Primitive primitive;
  Stream stream;
  Memory from, to;
  bool make(const OneDnn&, const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to);
  bool run(const OneDnn&, const void* from, void* to);
};
bool onednn_reorder(const OneDnn&, dnnl_primitive_t, dnnl_stream_t, dnnl_memory_t from, dnnl_memory_t to);

// A growing block of this thread, 64-byte aligned, shared by all of its calls; null: no memory.
void* onednn_scratch(size_t bytes);

// The calls that follow from this OS thread (making a primitive, running it) use so many threads.
class OneDnnThreads {
 public:
  explicit OneDnnThreads(int threads);
  ~OneDnnThreads();
  OneDnnThreads(const OneDnnThreads&) = delete;

 private:
  int before_, threads_;
};

// Primitives by what distinguishes them, as bytes; refusals (null) are kept too.
template <class P>
class PrimitiveTable {
 public:
  template <class Make>
  std::shared_ptr<P> find(const std::string& key, Make make) {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto found = at_.find(key);
    if (found != at_.end()) {
      list_.splice(list_.begin(), list_, found->second);
      return found->second->second;
    }
    std::shared_ptr<P> made = make();
    list_.emplace_front(key, made);
    at_[key] = list_.begin();
    if (list_.size() > kKept) {
      at_.erase(list_.back().first);
      list_.pop_back();
    }
    return made;
  }

 private:
  static constexpr size_t kKept = 512;
  typedef std::list<std::pair<std::string, std::shared_ptr<P>>> List;
  std::mutex lock_;
  List list_;  // most recent first
  std::unordered_map<std::string, typename List::iterator> at_;
};

}  // namespace rl
