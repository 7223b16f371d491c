// Tensor: a storage, an interned layout, an offset, and its place on the tape.
// Invariant: `base` is the root of a view family (never itself a view with a base); all views of a
// family share `counter`. A tensor is tracked by the garbage collector only once it refers to other
// objects.
#pragma once
#include "core.h"

namespace core {

// Counts in-place writes to a view family. Absent means 0 writes and no family.
struct Counter {
  int64_t refs, value;
  Counter* next;
};

struct TensorExtra {
  Tensor* grad;                // owned
  Node* accumulator;           // borrowed: the node owns the leaf, and clears this when it dies
  PyObject* hooks;             // dict id -> callable, shared with the node of a non-leaf
  PyObject* post_hooks;        // dict, run after accumulation (leaves)
};

struct Tensor {
  PyObject_HEAD
  Storage* storage;
  Layout* layout;
  int64_t offset;              // elements
  Counter* counter;
  Node* grad_fn;               // owned; null for leaves
  // owned; root of the view family, when this view was made by a differentiable operator
  Tensor* base;
  TensorExtra* extra;
  PyObject* weakrefs;
  int64_t base_version;        // the family's version for which grad_fn is right
  uint32_t output;             // number among grad_fn's outputs
  bool requires_grad;          // a leaf's own flag, and true wherever grad_fn is set
  bool no_grad_view;           // made while gradients were off
  bool retains_grad;
  bool watched;                // guards rely on its layout and on requires_grad
};

// Moves on whenever something changes that guards remember: a watched tensor's layout or gradient
// flag; a watched dict.
extern uint64_t change_clock;
inline void facts_changed(Tensor* t) { if (t->watched) change_clock++; }

extern PyTypeObject* TensorType;
inline bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == TensorType || PyType_IsSubtype(Py_TYPE(o), TensorType);
}
inline Tensor* tensor_of(PyObject* o) { return reinterpret_cast<Tensor*>(o); }
inline PyObject* py(Tensor* t) { return reinterpret_cast<PyObject*>(t); }

Own<Tensor> tensor_make(Storage* stolen, Layout* stolen_layout, int64_t offset);
Own<Tensor> tensor_empty(Layout* stolen);  // extent must start at 0: dense or positive strides
Own<Tensor> tensor_dense(DType, int ndim, const int64_t* shape, Device = Device::CPU);  // C order
Own<Tensor> tensor_zeros(Layout* stolen);
Own<Tensor> tensor_alias(Tensor*);  // same memory and version counter, no gradient
Own<Tensor> tensor_subclass(PyTypeObject*, Tensor*);  // the same as an instance of a subclass

inline char* data_of(const Tensor* t) {
  return static_cast<char*>(t->storage->data) + t->offset * rl::itemsize(t->layout->dtype);
}
// The offset counted in elements of another dtype: of a view of a complex tensor's parts.
inline int64_t offset_in(DType unit, const Tensor* t) {
  return t->offset * rl::itemsize(t->layout->dtype) / rl::itemsize(unit);
}
inline bool needs_grad(const Tensor* t) {
  return t->requires_grad || (t->base && t->base->requires_grad && !t->no_grad_view);
}
inline int64_t version_of(const Tensor* t) { return t->counter ? t->counter->value : 0; }
Counter* counter_of(Tensor*);                                    // makes it where absent; borrowed
void counter_drop(Counter*);
inline void bump_version(Tensor* t) {
  counter_of(t)->value++;
  rl::storage_written(t->storage);
}
TensorExtra* extra_of(Tensor*);
void track(Tensor*);  // from now on it may be part of a cycle
void set_layout(Tensor*, Storage* stolen, Layout* stolen_layout, int64_t offset);
Ref size_tuple(const int64_t* values, int n);                    // a Size
void set_requires_grad(Tensor*, bool);

extern PyMethodDef tensor_methods[];                             // methods.cpp
int tensor_getbuffer(PyObject*, Py_buffer*, int flags);          // convert.cpp
void tensor_releasebuffer(PyObject*, Py_buffer*);
PyObject* tensor_getitem(PyObject*, PyObject* index);            // indexing.cpp
PyObject* tensor_item_at(PyObject*, Py_ssize_t index);
PyObject* tensor_pieces(PyObject*, PyObject* const* args, Py_ssize_t n);
int tensor_setitem(PyObject*, PyObject* index, PyObject* value);
Py_ssize_t tensor_length(PyObject*);
PyObject* tensor_iter(PyObject*);

// copy.cpp: native copies between any layouts and dtypes; src broadcasts to dst. No gradient, no
// version.
void copy_into(Tensor* dst, Tensor* src);
void add_into(Tensor* dst, Tensor* src);  // dst += src; dst may have stride 0: folded
void fill_number(Tensor* dst, PyObject* number);
void fill_one(Tensor* dst);
Own<Tensor> contiguous_copy(Tensor*, DType);                     // C order
Own<Tensor> dense_copy(Tensor*);                                 // same order of dims where dense
bool broadcasts_to(const Layout* from, const Layout* to);

// convert.cpp
Ref scalar_of(DType, const char* at);                            // the Python number there
void store_scalar(DType, char* at, PyObject* number);
PyObject* tensor_tolist(Tensor*);
PyObject* tensor_item(Tensor*);
Own<Tensor> tensor_from_data(PyObject* data, PyObject* dtype);
PyObject* tensor_numpy(Tensor*);

void factories_init(PyObject* module);                           // factories.cpp
void tensor_init(PyObject* module);

}  // namespace core
