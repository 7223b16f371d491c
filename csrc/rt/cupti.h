// What a GPU did, and when, by CUPTI's activity interface: kernels, copies and fills, each with the
// record of the call that launched it. The library is opened when activities are first asked for;
// its few types are declared here and in cupti.cpp, so that building needs no CUDA.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "vendor_library.h"

namespace rl::cuda {

struct Activity {
  enum Kind : uint8_t { Kernel, Copy, Fill };
  Kind kind;
  uint8_t copy;                   // CUpti_ActivityMemcpyKind: 1 to the device, 2 to the host, ...
  uint32_t device, stream;        // CUPTI's number of the stream
  uint32_t correlation, graph;    // graph: of the launch of a CUDA graph; 0: none
  int64_t owner;                  // the id pushed by the thread that launched it; 0: none
  int64_t start, end, launched;   // ns of CLOCK_MONOTONIC; launched: 0 where it is not known
  uint64_t node, bytes;           // node: of the graph
  const std::string* name;        // of a kernel, as it is spelt in C++; kept for the process
  int32_t registers, static_shared, dynamic_shared, local;  // bytes but for registers
  int32_t grid[3], block[3];
};

VendorLibrary& cupti();

// Records from now on, until activities_stop; nothing where they are on. False, and `why` in words:
// there is no library, or it refuses (another profiler has it, no permission, ...).
bool activities_start(std::string* why);
void activities_stop();

extern std::atomic<bool> activities_are_on;
inline bool activities_on() { return activities_are_on.load(std::memory_order_relaxed); }

// What this thread launches from here on belongs to the id, until the matching pop; nests.
void activities_push(int64_t id);
void activities_pop();

// What was recorded since the last take, in the order of its start. Waits until every device that
// is used has come to rest. The last take before a stop has what other threads are at, too, as far
// as it is known. `lost`: records that there was no room for, or whose times are not known.
std::vector<Activity> activities_take(bool last, int64_t* lost);

}  // namespace rl::cuda
