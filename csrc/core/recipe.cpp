// Recipe, FusedKernel and GemmRecipe: the Python objects that make_plan returns and programs call.
// Takes plain numbers and strings; invariant: a recipe's kernel exists and its counts agree with
// the kernel's entry.
#include "convert.h"
#include "cuda.h"
#include "dtype.h"
#include "plan.h"

namespace core {

PyTypeObject *RecipeType, *FusedKernelType, *GemmRecipeType;

namespace {

RecipeObject* self_of(PyObject* o) { return reinterpret_cast<RecipeObject*>(o); }

void read_rule(RecipeObject* r, const char* rule, unsigned rows, const char* in_kinds,
    const char* out_kinds, PyObject* out_dtypes) {
  static const char* const rules[] = {"broadcast", "rows", "table", "into_table", "sized"};
  int found = -1;
  for (int i = 0; i < 5; i++)
    if (!std::strcmp(rule, rules[i])) found = i;
  if (found < 0) raise(PyExc_ValueError, "[Recipe] no layout rule '%s'", rule);
  rl::Recipe& p = r->recipe;
  p.rule = static_cast<rl::Rule>(found);
  p.rows = rows;
  p.ninputs = static_cast<int>(std::strlen(in_kinds));
  p.noutputs = static_cast<int>(std::strlen(out_kinds));
  Ref dtypes = checked(PySequence_Tuple(out_dtypes));
  if (p.ninputs > rl::kMaxInputs || p.noutputs > rl::kMaxOutputs || p.noutputs < 1 ||
      PyTuple_GET_SIZE(dtypes.py()) != p.noutputs)
    raise(PyExc_ValueError, "[Recipe] %d inputs and %d outputs with %zd dtypes; at most %d and %d",
        p.ninputs, p.noutputs, PyTuple_GET_SIZE(dtypes.py()), rl::kMaxInputs, rl::kMaxOutputs);
  for (int i = 0; i < p.ninputs; i++) {
    if (in_kinds[i] != 'F' && in_kinds[i] != 'P')
      raise(PyExc_ValueError, "[Recipe] operand kind '%c' is neither F nor P", in_kinds[i]);
    p.in[i] = in_kinds[i] == 'F' ? rl::Operand::Full : rl::Operand::PerRow;
  }
  for (int i = 0; i < p.noutputs; i++) {
    const char* at = std::strchr("SCKD", out_kinds[i]);
    if (!at)
      raise(PyExc_ValueError, "[Recipe] output kind '%c' is none of S, C, K, D", out_kinds[i]);
    p.out[i] = static_cast<rl::Output>(at - "SCKD");
    p.out_dtype[i] = dtype_from(PyTuple_GET_ITEM(dtypes.py(), i));
  }
}

void check_counts(const RecipeObject* r) {
  const rl::KernelEntry* k = r->recipe.kernel;
  if (r->nnumbers > kNumbers)
    raise(PyExc_ValueError, "[Recipe] %d numbers; at most %d", r->nnumbers, kNumbers);
  if (k->inputs != r->recipe.ninputs || k->outputs != r->recipe.noutputs ||
      k->numbers != r->nnumbers)
    raise(PyExc_ValueError,
        "[Recipe] kernel %s takes %d operands, %d outputs, %d numbers; the recipe has %d, %d, %d",
        k->key, k->inputs, k->outputs, k->numbers, r->recipe.ninputs, r->recipe.noutputs,
        r->nnumbers);
}

char number_kind(const char* text) {
  if (!text || (text[0] != 'f' && text[0] != 'i' && text[0] != 'b') || text[1])
    raise(PyExc_ValueError, "[Recipe] a number is 'f', 'i' or 'b'");
  return text[0];
}

PyObject* recipe_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"kernel_key", "rule", "rows_mask", "in_kinds", "out_kinds",
      "out_dtypes", "numbers", "sizes", "nonempty", nullptr};
  PyObject *key, *dtypes, *numbers = nullptr, *sizes = Py_None;
  const char *rule, *in_kinds, *out_kinds;
  unsigned rows;
  int nonempty = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsIssO|OOp", const_cast<char**>(keywords), &key,
          &rule, &rows, &in_kinds, &out_kinds, &dtypes, &numbers, &sizes, &nonempty))
    return nullptr;
  return guarded([&] {
    Own<RecipeObject> r(self_of(check(type->tp_alloc(type, 0))));
    r->vectorcall = recipe_vectorcall;
    const bool device = is_device_kernel(key);
    if (!device && !PyUnicode_Check(key))
      raise(PyExc_TypeError, "[Recipe] a kernel is a key or a DeviceKernel, not %s", Py_TYPE(key)->tp_name);
    r->key = device ? check(PyUnicode_FromString(device_kernel_of(key)->key)) : Py_NewRef(key);
    r->owner = device ? Py_NewRef(key) : nullptr;
    r->sizes = sizes == Py_None ? -1 : static_cast<int>(read_int("sizes", sizes));
    read_rule(r.get(), rule, rows, in_kinds, out_kinds, dtypes);
    r->recipe.nonempty = nonempty;
    r->recipe.kernel = device ? device_kernel_of(key) : rl::kernel_find(PyUnicode_AsUTF8(r->key));
    if (!r->recipe.kernel) raise(PyExc_KeyError, "[Recipe] no precompiled kernel %U", key);
    Ref list = numbers ? checked(PySequence_Tuple(numbers)) : checked(PyTuple_New(0));
    r->nnumbers = static_cast<int>(PyTuple_GET_SIZE(list.py()));
    r->numbers = new NumberSlot[r->nnumbers + 1];
    for (int i = 0; i < r->nnumbers; i++) {
      const char* how;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list.py(), i),
              "is;numbers are (parameter, 'f', 'i' or 'b')", &r->numbers[i].param, &how))
        throw PythonError();
      r->numbers[i].how = number_kind(how);
    }
    check_counts(r.get());
    return r.release_object();
  });
}

PyObject* fused_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"pointer", "name", "rule", "rows_mask", "in_kinds", "out_kinds",
      "out_dtypes", "numbers", "outer", "inner", "serial", "cost", "origin", "owner", "phased",
      nullptr};
  PyObject *pointer, *name, *dtypes, *origin = nullptr, *owner = Py_None, *phased = Py_None;
  const char *rule, *in_kinds, *out_kinds, *numbers;
  unsigned rows;
  int outer = 0, inner = 0, serial = 0, cost = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUsIssOs|iiiiUOO", const_cast<char**>(keywords),
          &pointer, &name, &rule, &rows, &in_kinds, &out_kinds, &dtypes, &numbers, &outer, &inner,
          &serial, &cost, &origin, &owner, &phased))
    return nullptr;
  return guarded([&] {
    Own<RecipeObject> r(self_of(check(type->tp_alloc(type, 0))));
    r->vectorcall = recipe_vectorcall;
    r->key = Py_NewRef(name);
    r->origin = origin ? Py_NewRef(origin) : PyUnicode_FromString("");
    r->owner = Py_NewRef(owner);  // keeps the code loaded
    r->sizes = -1;
    read_rule(r.get(), rule, rows, in_kinds, out_kinds, dtypes);
    r->nnumbers = static_cast<int>(std::strlen(numbers));
    r->numbers = new NumberSlot[r->nnumbers + 1];
    for (int i = 0; i < r->nnumbers; i++) {
      char one[2] = {numbers[i], 0};
      r->numbers[i] = {i, number_kind(one)};
    }
    if (is_device_kernel(pointer)) {  // loops and the rest are the record's
      r->recipe.kernel = device_kernel_of(pointer);
      Py_XSETREF(r->owner, check(PyTuple_Pack(2, pointer, owner)));
      check_counts(r.get());
      return r.release_object();
    }
    void* address = PyLong_AsVoidPtr(pointer);
    if (!address) {
      if (PyErr_Occurred()) throw PythonError();
      raise(PyExc_ValueError, "[FusedKernel] %U has a null pointer", name);
    }
    r->own = {PyUnicode_AsUTF8(r->key), reinterpret_cast<rl::Kernel>(address), outer, inner,
        r->recipe.ninputs, r->recipe.noutputs, r->nnumbers, serial, cost,
        PyUnicode_AsUTF8(r->origin)};
    r->recipe.kernel = &r->own;
    if (phased != Py_None) {
      PyObject* part;
      long long phases, parallel, state, size;
      if (!PyTuple_Check(phased) ||
          !PyArg_ParseTuple(phased, "OLLLL", &part, &phases, &parallel, &state, &size))
        raise(PyExc_TypeError,
            "[FusedKernel] phased is (pointer, phases, parallel, state, size)");
      void* at = PyLong_AsVoidPtr(part);
      if (!at) raise(PyExc_ValueError, "[FusedKernel] %U has a null pointer", name);
      r->phased = {reinterpret_cast<rl::PhasedRow::Part>(at), phases, parallel, state, size};
      r->recipe.phased = &r->phased;
    }
    check_counts(r.get());
    return r.release_object();
  });
}

void recipe_dealloc(PyObject* o) {
  RecipeObject* r = self_of(o);
  PyTypeObject* type = Py_TYPE(o);
  for (int i = 0; i < r->memo_count; i++) {
    for (int k = 0; k < r->recipe.ninputs; k++) rl::decref(r->memo[i].in[k]);
    for (int k = 0; k < r->recipe.noutputs; k++) {
      rl::decref(r->memo[i].outs[k]);
      if (r->memo[i].given[k]) rl::decref(r->memo[i].given[k]);
    }
    std::free(r->memo[i].loop);
  }
  delete[] r->memo;
  delete[] r->numbers;
  Py_XDECREF(r->key);
  Py_XDECREF(r->origin);
  Py_XDECREF(r->owner);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* recipe_repr(PyObject* o) {
  return PyUnicode_FromFormat("<%s %U>", Py_TYPE(o)->tp_name, self_of(o)->key);
}
PyObject* get_key(PyObject* o, void*) { return Py_NewRef(self_of(o)->key); }
PyObject* get_origin(PyObject* o, void*) {
  return PyUnicode_FromString(
      self_of(o)->recipe.kernel->origin ? self_of(o)->recipe.kernel->origin : "");
}

PyObject* gemm_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"x", "y", "bias", "alpha", "beta", "out_dtype", nullptr};
  PyObject *bias = Py_None, *alpha = Py_None, *beta = Py_None, *dtype = Py_None;
  int x, y;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ii|OOOO", const_cast<char**>(keywords), &x, &y,
          &bias, &alpha, &beta, &dtype))
    return nullptr;
  return guarded([&] {
    auto index = [](const char* name, PyObject* o) {
      return o == Py_None ? -1 : static_cast<int>(read_int(name, o));
    };
    int values[4] = {index("bias", bias), index("alpha", alpha), index("beta", beta),
        dtype == Py_None ? -1 : static_cast<int>(dtype_from(dtype))};
    GemmRecipeObject* g = reinterpret_cast<GemmRecipeObject*>(check(type->tp_alloc(type, 0)));
    g->x = x;
    g->y = y;
    g->bias = values[0];
    g->alpha = values[1];
    g->beta = values[2];
    g->out_dtype = values[3];
    return reinterpret_cast<PyObject*>(g);
  });
}
void gemm_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyGetSetDef getset[] = {
    {"key", get_key, nullptr, "the kernel's key or name", nullptr},
    {"origin", get_origin, nullptr, "the declaration that it came from", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(RecipeObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot recipe_slots[] = {
    {Py_tp_new, fn(recipe_new)},
    {Py_tp_dealloc, fn(recipe_dealloc)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_repr, fn(recipe_repr)},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Slot fused_slots[] = {
    {Py_tp_new, fn(fused_new)},
    {Py_tp_dealloc, fn(recipe_dealloc)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_repr, fn(recipe_repr)},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Slot gemm_slots[] = {
    {Py_tp_new, fn(gemm_new)}, {Py_tp_dealloc, fn(gemm_dealloc)}, {0, nullptr}};
constexpr unsigned kCallable = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
PyType_Spec recipe_spec = {
    "rushlight._core.Recipe", sizeof(RecipeObject), 0, kCallable, recipe_slots};
PyType_Spec fused_spec = {
    "rushlight._core.FusedKernel", sizeof(RecipeObject), 0, kCallable, fused_slots};
PyType_Spec gemm_spec = {
    "rushlight._core.GemmRecipe", sizeof(GemmRecipeObject), 0, Py_TPFLAGS_DEFAULT, gemm_slots};

}  // namespace

void plan_init(PyObject* m) {
  RecipeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&recipe_spec)));
  FusedKernelType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&fused_spec)));
  GemmRecipeType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&gemm_spec)));
  add_type(m, "Recipe", RecipeType);
  add_type(m, "FusedKernel", FusedKernelType);
  add_type(m, "GemmRecipe", GemmRecipeType);
  routine_init(m);
  assembly_init(m);
}

}  // namespace core
