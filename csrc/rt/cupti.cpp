// CUPTI's activity records -> Activity.
// Invariants: a buffer that the library hands back is read at once and lent again; times are mapped
// to our clock by the two readings of both clocks around them; an activity finds its owner by the
// correlation id that it shares with the call into CUDA which launched it (all kernels of one graph
// launch share one). Fields are read at offsets that are the same in CUPTI 12 and 13.
#include "cupti.h"

#include <cxxabi.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "cuda_device.h"
#include "cuda_queue.h"
#include "error.h"

namespace rl::cuda {

std::atomic<bool> activities_are_on{false};

namespace {

// ---- the few types of the library's interface

typedef int Status;  // CUptiResult: 0 is success
constexpr Status kPrivileges = 35, kSubscribed = 39, kGuestPrivileges = 40;

// CUpti_ActivityKind
constexpr int kMemcpy = 1, kMemset = 2, kKernel = 3, kDriverCall = 4, kRuntimeCall = 5,
              kConcurrentKernel = 10, kPeerCopy = 22, kExternal = 39;
constexpr int kOurs = 3;  // CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0
constexpr uint32_t kForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

// Heads of the records: CUpti_ActivityKernel7 to 10, Memcpy5 and 6, MemcpyPtoP4, Memset3 and 4, API,
// ExternalCorrelation. Later versions add fields behind them. Records are aligned to 8 bytes and
// packed, with every field at its natural place.
struct KernelRecord {
  int32_t kind;
  uint8_t cache, shared_config;
  uint16_t registers;
  int32_t global_cache[2];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], static_shared, dynamic_shared;
  uint32_t local, local_total, correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout[3];
  uint32_t shared_executed;
  uint64_t node;
  int32_t shared_limit;
  uint32_t graph;
};
static_assert(offsetof(KernelRecord, registers) == 6 && offsetof(KernelRecord, start) == 16 &&
              offsetof(KernelRecord, device) == 40 && offsetof(KernelRecord, grid) == 52 &&
              offsetof(KernelRecord, static_shared) == 76 &&
              offsetof(KernelRecord, correlation) == 92 && offsetof(KernelRecord, name) == 104 &&
              offsetof(KernelRecord, node) == 144 && offsetof(KernelRecord, graph) == 156);
struct CopyRecord {
  int32_t kind;
  uint8_t copy, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation, runtime_correlation, padding;
  void* reserved;
  uint64_t node;
  uint32_t graph;
};
static_assert(offsetof(CopyRecord, bytes) == 8 && offsetof(CopyRecord, device) == 32 &&
              offsetof(CopyRecord, correlation) == 44 && offsetof(CopyRecord, node) == 64 &&
              offsetof(CopyRecord, graph) == 72);
struct PeerCopyRecord {
  int32_t kind;
  uint8_t copy, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, from_device, from_context, to_device, to_context, correlation;
  void* reserved;
  uint64_t node;
  uint32_t graph;
};
static_assert(offsetof(PeerCopyRecord, correlation) == 60 && offsetof(PeerCopyRecord, node) == 72 &&
              offsetof(PeerCopyRecord, graph) == 80);
struct FillRecord {
  int32_t kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint16_t flags, memory;
  uint32_t padding;
  void* reserved;
  uint64_t node;
  uint32_t graph;
};
static_assert(offsetof(FillRecord, correlation) == 44 && offsetof(FillRecord, node) == 64 &&
              offsetof(FillRecord, graph) == 72);
struct CallRecord {
  int32_t kind;
  uint32_t function;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};
static_assert(offsetof(CallRecord, start) == 8 && offsetof(CallRecord, correlation) == 32);
struct ExternalRecord {
  int32_t kind, external_kind;
  uint64_t id;
  uint32_t correlation, reserved;
};
static_assert(offsetof(ExternalRecord, id) == 8 && offsetof(ExternalRecord, correlation) == 16);

typedef void (*Requested)(uint8_t**, size_t*, size_t*);
typedef void (*Completed)(Context, uint32_t, uint8_t*, size_t, size_t);

struct Library {
  Status (*register_callbacks)(Requested, Completed);
  Status (*enable)(int);
  Status (*disable)(int);
  Status (*flush)(uint32_t);
  Status (*next)(uint8_t*, size_t, void**);
  Status (*dropped)(Context, uint32_t, size_t*);
  Status (*push)(int, uint64_t);
  Status (*pop)(int, uint64_t*);
  Status (*timestamp)(uint64_t*);
  Status (*text)(Status, const char**);
  VendorLibrary so{"CUPTI",
                   "nvidia-cuda-cupti",
                   {{&register_callbacks, "cuptiActivityRegisterCallbacks"},
                    {&enable, "cuptiActivityEnable"},
                    {&disable, "cuptiActivityDisable"},
                    {&flush, "cuptiActivityFlushAll"},
                    {&next, "cuptiActivityGetNextRecord"},
                    {&dropped, "cuptiActivityGetNumDroppedRecords"},
                    {&push, "cuptiActivityPushExternalCorrelationId"},
                    {&pop, "cuptiActivityPopExternalCorrelationId"},
                    {&timestamp, "cuptiGetTimestamp"},
                    {&text, "cuptiGetResultString"}}};
};
Library& library() {
  static auto* one = new Library;  // never destroyed: the library's own thread may still call us
  return *one;
}

// Calls into CUDA are among them since the library writes an external id before a call's record only.
constexpr int kKinds[] = {kExternal, kRuntimeCall, kDriverCall, kMemcpy, kPeerCopy, kMemset,
                          kConcurrentKernel};

// ---- clocks

struct Reading {
  uint64_t theirs;
  int64_t ours;
};

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Both clocks at one moment: of several readings the one with the least time around it.
Reading read_clocks() {
  Reading best = {0, 0};
  int64_t least = INT64_MAX;
  for (int i = 0; i < 32; ++i) {
    uint64_t theirs = 0;
    const int64_t before = now();
    if (library().timestamp(&theirs)) continue;
    const int64_t after = now();
    if (after - before < least) {
      least = after - before;
      best = {theirs, before + least / 2};
    }
  }
  return best;
}

// Between two readings, and beyond them, at the rate that lies between them.
int64_t map_time(uint64_t theirs, const Reading& a, const Reading& b) {
  const auto since = static_cast<int64_t>(theirs - a.theirs);
  const auto length = static_cast<int64_t>(b.theirs - a.theirs);
  const int64_t drift = (b.ours - a.ours) - length;
  const double part = length ? static_cast<double>(since) / static_cast<double>(length) : 0;
  return a.ours + since + static_cast<int64_t>(part * static_cast<double>(drift));
}

// ---- buffers and what was read from them

constexpr size_t kBufferBytes = 2 << 20, kMostFree = 8;
constexpr size_t kMost = 2 << 20;  // activities, and calls, kept until a take: some 300 MiB

struct Call {
  uint64_t start;
  int64_t owner;
};
typedef std::unordered_map<uint32_t, Call> CallsById;

struct State {
  std::mutex mutex;
  std::vector<uint8_t*> free_buffers;
  std::vector<Activity> found;  // times are the library's; owners are not known yet
  CallsById calls, earlier;     // earlier: of the take before, whose kernels may come late
  int64_t lost = 0;
  Reading begun = {0, 0};
  std::unordered_map<std::string, std::string> names;  // as the library spells it -> in C++
};
State& state() {
  static auto* one = new State;
  return *one;
}

const std::string* name_of(State& s, const char* mangled) {
  const char* given = mangled ? mangled : "";
  const auto known = s.names.find(given);
  if (known != s.names.end()) return &known->second;
  int failed = 0;
  char* spelt = abi::__cxa_demangle(given, nullptr, nullptr, &failed);
  const auto made = s.names.emplace(given, !failed && spelt ? spelt : given).first;
  std::free(spelt);
  return &made->second;  // of a node: growing does not move it
}

template <class Record>
Activity common(const Record& r, Activity::Kind kind) {
  Activity a = {};
  a.kind = kind;
  a.device = r.device;
  a.stream = r.stream;
  a.correlation = r.correlation;
  a.graph = r.graph;
  a.node = r.node;
  a.start = static_cast<int64_t>(r.start);
  a.end = static_cast<int64_t>(r.end);
  return a;
}

void keep(State& s, const Activity& a) {
  if (!a.start || a.end < a.start || s.found.size() == kMost)
    ++s.lost;  // without a time: the device had no room for it
  else
    s.found.push_back(a);
}

Call* call_of(State& s, uint32_t correlation) {
  const auto known = s.calls.find(correlation);
  if (known != s.calls.end()) return &known->second;
  return s.calls.size() == kMost ? nullptr : &s.calls[correlation];
}

template <class Record>
void read_copy(State& s, const Record& r) {
  Activity a = common(r, Activity::Copy);
  a.copy = r.copy;
  a.bytes = r.bytes;
  keep(s, a);
}

void read_record(State& s, const void* record) {
  int32_t kind;
  std::memcpy(&kind, record, sizeof kind);
  switch (kind) {
    case kConcurrentKernel:
    case kKernel: {
      const auto& r = *static_cast<const KernelRecord*>(record);
      Activity a = common(r, Activity::Kernel);
      a.name = name_of(s, r.name);
      a.registers = r.registers;
      a.static_shared = r.static_shared;
      a.dynamic_shared = r.dynamic_shared;
      a.local = static_cast<int32_t>(r.local);
      std::copy(r.grid, r.grid + 3, a.grid);
      std::copy(r.block, r.block + 3, a.block);
      keep(s, a);
      break;
    }
    case kMemcpy:
      read_copy(s, *static_cast<const CopyRecord*>(record));
      break;
    case kPeerCopy:
      read_copy(s, *static_cast<const PeerCopyRecord*>(record));
      break;
    case kMemset: {
      const auto& r = *static_cast<const FillRecord*>(record);
      Activity a = common(r, Activity::Fill);
      a.bytes = r.bytes;
      keep(s, a);
      break;
    }
    case kDriverCall:
    case kRuntimeCall: {
      const auto& r = *static_cast<const CallRecord*>(record);
      if (Call* call = call_of(s, r.correlation)) call->start = r.start;
      break;
    }
    case kExternal: {
      const auto& r = *static_cast<const ExternalRecord*>(record);
      Call* call = r.external_kind == kOurs ? call_of(s, r.correlation) : nullptr;
      if (call) call->owner = static_cast<int64_t>(r.id);
      break;
    }
    default:
      break;
  }
}

// Both are called by the library, from its own thread or inside a flush: nothing may be thrown.

void buffer_requested(uint8_t** buffer, size_t* size, size_t* most) {
  State& s = state();
  *most = 0;  // as many records as fit
  *size = kBufferBytes;
  std::lock_guard<std::mutex> hold(s.mutex);
  if (!s.free_buffers.empty()) {
    *buffer = s.free_buffers.back();
    s.free_buffers.pop_back();
  } else if (!(*buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes)))) {
    *size = 0;
  }
}

void buffer_completed(Context, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (!buffer) return;
  Library& l = library();
  State& s = state();
  std::lock_guard<std::mutex> hold(s.mutex);
  try {
    void* record = nullptr;
    while (valid && !l.next(buffer, valid, &record)) read_record(s, record);
    size_t dropped = 0;
    if (!l.dropped(nullptr, 0, &dropped)) s.lost += static_cast<int64_t>(dropped);
    if (s.free_buffers.size() < kMostFree) {
      s.free_buffers.push_back(buffer);
      return;
    }
  } catch (const std::bad_alloc&) {
    ++s.lost;
  }
  std::free(buffer);
}

std::string refusal(Status status) {
  const char* name = nullptr;
  if (library().text(status, &name) || !name) name = "an unknown error";
  const std::string said = std::string(" (") + name + ")";
  if (status == kSubscribed)
    return "another profiler of this process has CUPTI: only one can" + said;
  if (status == kPrivileges || status == kGuestPrivileges)
    return "this user may not profile the GPU: an administrator can allow it" + said;
  return "CUPTI refuses" + said;
}

void disable_all() {
  for (int kind : kKinds) library().disable(kind);
}

void wait_for_devices() {
  for (int device = 0; device < device_count(); ++device) {
    if (!used(device)) continue;
    try {
      device_synchronize(device);
    } catch (const Error&) {  // it is told where the program itself waits
    }
  }
}

}  // namespace

VendorLibrary& cupti() { return library().so; }

bool activities_start(std::string* why) {
  if (activities_on()) return true;
  Library& l = library();
  if (!(*why = l.so.missing()).empty()) return false;
  queue_drain();  // what was launched before is nobody's here
  Status status = l.register_callbacks(buffer_requested, buffer_completed);
  for (size_t i = 0; !status && i < sizeof kKinds / sizeof *kKinds; ++i)
    status = l.enable(kKinds[i]);
  if (status) {
    disable_all();
    *why = refusal(status);
    return false;
  }
  State& s = state();
  const Reading begun = read_clocks();
  std::lock_guard<std::mutex> hold(s.mutex);
  s.found.clear();
  s.calls.clear();
  s.earlier.clear();
  s.lost = 0;
  s.begun = begun;
  activities_are_on = true;
  return true;
}

void activities_stop() {
  if (!activities_on()) return;
  activities_are_on = false;
  Library& l = library();
  disable_all();
  l.flush(kForced);  // what is still in buffers goes, so that the next start finds none of it
  State& s = state();
  std::lock_guard<std::mutex> hold(s.mutex);
  for (uint8_t* b : s.free_buffers) std::free(b);
  s.free_buffers.clear();
  std::vector<Activity>().swap(s.found);
  CallsById().swap(s.calls);
  CallsById().swap(s.earlier);
}

void activities_push(int64_t id) { library().push(kOurs, static_cast<uint64_t>(id)); }
void activities_pop() {
  uint64_t last;
  library().pop(kOurs, &last);
}

std::vector<Activity> activities_take(bool last, int64_t* lost) {
  *lost = 0;
  std::vector<Activity> taken;
  if (!activities_on()) return taken;
  wait_for_devices();
  library().flush(0);  // buffers in which all is complete
  if (last) library().flush(kForced);
  const Reading ended = read_clocks();
  State& s = state();
  std::lock_guard<std::mutex> hold(s.mutex);
  taken.swap(s.found);
  std::swap(*lost, s.lost);
  const auto find = [&](uint32_t correlation) -> const Call* {
    for (const CallsById* calls : {&s.calls, &s.earlier}) {
      const auto at = calls->find(correlation);
      if (at != calls->end()) return &at->second;
    }
    return nullptr;
  };
  for (Activity& a : taken) {
    if (const Call* call = find(a.correlation)) {
      a.owner = call->owner;
      if (call->start) a.launched = map_time(call->start, s.begun, ended);
    }
    a.start = map_time(static_cast<uint64_t>(a.start), s.begun, ended);
    a.end = map_time(static_cast<uint64_t>(a.end), s.begun, ended);
  }
  s.earlier.swap(s.calls);
  s.calls.clear();
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Activity& a, const Activity& b) { return a.start < b.start; });
  return taken;
}

}  // namespace rl::cuda
