// A convolution's description -> a oneDNN primitive between reorders, made once and shared.
// Invariant: as in onednn.cpp; a primitive runs with as many threads as it was made for, one call
// at a time, on scratch memory of ours.
//
// oneDNN computes on blocked layouts: the description leaves the layouts open (except channels-last,
// which it takes as fast), and what it then asks for is reached through reorders. Weights are
// reordered in every call: no plan can know that they were not written since.
#include "convolution.h"

#if __has_include("oneapi/dnnl/dnnl.h")
#include <algorithm>
#include <cstring>

#include "onednn.h"

namespace rl {

struct ConvPrimitive {
  enum { kA, kB, kBias, kOut, kOperands };
  struct Operand {
    int name = 0;                             // DNNL_ARG_...; 0: absent
    Memory given;                             // as the caller's memory lies
    Memory wanted;                            // as the primitive wants it; null: the same
    Primitive reorder;
    size_t bytes = 0;                         // of what is wanted
  };
  Operand operands[kOperands];
  Primitive primitive;
  Stream stream;
  Memory scratch;
  Memory extras[kSteps];                      // operands of the epilogue, where they go and which they are
  int extra_names[kSteps] = {}, extra[kSteps] = {};
  size_t scratch_bytes = 0;                   // of the primitive and its reorders, one after another
  int threads = 1;
  bool moves_stack = false;
  std::mutex lock;
};

namespace {

typedef ConvPrimitive::Operand Operand;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Dense, channels innermost, and not C order at the same time.
bool channels_last(const Convolution& c, int64_t channels, const int64_t* space,
                   const int64_t* strides) {
  if (channels == 1 || strides[1] != 1) return false;
  int64_t step = channels, area = 1;
  for (int d = c.nd - 1; d >= 0; --d) {
    if (space[d] != 1 && strides[2 + d] != step) return false;
    step *= space[d];
    area *= space[d];
  }
  return area > 1 && (c.n == 1 || strides[0] == step);
}

// One operand in both forms: as it lies, and left open.
struct Sides {
  MemoryDesc given, open;
};

bool describe(const OneDnn& l, Sides* s, int rank, const int64_t* sizes, const int64_t* strides,
              DType dtype, dnnl_data_type_t compute, bool as_given) {
  dnnl_dims_t dims, steps;
  for (int d = 0; d < rank; ++d) {
    dims[d] = sizes[d];
    steps[d] = strides[d];
    if (sizes[d] > 1 && steps[d] <= 0) return false;  // repeated: the caller makes it dense
  }
  // The stride of a size-1 dim is as good as any, but oneDNN knows formats by their strides: the one
  // that the dims inside give.
  for (int d = rank - 1; d >= 0; --d) {
    if (sizes[d] > 1) continue;
    const bool outermost = as_given && d == 0, channel = as_given && d == 1;
    steps[d] = 1;
    if (channel) continue;
    for (int e = outermost ? 0 : d + 1; e < rank; ++e)
      if (sizes[e] > 1) steps[d] = std::max(steps[d], sizes[e] * steps[e]);
    if (as_given && d > 1) steps[d] = std::max(steps[d], sizes[1]);
  }
  if (l.dnnl_memory_desc_create_with_strides(&s->given, rank, dims, onednn_type(dtype), steps) !=
      dnnl_success)
    return false;
  if (as_given && compute == onednn_type(dtype))
    return l.dnnl_memory_desc_create_with_strides(&s->open, rank, dims, compute, steps) ==
           dnnl_success;
  return l.dnnl_memory_desc_create_with_tag(&s->open, rank, dims, compute,
                                            dnnl_format_tag_any) == dnnl_success;
}

bool finish(const OneDnn& l, Operand* o, int name, const Sides& s, dnnl_primitive_desc_t pd,
            dnnl_primitive_attr_t attr, bool output, size_t* scratch) {
  o->name = name;
  const_dnnl_memory_desc_t wanted =
      l.dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, name);
  if (!wanted || l.dnnl_memory_create(&o->given, s.given, l.engine, DNNL_MEMORY_NONE) !=
                     dnnl_success)
    return false;
  if (l.dnnl_memory_desc_equal(s.given, wanted)) return true;
  PrimitiveDesc reorder;
  bool ok = l.dnnl_reorder_primitive_desc_create(
                &reorder, output ? wanted : s.given, l.engine, output ? s.given : wanted,
                l.engine, attr) == dnnl_success &&
            l.dnnl_primitive_create(&o->reorder, reorder) == dnnl_success &&
            l.dnnl_memory_create(&o->wanted, wanted, l.engine, DNNL_MEMORY_NONE) == dnnl_success;
  if (ok) {
    o->bytes = aligned(l.dnnl_memory_desc_get_size(wanted));
    const_dnnl_memory_desc_t need =
        l.dnnl_primitive_desc_query_md(reorder, dnnl_query_scratchpad_md, 0);
    ok = !need || l.dnnl_memory_desc_get_size(need) == 0;  // none of 3.2's does on the CPU
    *scratch += o->bytes;
  }
  return ok;
}

// Sizes, strides and paddings as oneDNN wants them, and the operands' descriptions.
struct Geometry {
  int rank, weight_rank = 0;
  int64_t xs[5], ys[5], ws[6], wstrides[6];
  dnnl_dims_t strides, dilation, before, after;
  Sides x, w, y, b;

  bool fill(const OneDnn& l, const Convolution& c, int64_t n, dnnl_data_type_t compute) {
    rank = c.nd + 2;
    xs[0] = ys[0] = n, xs[1] = c.ci, ys[1] = c.co;
    int& at = weight_rank;
    if (c.groups > 1) {
      ws[at] = c.groups;
      wstrides[at++] = c.co / c.groups * c.w[0];
    }
    ws[at] = c.co / c.groups;
    wstrides[at++] = c.w[0];
    ws[at] = c.ci / c.groups;
    wstrides[at++] = c.w[1];
    for (int d = 0; d < c.nd; ++d) {
      xs[2 + d] = c.in[d];
      ys[2 + d] = c.out[d];
      ws[at] = c.kernel[d];
      wstrides[at++] = c.w[2 + d];
      strides[d] = c.stride[d];
      dilation[d] = c.dilation[d] - 1;
      before[d] = c.before[d];
      after[d] = c.after[d];
    }
    // Layouts that are both (one row of pixels, one channel) follow the other side. Where one side is
    // channels-last and the other cannot be taken for it, as a gradient may lie, both are left open:
    // oneDNN has plain loops alone for such a pair, a hundred times as slow as the reorder.
    const int64_t one = 1;
    const auto either = [&](int64_t channels, const int64_t* space) {
      return channels == 1 || std::all_of(space, space + c.nd, [](int64_t n) { return n == 1; });
    };
    bool x_last = channels_last(c, c.ci, c.in, c.x), y_last = channels_last(c, c.co, c.out, c.y);
    if (x_last != y_last && !(x_last ? either(c.co, c.out) : either(c.ci, c.in)))
      x_last = y_last = false;
    return describe(l, &x, rank, xs, c.x, c.dtype, compute, x_last) &&
           describe(l, &w, at, ws, wstrides, c.dtype, compute, false) &&
           describe(l, &y, rank, ys, c.y, c.dtype, compute, y_last) &&
           (!c.bias || describe(l, &b, 1, &c.co, &one, c.dtype, compute, true));
  }
};

// The description of w as the library wants it for a batch of `hint`, whatever follows; null: it refuses.
MemoryDesc packed_weight(const OneDnn& l, const Convolution& c) {
  Geometry g;
  PrimitiveDesc pd;
  const bool ok =
      g.fill(l, c, c.hint, onednn_type(c.dtype)) &&
      l.dnnl_convolution_forward_primitive_desc_create(
          &pd, l.engine, dnnl_forward_inference, dnnl_convolution_direct, g.x.open, g.w.open,
          nullptr, g.y.open, g.strides, g.dilation, g.before, g.after, nullptr) ==
          dnnl_success;
  return ok ? onednn_weights(l, pd) : MemoryDesc();
}

std::shared_ptr<ConvPrimitive> make(const OneDnn& l, const Convolution& c,
                                    dnnl_data_type_t compute) {
  Geometry g;
  Sides &x = g.x, &w = g.w, &y = g.y, &b = g.b;
  std::shared_ptr<ConvPrimitive> p = std::make_shared<ConvPrimitive>();
  p->threads = c.threads;
  Attributes attr;
  PostOps steps;
  PrimitiveDesc pd, hint;
  bool ok = g.fill(l, c, c.n, compute) && onednn_attributes(l, attr);
  if (ok && c.epilogue.count)
    ok = onednn_epilogue(l, c.epilogue, c.dtype, g.rank, g.ys, c.y, 1, &steps) &&
         l.dnnl_primitive_attr_set_post_ops(attr, steps.made) == dnnl_success;
  if (ok && c.packed) {
    w.open = packed_weight(l, c);
    w.given = MemoryDesc();
    ok = w.open && l.dnnl_memory_desc_clone(&w.given, w.open) == dnnl_success;
  }
  if (ok && c.product != Product::Forward)
    ok = l.dnnl_convolution_forward_primitive_desc_create(
             &hint, l.engine, dnnl_forward_training, dnnl_convolution_direct, x.open, w.open,
             nullptr, y.open, g.strides, g.dilation, g.before, g.after, attr) == dnnl_success;
  int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  Sides* sides[] = {&x, &w, &y};
  if (ok && c.product == Product::Forward) {
    ok = l.dnnl_convolution_forward_primitive_desc_create(
             &pd, l.engine, dnnl_forward_inference, dnnl_convolution_direct, x.open, w.open,
             b.open, y.open, g.strides, g.dilation, g.before, g.after, attr) == dnnl_success;
  } else if (ok && c.product == Product::Data) {
    names[0] = DNNL_ARG_DIFF_DST, names[2] = DNNL_ARG_DIFF_SRC;
    sides[0] = &y, sides[2] = &x;
    ok = l.dnnl_convolution_backward_data_primitive_desc_create(
             &pd, l.engine, dnnl_convolution_direct, x.open, w.open, y.open, g.strides,
             g.dilation, g.before, g.after, hint, attr) == dnnl_success;
  } else if (ok) {
    names[1] = DNNL_ARG_DIFF_DST, names[2] = DNNL_ARG_DIFF_WEIGHTS;
    sides[1] = &y, sides[2] = &w;
    ok = l.dnnl_convolution_backward_weights_primitive_desc_create(
             &pd, l.engine, dnnl_convolution_direct, x.open, w.open, nullptr, y.open,
             g.strides, g.dilation, g.before, g.after, hint, attr) == dnnl_success;
  }
  ok = ok && onednn_primitive(l, pd, p->primitive, p->stream) &&
       finish(l, &p->operands[ConvPrimitive::kA], names[0], *sides[0], pd, attr, false,
              &p->scratch_bytes) &&
       finish(l, &p->operands[ConvPrimitive::kB], names[1], *sides[1], pd, attr, false,
              &p->scratch_bytes) &&
       (!c.bias || finish(l, &p->operands[ConvPrimitive::kBias], DNNL_ARG_BIAS, b, pd, attr, false,
                          &p->scratch_bytes)) &&
       finish(l, &p->operands[ConvPrimitive::kOut], names[2], *sides[2], pd, attr, true,
              &p->scratch_bytes);
  for (int i = 0; i < steps.count && ok; ++i) {
    p->extra_names[i] = steps.names[i];
    p->extra[i] = steps.extra[i];
    ok = l.dnnl_memory_create(&p->extras[i], steps.operands[i], l.engine, DNNL_MEMORY_NONE) ==
         dnnl_success;
  }
  p->moves_stack = ok && onednn_moves_stack(l, pd);
  size_t bytes = 0;
  ok = ok && onednn_scratch_memory(l, pd, p->scratch, &bytes);
  p->scratch_bytes += aligned(bytes);
  return ok ? p : nullptr;
}

PrimitiveTable<ConvPrimitive>& table() {
  static auto* one = new PrimitiveTable<ConvPrimitive>;
  return *one;
}

// What distinguishes one primitive from another, as bytes.
std::string key_of(const Convolution& c) {
  std::string key;
  const auto add = [&](const int64_t* v, int n) {
    key.append(reinterpret_cast<const char*>(v), static_cast<size_t>(n) * sizeof *v);
  };
  const int64_t head[] = {static_cast<int64_t>(c.product), c.nd, c.n, c.groups, c.ci, c.co,
                          static_cast<int64_t>(c.dtype), c.bias, c.threads};
  add(head, 9);
  for (const int64_t* v : {c.in, c.kernel, c.out, c.stride, c.before, c.after, c.dilation})
    add(v, c.nd);
  for (const int64_t* v : {c.x, c.w, c.y}) add(v, c.nd + 2);
  int64_t tail[2 + kSteps + kExtras] = {c.packed ? 1 + c.hint : 0, c.epilogue.count};
  for (int i = 0; i < c.epilogue.count; ++i) tail[2 + i] = static_cast<int64_t>(c.epilogue.steps[i]);
  for (int i = 0; i < c.epilogue.extras; ++i) tail[2 + kSteps + i] = c.epilogue.whole[i];
  add(tail, 2 + kSteps + kExtras);
  return key;
}

}  // namespace

std::shared_ptr<ConvPrimitive> onednn_convolution(const Convolution& c) {
  const OneDnn& l = onednn_library();
  if (!l.engine || c.dtype == DType::Float64) return nullptr;
  return table().find(key_of(c), [&] {
    const OneDnnThreads scope(c.threads);
    std::shared_ptr<ConvPrimitive> made = make(l, c, onednn_type(c.dtype));
    // Half types that this processor has no instructions for: the reorders convert.
    const bool plain = !c.packed && !c.epilogue.count;
    return made || c.dtype == DType::Float32 || !plain ? made : make(l, c, dnnl_f32);
  });
}

bool onednn_convolution_pack(const Convolution& c, const void* w, void* to, int64_t room) {
  const OneDnn& l = onednn_library();
  if (!l.engine || c.dtype == DType::Float64) return false;
  Geometry g;
  const MemoryDesc packed = packed_weight(l, c);
  Reorder reorder;
  return packed && static_cast<int64_t>(l.dnnl_memory_desc_get_size(packed)) <= room &&
         g.fill(l, c, c.hint, onednn_type(c.dtype)) && reorder.make(l, g.w.given, packed) &&
         reorder.run(l, w, to);
}

bool onednn_convolution_run(ConvPrimitive* p, const void* a, const void* b, const void* bias,
                            void* out, const void* const* extras) {
  const OneDnn& l = onednn_library();
  const std::lock_guard<std::mutex> hold(p->lock);
  char* scratch = static_cast<char*>(onednn_scratch(p->scratch_bytes));
  if (p->scratch_bytes && !scratch) return false;
  const OneDnnThreads scope(p->threads);
  void* data[] = {const_cast<void*>(a), const_cast<void*>(b), const_cast<void*>(bias), out};
  dnnl_exec_arg_t arguments[ConvPrimitive::kOperands + 1 + kSteps];
  int count = 0;
  for (int i = 0; i < ConvPrimitive::kOperands; ++i) {
    Operand& o = p->operands[i];
    if (!o.name) continue;
    l.dnnl_memory_set_data_handle(o.given, data[i]);
    if (o.reorder) {
      l.dnnl_memory_set_data_handle(o.wanted, scratch);
      scratch += o.bytes;
      if (i != ConvPrimitive::kOut && !onednn_reorder(l, o.reorder, p->stream, o.given, o.wanted))
        return false;
    }
    arguments[count++] = {o.name, o.reorder ? o.wanted : o.given};
  }
  for (int i = 0; i < kSteps; ++i) {
    if (!p->extras[i]) continue;
    l.dnnl_memory_set_data_handle(p->extras[i], onednn_post_operand(p->extra, i, extras));
    arguments[count++] = {p->extra_names[i], p->extras[i]};
  }
  if (p->scratch) {
    l.dnnl_memory_set_data_handle(p->scratch, scratch);
    arguments[count++] = {DNNL_ARG_SCRATCHPAD, p->scratch};
  }
  {
    const HeldSignals held(p->moves_stack, p->threads);
    if (l.dnnl_primitive_execute(p->primitive, p->stream, count, arguments) != dnnl_success)
      return false;
  }
  const Operand& o = p->operands[ConvPrimitive::kOut];
  return !o.reorder || onednn_reorder(l, o.reorder, p->stream, o.wanted, o.given);
}

}  // namespace rl

#else
namespace rl {

struct ConvPrimitive {};
std::shared_ptr<ConvPrimitive> onednn_convolution(const Convolution&) { return nullptr; }
bool onednn_convolution_run(ConvPrimitive*, const void*, const void*, const void*, void*,
                            const void* const*) {
  return false;
}
bool onednn_convolution_pack(const Convolution&, const void*, void*, int64_t) { return false; }

}  // namespace rl
#endif
