// Operands of the routine `fused_convolution` -> one primitive with post-ops, or the convolution and
// its steps one after the other. And the routine that packs a convolution's weight.
#include "convolution.h"
#include "error.h"
#include "threads.h"

namespace rl {
namespace {

struct Kept {
  int threads = 0;
  std::shared_ptr<ConvPrimitive> primitive;  // null: oneDNN refuses
};

bool repeats(const Layout* l) {
  for (int d = 0; d < l->ndim; ++d)
    if (l->dims[d] > 1 && l->strides()[d] == 0) return true;
  return false;
}

// The routine `convolution`'s call within ours: x, w, and a bias; its ints stand behind ours.
struct Inner {
  RoutineOperand in[3];
  RoutineCall call;
  Inner(const RoutineCall& outer, bool bias, int bias_at, int ints) : call(outer) {
    in[0] = outer.in[0], in[1] = outer.in[1];
    if (bias) in[2] = outer.in[bias_at];
    call.in = in;
    call.nin = 2 + bias;
    call.ints = outer.ints + ints;
    call.nints = outer.nints - ints;
  }
};

// ints: whether the weight is packed beside, has a bias; the batch it was packed for; how many
// steps; the steps; then what `convolution` is told.
void run(const RoutineCall& call) {
  const bool packed = call.ints[0], bias = call.ints[1];
  const int steps = static_cast<int>(call.ints[3]);
  int next = 2 + packed + bias;
  RoutineMemo own;  // the plain convolution keeps its primitive in a memo too
  Inner inner(call, bias, 2 + packed, 4 + steps);
  Convolution c = convolution_of(inner.call);
  c.packed = packed;
  c.hint = call.ints[2];
  const void* extras[kExtras] = {};
  Epilogue& e = c.epilogue;
  for (int i = 0; i < steps; ++i) {
    const Step step = static_cast<Step>(call.ints[4 + i]);
    if (e.count == kSteps || (takes_operand(step) && e.extras == kExtras))
      fail(ErrorKind::NotImplemented, "[%s] at most %d steps with %d operands", call.op, kSteps,
           kExtras);
    e.steps[e.count++] = step;
    if (!takes_operand(step)) continue;
    e.whole[e.extras] = call.in[next].layout->ndim > 1;
    extras[e.extras++] = call.in[next++].data;
  }
  const Layout* out = call.out[0].layout;
  if (out->numel == 0) return;
  const bool odd = repeats(call.in[0].layout) || repeats(call.in[1].layout) ||
                   call.in[0].layout->numel == 0 || call.in[1].layout->numel == 0;
  if (!odd) {
    std::shared_ptr<Kept> kept;
    {
      const std::lock_guard<std::mutex> hold(call.memo->lock);
      kept = std::static_pointer_cast<Kept>(call.memo->value);
      if (!kept || kept->threads != c.threads) {
        kept = std::make_shared<Kept>();
        kept->threads = c.threads;
        kept->primitive = onednn_convolution(c);
        call.memo->value = kept;
      }
    }
    const void* w = call.in[packed ? 2 : 1].data;
    const void* b = bias ? call.in[2 + packed].data : nullptr;
    if (kept->primitive && onednn_convolution_run(kept->primitive.get(), call.in[0].data, w, b,
                                                  call.out[0].data, extras))
      return;
  }
  inner.call.memo = &own;
  convolution_run(inner.call);
  const bool last = out->strides()[1] == 1 && out->dims[1] > 1;
  const int64_t channels = out->dims[1], area = out->numel / (out->dims[0] * channels);
  epilogue_run(e, out->dtype, last ? out->dims[0] * area : out->dims[0], channels, last ? 1 : area,
               extras, call.out[0].data);
}

// (w, x): ints: the batch to pack for, then what `convolution` is told. y lies as `convolution` lays it out beside this x: channels
// last where x does.
void run_pack(const RoutineCall& call) {
  const Layout *w = call.in[0].layout, *x = call.in[1].layout;
  const int64_t* told = call.ints + 1;
  const int nd = static_cast<int>(told[1]);
  Convolution c = {};
  c.product = Product::Forward;
  c.nd = nd, c.groups = told[2];
  c.n = c.hint = call.ints[0];
  c.ci = x->dims[1], c.co = w->dims[0];
  c.dtype = x->dtype;
  c.threads = thread_limit();
  for (int d = 0; d < nd; ++d) {
    c.in[d] = x->dims[2 + d], c.kernel[d] = w->dims[2 + d];
    c.stride[d] = told[3 + d], c.before[d] = c.after[d] = told[3 + nd + d];
    c.dilation[d] = told[3 + 2 * nd + d];
    const int64_t reach = (c.kernel[d] - 1) * c.dilation[d] + 1;
    c.out[d] = (c.in[d] + 2 * c.before[d] - reach) / c.stride[d] + 1;
    c.after[d] = (c.out[d] - 1) * c.stride[d] + reach - c.in[d] - c.before[d];
  }
  const bool last = nd == 2 && x->strides()[1] == 1 && c.ci > 1;
  for (int d = 0; d < nd + 2; ++d) c.x[d] = x->strides()[d], c.w[d] = w->strides()[d];
  int64_t step = last ? c.co : 1;
  for (int d = nd - 1; d >= 0; --d) c.y[2 + d] = step, step *= c.out[d];
  c.y[1] = last ? 1 : step;
  c.y[0] = last ? step : step * c.co;
  if (!onednn_convolution_pack(c, call.in[0].data, call.out[0].data, call.out[0].layout->numel))
    fail(ErrorKind::NotImplemented, "[%s] the library does not pack %s", call.op,
         shape_text(w->ndim, w->dims).c_str());
}

RL_ROUTINE(fused_convolution, run)
RL_ROUTINE(pack_convolution, run_pack)

}  // namespace
}  // namespace rl
