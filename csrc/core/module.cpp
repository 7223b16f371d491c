// The module `rushlight._core`: its functions and the registration of what Python decides. Takes
// and gives plain Python objects. Invariant: nothing here knows an operator by name, except the
// slots' names.
#include "compiled.h"
#include "convert.h"
#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "operator.h"
#include "plan.h"
#include "program.h"
#include "records.h"
#include "released.h"
#include "rt/gemm.h"
#include "rt/packing.h"
#include "tape.h"

namespace core {
namespace {

template <class F>
PyCFunction fn(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

// ---- registration

PyObject* set_hooks(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"make_plan", "make_backward", "make_part", "dispatch", "index",
      "format", "device", "open_device"};
  PyObject** places[] = {&hooks.make_plan, &hooks.make_backward, &hooks.make_part, &hooks.dispatch,
      &hooks.index, &hooks.format, &hooks.device, &hooks.open_device};
  return guarded([&] {
    if (PyTuple_GET_SIZE(args)) raise(PyExc_TypeError, "set_hooks takes keywords only");
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &key, &value)) {
      int found = -1;
      for (int i = 0; i < 8; i++)
        if (!PyUnicode_CompareWithASCIIString(key, names[i])) found = i;
      if (found < 0) raise(PyExc_TypeError, "no hook named %R", key);
      if (value != Py_None && !PyCallable_Check(value))
        raise(PyExc_TypeError, "hook %U is not callable", key);
      Py_XSETREF(*places[found], value == Py_None ? nullptr : Py_NewRef(value));
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* set_slot(PyObject*, PyObject* args) {
  const char* name;
  PyObject* op;
  if (!PyArg_ParseTuple(args, "sO", &name, &op)) return nullptr;
  return guarded([&] {
    if (op != Py_None && !is_operator(op))
      raise(PyExc_TypeError, "a slot takes an Operator, got %s", Py_TYPE(op)->tp_name);
    for (int i = 0; i < kSlots; i++)
      if (!std::strcmp(name, slot_names[i])) {
        slots[i] =
            op == Py_None ? nullptr : reinterpret_cast<Operator*>(op);  // operators live for ever
        return Py_NewRef(Py_None);
      }
    raise(PyExc_ValueError, "no slot named '%s'", name);
  });
}

PyObject* set_method(PyObject*, PyObject* args) {
  const char* name;
  PyObject* value;
  if (!PyArg_ParseTuple(args, "sO", &name, &value)) return nullptr;
  if (PyObject_SetAttrString(reinterpret_cast<PyObject*>(TensorType), name, value) < 0)
    return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_type(PyObject*, PyObject* args) {
  const char* name;
  PyObject* type;
  if (!PyArg_ParseTuple(args, "sO!", &name, &PyType_Type, &type)) return nullptr;
  return guarded([&] {
    PyObject** error = !std::strcmp(name, "OutOfMemoryError") ? &hooks.out_of_memory
        : !std::strcmp(name, "LinAlgError")                   ? &hooks.linear_algebra
                                                              : nullptr;
    if (error) {
      if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type),
              reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
        raise(PyExc_TypeError, "%s must be an exception", name);
      Py_XSETREF(*error, Py_NewRef(type));
      return Py_NewRef(Py_None);
    }
    if (std::strcmp(name, "Size"))
      raise(PyExc_ValueError,
          "no type named '%s' is registered here; 'Size', 'OutOfMemoryError' and 'LinAlgError' are",
          name);
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyTuple_Type))
      raise(PyExc_TypeError, "Size must be a subclass of tuple");
    Py_XSETREF(hooks.size, Py_NewRef(type));
    return Py_NewRef(Py_None);
  });
}

PyObject* set_default_dtype(PyObject*, PyObject* dtype) {
  return guarded([&] {
    DType d = dtype_from(dtype);
    if (!rl::is_floating(d))
      raise(PyExc_TypeError, "[set_default_dtype] the default is a floating-point dtype");
    default_dtype = d;
    return Py_NewRef(Py_None);
  });
}
PyObject* get_default_dtype(PyObject*, PyObject*) { return Py_NewRef(dtype_object(default_dtype)); }
PyObject* dtype_named(PyObject*, PyObject* name) {
  for (int i = 0; i < rl::kDTypes; i++)
    if (PyUnicode_Check(name) &&
        !PyUnicode_CompareWithASCIIString(name, dtype_name(static_cast<DType>(i))))
      return Py_NewRef(dtype_object(static_cast<DType>(i)));
  return PyErr_Format(PyExc_ValueError, "no dtype named %R", name);
}
PyObject* can_cast_(PyObject*, PyObject* args) {
  PyObject *from, *to;
  if (!PyArg_ParseTuple(args, "OO", &from, &to)) return nullptr;
  return guarded([&] { return PyBool_FromLong(can_cast(dtype_from(from), dtype_from(to))); });
}

// ---- modes

PyObject* get_mode(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(mode_word()); }
PyObject* set_mode(PyObject*, PyObject* word) {
  unsigned long v = PyLong_AsUnsignedLong(word);
  if (v == static_cast<unsigned long>(-1) && PyErr_Occurred()) return nullptr;
  uint32_t before = mode;
  mode = static_cast<uint32_t>(v) & ~kElsewhere;
  return PyLong_FromUnsignedLong(before);
}
PyObject* set_grad_enabled(PyObject*, PyObject* on) {
  int v = PyObject_IsTrue(on);
  if (v < 0) return nullptr;
  uint32_t before = mode;
  mode = v ? mode | kGrad : mode & ~kGrad;
  return PyBool_FromLong(before & kGrad);
}
PyObject* is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(grad_mode()); }

// ---- the runtime

PyObject* allocator_stats(PyObject*, PyObject*) {
  rl::AllocatorStats s = rl::allocator_stats();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L}", "in_use", static_cast<long long>(s.in_use),
      "cached", static_cast<long long>(s.cached), "peak", static_cast<long long>(s.peak),
      "allocations", static_cast<long long>(s.allocations), "hits", static_cast<long long>(s.hits),
      "limit", static_cast<long long>(s.limit));
}
PyObject* allocator_trim(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"keep", nullptr};
  long long keep = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|L", const_cast<char**>(keywords), &keep))
    return nullptr;
  return PyLong_FromLongLong(rl::allocator_trim(keep));
}
PyObject* allocator_limit(PyObject*, PyObject* n) {
  return guarded([&] {
    rl::allocator_set_limit(read_int("allocator_limit", n));
    return Py_NewRef(Py_None);
  });
}
PyObject* allocator_reset_peak(PyObject*, PyObject*) {
  rl::allocator_reset_peak();
  Py_RETURN_NONE;
}
PyObject* num_threads(PyObject*, PyObject*) { return PyLong_FromLong(rl::num_threads()); }
PyObject* set_num_threads(PyObject*, PyObject* n) {
  return guarded([&] {
    rl::set_num_threads(static_cast<int>(read_int("set_num_threads", n)));
    return Py_NewRef(Py_None);
  });
}
PyObject* packed_bytes(PyObject*, PyObject* args) {
  PyObject* dtype;
  long long k, n;
  if (!PyArg_ParseTuple(args, "OLL", &dtype, &k, &n)) return nullptr;
  return guarded([&] { return PyLong_FromLongLong(rl::packed_bytes(dtype_from(dtype), k, n)); });
}
PyObject* library_prepare(PyObject*, PyObject* gaps) {
  return guarded([&] {
    const bool all = PyObject_IsTrue(gaps) > 0;
    run_released(nullptr, 0, [&] { rl::onednn_prepare(all); });
    return Py_NewRef(Py_None);
  });
}
PyObject* isa(PyObject*, PyObject*) { return PyUnicode_FromString(rl::cpu_isa()); }
PyObject* kernels_load(PyObject*, PyObject* folder) {
  return guarded([&] {
    Ref path = checked(PyOS_FSPath(folder));
    Ref bytes = PyBytes_Check(path.py()) ? path : checked(PyUnicode_EncodeFSDefault(path.py()));
    rl::kernels_load(PyBytes_AS_STRING(bytes.py()));
    return PyLong_FromLongLong(rl::kernel_count());
  });
}
PyObject* entry_object(const rl::KernelEntry* k) {
  return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:K}", "key", k->key, "outer",
      k->outer, "inner", k->inner, "inputs", k->inputs, "outputs", k->outputs, "numbers",
      k->numbers, "serial", k->serial, "cost", k->cost, "origin", k->origin ? k->origin : "",
      "pointer", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(k->fn)));
}
PyObject* kernel_find(PyObject*, PyObject* key) {
  const char* text = PyUnicode_AsUTF8(key);
  if (!text) return nullptr;
  const rl::KernelEntry* k = rl::kernel_find(text);
  return k ? entry_object(k) : Py_NewRef(Py_None);
}
PyObject* kernel_keys(PyObject*, PyObject*) {
  return guarded([&] {
    Ref list = checked(PyList_New(rl::kernel_count()));
    for (int64_t i = 0; i < rl::kernel_count(); i++)
      PyList_SET_ITEM(list.py(), i, check(PyUnicode_FromString(rl::kernel_at(i)->key)));
    return list.release();
  });
}
PyObject* libraries_set(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"openblas", "onednn", nullptr};
  const char *openblas = nullptr, *onednn = nullptr;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "|zz", const_cast<char**>(keywords), &openblas, &onednn))
    return nullptr;
  rl::libraries_set(openblas, onednn);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_hooks", fn(set_hooks), METH_VARARGS | METH_KEYWORDS,
        "set_hooks(make_plan=, make_backward=, make_part=, dispatch=, index=, format=, device=, open_device=)"},
    {"set_slot", set_slot, METH_VARARGS,
        "set_slot(name, operator): a number slot of Tensor, or copy_"},
    {"set_method", set_method, METH_VARARGS,
        "set_method(name, object): an attribute of the Tensor type"},
    {"set_type", set_type, METH_VARARGS, "set_type('Size', cls), set_type('OutOfMemoryError', cls): of a device"},
    {"pieces", fn(tensor_pieces), METH_FASTCALL,
        "pieces(tensor, size, dim): views of consecutive windows; the last may be shorter"},
    {"set_default_dtype", set_default_dtype, METH_O, nullptr},
    {"get_default_dtype", get_default_dtype, METH_NOARGS, nullptr},
    {"dtype_named", dtype_named, METH_O, nullptr},
    {"can_cast", can_cast_, METH_VARARGS,
        "can_cast(from, to): whether a result may be written to an output of that dtype"},
    {"mode", get_mode, METH_NOARGS, "this thread's mode word"},
    {"set_mode", set_mode, METH_O, "sets it; returns what was"},
    {"set_grad_enabled", set_grad_enabled, METH_O, "returns what was"},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, nullptr},
    {"allocator_stats", allocator_stats, METH_NOARGS, "bytes and counts"},
    {"allocator_trim", fn(allocator_trim), METH_VARARGS | METH_KEYWORDS,
        "frees cached blocks beyond `keep` bytes"},
    {"allocator_limit", allocator_limit, METH_O, "bytes; 0: none"},
    {"allocator_reset_peak", allocator_reset_peak, METH_NOARGS, nullptr},
    {"num_threads", num_threads, METH_NOARGS, nullptr},
    {"set_num_threads", set_num_threads, METH_O, nullptr},
    {"isa", isa, METH_NOARGS, "the instruction set of the kernels: v2, v3 or v4"},
    {"kernels_load", kernels_load, METH_O,
        "loads the kernel library of a folder; returns the number of kernels"},
    {"kernel_find", kernel_find, METH_O, "a kernel's entry as a dict, or None"},
    {"kernel_keys", kernel_keys, METH_NOARGS, nullptr},
    {"packed_bytes", packed_bytes, METH_VARARGS,
        "(dtype, k, n): bytes of a product's right operand in its library's order, 0: has none"},
    {"library_prepare", library_prepare, METH_O,
        "(gaps): opens oneDNN, and makes what batched products with gaps need, without the GIL"},
    {"libraries_set", fn(libraries_set), METH_VARARGS | METH_KEYWORDS,
        "paths of libopenblas and libdnnl; opened at first use"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "rushlight._core", "The native core of Rushlight.",
    -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace core

PyMODINIT_FUNC PyInit__core() {
  using namespace core;
  PyObject* m = PyModule_Create(&definition);
  if (!m) return nullptr;
  return guarded([&] {
    module = m;
    value_name = check(PyUnicode_InternFromString("__rushlight_value__"));
    for (PyMethodDef* list : {convert_functions, plan_functions, tape_functions, record_functions,
             attribute_functions, device_functions})
      check(PyModule_AddFunctions(m, list));
    dtype_init(m);
    devices_init(m);
    cuda_init(m);
    tensor_init(m);
    factories_init(m);
    operator_init(m);
    plan_init(m);
    program_init(m);
    workspace_init(m);
    tape_init(m);
    guards_init(m);
    compiled_init(m);
    frame_init(m);
    return m;
  });
}
