// Plans of calls on a GPU: generated kernels, libraries, and what runs on the host instead.
// Invariant: everything queued for a call goes to the current stream of its device.
#include "convert.h"
#include "cuda.h"
#include "dtype.h"
#include "operator.h"
#include "plan.h"
#include "rt/cublas.h"
#include "rt/cuda_ahead.h"
#include "rt/cuda_memory.h"
#include "rt/cudnn.h"

namespace core {

using rl::cuda::DeviceKernel;

bool cuda_pads_every_product = false;

namespace {

struct NumbersOf {
  Number values[kNumbers];
  NumbersOf(const RecipeObject* r, PyObject* const* bound) {
    for (int i = 0; i < r->nnumbers; i++)
      values[i] = number_from(bound[r->numbers[i].param], r->numbers[i].how);
  }
};

// Layouts that rt made for operands without a device (full, arange) go to the call's.
void place_outs(Plan* p, Device device) {
  for (int i = 0; i < p->nouts; i++) {
    Layout* l = p->outs[i];
    if (l->device == device) continue;
    p->outs[i] = on_device(l, device, l->dtype);
    rl::decref(l);
  }
}

struct LeafPlan : DevicePlan {
  Own<RecipeObject> recipe;
  rl::LoopPlan* loop = nullptr;
  std::vector<Layout*> copies;  // owned; where operands lie in no loops of the kernel
  // for which the loops are right, where sizes come at run time
  std::vector<int64_t> sizes;

  ~LeafPlan() override {
    std::free(loop);
    for (Layout* l : copies) rl::decref(l);
  }
  void run(Plan*, Call& call, Tensor* const* outs) override {
    const rl::Recipe& r = recipe->recipe;
    NumbersOf numbers(recipe.get(), call.values);
    Own<Tensor> changed[rl::kMaxInputs];
    Tensor* operands[rl::kMaxInputs];
    for (int i = 0; i < r.ninputs; i++) {
      operands[i] = call.tensors[i];
      if (copies.empty() || operands[i]->layout == copies[i]) continue;
      rl::incref(copies[i]);
      changed[i] = tensor_empty(copies[i]);
      cuda_copy_within(changed[i].get(), operands[i]);
      operands[i] = changed[i].get();
    }
    cuda_loop(call.op->text, loop, operands, r.ninputs, outs, r.noutputs, numbers.values);
  }
  std::string text() const override { return recipe->recipe.kernel->key; }
  bool sized() const {
    const rl::Rule rule = recipe->recipe.rule;
    return rule == rl::Rule::Sized || rule == rl::Rule::IntoTable;
  }
  void prepare(Plan* p, Call& call) override {
    if (!sized()) return;
    Small<int64_t, 8> now;
    read_ints(call.op->text, call.values[recipe->sizes], now);
    if (!std::equal(sizes.begin(), sizes.end(), now.data(), now.data() + now.size())) plan(p, call);
  }
  // Loops and the outputs' layouts.
  void plan(Plan* p, Call& call) {
    const rl::Recipe& r = recipe->recipe;
    Small<int64_t, 8> now;
    if (sized()) read_ints(call.op->text, call.values[recipe->sizes], now);
    Layout *inputs[rl::kMaxInputs], *outs[rl::kMaxOutputs];
    for (int i = 0; i < r.ninputs; i++) inputs[i] = call.tensors[i]->layout;
    rl::LoopPlan* made;
    try {
      made = rl::loop_plan(call.op->text, r, copies.empty() ? inputs : copies.data(), nullptr,
          now.data(), now.size(), outs);
    } catch (const rl::Error& e) {
      if (e.kind != ErrorKind::NotImplemented || !copies.empty()) throw;
      plan_copy_targets(r, call, copies);
      made = rl::loop_plan(call.op->text, r, copies.data(), nullptr, now.data(), now.size(), outs);
    }
    std::free(std::exchange(loop, made));
    sizes.assign(now.data(), now.data() + now.size());
    for (int i = 0; i < r.noutputs; i++) {
      if (p->outs[i]) rl::decref(p->outs[i]);
      p->outs[i] = outs[i];
    }
    p->nouts = r.noutputs;
    place_outs(p, call.device);
  }
  std::shared_ptr<DevicePlan> into(Plan*, Call& call, Tensor* const* outs, int nouts) override {
    if (!copies.empty() || sized()) return nullptr;
    auto made = std::make_shared<LeafPlan>();
    made->recipe = recipe;
    made->elementwise = elementwise;
    Layout *inputs[rl::kMaxInputs], *given[rl::kMaxOutputs], *results[rl::kMaxOutputs];
    for (int i = 0; i < call.tensors.size(); i++) inputs[i] = call.tensors[i]->layout;
    for (int i = 0; i < nouts; i++) given[i] = outs[i]->layout;
    try {
      made->loop = rl::loop_plan(call.op->text, recipe->recipe, inputs, given, nullptr, 0, results);
    } catch (const rl::Error& e) {
      if (e.kind != ErrorKind::NotImplemented) throw;
      return nullptr;
    }
    for (int i = 0; i < nouts; i++) rl::decref(results[i]);
    return made;
  }
};

std::shared_ptr<LeafPlan> leaf_plan(Plan* p, Call& call, RecipeObject* recipe) {
  const rl::Recipe& r = recipe->recipe;
  auto made = std::make_shared<LeafPlan>();
  made->recipe = Own<RecipeObject>::borrow(recipe);
  made->elementwise = r.rule == rl::Rule::Broadcast;
  if (r.ninputs != call.tensors.size())
    raise(PyExc_RuntimeError, "[%s] the recipe for %s takes %d tensors, the call has %d",
        call.op->text, r.kernel->key, r.ninputs, call.tensors.size());
  if (r.ninputs) plan_check_rows(r, call.op->text, call.tensors[0]->layout);
  made->plan(p, call);
  return made;
}

// The same call on copies of its operands on the host; its outputs go back.
struct HostPlan : DevicePlan {
  std::string what;
  std::shared_ptr<LeafPlan> leaf;  // whose layouts the outputs have; null: fixed ones
  void prepare(Plan* p, Call& call) override {
    if (leaf) leaf->prepare(p, call);
  }
  void run(Plan* p, Call& call, Tensor* const* outs) override {
    rl::cuda::run_counts().fallbacks++;
    WaitName name(call.op->text);
    const int n = call.op->nparams;
    PyObject* values[kMaxParams];
    std::vector<Ref> kept;
    const auto moved = [&](PyObject* o) -> PyObject* {
      if (!is_tensor(o)) return o;
      Tensor* t = tensor_of(o);
      Own<Tensor> here = dense_on(t->layout, Device::CPU, t->layout->dtype);
      copy_into(here.get(), t);
      kept.push_back(Ref(here.release_object()));
      return kept.back().py();
    };
    for (int i = 0; i < n; i++) {
      PyObject* o = call.values[i];
      if (call.op->params[i].kind == ParamKind::Tensors && o != Py_None) {
        Ref list = checked(PySequence_Tuple(o)),
            made = checked(PyTuple_New(PyTuple_GET_SIZE(list.py())));
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list.py()); k++)
          PyTuple_SET_ITEM(made.py(), k, Py_NewRef(moved(PyTuple_GET_ITEM(list.py(), k))));
        kept.push_back(std::move(made));
        values[i] = kept.back().py();
      } else {
        values[i] = moved(o);
      }
    }
    Ref result;
    {
      ModeScope off(mode & ~(kGrad | kCasting | kRecords));
      CreationScope host(Device::CPU);
      result = operator_apply(call.op, values, n);
    }
    for (int i = 0; i < p->nouts; i++) {
      PyObject* o = PyTuple_Check(result.py()) ? PyTuple_GET_ITEM(result.py(), i) : result.py();
      copy_into(outs[i], tensor_of(o));
    }
  }
  std::string text() const override { return what + ", on the host"; }
  std::shared_ptr<DevicePlan> into(Plan*, Call&, Tensor* const*, int) override {
    return leaf && leaf->sized() ? nullptr : std::make_shared<HostPlan>(*this);
  }
};

std::shared_ptr<DevicePlan> host_plan(std::string what, std::shared_ptr<LeafPlan> leaf = nullptr) {
  auto made = std::make_shared<HostPlan>();
  made->what = std::move(what);
  made->leaf = std::move(leaf);
  return made;
}

// What the library's fast kernels for half types take: sizes that are multiples of 8. Others run at a
// seventh of the speed, or less (measured on an H200), so that products large enough go through
// copies with room behind each dim; `copied`: the elements that this moves.
constexpr int64_t kEven = 8;
int64_t even(int64_t n) { return (n + kEven - 1) / kEven * kEven; }
bool worth_padding(DType dtype, int64_t b, int64_t m, int64_t k, int64_t n) {
  if (!(m && k && n) || rl::itemsize(dtype) != 2 || (m % kEven == 0 && k % kEven == 0 && n % kEven == 0)) return false;
  if (cuda_pads_every_product) return true;
  const double all = static_cast<double>(b);
  const double copied = all * ((m % kEven || k % kEven ? static_cast<double>(m) * static_cast<double>(k) : 0) +
                               (k % kEven || n % kEven ? static_cast<double>(k) * static_cast<double>(n) : 0) +
                               (m % kEven || n % kEven ? static_cast<double>(m) * static_cast<double>(n) : 0));
  const double saved = 1.7e-14 * all * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  return saved > 2 * (1.4e-12 * copied + 2e-5);        // seconds: of arithmetic, of copying and launching
}

// A copy of an operand with room behind its dims.
struct Padded {
  Layout *whole = nullptr, *inner = nullptr, *tail = nullptr;  // owned; tail: zeros, of the dim that is summed over
  int64_t tail_offset = 0;

  Padded() = default;
  Padded(const Padded& o) : whole(o.whole), inner(o.inner), tail(o.tail), tail_offset(o.tail_offset) {
    for (Layout* l : {whole, inner, tail})
      if (l) rl::incref(l);
  }
  Padded& operator=(Padded o) {
    std::swap(whole, o.whole);
    std::swap(inner, o.inner);
    std::swap(tail, o.tail);
    std::swap(tail_offset, o.tail_offset);
    return *this;
  }
  ~Padded() {
    for (Layout* l : {whole, inner, tail})
      if (l) rl::decref(l);
  }
  explicit operator bool() const { return whole; }

  // In the order of l's dims in memory where the library takes that; `summed`: the dim whose room holds zeros, or -1.
  static Padded of(const Layout* l, const int64_t* sizes, int summed) {
    const int nd = l->ndim;
    const bool columns = nd > 1 && l->strides()[nd - 1] != 1 && l->strides()[nd - 2] == 1;
    int64_t strides[3] = {};
    int64_t step = 1;
    for (int i = nd - 1; i >= 0; i--) {
      const int d = columns && i >= nd - 2 ? 2 * nd - 3 - i : i;
      strides[d] = step;
      step *= sizes[d];
    }
    Padded p;
    p.whole = rl::layout_intern(l->dtype, l->device, nd, sizes, strides);
    p.inner = rl::layout_intern(l->dtype, l->device, nd, l->shape(), strides);
    if (summed < 0 || sizes[summed] == l->dims[summed]) return p;
    int64_t left[3];
    std::copy(l->shape(), l->shape() + nd, left);
    left[summed] = sizes[summed] - l->dims[summed];
    p.tail = rl::layout_intern(l->dtype, l->device, nd, left, strides);
    p.tail_offset = l->dims[summed] * strides[summed];
    return p;
  }
  static Own<Tensor> part(Tensor* t, Layout* l, int64_t offset) {
    rl::incref(t->storage);
    rl::incref(l);
    return tensor_make(t->storage, l, t->offset + offset);
  }
  Own<Tensor> empty() const {
    rl::incref(whole);
    return tensor_empty(whole);
  }
  void fill(Tensor* made, Tensor* from) const {
    Own<Tensor> place = part(made, inner, 0);
    cuda_copy_within(place.get(), from);
    if (!tail) return;
    Own<Tensor> behind = part(made, tail, tail_offset);
    Ref zero = checked(PyLong_FromLong(0));
    cuda_fill(behind.get(), zero.py());
  }
};

struct GemmPlan : DevicePlan {
  int params[3], alpha, beta;
  std::shared_ptr<rl::cuda::DeviceGemm> gemm;
  Padded copies[3];          // empty: taken as it lies
  Padded target;             // what the library writes, where that is not the output

  static Layout* operand(const Call& call, int param) {
    return param < 0 || call.values[param] == Py_None ? nullptr
                                                      : tensor_of(call.values[param])->layout;
  }
  void prepare(const Call& call, Layout* out) {
    Layout *x = operand(call, params[0]), *y = operand(call, params[1]), *bias = operand(call, params[2]);
    const int nd = x->ndim, row = nd - 2, column = nd - 1;
    const int64_t b = nd == 3 ? x->dims[0] : 1, m = x->dims[row], k = x->dims[column], n = y->dims[column];
    const bool pads = worth_padding(x->dtype, b, m, k, n);
    const int64_t rows = pads ? even(m) : m, sum = pads ? even(k) : k, columns = pads ? even(n) : n;
    for (Padded& copy : copies) copy = Padded();
    const auto taken = [&](int i, Layout* l, int64_t down, int64_t across, int summed) {
      if (rl::gemm_takes(l) && l->dims[row] == down && l->dims[column] == across) return l;
      int64_t sizes[3] = {b, b, b};
      sizes[row] = down;
      sizes[column] = across;
      copies[i] = Padded::of(l, sizes, summed);
      return copies[i].whole;
    };
    x = taken(0, x, rows, sum, column);
    y = taken(1, y, sum, columns, row);
    if (bias && bias->ndim && columns != n && bias->numel == n && bias->dims[bias->ndim - 1] == n) {
      int64_t sizes[3] = {1, 1, 1};                    // a row that is added to every row
      sizes[bias->ndim - 1] = columns;
      copies[2] = Padded::of(bias, sizes, -1);
      bias = copies[2].whole;
    }
    target = Padded();
    if (rows != m || columns != n) {
      int64_t sizes[3] = {b, b, b};
      sizes[row] = rows;
      sizes[column] = columns;
      target = Padded::of(out, sizes, -1);
    }
    gemm = rl::cuda::device_gemm(call.op->text, x, y, bias, target ? target.whole : out);
  }
  void run(Plan*, Call& call, Tensor* const* outs) override {
    Own<Tensor> changed[3];
    void* pointers[3] = {};
    for (int i = 0; i < 3; i++) {
      if (!operand(call, params[i])) continue;
      Tensor* t = tensor_of(call.values[params[i]]);
      if (copies[i] && t->layout != copies[i].whole) {
        changed[i] = copies[i].empty();
        copies[i].fill(changed[i].get(), t);
        t = changed[i].get();
      }
      pointers[i] = data_of(t);
    }
    const double a = alpha < 0 ? 1.0 : number_from(call.values[alpha], 'f').f;
    const double b = beta < 0 ? 1.0 : number_from(call.values[beta], 'f').f;
    Own<Tensor> apart, inside;
    if (target) {
      apart = target.empty();
      inside = Padded::part(apart.get(), target.inner, 0);
    }
    Tensor* out = target ? apart.get() : outs[0];
    // A bias that the library cannot broadcast itself is laid into the output first.
    if (pointers[2] && rl::cuda::device_gemm_lays_bias(gemm.get(), b)) {
      if (b != 0) cuda_copy_within(target ? inside.get() : out, tensor_of(call.values[params[2]]));
      pointers[2] = data_of(out);
    }
    rl::cuda::run_counts().library++;
    rl::cuda::device_gemm_run(gemm.get(), cuda_index(outs[0]->layout), pointers[0], pointers[1],
        pointers[2], data_of(out), a, b);
    if (target) cuda_copy_within(outs[0], inside.get());
  }
  std::string text() const override { return "cublasLt matmul"; }
  std::shared_ptr<DevicePlan> into(Plan*, Call& call, Tensor* const* outs, int) override {
    if (!rl::gemm_takes(outs[0]->layout)) return nullptr;
    const Layout* l = outs[0]->layout;
    if (l->ndim && l->strides()[l->ndim - 1] != 1) return nullptr;
    auto made = std::make_shared<GemmPlan>(*this);
    made->prepare(call, outs[0]->layout);
    return made;
  }
};

std::shared_ptr<DevicePlan> gemm_plan(Plan* p, Call& call, GemmRecipeObject* g) {
  auto made = std::make_shared<GemmPlan>();
  const int params[3] = {g->x, g->y, g->bias};
  std::copy(params, params + 3, made->params);
  made->alpha = g->alpha;
  made->beta = g->beta;
  const Layout *x = GemmPlan::operand(call, g->x), *y = GemmPlan::operand(call, g->y);
  if (!x || !y || x->ndim < 2 || x->ndim > 3 || y->ndim != x->ndim)
    raise(PyExc_RuntimeError, "[%s] a GemmRecipe takes two matrices or two batches of matrices",
        call.op->text);
  int64_t shape[3];
  const int nd = x->ndim;
  for (int i = 0; i < nd - 1; i++) shape[i] = x->dims[i];
  shape[nd - 1] = y->dims[nd - 1];
  const DType dtype = g->out_dtype < 0 ? x->dtype : static_cast<DType>(g->out_dtype);
  p->nouts = 1;
  p->outs[0] = rl::layout_dense(dtype, call.device, nd, shape);
  // The library takes no empty matrices: a sum over nothing is the bias alone.
  if (!rl::cuda::device_gemm_takes(x->dtype, dtype) || (p->outs[0]->numel && !x->dims[nd - 1]))
    return host_plan("matrix product");
  made->prepare(call, p->outs[0]);
  return made;
}

struct AssemblyPlan : DevicePlan {
  Own<AssemblyRecipeObject> recipe;
  void run(Plan*, Call& call, Tensor* const* outs) override {
    for (const AssemblyPiece& piece : *recipe->pieces) {
      if (!piece.place->numel) continue;
      rl::incref(outs[0]->storage);
      Own<Tensor> place = tensor_make(outs[0]->storage,
          on_device(piece.place, call.device, piece.place->dtype), outs[0]->offset + piece.offset);
      if (piece.operand < 0)
        cuda_fill(place.get(), piece.number);
      else
        cuda_copy_within(place.get(), call.tensors[piece.operand]);
    }
  }
  std::string text() const override { return "assembly"; }
};

struct ConvolutionPlan : DevicePlan {
  Own<RoutineRecipeObject> recipe;
  std::shared_ptr<rl::cuda::DeviceConvolution> convolution;
  void run(Plan*, Call& call, Tensor* const* outs) override {
    rl::cuda::run_counts().library++;
    Own<Tensor> changed[3];
    void* pointers[3] = {};
    for (int i = 0; i < call.tensors.size() && i < 3; i++) {
      Tensor* t = call.tensors[i];
      Layout* wanted = rl::cuda::device_convolution_layout(convolution.get(), i);
      if (wanted && t->layout != wanted) {
        rl::incref(wanted);
        changed[i] = tensor_empty(wanted);
        cuda_copy_within(changed[i].get(), t);
        t = changed[i].get();
      }
      pointers[i] = data_of(t);
    }
    rl::cuda::device_convolution_run(
        convolution.get(), cuda_index(outs[0]->layout), pointers, data_of(outs[0]));
  }
  std::string text() const override { return "cudnn convolution"; }
};

// A kernel that takes whole operands: it is told their sizes and strides, four of each a buffer.
struct TemplatePlan : DevicePlan {
  static constexpr int kDims = 4;
  Own<RoutineRecipeObject> recipe;
  std::vector<int64_t> n;
  bool empty = false;

  DeviceKernel* kernel() const { return device_kernel_of(recipe->kernel); }
  void describe(const char* op, const Layout* l) {
    if (l->ndim > kDims)
      raise(PyExc_RuntimeError, "[%s] kernel %s takes up to %d dims, got %d", op, kernel()->key,
          kDims, l->ndim);
    n.insert(n.end(), static_cast<size_t>(kDims - l->ndim), 1);
    n.insert(n.end(), l->shape(), l->shape() + l->ndim);
    n.insert(n.end(), static_cast<size_t>(kDims - l->ndim), 0);
    n.insert(n.end(), l->strides(), l->strides() + l->ndim);
  }
  void run(Plan*, Call& call, Tensor* const* outs) override {
    if (empty) return;
    void* pointers[rl::kMaxInputs + rl::kMaxOutputs];
    const int inputs = call.tensors.size();
    for (int i = 0; i < inputs; i++) pointers[i] = data_of(call.tensors[i]);
    for (int i = 0; i < recipe->nouts; i++) pointers[inputs + i] = data_of(outs[i]);
    Number numbers[kNumbers];
    for (size_t i = 0; i < recipe->numbers->size(); i++) {
      const NumberSlot& slot = (*recipe->numbers)[i];
      numbers[i] = number_from(call.values[slot.param], slot.how);
    }
    const int device = cuda_index(outs[0]->layout);
    if (!rl::cuda::device_launch(call.op->text, kernel(), device, n.data(), pointers, numbers))
      fail(ErrorKind::NotImplemented, "[%s] kernel %s has no variant for this call",
          call.op->text, kernel()->key);
  }
  std::string text() const override { return kernel()->key; }
};

std::shared_ptr<DevicePlan> template_plan(Plan* p, Call& call, RoutineRecipeObject* r) {
  auto made = std::make_shared<TemplatePlan>();
  made->recipe = Own<RoutineRecipeObject>::borrow(r);
  const DeviceKernel* k = made->kernel();
  if (k->inputs != call.tensors.size() || k->outputs != r->nouts ||
      k->KernelEntry::numbers != static_cast<int>(r->numbers->size()) ||
      k->outer != 2 * TemplatePlan::kDims)
    raise(PyExc_RuntimeError,
        "[%s] kernel %s takes %d tensors and %d numbers and gives %d; the call has %d, %zu and %d",
        call.op->text, k->key, k->inputs, k->KernelEntry::numbers, k->outputs, call.tensors.size(),
        r->numbers->size(), r->nouts);
  for (int i = 0; i < call.tensors.size(); i++)
    made->describe(call.op->text, call.tensors[i]->layout);
  for (int i = 0; i < r->nouts; i++) {
    made->describe(call.op->text, p->outs[i]);
    made->empty |= p->outs[i]->numel == 0;
  }
  return made;
}

std::shared_ptr<DevicePlan> routine_plan(Plan* p, Call& call, RoutineRecipeObject* r) {
  p->nouts = r->nouts;
  for (int i = 0; i < r->nouts; i++)
    p->outs[i] = on_device(r->outs[i], call.device, r->outs[i]->dtype);
  if (r->kernel) return template_plan(p, call, r);
  const std::string name = r->routine->name;
  if (name == "convolution" && rl::cuda::cudnn().missing().empty() && call.tensors.size() <= 3) {
    const Layout* in[3] = {};
    for (int i = 0; i < call.tensors.size(); i++) in[i] = call.tensors[i]->layout;
    auto made = std::make_shared<ConvolutionPlan>();
    made->recipe = Own<RoutineRecipeObject>::borrow(r);
    made->convolution = rl::cuda::device_convolution(call.op->text, in, call.tensors.size(),
        p->outs[0], r->ints->data(), static_cast<int>(r->ints->size()));
    if (made->convolution) return made;
  }
  return host_plan(name);
}

std::shared_ptr<DevicePlan> runtime_plan(Plan* p, Call& call, PyObject* made) {
  PyTypeObject* type = Py_TYPE(made);
  if (type == RecipeType || type == FusedKernelType) {
    auto* r = reinterpret_cast<RecipeObject*>(made);
    auto plan = leaf_plan(p, call, r);
    if (r->recipe.kernel->fn) return host_plan(r->recipe.kernel->key, plan);
    return plan;
  }
  if (type == GemmRecipeType) return gemm_plan(p, call, reinterpret_cast<GemmRecipeObject*>(made));
  if (type == RoutineRecipeType)
    return routine_plan(p, call, reinterpret_cast<RoutineRecipeObject*>(made));
  if (type == AssemblyRecipeType) {
    auto plan = std::make_shared<AssemblyPlan>();
    plan->recipe = Own<AssemblyRecipeObject>::borrow(reinterpret_cast<AssemblyRecipeObject*>(made));
    const Layout* out = plan->recipe->out;
    p->nouts = 1;
    p->outs[0] = on_device(out, call.device, out->dtype);
    return plan;
  }
  return nullptr;
}

Storage* runtime_alloc(Device device, int64_t nbytes) {
  if (Storage* shared = cuda_shared_alloc(device, nbytes)) return shared;
  Storage* s = rl::cuda::memory_alloc(rl::device_index(device), nbytes);
  s->device = device;
  return s;
}

}  // namespace

// A floating matrix on a GPU: there will be products.
static void matrix_made(const Layout* l) {
  if (!on_cuda(l) || !rl::is_floating(l->dtype)) return;
  device_matrix_made = nullptr;
  rl::cuda::ahead_begin(cuda_index(l));
}

void cuda_register() {
  rl::device_memory_register(rl::DeviceType::CUDA, {runtime_alloc, rl::cuda::memory_free});
  device_runtime_register(rl::DeviceType::CUDA,
      {runtime_plan, cuda_copy, cuda_fill, cuda_add, rl::cuda::current_device});
  device_matrix_made = matrix_made;
  rl::cuda::kernel_error_line(
      [](char* into, size_t room) { std::snprintf(into, room, "%s", user_line().c_str()); });
}

}  // namespace core
