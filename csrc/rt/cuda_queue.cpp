// Queued launches -> the driver, on a thread of its own.
// Invariant: `written` and `done` count pieces since the start; the writer alone moves the first, the
// thread alone the second, after the driver has returned.
//
// The thread looks for work for a while after the last piece, then sleeps. While it sleeps the
// writer makes its launches itself, and wakes it only where they come close together: a lone
// operator pays for no wake-up.
#include "cuda_queue.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "cupti.h"
#include "error.h"

namespace rl::cuda {
namespace {

constexpr uint64_t kSlots = 2048;
constexpr int64_t kSpins = 200000, kClose = 100000;  // ns: awake without work; of launches in a row

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

struct Queue {
  Queued slots[kSlots];
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> done{0};
  alignas(64) std::atomic<bool> asleep{true};
  std::atomic<bool> refused{false};
  std::mutex mutex;  // sleeping and waking; the refusal
  std::condition_variable wake;
  std::string refusal;
  int64_t last = 0;  // when the writer made a launch itself
  bool started = false, on = false, closed = false;
  bool lone = false;  // even a lone launch is queued (for tests)
};

Queue& queue() {
  static Queue* one = [] {
    auto* q = new Queue;  // never destroyed: its thread runs to the end
    const char* text = std::getenv("RUSHLIGHT_CUDA_LAUNCH_THREAD");
    q->on = text && *text && std::strcmp(text, "0") != 0 && std::thread::hardware_concurrency() > 1;
    return q;
  }();
  return *one;
}

void hand_over(Queue& q, const Driver& d, const Queued& work, int* active) {
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
  q.refusal = "[" + std::string(work.op) + "] CUDA error: " + told + " (" + work.what + ")";
  q.refused = true;
}

void serve(Queue& q, const Driver& d) {
  int active = -1;
  uint64_t next = q.done.load();
  int64_t idle_since = 0;
  for (int spins = 0;;) {
    if (q.written.load(std::memory_order_acquire) != next) {
      hand_over(q, d, q.slots[next % kSlots], &active);
      q.done.store(++next, std::memory_order_release);
      idle_since = 0;
      continue;
    }
    pause_a_little();
    if (++spins % 64) continue;
    const int64_t t = now();
    if (!idle_since) idle_since = t;
    if (t - idle_since < kSpins) continue;
    std::unique_lock<std::mutex> hold(q.mutex);
    q.asleep.store(true);
    if (q.written.load() != next) {  // written before the writer could see that we sleep
      q.asleep.store(false);
      continue;
    }
    q.wake.wait(hold, [&] { return !q.asleep.load(); });
    idle_since = 0;
  }
}

void wake_up(Queue& q) {
  if (!q.started) {
    q.started = true;
    const Driver* d = &driver();
    q.asleep.store(false);
    std::thread([&q, d] { serve(q, *d); }).detach();
    return;
  }
  {
    std::lock_guard<std::mutex> hold(q.mutex);
    q.asleep.store(false);
  }
  q.wake.notify_one();
}

}  // namespace

bool queue_takes(Stream stream) {
  Queue& q = queue();
  // 2: the stream that each thread has for itself, which would be another one there.
  if (!q.on || reinterpret_cast<uintptr_t>(stream) == 2) return false;
  if (activities_on()) return false;  // the profiler asks who launches
  if (!q.asleep.load()) return true;
  const int64_t t = now(), since = t - q.last;
  q.last = t;
  if (since > kClose && !q.lone) return false;
  wake_up(q);
  return true;
}

Queued& queue_next() {
  Queue& q = queue();
  const uint64_t at = q.written.load(std::memory_order_relaxed);
  for (int i = 0; at - q.done.load(std::memory_order_acquire) >= kSlots; ++i) {
    pause_a_little();
    if (i % 256 == 255) sched_yield();
  }
  return q.slots[at % kSlots];
}

void queue_put() {
  Queue& q = queue();
  q.written.store(q.written.load(std::memory_order_relaxed) + 1);
  // It fell asleep since `queue_takes` looked: it must hear of this piece.
  if (q.asleep.load()) wake_up(q);
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
  if (on >= 0) {
    if (before && !on) queue_drain();
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
