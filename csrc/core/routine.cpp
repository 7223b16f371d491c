// RoutineRecipe: a routine of rt with its static ints and its outputs' layouts; and running it. In
// its place a GPU's kernel may stand that takes whole operands (cuda_plans.cpp runs those).
// Takes a plan (or a recipe) and a Call; gives the outputs, or fills given ones.
// Invariant: the routine sees contiguous memory unless the recipe says `strided`, and no output that
// overlaps an operand, except the one that it writes.
#include "convert.h"
#include "cuda.h"
#include "dtype.h"
#include "plan.h"
#include "released.h"

namespace core {

PyTypeObject* RoutineRecipeType;

namespace {

constexpr int64_t kShort = 16384;  // elements: below, the GIL stays

RoutineRecipeObject* self_of(PyObject* o) { return reinterpret_cast<RoutineRecipeObject*>(o); }

Layout* read_layout(PyObject* entry) {
  PyObject *shape, *strides, *dtype;
  if (!PyArg_ParseTuple(entry, "OOO;outputs are (shape, strides, dtype)", &shape, &strides, &dtype))
    throw PythonError();
  return layout_read("RoutineRecipe", shape, strides, dtype_from(dtype));
}

PyObject* recipe_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "routine", "outputs", "ints", "numbers", "writes", "strided", "kernel", nullptr};
  PyObject *outputs, *ints = nullptr, *numbers = nullptr, *kernel = Py_None;
  const char* name;
  int writes = -1, strided = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|OOipO", const_cast<char**>(keywords), &name,
          &outputs, &ints, &numbers, &writes, &strided, &kernel))
    return nullptr;
  return guarded([&] {
    Own<RoutineRecipeObject> r(self_of(check(type->tp_alloc(type, 0))));
    r->ints = new std::vector<int64_t>;
    r->numbers = new std::vector<NumberSlot>;
    r->writes = writes;
    r->strided = strided;
    r->routine = rl::routine_find(name);
    if (kernel != Py_None) {
      if (!is_device_kernel(kernel))
        raise(PyExc_TypeError, "[RoutineRecipe] the kernel of %s is a DeviceKernel, got %s", name,
            Py_TYPE(kernel)->tp_name);
      r->kernel = Py_NewRef(kernel);
    } else if (!r->routine) {
      raise(PyExc_KeyError, "[RoutineRecipe] no routine %s", name);
    }
    Ref outs = checked(PySequence_Tuple(outputs));
    if (PyTuple_GET_SIZE(outs.py()) < 1 || PyTuple_GET_SIZE(outs.py()) > 4)
      raise(PyExc_ValueError, "[RoutineRecipe] %s with %zd outputs; 1 to 4 are possible", name,
          PyTuple_GET_SIZE(outs.py()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outs.py()); i++) {
      r->outs[i] = read_layout(PyTuple_GET_ITEM(outs.py(), i));
      r->nouts++;
    }
    if (ints) {
      Small<int64_t, 8> values;
      read_ints("RoutineRecipe", ints, values);
      r->ints->assign(values.data(), values.data() + values.size());
    }
    Ref list = numbers ? checked(PySequence_Tuple(numbers)) : checked(PyTuple_New(0));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.py()); i++) {
      NumberSlot slot;
      const char* how;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list.py(), i),
              "is;numbers are (parameter, 'f', 'i' or 'b')", &slot.param, &how))
        throw PythonError();
      slot.how = how[0];
      r->numbers->push_back(slot);
    }
    if (r->numbers->size() > kNumbers)
      raise(PyExc_ValueError, "[RoutineRecipe] %zu numbers; at most %d", r->numbers->size(),
          kNumbers);
    return r.release_object();
  });
}

void recipe_dealloc(PyObject* o) {
  RoutineRecipeObject* r = self_of(o);
  PyTypeObject* type = Py_TYPE(o);
  for (int i = 0; i < r->nouts; i++) rl::decref(r->outs[i]);
  delete r->ints;
  delete r->numbers;
  Py_XDECREF(r->kernel);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* recipe_repr(PyObject* o) {
  const RoutineRecipeObject* r = self_of(o);
  const char* name = r->kernel ? device_kernel_of(r->kernel)->key : r->routine->name;
  return PyUnicode_FromFormat("<RoutineRecipe %s>", name);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot slots_[] = {{Py_tp_new, fn(recipe_new)}, {Py_tp_dealloc, fn(recipe_dealloc)},
    {Py_tp_repr, fn(recipe_repr)}, {0, nullptr}};
PyType_Spec spec = {"rushlight._core.RoutineRecipe", sizeof(RoutineRecipeObject), 0,
    Py_TPFLAGS_DEFAULT, slots_};

}  // namespace

Layout* layout_read(
    const char* what, PyObject* shape, PyObject* strides, DType dtype, Device device) {
  Small<int64_t, 8> sizes, steps;
  read_ints(what, shape, sizes);
  read_ints(what, strides, steps);
  if (sizes.size() != steps.size())
    raise(PyExc_ValueError, "[%s] %d sizes and %d strides", what, sizes.size(), steps.size());
  return rl::layout_intern(dtype, device, sizes.size(), sizes.data(), steps.data());
}

void routine_build(Plan* p, const Call& call) {
  const RoutineRecipeObject* r = p->routine;
  if (r->kernel)
    raise(PyExc_RuntimeError, "[%s] a kernel of the GPU takes tensors there", call.op->text);
  if (r->writes >= call.tensors.size())
    raise(PyExc_RuntimeError, "[%s] the routine writes operand %d of %d", call.op->text, r->writes,
        call.tensors.size());
  p->nouts = r->nouts;
  for (int i = 0; i < r->nouts; i++) {
    rl::incref(r->outs[i]);
    p->outs[i] = r->outs[i];
  }
  p->memo = new rl::RoutineMemo;
  bool odd = false;
  for (int i = 0; i < call.tensors.size(); i++)
    odd |= !r->strided && !call.tensors[i]->layout->contiguous;
  for (int i = 0; odd && i < call.tensors.size(); i++) {
    Layout* l = call.tensors[i]->layout;
    if (l->contiguous) {
      rl::incref(l);
      p->copies.push_back(l);
    } else {
      p->copies.push_back(rl::layout_dense(l->dtype, l->device, l->ndim, l->dims));
    }
  }
}

void routine_run(Plan* p, Call& call, Tensor* const* outs) {
  const RoutineRecipeObject* r = p->routine;
  const int n = call.tensors.size();
  Small<Ref*, 8> copies;
  struct Freed {
    Small<Ref*, 8>& all;
    ~Freed() {
      for (int i = 0; i < all.size(); i++) delete all[i];
    }
  } freed{copies};
  Small<rl::RoutineOperand, 8> operands;
  Small<Storage*, 12> held;
  int64_t work = 0;
  for (int i = 0; i < n; i++) {
    Tensor* t = call.tensors[i];
    if (i == r->writes) {                            // the output holds its values already, or now
      bool same = t->storage == outs[0]->storage && t->offset == outs[0]->offset &&
                  t->layout == outs[0]->layout;
      if (!same) copy_into(outs[0], t);
      t = outs[0];
    } else if (!p->copies.empty() && t->layout != p->copies[i]) {
      rl::incref(p->copies[i]);
      Own<Tensor> made = tensor_empty(p->copies[i]);
      copy_into(made.get(), t);
      t = made.get();
      copies.push(new Ref(made.release_object()));
    }
    operands.push({data_of(t), t->layout});
    held.push(t->storage);
    work += t->layout->numel;
  }
  Small<rl::RoutineOperand, 4> results;
  for (int i = 0; i < r->nouts; i++) {
    results.push({data_of(outs[i]), outs[i]->layout});
    held.push(outs[i]->storage);
    work += outs[i]->layout->numel;
  }
  Number numbers[kNumbers];
  int count = static_cast<int>(r->numbers->size());
  for (int i = 0; i < count; i++)
    numbers[i] = number_from(call.values[(*r->numbers)[i].param], (*r->numbers)[i].how);
  const rl::RoutineCall given = {call.op->text, operands.data(), results.data(), n, r->nouts,
      r->ints->data(), static_cast<int>(r->ints->size()), numbers, count, p->memo};
  if (work < kShort) r->routine->run(given);
  else run_released(held.data(), held.size(), [&] { r->routine->run(given); });
}

Ref routine_execute(Plan* p, Call& call) {
  const RoutineRecipeObject* r = p->routine;
  Own<Tensor> outs[4];
  Tensor* raw[4];
  for (int i = 0; i < r->nouts; i++) {
    rl::incref(p->outs[i]);
    outs[i] = tensor_empty(p->outs[i]);
    raw[i] = outs[i].get();
  }
  routine_run(p, call, raw);
  if (r->nouts == 1) return Ref(outs[0].release_object());
  Ref tuple = checked(PyTuple_New(r->nouts));
  for (int i = 0; i < r->nouts; i++) PyTuple_SET_ITEM(tuple.py(), i, outs[i].release_object());
  return tuple;
}

void routine_init(PyObject* m) {
  RoutineRecipeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "RoutineRecipe", RoutineRecipeType);
}

}  // namespace core
