// Bytes -> a Storage, from free lists by size class.
// Invariant: in_use + cached is what we hold of the system; it stays below the limit, and cached
// blocks go first.
//
// Classes: powers of two from 64 bytes to 1 MB, then eight steps an octave (at most 12.5% waste) to
// 16 GB. Larger blocks are not kept. A cached block keeps its Storage, so a hit is a pop. Blocks of
// 2 MB and more are mapped at a huge-page boundary.
#include "storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "error.h"

namespace rl {
namespace {

constexpr int kSmallClasses = 15;                 // 2^6 .. 2^20
constexpr int kClasses = kSmallClasses + 14 * 8;  // up to 2^34; fits int8
constexpr int kUncached = -2;                     // ours, but too large to keep
constexpr int64_t kHuge = int64_t{2} << 20;

// What the machine has, or what its container may use.
int64_t memory_of_machine() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  int64_t bytes = pages > 0 && page > 0 ? pages * page : int64_t{1} << 33;
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (FILE* f = std::fopen(file, "r")) {
      long long most;
      if (std::fscanf(f, "%lld", &most) == 1 && most > 0 && most < bytes)
        bytes = most;  // "max": none
      std::fclose(f);
    }
  }
  return bytes;
}

struct Cache {
  Storage* free[kClasses] = {};
  AllocatorStats stats = {};
  int64_t keep;  // cached blocks are given back when we would hold more than this

  Cache() {
    keep = memory_of_machine() / 2;
    if (const char* text = std::getenv("RUSHLIGHT_CPU_MEMORY_LIMIT")) {
      char* end;
      const double number = std::strtod(text, &end);
      const int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
      if (number > 0)
        stats.limit = static_cast<int64_t>(number * static_cast<double>(1ll << shift));
    }
  }
};

// Never destroyed: tensors may be freed after static destructors ran.
Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

int class_of(int64_t bytes) {
  if (bytes <= 64) return 0;
  const int top =
      63 - __builtin_clzll(static_cast<uint64_t>(bytes - 1));  // 2^top < bytes <= 2^(top+1)
  if (top < 20) return top - 5;
  const int64_t step = (bytes - 1 - (int64_t{1} << top)) >> (top - 3);  // 0..7
  const int64_t c = kSmallClasses + (top - 20) * 8 + step;
  return c < kClasses ? static_cast<int>(c) : kUncached;
}

int64_t class_bytes(int c) {
  if (c < kSmallClasses) return int64_t{64} << c;
  const int octave = (c - kSmallClasses) / 8, step = (c - kSmallClasses) % 8;
  return (int64_t{1} << (20 + octave)) + (step + 1) * (int64_t{1} << (17 + octave));
}

int64_t block_bytes(const Storage* s) {
  return s->size_class >= 0 ? class_bytes(s->size_class) : (s->nbytes + 4095) / 4096 * 4096;
}

void* take(int64_t bytes) {
  if (bytes < kHuge) {
    void* p = nullptr;
    return posix_memalign(&p, 64, static_cast<size_t>(bytes)) == 0 ? p : nullptr;
  }
  // Map more, then cut both ends so that the block starts at a huge page.
  char* p =
      static_cast<char*>(mmap(nullptr, static_cast<size_t>(bytes + kHuge), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED) return nullptr;
  const int64_t head = (kHuge - reinterpret_cast<int64_t>(p) % kHuge) % kHuge;
  if (head) munmap(p, static_cast<size_t>(head));
  if (head < kHuge) munmap(p + head + bytes, static_cast<size_t>(kHuge - head));
#ifdef MADV_HUGEPAGE
  madvise(p + head, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  return p + head;
}

void give(void* p, int64_t bytes) {
  if (bytes < kHuge)
    std::free(p);
  else
    munmap(p, static_cast<size_t>(bytes));
}

std::string human(int64_t bytes) {
  char text[64];
  if (bytes < 10240)
    snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(bytes));
  else if (bytes < (1 << 20))
    snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 1024);
  else if (bytes < (1ll << 30))
    snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  else
    snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

[[noreturn]] void out_of_memory(const Cache& c, int64_t asked, int64_t block, bool limited) {
  fail(ErrorKind::Memory, "cannot allocate %s (a block of %s): %s in use, %s cached, limit %s%s",
       human(asked).c_str(), human(block).c_str(), human(c.stats.in_use).c_str(),
       human(c.stats.cached).c_str(), c.stats.limit ? human(c.stats.limit).c_str() : "none",
       limited ? "; raise or drop the limit, or free tensors" : "; the system has no more");
}

}  // namespace

Storage* storage_alloc(int64_t nbytes) {
  if (nbytes < 0 || nbytes > INT64_MAX - 4 * kHuge)
    fail(ErrorKind::Runtime, "cannot allocate a storage of %lld bytes",
         static_cast<long long>(nbytes));
  Cache& c = cache();
  const int size_class = class_of(nbytes);
  ++c.stats.allocations;
  Storage* s = size_class >= 0 ? c.free[size_class] : nullptr;
  const int64_t block = size_class >= 0 ? class_bytes(size_class) : (nbytes + 4095) / 4096 * 4096;
  if (s) {
    c.free[size_class] = s->next;
    c.stats.cached -= block;
    ++c.stats.hits;
  } else {
    const int64_t limit = c.stats.limit;
    if (limit && c.stats.in_use + block > limit) {
      --c.stats.allocations;
      out_of_memory(c, nbytes, block, true);
    }
    const int64_t most = limit && limit < c.keep ? limit : c.keep;
    if (c.stats.in_use + c.stats.cached + block > most) {
      const int64_t room = most - c.stats.in_use - block;
      allocator_trim(room > 0 ? room : 0);
    }
    void* data = take(block);
    if (!data) {
      allocator_trim(0);
      data = take(block);
    }
    s = data ? static_cast<Storage*>(std::malloc(sizeof(Storage))) : nullptr;
    if (!s) {
      if (data) give(data, block);
      --c.stats.allocations;
      out_of_memory(c, nbytes, block, false);
    }
    s->data = data;
    s->device = Device::CPU;
    s->size_class = static_cast<int8_t>(size_class);
    s->deleter = nullptr;
    s->context = nullptr;
  }
  s->refs = 1;
  s->exports = 0;
  storage_written(s);
  s->nbytes = nbytes;
  s->next = nullptr;
  c.stats.in_use += block;
  if (c.stats.in_use > c.stats.peak) c.stats.peak = c.stats.in_use;
  return s;
}

namespace {
DeviceMemory memories[kDeviceTypes];
}

void device_memory_register(DeviceType type, DeviceMemory memory) {
  memories[static_cast<int>(type)] = memory;
}

bool device_ready(Device device) {
  const DeviceType type = device_type(device);
  return type != DeviceType::CUDA || memories[static_cast<int>(type)].alloc;
}

Storage* storage_alloc(Device device, int64_t nbytes) {
  const DeviceType type = device_type(device);
  if (type == DeviceType::CPU) return storage_alloc(nbytes);
  if (type == DeviceType::Meta) {
    Storage* s = storage_external(nullptr, nbytes, nullptr, nullptr);
    s->device = device;
    return s;
  }
  if (!device_ready(device))
    fail(ErrorKind::Runtime, "device %s:%d is not available: no runtime for it is loaded",
         device_type_name(type), device_index(device));
  return memories[static_cast<int>(type)].alloc(device, nbytes);
}

void storage_written(Storage* s) {
  static int64_t writes = 0;
  s->stamp = ++writes;
}

Storage* storage_external(void* data, int64_t nbytes, void (*deleter)(void*), void* context) {
  Storage* s = static_cast<Storage*>(std::malloc(sizeof(Storage)));
  if (!s) fail(ErrorKind::Memory, "no memory for a storage header");
  *s = Storage{1, data, nbytes, Device::CPU, -1, deleter, context, nullptr, 0, 0};
  return s;
}

void storage_free(Storage* s) {
  if (s->size_class == -1) {
    void (*deleter)(void*) = s->deleter;
    void* context = s->context;
    std::free(s);  // first: the deleter may run arbitrary code
    if (deleter) deleter(context);
    return;
  }
  if (s->device != Device::CPU) return memories[static_cast<int>(device_type(s->device))].free(s);
  Cache& c = cache();
  const int64_t block = block_bytes(s);
  c.stats.in_use -= block;
  if (s->size_class >= 0) {
    s->next = c.free[s->size_class];
    c.free[s->size_class] = s;
    c.stats.cached += block;
  } else {
    give(s->data, block);
    std::free(s);
  }
}

AllocatorStats allocator_stats() { return cache().stats; }

void allocator_reset_peak() { cache().stats.peak = cache().stats.in_use; }

int64_t allocator_trim(int64_t keep_bytes) {
  Cache& c = cache();
  int64_t freed = 0;
  // Largest first: the fewest system calls for the most bytes.
  for (int i = kClasses - 1; i >= 0 && c.stats.cached > keep_bytes; --i) {
    while (c.free[i] && c.stats.cached > keep_bytes) {
      Storage* s = c.free[i];
      c.free[i] = s->next;
      const int64_t block = class_bytes(i);
      give(s->data, block);
      std::free(s);
      c.stats.cached -= block;
      freed += block;
    }
  }
  return freed;
}

void allocator_set_limit(int64_t bytes) {
  if (bytes < 0)
    fail(ErrorKind::Value, "a memory limit is 0 (none) or positive, got %lld",
         static_cast<long long>(bytes));
  Cache& c = cache();
  c.stats.limit = bytes;
  if (bytes && c.stats.in_use + c.stats.cached > bytes)
    allocator_trim(bytes > c.stats.in_use ? bytes - c.stats.in_use : 0);
}

}  // namespace rl
