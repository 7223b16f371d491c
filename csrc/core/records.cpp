// Records. Takes calls while the mode bit is on; gives them to Python as tuples, in the order of
// their start.
// Invariant: layouts are kept by reference and rendered only when they are asked for.
#include "records.h"

#include <time.h>

#include "dtype.h"

namespace core {
namespace {

struct Record {
  int64_t id, parent;
  int depth;
  PyObject* name;             // owned
  std::string kind, what, line;
  bool hit;
  int64_t start, end;
  std::vector<Layout*> in, out;  // owned
};

// One buffer a process, written under the GIL; the stack of open calls is per thread.
std::vector<Record>& buffer() {
  static std::vector<Record>* b = new std::vector<Record>;
  return *b;
}
int64_t next_id = 1, first_id = 1;
__thread RecordScope* open_scope = nullptr;
__thread int64_t open_id = 0;
__thread bool open_compiled = false;  // the open call is a compiled function's: lines are the user's
__thread int depth = 0;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

Record* at(int64_t id) {  // null once the buffer was handed over
  int64_t i = id - first_id;
  return i >= 0 && i < static_cast<int64_t>(buffer().size()) ? &buffer()[i] : nullptr;
}

void keep(std::vector<Layout*>& list, Layout* l) {
  rl::incref(l);
  list.push_back(l);
}

Ref render(const std::vector<Layout*>& layouts) {
  Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(layouts.size())));
  for (size_t i = 0; i < layouts.size(); i++) {
    const Layout* l = layouts[i];
    Ref shape = size_tuple(l->shape(), l->ndim), strides = size_tuple(l->strides(), l->ndim);
    PyTuple_SET_ITEM(tuple.py(), i,
        check(Py_BuildValue("OOO", dtype_object(l->dtype), shape.py(), strides.py())));
  }
  return tuple;
}

void forget(std::vector<Record>& list) {
  for (Record& r : list) {
    Py_DECREF(r.name);
    for (Layout* l : r.in) rl::decref(l);
    for (Layout* l : r.out) rl::decref(l);
  }
}

PyObject* record(PyObject*, PyObject* on) {
  int v = PyObject_IsTrue(on);
  if (v < 0) return nullptr;
  uint32_t before = mode;
  mode = v ? mode | kRecords : mode & ~kRecords;
  return PyBool_FromLong(before & kRecords);
}

PyObject* records(PyObject*, PyObject*) {
  return guarded([&] {
    std::vector<Record> taken;
    taken.swap(buffer());
    first_id = next_id;
    Ref list = checked(PyList_New(0));
    try {
      for (Record& r : taken) {
        Ref in = render(r.in), out = render(r.out);
        Ref one = checked(Py_BuildValue("LLiOsOLLOOss", static_cast<long long>(r.id),
            static_cast<long long>(r.parent), r.depth, r.name, r.kind.c_str(),
            r.hit ? Py_True : Py_False, static_cast<long long>(r.start),
            static_cast<long long>(r.end), in.py(), out.py(), r.what.c_str(), r.line.c_str()));
        check(PyList_Append(list.py(), one.py()));
      }
    } catch (...) {
      forget(taken);
      throw;
    }
    forget(taken);
    return list.release();
  });
}

}  // namespace

RecordScope::RecordScope(PyObject* name, const char* kind)
    : outer_(open_scope), id_(next_id++), outer_compiled_(open_compiled) {
  buffer().push_back(Record{id_, open_id, depth++, Py_NewRef(name), kind ? kind : "", "",
      open_id && !open_compiled ? "" : user_line(), false, now(), 0, {}, {}});
  outer_id_ = open_id;
  open_compiled = kind && !std::strcmp(kind, "compiled");
  open_id = id_;
  open_scope = this;
}

RecordScope::~RecordScope() {
  if (Record* r = at(id_)) r->end = now();
  open_scope = outer_;
  open_id = outer_id_;
  open_compiled = outer_compiled_;
  depth--;
}

RecordScope* RecordScope::current() { return open_scope; }

void RecordScope::inputs(const Call& call) {
  Record* r = at(id_);
  if (!r) return;
  if (call.tensors.size())
    for (int i = 0; i < call.tensors.size(); i++) keep(r->in, call.tensors[i]->layout);
  else if (call.op->nparams && is_tensor(call.values[0]))
    keep(r->in, tensor_of(call.values[0])->layout);
}

void RecordScope::inputs(PyObject* const* values, int n) {
  Record* r = at(id_);
  for (int i = 0; r && i < n; i++)
    if (values[i] && is_tensor(values[i])) keep(r->in, tensor_of(values[i])->layout);
}

void RecordScope::outputs(PyObject* o) {
  Record* r = at(id_);
  if (!r) return;
  if (is_tensor(o)) keep(r->out, tensor_of(o)->layout);
  else if (PyTuple_Check(o))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
      if (is_tensor(PyTuple_GET_ITEM(o, i)))
        keep(r->out, tensor_of(PyTuple_GET_ITEM(o, i))->layout);
}

void RecordScope::ran(const std::string& what, bool hit) {
  if (Record* r = at(id_)) {
    r->what = what;
    r->hit = hit;
  }
}

PyMethodDef record_functions[] = {
    {"record", record, METH_O, "turns records of this thread's calls on or off; returns what was"},
    {"records", records, METH_NOARGS,
        "hands over the records: (id, parent, depth, operator, kind, plan hit, start ns, end ns, "
        "in, out, what ran, user line)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
