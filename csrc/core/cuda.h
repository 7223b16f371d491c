// The CUDA device in core: kernels as Python objects, the runtime that plans and runs calls on it,
// and the waits of the host.
#pragma once
#include "core.h"
#include "devices.h"
#include "rt/device_kernel.h"
#include "tensor.h"

namespace core {

struct DeviceKernelObject {
  PyObject_HEAD rl::cuda::DeviceKernel* kernel;  // owned
  PyObject* record;                              // as given
};
extern PyTypeObject* DeviceKernelType;
inline bool is_device_kernel(PyObject* o) { return Py_TYPE(o) == DeviceKernelType; }
inline rl::cuda::DeviceKernel* device_kernel_of(PyObject* o) {
  return reinterpret_cast<DeviceKernelObject*>(o)->kernel;
}

inline bool on_cuda(const Layout* l) { return rl::device_type(l->device) == rl::DeviceType::CUDA; }
inline int cuda_index(const Layout* l) { return rl::device_index(l->device); }

// cuda_kernels.cpp
// A loop plan of a DeviceKernel, queued. Throws where an operand is elsewhere.
void cuda_loop(const char* op, const rl::LoopPlan*, Tensor* const* tensors, int ninputs,
    Tensor* const* outs, int nouts, const Number*);
// By the finder; null: there is none.
rl::cuda::DeviceKernel* cuda_kernel(const std::string& key, int device);
// An elementwise kernel from one or two operands of one shape to a given output.
void cuda_elementwise(
    rl::cuda::DeviceKernel*, Tensor* const* operands, int n, Tensor* out, const Number* numbers);
void cuda_forget_kernels();

// cuda_copies.cpp
inline int64_t bytes_of(const Layout* l) { return l->numel * rl::itemsize(l->dtype); }
inline Layout* on_device(const Layout* l, Device device, DType dtype) {
  return rl::layout_intern(dtype, device, l->ndim, l->shape(), l->strides());
}
Own<Tensor> dense_on(const Layout* like, Device, DType);  // the same order of dims where dense
void cuda_copy_within(Tensor* dst, Tensor* src);          // on one device; src broadcasts
void cuda_copy(Tensor* dst, Tensor* src);
void cuda_fill(Tensor* dst, PyObject* number);
void cuda_add(Tensor* dst, Tensor* src);

// cuda_plans.cpp
void cuda_register();  // the runtime and its allocator, with core and rt

// cuda_waits.cpp
// What the host waits for, as records name it: "item", "bool(tensor)", "tolist", "copy to host".
class WaitName {
 public:
  explicit WaitName(const char* name);
  ~WaitName();
  static const char* now();  // the outermost one, which is the user's
  WaitName(const WaitName&) = delete;

 private:
  const char* saved_;
};
void cuda_wait_allowed();      // throws or warns, as the sync debug mode says
void cuda_waited(int64_t ns);  // records it, with the user's line
// The host waits, without the GIL; kernels' errors are raised. `asked`: cuda_wait_allowed was
// called before.
void cuda_stream_wait(int device, rl::cuda::Stream, bool asked = false);
void cuda_device_wait(int device);
void cuda_event_wait(int device, rl::cuda::Event);
extern bool cuda_pads_every_product;  // for tests: see worth_padding in cuda_plans.cpp
extern __thread bool cuda_non_blocking __attribute__((tls_model("initial-exec")));

class NonBlocking {  // of the copy that is being made
 public:
  explicit NonBlocking(bool on) : saved_(cuda_non_blocking) { cuda_non_blocking = on; }
  ~NonBlocking() { cuda_non_blocking = saved_; }
  NonBlocking(const NonBlocking&) = delete;

 private:
  bool saved_;
};

// cuda_sharing.cpp
// Memory that another library makes for what this thread allocates; null: it is ours.
Storage* cuda_shared_alloc(Device, int64_t nbytes);

extern PyMethodDef cuda_functions[], cuda_wait_functions[], cuda_activity_functions[],
    cuda_sharing_functions[];
void cuda_init(PyObject* module);

}  // namespace core
