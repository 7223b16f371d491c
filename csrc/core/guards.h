// Guards: what must hold for a compiled entry to serve a call, checked without entering Python
// where the values are plain.
// Takes sources (where a value is found: an argument, a global, an attribute of another source) and
// checks on them. Gives the first check that fails. Invariant: a source is read right before the
// first check that needs it, so a check may rely on those before it.
#pragma once
#include <unordered_map>

#include "core.h"

namespace core {

struct GuardSource {
  enum Op : uint8_t {
    Arg, Global, Builtin, Cell, Const, Function, Attr, DictAttr, Type, Item, Index, Default,
    KwDefault, Closure, Grad, Len, Call, kOps
  } op;
  int parent;                  // source number; -1 for roots
  int64_t index;
  PyObject *key, *table;       // owned; null where the op has none
  bool owned() const { return op != Arg && op != Const && op != Function; }
};

// What a tensor must look like. kAny stands for a size or stride that may vary.
constexpr int64_t kAny = INT64_MIN;
struct TensorFacts {
  PyTypeObject* type;          // owned
  Layout* exact;               // owned; set where every size and stride is fixed: one comparison
  DType dtype;
  int device;                  // -1: any
  int ndim;
  bool requires_grad;
  int leaf;                    // -1: any
  enum Strides : uint8_t { Free, Contiguous, Given } how;
  std::vector<int64_t> sizes, strides;
  ~TensorFacts();
};

struct ShapeStep {             // one step of a postfix program over int64
  enum Code : uint8_t {
    Constant, Size, Stride, Offset, Int, Length,
    Add, Sub, Mul, FloorDiv, Mod, Neg, Min, Max, Eq, Ne, Lt, Le, Gt, Ge, And, Or, Not
  } code;
  int source;
  int64_t value;               // the constant, or the dim
};

struct GuardCheck {
  enum Kind : uint8_t {
    Is, IsNot, Type, Eq, None, Len, Keys, Absent, Bool, Tensor, Clock, Mode, Alias, NoAlias, Ints,
    Float, Shape, True, kKinds
  } kind;
  bool weak;                   // payload is a weak reference to the object
  int source;                  // -1: none, or several
  int64_t number, mask;
  PyObject* payload;           // owned
  TensorFacts* tensor;
  std::vector<int> sources;
  std::vector<ShapeStep> shape;
};

struct GuardMemo;

struct Guards {
  PyObject_HEAD
  std::vector<GuardSource>* sources;
  std::vector<GuardCheck>* checks;
  std::vector<int>* steps;     // i: read source i; ~i: make check i
  std::vector<int>* inputs;    // what `fetch` gives: sources, -1 for a value that it is given
  std::vector<int>* anchors;   // sources that it is given before those, behind bound parameters
  int bound;                   // how many of these
  bool in_vain;                // inputs hang on what is not given: `fetch` can never give them
  int locals;                  // how many bound parameters the sources reach
  int64_t passes, failures;
  // What need not be checked again, a memo for each of the latest (models in turn share guards).
  static constexpr int kMemos = 4;
  GuardMemo* memos[kMemos];
  int memo_count, latest;
  int streak, rest;            // memos made since one served; passes until the next is made
  std::unordered_map<PyObject*, int>* restless;  // dicts (compared only) that changed, how often
};
extern PyTypeObject* GuardsType;
inline Guards* guards_of(PyObject* o) { return reinterpret_cast<Guards*>(o); }

// The number of the first check that fails (`seen` gets what it saw, or the exception that reading
// it raised), or -1. Throws where an exception that is no Exception (KeyboardInterrupt) came up.
int guards_evaluate(Guards*, PyObject* const* locals, int n, PyObject* function, Ref* seen);

bool relied_on(const Guards*, PyObject* dict);           // has it not kept changing?

// 1: found, a new reference; 0: there is none; -1: another exception. Silent about AttributeError.
inline int optional_attribute(PyObject* o, PyObject* name, PyObject** found) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyObject_GetOptionalAttr(o, name, found);
#else
  return _PyObject_LookupAttr(o, name, found);
#endif
}

// guard_checks.cpp
void read_check(GuardCheck&, PyObject* kind, PyObject* payload, int nsources);
void drop_check(GuardCheck&);
bool holds(const GuardCheck&, PyObject* const* values);
bool constants_equal(PyObject*, PyObject*);
PyObject* payload_of(const GuardCheck&);                 // a new reference; null once it has died

void guards_init(PyObject* module);

}  // namespace core
