// Device numbers -> contexts, properties, streams, events.
// Invariant: a call on a device's handles comes after `activate` of that device on the same thread.
#include "cuda_device.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda_queue.h"
#include "device_kernel.h"
#include "error.h"

namespace rl::cuda {
namespace {

struct DeviceState {
  std::once_flag made;
  DeviceHandle handle = 0;
  Context context = nullptr;
  std::once_flag read;
  Properties properties = {};
};

DeviceState* states() {
  static DeviceState* all = new DeviceState[kMaxDevices];
  return all;
}

struct ThreadState {
  int device = 0;
  int active = -1;            // whose context this thread has, as far as we know
  Stream streams[kMaxDevices] = {};
};
thread_local ThreadState here;

}  // namespace

int device_count() {
  static const int count = [] {
    const Driver* d = driver_or_null();
    int n = 0;
    if (!d || d->device_count(&n) != kSuccess) return 0;
    return n < kMaxDevices ? n : kMaxDevices;
  }();
  return driver_or_null() ? count : 0;
}

int check_device(int device) {
  driver();
  if (device < 0 || device >= device_count())
    fail(ErrorKind::Runtime,
         "CUDA error: invalid device ordinal: cuda:%d, and there %s %d device%s", device,
         device_count() == 1 ? "is" : "are", device_count(), device_count() == 1 ? "" : "s");
  return device;
}

int current_device() { return here.device; }
void set_device(int device) { here.device = check_device(device); }

bool used(int device) { return device >= 0 && device < kMaxDevices && states()[device].context; }

Context context_of(int device) {
  DeviceState& s = states()[check_device(device)];
  std::call_once(s.made, [&] {
    const Driver& d = driver();
    check(d.device_get(&s.handle, device), "cuDeviceGet");
    check(d.primary_retain(&s.context, s.handle), "cuDevicePrimaryCtxRetain");
  });
  return s.context;
}

const Driver& activate(int device) {
  const Driver& d = ready(device);
  queue_drain();
  return d;
}

const Driver& ready(int device) {
  const Driver& d = driver();
  if (here.active != device) {
    check(d.context_set(context_of(device)), "cuCtxSetCurrent");
    here.active = device;
  }
  return d;
}

Context context_borrow(int device) {
  if (device_count() == 1) {
    ready(device);
    return nullptr;
  }
  Context before = nullptr;
  check(driver().context_get(&before), "cuCtxGetCurrent");
  here.active = -1;  // others set it too
  ready(device);
  return before;
}

void context_return(Context before) {
  if (device_count() == 1) return;
  driver().context_set(before);
  here.active = -1;
}

const Properties& properties(int device) {
  DeviceState& s = states()[check_device(device)];
  std::call_once(s.read, [&] {
    const Driver& d = driver();
    DeviceHandle h;
    check(d.device_get(&h, device), "cuDeviceGet");
    Properties& p = s.properties;
    char name[256] = {};
    check(d.device_name(name, sizeof name - 1, h), "cuDeviceGetName");
    p.name = name;
    const struct {
      int attribute;
      int* into;
    } asked[] = {{kMajor, &p.major},
                 {kMinor, &p.minor},
                 {kProcessors, &p.processors},
                 {kWarpSize, &p.warp_size},
                 {kMaxThreadsPerBlock, &p.threads_per_block},
                 {kThreadsPerProcessor, &p.threads_per_processor},
                 {kRegistersPerBlock, &p.registers_per_block},
                 {kSharedPerBlock, &p.shared_per_block},
                 {kSharedPerBlockOptin, &p.shared_per_block_optin},
                 {kSharedPerProcessor, &p.shared_per_processor},
                 {kL2Bytes, &p.l2_bytes},
                 {kClockRate, &p.clock_khz},
                 {kIntegrated, &p.integrated},
                 {kMultiGpuBoard, &p.multi_gpu_board},
                 {kPciBus, &p.pci_bus},
                 {kPciDevice, &p.pci_device},
                 {kPciDomain, &p.pci_domain}};
    for (const auto& a : asked)
      if (d.device_attribute(a.into, a.attribute, h) != kSuccess) *a.into = 0;
    size_t bytes = 0;
    check(d.device_memory(&bytes, h), "cuDeviceTotalMem");
    p.memory = static_cast<int64_t>(bytes);
    if (d.device_uuid(reinterpret_cast<char*>(p.uuid), h) != kSuccess) std::memset(p.uuid, 0, 16);
  });
  return s.properties;
}

Stream current_stream(int device) { return here.streams[device]; }
void set_stream(int device, Stream s) { here.streams[check_device(device)] = s; }

// Streams live as long as the process: blocks of memory remember those that used them
// (record_stream), longer than the program's own objects may. What nobody holds is handed out again.
namespace {
struct IdleStream {
  int device, priority;
  Stream stream;
};
std::mutex idle_mutex;
std::vector<IdleStream>& idle_streams() {
  static auto* all = new std::vector<IdleStream>;
  return *all;
}
std::unordered_map<Stream, int>& priorities() {
  static auto* all = new std::unordered_map<Stream, int>;
  return *all;
}
}  // namespace

Stream stream_create(int device, int priority) {
  const Driver& d = activate(device);
  std::lock_guard<std::mutex> hold(idle_mutex);
  auto& idle = idle_streams();
  for (size_t i = 0; i < idle.size(); ++i)
    if (idle[i].device == device && idle[i].priority == priority) {
      const Stream s = idle[i].stream;
      idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
      return s;
    }
  Stream s;
  check(d.stream_create(&s, kStreamNonBlocking, priority), "cuStreamCreateWithPriority");
  priorities()[s] = priority;
  return s;
}
void stream_release(int device, Stream s) {
  if (!s) return;
  std::lock_guard<std::mutex> hold(idle_mutex);
  const auto known = priorities().find(s);
  if (known != priorities().end()) idle_streams().push_back({device, known->second, s});
}
bool stream_done(int device, Stream s) {
  const Result r = activate(device).stream_query(s);
  if (r == kNotReady) return false;
  check(r, "cuStreamQuery");
  return true;
}
void stream_range(int device, int* least, int* greatest) {
  check(activate(device).stream_range(least, greatest), "cuCtxGetStreamPriorityRange");
}

Event event_create(int device, bool timing, bool blocking) {
  const Driver& d = ready(device);
  Event e;
  check(d.event_create(&e, (timing ? 0 : kEventNoTiming) | (blocking ? kEventBlockingSync : 0)),
        "cuEventCreate");
  return e;
}
void event_destroy(int device, Event e) {
  check(activate(device).event_destroy(e), "cuEventDestroy");
}
void event_record(int device, Event e, Stream s) {
  if (!queue_takes(s)) {
    check(activate(device).event_record(e, s), "cuEventRecord");
    return;
  }
  Queued& w = queue_next();
  w.run = [](const Driver& d, const Queued& q) {
    return d.event_record(reinterpret_cast<Event>(q.words[0]), q.stream);
  };
  w.stream = s;
  w.device = device;
  w.words[0] = reinterpret_cast<uint64_t>(e);
  queue_put("Event.record", "cuEventRecord");
}
bool event_done(int device, Event e) {
  const Result r = activate(device).event_query(e);
  if (r == kNotReady) return false;
  check(r, "cuEventQuery");
  return true;
}
void event_synchronize(int device, Event e) {
  check(activate(device).event_synchronize(e), "cuEventSynchronize");
}
double event_elapsed(int device, Event start, Event end) {
  float ms = 0;
  check(activate(device).event_elapsed(&ms, start, end), "cuEventElapsedTime");
  return static_cast<double>(ms);
}
void stream_wait(int device, Stream s, Event e) {
  if (!queue_takes(s)) {
    check(activate(device).stream_wait(s, e, 0), "cuStreamWaitEvent");
    return;
  }
  Queued& w = queue_next();
  w.run = [](const Driver& d, const Queued& q) {
    return d.stream_wait(q.stream, reinterpret_cast<Event>(q.words[0]), 0);
  };
  w.stream = s;
  w.device = device;
  w.words[0] = reinterpret_cast<uint64_t>(e);
  queue_put("Stream.wait_event", "cuStreamWaitEvent");
}

void stream_synchronize(int device, Stream s) {
  check(activate(device).stream_synchronize(s), "cuStreamSynchronize");
}
void device_synchronize(int device) {
  check(activate(device).context_synchronize(), "cuCtxSynchronize");
}

}  // namespace rl::cuda
