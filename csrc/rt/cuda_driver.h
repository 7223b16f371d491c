// The CUDA driver, found at run time: building needs no CUDA, a machine without it loads this
// library and works on. The few types and constants of its interface are declared here. Internal to
// rt.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rl::cuda {

typedef int Result;                        // CUresult
typedef int DeviceHandle;                  // CUdevice
typedef struct ContextHandle_* Context;    // CUcontext
typedef struct ModuleHandle_* Module;      // CUmodule
typedef struct FunctionHandle_* Function;  // CUfunction
typedef struct StreamHandle_* Stream;      // CUstream; null: the default stream
typedef struct EventHandle_* Event;        // CUevent
typedef unsigned long long Address;        // CUdeviceptr

constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                 kNoDevice = 100, kNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventBlockingSync = 1, kEventNoTiming = 2;
constexpr unsigned kHostPortable = 1, kHostMapped = 2;
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kMaxDynamicShared = 8;
// CU_FUNC_ATTRIBUTE_NUM_REGS, _LOCAL_SIZE_BYTES
constexpr int kNumRegisters = 4, kLocalBytes = 3;

// CU_DEVICE_ATTRIBUTE_*
constexpr int kWarpSize = 10, kMaxThreadsPerBlock = 1, kSharedPerBlock = 8, kRegistersPerBlock = 12,
              kClockRate = 13, kProcessors = 16, kIntegrated = 18, kThreadsPerProcessor = 39,
              kL2Bytes = 38, kMajor = 75, kMinor = 76, kSharedPerProcessor = 81,
              kSharedPerBlockOptin = 97, kMultiGpuBoard = 84, kPciBus = 33, kPciDevice = 34,
              kPciDomain = 50;

// (name here, symbol, arguments). Symbols carry the version whose signature is given.
#define RL_CUDA_FUNCTIONS(X)                                                                 \
  X(init, "cuInit", (unsigned))                                                              \
  X(driver_version, "cuDriverGetVersion", (int*))                                            \
  X(error_string, "cuGetErrorString", (Result, const char**))                                \
  X(device_count, "cuDeviceGetCount", (int*))                                                \
  X(device_get, "cuDeviceGet", (DeviceHandle*, int))                                         \
  X(device_name, "cuDeviceGetName", (char*, int, DeviceHandle))                              \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, DeviceHandle))                     \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t*, DeviceHandle))                           \
  X(device_uuid, "cuDeviceGetUuid_v2", (char*, DeviceHandle))                                   \
  X(can_access_peer, "cuDeviceCanAccessPeer", (int*, DeviceHandle, DeviceHandle))            \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (Context*, DeviceHandle))                    \
  X(context_get, "cuCtxGetCurrent", (Context*))                                              \
  X(context_set, "cuCtxSetCurrent", (Context))                                               \
  X(context_synchronize, "cuCtxSynchronize", ())                                             \
  X(stream_range, "cuCtxGetStreamPriorityRange", (int*, int*))                               \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                      \
  X(allocate, "cuMemAlloc_v2", (Address*, size_t))                                           \
  X(release, "cuMemFree_v2", (Address))                                                      \
  X(host_allocate, "cuMemHostAlloc", (void**, size_t, unsigned))                             \
  X(host_release, "cuMemFreeHost", (void*))                                                  \
  X(to_device, "cuMemcpyHtoDAsync_v2", (Address, const void*, size_t, Stream))               \
  X(to_host, "cuMemcpyDtoHAsync_v2", (void*, Address, size_t, Stream))                       \
  X(on_device, "cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Stream))                   \
  X(across, "cuMemcpyPeerAsync", (Address, Context, Address, Context, size_t, Stream))       \
  X(fill_bytes, "cuMemsetD8Async", (Address, unsigned char, size_t, Stream))                 \
  X(stream_create, "cuStreamCreateWithPriority", (Stream*, unsigned, int))                   \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                     \
  X(stream_query, "cuStreamQuery", (Stream))                                                 \
  X(stream_wait, "cuStreamWaitEvent", (Stream, Event, unsigned))                             \
  X(event_create, "cuEventCreate", (Event*, unsigned))                                       \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                             \
  X(event_record, "cuEventRecord", (Event, Stream))                                          \
  X(event_query, "cuEventQuery", (Event))                                                    \
  X(event_synchronize, "cuEventSynchronize", (Event))                                        \
  X(event_elapsed, "cuEventElapsedTime", (float*, Event, Event))                             \
  X(module_load, "cuModuleLoadData", (Module*, const void*))                                 \
  X(module_unload, "cuModuleUnload", (Module))                                               \
  X(module_function, "cuModuleGetFunction", (Function*, Module, const char*))                \
  X(function_attribute, "cuFuncGetAttribute", (int*, int, Function))                         \
  X(function_set, "cuFuncSetAttribute", (Function, int, int))                                \
  X(launch, "cuLaunchKernel",                                                                \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, \
     void**, void**))

struct Driver {
#define RL_CUDA_POINTER(name, symbol, arguments) Result(*name) arguments;
  RL_CUDA_FUNCTIONS(RL_CUDA_POINTER)
#undef RL_CUDA_POINTER
  int version;  // 13000 is 13.0
};

// cubins of a 12.x or 13.x assembler load from here on
constexpr int kOldestDriver = 12000;

// The driver, opened and initialised once. Throws Runtime with one clear sentence where there is
// none, it is too old, or this process was forked from one that had used it.
const Driver& driver();
// The same without an exception: null, and the sentence in `why` (where not null).
const Driver* driver_or_null(const char** why = nullptr);

// Throws Runtime ("[what] CUDA error: ...") unless the result is success.
void check(Result, const char* what);

}  // namespace rl::cuda
