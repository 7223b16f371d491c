// Queued launches -> the driver, on a thread of its own.
// Invariant: `written` and `done` count pieces since the start; the writer alone moves the first, the
// thread alone the second, after the driver has returned.
//
// The thread looks for work for a while after the last piece, then sleeps. Until it is awake the
// writer makes its launches itself, and wakes it only where several come close together: a lone
// operator pays for no wake-up, and nobody waits for one.
//
// The two share as few cache lines as they can, since each costs a trip between cores: the thread
// looks at `written` only when it has nothing left, tells of `done` by the batch, and fetches the
// next piece while the driver is busy with this one; the writer looks at `done` only when there
// might be no room.
#include "cuda_queue.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "cupti.h"
#include "error.h"

namespace rl::cuda {
namespace {

constexpr uint64_t kSlots = 512, kBatch = 16;
constexpr int64_t kSpins = 200000, kClose = 100000;  // ns: awake without work; of launches in a row
constexpr int kInARow = 3;
constexpr bool kByDefault = true;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The first lines of a piece: a launch of a few parameters fills two.
template <int write>
void fetch(const Queued& piece) {
  const char* at = reinterpret_cast<const char*>(&piece);
  __builtin_prefetch(at, write);
  __builtin_prefetch(at + 64, write);
}

struct Names {
  char op[40], what[56];
};

struct Queue {
  Queued slots[kSlots];
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> done{0};
  // Both look, hardly anybody writes. `awake`: the thread looks for work; `called`: it will.
  alignas(64) std::atomic<bool> awake{false};
  std::atomic<bool> called{false}, refused{false};
  // The writer's own.
  alignas(64) uint64_t seen = 0;  // `done` as it last looked
  int64_t last = 0;               // when it made a launch itself
  int in_a_row = 0;
  bool started = false, on = false, closed = false;
  bool lone = false;    // even a lone launch is queued (for tests)
  Names names[kSlots];  // the thread reads them only of what is refused
  // Sleeping and waking; the refusal.
  alignas(64) std::mutex mutex;
  std::condition_variable wake;
  std::string refusal;
};

Queue& queue() {
  static Queue* one = [] {
    auto* q = new Queue;  // never destroyed: its thread runs to the end
    const char* text = std::getenv("RUSHLIGHT_CUDA_LAUNCH_THREAD");
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    const bool named = text && *text;
    q->lone = named && std::strcmp(text, "2") == 0;
    q->on = (named ? std::strcmp(text, "0") != 0 : kByDefault) &&
            !(blocking && std::strcmp(blocking, "1") == 0) &&
            (q->lone || usable_processors() > 1);  // with one they would only take turns
    return q;
  }();
  return *one;
}

void hand_over(Queue& q, const Driver& d, uint64_t at, int* active) {
  const Queued& work = q.slots[at % kSlots];
  int result = kSuccess;
  if (*active != work.device) {
    result = d.context_set(context_of(work.device));
    if (result == kSuccess) *active = work.device;
  }
  if (result == kSuccess) result = work.run(d, work);
  if (result == kSuccess) return;
  std::lock_guard<std::mutex> hold(q.mutex);
  if (!q.refusal.empty()) return;
  const char* text = nullptr;
  if (result < kLibraryStatus) d.error_string(result, &text);
  const std::string told = text ? std::string(text)
                           : result < kLibraryStatus
                               ? std::to_string(result)
                               : "status " + std::to_string(result - kLibraryStatus);
  const Names& names = q.names[at % kSlots];
  q.refusal = "[" + std::string(names.op) + "] CUDA error: " + told + " (" + names.what +
              "; queued earlier: with CUDA_LAUNCH_BLOCKING=1 it is raised where it was asked for)";
  q.refused = true;
}

void serve(Queue& q, const Driver& d) {
  int active = -1;
  uint64_t next = q.done.load(), known = next, told = next;
  int64_t idle_since = 0;
  for (int spins = 0;;) {
    if (next == known) known = q.written.load(std::memory_order_acquire);
    if (next != known) {
      if (next + 1 != known) fetch<0>(q.slots[(next + 1) % kSlots]);
      hand_over(q, d, next++, &active);
      if (next == known) known = q.written.load(std::memory_order_acquire);
      if (next == known || next - told >= kBatch) q.done.store(told = next, std::memory_order_release);
      idle_since = 0;
      continue;
    }
    pause_a_little();
    if (++spins % 64) continue;
    sched_yield();  // who gives us work may be waiting for this core
    const int64_t t = now();
    if (!idle_since) idle_since = t;
    if (t - idle_since < kSpins) continue;
    std::unique_lock<std::mutex> hold(q.mutex);
    q.awake.store(false);
    if (q.written.load() == next) q.wake.wait(hold, [&] { return q.called.load(); });
    q.called.store(false);
    q.awake.store(true);  // else: written before the writer could see that we sleep
    idle_since = 0;
  }
}

void wake_up(Queue& q) {
  if (!q.started) {
    q.started = true;
    // A child has no such thread, and what waited there was its parent's.
    pthread_atfork(nullptr, nullptr, [] {
      Queue& q = queue();
      q.on = false;
      q.closed = true;
      q.refused = false;
      q.done.store(q.written.load());
    });
    const Driver* d = &driver();
    q.called.store(true);
    try {
      std::thread([&q, d] {
        q.called.store(false);
        q.awake.store(true);
        serve(q, *d);
      }).detach();
    } catch (const std::system_error&) {  // no more threads for this process: it does without
      q.on = false;
      q.closed = true;
    }
    return;
  }
  {
    std::lock_guard<std::mutex> hold(q.mutex);
    q.called.store(true);
  }
  q.wake.notify_one();
}

}  // namespace

int usable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;
}

bool queue_takes(Stream stream) {
  Queue& q = queue();
  // 2: the stream that each thread has for itself, which would be another one there.
  if (!q.on || reinterpret_cast<uintptr_t>(stream) == 2) return false;
  if (activities_on()) return false;  // the profiler asks who launches
  if (q.lone && !q.started) wake_up(q);
  if (q.awake.load(std::memory_order_acquire) || q.lone) return q.on;
  const int64_t t = now(), since = t - q.last;
  q.last = t;
  q.in_a_row = since > kClose ? 0 : q.in_a_row + 1;
  if (q.in_a_row >= kInARow && !q.called.load(std::memory_order_relaxed)) wake_up(q);
  return false;
}

Queued& queue_next() {
  Queue& q = queue();
  const uint64_t at = q.written.load(std::memory_order_relaxed);
  for (int i = 0; at - q.seen >= kSlots; ++i) {
    q.seen = q.done.load(std::memory_order_acquire);
    if (i) pause_a_little();
    if (i % 256 == 255) sched_yield();
  }
  return q.slots[at % kSlots];
}

void queue_put(const char* op, const char* what) {
  Queue& q = queue();
  const uint64_t at = q.written.load(std::memory_order_relaxed);
  const auto copy = [](auto& to, const char* from) {
    const size_t n = strnlen(from, sizeof to - 1);
    std::memcpy(to, from, n);
    to[n] = 0;
  };
  copy(q.names[at % kSlots].op, op);
  copy(q.names[at % kSlots].what, what);
  q.written.store(at + 1);
  // It fell asleep since `queue_takes` looked: it must hear of this piece.
  if (!q.awake.load()) wake_up(q);
  fetch<1>(q.slots[(at + 1) % kSlots]);
}

void queue_drain() {
  Queue& q = queue();
  const uint64_t until = q.written.load();
  for (int i = 0; q.done.load(std::memory_order_acquire) < until; ++i) {
    pause_a_little();
    if (i % 256 == 255) sched_yield();
  }
}

void queue_raise() {
  Queue& q = queue();
  if (!q.refused.load(std::memory_order_relaxed)) return;
  std::string told;
  {
    std::lock_guard<std::mutex> hold(q.mutex);
    told.swap(q.refusal);
    q.refused = false;
  }
  if (!told.empty()) fail(ErrorKind::Runtime, "%s", told.c_str());
}

bool queue_set(int on) {
  Queue& q = queue();
  const bool before = q.on;
  queue_drain();
  if (on >= 0) {
    q.on = on > 0 && !q.closed;
    q.lone = on > 1;
  }
  return before;
}

void queue_close() {
  Queue& q = queue();
  if (q.closed) return;
  q.closed = true;
  q.on = false;
  queue_drain();
}

}  // namespace rl::cuda
