// The dtype objects. Takes nothing; gives the module `float32` and its siblings. Invariant: one
// object a DType, immortal.
#include "dtype.h"

namespace core {

PyTypeObject* DTypeType;
DType default_dtype = DType::Float32;

namespace {

DTypeObject* objects[rl::kDTypes];
const char* const legacy[rl::kDTypes] = {
    "Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double",
    "ComplexFloat", "ComplexDouble"};

DTypeObject* self_of(PyObject* o) { return reinterpret_cast<DTypeObject*>(o); }

PyObject* repr(PyObject* o) {
  return PyUnicode_FromFormat("rushlight.%s", dtype_name(self_of(o)->id));
}
PyObject* reduce(PyObject* o, PyObject*) {
  PyObject* find = PyObject_GetAttrString(module, "dtype_named");
  return find ? Py_BuildValue("N(O)", find, self_of(o)->name) : nullptr;
}
PyObject* get_name(PyObject* o, void*) {
  Py_INCREF(self_of(o)->name);
  return self_of(o)->name;
}
PyObject* get_itemsize(PyObject* o, void*) { return PyLong_FromLong(rl::itemsize(self_of(o)->id)); }
PyObject* get_floating(PyObject* o, void*) {
  return PyBool_FromLong(rl::is_floating(self_of(o)->id));
}
PyObject* get_complex(PyObject* o, void*) {
  return PyBool_FromLong(rl::is_complex(self_of(o)->id));
}
PyObject* get_signed(PyObject* o, void*) { return PyBool_FromLong(self_of(o)->id > DType::UInt8); }
PyObject* get_id(PyObject* o, void*) { return PyLong_FromLong(static_cast<long>(self_of(o)->id)); }

// Of the same precision; TypeError where there is none.
PyObject* to_real(PyObject* o, PyObject*) {
  const DType d = self_of(o)->id;
  return Py_NewRef(dtype_object(rl::real_of(d)));
}
PyObject* to_complex(PyObject* o, PyObject*) {
  const DType d = self_of(o)->id;
  if (rl::is_complex(d)) return Py_NewRef(o);
  return Py_NewRef(
      dtype_object(d == DType::Float64 ? DType::Complex128 : DType::Complex64));
}

PyMethodDef methods[] = {
    {"to_real", to_real, METH_NOARGS, "the dtype of a complex number's parts"},
    {"to_complex", to_complex, METH_NOARGS, "the complex dtype of the same precision"},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"name", get_name, nullptr, "\"float32\"", nullptr},
    {"itemsize", get_itemsize, nullptr, "bytes an element", nullptr},
    {"is_floating_point", get_floating, nullptr, nullptr, nullptr},
    {"is_complex", get_complex, nullptr, nullptr, nullptr},
    {"is_signed", get_signed, nullptr, nullptr, nullptr},
    {"id", get_id, nullptr, "the number shared with rt/dtype.h", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, const_cast<char*>("An element type.")},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight.dtype", sizeof(DTypeObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, type_slots};

}  // namespace

PyObject* dtype_object(DType d) {
  return reinterpret_cast<PyObject*>(objects[static_cast<int>(d)]);
}
const char* dtype_legacy_name(DType d) { return legacy[static_cast<int>(d)]; }

static bool is_type(PyObject* o, PyTypeObject* type) {
  return o == reinterpret_cast<PyObject*>(type);
}

bool names_dtype(PyObject* o) {
  return is_dtype(o) || is_type(o, &PyFloat_Type) || is_type(o, &PyLong_Type) ||
         is_type(o, &PyBool_Type) || is_type(o, &PyComplex_Type);
}

DType dtype_from(PyObject* o) {
  if (is_type(o, &PyFloat_Type)) return DType::Float64;
  if (is_type(o, &PyLong_Type)) return DType::Int64;
  if (is_type(o, &PyBool_Type)) return DType::Bool;
  if (is_type(o, &PyComplex_Type)) return DType::Complex128;
  if (!is_dtype(o))
    raise(PyExc_TypeError, "expected a rushlight.dtype, got %s", Py_TYPE(o)->tp_name);
  return self_of(o)->id;
}

void dtype_init(PyObject* m) {
  DTypeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "dtype", DTypeType);
  for (int i = 0; i < rl::kDTypes; i++) {
    DTypeObject* d = PyObject_New(DTypeObject, DTypeType);
    check(reinterpret_cast<PyObject*>(d));
    d->id = static_cast<DType>(i);
    d->name = check(PyUnicode_InternFromString(dtype_name(d->id)));
    objects[i] = d;
    check(PyModule_AddObjectRef(m, dtype_name(d->id), reinterpret_cast<PyObject*>(d)));
  }
}

}  // namespace core
