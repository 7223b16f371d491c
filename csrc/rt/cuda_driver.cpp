// libcuda.so.1 -> a table of functions.
// Invariant: looked for once a process; what went wrong is kept and told again.
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "error.h"

namespace rl::cuda {
namespace {

struct Opened {
  Driver table = {};
  std::string why;  // empty: it works
};

bool forked = false;  // this process came from one that had opened it

void open_driver(Opened* o) {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  const char* named = std::getenv("RUSHLIGHT_CUDA_DRIVER");
  const char* name = named && *named ? named : "libcuda.so.1";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    o->why =
        std::string("no CUDA driver was found on this machine (") + name + " cannot be opened)";
    return;
  }
#define RL_CUDA_FIND(member, symbol, arguments)                                          \
  o->table.member = reinterpret_cast<decltype(o->table.member)>(dlsym(library, symbol)); \
  if (!o->table.member && o->why.empty())                                                \
    o->why = std::string("the CUDA driver is too old: it lacks ") + symbol;
  RL_CUDA_FUNCTIONS(RL_CUDA_FIND)
#undef RL_CUDA_FIND
  if (!o->table.driver_version || !o->table.init) return;
  if (o->table.driver_version(&o->table.version) == kSuccess && o->table.version < kOldestDriver) {
    char text[160];
    std::snprintf(
        text, sizeof text,
        "the CUDA driver supports CUDA %d.%d only, and %d.%d is needed: update the NVIDIA driver",
        o->table.version / 1000, o->table.version % 1000 / 10, kOldestDriver / 1000,
        kOldestDriver % 1000 / 10);
    o->why = text;
  }
  if (!o->why.empty()) return;
  const Result result = o->table.init(0);
  int count = 0;
  if (result == kNoDevice || (result == kSuccess && (o->table.device_count(&count) || !count))) {
    o->why = "the CUDA driver sees no GPU";
  } else if (result != kSuccess) {
    const char* text = nullptr;
    o->table.error_string(result, &text);
    o->why = std::string("the CUDA driver does not start: ") + (text ? text : "unknown error") +
             " (cuInit)";
  }
}

Opened& opened() {
  static Opened* one = [] {
    Opened* o = new Opened;  // never destroyed: storages are freed after static destructors
    open_driver(o);
    return o;
  }();
  return *one;
}

}  // namespace

const Driver* driver_or_null(const char** why) {
  Opened& o = opened();
  if (forked && o.why.empty())
    o.why = "CUDA cannot be used in a process forked from one that used it: start it by 'spawn'";
  if (why) *why = o.why.c_str();
  return o.why.empty() ? &o.table : nullptr;
}

const Driver& driver() {
  const char* why;
  const Driver* d = driver_or_null(&why);
  if (!d) fail(ErrorKind::Runtime, "CUDA is not available: %s", why);
  return *d;
}

void check(Result result, const char* what) {
  if (result == kSuccess) return;
  const char* text = nullptr;
  if (const Driver* d = driver_or_null()) d->error_string(result, &text);
  fail(result == kOutOfMemory ? ErrorKind::Memory : ErrorKind::Runtime, "CUDA error: %s (%s)",
       text ? text : std::to_string(result).c_str(), what);
}

}  // namespace rl::cuda
