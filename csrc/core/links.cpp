// Links: an instruction of a program remembers the plan of its latest call, or of a view the layout
// that came of it. Takes the instruction and its arguments; gives the result, without key or look-up.
// Invariant: a link is followed only where the key of the call would be the one that it was learned
// for: the same layouts, kinds of numbers and mode, and nothing that the tape must know.
#include "links.h"

#include <cstring>
#include <utility>

#include "operator.h"
#include "plan.h"
#include "tensor.h"

namespace core {
namespace {

constexpr int kOperands = 12, kRelearned = 16;

// What the key says of an argument that is no constant: a layout, or a mark that no address equals.
const uint64_t kFloatMark = 1, kIntMark = 3, kCountMark = 5;

struct Operands {
  Tensor* tensors[kOperands];
  uint64_t seen[kOperands];
  int ntensors = 0, n = 0;
  bool mark(uint64_t m) {
    if (n == kOperands) return false;
    seen[n++] = m;
    return true;
  }
  bool tensor(PyObject* o) {
    if (Py_TYPE(o) != TensorType || n == kOperands) return false;
    Tensor* t = tensor_of(o);
    tensors[ntensors++] = t;
    seen[n++] = reinterpret_cast<uint64_t>(t->layout);
    return true;
  }
};

// A number that is computed at run time, of a type that can never be the parameter's default.
bool number(const Param& p, PyObject* o, Operands* to) {
  const bool taken = p.kind == ParamKind::Tensor || p.kind == ParamKind::Number ||
                     p.kind == ParamKind::Float || p.kind == ParamKind::SymInt;
  if (!taken || p.structural || (p.fallback && Py_TYPE(p.fallback) == Py_TYPE(o))) return false;
  if (PyFloat_CheckExact(o)) return p.kind != ParamKind::SymInt && to->mark(kFloatMark);
  return PyLong_CheckExact(o) && to->mark(kIntMark);
}

bool collect(const Instruction& in, PyObject* const* args, Operands* to) {
  const Operator* op = reinterpret_cast<const Operator*>(in.callee);
  for (size_t i = 0; i < in.arguments.size(); i++) {
    const Param& p = op->params[i];
    PyObject* o = args[i];
    if (p.kind == ParamKind::Tensors) {
      if (o == Py_None) continue;
      if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return false;
      const Py_ssize_t count = PySequence_Fast_GET_SIZE(o);
      if (!to->mark(static_cast<uint64_t>(count) << 3 | kCountMark)) return false;
      for (Py_ssize_t k = 0; k < count; k++)
        if (!to->tensor(PySequence_Fast_GET_ITEM(o, k))) return false;
    } else if (p.kind == ParamKind::Tensor && Py_TYPE(o) == TensorType) {
      if (!to->tensor(o)) return false;
    } else if (in.arguments[i].kind == Argument::Constant) {
      if (is_tensor(o)) return false;
    } else if (!number(p, o, to)) {
      return false;
    }
  }
  return to->ntensors > 0;
}

bool needs_tape(const Operator* op, const Operands& given) {
  if (!grad_mode() || !op->differentiable) return false;
  for (int i = 0; i < given.ntensors; i++)
    if (needs_grad(given.tensors[i])) return true;
  return false;
}

void fill(Call& call, const Instruction& in, PyObject* const* args, const Operands& given) {
  const int n = static_cast<int>(in.arguments.size());
  for (int i = 0; i < n; i++) call.values[i] = args[i];
  for (int i = n; i < call.op->nparams; i++) call.values[i] = call.op->params[i].fallback;
  for (int i = 0; i < given.ntensors; i++) call.tensors.push(given.tensors[i]);
}

}  // namespace

struct Link {
  uint64_t epoch = 0;
  uint32_t mode = 0;
  int n = 0, relearned = 0;
  uint64_t seen[kOperands];
  Plan* plan = nullptr;                              // owned; null: a view
  Layout *from = nullptr, *to = nullptr;             // owned; of a view
  int64_t offset = 0;

  void forget() {  // what a plan holds may run code when it goes, which finds an empty link
    n = 0;
    Plan* const old = std::exchange(plan, nullptr);
    Layout *const a = std::exchange(from, nullptr), *const b = std::exchange(to, nullptr);
    if (a) rl::decref(a), rl::decref(b);
    if (old) decref(old);
  }
};

void link_free(Link* l) {
  if (!l) return;
  l->forget();
  delete l;
}

// Whether calls of this instruction can be linked at all: what is written elsewhere, or lies where a
// number says, cannot.
bool link_possible(const Instruction& in) {
  const Operator* op = reinterpret_cast<const Operator*>(in.callee);
  const int n = static_cast<int>(in.arguments.size());
  if (op->functional || n > op->nparams || n == 0) return false;
  for (int i = n; i < op->nparams; i++)
    if (!op->params[i].fallback) return false;
  if (op->view == ViewKind::None) return true;
  if (op->view == ViewKind::AsStrided || op->view == ViewKind::AsReal ||
      op->view == ViewKind::AsComplex)
    return false;
  for (int i = 1; i < n; i++)
    if (in.arguments[i].kind != Argument::Constant) return false;
  return true;
}

bool link_run(const Instruction& in, PyObject* const* args, Ref* result) {
  const Link* l = in.link;
  if (!l || !l->n || (l->plan && l->plan->dropped) || l->epoch != plan_epoch || l->mode != (mode & ~uint32_t{kGrad})) return false;
  Operands given;
  if (!collect(in, args, &given) || given.n != l->n ||
      std::memcmp(given.seen, l->seen, sizeof(uint64_t) * given.n))
    return false;
  Operator* op = reinterpret_cast<Operator*>(in.callee);
  if (needs_tape(op, given)) return false;
  if (l->to) {
    rl::incref(l->to);
    *result = Ref(view_make(given.tensors[0], l->to, given.tensors[0]->offset + l->offset)
                      .release_object());
    return true;
  }
  PlanHold hold(l->plan);
  Call call(op);
  fill(call, in, args, given);
  plan_used(hold.plan);
  *result = plan_execute(hold.plan, call);
  return true;
}

void link_learn(Instruction& in, PyObject* const* args, PyObject* result) {
  if (in.link && in.link->relearned >= kRelearned) return;
  Operands given;
  Operator* op = reinterpret_cast<Operator*>(in.callee);
  if (!collect(in, args, &given) || needs_tape(op, given)) return;
  Plan* plan = nullptr;
  Tensor *source = given.tensors[0], *view = nullptr;
  if (op->view != ViewKind::None) {
    if (Py_TYPE(result) != TensorType) return;
    view = tensor_of(result);
    if (view->storage != source->storage || view->layout->dtype != source->layout->dtype) return;
  } else {
    Call call(op);
    fill(call, in, args, given);
    encode(call, Variant::Plain);
    if (call.foreign || call.mixed || call.needs.size() || call.device != Device::CPU) return;
    plan = plan_seen(call);
    if (!plan || plan->kind == PlanKind::Sized) return;
  }
  if (!in.link) in.link = new Link;
  Link* l = in.link;
  l->forget();
  l->relearned++;
  l->epoch = plan_epoch;
  l->mode = mode & ~uint32_t{kGrad};
  l->n = given.n;
  std::memcpy(l->seen, given.seen, sizeof(uint64_t) * given.n);
  if (plan) {
    incref(plan);
    l->plan = plan;
    return;
  }
  rl::incref(l->from = source->layout);
  rl::incref(l->to = view->layout);
  l->offset = view->offset - source->offset;
}

}  // namespace core
