// The Guards type: sources read in order, checks made on them, the first failure told.
// Invariant: nothing is allocated on the passing path, except by user code that a source or a check
// runs; user code may change anything, so every value that is not an argument is owned while used.
#include "guards.h"

#include <algorithm>

#include "guard_memo.h"
#include "tensor.h"

namespace core {

PyTypeObject* GuardsType;

namespace {

const char* const ops[] = {"arg", "global", "builtin", "cell", "const", "func", "attr",
    "dict_attr", "type", "item", "index", "default", "kwdefault", "closure", "grad", "len", "call"};
static_assert(sizeof ops / sizeof *ops == GuardSource::kOps);

// ---- reading sources

int64_t integer(PyObject* o) {
  int64_t v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

bool is_root(GuardSource::Op op) {
  return op <= GuardSource::Function;
}

void read_source(GuardSource& s, PyObject* o, int number) {
  PyObject *op, *parent, *key;
  if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "OOO", &op, &parent, &key)) {
    PyErr_Clear();
    raise(PyExc_TypeError, "[Guards] source %d is not (op, parent, key): %R", number, o);
  }
  int k = 0;
  while (k < GuardSource::kOps &&
         (!PyUnicode_Check(op) || PyUnicode_CompareWithASCIIString(op, ops[k])))
    k++;
  if (k == GuardSource::kOps) raise(PyExc_ValueError, "[Guards] no source of kind %R", op);
  s.op = static_cast<GuardSource::Op>(k);
  s.parent = static_cast<int>(integer(parent));
  if (is_root(s.op) ? s.parent != -1 : s.parent < 0 || s.parent >= number)
    raise(PyExc_ValueError, "[Guards] source %d (%R) has parent %d", number, op, s.parent);
  switch (s.op) {
    case GuardSource::Arg: case GuardSource::Index: case GuardSource::Default:
    case GuardSource::Closure:
      s.index = integer(key);
      if (s.op != GuardSource::Index && s.index < 0)
        raise(PyExc_ValueError, "[Guards] source %d: (%R, %d, %R)", number, op, s.parent, key);
      break;
    case GuardSource::Global: case GuardSource::Builtin:
      if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) != 2 ||
          !PyDict_Check(PyTuple_GET_ITEM(key, 0)) || !PyUnicode_Check(PyTuple_GET_ITEM(key, 1)))
        raise(PyExc_TypeError, "[Guards] source %d: expected (dict, name), got %s", number,
            Py_TYPE(key)->tp_name);
      s.table = Py_NewRef(PyTuple_GET_ITEM(key, 0));
      s.key = Py_NewRef(PyTuple_GET_ITEM(key, 1));
      break;
    case GuardSource::Cell:
      if (!PyCell_Check(key))
        raise(PyExc_TypeError, "[Guards] source %d: %s is no cell", number, Py_TYPE(key)->tp_name);
      s.key = Py_NewRef(key);
      break;
    case GuardSource::Attr: case GuardSource::DictAttr: case GuardSource::KwDefault:
      if (!PyUnicode_Check(key))
        raise(PyExc_TypeError, "[Guards] source %d: %R is no name", number, key);
      s.key = Py_NewRef(key);
      break;
    case GuardSource::Call:
      if (!PyCallable_Check(key))
        raise(PyExc_TypeError, "[Guards] source %d: %R is not callable", number, key);
      s.key = Py_NewRef(key);
      break;
    case GuardSource::Const: case GuardSource::Item: s.key = Py_NewRef(key); break;
    default: break;
  }
  if (s.key && PyUnicode_CheckExact(s.key)) PyUnicode_InternInPlace(&s.key);
}

// Each check preceded by the sources that it is the first to need.
void order_steps(Guards* g) {
  std::vector<bool> read(g->sources->size());
  std::vector<int> chain;
  auto need = [&](int s) {
    chain.clear();
    for (; s >= 0 && !read[s]; s = (*g->sources)[s].parent) {
      read[s] = true;
      chain.push_back(s);
    }
    g->steps->insert(g->steps->end(), chain.rbegin(), chain.rend());
  };
  for (size_t i = 0; i < g->checks->size(); i++) {
    const GuardCheck& c = (*g->checks)[i];
    if (c.source >= 0) need(c.source);
    for (int s : c.sources) need(s);
    g->steps->push_back(~static_cast<int>(i));
  }
}

// ---- reading values

PyObject* found(PyObject* borrowed) {                     // null without an exception: not there
  return Py_XNewRef(borrowed);
}

PyObject* dict_attribute(PyObject* o, PyObject* name) {
  PyObject** at = _PyObject_GetDictPtr(o);
  if (at && *at) return found(PyDict_GetItemWithError(*at, name));
  // Values that lie in the object itself: a dict is made only where the class could answer instead.
  PyTypeObject* type = Py_TYPE(o);
  if (type->tp_getattro == PyObject_GenericGetAttr && !_PyType_Lookup(type, name)) {
    PyObject* value;
    if (optional_attribute(o, name, &value) < 0) throw PythonError();
    return value;
  }
  PyObject* fields = PyObject_GenericGetDict(o, nullptr);
  if (!fields) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
    PyErr_Clear();
    return nullptr;
  }
  PyObject* value = found(PyDict_GetItemWithError(fields, name));
  Py_DECREF(fields);
  return value;
}

PyObject* tuple_item(PyObject* tuple, int64_t i) {
  return tuple && PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple)
             ? found(PyTuple_GET_ITEM(tuple, i)) : nullptr;
}

// A new reference (arguments and constants: borrowed); null, perhaps with an exception, where
// nothing is there.
PyObject* read(const GuardSource& s, PyObject* const* values, PyObject* const* locals, int n,
    PyObject* function) {
  PyObject* p = s.parent >= 0 ? values[s.parent] : nullptr;
  switch (s.op) {
    case GuardSource::Arg: return s.index < n ? locals[s.index] : nullptr;
    case GuardSource::Const: return s.key;
    case GuardSource::Function: return function;
    case GuardSource::Global: case GuardSource::Builtin:
      return found(PyDict_GetItemWithError(s.table, s.key));
    case GuardSource::Cell: return found(PyCell_GET(s.key));
    case GuardSource::Attr: return PyObject_GetAttr(p, s.key);
    case GuardSource::DictAttr: return dict_attribute(p, s.key);
    case GuardSource::Type: return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(p)));
    case GuardSource::Item:
      if (PyDict_CheckExact(p)) return found(PyDict_GetItemWithError(p, s.key));
      return PyObject_GetItem(p, s.key);
    case GuardSource::Index: {
      bool tuple = PyTuple_Check(p);
      if (!tuple && !PyList_Check(p)) return nullptr;
      int64_t size = tuple ? PyTuple_GET_SIZE(p) : PyList_GET_SIZE(p);
      int64_t i = s.index < 0 ? s.index + size : s.index;
      if (i < 0 || i >= size) return nullptr;
      return Py_NewRef(tuple ? PyTuple_GET_ITEM(p, i) : PyList_GET_ITEM(p, i));
    }
    case GuardSource::Default:
      return PyFunction_Check(p) ? tuple_item(PyFunction_GET_DEFAULTS(p), s.index) : nullptr;
    case GuardSource::KwDefault: {
      PyObject* table = PyFunction_Check(p) ? PyFunction_GET_KW_DEFAULTS(p) : nullptr;
      return table ? found(PyDict_GetItemWithError(table, s.key)) : nullptr;
    }
    case GuardSource::Closure: {
      PyObject* cells = PyFunction_Check(p) ? PyFunction_GET_CLOSURE(p) : nullptr;
      PyObject* cell = cells && s.index < PyTuple_GET_SIZE(cells)
                           ? PyTuple_GET_ITEM(cells, s.index) : nullptr;
      return cell ? found(PyCell_GET(cell)) : nullptr;
    }
    case GuardSource::Grad: {
      if (!is_tensor(p)) return nullptr;
      TensorExtra* extra = tensor_of(p)->extra;
      return Py_NewRef(extra && extra->grad ? py(extra->grad) : Py_None);
    }
    case GuardSource::Len: {
      Py_ssize_t size = PyObject_Size(p);
      return size < 0 ? nullptr : PyLong_FromSsize_t(size);
    }
    default: {
      Recursion deeper(" in a guard");
      return PyObject_CallOneArg(s.key, p);
    }
  }
}

// The values read so far; those owned are given back at the end.
class Values {
 public:
  Values(const Guards* g, const std::vector<int>& steps, const GuardMemo* memo)
      : g_(g), memo_(memo), steps_(steps.data()) {
    at_.resize(static_cast<int>(g->sources->size()));
    if (memo)
      for (int s : memo->ready) at_[s] = Py_NewRef(memo->values[s]);
  }
  ~Values() {
    if (memo_)
      for (int s : memo_->ready) Py_DECREF(at_[s]);
    for (int i = 0; i < done_; i++)
      if (steps_[i] >= 0 && (*g_->sources)[steps_[i]].owned()) Py_DECREF(at_[steps_[i]]);
  }
  Values(const Values&) = delete;
  void set(int source, PyObject* v) { at_[source] = v; }
  void done(int steps) { done_ = steps; }                 // that many steps are over
  PyObject* const* data() const { return at_.data(); }
  PyObject* operator[](int i) const { return at_[i]; }

 private:
  const Guards* g_;
  const GuardMemo* memo_;
  const int* steps_;
  int done_ = 0;
  Small<PyObject*, 40> at_;
};

// A user's exception while guards are read means that they do not hold; what is no Exception goes
// on. Gives the exception, to be told.
Ref swallow() {
  if (!PyErr_Occurred()) return Ref();
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref(value);
}

constexpr int kMoved = -2;                                // an anchor is another object than it was

// Makes the steps; -1, the first check that fails, or kMoved.
int run(Guards* g, Values& values, const std::vector<int>& list, const GuardMemo* memo,
    PyObject* const* locals, int n, PyObject* function, Ref* seen) {
  const int* steps = list.data();
  int count = static_cast<int>(list.size());
  const GuardSource* sources = g->sources->data();
  const GuardCheck* checks = g->checks->data();
  for (int i = 0; i < count; i++) {
    int step = steps[i];
    if (step >= 0) {
      PyObject* v = nullptr;
      try {
        v = read(sources[step], values.data(), locals, n, function);
      } catch (const PythonError&) {}
      if (__builtin_expect(!v, 0)) {
        Ref error = swallow();
        if (memo) return kMoved;                          // which check wanted it: asked in full
        if (seen) *seen = std::move(error);
        while (steps[i] >= 0) i++;
        return ~steps[i];
      }
      values.set(step, v);
      values.done(i + 1);
      if (memo && memo->expected[step] && memo->expected[step] != v) return kMoved;
      continue;
    }
    const GuardCheck& c = checks[~step];
    bool ok = false;
    Ref error;
    try {
      ok = holds(c, values.data());
    } catch (const PythonError&) {
      error = swallow();
    }
    if (__builtin_expect(!ok, 0)) {
      if (seen && error) *seen = std::move(error);
      else if (seen && c.source >= 0) *seen = Ref::borrow(values[c.source]);
      else if (seen && !c.sources.empty()) *seen = Ref::borrow(values[c.sources[0]]);
      else if (seen && c.kind == GuardCheck::Mode) *seen = checked(PyLong_FromUnsignedLong(mode_word()));
      return ~step;
    }
  }
  return -1;
}

class MemoHold {                                          // user code may make another meanwhile
 public:
  explicit MemoHold(GuardMemo* m) : m_(m) { m_->refs++; }
  ~MemoHold() { memo_drop(m_); }
  MemoHold(const MemoHold&) = delete;

 private:
  GuardMemo* m_;
};

constexpr int kRestless = 4;                              // changes after which a dict is not relied on

// Dicts that are not what they were when the memo before was made.
void note_changes(Guards* g, const GuardMemo* before, const GuardMemo* now) {
  std::unordered_map<PyObject*, uint64_t> versions;
  for (const DictStamp& s : before->dicts) versions[s.dict] = s.version;
  for (const DictStamp& s : now->dicts) {
    auto known = versions.find(s.dict);
    if (known == versions.end() || known->second == s.version) continue;
    if (!g->restless) g->restless = new std::unordered_map<PyObject*, int>;
    ++(*g->restless)[s.dict];
  }
}

// They held in full: what need not be asked next time? Takes the place of `stale`, a memo that no
// longer stands, or of the oldest. Memos that never serve are made ever less often.
void remember(Guards* g, PyObject* const* values, GuardMemo* stale) {
  if (g->rest) {
    if (g->rest > 0) g->rest--;
    return;
  }
  GuardMemo* made = memo_make(g, values);
  if (!made && !g->memo_count) {
    g->rest = -1;                                         // nothing here that could be remembered
    return;
  }
  int at = 0;
  while (at < g->memo_count && g->memos[at] != stale) at++;
  if (made) {
    if (at < g->memo_count) note_changes(g, stale, made);
    else if (at == Guards::kMemos) at = (g->latest + 1) % Guards::kMemos;
    else g->memos[g->memo_count++] = nullptr;
    stale = std::exchange(g->memos[at], made);
    g->latest = at;
  } else if (at < g->memo_count) {
    g->memos[at] = g->memos[--g->memo_count];
    g->latest = 0;
  } else {
    stale = nullptr;
  }
  if (stale) memo_drop(stale);                            // last: that may run any code
  if (++g->streak > 8) g->rest = 1 << (g->streak - 4 < 12 ? g->streak - 4 : 12);
}

}  // namespace

bool relied_on(const Guards* g, PyObject* dict) {
  if (!g->restless) return true;
  auto known = g->restless->find(dict);
  return known == g->restless->end() || known->second < kRestless;
}

int guards_evaluate(
    Guards* g, PyObject* const* locals, int n, PyObject* function, Ref* seen) {
  GuardMemo* stale = nullptr;                             // compared only
  for (int k = 0; k < g->memo_count; k++) {
    int at = (g->latest + k) % g->memo_count;
    GuardMemo* m = g->memos[at];
    if (!memo_stands(m, g)) {
      stale = m;
      continue;
    }
    MemoHold hold(m);
    Values values(g, m->steps, m);
    int failed = run(g, values, m->steps, m, locals, n, function, seen);
    if (failed == kMoved) continue;
    if (failed < 0) g->streak = 0, g->latest = at, g->passes++;
    else g->failures++;
    return failed;
  }
  Values values(g, *g->steps, nullptr);
  int failed = run(g, values, *g->steps, nullptr, locals, n, function, seen);
  if (failed < 0) {
    g->passes++;
    remember(g, values.data(), stale);
  } else {
    g->failures++;
  }
  return failed;
}

// ---- the Python type

namespace {

PyObject* guards_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"sources", "checks", nullptr};
  PyObject *sources, *checks;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OO", const_cast<char**>(keywords), &sources, &checks))
    return nullptr;
  return guarded([&] {
    Ref source_list = checked(PySequence_Tuple(sources)), check_list = checked(PySequence_Tuple(checks));
    Own<Guards> g(guards_of(check(type->tp_alloc(type, 0))));
    g->sources = new std::vector<GuardSource>;
    g->checks = new std::vector<GuardCheck>;
    g->steps = new std::vector<int>;
    int ns = static_cast<int>(PyTuple_GET_SIZE(source_list.py()));
    g->sources->reserve(ns);
    for (int i = 0; i < ns; i++) {
      g->sources->push_back(GuardSource{});
      GuardSource& s = g->sources->back();
      read_source(s, PyTuple_GET_ITEM(source_list.py(), i), i);
      if (s.op == GuardSource::Arg && s.index >= g->locals) g->locals = static_cast<int>(s.index) + 1;
    }
    Py_ssize_t nc = PyTuple_GET_SIZE(check_list.py());
    g->checks->reserve(nc);
    for (Py_ssize_t i = 0; i < nc; i++) {
      PyObject *o = PyTuple_GET_ITEM(check_list.py(), i), *kind, *source, *payload;
      if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "OOO", &kind, &source, &payload)) {
        PyErr_Clear();
        raise(PyExc_TypeError, "[Guards] check %zd is not (kind, source, payload): %R", i, o);
      }
      g->checks->push_back(GuardCheck{});
      GuardCheck& c = g->checks->back();
      int64_t at = integer(source);
      if (at < -1 || at >= ns)
        raise(PyExc_ValueError, "[Guards] check %zd: source %R of %d", i, source, ns);
      c.source = static_cast<int>(at);
      read_check(c, kind, payload, ns);
    }
    order_steps(g.get());
    return g.release_object();
  });
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  Guards* g = guards_of(o);
  Py_VISIT(Py_TYPE(o));
  if (g->sources)
    for (const GuardSource& s : *g->sources) {
      Py_VISIT(s.key);
      Py_VISIT(s.table);
    }
  if (g->checks)
    for (const GuardCheck& c : *g->checks) {
      Py_VISIT(c.payload);
      if (c.tensor) Py_VISIT(c.tensor->type);
    }
  for (int i = 0; i < g->memo_count; i++)
    if (g->memos[i]->refs == 1)                           // else a running call holds it too
      for (const DictStamp& s : g->memos[i]->dicts) Py_VISIT(s.kept);
  return 0;
}

// Guards stay whole until their end: they may be asked while a cycle is torn down. The compiled
// function and its targets break the cycles.
void dealloc(PyObject* o) {
  Guards* g = guards_of(o);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (g->sources)
    for (GuardSource& s : *g->sources) {
      Py_CLEAR(s.key);
      Py_CLEAR(s.table);
    }
  if (g->checks)
    for (GuardCheck& c : *g->checks) drop_check(c);
  delete g->sources;
  delete g->checks;
  delete g->steps;
  delete g->inputs;
  delete g->anchors;
  delete g->restless;
  for (int i = 0; i < g->memo_count; i++) memo_drop(g->memos[i]);
  type->tp_free(o);
  Py_DECREF(type);
}

// ---- the inputs of a graph, from what is remembered

// Where source `i`, which a memo hangs on, is among what `fetch` is given, or -1: a model in an
// attribute of a plain object.
int place_of_anchor(const Guards* g, int i) {
  const GuardSource& s = (*g->sources)[i];
  if (s.op == GuardSource::Arg) return s.index < g->bound ? s.index : -1;
  auto found = std::find(g->anchors->begin(), g->anchors->end(), i);
  return found == g->anchors->end() ? -1 : g->bound + static_cast<int>(found - g->anchors->begin());
}

// Whether what the memo hangs on is as it was; *never: it is not even given.
bool anchored(const Guards* g, const GuardMemo* m, PyObject* const* given, bool* never) {
  for (size_t i = 0; i < m->expected.size(); i++) {
    if (!m->expected[i]) continue;
    int at = place_of_anchor(g, static_cast<int>(i));
    *never = at < 0;
    if (at < 0 || given[at] != m->expected[i]) return false;
  }
  return true;
}

std::vector<int> numbers_of_sources(const Guards* g, PyObject* numbers, int least) {
  std::vector<int> out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
    int64_t s = integer(PyTuple_GET_ITEM(numbers, i));
    if (s < least || s >= static_cast<int64_t>(g->sources->size()))
      raise(PyExc_ValueError, "[Guards] input %zd: source %lld of %zu", i,
          static_cast<long long>(s), g->sources->size());
    out.push_back(static_cast<int>(s));
  }
  return out;
}

// plan(sources, bound, anchors)
PyObject* guards_plan(PyObject* self, PyObject* args) {
  PyObject *sources, *anchors;
  int bound;
  if (!PyArg_ParseTuple(args, "O!iO!", &PyTuple_Type, &sources, &bound, &PyTuple_Type, &anchors))
    return nullptr;
  return guarded([&] {
    Guards* g = guards_of(self);
    std::vector<int> inputs = numbers_of_sources(g, sources, -1);
    std::vector<int> given = numbers_of_sources(g, anchors, 0);
    delete std::exchange(g->inputs, new std::vector<int>(std::move(inputs)));
    delete std::exchange(g->anchors, new std::vector<int>(std::move(given)));
    g->bound = bound;
    return Py_NewRef(Py_None);
  });
}

// fetch(*bound parameters, *anchors, *given): a tuple, or None where something must be read.
PyObject* guards_fetch(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    Guards* g = guards_of(self);
    if (!g->inputs || g->in_vain || !g->memo_count) return Py_NewRef(Py_None);
    Py_ssize_t first = g->bound + static_cast<Py_ssize_t>(g->anchors->size());
    if (n < first) return Py_NewRef(Py_None);
    // Made first: this may collect garbage, and so run any code.
    Ref out = checked(PyTuple_New(static_cast<Py_ssize_t>(g->inputs->size())));
    bool never = false;
    for (int k = 0; k < g->memo_count && !never; k++) {
      GuardMemo* m = g->memos[(g->latest + k) % g->memo_count];
      if (!anchored(g, m, args, &never) || !memo_stands(m, g)) continue;
      Py_ssize_t next = first;
      for (size_t i = 0; i < g->inputs->size(); i++) {
        int s = (*g->inputs)[i];
        PyObject* v = s >= 0 ? m->values[s] : next < n ? args[next++] : nullptr;
        if (!v) return Py_NewRef(Py_None);
        PyTuple_SET_ITEM(out.py(), i, Py_NewRef(v));
      }
      return Py_NewRef(out.py());
    }
    g->in_vain = never;
    return Py_NewRef(Py_None);
  });
}

// check(*locals, function=None) and explain(*locals, function=None)
int evaluate(PyObject* self, PyObject* args, PyObject* kwargs, Ref* seen) {
  PyObject* function = Py_None;
  if (kwargs) {
    Ref none = checked(PyTuple_New(0));
    static const char* keywords[] = {"function", nullptr};
    if (!PyArg_ParseTupleAndKeywords(
            none.py(), kwargs, "|O", const_cast<char**>(keywords), &function))
      throw PythonError();
  }
  return guards_evaluate(guards_of(self), reinterpret_cast<PyTupleObject*>(args)->ob_item,
      static_cast<int>(PyTuple_GET_SIZE(args)), function, seen);
}
PyObject* guards_check(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] { return PyBool_FromLong(evaluate(self, args, kwargs, nullptr) < 0); });
}
PyObject* guards_explain(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    Ref seen;
    int failed = evaluate(self, args, kwargs, &seen);
    if (failed < 0) return Py_NewRef(Py_None);
    return Py_BuildValue("(iO)", failed, seen ? seen.py() : Py_None);
  });
}
PyObject* payload(PyObject* self, PyObject* number) {
  return guarded([&] {
    int64_t i = integer(number);
    const auto& checks = *guards_of(self)->checks;
    if (i < 0 || i >= static_cast<int64_t>(checks.size()))
      raise(PyExc_IndexError, "[Guards] check %lld of %zu", static_cast<long long>(i), checks.size());
    PyObject* o = payload_of(checks[i]);
    return o ? o : Py_NewRef(Py_None);
  });
}
PyObject* get_alive(PyObject* self, void*) {
  for (const GuardCheck& c : *guards_of(self)->checks)
    if (c.weak && c.kind != GuardCheck::IsNot &&
        reinterpret_cast<PyWeakReference*>(c.payload)->wr_object == Py_None)
      Py_RETURN_FALSE;
  Py_RETURN_TRUE;
}
PyObject* get_passes(PyObject* self, void*) { return PyLong_FromLongLong(guards_of(self)->passes); }
PyObject* get_failures(PyObject* self, void*) {
  return PyLong_FromLongLong(guards_of(self)->failures);
}
PyObject* get_remembered(PyObject* self, void*) {
  Guards* g = guards_of(self);
  if (!g->memo_count) return PyLong_FromLong(0);
  long left = 0;
  for (int step : g->memos[g->latest]->steps) left += step < 0;
  return PyLong_FromLong(static_cast<long>(g->checks->size()) - left);
}
Py_ssize_t count(PyObject* self) { return static_cast<Py_ssize_t>(guards_of(self)->checks->size()); }

template <class F>
PyCFunction method(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}
template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyMethodDef methods[] = {
    {"check", method(guards_check), METH_VARARGS | METH_KEYWORDS,
        "check(*locals, function=None): do all hold for these bound parameters?"},
    {"explain", method(guards_explain), METH_VARARGS | METH_KEYWORDS,
        "explain(*locals, function=None): None, or (number of the first check that fails, what it "
        "saw: the value, or the exception that reading it raised)"},
    {"payload", payload, METH_O, "payload(i): the object of an is, type, eq... check, or None"},
    {"plan", guards_plan, METH_VARARGS,
        "plan(sources, bound, anchors): what fetch gives, in order: numbers of sources, -1 for the "
        "next of the values that it is given behind `bound` bound parameters and the anchors"},
    {"fetch", method(guards_fetch), METH_FASTCALL,
        "fetch(*locals, *anchors, *given): the planned values, or None where not all are remembered"},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"alive", get_alive, nullptr, "False once an object that a check asks for has died", nullptr},
    {"passes", get_passes, nullptr, "times all held", nullptr},
    {"failures", get_failures, nullptr, "times one did not", nullptr},
    {"remembered", get_remembered, nullptr,
        "checks on what hangs on modules that are not made while nothing there changes", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_new, fn(guards_new)},
    {Py_tp_dealloc, fn(dealloc)},
    {Py_tp_traverse, fn(traverse)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_sq_length, fn(count)},
    {Py_tp_doc, const_cast<char*>("Guards(sources, checks): docs/native.md, \"Guards\"")},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight._core.Guards", sizeof(Guards), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, type_slots};

}  // namespace

void guards_init(PyObject* m) {
  GuardsType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "Guards", GuardsType);
}

}  // namespace core
