// Tensor: life, getset, number slots. Takes storages, layouts and offsets; gives the Python type
// `rushlight.Tensor`.
// Invariant: a tensor of the exact base type without gradient, base or hooks costs one freelist pop
// and is untracked.
#include "tensor.h"

#include "cuda.h"
#include "devices.h"
#include "dtype.h"
#include "operator.h"
#include "tape.h"

namespace core {

uint64_t change_clock = 1;
PyTypeObject* TensorType;

namespace {

constexpr int kFree = kFreeLists ? 512 : 0;
Tensor* free_tensors[kFree + 1];
int free_count = 0;
Counter* free_counters = nullptr;

Tensor* raw_new() {
  if (free_count) {
    Tensor* t = free_tensors[--free_count];
    PyObject_Init(py(t), TensorType);
    return t;
  }
  Tensor* t = PyObject_GC_New(Tensor, TensorType);
  check(py(t));
  return t;
}

void reset(Tensor* t) {
  std::memset(reinterpret_cast<char*>(t) + offsetof(Tensor, storage), 0,
      sizeof(Tensor) - offsetof(Tensor, storage));
}

void drop_references(Tensor* t) {
  if (t->grad_fn) drop_later(reinterpret_cast<PyObject*>(std::exchange(t->grad_fn, nullptr)));
  if (t->base) drop_later(py(std::exchange(t->base, nullptr)));
  if (TensorExtra* e = t->extra) {
    if (e->grad) drop_later(py(std::exchange(e->grad, nullptr)));
    Py_CLEAR(e->hooks);
    Py_CLEAR(e->post_hooks);
  }
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  Tensor* t = tensor_of(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(t->grad_fn);
  Py_VISIT(t->base);
  if (TensorExtra* e = t->extra) {
    Py_VISIT(e->grad);
    Py_VISIT(e->hooks);
    Py_VISIT(e->post_hooks);
  }
  return 0;
}

int clear(PyObject* o) {
  drop_references(tensor_of(o));
  return 0;
}

void dealloc(PyObject* o) {
  Tensor* t = tensor_of(o);
  PyTypeObject* type = Py_TYPE(o);
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  if (t->weakrefs) PyObject_ClearWeakRefs(o);
  if (t->storage) rl::decref(t->storage);
  if (t->layout) rl::decref(t->layout);
  if (t->counter) counter_drop(t->counter);
  if (t->grad_fn || t->base || t->extra) {
    drop_references(t);
    std::free(t->extra);
  }
  if (type == TensorType && free_count < kFree) free_tensors[free_count++] = t;
  else type->tp_free(o);
  Py_DECREF(type);
}

// `Tensor(2, 3)` and `Tensor(size)`: memory as it is found; `Tensor([1, 2])`: those numbers, in the
// default dtype.
Own<Tensor> tensor_of_past(PyObject* args, PyObject* data) {
  bool sizes = hooks.size && PyObject_IsInstance(data, hooks.size) == 1;
  PyObject* given = sizes ? data : args;
  if (!sizes && !PyLong_CheckExact(data)) {
    if (PyTuple_GET_SIZE(args) > 1)
      raise(PyExc_TypeError, "new(): data must be a sequence (got %s)", Py_TYPE(data)->tp_name);
    return tensor_from_data(data, dtype_object(default_dtype));
  }
  int64_t shape[rl::kMaxDims];
  Py_ssize_t n = PyTuple_GET_SIZE(given);
  if (n > rl::kMaxDims) raise(PyExc_RuntimeError, "a tensor has at most %d dims", rl::kMaxDims);
  for (Py_ssize_t i = 0; i < n; i++) {
    shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(given, i));
    if (shape[i] == -1 && PyErr_Occurred()) throw PythonError();
    if (shape[i] < 0)
      raise(PyExc_RuntimeError, "Trying to create tensor with negative dimension %lld",
          static_cast<long long>(shape[i]));
  }
  return tensor_dense(default_dtype, static_cast<int>(n), shape);
}

PyObject* tp_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    Own<Tensor> source;
    if (PyTuple_GET_SIZE(args) == 0) {
      int64_t zero = 0;
      source = tensor_dense(default_dtype, 1, &zero);
    } else {
      PyObject* data = PyTuple_GET_ITEM(args, 0);
      source = is_tensor(data) ? Own<Tensor>::borrow(tensor_of(data)) : tensor_of_past(args, data);
    }
    return tensor_subclass(type, source.get()).release_object();
  });
}

// ---- getset

PyObject* get_shape(PyObject* o, void*) {
  Layout* l = tensor_of(o)->layout;
  return guarded([&] { return size_tuple(l->shape(), l->ndim).release(); });
}
PyObject* get_dtype(PyObject* o, void*) {
  return Py_NewRef(dtype_object(tensor_of(o)->layout->dtype));
}
PyObject* get_device(PyObject* o, void*) {
  return guarded([&] { return Py_NewRef(device_object(tensor_of(o)->layout->device)); });
}
PyObject* get_ndim(PyObject* o, void*) { return PyLong_FromLong(tensor_of(o)->layout->ndim); }
PyObject* get_requires_grad(PyObject* o, void*) {
  return PyBool_FromLong(needs_grad(tensor_of(o)));
}
int put_requires_grad(PyObject* o, PyObject* value, void*) {
  return guarded_int([&] {
    if (!value) raise(PyExc_AttributeError, "cannot delete requires_grad");
    set_requires_grad(tensor_of(o), check(PyObject_IsTrue(value)));
    return 0;
  });
}
PyObject* get_grad(PyObject* o, void*) {
  TensorExtra* e = tensor_of(o)->extra;
  return Py_NewRef(e && e->grad ? py(e->grad) : Py_None);
}
int put_grad(PyObject* o, PyObject* value, void*) {
  return guarded_int([&] {
    Tensor* t = tensor_of(o);
    Tensor* grad = nullptr;
    if (value && value != Py_None) {
      if (!is_tensor(value))
        raise(PyExc_TypeError, "[grad] takes a Tensor or None, got %s",
            Py_TYPE(value)->tp_name);
      grad = tensor_of(value);
      if (grad == t) raise(PyExc_RuntimeError, "can't assign Variable as its own grad");
      const Layout *a = t->layout, *b = grad->layout;
      if (a->dtype != b->dtype)
        raise(PyExc_RuntimeError, "assigned grad has data of a different type: %s, expected %s",
            dtype_name(b->dtype), dtype_name(a->dtype));
      if (a->ndim != b->ndim || std::memcmp(a->dims, b->dims, sizeof(int64_t) * a->ndim))
        raise(PyExc_RuntimeError, "assigned grad has data of a different size: %s, expected %s",
            rl::shape_text(b->ndim, b->dims).c_str(), rl::shape_text(a->ndim, a->dims).c_str());
    }
    TensorExtra* e = extra_of(t);
    Py_XINCREF(value == Py_None ? nullptr : value);
    Tensor* old = std::exchange(e->grad, grad);
    track(t);
    if (old) drop_later(py(old));
    return 0;
  });
}
PyObject* get_grad_fn(PyObject* o, void*) {
  return guarded([&] {
    Node* n = current_grad_fn(tensor_of(o));
    return Py_NewRef(n ? reinterpret_cast<PyObject*>(n) : Py_None);
  });
}
PyObject* get_is_leaf(PyObject* o, void*) {
  return guarded([&] { return PyBool_FromLong(current_grad_fn(tensor_of(o)) == nullptr); });
}
PyObject* get_retains_grad(PyObject* o, void*) {
  return PyBool_FromLong(tensor_of(o)->retains_grad);
}
PyObject* get_output_nr(PyObject* o, void*) {
  return PyLong_FromUnsignedLong(tensor_of(o)->output);
}
PyObject* get_version(PyObject* o, void*) { return PyLong_FromLongLong(version_of(tensor_of(o))); }
PyObject* get_stamp(PyObject* o, void*) {
  const Storage* s = tensor_of(o)->storage;
  return PyLong_FromLongLong(s->size_class == -1 || s->exports ? -1 : s->stamp);
}
PyObject* get_base(PyObject* o, void*) {
  Tensor* b = tensor_of(o)->base;
  return Py_NewRef(b ? py(b) : Py_None);
}
PyObject* get_layout_id(PyObject* o, void*) { return PyLong_FromVoidPtr(tensor_of(o)->layout); }
PyObject* get_data(PyObject* o, void*) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    rl::incref(t->storage);
    rl::incref(t->layout);
    return tensor_make(t->storage, t->layout, t->offset).release_object();
  });
}
int put_data(PyObject* o, PyObject* value, void*) {
  return guarded_int([&] {
    if (!value || !is_tensor(value))
      raise(PyExc_TypeError, "data must be a Tensor, got %s",
          value ? Py_TYPE(value)->tp_name : "nothing");
    Tensor *t = tensor_of(o), *v = tensor_of(value);
    if (t->requires_grad && !rl::is_differentiable(v->layout->dtype))
      raise(PyExc_RuntimeError,
          "[data] a tensor that requires a gradient holds floating point numbers, got %s",
          dtype_name(v->layout->dtype));
    rl::incref(v->storage);
    rl::incref(v->layout);
    set_layout(t, v->storage, v->layout, v->offset);
    return 0;
  });
}

PyGetSetDef getset[] = {
    {"shape", get_shape, nullptr, "sizes of the dims, a Size", nullptr},
    {"dtype", get_dtype, nullptr, nullptr, nullptr},
    {"device", get_device, nullptr, nullptr, nullptr},
    {"ndim", get_ndim, nullptr, nullptr, nullptr},
    {"requires_grad", get_requires_grad, put_requires_grad, nullptr, nullptr},
    {"grad", get_grad, put_grad, nullptr, nullptr},
    {"grad_fn", get_grad_fn, nullptr, "the Node that made this tensor, None for leaves", nullptr},
    {"is_leaf", get_is_leaf, nullptr, nullptr, nullptr},
    {"retains_grad", get_retains_grad, nullptr, nullptr, nullptr},
    {"output_nr", get_output_nr, nullptr, "which output of grad_fn this is", nullptr},
    {"_version", get_version, nullptr, "in-place writes to this view family", nullptr},
    {"_stamp", get_stamp, nullptr,
        "another number after every write to this memory, through whatever tensor; -1 while others "
        "hold it, who may write unseen",
        nullptr},
    {"_base", get_base, nullptr, "root of the view family, None for others", nullptr},
    {"data", get_data, put_data,
        "the same memory, outside the tape, with a version counter of its own", nullptr},
    {"layout_id", get_layout_id, nullptr, "equal for equal shape, strides, dtype and device",
        nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// ---- number slots: the registered operator, or NotImplemented for operands that no tensor slot
// takes

bool operand(PyObject* o) { return is_tensor(o) || is_number(o) || is_value(o); }

template <int S>
PyObject* binary(PyObject* a, PyObject* b) {
  if (!slots[S] || !operand(a) || !operand(b)) Py_RETURN_NOTIMPLEMENTED;
  PyObject* args[2] = {a, b};
  return operator_vectorcall(reinterpret_cast<PyObject*>(slots[S]), args, 2, nullptr);
}
template <int S>
PyObject* unary(PyObject* a) {
  if (!slots[S]) Py_RETURN_NOTIMPLEMENTED;
  return operator_vectorcall(reinterpret_cast<PyObject*>(slots[S]), &a, 1, nullptr);
}
// `~x`: as in PyTorch another kind of error than that of bitwise_not(x).
PyObject* invert(PyObject* a) {
  if (is_tensor(a) && category(tensor_of(a)->layout->dtype) >= Category::Float)
    return guarded([&]() -> PyObject* {
      raise(PyExc_TypeError,
          "[bitwise_not] ~ inverts integers and bools, got %s",
          dtype_name(tensor_of(a)->layout->dtype));
    });
  return unary<kInvert>(a);
}
template <int S>
PyObject* ternary(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<S>(a, b);
}
// `x += y`: NotImplemented falls back to `x = x + y` in Python itself.
PyObject* compare(PyObject* a, PyObject* b, int how) {
  switch (how) {
    case Py_EQ: return binary<kEq>(a, b);
    case Py_NE: return binary<kNe>(a, b);
    case Py_LT: return binary<kLt>(a, b);
    case Py_LE: return binary<kLe>(a, b);
    case Py_GT: return binary<kGt>(a, b);
    default: return binary<kGe>(a, b);
  }
}
Py_hash_t hash(PyObject* o) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(o) >> 4); }

PyObject* repr(PyObject* o) {
  if (hooks.format) return PyObject_CallOneArg(hooks.format, o);
  const Layout* l = tensor_of(o)->layout;
  return PyUnicode_FromFormat(
      "<Tensor %s %s>", dtype_name(l->dtype), rl::shape_text(l->ndim, l->dims).c_str());
}

int truth(PyObject* o) {
  return guarded_int([&] {
    Tensor* t = tensor_of(o);
    if (t->layout->numel != 1)
      raise(PyExc_RuntimeError, "Boolean value of Tensor with %s is ambiguous",
          t->layout->numel ? "more than one value" : "no values");
    WaitName name("bool(tensor)");
    Ref value(tensor_item(t));
    return check(PyObject_IsTrue(value.py()));
  });
}
// A complex number is a real one where its imaginary part is 0.
Ref real_number(Tensor* t, const char* type) {
  Ref value(tensor_item(t));
  if (!PyComplex_Check(value.py())) return value;
  const Py_complex c = PyComplex_AsCComplex(value.py());
  if (c.imag != 0)
    raise(PyExc_RuntimeError, "[number] an imaginary part does not fit %s", type);
  return checked(PyFloat_FromDouble(c.real));
}
PyObject* as_int(PyObject* o) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (t->layout->numel != 1)
      raise(PyExc_ValueError, "[number] one element can become a Python number, the tensor has "
                              "another number of them");
    WaitName name("int(tensor)");
    return check(PyNumber_Long(real_number(t, "int64_t").py()));
  });
}
PyObject* as_float(PyObject* o) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (t->layout->numel != 1)
      raise(PyExc_ValueError, "[number] one element can become a Python number, the tensor has "
                              "another number of them");
    WaitName name("float(tensor)");
    return check(PyNumber_Float(real_number(t, "double").py()));
  });
}
PyObject* as_index(PyObject* o) {
  return guarded([&] {
    Tensor* t = tensor_of(o);
    if (t->layout->numel != 1 || rl::is_differentiable(t->layout->dtype))
      raise(
          PyExc_TypeError, "[index] one integer can be an index; the tensor holds something else");
    WaitName name("index(tensor)");
    return check(PyNumber_Long(Ref(tensor_item(t)).py()));
  });
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_new, fn(tp_new)},
    {Py_tp_dealloc, fn(dealloc)},
    {Py_tp_traverse, fn(traverse)},
    {Py_tp_clear, fn(clear)},
    {Py_tp_getset, getset},
    {Py_tp_methods, tensor_methods},
    {Py_tp_members, members},
    {Py_tp_repr, fn(repr)},
    {Py_tp_hash, fn(hash)},
    {Py_tp_richcompare, fn(compare)},
    {Py_tp_iter, fn(tensor_iter)},
    {Py_mp_length, fn(tensor_length)},
    {Py_mp_subscript, fn(tensor_getitem)},
    {Py_mp_ass_subscript, fn(tensor_setitem)},
    {Py_sq_length, fn(tensor_length)},
    {Py_sq_item, fn(tensor_item_at)},
    {Py_nb_bool, fn(truth)},
    {Py_nb_int, fn(as_int)},
    {Py_nb_float, fn(as_float)},
    {Py_nb_index, fn(as_index)},
    {Py_nb_add, fn(binary<kAdd>)},
    {Py_nb_subtract, fn(binary<kSub>)},
    {Py_nb_multiply, fn(binary<kMul>)},
    {Py_nb_true_divide, fn(binary<kTrueDiv>)},
    {Py_nb_floor_divide, fn(binary<kFloorDiv>)},
    {Py_nb_remainder, fn(binary<kMod>)},
    {Py_nb_power, fn(ternary<kPow>)},
    {Py_nb_matrix_multiply, fn(binary<kMatMul>)},
    {Py_nb_negative, fn(unary<kNeg>)},
    {Py_nb_positive, fn(unary<kPos>)},
    {Py_nb_absolute, fn(unary<kAbs>)},
    {Py_nb_invert, fn(invert)},
    {Py_nb_and, fn(binary<kAnd>)},
    {Py_nb_or, fn(binary<kOr>)},
    {Py_nb_xor, fn(binary<kXor>)},
    {Py_nb_lshift, fn(binary<kLShift>)},
    {Py_nb_rshift, fn(binary<kRShift>)},
    {Py_nb_inplace_add, fn(binary<kIAdd>)},
    {Py_nb_inplace_subtract, fn(binary<kISub>)},
    {Py_nb_inplace_multiply, fn(binary<kIMul>)},
    {Py_nb_inplace_true_divide, fn(binary<kITrueDiv>)},
    {Py_nb_inplace_floor_divide, fn(binary<kIFloorDiv>)},
    {Py_nb_inplace_remainder, fn(binary<kIMod>)},
    {Py_nb_inplace_power, fn(ternary<kIPow>)},
    {Py_nb_inplace_matrix_multiply, fn(binary<kIMatMul>)},
    {Py_nb_inplace_and, fn(binary<kIAnd>)},
    {Py_nb_inplace_or, fn(binary<kIOr>)},
    {Py_nb_inplace_xor, fn(binary<kIXor>)},
    {Py_nb_inplace_lshift, fn(binary<kILShift>)},
    {Py_nb_inplace_rshift, fn(binary<kIRShift>)},
    {Py_bf_getbuffer, fn(tensor_getbuffer)},
    {Py_bf_releasebuffer, fn(tensor_releasebuffer)},
    {Py_tp_doc, const_cast<char*>("An n-dimensional array of one dtype on one device.")},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight.Tensor", sizeof(Tensor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, type_slots};

}  // namespace

// ---- making tensors

Own<Tensor> tensor_make(Storage* storage, Layout* layout, int64_t offset) {
  Tensor* t;
  try {
    t = raw_new();
  } catch (...) {
    rl::decref(storage);
    rl::decref(layout);
    throw;
  }
  reset(t);
  t->storage = storage;
  t->layout = layout;
  t->offset = offset;
  return Own<Tensor>(t);
}

Own<Tensor> tensor_empty(Layout* layout) {
  Storage* storage;
  try {
    int64_t elements = layout->numel;
    if (!layout->dense && !layout->contiguous) {
      int64_t low, high;
      rl::layout_extent(layout, &low, &high);
      elements = high;
    }
    const int64_t bytes = elements * rl::itemsize(layout->dtype);
    if (layout->device == Device::CPU) {
      storage = rl::storage_alloc(bytes);
    } else {
      storage = rl::storage_alloc(layout->device, bytes);
      if (device_matrix_made && layout->ndim > 1) device_matrix_made(layout);
    }
  } catch (...) {
    rl::decref(layout);
    throw;
  }
  return tensor_make(storage, layout, 0);
}

Own<Tensor> tensor_dense(DType dtype, int ndim, const int64_t* shape, Device device) {
  return tensor_empty(rl::layout_dense(dtype, device, ndim, shape));
}

Own<Tensor> tensor_zeros(Layout* layout) {
  Own<Tensor> t = tensor_empty(layout);
  if (layout->device != Device::CPU) {
    fill_number(t.get(), Ref(check(PyLong_FromLong(0))).py());
    return t;
  }
  int64_t low = 0, high = layout->numel;
  if (!layout->dense && !layout->contiguous) rl::layout_extent(layout, &low, &high);
  char* at = static_cast<char*>(t->storage->data);
  rl::parallel_for(
      high * rl::itemsize(layout->dtype), 1 << 20,
      [](void* c, int64_t b, int64_t e) { std::memset(static_cast<char*>(c) + b, 0, e - b); }, at);
  return t;
}

Own<Tensor> tensor_alias(Tensor* t) {
  rl::incref(t->storage);
  rl::incref(t->layout);
  Own<Tensor> alias = tensor_make(t->storage, t->layout, t->offset);
  alias->counter = counter_of(t);
  alias->counter->refs++;
  return alias;
}

Own<Tensor> tensor_subclass(PyTypeObject* type, Tensor* source) {
  if (type == TensorType) return tensor_alias(source);
  Tensor* t = tensor_of(check(type->tp_alloc(type, 0)));
  rl::incref(source->storage);
  rl::incref(source->layout);
  t->storage = source->storage;
  t->layout = source->layout;
  t->offset = source->offset;
  t->counter = counter_of(source);
  t->counter->refs++;
  return Own<Tensor>(t);
}

void set_layout(Tensor* t, Storage* storage, Layout* layout, int64_t offset) {
  Storage* old = std::exchange(t->storage, storage);
  Layout* old_layout = std::exchange(t->layout, layout);
  t->offset = offset;
  facts_changed(t);
  rl::decref(old);
  rl::decref(old_layout);
}

Counter* counter_of(Tensor* t) {
  if (!t->counter) {
    Counter* c = free_counters;
    if (c) free_counters = c->next;
    else c = static_cast<Counter*>(std::malloc(sizeof(Counter)));
    c->refs = 1;
    c->value = 0;
    t->counter = c;
  }
  return t->counter;
}

void counter_drop(Counter* c) {
  if (--c->refs) return;
  c->next = free_counters;
  free_counters = c;
}

TensorExtra* extra_of(Tensor* t) {
  if (!t->extra) t->extra = static_cast<TensorExtra*>(std::calloc(1, sizeof(TensorExtra)));
  return t->extra;
}

void track(Tensor* t) {
  if (!PyObject_GC_IsTracked(py(t))) PyObject_GC_Track(py(t));
}

Ref size_tuple(const int64_t* values, int n) {
  PyTypeObject* type = hooks.size ? reinterpret_cast<PyTypeObject*>(hooks.size) : &PyTuple_Type;
  Ref tuple = type == &PyTuple_Type ? checked(PyTuple_New(n)) : checked(type->tp_alloc(type, n));
  for (int i = 0; i < n; i++)
    PyTuple_SET_ITEM(tuple.py(), i, check(PyLong_FromLongLong(values[i])));
  return tuple;
}

void set_requires_grad(Tensor* t, bool on) {
  if (on == needs_grad(t)) return;
  if (current_grad_fn(t))
    raise(PyExc_RuntimeError, "[requires_grad] was decided by the operation that made the tensor: "
                              "only leaf variables can change it");
  if (on && !rl::is_differentiable(t->layout->dtype))
    raise(PyExc_RuntimeError,
        "[requires_grad] only floating and complex tensors have a gradient, got %s",
        dtype_name(t->layout->dtype));
  t->requires_grad = on;
  facts_changed(t);
}

void tensor_init(PyObject* m) {
  TensorType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "Tensor", TensorType);
  Ref priority = checked(PyFloat_FromDouble(1000));  // numpy's scalars leave operators to us
  check(PyObject_SetAttrString(
      reinterpret_cast<PyObject*>(TensorType), "__array_priority__", priority.py()));
}

}  // namespace core
