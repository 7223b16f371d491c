// Records. Takes calls while the mode bit is on; gives them to Python as tuples, in the order of
// their start.
// Invariant: layouts are kept by reference and rendered only when they are asked for.
#include "records.h"

#include <time.h>

#include "../rt/cuda_device.h"
#include "../rt/cupti.h"
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
  int device = -1;  // of the first operand on a GPU
  rl::cuda::Event began = nullptr, ended = nullptr;  // on its stream, around what the call queued
};

// One buffer a process, written under the GIL; the stack of open calls is per thread.
std::vector<Record>& buffer() {
  static std::vector<Record>* b = new std::vector<Record>;
  return *b;
}
int64_t next_id = 1, first_id = 1;  // of records that are kept; they stand in the buffer in order
int64_t unkept_id = 0;
__thread RecordScope* open_scope = nullptr;
__thread int64_t open_id = 0;
__thread bool open_compiled = false;  // the open call is a compiled function's: lines are the user's
__thread int depth = 0;
__thread bool keeping = false;  // else calls are recorded for their ranges alone

// A range of NVTX (nvToolsExt.h, version 3): what a tool such as Nsight Systems shows of a call.
struct Event {
  uint16_t version = 3, size = sizeof(Event);
  uint32_t category = 0;
  int32_t color_type = 0;
  uint32_t color = 0;
  int32_t payload_type = 2, reserved = 0;  // 2: int64
  int64_t payload = 0;
  int32_t message_type = 1;  // 1: const char*
  const char* message = nullptr;
};
static_assert(sizeof(Event) == 48);
__thread int (*push_range)(const Event*) = nullptr;  // a tool's; null: nobody takes ranges
__thread int (*pop_range)() = nullptr;

uint32_t category_of(const char* kind) {
  static const char* const names[] = {"compiled", "graph", "fused"};
  for (uint32_t i = 0; i < 3; i++)
    if (kind && !std::strcmp(kind, names[i])) return i + 1;
  return 4;
}

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

// Events that are free to be recorded again, by device.
std::vector<rl::cuda::Event>& free_events(int device) {
  static auto* all = new std::vector<rl::cuda::Event>[rl::cuda::kMaxDevices];
  return all[device];
}

rl::cuda::Event mark(int device) noexcept {  // null where the device refuses: the time is not known
  try {
    auto& free = free_events(device);
    if (free.empty()) free.push_back(rl::cuda::event_create(device, true, false));
    rl::cuda::Event event = free.back();
    rl::cuda::event_record(device, event, rl::cuda::current_stream(device));
    free.pop_back();
    return event;
  } catch (...) {
    return nullptr;
  }
}

void keep_input(Record* r, Layout* l) {
  keep(r->in, l);
  if (r->device >= 0 || rl::device_type(l->device) != rl::DeviceType::CUDA) return;
  if (rl::cuda::activities_on()) return;  // they have the times
  r->device = rl::device_index(l->device);
  r->began = mark(r->device);
}

int64_t device_time(const Record& r) noexcept {  // nanoseconds; the host waits for the call's end
  if (!r.began || !r.ended) return 0;
  try {
    rl::cuda::event_synchronize(r.device, r.ended);
    return static_cast<int64_t>(rl::cuda::event_elapsed(r.device, r.began, r.ended) * 1e6);
  } catch (...) {
    return 0;
  }
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
    for (rl::cuda::Event e : {r.began, r.ended})
      if (e) free_events(r.device).push_back(e);
  }
}

PyObject* record(PyObject*, PyObject* on) {
  int v = PyObject_IsTrue(on);
  if (v < 0) return nullptr;
  bool before = keeping;
  keeping = v;
  mode = v || push_range ? mode | kRecords : mode & ~kRecords;
  return PyBool_FromLong(before);
}

PyObject* ranges(PyObject*, PyObject* args) {
  unsigned long long push, pop;
  if (!PyArg_ParseTuple(args, "KK", &push, &pop)) return nullptr;
  push_range = reinterpret_cast<int (*)(const Event*)>(push);
  pop_range = push ? reinterpret_cast<int (*)()>(pop) : nullptr;
  mode = push || keeping ? mode | kRecords : mode & ~kRecords;
  Py_RETURN_NONE;
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
        Ref one = checked(Py_BuildValue("LLiOsOLLOOssL", static_cast<long long>(r.id),
            static_cast<long long>(r.parent), r.depth, r.name, r.kind.c_str(),
            r.hit ? Py_True : Py_False, static_cast<long long>(r.start),
            static_cast<long long>(r.end), in.py(), out.py(), r.what.c_str(), r.line.c_str(),
            static_cast<long long>(device_time(r))));
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
    : outer_(open_scope), id_(keeping ? next_id++ : --unkept_id), outer_compiled_(open_compiled) {
  if (keeping)
    buffer().push_back(Record{id_, open_id > 0 ? open_id : 0, depth, Py_NewRef(name), kind ? kind : "", "",
        open_id && !open_compiled ? "" : user_line(), false, now(), 0, {}, {}});
  depth++;
  if (push_range) {
    Event event;
    event.category = category_of(kind);
    event.payload = id_;
    event.message = PyUnicode_AsUTF8(name);
    popped_by_ = pop_range;
    if (!event.message) {
      PyErr_Clear();
      event.message = "?";
    }
    push_range(&event);
  }
  outer_id_ = open_id;
  open_compiled = kind && !std::strcmp(kind, "compiled");
  open_id = id_;
  open_scope = this;
  if (keeping && rl::cuda::activities_on()) push_owner(false);
}

void RecordScope::push_owner(bool outer_first) {
  if (outer_first && outer_) outer_->push_owner(true);
  if (owns_ || id_ < 0) return;
  rl::cuda::activities_push(id_);
  owns_ = true;
}

RecordScope::~RecordScope() {
  if (owns_) rl::cuda::activities_pop();
  if (popped_by_) popped_by_();
  if (Record* r = at(id_)) {
    r->end = now();
    if (r->began) r->ended = mark(r->device);
  }
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
    for (int i = 0; i < call.tensors.size(); i++) keep_input(r, call.tensors[i]->layout);
  else if (call.op->nparams && is_tensor(call.values[0]))
    keep_input(r, tensor_of(call.values[0])->layout);
}

void RecordScope::inputs(PyObject* const* values, int n) {
  Record* r = at(id_);
  for (int i = 0; r && i < n; i++)
    if (values[i] && is_tensor(values[i])) keep_input(r, tensor_of(values[i])->layout);
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
        "in, out, what ran, user line, ns on the device)"},
    {"ranges", ranges, METH_VARARGS,
        "ranges(push, pop): addresses of a tool's nvtxRangePushEx and nvtxRangePop, or 0, 0: each "
        "recorded call is a range, this thread's from now on"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
