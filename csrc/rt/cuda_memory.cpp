// Bytes -> a Storage on a device, from blocks cut out of segments.
// Invariant: blocks of a segment tile it; two free neighbours never stand side by side; a block is
// free only when nothing queued on the device can still touch it, except what is queued on its own
// stream.
//
// Requests up to 1 MiB share segments of 2 MiB; up to 10 MiB, segments of 20 MiB; larger ones have
// segments of their own size in steps of 2 MiB. The smallest block that fits is taken, and cut
// where enough is left over. The latest few small blocks that were freed are parked by size, and
// taken again as they are: a loop of small operators neither cuts nor joins anything.
#include "cuda_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda_queue.h"
#include "error.h"

namespace rl::cuda {
namespace {

constexpr int kParkedSizes = 64, kParkedDeep = 8;
constexpr int64_t kUnit = 512, kSmallMost = 1 << 20, kSmallSegment = 2 << 20,
                  kLargeSegment = 20 << 20, kMiddleMost = 10 << 20, kRound = 2 << 20;

struct Block {
  char* at;
  int64_t size, asked;
  Block *before, *after;  // neighbours in the segment
  Stream stream;
  int device;
  bool used, small, parked;
  int waiting;  // events that must come first
  std::vector<Stream>* others;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    if (a->size != b->size) return a->size < b->size;
    return a->at < b->at;
  }
};
typedef std::set<Block*, BySize> Free;

struct Waiting {
  Event event;
  Block* block;
};

struct Pool {
  Free free[2];                      // large, small
  std::map<char*, Block*> segments;  // first block of each
  std::vector<Waiting> waiting;
  std::vector<Block*> parked[kParkedSizes];  // free blocks of that many units, the latest last
  int parked_count = 0;
  MemoryStats stats = {};
};

// PYTORCH_NO_CUDA_MEMORY_CACHING=1, PyTorch's name: a segment for every block, as long as was asked,
// which goes back to the driver when freed. So memory checkers see where a tensor ends.
bool uncached() {
  static const bool on = [] {
    const char* text = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    return text && *text && std::strcmp(text, "0") != 0;
  }();
  return on;
}

Pool& pool(int device) {
  static Pool* all[kMaxDevices] = {};
  if (!all[device]) all[device] = new Pool;  // never destroyed
  return *all[device];
}

void count(Count (&counts)[3], const Block* b, int64_t by) {
  for (int kind : {0, b->small ? 1 : 2}) {
    Count& c = counts[kind];
    c.current += by;
    if (by > 0)
      c.allocated += by;
    else
      c.freed -= by;
    c.peak = std::max(c.peak, c.current);
  }
}

bool cut(const Block* b) { return b->before || b->after; }

void put_free(Pool& p, Block* b) {
  p.free[b->small].insert(b);
  if (cut(b)) count(p.stats.split_bytes, b, b->size), count(p.stats.split, b, 1);
}
void take_free(Pool& p, Block* b) {
  p.free[b->small].erase(b);
  if (cut(b)) count(p.stats.split_bytes, b, -b->size), count(p.stats.split, b, -1);
}

// The block is nobody's now: joined with free neighbours and put back.
void join(Pool& p, Block* b) {
  const auto idle = [](const Block* n) { return n && !n->used && !n->waiting && !n->parked; };
  if (Block* n = b->before; idle(n)) {
    take_free(p, n);
    n->size += b->size;
    n->after = b->after;
    if (b->after) b->after->before = n;
    delete b;
    b = n;
  }
  if (Block* n = b->after; idle(n)) {
    take_free(p, n);
    b->size += n->size;
    b->after = n->after;
    if (n->after) n->after->before = b;
    delete n;
  }
  put_free(p, b);
}

void give_back(Pool& p, const Driver& d, Block* b) {
  take_free(p, b);
  count(p.stats.reserved_bytes, b, -b->size);
  count(p.stats.segment, b, -1);
  p.segments.erase(b->at);
  d.release(reinterpret_cast<Address>(b->at));
  delete b;
}

void settle(Pool& p, Block* b) {
  count(p.stats.active_bytes, b, -b->size);
  count(p.stats.active, b, -1);
  if (uncached()) {
    put_free(p, b);
    give_back(p, activate(b->device), b);
    return;
  }
  const int64_t units = b->size / kUnit;
  if (b->small && units < kParkedSizes && p.parked[units].size() < kParkedDeep) {
    b->parked = true;
    p.parked[units].push_back(b);
    ++p.parked_count;
    return;
  }
  join(p, b);
}

// What is parked is free like the rest.
void unpark(Pool& p) {
  if (!p.parked_count) return;
  for (std::vector<Block*>& all : p.parked) {
    for (Block* b : all) {
      b->parked = false;
      join(p, b);
    }
    all.clear();
  }
  p.parked_count = 0;
}

// A parked block of that size; null: there is none of this stream.
Block* parked(Pool& p, int64_t size, Stream stream) {
  if (size >= kUnit * kParkedSizes) return nullptr;
  std::vector<Block*>& all = p.parked[size / kUnit];
  if (all.empty() || all.back()->stream != stream) return nullptr;
  Block* b = all.back();
  all.pop_back();
  --p.parked_count;
  b->parked = false;
  return b;
}

// Blocks whose last event has come are free again. `all`: the host waits for them.
void collect(Pool& p, int device, bool all = false) {
  if (p.waiting.empty()) return;
  size_t kept = 0;
  for (size_t i = 0; i < p.waiting.size(); ++i) {
    const Waiting w = p.waiting[i];
    if (all) {
      event_synchronize(device, w.event);
    } else if (!event_done(device, w.event)) {
      p.waiting[kept++] = w;
      continue;
    }
    event_destroy(device, w.event);
    if (--w.block->waiting == 0) settle(p, w.block);
  }
  p.waiting.resize(kept);
}

std::string human(int64_t bytes) {
  char text[64];
  const double b = static_cast<double>(bytes);
  if (bytes < 1 << 20)
    snprintf(text, sizeof text, "%.2f KiB", b / 1024);
  else if (bytes < 1 << 30)
    snprintf(text, sizeof text, "%.2f MiB", b / (1 << 20));
  else
    snprintf(text, sizeof text, "%.2f GiB", b / (1 << 30));
  return text;
}

[[noreturn]] void out_of_memory(Pool& p, int device, int64_t asked) {
  ++p.stats.ooms;
  size_t free = 0, total = 0;
  driver().memory_info(&free, &total);
  const int64_t held = p.stats.reserved_bytes[0].current, live = p.stats.allocated_bytes[0].current;
  const std::string limit =
      p.stats.limit ? " The limit of this process is " + human(p.stats.limit) + "." : "";
  fail(ErrorKind::Memory,
       "CUDA out of memory. Tried to allocate %s on cuda:%d: it has a total of %s, of which %s is "
       "free. This process holds "
       "%s: %s in tensors and %s cached but in no piece large enough.%s Free tensors, or take "
       "smaller batches.",
       human(asked).c_str(), device, human(static_cast<int64_t>(total)).c_str(),
       human(static_cast<int64_t>(free)).c_str(), human(held).c_str(), human(live).c_str(),
       human(held - live).c_str(), limit.c_str());
}

Block* new_segment(Pool& p, int device, Stream stream, int64_t size, bool small) {
  const Driver& d = ready(device);
  const int64_t bytes = uncached()           ? size
                        : small              ? kSmallSegment
                        : size < kMiddleMost ? kLargeSegment
                                             : (size + kRound - 1) / kRound * kRound;
  const auto attempt = [&](Address* at) {
    if (p.stats.limit && p.stats.reserved_bytes[0].current + bytes > p.stats.limit)
      return kOutOfMemory;
    return d.allocate(at, static_cast<size_t>(bytes));
  };
  Address at = 0;
  Result r = attempt(&at);
  if (r == kOutOfMemory) {
    ++p.stats.retries;
    memory_empty_cache(device);
    r = attempt(&at);
  }
  if (r == kOutOfMemory) return nullptr;
  check(r, "cuMemAlloc");
  Block* b = new Block{reinterpret_cast<char*>(at),
                       bytes,
                       0,
                       nullptr,
                       nullptr,
                       stream,
                       device,
                       false,
                       small,
                       false,
                       0,
                       nullptr};
  p.segments[b->at] = b;
  count(p.stats.reserved_bytes, b, bytes);
  count(p.stats.segment, b, 1);
  return b;
}

// A free block of that size, cut out of a larger one or of a new segment.
Block* block_cut(Pool& p, int device, Stream stream, int64_t size, bool small, int64_t asked) {
  Block probe{};
  probe.stream = stream;
  probe.size = size;
  Free& free = p.free[small];
  auto found = free.lower_bound(&probe);
  if (p.parked_count && (found == free.end() || (*found)->stream != stream)) {
    unpark(p);
    found = free.lower_bound(&probe);
  }
  Block* b = nullptr;
  if (found != free.end() && (*found)->stream == stream) {
    b = *found;
    take_free(p, b);
  } else {
    b = new_segment(p, device, stream, size, small);
    if (!b) {  // after emptying the cache something free may still have been joined together
      const auto again = free.lower_bound(&probe);
      if (again == free.end() || (*again)->stream != stream) out_of_memory(p, device, asked);
      b = *again;
      take_free(p, b);
    }
  }
  const int64_t rest = b->size - size;
  if (small ? rest >= kUnit : rest > kSmallMost) {
    Block* tail =
        new Block{b->at + size, rest, 0, b, b->after, stream, device, false, small, false, 0,
                  nullptr};
    if (b->after) b->after->before = tail;
    b->after = tail;
    b->size = size;
    put_free(p, tail);
  }
  return b;
}

Block* block_alloc(int device, int64_t asked) {
  Pool& p = pool(device);
  collect(p, device);
  const Stream stream = current_stream(device);
  const int64_t size = uncached() ? std::max<int64_t>(1, asked)
                                  : std::max(kUnit, (asked + kUnit - 1) / kUnit * kUnit);
  const bool small = size <= kSmallMost;
  Block* b = uncached() ? nullptr : parked(p, size, stream);
  if (!b) b = block_cut(p, device, stream, size, small, asked);
  b->used = true;
  b->asked = asked;
  count(p.stats.allocated_bytes, b, b->size);
  count(p.stats.requested_bytes, b, asked);
  count(p.stats.active_bytes, b, b->size);
  count(p.stats.allocation, b, 1);
  count(p.stats.active, b, 1);
  return b;
}

Block* block_of(const Storage* s) { return static_cast<Block*>(s->context); }

}  // namespace

Storage* memory_alloc(int device, int64_t nbytes) {
  if (nbytes < 0 || nbytes > (int64_t{1} << 60))
    fail(ErrorKind::Runtime, "cannot allocate a storage of %lld bytes",
         static_cast<long long>(nbytes));
  Block* b = block_alloc(device, nbytes);
  auto* s = static_cast<Storage*>(std::malloc(sizeof(Storage)));
  if (!s) fail(ErrorKind::Memory, "no memory for a storage header");
  *s = Storage{};
  s->refs = 1;
  s->data = b->at;
  s->nbytes = nbytes;
  s->device = Device::CUDA;
  s->context = b;
  return s;
}

void memory_free(Storage* s) {
  Block* b = block_of(s);
  std::free(s);
  if (!driver_or_null()) return;  // a forked child: nothing there is ours
  Pool& p = pool(b->device);
  b->used = false;
  count(p.stats.allocated_bytes, b, -b->size);
  count(p.stats.requested_bytes, b, -b->asked);
  count(p.stats.allocation, b, -1);
  if (b->others) {
    for (Stream other : *b->others) {
      // Nobody could catch what is thrown where a tensor ends: without its event (the driver has
      // gone, at exit) the block is never used again.
      ++b->waiting;
      try {
        const Event e = event_create(b->device, false, false);
        event_record(b->device, e, other);
        p.waiting.push_back({e, b});
      } catch (const Error&) {
      }
    }
    delete b->others;
    b->others = nullptr;
    if (b->waiting) return;
  }
  settle(p, b);
}

void memory_used_on(Storage* s, Stream stream) {
  Block* b = block_of(s);
  if (stream == b->stream) return;
  if (!b->others) b->others = new std::vector<Stream>;
  if (std::find(b->others->begin(), b->others->end(), stream) == b->others->end())
    b->others->push_back(stream);
}

MemoryStats memory_stats(int device) {
  unpark(pool(check_device(device)));
  return pool(device).stats;
}

namespace {
template <class F>
void each_count(MemoryStats& s, F&& f) {
  for (auto* counts : {&s.allocated_bytes, &s.requested_bytes, &s.reserved_bytes, &s.active_bytes,
                       &s.split_bytes, &s.allocation, &s.segment, &s.active, &s.split})
    for (Count& c : *counts) f(c);
}
}  // namespace

void memory_reset_peak(int device) {
  each_count(pool(check_device(device)).stats, [](Count& c) { c.peak = c.current; });
}
void memory_reset_totals(int device) {
  MemoryStats& s = pool(check_device(device)).stats;
  each_count(s, [](Count& c) { c.allocated = c.freed = 0; });
  s.retries = s.ooms = 0;
}

int64_t memory_empty_cache(int device) {
  if (!used(device)) return 0;
  Pool& p = pool(device);
  const Driver& d = activate(device);
  collect(p, device, true);
  unpark(p);
  int64_t freed = 0;
  for (Free& free : p.free)
    for (auto i = free.begin(); i != free.end();) {
      Block* b = *i++;
      if (cut(b)) continue;
      freed += b->size;
      // Its own stream may still be at work there; the driver waits for it when memory is given
      // back.
      give_back(p, d, b);
    }
  return freed;
}

void memory_set_limit(int device, int64_t bytes) { pool(check_device(device)).stats.limit = bytes; }

void memory_info(int device, int64_t* free, int64_t* total) {
  size_t f = 0, t = 0;
  check(activate(device).memory_info(&f, &t), "cuMemGetInfo");
  *free = static_cast<int64_t>(f);
  *total = static_cast<int64_t>(t);
}

void memory_blocks(int device, void (*each)(void*, const BlockInfo&), void* context) {
  unpark(pool(check_device(device)));
  for (const auto& [at, first] : pool(device).segments) {
    int64_t whole = 0;
    for (const Block* b = first; b; b = b->after) whole += b->size;
    for (const Block* b = first; b; b = b->after)
      each(context, {reinterpret_cast<int64_t>(at), whole, reinterpret_cast<int64_t>(b->at),
                     b->size, b->asked, b->used, b->waiting > 0, b->small, b->stream});
  }
}

// ---- pinned memory: powers of two from 4 KiB, kept when freed

namespace {

struct Pinned {
  void* at;
  int64_t size;
  struct Use {
    int device;
    Event event;
  };
  std::vector<Use> uses;
};
struct PinnedCache {
  std::multimap<int64_t, Pinned*> free;
  int64_t bytes = 0;
};
PinnedCache& pinned_cache() {
  static PinnedCache* one = new PinnedCache;
  return *one;
}

bool finished(Pinned* p) {
  while (!p->uses.empty()) {
    const Pinned::Use u = p->uses.back();
    if (!event_done(u.device, u.event)) return false;
    event_destroy(u.device, u.event);
    p->uses.pop_back();
  }
  return true;
}

void pinned_free(void* context) {
  auto* p = static_cast<Pinned*>(context);
  pinned_cache().free.emplace(p->size, p);
  pinned_cache().bytes += p->size;
}

}  // namespace

Storage* pinned_alloc(int64_t nbytes) {
  int64_t size = 4096;
  while (size < nbytes) size *= 2;
  PinnedCache& c = pinned_cache();
  Pinned* p = nullptr;
  for (auto [i, end] = c.free.equal_range(size); i != end; ++i)
    if (finished(i->second)) {
      p = i->second;
      c.free.erase(i);
      c.bytes -= size;
      break;
    }
  if (!p) {
    const Driver& d = activate(current_device());
    void* at = nullptr;
    Result r = d.host_allocate(&at, static_cast<size_t>(size), kHostPortable);
    if (r == kOutOfMemory) {
      pinned_empty_cache();
      r = d.host_allocate(&at, static_cast<size_t>(size), kHostPortable);
    }
    if (r == kOutOfMemory)
      fail(ErrorKind::Memory, "cannot pin %s of host memory: the system gives no more",
           human(size).c_str());
    check(r, "cuMemHostAlloc");
    p = new Pinned{at, size, {}};
  }
  return storage_external(p->at, nbytes, pinned_free, p);
}

bool is_pinned(const Storage* s) { return s->deleter == pinned_free; }

void pinned_used_on(Storage* s, int device, Stream stream) {
  const Event e = event_create(device, false, false);
  event_record(device, e, stream);
  static_cast<Pinned*>(s->context)->uses.push_back({device, e});
}

void pinned_empty_cache() {
  queue_drain();
  PinnedCache& c = pinned_cache();
  for (auto i = c.free.begin(); i != c.free.end();) {
    Pinned* p = i->second;
    for (const Pinned::Use& u : p->uses) event_synchronize(u.device, u.event);
    finished(p);
    driver().host_release(p->at);
    c.bytes -= p->size;
    delete p;
    i = c.free.erase(i);
  }
}

// ---- copies

void copy_to_device(int device, void* to, const void* from, int64_t nbytes) {
  if (!nbytes) return;
  check(activate(device).to_device(reinterpret_cast<Address>(to), from, static_cast<size_t>(nbytes),
                                   current_stream(device)),
        "cuMemcpyHtoDAsync");
}
void copy_to_host(int device, void* to, const void* from, int64_t nbytes) {
  if (!nbytes) return;
  check(activate(device).to_host(to, reinterpret_cast<Address>(from), static_cast<size_t>(nbytes),
                                 current_stream(device)),
        "cuMemcpyDtoHAsync");
}
void copy_on_device(int device, void* to, const void* from, int64_t nbytes) {
  if (!nbytes) return;
  check(activate(device).on_device(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from),
                                   static_cast<size_t>(nbytes), current_stream(device)),
        "cuMemcpyDtoDAsync");
}
void copy_across(int to_device, void* to, int from_device, const void* from, int64_t nbytes) {
  if (!nbytes) return;
  // The copy runs on the source's stream; the target's stream waits for it, and it for the target's
  // memory.
  const Stream source = current_stream(from_device), target = current_stream(to_device);
  const Event ready = event_create(to_device, false, false);
  event_record(to_device, ready, target);
  stream_wait(from_device, source, ready);
  check(activate(from_device)
            .across(reinterpret_cast<Address>(to), context_of(to_device),
                    reinterpret_cast<Address>(from), context_of(from_device),
                    static_cast<size_t>(nbytes), source),
        "cuMemcpyPeerAsync");
  const Event done = event_create(from_device, false, false);
  event_record(from_device, done, source);
  stream_wait(to_device, target, done);
  event_destroy(to_device, ready);
  event_destroy(from_device, done);
}
void fill_zero(int device, void* at, int64_t nbytes) {
  if (!nbytes) return;
  const Stream stream = current_stream(device);
  const auto address = reinterpret_cast<Address>(at);
  if (!queue_takes(stream)) {
    check(activate(device).fill_bytes(address, 0, static_cast<size_t>(nbytes), stream),
          "cuMemsetD8Async");
    return;
  }
  Queued& w = queue_next();
  w.run = [](const Driver& d, const Queued& q) {
    return d.fill_bytes(q.words[0], 0, static_cast<size_t>(q.words[1]), q.stream);
  };
  w.stream = stream;
  w.device = device;
  w.words[0] = address;
  w.words[1] = static_cast<uint64_t>(nbytes);
  queue_put("fill", "cuMemsetD8Async");
}

}  // namespace rl::cuda
