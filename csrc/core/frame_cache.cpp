// What the frame hook does with a frame: looks up its code's compiled function, asks the hook for
// one on first sight, and serves the frame from it. Also the hook's switch.
// Invariant: a code object's answers are kept per hook in its code extra, and dropped with it, or
// all at once by frame_cache_clear(); codes marked `skip` stay so.
#include <pthread.h>

#include "compiled.h"

namespace core {
namespace {

struct Answer {
  PyObject* hook;              // owned: whose answer
  PyObject* value;             // owned: a CompiledFunction, or None: frames run as they are
};
struct Extra {
  bool skip;
  std::vector<Answer> answers;
  Extra *previous, *next;
};
Extra all{false, {}, &all, &all};                         // a ring of every code's extra
int active;                                               // threads with a hook on

void drop_answers(Extra* x) {
  std::vector<Answer> answers;
  answers.swap(x->answers);
  for (Answer& a : answers) {
    Py_DECREF(a.hook);
    Py_DECREF(a.value);
  }
}

Extra* extra_of(PyCodeObject* code) {
  auto* x = static_cast<Extra*>(frame_code_extra(code));
  if (x) return x;
  x = new Extra{false, {}, all.previous, &all};
  if (frame_set_code_extra(code, x) < 0) {
    delete x;
    throw PythonError();
  }
  x->previous->next = x;
  all.previous = x;
  return x;
}

PyObject* answer_of(const Extra* x, PyObject* hook) {     // borrowed, or null
  for (const Answer& a : x->answers)
    if (a.hook == hook) return a.value;
  return nullptr;
}

Ref ask(PyObject* hook, PyCodeObject* code, PyObject* function) {
  HookScope off(nullptr);
  Ref asked = Ref::borrow(hook), kept = Ref::borrow(reinterpret_cast<PyObject*>(code));
  PyObject* words[] = {kept.py(), function};
  Ref value = checked(PyObject_Vectorcall(hook, words, 2, nullptr));
  if (value.get() != Py_None && Py_TYPE(value.py()) != CompiledFunctionType)
    raise(PyExc_TypeError, "the frame hook returned %R: expected a CompiledFunction or None",
        value.py());
  if (value.get() != Py_None && compiled_of(value.py())->code != code)
    raise(PyExc_ValueError, "the frame hook returned %R for another code object, %R", value.py(),
        kept.py());
  Extra* x = extra_of(code);
  if (PyObject* before = answer_of(x, hook)) return Ref::borrow(before);  // another thread's
  x->answers.push_back({asked.release(), Py_NewRef(value.py())});
  return value;
}

// ---- Python's side

PyObject* set_frame_hook(PyObject*, PyObject* hook) {
  if (hook != Py_None && !PyCallable_Check(hook))
    return PyErr_Format(PyExc_TypeError, "set_frame_hook: %R is not callable", hook);
  PyObject* before = HookScope::put(hook == Py_None ? nullptr : Py_NewRef(hook));
  return before ? before : Py_NewRef(Py_None);
}
PyObject* frame_hook(PyObject*, PyObject*) {
  return Py_NewRef(frame_thread.hook ? frame_thread.hook : Py_None);
}
PyObject* frame_hook_installed(PyObject*, PyObject*) { return PyBool_FromLong(active > 0); }
PyObject* compile_disabled(PyObject*, PyObject* on) {
  int v = PyObject_IsTrue(on);
  if (v < 0) return nullptr;
  return PyBool_FromLong(std::exchange(frame_thread.disabled, v));
}
PyCodeObject* code_of(PyObject* o) {
  if (PyFunction_Check(o)) o = PyFunction_GET_CODE(o);
  if (!PyCode_Check(o)) raise(PyExc_TypeError, "expected a function or code object, got %R", o);
  return reinterpret_cast<PyCodeObject*>(o);
}
PyObject* frame_skip_(PyObject*, PyObject* args) {
  PyObject* o;
  int on = 1;
  if (!PyArg_ParseTuple(args, "O|p", &o, &on)) return nullptr;
  return guarded([&] {
    extra_of(code_of(o))->skip = on;
    return Py_NewRef(Py_None);
  });
}
PyObject* frame_cached(PyObject*, PyObject* args) {
  PyObject *o, *hook;
  if (!PyArg_ParseTuple(args, "OO", &o, &hook)) return nullptr;
  return guarded([&] {
    auto* x = static_cast<Extra*>(frame_code_extra(code_of(o)));
    PyObject* value = x ? answer_of(x, hook) : nullptr;
    return Py_NewRef(value ? value : Py_None);
  });
}
PyObject* frame_cache_clear(PyObject*, PyObject*) {
  std::vector<Answer> answers;                            // dropped last: that may run any code
  for (Extra* x = all.next; x != &all; x = x->next) {
    answers.insert(answers.end(), x->answers.begin(), x->answers.end());
    x->answers.clear();
  }
  for (Answer& a : answers) {
    Py_DECREF(a.hook);
    Py_DECREF(a.value);
  }
  return PyLong_FromSize_t(answers.size());
}

// FrameScope(hook): a context manager, and a callable scope(f, *args, **kwargs) that calls f with
// the hook on. One object may be entered again, by several threads too: what was on before is kept
// per thread.
struct FrameScope {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* hook;              // owned or null
};
thread_local std::vector<PyObject*> entered;

PyObject* scope_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (n < 1) return PyErr_Format(PyExc_TypeError, "FrameScope: a function to call is missing");
  HookScope on(frame_thread.disabled ? nullptr : reinterpret_cast<FrameScope*>(self)->hook);
  return PyObject_Vectorcall(args[0], args + 1, (n - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}
PyObject* scope_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"hook", nullptr};
  PyObject* hook;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(keywords), &hook))
    return nullptr;
  if (hook != Py_None && !PyCallable_Check(hook))
    return PyErr_Format(PyExc_TypeError, "FrameScope: %R is not callable", hook);
  auto* s = reinterpret_cast<FrameScope*>(type->tp_alloc(type, 0));
  if (!s) return nullptr;
  s->vectorcall = scope_call;
  s->hook = hook == Py_None ? nullptr : Py_NewRef(hook);
  return reinterpret_cast<PyObject*>(s);
}
PyObject* scope_enter(PyObject* self, PyObject*) {
  PyObject* hook = frame_thread.disabled ? nullptr : reinterpret_cast<FrameScope*>(self)->hook;
  entered.push_back(HookScope::put(Py_XNewRef(hook)));
  return Py_NewRef(self);
}
PyObject* scope_exit(PyObject*, PyObject*) {
  if (entered.empty()) return PyErr_Format(PyExc_RuntimeError, "FrameScope: left but not entered");
  PyObject* before = entered.back();
  entered.pop_back();
  Py_XDECREF(HookScope::put(before));
  Py_RETURN_FALSE;
}
int scope_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<FrameScope*>(self)->hook);
  return 0;
}
int scope_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<FrameScope*>(self)->hook);
  return 0;
}
void scope_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  scope_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}
template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, nullptr},
    {"__exit__", scope_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef scope_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FrameScope, vectorcall), READONLY, nullptr},
    {"hook", T_OBJECT, offsetof(FrameScope, hook), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot scope_slots[] = {
    {Py_tp_new, fn(scope_new)},
    {Py_tp_dealloc, fn(scope_dealloc)},
    {Py_tp_traverse, fn(scope_traverse)},
    {Py_tp_clear, fn(scope_clear)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_methods, scope_methods},
    {Py_tp_members, scope_members},
    {Py_tp_doc, const_cast<char*>("FrameScope(hook): the frame hook is on in `with` and in calls "
                                  "scope(f, *args, **kwargs); None: off")},
    {0, nullptr},
};
PyType_Spec scope_spec = {"rushlight._core.FrameScope", sizeof(FrameScope), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, scope_slots};

PyMethodDef functions[] = {
    {"set_frame_hook", set_frame_hook, METH_O,
        "set_frame_hook(callable or None): this thread's hook; returns what was"},
    {"frame_hook", frame_hook, METH_NOARGS, "this thread's hook, or None"},
    {"frame_hook_installed", frame_hook_installed, METH_NOARGS, "does any thread have one on?"},
    {"compile_disabled", compile_disabled, METH_O,
        "compile_disabled(flag): compiled functions called by this thread run their originals; "
        "returns what was"},
    {"frame_skip", frame_skip_, METH_VARARGS,
        "frame_skip(function or code, on=True): its frames run as they are, the hook is not asked"},
    {"frame_cached", frame_cached, METH_VARARGS,
        "frame_cached(function or code, hook): the CompiledFunction that serves its frames, or None"},
    {"frame_cache_clear", frame_cache_clear, METH_NOARGS,
        "forgets what hooks answered for every code object; returns how much that was"},
    {nullptr, nullptr, 0, nullptr},
};

// A fork leaves the child one thread: the hooks of the others are gone with them.
void forked() {
  active = frame_thread.hook ? 1 : 0;
}

}  // namespace

PyObject* HookScope::put(PyObject* stolen) {
  PyObject* before = std::exchange(frame_thread.hook, stolen);
  if (!before && stolen && active++ == 0) frame_hook_install();
  if (before && !stolen && --active == 0) frame_hook_remove();
  return before;
}

void frame_skip(PyCodeObject* code) { extra_of(code)->skip = true; }

void frame_init(PyObject* m) {
  PyObject* scope = check(PyType_FromSpec(&scope_spec));
  add_type(m, "FrameScope", reinterpret_cast<PyTypeObject*>(scope));
  check(PyModule_AddFunctions(m, functions));
  check(frame_code_index());
  pthread_atfork(nullptr, nullptr, forked);
}

}  // namespace core

extern "C" {

void frame_extra_free(void* extra) {
  if (!extra) return;
  auto* x = static_cast<core::Extra*>(extra);
  x->previous->next = x->next;
  x->next->previous = x->previous;
  core::drop_answers(x);
  delete x;
}

int frame_call(PyObject* hook, PyCodeObject* code, PyObject* function, PyObject* const* locals,
    PyObject** result) {
  using namespace core;
  auto* extra = static_cast<Extra*>(frame_code_extra(code));
  if (extra && extra->skip) return 0;
  bool original = false;
  *result = guarded([&]() -> PyObject* {
    PyObject* known = extra ? answer_of(extra, hook) : nullptr;
    Ref value = known ? Ref::borrow(known) : ask(hook, code, function);
    if (value.get() == Py_None) {
      original = true;
      return nullptr;
    }
    Bound b;
    b.locals = locals;
    StackScope stack;
    return compiled_finish(
        compiled_serve(compiled_of(value.py()), function, b, nullptr, 0, nullptr, &original));
  });
  return original ? 0 : 1;
}
}
