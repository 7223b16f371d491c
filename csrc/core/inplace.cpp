// Writing to given tensors: in-place twins, out=, assignment. Takes an encoded call and its
// outputs.
// Invariant: every check comes before the first write; exact aliasing is allowed where each element
// is read before it is written (broadcast loops), any other overlap goes through a temporary; every
// write bumps the version.
#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "operator.h"
#include "plan.h"
#include "records.h"
#include "tape.h"

namespace core {
namespace {

bool same_shape(const Layout* a, const Layout* b) {
  return a->ndim == b->ndim && !std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim);
}

bool overlaps(const Tensor* a, const Tensor* b) {
  if (a->storage != b->storage || !a->layout->numel || !b->layout->numel) return false;
  int64_t la, ha, lb, hb, sa = rl::itemsize(a->layout->dtype), sb = rl::itemsize(b->layout->dtype);
  rl::layout_extent(a->layout, &la, &ha);
  rl::layout_extent(b->layout, &lb, &hb);
  return (a->offset + la) * sa < (b->offset + hb) * sb &&
         (b->offset + lb) * sb < (a->offset + ha) * sa;
}
bool aliases(const Tensor* a, const Tensor* b) {
  return a->storage == b->storage && a->layout == b->layout && a->offset == b->offset;
}

// A bias may be the output itself (out = out + x y); the factors may not.
bool gemm_writes_directly(const Plan* p, const Call& call, const Tensor* out) {
  const GemmRecipeObject* g = p->gemm_recipe;
  for (int param : {g->x, g->y, g->bias}) {
    if (param < 0 || call.values[param] == Py_None) continue;
    const Tensor* operand = tensor_of(call.values[param]);
    if (overlaps(operand, out) && !(param == g->bias && aliases(operand, out))) return false;
  }
  return true;
}

bool writes_directly(const Plan* p, const Call& call, Tensor* const* outs, int nouts) {
  for (int o = 0; o < nouts; o++)  // outputs that share memory are written one after the other
    for (int q = 0; q < o; q++)
      if (overlaps(outs[q], outs[o])) return false;
  if (p->direct) {
    const int self = p->functional->routine->writes;
    for (int o = 0; o < nouts; o++)
      for (int i = 0; i < call.tensors.size(); i++)
        if (overlaps(call.tensors[i], outs[o]) &&
            !(o == 0 && i == self && aliases(call.tensors[i], outs[o])))
          return false;
    return true;
  }
  if (p->gemm) return gemm_writes_directly(p, call, outs[0]);
  if (!p->loop && !p->device) return false;
  // Of each element every operand is read before any output is written: the emitter binds all
  // loads before the stores.
  bool elementwise =
      p->device ? p->device->elementwise : p->recipe->recipe.rule == rl::Rule::Broadcast;
  for (int o = 0; o < nouts; o++)
    for (int i = 0; i < call.tensors.size(); i++) {
      if (call.tensors[i]->storage != outs[o]->storage) continue;
      if (elementwise && aliases(call.tensors[i], outs[o])) continue;
      if (overlaps(call.tensors[i], outs[o])) return false;
    }
  return true;
}

void check_result(const char* op, const Layout* result, const Layout* out, bool inplace) {
  if (!can_cast(result->dtype, out->dtype))
    raise(PyExc_RuntimeError, "[%s] a result of type %s can't be cast to %s, the type written to", op,
        dtype_legacy_name(result->dtype), dtype_legacy_name(out->dtype));
  if (inplace && !same_shape(result, out))
    raise(PyExc_RuntimeError, "[%s] the output has shape %s, the operands broadcast to %s", op,
        rl::shape_text(out->ndim, out->dims).c_str(),
        rl::shape_text(result->ndim, result->dims).c_str());
  if (!inplace && !same_shape(result, out) && out->numel)
    raise(PyExc_RuntimeError, "[%s] out has shape %s, the result %s; only an empty out is resized",
        op, rl::shape_text(out->ndim, out->dims).c_str(),
        rl::shape_text(result->ndim, result->dims).c_str());
}

// Before a derivative is made for a result of this shape.
void check_shape(const char* op, const Plan* functional, const Tensor* out) {
  if (functional->kind == PlanKind::Leaf || functional->kind == PlanKind::Routine ||
      functional->kind == PlanKind::Device)
    check_result(op, functional->outs[0], out->layout, true);
}

// An empty out takes the result's memory.
void take_over(Tensor* out, Tensor* result) {
  Own<Tensor> cast;
  if (result->layout->dtype != out->layout->dtype) {
    cast = contiguous_copy(result, out->layout->dtype);
    result = cast.get();
  }
  rl::incref(result->storage);
  rl::incref(result->layout);
  set_layout(out, result->storage, result->layout, result->offset);
}

void write_by_temporary(const Plan* p, Call& call, Tensor* const* outs, int nouts, bool inplace) {
  const char* op = call.op->text;
  Plan* f = p->functional;
  if (f->kind == PlanKind::Leaf || f->kind == PlanKind::Gemm || f->kind == PlanKind::Routine ||
      f->kind == PlanKind::Device)
    for (int i = 0; i < nouts && i < f->nouts; i++)
      check_result(op, f->outs[i], outs[i]->layout, inplace);
  Ref result;
  {
    PlanHold hold(f);
    ModeScope off(mode & ~kGrad);
    result = plan_execute(f, call);
  }
  bool tuple = PyTuple_Check(result.py());
  if ((tuple ? PyTuple_GET_SIZE(result.py()) : 1) != nouts)
    raise(PyExc_RuntimeError, "[%s] the result does not have %d tensors", op, nouts);
  Tensor* made[rl::kMaxOutputs];
  for (int i = 0; i < nouts; i++) {
    PyObject* o = tuple ? PyTuple_GET_ITEM(result.py(), i) : result.py();
    if (!is_tensor(o))
      raise(PyExc_RuntimeError, "[%s] the result is a %s, which cannot be written to a tensor", op,
          Py_TYPE(o)->tp_name);
    made[i] = tensor_of(o);
    check_result(op, made[i]->layout, outs[i]->layout, inplace);
  }
  for (int i = 0; i < nouts; i++) {
    if (made[i] == outs[i] || aliases(made[i], outs[i])) continue;
    if (!same_shape(made[i]->layout, outs[i]->layout)) take_over(outs[i], made[i]);
    else copy_into(outs[i], made[i]);
  }
}

int collect_outs(const Call& call, PyObject* out, Tensor** outs) {
  const char* op = call.op->text;
  PyObject* one[1] = {out};
  PyObject** items = one;
  Py_ssize_t n = 1;
  if (PyTuple_Check(out) || PyList_Check(out)) {
    n = PySequence_Fast_GET_SIZE(out);
    items = PySequence_Fast_ITEMS(out);
  }
  if (n != call.op->outputs || n > rl::kMaxOutputs)
    raise(PyExc_TypeError, "%s(): out must be %d Tensor%s, got %zd", op, call.op->outputs,
        call.op->outputs == 1 ? "" : "s", n);
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!is_tensor(items[i]))
      raise(PyExc_TypeError, "%s(): argument 'out' must be Tensor, not %s", op,
          Py_TYPE(items[i])->tp_name);
    outs[i] = tensor_of(items[i]);
  }
  return static_cast<int>(n);
}

}  // namespace

void check_writable(Tensor* t) {
  const Layout* l = t->layout;
  if (!l->dense && !l->contiguous)
    for (int d = 0; d < l->ndim; d++)
      if (l->strides()[d] == 0 && l->dims[d] > 1)
        raise(PyExc_RuntimeError,
            "[write] more than one element of the tensor %s lies at a single memory location: "
            "clone() it before it is written to",
            rl::shape_text(l->ndim, l->dims).c_str());
  if (!grad_mode()) return;
  if (t->requires_grad && !t->grad_fn)
    raise(PyExc_RuntimeError,
        "[write] a leaf that requires grad cannot be written to in place: use no_grad()");
  if (t->base && t->base->requires_grad) {
    if (!t->base->grad_fn)
      raise(PyExc_RuntimeError,
          "[write] a view of a leaf that requires grad cannot be written to in place: use "
          "no_grad()");
    if (t->no_grad_view)
      raise(PyExc_RuntimeError,
          "a view was created in no_grad mode and is being modified inplace with grad mode "
          "enabled: its base would not know. "
          "Make the view and the write in the same mode.");
  }
}

// copy_ from one device to another.
Ref copy_across(Call& call, Tensor* dst) {
  Tensor* src = tensor_of(call.values[1]);
  if (!broadcasts_to(src->layout, dst->layout))
    raise(PyExc_RuntimeError, "[copy_] a value of shape %s does not broadcast to %s",
        rl::shape_text(src->layout->ndim, src->layout->dims).c_str(),
        rl::shape_text(dst->layout->ndim, dst->layout->dims).c_str());
  Own<Node> node;
  if (call.needs.size()) {
    encode(call, Variant::View);  // no plan but the derivative's
    PlanHold hold(plan_find_view(call));
    node = node_before_write(call, hold.plan, dst);
  }
  NonBlocking scope(call.op->nparams > 2 && call.values[2] == Py_True);
  copy_into(dst, src);
  bump_version(dst);
  if (node) record_write(node.get(), dst);
  return Ref::borrow(call.values[0]);
}

Ref write_call(Call& call, PyObject* out, bool inplace) {
  const char* op = call.op->text;
  Tensor* outs[rl::kMaxOutputs];
  int nouts = 1;
  if (inplace) {
    if (!is_tensor(call.values[0]))
      raise(PyExc_TypeError, "%s_(): argument 'self' (position 1) must be Tensor, not %s", op,
          Py_TYPE(call.values[0])->tp_name);
    outs[0] = tensor_of(call.values[0]);
  } else {
    nouts = collect_outs(call, out, outs);
    bool needs = call.needs.size() > 0;
    for (int i = 0; i < nouts; i++) needs |= grad_mode() && needs_grad(outs[i]);
    if (needs)
      raise(PyExc_RuntimeError,
          "[%s] out= has no automatic differentiation, and an argument requires grad",
          op);
  }
  for (int i = 0; i < nouts; i++) check_writable(outs[i]);
  if (call.mixed) return copy_across(call, outs[0]);
  for (int i = 0; i < nouts; i++)
    if (call.tensors.size() && outs[i]->layout->device != call.device)
      refuse_devices(call, call.device, outs[i]->layout->device);
  if (inplace && call.needs.size() && outs[0]->no_grad_view)
    raise(PyExc_RuntimeError,
        "a view was created in no_grad mode and is being modified inplace with grad mode enabled: "
        "its base would not know. "
        "Make the view and the write in the same mode.");
  bool hit;
  PlanHold hold(plan_find_write(call, outs, nouts, &hit));
  Plan* plan = hold.plan;
  if (mode & kRecords) RecordScope::current()->ran(plan_text(plan), hit);
  // `fill_` and its like, which have no derivative: what was there before no longer matters.
  bool ends = inplace && !call.op->differentiable && grad_mode() && needs_grad(outs[0]);
  Own<Node> node;
  if (call.needs.size()) {
    if (inplace) check_shape(op, plan->functional, outs[0]);
    node = node_before_write(call, plan, outs[0]);
  }
  else if (ends) node = node_of_constant(call.op);
  if (writes_directly(plan, call, outs, nouts)) {
    if (plan->direct) routine_run(plan->functional, call, outs);
    else plan_write(plan, call, outs, nouts);
  } else {
    write_by_temporary(plan, call, outs, nouts, inplace);
  }
  for (int i = 0; i < nouts; i++) bump_version(outs[i]);
  if (node) record_write(node.get(), outs[0]);
  return Ref::borrow(inplace ? call.values[0] : out);
}

void assign(Tensor* dst, PyObject* value) {
  bool number = !is_tensor(value);
  bool on_tape = grad_mode() && (needs_grad(dst) || (!number && needs_grad(tensor_of(value))));
  if (on_tape || (mode & (kRecords | kDispatch))) {
    Own<Tensor> scalar;
    if (number) {
      scalar = tensor_dense(dst->layout->dtype, 0, nullptr, dst->layout->device);
      fill_number(scalar.get(), value);
      value = scalar.py();
    }
    if (slots[kCopy]) operator_apply(slots[kCopy], py(dst), value);
    else checked(PyObject_CallMethod(py(dst), "copy_", "O", value));
    return;
  }
  check_writable(dst);
  if (number) {
    fill_number(dst, value);
  } else {
    Tensor* src = tensor_of(value);
    if (!broadcasts_to(src->layout, dst->layout))
      raise(PyExc_RuntimeError, "[copy_] a value of shape %s does not broadcast to %s",
          rl::shape_text(src->layout->ndim, src->layout->dims).c_str(),
          rl::shape_text(dst->layout->ndim, dst->layout->dims).c_str());
    Own<Tensor> apart;
    if (overlaps(dst, src) && !aliases(dst, src))
      src = (apart = contiguous_copy(src, src->layout->dtype)).get();
    copy_into(dst, src);
  }
  bump_version(dst);
}

Own<Tensor> copied(Tensor* src, Layout* layout) {
  Own<Tensor> made = tensor_empty(layout);
  assign(made.get(), py(src));
  return made;
}

}  // namespace core
