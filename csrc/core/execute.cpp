// Execution of plans. Takes a Plan and its Call; gives the outputs.
// Invariant: while a kernel runs without the GIL, the plan and every storage it touches are held by
// counts of its own.
#include "convert.h"
#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "plan.h"
#include "program.h"
#include "released.h"
#include "steps.h"

namespace core {
namespace {

constexpr int kBuffers = rl::kMaxInputs + rl::kMaxOutputs;
constexpr int kLearned = 16;  // times that a plan's steps are learned anew, at most

[[noreturn]] void index_error(const char* op, int64_t code) {
  if (code == INT64_MAX) raise(PyExc_RuntimeError, "[%s] ZeroDivisionError", op);
  uint64_t z = static_cast<uint64_t>(code - 1);
  int64_t value = z & 1 ? -static_cast<int64_t>(z >> 1) - 1 : static_cast<int64_t>(z >> 1);
  raise(PyExc_IndexError, "[%s] index %lld is out of range", op, static_cast<long long>(value));
}

void run_loop(const char* op, const rl::LoopPlan* loop, Tensor* const* tensors, int ninputs,
    Tensor* const* outs, int nouts, const Number* numbers) {
  if (!loop->kernel->fn) return cuda_loop(op, loop, tensors, ninputs, outs, nouts, numbers);
  void* pointers[kBuffers];
  for (int i = 0; i < ninputs; i++) pointers[i] = data_of(tensors[i]);
  for (int i = 0; i < nouts; i++) pointers[ninputs + i] = data_of(outs[i]);
  if (loop->zero_out)
    for (int i = 0; i < nouts; i++)
      std::memset(
          pointers[ninputs + i], 0, outs[i]->layout->numel * rl::itemsize(outs[i]->layout->dtype));
  int64_t code;
  if (!loop->release) {
    code = rl::loop_run(loop, pointers, numbers);
  } else {
    Storage* storages[kBuffers];
    for (int i = 0; i < ninputs; i++) storages[i] = tensors[i]->storage;
    for (int i = 0; i < nouts; i++) storages[ninputs + i] = outs[i]->storage;
    run_released(storages, ninputs + nouts, [&] { code = rl::loop_run(loop, pointers, numbers); });
  }
  if (code) index_error(op, code);
}

Ref result_of(Own<Tensor>* outs, int n) {
  Ref tuple = checked(PyTuple_New(n));
  for (int i = 0; i < n; i++) PyTuple_SET_ITEM(tuple.py(), i, outs[i].release_object());
  return tuple;
}

// `given`: outputs that exist already, null where one is allocated.
Ref run_leaf(const char* op, const rl::Recipe& recipe, const rl::LoopPlan* loop,
    Layout* const* layouts, Tensor* const* tensors, const Number* numbers,
    Tensor* const* given = nullptr) {
  int nouts = recipe.noutputs;
  if (given) {
    Own<Tensor> outs[rl::kMaxOutputs];
    Tensor* raw[rl::kMaxOutputs];
    for (int i = 0; i < nouts; i++) {
      if (given[i]) {
        Py_INCREF(reinterpret_cast<PyObject*>(given[i]));
        outs[i] = Own<Tensor>(given[i]);
      } else {
        rl::incref(layouts[i]);
        outs[i] = tensor_empty(layouts[i]);
      }
      raw[i] = outs[i].get();
    }
    run_loop(op, loop, tensors, recipe.ninputs, raw, nouts, numbers);
    for (int i = 0; i < nouts; i++)
      if (given[i]) bump_version(given[i]);
    return nouts == 1 ? Ref(outs[0].release_object()) : result_of(outs, nouts);
  }
  if (nouts == 1) {
    rl::incref(layouts[0]);
    Own<Tensor> out = tensor_empty(layouts[0]);
    Tensor* one = out.get();
    run_loop(op, loop, tensors, recipe.ninputs, &one, 1, numbers);
    return Ref(out.release_object());
  }
  Own<Tensor> outs[rl::kMaxOutputs];
  Tensor* raw[rl::kMaxOutputs];
  for (int i = 0; i < nouts; i++) {
    rl::incref(layouts[i]);
    outs[i] = tensor_empty(layouts[i]);
    raw[i] = outs[i].get();
  }
  run_loop(op, loop, tensors, recipe.ninputs, raw, nouts, numbers);
  return result_of(outs, nouts);
}

// A recipe's run-time numbers, from the bound values.
struct Numbers {
  Number values[kNumbers];
  Numbers(const RecipeObject* r, PyObject* const* bound) {
    for (int i = 0; i < r->nnumbers; i++)
      values[i] = number_from(bound[r->numbers[i].param], r->numbers[i].how);
  }
};

// Loops made for one run: freed with it.
struct OwnLoop {
  rl::LoopPlan* loop = nullptr;
  Layout* outs[rl::kMaxOutputs] = {};
  ~OwnLoop() {
    std::free(loop);
    for (Layout* l : outs)
      if (l) rl::decref(l);
  }
};

// The full shape comes at run time: the plan keeps the latest loops, so that a repeated shape costs
// nothing.
Ref run_sized(Plan* p, Call& call) {
  const RecipeObject* r = p->recipe;
  if (r->sizes < 0 || r->sizes >= call.op->nparams)
    fail(ErrorKind::Runtime, "[%s] a sized recipe names the parameter that gives the sizes",
        call.op->text);
  Small<int64_t, 8> sizes;
  read_ints(call.op->text, call.values[r->sizes], sizes);
  if (r->recipe.ninputs != call.tensors.size())
    fail(ErrorKind::Runtime, "[%s] the recipe takes %d tensors, the call has %d", call.op->text,
        r->recipe.ninputs, call.tensors.size());
  Numbers numbers(r, call.values);
  size_t n = static_cast<size_t>(sizes.size());
  if (p->loop && p->sizes.size() == n &&
      !std::memcmp(p->sizes.data(), sizes.data(), n * sizeof(int64_t))) {
    struct Busy {
      int& n;
      explicit Busy(int& b) : n(b) { n++; }
      ~Busy() { n--; }
    } busy(p->busy);
    return run_leaf(
        call.op->text, r->recipe, p->loop, p->outs, call.tensors.data(), numbers.values);
  }
  Layout* inputs[rl::kMaxInputs];
  for (int i = 0; i < r->recipe.ninputs; i++) inputs[i] = call.tensors[i]->layout;
  OwnLoop own;
  own.loop = rl::loop_plan(
      call.op->text, r->recipe, inputs, nullptr, sizes.data(), sizes.size(), own.outs);
  Ref result =
      run_leaf(call.op->text, r->recipe, own.loop, own.outs, call.tensors.data(), numbers.values);
  if (!p->busy) {
    std::swap(p->loop, own.loop);
    std::swap(p->outs, own.outs);
    p->sizes.assign(sizes.data(), sizes.data() + n);
  }
  return result;
}

void run_gemm(Plan* p, Call& call, Tensor* out) {
  const GemmRecipeObject* g = p->gemm_recipe;
  Own<Tensor> copies[3];
  Tensor* operands[3] = {nullptr, nullptr, nullptr};
  int params[3] = {g->x, g->y, g->bias};
  for (int i = 0; i < 3; i++) {
    if (params[i] < 0 || call.values[params[i]] == Py_None) continue;
    operands[i] = tensor_of(call.values[params[i]]);
    if (!p->gemm_copies[i]) continue;
    copies[i] = contiguous_copy(operands[i], operands[i]->layout->dtype);
    operands[i] = copies[i].get();
  }
  double alpha = g->alpha < 0 ? 1.0 : number_from(call.values[g->alpha], 'f').f;
  double beta = g->beta < 0 ? 1.0 : number_from(call.values[g->beta], 'f').f;
  void* pointers[3];
  for (int i = 0; i < 3; i++) pointers[i] = operands[i] ? data_of(operands[i]) : nullptr;
  if (!rl::gemm_release(p->gemm)) {
    rl::gemm_run(p->gemm, pointers[0], pointers[1], pointers[2], data_of(out), alpha, beta);
    return;
  }
  Storage* held[4] = {nullptr, nullptr, nullptr, out->storage};
  for (int i = 0; i < 3; i++)
    if (operands[i]) held[i] = operands[i]->storage;
  run_released(held, 4, [&] {
    rl::gemm_run(p->gemm, pointers[0], pointers[1], pointers[2], data_of(out), alpha, beta);
  });
}

// Out of line: what it keeps on the stack, leaves would pay for.
// Programs within programs; a definition that leads back to itself ends here, not where the stack does.
constexpr int kDeepest = 400;
thread_local int depth = 0;
struct Depth {
  explicit Depth(const char* op) {
    if (depth >= kDeepest) fail(ErrorKind::NotImplemented, "[%s] its definition calls itself", op);
    ++depth;
  }
  ~Depth() { --depth; }
};

__attribute__((noinline)) Ref run_program(Plan* p, Call& call) {
  const Depth deeper(call.op->text);
  Program* program = p->program;
  int n = call.op->nparams;
  if (program->ninputs != n)
    fail(ErrorKind::Runtime, "[%s] the program takes %d inputs, the operator has %d parameters",
        call.op->text, program->ninputs, n);
  uint32_t off = (program->transparent ? 0 : uint32_t{kGrad}) | (program->settled ? kCasting : 0);
  ModeScope scope(mode & ~off);
  CreationScope creation(call.device);
  const bool plain = !(mode & (kRecords | kDispatch));
  Ref result;
  if (p->steps && plain && steps_run(p, call, &result)) return result;
  PyObject* inputs[kMaxParams];
  for (int i = 0; i < n; i++) inputs[i] = Py_NewRef(call.values[i]);
  // What runs once holds nothing: steps are learned from the second run on.
  if (!plain || call.device != Device::CPU || p->learned > kLearned || !p->learned++)
    return program_value(program, inputs, n);
  StepsLearner learner(program);
  result = program_value(program, inputs, n, &learner);
  if (p->steps) steps_drop(p->steps);
  p->steps = learner.finish();
  if (!p->steps) p->learned = kLearned + 1;
  return result;
}

Ref run_device(Plan* p, Call& call) {
  p->device->prepare(p, call);
  Own<Tensor> outs[rl::kMaxOutputs];
  Tensor* raw[rl::kMaxOutputs];
  for (int i = 0; i < p->nouts; i++) {
    rl::incref(p->outs[i]);
    outs[i] = tensor_empty(p->outs[i]);
    raw[i] = outs[i].get();
  }
  p->device->run(p, call, raw);
  return p->nouts == 1 ? Ref(outs[0].release_object()) : result_of(outs, p->nouts);
}

}  // namespace

Number number_from(PyObject* o, char how) {
  Number n;
  if (how == 'f') {
    if (PyFloat_CheckExact(o)) n.f = PyFloat_AS_DOUBLE(o);
    else {
      n.f = PyFloat_AsDouble(o);
      if (n.f == -1.0 && PyErr_Occurred()) throw PythonError();
    }
    return n;
  }
  if (PyFloat_Check(o)) {
    double v = PyFloat_AS_DOUBLE(o);
    if (how == 'b') v = v != 0;
    n.i = v >= -9.2233720368547758e18 && v < 9.2233720368547758e18 ? static_cast<int64_t>(v)
                                                                   : INT64_MIN;
    return n;
  }
  n.i = PyLong_AsLongLong(o);
  if (n.i == -1 && PyErr_Occurred()) throw PythonError();
  return n;
}

Ref plan_execute(Plan* p, Call& call) {
  switch (p->kind) {
    case PlanKind::Leaf: {
      Numbers numbers(p->recipe, call.values);
      if (p->copies.empty())
        return run_leaf(call.op->text, p->recipe->recipe, p->loop, p->outs, call.tensors.data(),
            numbers.values);
      Own<Tensor> copies[rl::kMaxInputs];
      Tensor* operands[rl::kMaxInputs];
      for (int i = 0; i < call.tensors.size(); i++) {
        operands[i] = call.tensors[i];
        if (operands[i]->layout == p->copies[i]) continue;
        rl::incref(p->copies[i]);
        copies[i] = tensor_empty(p->copies[i]);
        copy_into(copies[i].get(), operands[i]);
        operands[i] = copies[i].get();
      }
      return run_leaf(call.op->text, p->recipe->recipe, p->loop, p->outs, operands, numbers.values);
    }
    case PlanKind::Sized: return run_sized(p, call);
    case PlanKind::Gemm: {
      rl::incref(p->outs[0]);
      Own<Tensor> out = tensor_empty(p->outs[0]);
      run_gemm(p, call, out.get());
      return Ref(out.release_object());
    }
    case PlanKind::Routine: return routine_execute(p, call);
    case PlanKind::Assembly: return assembly_execute(p, call);
    case PlanKind::Program: return run_program(p, call);
    case PlanKind::Device: return run_device(p, call);
    default: fail(ErrorKind::Runtime, "[%s] this plan does not run by itself", call.op->text);
  }
}

void plan_write(Plan* p, Call& call, Tensor* const* outs, int nouts) {
  if (p->gemm) return run_gemm(p, call, outs[0]);
  if (p->device) return p->device->run(p, call, outs);
  Numbers numbers(p->recipe, call.values);
  run_loop(call.op->text, p->loop, call.tensors.data(), call.tensors.size(), outs, nouts,
      numbers.values);
}

// A recipe called by itself: its tensors, then its numbers, then the sizes where its rule wants
// them; or, in place of sizes, for each output a tensor to write to or None. A given output may be
// an operand's own memory where the kernel reads each element before it writes it: the caller says.
PyObject* recipe_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  return guarded([&]() -> PyObject* {
    RecipeObject* r = reinterpret_cast<RecipeObject*>(self);
    const rl::Recipe& recipe = r->recipe;
    const char* name = recipe.kernel->key;
    int n = static_cast<int>(PyVectorcall_NARGS(nargsf)), ntensors = recipe.ninputs;
    bool sized = recipe.rule == rl::Rule::Sized || recipe.rule == rl::Rule::IntoTable;
    bool writes = !sized && n == ntensors + r->nnumbers + recipe.noutputs;
    if (names || (n != ntensors + r->nnumbers + sized && !writes))
      raise(PyExc_TypeError, "[%s] takes %d tensors, %d numbers%s", name, ntensors, r->nnumbers,
          sized ? " and sizes" : "");
    Tensor* tensors[rl::kMaxInputs];
    Layout* inputs[rl::kMaxInputs];
    for (int i = 0; i < ntensors; i++) {
      if (!is_tensor(args[i]))
        raise(PyExc_TypeError, "[%s] operand %d must be a Tensor, not %s", name, i,
            Py_TYPE(args[i])->tp_name);
      tensors[i] = tensor_of(args[i]);
      inputs[i] = tensors[i]->layout;
      if (recipe.kernel->fn && inputs[i]->device != Device::CPU)
        raise(PyExc_RuntimeError, "[%s] a kernel of the CPU was given a tensor on %s", name,
            device_name(inputs[i]->device).c_str());
    }
    Number numbers[kNumbers];
    for (int i = 0; i < r->nnumbers; i++)
      numbers[i] = number_from(args[ntensors + i], r->numbers[i].how);
    if (sized) {
      Small<int64_t, 8> sizes;
      read_ints(name, args[n - 1], sizes);
      OwnLoop own;
      own.loop = rl::loop_plan(name, recipe, inputs, nullptr, sizes.data(), sizes.size(), own.outs);
      return run_leaf(name, recipe, own.loop, own.outs, tensors, numbers).release();
    }
    constexpr int kMemo = 8;
    Tensor* outputs[rl::kMaxOutputs] = {};
    Layout* given[rl::kMaxOutputs] = {};
    for (int i = 0; writes && i < recipe.noutputs; i++) {
      PyObject* o = args[ntensors + r->nnumbers + i];
      if (o == Py_None) continue;
      if (!is_tensor(o))
        raise(PyExc_TypeError, "[%s] output %d must be a Tensor or None, not %s", name, i,
            Py_TYPE(o)->tp_name);
      outputs[i] = tensor_of(o);
      given[i] = outputs[i]->layout;
    }
    Tensor* const* into = writes ? outputs : nullptr;
    Ref alive = Ref::borrow(self);
    for (int m = 0; m < r->memo_count; m++) {
      RecipeObject::Memo& memo = r->memo[m];
      if (!std::memcmp(memo.in, inputs, sizeof(Layout*) * ntensors) &&
          !std::memcmp(memo.given, given, sizeof(Layout*) * recipe.noutputs)) {
        if (!memo.loop->release)
          return run_leaf(name, recipe, memo.loop, memo.outs, tensors, numbers, into).release();
        // Another thread may replace the entry meanwhile: run on a copy.
        OwnLoop own;
        size_t bytes = rl::loop_bytes(memo.loop);
        own.loop = static_cast<rl::LoopPlan*>(std::malloc(bytes));
        std::memcpy(static_cast<void*>(own.loop), memo.loop, bytes);
        for (int i = 0; i < recipe.noutputs; i++) rl::incref(own.outs[i] = memo.outs[i]);
        return run_leaf(name, recipe, own.loop, own.outs, tensors, numbers, into).release();
      }
    }
    OwnLoop own;
    own.loop =
        rl::loop_plan(name, recipe, inputs, writes ? given : nullptr, nullptr, 0, own.outs);
    Ref result = run_leaf(name, recipe, own.loop, own.outs, tensors, numbers, into);
    if (!r->memo) r->memo = new RecipeObject::Memo[kMemo]{};
    int at = r->memo_next++ % kMemo;
    if (r->memo_count < kMemo) r->memo_count++;
    RecipeObject::Memo& memo = r->memo[at];
    for (int i = 0; i < ntensors; i++) {
      rl::incref(inputs[i]);
      if (memo.in[i]) rl::decref(memo.in[i]);
      memo.in[i] = inputs[i];
    }
    for (int i = 0; i < recipe.noutputs; i++) {
      if (given[i]) rl::incref(given[i]);
      if (memo.given[i]) rl::decref(memo.given[i]);
      memo.given[i] = given[i];
    }
    std::swap(memo.loop, own.loop);
    std::swap(memo.outs, own.outs);
    return result.release();
  });
}

}  // namespace core
