// The frame hook (PEP 523): what frame.c, which sees the interpreter's own frames, and C++ say to
// each other. Invariant: the hook stands in the interpreter only while some thread has one on, so an
// idle process runs CPython's own evaluation.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

struct FrameThread {
  PyObject* hook;            // owned; asked for frames of this thread that start; null: off
  PyCodeObject* skip;        // borrowed, compared only: the next frame of it runs as it is
  int disabled;              // compiled functions run their originals
  char* stack_low;           // lowest address of this thread's stack; null: not asked yet
};
extern __thread struct FrameThread frame_thread __attribute__((tls_model("initial-exec")));

// frame.c
void frame_hook_install(void);
void frame_hook_remove(void);
int frame_code_index(void);                              // of code extras; -1 with an exception
void* frame_code_extra(PyCodeObject*);
int frame_set_code_extra(PyCodeObject*, void*);          // -1 with an exception

// CPython 3.12 and 3.13 bound the depth of calls from C by a number fixed at build time, whatever
// stack there is, and each Python frame that we call would cost one or two of it. Here the number
// is made again from the stack that is left; what is left of it is bounded on 3.11 too. 0, or -1
// with a RecursionError; `leave` restores `before`.
int stack_enter(int* before);
void stack_leave(int before);

// frame_cache.cpp. 0: run the frame as it is. 1: `result` is the call's result (null: an exception).
int frame_call(PyObject* hook, PyCodeObject*, PyObject* function, PyObject* const* locals,
    PyObject** result);
void frame_extra_free(void*);

#ifdef __cplusplus
}
#endif
