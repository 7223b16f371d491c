// DLPack, both ways: memory shared with other libraries through a capsule. Takes tensors or
// capsules.
// Invariant: a capsule is consumed once (renamed "used_..."); the exporter's deleter runs exactly
// once.
#include "convert.h"
#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "rt/cuda_queue.h"

namespace core {
namespace {

// The structures of the DLPack ABI, version 1.
struct DLDevice {
  int32_t type, id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct Managed {  // "dltensor"
  DLTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {  // "dltensor_versioned"
  uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr uint64_t kCopied = 2;  // flag: the exporter made a copy
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6 };
constexpr int32_t kCPU = 1, kCUDA = 2, kCUDAHost = 3;

DLDataType type_of(DType d) {
  uint8_t bits = static_cast<uint8_t>(8 * rl::itemsize(d));
  Code code = d == DType::Bool       ? kBool
              : d == DType::UInt8    ? kUInt
              : d == DType::BFloat16 ? kBFloat
              : rl::is_complex(d)    ? kComplex
              : rl::is_floating(d)   ? kFloat
                                     : kInt;
  return {code, bits, 1};
}
DType dtype_of(DLDataType t) {
  for (int d = 0; d < rl::kDTypes; d++) {
    DLDataType known = type_of(static_cast<DType>(d));
    if (known.code == t.code && known.bits == t.bits && t.lanes == 1) return static_cast<DType>(d);
  }
  raise(PyExc_BufferError, "[from_dlpack] no dtype for code %d with %d bits and %d lanes", t.code,
      t.bits, t.lanes);
}

// What an export holds: the storage, and the dims that the struct points to.
template <class M>
struct Export {
  M managed;
  Storage* storage;
  int64_t dims[2 * rl::kMaxDims];
};

template <class M>
void delete_export(M* m) {
  PyGILState_STATE state = PyGILState_Ensure();  // storages are counted under the GIL
  Export<M>* e = static_cast<Export<M>*>(m->context);
  e->storage->exports--;
  rl::storage_written(e->storage);
  rl::decref(e->storage);
  delete e;
  PyGILState_Release(state);
}

template <class M>
void destroy_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed
  M* m = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (m && m->deleter) m->deleter(m);
}
void destroy_plain(PyObject* c) { destroy_capsule<Managed>(c, "dltensor"); }
void destroy_versioned(PyObject* c) { destroy_capsule<ManagedVersioned>(c, "dltensor_versioned"); }

DLDevice device_of(const Layout* l) {
  if (on_cuda(l)) return {kCUDA, cuda_index(l)};
  if (l->device != Device::CPU)
    raise(PyExc_BufferError, "[__dlpack__] a tensor on %s has no data to share",
        device_name(l->device).c_str());
  return {kCPU, 0};
}

template <class M>
Export<M>* export_tensor(Tensor* t) {
  Export<M>* e = new Export<M>{};
  const Layout* l = t->layout;
  e->storage = t->storage;
  e->storage->exports++;
  rl::incref(e->storage);
  for (int i = 0; i < l->ndim; i++) {
    e->dims[i] = l->dims[i];
    e->dims[rl::kMaxDims + i] = l->strides()[i];
  }
  e->managed.tensor = {data_of(t), device_of(l), l->ndim, type_of(l->dtype), e->dims,
      e->dims + rl::kMaxDims, 0};
  e->managed.context = e;
  e->managed.deleter = delete_export<M>;
  return e;
}

struct Imported {
  void* managed;
  bool versioned;
};
void release_import(void* context) {
  Imported* i = static_cast<Imported*>(context);
  if (i->versioned) {
    ManagedVersioned* m = static_cast<ManagedVersioned*>(i->managed);
    if (m->deleter) m->deleter(m);
  } else {
    Managed* m = static_cast<Managed*>(i->managed);
    if (m->deleter) m->deleter(m);
  }
  delete i;
}

Own<Tensor> import_capsule(PyObject* capsule) {
  bool versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
  if (!versioned && !PyCapsule_IsValid(capsule, "dltensor"))
    raise(PyExc_ValueError,
        "[from_dlpack] the capsule was consumed already, or is no DLPack capsule");
  void* managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
  const DLTensor& t = versioned ? static_cast<ManagedVersioned*>(managed)->tensor
                                : static_cast<Managed*>(managed)->tensor;
  if (versioned && static_cast<ManagedVersioned*>(managed)->major > 1)
    raise(PyExc_BufferError, "[from_dlpack] DLPack version %u is not known",
        static_cast<ManagedVersioned*>(managed)->major);
  if (t.device.type != kCPU && t.device.type != kCUDAHost && t.device.type != kCUDA)
    raise(PyExc_BufferError, "[from_dlpack] device type %d is neither the CPU nor CUDA",
        t.device.type);
  Device place = Device::CPU;
  if (t.device.type == kCUDA) {
    place = rl::make_device(rl::DeviceType::CUDA, 0);
    if (!rl::device_ready(place) || t.device.id) {
      Ref name = checked(PyUnicode_FromFormat("cuda:%d", t.device.id));
      place = device_from(name.py());
    }
    rl::cuda::queue_close();
  }
  if (t.ndim > rl::kMaxDims)
    raise(
        PyExc_BufferError, "[from_dlpack] %d dims; at most %d are supported", t.ndim, rl::kMaxDims);
  DType dtype = dtype_of(t.dtype);
  int64_t strides[rl::kMaxDims], step = 1, span = 1;
  bool empty = false;
  for (int i = t.ndim - 1; i >= 0; i--) {
    strides[i] = t.strides ? t.strides[i] : step;
    step *= t.shape[i];
    if (strides[i] < 0)
      raise(PyExc_BufferError, "[from_dlpack] negative strides are not supported");
    span += (t.shape[i] - 1) * strides[i];
    empty |= t.shape[i] == 0;
  }
  Layout* layout = rl::layout_intern(dtype, place, t.ndim, t.shape, strides);
  Imported* import = new Imported{managed, versioned};
  Storage* storage = rl::storage_external(static_cast<char*>(t.data) + t.byte_offset,
      empty ? 0 : span * rl::itemsize(dtype), release_import, import);
  storage->device = place;
  Own<Tensor> made = tensor_make(storage, layout, 0);
  check(PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor"));
  check(PyCapsule_SetDestructor(capsule, nullptr));
  return made;
}

// The consumer's stream (1: the default one, -1: it does not matter) waits for what is queued on ours.
void order_before(Tensor* t, PyObject* stream) {
  const int device = cuda_index(t->layout);
  long long handle = 1;
  if (stream != Py_None && (handle = PyLong_AsLongLong(stream)) == -1 && PyErr_Occurred())
    throw PythonError();
  if (handle == -1) return;
  auto* theirs = handle == 1 ? nullptr : reinterpret_cast<rl::cuda::Stream>(handle);
  rl::cuda::Stream ours = rl::cuda::current_stream(device);
  if (theirs == ours) return;
  rl::cuda::Event done = rl::cuda::event_create(device, false, false);
  rl::cuda::event_record(device, done, ours);
  rl::cuda::stream_wait(device, theirs, done);
  rl::cuda::event_destroy(device, done);
}

// To an exporter of CUDA memory: the stream on which it will be used.
void add_stream(PyObject* source, PyObject* keywords) {
  Ref where(PyObject_CallMethod(source, "__dlpack_device__", nullptr));
  if (!where) return PyErr_Clear();
  int type = 0, id = 0;
  if (!PyArg_ParseTuple(where.py(), "ii", &type, &id)) return PyErr_Clear();
  if (type != kCUDA) return;
  const auto handle = reinterpret_cast<uintptr_t>(rl::cuda::current_stream(rl::cuda::check_device(id)));
  Ref stream = checked(PyLong_FromUnsignedLongLong(handle ? handle : 1));
  check(PyDict_SetItemString(keywords, "stream", stream.py()));
}

}  // namespace

PyObject* to_dlpack(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "|OOOO", const_cast<char**>(keywords), &stream, &version, &device, &copy))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Tensor* t = tensor_of(o);
    if (t->layout->device == Device::Meta)
      raise(PyExc_ValueError, "[__dlpack__] tensors on meta have no memory to share");
    if (needs_grad(t))
      raise(PyExc_BufferError, "[__dlpack__] the other library would know nothing of the gradient "
                               "that the tensor requires: detach() it");
    if (device != Py_None) {
      long type = -1, id = -1;
      if (!PyArg_ParseTuple(device, "ll", &type, &id)) throw PythonError();
      if (type != device_of(t->layout).type)
        raise(PyExc_BufferError,
            "[__dlpack__] device type %ld was asked for; this tensor is on %s", type,
            device_name(t->layout->device).c_str());
    }
    Own<Tensor> copied;
    if (copy == Py_True) t = (copied = dense_copy(t)).get();
    if (on_cuda(t->layout)) {
      rl::cuda::queue_close();  // their work and ours must not wait in two places
      order_before(t, stream);
    }
    long major = 0, minor = 0;
    if (version != Py_None && !PyArg_ParseTuple(version, "ll", &major, &minor)) throw PythonError();
    if (major < 1) {
      Export<Managed>* e = export_tensor<Managed>(t);
      PyObject* capsule = PyCapsule_New(&e->managed, "dltensor", destroy_plain);
      if (!capsule) e->managed.deleter(&e->managed);
      return check(capsule);
    }
    Export<ManagedVersioned>* e = export_tensor<ManagedVersioned>(t);
    e->managed.major = 1;
    e->managed.flags = copied ? kCopied : 0;
    PyObject* capsule = PyCapsule_New(&e->managed, "dltensor_versioned", destroy_versioned);
    if (!capsule) e->managed.deleter(&e->managed);
    return check(capsule);
  });
}

PyObject* dlpack_device(PyObject* o, PyObject*) {
  return guarded([&] {
    const DLDevice d = device_of(tensor_of(o)->layout);
    return Py_BuildValue("(ii)", static_cast<int>(d.type), static_cast<int>(d.id));
  });
}

PyObject* from_dlpack(PyObject*, PyObject* source) {
  return guarded([&] {
    if (PyCapsule_CheckExact(source)) return import_capsule(source).release_object();
    Ref method = checked(PyObject_GetAttrString(source, "__dlpack__"));
    Ref none = checked(PyTuple_New(0)),
        keywords = checked(Py_BuildValue("{s:(ii)}", "max_version", 1, 0));
    add_stream(source, keywords.py());
    PyObject* capsule = PyObject_Call(method.py(), none.py(), keywords.py());
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {  // exporters older than version 1
      PyErr_Clear();
      capsule = PyObject_CallNoArgs(method.py());
    }
    Ref held = checked(capsule);
    return import_capsule(held.py()).release_object();
  });
}

}  // namespace core
