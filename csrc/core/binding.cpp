// Binding: a call's arguments to the parameters of a compiled function, and back into a call.
// Invariant: what bind() refuses is a call that the original refuses too, with its own TypeError.
#include "compiled.h"

namespace core {
namespace {

bool same_name(PyObject* a, PyObject* b) {
  return a == b || (PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && !PyUnicode_Compare(a, b));
}

// Keywords into `slots` or `extra` (the dict of **kwargs, or null). False: does not bind.
bool bind_keywords(const CompiledFunction* cf, PyObject* const* values, PyObject* names,
    PyObject** slots, PyObject* extra) {
  PyObject* known = cf->code->co_localsplusnames;
  int last = cf->positional + cf->keyword_only;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); k++) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    int at = cf->code->co_posonlyargcount;
    while (at < last && PyTuple_GET_ITEM(known, at) != name) at++;
    if (at == last) {
      at = cf->code->co_posonlyargcount;
      while (at < last && !same_name(PyTuple_GET_ITEM(known, at), name)) at++;
    }
    if (at < last) {
      if (slots[at]) return false;
      slots[at] = values[k];
    } else if (extra) {
      check(PyDict_SetItem(extra, name, values[k]));
    } else {
      return false;
    }
  }
  return true;
}

bool bind_defaults(const CompiledFunction* cf, Bound& b) {
  PyObject* defaults = cf->function ? PyFunction_GET_DEFAULTS(cf->function) : nullptr;
  PyObject* table = cf->function ? PyFunction_GET_KW_DEFAULTS(cf->function) : nullptr;
  Py_ssize_t n = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  for (int i = 0; i < cf->positional + cf->keyword_only; i++) {
    if (b.slots[i]) continue;
    PyObject* value = nullptr;
    if (i < cf->positional) {
      Py_ssize_t at = i - (cf->positional - n);
      if (at >= 0) value = PyTuple_GET_ITEM(defaults, at);
    } else if (table) {
      value = PyDict_GetItemWithError(table, PyTuple_GET_ITEM(cf->code->co_localsplusnames, i));
      if (!value && PyErr_Occurred()) throw PythonError();
    }
    if (!value) return false;
    b.owned.push(Py_NewRef(value));
    b.slots[i] = value;
    b.defaults = true;
  }
  return true;
}

}  // namespace

bool bind(const CompiledFunction* cf, PyObject* const* args, Py_ssize_t given, PyObject* names,
    Bound& b) {
  if (cf->simple && !names && given == cf->positional && !cf->self) {
    b.locals = args;
    b.direct = true;
    return true;
  }
  int n = cf->positional, flags = cf->code->co_flags, at = 0;
  b.slots.resize(cf->names);
  std::memset(b.slots.data(), 0, sizeof(PyObject*) * cf->names);
  if (cf->self) b.slots[at++] = cf->self;                 // `simple` or not, it has a parameter
  Py_ssize_t taken = given < n - at ? given : n - at;
  for (Py_ssize_t i = 0; i < taken; i++) b.slots[at++] = args[i];
  if (given > taken && !(flags & CO_VARARGS)) return false;
  int place = n + cf->keyword_only;
  if (flags & CO_VARARGS) {
    PyObject* rest = check(PyTuple_New(given - taken));
    b.owned.push(rest);
    for (Py_ssize_t i = taken; i < given; i++)
      PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
    b.slots[place++] = rest;
  }
  PyObject* extra = nullptr;
  if (flags & CO_VARKEYWORDS) {
    b.owned.push(extra = check(PyDict_New()));
    b.slots[place] = extra;
  }
  if (names && !bind_keywords(cf, args + given, names, b.slots.data(), extra)) return false;
  b.locals = b.slots.data();
  return bind_defaults(cf, b);
}

void spread(const CompiledFunction* cf, const Bound& b, Arguments& out) {
  int n = cf->positional, k = cf->keyword_only, flags = cf->code->co_flags, place = n + k;
  for (int i = 0; i < n; i++) out.values.push(b.locals[i]);
  if (flags & CO_VARARGS) {
    PyObject* rest = b.locals[place++];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rest); i++)
      out.values.push(PyTuple_GET_ITEM(rest, i));
  }
  out.positional = out.values.size();
  PyObject* extra = flags & CO_VARKEYWORDS ? b.locals[place] : nullptr;
  Py_ssize_t total = k + (extra ? PyDict_GET_SIZE(extra) : 0);
  if (!total) return;
  out.names = checked(PyTuple_New(total));
  for (int i = 0; i < k; i++) {
    out.values.push(b.locals[n + i]);
    PyTuple_SET_ITEM(out.names.py(), i,
        Py_NewRef(PyTuple_GET_ITEM(cf->code->co_localsplusnames, n + i)));
  }
  PyObject *key, *value;
  for (Py_ssize_t at = 0, i = k; extra && PyDict_Next(extra, &at, &key, &value); i++) {
    out.values.push(value);
    PyTuple_SET_ITEM(out.names.py(), i, Py_NewRef(key));
  }
}

Ref for_function(PyObject* target, PyObject* function) {
  if (!function || !PyFunction_Check(target) || !PyFunction_Check(function))
    return Ref::borrow(target);
  PyObject *mine = PyFunction_GET_CLOSURE(target), *cells = PyFunction_GET_CLOSURE(function);
  if (!mine || !cells || mine == cells) return Ref::borrow(target);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(target));
  auto* original = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  Ref closure = checked(PyTuple_New(PyTuple_GET_SIZE(mine)));
  bool same = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mine); i++) {
    PyObject* name =
        PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - code->co_nfreevars + i);
    PyObject* cell = PyTuple_GET_ITEM(mine, i);
    int first = original->co_nlocalsplus - original->co_nfreevars;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(cells); k++)
      if (same_name(PyTuple_GET_ITEM(original->co_localsplusnames, first + k), name))
        cell = PyTuple_GET_ITEM(cells, k);
    same = same && cell == PyTuple_GET_ITEM(mine, i);
    PyTuple_SET_ITEM(closure.py(), i, Py_NewRef(cell));
  }
  if (same) return Ref::borrow(target);
  Ref made = checked(PyFunction_New(reinterpret_cast<PyObject*>(code), PyFunction_GET_GLOBALS(target)));
  check(PyFunction_SetClosure(made.py(), closure.py()));
  if (PyObject* defaults = PyFunction_GET_DEFAULTS(target))
    check(PyFunction_SetDefaults(made.py(), defaults));
  if (PyObject* defaults = PyFunction_GET_KW_DEFAULTS(target))
    check(PyFunction_SetKwDefaults(made.py(), defaults));
  return made;
}

}  // namespace core
