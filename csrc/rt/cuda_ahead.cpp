// See cuda_ahead.h.
// Invariant: a thread is inside a library only while it is counted in `busy`, and none goes in while
// the mutex is held: whoever holds it with `busy` 0 may fork.
#include "cuda_ahead.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "cublas.h"
#include "cuda_device.h"
#include "cuda_queue.h"

namespace rl::cuda {
namespace {

constexpr std::chrono::seconds kMostAtExit{10};

struct Ahead {
  std::mutex mutex;
  std::condition_variable changed;
  bool on = false, ended = false;
  int busy = 0;
  AheadState devices[kMaxDevices] = {};
};

thread_local bool here = false;  // one of its threads

Ahead& ahead() {
  static Ahead* one = [] {
    auto* a = new Ahead;  // never destroyed: threads may outlive static destructors
    const char* text = std::getenv("RUSHLIGHT_CUDA_AHEAD");
    a->on = !(text && std::strcmp(text, "0") == 0) && usable_processors() > 1;
    // A fork would keep the locks that a library holds meanwhile. A child has no such thread, and the
    // driver refuses it.
    pthread_atfork(
        [] {
          if (here) return;  // the library itself forks
          Ahead& a = ahead();
          std::unique_lock<std::mutex> hold(a.mutex);
          a.changed.wait(hold, [&] { return !a.busy; });
          hold.release();
        },
        [] {
          if (!here) ahead().mutex.unlock();
        },
        [] {
          Ahead& a = ahead();
          a.ended = true;
          for (AheadState& s : a.devices) s.over = s.begun;
          if (!here) a.mutex.unlock();
        });
    return a;
  }();
  return *one;
}

// One stage of the work, which says what went wrong; false: no further one is wanted.
template <class Work>
bool stage(Ahead& a, std::string* refusal, Work&& work) {
  {
    std::lock_guard<std::mutex> hold(a.mutex);
    if (a.ended) return false;
    ++a.busy;
  }
  try {
    *refusal = work();
  } catch (const std::exception& e) {
    *refusal = e.what();
  }
  std::lock_guard<std::mutex> hold(a.mutex);
  --a.busy;
  a.changed.notify_all();
  return refusal->empty();
}

}  // namespace

void ahead_begin(int device) {
  Ahead& a = ahead();
  std::lock_guard<std::mutex> hold(a.mutex);
  AheadState& s = a.devices[device];
  if (!a.on || a.ended || s.begun) return;
  s.begun = true;
  try {
    std::thread([&a, &s, device] {
      here = true;
      std::string refusal;
      if (stage(a, &refusal, [] { return cublas().missing(); }))
        stage(a, &refusal, [device] {
          cublas_prepare(device);
          return std::string();
        });
      std::lock_guard<std::mutex> hold(a.mutex);
      s.refusal = refusal;
      s.over = true;
      a.changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no more threads for this process: it does without
    s.over = true;
  }
}

AheadState ahead_state(int device, bool wait) {
  Ahead& a = ahead();
  std::unique_lock<std::mutex> hold(a.mutex);
  AheadState& s = a.devices[device];
  if (wait) a.changed.wait(hold, [&] { return !s.begun || s.over; });
  return s;
}

void ahead_end() {
  Ahead& a = ahead();
  std::unique_lock<std::mutex> hold(a.mutex);
  a.ended = true;
  a.changed.wait_for(hold, kMostAtExit, [&] { return !a.busy; });
}

}  // namespace rl::cuda
