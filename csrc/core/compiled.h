// CompiledFunction: a callable with cache entries (guards, target); on a hit no Python runs between
// the call and the target.
// Invariant: a block of entries never changes once calls can see it: adding and clearing put
// another block in its place, and a running call keeps the one that it looks at.
#pragma once
#include "core.h"
#include "frame.h"
#include "guards.h"

namespace core {

struct CompiledEntry {
  Guards* guards;              // owned
  PyObject* target;            // owned; None: run the original
  int64_t hits;
};

struct EntryBlock {
  int64_t refs;
  std::vector<CompiledEntry> items;
};

struct CompiledFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* callable;          // owned: what was compiled
  PyFunctionObject* function;  // borrowed from callable; null where that is no Python function
  PyObject* self;              // borrowed from callable where it is a bound method
  PyCodeObject* code;          // owned: the signature
  PyObject* miss;              // owned
  PyObject* hook;              // owned or null: the frame hook while the original runs
  CompiledFunction* origin;    // owned: whose entries these are; null: its own
  EntryBlock* block;
  int hot;                     // the entry that served the latest call
  int positional, keyword_only, names;
  bool simple;                 // nothing but positional parameters
  int64_t misses;
  PyObject *dict, *weakrefs;
};
extern PyTypeObject* CompiledFunctionType;
inline CompiledFunction* compiled_of(PyObject* o) { return reinterpret_cast<CompiledFunction*>(o); }

// The parameters of one call, in the order of the code's locals.
struct Bound {
  PyObject* const* locals = nullptr;
  Small<PyObject*, 12> slots;
  Small<PyObject*, 4> owned;   // what binding made or took from the function
  bool defaults = false;       // some were filled in
  bool direct = false;         // locals is the caller's own array
  ~Bound() { for (int i = 0; i < owned.size(); i++) Py_DECREF(owned[i]); }
};

// binding.cpp
bool bind(const CompiledFunction*, PyObject* const* args, Py_ssize_t given, PyObject* names, Bound&);
// The bound parameters as a call again: positional ones, *args, keyword-only ones and **kwargs.
struct Arguments {
  Small<PyObject*, 12> values;
  Ref names;
  int positional = 0;
};
void spread(const CompiledFunction*, const Bound&, Arguments&);
// Entries are shared by all functions of one code object; a target that closes over cells gets
// those of the function that is called, by name.
Ref for_function(PyObject* target, PyObject* function);

// frame_cache.cpp: turns this thread's hook on (or off: null) for a while.
class HookScope {
 public:
  explicit HookScope(PyObject* hook) : before_(put(Py_XNewRef(hook))) {}
  ~HookScope() { Py_XDECREF(put(before_)); }
  HookScope(const HookScope&) = delete;
  static PyObject* put(PyObject* stolen);  // gives what was on, with its reference

 private:
  PyObject* before_;
};

class StackScope {                                        // room for one more call, or RecursionError
 public:
  StackScope() { if (stack_enter(&before_) < 0) throw PythonError(); }
  ~StackScope() { stack_leave(before_); }
  StackScope(const StackScope&) = delete;

 private:
  int before_;
};

extern PyObject *run_original, *retry;                    // sentinels that `miss` may return

// What `tail` returns: the call that the function which returns it goes on with. Native code makes
// it once the frame is gone, so that a loop of breaks needs no depth.
struct TailCall {
  PyObject_HEAD
  CompiledFunction* function;  // owned
  PyObject* arguments;         // owned tuple
};
PyObject* compiled_finish(PyObject* result);              // steals; makes the calls that are left

// Serves the call, or returns null with `original` set where the original is to run. The result may
// be a TailCall.
PyObject* compiled_serve(CompiledFunction*, PyObject* function, Bound&, PyObject* const* args,
    size_t nargsf, PyObject* names, bool* original);
void frame_skip(PyCodeObject*);                           // frames of this code run as they are

void compiled_init(PyObject* module);
void frame_init(PyObject* module);

}  // namespace core
