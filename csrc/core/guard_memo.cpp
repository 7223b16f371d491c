// Making and testing what guards remember.
// Invariant: a step is remembered only where its result can change by nothing but what is stamped:
// the fields and tables of modules (objects whose attributes core looks up itself), their classes,
// tables and tuples held there, and the facts of tensors held there. All else is asked every time.
// On 3.12 and 3.13 dict watchers move the change clock, so an unchanged tree is one comparison; on
// 3.11 the version of each dict is compared. Known gap: `object.__setattr__(m, "__class__", X)`,
// which tells nobody.
#include "guard_memo.h"

#include <unordered_set>

#include "tensor.h"

namespace core {
namespace {

// ---- dicts

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
inline uint64_t version_of_dict(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#pragma GCC diagnostic pop

bool is_table(PyObject* o) { return PyDict_CheckExact(o) || Py_TYPE(o) == &PyODict_Type; }

#if PY_VERSION_HEX >= 0x030C0000
constexpr bool kWatchers = true;

int dict_changed(PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) {
  change_clock++;
  return 0;
}
// False: CPython has no watcher left for us. Then nothing is remembered.
bool watch(PyObject* dict) {
  static int watcher = PyDict_AddWatcher(dict_changed);
  if (watcher >= 0 && !PyDict_Watch(watcher, dict)) return true;
  PyErr_Clear();
  return false;
}
#else
constexpr bool kWatchers = false;
bool watch(PyObject*) { return true; }
#endif

// On 3.13 the values of a fresh object's dict lie in the object, and writing them tells nobody.
// Taking the last item out and putting it back moves them into the dict: same dict, same order.
bool own_values(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  if (!reinterpret_cast<PyDictObject*>(dict)->ma_values) return true;
  if (PyDict_GET_SIZE(dict) == 0) return false;
  static PyObject* popitem = PyUnicode_InternFromString("popitem");
  Ref item = Ref(popitem ? PyObject_CallMethodNoArgs(dict, popitem) : nullptr);
  if (!item || PyDict_SetItem(dict, PyTuple_GET_ITEM(item.py(), 0),
                   PyTuple_GET_ITEM(item.py(), 1)) < 0)
    throw PythonError();
  return !reinterpret_cast<PyDictObject*>(dict)->ma_values;
#else
  (void)dict;
  return true;
#endif
}

bool dict_stands(const DictStamp& s) {
  if (s.anchor && reinterpret_cast<PyWeakReference*>(s.anchor)->wr_object != s.object) return false;
  if (s.slot && *s.slot != s.dict) return false;
  return version_of_dict(s.dict) == s.version;
}

// ---- types

bool type_has_version(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return type->tp_version_tag != 0;
#else
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
#endif
}

bool never_changes(PyTypeObject* type) {
  return !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) ||
         PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE);
}

bool type_stands(const TypeStamp& s) {
  return reinterpret_cast<PyWeakReference*>(s.weak)->wr_object ==
             reinterpret_cast<PyObject*>(s.type) &&
         type_has_version(s.type) && s.type->tp_version_tag == s.version;
}

// Its attributes come from itself and its bases alone.
bool is_plain_class(PyObject* o) {
  return PyType_Check(o) && Py_TYPE(o) == &PyType_Type;
}

// ---- making a memo

enum State : uint8_t {
  Unread, Volatile,            // read every time
  Held,                        // remembered; what is stamped holds the value
  Made,                        // remembered; the value is a new object each time
};

class Recorder {
 public:
  Recorder(const Guards* g, PyObject* const* values)
      : g_(g), v_(values), m_(new GuardMemo{}), n_(static_cast<int>(g->sources->size())) {
    m_->refs = 1;
    m_->clock = change_clock;                             // what changes from here on is seen
    m_->expected.resize(n_);
    m_->values.resize(n_);
    state_.resize(n_);
    by_class_.resize(n_);
    needed_.resize(n_);
    remembered_.resize(g->checks->size());
  }
  ~Recorder() { if (m_) memo_drop(m_); }

  GuardMemo* make() {
    for (int step : *g_->steps)
      if (step >= 0) state_[step] = classify(step);
    bool any = false;
    for (size_t i = 0; i < g_->checks->size(); i++) {
      remembered_[i] = remember((*g_->checks)[i], static_cast<int>(i));
      any = any || remembered_[i];
    }
    if (!any) return nullptr;
    // What was checked may have changed since, if a guard ran user code: only what holds now counts.
    for (size_t i = 0; i < g_->checks->size(); i++)
      if (remembered_[i] && !holds((*g_->checks)[i], v_)) raise(PyExc_RuntimeError, "changed");
    settle();
    return std::exchange(m_, nullptr);
  }

 private:
  // ---- stamps; false: cannot be relied on

  bool stamp_type(PyTypeObject* type) {
    if (never_changes(type)) return true;
    static PyObject* any_name = PyUnicode_InternFromString("__class__");
    _PyType_Lookup(type, any_name);                       // gives it a version, if it can have one
    if (!type_has_version(type)) return false;
    if (!stamped_.insert(reinterpret_cast<PyObject*>(type)).second) return true;
    PyObject* weak = check(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), nullptr));
    m_->types.push_back({weak, type, type->tp_version_tag});
    return true;
  }

  bool stamp(PyObject* dict, PyObject** slot, PyObject* anchor, PyObject* kept) {
    if (stamped_.count(dict)) return true;
    if (!relied_on(g_, dict) || !watch(dict)) return false;
    stamped_.insert(dict);
    Ref weak = anchor ? checked(PyWeakref_NewRef(anchor, nullptr)) : Ref();
    m_->dicts.push_back(
        {weak.release(), anchor, slot, dict, Py_XNewRef(kept), version_of_dict(dict)});
    return true;
  }

  // The instance dict of a module. `source` is where the module was found.
  PyObject* stamp_fields(int source) {
    PyObject* o = v_[source];
    PyObject** slot = _PyObject_GetDictPtr(o);
    if (!slot || !*slot || !PyDict_CheckExact(*slot) || !own_values(*slot)) return nullptr;
    bool loose = state_[source] == Volatile || by_class_[source];
    if (!stamp(*slot, slot, loose ? o : nullptr, nullptr)) return nullptr;
    if (state_[source] == Volatile) m_->expected[source] = o;
    return *slot;
  }

  bool stamp_table(int source) {
    PyObject* o = v_[source];
    return is_table(o) && stamp(o, nullptr, nullptr, by_class_[source] ? o : nullptr);
  }

  // ---- sources

  State module_attribute(int p, PyObject* name, PyObject* v, bool* by_class) {
    PyTypeObject* type = Py_TYPE(v_[p]);
    if (!stamp_type(type)) return Volatile;
    PyObject* of_class = _PyType_Lookup(type, name);
    if (of_class && is_fields(name) && Py_TYPE(of_class) == &PyGetSetDescr_Type)
      return v && stamp_fields(p) == v ? Held : Volatile;
    if (of_class && Py_TYPE(of_class)->tp_descr_set) return Volatile;
    PyObject* fields = stamp_fields(p);
    if (!fields) return Volatile;
    PyObject* found = item(fields, name);
    if (found) return found == v ? Held : Volatile;
    if (of_class) {
      if (!Py_TYPE(of_class)->tp_descr_get) {
        *by_class = true;
        return of_class == v ? Held : Volatile;
      }
      PyTypeObject* kind = Py_TYPE(of_class);
      bool known = kind == &PyFunction_Type || kind == &PyStaticMethod_Type ||
                   kind == &PyClassMethod_Type || kind == &PyMethodDescr_Type;
      *by_class = true;
      return known && v ? Made : Volatile;
    }
    for (PyObject* table_name : attribute_tables) {
      PyObject* table = item(fields, table_name);
      if (!table && _PyType_Lookup(type, table_name)) return Volatile;
      if (!table) continue;
      if (!is_table(table) || !stamp(table, nullptr, nullptr, nullptr)) return Volatile;
      found = item(table, name);
      if (found) return found == v ? Held : Volatile;
    }
    return v ? Volatile : Held;                           // absent
  }

  State class_attribute(int p, PyObject* name, PyObject* v, bool* by_class) {
    auto* type = reinterpret_cast<PyTypeObject*>(v_[p]);
    bool own = is_fields(name);                           // cls.__dict__, a view made each time
    if ((!own && _PyType_Lookup(&PyType_Type, name)) || !stamp_type(type)) return Volatile;
    PyObject* found = own ? nullptr : _PyType_Lookup(type, name);
    if (!own && !found) return Volatile;
    if (state_[p] == Volatile) m_->expected[p] = v_[p];
    *by_class = true;
    if (own) return Py_TYPE(v) == &PyDictProxy_Type ? Made : Volatile;
    if (found == v && (!Py_TYPE(found)->tp_descr_get || PyFunction_Check(found))) return Held;
    PyTypeObject* kind = Py_TYPE(found);
    return kind == &PyStaticMethod_Type || kind == &PyClassMethod_Type ? Made : Volatile;
  }

  State classify(int i) {
    const GuardSource& s = (*g_->sources)[i];
    if (s.op == GuardSource::Const) {
      m_->values[i] = v_[i];
      return Held;
    }
    if (s.parent < 0) return Volatile;
    int p = s.parent;
    PyObject *o = v_[p], *v = v_[i];
    bool module = keeps_tables(Py_TYPE(o)), by_class = false;
    State found = Volatile;
    if (s.op == GuardSource::Attr && module) {
      found = module_attribute(p, s.key, v, &by_class);
    } else if (s.op == GuardSource::Attr && is_plain_class(o)) {
      found = class_attribute(p, s.key, v, &by_class);
    } else if (s.op == GuardSource::DictAttr && module) {
      PyObject* fields = stamp_fields(p);
      found = fields && item(fields, s.key) == v ? Held : Volatile;
    } else if (state_[p] != Volatile) {
      found = of_remembered(s, p, o, v, &by_class);
    }
    by_class_[i] = by_class;
    if (found == Held) m_->values[i] = v;
    return found;
  }

  State of_remembered(const GuardSource& s, int p, PyObject* o, PyObject* v, bool* by_class) {
    switch (s.op) {
      case GuardSource::Type: return type_stays(p) ? Held : Volatile;
      case GuardSource::Item: {
        bool plain = PyUnicode_CheckExact(s.key) || PyLong_CheckExact(s.key);
        if (!plain) return Volatile;
        if (is_class_fields(p)) {
          *by_class = true;
          return item(mapping_of(o), s.key) == v ? Held : Volatile;
        }
        if (PyTuple_CheckExact(o)) {
          *by_class = by_class_[p];
          return PyLong_CheckExact(s.key) ? Held : Volatile;
        }
        return stamp_table(p) && item(o, s.key) == v ? Held : Volatile;
      }
      case GuardSource::Index:
        *by_class = by_class_[p];
        return PyTuple_Check(o) ? Held : Volatile;
      case GuardSource::Len:
        return PyTuple_CheckExact(o) || PyUnicode_CheckExact(o) || stamp_table(p) ? Made : Volatile;
      case GuardSource::Attr: {                           // the parts of a bound method
        if (!PyMethod_Check(o)) return Volatile;
        *by_class = true;                                 // or who knows by what
        bool part = v == PyMethod_GET_FUNCTION(o) || v == PyMethod_GET_SELF(o);
        return part && PyUnicode_GET_LENGTH(s.key) == 8 ? Made : Volatile;  // __func__, __self__
      }
      default: return Volatile;
    }
  }

  bool is_fields(PyObject* name) {
    return !PyUnicode_CompareWithASCIIString(name, "__dict__");
  }

  // Source `i`, remembered, is the __dict__ of a class.
  bool is_class_fields(int i) {
    const GuardSource& s = (*g_->sources)[i];
    return Py_TYPE(v_[i]) == &PyDictProxy_Type && s.op == GuardSource::Attr && is_fields(s.key) &&
           is_plain_class(v_[s.parent]);
  }

  static PyObject* mapping_of(PyObject* proxy) {
    struct Proxy {
      PyObject_HEAD
      PyObject* mapping;
    };
    return reinterpret_cast<Proxy*>(proxy)->mapping;
  }

  PyObject* item(PyObject* table, PyObject* key) {
    PyObject* found = PyDict_GetItemWithError(table, key);
    if (!found && PyErr_Occurred()) throw PythonError();
    return found;
  }

  // Its class cannot be assigned, or a module counts that as a change of its fields.
  bool type_stays(int source) {
    PyTypeObject* type = Py_TYPE(v_[source]);
    return never_changes(type) || is_tensor(v_[source]) ||
           (keeps_tables(type) && stamp_fields(source));
  }

  // ---- checks

  bool plain_value(PyObject* o) {                         // it can never change
    PyTypeObject* type = Py_TYPE(o);
    if (PyTuple_Check(o)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
        if (!plain_value(PyTuple_GET_ITEM(o, i))) return false;
      return true;
    }
    return o == Py_None || type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type ||
           type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyComplex_Type;
  }

  bool steady_tensor(int source) {
    PyObject* o = v_[source];
    if (state_[source] != Held || !is_tensor(o)) return false;
    core::Tensor* t = tensor_of(o);
    if (t->base || t->grad_fn) return false;
    t->watched = true;
    return true;
  }

  bool remember(const GuardCheck& c, int number) {
    bool many = c.source < 0;
    if (!many && (state_[c.source] == Volatile || state_[c.source] == Unread)) return false;
    PyObject* o = many ? nullptr : v_[c.source];
    switch (c.kind) {
      case GuardCheck::Is: case GuardCheck::IsNot: case GuardCheck::None: return true;
      case GuardCheck::Type: return type_stays(c.source);
      case GuardCheck::Eq: case GuardCheck::Ints: case GuardCheck::Float:
        return plain_value(o) || o == c.payload;
      case GuardCheck::Len: case GuardCheck::Bool:
        return (plain_value(o) || stamp_proxy(c.source) || stamp_table(c.source));
      case GuardCheck::Keys: return PyDict_CheckExact(o) && stamp_table(c.source);
      case GuardCheck::Absent: return stays_absent(c);
      case GuardCheck::Clock: return keeps_tables(Py_TYPE(o)) && stamp_fields(c.source);
      case GuardCheck::Tensor:
        if (!steady_tensor(c.source)) return false;
        m_->tensors.push_back(number);
        return true;
      case GuardCheck::Alias:
        for (int s : c.sources)
          if (state_[s] != Held) return false;
        return true;
      case GuardCheck::NoAlias: case GuardCheck::Shape:
        if (c.sources.empty()) return false;
        for (int s : c.sources)
          if (!steady_tensor(s) && !(state_[s] == Held && PyLong_CheckExact(v_[s]))) return false;
        m_->tensors.push_back(number);
        return true;
      default: return false;
    }
  }

  // A read-only view of a table, as modules share one where they have no hooks.
  bool stamp_proxy(int source) {
    PyObject* o = v_[source];
    if (Py_TYPE(o) != &PyDictProxy_Type || is_class_fields(source)) return false;
    PyObject* table = mapping_of(o);
    return is_table(table) && stamp(table, nullptr, nullptr, table);
  }

  bool stays_absent(const GuardCheck& c) {
    PyObject* o = v_[c.source];
    bool plain = PyUnicode_CheckExact(c.payload) || PyLong_CheckExact(c.payload);
    if (PyDict_Check(o)) return plain && stamp_table(c.source);
    if (is_class_fields(c.source)) return plain;          // the class is stamped
    bool by_class = false;
    return PyUnicode_CheckExact(c.payload) && keeps_tables(Py_TYPE(o)) &&
           module_attribute(c.source, c.payload, nullptr, &by_class) == Held;
  }

  // What is left to be read and checked. A made value that is needed after all is read every time.
  void settle() {
    for (size_t i = 0; i < g_->checks->size(); i++) {
      if (remembered_[i]) continue;
      const GuardCheck& c = (*g_->checks)[i];
      if (c.source >= 0) needed_[c.source] = true;
      for (int s : c.sources) needed_[s] = true;
    }
    for (int i = n_ - 1; i >= 0; i--) {
      if (state_[i] == Made && needed_[i]) state_[i] = Volatile;
      if (state_[i] != Volatile || !(needed_[i] || m_->expected[i])) continue;
      needed_[i] = true;
      if ((*g_->sources)[i].parent >= 0) needed_[(*g_->sources)[i].parent] = true;
    }
    for (int step : *g_->steps)
      if (step < 0 ? !remembered_[~step] : state_[step] == Volatile && needed_[step])
        m_->steps.push_back(step);
    for (int i = 0; i < n_; i++)
      if (state_[i] == Held && needed_[i]) m_->ready.push_back(i);
  }

  const Guards* g_;
  PyObject* const* v_;
  GuardMemo* m_;
  int n_;
  std::vector<uint8_t> state_;
  std::vector<bool> by_class_, needed_, remembered_;
  std::unordered_set<PyObject*> stamped_;
};

bool tensors_hold(const GuardMemo* m, const Guards* g) {
  for (int i : m->tensors)
    try {
      if (!holds((*g->checks)[i], m->values.data())) return false;
    } catch (const PythonError&) {
      PyErr_Clear();
      return false;
    }
  return true;
}

}  // namespace

bool memo_stands(GuardMemo* m, const Guards* g) {
  uint64_t now = change_clock;
  if (!kWatchers || m->clock != now)
    for (const DictStamp& s : m->dicts)
      if (__builtin_expect(!dict_stands(s), 0)) return false;
  if (m->clock != now) {
    if (!tensors_hold(m, g)) return false;
    m->clock = now;
  }
  for (const TypeStamp& s : m->types)
    if (!type_stands(s)) return false;
  return true;
}

GuardMemo* memo_make(const Guards* g, PyObject* const* values) {
  try {
    return Recorder(g, values).make();
  } catch (const PythonError&) {                          // then nothing is remembered this time
    PyErr_Clear();
    return nullptr;
  }
}

void memo_drop(GuardMemo* m) {
  if (--m->refs) return;
  for (DictStamp& s : m->dicts) {
    Py_XDECREF(s.anchor);
    Py_XDECREF(s.kept);
  }
  for (TypeStamp& s : m->types) Py_DECREF(s.weak);
  delete m;
}

}  // namespace core
