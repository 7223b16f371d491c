// Device memory: a caching allocator that knows streams; pinned host memory; copies. A block is
// reused at once on the stream it was made for, and on no other; a block that other streams used
// too waits for their events. Call under the GIL (or one thread).
#pragma once
#include <cstdint>

#include "cuda_device.h"
#include "storage.h"

namespace rl::cuda {

struct Count {
  int64_t current, peak, allocated, freed;  // freed and allocated: totals so far
};
// [0] all, [1] the small pool, [2] the large one
struct MemoryStats {
  Count allocated_bytes[3], requested_bytes[3], reserved_bytes[3], active_bytes[3], split_bytes[3];
  Count allocation[3], segment[3], active[3], split[3];
  int64_t retries, ooms, limit;  // limit: bytes, 0 none
};

// For the current device and stream of this thread unless named. Throws Memory with what was asked,
// held and free.
Storage* memory_alloc(int device, int64_t nbytes);
void memory_free(Storage*);
// it must not be reused before what is queued there is done
void memory_used_on(Storage*, Stream);
MemoryStats memory_stats(int device);
void memory_reset_peak(int device);
void memory_reset_totals(int device);
// unused segments go back to the driver; bytes given back
int64_t memory_empty_cache(int device);
void memory_set_limit(int device, int64_t bytes);
void memory_info(int device, int64_t* free, int64_t* total);  // as the driver says

// Segments for memory_snapshot(): one call a block, in order of address.
struct BlockInfo {
  int64_t segment, segment_bytes, address, bytes, requested;
  bool used, waiting, small;
  Stream stream;
};
void memory_blocks(int device, void (*each)(void*, const BlockInfo&), void*);

// Pinned host memory, cached. A Storage of the CPU.
Storage* pinned_alloc(int64_t nbytes);
bool is_pinned(const Storage*);
void pinned_used_on(Storage*, int device, Stream);
void pinned_empty_cache();

// Bytes across, on the device's current stream. to_host returns before the bytes are there; `wait`
// is the caller's.
void copy_to_device(int device, void* to, const void* from, int64_t nbytes);
void copy_to_host(int device, void* to, const void* from, int64_t nbytes);
void copy_on_device(int device, void* to, const void* from, int64_t nbytes);
void copy_across(int to_device, void* to, int from_device, const void* from, int64_t nbytes);
void fill_zero(int device, void* at, int64_t nbytes);

}  // namespace rl::cuda
