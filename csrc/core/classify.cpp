// Classification: bound values -> flat tensor operands, the mask of needed gradients, and the plan
// key.
// Invariant: words of the key are self-delimiting given the operator's parameters; an address
// stands in a key only for interned layouts, interned strings and objects that the plan will hold
// (`pins`).
#include "devices.h"
#include "dtype.h"
#include "operator.h"

namespace core {
namespace {

enum Tag : uint64_t {
  kNone = 1,
  kBoolNumber,
  kIntNumber,
  kFloatNumber,
  kDefault,
  kInt,
  kBigInt,
  kBool,
  kFloat,
  kList,
  kTuple,
  kDTypeTag,
  kRank,
  kCount,
  kComplexNumber
};
uint64_t word(Tag tag, uint64_t payload = 0) { return payload << 4 | tag; }

const char* const accepted[] = {"Tensor", "tuple of Tensors", "Number", "float", "int",
    "tuple of ints", "int", "bool", "str", "rushlight.dtype", "tuple of ints", "object"};

[[noreturn]] void reject(const Call& call, int i) {
  const Param& p = call.op->params[i];
  PyObject* o = call.values[i];
  raise(PyExc_TypeError, "%s(): argument '%U' (position %d) must be %s, not %s", call.op->text,
      p.name, i + 1, accepted[static_cast<int>(p.kind)], Py_TYPE(o)->tp_name);
}

class Encoder {
 public:
  Encoder(Call& call, Variant variant)
      : call_(call), variant_(variant), records_needs_(grad_mode() && call.op->differentiable) {}

  void run() {
    const Operator* op = call_.op;
    constexpr uint32_t outside = kGrad | kRecords | kDispatch;
    push(static_cast<uint64_t>(variant_) << 62 | static_cast<uint64_t>(mode & ~outside) << 32 |
         op->index);
    for (int i = 0; i < op->nparams; i++) parameter(i, op->params[i]);
    if (!call_.tensors.size() && creation_device != Device::CPU) {
      call_.device = creation_device;
      call_.key[0] |= static_cast<uint64_t>(creation_device) << 44;
    }
    if (!call_.needs.size()) return;
    int words = (call_.tensors.size() + 63) / 64;
    for (int w = call_.needs.size(); w < words; w++) call_.needs.push(0);
    for (int w = 0; w < words; w++) push(call_.needs[w]);
  }

 private:
  void push(uint64_t w) { call_.key.push(w); }

  void tensor(Tensor* t) {
    const Layout* l = t->layout;
    if (variant_ != Variant::Rank) push(reinterpret_cast<uint64_t>(l));
    else
      push(word(kRank, static_cast<uint64_t>(l->device) << 16 |
                           static_cast<uint64_t>(l->ndim) << 8 | static_cast<uint64_t>(l->dtype)));
    int i = call_.tensors.size();
    if (l->device != call_.device) {
      if (i) call_.mixed = true;
      else call_.device = l->device;
    }
    call_.tensors.push(t);
    if (records_needs_ && needs_grad(t) && rl::is_differentiable(l->dtype)) {
      while (call_.needs.size() <= i / 64) call_.needs.push(0);
      call_.needs[i / 64] |= uint64_t(1) << (i % 64);
    }
  }

  void parameter(int i, const Param& p) {
    PyObject* o = call_.values[i];
    switch (p.kind) {
      case ParamKind::Tensor:
        if (Py_TYPE(o) == TensorType) tensor(tensor_of(o));
        else other_than_tensor(i, p, o);
        break;
      case ParamKind::Tensors: list_of_tensors(i, p, o); break;
      case ParamKind::Number:
      case ParamKind::Float:
      case ParamKind::SymInt: number(i, p, o); break;
      case ParamKind::SymInts: sizes(i, p, o); break;
      default: structural(i, p, o);
    }
  }

  void other_than_tensor(int i, const Param& p, PyObject* o) {
    if (o == Py_None && p.optional) push(word(kNone));
    else if (PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o)) number(i, p, o);
    else if (is_value(o)) call_.foreign = true;
    else if (is_tensor(o)) tensor(tensor_of(o));
    else if (PyNumber_Check(o) && !PySequence_Check(o)) number(i, p, o);
    else reject(call_, i);
  }

  void list_of_tensors(int i, const Param& p, PyObject* o) {
    if (o == Py_None && p.optional) return push(word(kNone));
    if (is_value(o)) {
      call_.foreign = true;
      return;
    }
    if (!PyList_Check(o) && !PyTuple_Check(o)) reject(call_, i);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    push(word(kCount, n));
    for (Py_ssize_t k = 0; k < n; k++) {
      PyObject* e = PySequence_Fast_GET_ITEM(o, k);
      if (Py_TYPE(e) == TensorType) tensor(tensor_of(e));
      else if (is_value(e)) call_.foreign = true;
      else if (is_tensor(e)) tensor(tensor_of(e));
      else if (e == Py_None) push(word(kNone));
      else
        raise(PyExc_TypeError, "%s(): expected Tensor as element %zd in argument %d, but got %s",
            call_.op->text, k, i, Py_TYPE(e)->tp_name);
    }
  }

  // Run-time numbers: the type is in the key, the value is not.
  void number(int i, const Param& p, PyObject* o) {
    if (o == Py_None && p.optional) return push(word(kNone));
    if (!PyFloat_CheckExact(o) && !PyLong_CheckExact(o) && !PyBool_Check(o)) {
      if (is_value(o)) {
        call_.foreign = true;
        return;
      }
      if (PyComplex_Check(o)) return complex_number(i, p, o);
      o = call_.values[i] = plain_number(i, o, p.kind == ParamKind::SymInt);
    }
    if (p.kind == ParamKind::SymInt && PyFloat_Check(o)) reject(call_, i);
    if (p.structural) return object(o);
    // Meta plans are layouts, and layouts may follow from run-time sizes.
    if (p.kind == ParamKind::SymInt && call_.device == Device::Meta) return object(o);
    if (p.fallback && is_default(o, p.fallback)) return push(word(kDefault));
    push(word(PyFloat_CheckExact(o) ? kFloatNumber : PyBool_Check(o) ? kBoolNumber : kIntNumber));
  }

  void complex_number(int i, const Param& p, PyObject* o) {
    if (p.kind != ParamKind::Tensor && p.kind != ParamKind::Number) reject(call_, i);
    if (!PyComplex_CheckExact(o))
      o = call_.values[i] = call_.keep(checked(PyComplex_FromCComplex(PyComplex_AsCComplex(o))));
    if (!p.structural) return push(word(kComplexNumber));
    call_.pins.push(o);
    push(reinterpret_cast<uint64_t>(o));
  }

  static bool is_default(PyObject* o, PyObject* fallback) {
    if (o == fallback) return true;
    if (Py_TYPE(o) != Py_TYPE(fallback)) return false;
    if (PyFloat_CheckExact(o)) {
      double a = PyFloat_AS_DOUBLE(o), b = PyFloat_AS_DOUBLE(fallback);
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
    return PyLong_CheckExact(o) && PyObject_RichCompareBool(o, fallback, Py_EQ) == 1;
  }

  // Subclasses of int and float, numpy scalars, 0-dim tensors.
  PyObject* plain_number(int i, PyObject* o, bool integer) {
    if (is_tensor(o)) {
      Tensor* t = tensor_of(o);
      if (t->layout->ndim || needs_grad(t)) reject(call_, i);
      if (rl::is_complex(t->layout->dtype)) reject(call_, i);
      return call_.keep(checked(tensor_item(t)));
    }
    if (PyFloat_Check(o)) return call_.keep(checked(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o))));
    if (PyIndex_Check(o) && !PySequence_Check(o)) {
      if (Py_TYPE(o)->tp_name && std::strstr(Py_TYPE(o)->tp_name, "bool"))
        return PyObject_IsTrue(o) ? Py_True : Py_False;
      return call_.keep(checked(PyNumber_Index(o)));
    }
    if (!integer && PyNumber_Check(o) && !PySequence_Check(o) && !PyComplex_Check(o)) {
      if (std::strstr(Py_TYPE(o)->tp_name, "bool")) return PyObject_IsTrue(o) ? Py_True : Py_False;
      Ref value(PyNumber_Float(o));
      if (value) return call_.keep(std::move(value));
      PyErr_Clear();
    }
    reject(call_, i);
  }

  void sizes(int i, const Param& p, PyObject* o) {
    if (o == Py_None && p.optional) return push(word(kNone));
    if (!PyTuple_Check(o) && !PyList_Check(o)) {
      if (is_value(o)) {
        call_.foreign = true;
        return;
      }
      if (!PyIndex_Check(o)) reject(call_, i);
      o = call_.values[i] = call_.keep(checked(PyTuple_Pack(1, o)));
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    bool run_time = !p.structural && call_.op->sizes == i && variant_ != Variant::View;
    push(word(kCount, n));
    for (Py_ssize_t k = 0; k < n; k++) {
      PyObject* e = PySequence_Fast_GET_ITEM(o, k);
      if (!PyLong_Check(e)) {
        if (is_value(e)) {
          call_.foreign = true;
          continue;
        }
        if (!PyIndex_Check(e)) reject(call_, i);
        Ref whole =
            checked(PySequence_List(o));  // numpy integers, 0-dim tensors: once, into a plain tuple
        for (Py_ssize_t j = 0; j < n; j++) {
          PyObject* x = PyList_GET_ITEM(whole.py(), j);
          if (!PyLong_Check(x) && PyIndex_Check(x) && !is_value(x))
            check(PyList_SetItem(whole.py(), j, check(PyNumber_Index(x))));
        }
        o = call_.values[i] = call_.keep(checked(PyList_AsTuple(whole.py())));
        e = PyTuple_GET_ITEM(o, k);
      }
      if (!run_time && PyLong_Check(e)) object(e);
    }
  }

  void structural(int i, const Param& p, PyObject* o) {
    if (o == Py_None && (p.optional || p.kind == ParamKind::Object || p.fallback == Py_None))
      return push(word(kNone));
    bool fits = true;
    switch (p.kind) {
      case ParamKind::Bool: fits = PyBool_Check(o); break;
      case ParamKind::Str: fits = PyUnicode_Check(o); break;
      case ParamKind::DType:
        fits = names_dtype(o);
        if (fits && !is_dtype(o)) o = call_.values[i] = dtype_object(dtype_from(o));
        break;
      case ParamKind::Int:
        if (!PyLong_Check(o)) {
          if (is_value(o)) {
            call_.foreign = true;
            return;
          }
          fits = PyIndex_Check(o) && !PyBool_Check(o);
          if (fits) o = call_.values[i] = call_.keep(checked(PyNumber_Index(o)));
        }
        break;
      case ParamKind::Ints:
        fits = PyLong_Check(o) || PyTuple_Check(o) || PyList_Check(o) || PyIndex_Check(o);
        if (fits && !PyLong_Check(o) && PyIndex_Check(o))
          o = call_.values[i] = call_.keep(checked(PyNumber_Index(o)));
        break;
      default: break;
    }
    if (!fits) {
      if (is_value(o)) {
        call_.foreign = true;
        return;
      }
      reject(call_, i);
    }
    object(o);
  }

  // A structural value, by value where it has one, by address otherwise.
  void object(PyObject* o) {
    if (o == Py_None) return push(word(kNone));
    if (PyBool_Check(o)) return push(word(kBool, o == Py_True));
    if (PyLong_Check(o)) {
      int overflow;
      long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (overflow)
        raise(PyExc_OverflowError, "[%s] an integer argument exceeds 64 bits", call_.op->text);
      if (v < (1ll << 58) && v > -(1ll << 58)) return push(word(kInt, static_cast<uint64_t>(v)));
      push(word(kBigInt));
      return push(static_cast<uint64_t>(v));
    }
    if (PyFloat_Check(o)) {
      double v = PyFloat_AS_DOUBLE(o);
      uint64_t bits;
      std::memcpy(&bits, &v, sizeof bits);
      push(word(kFloat));
      return push(bits);
    }
    if (is_dtype(o)) return push(word(kDTypeTag, static_cast<uint64_t>(dtype_from(o))));
    if (PyUnicode_Check(o)) {
      if (!PyUnicode_CHECK_INTERNED(o)) {
        PyObject* interned = Py_NewRef(o);
        PyUnicode_InternInPlace(&interned);
        o = call_.keep(Ref(interned));
      }
    } else if (PyTuple_Check(o) || PyList_Check(o)) {
      Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      push(word(PyTuple_Check(o) ? kTuple : kList, n));
      for (Py_ssize_t k = 0; k < n; k++) object(PySequence_Fast_GET_ITEM(o, k));
      return;
    } else if (is_value(o)) {
      call_.foreign = true;
      return;
    }
    call_.pins.push(o);
    push(reinterpret_cast<uint64_t>(o));
  }

  Call& call_;
  Variant variant_;
  bool records_needs_;
};

}  // namespace

void encode(Call& call, Variant variant) {
  call.key.clear();
  call.tensors.clear();
  call.needs.clear();
  call.pins.clear();
  call.mixed = false;
  call.device = Device::CPU;
  Encoder(call, variant).run();
}

void append_sizes(Call& call) {
  PyObject* o = call.values[call.op->sizes];
  if (!PyTuple_Check(o) && !PyList_Check(o)) return;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); k++) {
    long long v = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(o, k));
    if (v == -1 && PyErr_Occurred()) throw PythonError();
    call.key.push(static_cast<uint64_t>(v));
  }
}

Ref values_tuple(const Call& call) {
  Ref tuple = checked(PyTuple_New(call.op->nparams));
  for (int i = 0; i < call.op->nparams; i++)
    PyTuple_SET_ITEM(tuple.py(), i, Py_NewRef(call.values[i]));
  return tuple;
}

Ref needs_object(const Call& call) {
  Ref mask = checked(PyLong_FromLong(0));
  for (int w = call.needs.size() - 1; w >= 0; w--) {
    Ref shift = checked(PyLong_FromLong(64));
    Ref part = checked(PyLong_FromUnsignedLongLong(call.needs[w]));
    Ref high = checked(PyNumber_Lshift(mask.py(), shift.py()));
    mask = checked(PyNumber_Or(high.py(), part.py()));
  }
  return mask;
}

}  // namespace core
