// Steps: the plans of a program's instructions, known from the plan that the program belongs to. Takes
// a plan and its call; gives the program's outputs, without keys, look-ups or comparisons.
// Invariant: the plan's key fixes the layouts of all inputs, the kinds of all numbers and the mode; so
// it fixes every instruction's key, and which parts the tape is told of, where instructions take
// tensors, constants and numbers whose kind alone is in their key. Programs with anything else have no
// steps (links.cpp serves those).
#include "steps.h"

#include <algorithm>
#include <utility>

#include "tape.h"
#include "tensor.h"

namespace core {

namespace {

constexpr int kRegisters = 24;

struct Step {
  Operator* op;
  Plan* plan = nullptr;                               // owned; null: a view
  Layout* to = nullptr;                               // owned; of a view
  int64_t offset = 0;                                 // of a view, beyond its operand's
  std::vector<PyObject*> values;                      // one a parameter; borrowed constants, or null
  std::vector<std::pair<int, int>> registers;         // (parameter, register)
  std::vector<int> tensors;                           // parameters that hold the operands
  std::vector<uint64_t> needs;                        // which operands require a gradient, as a call's
  bool taped = false;                                 // of a view: the tape must know
  std::vector<int> outs, last;                        // as the instruction's
};

}  // namespace

struct Steps {
  int64_t refs = 1;
  uint64_t epoch = plan_epoch;
  uint32_t mode = core::mode & ~uint32_t{kGrad};
  Program* program;                                   // owned: its constants stay
  std::vector<Step> list;
};

void steps_drop(Steps* s) {
  if (!s || --s->refs) return;
  for (Step& step : s->list) {
    if (step.plan) decref(step.plan);
    if (step.to) rl::decref(step.to);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(s->program));
  delete s;
}

// ---- learning them

StepsLearner::StepsLearner(const Program* p) : made_(nullptr), program_(p) {
  if (p->label || p->nregisters > kRegisters || (mode & (kRecords | kDispatch))) return;
  for (const Argument& a : *p->outputs)
    if (a.kind != Argument::Register && a.kind != Argument::Constant) return;
  made_ = new Steps;
  made_->program = const_cast<Program*>(p);
  Py_INCREF(reinterpret_cast<PyObject*>(made_->program));
}

StepsLearner::~StepsLearner() { steps_drop(made_); }

Steps* StepsLearner::finish() {
  if (made_ && made_->list.size() != program_->instructions->size()) return nullptr;
  return std::exchange(made_, nullptr);
}

namespace {

// A number that is computed, or given, at run time: its kind must decide what the key says of it.
bool run_time_number(const Param& p, PyObject* o) {
  if (p.structural || (p.fallback && Py_TYPE(p.fallback) == Py_TYPE(o))) return false;
  if (PyFloat_CheckExact(o))
    return p.kind == ParamKind::Tensor || p.kind == ParamKind::Number || p.kind == ParamKind::Float;
  return PyLong_CheckExact(o) && (p.kind == ParamKind::Tensor || p.kind == ParamKind::Number ||
                                     p.kind == ParamKind::Float || p.kind == ParamKind::SymInt);
}

bool arguments(const Instruction& in, PyObject* const* args, Step* step) {
  const Operator* op = step->op;
  for (int i = 0; i < op->nparams; i++) step->values.push_back(op->params[i].fallback);
  for (int i = 0; i < static_cast<int>(in.arguments.size()); i++) {
    const Argument& a = in.arguments[i];
    const Param& p = op->params[i];
    if (a.kind == Argument::Constant) {
      if (is_tensor(a.object) || (p.kind == ParamKind::Tensors && a.object != Py_None)) return false;
      step->values[i] = a.object;
      continue;
    }
    if (a.kind != Argument::Register || p.kind == ParamKind::Tensors) return false;
    const bool tensor = p.kind == ParamKind::Tensor && is_tensor(args[i]) && !is_value(args[i]);
    if (tensor) step->tensors.push_back(i);
    else if (args[i] != Py_None && !run_time_number(p, args[i])) return false;
    step->registers.emplace_back(i, a.index);
  }
  return !step->tensors.empty();
}

bool view(PyObject* const* args, PyObject* result, Step* step) {
  if (!is_tensor(result) || step->tensors.size() != 1 || step->tensors[0] != 0) return false;
  Tensor *from = tensor_of(args[0]), *to = tensor_of(result);
  if (from->storage != to->storage || from->layout->dtype != to->layout->dtype) return false;
  rl::incref(step->to = to->layout);
  step->offset = to->offset - from->offset;
  step->taped = grad_mode() && step->op->differentiable && needs_grad(from);
  return true;
}

bool plan(const Instruction& in, PyObject* const* args, Step* step) {
  Call call(step->op);
  for (int i = 0; i < step->op->nparams; i++) call.values[i] = step->values[i];
  for (auto [i, r] : step->registers) call.values[i] = args[i];
  encode(call, Variant::Plain);
  if (call.foreign || call.mixed || call.device != Device::CPU) return false;
  for (int i = 0; i < step->op->nparams; i++) {     // rewritten on the way: not a plain argument
    const bool given = i < static_cast<int>(in.arguments.size());
    if (call.values[i] != (given ? args[i] : step->values[i])) return false;
  }
  Plan* found = plan_seen(call);
  if (!found || found->kind == PlanKind::Sized) return false;
  for (int w = 0; w < call.needs.size(); w++) step->needs.push_back(call.needs[w]);
  incref(step->plan = found);
  return true;
}

}  // namespace

void StepsLearner::instruction(const Instruction& in, PyObject* const* args, PyObject* result) {
  if (!made_) return;
  Step step;
  bool known = in.linkable;
  if (known) {
    step.op = reinterpret_cast<Operator*>(in.callee);
    step.outs = in.outs;
    step.last = in.last;
    known = arguments(in, args, &step) && (step.op->view == ViewKind::None
                                                  ? plan(in, args, &step)
                                                  : view(args, result, &step));
  }
  if (known) {
    made_->list.push_back(std::move(step));
    return;
  }
  if (step.plan) decref(step.plan);
  if (step.to) rl::decref(step.to);
  steps_drop(std::exchange(made_, nullptr));
}

// ---- running them

namespace {

struct Values {
  PyObject* at[kRegisters];
  int inputs, count;
  ~Values() {
    for (int i = inputs; i < count; i++) Py_XDECREF(at[i]);
  }
};

void keep(const Step& step, Values& values, Ref value) {
  if (step.outs.empty()) return;
  if (step.outs.size() == 1) {
    if (step.outs[0] >= 0) values.at[step.outs[0]] = value.release();
    return;
  }
  const Py_ssize_t n = static_cast<Py_ssize_t>(step.outs.size());
  if (!PyTuple_Check(value.py()) || PyTuple_GET_SIZE(value.py()) != n)
    raise(PyExc_ValueError, "[Program] %s gave something else than %zd values", step.op->text, n);
  for (Py_ssize_t i = 0; i < n; i++)
    if (step.outs[i] >= 0) values.at[step.outs[i]] = Py_NewRef(PyTuple_GET_ITEM(value.py(), i));
}

Own<Tensor> window(const Step& step, Tensor* from) {
  rl::incref(step.to);
  return view_make(from, step.to, from->offset + step.offset);
}

Ref perform(const Step& step, const Values& values) {
  if (step.to && !step.taped)
    return Ref(window(step, tensor_of(values.at[step.registers[0].second])).release_object());
  Call call(step.op);
  std::memcpy(call.values, step.values.data(), sizeof(PyObject*) * step.values.size());
  for (auto [i, r] : step.registers) call.values[i] = values.at[r];
  if (step.to) {
    Own<Tensor> view = window(step, tensor_of(call.values[0]));
    record_view(call, view.get());
    return Ref(view.release_object());
  }
  for (int i : step.tensors) call.tensors.push(tensor_of(call.values[i]));
  for (uint64_t w : step.needs) call.needs.push(w);
  plan_used(step.plan);
  Ref result = plan_execute(step.plan, call);
  if (call.needs.size()) record_call(call, step.plan, result);
  return result;
}

Ref output(const Argument& a, const Values& values) {
  return Ref::borrow(a.kind == Argument::Register ? values.at[a.index] : a.object);
}

struct Held {
  Steps* steps;
  explicit Held(Steps* s) : steps(s) { s->refs++; }
  ~Held() { steps_drop(steps); }
  Held(const Held&) = delete;
};

}  // namespace

bool steps_run(Plan* p, Call& call, Ref* result) {
  Steps* s = p->steps;
  if (s->epoch != plan_epoch || s->mode != (mode & ~uint32_t{kGrad})) return false;
  for (const Step& step : s->list)
    if (step.plan && step.plan->dropped) return false;
  const Held held(s);
  const Program* program = s->program;
  Values values;
  values.inputs = program->ninputs;
  values.count = program->nregisters;
  std::memcpy(values.at, call.values, sizeof(PyObject*) * values.inputs);
  for (int i = values.inputs; i < values.count; i++) values.at[i] = nullptr;
  for (const Step& step : s->list) {
    keep(step, values, perform(step, values));
    for (int r : step.last)
      if (r >= values.inputs) Py_CLEAR(values.at[r]);
  }
  const std::vector<Argument>& outputs = *program->outputs;
  if (program->single) {
    *result = output(outputs[0], values);
    return true;
  }
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); i++)
    PyTuple_SET_ITEM(tuple.py(), i, output(outputs[i], values).release());
  *result = std::move(tuple);
  return true;
}

}  // namespace core
