// DeviceKernel: a kernel record of docs/gpu.md and its images -> a kernel that recipes take and the
// GPU runs. Invariant: a record is checked when the object is made; images are loaded when
// something is first launched.
#include "cuda.h"

namespace core {

PyTypeObject* DeviceKernelType;

namespace {

using rl::cuda::DeviceKernel;

DeviceKernelObject* self_of(PyObject* o) { return reinterpret_cast<DeviceKernelObject*>(o); }

PyObject* need(PyObject* dict, const char* name) {  // borrowed
  if (!PyDict_Check(dict))
    raise(PyExc_TypeError, "[DeviceKernel] a record is made of dicts, got %s",
        Py_TYPE(dict)->tp_name);
  PyObject* v = PyDict_GetItemString(dict, name);
  if (!v) raise(PyExc_ValueError, "[DeviceKernel] the record lacks '%s'", name);
  return v;
}
int integer(PyObject* dict, const char* name) {
  const long v = PyLong_AsLong(need(dict, name));
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return static_cast<int>(v);
}
std::string text_of(PyObject* o) {
  const char* t = PyUnicode_AsUTF8(o);
  if (!t) throw PythonError();
  return t;
}
template <class F>
void each(PyObject* sequence, F&& f) {
  Ref items = checked(PySequence_Tuple(sequence));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.py()); i++) f(PyTuple_GET_ITEM(items.py(), i));
}

void read_launch(DeviceKernel* k, rl::cuda::Variant& v, PyObject* o, int numbers, int buffers) {
  rl::cuda::LaunchSpec l;
  l.image = integer(o, "cubin");
  l.entry = text_of(need(o, "entry"));
  l.warps = integer(o, "warps");
  l.shared = integer(o, "shared");
  const int works = static_cast<int>(v.work.size());
  each(need(o, "params"), [&](PyObject* p) {
    l.parameters.push_back(
        rl::cuda::parse_parameter(text_of(p), numbers, buffers, k->numbers, works));
  });
  int axis = 0;
  each(need(o, "grid"), [&](PyObject* g) {
    if (axis == 3) raise(PyExc_ValueError, "[DeviceKernel] a grid has three sizes");
    l.grid[axis++] = rl::cuda::parse_expression(text_of(g), numbers, buffers);
  });
  for (; axis < 3; axis++) l.grid[axis] = rl::cuda::parse_expression("1", 0, 0);
  v.launches.push_back(std::move(l));
}

PyObject* kernel_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"record", "images", nullptr};
  PyObject *record, *images;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OO", const_cast<char**>(keywords), &record, &images))
    return nullptr;
  return guarded([&] {
    Own<DeviceKernelObject> self(self_of(check(type->tp_alloc(type, 0))));
    DeviceKernel* k = self->kernel = new DeviceKernel;
    self->record = Py_NewRef(record);
    k->name = text_of(need(record, "key"));
    PyObject* from = PyDict_GetItemString(record, "origin");
    k->from = from ? text_of(from) : "";
    k->outer = integer(record, "outer");
    k->inner = integer(record, "inner");
    k->inputs = integer(record, "inputs");
    k->outputs = integer(record, "outputs");
    k->KernelEntry::numbers = integer(record, "numbers");
    k->serial = PyDict_GetItemString(record, "serial") ? integer(record, "serial") : 0;
    k->cost = PyDict_GetItemString(record, "cost") ? integer(record, "cost") : 1;
    const int buffers = k->inputs + k->outputs, axes = k->outer + k->inner;
    if (axes < 1 || axes > 8 || k->inputs < 0 || k->inputs > rl::kMaxInputs || k->outputs < 1 ||
        k->outputs > rl::kMaxOutputs)
      raise(PyExc_ValueError, "[DeviceKernel] %s: %d loops, %d operands, %d outputs",
          k->name.c_str(), axes, k->inputs, k->outputs);
    const int numbers = axes * (2 + buffers) + 1;
    each(images, [&](PyObject* o) {
      char* data;
      Py_ssize_t size;
      check(PyBytes_AsStringAndSize(o, &data, &size));
      k->images.emplace_back(data, static_cast<size_t>(size));
    });
    each(need(record, "variants"), [&](PyObject* o) {
      rl::cuda::Variant v;
      if (PyObject* when = PyDict_GetItemString(o, "when"))
        each(when, [&](PyObject* w) {
          v.when.push_back(rl::cuda::parse_expression(text_of(w), numbers, buffers));
        });
      if (PyObject* work = PyDict_GetItemString(o, "work"))
        each(work, [&](PyObject* w) {
          Ref pair = checked(PySequence_Tuple(w));
          if (PyTuple_GET_SIZE(pair.py()) != 2)
            raise(PyExc_ValueError, "[DeviceKernel] a workspace is (bytes, zeroed)");
          v.work.push_back({rl::cuda::parse_expression(
                                text_of(PyTuple_GET_ITEM(pair.py(), 0)), numbers, buffers),
              PyObject_IsTrue(PyTuple_GET_ITEM(pair.py(), 1)) == 1});
        });
      each(need(o, "launches"), [&](PyObject* l) { read_launch(k, v, l, numbers, buffers); });
      k->variants.push_back(std::move(v));
    });
    k->ready();
    return self.release_object();
  });
}

void kernel_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  delete self_of(o)->kernel;
  Py_XDECREF(self_of(o)->record);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* repr(PyObject* o) {
  return PyUnicode_FromFormat("<DeviceKernel %s>", self_of(o)->kernel->key);
}
PyObject* get_key(PyObject* o, void*) { return PyUnicode_FromString(self_of(o)->kernel->key); }
PyObject* get_record(PyObject* o, void*) { return Py_NewRef(self_of(o)->record); }
PyObject* get_launches(PyObject* o, void*) {
  return PyLong_FromLongLong(self_of(o)->kernel->launched);
}
PyObject* get_variants(PyObject* o, void*) {
  return PyLong_FromSize_t(self_of(o)->kernel->variants.size());
}

PyObject* facts(PyObject* o, PyObject* device) {
  return guarded([&] {
    const long index = PyLong_AsLong(device);
    if (index == -1 && PyErr_Occurred()) throw PythonError();
    Ref list = checked(PyList_New(0));
    for (const auto& f :
        rl::cuda::device_kernel_facts(self_of(o)->kernel, static_cast<int>(index))) {
      Ref one =
          checked(Py_BuildValue("{s:s,s:i,s:i,s:i,s:i}", "entry", f.entry.c_str(), "registers",
              f.registers, "local_bytes", f.local_bytes, "shared", f.shared, "warps", f.warps));
      check(PyList_Append(list.py(), one.py()));
    }
    return list.release_object();
  });
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyGetSetDef getset[] = {{"key", get_key, nullptr, "the kernel's key or name", nullptr},
    {"record", get_record, nullptr, "as given", nullptr},
    {"launches", get_launches, nullptr, "how often something of it was launched", nullptr},
    {"variants", get_variants, nullptr, "how many", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"facts", facts, METH_O,
                             "facts(device): registers, local (spilled) bytes, shared bytes and "
                             "warps of each launch; loads it"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots_[] = {{Py_tp_new, fn(kernel_new)}, {Py_tp_dealloc, fn(kernel_dealloc)},
    {Py_tp_repr, fn(repr)}, {Py_tp_getset, getset}, {Py_tp_methods, methods},
    {Py_tp_doc, const_cast<char*>(
                    "A GPU kernel: DeviceKernel(record, images), as docs/gpu.md describes them.")},
    {0, nullptr}};
PyType_Spec spec = {
    "rushlight._core.DeviceKernel", sizeof(DeviceKernelObject), 0, Py_TPFLAGS_DEFAULT, slots_};

}  // namespace

void device_kernel_init(PyObject* m) {
  DeviceKernelType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "DeviceKernel", DeviceKernelType);
}

}  // namespace core
