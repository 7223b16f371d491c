/* A stand-in for libcupti: activity records of what the stand-in of the driver queues and runs, in
 * the layouts of CUPTI 13 (or, with RUSHLIGHT_FAKE_CUPTI_VERSION=12, of 12). Its clock is another
 * than the program's, by fake_cupti_offset nanoseconds. A record is complete when its work has run.
 * Environment: RUSHLIGHT_FAKE_CUPTI_ERROR (a result of cuptiActivityEnable), _DROP (how many records
 * a flush says were lost), _RECORDS (the most in a buffer), _HOLD (buffers come by force only). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
typedef int Status;
enum { KERNEL, COPY, FILL };

EXPORT int64_t fake_cupti_offset = 123456789012345;
EXPORT int fake_cupti_enabled[64];
EXPORT long fake_cupti_pushes, fake_cupti_pops, fake_cupti_buffers;

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}
static uint64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)((int64_t)t.tv_sec * 1000000000 + t.tv_nsec + fake_cupti_offset);
}
EXPORT Status cuptiGetTimestamp(uint64_t* t) {
  *t = clock_now();
  return 0;
}
EXPORT Status cuptiGetResultString(Status s, const char** text) {
  *text = s == 39   ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : s == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                    : "CUPTI_ERROR_OF_THE_STAND_IN";
  return 0;
}

/* ---- external ids: a stack a thread */

static __thread uint64_t ids[256];
static __thread int depth;
EXPORT Status cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  if (kind != 3 || depth == 256) return 1;
  fake_cupti_pushes++;
  ids[depth++] = id;
  return 0;
}
EXPORT Status cuptiActivityPopExternalCorrelationId(int kind, uint64_t* last) {
  if (kind != 3) return 1;
  fake_cupti_pops++;
  if (!depth) return 18;
  *last = ids[--depth];
  return 0;
}

/* ---- buffers */

static void (*requested)(uint8_t**, size_t*, size_t*);
static void (*completed)(void*, uint32_t, uint8_t*, size_t, size_t);
static uint8_t* buffer;
static size_t room, used, held;
static long lost;

static void hand_over(void) {
  if (!buffer) return;
  uint8_t* full = buffer;
  buffer = 0;
  fake_cupti_buffers++;
  completed(0, 0, full, room, used);
}
static void* put(size_t n) { /* n zeroed bytes for a record of a multiple of 8 */
  if (buffer && (used + n > room || (long)held >= setting("RUSHLIGHT_FAKE_CUPTI_RECORDS", 1 << 30)))
    hand_over();
  if (!buffer) {
    size_t most;
    used = held = 0;
    requested(&buffer, &room, &most);
    if (!buffer || room < n) {
      lost++;
      return 0;
    }
  }
  void* at = memset(buffer + used, 0, n);
  used += n;
  held++;
  return at;
}
static size_t size_of(int kind) {
  const int old = setting("RUSHLIGHT_FAKE_CUPTI_VERSION", 13) == 12;
  switch (kind) {
    case 1:
      return old ? 88 : 96; /* Memcpy5, Memcpy6 */
    case 2:
      return old ? 80 : 88; /* Memset3, Memset4 */
    case 4:
    case 5:
      return 40;
    case 10:
      return old ? 208 : 216; /* Kernel9, Kernel10 */
    case 22:
      return 96;
    case 39:
      return 24;
  }
  return 0;
}
EXPORT Status cuptiActivityGetNextRecord(uint8_t* b, size_t valid, uint8_t** record) {
  int32_t kind;
  uint8_t* next = b;
  if (*record) {
    memcpy(&kind, *record, 4);
    next = *record + size_of(kind);
  }
  if (next >= b + valid) return 12;
  *record = next;
  return 0;
}
EXPORT Status cuptiActivityGetNumDroppedRecords(void* c, uint32_t stream, size_t* n) {
  (void)c;
  (void)stream;
  *n = (size_t)(lost + setting("RUSHLIGHT_FAKE_CUPTI_DROP", 0));
  lost = 0;
  return 0;
}
EXPORT Status cuptiActivityFlushAll(uint32_t flag) {
  if (!completed) return 7;
  if (flag || !setting("RUSHLIGHT_FAKE_CUPTI_HOLD", 0)) hand_over();
  return 0;
}

/* ---- records */

static void at(void* record, size_t offset, const void* value, size_t n) {
  memcpy((char*)record + offset, value, n);
}
#define PUT(offset, type, value) at(r, offset, &(type){value}, sizeof(type))

static uint32_t correlations;
static void call_record(uint32_t correlation) {
  if (fake_cupti_enabled[39] && depth && (fake_cupti_enabled[4] || fake_cupti_enabled[5])) {
    void* r = put(size_of(39));
    if (r) {
      PUT(0, int32_t, 39);
      PUT(4, int32_t, 3);
      PUT(8, uint64_t, ids[depth - 1]);
      PUT(16, uint32_t, correlation);
    }
  }
  if (fake_cupti_enabled[4]) {
    void* r = put(size_of(4));
    if (!r) return;
    PUT(0, int32_t, 4);
    PUT(8, uint64_t, clock_now());
    PUT(16, uint64_t, clock_now());
    PUT(32, uint32_t, correlation);
  }
}
/* The driver's: work was queued by this thread. What it gives comes back with the work; 0: nobody
 * records. */
static uint32_t queued(void) {
  if (!fake_cupti_enabled[10]) return 0;
  const uint32_t correlation = ++correlations;
  call_record(correlation);
  return correlation;
}
struct Ran {
  int kind, copy, device;
  uint32_t stream, correlation, graph;
  uint64_t node, bytes;
  const char* name;
  int grid[3], block, shared, registers;
};
static void write_kernel(const struct Ran* w, uint64_t start, uint64_t end) {
  void* r = fake_cupti_enabled[10] ? put(size_of(10)) : 0;
  if (!r) return;
  PUT(0, int32_t, 10);
  PUT(6, uint16_t, (uint16_t)w->registers);
  PUT(16, uint64_t, start);
  PUT(24, uint64_t, end);
  PUT(40, uint32_t, (uint32_t)w->device);
  PUT(48, uint32_t, w->stream);
  for (int i = 0; i < 3; i++) {
    PUT(52 + 4 * i, int32_t, w->grid[i]);
    PUT(64 + 4 * i, int32_t, i ? 1 : w->block);
  }
  PUT(76, int32_t, 128);
  PUT(80, int32_t, w->shared);
  PUT(92, uint32_t, w->correlation);
  PUT(104, const char*, w->name);
  PUT(144, uint64_t, w->node);
  PUT(156, uint32_t, w->graph);
}
static void write_copy(const struct Ran* w, uint64_t start, uint64_t end) {
  const int kind = w->copy == 10 ? 22 : 1;
  void* r = fake_cupti_enabled[kind] ? put(size_of(kind)) : 0;
  if (!r) return;
  PUT(0, int32_t, kind);
  PUT(4, uint8_t, (uint8_t)w->copy);
  PUT(8, uint64_t, w->bytes);
  PUT(16, uint64_t, start);
  PUT(24, uint64_t, end);
  PUT(32, uint32_t, (uint32_t)w->device);
  PUT(40, uint32_t, w->stream);
  PUT(kind == 22 ? 60 : 44, uint32_t, w->correlation);
  PUT(kind == 22 ? 72 : 64, uint64_t, w->node);
  PUT(kind == 22 ? 80 : 72, uint32_t, w->graph);
}
static void write_fill(const struct Ran* w, uint64_t start, uint64_t end) {
  void* r = fake_cupti_enabled[2] ? put(size_of(2)) : 0;
  if (!r) return;
  PUT(0, int32_t, 2);
  PUT(8, uint64_t, w->bytes);
  PUT(16, uint64_t, start);
  PUT(24, uint64_t, end);
  PUT(32, uint32_t, (uint32_t)w->device);
  PUT(40, uint32_t, w->stream);
  PUT(44, uint32_t, w->correlation);
}
static uint64_t latest; /* work of a device runs one after the other */
static void ran(const struct Ran* w, int64_t took) {
  const uint64_t now = clock_now();
  const uint64_t start = now - (uint64_t)took > latest ? now - (uint64_t)took : latest;
  latest = start + (uint64_t)took;
  if (w->kind == KERNEL) write_kernel(w, start, latest);
  if (w->kind == COPY) write_copy(w, start, latest);
  if (w->kind == FILL) write_fill(w, start, latest);
}

EXPORT Status cuptiActivityRegisterCallbacks(void (*request)(uint8_t**, size_t*, size_t*),
                                             void (*complete)(void*, uint32_t, uint8_t*, size_t,
                                                              size_t)) {
  requested = request;
  completed = complete;
  void* driver = dlopen(getenv("RUSHLIGHT_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  uint32_t (**asks)(void) = driver ? dlsym(driver, "fake_queued") : 0;
  void (**tells)(const struct Ran*, int64_t) = driver ? dlsym(driver, "fake_ran") : 0;
  if (!asks || !tells) return 15;
  *asks = queued;
  *tells = ran;
  return 0;
}
EXPORT Status cuptiActivityEnable(int kind) {
  const long error = setting("RUSHLIGHT_FAKE_CUPTI_ERROR", 0);
  if (error && kind == 10) return (Status)error;
  if (!completed) return 15;
  fake_cupti_enabled[kind] = 1;
  return 0;
}
EXPORT Status cuptiActivityDisable(int kind) {
  fake_cupti_enabled[kind] = 0;
  return 0;
}

/* For tests: the launch of a graph of `n` kernels, as a library of the program's might do. */
EXPORT void fake_launch_graph(int n) {
  const uint32_t correlation = queued();
  for (int i = 0; i < n; i++) {
    struct Ran w = {KERNEL, 0, 0, 7, correlation, 5, 900 + (uint64_t)i, 0, "in_a_graph", {1, 1, 1},
                    64, 0, 8};
    ran(&w, 1000 * (i + 1));
  }
}
