// Operator: what Python declared, bound and classified natively. A Call is one bound call on its
// way to a plan.
// Invariant: operators live for ever (plans, nodes and programs refer to them without counting).
#pragma once
#include "core.h"
#include "tensor.h"

namespace core {

constexpr int kMaxParams = 24;

enum class ParamKind : uint8_t {
  Tensor, Tensors, Number, Float, SymInt, SymInts, Int, Bool, Str, DType, Ints, Object
};
struct Param {
  PyObject* name;
  PyObject* fallback;                    // default, or null: required
  ParamKind kind;
  bool optional, keyword_only, structural;
};

enum class ViewKind : uint8_t {
  None, Select, Slice, Permute, Transpose, Reshape, View, Expand, Unsqueeze, Squeeze,
  AsStrided, Alias, Narrow, Diagonal, Unfold, AsReal, AsComplex
};

struct Operator {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *name, *kind, *params_object, *declaration, *doc;
  const char* text;                      // name as UTF-8
  Param* params;
  int nparams, npositional;
  int gather;                            // the parameter that gathers positional ints, -1: none
  int sizes;  // the parameter that sized recipes of this operator read at run time, -1: none
  int outputs;
  uint32_t index;
  ViewKind view;
  bool differentiable;
  Operator* functional;                  // of an in-place twin: the operator it writes back
  Operator* inplace;                     // the in-place twin, once made
  PyTypeObject* result;                  // of several outputs: the kind of tuple that Python gets, or null
};
extern PyTypeObject* OperatorType;
inline bool is_operator(PyObject* o) { return Py_TYPE(o) == OperatorType; }
// by ViewKind, the first one registered: what indexing records
constexpr int kViewKinds = 17;
extern Operator* view_operators[kViewKinds];

enum class Variant : uint64_t { Plain, Write, Rank, View };

struct Call {
  Operator* op;                          // functional, also in calls of its in-place twin
  PyObject* values[kMaxParams];          // borrowed
  Small<PyObject*, 4> kept;              // owned temporaries among the values
  Small<PyObject*, 4> pins;              // objects whose addresses stand in the key
  Small<Tensor*, 8> tensors;             // flat operands
  Small<uint64_t, 2> needs;              // mask over them; empty: none requires grad
  Small<uint64_t, 24> key;
  bool foreign = false;                  // some operand is a Value
  bool mixed = false;                    // operands on several devices
  Device device = Device::CPU;           // of the operands; without any, where outputs go
  explicit Call(Operator* o) : op(o) {}
  ~Call() { for (int i = 0; i < kept.size(); i++) Py_DECREF(kept[i]); }
  PyObject* keep(Ref&& owned) { kept.push(owned.get()); return owned.release(); }
};

PyObject* operator_vectorcall(
    PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names);
// One value a parameter (programs), or leading positional values (core itself). Throws.
Ref operator_apply(Operator*, PyObject* const* values, int n);
inline Ref operator_apply(Operator* op, PyObject* a) { return operator_apply(op, &a, 1); }
inline Ref operator_apply(Operator* op, PyObject* a, PyObject* b) {
  PyObject* values[2] = {a, b};
  return operator_apply(op, values, 2);
}

// Collects flat tensors and the mask of needs, and writes the key. Rank: dtypes and ranks instead
// of layouts.
void encode(Call&, Variant);
// the values of a run-time sizes parameter, where the plan depends on them
void append_sizes(Call&);
Ref values_tuple(const Call&);
Ref needs_object(const Call&);
Ref dispatch_value(Operator*, PyObject* const* values, PyObject* out);

// views.cpp: affine views, no plan
Ref view_call(Call&);
// joins the family of t; not recorded
Own<Tensor> view_make(Tensor* t, Layout* stolen, int64_t offset);
// a new reference
Layout* select_layout(const char* op, Layout*, int64_t dim, int64_t index, int64_t* offset);

// inplace.cpp
Ref write_call(Call&, PyObject* out, bool inplace);
void check_writable(Tensor*);  // not expanded, not a leaf that requires grad (in grad mode)
// dst = value (a Tensor or a number), broadcast and cast: by the copy_ operator where the tape or
// Python must know, natively otherwise.
void assign(Tensor* dst, PyObject* value);
Own<Tensor> copied(Tensor* src, Layout* stolen);         // a new tensor of that layout, on the tape

void operator_init(PyObject* module);

}  // namespace core
