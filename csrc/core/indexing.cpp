// Indexing: integers, slices, None and Ellipsis as native views; everything else goes to the Python
// hook `index`.
// Invariant: without a gradient to record a whole index makes one tensor and no intermediate ones.
#include "convert.h"
#include "dtype.h"
#include "operator.h"
#include "tape.h"
#include "rt/views.h"

#include <algorithm>

namespace core {
namespace {

enum class Item { Integer, Slice, NewAxis, Ellipsis, Foreign };

Item item_of(PyObject* o) {
  if (PyLong_CheckExact(o)) return Item::Integer;
  if (PySlice_Check(o)) return Item::Slice;
  if (o == Py_None) return Item::NewAxis;
  if (o == Py_Ellipsis) return Item::Ellipsis;
  if (PyBool_Check(o) || is_tensor(o) || is_value(o)) return Item::Foreign;
  return PyIndex_Check(o) && !PySequence_Check(o) ? Item::Integer : Item::Foreign;
}

bool slice_is_foreign(PyObject* o) {
  PySliceObject* s = reinterpret_cast<PySliceObject*>(o);
  for (PyObject* e : {s->start, s->stop, s->step})
    if (e != Py_None && !PyLong_Check(e) && is_value(e)) return true;
  return false;
}

// One native view after another: natively folded, or operator calls where the tape, records or
// Python must see each.
class Steps {
 public:
  explicit Steps(Tensor* t)
      : t_(t),
        layout_(t->layout),
        offset_(t->offset),
        by_operator_((mode & (kRecords | kDispatch)) || (grad_mode() && needs_grad(t))) {
    rl::incref(layout_);
    if (by_operator_) current_ = Ref::borrow(py(t));
  }
  ~Steps() { rl::decref(layout_); }
  Steps(const Steps&) = delete;

  void select(int dim, PyObject* index) {
    if (by_operator_) return step(ViewKind::Select, {number(dim), Ref::borrow(index)});
    replace(select_layout("select", layout_, dim, read_int("index", index), &offset_));
  }

  void slice(int dim, PyObject* o) {
    PySliceObject* s = reinterpret_cast<PySliceObject*>(o);
    if (s->step != Py_None && clamped(s->step) < 1)
      raise(PyExc_ValueError, "step must be greater than zero");
    if (by_operator_)
      return step(ViewKind::Slice, {number(dim), Ref::borrow(s->start), Ref::borrow(s->stop),
                                       s->step == Py_None ? number(1) : Ref::borrow(s->step)});
    if (s->start == Py_None && s->stop == Py_None && s->step == Py_None) return;
    bool start = s->start != Py_None, end = s->stop != Py_None;
    replace(rl::view_slice("slice", layout_, dim, start, start ? clamped(s->start) : 0, end,
        end ? clamped(s->stop) : 0, s->step == Py_None ? 1 : clamped(s->step), &offset_));
  }

  void new_axis(int dim) {
    if (by_operator_) return step(ViewKind::Unsqueeze, {number(dim)});
    replace(rl::view_unsqueeze("unsqueeze", layout_, dim));
  }

  Ref finish() {
    if (by_operator_) {
      if (current_.py() == py(t_)) step(ViewKind::Alias, {});
      return current_;
    }
    rl::incref(layout_);
    return Ref(view_make(t_, layout_, offset_).release_object());
  }

 private:
  static Ref number(int n) { return checked(PyLong_FromLong(n)); }

  static int64_t clamped(PyObject* o) {  // slice bounds may exceed 64 bits
    Py_ssize_t v;
    if (!PyIndex_Check(o))
      raise(PyExc_TypeError,
          "slice indices must be integers or None or have an __index__ method, not %s",
          Py_TYPE(o)->tp_name);
    v = PyNumber_AsSsize_t(o, nullptr);
    if (v == -1 && PyErr_Occurred()) throw PythonError();
    return v;
  }

  void replace(Layout* made) { rl::decref(std::exchange(layout_, made)); }

  void step(ViewKind kind, std::vector<Ref> rest) {
    Operator* op = view_operators[static_cast<int>(kind)];
    if (!op)
      raise(PyExc_NotImplementedError, "[index] no operator with the view rule %d is registered",
          static_cast<int>(kind));
    PyObject* values[6] = {current_.py()};
    int n = 1;
    for (Ref& r : rest) values[n++] = r.py();
    current_ = operator_apply(op, values, n);
  }

  Tensor* t_;
  Layout* layout_;
  int64_t offset_;
  bool by_operator_;
  Ref current_;
};

// Null: the index is not one of ours.
Ref native(Tensor* t, PyObject* index) {
  int ndim = t->layout->ndim;
  if (!PyTuple_Check(index)) {
    Steps steps(t);
    switch (item_of(index)) {
      case Item::Integer:
        if (ndim == 0)
          raise(PyExc_IndexError,
              "[index] a tensor of no dimensions has no elements to choose from: item() is its "
              "number");
        steps.select(0, index);
        break;
      case Item::Slice:
        if (slice_is_foreign(index)) return Ref();
        if (ndim == 0) raise(PyExc_IndexError, "[index] a tensor of no dimensions cannot be sliced");
        steps.slice(0, index);
        break;
      case Item::NewAxis: steps.new_axis(0); break;
      case Item::Ellipsis: break;
      default: return Ref();
    }
    return steps.finish();
  }
  Py_ssize_t n = PyTuple_GET_SIZE(index);
  int consumed = 0, ellipses = 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject* o = PyTuple_GET_ITEM(index, i);
    switch (item_of(o)) {
      case Item::Integer: consumed++; break;
      case Item::Slice:
        if (slice_is_foreign(o)) return Ref();
        consumed++;
        break;
      case Item::NewAxis: break;
      case Item::Ellipsis: ellipses++; break;
      default: return Ref();
    }
  }
  if (ellipses > 1) raise(PyExc_IndexError, "[index] `...` may stand once in an index");
  if (consumed > ndim) raise(PyExc_IndexError, "too many indices for tensor of dimension %d", ndim);
  Steps steps(t);
  int dim = 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject* o = PyTuple_GET_ITEM(index, i);
    switch (item_of(o)) {
      case Item::Integer: steps.select(dim, o); break;
      case Item::Slice: steps.slice(dim++, o); break;
      case Item::NewAxis: steps.new_axis(dim++); break;
      default: dim += ndim - consumed;
    }
  }
  return steps.finish();
}

// x[indices] with one tensor of places on the same device: the operator at once. Null: another index.
Ref gathered(Tensor* t, PyObject* index) {
  if (Py_TYPE(index) != TensorType || !slots[kIndex]) return Ref();
  const Layout* l = tensor_of(index)->layout;
  if (l->dtype != DType::Int64 || !l->ndim || !t->layout->ndim || l->device != t->layout->device)
    return Ref();
  static PyObject* const first = Py_BuildValue("(i)", 0);
  Ref indices = checked(PyTuple_Pack(1, index));
  PyObject* values[3] = {py(t), indices.py(), check(first)};
  return operator_apply(slots[kIndex], values, 3);
}

}  // namespace

PyObject* tensor_getitem(PyObject* o, PyObject* index) {
  PyObject* result = guarded([&] {
    Ref picked = gathered(tensor_of(o), index);
    if (picked) return picked.release();
    Ref view = native(tensor_of(o), index);
    if (view) return view.release();
    if (!hooks.index)
      raise(PyExc_TypeError,
          "[index] an index of %s is not native, and no index hook is registered",
          Py_TYPE(index)->tp_name);
    PyObject* args[2] = {o, index};
    return check(PyObject_Vectorcall(hooks.index, args, 2, nullptr));
  });
  if (!result) note_user_line();
  return result;
}

int tensor_setitem(PyObject* o, PyObject* index, PyObject* value) {
  int result = guarded_int([&] {
    if (!value) raise(PyExc_TypeError, "Tensor does not support deleting items");
    Ref view = native(tensor_of(o), index);
    if (view && is_tensor(view.py()) && !(mode & kDispatch) && !is_value(value)) {
      Tensor* dst = tensor_of(view.py());
      Own<Tensor> made;  // lists and arrays become tensors of our dtype
      if (!is_tensor(value) && !is_number(value))
        made = tensor_from_data(value, dtype_object(dst->layout->dtype));
      assign(dst, made ? made.py() : value);
      return 0;
    }
    if (!hooks.index)
      raise(PyExc_TypeError,
          "[index] this assignment is not native, and no index hook is registered");
    PyObject* args[3] = {o, index, value};
    checked(PyObject_Vectorcall(hooks.index, args, 3, nullptr));
    return 0;
  });
  if (result < 0) note_user_line();
  return result;
}

// pieces(x, size, dim): consecutive windows of `size` along dim, the last may be shorter; views.
PyObject* tensor_pieces(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    if (n != 3 || !is_tensor(args[0])) raise(PyExc_TypeError, "pieces(tensor, size, dim)");
    Tensor* t = tensor_of(args[0]);
    Layout* l = t->layout;
    const int64_t size = read_int("split", args[1]);
    const int dim = rl::wrap_dim("split", read_int("split", args[2]), l->ndim);
    if (size < 1 || !l->dims[dim])
      raise(PyExc_ValueError, "[split] pieces of %lld along a dim of %lld",
          static_cast<long long>(size), static_cast<long long>(l->dims[dim]));
    const int64_t whole = l->dims[dim], count = (whole - 1) / size + 1;
    Ref made = checked(PyTuple_New(count));
    const bool seen = (mode & (kRecords | kDispatch)) || (grad_mode() && needs_grad(t));
    Operator* op = view_operators[static_cast<int>(ViewKind::Slice)];
    Layout* piece = nullptr;  // of the whole pieces: all lie alike
    struct Freed {
      Layout*& l;
      ~Freed() {
        if (l) rl::decref(l);
      }
    } freed{piece};
    for (int64_t i = 0; i < count; i++) {
      const int64_t start = i * size, length = std::min(size, whole - start);
      Ref view;
      if (seen && op) {
        Ref from = checked(PyLong_FromLongLong(start)), to = checked(PyLong_FromLongLong(start + length)),
            step = checked(PyLong_FromLong(1));
        PyObject* values[5] = {args[0], args[2], from.py(), to.py(), step.py()};
        view = operator_apply(op, values, 5);
      } else {
        int64_t offset = t->offset + start * l->strides()[dim];
        int64_t moved = 0;
        if (!piece) piece = rl::view_slice("split", l, dim, true, 0, true, size, 1, &moved);
        Layout* to = piece;
        if (length == size || count == 1) rl::incref(to);
        else to = rl::view_slice("split", l, dim, true, start, true, whole, 1, &moved);
        view = Ref(view_make(t, to, offset).release_object());
      }
      PyTuple_SET_ITEM(made.py(), i, view.release());
    }
    return made.release();
  });
}

PyObject* tensor_item_at(PyObject* o, Py_ssize_t i) {
  Ref index(PyLong_FromSsize_t(i));
  return index ? tensor_getitem(o, index.py()) : nullptr;
}

Py_ssize_t tensor_length(PyObject* o) {
  const Layout* l = tensor_of(o)->layout;
  if (l->ndim) return l->dims[0];
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
  return -1;
}

PyObject* tensor_iter(PyObject* o) {
  if (tensor_of(o)->layout->ndim) return PySeqIter_New(o);
  PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
  return nullptr;
}

}  // namespace core
