// Storage, the table of devices' allocators, and the caching CPU allocator. Large blocks stay warm (page faults cost a factor of 4.9 on 64 MB).
// Reference counts are plain integers: touch them under the GIL (or from one thread).
#pragma once
#include <cstddef>
#include <cstdint>
#include "dtype.h"

namespace rl {

struct Storage {
  int64_t refs;
  void* data;
  int64_t nbytes;              // usable bytes
  Device device;
  int8_t size_class;           // -1: not ours; -2: ours, too large to be kept
  void (*deleter)(void* context);   // external memory (numpy, DLPack, mmap): called once at the end
  void* context;
  Storage* next;               // free list
  int64_t stamp;               // of the last write, by `storage_written`; never twice the same
  int32_t exports;             // to libraries that may write to it unseen, while they hold it
};

// What a device's runtime registers. `alloc` gives a Storage of one reference whose device is set;
// `free` gets it back when the last reference is dropped.
struct DeviceMemory {
  Storage* (*alloc)(Device, int64_t nbytes);
  void (*free)(Storage*);
};
void device_memory_register(DeviceType, DeviceMemory);
bool device_ready(Device);                                    // has an allocator

Storage* storage_alloc(int64_t nbytes);                       // CPU: 64-byte aligned; throws Memory with what was asked, held, limit
Storage* storage_alloc(Device, int64_t nbytes);               // by the device's allocator; Meta: no memory at all
void storage_written(Storage*);                               // every write from Python's side says so
Storage* storage_external(void* data, int64_t nbytes, void (*deleter)(void*), void* context);
void storage_free(Storage*);
inline void incref(Storage* s) { ++s->refs; }
inline void decref(Storage* s) { if (--s->refs == 0) storage_free(s); }

struct AllocatorStats {
  int64_t in_use, cached, peak, allocations, hits, limit;     // bytes, counts; limit 0 = none
};
AllocatorStats allocator_stats();
void allocator_reset_peak();
int64_t allocator_trim(int64_t keep_bytes);                    // frees cached blocks beyond keep; returns bytes freed
void allocator_set_limit(int64_t bytes);                       // 0: none. Cached blocks are trimmed before failing

}  // namespace rl
