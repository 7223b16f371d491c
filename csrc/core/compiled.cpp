// The CompiledFunction type: finds the entry whose guards hold for a call, and calls its target.
// Invariant: no Python runs between the call and the target unless a guard or a miss needs it.
#include "compiled.h"

#include <optional>

#include "records.h"

namespace core {

PyTypeObject* CompiledFunctionType;
PyObject *run_original, *retry;

namespace {

PyObject* __attribute__((noinline)) call_spread(
    const CompiledFunction* cf, PyObject* target, const Bound& b) {
  Arguments a;
  spread(cf, b, a);
  return PyObject_Vectorcall(target, a.values.data(), a.positional, a.names.py());
}

// ---- entries

class BlockHold {
 public:
  explicit BlockHold(EntryBlock* b) : b_(b) { b_->refs++; }
  ~BlockHold() { drop(b_); }
  BlockHold(const BlockHold&) = delete;
  static void drop(EntryBlock* b) {
    if (--b->refs) return;
    std::vector<CompiledEntry> items;
    items.swap(b->items);
    delete b;
    for (CompiledEntry& e : items) {
      Py_DECREF(reinterpret_cast<PyObject*>(e.guards));
      Py_DECREF(e.target);
    }
  }

 private:
  EntryBlock* b_;
};

void put_block(CompiledFunction* cf, EntryBlock* block) {
  EntryBlock* before = std::exchange(cf->block, block);
  cf->hot = 0;
  BlockHold::drop(before);
}

EntryBlock* copy_block(const EntryBlock* b) {
  auto* made = new EntryBlock{1, {}};
  made->items.reserve(b->items.size() + 1);
  for (const CompiledEntry& e : b->items) {
    Py_INCREF(reinterpret_cast<PyObject*>(e.guards));
    Py_INCREF(e.target);
    made->items.push_back(e);
  }
  return made;
}

struct Failure {
  int entry, check;
  PyObject* seen;
};
struct Failures {
  Small<Failure, 4> items;
  ~Failures() { for (int i = 0; i < items.size(); i++) Py_XDECREF(items[i].seen); }
  Ref list(const EntryBlock* block) const {  // [((guards, target), number of the check, seen)]
    Ref made = checked(PyList_New(items.size()));
    for (int i = 0; i < items.size(); i++) {
      const CompiledEntry& e = block->items[items[i].entry];
      PyList_SET_ITEM(made.py(), i,
          check(Py_BuildValue("((OO)iO)", e.guards, e.target, items[i].check,
              items[i].seen ? items[i].seen : Py_None)));
    }
    return made;
  }
};

// The target to call, or null with `failures`: the latest hit is asked first.
Ref find(CompiledFunction* owner, EntryBlock* block, const Bound& b, PyObject* function,
    Failures& failures) {
  int n = static_cast<int>(block->items.size());
  int hot = owner->hot < n ? owner->hot : 0;
  HookScope off(nullptr);  // an attribute that a guard reads may be Python, and compiled itself
  for (int k = 0; k < n; k++) {
    int i = k == 0 ? hot : k <= hot ? k - 1 : k;
    CompiledEntry& e = block->items[i];
    Ref seen;
    int failed = guards_evaluate(e.guards, b.locals, owner->names, function, &seen);
    if (failed < 0) {
      e.hits++;
      if (owner->block == block) owner->hot = i;
      return Ref::borrow(e.target);
    }
    failures.items.push({i, failed, seen.release()});
  }
  return Ref();
}

Ref sibling(CompiledFunction*, PyObject* function);

PyObject* call_miss(CompiledFunction* cf, PyObject* function, const Bound& b, PyObject* const* args,
    size_t nargsf, PyObject* names, Ref failures) {
  Ref self = Ref::borrow(reinterpret_cast<PyObject*>(cf));
  Arguments spreaded;
  Py_ssize_t given = PyVectorcall_NARGS(nargsf);
  if (!args) {                                            // a frame: its parameters are all there
    if (function != reinterpret_cast<PyObject*>(cf->function)) self = sibling(cf, function);
    spread(cf, b, spreaded);
    args = spreaded.values.data();
    given = spreaded.positional;
    names = spreaded.names.py();
  }
  Ref positional = checked(PyTuple_New(given)), keywords = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < given; i++) PyTuple_SET_ITEM(positional.py(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    check(PyDict_SetItem(keywords.py(), PyTuple_GET_ITEM(names, i), args[given + i]));
  (cf->origin ? cf->origin : cf)->misses++;
  HookScope off(nullptr);
  Ref miss = Ref::borrow(cf->miss);
  PyObject* words[] = {self.py(), positional.py(), keywords.py(), failures.py()};
  Recursion deeper(" while compiling");
  return check(PyObject_Vectorcall(miss.py(), words, 4, nullptr));
}

// The target, or null with `answer` (what `miss` gave). Not inlined: what it needs of the stack is
// gone when the target runs.
Ref __attribute__((noinline)) decide(CompiledFunction* cf, PyObject* function, const Bound& b,
    PyObject* const* args, size_t nargsf, PyObject* names, Ref* answer) {
  CompiledFunction* owner = cf->origin ? cf->origin : cf;
  for (int round = 0;; round++) {
    EntryBlock* block = owner->block;
    BlockHold hold(block);
    Failures failures;
    if (Ref target = find(owner, block, b, function, failures)) return target;
    *answer = Ref(call_miss(cf, function, b, args, nargsf, names, failures.list(block)));
    if (answer->get() != retry) return Ref();
    // An entry was made and its guards do not hold for the very call it was made for: no third try.
    if (round) *answer = Ref::borrow(run_original);
    if (round) return Ref();
  }
}

}  // namespace

PyObject* compiled_serve(CompiledFunction* cf, PyObject* function, Bound& b, PyObject* const* args,
    size_t nargsf, PyObject* names, bool* original) {
  Ref answer;
  std::optional<RecordScope> record;
  if (mode & kRecords)  // a piece after a break is known by its function's name
    record.emplace(PyFunction_Check(cf->callable)
                       ? reinterpret_cast<PyFunctionObject*>(cf->callable)->func_qualname
                       : cf->code->co_qualname,
        "compiled");
  const CompiledFunction* owner = cf->origin ? cf->origin : cf;
  int64_t misses = owner->misses;
  Ref target = decide(cf, function, b, args, nargsf, names, &answer);
  if (record) record->ran("compiled", misses == owner->misses);
  if (!target) {
    *original = answer.get() == run_original;
    return *original ? nullptr : answer.release();
  }
  if (target.get() == Py_None) {
    *original = true;
    return nullptr;
  }
  if (function != reinterpret_cast<PyObject*>(cf->function) || cf->origin)
    target = for_function(target.py(), function);
  HookScope off(nullptr);
  if (!PyFunction_Check(target.py())) {                   // no frame that would count itself
    Recursion deeper(" in a compiled function");
    return call_spread(cf, target.py(), b);
  }
  if (b.direct && args) return PyObject_Vectorcall(target.py(), args, nargsf, nullptr);
  if (cf->simple) return PyObject_Vectorcall(target.py(), b.locals, cf->positional, nullptr);
  if (args && !b.defaults && !cf->self) return PyObject_Vectorcall(target.py(), args, nargsf, names);
  return call_spread(cf, target.py(), b);
}

namespace {

PyObject* call_original(
    CompiledFunction* cf, PyObject* const* args, size_t nargsf, PyObject* names) {
  HookScope on(cf->hook);
  PyCodeObject* before = std::exchange(frame_thread.skip, cf->hook ? cf->code : nullptr);
  PyObject* result = PyObject_Vectorcall(cf->callable, args, nargsf, names);
  frame_thread.skip = before;
  return result;
}

// One call, without the tail calls that may follow it.
PyObject* call_once(CompiledFunction* cf, PyObject* const* args, size_t nargsf, PyObject* names) {
  return guarded([&]() -> PyObject* {
    StackScope stack;
    if (frame_thread.disabled) return PyObject_Vectorcall(cf->callable, args, nargsf, names);
    Bound b;
    if (!bind(cf, args, PyVectorcall_NARGS(nargsf), names, b))
      return PyObject_Vectorcall(cf->callable, args, nargsf, names);
    bool original = false;
    PyObject* result = compiled_serve(
        cf, reinterpret_cast<PyObject*>(cf->function), b, args, nargsf, names, &original);
    return original ? call_original(cf, args, nargsf, names) : result;
  });
}

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  return compiled_finish(call_once(compiled_of(self), args, nargsf, names));
}

// ---- tail calls

PyTypeObject* TailCallType;

TailCall* tail_of(PyObject* o) { return reinterpret_cast<TailCall*>(o); }

PyObject* tail(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    Ref arguments = checked(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(arguments.py(), i, Py_NewRef(args[i]));
    TailCall* t = PyObject_GC_New(TailCall, TailCallType);
    check(reinterpret_cast<PyObject*>(t));
    t->function = compiled_of(Py_NewRef(self));
    t->arguments = arguments.release();
    PyObject_GC_Track(reinterpret_cast<PyObject*>(t));
    return reinterpret_cast<PyObject*>(t);
  });
}
int tail_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(tail_of(o)->function);
  Py_VISIT(tail_of(o)->arguments);
  return 0;
}
void tail_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  Py_XDECREF(reinterpret_cast<PyObject*>(tail_of(o)->function));
  Py_XDECREF(tail_of(o)->arguments);
  PyObject_GC_Del(o);
  Py_DECREF(type);
}
PyType_Slot tail_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(tail_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(tail_traverse)},
    {0, nullptr},
};
PyType_Spec tail_spec = {"rushlight._core.TailCall", sizeof(TailCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, tail_slots};

// ---- the Python type

void set_callable(CompiledFunction* cf, PyObject* callable) {
  cf->callable = Py_NewRef(callable);
  PyObject* f = callable;
  if (PyMethod_Check(callable)) {
    cf->self = PyMethod_GET_SELF(callable);
    f = PyMethod_GET_FUNCTION(callable);
  }
  cf->function = PyFunction_Check(f) ? reinterpret_cast<PyFunctionObject*>(f) : nullptr;
}

Own<CompiledFunction> make(PyTypeObject* type, PyObject* callable, PyObject* code, PyObject* miss,
    PyObject* hook) {
  Own<CompiledFunction> cf(compiled_of(check(type->tp_alloc(type, 0))));
  cf->vectorcall = vectorcall;
  set_callable(cf.get(), callable);
  cf->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
  cf->miss = Py_NewRef(miss);
  cf->hook = hook == Py_None ? nullptr : Py_XNewRef(hook);
  cf->block = new EntryBlock{1, {}};
  cf->positional = cf->code->co_argcount;
  cf->keyword_only = cf->code->co_kwonlyargcount;
  int stars = !!(cf->code->co_flags & CO_VARARGS) + !!(cf->code->co_flags & CO_VARKEYWORDS);
  cf->names = cf->positional + cf->keyword_only + stars;
  cf->simple = !cf->keyword_only && !stars;
  if (cf->self && !cf->positional && !(cf->code->co_flags & CO_VARARGS))
    raise(PyExc_TypeError, "CompiledFunction: a bound method of a function without parameters");
  return cf;
}

Ref sibling(CompiledFunction* cf, PyObject* function) {   // the same entries for another function
  CompiledFunction* owner = cf->origin ? cf->origin : cf;
  Own<CompiledFunction> made = make(CompiledFunctionType, function,
      reinterpret_cast<PyObject*>(owner->code), owner->miss, owner->hook);
  Py_INCREF(reinterpret_cast<PyObject*>(owner));
  made->origin = owner;
  return Ref(made.release_object());
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"callable", "signature_code", "miss", "hook", nullptr};
  PyObject *callable, *code, *miss, *hook = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|O", const_cast<char**>(keywords), &callable,
          &PyCode_Type, &code, &miss, &hook))
    return nullptr;
  return guarded([&] {
    for (PyObject* o : {callable, miss})
      if (!PyCallable_Check(o))
        raise(PyExc_TypeError, "CompiledFunction: %R is not callable", o);
    return make(type, callable, code, miss, hook).release_object();
  });
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  CompiledFunction* cf = compiled_of(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(cf->callable);
  Py_VISIT(cf->code);
  Py_VISIT(cf->miss);
  Py_VISIT(cf->hook);
  Py_VISIT(cf->origin);
  Py_VISIT(cf->dict);
  if (cf->block)
    for (const CompiledEntry& e : cf->block->items) {
      Py_VISIT(e.guards);
      Py_VISIT(e.target);
    }
  return 0;
}

// The callable stays: a function in a dead cycle may still be called by a finaliser.
int clear(PyObject* o) {
  CompiledFunction* cf = compiled_of(o);
  Py_CLEAR(cf->dict);
  if (cf->block) put_block(cf, new EntryBlock{1, {}});
  return 0;
}

void dealloc(PyObject* o) {
  CompiledFunction* cf = compiled_of(o);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (cf->weakrefs) PyObject_ClearWeakRefs(o);
  if (cf->block) BlockHold::drop(std::exchange(cf->block, nullptr));
  Py_CLEAR(cf->dict);
  Py_CLEAR(cf->callable);
  Py_CLEAR(cf->code);
  Py_CLEAR(cf->miss);
  Py_CLEAR(cf->hook);
  Py_CLEAR(cf->origin);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* descr_get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

// What it has not itself, the original has: a compiled function can stand for it.
PyObject* getattro(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(compiled_of(self)->callable, name);
}

PyObject* repr(PyObject* self) {
  CompiledFunction* cf = compiled_of(self);
  CompiledFunction* owner = cf->origin ? cf->origin : cf;
  return PyUnicode_FromFormat("<compiled %R, %zd entries>", cf->callable,
      static_cast<Py_ssize_t>(owner->block->items.size()));
}

PyObject* add_entry(PyObject* self, PyObject* args) {
  PyObject *guards, *target;
  if (!PyArg_ParseTuple(args, "O!O", GuardsType, &guards, &target)) return nullptr;
  return guarded([&] {
    CompiledFunction* cf = compiled_of(self);
    CompiledFunction* owner = cf->origin ? cf->origin : cf;
    if (target != Py_None && !PyCallable_Check(target))
      raise(PyExc_TypeError, "add_entry: the target is a callable or None, not %R", target);
    if (guards_of(guards)->locals > owner->names)
      raise(PyExc_ValueError, "add_entry: guards on parameter %d of %d",
          guards_of(guards)->locals - 1, owner->names);
    if (PyFunction_Check(target))
      frame_skip(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(target)));
    EntryBlock* block = copy_block(owner->block);
    block->items.push_back({guards_of(Py_NewRef(guards)), Py_NewRef(target), 0});
    int hot = static_cast<int>(block->items.size()) - 1;
    put_block(owner, block);
    owner->hot = hot;
    return Py_NewRef(Py_None);
  });
}

PyObject* remove_entry(PyObject* self, PyObject* guards) {
  return guarded([&] {
    CompiledFunction* cf = compiled_of(self);
    CompiledFunction* owner = cf->origin ? cf->origin : cf;
    auto* kept = new EntryBlock{1, {}};
    bool found = false;
    for (const CompiledEntry& e : owner->block->items) {
      if (reinterpret_cast<PyObject*>(e.guards) == guards) {
        found = true;
        continue;
      }
      Py_INCREF(reinterpret_cast<PyObject*>(e.guards));
      Py_INCREF(e.target);
      kept->items.push_back(e);
    }
    put_block(owner, kept);
    return PyBool_FromLong(found);
  });
}

PyObject* clear_entries(PyObject* self, PyObject*) {
  return guarded([&] {
    CompiledFunction* cf = compiled_of(self);
    put_block(cf->origin ? cf->origin : cf, new EntryBlock{1, {}});
    return Py_NewRef(Py_None);
  });
}

PyObject* bind_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    CompiledFunction* cf = compiled_of(self);
    Py_ssize_t n = PyTuple_GET_SIZE(args), k = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
    Small<PyObject*, 12> values;
    for (Py_ssize_t i = 0; i < n; i++) values.push(PyTuple_GET_ITEM(args, i));
    Ref names = k ? checked(PyTuple_New(k)) : Ref();
    PyObject *key, *value;
    for (Py_ssize_t at = 0, i = 0; k && PyDict_Next(kwargs, &at, &key, &value); i++) {
      values.push(value);
      PyTuple_SET_ITEM(names.py(), i, Py_NewRef(key));
    }
    Bound b;
    if (!bind(cf, values.data(), n, names.py(), b)) {
      Ref called = checked(PyObject_Vectorcall(cf->callable, values.data(), n, names.py()));
      raise(PyExc_TypeError, "bind: the arguments do not fit %R", cf->callable);
    }
    Ref made = checked(PyTuple_New(cf->names));
    for (int i = 0; i < cf->names; i++) PyTuple_SET_ITEM(made.py(), i, Py_NewRef(b.locals[i]));
    return made.release();
  });
}

PyObject* reduce(PyObject* self, PyObject*) {             // by name, as functions
  return PyObject_GetAttrString(compiled_of(self)->callable, "__qualname__");
}
PyObject* deepcopy(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyObject* get_entries(PyObject* self, void*) {
  return guarded([&] {
    CompiledFunction* cf = compiled_of(self);
    EntryBlock* block = (cf->origin ? cf->origin : cf)->block;
    BlockHold hold(block);
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(block->items.size())));
    for (size_t i = 0; i < block->items.size(); i++)
      PyList_SET_ITEM(list.py(), i,
          check(PyTuple_Pack(2, block->items[i].guards, block->items[i].target)));
    return list.release();
  });
}
PyObject* get_hits(PyObject* self, void*) {
  return guarded([&] {
    CompiledFunction* cf = compiled_of(self);
    EntryBlock* block = (cf->origin ? cf->origin : cf)->block;
    BlockHold hold(block);
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(block->items.size())));
    for (size_t i = 0; i < block->items.size(); i++)
      PyList_SET_ITEM(list.py(), i, check(PyLong_FromLongLong(block->items[i].hits)));
    return list.release();
  });
}
PyObject* get_misses(PyObject* self, void*) {
  CompiledFunction* cf = compiled_of(self);
  return PyLong_FromLongLong((cf->origin ? cf->origin : cf)->misses);
}
PyObject* get_callable(PyObject* self, void*) { return Py_NewRef(compiled_of(self)->callable); }
PyObject* get_code(PyObject* self, void*) {
  return Py_NewRef(reinterpret_cast<PyObject*>(compiled_of(self)->code));
}
PyObject* get_miss(PyObject* self, void*) { return Py_NewRef(compiled_of(self)->miss); }
int put_miss(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    if (!value || !PyCallable_Check(value)) raise(PyExc_TypeError, "miss must be callable");
    Py_XSETREF(compiled_of(self)->miss, Py_NewRef(value));
    return 0;
  });
}
PyObject* get_hook(PyObject* self, void*) {
  PyObject* hook = compiled_of(self)->hook;
  return Py_NewRef(hook ? hook : Py_None);
}
int put_hook(PyObject* self, PyObject* value, void*) {
  Py_XSETREF(compiled_of(self)->hook, value && value != Py_None ? Py_NewRef(value) : nullptr);
  return 0;
}
PyObject* get_of_callable(PyObject* self, void* name) {   // its own value once one was assigned
  CompiledFunction* cf = compiled_of(self);
  const char* text = static_cast<const char*>(name);
  return guarded([&] {
    PyObject* own = cf->dict ? PyDict_GetItemString(cf->dict, text) : nullptr;
    return own ? Py_NewRef(own) : check(PyObject_GetAttrString(cf->callable, text));
  });
}
int put_own(PyObject* self, PyObject* value, void* name) {
  CompiledFunction* cf = compiled_of(self);
  const char* text = static_cast<const char*>(name);
  if (!cf->dict && !(cf->dict = PyDict_New())) return -1;
  return value ? PyDict_SetItemString(cf->dict, text, value)
               : PyDict_DelItemString(cf->dict, text);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
#define OF_CALLABLE(name) \
  {name, get_of_callable, put_own, nullptr, const_cast<char*>(name)}
PyGetSetDef getset[] = {
    {"entries", get_entries, nullptr, "[(guards, target)], oldest first", nullptr},
    {"hits", get_hits, nullptr, "calls served by each entry", nullptr},
    {"misses", get_misses, nullptr, "calls of `miss`", nullptr},
    {"callable", get_callable, nullptr, "what was compiled", nullptr},
    {"__wrapped__", get_callable, nullptr, "what was compiled", nullptr},
    {"signature_code", get_code, nullptr, "the code whose parameters are bound", nullptr},
    {"miss", get_miss, put_miss, "miss(self, args, kwargs, failures)", nullptr},
    {"hook", get_hook, put_hook, "the frame hook that is on while the original runs, or None",
        nullptr},
    OF_CALLABLE("__doc__"), OF_CALLABLE("__module__"), OF_CALLABLE("__name__"),
    OF_CALLABLE("__qualname__"),
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef methods[] = {
    {"add_entry", add_entry, METH_VARARGS,
        "add_entry(guards, target): the target takes the call's arguments; None: run the original"},
    {"remove_entry", remove_entry, METH_O, "remove_entry(guards): was there one?"},
    {"tail", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(tail)), METH_FASTCALL,
        "tail(*args): a target returns this to go on with a call of this function; its own frame is "
        "gone by then"},
    {"clear", clear_entries, METH_NOARGS, "drops all entries"},
    {"bind", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(bind_call)),
        METH_VARARGS | METH_KEYWORDS,
        "bind(*args, **kwargs): the bound parameters, in the order of the code's locals"},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__copy__", deepcopy, METH_NOARGS, nullptr},
    {"__deepcopy__", deepcopy, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_new, fn(compiled_new)},
    {Py_tp_dealloc, fn(dealloc)},
    {Py_tp_traverse, fn(traverse)},
    {Py_tp_clear, fn(clear)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_repr, fn(repr)},
    {Py_tp_getattro, fn(getattro)},
    {Py_tp_descr_get, fn(descr_get)},
    {Py_tp_getset, getset},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight._core.CompiledFunction", sizeof(CompiledFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
        Py_TPFLAGS_METHOD_DESCRIPTOR,
    type_slots};

}  // namespace

PyObject* compiled_finish(PyObject* result) {
  while (result && __builtin_expect(Py_TYPE(result) == TailCallType, 0)) {
    Ref held(result);
    PyObject* arguments = tail_of(result)->arguments;
    PyObject* next = call_once(tail_of(result)->function,
        reinterpret_cast<PyTupleObject*>(arguments)->ob_item, PyTuple_GET_SIZE(arguments), nullptr);
    result = next;
  }
  return result;
}

void compiled_init(PyObject* m) {
  TailCallType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&tail_spec)));
  CompiledFunctionType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "CompiledFunction", CompiledFunctionType);
  for (auto [name, place] : {std::pair{"RUN_ORIGINAL", &run_original}, std::pair{"RETRY", &retry}}) {
    *place = check(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
    check(PyModule_AddObjectRef(m, name, *place));
  }
}

}  // namespace core
