// Devices: names, the device of new tensors, calls with operands on several devices, and the meta
// device, which keeps layouts and no data.
// Invariant: see devices.h; a call is planned for one device.
#include "devices.h"

#include "convert.h"
#include "dtype.h"
#include "operator.h"
#include "plan.h"
#include "tensor.h"

namespace core {

__thread Device creation_device __attribute__((tls_model("initial-exec"))) = Device::CPU;

void (*device_matrix_made)(const Layout*) = nullptr;

namespace {

using rl::DeviceType;

DeviceRuntime runtimes[rl::kDeviceTypes];

// ---- meta: outputs are layouts, and nothing runs

PyTypeObject* MetaRecipeType;

struct MetaRecipeObject {
  PyObject_HEAD
  std::vector<Layout*>* outs;            // owned
};
MetaRecipeObject* recipe_of(PyObject* o) { return reinterpret_cast<MetaRecipeObject*>(o); }

// ((shape, strides, dtype), ...)
PyObject* recipe_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* outputs;
  if (!PyArg_ParseTuple(args, "O", &outputs)) return nullptr;
  return guarded([&] {
    Own<MetaRecipeObject> r(recipe_of(check(type->tp_alloc(type, 0))));
    r->outs = new std::vector<Layout*>;
    Ref list = checked(PySequence_Tuple(outputs));
    if (PyTuple_GET_SIZE(list.py()) > rl::kMaxOutputs)
      raise(PyExc_ValueError, "[MetaRecipe] %zd outputs; at most %d are possible",
          PyTuple_GET_SIZE(list.py()), rl::kMaxOutputs);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.py()); i++) {
      PyObject *shape, *strides, *dtype;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list.py(), i), "OOO", &shape, &strides, &dtype))
        throw PythonError();
      r->outs->push_back(
          layout_read("MetaRecipe", shape, strides, dtype_from(dtype), Device::Meta));
    }
    return r.release_object();
  });
}
void recipe_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (recipe_of(o)->outs)
    for (Layout* l : *recipe_of(o)->outs) rl::decref(l);
  delete recipe_of(o)->outs;
  type->tp_free(o);
  Py_DECREF(type);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot recipe_slots[] = {
    {Py_tp_new, fn(recipe_new)}, {Py_tp_dealloc, fn(recipe_dealloc)}, {0, nullptr}};
PyType_Spec recipe_spec = {"rushlight._core.MetaRecipe", sizeof(MetaRecipeObject), 0,
    Py_TPFLAGS_DEFAULT, recipe_slots};

struct MetaPlan : DevicePlan {
  MetaPlan() { elementwise = true; }
  void run(Plan*, Call&, Tensor* const*) override {}
  std::string text() const override { return "layouts only"; }
  std::shared_ptr<DevicePlan> into(Plan*, Call&, Tensor* const*, int) override {
    return std::make_shared<MetaPlan>();
  }
};

std::shared_ptr<DevicePlan> meta_plan(Plan* p, Call&, PyObject* made) {
  if (Py_TYPE(made) != MetaRecipeType) return nullptr;
  p->nouts = static_cast<int>(recipe_of(made)->outs->size());
  for (int i = 0; i < p->nouts; i++) rl::incref(p->outs[i] = (*recipe_of(made)->outs)[i]);
  return std::make_shared<MetaPlan>();
}
void meta_copy(Tensor* dst, Tensor*) {
  if (dst->layout->device != Device::Meta)
    raise(PyExc_NotImplementedError, "[copy_] Cannot copy out of a meta tensor: it holds no data");
}
void meta_fill(Tensor*, PyObject*) {}
void meta_add(Tensor*, Tensor*) {}
int meta_current() { return 0; }

// ---- names

[[noreturn]] void no_device(PyObject* given) {
  raise(PyExc_RuntimeError, "Expected one of cpu, cuda, meta device type at start of device string: %S",
      given);
}

Device opened(DeviceType type, int index) {
  if (type == DeviceType::CPU) return Device::CPU;
  if (type == DeviceType::Meta) return Device::Meta;
  if (!rl::device_ready(rl::make_device(type, 0)) && hooks.open_device)
    checked(PyObject_CallFunction(hooks.open_device, "s", rl::device_type_name(type)));
  if (index < 0) index = device_runtime(rl::make_device(type, 0)).current();
  Device d = rl::make_device(type, index);
  if (!rl::device_ready(d)) device_runtime(d);
  return d;
}

Device device_named(PyObject* given, const char* text) {
  if (!std::strcmp(text, "cuda")) return opened(DeviceType::CUDA, -1);
  const char* colon = std::strchr(text, ':');
  const std::string name = colon ? std::string(text, colon) : std::string(text);
  int index = -1;
  if (colon) {
    char* end;
    const long value = std::strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || value < 0 || value > 255) no_device(given);
    index = static_cast<int>(value);
  }
  for (int t = 0; t < rl::kDeviceTypes; t++)
    if (name == rl::device_type_name(static_cast<DeviceType>(t)))
      return opened(static_cast<DeviceType>(t), index);
  no_device(given);
}

// ---- calls with operands on several devices

bool elementwise(const Operator* op) {
  const char* kind = PyUnicode_AsUTF8(op->kind);
  return kind && (!std::strcmp(kind, "scalar") || !std::strcmp(kind, "composition"));
}

PyObject* moved(Call& call, PyObject* o, Device device) {
  if (!is_tensor(o) || tensor_of(o)->layout->device == device) return o;
  Tensor* t = tensor_of(o);
  int64_t none = 0;
  Own<Tensor> made = tensor_empty(rl::layout_dense(t->layout->dtype, device, 0, &none));
  assign(made.get(), o);  // on the tape where that must know
  return call.keep(Ref(made.release_object()));
}

}  // namespace

uint32_t mode_word() { return mode | (creation_device != Device::CPU ? kElsewhere : 0); }

void device_runtime_register(DeviceType type, DeviceRuntime runtime) {
  runtimes[static_cast<int>(type)] = runtime;
}

const DeviceRuntime& device_runtime(Device d) {
  const DeviceRuntime& r = runtimes[static_cast<int>(rl::device_type(d))];
  if (!r.copy)
    raise(PyExc_RuntimeError, "device '%s' is not available: this build runs on the CPU only so far",
        rl::device_type_name(rl::device_type(d)));
  return r;
}

std::string device_name(Device d) {
  const DeviceType type = rl::device_type(d);
  std::string name = rl::device_type_name(type);
  return type == DeviceType::CUDA ? name + ":" + std::to_string(rl::device_index(d)) : name;
}

static PyObject* device_objects[rl::kDeviceTypes << 8];  // those that were asked for

bool device_known(PyObject* o, Device* device) {
  constexpr int kLooked = 8;
  for (const DeviceType type : {DeviceType::CPU, DeviceType::CUDA, DeviceType::Meta})
    for (int i = 0; i < (type == DeviceType::CUDA ? kLooked : 1); i++) {
      const Device d = rl::make_device(type, i);
      if (o != device_objects[static_cast<int>(d)] || !rl::device_ready(d)) continue;
      *device = d;
      return true;
    }
  return false;
}

PyObject* device_object(Device d) {
  static PyObject* names[rl::kDeviceTypes << 8];
  PyObject*& o = device_objects[static_cast<int>(d)];
  if (o) return o;
  const std::string name = device_name(d);
  if (hooks.device) return o = check(PyObject_CallFunction(hooks.device, "s", name.c_str()));
  PyObject*& text = names[static_cast<int>(d)];
  if (!text) text = check(PyUnicode_InternFromString(name.c_str()));
  return text;
}

Device device_from(PyObject* o) {
  if (!o || o == Py_None) return creation_device;
  if (o == device_object(Device::CPU)) return Device::CPU;
  if (PyLong_Check(o)) {  // the index of an accelerator
    const long index = PyLong_AsLong(o);
    if (index < 0 || index > 255) {
      PyErr_Clear();
      raise(PyExc_RuntimeError, "Device index must be between 0 and 255, got %S", o);
    }
    return opened(DeviceType::CUDA, static_cast<int>(index));
  }
  Ref text = checked(PyObject_Str(o));
  const char* name = PyUnicode_AsUTF8(text.py());
  if (!name) throw PythonError();
  return device_named(o, name);
}

Own<Tensor> on_host(Tensor* t) {
  if (t->layout->device == Device::CPU) return Own<Tensor>::borrow(t);
  Own<Tensor> made = tensor_empty(
      rl::layout_dense(t->layout->dtype, Device::CPU, t->layout->ndim, t->layout->dims));
  copy_into(made.get(), t);
  return made;
}

void refuse_devices(const Call& call, Device one, Device other) {
  std::string shapes;
  for (int i = 0; i < call.tensors.size(); i++) {
    const Layout* l = call.tensors[i]->layout;
    shapes += (i ? " and " : "") + rl::shape_text(l->ndim, l->dims);
  }
  raise(PyExc_RuntimeError,
      "[%s] expected all tensors on one device, got %s and %s (shapes %s)", call.op->text,
      device_name(one).c_str(), device_name(other).c_str(), shapes.c_str());
}

void unify_devices(Call& call, bool inplace) {
  Device device = Device::CPU;
  bool dims = false;  // of the tensor that decides: one with dims before one without
  for (int i = 0; i < call.tensors.size(); i++) {
    const Layout* l = call.tensors[i]->layout;
    if (l->device != Device::CPU && (device == Device::CPU || (l->ndim && !dims))) {
      device = l->device;
      dims = l->ndim > 0;
    }
  }
  for (int i = 0; i < call.tensors.size(); i++) {
    const Layout* l = call.tensors[i]->layout;
    bool joins =
        l->device == Device::CPU && !l->ndim && elementwise(call.op) && !(inplace && i == 0);
    if (l->device == device || joins) continue;
    Device first = call.tensors[0]->layout->device;
    refuse_devices(call, first, first == device ? l->device : device);
  }
  for (int i = 0; i < call.op->nparams; i++) {
    PyObject* o = call.values[i];
    if (call.op->params[i].kind == ParamKind::Tensor) {
      call.values[i] = moved(call, o, device);
    } else if (call.op->params[i].kind == ParamKind::Tensors && o != Py_None) {
      Ref list = checked(PySequence_Tuple(o)), made = checked(PyTuple_New(PyTuple_GET_SIZE(list.py())));
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list.py()); k++)
        PyTuple_SET_ITEM(
            made.py(), k, Py_NewRef(moved(call, PyTuple_GET_ITEM(list.py(), k), device)));
      call.values[i] = call.keep(std::move(made));
    }
  }
}

namespace {

PyObject* set_creation_device(PyObject*, PyObject* o) {
  return guarded([&] {
    Device d = o == Py_None ? Device::CPU : device_from(o);
    return Py_NewRef(device_object(std::exchange(creation_device, d)));
  });
}
PyObject* get_creation_device(PyObject*, PyObject*) {
  return guarded([&] { return Py_NewRef(device_object(creation_device)); });
}
PyObject* resolve_device(PyObject*, PyObject* o) {
  return guarded([&] { return Py_NewRef(device_object(device_from(o))); });
}

}  // namespace

PyMethodDef device_functions[] = {
    {"set_creation_device", set_creation_device, METH_O,
        "where this thread's new tensors go whose calls do not say; None: the CPU. Returns what was"},
    {"creation_device", get_creation_device, METH_NOARGS, nullptr},
    {"resolve_device", resolve_device, METH_O,
        "the device itself, index and all, of None, a name, an index or a device; RuntimeError where "
        "it is not available"},
    {nullptr, nullptr, 0, nullptr},
};

void devices_init(PyObject* m) {
  device_runtime_register(
      DeviceType::Meta, {meta_plan, meta_copy, meta_fill, meta_add, meta_current});
  MetaRecipeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&recipe_spec)));
  add_type(m, "MetaRecipe", MetaRecipeType);
}

}  // namespace core
