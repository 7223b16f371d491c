// The functions of `_core` that `rushlight.cuda` and `rushlight.runtime.cuda` stand on: devices,
// streams, events, memory, libraries. Streams and events are integers here; they belong to the
// Python objects that asked for them.
#include "cuda.h"

#include "convert.h"
#include "released.h"
#include "rt/cublas.h"
#include "rt/cublas_choices.h"
#include "rt/cuda_ahead.h"
#include "rt/cuda_memory.h"
#include "rt/cuda_queue.h"
#include "rt/cudnn.h"
#include "rt/cupti.h"

namespace core {
namespace {

namespace cuda = rl::cuda;

template <class T>
T handle(unsigned long long v) {
  return reinterpret_cast<T>(static_cast<uintptr_t>(v));
}
template <class T>
unsigned long long number(T h) {
  return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(h));
}
void parse(PyObject* args, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int ok = PyArg_VaParse(args, format, list);
  va_end(list);
  if (!ok) throw PythonError();
}
PyObject* none() { return Py_NewRef(Py_None); }

PyObject* available(PyObject*, PyObject*) {
  const char* why;
  const bool works = cuda::driver_or_null(&why) != nullptr;
  return Py_BuildValue("Os", works ? Py_True : Py_False, why);
}
PyObject* open(PyObject*, PyObject*) {
  return guarded([] {
    cuda::driver();
    cuda_register();
    return none();
  });
}
PyObject* device_count(PyObject*, PyObject*) { return PyLong_FromLong(cuda::device_count()); }
PyObject* driver_version(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromLong(cuda::driver().version); });
}
PyObject* current_device(PyObject*, PyObject*) {
  return guarded([] {
    cuda::driver();
    return PyLong_FromLong(cuda::current_device());
  });
}
PyObject* set_device(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    const int before = cuda::current_device();
    cuda::set_device(device);
    return PyLong_FromLong(before);
  });
}
PyObject* properties(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    const cuda::Properties& p = cuda::properties(device);
    return check(Py_BuildValue(
        "{s:s,s:i,s:i,s:L,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:y#}",
        "name", p.name.c_str(), "major", p.major, "minor", p.minor, "total_memory",
        static_cast<long long>(p.memory), "multi_processor_count", p.processors, "warp_size",
        p.warp_size, "max_threads_per_block", p.threads_per_block,
        "max_threads_per_multi_processor", p.threads_per_processor, "regs_per_multiprocessor",
        p.registers_per_block, "shared_memory_per_block", p.shared_per_block,
        "shared_memory_per_block_optin", p.shared_per_block_optin,
        "shared_memory_per_multiprocessor", p.shared_per_processor, "L2_cache_size", p.l2_bytes,
        "clock_rate", p.clock_khz, "is_integrated", p.integrated, "is_multi_gpu_board",
        p.multi_gpu_board, "pci_bus_id", p.pci_bus, "pci_device_id", p.pci_device, "pci_domain_id",
        p.pci_domain, "uuid", reinterpret_cast<const char*>(p.uuid), Py_ssize_t{16}));
  });
}

// ---- streams and events

PyObject* stream_create(PyObject*, PyObject* args) {
  return guarded([&] {
    int device, priority = 0;
    parse(args, "i|i", &device, &priority);
    return PyLong_FromUnsignedLongLong(
        number(cuda::stream_create(cuda::check_device(device), priority)));
  });
}
PyObject* stream_release(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long stream;
    parse(args, "iK", &device, &stream);
    cuda::stream_release(device, handle<cuda::Stream>(stream));
    return none();
  });
}
PyObject* stream_current(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    return PyLong_FromUnsignedLongLong(number(cuda::current_stream(cuda::check_device(device))));
  });
}
PyObject* stream_set(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long stream;
    parse(args, "iK", &device, &stream);
    const auto before = number(cuda::current_stream(cuda::check_device(device)));
    cuda::set_stream(device, handle<cuda::Stream>(stream));
    return PyLong_FromUnsignedLongLong(before);
  });
}
PyObject* stream_query(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long stream;
    parse(args, "iK", &device, &stream);
    return PyBool_FromLong(cuda::stream_done(device, handle<cuda::Stream>(stream)));
  });
}
PyObject* stream_wait(PyObject*, PyObject* args) {  // the host waits
  return guarded([&] {
    int device;
    unsigned long long stream;
    parse(args, "iK", &device, &stream);
    WaitName name("synchronize");
    cuda_stream_wait(device, handle<cuda::Stream>(stream));
    return none();
  });
}
PyObject* stream_range(PyObject*, PyObject* args) {
  return guarded([&] {
    int device, least = 0, greatest = 0;
    parse(args, "i", &device);
    cuda::stream_range(cuda::check_device(device), &least, &greatest);
    return Py_BuildValue("ii", least, greatest);
  });
}
PyObject* event_create(PyObject*, PyObject* args) {
  return guarded([&] {
    int device, timing, blocking;
    parse(args, "ipp", &device, &timing, &blocking);
    return PyLong_FromUnsignedLongLong(
        number(cuda::event_create(cuda::check_device(device), timing, blocking)));
  });
}
PyObject* event_destroy(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long event;
    parse(args, "iK", &device, &event);
    cuda::event_destroy(device, handle<cuda::Event>(event));
    return none();
  });
}
PyObject* event_record(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long event, stream;
    parse(args, "iKK", &device, &event, &stream);
    cuda::event_record(device, handle<cuda::Event>(event), handle<cuda::Stream>(stream));
    return none();
  });
}
PyObject* event_query(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long event;
    parse(args, "iK", &device, &event);
    return PyBool_FromLong(cuda::event_done(device, handle<cuda::Event>(event)));
  });
}
PyObject* event_wait(PyObject*, PyObject* args) {  // the host waits
  return guarded([&] {
    int device;
    unsigned long long event;
    parse(args, "iK", &device, &event);
    WaitName name("event.synchronize");
    cuda_event_wait(device, handle<cuda::Event>(event));
    return none();
  });
}
PyObject* event_elapsed(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    unsigned long long start, end;
    parse(args, "iKK", &device, &start, &end);
    return PyFloat_FromDouble(
        cuda::event_elapsed(device, handle<cuda::Event>(start), handle<cuda::Event>(end)));
  });
}
PyObject* stream_wait_event(PyObject*, PyObject* args) {  // the stream waits, the host does not
  return guarded([&] {
    int device;
    unsigned long long stream, event;
    parse(args, "iKK", &device, &stream, &event);
    cuda::stream_wait(device, handle<cuda::Stream>(stream), handle<cuda::Event>(event));
    return none();
  });
}
PyObject* synchronize(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    WaitName name("synchronize");
    cuda_device_wait(cuda::check_device(device));
    return none();
  });
}

// ---- memory

Ref count_dict(const cuda::Count& c) {
  return checked(Py_BuildValue("{s:L,s:L,s:L,s:L}", "current", static_cast<long long>(c.current),
      "peak", static_cast<long long>(c.peak), "allocated", static_cast<long long>(c.allocated),
      "freed", static_cast<long long>(c.freed)));
}

PyObject* memory_stats(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    const cuda::MemoryStats s = cuda::memory_stats(device);
    const struct {
      const char* name;
      const cuda::Count* counts;
    } all[] = {{"allocated_bytes", s.allocated_bytes}, {"requested_bytes", s.requested_bytes},
        {"reserved_bytes", s.reserved_bytes}, {"active_bytes", s.active_bytes},
        {"inactive_split_bytes", s.split_bytes}, {"allocation", s.allocation},
        {"segment", s.segment}, {"active", s.active}, {"inactive_split", s.split}};
    static const char* const pools[] = {"all", "small_pool", "large_pool"};
    Ref dict = checked(
        Py_BuildValue("{s:L,s:L,s:L}", "num_alloc_retries", static_cast<long long>(s.retries),
            "num_ooms", static_cast<long long>(s.ooms), "limit", static_cast<long long>(s.limit)));
    for (const auto& a : all) {
      Ref kinds = checked(PyDict_New());
      for (int k = 0; k < 3; k++)
        check(PyDict_SetItemString(kinds.py(), pools[k], count_dict(a.counts[k]).py()));
      check(PyDict_SetItemString(dict.py(), a.name, kinds.py()));
    }
    return dict.release_object();
  });
}
PyObject* memory_reset(PyObject*, PyObject* args) {
  return guarded([&] {
    int device, totals;
    parse(args, "ip", &device, &totals);
    if (totals)
      cuda::memory_reset_totals(device);
    else
      cuda::memory_reset_peak(device);
    return none();
  });
}
PyObject* memory_empty(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    return PyLong_FromLongLong(cuda::memory_empty_cache(cuda::check_device(device)));
  });
}
PyObject* memory_limit(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    long long bytes;
    parse(args, "iL", &device, &bytes);
    cuda::memory_set_limit(device, bytes);
    return none();
  });
}
PyObject* memory_info(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    int64_t free, total;
    cuda::memory_info(cuda::check_device(device), &free, &total);
    return Py_BuildValue("LL", static_cast<long long>(free), static_cast<long long>(total));
  });
}
PyObject* memory_blocks(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    parse(args, "i", &device);
    Ref list = checked(PyList_New(0));
    cuda::memory_blocks(
        device,
        [](void* into, const cuda::BlockInfo& b) {
          Ref one = checked(Py_BuildValue("LLLLLsOK", static_cast<long long>(b.segment),
              static_cast<long long>(b.segment_bytes), static_cast<long long>(b.address),
              static_cast<long long>(b.bytes), static_cast<long long>(b.requested),
              b.used      ? "active_allocated"
              : b.waiting ? "active_pending_free"
                          : "inactive",
              b.small ? Py_True : Py_False, number(b.stream)));
          check(PyList_Append(static_cast<PyObject*>(into), one.py()));
        },
        list.py());
    return list.release_object();
  });
}

Tensor* tensor_argument(PyObject* o) {
  if (!is_tensor(o)) raise(PyExc_TypeError, "expected a Tensor, got %s", Py_TYPE(o)->tp_name);
  return tensor_of(o);
}
PyObject* pinned(PyObject*, PyObject* o) {  // a copy in pinned memory
  return guarded([&] {
    Tensor* t = tensor_argument(o);
    if (t->layout->device != Device::CPU)
      raise(PyExc_RuntimeError, "cannot pin 'cuda' memory: only dense CPU tensors can be pinned");
    cuda::driver();
    Layout* l = rl::layout_intern(
        t->layout->dtype, Device::CPU, t->layout->ndim, t->layout->shape(), t->layout->strides());
    if (!l->dense) {
      Layout* dense = rl::layout_dense(l->dtype, Device::CPU, l->ndim, l->shape());
      rl::decref(l);
      l = dense;
    }
    Storage* s = cuda::pinned_alloc(l->numel * rl::itemsize(l->dtype));
    Own<Tensor> made = tensor_make(s, l, 0);
    copy_into(made.get(), t);
    return made.release_object();
  });
}
PyObject* is_pinned(PyObject*, PyObject* o) {
  return guarded([&] { return PyBool_FromLong(cuda::is_pinned(tensor_argument(o)->storage)); });
}
PyObject* record_stream(PyObject*, PyObject* args) {
  return guarded([&] {
    PyObject* o;
    unsigned long long stream;
    parse(args, "OK", &o, &stream);
    Tensor* t = tensor_argument(o);
    // Memory of other libraries has no block of ours: its owner decides.
    if (on_cuda(t->layout) && t->storage->size_class != -1)
      cuda::memory_used_on(t->storage, handle<cuda::Stream>(stream));
    return none();
  });
}

// ---- libraries and counts

cuda::VendorLibrary& vendor_library(const char* name) {
  if (!std::strcmp(name, "cudnn")) return cuda::cudnn();
  if (!std::strcmp(name, "cublaslt")) return cuda::cublas();
  if (!std::strcmp(name, "cupti")) return cuda::cupti();
  raise(PyExc_ValueError, "no vendor library '%s'; 'cublaslt', 'cudnn' and 'cupti' are", name);
}
PyObject* library_look_for(PyObject*, PyObject* args) {
  return guarded([&] {
    const char* name;
    PyObject* given;
    parse(args, "sO!", &name, &PyTuple_Type, &given);
    std::vector<std::string> names;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
      const char* text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(given, i));
      if (!text) throw PythonError();
      names.emplace_back(text);
    }
    vendor_library(name).look_for(std::move(names));
    return none();
  });
}
PyObject* library_missing(PyObject*, PyObject* name) {
  return guarded([&] {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) throw PythonError();
    return PyUnicode_FromString(vendor_library(text).missing().c_str());
  });
}
PyObject* ahead(PyObject*, PyObject* args) {
  return guarded([&] {
    int device, wait = 0;
    parse(args, "i|p", &device, &wait);
    cuda::check_device(device);
    cuda::AheadState state;
    run_released(nullptr, 0, [&] {
      cuda::ahead_begin(device);
      state = cuda::ahead_state(device, wait);
    });
    return Py_BuildValue("OOs", state.begun ? Py_True : Py_False,
        state.over ? Py_True : Py_False, state.refusal.c_str());
  });
}
PyObject* product_choices(PyObject*, PyObject* args) {
  return guarded([&] {
    int device;
    PyObject* given = Py_None;
    parse(args, "i|O", &device, &given);
    cuda::check_device(device);
    if (given == Py_None) {
      const std::string told = cuda::choices_told(device);
      return Py_BuildValue("y#L", told.data(), static_cast<Py_ssize_t>(told.size()),
          static_cast<long long>(cuda::choices_asked(device)));
    }
    char* bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(given, &bytes, &size) < 0) throw PythonError();
    return PyBool_FromLong(cuda::choices_learn(device, bytes, static_cast<size_t>(size)));
  });
}
PyObject* pad_products(PyObject*, PyObject* args) {
  int set = -1;
  if (!PyArg_ParseTuple(args, "|i", &set)) return nullptr;
  const bool was = cuda_pads_every_product;
  if (set >= 0) cuda_pads_every_product = set != 0;
  return PyBool_FromLong(was);
}

PyObject* launch_thread(PyObject*, PyObject* args) {
  return guarded([&] {
    int set = -1;
    parse(args, "|i", &set);
    return PyBool_FromLong(cuda::queue_set(set));
  });
}

PyObject* hand_out(PyObject*, PyObject*) {
  return guarded([&] {
    cuda::queue_close();
    return none();
  });
}

PyObject* end(PyObject*, PyObject*) {
  return guarded([] {
    run_released(nullptr, 0, [] { cuda::ahead_end(); });
    cuda::queue_close();
    return none();
  });
}
PyObject* tf32(PyObject*, PyObject* args) {
  return guarded([&] {
    const char* what;
    int set = -1;
    parse(args, "s|i", &what, &set);
    return PyBool_FromLong(
        !std::strcmp(what, "cudnn") ? cuda::cudnn_tf32_allowed(set) : cuda::tf32_allowed(set));
  });
}
PyObject* counts(PyObject*, PyObject*) {
  const cuda::RunCounts& c = cuda::run_counts();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L}", "generated", static_cast<long long>(c.launches),
      "library", static_cast<long long>(c.library), "copy", static_cast<long long>(c.copies),
      "fallback", static_cast<long long>(c.fallbacks), "waits", static_cast<long long>(c.waits),
      "wait_ns", static_cast<long long>(c.wait_ns));
}

template <class F>
PyCFunction fn(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

}  // namespace

PyMethodDef cuda_functions[] = {
    {"cuda_available", available, METH_NOARGS,
        "(whether a CUDA device can be used, and if not, why)"},
    {"cuda_open", open, METH_NOARGS,
        "registers the CUDA runtime; RuntimeError where there is none"},
    {"cuda_device_count", device_count, METH_NOARGS, nullptr},
    {"cuda_driver_version", driver_version, METH_NOARGS, "13000 is 13.0"},
    {"cuda_current_device", current_device, METH_NOARGS, nullptr},
    {"cuda_set_device", set_device, METH_VARARGS, "(device) -> what was"},
    {"cuda_properties", properties, METH_VARARGS, "(device) -> dict"},
    {"cuda_stream_create", stream_create, METH_VARARGS, "(device, priority=0) -> handle"},
    {"cuda_stream_release", stream_release, METH_VARARGS, "(device, stream)"},
    {"cuda_stream_current", stream_current, METH_VARARGS, "(device) -> handle"},
    {"cuda_stream_set", stream_set, METH_VARARGS, "(device, stream) -> what was"},
    {"cuda_stream_query", stream_query, METH_VARARGS, "(device, stream): whether all is done"},
    {"cuda_stream_wait", stream_wait, METH_VARARGS, "(device, stream): the host waits"},
    {"cuda_stream_wait_event", stream_wait_event, METH_VARARGS,
        "(device, stream, event): the stream waits"},
    {"cuda_stream_range", stream_range, METH_VARARGS, "(device) -> least and greatest priority"},
    {"cuda_event_create", event_create, METH_VARARGS, "(device, timing, blocking) -> handle"},
    {"cuda_event_destroy", event_destroy, METH_VARARGS, "(device, event)"},
    {"cuda_event_record", event_record, METH_VARARGS, "(device, event, stream)"},
    {"cuda_event_query", event_query, METH_VARARGS, "(device, event)"},
    {"cuda_event_wait", event_wait, METH_VARARGS, "(device, event): the host waits"},
    {"cuda_event_elapsed", event_elapsed, METH_VARARGS, "(device, start, end) -> milliseconds"},
    {"cuda_synchronize", synchronize, METH_VARARGS, "(device): the host waits for all of it"},
    {"cuda_memory_stats", memory_stats, METH_VARARGS, "(device) -> nested dict"},
    {"cuda_memory_reset", memory_reset, METH_VARARGS, "(device, totals): peaks, or totals"},
    {"cuda_memory_empty", memory_empty, METH_VARARGS, "(device) -> bytes given back"},
    {"cuda_memory_limit", memory_limit, METH_VARARGS, "(device, bytes); 0: none"},
    {"cuda_memory_info", memory_info, METH_VARARGS, "(device) -> free, total"},
    {"cuda_memory_blocks", memory_blocks, METH_VARARGS, "(device) -> list"},
    {"cuda_pinned", pinned, METH_O, "a copy in pinned host memory"},
    {"cuda_is_pinned", is_pinned, METH_O, nullptr},
    {"cuda_record_stream", record_stream, METH_VARARGS, "(tensor, stream)"},
    {"cuda_library_look_for", library_look_for, METH_VARARGS,
        "('cublaslt', 'cudnn' or 'cupti', paths or names): opened at first use"},
    {"cuda_library_missing", library_missing, METH_O, "why, in words; empty: it works"},
    {"cuda_ahead", ahead, METH_VARARGS,
        "(device, wait=False): begins to open cuBLASLt for it on a thread of its own -> (whether it "
        "was begun, whether it is over, what went wrong)"},
    {"cuda_product_choices", product_choices, METH_VARARGS,
        "(device, bytes=None): cuBLASLt's choices of algorithms -> (bytes, how many this process asked "
        "for), or learns those of another process -> whether they can be read"},
    {"cuda_pad_products", pad_products, METH_VARARGS,
        "(every=-1) -> what was: whether even small products of half types are padded (for tests)"},
    {"cuda_launch_thread", launch_thread, METH_VARARGS,
        "(set=-1) -> what was: whether a thread of its own hands launches to the driver (2: lone ones "
        "too)"},
    {"cuda_hand_out", hand_out, METH_NOARGS,
        "ends the launch thread for good: others are about to use our streams or memory"},
    {"cuda_end", end, METH_NOARGS, "before the process ends: no thread of ours is in a library"},
    {"cuda_tf32", tf32, METH_VARARGS, "('matmul' or 'cudnn', set=-1) -> what was"},
    {"cuda_counts", counts, METH_NOARGS,
        "how many kernels of each kind ran, and how long the host waited"},
    {nullptr, nullptr, 0, nullptr},
};

void device_kernel_init(PyObject*);
extern PyMethodDef cuda_runtime_functions[];

void cuda_init(PyObject* m) {
  for (PyMethodDef* list :
      {cuda_functions, cuda_wait_functions, cuda_sharing_functions, cuda_activity_functions,
          cuda_runtime_functions})
    check(PyModule_AddFunctions(m, list));
  device_kernel_init(m);
}

}  // namespace core
