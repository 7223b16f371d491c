// Tensor methods that are not operators: sizes, pointers, gradients. Takes a Tensor; gives Python
// objects.
// Invariant: none of these allocates memory for elements, except `tolist` and the conversions of
// convert.cpp.
#include "convert.h"
#include "devices.h"
#include "dtype.h"
#include "operator.h"
#include "tape.h"
#include "tensor.h"
#include "rt/cuda_queue.h"
#include "rt/views.h"

namespace core {
namespace {

template <class F>
PyCFunction fn(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

// stride() and size(): all, or one dim's.
PyObject* dims(const char* name, PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* names,
    bool strides) {
  return guarded([&]() -> PyObject* {
    const Layout* l = tensor_of(o)->layout;
    const int64_t* values = strides ? l->strides() : l->shape();
    Py_ssize_t total = n + (names ? PyTuple_GET_SIZE(names) : 0);
    if (total > 1) raise(PyExc_TypeError, "%s() takes at most one dim", name);
    if (total == 0 || args[0] == Py_None) {
      if (!strides) return size_tuple(values, l->ndim).release();
      Ref tuple = checked(PyTuple_New(l->ndim));
      for (int i = 0; i < l->ndim; i++)
        PyTuple_SET_ITEM(tuple.py(), i, check(PyLong_FromLongLong(values[i])));
      return tuple.release();
    }
    long long dim = PyLong_AsLongLong(args[0]);
    if (dim == -1 && PyErr_Occurred()) throw PythonError();
    if (l->ndim == 0)
      raise(PyExc_IndexError, "[%s] a tensor of no dimensions has no dim %lld", name, dim);
    return PyLong_FromLongLong(values[rl::wrap_dim(name, dim, l->ndim)]);
  });
}
PyObject* stride(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return dims("stride", o, args, n, names, true);
}
PyObject* size(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  return dims("size", o, args, n, names, false);
}

PyObject* dim(PyObject* o, PyObject*) { return PyLong_FromLong(tensor_of(o)->layout->ndim); }
PyObject* numel(PyObject* o, PyObject*) { return PyLong_FromLongLong(tensor_of(o)->layout->numel); }
PyObject* element_size(PyObject* o, PyObject*) {
  return PyLong_FromLong(rl::itemsize(tensor_of(o)->layout->dtype));
}
PyObject* storage_offset(PyObject* o, PyObject*) {
  return PyLong_FromLongLong(tensor_of(o)->offset);
}
// Whoever has an address on a GPU may queue work there himself: ours must not wait apart from his.
void address_goes_out(const Tensor* t) {
  if (rl::device_type(t->layout->device) == rl::DeviceType::CUDA) rl::cuda::queue_close();
}
// To tell memories apart: whoever asks queues nothing there.
PyObject* address(PyObject* o, PyObject*) {
  Tensor* t = tensor_of(o);
  return PyLong_FromVoidPtr(t->storage->data ? data_of(t) : nullptr);
}
PyObject* data_ptr(PyObject* o, PyObject* none) {
  address_goes_out(tensor_of(o));
  return address(o, none);
}
// [n, c, ...] without gaps, channels innermost; dims of size 1 are ignored.
bool channels_inside(const Layout* l) {
  int64_t step = 1;
  for (int i = 0; i < l->ndim; i++) {
    int d = i == 0 ? 1 : i == l->ndim - 1 ? 0 : l->ndim - i;
    if (l->shape()[d] != 1 && l->strides()[d] != step) return false;
    step *= l->shape()[d];
  }
  return true;
}

PyObject* is_contiguous(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"memory_format", nullptr};
  const char* format = "contiguous";
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s", const_cast<char**>(keywords), &format))
    return nullptr;
  const Layout* l = tensor_of(o)->layout;
  int rank = !std::strcmp(format, "channels_last") ? 4 : !std::strcmp(format, "channels_last_3d") ? 5 : 0;
  if (rank) return PyBool_FromLong(l->ndim == rank && (l->numel == 0 || channels_inside(l)));
  if (std::strcmp(format, "contiguous")) {
    PyErr_Format(PyExc_RuntimeError, "[is_contiguous] unsupported memory format %s", format);
    return nullptr;
  }
  return PyBool_FromLong(l->contiguous);
}
PyObject* is_floating_point(PyObject* o, PyObject*) {
  return PyBool_FromLong(rl::is_floating(tensor_of(o)->layout->dtype));
}
PyObject* is_complex(PyObject* o, PyObject*) {
  return PyBool_FromLong(rl::is_complex(tensor_of(o)->layout->dtype));
}
PyObject* as_complex(PyObject* o, PyObject*) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (t->layout->numel != 1)
      raise(PyExc_ValueError, "[complex] one element can become a Python number, the tensor has "
                              "another number of them");
    Ref value(tensor_item(t));
    const Py_complex c = PyComplex_AsCComplex(value.py());
    if (c.real == -1.0 && PyErr_Occurred()) throw PythonError();
    return check(PyComplex_FromCComplex(c));
  });
}
PyObject* untyped_storage_ptr(PyObject* o, PyObject*) {
  Storage* s = tensor_of(o)->storage;
  return PyLong_FromVoidPtr(s->data ? s->data : static_cast<void*>(s));  // meta: memory it has none
}
PyObject* storage_nbytes(PyObject* o, PyObject*) {
  return PyLong_FromLongLong(tensor_of(o)->storage->nbytes);
}

PyObject* item(PyObject* o, PyObject*) {
  return guarded([&] { return tensor_item(tensor_of(o)); });
}
PyObject* tolist(PyObject* o, PyObject*) {
  return guarded([&] { return tensor_tolist(tensor_of(o)); });
}
PyObject* numpy(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"force", nullptr};
  int force = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", const_cast<char**>(keywords), &force))
    return nullptr;
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (!force || !needs_grad(t)) return tensor_numpy(t);
    return tensor_numpy(tensor_alias(t).get());
  });
}
PyObject* array(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"dtype", "copy", nullptr};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "|OO", const_cast<char**>(keywords), &dtype, &copy))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Ref a = checked(tensor_numpy(tensor_of(o)));
    if (dtype != Py_None) a = checked(PyObject_CallMethod(a.py(), "astype", "O", dtype));
    else if (copy == Py_True) a = checked(PyObject_CallMethod(a.py(), "copy", nullptr));
    return a.release();
  });
}

// ---- gradients

PyObject* requires_grad_(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"requires_grad", nullptr};
  int on = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", const_cast<char**>(keywords), &on))
    return nullptr;
  return guarded([&] {
    set_requires_grad(tensor_of(o), on);
    return Py_NewRef(o);
  });
}
PyObject* detach(PyObject* o, PyObject*) {
  return guarded([&] { return tensor_alias(tensor_of(o)).release_object(); });
}
PyObject* detach_(PyObject* o, PyObject*) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (t->base) raise(PyExc_RuntimeError, "[detach_] takes no views in-place: detach() does");
    if (t->grad_fn) drop_later(reinterpret_cast<PyObject*>(std::exchange(t->grad_fn, nullptr)));
    t->requires_grad = false;
    facts_changed(t);
    t->output = 0;
    return Py_NewRef(o);
  });
}
PyObject* hook(PyObject* o, PyObject* callable) {
  return guarded([&] { return tensor_hook(tensor_of(o), callable).release(); });
}
PyObject* post_hook(PyObject* o, PyObject* callable) {
  return guarded([&] { return tensor_post_hook(tensor_of(o), callable).release(); });
}
PyObject* retain_grad(PyObject* o, PyObject*) {
  return guarded([&] {
    tensor_retain_grad(tensor_of(o));
    return Py_NewRef(Py_None);
  });
}

PyObject* backward(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *gradient = Py_None, *retain = Py_None, *create = Py_False, *inputs = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOO", const_cast<char**>(keywords), &gradient,
          &retain, &create, &inputs))
    return nullptr;
  return noted([&] {
    Ref outputs = checked(PyTuple_Pack(1, o));
    Ref gradients = checked(PyTuple_Pack(1, gradient));
    bool create_graph = check(PyObject_IsTrue(create));
    bool keep = retain == Py_None ? create_graph : check(PyObject_IsTrue(retain));
    run_backward(outputs.py(), gradients.py(), keep, create_graph, inputs, true, false);
    return Py_NewRef(Py_None);
  });
}

PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"cls", "data", "requires_grad", nullptr};
  PyObject *cls, *data;
  int on = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|p", const_cast<char**>(keywords),
          &PyType_Type, &cls, TensorType, &data, &on))
    return nullptr;
  return guarded([&] {
    PyTypeObject* type = reinterpret_cast<PyTypeObject*>(cls);
    if (!PyType_IsSubtype(type, TensorType))
      raise(PyExc_TypeError, "%s is no subclass of Tensor", type->tp_name);
    Own<Tensor> t = tensor_subclass(type, tensor_of(data));
    set_requires_grad(t.get(), on);
    return t.release_object();
  });
}

}  // namespace

PyMethodDef tensor_methods[] = {
    {"stride", fn(stride), METH_FASTCALL | METH_KEYWORDS,
        "stride(dim=None): elements between neighbours"},
    {"size", fn(size), METH_FASTCALL | METH_KEYWORDS, "size(dim=None)"},
    {"dim", dim, METH_NOARGS, nullptr},
    {"numel", numel, METH_NOARGS, "number of elements"},
    {"nelement", numel, METH_NOARGS, "number of elements"},
    {"element_size", element_size, METH_NOARGS, "bytes an element"},
    {"storage_offset", storage_offset, METH_NOARGS, "elements"},
    {"_address", address, METH_NOARGS, "data_ptr() of who only compares"},
    {"data_ptr", data_ptr, METH_NOARGS, "address of the first element"},
    {"is_contiguous", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(is_contiguous)),
        METH_VARARGS | METH_KEYWORDS, nullptr},
    {"is_floating_point", is_floating_point, METH_NOARGS, nullptr},
    {"is_complex", is_complex, METH_NOARGS, nullptr},
    {"__complex__", as_complex, METH_NOARGS, nullptr},
    {"untyped_storage_ptr", untyped_storage_ptr, METH_NOARGS, "address of the storage"},
    {"untyped_storage_nbytes", storage_nbytes, METH_NOARGS, "bytes of the storage"},
    {"item", item, METH_NOARGS, "the only element as a Python number"},
    {"tolist", tolist, METH_NOARGS, "nested lists of Python numbers"},
    {"numpy", fn(numpy), METH_VARARGS | METH_KEYWORDS,
        "numpy(force=False): a numpy array on the same memory"},
    {"__array__", fn(array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"requires_grad_", fn(requires_grad_), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"detach", detach, METH_NOARGS, "the same memory, outside the tape"},
    {"detach_", detach_, METH_NOARGS, nullptr},
    {"register_hook", hook, METH_O, "hook(grad) -> grad or None; returns a removable handle"},
    {"register_post_accumulate_grad_hook", post_hook, METH_O,
        "hook(tensor), after .grad is accumulated"},
    {"retain_grad", retain_grad, METH_NOARGS, nullptr},
    {"backward", fn(backward), METH_VARARGS | METH_KEYWORDS,
        "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)"},
    {"__dlpack__", fn(to_dlpack), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, nullptr},
    {"_make_subclass", fn(make_subclass), METH_VARARGS | METH_KEYWORDS | METH_STATIC, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
