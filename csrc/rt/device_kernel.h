// Kernels of a GPU: what docs/gpu.md calls a kernel record, made ready to launch. A DeviceKernel is
// a KernelEntry without a function: loop plans are made for it as for any kernel, and run here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cuda_device.h"
#include "kernels.h"

namespace rl::cuda {

// A postfix program over the numbers n and the pointers p of a call.
struct Step {
  enum Op : uint8_t {
    Literal,
    Size,
    Pointer,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    CeilDiv,
    Min,
    Max,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or
  };
  Op op;
  int64_t value;
};
typedef std::vector<Step> Expression;
// throws Value, quoting the words
Expression parse_expression(const std::string& words, int numbers, int buffers);
int64_t evaluate(const Expression&, const int64_t* n, void* const* p);

struct Parameter {
  enum Kind : uint8_t { Buffer, Value32, Value64, Float32, Float64, Int32, Int64, Work, Error };
  Kind kind;
  int index;         // buffer, scalar or workspace
  Expression value;  // Value32, Value64
};
Parameter parse_parameter(const std::string& word, int numbers, int buffers, int scalars,
                          int works);

struct LaunchSpec {
  int image;
  std::string entry;
  int warps, shared;
  std::vector<Parameter> parameters;
  Expression grid[3];
};
struct Workspace {
  Expression bytes;
  bool zero;
};
struct Variant {
  std::vector<Expression> when;
  std::vector<Workspace> work;
  std::vector<LaunchSpec> launches;
  int first;  // number of its first launch among all of the kernel
};

struct DeviceKernel : KernelEntry {
  std::string name, from;  // what key and origin point to
  std::vector<Variant> variants;
  std::vector<std::string> images;
  int64_t launched = 0;

  DeviceKernel() : KernelEntry{} {}
  ~DeviceKernel();  // modules are unloaded when the device has come to rest
  DeviceKernel(const DeviceKernel&) = delete;
  void ready();  // after the fields are filled in: checks them; throws Value

 private:
  friend struct Launcher;
  struct Loaded {
    std::vector<Module> modules;      // by image
    std::vector<Function> functions;  // by launch
  };
  std::vector<Loaded> loaded_;  // by device
};

inline const DeviceKernel* device_kernel(const KernelEntry* k) {
  return k->fn ? nullptr : static_cast<const DeviceKernel*>(k);
}

// Queues a planned call on the device's current stream. Pointers include offsets; outputs that are
// added into are zero. False: nothing was done, since no variant takes these addresses.
bool device_run(const char* op, const LoopPlan*, int device, void* const* pointers, const Number*);
// The same without loops, for a kernel that is told its operands' sizes and strides: n as its record
// says.
bool device_launch(const char* op, DeviceKernel*, int device, const int64_t* n,
                   void* const* pointers, const Number*);
// Loads what the kernel has for a device; what compiled explorers ask: registers, local (spilled)
// bytes of each launch.
struct FunctionFacts {
  std::string entry;
  int registers, local_bytes, shared, warps;
};
std::vector<FunctionFacts> device_kernel_facts(DeviceKernel*, int device);

// Errors that kernels wrote down (an index out of range): thrown where the host has waited. `line`
// names the user's line at a launch; set once, by core.
void raise_kernel_errors(int device, bool whole, Stream = nullptr);
// The same without a wait: what has been written so far.
void kernel_errors_seen(int device);
void kernel_error_line(void (*line)(char* into, size_t room));
void unload_dead_modules(int device);

// What ran, since the start.
struct RunCounts {
  int64_t launches, library, copies, fallbacks, waits, wait_ns;
};
RunCounts& run_counts();

}  // namespace rl::cuda
