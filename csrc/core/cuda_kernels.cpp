// Kernels on the GPU: those that core launches itself, found by key, and loop plans queued.
// Invariant: everything queued goes to the current stream of its device; nothing here waits.
#include <unordered_map>

#include "cuda.h"
#include "dtype.h"
#include "rt/cuda_memory.h"

namespace core {

using rl::cuda::DeviceKernel;

namespace {

// ---- kernels that core itself launches: copies, conversions, fills, sums

PyObject* kernel_finder = nullptr;  // (key, device) -> DeviceKernel or None

struct Found {
  PyObject* object;  // owned: a DeviceKernel, or None
};
std::unordered_map<std::string, Found>& found_kernels() {
  static auto* all = new std::unordered_map<std::string, Found>;
  return *all;
}

// Loops of those kernels, by layouts; forgotten when there are too many.
struct LoopKey {
  const DeviceKernel* kernel;
  const Layout *a, *b, *out;
  bool operator==(const LoopKey& o) const {
    return kernel == o.kernel && a == o.a && b == o.b && out == o.out;
  }
};
struct LoopHash {
  size_t operator()(const LoopKey& k) const {
    size_t h = 0;
    for (const void* p : {static_cast<const void*>(k.kernel), static_cast<const void*>(k.a),
             static_cast<const void*>(k.b), static_cast<const void*>(k.out)})
      h = (h ^ reinterpret_cast<size_t>(p)) * 0x9E3779B97F4A7C15ull;
    return h;
  }
};
struct Loops {
  std::unordered_map<LoopKey, rl::LoopPlan*, LoopHash> plans;
  void clear() {
    for (auto& [key, plan] : plans) {
      for (const Layout* l : {key.a, key.b, key.out})
        if (l) rl::decref(const_cast<Layout*>(l));
      std::free(plan);
    }
    plans.clear();
  }
};
Loops& loops() {
  static Loops* all = new Loops;
  return *all;
}

PyObject* set_finder(PyObject*, PyObject* finder) {
  return guarded([&] {
    if (finder != Py_None && !PyCallable_Check(finder))
      raise(PyExc_TypeError, "a finder is called with (key, device)");
    cuda_forget_kernels();
    Py_XSETREF(kernel_finder, finder == Py_None ? nullptr : Py_NewRef(finder));
    return Py_NewRef(Py_None);
  });
}

}  // namespace

// An elementwise kernel from operands to a given output.
void cuda_elementwise(
    DeviceKernel* kernel, Tensor* const* operands, int n, Tensor* out, const Number* numbers) {
  const LoopKey key{
      kernel, operands[0]->layout, n > 1 ? operands[1]->layout : nullptr, out->layout};
  auto at = loops().plans.find(key);
  if (at == loops().plans.end()) {
    if (loops().plans.size() >= 4096) loops().clear();
    rl::Recipe r = {};
    r.kernel = kernel;
    r.rule = rl::Rule::Broadcast;
    r.ninputs = n;
    r.noutputs = 1;
    r.out_dtype[0] = out->layout->dtype;
    Layout *inputs[2] = {operands[0]->layout, n > 1 ? operands[1]->layout : nullptr},
           *outs[rl::kMaxOutputs];
    rl::LoopPlan* plan = rl::loop_plan(kernel->key, r, inputs, &out->layout, nullptr, 0, outs);
    rl::decref(outs[0]);
    for (const Layout* l : {key.a, key.b, key.out})
      if (l) rl::incref(const_cast<Layout*>(l));
    at = loops().plans.emplace(key, plan).first;
  }
  cuda_loop(kernel->key, at->second, operands, n, &out, 1, numbers);
}

// No variant takes these addresses: what does not begin at a multiple of 16 goes through memory
// that does. Excess loops that ran before are run again.
static void run_aligned(const char* op, const rl::LoopPlan* loop, int device,
    Tensor* const* tensors, int ninputs, Tensor* const* outs, int nouts, void** pointers,
    const Number* numbers) {
  constexpr int kAligned = 16, kMost = rl::kMaxInputs + rl::kMaxOutputs;
  struct Moved {
    Storage* storage = nullptr;
    char *here = nullptr, *there = nullptr;
    int64_t bytes = 0;
    ~Moved() {
      if (storage) rl::decref(storage);
    }
  } moved[kMost];
  for (int i = 0; i < ninputs + nouts; i++) {
    if (reinterpret_cast<uintptr_t>(pointers[i]) % kAligned == 0) continue;
    const Tensor* t = i < ninputs ? tensors[i] : outs[i - ninputs];
    int64_t low, high;
    rl::layout_extent(t->layout, &low, &high);
    const int size = rl::itemsize(t->layout->dtype);
    Moved& m = moved[i];
    m.bytes = (high - low) * size;
    // so that the first element is aligned
    const int64_t shift = (low * size % kAligned + kAligned) % kAligned;
    m.storage = rl::cuda::memory_alloc(device, m.bytes + kAligned);
    m.storage->device = t->layout->device;
    m.here = static_cast<char*>(pointers[i]) + low * size;
    m.there = static_cast<char*>(m.storage->data) + shift;
    rl::cuda::copy_on_device(device, m.there, m.here, m.bytes);
    pointers[i] = m.there - low * size;
  }
  if (!rl::cuda::device_run(op, loop, device, pointers, numbers))
    fail(ErrorKind::NotImplemented, "[%s] kernel %s has no variant for this call", op,
        loop->kernel->key);
  for (int i = ninputs; i < ninputs + nouts; i++)
    if (moved[i].bytes)
      rl::cuda::copy_on_device(device, moved[i].here, moved[i].there, moved[i].bytes);
}

void cuda_loop(const char* op, const rl::LoopPlan* loop, Tensor* const* tensors, int ninputs,
    Tensor* const* outs, int nouts, const Number* numbers) {
  void* pointers[rl::kMaxInputs + rl::kMaxOutputs];
  const Layout* first = nouts ? outs[0]->layout : tensors[0]->layout;
  for (int i = 0; i < ninputs + nouts; i++) {
    Tensor* t = i < ninputs ? tensors[i] : outs[i - ninputs];
    if (t->layout->device != first->device || !on_cuda(t->layout))
      raise(PyExc_RuntimeError,
          "[%s] a kernel of the GPU takes tensors on one CUDA device, got %s and %s", op,
          device_name(first->device).c_str(), device_name(t->layout->device).c_str());
    pointers[i] = data_of(t);
  }
  const int device = cuda_index(first);
  if (loop->zero_out)
    for (int i = 0; i < nouts; i++)
      rl::cuda::fill_zero(device, pointers[ninputs + i], bytes_of(outs[i]->layout));
  if (!rl::cuda::device_run(op, loop, device, pointers, numbers))
    run_aligned(op, loop, device, tensors, ninputs, outs, nouts, pointers, numbers);
}

DeviceKernel* cuda_kernel(const std::string& key, int device) {
  if (!kernel_finder) return nullptr;
  const std::string name = key + "@" + std::to_string(device);
  auto at = found_kernels().find(name);
  if (at == found_kernels().end()) {
    ModeScope plain(mode & ~(kDispatch | kRecords));
    Ref made = checked(PyObject_CallFunction(kernel_finder, "si", key.c_str(), device));
    if (made.py() != Py_None && !is_device_kernel(made.py()))
      raise(PyExc_TypeError, "the finder of kernels returned %s for %s",
          Py_TYPE(made.py())->tp_name, key.c_str());
    at = found_kernels().emplace(name, Found{made.release()}).first;
  }
  return at->second.object == Py_None ? nullptr : device_kernel_of(at->second.object);
}

void cuda_forget_kernels() {
  loops().clear();
  auto old = std::move(found_kernels());
  found_kernels().clear();
  for (auto& [key, found] : old) Py_DECREF(found.object);
}

PyMethodDef cuda_runtime_functions[] = {
    {"cuda_set_finder", set_finder, METH_O,
        "set_finder(f): f(key, device) gives core the kernels it launches itself, or None"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
