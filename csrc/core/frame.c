// The frame hook's own part: the only file that reads CPython's internal frames. Takes each Python
// frame that is about to start; lets frame_cache.cpp serve it, or CPython evaluate it.
// Invariant: a frame that was served is cleared exactly as CPython would have done: on 3.11 by the
// caller, on 3.12 and 3.13 here. Compiled as C: these headers are not C++.
#define _GNU_SOURCE
#define Py_BUILD_CORE 1
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include "internal/pycore_ceval.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"

#include "frame.h"

__thread struct FrameThread frame_thread __attribute__((tls_model("initial-exec")));

#if PY_VERSION_HEX >= 0x030D0000
#define CODE(f) ((PyCodeObject*)(f)->f_executable)
#define FUNCTION(f) ((f)->f_funcobj)
#elif PY_VERSION_HEX >= 0x030C0000
#define CODE(f) ((f)->f_code)
#define FUNCTION(f) ((f)->f_funcobj)
#else
#define CODE(f) ((f)->f_code)
#define FUNCTION(f) ((PyObject*)(f)->f_func)
#endif

// ---- code extras

static Py_ssize_t extra_index = -1;

int frame_code_index(void) {
  if (extra_index < 0) {
#if PY_VERSION_HEX >= 0x030C0000
    extra_index = PyUnstable_Eval_RequestCodeExtraIndex(frame_extra_free);
#else
    extra_index = _PyEval_RequestCodeExtraIndex(frame_extra_free);
#endif
    if (extra_index < 0 && !PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "[frame hook] CPython has no code extra left");
  }
  return (int)extra_index;
}

void* frame_code_extra(PyCodeObject* code) {
  void* extra = NULL;
#if PY_VERSION_HEX >= 0x030C0000
  if (extra_index >= 0) PyUnstable_Code_GetExtra((PyObject*)code, extra_index, &extra);
#else
  if (extra_index >= 0) _PyCode_GetExtra((PyObject*)code, extra_index, &extra);
#endif
  return extra;
}

int frame_set_code_extra(PyCodeObject* code, void* extra) {
  if (frame_code_index() < 0) return -1;
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_SetExtra((PyObject*)code, extra_index, extra);
#else
  return _PyCode_SetExtra((PyObject*)code, extra_index, extra);
#endif
}

// ---- depth

enum { kReserve = 192 * 1024 };               // bytes of stack that C code below us may need
#if PY_VERSION_HEX >= 0x030D0000
enum { kCalls = Py_C_RECURSION_LIMIT };
#elif PY_VERSION_HEX >= 0x030C0000
enum { kCalls = C_RECURSION_LIMIT };
#endif

static char* stack_low(void) {
  pthread_attr_t attr;
  void* low = NULL;
  size_t size = 0, guard = 0;
  if (pthread_getattr_np(pthread_self(), &attr) == 0) {
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_getguardsize(&attr, &guard);
    pthread_attr_destroy(&attr);
  }
  // Unknown: as if there were always enough, which is what CPython believes.
  return frame_thread.stack_low = low ? (char*)low + guard : (char*)16;
}

int stack_enter(int* before) {
  char here;
  char* low = frame_thread.stack_low ? frame_thread.stack_low : stack_low();
  const ptrdiff_t left = &here - low - kReserve;
  if (__builtin_expect(left < 0, 0)) {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the stack is used up");
    return -1;
  }
#if PY_VERSION_HEX >= 0x030C0000
  // CPython's limit is meant for 8 MiB: the same share of what there is.
  const ptrdiff_t calls = left / ((8 << 20) / kCalls);
  PyThreadState* ts = PyThreadState_GET();
  *before = ts->c_recursion_remaining;
  ts->c_recursion_remaining = calls < kCalls ? (int)calls : kCalls;
#else
  *before = 0;                                // one limit counts Python frames and C calls alike
#endif
  return 0;
}

void stack_leave(int before) {
#if PY_VERSION_HEX >= 0x030C0000
  PyThreadState_GET()->c_recursion_remaining = before;
#else
  (void)before;
#endif
}

// ---- clearing a frame that was served instead of evaluated

static void clear_frame(PyThreadState* ts, _PyInterpreterFrame* f) {
#if PY_VERSION_HEX >= 0x030D0000
  _PyEval_FrameClearAndPop(ts, f);
#elif PY_VERSION_HEX >= 0x030C0000
  // It has never run: no frame object, no cells, an empty evaluation stack.
  PyCodeObject* code = f->f_code;
  int n = f->stacktop;
  f->stacktop = 0;
  for (int i = 0; i < n; i++) Py_XDECREF(f->localsplus[i]);
  Py_XDECREF(f->f_locals);
  Py_DECREF(f->f_funcobj);
  PyObject** base = (PyObject**)f;
  _PyStackChunk* chunk = ts->datastack_chunk;
  if (base == &chunk->data[0]) {              // the first frame of its chunk: the chunk goes too
    _PyStackChunk* previous = chunk->previous;
    ts->datastack_top = &previous->data[previous->top];
    ts->datastack_limit = (PyObject**)((char*)previous + previous->size);
    ts->datastack_chunk = previous;
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
  } else {
    ts->datastack_top = base;
  }
  Py_DECREF(code);
#else
  (void)ts;
  (void)f;
#endif
}

// ---- the hook

static _PyFrameEvalFunction before_us;        // what evaluated frames before we were installed

static PyObject* pass_on(PyThreadState* ts, _PyInterpreterFrame* f, int throwing) {
  int depth;
  if (!throwing && stack_enter(&depth) < 0) {
    clear_frame(ts, f);
    return NULL;
  }
  PyObject* result = before_us ? before_us(ts, f, throwing)
                               : _PyEval_EvalFrameDefault(ts, f, throwing);
  if (!throwing) stack_leave(depth);
  return result;
}

static PyObject* evaluate(PyThreadState* ts, _PyInterpreterFrame* f, int throwing) {
  struct FrameThread* t = &frame_thread;
  if (!t->hook || throwing) return pass_on(ts, f, throwing);
  PyCodeObject* code = CODE(f);
  const int flags = code->co_flags;
  if (!(flags & CO_OPTIMIZED) || f->frame_obj || f->owner != FRAME_OWNED_BY_THREAD ||
      (flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)))
    return pass_on(ts, f, throwing);
  if (t->skip == code) {
    t->skip = NULL;
    return pass_on(ts, f, throwing);
  }
  PyObject* result = NULL;
  if (!frame_call(t->hook, code, FUNCTION(f), f->localsplus, &result))
    return pass_on(ts, f, throwing);
  clear_frame(ts, f);
  return result;
}

void frame_hook_install(void) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (now == evaluate) return;
  before_us = now == _PyEval_EvalFrameDefault ? NULL : now;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void frame_hook_remove(void) {                // unless somebody stands above us: then it idles
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) return;
  _PyInterpreterState_SetEvalFrameFunc(
      interpreter, before_us ? before_us : _PyEval_EvalFrameDefault);
}
