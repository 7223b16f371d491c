// A thread that hands launches to the driver, so that whoever calls operators does not wait for it:
// a launch costs the driver several times what planning and packing it cost us. Off unless asked for.
//
// Order: work is handed over in the order in which it was queued, and every other call to the driver
// comes after all of it (`activate` sees to that). Memory may be freed and given out again in
// between: blocks are reused on their own stream only, and what is queued keeps its place there.
#pragma once
#include <cstdint>

#include "cuda_device.h"

namespace rl::cuda {

constexpr int kQueuedWords = 40;  // of one piece of work; larger ones are done on the spot

struct Queued {
  // On the queue's thread, with the device's context current. What it returns is a CUresult, or
  // kLibraryStatus plus a library's own.
  int (*run)(const Driver&, const Queued&);
  Stream stream;
  int device, count;  // words taken
  char op[40], what[56];
  uint64_t words[kQueuedWords];
};
constexpr int kLibraryStatus = 1 << 20;

// Whether work of this stream may be queued now.
bool queue_takes(Stream);
template <size_t N>
void copy_name(char (&to)[N], const char* from) {
  size_t i = 0;
  for (; i + 1 < N && from[i]; ++i) to[i] = from[i];
  to[i] = 0;
}

// Room for a piece, and its place at the end. Whoever calls holds the GIL from the first to the
// second: there is one writer at a time.
Queued& queue_next();
void queue_put();

void queue_drain();  // waits until all of it is with the driver; throws nothing
// Throws what the driver refused since the last look. Asked where the host has waited.
void queue_raise();
// Turned on or off (-1: left; 2: even for launches that come alone). What it was. Whoever hands streams or memory to other libraries
// closes it for good: their calls would not see what waits here.
bool queue_set(int on);
void queue_close();

}  // namespace rl::cuda
