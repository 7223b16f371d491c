// Attributes of classes that keep some of them in tables (`_parameters`, `_modules`, `_buffers` of
// a module). Takes a class; gives its instances a lookup that raises nothing on the way.
// Invariant: what it finds is what object.__getattribute__ and then the class's __getattr__ find.
#include "core.h"

// Exported by CPython 3.11 to 3.13: the ordinary lookup, silent when nothing is found.
extern "C" PyObject* _PyObject_GenericGetAttrWithDict(PyObject*, PyObject*, PyObject*, int);

namespace core {

PyObject* attribute_tables[3];

namespace {

PyObject* fallback;

PyObject* lookup(PyObject* self, PyObject* name) {
  PyObject* found = _PyObject_GenericGetAttrWithDict(self, name, nullptr, 1);
  if (found || PyErr_Occurred()) return found;
  for (PyObject* table_name : attribute_tables) {
    PyObject* table = _PyObject_GenericGetAttrWithDict(self, table_name, nullptr, 1);
    if (!table) {
      if (PyErr_Occurred()) return nullptr;
      continue;
    }
    found = PyDict_Check(table) ? Py_XNewRef(PyDict_GetItemWithError(table, name)) : nullptr;
    Py_DECREF(table);
    if (found || PyErr_Occurred()) return found;
  }
  return PyObject_CallMethodOneArg(self, fallback, name);  // raises AttributeError in its own words
}

PyObject* module_attributes(PyObject*, PyObject* cls) {
  return guarded([&] {
    if (!PyType_Check(cls) ||
        !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(cls), Py_TPFLAGS_HEAPTYPE))
      raise(PyExc_TypeError, "module_attributes takes a class made in Python");
    const char* names[] = {"_parameters", "_modules", "_buffers"};
    for (int i = 0; i < 3 && !fallback; i++)
      attribute_tables[i] = check(PyUnicode_InternFromString(names[i]));
    if (!fallback) fallback = check(PyUnicode_InternFromString("__getattr__"));
    checked(PyObject_GetAttr(cls, fallback));
    PyTypeObject* type = reinterpret_cast<PyTypeObject*>(cls);
    type->tp_getattro = lookup;
    PyType_Modified(type);
    return Py_NewRef(Py_None);
  });
}

}  // namespace

bool keeps_tables(PyTypeObject* type) { return type->tp_getattro == lookup; }

PyMethodDef attribute_functions[] = {
    {"module_attributes", module_attributes, METH_O,
        "instances of this class look into _parameters, _modules and _buffers before __getattr__"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace core
