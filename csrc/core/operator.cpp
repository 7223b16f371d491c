// Operator: parameters, binding and the call. Takes Python arguments; gives what the plan, the view
// rule, the in-place rule or Python's dispatcher returns. Invariant: after `bind` there is one
// value a parameter; a call that fails leaves its operands as they were.
#include "operator.h"

#include "devices.h"
#include "dtype.h"
#include "plan.h"
#include "records.h"
#include "tape.h"

namespace core {

PyTypeObject* OperatorType;
Operator* view_operators[kViewKinds];

namespace {

uint32_t operators = 0;
Operator* self_of(PyObject* o) { return reinterpret_cast<Operator*>(o); }
PyObject* py(Operator* op) { return reinterpret_cast<PyObject*>(op); }

struct KindName {
  const char* name;
  ParamKind kind;
};
const KindName kind_names[] = {
    {"tensor", ParamKind::Tensor},
    {"tensors", ParamKind::Tensors},
    {"number", ParamKind::Number},
    {"float", ParamKind::Float},
    {"symint", ParamKind::SymInt},
    {"symints", ParamKind::SymInts},
    {"int", ParamKind::Int},
    {"bool", ParamKind::Bool},
    {"str", ParamKind::Str},
    {"dtype", ParamKind::DType},
    {"ints", ParamKind::Ints},
};
const char* const view_names[kViewKinds] = {"", "select", "slice", "permute", "transpose", "reshape", "view",
    "expand", "unsqueeze", "squeeze", "as_strided", "alias", "narrow", "diagonal", "unfold",
    "view_as_real", "view_as_complex"};

Param read_param(PyObject* o) {
  Param p{};
  const char* kind;
  PyObject* name;
  int keyword_only = 0;
  PyObject* fallback = nullptr;
  Ref tuple = checked(PySequence_Tuple(o));
  if (!PyArg_ParseTuple(tuple.py(), "Us|Op;a param is (name, kind, default, keyword_only)", &name,
          &kind, &fallback, &keyword_only))
    throw PythonError();
  std::string text = kind;
  if (!text.empty() && text.back() == '!') {
    p.structural = true;
    text.pop_back();
  }
  if (!text.empty() && text.back() == '?') {
    p.optional = true;
    text.pop_back();
  }
  p.kind = ParamKind::Object;
  for (const KindName& k : kind_names)
    if (text == k.name) p.kind = k.kind;
  p.name = Py_NewRef(name);
  PyUnicode_InternInPlace(&p.name);
  // The marker for "required" is Ellipsis or a missing entry: None is a default like any other.
  p.fallback = fallback && fallback != Py_Ellipsis ? Py_NewRef(fallback) : nullptr;
  p.keyword_only = keyword_only;
  return p;
}

std::string signature(const Operator* op) {
  std::string text = std::string(op->text) + "(";
  for (int i = 0; i < op->nparams; i++) {
    const Param& p = op->params[i];
    if (i) text += ", ";
    if (p.keyword_only && (i == 0 || !op->params[i - 1].keyword_only)) text += "*, ";
    Ref given(PySequence_GetItem(op->params_object, i));
    Ref kind(given ? PySequence_GetItem(given.py(), 1) : nullptr);
    text += kind ? PyUnicode_AsUTF8(kind.py()) : "?";
    text += " ";
    text += PyUnicode_AsUTF8(p.name);
    if (p.fallback) {
      Ref shown(PyObject_Repr(p.fallback));
      text += "=";
      text += shown ? PyUnicode_AsUTF8(shown.py()) : "?";
    }
  }
  PyErr_Clear();
  return text + ")";
}

bool integer_like(PyObject* o) { return PyLong_Check(o) || PyIndex_Check(o) || is_value(o); }

int find_param(const Operator* op, PyObject* name) {
  for (int i = 0; i < op->nparams; i++)
    if (op->params[i].name == name) return i;
  for (int i = 0; i < op->nparams; i++)
    if (PyUnicode_Compare(op->params[i].name, name) == 0) return i;
  static const char* const aliases[][2] = {
      {"input", "self"}, {"axis", "dim"}, {"keepdims", "keepdim"}};
  for (auto& alias : aliases)
    if (PyUnicode_CompareWithASCIIString(name, alias[0]) == 0)
      for (int i = 0; i < op->nparams; i++)
        if (PyUnicode_CompareWithASCIIString(op->params[i].name, alias[1]) == 0) return i;
  return -1;
}

// Positional, keyword and default arguments -> one value a parameter.
void bind(
    const Operator* op, Call& call, PyObject* const* args, int n, PyObject* names, PyObject** out) {
  PyObject** values = call.values;
  int taken = n;
  if (op->gather >= 0 && n > op->gather &&
      (n > op->npositional || integer_like(args[op->gather])) &&
      integer_like(args[op->gather])) {  // x.view(2, 3)
    Ref tuple = checked(PyTuple_New(n - op->gather));
    for (int i = op->gather; i < n; i++)
      PyTuple_SET_ITEM(tuple.py(), i - op->gather, Py_NewRef(args[i]));
    for (int i = 0; i < op->gather; i++) values[i] = args[i];
    values[op->gather] = call.keep(std::move(tuple));
    taken = op->gather + 1;
  } else {
    if (n > op->npositional)
      raise(PyExc_TypeError, "%s() takes %d positional argument%s but %d were given\n  %s",
          op->text, op->npositional, op->npositional == 1 ? "" : "s", n, signature(op).c_str());
    for (int i = 0; i < n; i++) values[i] = args[i];
  }
  for (int i = taken; i < op->nparams; i++) values[i] = op->params[i].fallback;
  if (names) {
    uint32_t set = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); k++) {
      PyObject* name = PyTuple_GET_ITEM(names, k);
      PyObject* value = args[n + k];
      int i = find_param(op, name);
      if (i < 0) {
        if (PyUnicode_CompareWithASCIIString(name, "out") == 0 && op->view == ViewKind::None &&
            !op->functional) {
          if (value != Py_None) *out = value;
          continue;
        }
        raise(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'\n  %s", op->text, name,
            signature(op).c_str());
      }
      if (i < taken || (set >> i & 1))
        raise(PyExc_TypeError, "%s() got multiple values for argument '%U'\n  %s", op->text, name,
            signature(op).c_str());
      set |= 1u << i;
      values[i] = value;
    }
  }
  for (int i = taken; i < op->nparams; i++)
    if (!values[i]) {
      std::string missing;
      int count = 0;
      for (int k = i; k < op->nparams; k++)
        if (!values[k])
          missing += std::string(count++ ? "\", \"" : "") + PyUnicode_AsUTF8(op->params[k].name);
      raise(PyExc_TypeError, "%s() missing %d required positional argument%s: \"%s\"\n  %s",
          op->text, count, count == 1 ? "" : "s", missing.c_str(), signature(op).c_str());
    }
}

Ref perform(Operator* twin, Call& call, PyObject* out, RecordScope* record) {
  if (twin != call.op || out) return write_call(call, out, twin != call.op);
  bool hit;
  PlanHold hold(plan_find(call, &hit));
  if (record) record->ran(plan_text(hold.plan), hit);
  Ref result = plan_execute(hold.plan, call);
  if (call.needs.size()) record_call(call, hold.plan, result);
  return result;
}

Ref run(Operator* twin, Call& call, PyObject* out) {
  if (call.op->view != ViewKind::None && twin == call.op) {
    if (!(mode & kRecords)) return view_call(call);
    RecordScope record(twin, "view");
    record.ran(view_names[static_cast<int>(call.op->view)], true);
    Ref result = view_call(call);
    record.inputs(call);
    record.outputs(result.py());
    return result;
  }
  // What is written has the dtype that it has: no autocast in place and with out=.
  ModeScope scope(twin != call.op || out ? mode & ~kCasting : mode);
  encode(call, Variant::Plain);
  if (call.foreign || (mode & kDispatch)) return dispatch_value(twin, call.values, out);
  if (call.mixed && twin != slots[kCopy]) {  // copy_ goes from one device to another
    unify_devices(call, twin != call.op);
    encode(call, Variant::Plain);
  }
  if (!(mode & kRecords)) return perform(twin, call, out, nullptr);
  RecordScope record(twin, PyUnicode_AsUTF8(twin->kind));
  record.inputs(call);
  Ref result = perform(twin, call, out, &record);
  record.outputs(result.py());
  return result;
}

// Several outputs as the operator's own kind of tuple. Takes over the reference.
__attribute__((noinline)) PyObject* named(PyTypeObject* type, PyObject* result) {
  Ref outs(result);
  if (!PyTuple_CheckExact(outs.py())) return outs.release();
  const Py_ssize_t n = PyTuple_GET_SIZE(outs.py());
  Ref made = checked(type->tp_alloc(type, n));
  for (Py_ssize_t i = 0; i < n; i++)
    PyTuple_SET_ITEM(made.py(), i, Py_NewRef(PyTuple_GET_ITEM(outs.py(), i)));
  return made.release();
}

// ---- the Python type

PyObject* op_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {
      "name", "params", "kind", "declaration", "outputs", "view", "differentiable", nullptr};
  PyObject *name, *params, *kind = nullptr, *declaration = Py_None, *view = Py_None;
  int outputs = 1, differentiable = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|UOiOp", const_cast<char**>(keywords), &name,
          &params, &kind, &declaration, &outputs, &view, &differentiable))
    return nullptr;
  return guarded([&] {
    Ref list = checked(PySequence_Tuple(params));
    int n = static_cast<int>(PyTuple_GET_SIZE(list.py()));
    if (n > kMaxParams)
      raise(PyExc_ValueError, "[%U] %d parameters; at most %d are supported", name, n, kMaxParams);
    Operator* op = self_of(check(type->tp_alloc(type, 0)));
    op->vectorcall = operator_vectorcall;
    op->name = Py_NewRef(name);
    op->text = check(reinterpret_cast<PyObject*>(const_cast<char*>(PyUnicode_AsUTF8(name))))
                   ? PyUnicode_AsUTF8(name)
                   : "";
    op->kind = kind ? Py_NewRef(kind) : PyUnicode_FromString("");
    op->declaration = Py_NewRef(declaration);
    op->doc = Py_NewRef(Py_None);
    op->params = new Param[n ? n : 1];
    op->gather = op->sizes = -1;
    op->outputs = outputs;
    op->index = ++operators;
    op->differentiable = differentiable;
    for (int i = 0; i < n; i++) {
      op->params[i] = read_param(PyTuple_GET_ITEM(list.py(), i));
      op->nparams = i + 1;
      if (!op->params[i].keyword_only) op->npositional = i + 1;
    }
    op->params_object = list.release();
    if (op->npositional) {
      ParamKind last = op->params[op->npositional - 1].kind;
      if (last == ParamKind::SymInts || last == ParamKind::Ints) op->gather = op->npositional - 1;
    }
    if (view != Py_None) {
      const char* text = PyUnicode_AsUTF8(view);
      if (!text) throw PythonError();
      for (int v = 1; v < kViewKinds; v++)
        if (!std::strcmp(text, view_names[v])) op->view = static_cast<ViewKind>(v);
      if (op->view == ViewKind::None)
        raise(PyExc_ValueError, "[%U] no native view rule '%s'", name, text);
      Operator*& first = view_operators[static_cast<int>(op->view)];
      if (!first) first = op;
    }
    Py_INCREF(py(op));  // for ever
    return py(op);
  });
}

PyObject* make_inplace(PyObject* o, PyObject*) {
  return guarded([&] {
    Operator* op = self_of(o);
    if (op->functional) return Py_NewRef(o);
    if (!op->inplace) {
      if (!op->nparams || op->params[0].kind != ParamKind::Tensor)
        raise(PyExc_TypeError, "[%s] has no in-place form: its first parameter is no tensor",
            op->text);
      Operator* twin = self_of(check(OperatorType->tp_alloc(OperatorType, 0)));
      char* head = reinterpret_cast<char*>(twin) + offsetof(Operator, vectorcall);
      std::memcpy(head, &op->vectorcall, sizeof(Operator) - offsetof(Operator, vectorcall));
      twin->name = check(PyUnicode_FromFormat("%U_", op->name));
      twin->text = PyUnicode_AsUTF8(twin->name);
      for (PyObject* p : {twin->kind, twin->params_object, twin->declaration, twin->doc})
        Py_INCREF(p);
      twin->view = ViewKind::None;
      twin->index = ++operators;
      twin->functional = op;
      twin->inplace = nullptr;
      op->inplace = twin;
    }
    return Py_NewRef(py(op->inplace));
  });
}

PyObject* descr_get(PyObject* o, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(o, instance) : Py_NewRef(o);
}
PyObject* repr(PyObject* o) { return PyUnicode_FromFormat("<operator %U>", self_of(o)->name); }
template <PyObject* Operator::* Field>
PyObject* get(PyObject* o, void*) {
  return Py_NewRef(self_of(o)->*Field);
}
template <PyObject* Operator::* Field>
int put(PyObject* o, PyObject* value, void*) {
  Py_XSETREF(self_of(o)->*Field, Py_NewRef(value ? value : Py_None));
  return 0;
}
PyObject* get_index(PyObject* o, void*) { return PyLong_FromUnsignedLong(self_of(o)->index); }
PyObject* get_outputs(PyObject* o, void*) { return PyLong_FromLong(self_of(o)->outputs); }
PyObject* get_inplace(PyObject* o, void*) {
  return Py_NewRef(self_of(o)->inplace ? py(self_of(o)->inplace) : Py_None);
}
PyObject* get_functional(PyObject* o, void*) {
  return Py_NewRef(self_of(o)->functional ? py(self_of(o)->functional) : Py_None);
}
PyObject* get_signature(PyObject* o, void*) {
  return PyUnicode_FromString(signature(self_of(o)).c_str());
}
PyObject* get_view(PyObject* o, void*) {
  ViewKind v = self_of(o)->view;
  return v == ViewKind::None ? Py_NewRef(Py_None)
                             : PyUnicode_FromString(view_names[static_cast<int>(v)]);
}

PyObject* get_result(PyObject* o, void*) {
  PyTypeObject* type = self_of(o)->result;
  return Py_NewRef(type ? reinterpret_cast<PyObject*>(type) : Py_None);
}
int put_result(PyObject* o, PyObject* value, void*) {
  const bool none = !value || value == Py_None;
  if (!none && (!PyType_Check(value) ||
                   !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(value), &PyTuple_Type) ||
                   reinterpret_cast<PyTypeObject*>(value)->tp_basicsize != PyTuple_Type.tp_basicsize)) {
    PyErr_SetString(PyExc_TypeError, "[Operator] result is a named tuple's class");
    return -1;
  }
  Py_XSETREF(self_of(o)->result, reinterpret_cast<PyTypeObject*>(none ? nullptr : Py_NewRef(value)));
  return 0;
}

PyMethodDef methods[] = {
    {"make_inplace", make_inplace, METH_NOARGS,
        "the in-place twin `name_`, whose first operand is its output"},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"name", get<&Operator::name>, nullptr, nullptr, nullptr},
    {"__name__", get<&Operator::name>, nullptr, nullptr, nullptr},
    {"__qualname__", get<&Operator::name>, nullptr, nullptr, nullptr},
    {"__doc__", get<&Operator::doc>, put<&Operator::doc>, nullptr, nullptr},
    {"kind", get<&Operator::kind>, nullptr, nullptr, nullptr},
    {"params", get<&Operator::params_object>, nullptr, "as given", nullptr},
    {"declaration", get<&Operator::declaration>, put<&Operator::declaration>, nullptr, nullptr},
    {"index", get_index, nullptr, "its number in plan keys", nullptr},
    {"outputs", get_outputs, nullptr, nullptr, nullptr},
    {"inplace", get_inplace, nullptr, "the in-place twin, None until made", nullptr},
    {"functional", get_functional, nullptr, "of an in-place twin: the operator itself", nullptr},
    {"signature", get_signature, nullptr, nullptr, nullptr},
    {"view", get_view, nullptr, "the native view rule, or None", nullptr},
    {"result", get_result, put_result, "what calls from Python make of several outputs: a tuple's subclass",
        nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Operator, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
template <class F>
void* fn(F f) {
  return reinterpret_cast<void*>(f);
}
PyType_Slot type_slots[] = {
    {Py_tp_new, fn(op_new)},
    {Py_tp_call, fn(PyVectorcall_Call)},
    {Py_tp_descr_get, fn(descr_get)},
    {Py_tp_repr, fn(repr)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"rushlight._core.Operator", sizeof(Operator), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, type_slots};

}  // namespace

PyObject* operator_vectorcall(
    PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  try {
    Operator* twin = self_of(self);
    Call call(twin->functional ? twin->functional : twin);
    PyObject* out = nullptr;
    bind(twin, call, args, static_cast<int>(PyVectorcall_NARGS(nargsf)), names, &out);
    PyObject* result = run(twin, call, out).release();
    return twin->result ? named(twin->result, result) : result;
  } catch (...) {
    translate();
    note_user_line();
    return nullptr;
  }
}

Ref operator_apply(Operator* twin, PyObject* const* values, int n) {
  Call call(twin->functional ? twin->functional : twin);
  PyObject* out = nullptr;
  if (n == twin->nparams || n == twin->nparams + 1) {
    for (int i = 0; i < twin->nparams; i++) call.values[i] = values[i];
    if (n > twin->nparams) out = values[n - 1];
  } else bind(twin, call, values, n, nullptr, &out);
  return run(twin, call, out);
}

Ref dispatch_value(Operator* op, PyObject* const* values, PyObject* out) {
  if (!hooks.dispatch)
    raise(PyExc_TypeError, "[%s] no dispatcher is registered for operands that are no tensors",
        op->text);
  Ref tuple = checked(PyTuple_New(op->nparams));
  for (int i = 0; i < op->nparams; i++) PyTuple_SET_ITEM(tuple.py(), i, Py_NewRef(values[i]));
  PyObject* args[3] = {py(op), tuple.py(), out ? out : Py_None};
  return checked(PyObject_Vectorcall(hooks.dispatch, args, 3, nullptr));
}

void operator_init(PyObject* m) {
  OperatorType = reinterpret_cast<PyTypeObject*>(check(PyType_FromSpec(&spec)));
  add_type(m, "Operator", OperatorType);
}

}  // namespace core
