// The plan cache. Takes an encoded Call; gives its Plan, asking Python's make_plan on first sight.
// Invariant: a plan is found by comparing whole keys, never by hash alone; eviction drops the least
// recently used and never frees a plan that a call still holds.
#include "plan.h"

#include <algorithm>
#include <map>

#include "dtype.h"
#include "program.h"
#include "steps.h"
#include "tape.h"

namespace core {

uint64_t plan_epoch = 1;

namespace {

struct Cache {
  std::vector<Plan*> table = std::vector<Plan*>(256, nullptr);
  int64_t count = 0, limit = 4096, hits = 0, misses = 0, evicted = 0;
  uint64_t clock = 0;
};
Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

// What make_plan returned, by dtypes and ranks.
struct Made {
  PyObject* object;
  std::vector<PyObject*> held;
};
using Recipes = std::map<std::vector<uint64_t>, Made>;
Recipes& recipes() {
  static Recipes* r = new Recipes;
  return *r;
}

uint64_t hash_of(const uint64_t* words, int n) {
  uint64_t h = 0x9E3779B97F4A7C15ull;
  for (int i = 0; i < n; i++) {
    h = (h ^ words[i]) * 0xC2B2AE3D27D4EB4Full;
    h ^= h >> 29;
  }
  return h;
}

Plan* lookup(const Call& call, uint64_t hash) {
  Cache& c = cache();
  size_t mask = c.table.size() - 1;
  for (size_t i = hash & mask; Plan* p = c.table[i]; i = (i + 1) & mask)
    if (p->hash == hash && p->key.size() == static_cast<size_t>(call.key.size()) &&
        !std::memcmp(p->key.data(), call.key.data(), sizeof(uint64_t) * call.key.size()))
      return p;
  return nullptr;
}

void place(std::vector<Plan*>& table, Plan* p) {
  size_t mask = table.size() - 1, i = p->hash & mask;
  while (table[i]) i = (i + 1) & mask;
  table[i] = p;
}

void rebuild(const std::vector<Plan*>& plans) {
  Cache& c = cache();
  size_t room = 256;
  while (room < plans.size() * 2 + 2) room *= 2;
  std::vector<Plan*> table(room, nullptr);
  for (Plan* p : plans) place(table, p);
  c.table.swap(table);
  c.count = static_cast<int64_t>(plans.size());
}

std::vector<Plan*> all_plans() {
  std::vector<Plan*> plans;
  for (Plan* p : cache().table)
    if (p) plans.push_back(p);
  return plans;
}

void shrink(int64_t target) {
  Cache& c = cache();
  if (c.count <= target) return;
  std::vector<Plan*> plans = all_plans();
  std::sort(plans.begin(), plans.end(), [](Plan* a, Plan* b) { return a->stamp > b->stamp; });
  std::vector<Plan*> dropped(plans.begin() + target, plans.end());
  plans.resize(target);
  rebuild(plans);
  c.evicted += static_cast<int64_t>(dropped.size());
  for (Plan* p : dropped) {
    p->dropped = true;
    decref(p);
  }
}

void insert(Plan* p) {
  Cache& c = cache();
  if (c.count >= c.limit) shrink(c.limit - c.limit / 4 - 1);
  if (static_cast<size_t>(c.count + 1) * 2 > c.table.size()) rebuild(all_plans());
  place(c.table, p);
  c.count++;
}

Plan* plan_new(const Call& call, PlanKind kind) {
  Plan* p = new Plan{};
  p->refs = 1;
  p->op = call.op;
  p->kind = kind;
  p->key.assign(call.key.data(), call.key.data() + call.key.size());
  p->hash = hash_of(p->key.data(), static_cast<int>(p->key.size()));
  p->stamp = ++cache().clock;
  for (int i = 0; i < call.pins.size(); i++) p->held.push_back(Py_NewRef(call.pins[i]));
  for (int i = 0; i < call.tensors.size(); i++) {
    rl::incref(call.tensors[i]->layout);
    p->layouts.push_back(call.tensors[i]->layout);
  }
  return p;
}

// Copies of a Call's encoding, put back after the rank key was written over it.
class EncodingKept {
 public:
  explicit EncodingKept(Call& call)
      : call_(call), key_(call.key.data(), call.key.data() + call.key.size()) {}
  void restore() {
    encode(call_, Variant::Plain);  // tensors, needs, pins
    call_.key.clear();
    for (uint64_t w : key_) call_.key.push(w);
  }

 private:
  Call& call_;
  std::vector<uint64_t> key_;
};

Ref made_by_python(Call& call) {
  EncodingKept kept(call);
  encode(call, Variant::Rank);
  std::vector<uint64_t> rank_key(call.key.data(), call.key.data() + call.key.size());
  auto found = recipes().find(rank_key);
  if (found != recipes().end()) {
    kept.restore();
    return Ref::borrow(found->second.object);
  }
  kept.restore();
  if (!hooks.make_plan)
    raise(PyExc_NotImplementedError, "[%s] no make_plan hook is registered", call.op->text);
  Ref values = values_tuple(call), needs = needs_object(call);
  PyObject* args[3] = {reinterpret_cast<PyObject*>(call.op), values.py(), needs.py()};
  Ref made = checked(PyObject_Vectorcall(hooks.make_plan, args, 3, nullptr));
  PyTypeObject* type = Py_TYPE(made.py());
  bool by_rank = type == RecipeType || type == GemmRecipeType ||
                 (type == ProgramType && reinterpret_cast<Program*>(made.py())->ranks);
  if (by_rank) {
    if (recipes().size() > 16384) {
      Recipes old;
      old.swap(recipes());
      for (auto& r : old) {
        Py_DECREF(r.second.object);
        for (PyObject* o : r.second.held) Py_DECREF(o);
      }
    }
    Made& m = recipes()[rank_key];
    if (!m.object) {
      m.object = Py_NewRef(made.py());
      for (int i = 0; i < call.pins.size(); i++) m.held.push_back(Py_NewRef(call.pins[i]));
    }
  }
  return made;
}

}  // namespace

// Operands whose dims do not fold into the kernel's loops: all brought to the full shape, row dims
// innermost.
void plan_copy_targets(const rl::Recipe& r, const Call& call, std::vector<Layout*>& copies) {
  int64_t shape[rl::kMaxDims];
  int ndim = 0;
  bool folds = r.rule == rl::Rule::Broadcast || r.rule == rl::Rule::Rows;
  for (int i = 0; i < r.ninputs; i++)
    if (r.in[i] == rl::Operand::Full) ndim = std::max<int>(ndim, call.tensors[i]->layout->ndim);
  std::fill(shape, shape + ndim, 1);
  for (int i = 0; i < r.ninputs; i++) {
    const Layout* l = call.tensors[i]->layout;
    if (r.in[i] == rl::Operand::Full)
      for (int d = 0; d < l->ndim; d++)
        if (l->dims[d] != 1) shape[ndim - l->ndim + d] = l->dims[d];
  }
  int64_t strides[rl::kMaxDims], step = 1;
  for (int rows = 1; rows >= 0; rows--)
    for (int d = ndim - 1; d >= 0; d--) {
      if (static_cast<int>(r.rule == rl::Rule::Rows && (r.rows >> d & 1)) != rows) continue;
      strides[d] = step;
      step *= shape[d];
    }
  for (int i = 0; i < r.ninputs; i++) {
    const Layout* l = call.tensors[i]->layout;
    copies.push_back(folds && r.in[i] == rl::Operand::Full
                            ? rl::layout_intern(l->dtype, l->device, ndim, shape, strides)
                            : rl::layout_dense(l->dtype, l->device, l->ndim, l->dims));
  }
}

// Whether some rows have no elements, for a recipe that gives such rows no result.
void plan_check_rows(const rl::Recipe& r, const char* op, const Layout* full) {
  if (!r.nonempty || full->numel) return;
  for (int d = 0; d < full->ndim; d++)
    if ((r.rows >> d & 1) && !full->dims[d])
      raise(r.rows + 1 == 1u << full->ndim ? PyExc_RuntimeError : PyExc_IndexError,
          "[%s] expected the reduced dims of %s to have a non-zero size", op,
          rl::shape_text(full->ndim, full->dims).c_str());
}

namespace {

void build_leaf(Plan* p, const Call& call) {
  const rl::Recipe& r = p->recipe->recipe;
  if (r.ninputs != call.tensors.size())
    raise(PyExc_RuntimeError, "[%s] the recipe for %s takes %d tensors, the call has %d",
        call.op->text, r.kernel->key, r.ninputs, call.tensors.size());
  Layout* inputs[rl::kMaxInputs];
  for (int i = 0; i < r.ninputs; i++) inputs[i] = call.tensors[i]->layout;
  plan_check_rows(r, call.op->text, inputs[0]);
  p->nouts = r.noutputs;
  try {
    p->loop = rl::loop_plan(call.op->text, r, inputs, nullptr, nullptr, 0, p->outs);
  } catch (const rl::Error& e) {
    if (e.kind != ErrorKind::NotImplemented) throw;
    plan_copy_targets(r, call, p->copies);
    p->loop = rl::loop_plan(call.op->text, r, p->copies.data(), nullptr, nullptr, 0, p->outs);
  }
}

// out[.., m, n] and the plan of the library; operands whose strides it does not take are copied
// first. `given`: the output's layout, of the right shape and dtype, where it lies already.
void build_gemm(Plan* p, Call& call, Layout* given = nullptr) {
  const GemmRecipeObject* g = p->gemm_recipe;
  auto operand = [&](int param) {
    return param < 0 || call.values[param] == Py_None ? nullptr
                                                      : tensor_of(call.values[param])->layout;
  };
  Layout *x = operand(g->x), *y = operand(g->y), *bias = operand(g->bias);
  if (!x || !y || x->ndim < 2 || x->ndim > 3 || y->ndim != x->ndim)
    raise(PyExc_RuntimeError, "[%s] a GemmRecipe takes two matrices or two batches of matrices",
        call.op->text);
  int64_t shape[3];
  int nd = x->ndim;
  for (int i = 0; i < nd - 1; i++) shape[i] = x->dims[i];
  shape[nd - 1] = y->dims[nd - 1];
  DType dtype = g->out_dtype < 0 ? x->dtype : static_cast<DType>(g->out_dtype);
  p->nouts = 1;
  if (given) rl::incref(p->outs[0] = given);
  else p->outs[0] = rl::layout_dense(dtype, Device::CPU, nd, shape);
  Layout* taken[3] = {x, y, bias};
  for (int i = 0; i < 3; i++) {
    if (!taken[i]) continue;
    p->gemm_copies[i] = i < 2 && !rl::gemm_takes(taken[i]);  // a bias may have any strides
    if (p->gemm_copies[i])
      taken[i] = rl::layout_dense(taken[i]->dtype, Device::CPU, taken[i]->ndim, taken[i]->dims);
    else rl::incref(taken[i]);
    p->layouts.push_back(taken[i]);
  }
  p->gemm = rl::gemm_plan(call.op->text, taken[0], taken[1], taken[2], p->outs[0]);
}

Plan* plan_make(Call& call, int short_key) {
  cache().misses++;
  Ref made = made_by_python(call);
  PyTypeObject* type = Py_TYPE(made.py());
  PlanKind kind;
  if (call.device != Device::CPU && type != ProgramType) {
    kind = PlanKind::Device;
  } else if (type == RecipeType || type == FusedKernelType) {
    RecipeObject* r = reinterpret_cast<RecipeObject*>(made.py());
    bool sized = r->recipe.rule == rl::Rule::Sized || r->recipe.rule == rl::Rule::IntoTable;
    kind = sized ? PlanKind::Sized : PlanKind::Leaf;
    if (sized && call.op->sizes < 0 && r->sizes >= 0 && r->sizes < call.op->nparams &&
        call.op->params[r->sizes].kind == ParamKind::SymInts) {
      call.op->sizes = r->sizes;
      encode(call, Variant::Plain);  // again: the sizes leave the key
    } else if (sized && short_key >= 0) {
      call.key.resize(short_key);
    }
  } else if (type == GemmRecipeType) {
    kind = PlanKind::Gemm;
  } else if (type == RoutineRecipeType) {
    kind = PlanKind::Routine;
  } else if (type == AssemblyRecipeType) {
    kind = PlanKind::Assembly;
  } else if (type == ProgramType) {
    kind = PlanKind::Program;
  } else {
    raise(PyExc_TypeError,
        "[%s] make_plan returned %s; a recipe or Program was expected", call.op->text,
        type->tp_name);
  }
  Plan* p = plan_new(call, kind);
  try {
    if (kind == PlanKind::Device) {
      p->device = device_runtime(call.device).plan(p, call, made.py());
      if (!p->device)
        raise(PyExc_NotImplementedError, "[%s] not implemented for device %s (%s)", call.op->text,
            device_name(call.device).c_str(), type->tp_name);
    } else if (kind == PlanKind::Program) {
      p->program = reinterpret_cast<Program*>(made.release());
    } else if (kind == PlanKind::Gemm) {
      p->gemm_recipe = reinterpret_cast<GemmRecipeObject*>(made.release());
      build_gemm(p, call);
    } else if (kind == PlanKind::Routine) {
      p->routine = reinterpret_cast<RoutineRecipeObject*>(made.release());
      routine_build(p, call);
    } else if (kind == PlanKind::Assembly) {
      p->assembly = reinterpret_cast<AssemblyRecipeObject*>(made.release());
      assembly_build(p, call);
    } else {
      p->recipe = reinterpret_cast<RecipeObject*>(made.release());
      p->nouts = p->recipe->recipe.noutputs;
      if (kind == PlanKind::Leaf) build_leaf(p, call);
    }
  } catch (...) {
    decref(p);
    throw;
  }
  uint64_t hash = p->hash;
  if (Plan* other = lookup(call, hash)) {  // Python made it meanwhile
    decref(p);
    return other;
  }
  insert(p);
  return p;
}

}  // namespace

Plan* plan_find(Call& call, bool* hit) {
  Cache& c = cache();
  Plan* p = lookup(call, hash_of(call.key.data(), call.key.size()));
  int short_key = -1;
  if (!p && call.op->sizes >= 0) {
    short_key = call.key.size();
    append_sizes(call);
    p = lookup(call, hash_of(call.key.data(), call.key.size()));
  }
  *hit = p != nullptr;
  if (!p) return plan_make(call, short_key);
  c.hits++;
  p->stamp = ++c.clock;
  return p;
}

Plan* plan_seen(const Call& call) {
  return lookup(call, hash_of(call.key.data(), call.key.size()));
}

void plan_used(Plan* p) {
  Cache& c = cache();
  c.hits++;
  p->stamp = ++c.clock;
}

Plan* plan_find_view(Call& call) {
  uint64_t hash = hash_of(call.key.data(), call.key.size());
  Plan* p = lookup(call, hash);
  if (p) {
    cache().hits++;
    p->stamp = ++cache().clock;
    return p;
  }
  cache().misses++;
  p = plan_new(call, PlanKind::View);
  insert(p);
  return p;
}

// A call with given outputs: the leaf's loops where dtypes and shapes fit, else only the plain
// call's plan.
Plan* plan_find_write(Call& call, Tensor* const* outs, int nouts, bool* hit) {
  std::vector<uint64_t> plain(call.key.data(), call.key.data() + call.key.size());
  call.key[0] |= static_cast<uint64_t>(Variant::Write) << 62;
  if (call.op->sizes >= 0) append_sizes(call);  // the plain plan may depend on them
  for (int i = 0; i < nouts; i++) call.key.push(reinterpret_cast<uint64_t>(outs[i]->layout));
  Plan* p = lookup(call, hash_of(call.key.data(), call.key.size()));
  *hit = p != nullptr;
  if (p) {
    cache().hits++;
    p->stamp = ++cache().clock;
    return p;
  }
  std::vector<uint64_t> key(call.key.data(), call.key.data() + call.key.size());
  call.key.clear();
  for (uint64_t w : plain) call.key.push(w);
  bool ignored;
  PlanHold functional(plan_find(call, &ignored));
  call.key.clear();
  for (uint64_t w : key) call.key.push(w);
  p = plan_new(call, PlanKind::Write);
  incref(functional.plan);
  p->functional = functional.plan;
  p->nouts = nouts;
  try {
    for (int i = 0; i < nouts; i++) {
      rl::incref(outs[i]->layout);
      p->layouts.push_back(outs[i]->layout);
    }
    Plan* f = functional.plan;
    if (f->kind == PlanKind::Device && f->nouts == nouts) {
      bool fit = true;
      for (int i = 0; fit && i < nouts; i++) {
        const Layout *a = f->outs[i], *b = outs[i]->layout;
        fit = a->dtype == b->dtype && a->device == b->device && a->ndim == b->ndim &&
              !std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim);
      }
      if (fit) p->device = f->device->into(f, call, outs, nouts);
    }
    p->direct = f->kind == PlanKind::Routine && f->nouts == nouts;
    for (int i = 0; p->direct && i < nouts; i++) p->direct = f->outs[i] == outs[i]->layout;
    bool direct = f->kind == PlanKind::Leaf && f->nouts == nouts && f->copies.empty();
    for (int i = 0; direct && i < nouts; i++) {
      const Layout *a = f->outs[i], *b = outs[i]->layout;
      direct = a->dtype == b->dtype && a->ndim == b->ndim &&
               !std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim);
    }
    if (f->kind == PlanKind::Gemm && f->outs[0]->dtype == outs[0]->layout->dtype &&
        f->outs[0]->ndim == outs[0]->layout->ndim &&
        !std::memcmp(f->outs[0]->dims, outs[0]->layout->dims, sizeof(int64_t) * f->outs[0]->ndim) &&
        rl::gemm_takes(outs[0]->layout)) {
      p->gemm_recipe = reinterpret_cast<GemmRecipeObject*>(
          Py_NewRef(reinterpret_cast<PyObject*>(f->gemm_recipe)));
      build_gemm(p, call, outs[0]->layout);
    }
    if (direct) {
      Layout *inputs[rl::kMaxInputs], *given[rl::kMaxOutputs];
      for (int i = 0; i < call.tensors.size(); i++) inputs[i] = call.tensors[i]->layout;
      for (int i = 0; i < nouts; i++) given[i] = outs[i]->layout;
      p->recipe =
          reinterpret_cast<RecipeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(f->recipe)));
      try {
        p->loop =
            rl::loop_plan(call.op->text, f->recipe->recipe, inputs, given, nullptr, 0, p->outs);
      } catch (const rl::Error& e) {  // no loops for these strides: by a temporary
        if (e.kind != ErrorKind::NotImplemented) throw;
      }
    }
  } catch (...) {
    decref(p);
    throw;
  }
  insert(p);
  return p;
}

// The arguments of a window's call that its key fixes; those that change from call to call are saved.
static void keep_window(Backward* b, const Call& call) {
  const Operator* op = call.op;
  if (op->view != ViewKind::Select && op->view != ViewKind::Slice) return;
  for (int i = 1; i < op->nparams; i++) {
    const Param& p = op->params[i];
    bool saved = std::find(b->params.begin(), b->params.end(), i) != b->params.end();
    bool fixed = p.structural || p.kind == ParamKind::Int || call.values[i] == Py_None ||
                 call.values[i] == p.fallback;
    if (!saved && !fixed) return;
  }
  for (int i = 0; i < op->nparams; i++)
    b->window.push_back(Py_NewRef(i ? call.values[i] : Py_None));
}

Backward* plan_backward(Plan* p, Call& call, PyObject* const* outs, int nouts) {
  if (p->backward_known) return p->backward;
  if (!hooks.make_backward)
    raise(PyExc_NotImplementedError, "[%s] no make_backward hook is registered", call.op->text);
  Ref values = values_tuple(call), needs = needs_object(call),
      results = checked(PyTuple_New(nouts));
  for (int i = 0; i < nouts; i++) PyTuple_SET_ITEM(results.py(), i, Py_NewRef(outs[i]));
  PyObject* args[4] = {reinterpret_cast<PyObject*>(call.op), values.py(), results.py(), needs.py()};
  Ref made;
  {
    ModeScope off(mode & ~(kGrad | kRecords | kCasting));
    made = checked(PyObject_Vectorcall(hooks.make_backward, args, 4, nullptr));
  }
  if (p->backward_known) return p->backward;
  if (made.py() == Py_None) {
    p->backward_known = true;
    return nullptr;
  }
  PyObject *program, *lists[3];
  int undefined;
  if (!PyArg_ParseTuple(made.py(),
          "O!OOOp;make_backward returns (program, operands, outs, params, undefined) or None",
          ProgramType, &program, &lists[0], &lists[1], &lists[2], &undefined))
    throw PythonError();
  Backward* b = new Backward{1, nullptr, {}, {}, {}, undefined != 0, {}, {}};
  std::vector<int>* into[3] = {&b->operands, &b->outs, &b->params};
  const int bounds[3] = {call.tensors.size(), nouts, call.op->nparams};
  try {
    for (int k = 0; k < 3; k++) {
      Ref list = checked(PySequence_Tuple(lists[k]));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.py()); i++) {
        long v = PyLong_AsLong(PyTuple_GET_ITEM(list.py(), i));
        if (v == -1 && PyErr_Occurred()) throw PythonError();
        if (v < 0 || v >= bounds[k])
          raise(PyExc_IndexError, "[%s] make_backward saves number %ld of %d", call.op->text, v,
              bounds[k]);
        into[k]->push_back(static_cast<int>(v));
      }
    }
  } catch (...) {
    delete b;
    throw;
  }
  b->program = reinterpret_cast<Program*>(Py_NewRef(program));
  keep_window(b, call);
  p->backward = b;
  p->backward_known = true;
  return b;
}

Program* backward_part(Backward* b, uint64_t wanted) {
  auto known = [&]() -> Program* {
    for (auto& [bits, program] : b->parts)
      if (bits == wanted) return program;
    return nullptr;
  };
  if (wanted == kEvery || !hooks.make_part) return b->program;
  if (Program* p = known()) return p;
  Ref bits = checked(PyLong_FromUnsignedLongLong(wanted)), made;
  PyObject* args[2] = {reinterpret_cast<PyObject*>(b->program), bits.py()};
  {
    ModeScope off(mode & ~(kGrad | kRecords | kCasting));
    made = checked(PyObject_Vectorcall(hooks.make_part, args, 2, nullptr));
  }
  if (Py_TYPE(made.py()) != ProgramType)
    raise(PyExc_TypeError, "make_part returns a Program, got %s", Py_TYPE(made.py())->tp_name);
  if (Program* p = known()) return p;  // another thread's
  b->parts.emplace_back(wanted, reinterpret_cast<Program*>(made.release()));
  return b->parts.back().second;
}

void backward_drop(Backward* b) {
  if (--b->refs) return;
  for (auto& part : b->parts) Py_DECREF(reinterpret_cast<PyObject*>(part.second));
  Py_DECREF(reinterpret_cast<PyObject*>(b->program));
  for (PyObject* o : b->window) Py_DECREF(o);
  delete b;
}

void plan_free(Plan* p) {
  for (Layout* l : p->outs)
    if (l) rl::decref(l);
  for (Layout* l : p->layouts) rl::decref(l);
  for (Layout* l : p->copies) rl::decref(l);
  std::free(p->loop);
  if (p->gemm) rl::gemm_free(p->gemm);
  delete p->memo;
  if (p->steps) steps_drop(p->steps);
  if (p->functional) decref(p->functional);
  if (p->backward) backward_drop(p->backward);
  for (PyObject* o : p->held) Py_DECREF(o);
  Py_XDECREF(reinterpret_cast<PyObject*>(p->recipe));
  Py_XDECREF(reinterpret_cast<PyObject*>(p->program));
  Py_XDECREF(reinterpret_cast<PyObject*>(p->gemm_recipe));
  Py_XDECREF(reinterpret_cast<PyObject*>(p->routine));
  Py_XDECREF(reinterpret_cast<PyObject*>(p->assembly));
  delete p;
}

std::string plan_text(const Plan* p) {
  switch (p->kind) {
    case PlanKind::Gemm: return rl::gemm_library(p->gemm);
    case PlanKind::Routine: return p->routine->routine->name;
    case PlanKind::Program: return "program";
    case PlanKind::Assembly: return "assembly";
    case PlanKind::Device: return p->device->text();
    case PlanKind::Write:
      if (p->direct) return plan_text(p->functional);
      if (p->gemm) return rl::gemm_library(p->gemm);
      if (p->device) return p->device->text();
      return p->loop ? p->recipe->recipe.kernel->key : plan_text(p->functional) + ", copied";
    case PlanKind::View: return "view";
    default: return p->recipe->recipe.kernel->key;
  }
}

namespace {

PyObject* stats(PyObject*, PyObject*) {
  const Cache& c = cache();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "plans",
      static_cast<long long>(c.count), "hits", static_cast<long long>(c.hits), "misses",
      static_cast<long long>(c.misses), "evicted", static_cast<long long>(c.evicted), "recipes",
      static_cast<long long>(recipes().size()), "layouts",
      static_cast<long long>(rl::layout_count()), "nodes", static_cast<long long>(live_nodes),
      "limit", static_cast<long long>(c.limit));
}
PyObject* clear(PyObject*, PyObject*) {
  Recipes old;
  old.swap(recipes());
  for (auto& r : old) {
    Py_DECREF(r.second.object);
    for (PyObject* o : r.second.held) Py_DECREF(o);
  }
  shrink(0);
  plan_epoch++;
  Cache& c = cache();
  c.hits = c.misses = c.evicted = 0;
  Py_RETURN_NONE;
}
PyObject* limit(PyObject*, PyObject* n) {
  long v = PyLong_AsLong(n);
  if (v == -1 && PyErr_Occurred()) return nullptr;
  if (v < 1) return PyErr_Format(PyExc_ValueError, "plan_limit takes a positive count, got %ld", v);
  cache().limit = v;
  shrink(v);
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef plan_functions[] = {
    {"plan_stats", stats, METH_NOARGS,
        "counts of plans, hits, misses, evicted, recipes, layouts, nodes"},
    {"plan_clear", clear, METH_NOARGS, "forgets all plans and recipes, and the counts"},
    {"plan_limit", limit, METH_O, "at most so many plans; the least recently used go first"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
