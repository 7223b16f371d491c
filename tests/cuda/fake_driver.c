/* A stand-in for libcuda.so.1: "device memory" lies on the host, and work is queued.
 *
 * What is queued on a stream runs when somebody waits for it (or when memory is given back), never
 * before: a missing wait or a missing dependency between streams shows as wrong numbers. Images are
 * text: "RLFAKE <mode> <address> <buffers> <numbers> <scalars> <error>", where the address is that
 * of a kernel of the CPU's library; a launch calls it with the parameters as it found them.
 * Environment: RUSHLIGHT_FAKE_DEVICES (1), RUSHLIGHT_FAKE_MEMORY (bytes), RUSHLIGHT_FAKE_VERSION
 * (13000). fake_log() gives the calls so far, a line each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int Result;
typedef unsigned long long Address;
enum {
  OK = 0,
  INVALID = 1,
  NO_MEMORY = 2,
  NOT_FOUND = 500,
  NOT_READY = 600,
  NO_BINARY = 209,
  NO_DEVICE = 100
};
#define EXPORT __attribute__((visibility("default")))

/* One call at a time, whatever thread it comes from; calls call each other. */
static pthread_mutex_t whole = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int enter(void) { return pthread_mutex_lock(&whole); }
static void leave(int* held) {
  (void)held;
  pthread_mutex_unlock(&whole);
}
#define ALONE __attribute__((cleanup(leave), unused)) int alone = enter()

/* ---- the log */

static char* logged;
static size_t log_size, log_room;
static void note(const char* text) {
  size_t n = strlen(text);
  if (log_size + n + 2 > log_room) {
    log_room = (log_room + n + 1024) * 2;
    logged = realloc(logged, log_room);
  }
  memcpy(logged + log_size, text, n);
  log_size += n;
  logged[log_size++] = '\n';
  logged[log_size] = 0;
}
EXPORT long fake_quiet_calls; /* of those that write no line */
EXPORT const char* fake_log(int clear) {
  ALONE;
  static char* given;
  free(given);
  given = strdup(logged ? logged : "");
  if (clear) log_size = 0;
  if (logged) logged[log_size] = 0;
  return given;
}

/* ---- devices and contexts */

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}
#define DEVICES 8
struct Context {
  int device;
};
static struct Context contexts[DEVICES];
static __thread struct Context* current;
static long used_bytes[DEVICES];

EXPORT Result cuInit(unsigned flags) {
  (void)flags;
  return OK;
}
EXPORT Result cuDriverGetVersion(int* v) {
  *v = (int)setting("RUSHLIGHT_FAKE_VERSION", 13000);
  return OK;
}
EXPORT Result cuGetErrorString(Result r, const char** text) {
  *text = r == NO_MEMORY   ? "out of memory"
          : r == NO_BINARY ? "no kernel image is available for execution on the device"
          : r == NOT_FOUND ? "named symbol not found"
          : r == INVALID   ? "invalid argument"
                           : "an error of the stand-in";
  return OK;
}
EXPORT Result cuDeviceGetCount(int* n) {
  *n = (int)setting("RUSHLIGHT_FAKE_DEVICES", 1);
  return OK;
}
EXPORT Result cuDeviceGet(int* d, int i) {
  *d = i;
  return OK;
}
EXPORT Result cuDeviceGetName(char* name, int n, int d) {
  snprintf(name, n, "Stand-in %d", d);
  return OK;
}
EXPORT Result cuDeviceGetAttribute(int* v, int a, int d) {
  (void)d;
  *v = a == 75 ? 9 : a == 76 ? 0 : a == 10 ? 32 : a == 16 ? 4 : a == 1 ? 1024 : a == 39 ? 2048 : 0;
  return OK;
}
EXPORT Result cuDeviceTotalMem_v2(size_t* n, int d) {
  (void)d;
  *n = setting("RUSHLIGHT_FAKE_MEMORY", 1l << 30);
  return OK;
}
EXPORT Result cuDeviceGetUuid_v2(char* uuid, int d) {
  memset(uuid, d + 1, 16);
  return OK;
}
EXPORT Result cuDeviceCanAccessPeer(int* can, int a, int b) {
  (void)a;
  (void)b;
  *can = 0;
  return OK;
}
EXPORT Result cuDevicePrimaryCtxRetain(struct Context** c, int d) {
  contexts[d].device = d;
  *c = &contexts[d];
  return OK;
}
EXPORT Result cuCtxGetCurrent(struct Context** c) {
  ALONE;
  fake_quiet_calls++;
  *c = current;
  return OK;
}
EXPORT Result cuCtxSetCurrent(struct Context* c) {
  ALONE;
  fake_quiet_calls++;
  current = c;
  return OK;
}
EXPORT Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return OK;
}

/* ---- what the stand-in of CUPTI is told; its struct Ran is the same */

struct Ran {
  int kind, copy, device;
  uint32_t stream, correlation, graph;
  uint64_t node, bytes;
  const char* name;
  int grid[3], block, shared, registers;
};
enum { RAN_KERNEL, RAN_COPY, RAN_FILL };
EXPORT uint32_t (*fake_queued)(void);
EXPORT void (*fake_ran)(const struct Ran*, int64_t took);
/* For the stand-ins of libraries: a kernel of theirs was launched and is done. */
EXPORT void fake_library_ran(const char* name) {
  ALONE;
  struct Ran r = {.kind = RAN_KERNEL, .stream = 7, .name = name, .grid = {1, 1, 1}, .block = 32};
  if (fake_queued && (r.correlation = fake_queued())) fake_ran(&r, 1000);
}

/* ---- streams: queues of work */

struct Event;
struct Function;
struct Work {
  enum { COPY, SET, LAUNCH, RECORD, WAIT } kind;
  void *to, *from, *owned;
  size_t n;
  int value;
  struct Function* function;
  uint64_t* values;
  struct Event* event;
  uint64_t stamp;
  struct Ran ran;
  struct Work* next;
};
struct Stream {
  struct Work *first, *last;
  int device, dead;
  struct Stream* next;
};
struct Event {
  uint64_t recorded, done;
  struct Stream* on;
};
static struct Stream defaults[DEVICES] = {{.device = 0}, {.device = 1}, {.device = 2},
                                          {.device = 3}, {.device = 4}, {.device = 5},
                                          {.device = 6}, {.device = 7}};
static struct Stream* streams;
static uint64_t clock_;

static struct Stream* real(struct Stream* s) {
  return s ? s : &defaults[current ? current->device : 0];
}
static void add(struct Stream* s, struct Work w) {
  struct Work* one = malloc(sizeof *one);
  *one = w;
  one->next = 0;
  s = real(s);
  if (fake_queued && (w.kind == COPY || w.kind == SET || w.kind == LAUNCH)) {
    one->ran.kind = w.kind == COPY ? RAN_COPY : w.kind == SET ? RAN_FILL : RAN_KERNEL;
    one->ran.device = s->device;
    one->ran.stream = s == &defaults[s->device] ? 7 : 8;
    one->ran.bytes = w.n;
    one->ran.correlation = fake_queued();
  }
  if (s->last)
    s->last->next = one;
  else
    s->first = one;
  s->last = one;
}
static void run_kernel(struct Work* w);
static int64_t ticks(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static void finish(struct Stream* s);
static void until(struct Event* e, uint64_t stamp) {
  while (e->done < stamp && e->on && e->on->first) {
    struct Stream* s = e->on;
    struct Work* w = s->first;
    s->first = w->next;
    if (!s->first) s->last = 0;
    const int64_t begun = ticks();
    if (w->kind == COPY) memmove(w->to, w->from, w->n);
    if (w->kind == SET) memset(w->to, w->value, w->n);
    if (w->kind == LAUNCH) run_kernel(w);
    if (w->kind == RECORD) w->event->done = w->stamp;
    if (w->kind == WAIT) until(w->event, w->stamp);
    if (fake_ran && w->ran.correlation) fake_ran(&w->ran, ticks() - begun + 1);
    free(w->owned);
    free(w->values);
    free(w);
  }
}
static void finish(struct Stream* s) {
  struct Event end = {1, 0, real(s)};
  until(&end, 1);
}
static void finish_all(void) {
  for (int d = 0; d < DEVICES; d++) finish(&defaults[d]);
  for (struct Stream* s = streams; s; s = s->next) finish(s);
}
EXPORT Result cuStreamCreateWithPriority(struct Stream** s, unsigned flags, int priority) {
  ALONE;
  char line[64];
  snprintf(line, sizeof line, "stream flags=%u priority=%d", flags, priority);
  note(line);
  *s = calloc(1, sizeof **s);
  (*s)->device = current->device;
  (*s)->next = streams;
  streams = *s;
  return OK;
}
EXPORT Result cuStreamDestroy_v2(struct Stream* s) {
  ALONE;
  finish(s);
  s->dead = 1;
  return OK;
}
EXPORT Result cuStreamSynchronize(struct Stream* s) {
  ALONE;
  note("synchronize stream");
  finish(s);
  return OK;
}
EXPORT Result cuStreamQuery(struct Stream* s) {
  ALONE;
  fake_quiet_calls++;
  return real(s)->first ? NOT_READY : OK;
}
EXPORT Result cuCtxSynchronize(void) {
  ALONE;
  note("synchronize context");
  finish_all();
  return OK;
}

EXPORT Result cuEventCreate(struct Event** e, unsigned flags) {
  ALONE;
  fake_quiet_calls++;
  (void)flags;
  *e = calloc(1, sizeof **e);
  return OK;
}
EXPORT Result cuEventDestroy_v2(struct Event* e) {
  ALONE;
  fake_quiet_calls++;
  (void)e;
  return OK;
} /* queued work may still name it */
EXPORT Result cuEventRecord(struct Event* e, struct Stream* s) {
  ALONE;
  fake_quiet_calls++;
  e->recorded = ++clock_;
  e->on = real(s);
  add(s, (struct Work){.kind = RECORD, .event = e, .stamp = e->recorded});
  return OK;
}
EXPORT Result cuEventQuery(struct Event* e) {
  ALONE;
  fake_quiet_calls++;
  return e->done >= e->recorded ? OK : NOT_READY;
}
EXPORT Result cuEventSynchronize(struct Event* e) {
  ALONE;
  note("synchronize event");
  until(e, e->recorded);
  return OK;
}
EXPORT Result cuEventElapsedTime(float* ms, struct Event* a, struct Event* b) {
  ALONE;
  if (a->done < a->recorded || b->done < b->recorded) return NOT_READY;
  *ms = (float)(b->recorded - a->recorded);
  return OK;
}
EXPORT Result cuStreamWaitEvent(struct Stream* s, struct Event* e, unsigned flags) {
  ALONE;
  (void)flags;
  note("stream waits event");
  add(s, (struct Work){.kind = WAIT, .event = e, .stamp = e->recorded});
  return OK;
}

/* ---- memory */

struct Piece {
  char* at;
  size_t n;
  int device;
  struct Piece* next;
};
static struct Piece *pieces, *pinned;

EXPORT Result cuMemGetInfo_v2(size_t* free_, size_t* total) {
  ALONE;
  fake_quiet_calls++;
  *total = setting("RUSHLIGHT_FAKE_MEMORY", 1l << 30);
  *free_ = *total - used_bytes[current->device];
  return OK;
}
EXPORT Result cuMemAlloc_v2(Address* at, size_t n) {
  ALONE;
  char line[64];
  if (used_bytes[current->device] + (long)n > setting("RUSHLIGHT_FAKE_MEMORY", 1l << 30))
    return NO_MEMORY;
  snprintf(line, sizeof line, "allocate %zu", n);
  note(line);
  struct Piece* p = malloc(sizeof *p);
  p->n = n;
  p->device = current->device;
  p->at = aligned_alloc(512, (n + 511) / 512 * 512);
  memset(p->at, 0xAB, n); /* nobody may rely on zeros */
  p->next = pieces;
  pieces = p;
  used_bytes[p->device] += (long)n;
  *at = (Address)(uintptr_t)p->at;
  return OK;
}
EXPORT Result cuMemFree_v2(Address at) {
  ALONE;
  finish_all();
  for (struct Piece** p = &pieces; *p; p = &(*p)->next)
    if ((*p)->at == (char*)(uintptr_t)at) {
      struct Piece* dead = *p;
      *p = dead->next;
      used_bytes[dead->device] -= (long)dead->n;
      note("free");
      free(dead->at);
      free(dead);
      return OK;
    }
  return INVALID;
}
EXPORT Result cuMemHostAlloc(void** at, size_t n, unsigned flags) {
  ALONE;
  (void)flags;
  struct Piece* p = malloc(sizeof *p);
  p->at = aligned_alloc(512, (n + 511) / 512 * 512);
  p->n = n;
  p->next = pinned;
  pinned = p;
  *at = p->at;
  note("pin");
  return OK;
}
EXPORT Result cuMemFreeHost(void* at) {
  ALONE;
  finish_all();
  for (struct Piece** p = &pinned; *p; p = &(*p)->next)
    if ((*p)->at == at) {
      *p = (*p)->next;
      free(at);
      return OK;
    }
  return INVALID;
}
static int on_device(Address at, size_t n) {
  char* a = (char*)(uintptr_t)at;
  for (struct Piece* p = pieces; p; p = p->next)
    if (a >= p->at && a + n <= p->at + p->n) return p->device + 1;
  return 0;
}
/* Memory that another library calls the device's may lie anywhere. */
EXPORT int fake_others = 0;
static int reachable(Address at, size_t n) { return fake_others || on_device(at, n); }
static int is_pinned(const void* at) {
  for (struct Piece* p = pinned; p; p = p->next)
    if ((const char*)at >= p->at && (const char*)at < p->at + p->n) return 1;
  return 0;
}
EXPORT Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, struct Stream* s) {
  ALONE;
  if (!reachable(to, n) || on_device((Address)(uintptr_t)from, 1)) return INVALID;
  struct Work w = {.kind = COPY, .to = (void*)(uintptr_t)to, .from = (void*)from, .n = n};
  w.ran.copy = 1;
  if (!is_pinned(from)) { /* staged at once, as the driver does */
    w.owned = malloc(n);
    memcpy(w.owned, from, n);
    w.from = w.owned;
  }
  note("copy to device");
  add(s, w);
  return OK;
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, struct Stream* s) {
  ALONE;
  if (!reachable(from, n)) return INVALID;
  note("copy to host");
  add(s, (struct Work){
             .kind = COPY, .to = to, .from = (void*)(uintptr_t)from, .n = n, .ran.copy = 2});
  return OK;
}
EXPORT Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, struct Stream* s) {
  ALONE;
  if (!reachable(from, n) || !reachable(to, n)) return INVALID;
  note("copy on device");
  add(s, (struct Work){.kind = COPY,
                       .to = (void*)(uintptr_t)to,
                       .from = (void*)(uintptr_t)from,
                       .n = n,
                       .ran.copy = 8});
  return OK;
}
EXPORT Result cuMemcpyPeerAsync(Address to, struct Context* tc, Address from, struct Context* fc,
                                size_t n, struct Stream* s) {
  ALONE;
  if (on_device(from, n) != fc->device + 1 || on_device(to, n) != tc->device + 1) return INVALID;
  note("copy across");
  add(s, (struct Work){.kind = COPY,
                       .to = (void*)(uintptr_t)to,
                       .from = (void*)(uintptr_t)from,
                       .n = n,
                       .ran.copy = 10});
  return OK;
}
EXPORT Result cuMemsetD8Async(Address to, unsigned char v, size_t n, struct Stream* s) {
  ALONE;
  if (!reachable(to, n)) return INVALID;
  note("set");
  add(s, (struct Work){.kind = SET, .to = (void*)(uintptr_t)to, .value = v, .n = n});
  return OK;
}
/* For the stand-ins of libraries: a call that runs when its turn comes. */
EXPORT void fake_wait_for_stream(struct Stream* s) {
  ALONE;
  finish(s);
}

/* ---- kernels */

struct Function {
  uintptr_t address;
  int buffers, numbers, scalars, error;
  char entry[128];
};

EXPORT Result cuModuleLoadData(struct Function** m, const void* image) {
  ALONE;
  struct Function f = {0};
  char mode[32];
  unsigned long long address;
  if (sscanf(image, "RLFAKE %31s %llu %d %d %d %d", mode, &address, &f.buffers, &f.numbers,
             &f.scalars, &f.error) != 6)
    return NO_BINARY;
  f.address = (uintptr_t)address;
  *m = malloc(sizeof f);
  **m = f;
  note("load module");
  return OK;
}
EXPORT Result cuModuleUnload(struct Function* m) {
  ALONE;
  (void)m;
  note("unload module");
  return OK;
}
EXPORT Result cuModuleGetFunction(struct Function** f, struct Function* m, const char* name) {
  ALONE;
  if (!strcmp(name, "missing")) return NOT_FOUND;
  snprintf(m->entry, sizeof m->entry, "%s", name);
  *f = m;
  return OK;
}
EXPORT Result cuFuncGetAttribute(int* v, int a, struct Function* f) {
  (void)f;
  *v = a == 4 ? 24 : 0;
  return OK;
}
EXPORT Result cuFuncSetAttribute(struct Function* f, int a, int v) {
  ALONE;
  char line[96];
  snprintf(line, sizeof line, "attribute %d=%d %.40s", a, v, f->entry);
  note(line);
  return OK;
}
static void run_kernel(struct Work* w) {
  struct Function* f = w->function;
  typedef int64_t (*Kernel)(void* const*, const int64_t*, const void*);
  uint64_t* v = w->values;
  const int64_t code = ((Kernel)f->address)((void* const*)v, (const int64_t*)(v + f->buffers),
                                            v + f->buffers + f->numbers);
  if (code && f->error) *(int64_t*)v[f->buffers + f->numbers + f->scalars] = code;
}
EXPORT Result cuLaunchKernel(struct Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared, struct Stream* s, void** p,
                             void** extra) {
  ALONE;
  char line[256];
  snprintf(line, sizeof line, "launch %s grid=%u,%u,%u block=%u shared=%u", f->entry, gx, gy, gz,
           bx, shared);
  note(line);
  if (by != 1 || bz != 1 || extra || !strcmp(f->entry, "refused")) return INVALID;
  const int count = f->buffers + f->numbers + f->scalars + f->error + 2;
  struct Work w = {.kind = LAUNCH, .function = f};
  w.ran = (struct Ran){.name = f->entry,
                       .grid = {(int)gx, (int)gy, (int)gz},
                       .block = (int)bx,
                       .shared = (int)shared,
                       .registers = 24};
  w.values = calloc((size_t)count, 8);
  for (int i = 0; i < count; i++) memcpy(w.values + i, p[i], 8);
  if (w.values[count - 1] || w.values[count - 2]) return INVALID; /* Triton's scratch pointers */
  add(s, w);
  return OK;
}
