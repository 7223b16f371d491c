// The checks of guards: reading them from Python tuples, and asking them.
// Invariant: a check keeps no user's object alive that can be referred to weakly: once such an
// object dies, the check fails for ever.
#include "convert.h"
#include "devices.h"
#include "dtype.h"
#include "guards.h"
#include "tape.h"
#include "tensor.h"

namespace core {

TensorFacts::~TensorFacts() {
  Py_XDECREF(reinterpret_cast<PyObject*>(type));
  if (exact) rl::decref(exact);
}

namespace {

const char* const kinds[] = {"is", "isnot", "type", "eq", "none", "len", "keys", "absent", "bool",
    "tensor", "clock", "mode", "alias", "noalias", "ints", "float", "shape", "true"};
static_assert(sizeof kinds / sizeof *kinds == GuardCheck::kKinds);

// ---- reading

int64_t integer(PyObject* o) {
  int64_t v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

int source_number(PyObject* o, int nsources) {
  int64_t v = integer(o);
  if (v < 0 || v >= nsources)
    raise(PyExc_ValueError, "[Guards] source %lld of %d", static_cast<long long>(v), nsources);
  return static_cast<int>(v);
}

void keep(GuardCheck& c, PyObject* o) {
  bool heap = !PyType_Check(o) || PyType_HasFeature(reinterpret_cast<PyTypeObject*>(o),
                                      Py_TPFLAGS_HEAPTYPE);
  PyObject* weak = heap ? PyWeakref_NewRef(o, nullptr) : nullptr;
  if (heap && !weak) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
  }
  c.weak = weak != nullptr;
  c.payload = weak ? weak : Py_NewRef(o);
}

// None: nothing is known; a tuple of ints, with None where a value may vary.
std::vector<int64_t> dims(PyObject* o, int ndim, const char* what) {
  std::vector<int64_t> out(ndim, kAny);
  if (o == Py_None) return out;
  if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) != ndim)
    raise(PyExc_ValueError, "[Guards] %s of a tensor of %d dims: %R", what, ndim, o);
  for (int i = 0; i < ndim; i++)
    if (PyTuple_GET_ITEM(o, i) != Py_None) out[i] = integer(PyTuple_GET_ITEM(o, i));
  return out;
}

bool fixed(const std::vector<int64_t>& values) {
  for (int64_t v : values)
    if (v == kAny) return false;
  return true;
}

// (type, dtype, ndim, requires_grad, sizes, strides[, is_leaf[, device]])
void read_tensor(GuardCheck& c, PyObject* o) {
  PyObject *type, *dtype, *sizes, *strides, *leaf = Py_None, *device = Py_None;
  int ndim, requires_grad;
  if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "O!OipOO|OO", &PyType_Type, &type, &dtype, &ndim,
                               &requires_grad, &sizes, &strides, &leaf, &device)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "[Guards] a tensor check takes a tuple");
    throw PythonError();
  }
  if (ndim < 0 || ndim > rl::kMaxDims) raise(PyExc_ValueError, "[Guards] a tensor of %d dims", ndim);
  TensorFacts* f = c.tensor = new TensorFacts{};
  f->type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
  f->dtype = dtype_from(dtype);
  f->device = device == Py_None ? -1 : static_cast<int>(device_from(device));
  f->ndim = ndim;
  f->requires_grad = requires_grad;
  f->leaf = leaf == Py_None ? -1 : check(PyObject_IsTrue(leaf));
  f->sizes = dims(sizes, ndim, "sizes");
  if (strides == Py_None) {
    f->how = TensorFacts::Contiguous;
  } else if (PyUnicode_Check(strides)) {
    if (PyUnicode_CompareWithASCIIString(strides, "any"))
      raise(PyExc_ValueError, "[Guards] strides are a tuple, None (contiguous) or 'any', not %R",
          strides);
    f->how = TensorFacts::Free;
  } else {
    f->how = TensorFacts::Given;
    f->strides = dims(strides, ndim, "strides");
  }
  if (!fixed(f->sizes) || f->how == TensorFacts::Free) return;
  if (f->how == TensorFacts::Given && !fixed(f->strides)) return;
  for (int64_t v : f->sizes)
    if (v < 0) raise(PyExc_ValueError, "[Guards] sizes of a tensor: %R", sizes);
  Device d = f->device < 0 ? Device::CPU : static_cast<Device>(f->device);
  f->exact = f->how == TensorFacts::Contiguous
                 ? rl::layout_dense(f->dtype, d, ndim, f->sizes.data())
                 : rl::layout_intern(f->dtype, d, ndim, f->sizes.data(), f->strides.data());
}

struct ShapeWord {
  const char* text;
  ShapeStep::Code code;
  int takes;
};
const ShapeWord shape_words[] = {{"+", ShapeStep::Add, 2}, {"-", ShapeStep::Sub, 2},
    {"*", ShapeStep::Mul, 2}, {"//", ShapeStep::FloorDiv, 2}, {"%", ShapeStep::Mod, 2},
    {"neg", ShapeStep::Neg, 1}, {"min", ShapeStep::Min, 2}, {"max", ShapeStep::Max, 2},
    {"==", ShapeStep::Eq, 2}, {"!=", ShapeStep::Ne, 2}, {"<", ShapeStep::Lt, 2},
    {"<=", ShapeStep::Le, 2}, {">", ShapeStep::Gt, 2}, {">=", ShapeStep::Ge, 2},
    {"and", ShapeStep::And, 2}, {"or", ShapeStep::Or, 2}, {"not", ShapeStep::Not, 1}};
constexpr int kShapeStack = 64;

// Entries: an int; ("size", source, dim), ("stride", source, dim), ("offset", source),
// ("int", source), ("len", source); an operation by name.
void read_shape(GuardCheck& c, PyObject* program, int nsources) {
  Ref items = checked(PySequence_Tuple(program));
  int depth = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.py()); i++) {
    PyObject* o = PyTuple_GET_ITEM(items.py(), i);
    ShapeStep s{};
    s.source = -1;
    int takes = 0;
    if (PyLong_Check(o)) {
      s.code = ShapeStep::Constant;
      s.value = integer(o);
    } else if (PyUnicode_Check(o)) {
      bool found = false;
      for (const ShapeWord& w : shape_words)
        if (!PyUnicode_CompareWithASCIIString(o, w.text)) {
          s.code = w.code;
          takes = w.takes;
          found = true;
        }
      if (!found) raise(PyExc_ValueError, "[Guards] no shape operation %R", o);
    } else {
      const char* name;
      PyObject* source;
      long long dim = 0;
      if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "sO|L", &name, &source, &dim))
        raise(PyExc_TypeError, "[Guards] step %zd of a shape program is %R", i, o);
      s.source = source_number(source, nsources);
      s.value = dim;
      if (!std::strcmp(name, "size")) s.code = ShapeStep::Size;
      else if (!std::strcmp(name, "stride")) s.code = ShapeStep::Stride;
      else if (!std::strcmp(name, "offset")) s.code = ShapeStep::Offset;
      else if (!std::strcmp(name, "int")) s.code = ShapeStep::Int;
      else if (!std::strcmp(name, "len")) s.code = ShapeStep::Length;
      else raise(PyExc_ValueError, "[Guards] a shape program reads no '%s'", name);
      bool known = false;
      for (int n : c.sources) known = known || n == s.source;
      if (!known) c.sources.push_back(s.source);
    }
    if (takes > depth) raise(PyExc_ValueError, "[Guards] %R lacks operands: %R", o, program);
    depth += 1 - takes;
    if (depth > kShapeStack) raise(PyExc_ValueError, "[Guards] a shape program is too deep");
    c.shape.push_back(s);
  }
  if (depth != 1) raise(PyExc_ValueError, "[Guards] a shape program leaves %d values", depth);
}

// ---- asking

bool tensor_holds(const TensorFacts& f, PyObject* o) {
  if (Py_TYPE(o) != f.type || !is_tensor(o)) return false;
  const core::Tensor* t = tensor_of(o);
  if (needs_grad(t) != f.requires_grad) return false;
  if (f.leaf >= 0 && (current_grad_fn(tensor_of(o)) == nullptr) != (f.leaf == 1)) return false;
  const Layout* l = t->layout;
  if (f.exact == l) return true;
  if (l->dtype != f.dtype || l->ndim != f.ndim) return false;
  if (f.device >= 0 && static_cast<int>(l->device) != f.device) return false;
  for (int i = 0; i < f.ndim; i++)
    if (f.sizes[i] != kAny && l->shape()[i] != f.sizes[i]) return false;
  if (f.how == TensorFacts::Contiguous) return l->contiguous;
  if (f.how == TensorFacts::Given)
    for (int i = 0; i < f.ndim; i++)
      if (f.strides[i] != kAny && l->strides()[i] != f.strides[i]) return false;
  return true;
}

int64_t length(PyObject* o) {
  if (PyTuple_Check(o)) return PyTuple_GET_SIZE(o);
  if (PyList_Check(o)) return PyList_GET_SIZE(o);
  if (PyDict_CheckExact(o)) return PyDict_GET_SIZE(o);
  int64_t n = PyObject_Size(o);
  if (n < 0) throw PythonError();
  return n;
}

bool keys_hold(PyObject* keys, PyObject* o) {
  if (!PyDict_Check(o)) return false;
  Py_ssize_t n = PyTuple_GET_SIZE(keys);
  if (PyDict_GET_SIZE(o) != n) return false;
  PyObject *key, *value;
  if (PyDict_CheckExact(o)) {
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < n && PyDict_Next(o, &at, &key, &value); i++)
      if (!constants_equal(PyTuple_GET_ITEM(keys, i), key)) return false;
    return true;
  }
  Ref seen = checked(PySequence_Tuple(o));                // OrderedDict keeps an order of its own
  if (PyTuple_GET_SIZE(seen.py()) != n) return false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!constants_equal(PyTuple_GET_ITEM(keys, i), PyTuple_GET_ITEM(seen.py(), i))) return false;
  return true;
}

bool absent(PyObject* o, PyObject* name) {
  if (PyDict_Check(o)) return !check(PyDict_Contains(o, name));
  if (Py_TYPE(o) == &PyDictProxy_Type) return !check(PySequence_Contains(o, name));
  PyObject* found;
  int r = check(optional_attribute(o, name, &found));
  Py_XDECREF(found);
  return r == 0;
}

PyObject* clock_name() {
  static PyObject* name = PyUnicode_InternFromString("_changed_at");
  return check(name);
}

bool clock_holds(PyObject* o, int64_t n) {
  PyObject** fields = _PyObject_GetDictPtr(o);
  PyObject* at = fields && *fields ? PyDict_GetItemWithError(*fields, clock_name()) : nullptr;
  if (!at && PyErr_Occurred()) throw PythonError();
  return at && PyLong_CheckExact(at) && integer(at) == n;
}

bool storages_distinct(const std::vector<int>& sources, PyObject* const* values) {
  Small<const void*, 32> seen;
  for (int s : sources) {
    PyObject* o = values[s];
    const void* what = o;
    if (is_tensor(o)) what = tensor_of(o)->storage;
    for (int i = 0; i < seen.size(); i++)
      if (seen[i] == what) return false;
    seen.push(what);
  }
  return true;
}

// Python's floor division and remainder; false where int64 cannot hold the result.
bool divide(int64_t a, int64_t b, int64_t* quotient, int64_t* rest) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *quotient = a / b;
  *rest = a % b;
  if (*rest && (*rest < 0) != (b < 0)) {
    *quotient -= 1;
    *rest += b;
  }
  return true;
}

bool read_size(const ShapeStep& s, PyObject* o, int64_t* out) {
  if (s.code == ShapeStep::Int) {
    if (!PyLong_Check(o)) return false;
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow;
  }
  if (s.code == ShapeStep::Length) {
    *out = length(o);
    return true;
  }
  if (!is_tensor(o)) return false;
  const core::Tensor* t = tensor_of(o);
  if (s.code == ShapeStep::Offset) {
    *out = t->offset;
    return true;
  }
  int64_t dim = s.value < 0 ? s.value + t->layout->ndim : s.value;
  if (dim < 0 || dim >= t->layout->ndim) return false;
  *out = s.code == ShapeStep::Size ? t->layout->shape()[dim] : t->layout->strides()[dim];
  return true;
}

bool shape_holds(const std::vector<ShapeStep>& program, PyObject* const* values) {
  int64_t stack[kShapeStack];
  int n = 0;
  for (const ShapeStep& s : program) {
    if (s.code == ShapeStep::Constant) {
      stack[n++] = s.value;
      continue;
    }
    if (s.source >= 0) {
      if (!read_size(s, values[s.source], &stack[n++])) return false;
      continue;
    }
    int64_t& top = stack[n - 1];
    if (s.code == ShapeStep::Neg) {
      if (__builtin_sub_overflow(int64_t{0}, top, &top)) return false;
      continue;
    }
    if (s.code == ShapeStep::Not) {
      top = !top;
      continue;
    }
    int64_t b = top, rest;
    int64_t& a = stack[--n - 1];
    switch (s.code) {
      case ShapeStep::Add: if (__builtin_add_overflow(a, b, &a)) return false; break;
      case ShapeStep::Sub: if (__builtin_sub_overflow(a, b, &a)) return false; break;
      case ShapeStep::Mul: if (__builtin_mul_overflow(a, b, &a)) return false; break;
      case ShapeStep::FloorDiv: if (!divide(a, b, &a, &rest)) return false; break;
      case ShapeStep::Mod: {
        int64_t quotient;
        if (!divide(a, b, &quotient, &rest)) return false;
        a = rest;
        break;
      }
      case ShapeStep::Min: a = a < b ? a : b; break;
      case ShapeStep::Max: a = a > b ? a : b; break;
      case ShapeStep::Eq: a = a == b; break;
      case ShapeStep::Ne: a = a != b; break;
      case ShapeStep::Lt: a = a < b; break;
      case ShapeStep::Le: a = a <= b; break;
      case ShapeStep::Gt: a = a > b; break;
      case ShapeStep::Ge: a = a >= b; break;
      case ShapeStep::And: a = a && b; break;
      default: a = a || b; break;
    }
  }
  return stack[0] != 0;
}

bool items_equal(PyObject* a, PyObject* b) {              // in order
  Py_ssize_t n = PyTuple_GET_SIZE(a);
  if (PyTuple_GET_SIZE(b) != n) return false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!constants_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

bool sets_equal(PyObject* a, PyObject* b) {               // 1, 1.0 and True are not the same
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Ref mine = checked(PySequence_Tuple(a)), other = checked(PySequence_Tuple(b));
  Py_ssize_t n = PyTuple_GET_SIZE(mine.py());
  if (PyTuple_GET_SIZE(other.py()) != n) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    bool found = false;
    for (Py_ssize_t k = 0; k < n && !found; k++)
      found = constants_equal(PyTuple_GET_ITEM(mine.py(), i), PyTuple_GET_ITEM(other.py(), k));
    if (!found) return false;
  }
  return true;
}

bool attributes_equal(PyObject* a, PyObject* b) {         // of ranges: range(0) is not range(1, 1)
  for (const char* name : {"start", "stop", "step"}) {
    Ref mine = checked(PyObject_GetAttrString(a, name));
    Ref other = checked(PyObject_GetAttrString(b, name));
    if (!constants_equal(mine.py(), other.py())) return false;
  }
  return true;
}

}  // namespace

// Same exact type and same value, floats to the bit. Objects of other types: the same object.
bool constants_equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyLong_Type) return check(PyObject_RichCompareBool(a, b, Py_EQ));
  if (type == &PyUnicode_Type)
    return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && !PyUnicode_Compare(a, b);
  if (type == &PyFloat_Type) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return !std::memcmp(&x, &y, sizeof x);
  }
  if (type == &PyComplex_Type) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return !std::memcmp(&x, &y, sizeof x);
  }
  if (type == &PyBytes_Type)
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           !std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), PyBytes_GET_SIZE(a));
  if (PyTuple_Check(a)) {
    Recursion deeper(" while comparing constants");
    return items_equal(a, b);
  }
  if (type == &PyFrozenSet_Type || type == &PySet_Type) return sets_equal(a, b);
  if (type == &PySlice_Type || type == &PyRange_Type) return attributes_equal(a, b);
  return false;
}

void read_check(GuardCheck& c, PyObject* kind, PyObject* payload, int nsources) {
  int k = 0;
  while (k < GuardCheck::kKinds &&
         (!PyUnicode_Check(kind) || PyUnicode_CompareWithASCIIString(kind, kinds[k])))
    k++;
  if (k == GuardCheck::kKinds) raise(PyExc_ValueError, "[Guards] no check of kind %R", kind);
  c.kind = static_cast<GuardCheck::Kind>(k);
  bool many = c.kind == GuardCheck::Mode || c.kind == GuardCheck::Shape ||
              c.kind == GuardCheck::Alias || c.kind == GuardCheck::NoAlias;
  if (many != (c.source < 0))
    raise(PyExc_ValueError, "[Guards] a check of kind %R takes %s", kind,
        many ? "no source of its own: give -1" : "a source");
  switch (c.kind) {
    case GuardCheck::Is: case GuardCheck::IsNot: keep(c, payload); break;
    case GuardCheck::Type:
      if (!PyType_Check(payload)) raise(PyExc_TypeError, "[Guards] %R is not a type", payload);
      keep(c, payload);
      break;
    case GuardCheck::Len: case GuardCheck::Clock: c.number = integer(payload); break;
    case GuardCheck::Bool: c.number = check(PyObject_IsTrue(payload)); break;
    case GuardCheck::Mode:                                // a word, or (mask, word)
      c.mask = ~static_cast<int64_t>(kRecords);           // listening changes no code
      if (PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) == 2) {
        c.mask = integer(PyTuple_GET_ITEM(payload, 0));
        payload = PyTuple_GET_ITEM(payload, 1);
      }
      c.number = integer(payload) & c.mask;
      break;
    case GuardCheck::Keys: c.payload = check(PySequence_Tuple(payload)); break;
    case GuardCheck::Eq: c.payload = Py_NewRef(payload); break;
    case GuardCheck::Absent:
      c.payload = Py_NewRef(payload);
      if (PyUnicode_CheckExact(payload)) PyUnicode_InternInPlace(&c.payload);
      break;
    case GuardCheck::True:
      if (!PyCallable_Check(payload)) raise(PyExc_TypeError, "[Guards] %R is not callable", payload);
      c.payload = Py_NewRef(payload);
      break;
    case GuardCheck::Tensor: read_tensor(c, payload); break;
    case GuardCheck::Shape: read_shape(c, payload, nsources); break;
    case GuardCheck::Alias: case GuardCheck::NoAlias: {
      Ref list = checked(PySequence_Tuple(payload));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.py()); i++)
        c.sources.push_back(source_number(PyTuple_GET_ITEM(list.py(), i), nsources));
      break;
    }
    default: break;
  }
}

void drop_check(GuardCheck& c) {
  Py_CLEAR(c.payload);
  delete c.tensor;
  c.tensor = nullptr;
}

PyObject* payload_of(const GuardCheck& c) {
  if (!c.payload) return Py_NewRef(Py_None);
  if (!c.weak) return Py_NewRef(c.payload);
  PyObject* o = reinterpret_cast<PyWeakReference*>(c.payload)->wr_object;
  return o == Py_None ? nullptr : Py_NewRef(o);
}

bool holds(const GuardCheck& c, PyObject* const* values) {
  PyObject* v = c.source >= 0 ? values[c.source] : nullptr;
  // The referent of a weak reference that has died is None, which never has weak references.
  PyObject* kept =
      c.weak ? reinterpret_cast<PyWeakReference*>(c.payload)->wr_object : c.payload;
  switch (c.kind) {
    case GuardCheck::Is: return v == kept && !(c.weak && kept == Py_None);
    case GuardCheck::IsNot: return v != kept || (c.weak && kept == Py_None);
    case GuardCheck::Type: return reinterpret_cast<PyObject*>(Py_TYPE(v)) == kept;
    case GuardCheck::Eq: return constants_equal(kept, v);
    case GuardCheck::None: return v == Py_None;
    case GuardCheck::Len: return length(v) == c.number;
    case GuardCheck::Keys: return keys_hold(kept, v);
    case GuardCheck::Absent: return absent(v, kept);
    case GuardCheck::Bool: return check(PyObject_IsTrue(v)) == c.number;
    case GuardCheck::Tensor: return tensor_holds(*c.tensor, v);
    case GuardCheck::Clock: return clock_holds(v, c.number);
    case GuardCheck::Mode: return (static_cast<int64_t>(mode_word()) & c.mask) == c.number;
    case GuardCheck::Alias:
      for (int s : c.sources)
        if (values[s] != values[c.sources[0]]) return false;
      return true;
    case GuardCheck::NoAlias: return storages_distinct(c.sources, values);
    case GuardCheck::Ints: {
      int overflow = 0;
      if (!PyLong_CheckExact(v)) return false;
      PyLong_AsLongLongAndOverflow(v, &overflow);
      return !overflow;
    }
    case GuardCheck::Float: return PyFloat_CheckExact(v);
    case GuardCheck::Shape: return shape_holds(c.shape, values);
    default: {
      Recursion deeper(" in a guard");
      Ref answer = checked(PyObject_CallOneArg(kept, v));
      return check(PyObject_IsTrue(answer.py()));
    }
  }
}

}  // namespace core
