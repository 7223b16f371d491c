// Workspace: the memory of one call of a compiled graph. Takes places (offset, layout) in a block;
// a call gives a tensor for each, all of one storage that is allocated once.
// Invariant: places whose lifetimes meet do not overlap: whoever made the plan answers for it.
#include "convert.h"
#include "dtype.h"
#include "program.h"
#include "tensor.h"

namespace core {
namespace {

struct Workspace {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  int64_t bytes;
  Py_ssize_t count;
  Layout** layouts;  // owned
  int64_t* offsets;  // elements
};
PyTypeObject* WorkspaceType;

Workspace* self_of(PyObject* o) { return reinterpret_cast<Workspace*>(o); }

PyObject* workspace_vectorcall(PyObject* self, PyObject* const*, size_t nargsf, PyObject* names) {
  return guarded([&]() -> PyObject* {
    Workspace* w = self_of(self);
    if (PyVectorcall_NARGS(nargsf) || names)
      raise(PyExc_TypeError, "[Workspace] takes no arguments");
    Ref tuple = checked(PyTuple_New(w->count));
    Storage* storage = rl::storage_alloc(w->bytes);
    struct Drop {
      Storage* s;
      ~Drop() { rl::decref(s); }
    } drop{storage};
    for (Py_ssize_t i = 0; i < w->count; i++) {
      rl::incref(storage);
      rl::incref(w->layouts[i]);
      PyTuple_SET_ITEM(
          tuple.py(), i, tensor_make(storage, w->layouts[i], w->offsets[i]).release_object());
    }
    return tuple.release();
  });
}

PyObject* workspace_new(PyTypeObject* type, PyObject* args, PyObject*) {
  long long bytes;
  PyObject* places;
  if (!PyArg_ParseTuple(args, "LO", &bytes, &places)) return nullptr;
  return guarded([&]() -> PyObject* {
    Ref list = checked(PySequence_Tuple(places));
    const Py_ssize_t n = PyTuple_GET_SIZE(list.py());
    Own<Workspace> w(self_of(check(type->tp_alloc(type, 0))));
    w->vectorcall = workspace_vectorcall;
    w->bytes = bytes;
    w->layouts = new Layout*[n + 1];
    w->offsets = new int64_t[n + 1];
    for (; w->count < n; w->count++) {
      long long offset;
      PyObject *shape, *strides, *dtype;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list.py(), w->count),
              "LOOO;a place is (byte offset, shape, strides, dtype)", &offset, &shape, &strides,
              &dtype))
        throw PythonError();
      Small<int64_t, 8> sizes, steps;
      read_ints("Workspace", shape, sizes);
      read_ints("Workspace", strides, steps);
      if (sizes.size() != steps.size())
        raise(PyExc_ValueError, "[Workspace] %d sizes and %d strides", sizes.size(), steps.size());
      const DType type_ = dtype_from(dtype);
      const int64_t item = rl::itemsize(type_);
      Layout* layout = rl::layout_intern(
          type_, Device::CPU, static_cast<int>(sizes.size()), sizes.data(), steps.data());
      int64_t low = 0, high = 0;
      if (layout->numel) rl::layout_extent(layout, &low, &high);
      if (offset < 0 || offset % item || low < 0 || offset + high * item > bytes) {
        rl::decref(layout);
        raise(PyExc_ValueError, "[Workspace] place %zd does not lie in %lld bytes", w->count, bytes);
      }
      w->layouts[w->count] = layout;
      w->offsets[w->count] = offset / item;
    }
    return w.release_object();
  });
}

void workspace_dealloc(PyObject* o) {
  Workspace* w = self_of(o);
  PyTypeObject* type = Py_TYPE(o);
  for (Py_ssize_t i = 0; i < w->count; i++) rl::decref(w->layouts[i]);
  delete[] w->layouts;
  delete[] w->offsets;
  type->tp_free(o);
  Py_DECREF(type);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Workspace, vectorcall), READONLY, nullptr},
    {"bytes", T_LONGLONG, offsetof(Workspace, bytes), READONLY, "what a call allocates"},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots_[] = {
    {Py_tp_new, fn(workspace_new)},
    {Py_tp_dealloc, fn(workspace_dealloc)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight._core.Workspace", sizeof(Workspace), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots_};

}  // namespace

void workspace_init(PyObject* m) {
  WorkspaceType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "Workspace", WorkspaceType);
}

}  // namespace core
