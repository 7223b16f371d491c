// Factories: empty, zeros, ones, their _like forms and arange(n), natively where the call is plain.
// Takes a Python function; gives a callable that answers plain calls itself (ints or one tuple, dtype,
// requires_grad) and hands every other call, with its arguments as they are, to that function.
// Invariant: both give the same tensor; large ones, recorded and traced calls go to the function.
#include <algorithm>

#include "convert.h"
#include "devices.h"
#include "dtype.h"
#include "tensor.h"

namespace core {
namespace {

constexpr int64_t kSmall = 1 << 15;  // elements: beyond, kernels fill with all threads

enum class Make : uint8_t { Empty, Zeros, Ones, EmptyLike, ZerosLike, OnesLike, Arange };

struct Factory {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Make make;
  PyObject* function;                                  // owned: what answers all other calls
};

Factory* self_of(PyObject* o) { return reinterpret_cast<Factory*>(o); }
PyObject *name_dtype, *name_requires_grad, *name_device;

struct Plain {
  PyObject* dtype = nullptr;                           // borrowed; null: the default
  bool requires_grad = false;
  bool placed = false;                                 // the device is given: this one
  Device device = Device::CPU;
};

// False where some keyword is not plain.
bool read_keywords(PyObject* const* values, PyObject* names, Plain* plain) {
  Py_ssize_t n = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *name = PyTuple_GET_ITEM(names, i), *value = values[i];
    if (name == name_dtype) {
      if (value == Py_None) continue;
      if (!names_dtype(value)) return false;
      plain->dtype = dtype_object(dtype_from(value));
    } else if (name == name_requires_grad) {
      if (!PyBool_Check(value)) return false;
      plain->requires_grad = value == Py_True;
    } else if (name == name_device) {
      if (value == Py_None) continue;
      if (PyUnicode_CheckExact(value)) plain->device = device_from(value);
      else if (!device_known(value, &plain->device)) return false;
      plain->placed = true;
    } else {
      return false;
    }
  }
  return true;
}

bool read_size(PyObject* o, int64_t* out) {
  if (!PyLong_CheckExact(o)) return false;
  int overflow;
  *out = PyLong_AsLongLongAndOverflow(o, &overflow);
  return !overflow && *out >= 0;
}

// The dense layout of the sizes, stolen; null where the call is not plain.
Layout* read_layout(PyObject* const* args, Py_ssize_t n, DType dtype, Device device) {
  int64_t shape[8];
  if (n == 1 && (PyTuple_Check(args[0]) || PyList_CheckExact(args[0]))) {
    PyObject* sequence = args[0];
    n = PySequence_Fast_GET_SIZE(sequence);
    args = PySequence_Fast_ITEMS(sequence);
  }
  if (n > 8) return nullptr;
  int64_t numel = 1;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!read_size(args[i], &shape[i])) return nullptr;
    if (__builtin_mul_overflow(numel, shape[i], &numel)) return nullptr;
  }
  return rl::layout_dense(dtype, device, static_cast<int>(n), shape);
}

template <class T>
void count_up(Tensor* t) {
  T* at = reinterpret_cast<T*>(data_of(t));
  for (int64_t i = 0; i < t->layout->numel; i++) at[i] = static_cast<T>(i);
}

PyObject* made(Factory* self, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  Plain plain;
  if ((mode & (kRecords | kDispatch)) || !read_keywords(args + n, names, &plain)) return nullptr;
  Layout* layout = nullptr;
  bool like = self->make >= Make::EmptyLike && self->make <= Make::OnesLike;
  if (!like && !plain.placed) plain.device = creation_device;
  if (plain.device != Device::CPU && self->make != Make::Empty) return nullptr;
  if (like) {
    if (n != 1 || !is_tensor(args[0])) return nullptr;
    Layout* model = tensor_of(args[0])->layout;
    if (!model->dense || model->device != Device::CPU) return nullptr;
    if (plain.dtype) layout = rl::layout_like(model, dtype_from(plain.dtype));
    else rl::incref(layout = model);
  } else if (self->make == Make::Arange) {
    int64_t count;
    if (n != 1 || !read_size(args[0], &count) || plain.requires_grad) return nullptr;
    if (plain.dtype && dtype_from(plain.dtype) != DType::Int64) return nullptr;
    layout = rl::layout_dense(DType::Int64, Device::CPU, 1, &count);
  } else {
    if (!n) return nullptr;
    layout = read_layout(args, n, plain.dtype ? dtype_from(plain.dtype) : default_dtype, plain.device);
    if (!layout) return nullptr;
  }
  bool large = layout->numel > kSmall && self->make != Make::Empty && self->make != Make::EmptyLike;
  if (large || (plain.requires_grad && !rl::is_differentiable(layout->dtype))) {
    rl::decref(layout);
    return nullptr;
  }
  Own<Tensor> out = tensor_empty(layout);
  switch (self->make) {
    case Make::Zeros:
    case Make::ZerosLike:
      std::memset(data_of(out.get()), 0, layout->numel * rl::itemsize(layout->dtype));
      break;
    case Make::Ones:
    case Make::OnesLike: fill_one(out.get()); break;
    case Make::Arange: count_up<int64_t>(out.get()); break;
    default: break;
  }
  if (plain.requires_grad) set_requires_grad(out.get(), true);
  return out.release_object();
}

PyObject* call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* names) {
  Factory* self = self_of(o);
  PyObject* found = guarded([&] { return made(self, args, PyVectorcall_NARGS(nargsf), names); });
  if (found || PyErr_Occurred()) return found;
  return PyObject_Vectorcall(self->function, args, nargsf, names);
}

PyObject* factory_new(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "sO", &name, &function)) return nullptr;
  return guarded([&] {
    static const char* const names[] = {
        "empty", "zeros", "ones", "empty_like", "zeros_like", "ones_like", "arange"};
    const char* const* at = std::find_if(
        names, names + 7, [&](const char* known) { return !std::strcmp(known, name); });
    if (at == names + 7) raise(PyExc_ValueError, "[Factory] no native form of %s", name);
    Factory* f = self_of(check(type->tp_alloc(type, 0)));
    f->vectorcall = call;
    f->make = static_cast<Make>(at - names);
    f->function = Py_NewRef(function);
    return reinterpret_cast<PyObject*>(f);
  });
}

void factory_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  Py_XDECREF(self_of(o)->function);
  type->tp_free(o);
  Py_DECREF(type);
}

// __name__, __doc__, __signature__ and the like are the function's.
PyObject* getattr(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(o)->function, name);
}
PyObject* repr(PyObject* o) { return PyUnicode_FromFormat("<factory %R>", self_of(o)->function); }
PyObject* get_wrapped(PyObject* o, void*) { return Py_NewRef(self_of(o)->function); }
PyObject* get_doc(PyObject* o, void*) {
  return PyObject_GetAttrString(self_of(o)->function, "__doc__");
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyGetSetDef getset[] = {{"__wrapped__", get_wrapped, nullptr, nullptr, nullptr},
    {"__doc__", get_doc, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Factory, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots_[] = {{Py_tp_new, fn(factory_new)}, {Py_tp_dealloc, fn(factory_dealloc)},
    {Py_tp_call, fn(PyVectorcall_Call)}, {Py_tp_repr, fn(repr)}, {Py_tp_getattro, fn(getattr)},
    {Py_tp_getset, getset}, {Py_tp_members, members}, {0, nullptr}};
PyType_Spec spec = {"rushlight._core.Factory", sizeof(Factory), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots_};

}  // namespace

void factories_init(PyObject* m) {
  name_dtype = check(PyUnicode_InternFromString("dtype"));
  name_requires_grad = check(PyUnicode_InternFromString("requires_grad"));
  name_device = check(PyUnicode_InternFromString("device"));
  add_type(m, "Factory", reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec))));
}

}  // namespace core
