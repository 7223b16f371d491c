// Borders with Python data: numbers, nested sequences, numpy arrays and buffers (without numpy's
// headers). Takes Python objects; gives tensors, or the reverse. Invariant: memory shared with
// another library is held by its owner's reference until the last tensor on it is gone.
#include "convert.h"

#include <cmath>
#include <optional>

#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "half.h"
#include "records.h"
#include "tape.h"

namespace core {

int64_t read_int(const char* what, PyObject* o) {
  long long v;
  if (PyLong_CheckExact(o)) {
    v = PyLong_AsLongLong(o);
  } else {
    if (!PyIndex_Check(o))
      raise(PyExc_TypeError, "[%s] expected an integer, got %s", what, Py_TYPE(o)->tp_name);
    Ref index = checked(PyNumber_Index(o));
    v = PyLong_AsLongLong(index.py());
  }
  if (v == -1 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
    PyErr_Clear();  // clamp, as slices do
    Ref zero = checked(PyLong_FromLong(0));
    v = check(PyObject_RichCompareBool(o, zero.py(), Py_LT)) ? INT64_MIN : INT64_MAX;
  }
  return v;
}

void read_ints(const char* what, PyObject* o, Small<int64_t, 8>& values) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) {
    values.push(read_int(what, o));
    return;
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  for (Py_ssize_t i = 0; i < n; i++) values.push(read_int(what, PySequence_Fast_GET_ITEM(o, i)));
}

namespace {

template <class T>
T load(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
template <class T>
void store(char* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

int64_t integer_value(PyObject* o) {
  if (PyFloat_Check(o)) {
    double v = PyFloat_AS_DOUBLE(o);
    return v >= -9.2233720368547758e18 && v < 9.2233720368547758e18 ? static_cast<int64_t>(v)
                                                                    : INT64_MIN;
  }
  Ref held = PyLong_Check(o) ? Ref::borrow(o) : checked(PyNumber_Long(o));
  int overflow;
  long long v = PyLong_AsLongLongAndOverflow(held.py(), &overflow);
  if (overflow)
    raise(PyExc_OverflowError, "Overflow when unpacking long: the number exceeds 64 bits");
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

void shape_check(int n) {
  if (n > rl::kMaxDims)
    fail(ErrorKind::Value, "[tensor] %d dims; at most %d are supported", n, rl::kMaxDims);
}

// A nested list from the dims `d` on.
PyObject* nested(const Layout* l, const char* at, int d) {
  if (d == l->ndim) return scalar_of(l->dtype, at).release();
  Ref list = checked(PyList_New(l->dims[d]));
  int64_t step = l->strides()[d] * rl::itemsize(l->dtype);
  for (int64_t i = 0; i < l->dims[d]; i++)
    PyList_SET_ITEM(list.py(), i, nested(l, at + i * step, d + 1));
  return list.release();
}

// ---- nested sequences

bool is_sequence(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o) ||
         (PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o) && !is_tensor(o));
}

bool is_zero_dim(PyObject* o) { return is_tensor(o) && tensor_of(o)->layout->ndim == 0; }

class Nested {
 public:
  explicit Nested(PyObject* data) { find_shape(data); }
  int n = 0;
  int64_t shape[rl::kMaxDims];

  // The dtype of the data: the highest category among its numbers.
  DType infer(PyObject* o, int d = 0) {
    if (d < n) {
      Ref fast = checked(PySequence_Fast(o, "expected a sequence"));
      DType found = default_dtype;
      bool first = true;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.py()); i++) {
        DType t = infer(PySequence_Fast_GET_ITEM(fast.py(), i), d + 1);
        found =
            first || category(t) > category(found) || (category(t) == category(found) && t > found)
                ? t
                : found;
        first = false;
      }
      return found;
    }
    if (PyBool_Check(o)) return DType::Bool;
    if (PyLong_CheckExact(o)) return DType::Int64;
    if (PyFloat_CheckExact(o)) return default_dtype;
    if (is_tensor(o)) return tensor_of(o)->layout->dtype;
    if (PyComplex_CheckExact(o))
      return default_dtype == DType::Float64 ? DType::Complex128 : DType::Complex64;
    if (Ref dtype = attribute(o, "dtype")) {  // numpy scalars
      Ref name(PyObject_Str(dtype.py()));
      if (name)
        for (int k = 0; k < rl::kDTypes; k++)
          if (!PyUnicode_CompareWithASCIIString(name.py(), dtype_name(static_cast<DType>(k))))
            return static_cast<DType>(k);
      PyErr_Clear();
    }
    if (PyLong_Check(o) || PyIndex_Check(o)) return DType::Int64;
    if (PyNumber_Check(o)) return default_dtype;
    raise(PyExc_TypeError, "[tensor] cannot make a tensor of %s", Py_TYPE(o)->tp_name);
  }

  void fill(PyObject* o, DType dtype, char*& at, int d = 0) {
    if (d == n) {
      if (is_sequence(o) && !is_zero_dim(o))
        raise(PyExc_ValueError,
            "[tensor] too many nested sequences: expected a number at depth %d, got %s", d,
            Py_TYPE(o)->tp_name);
      Ref number = is_tensor(o) ? checked(tensor_item(tensor_of(o))) : Ref::borrow(o);
      store_scalar(dtype, at, number.py());
      at += rl::itemsize(dtype);
      return;
    }
    if (!is_sequence(o) && !is_tensor(o))
      raise(PyExc_TypeError, "[tensor] expected a sequence of length %lld at dim %d, got %s",
          static_cast<long long>(shape[d]), d, Py_TYPE(o)->tp_name);
    Ref fast = checked(PySequence_Fast(o, "expected a sequence"));
    if (PySequence_Fast_GET_SIZE(fast.py()) != shape[d])
      raise(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)",
          static_cast<long long>(shape[d]), d, PySequence_Fast_GET_SIZE(fast.py()));
    for (int64_t i = 0; i < shape[d]; i++)
      fill(PySequence_Fast_GET_ITEM(fast.py(), i), dtype, at, d + 1);
  }

 private:
  static Ref attribute(PyObject* o, const char* name) {
    Ref value(PyObject_GetAttrString(o, name));
    if (!value) PyErr_Clear();
    return value;
  }
  void find_shape(PyObject* data) {
    Ref o = Ref::borrow(data);
    while ((is_sequence(o.py()) && !is_zero_dim(o.py())) ||
           (is_tensor(o.py()) && tensor_of(o.py())->layout->ndim)) {
      Py_ssize_t length = PySequence_Size(o.py());
      if (length < 0) {
        PyErr_Clear();
        break;
      }
      shape_check(n + 1);
      shape[n++] = length;
      if (!length) break;
      o = checked(PySequence_GetItem(o.py(), 0));
    }
    if (PyUnicode_Check(o.py())) raise(PyExc_TypeError, "[tensor] cannot make a tensor of str");
  }
};

// ---- arrays of other libraries

void release_object(void* context) { Py_DECREF(static_cast<PyObject*>(context)); }

DType dtype_of_typestr(const char* text) {
  static const struct {
    const char* code;
    DType dtype;
  } known[] = {{"b1", DType::Bool}, {"u1", DType::UInt8}, {"i1", DType::Int8}, {"i2", DType::Int16},
      {"i4", DType::Int32}, {"i8", DType::Int64}, {"f2", DType::Float16}, {"f4", DType::Float32},
      {"f8", DType::Float64}, {"c8", DType::Complex64}, {"c16", DType::Complex128}};
  if (text[0] == '>')
    raise(PyExc_ValueError, "[from_numpy] the array's byte order '%s' is not native", text);
  for (auto& k : known)
    if (!std::strcmp(text + 1, k.code)) return k.dtype;
  raise(PyExc_TypeError,
      "[from_numpy] no dtype for an array of type %s: there are float64, float32, float16, "
      "complex128, complex64, int8 to int64, uint8 and bool",
      text);
}

Own<Tensor> from_interface(PyObject* array) {
  // numpy's scalars have the attribute too, but it describes memory that is gone with the call.
  Ref interface(PyObject_HasAttrString(array, "__setitem__")
                    ? PyObject_GetAttrString(array, "__array_interface__")
                    : nullptr);
  if (!interface) {
    PyErr_Clear();
    raise(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
  }
  auto entry = [&](const char* key) {
    return PyDict_Check(interface.py()) ? PyDict_GetItemString(interface.py(), key) : nullptr;
  };
  PyObject *typestr = entry("typestr"), *shape = entry("shape"), *data = entry("data"),
           *strides = entry("strides");
  if (!typestr || !shape || !data || !PyTuple_Check(data) || !PyTuple_Check(shape))
    raise(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
  DType dtype = dtype_of_typestr(
      check(reinterpret_cast<PyObject*>(const_cast<char*>(PyUnicode_AsUTF8(typestr))))
          ? PyUnicode_AsUTF8(typestr)
          : "");
  char* pointer = static_cast<char*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0)));
  if (PyErr_Occurred()) throw PythonError();
  Small<int64_t, 8> sizes, steps;
  read_ints("from_numpy", shape, sizes);
  shape_check(sizes.size());
  int64_t size = rl::itemsize(dtype), span = 1;
  bool empty = false;
  if (strides && strides != Py_None) {
    read_ints("from_numpy", strides, steps);
    for (int i = 0; i < steps.size(); i++) {
      if (steps[i] < 0)
        raise(PyExc_ValueError,
            "[from_numpy] the array runs backwards (a negative stride), a tensor cannot: "
            "array.copy() runs forwards");
      if (steps[i] % size && sizes[i] > 1)
        raise(PyExc_ValueError,
            "[from_numpy] a stride of the array is not a whole number of elements: copy it");
      steps[i] /= size;
    }
  } else {
    steps.resize(sizes.size());
    int64_t step = 1;
    for (int i = sizes.size() - 1; i >= 0; i--) {
      steps[i] = step;
      step *= sizes[i];
    }
  }
  for (int i = 0; i < sizes.size(); i++) {
    span += (sizes[i] - 1) * steps[i];
    empty |= sizes[i] == 0;
  }
  Layout* layout = rl::layout_intern(dtype, Device::CPU, sizes.size(), sizes.data(), steps.data());
  Storage* storage =
      rl::storage_external(pointer, empty ? 0 : span * size, release_object, Py_NewRef(array));
  return tensor_make(storage, layout, 0);
}

// ---- the buffer protocol, both ways

const char* buffer_format(DType d) {
  static const char* const formats[rl::kDTypes] = {
      "?", "B", "b", "h", "i", "q", "e", nullptr, "f", "d", "Zf", "Zd"};
  return formats[static_cast<int>(d)];
}

struct Exported {
  Storage* storage;
  Py_ssize_t dims[2 * rl::kMaxDims];
};

void release_buffer(void* context) {
  Py_buffer* view = static_cast<Py_buffer*>(context);
  PyBuffer_Release(view);
  delete view;
}

}  // namespace

Ref scalar_of(DType dtype, const char* at) {
  switch (dtype) {
    case DType::Bool: return checked(PyBool_FromLong(*at));
    case DType::UInt8: return checked(PyLong_FromLong(load<uint8_t>(at)));
    case DType::Int8: return checked(PyLong_FromLong(load<int8_t>(at)));
    case DType::Int16: return checked(PyLong_FromLong(load<int16_t>(at)));
    case DType::Int32: return checked(PyLong_FromLong(load<int32_t>(at)));
    case DType::Int64: return checked(PyLong_FromLongLong(load<int64_t>(at)));
    case DType::Float16: return checked(PyFloat_FromDouble(half_to_float(load<Half>(at))));
    case DType::BFloat16: return checked(PyFloat_FromDouble(bfloat16_to_float(load<BFloat16>(at))));
    case DType::Float32: return checked(PyFloat_FromDouble(load<float>(at)));
    case DType::Complex64:
      return checked(PyComplex_FromDoubles(load<float>(at), load<float>(at + sizeof(float))));
    case DType::Complex128:
      return checked(PyComplex_FromDoubles(load<double>(at), load<double>(at + sizeof(double))));
    default: return checked(PyFloat_FromDouble(load<double>(at)));
  }
}

namespace {

// Integers must not wrap around, but for negative ones in uint8.
void check_fits(DType dtype, PyObject* o) {
  int bits = static_cast<int>(8 * rl::itemsize(dtype)) - (dtype == DType::UInt8 ? 0 : 1);
  double limit = std::ldexp(1.0, bits), v = PyFloat_AsDouble(o);
  if (v == -1.0 && PyErr_Occurred()) throw PythonError();
  double low = dtype != DType::UInt8 ? -limit - 1 : PyFloat_Check(o) ? -1.0 : -limit;
  // Of 64 bits a double says enough for floats only; whole numbers are checked as they are read.
  if (bits == 63 && !PyFloat_Check(o)) return;
  if (v < limit && v > low) return;
  raise(PyExc_RuntimeError, "[tensor] %R does not fit %s", o, dtype_name(dtype));
}

}  // namespace

void store_scalar(DType dtype, char* at, PyObject* o) {
  if (dtype == DType::Bool) {
    *at = static_cast<char>(check(PyObject_IsTrue(o)));
    return;
  }
  if (rl::is_complex(dtype)) {
    const Py_complex c = PyComplex_AsCComplex(o);
    if (c.real == -1.0 && PyErr_Occurred()) throw PythonError();
    if (dtype == DType::Complex64) {
      store(at, static_cast<float>(c.real));
      store(at + sizeof(float), static_cast<float>(c.imag));
    } else {
      store(at, c.real);
      store(at + sizeof(double), c.imag);
    }
    return;
  }
  if (PyComplex_Check(o)) {  // only where nothing is lost
    const Py_complex c = PyComplex_AsCComplex(o);
    if (c.imag != 0)
      raise(PyExc_RuntimeError, "[tensor] an imaginary part does not fit %s",
          dtype_name(dtype));
    return store_scalar(dtype, at, checked(PyFloat_FromDouble(c.real)).py());
  }
  if (rl::is_floating(dtype)) {
    double v = PyFloat_AsDouble(o);
    if (v == -1.0 && PyErr_Occurred()) throw PythonError();
    switch (dtype) {
      case DType::Float16: store(at, half_from(v)); return;
      case DType::BFloat16: store(at, bfloat16_from(v)); return;
      case DType::Float32: store(at, static_cast<float>(v)); return;
      default: store(at, v); return;
    }
  }
  check_fits(dtype, o);
  int64_t v = integer_value(o);
  switch (dtype) {
    case DType::UInt8: store(at, static_cast<uint8_t>(v)); return;
    case DType::Int8: store(at, static_cast<int8_t>(v)); return;
    case DType::Int16: store(at, static_cast<int16_t>(v)); return;
    case DType::Int32: store(at, static_cast<int32_t>(v)); return;
    default: store(at, v); return;
  }
}

namespace {

// A read of numbers, which makes Python wait for a device: recorded with its line, and with the
// package's own where that is who reads.
class ReadScope {
 public:
  explicit ReadScope(Tensor* t) {
    if (!(mode & kRecords)) return;
    Ref text(check(PyUnicode_InternFromString(WaitName::now())));
    record_.emplace(text.py(), "read");
    record_->ran(package_line(), true);
    PyObject* value = reinterpret_cast<PyObject*>(t);
    record_->inputs(&value, 1);
  }
 private:
  std::optional<RecordScope> record_;
};

}  // namespace

PyObject* tensor_item(Tensor* t) {
  if (t->layout->numel != 1)
    raise(PyExc_RuntimeError, "a Tensor with %lld elements cannot be converted to Scalar",
        static_cast<long long>(t->layout->numel));
  if (t->layout->device == Device::Meta)
    raise(PyExc_RuntimeError, "[item] a meta tensor holds no number");
  WaitName name("item");
  ReadScope read(t);
  Own<Tensor> host = on_host(t);
  return scalar_of(t->layout->dtype, data_of(host.get())).release();
}

PyObject* tensor_tolist(Tensor* t) {
  WaitName name("tolist");
  ReadScope read(t);
  Own<Tensor> host = on_host(t);
  return nested(host->layout, data_of(host.get()), 0);
}

Own<Tensor> tensor_from_data(PyObject* data, PyObject* dtype) {
  if (is_tensor(data)) {
    Tensor* t = tensor_of(data);
    return contiguous_copy(t, dtype == Py_None ? t->layout->dtype : dtype_from(dtype));
  }
  if (!PyList_Check(data) && !PyTuple_Check(data) &&
      PyObject_HasAttrString(data, "__array_interface__") &&
      PyObject_HasAttrString(data, "__setitem__")) {
    Own<Tensor> shared = from_interface(data);
    return contiguous_copy(
        shared.get(), dtype == Py_None ? shared->layout->dtype : dtype_from(dtype));
  }
  Nested nest(data);
  DType d = dtype == Py_None ? nest.infer(data) : dtype_from(dtype);
  Own<Tensor> made = tensor_dense(d, nest.n, nest.shape);
  char* at = data_of(made.get());
  if (made->layout->numel || nest.n == 0) nest.fill(data, d, at);
  return made;
}

PyObject* tensor_numpy(Tensor* t) {
  if (needs_grad(t) && grad_mode())
    raise(PyExc_RuntimeError,
        "[numpy] the array would know nothing of the gradient that the tensor requires: "
        "tensor.detach().numpy()");
  if (t->layout->device != Device::CPU)
    raise(PyExc_TypeError,
        "[numpy] an array lies in host memory, the tensor on %s: cpu() brings it over",
        device_name(t->layout->device).c_str());
  if (!buffer_format(t->layout->dtype))
    raise(PyExc_TypeError, "[numpy] numpy has no %s; convert the tensor first",
        dtype_name(t->layout->dtype));
  Ref numpy(PyImport_ImportModule("numpy"));
  if (!numpy && PyErr_ExceptionMatches(PyExc_ImportError)) {
    PyErr_Clear();
    raise(PyExc_RuntimeError, "Numpy is not available: pip install numpy");
  }
  if (!numpy) throw PythonError();
  Ref view = checked(PyMemoryView_FromObject(py(t)));
  return check(PyObject_CallMethod(numpy.py(), "asarray", "O", view.py()));
}

int tensor_getbuffer(PyObject* o, Py_buffer* view, int flags) {
  Tensor* t = tensor_of(o);
  const Layout* l = t->layout;
  view->obj = nullptr;
  const char* format = buffer_format(l->dtype);
  const char* refusal = needs_grad(t) && grad_mode() ? "the tensor requires grad: detach() it first"
                        : l->device != Device::CPU ? "the tensor is not on the CPU"
                        : !format     ? "the buffer protocol has no bfloat16"
                        : !l->contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES
                            ? "the tensor is not contiguous"
                            : nullptr;
  if (refusal) {
    PyErr_SetString(PyExc_BufferError, refusal);
    return -1;
  }
  Exported* e = new Exported;
  e->storage = t->storage;
  e->storage->exports++;
  rl::incref(e->storage);
  int size = rl::itemsize(l->dtype);
  for (int i = 0; i < l->ndim; i++) {
    e->dims[i] = l->dims[i];
    e->dims[rl::kMaxDims + i] = l->strides()[i] * size;
  }
  static char empty[64];
  char* data = data_of(t);
  *view = Py_buffer{};
  view->buf = data ? data : empty;
  view->obj = Py_NewRef(o);
  view->len = l->numel * size;
  view->itemsize = size;
  view->ndim = l->ndim;
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
  view->shape = flags & PyBUF_ND ? e->dims : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->dims + rl::kMaxDims : nullptr;
  view->internal = e;
  return 0;
}

void tensor_releasebuffer(PyObject*, Py_buffer* view) {
  Exported* e = static_cast<Exported*>(view->internal);
  e->storage->exports--;
  rl::storage_written(e->storage);
  rl::decref(e->storage);
  delete e;
}

namespace {

PyObject* tensor(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"data", "dtype", "device", "requires_grad", nullptr};
  PyObject *data, *dtype = Py_None, *device = Py_None;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp", const_cast<char**>(keywords), &data,
          &dtype, &device, &requires_grad))
    return nullptr;
  return guarded([&] {
    Own<Tensor> t = tensor_from_data(data, dtype);
    const Device where = device == Py_None ? Device::CPU : device_from(device);
    if (where != t->layout->device) {
      Own<Tensor> there =
          tensor_dense(t->layout->dtype, t->layout->ndim, t->layout->dims, where);
      copy_into(there.get(), t.get());
      t = std::move(there);
    }
    if (requires_grad) set_requires_grad(t.get(), true);
    return t.release_object();
  });
}

PyObject* empty(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"shape", "dtype", "device", nullptr};
  PyObject *shape, *dtype = Py_None, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O|OO", const_cast<char**>(keywords), &shape, &dtype, &device))
    return nullptr;
  return guarded([&] {
    Small<int64_t, 8> sizes;
    read_ints("empty", shape, sizes);
    shape_check(sizes.size());
    for (int i = 0; i < sizes.size(); i++)
      if (sizes[i] < 0)
        fail(ErrorKind::Runtime, "[empty] negative size in %s",
            rl::shape_text(sizes.size(), sizes.data()).c_str());
    return tensor_dense(dtype == Py_None ? default_dtype : dtype_from(dtype), sizes.size(),
        sizes.data(), device_from(device))
        .release_object();
  });
}

PyObject* empty_strided(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"shape", "strides", "dtype", "device", nullptr};
  PyObject *shape, *strides, *dtype = Py_None, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OO|OO", const_cast<char**>(keywords), &shape, &strides, &dtype, &device))
    return nullptr;
  return guarded([&] {
    Small<int64_t, 8> sizes, steps;
    read_ints("empty_strided", shape, sizes);
    read_ints("empty_strided", strides, steps);
    shape_check(sizes.size());
    if (sizes.size() != steps.size())
      fail(ErrorKind::Value, "[empty_strided] %d sizes and %d strides", sizes.size(), steps.size());
    for (int i = 0; i < sizes.size(); i++)
      if (sizes[i] < 0 || steps[i] < 0)
        fail(ErrorKind::Runtime, "[empty_strided] negative size or stride");
    const Device where = device_from(device);
    return tensor_empty(rl::layout_intern(dtype == Py_None ? default_dtype : dtype_from(dtype),
                            where, sizes.size(), sizes.data(), steps.data()))
        .release_object();
  });
}

PyObject* from_numpy(PyObject*, PyObject* array) {
  return guarded([&] { return from_interface(array).release_object(); });
}

PyObject* from_buffer(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"obj", "dtype", "shape", "offset", nullptr};
  PyObject *obj, *dtype, *shape = Py_None;
  long long offset = 0;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OO|OL", const_cast<char**>(keywords), &obj, &dtype, &shape, &offset))
    return nullptr;
  return guarded([&] {
    DType d = dtype_from(dtype);
    Py_buffer* view = new Py_buffer;
    if (PyObject_GetBuffer(obj, view, PyBUF_SIMPLE) < 0) {
      delete view;
      throw PythonError();
    }
    Storage* storage = nullptr;
    Layout* layout = nullptr;
    try {
      Small<int64_t, 8> sizes;
      if (shape == Py_None) sizes.push((view->len - offset) / rl::itemsize(d));
      else read_ints("from_buffer", shape, sizes);
      shape_check(sizes.size());
      layout = rl::layout_dense(d, Device::CPU, sizes.size(), sizes.data());
      if (offset < 0 || offset + layout->numel * rl::itemsize(d) > view->len)
        fail(ErrorKind::Value,
            "[from_buffer] %s of %s from byte %lld exceeds the %lld bytes of the buffer",
            rl::shape_text(sizes.size(), sizes.data()).c_str(), dtype_name(d), offset,
            static_cast<long long>(view->len));
      char* data = static_cast<char*>(view->buf) + offset;
      if (reinterpret_cast<uintptr_t>(data) % rl::itemsize(d))
        fail(ErrorKind::Value, "[from_buffer] offset %lld is not aligned for %s", offset,
            dtype_name(d));
      storage = rl::storage_external(data, layout->numel * rl::itemsize(d), release_buffer, view);
    } catch (...) {
      if (layout) rl::decref(layout);
      release_buffer(view);
      throw;
    }
    return tensor_make(storage, layout, 0).release_object();
  });
}

template <class F>
PyCFunction fn(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

}  // namespace

PyMethodDef convert_functions[] = {
    {"tensor", fn(tensor), METH_VARARGS | METH_KEYWORDS,
        "tensor(data, dtype=None, device='cpu'): a copy of numbers, nested sequences or an array"},
    {"empty", fn(empty), METH_VARARGS | METH_KEYWORDS, "empty(shape, dtype, device=None)"},
    {"empty_strided", fn(empty_strided), METH_VARARGS | METH_KEYWORDS,
        "empty_strided(shape, strides, dtype)"},
    {"from_numpy", from_numpy, METH_O, "a tensor on the array's memory"},
    {"from_buffer", fn(from_buffer), METH_VARARGS | METH_KEYWORDS,
        "from_buffer(obj, dtype, shape=None, offset=0): a tensor on its memory"},
    {"from_dlpack", from_dlpack, METH_O,
        "a tensor on the memory of a capsule or of an object with __dlpack__"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
