// A thread that hands launches to the driver, so that whoever calls operators does not wait for it:
// a launch costs the driver several times what planning and packing it cost us.
//
// Order: work is handed over in the order in which it was queued, and every other call to the driver
// comes after all of it (`activate` sees to that). Memory may be freed and given out again in
// between: blocks are reused on their own stream only, and what is queued keeps its place there.
#pragma once
#include <cstdint>

#include "cuda_device.h"

namespace rl::cuda {

constexpr int kQueuedWords = 45;  // of one piece of work; larger ones are done on the spot

// Whole cache lines, of which the thread reads only those that were filled.
struct alignas(64) Queued {
  // On the queue's thread, with the device's context current. What it returns is a CUresult, or
  // kLibraryStatus plus a library's own.
  int (*run)(const Driver&, const Queued&);
  Stream stream;
  int32_t device, count;  // words taken
  uint64_t words[kQueuedWords];
};
static_assert(sizeof(Queued) == 384);
constexpr int kLibraryStatus = 1 << 20;

// Whether work of this stream may be queued now.
bool queue_takes(Stream);

// Room for a piece, and its place at the end. Whoever calls holds the GIL from the first to the
// second: there is one writer at a time. `op` and `what` are for the message should the driver
// refuse it.
Queued& queue_next();
void queue_put(const char* op, const char* what);

void queue_drain();  // waits until all of it is with the driver; throws nothing
// Throws what the driver refused since the last look. Asked where the host has waited.
void queue_raise();
// Turned on or off (-1: left; 2: even for launches that come alone), after what waits is handed
// over. What it was. Whoever hands streams or memory to other libraries closes it for good: their
// calls would not see what waits here.
bool queue_set(int on);
void queue_close();

int usable_processors();  // those this process may use


}  // namespace rl::cuda
