// Devices other than the CPU: what a device's runtime registers with core, and where new tensors go.
// Invariant: nothing outside a device's own code reads or writes its memory: kernels of the CPU are
// planned for operands on the CPU alone, and every copy with another device in it comes here.
#pragma once
#include <memory>
#include <string>

#include "core.h"

namespace core {

struct Plan;
struct Call;

// What a device does with one planned call. The outputs' layouts stand in the plan.
struct DevicePlan {
  virtual ~DevicePlan() = default;
  // Outputs that exist already: allocated by core, of the layouts that the plan states (or, from
  // `into`, those that were given there).
  virtual void run(Plan*, Call&, Tensor* const* outs) = 0;
  // Before outputs are allocated: where their layouts depend on run-time sizes, those are put into
  // the Plan.
  virtual void prepare(Plan*, Call&) {}
  virtual std::string text() const = 0;  // for records: which kernel, which library
  // The same call, writing to outputs of these layouts (shapes and dtypes are right); null: by a
  // temporary and a copy.
  virtual std::shared_ptr<DevicePlan> into(Plan*, Call&, Tensor* const*, int) { return nullptr; }
  bool elementwise = false;  // each operand's element is read before that output's is written
};

struct DeviceRuntime {
  // `made` is what Python's make_plan returned, no Program: the plan that runs it, with the outputs'
  // layouts put into the Plan (outs, owned; nouts); null where `made` is of no known type.
  std::shared_ptr<DevicePlan> (*plan)(Plan*, Call&, PyObject* made);
  // One of them at least is on this device; any layouts and dtypes, src broadcasts to dst.
  void (*copy)(Tensor* dst, Tensor* src);
  void (*fill)(Tensor* dst, PyObject* number);
  void (*add)(Tensor* dst, Tensor* src);  // dst += src, both on it; dst may have stride 0: folded
  int (*current)();                       // the index that "cuda" without one means
};
void device_runtime_register(rl::DeviceType, DeviceRuntime);
// Called with the layout of each tensor of two or more dims that is made on a device other than the
// CPU, until it sets this to null: what such a process needs may be begun.
extern void (*device_matrix_made)(const Layout*);
const DeviceRuntime& device_runtime(Device);  // throws where none is registered

// Where tensors go whose calls have no operand that says so: the default device of this thread, or
// the device of the call that is being run. A part of the key of plans without operands.
extern __thread Device creation_device __attribute__((tls_model("initial-exec")));

class CreationScope {
 public:
  explicit CreationScope(Device d) : saved_(creation_device) { creation_device = d; }
  ~CreationScope() { creation_device = saved_; }
  CreationScope(const CreationScope&) = delete;

 private:
  Device saved_;
};

std::string device_name(Device);         // "cpu", "cuda:0", "meta"
PyObject* device_object(Device);         // borrowed, through the hook; its name without one
// None: `creation_device`; a string, an index, or anything whose str() is a device's name. Throws
// where no runtime of that type is loaded, and where there is no such device.
Device device_from(PyObject*);

// False: no device's own object (as `device_object` gives), or one that was not opened yet.
bool device_known(PyObject*, Device*);

Own<Tensor> on_host(Tensor*);            // itself, or a copy on the CPU

// A call with operands on several devices: tensors of the CPU without dims go to the device of the
// others where the operator computes element by element; all else is refused.
void unify_devices(Call&, bool inplace);
[[noreturn]] void refuse_devices(const Call&, Device one, Device other);

extern PyMethodDef device_functions[];
void devices_init(PyObject* module);

}  // namespace core
