// Where the host waits for the device: allowed or not, how long, on which line of the user's.
// Invariant: every wait that Python code causes goes through here; the GIL is free meanwhile.
#include <time.h>

#include <deque>

#include "cuda.h"
#include "released.h"

namespace core {

__thread bool cuda_non_blocking __attribute__((tls_model("initial-exec"))) = false;

namespace {

enum SyncMode { kSilent, kWarn, kError };
SyncMode sync_mode = kSilent;
__thread const char* wait_name = nullptr;

struct Wait {
  std::string what, line;
  int64_t ns;
};
constexpr size_t kKept = 4096;
std::deque<Wait>& waits() {
  static std::deque<Wait>* all = new std::deque<Wait>;
  return *all;
}

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

const char* name() { return wait_name ? wait_name : "copy to host"; }

template <class F>
void wait_for(F&& wait, bool asked = false) {
  if (!asked) cuda_wait_allowed();
  const int64_t start = now();
  run_released(nullptr, 0, wait);
  cuda_waited(now() - start);
}

}  // namespace

WaitName::WaitName(const char* given) : saved_(wait_name) {
  if (!wait_name) wait_name = given;  // the outermost name is the user's
}
WaitName::~WaitName() { wait_name = saved_; }
const char* WaitName::now() { return name(); }

void cuda_wait_allowed() {
  if (sync_mode == kSilent) return;
  const std::string text =
      std::string("[") + name() +
      "] the host waits for the GPU here (rushlight.cuda.sync_debug is on): " + user_line();
  if (sync_mode == kError) fail(ErrorKind::Runtime, "%s", text.c_str());
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) throw PythonError();
}

void cuda_waited(int64_t ns) {
  rl::cuda::run_counts().waits++;
  rl::cuda::run_counts().wait_ns += ns;
  if (waits().size() == kKept) waits().pop_front();
  waits().push_back({name(), user_line(), ns});
}

void cuda_stream_wait(int device, rl::cuda::Stream stream, bool asked) {
  wait_for([&] { rl::cuda::stream_synchronize(device, stream); }, asked);
  rl::cuda::raise_kernel_errors(device, false, stream);
}

void cuda_event_wait(int device, rl::cuda::Event event) {
  wait_for([&] { rl::cuda::event_synchronize(device, event); });
}

void cuda_device_wait(int device) {
  wait_for([&] { rl::cuda::device_synchronize(device); });
  rl::cuda::unload_dead_modules(device);
  rl::cuda::raise_kernel_errors(device, true);
}

namespace {

PyObject* named(PyObject*, PyObject* args) {  // (name, function, *arguments)
  return guarded([&] {
    const char* text =
        PyTuple_GET_SIZE(args) >= 2 ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(args, 0)) : "";
    if (!text) throw PythonError();
    if (PyTuple_GET_SIZE(args) < 2)
      raise(PyExc_TypeError, "[cuda_named] takes a name and a function");
    WaitName name(text);
    Ref rest = checked(PyTuple_GetSlice(args, 2, PyTuple_GET_SIZE(args)));
    return check(PyObject_CallObject(PyTuple_GET_ITEM(args, 1), rest.py()));
  });
}

PyObject* set_sync_mode(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    static const char* const names[] = {"default", "warn", "error"};
    SyncMode before = sync_mode;
    if (o != Py_None) {
      int found = -1;
      for (int i = 0; i < 3; i++)
        if (PyUnicode_Check(o) && !PyUnicode_CompareWithASCIIString(o, names[i])) found = i;
      if (PyLong_Check(o)) {
        const long v = PyLong_AsLong(o);
        if (v >= 0 && v <= 2) found = static_cast<int>(v);
      }
      PyErr_Clear();
      if (found < 0)
        raise(PyExc_RuntimeError,
            "[set_sync_debug_mode] knows default, warn and error, not %R",
            o);
      sync_mode = static_cast<SyncMode>(found);
    }
    return PyLong_FromLong(before);
  });
}

// ((what, nanoseconds, "file.py:12 in f"), ...), the oldest first; forgets them.
PyObject* take_waits(PyObject*, PyObject*) {
  return guarded([&] {
    std::deque<Wait> taken;
    taken.swap(waits());
    Ref list = checked(PyList_New(0));
    for (const Wait& w : taken) {
      Ref entry = checked(
          Py_BuildValue("sLs", w.what.c_str(), static_cast<long long>(w.ns), w.line.c_str()));
      check(PyList_Append(list.py(), entry.py()));
    }
    return list.release_object();
  });
}

}  // namespace

PyMethodDef cuda_wait_functions[] = {
    {"cuda_sync_mode", set_sync_mode, METH_O,
        "sets 'default', 'warn' or 'error' (None: leaves it); returns what was, 0 to 2"},
    {"cuda_named", named, METH_VARARGS,
        "(name, f, *args): f(*args), whose waits of the host go by that name"},
    {"cuda_waits", take_waits, METH_NOARGS,
        "takes the latest waits of the host: (what, nanoseconds, user's line)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
